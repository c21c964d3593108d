"""Regressions on disk: draws, data and model; nothing in the files is executed."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.atomic_files import is_taken, read_arrays, write_arrays
from sgmcmc.checks import outside
from sgmcmc.regression.building import RegressionData, make_model
from sgmcmc.regression.columns import moments
from sgmcmc.regression.expressions import Expression
from sgmcmc.regression.families import read_family
from sgmcmc.regression.few_rows import FewRowsCall
from sgmcmc.regression.formula import columns_of, parse, with_dot
from sgmcmc.regression.frames import TEXT
from sgmcmc.regression.model import Effects, RegressionModel
from sgmcmc.regression.reduced import SumsCall
from sgmcmc.results.samples import Samples

if TYPE_CHECKING:
    import pandas as pd


_FORMAT = 3

_DRAWS, _MODEL = "draws.npz", "model.npz"


@dataclass(frozen=True)
class Content:
    """Content of a regression, besides its draws.

    Attributes:
        formula, family, link: Names, as text.
        priors: User's priors, by term; of a call, as they were given.
        frame: Data.
        weights: Weight of each row, or ``None``.
        weights_column: Name of their column, if they are one.
        dropped: Number of rows that were dropped.
        keywords: Keywords of the call of :func:`sgmcmc.glm`, and of :func:`sgmcmc.sample` in it.
        format: Format of the file.
    """

    formula: str
    family: str
    link: str
    priors: Any
    frame: pd.DataFrame
    weights: np.ndarray | None
    weights_column: str | None
    dropped: int
    keywords: Mapping[str, Any] = field(default_factory=dict)
    format: int = _FORMAT


def used_columns(
    model: RegressionModel, frame: pd.DataFrame, weights: str | None
) -> list[Any]:
    """Return the columns that a regression uses, in the order of the data."""
    formula = model.formula
    used = {name for design in model.designs for name in design.variables}
    used |= {name for effects in model.effects for name in columns_of(effects.by)}
    used |= set() if weights is None else {weights}
    for text in (formula.response, formula.trials, formula.censored, formula.offset):
        if text is None:
            continue
        if text in frame.columns:
            used.add(text)
        else:
            used |= set(Expression(text, frame.columns).variables)
    return [name for name in frame.columns if str(name) in used]


def write(folder: Path, samples: Samples, content: Content) -> None:
    """Write a regression to a folder.

    Args:
        folder: Folder, new or of a regression that was saved before.
        samples: Draws.
        content: Formula, data and priors.

    Raises:
        ValueError: The folder holds other things, or a prior or column cannot be written.
    """
    if is_taken(folder) and not (folder / _MODEL).exists():
        raise ValueError(f"`folder`: {str(folder)!r} is not empty. Use a new path.")
    priors: dict[str, Any] = {}
    for name, prior in content.priors.items():
        if checks.is_number(prior):
            priors[name] = float(prior)
        elif not hasattr(prior, "log_prob"):
            priors[name] = [float(value) for value in prior]
        else:
            raise ValueError(
                f"`priors[{name!r}]` is a distribution, which cannot be written. Save `samples`, "
                "and make the call again to read them."
            )
    arrays, columns = packed(content.frame)
    facts = {
        "format": _FORMAT,
        "formula": content.formula,
        "family": content.family,
        "link": content.link,
        "priors": priors,
        "dropped": content.dropped,
        "weights": content.weights_column,
        "keywords": plain_keywords(content.keywords),
        "columns": columns,
        "text": [str(name) for name in content.frame.attrs.get(TEXT, ())],
    }
    if content.weights is not None:
        arrays["weights"] = np.asarray(content.weights)
    folder.mkdir(parents=True, exist_ok=True)
    samples.save(folder / _DRAWS)
    write_arrays(folder / _MODEL, {**arrays, "about": np.array(json.dumps(facts))})


def plain_keywords(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return those that JSON can hold; the others choose a sampler, and are left out."""
    plain = {name: value for name, value in keywords.items() if name != "dtype"}
    kinds = (bool, int, float, str, type(None))
    kept = {name: v for name, v in plain.items() if isinstance(v, kinds)}
    if "dtype" in keywords:
        kept["dtype"] = tf.as_dtype(keywords["dtype"]).name
    return kept


def read_folder(folder: Path) -> tuple[Samples, Content]:
    """Return draws and content of a saved regression.

    Raises:
        ValueError: The folder holds none, or one of another version.
    """
    if not (folder / _MODEL).exists() or not (folder / _DRAWS).exists():
        raise ValueError(f"`folder`: {str(folder)!r} contains no saved regression.")
    arrays = dict(read_arrays(folder / _MODEL))
    about = json.loads(str(arrays["about"]))
    if about.get("format") not in (*EARLIER_FORMATS, _FORMAT):
        raise ValueError(
            f"`folder`: {str(folder)!r} was written in format {about.get('format')} by another "
            f"version of the package. This one reads formats up to {_FORMAT}."
        )
    frame = unpacked(arrays, about["columns"])
    frame.attrs[TEXT] = about.get("text", [])
    content = Content(
        formula=about["formula"],
        family=about["family"],
        link=about["link"],
        priors=about["priors"] or {},
        frame=frame,
        weights=arrays.get("weights"),
        weights_column=about["weights"],
        dropped=about["dropped"],
        keywords=about.get("keywords", {}),
        format=about["format"],
    )
    return Samples.load(folder / _DRAWS), content


