"""A fitted map as meta data and arrays, and back: what a model file holds."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from occamap import model_file
from occamap._containers import check_compressed
from occamap._memory import available, format_size
from occamap._validate import Samples, check_number, check_samples
from occamap.costs import KINDS, L1, Cost, SqL2
from occamap.errors import InputError, MemoryBudgetError, ModelFileError
from occamap.maps.components import Components
from occamap.maps.evidence import N_BINS, Threshold
from occamap.maps.matching import Coordinates, given_coordinates
from occamap.maps.neighbourhoods import JointSpace, Places, check_pool
from occamap.maps.problem import Problem
from occamap.maps.replicates import Replicates
from occamap.maps.strata import Strata
from occamap.model_file import Arrays, Meta
from occamap.sinkhorn import Report, Solution

if TYPE_CHECKING:
    from occamap.maps.monge_map import MongeMap

FEATURE_BYTES, SMALL = 160, 2**26  # what moving samples takes a feature, and what nobody needs to ask for
LARGEST = 2**63  # of any number in a report but ε, which has the scale of the samples
MOST_DIGITS = 1e18  # of a potential next to ε: with more, all weights are lost to rounding


def save(model: MongeMap, path: str | os.PathLike[str]) -> None:
    """Write a fitted map; the file appears whole or not at all."""
    for name, value in model._fitted_with.items():
        now = getattr(model, name)
        if now is not value and (isinstance(now, tuple | list) or isinstance(value, tuple | list) or now != value):
            raise InputError(f"{name} must be what the map was fitted with for it to be saved: fit it again")
    if _loses_weights(model.f_, model.g_, model.epsilon_, model._source, model._target):
        raise InputError(
            f"the map cannot be saved: its ε of {model.epsilon_:.3g} is too small for its potentials and samples, so "
            "that rounding decides its weights: fit with a larger epsilon, or scale the samples"
        )
    arrays: Arrays = {"f": model.f_, "g": model.g_, "a": model.a_, "b": model.b_}
    meta: Meta = {
        "cost": _describe_cost(model._towards.cost, arrays),
        "parameters": {
            **{k: v for k, v in model.get_params(deep=False).items() if k != "cost"},
            "pool": _describe_pool(model.pool, model.a_.size, arrays),
            "match": _describe_match(model.match),
            "within": _describe_within(model._strata, "within", arrays),
            "replicate": _describe_within(model._replicates, "replicate", arrays),
        },
        "space": _describe_space(model, arrays),
        "cost_given": model.cost is not None,
        "epsilon": model.epsilon_,
        "report": model.report_.to_dict(),
        "feature_names": [_name(name) for name in getattr(model, "feature_names_in_", [])] or None,
        "source": _describe_samples("source", model._source, arrays),
        "target": _describe_samples("target", model._target, arrays),
    }
    if model.fdr is not None:
        threshold = model._calibrate()
        arrays["scores"] = threshold.counts
        if threshold.priors is not None:
            arrays["priors"] = threshold.priors
    model_file.write(path, _plain(meta), arrays)


def _loses_weights(
    f: NDArray[np.float64], g: NDArray[np.float64], epsilon: float, source: Samples, target: Samples
) -> bool:
    """Whether costs or potentials are so large beside ε that rounding decides the weights."""
    largest, potential = max(source.largest(), target.largest()), max(np.abs(f).max(), np.abs(g).max())
    return bool(potential > MOST_DIGITS * epsilon or float(largest) ** 2 * source.shape[1] > 1e290 * epsilon)


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


def _describe_pool(pool: Any, n: int, arrays: Arrays) -> Any:
    """None, a number or "auto" as they are; a matrix or labels as arrays."""
    checked = check_pool(pool, n)
    if checked is None or isinstance(checked, int | str):
        return checked
    if isinstance(checked, csr_array):
        arrays["pool_data"], arrays["pool_indptr"] = checked.data, checked.indptr.astype(np.int64)
        arrays["pool_indices"] = checked.indices.astype(np.int64)
        return {"matrix": True}
    names, codes = np.unique(checked, return_inverse=True)
    arrays["pool_codes"] = codes.astype(np.int64)
    return {"labels": [_name(name) for name in names.tolist()]}


def _describe_match(match: Any) -> Any:
    """None or a number as they are; coordinates that were given are arrays of the space."""
    if isinstance(match, tuple | list):
        return {"coordinates": True}
    if hasattr(match, "transform"):
        raise InputError(
            "match must be None, a number of principal components or a pair of arrays to be saved, since a file holds "
            f"no code; got {type(match).__name__}"
        )
    return match


def _describe_within(groups: Strata | Replicates | None, parameter: str, arrays: Arrays) -> Any:
    """The names of groups of samples; the groups of the samples are arrays."""
    if groups is None:
        return None
    arrays[f"{parameter}_source"], arrays[f"{parameter}_target"] = groups.source, groups.target
    return [_name(name) for name in groups.names.tolist()]


def _describe_space(model: MongeMap, arrays: Arrays) -> dict[str, Any]:
    """Coordinates of the samples and places of the source, as far as they are known or `pool` needs them."""
    if model.pool is not None:
        model._find_places()
    space = model._space_held
    if space is None or space.learned is None:
        return {}
    if space.learned.components is not None:
        arrays["axes"], arrays["offset"] = space.learned.components.axes, space.learned.components.offset
    for side, (_, coordinates) in zip(("source", "target"), space.learned.given, strict=False):
        arrays[f"{side}_coordinates"] = coordinates
    if True not in space.places:
        return {}
    places = space.places[True]
    arrays["places"], arrays["places_smooth"] = places.raw, places.source
    arrays["places_targets"] = places.anchors
    return {"scales": list(places.scales)}


def _describe_samples(side: str, samples: Samples, arrays: Arrays) -> dict[str, Any]:
    arrays[f"{side}_data"] = samples.data
    if samples.indices is not None and samples.indptr is not None:
        arrays[f"{side}_indices"], arrays[f"{side}_indptr"] = samples.indices, samples.indptr
    return {"shape": list(samples.shape), "sparse": samples.is_sparse}


def build(model_class: type[MongeMap], meta: Meta, arrays: Arrays) -> MongeMap:
    """The map that `save` wrote; everything is checked again."""
    cost = _cost(meta["cost"], arrays)
    if meta["cost_given"] is not True and (meta["cost_given"] is not False or cost not in (L1(1.0), SqL2())):
        raise ModelFileError("its cost is not the default, as it says")
    parameters = {**meta["parameters"]}
    pool, match = _pool(parameters.pop("pool", None), arrays), _match(parameters.pop("match", None), arrays)
    within, replicate = (_within(parameters.pop(name, None), name, arrays) for name in ("within", "replicate"))
    given = {"pool": pool, "match": match, "within": within, "replicate": replicate}
    model = model_class(cost if meta["cost_given"] else None, **parameters, **given)
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
    if _loses_weights(f, g, epsilon, source, target):
        raise ModelFileError("its ε is too small for its potentials and samples")
    cost._check_features(source.shape[1])
    cost._check_scale(max(source.largest(), target.largest()))
    report = _report(meta["report"], epsilon, target.shape[0])
    solution = Solution(f, g, epsilon, report.status, report.error, report.errors, report.effective_targets)
    strata = None if within is None else Strata.of(within, source.shape[0], target.shape[0])
    if strata is not None:
        gap = np.bincount(strata.source, a) - np.bincount(strata.target, b)
        if np.abs(gap).max() > 1e-6:
            raise ModelFileError("the groups of its samples and targets do not have the same masses")
    elif "within_source" in arrays or "within_target" in arrays:
        raise ModelFileError("it has groups of samples that it does not name")
    if replicate is None and {"replicate_source", "replicate_target", "priors"} & set(arrays):
        raise ModelFileError("it has replicates of samples that it does not name")
    matched, space = _space(meta.get("space", {}), match, cost, source, target, strata, arrays)
    check_pool(pool, source.shape[0])
    model._keep(cost, Problem(source, target, a, b, names), solution, matched, space)
    model.report_ = report
    model._set_outcome()
    if model.fdr is not None:
        priors = None if replicate is None else _priors(arrays["priors"], source.shape[1])
        most = source.shape[0] * source.shape[1]
        model.threshold_ = Threshold(float(model.fdr), _scores(arrays["scores"], most), priors)
        model._calibrated_with = model.fdr, model.pool
    elif "scores" in arrays:
        raise ModelFileError("it has scores of its entries without a false-discovery rate")
    return model


def _scores(counts: NDArray[Any], most: int) -> NDArray[np.int64]:
    """How often each score occurs, as a threshold has them: `most` times in all, at most."""
    fits = counts.dtype == np.int64 and counts.shape == (N_BINS,) and counts.min() >= 0
    if not fits or sum(counts.tolist()) > most:  # in integers that do not wrap around
        raise ModelFileError("the scores of its entries are not what belongs there")
    return counts


def _priors(priors: NDArray[Any], width: int) -> NDArray[np.float64]:
    """What ratios of variances are expected to be, as a threshold has it."""
    if priors.dtype != np.float64 or priors.shape != (3, width) or not (np.isfinite(priors) & (priors >= 0)).all():
        raise ModelFileError("the variances of its replicates are not what belongs there")
    return priors


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


def _pool(entry: Any, arrays: Arrays) -> Any:
    """The parameter `pool`, from what `_describe_pool` made of it."""
    if not isinstance(entry, dict):
        return entry
    if "matrix" in entry:
        data, indices, indptr = (arrays[f"pool_{part}"] for part in ("data", "indices", "indptr"))
        n = indptr.size - 1
        raw = csr_array((data, indices, indptr), shape=(n, n))
        check_compressed(raw)
        return raw
    return _labels(_names(entry["labels"]), arrays["pool_codes"], "pool")


def _within(entry: Any, parameter: str, arrays: Arrays) -> Any:
    """The parameter `within` or `replicate`, from what `_describe_within` made of it."""
    if entry is None:
        return None
    names = _names(entry, "groups")
    if names is None or len({str(name) for name in names}) < names.size:
        raise ModelFileError("its groups do not have names of their own")
    return tuple(_labels(names, arrays[f"{parameter}_{side}"], parameter) for side in ("source", "target"))


def _labels(names: NDArray[Any] | None, codes: NDArray[Any], what: str) -> NDArray[Any]:
    """The labels that the codes stand for."""
    if names is None or codes.dtype.kind != "i" or codes.ndim != 1 or not np.all((codes >= 0) & (codes < names.size)):
        raise ModelFileError(f"the labels of its {what} are not what belongs there")
    labels: NDArray[Any] = np.array(names.tolist())[codes]
    return labels


def _match(entry: Any, arrays: Arrays) -> Any:
    """The parameter `match`, from what `_describe_match` made of it."""
    if isinstance(entry, dict):
        return arrays["source_coordinates"], arrays["target_coordinates"]
    return entry


def _space(
    entry: dict[str, Any],
    match: Any,
    cost: Cost,
    source: Samples,
    target: Samples,
    strata: Strata | None,
    arrays: Arrays,
) -> tuple[Coordinates | None, JointSpace | None]:
    """Coordinates of the match, and the space in which neighbours are near, as far as the file has them."""
    frozen = cost._frozen(source.shape[1])
    pair, d = (source.without(frozen), target.without(frozen)), source.shape[1]
    learned = None
    if isinstance(match, tuple):
        learned = given_coordinates(match, *pair)
    elif "axes" in arrays:
        axes, offset = arrays["axes"], arrays["offset"]
        if axes.ndim != 2 or axes.shape[0] != d or offset.shape != axes.shape[1:] or axes.shape[1] == 0:
            raise ModelFileError("its components do not fit its features")
        learned = Coordinates(Components(_finite(axes), _finite(offset)))
        if "source_coordinates" in arrays:  # without what is particular to replicates
            known = given_coordinates((arrays["source_coordinates"], arrays["target_coordinates"]), *pair)
            learned = replace(learned, given=known.given)
    if match is not None and learned is None:
        raise ModelFileError("the coordinates of its match are absent")
    matched = None if match is None else learned
    space = JointSpace(*pair, matched, strata)
    space.learned = learned
    if "scales" in entry:
        own, smooth, anchors = arrays["places"], arrays["places_smooth"], arrays["places_targets"]
        scales, wanted = entry["scales"], (source.shape[0], 2 * anchors.shape[-1])
        shapes = own.shape == smooth.shape == wanted and anchors.shape[:1] == target.shape[:1]
        fits = learned is None or learned.components is None or learned.components.axes.shape[1] == anchors.shape[-1]
        if not shapes or not fits or anchors.ndim != 2 or len(scales) != 2 or learned is None:
            raise ModelFileError("the places of its neighbourhoods do not fit its samples")
        first, second = (check_number(scale, "scales", 0, open_low=True) for scale in scales)
        space.places[True] = Places(_finite(own), _finite(smooth), _finite(anchors), (first, second))
    return matched, space


def _finite(array: NDArray[Any]) -> NDArray[np.float64]:
    if array.dtype != np.float64 or not np.isfinite(array).all():
        raise ModelFileError("its coordinates are not finite numbers")
    return array


def _names(entry: Any, what: str = "feature names") -> NDArray[Any] | None:
    """Any text is a name, whatever characters it has: those who show it see to that."""
    if entry is None:
        return None
    if not isinstance(entry, list) or not all(isinstance(name, str | int | float) for name in entry):
        raise ModelFileError(f"its {what} are no list of texts")
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
        if part.name != "epsilon" and not all(abs(one) < LARGEST for one in parts if not isinstance(one, str)):
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
