"""The schema of a run: its arrays, in enough detail to make `Samples` without the model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sgmcmc import checks
from sgmcmc.model.layout import Layout
from sgmcmc.results.arrays import LogPost

# Names in stores of the arrays that a run writes; those of test functions begin with `TEST`.
DRAWS, GRADIENTS, LOG_POST = "draws", "gradients", "log_post"
UNNORMALIZED = "unnormalised"
TEST = "test/"
# Records of chains for a warm-up: positions, flat and unconstrained, and the gradients there.
POSITIONS, SLOPES = "positions", "slopes"


@dataclass(frozen=True)
class _EstimateSettings:
    # Of a chain, at least, if it has as many iterations and they are light
    estimates: int = 100
    # Iterations of a block, at most, if each needs a megabyte or more
    short_block: int = 64
    # Such iterations between two estimates, at least. The chain stops at each, and a stop writes as
    # much as the draws of a whole block, which is here the work of two iterations.
    smallest_interval: int = 16
    rounding: float = 1e-5  # of log-likelihood and gradient, between two machines


_SETTINGS = _EstimateSettings()

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Schema:
    """The arrays of a run.

    Attributes:
        settings: Settings of the sampler.
        chains: Whether arrays have a leading chain axis for the user.
        params: Shapes of the parameters, as the user sees them.
        coordinates: Shapes of the parameters in the unconstrained space.
        stored: Names of the parameters whose draws are stored.
        with_gradients: Names of the parameters whose gradients are stored.
        test_functions: Names of the test functions.
        unnormalized: Names of the parameters whose unnormalized θ is stored.
        blocks: Numbers of iterations after each of which every run makes an estimate of the log
            posterior, however long it is; that of a block is first.
    """

    settings: dict[str, Any]
    chains: bool
    params: Shapes
    coordinates: Shapes
    stored: tuple[str, ...]
    with_gradients: tuple[str, ...]
    test_functions: tuple[str, ...]
    unnormalized: tuple[str, ...]
    blocks: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the facts in a form that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Schema:
        """Return the schema from the result of ``to_json``, of earlier versions too."""
        facts = checks.up_to_date(facts)
        facts["settings"] = checks.up_to_date(facts["settings"])
        shapes = {
            key: {name: tuple(shape) for name, shape in facts[key].items()}
            for key in ("params", "coordinates")
        }
        lists = ("stored", "with_gradients", "test_functions", "unnormalized", "blocks")
        return cls(**{**facts, **shapes, **{key: tuple(facts[key]) for key in lists}})

    def fields(
        self,
        arrays: Mapping[str, np.ndarray],
        draws: int,
        blocks: int,
        modes: tuple[np.ndarray, np.ndarray] | None,
        reductions: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Return the content of these arrays, as arguments of ``Samples``.

        Args:
            arrays: Recorded arrays, by record, chains first.
            draws: Number of draws that every chain has kept.
            blocks: Number of log posterior estimates that every chain has kept.
            modes: Modes, in the user's space, flat, and the gradients there, chains first.
            reductions: Results of the reductions, for each chain.
        """
        records = {
            name: self._chains_or_one(array[:, :draws])
            for name, array in arrays.items()
        }
        log_post = arrays[LOG_POST][:, :blocks]
        log_post = log_post[:, self._as_of_one_run(log_post[0, :, 0])]
        about_mode = {}
        if modes is not None:
            about_mode = {
                "mode": Layout(self.params).split(self._chains_or_one(modes[0])),
                "mode_gradient": Layout(self.coordinates).split(
                    self._chains_or_one(modes[1])
                ),
            }
        folded = {
            name: self._stack([reduction[name] for reduction in reductions])
            for name in reductions[0]
        }
        return {
            "draws": self._split(records, DRAWS, self.params, self.stored) or {},
            "log_post": LogPost(
                log_post[0, :, 0].astype(int), self._chains_or_one(log_post[:, :, 1])
            ),
            "settings": self.settings,
            "gradients": self._split(
                records, GRADIENTS, self.coordinates, self.with_gradients
            ),
            "unnormalized": self._split(
                records, UNNORMALIZED, self.coordinates, self.unnormalized
            ),
            "test_functions": {
                name: records[TEST + name] for name in self.test_functions
            }
            or None,
            "reductions": folded or None,
            **about_mode,
        }

    def _as_of_one_run(self, iterations: np.ndarray) -> np.ndarray:
        """Return which estimates of the log posterior a run of the present length has.

        Shorter runs that were continued have others between them.
        """
        if not iterations.size:
            return np.ones(0, bool)
        total = int(iterations[-1])
        mask = iterations == total
        for interval in (*self.blocks, estimates_apart(total, self.blocks[0])):
            mask |= iterations % interval == 0
        return mask

    def _chains_or_one(self, array: np.ndarray) -> np.ndarray:
        return array if self.chains else array[0]

    def _stack(self, values: list[Any]) -> Any:
        if isinstance(values[0], Mapping):
            return {
                key: self._stack([value[key] for value in values]) for key in values[0]
            }
        return self._chains_or_one(np.stack(values))

    def _split(
        self,
        records: Mapping[str, np.ndarray],
        record: str,
        shapes: Shapes,
        names: tuple[str, ...],
    ) -> dict[str, np.ndarray] | None:
        if record not in records:
            return None
        return Layout(shapes).subset(names).split(records[record])


