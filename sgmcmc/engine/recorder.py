"""The recorder: the values stored of each kept draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Tensors
from sgmcmc.engine.reductions import Reduction
from sgmcmc.model.layout import Layout, joined
from sgmcmc.model.target import Target
from sgmcmc.results.schema import (
    DRAWS,
    GRADIENTS,
    POSITIONS,
    SLOPES,
    TEST,
    UNNORMALIZED,
)


@dataclass(frozen=True)
class Recorder:
    """The values stored of each kept draw.

    Args:
        target: Target distribution.
        burn_in: Number of iterations dropped first.
        thin: Number of iterations between kept draws.
        stored: Names of the parameters to store.
        with_gradients: Names of the parameters whose gradients are stored.
        test_functions: Functions of the parameters to evaluate at each kept draw.
        test_values: Value of each test function at the start, for its shape and dtype.
        reductions: Folds over the kept draws.
        unnormalized: Names of the parameters that are stored with their scale too.
        stepwise: Whether the user runs the chain step by step, and so sees the parameters after
            each run and never a log posterior estimate.
        positions: Whether positions and the gradients there are recorded for a warm-up.
    """

    target: Target
    burn_in: int = 0
    thin: int = 1
    stored: tuple[str, ...] = ()
    with_gradients: tuple[str, ...] = ()
    test_functions: Mapping[str, Callable[[Tensors], tf.Tensor]] = field(
        default_factory=dict
    )
    test_values: Mapping[str, np.ndarray] = field(default_factory=dict)
    reductions: Mapping[str, Reduction] = field(default_factory=dict)
    unnormalized: tuple[str, ...] = ()
    stepwise: bool = False
    positions: bool = False

    @property
    def draw_layout(self) -> Layout:
        """Layout of a kept draw."""
        return self.target.space.user_layout.subset(self.stored)

    @property
    def gradient_layout(self) -> Layout:
        """Layout of a kept gradient, which lives in the unconstrained space."""
        return self.target.space.score_layout.subset(self.with_gradients)

    def specs(self) -> dict[str, tuple[tuple[int, ...], tf.DType]]:
        """Return shape and dtype of each array that is recorded at a kept draw."""
        if not self.positions:
            return self.stored_specs()
        spec = ((self.target.size,), self.target.dtype)
        return {**self.stored_specs(), POSITIONS: spec, SLOPES: spec}

    def stored_specs(self) -> dict[str, tuple[tuple[int, ...], tf.DType]]:
        """Return shape and dtype of each array that is stored of a kept draw."""
        specs: dict[str, tuple[tuple[int, ...], tf.DType]] = {}
        if self.stored:
            specs[DRAWS] = ((self.draw_layout.size,), self.target.dtype)
        if self.with_gradients:
            specs[GRADIENTS] = ((self.gradient_layout.size,), self.target.dtype)
        if self.unnormalized:
            size = self.target.space.layout.subset(self.unnormalized).size
            specs[UNNORMALIZED] = ((size,), self.target.dtype)
        for name, value in self.test_values.items():
            specs[TEST + name] = (value.shape, tf.as_dtype(value.dtype))
        return specs

    def completed(self, iteration: int) -> int:
        """Return the number of draws kept by the end of an iteration, counted from 1."""
        return max(0, iteration - self.burn_in) // self.thin

    def completes(self, past: tf.Tensor) -> tf.Tensor:
        """Return whether a draw is kept after this iteration, counted from the end of burn-in.

        The burn-in is an argument of the compiled chain, so that chains that differ in nothing else
        share it.
        """
        return tf.logical_and(past > 0, past % self.thin == 0)

    def slots(self, block_length: int) -> int:
        """Return the number of draws in a block's arrays: one more than it can complete."""
        return -(-block_length // self.thin) + 1

    def values(
        self, position: tf.Tensor, gradient: tf.Tensor, past: tf.Tensor
    ) -> Tensors:
        """Return the values to record after an iteration, inside the compiled chain.

        Test functions are evaluated at kept draws only; at others their values are zeros, which
        the next kept draw overwrites.

        Args:
            position: Position, flat.
            gradient: Gradient there.
            past: Number of the iteration, counted from the end of burn-in.
        """
        values = {POSITIONS: position, SLOPES: gradient} if self.positions else {}
        if self.stored:
            flat = self.target.space.flat_user(position)
            values[DRAWS] = _select(flat, self.target.space.user_layout, self.stored)
        if self.with_gradients:
            gradient = self.target.space.score(position, gradient)
            values[GRADIENTS] = _select(
                gradient, self.target.space.score_layout, self.with_gradients
            )
        if self.unnormalized:
            scaled = self.target.space.unnormalized(position)
            values[UNNORMALIZED] = _select(
                scaled, self.target.space.layout, self.unnormalized
            )
        if self.test_functions:
            is_kept = self.completes(past)
            values |= tf.cond(is_kept, lambda: self._tested(position), self._zeros)
        return values

    def start(self, position: tf.Tensor) -> dict[str, Any]:
        """Return the states of the reductions before the first draw."""
        return {
            name: reduction.start(
                self.target.space.constrain(position), self.target.dtype
            )
            for name, reduction in self.reductions.items()
        }

    def fold(
        self, states: dict[str, Any], position: tf.Tensor, past: tf.Tensor
    ) -> dict[str, Any]:
        """Return the states of the reductions after an iteration, inside the compiled chain."""
        if not self.reductions:
            return states

        def updated() -> dict[str, Any]:
            params = self.target.space.constrain(position)
            return {
                name: tf.nest.map_structure(
                    lambda new, old: tf.ensure_shape(
                        tf.convert_to_tensor(new), old.shape
                    ),
                    reduction.update(states[name], dict(params)),
                    states[name],
                )
                for name, reduction in self.reductions.items()
            }

        return tf.cond(self.completes(past), updated, lambda: states)

    def results(self, states: dict[str, Any]) -> dict[str, Any]:
        """Return the results of the reductions, as NumPy arrays."""
        return {
            name: tf.nest.map_structure(np.asarray, reduction.result(states[name]))
            for name, reduction in self.reductions.items()
        }

    def _tested(self, position: tf.Tensor) -> Tensors:
        params = self.target.space.constrain(position)
        return {
            TEST + name: tf.ensure_shape(
                tf.convert_to_tensor(function(dict(params))),
                self.test_values[name].shape,
            )
            for name, function in self.test_functions.items()
        }

    def _zeros(self) -> Tensors:
        return {
            TEST + name: tf.zeros(value.shape, tf.as_dtype(value.dtype))
            for name, value in self.test_values.items()
        }


def _select(flat: tf.Tensor, layout: Layout, names: tuple[str, ...]) -> tf.Tensor:
    if len(names) == len(layout.names):
        return flat
    selected = set(names)
    slices = [
        flat[coordinates]
        for name, coordinates in layout.slices.items()
        if name in selected
    ]
    return joined(slices, onto=flat[: layout.subset(selected).size])
