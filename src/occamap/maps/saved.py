"""A fitted map as meta data and arrays, and back: what a model file holds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from occamap import model_file
from occamap._validate import Samples, check_samples
from occamap.costs import L1, STVS, Cost, GroupLasso, KOverlap, SqL2, Subspace
from occamap.errors import InputError, ModelFileError
from occamap.maps.problem import Problem
from occamap.model_file import Arrays, Meta
from occamap.sinkhorn import Report, Solution

if TYPE_CHECKING:
    from occamap.maps.monge_map import MongeMap

COSTS: dict[str, type[Cost]] = {kind.__name__: kind for kind in (SqL2, L1, STVS, KOverlap, GroupLasso, Subspace)}


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
    if COSTS.get(name) is not type(cost):
        raise InputError(f"cost must be one of {', '.join(COSTS)} to be saved; got {cost!r}")
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
    parameters = meta["cost"]["parameters"]
    for key, value in parameters.items():
        if isinstance(value, dict):
            parameters[key] = _parameter(value, arrays)
    cost = COSTS[meta["cost"]["name"]](**parameters)
    model = model_class(cost if meta["cost_given"] else None, **meta["parameters"])
    model._check_parameters()
    names = np.array(meta["feature_names"], dtype=object) if meta["feature_names"] else None
    source, target = (_samples(meta[side], side, arrays, names) for side in ("source", "target"))
    f, g, a, b = (arrays[key] for key in "fgab")
    epsilon = float(meta["epsilon"])
    sound = (
        source.shape[1] == target.shape[1]
        and f.shape == a.shape == source.shape[:1]
        and g.shape == b.shape == target.shape[:1]
        and (names is None or names.size == source.shape[1])
        and all(np.isfinite(v).all() for v in (f, g, a, b))
        and min(a.min(), b.min()) >= 0
        and 0 < epsilon < float("inf")
    )
    if not sound:
        raise ModelFileError("its parts do not fit together")
    cost._check_features(source.shape[1])
    report = Report.from_dict(meta["report"])
    solution = Solution(f, g, epsilon, report.status, report.error, report.errors, report.effective_targets)
    model._keep(cost, Problem(source, target, a, b, names), solution)
    model.report_ = report
    model._set_outcome()
    return model


def _parameter(entry: dict[str, Any], arrays: Arrays) -> Any:
    """An array, or a dict of arrays by name."""
    array = arrays[entry["array"]]
    if "names" not in entry:
        return array
    names, sizes = entry["names"], arrays[entry["sizes"]]
    whole = sizes.shape == (len(names),) and sizes.dtype.kind in "iu"
    if not whole or sizes.min(initial=0) < 0 or sizes.sum() != array.size:
        raise ModelFileError("the groups of its cost do not have the sizes that are written beside them")
    return dict(zip(names, np.split(array, np.cumsum(sizes)[:-1]), strict=True))


def _samples(entry: dict[str, Any], side: str, arrays: Arrays, names: Any) -> Samples:
    """Samples as saved, through the same gate as any input."""
    data, shape = arrays[f"{side}_data"], tuple(entry["shape"])
    if entry["sparse"]:
        raw = csr_array((data, arrays[f"{side}_indices"], arrays[f"{side}_indptr"]), shape=shape)
        samples = check_samples(raw, side)
    else:
        samples = check_samples(data, side)
    if samples.shape != shape or samples.dtype != data.dtype:
        raise ModelFileError(f"the {side} samples do not have the shape that is written beside them")
    return Samples(samples.shape, samples.data, samples.indices, samples.indptr, names)
