"""Regressions on disk: draws, data and model; nothing in the files is executed."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc import checks
from sgmcmc.atomic_files import is_taken, read_arrays, write_arrays
from sgmcmc.checks import outside
from sgmcmc.regression import earlier
from sgmcmc.regression.building import make_model, posterior, read_family
from sgmcmc.regression.expressions import Expression
from sgmcmc.regression.formula import parse, with_dot
from sgmcmc.regression.frames import TEXT
from sgmcmc.regression.model import Model
from sgmcmc.regression.names import columns_of
from sgmcmc.regression.packed import packed, unpacked
from sgmcmc.results.samples import Samples
from sgmcmc.run.sampler_origin import SamplerOrigin
from sgmcmc.samplers.sample import setup

if TYPE_CHECKING:
    import pandas as pd

_FORMAT = 3
_DRAWS, _MODEL = "draws.npz", "model.npz"


@dataclass(frozen=True)
class Content:
    """Content of a regression, besides its draws.

    Attributes:
        formula, family, link: Names, as text.
        priors: User's priors, by term.
        frame: Data.
        weights: Weight of each row, or ``None``.
        weights_column: Name of their column, if they are one.
        dropped: Number of rows that were dropped.
        format: Format of the file.
    """

    formula: str
    family: str
    link: str
    priors: Mapping[str, Any]
    frame: pd.DataFrame
    weights: np.ndarray | None
    weights_column: str | None
    dropped: int
    format: int = _FORMAT


def used_columns(model: Model, frame: pd.DataFrame, weights: str | None) -> list[Any]:
    """Return the columns that a regression uses, in the order of the data."""
    formula = model.formula
    designs = [
        model.design,
        *(design for effects in model.effects for design in effects.designs),
    ]
    used = {name for design in designs for name in design.variables}
    used |= {name for effects in model.effects for name in columns_of(effects.by)}
    used |= set() if weights is None else {weights}
    for text in (formula.response, formula.trials, formula.censored, formula.offset):
        if text is not None:
            used |= (
                {text}
                if text in frame.columns
                else set(Expression(text, frame.columns).variables)
            )
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
    for name, prior in content.priors.items():
        if hasattr(prior, "log_prob"):
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
        "priors": {name: _plain(prior) for name, prior in content.priors.items()},
        "dropped": content.dropped,
        "weights": content.weights_column,
        "columns": columns,
        "text": [str(name) for name in content.frame.attrs.get(TEXT, ())],
    }
    if content.weights is not None:
        arrays["weights"] = np.asarray(content.weights)
    folder.mkdir(parents=True, exist_ok=True)
    samples.save(folder / _DRAWS)
    write_arrays(folder / _MODEL, {**arrays, "about": np.array(json.dumps(facts))})


def read(folder: Path) -> tuple[Samples, Content]:
    """Return draws and content of a saved regression.

    Raises:
        ValueError: The folder holds none, or one of another version.
    """
    if not (folder / _MODEL).exists() or not (folder / _DRAWS).exists():
        raise ValueError(f"`folder`: {str(folder)!r} contains no saved regression.")
    arrays = dict(read_arrays(folder / _MODEL))
    about = json.loads(str(arrays["about"]))
    if about.get("format") not in (*earlier.FORMATS, _FORMAT):
        raise ValueError(
            f"`folder`: {str(folder)!r} was written in format {about.get('format')} by another "
            f"version of the package. This one reads formats up to {_FORMAT}."
        )
    frame = unpacked(arrays, about["columns"])
    frame.attrs[TEXT] = about.get("text", [])
    content = Content(
        about["formula"],
        about["family"],
        about["link"],
        about["priors"] or {},
        frame,
        arrays.get("weights"),
        about["weights"],
        about["dropped"],
        about["format"],
    )
    return Samples.load(folder / _DRAWS), content


def made_again(samples: Samples, content: Content) -> tuple[Model, Samples]:
    """Return the model of a content, and draws that are linked to it."""
    frame = content.frame
    formula = with_dot(parse(content.formula), frame, content.weights_column)
    family = read_family(content.family, content.link)
    model, y = make_model(
        formula, frame, family, dict(content.priors) or None, content.weights
    )
    if content.format in earlier.FORMATS:
        samples = Samples(
            earlier.in_units_of(model, samples, frame),
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
    # Effects, and predictions with them, ask the sampler; it is put together, and not run.
    stepwise = setup(
        **posterior(model, y, frame, content.weights),
        dynamics="sgld",
        gradient="minibatch",
        minibatches="uniform",
        minibatch_size=1,
        preconditioner="none",
        stepsize=1e-9,
        n_chains=samples.settings["n_chains"],
        seed=0,
        verbose=False,
    )
    return model, samples.made_by(SamplerOrigin(stepwise._sampler))


def _plain(prior: Any) -> Any:
    return (
        float(prior) if checks.is_number(prior) else [float(value) for value in prior]
    )
