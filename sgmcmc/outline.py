"""What the arrays of a run are, without the model: enough to make `Samples` of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sgmcmc.layout import Layout
from sgmcmc.recorder import DRAWS, GRADIENTS, LOG_POST, UNNORMALISED
from sgmcmc.sampler import Sampler
from sgmcmc.samples import LogPost, Samples

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Outline:
    """What the arrays of a run are.

    Attributes:
        settings: the settings of the sampler.
        chains: whether arrays have a leading chain axis for the user.
        params: shapes of the parameters, as the user sees them.
        free: their shapes in the space the chain moves in.
        stored: names of the parameters whose draws are kept.
        with_gradients: names of the parameters whose gradients are kept.
        test_functions: names of the test functions.
        unnormalised: names of the parameters whose unnormalised θ is kept.
    """

    settings: dict[str, Any]
    chains: bool
    params: Shapes
    free: Shapes
    stored: tuple[str, ...]
    with_gradients: tuple[str, ...]
    test_functions: tuple[str, ...]
    unnormalised: tuple[str, ...]

    @classmethod
    def of(cls, sampler: Sampler) -> Outline:
        """Return the outline of a sampler's runs."""
        recorder, model = sampler.recorder, sampler.model
        return cls(
            sampler.settings,
            sampler.options.n_chains is not None,
            dict(model.user_layout.shapes),
            dict(model.layout.shapes),
            recorder.stored,
            recorder.with_gradients,
            tuple(recorder.test_functions),
            recorder.unnormalised,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the facts in a form that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Outline:
        """Return what ``to_json`` gave."""
        shapes = {
            key: {name: tuple(shape) for name, shape in facts[key].items()}
            for key in ("params", "free")
        }
        lists = ("stored", "with_gradients", "test_functions", "unnormalised")
        return cls(**{**facts, **shapes, **{key: tuple(facts[key]) for key in lists}})

    def samples(
        self,
        arrays: Mapping[str, np.ndarray],
        draws: int,
        blocks: int,
        modes: tuple[np.ndarray, np.ndarray] | None,
        reductions: Sequence[Mapping[str, Any]],
    ) -> Samples:
        """Return the samples that these arrays hold.

        Args:
            arrays: what was recorded, by record, chains first.
            draws: how many draws every chain has kept.
            blocks: how many log posterior estimates every chain has kept.
            modes: positions of the modes, in the user's space, and gradients there, chains first.
            reductions: what the reductions have come to, for each chain.
        """
        kept = {name: self._seen(array[:, :draws]) for name, array in arrays.items()}
        log_post = arrays[LOG_POST][:, :blocks]
        about_mode = {}
        if modes is not None:
            about_mode = {
                "mode": Layout(self.params).split(self._seen(modes[0])),
                "mode_gradient": Layout(self.free).split(self._seen(modes[1])),
            }
        return Samples(
            self._split(kept, DRAWS, self.params, self.stored) or {},
            log_post=LogPost(log_post[0, :, 0].astype(int), self._seen(log_post[:, :, 1])),
            settings=self.settings,
            gradients=self._split(kept, GRADIENTS, self.free, self.with_gradients),
            unnormalised=self._split(kept, UNNORMALISED, self.free, self.unnormalised),
            test_functions={name: kept["test/" + name] for name in self.test_functions} or None,
            reductions={name: self._stack([each[name] for each in reductions]) for name in first}
            if (first := reductions[0])
            else None,
            **about_mode,
        )

    def _seen(self, array: np.ndarray) -> np.ndarray:
        return array if self.chains else array[0]

    def _stack(self, values: list[Any]) -> Any:
        if isinstance(values[0], Mapping):
            return {key: self._stack([value[key] for value in values]) for key in values[0]}
        return self._seen(np.stack(values))

    def _split(
        self, kept: Mapping[str, np.ndarray], record: str, shapes: Shapes, names: tuple[str, ...]
    ) -> dict[str, np.ndarray] | None:
        if record not in kept:
            return None
        return Layout(shapes).subset(names).split(kept[record])