def made_again(samples: Samples, content: Content) -> tuple[RegressionModel, Samples]:
    """Return the model of a content, and draws that are linked to it."""
    frame = content.frame
    formula = with_dot(parse(content.formula), frame, content.weights_column)
    family = read_family(content.family, content.link)
    model, y = make_model(
        formula, frame, family, dict(content.priors) or None, content.weights
    )
    if content.format in EARLIER_FORMATS:
        samples = Samples(
            in_units_of(model, samples, frame),
            log_post=samples.log_post,
            settings=samples.settings,
            report=samples.report,
            weights=samples.weights,
        )
        warnings.warn(
            "The regression was sampled by an earlier version, whose default priors were others. "
            "`priors` shows those of this version.",
            UserWarning,
            stacklevel=outside(),
        )
    # Effects, and predictions with them, ask the origin of the draws, which is not run.
    data = RegressionData(model, y, frame, content.weights, np.dtype(np.float32))
    settings = samples.settings
    if not settings.get("reduce"):
        return model, samples.made_by(data.over_rows(settings["n_chains"]))
    call = _CALLS[settings.get("source", SumsCall.source)]
    keywords = {name: settings[name] for name in ("n_chains", "seed")}
    origin = call(data, {**keywords, "verbose": False}).origin(None)
    return model, samples.made_by(origin)


# Calls that make draws without a chain, by what they compute the likelihood from.
_CALLS = {call.source: call for call in (SumsCall, FewRowsCall)}

Arrays = dict[str, np.ndarray]  # arrays by name

# Types of levels of a factor that has several.
_SINGLE = {"int": int, "float": float, "bool": bool, "str": str}


def packed(frame: pd.DataFrame) -> tuple[Arrays, list[dict[str, Any]]]:
    """Return the columns of a frame as arrays, and their descriptions, of types that JSON has.

    Raises:
        ValueError: A column holds what cannot be written; the message names it.
    """
    import pandas as pd

    arrays: Arrays = {}
    columns = []
    for number, name in enumerate(frame.columns):
        values = frame[name]
        about: dict[str, Any] = {"name": str(name)}
        if isinstance(values.dtype, pd.CategoricalDtype):
            key, categories = f"levels/{number}", values.cat.categories
            about["kind"] = "category"
            about["ordered"] = bool(values.cat.ordered)
            about["levels"] = _packed_values(name, categories, key, arrays)
            arrays[f"column/{number}"] = values.cat.codes.to_numpy()
        elif values.dtype.kind == "O" or isinstance(values.dtype, pd.StringDtype):
            codes, levels = pd.factorize(values)
            key = f"levels/{number}"
            about["kind"] = "objects"
            about["levels"] = _packed_values(name, pd.Index(levels), key, arrays)
            arrays[f"column/{number}"] = codes.astype(np.int32)
        else:
            about |= _packed_values(name, pd.Index(values), f"column/{number}", arrays)
        columns.append(about)
    return arrays, columns


def unpacked(
    arrays: Mapping[str, np.ndarray], columns: list[dict[str, Any]]
) -> pd.DataFrame:
    """Return the frame that :func:`packed` took apart."""
    import pandas as pd

    columns_by_name: dict[str, Any] = {}
    for number, about in enumerate(columns):
        values: Any = arrays.get(f"column/{number}")
        kind = about["kind"]
        if kind in ("category", "objects"):
            # Format 1 has no descriptions of levels.
            level_kind = about.get("levels", {"kind": "array"})
            levels = _unpacked_values(level_kind, f"levels/{number}", arrays)
            if kind == "category":
                ordered = about["ordered"]
                values = pd.Categorical.from_codes(values, levels, ordered=ordered)
            else:
                values = np.array([*levels, None], object)[values]
        else:
            values = _unpacked_values(about, f"column/{number}", arrays)
        columns_by_name[about["name"]] = values
    return pd.DataFrame(columns_by_name)


