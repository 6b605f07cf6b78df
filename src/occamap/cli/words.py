"""Errors in the words of the command line: parameters as the options they came from."""

from __future__ import annotations

import re

ALIKE = (
    "groupby control target group layer use_genes counts cost gamma gammas k epsilon epsilon_scale relax max_density "
    "max_memory by replicate subsamples out targets within costs splits test_size hvg components markers dask fdr "
    "gene_sets l1_ratio frozen weights pool match"
)
OTHERS = {"n_jobs": "--threads", "random_state": "--seed", "cv": "--splits", "close_ups": "--close-up"}
OPTIONS = {
    **{name: f"--{name.replace('_', '-')}" for name in ALIKE.split()},
    **OTHERS,
    **{"data": "DATA", "model": "MODEL", "adata": "DATA", "run": "RUN"},
}
_NAMES = "|".join(sorted(OPTIONS, key=len, reverse=True))
_SUBJECT = re.compile(rf"^(?:{_NAMES})(?: and (?:{_NAMES}))?(?= must\b|:|,)")
_NAME = re.compile(rf"\b(?:{_NAMES})\b")
_LIST = re.compile(rf"(?<=holds one of other )(?:{_NAMES})(?:, (?:{_NAMES}))*(?=[:,])")
_BESIDE = re.compile(rf"(?<=given with )(?:{_NAMES})\b|(?<=given only with )(?:{_NAMES})\b")
_SETTING = re.compile(rf"\b({_NAMES})='(\w+)'")
_ABSENT = re.compile(rf"\b({_NAMES})=None")


def spoken(message: str) -> str:
    """The message with options instead of parameters.

    >>> spoken("use_genes must be a column of adata.var; got 'x'")
    "--use-genes must be a column of adata.var; got 'x'"
    >>> spoken("gamma must not be given with fdr: leave one of them out")
    '--gamma must not be given with --fdr: leave one of them out'
    >>> spoken("adata.X holds raw counts (let it be done here, with counts='normalize')")
    'adata.X holds raw counts (let it be done here, with --counts normalize)'
    >>> spoken("add replicates, or treat cells as independent (replicate=None)")
    'add replicates, or treat cells as independent (no --replicate)'
    >>> spoken("'run' holds one of other random_state, gammas: take another directory")
    "'run' holds one of other --seed, --gammas: take another directory"
    """
    found = _SETTING.sub(lambda found: f"{OPTIONS[found[1]]} {found[2]}", message)
    found = _ABSENT.sub(lambda found: f"no {OPTIONS[found[1]]}", found)
    for part in (_SUBJECT, _LIST, _BESIDE):
        found = part.sub(lambda found: _NAME.sub(lambda name: OPTIONS[name[0]], found[0]), found)
    return found
