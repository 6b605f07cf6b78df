"""Every exception and warning that occamap raises on purpose."""

from __future__ import annotations


class OccamapError(Exception):
    """Base of all errors raised on purpose."""


class InputError(OccamapError, ValueError):
    """An argument breaks a rule; the message names the argument, the rule and what it got."""


class FeatureMismatchError(InputError):
    """Features differ, in number, name or order, from those the map was fitted on."""


class InfeasibleError(OccamapError, ValueError):
    """The problem as posed has no solution."""


class MemoryBudgetError(OccamapError, MemoryError):
    """The work does not fit in `max_memory`; the message says what would."""


class ModelFileError(OccamapError):
    """A model file is truncated, altered, of a later version, or not one at all."""


class RunFileError(OccamapError):
    """A run record is truncated, altered, of a later version, or not one at all."""


class BusyError(OccamapError, RuntimeError):
    """Another process writes to this directory; the message says which."""


class NotConvergedWarning(UserWarning):
    """The solver stopped before the marginals met the tolerance; the message names the remedy."""


class MissingPackageError(OccamapError, ImportError):
    """A call needs a package that is not installed; the message says how to get it."""


class SelectionError(OccamapError, ValueError):
    """No cell of the grid satisfies the rule; the message says which comes closest and what to change."""


class ClusterError(OccamapError, RuntimeError):
    """A Dask cluster failed in the middle of the work."""


class InputWarning(UserWarning):
    """Part of an argument is without effect; the message says which."""


class MatchWarning(UserWarning):
    """Cells of a group are matched with cells of other groups; the message says which, and what to do."""


class SelectionWarning(UserWarning):
    """A choice was made that held-out samples give no reason for."""


def one_line(error: Exception) -> str:
    """What another's error says, in one line."""
    return (" ".join(str(error).split()) or type(error).__name__)[:300]
