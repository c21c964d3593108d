"""Regressions whose log posterior is compared before and after a change of the input.

No chain runs: the call of ``sample`` that ``glm`` would make is looked at. Two calls have the same
posterior if the terms of rows, the density of effects and the prior are the same at a position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import sgmcmc
from tests import seams

ROWS = 96
_RNG = np.random.default_rng(3)
FRAME = pd.DataFrame(
    {
        # Eighths and small integers, which every type of numbers holds exactly.
        "x": np.round(_RNG.normal(size=ROWS) * 8) / 8,
        "z": np.round(_RNG.uniform(1, 9, ROWS) * 8) / 8,
        "count": _RNG.integers(1, 100, ROWS),
        "size": _RNG.integers(3, 12, ROWS),
        "flag": _RNG.uniform(size=ROWS) < 0.4,
        "kind": np.array(["low", "mid", "top"])[_RNG.integers(0, 3, ROWS)],
        "code": np.array([1, 2, 5])[_RNG.integers(0, 3, ROWS)],
        "site": _RNG.integers(0, 6, ROWS),
        "visit": np.array(["1", "1:2", "2"])[_RNG.integers(0, 3, ROWS)],
        "w": _RNG.integers(1, 4, ROWS),
    }
)
FRAME["y"] = np.round((1 + FRAME.x - 0.1 * FRAME.z + _RNG.normal(size=ROWS)) * 8) / 8
FRAME["successes"] = np.minimum(_RNG.integers(0, 9, ROWS), FRAME["size"])
FRAME["over"] = (_RNG.uniform(size=ROWS) < 0.3).astype(int)
"""Rows of all regressions of the table."""


@dataclass(frozen=True)
class Door:
    """A regression.

    Attributes:
        formula: Formula, in braces the names of columns.
        family: Family.
        bars: Factors of its bars, in the order of ``groups``.
        weights: Column of weights, if there are any.
    """

    formula: str
    family: str = "gaussian"
    bars: tuple[tuple[str, ...], ...] = ()
    weights: str | None = None


DOORS = {
    "terms": Door("{y} ~ {x} + {kind} + C({code}) + {flag} + {x}:{kind}"),
    "expressions": Door(
        "{y} ~ I({count}**2) + log({count}) + I({count} - {size}) + I({flag} + {over}) + "
        "poly({size}, 2, raw=True) + center({z}) + I({z} > 3 & {flag})"
    ),
    "transformed response": Door("I({size} - {count}) ~ {x}"),
    "groups": Door("{y} ~ {x} + (1 + {z} | {site})", bars=(("site",),)),
    "crossed": Door(
        "{y} ~ {x} + (1 | {site}) + (1 | {kind}:{visit})",
        bars=(("site",), ("kind", "visit")),
    ),
    "binomial": Door("{successes} | trials({size}) ~ {x} + {kind}", "binomial"),
    "censored": Door(
        "{z} | cens({over}) ~ {x} + {kind} + (1 | {site})", "weibull", bars=(("site",),)
    ),
    "counts": Door("{count} ~ {x} + offset(log({size} * {count}))", "poisson"),
    "weighted": Door("{y} ~ {x} + {kind}", weights="w"),
    "ordinal": Door("{code} ~ {x} + {flag}", "ordinal"),
    "levels": Door("{kind} ~ {x} + {flag}", "categorical"),
}


@dataclass(frozen=True)
class Change:
    """A change of the input that leaves the posterior as it is.

    Attributes:
        of: Function from the frame to data in another form.
        names: New names of columns.
        rows: Place of each changed row among the rows before.
    """

    of: Callable[[pd.DataFrame], Any] = lambda frame: frame
    names: dict[str, str] | None = None
    rows: np.ndarray | None = None

    def name(self, column: str) -> str:
        """Return the name of a column after the change."""
        return (self.names or {}).get(column, column)

    def written(self, column: str) -> str:
        """Return the name of a column as it is written in a formula."""
        name = self.name(column)
        return name if name.isidentifier() else f"`{name}`"


class _CallError(Exception):
    """The call of ``sample``, in place of its draws."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self.arguments = arguments


def call_of(
    door: Door, change: Change, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Return the arguments of ``sample`` for a regression on changed data."""

    def called(**arguments: Any) -> None:
        raise _CallError(**arguments)

    monkeypatch.setattr(seams.REGRESSION_SAMPLE, called)
    frame = FRAME if change.rows is None else FRAME.iloc[change.rows]
    data = change.of(frame.rename(columns=change.names or {}))
    formula = door.formula.format(
        **{name: change.written(name) for name in FRAME.columns}
    )
    weights = None if door.weights is None else change.name(door.weights)
    with pytest.raises(_CallError) as found:
        sgmcmc.glm(
            formula,
            data,
            door.family,
            weights=weights,
            dtype=tf.float64,
            reduce=False,
        )
    return found.value.arguments


def densities(
    door: Door, change: Change, monkeypatch: pytest.MonkeyPatch
) -> np.ndarray:
    """Return prior, terms of rows and densities of effects at one position, in the old order."""
    call = call_of(door, change, monkeypatch)
    rng = np.random.default_rng(7)
    params = {}
    for name, start in call["params"].items():
        start = np.asarray(start, np.float64)
        upward = 0.1 * (1 + np.arange(start.size)).reshape(
            start.shape
        )  # cutpoints ascend
        params[name] = tf.constant(start + upward)
    rows = np.arange(ROWS) if change.rows is None else change.rows
    effects = []
    for factor, groups in zip(door.bars, call.get("groups", []), strict=True):
        own = FRAME.groupby(list(factor)).ngroup().to_numpy()[rows]
        of_groups = rng.normal(size=(own.max() + 1, groups.size))
        effects.append(groups.named(tf.constant(of_groups[own])))
    dataset = {
        name: tf.convert_to_tensor(_as_numbers(values))
        for name, values in call["dataset"].items()
        if name not in {groups.by for groups in call.get("groups", [])}
    }
    everything = params | {
        name: value for each in effects for name, value in each.items()
    }
    terms = np.asarray(call["log_lik"](everything, dataset), np.float64)
    found = [np.atleast_1d(np.asarray(call["log_prior"](params), np.float64))]
    order = np.argsort(rows)
    found.append(np.broadcast_to(terms, (ROWS,))[order])
    for groups, own in zip(call.get("groups", []), effects, strict=True):
        found.append(np.asarray(groups.log_prior(own, params), np.float64)[order])
    return np.concatenate(found)


def _as_numbers(values: Any) -> np.ndarray:
    array = np.asarray(values)
    return array if array.dtype.kind in "iu" else array.astype(np.float64)
