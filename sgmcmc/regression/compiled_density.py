"""The posterior density of a regression of few rows as one compiled graph, by its quadrature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.graphs.compiler import Compiled, Compiler
from sgmcmc.graphs.tracing import vectorized_map
from sgmcmc.regression.density import RegressionDensity


@dataclass(frozen=True)
class _Settings:
    few: int = 1000  # terms of a position, of which a call takes hardly longer with more positions
    # Positions of a graph, with few terms and with many. Calls with fewer are filled up.
    of_few: int = 24
    of_many: int = 4


_SETTINGS = _Settings()


class CompiledDensity:
    """The values of a :class:`RegressionDensity` whose rule is known, for many calls.

    Calls of NumPy and TensorFlow for each step of a few numbers take longer than these do. What
    XLA cannot compile is computed step by step all the same.

    Args:
        density: Density, with groups and a rule.

    Attributes:
        is_quick: Whether a call takes hardly longer with more positions.
    """

    def __init__(self, density: RegressionDensity) -> None:
        assert density.groups is not None and density.rule is not None
        self._density = density
        self.is_quick = density.terms_of_a_position <= _SETTINGS.few
        self._size = _SETTINGS.of_few if self.is_quick else _SETTINGS.of_many
        x, log_w = density.nodes_and_weights
        constant = 0.5 * x.shape[1] * np.log(np.pi)
        further = density.further
        self._constants = {
            "x": tf.constant(density.x),
            "z": tf.constant(density.groups.z),
            "codes": tf.constant(density.groups.codes),
            "nodes": tf.constant(x),
            "log_w": tf.constant(log_w - constant),
            "center": tf.constant(density.rule.center),
            "values": tf.constant(density.rule.values),
            "slopes": tf.constant(density.rule.slopes),
        }
        if further is not None:
            rows = (len(density.x), -1)
            self._constants |= {
                "further": tf.constant(further.z.data.reshape(rows)),
                "places": tf.constant(further.z.indices.reshape(rows)),
            }

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Return the log density at positions, (c, d), −∞ where it is not a number."""
        if self._graph is None:
            return self._density(positions)
        (values,) = _in_parts(self._graph, positions, self._size)
        return np.where(np.isnan(values), -np.inf, values)

    def with_gradient(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the log density at positions, −∞ like above, and its gradient, (c, d)."""
        assert self._gradient_graph is not None
        values, gradients = _in_parts(
            self._gradient_graph, positions, _SETTINGS.of_many
        )
        return np.where(np.isnan(values), -np.inf, values), gradients

    @property
    def has_gradient(self) -> bool:
        """Whether XLA compiles the gradient."""
        return self._gradient_graph is not None

    @cached_property
    def _graph(self) -> Compiled | None:
        return self._compiled(self._values, self._size)

    @cached_property
    def _gradient_graph(self) -> Compiled | None:
        return self._compiled(self._differentiated, _SETTINGS.of_many)

    def _compiled(self, function: Callable[..., Any], size: int) -> Compiled | None:
        assert self._density.rule is not None
        example = _filled(self._density.rule.center[np.newaxis], size)
        return Compiler(None).try_to_compile(function, example)

    def _values(self, positions: tf.Tensor) -> tuple[tf.Tensor]:
        return (vectorized_map(self._at, positions),)

    def _differentiated(self, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def at(position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(position)
                value = self._at(position)
            return value, tape.gradient(value, position)

        return vectorized_map(at, positions)

    def _at(self, position: tf.Tensor) -> tf.Tensor:
        density, constants = self._density, self._constants
        groups, further = density.groups, density.further
        assert groups is not None
        d = len(density.prior.start)
        total, params = density.prior.at(position[:d])
        fixed = tf.zeros(len(density.x), position.dtype)
        if "b" in params:
            fixed += tf.linalg.matvec(constants["x"], params["b"])
        if further is not None:
            params |= further.layout.split(position[d:])
            for effects, _ in further.factors:
                total += tf.reduce_sum(effects.log_density(params, params))
            effects_of_rows = tf.gather(position[d:], constants["places"])
            fixed += tf.reduce_sum(effects_of_rows * constants["further"], 1)
        root = self._root(params)
        modes, inverses = self._modes(position, root)
        nodes, columns = constants["nodes"], tf.transpose(constants["z"]) @ root
        u = modes + tf.einsum("gji,kj->kgi", inverses, nodes)
        codes = constants["codes"]
        center = fixed + tf.reduce_sum(columns * tf.gather(modes, codes), 1)
        slopes = tf.einsum("ni,nji->jn", columns, tf.gather(inverses, codes))
        terms = density.terms.at(center + nodes @ slopes, params)
        heights = tf.math.unsorted_segment_sum(
            tf.transpose(terms), codes, modes.shape[0]
        )
        heights += constants["log_w"] - 0.5 * tf.transpose(tf.reduce_sum(u**2, -1))
        scales = tf.math.log(tf.linalg.diag_part(inverses))
        return (
            total
            + tf.reduce_sum(tf.reduce_logsumexp(heights, 1))
            + tf.reduce_sum(scales)
        )

    def _root(self, params: dict[str, tf.Tensor]) -> tf.Tensor:
        """Return L, LL' the covariance of the effects of a group, (q, q)."""
        groups, model = self._density.groups, self._density.model
        assert groups is not None
        effects = groups.effects
        sds = params[effects.sds_name] * tf.constant(effects.scale / model.unit)
        entries = effects.root(sds, params.get(effects.correlations_name))
        return _matrix(entries, sds[0])

    def _modes(
        self, position: tf.Tensor, root: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return modes, (groups, q), and inverse roots, (groups, q, q), as the rule has them."""
        constants, q = self._constants, root.shape[0]
        moved = tf.tensordot(position - constants["center"], constants["slopes"], 1)
        toward, logs, below = tf.split(constants["values"] + moved, [q, q, -1], 1)
        zero = tf.zeros_like(logs[:, 0])
        of_data = [[zero] * q for _ in range(q)]
        pairs = [(i, j) for i in range(q) for j in range(i)]
        for i in range(q):
            of_data[i][i] = tf.exp(logs[:, i])
        for number, (i, j) in enumerate(pairs):
            of_data[i][j] = below[:, number]
        standard = tf.einsum("gji,jk->gik", _matrix(of_data, zero), root)
        precision = tf.einsum("gji,gjk->gik", standard, standard)
        inverses = _inverse_root(precision + tf.eye(q, dtype=precision.dtype))
        modes = tf.einsum("gij,gj->gi", inverses, toward @ root)
        return tf.einsum("gji,gj->gi", inverses, modes), inverses


def _matrix(entries: list[list[Any]], like: tf.Tensor) -> tf.Tensor:
    """Return a matrix, (..., q, q), of entries, each a number or (...)."""
    rows = [
        tf.stack([entry + tf.zeros_like(like) for entry in row], -1) for row in entries
    ]
    return tf.stack(rows, -2)


def _inverse_root(matrix: tf.Tensor) -> tf.Tensor:
    """Return R⁻¹ of matrices RR', (groups, q, q), entry by entry: XLA's own are slow for q = 2."""
    q, zero = matrix.shape[-1], tf.zeros_like(matrix[:, 0, 0])
    root = [[zero] * q for _ in range(q)]
    inverse = [[zero] * q for _ in range(q)]
    for i in range(q):
        for j in range(i + 1):
            left = matrix[:, i, j] - sum(root[i][k] * root[j][k] for k in range(j))
            root[i][j] = tf.sqrt(left) if i == j else left / root[j][j]
        inverse[i][i] = 1.0 / root[i][i]
        for j in range(i):
            product = sum(root[i][k] * inverse[k][j] for k in range(j, i))
            inverse[i][j] = -product * inverse[i][i]
    return _matrix(inverse, zero)


def _in_parts(graph: Compiled, positions: np.ndarray, size: int) -> list[np.ndarray]:
    """Return the results of a graph of a number of positions, for any number of them."""
    parts = []
    for first in range(0, len(positions), size):
        part = positions[first : first + size]
        parts.append(
            [result.numpy()[: len(part)] for result in graph(_filled(part, size))]
        )
    return [np.concatenate(results) for results in zip(*parts, strict=True)]


def _filled(positions: np.ndarray, size: int) -> tf.Tensor:
    """Return positions, the last of them repeated up to a number."""
    return tf.constant(positions[np.minimum(np.arange(size), len(positions) - 1)])
