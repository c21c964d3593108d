"""Draws and their control variates, in chunks, from memory or from a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.checks import describe, known_keys
from sgmcmc.data.dataset import PIECE_BYTES
from sgmcmc.graphs.tracing import trace, vectorized_map
from sgmcmc.model.geometry.bijectors import fitting
from sgmcmc.model.layout import Layout
from sgmcmc.results.arrays import by_chain, has_chains, matrix
from sgmcmc.results.samples import Samples


def need_samples(samples: Any) -> None:
    """Raise an error if these are not samples."""
    if not isinstance(samples, Samples):
        raise TypeError(
            f"`samples` must be what a sampler returned; it is {describe(samples)}."
        )


def need_draws(samples: Any, var_names: Sequence[str] | None = None) -> list[str]:
    """Return the requested names of parameters, checked."""
    need_samples(samples)
    if not len(samples):
        raise ValueError("`samples` holds no draws of parameters.")
    if var_names is None:
        return list(samples)
    if isinstance(var_names, str):
        raise TypeError("`var_names` must be a list of names; it is a string.")
    known_keys("var_names", var_names, samples, "the parameters are")
    return list(var_names)


TestFunctions = (
    Mapping[str, Callable[[dict[str, tf.Tensor]], tf.Tensor]] | Sequence[str]
)


class DrawSegment(NamedTuple):
    """A slice of the draws of one chain."""

    chain: int
    start: int
    stop: int


class DrawSource:
    """Draws and their control variates, in chunks."""

    def __init__(
        self,
        samples: Samples,
        degree: int,
        test_functions: TestFunctions | None,
        bijectors: Mapping[str, Any],
    ) -> None:
        if samples.gradients is None:
            raise ValueError(
                "`samples` has no gradients: run the sampler with `store_gradients=True`."
            )
        _need_flat(samples)
        self.has_chains = has_chains(samples.settings)
        self._degree = degree
        self._gradients = by_chain(samples.settings, samples.gradients)
        self.chains, self.draws = next(iter(self._gradients.values())).shape[:2]
        if self.draws < 2:
            raise ValueError(
                f"`samples` must hold at least two draws; it holds {self.draws}."
            )
        self._params = by_chain(samples.settings, samples)
        self._bijectors = dict(bijectors)
        if degree == 2:
            self._check_positions(samples)
        self._functions = _functions(samples, test_functions)
        self._traced: dict[int, Callable[..., dict[str, tf.Tensor]]] = {}
        stored: Mapping[str, np.ndarray] = samples.test_functions or {}
        names = list(test_functions) if test_functions is not None else []
        self._targets = (
            self._params
            if test_functions is None
            else {}
            if self._functions
            else by_chain(samples.settings, {name: stored[name] for name in names})
        )
        first = self._values(0, 0, 1)
        self.layout = Layout({name: value.shape[1:] for name, value in first.items()})
        self._size = sum(int(np.prod(g.shape[2:])) for g in self._gradients.values())
        self._center = self._mean_position() if degree == 2 else None

    @property
    def features(self) -> int:
        """The number of control variates."""
        d = self._size
        return d if self._degree == 1 else d * (d + 3) // 2

    @property
    def gradient_dtype(self) -> np.dtype:
        """Dtype in which the gradients were stored."""
        return next(iter(self._gradients.values())).dtype

    def batch_means(
        self, segments: list[DrawSegment], length: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield means over ``length`` draws, of the quantities and of their control variates."""
        for _, _, *rows in self.chunks(segments, length):
            batches = len(rows[0]) // length
            if batches:
                h, f = (
                    row[: batches * length].reshape(batches, length, -1).mean(1)
                    for row in rows
                )
                yield h, f

    def chunks(
        self, segments: list[DrawSegment], multiple: int = 1
    ) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
        """Yield chain, first draw, quantities and control variates, in float64.

        All chunks but the last of a segment hold a multiple of ``multiple`` draws.
        """
        limit = PIECE_BYTES // (8 * (self.features + self.layout.size))
        length = max(1, limit // multiple) * multiple
        for chain, first, last in segments:
            for start in range(first, last, length):
                stop = min(start + length, last)
                values = matrix(self._values(chain, start, stop))
                yield chain, start, values, self._control_variates(chain, start, stop)

    def _values(self, chain: int, start: int, stop: int) -> dict[str, np.ndarray]:
        if not self._functions:
            return {name: a[chain, start:stop] for name, a in self._targets.items()}
        params = {
            name: tf.constant(np.asarray(a[chain, start:stop]))
            for name, a in self._params.items()
        }
        if stop - start not in self._traced:
            self._traced[stop - start] = trace(self._evaluate, params)
        return {
            name: value.numpy()
            for name, value in self._traced[stop - start](params).items()
        }

    def _evaluate(self, params: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {name: vectorized_map(f, params) for name, f in self._functions.items()}

    def _control_variates(self, chain: int, start: int, stop: int) -> np.ndarray:
        z = -0.5 * matrix({n: g[chain, start:stop] for n, g in self._gradients.items()})
        if self._center is None:
            return z
        theta = self._positions(chain, start, stop) - self._center
        i, j = np.triu_indices(z.shape[1], 1)
        mixed = theta[:, i] * z[:, j] + theta[:, j] * z[:, i]
        return np.concatenate([z, theta * z - 0.5, mixed], axis=1)

    def _positions(self, chain: int, start: int, stop: int) -> np.ndarray:
        """Return draws in the space that the chain moves in."""
        positions = {}
        for name in self._gradients:
            value = np.asarray(self._params[name][chain, start:stop])
            if name in self._bijectors:
                tensor = tf.constant(value)
                bijector = fitting(self._bijectors[name], value[0], tensor.dtype)
                value = bijector.inverse(tensor).numpy()
            positions[name] = value
        return matrix(positions)

    def _mean_position(self) -> np.ndarray:
        total, length = np.zeros(self._size), max(1, PIECE_BYTES // (8 * self._size))
        for chain in range(self.chains):
            for start in range(0, self.draws, length):
                total += self._positions(
                    chain, start, min(start + length, self.draws)
                ).sum(axis=0)
        return total / (self.chains * self.draws)

    def _check_positions(self, samples: Samples) -> None:
        missing = [name for name in self._gradients if name not in self._params]
        if missing:
            raise ValueError(
                f"`samples` lacks the draws of {missing[0]!r}; degree 2 needs them."
            )
        for name, coordinates in (
            samples.settings.get("own_coordinates") or {}
        ).items():
            raise ValueError(
                "`degree`: degree 2 needs the draws in the space that the chain moved in; "
                f"{name!r} moved in {coordinates}, which are not kept. Use degree 1."
            )
        run_bijectors = samples.settings.get("bijectors") or {}
        known_keys(
            "bijectors",
            self._bijectors,
            run_bijectors,
            "the chain was run with bijectors for",
        )
        lacking = [
            name
            for name in run_bijectors
            if name in self._gradients and name not in self._bijectors
        ]
        if lacking:
            raise ValueError(
                f"`bijectors`: degree 2 needs the draws in the space that the chain moved in; give "
                f"the bijector of {lacking[0]!r} that it was run with, or use degree 1."
            )


def _need_flat(samples: Samples) -> None:
    """Raise an error if gradients are tangent to a manifold: their mean is not zero."""
    manifolds = samples.settings.get("manifolds") or {}
    for name in samples.gradients or {}:
        if name in manifolds:
            raise ValueError(
                f"`samples`: {name!r} is on a manifold, {manifolds[name]}, where the mean of the "
                "gradient is not zero, so that it is not a control variate."
            )


def _functions(
    samples: Samples, test_functions: TestFunctions | None
) -> dict[str, Callable[..., Any]]:
    """Return the functions to evaluate; none for stored values or parameters."""
    if test_functions is None:
        if not len(samples):
            raise ValueError(
                "`samples` holds no draws of parameters; name its `test_functions`."
            )
        return {}
    if isinstance(test_functions, Mapping):
        for name, function in test_functions.items():
            if not callable(function):
                raise TypeError(
                    f"`test_functions[{name!r}]` must be a function of `params`; it is "
                    f"{describe(function)}."
                )
        return dict(test_functions)
    if isinstance(test_functions, str) or not isinstance(test_functions, Sequence):
        raise TypeError(
            "`test_functions` must be a list of names or a dict of functions; it is "
            f"{describe(test_functions)}."
        )
    known_keys(
        "test_functions", test_functions, samples.test_functions or {}, "there are"
    )
    return {}