def estimates_apart(total: int, block: int) -> int:
    """Return the largest number of iterations between log posterior estimates of a run.

    A block if blocks are short enough; else a power of two. So a longer run has some of those
    of a shorter one.

    Example:
        >>> estimates_apart(1000, block=4096), estimates_apart(1000, block=50)
        (8, 16)

    Args:
        total: Number of iterations of the run.
        block: Number of iterations of a block, after each of which there is an estimate anyway.
    """
    is_heavy = block <= _SETTINGS.short_block
    smallest = _SETTINGS.smallest_interval if is_heavy else 1
    interval = max(smallest, total // _SETTINGS.estimates)
    return block if block <= interval else 2 ** (interval.bit_length() - 1)


def most_estimates(total: int) -> int:
    """Return the largest number of estimates, whatever shorter runs a run continues.

    Those first 100 of which none is skipped, and as many each time that a run gets twice as long.
    """
    estimates = _SETTINGS.estimates
    return min(total, estimates * (1 + (total // estimates).bit_length()))


# Settings that earlier versions did not store, with their values then.
_BEFORE = {"updates": "joint", "temperature": 1.0}


# Settings that earlier versions did not store, whose values then are not known.
_NEW = ("levels", "labels", "indices")


def difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """Return the first difference in words, or ``None`` if there is none."""
    before = checks.up_to_date(before)
    for name in dict.fromkeys([*before, *now]):
        old: Any = before.get(name, _BEFORE.get(name))
        new: Any = now.get(name)
        if name in _NEW and old is None:
            continue  # of a version that did not store them
        if name == "model":
            # Values and gradients at the starting values.
            if list(old) != list(new):
                return f"of `log_lik` and `log_prior` there were {list(old)}, now {list(new)}"
            rounding = _SETTINGS.rounding
            for function in new:
                was, value = old[function], new[function]
                if not math.isclose(was, value, rel_tol=rounding, abs_tol=rounding):
                    return (
                        f"`log_lik` or `log_prior` differ: at the starting values {function} was "
                        f"{was:.8g} and is {value:.8g}"
                    )
        elif isinstance(old, dict) and isinstance(new, dict):
            for key in dict.fromkeys([*old, *new]):
                if old.get(key) != new.get(key):
                    return _words(f"{name}[{key!r}]", old.get(key), new.get(key))
        elif old != new:
            return _words(name, old, new)
    return None


def _words(name: str, old: Any, new: Any) -> str:
    if name.startswith(("levels", "labels")):
        what = "groups" if name.startswith("labels") else "levels, or in another order"
        return f"`dataset{name[len('levels') :]}` has other {what}"
    if name.startswith("dataset"):
        return f"`{name}` holds other values"
    return f"`{name}` was {old!r} and is {new!r}"
