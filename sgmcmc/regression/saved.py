"""Regressions on disk: draws, data and model; nothing in the files is executed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc import checks
from sgmcmc.atomic_files import is_taken, read_arrays, write_arrays
from sgmcmc.regression.building import make_model, posterior, read_family
from sgmcmc.regression.formula import parse, with_dot
from sgmcmc.regression.model import Model
from sgmcmc.results.samples import Samples
from sgmcmc.run.origin import SamplerOrigin
from sgmcmc.samplers.sample import setup

if TYPE_CHECKING:
    import pandas as pd

_FORMAT = 1
_DRAWS, _MODEL = "draws.npz", "model.npz"


def write(
    folder: Path,
    model: Model,
    samples: Samples,
    frame: pd.DataFrame,
    about: Mapping[str, Any],
    weights: np.ndarray | None,
) -> None:
    """Write a regression to a folder.

    Args:
        folder: Folder, new or of a regression that was saved before.
        model: Model.
        samples: Draws.
        frame: Data.
        about: Further content of the file, of types that JSON has.
        weights: Weight of each row, or ``None``.

    Raises:
        ValueError: The folder holds other things, or a prior or column cannot be written.
    """
    if is_taken(folder) and not (folder / _MODEL).exists():
        raise ValueError(f"`folder`: {str(folder)!r} is not empty. Use a new path.")
    for name, prior in model.priors.items():
        if hasattr(prior, "log_prob"):
            raise ValueError(
                f"`priors[{name!r}]` is a distribution, which cannot be written. Save `samples`, "
                "and make the call again to read them."
            )
    facts = {
        "format": _FORMAT,
        "formula": model.formula.text,
        "family": model.family.name,
        "link": model.family.link,
        "priors": {name: _plain(prior) for name, prior in model.priors.items()},
        **about,
    }
    arrays, columns = _packed(frame)
    if weights is not None:
        arrays["weights"] = np.asarray(weights)
    folder.mkdir(parents=True, exist_ok=True)
    samples.save(folder / _DRAWS)
    text = json.dumps({**facts, "columns": columns})
    write_arrays(folder / _MODEL, {**arrays, "about": np.array(text)})


def read(
    folder: Path,
) -> tuple[Model, Samples, pd.DataFrame, dict[str, Any], np.ndarray | None]:
    """Return model, draws, data, further facts and weights of a saved regression.

    Raises:
        ValueError: The folder holds none, or one of another version.
    """
    if not (folder / _MODEL).exists() or not (folder / _DRAWS).exists():
        raise ValueError(f"`folder`: {str(folder)!r} contains no saved regression.")
    arrays = dict(read_arrays(folder / _MODEL))
    about = json.loads(str(arrays["about"]))
    if about.get("format") != _FORMAT:
        raise ValueError(
            f"`folder`: {str(folder)!r} was written in format {about.get('format')}, and this "
            f"version reads format {_FORMAT}."
        )
    frame, weights = _unpacked(arrays, about["columns"]), arrays.get("weights")
    formula = with_dot(parse(about["formula"]), frame, about["weights"])
    model, y = make_model(
        formula, frame, read_family(about["family"], about["link"]), about["priors"] or None
    )
    samples = Samples.load(folder / _DRAWS)
    # Effects, and predictions with them, ask the sampler; it is put together, and not run.
    stepwise = setup(
        **posterior(model, y, frame, weights), dynamics="sgld", gradient="minibatch",
        minibatches="uniform", minibatch_size=1, preconditioner="none", stepsize=1e-9,
        n_chains=samples.settings["n_chains"], seed=0, verbose=False,
    )  # fmt: skip
    return model, samples.made_by(SamplerOrigin(stepwise._sampler)), frame, about, weights


def _plain(prior: Any) -> Any:
    return float(prior) if checks.is_number(prior) else [float(value) for value in prior]


def _packed(frame: pd.DataFrame) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Return the columns of a frame as arrays, and their descriptions."""
    import pandas as pd

    arrays, columns = {}, []
    for number, name in enumerate(frame.columns):
        values = frame[name]
        about: dict[str, Any] = {"name": str(name), "kind": "array"}
        if isinstance(values.dtype, pd.CategoricalDtype):
            levels = values.cat.categories.to_numpy()
            about |= {"kind": "category", "ordered": bool(values.cat.ordered)}
            arrays[f"levels/{number}"] = _array(name, levels)
            arrays[f"column/{number}"] = values.cat.codes.to_numpy()
        else:
            arrays[f"column/{number}"] = _array(name, values.to_numpy())
        columns.append(about)
    return arrays, columns


def _array(name: Any, values: np.ndarray) -> np.ndarray:
    """Return values as an array that a file holds: numbers, flags, times or text."""
    if values.dtype.kind not in "OUT":
        return values
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"`data[{name!r}]` holds neither numbers nor text, and cannot be written.")
    return values.astype(str)


def _unpacked(arrays: Mapping[str, np.ndarray], columns: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the frame of such arrays."""
    import pandas as pd

    found = {}
    for number, about in enumerate(columns):
        values: Any = arrays[f"column/{number}"]
        if about["kind"] == "category":
            levels = arrays[f"levels/{number}"]
            levels = levels.astype(object) if levels.dtype.kind == "U" else levels
            values = pd.Categorical.from_codes(values, levels, ordered=about["ordered"])
        elif values.dtype.kind == "U":
            values = values.astype(object)
        found[about["name"]] = values
    return pd.DataFrame(found)
