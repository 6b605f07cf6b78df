"""A fitted map as meta data and arrays, and back: what a model file holds."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from occamap import model_file
from occamap._containers import check_compressed
from occamap._memory import available, format_size
from occamap._validate import Samples, check_number, check_samples
from occamap.costs import KINDS, L1, Cost
from occamap.errors import InputError, MemoryBudgetError, ModelFileError
from occamap.maps.problem import Problem
from occamap.model_file import Arrays, Meta
from occamap.sinkhorn import Report, Solution

if TYPE_CHECKING:
    from occamap.maps.monge_map import MongeMap

FEATURE_BYTES, SMALL = 160, 2**26  # what moving samples takes a feature, and what nobody needs to ask for
LARGEST = 2**63  # of any number in a report
MOST_DIGITS = 1e18  # of a potential next to ε: with more, all weights are lost to rounding, and no fit has them


def save(model: MongeMap, path: str | os.PathLike[str]) -> None:
    """Write a fitted map; the file appears whole or not at all."""
    arrays: Arrays = {"f": model.f_, "g": model.g_, "a": model.a_, "b": model.b_}
    meta: Meta = {
        "cost": _describe_cost(model._towards.cost, arrays),
        "parameters": {k: v for k, v in model.get_params(deep=False).items() if k != "cost"},
        "cost_given": model.cost is not None,
        "epsilon": model.epsilon_,
        "report": model.report_.to_dict(),
        "feature_names": [_name(name) for name in getattr(model, "feature_names_in_", [])] or None,
        "source": _describe_samples("source", model._source, arrays),
        "target": _describe_samples("target", model._target, arrays),
    }
    model_file.write(path, _plain(meta), arrays)


def _name(name: Any) -> str | int | float:
    """A feature name that JSON can hold."""
    name = _plain(name)
    if not isinstance(name, str | int | float) or name != name:
        raise InputError(f"feature names must be text or numbers to be saved; got {name!r}")
    return name


def _plain(value: Any) -> Any:
    """NumPy scalars as Python numbers, for JSON."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def _describe_cost(cost: Cost, arrays: Arrays) -> dict[str, Any]:
    name = type(cost).__name__
    if KINDS.get(name) is not type(cost):
        raise InputError(f"cost must be one of {', '.join(KINDS)} to be saved; got {cost!r}")
    entries = {key: getattr(cost, key) for key in cost.__dataclass_fields__}  # type: ignore[attr-defined]
    for key, value in list(entries.items()):
        if isinstance(value, np.ndarray):
            arrays[f"cost_{key}"] = value
            entries[key] = {"array": f"cost_{key}"}
        elif isinstance(value, dict):  # arrays by name
            arrays[f"cost_{key}"] = np.concatenate(list(value.values()))
            arrays[f"cost_{key}_sizes"] = np.array([entry.size for entry in value.values()])
            names = {"names": list(value), "sizes": f"cost_{key}_sizes"}
            entries[key] = {"array": f"cost_{key}", **names}
    return {"name": name, "parameters": entries}


def _describe_samples(side: str, samples: Samples, arrays: Arrays) -> dict[str, Any]:
    arrays[f"{side}_data"] = samples.data
    if samples.indices is not None and samples.indptr is not None:
        arrays[f"{side}_indices"], arrays[f"{side}_indptr"] = samples.indices, samples.indptr
    return {"shape": list(samples.shape), "sparse": samples.is_sparse}


def build(model_class: type[MongeMap], meta: Meta, arrays: Arrays) -> MongeMap:
    """The map that `save` wrote; everything is checked again."""
    cost = _cost(meta["cost"], arrays)
    if meta["cost_given"] is not True and (meta["cost_given"] is not False or cost != L1(1.0)):
        raise ModelFileError("its cost is not the default, as it says")
    model = model_class(cost if meta["cost_given"] else None, **meta["parameters"])
    model._check_parameters()
    names = _names(meta["feature_names"])
    source, target = (_samples(meta[side], side, arrays, names) for side in ("source", "target"))
    f, g, a, b = (arrays[key] for key in "fgab")
    epsilon = check_number(meta["epsilon"], "epsilon", 0, open_low=True)
    fits = (
        source.shape[1] == target.shape[1]
        and f.shape == a.shape == source.shape[:1]
        and g.shape == b.shape == target.shape[:1]
        and (names is None or names.shape == source.shape[1:])
        and all(array.dtype == np.float64 and np.isfinite(array).all() for array in (f, g, a, b))
    )
    if not fits:
        raise ModelFileError("its parts do not fit together")
    for mass in (a, b):
        if mass.min() < 0 or abs(float(mass.sum()) - 1) > 1e-6:
            raise ModelFileError("its masses do not add up to one")
    largest = max(source.largest(), target.largest())
    if max(np.abs(f).max(), np.abs(g).max()) > MOST_DIGITS * epsilon or largest**2 * source.shape[1] > 1e290 * epsilon:
        raise ModelFileError("its ε is too small for its potentials and samples")
    cost._check_features(source.shape[1])
    cost._check_scale(largest)
    report = _report(meta["report"], epsilon, target.shape[0])
    solution = Solution(f, g, epsilon, report.status, report.error, report.errors, report.effective_targets)
    model._keep(cost, Problem(source, target, a, b, names), solution)
    model.report_ = report
    model._set_outcome()
    return model