def _packed_values(
    name: Any, values: pd.Index, key: str, arrays: Arrays
) -> dict[str, Any]:
    """Return the description of values, whose arrays are added."""
    import pandas as pd

    if isinstance(values.dtype, pd.IntervalDtype):
        ends = {
            end: _packed_values(name, getattr(values, end), f"{key}/{end}", arrays)
            for end in ("left", "right")
        }
        return {"kind": "interval", "closed": values.closed, **ends}
    if isinstance(values.dtype, pd.DatetimeTZDtype):
        arrays[key] = values.tz_convert("UTC").tz_localize(None).to_numpy()
        return {"kind": "zone", "zone": str(values.dtype.tz)}
    array = values.to_numpy()
    if array.dtype.kind not in "OUT":
        arrays[key] = array
        return {"kind": "array"}
    kinds = {type(value).__name__ for value in array}
    if kinds <= {"str"}:
        text = array.astype(str)
        if (text == array).all():  # NumPy drops zero bytes at the end
            arrays[key] = text
            return {"kind": "array"}
    single = [v.item() if isinstance(v, np.generic) else v for v in array]
    if not all(type(value) in _SINGLE.values() for value in single):
        raise ValueError(
            f"`data[{name!r}]` holds {', '.join(sorted(kinds))}, which cannot be written."
        )
    typed = [[type(value).__name__, value] for value in single]
    arrays[key] = np.array(json.dumps(typed))
    return {"kind": "several"}


def _unpacked_values(
    about: Mapping[str, Any], key: str, arrays: Mapping[str, np.ndarray]
) -> Any:
    import pandas as pd

    kind = about["kind"]
    if kind == "interval":
        left, right = (
            _unpacked_values(about[end], f"{key}/{end}", arrays)
            for end in ("left", "right")
        )
        return pd.IntervalIndex.from_arrays(left, right, closed=about["closed"])
    values = arrays[key]
    if kind == "zone":
        return pd.DatetimeIndex(values).tz_localize("UTC").tz_convert(about["zone"])
    if kind == "several":
        typed = json.loads(str(values))
        levels = np.empty(len(typed), object)
        levels[:] = [_SINGLE[kind_of_value](value) for kind_of_value, value in typed]
        return levels
    return values.astype(object) if values.dtype.kind == "U" else values


EARLIER_FORMATS = (1, 2)  # formats of files with these units


def in_units_of(
    model: RegressionModel, draws: Mapping[str, np.ndarray], frame: pd.DataFrame
) -> dict[str, np.ndarray]:
    """Return draws of an earlier version as those of the model of this version.

    Args:
        model: Model, made from the same formula and data.
        draws: Draws by parameter, (..., draws, *shape).
        frame: Data.
    """
    converted = {name: np.asarray(values) for name, values in draws.items()}
    shift: float | np.ndarray = 0.0
    if model.terms:
        columns = moments(model.design, frame)
        scale = columns.scale
        if model.has_intercept:
            scale[0] = 1.0
        coefficients = converted["b"].astype(np.float64) / scale
        centered = coefficients
        if model.has_intercept:
            slopes = coefficients[..., 1:]
            coefficients[..., 0] -= slopes @ columns.mean[1:]
            centered = coefficients.copy()
            centered[..., 0] += slopes @ model.center[1:]
        else:  # cutpoints were those at the means
            shift = (coefficients @ columns.mean)[..., np.newaxis]
        shift = shift - (coefficients @ model.center)[..., np.newaxis]
        converted["b"] = (centered - model.origin) * (model.scale / model.unit)
    if "cut" in converted:
        converted["cut"] = converted["cut"] + shift - model.level
    for factor_effects in model.effects:
        _convert_scales(factor_effects, converted)
        name = factor_effects.effects_name
        if name not in converted:
            continue
        of_bars = [moments(design, frame) for design in factor_effects.designs]
        sizes = [np.hypot(columns.mean, columns.sd) for columns in of_bars]
        size = np.concatenate(sizes)
        center = factor_effects.center
        effects = converted[name] / np.where(size > 0, size, 1.0)
        for index in np.flatnonzero(center).tolist():
            intercept = factor_effects.intercept_of(index)
            effects[..., intercept] += center[index] * effects[..., index]
        converted[name] = effects * (factor_effects.scale / factor_effects.unit)
    return {name: converted[name].astype(draws[name].dtype) for name in draws}


def _convert_scales(effects: Effects, draws: dict[str, np.ndarray]) -> None:
    """Replace standard deviations and correlations at zero by those at the means of columns."""
    if not effects.center.any():
        return
    sds, partial = effects.sds_name, effects.correlations_name
    sds_at_zero, partial_at_zero = (
        draws[name].astype(np.float64) for name in (sds, partial)
    )
    at_zero = effects.root(sds_at_zero, partial_at_zero)
    zeros = np.zeros(draws[sds].shape[:-1])
    rows = [np.stack([entry + zeros for entry in row], -1) for row in at_zero]
    for index in np.flatnonzero(effects.center).tolist():
        first = effects.intercept_of(index)
        rows[first] = rows[first] + effects.center[index] * rows[index]
    matrix = np.stack(rows, -2)
    root = np.linalg.cholesky(matrix @ np.swapaxes(matrix, -1, -2))
    norms = np.linalg.norm(root, axis=-1)
    partials = []
    for i, j in effects.pairs:
        first = next(indices[0] for indices in effects.correlated if i in indices)
        before = np.sum(root[..., i, first:j] ** 2, -1)
        partials.append(root[..., i, j] / np.sqrt(norms[..., i] ** 2 - before))
    draws[sds], draws[partial] = norms, np.stack(partials, -1)