def _cost(entry: dict[str, Any], arrays: Arrays) -> Cost:
    parameters = {key: _parameter(value, arrays) for key, value in entry["parameters"].items()}
    return KINDS[entry["name"]](**parameters)


def _parameter(entry: Any, arrays: Arrays) -> Any:
    """A number, an array, or a dict of arrays by name."""
    if not isinstance(entry, dict):
        return entry
    array = arrays[entry["array"]]
    if "names" not in entry:
        return array
    names, sizes = entry["names"], arrays[entry["sizes"]]
    whole = sizes.shape == (len(names),) and sizes.dtype.kind == "i" and array.ndim == 1
    total = sum(sizes.tolist()) if whole else -1  # in integers that do not wrap around
    if total != array.size or sizes.min(initial=0) < 0:
        raise ModelFileError("the groups of its cost do not have the sizes that are written beside them")
    if not all(isinstance(name, str | int) for name in names):
        raise ModelFileError("the groups of its cost have names that are no text")
    return dict(zip(names, np.split(array, np.cumsum(sizes)[:-1]), strict=True))


def _names(entry: Any) -> NDArray[Any] | None:
    """Any text is a name, whatever characters it has: those who show it see to that."""
    if entry is None:
        return None
    if not isinstance(entry, list) or not all(isinstance(name, str | int | float) for name in entry):
        raise ModelFileError("its feature names are no list of texts")
    names = np.empty(len(entry), dtype=object)
    names[:] = entry
    return names


def _report(entries: dict[str, Any], epsilon: float, n_targets: int) -> Report:
    """How the fit came about, each part of the type that it has in a report."""
    kinds: dict[str, Any] = {"float": int | float, "int": int, "str": str, "Status": str, "tuple[float, ...]": list}
    for part in fields(Report):
        value = entries[part.name]
        parts = value if isinstance(value, list) else [value]
        sound = isinstance(value, kinds[str(part.type)]) and not isinstance(value, bool)
        if not sound or (isinstance(value, list) and not all(isinstance(one, int | float) for one in parts)):
            raise ModelFileError(f"the {part.name!r} of its report is not what belongs there")
        if not all(abs(one) < LARGEST for one in parts if not isinstance(one, str)):
            raise ModelFileError(f"the {part.name!r} of its report is too large")
    if entries["epsilon"] != epsilon or entries["n_targets"] != n_targets:
        raise ModelFileError("its report is that of another fit")
    return Report.from_dict(entries)


def _samples(entry: dict[str, Any], side: str, arrays: Arrays, names: Any) -> Samples:
    """Samples as saved, through the same gate as any input."""
    data, shape = arrays[f"{side}_data"], tuple(entry["shape"])
    if entry["sparse"]:
        indices, indptr = arrays[f"{side}_indices"], arrays[f"{side}_indptr"]
        if not indices.dtype.kind == indptr.dtype.kind == "i":
            raise ModelFileError(f"the {side} samples have no whole numbers as indices")
        raw = csr_array((data, indices, indptr), shape=shape)
        check_compressed(raw)
        samples = check_samples(raw, side)
        _check_width(samples.shape[1])
    else:
        samples = check_samples(data, side)
    if samples.shape != shape or samples.dtype != data.dtype:
        raise ModelFileError(f"the {side} samples do not have the shape that is written beside them")
    return Samples(samples.shape, samples.data, samples.indices, samples.indptr, names)


def _check_width(width: int) -> None:
    """Raise where no map of so many features can be used: sparse rows hold nothing that bears their number out."""
    need = FEATURE_BYTES * width
    if need > SMALL and need > (left := available()):
        raise MemoryBudgetError(
            f"its {width:,} features need {format_size(need)}, and {format_size(left)} are left: it may be damaged, "
            "else take a machine with more memory"
        )
