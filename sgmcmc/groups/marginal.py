"""The likelihood of whole groups, with their effects integrated out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.groups.packs import Packs
from sgmcmc.groups.spec import Groups

Tensors = dict[str, tf.Tensor]

SLOT, FILLED = "groups/slot", "groups/filled"
"""Columns of packs: which of its pack's groups each row belongs to; how many groups there are."""

MODE, ROOT = "groups/mode", "groups/root"
"""Columns of packs whose nodes are held in place: mode and root of the information of each group
at some parameters, (slots, q) and (slots, q, q)."""

START = "groups/start"
"""Column of packs where the search for the modes of their groups begins, (slots, q)."""

COLUMNS = (SLOT, FILLED, MODE, ROOT, START)
"""Columns that are not the user's."""

_MOST_STEPS = 30
"""Newton steps to a group's mode at the most."""

_NEAR = 1e-5
"""Twice the gain in log density that the last Newton step promises, at which a mode is found."""

MOVES = 8
"""Moves of the sampler that draws effects: its error is about (1 − acceptance)^8."""

_FLOOR = 1e-5
"""The least curvature in a direction, as a part of the largest of its group."""


class Normal(NamedTuple):
    """The normal approximation of each group's effects, given the global parameters.

    Attributes:
        mode: Mode of the density of the effects, (m, q).
        root: Lower triangle L of the information, L Lᵀ = −∇², row by row: L[i][j] is (m,).
    """

    mode: tf.Tensor
    root: list[list[tf.Tensor]]

    def spread(self, standard: tf.Tensor) -> tf.Tensor:
        """Return L⁻ᵀ x, which has the covariance of the approximation, (..., m, q)."""
        q = len(self.root)
        found: list[tf.Tensor] = [None] * q
        for i in reversed(range(q)):
            rest = sum((self.root[k][i] * found[k] for k in range(i + 1, q)), start=0.0)
            found[i] = (standard[..., i] - rest) / self.root[i][i]
        return tf.stack(found, -1)

    @property
    def log_root(self) -> tf.Tensor:
        """Σ log L_jj, (m,)."""
        return tf.add_n([tf.math.log(self.root[j][j]) for j in range(len(self.root))])


class Random(NamedTuple):
    """Random numbers for a draw of the effects of each slot.

    Attributes:
        standard: Standard normal numbers, (MOVES + 1, m, q).
        squared: χ² numbers with 4 degrees of freedom, (MOVES + 1, m).
        bars: Logarithms of uniform numbers, (MOVES, m).
    """

    standard: tf.Tensor
    squared: tf.Tensor
    bars: tf.Tensor


class Marginal:
    """The log-likelihood of packs of groups: what a chain samples in place of the user's.

    Args:
        log_lik: User's log-likelihood, one term for each row.
        groups: Groups.
        packs: Places of each group's rows.
        nodes: Nodes of the quadrature in each direction; by default those of ``groups``.

    Attributes:
        log_lik, groups, packs, nodes: Arguments, as given.
        most: Largest number of groups in a pack.
    """

    def __init__(
        self,
        log_lik: Callable[[Tensors, Tensors], tf.Tensor],
        groups: Groups,
        packs: Packs,
        nodes: int | None = None,
    ) -> None:
        self.log_lik = log_lik
        self.groups = groups
        self.packs = packs
        self.most = packs.most
        self.nodes = int(nodes or groups.nodes or 1)
        x, w = np.polynomial.hermite.hermgauss(self.nodes)
        grid = np.meshgrid(*[x] * groups.size, indexing="ij")
        logs = np.meshgrid(*[np.log(w) + x**2] * groups.size, indexing="ij")
        self._x = np.stack([axis.reshape(-1) for axis in grid], -1)
        self._log_w = sum(axis.reshape(-1) for axis in logs)
        self._graphs: dict[Any, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        # A worker traces its own graphs.
        return {**self.__dict__, "_graphs": {}}

    def with_nodes(self, nodes: int) -> Marginal:
        """Return the same with another number of nodes."""
        return Marginal(self.log_lik, self.groups, self.packs, nodes)

    def __call__(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return the log-likelihood of each pack, (n,).

        It is traced once for all graphs that call it with such packs.
        """
        given = tf.nest.map_structure(_spec, (params, dataset))
        key = tuple((name, spec.shape, spec.dtype) for part in given for name, spec in part.items())
        if key not in self._graphs:
            graph = tf.function(self._of_packs, autograph=False)
            self._graphs[key] = graph.get_concrete_function(*given)
        return self._graphs[key](params, dataset)

    def _of_packs(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        packs = dataset[SLOT].shape[0]
        values = tf.reshape(self.of_slots(params, dataset), [packs, self.most])
        if self.most == 1:
            return values[:, 0]
        there = tf.range(self.most)[tf.newaxis] < dataset[FILLED][:, tf.newaxis]
        return tf.reduce_sum(tf.where(there, values, tf.zeros_like(values)), 1)

    def of_slots(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return log p(y_g | θ) of every slot of some packs, (m,).

        Nodes stay where they are in derivatives: the rule is exact to its own order wherever they
        are, so that the derivatives of what it gives are those of the integral.
        """
        fixed = {name: tf.stop_gradient(value) for name, value in params.items()}
        normal = self.normal(fixed, dataset)
        dtype = normal.mode.dtype
        x = tf.constant(self._x, dtype)[:, tf.newaxis, :]
        nodes = normal.mode + 2.0**0.5 * normal.spread(x)
        heights = self.heights(params, dataset, tf.stop_gradient(nodes))
        weighted = heights + tf.constant(self._log_w, dtype)[:, tf.newaxis]
        constant = 0.5 * self.groups.size * np.log(2.0)
        return tf.reduce_logsumexp(weighted, 0) - tf.stop_gradient(normal.log_root) + constant

    def draw(self, params: Tensors, dataset: Tensors, random: Random) -> tf.Tensor:
        """Return a draw of p(z_g | y_g, θ) for each slot, and the part of moves taken, (m, q + 1).

        An independence sampler makes ``MOVES`` moves, whose proposals are Student-t with 4 degrees
        of freedom around the mode, wider than the density in its tails.
        """
        normal, q = self.normal(params, dataset), self.groups.size
        dtype = normal.mode.dtype
        x = random.standard * tf.sqrt(4.0 / random.squared)[..., tf.newaxis]
        proposals = normal.mode + normal.spread(x)
        weights = self.heights(params, dataset, proposals)
        weights += 0.5 * (4.0 + q) * tf.math.log1p(tf.reduce_sum(x**2, -1) / 4.0)
        weights = tf.where(tf.math.is_finite(weights), weights, dtype.min * tf.ones_like(weights))
        here, weight = proposals[0], weights[0]
        taken = tf.zeros_like(weight)
        for move in range(1, MOVES + 1):
            goes = random.bars[move - 1] < weights[move] - weight
            here = tf.where(goes[:, tf.newaxis], proposals[move], here)
            weight = tf.where(goes, weights[move], weight)
            taken += tf.cast(goes, dtype) / MOVES
        return tf.concat([here, taken[:, tf.newaxis]], 1)

    def heights(self, params: Tensors, dataset: Tensors, effects: tf.Tensor) -> tf.Tensor:
        """Return log p(y_g, z_g | θ) at several effects of each slot, (k, m), of (k, m, q)."""
        joint = self.joint(params, dataset)
        if effects.shape[0] == 1:
            return joint(effects[0])[tf.newaxis]
        return tf.vectorized_map(joint, effects)

    def of_rows(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return log p(y_i | the other rows of its group, θ) of the rows of packs, (packs, width).

        It is log p(y_g | θ) less the same without the row, at the same nodes, of which there should
        be more than for the group alone: a row that is left out widens the density.
        """
        normal = self.normal(params, dataset)
        dtype = normal.mode.dtype
        x = tf.constant(self._x, dtype)[:, tf.newaxis, :]
        nodes = normal.mode + 2.0**0.5 * normal.spread(x)
        terms_of, places = self._terms(params, dataset)
        law = self.groups.log_prior
        terms = tf.vectorized_map(terms_of, nodes)
        slots = tf.shape(nodes)[1]
        heights = tf.vectorized_map(
            lambda both: (
                tf.math.unsorted_segment_sum(both[1], places, slots)
                + law(self.groups.named(both[0]), dict(params))
            ),
            (nodes, terms),
        )
        weighted = heights + tf.constant(self._log_w, dtype)[:, tf.newaxis]
        without = tf.reduce_logsumexp(tf.gather(weighted, places, axis=1) - terms, 0)
        found = tf.gather(tf.reduce_logsumexp(weighted, 0), places) - without
        return tf.reshape(found, dataset[SLOT].shape)

    def joint(self, params: Tensors, dataset: Tensors) -> Callable[[tf.Tensor], tf.Tensor]:
        """Return the function of effects, (m, q), that is log p(y_g, z_g | θ), (m,)."""
        terms_of, places = self._terms(params, dataset)
        packs, width = dataset[SLOT].shape
        slots, most = packs * self.most, self.most

        def height(effects: tf.Tensor) -> tf.Tensor:
            terms = terms_of(effects)
            if most == 1:
                data = tf.reduce_sum(tf.reshape(terms, [packs, width]), 1)
            else:
                data = tf.math.unsorted_segment_sum(terms, places, slots)
            return data + self.groups.log_prior(self.groups.named(effects), dict(params))

        return height

    def _terms(
        self, params: Tensors, dataset: Tensors
    ) -> tuple[Callable[[tf.Tensor], tf.Tensor], tf.Tensor]:
        """Return the function of effects that gives the terms of rows, and the slot of each row."""
        slot = dataset[SLOT]
        packs, width = slot.shape
        most = self.most
        rows = {
            name: tf.reshape(column, [packs * width, *column.shape[2:]])
            for name, column in dataset.items()
            if name not in COLUMNS
        }
        real = tf.reshape(slot >= 0, [-1])
        first = most * tf.range(packs)[:, tf.newaxis]
        places = tf.reshape(first + tf.maximum(slot, 0), [-1])

        def terms_of(effects: tf.Tensor) -> tf.Tensor:
            if most == 1:
                of_rows = tf.repeat(effects, width, axis=0)
            else:
                of_rows = tf.gather(effects, places)
            terms = self.log_lik({**params, **self.groups.named(of_rows)}, dict(rows))
            return tf.where(real, terms, tf.zeros_like(terms))

        return terms_of, places

    def normal(self, params: Tensors, dataset: Tensors) -> Normal:
        """Return mode and information of the effects of every slot.

        If packs hold them, these are used. Else safeguarded Newton steps find them: they go
        uphill, since directions of no curvature or of a wrong sign count as curved; a group whose
        density falls moves by a quarter of its step.
        """
        if MODE in dataset:
            return self._held(dataset)
        joint = self.joint(params, dataset)
        slots = dataset[SLOT].shape[0] * self.most
        dtype = next(iter(params.values())).dtype
        if START in dataset:
            start = tf.reshape(dataset[START], [slots, self.groups.size])
        else:
            start = tf.repeat(tf.constant(self.groups.start, dtype)[tf.newaxis], slots, axis=0)

        def unfinished(number: tf.Tensor, state: Any) -> tf.Tensor:
            return tf.reduce_any(state[-1])

        def step(number: tf.Tensor, state: Any) -> Any:
            mode, height, move, length, root, _ = state
            there = mode + length[:, tf.newaxis] * move
            value, slope, curved = self._curvature(joint, there)
            better = tf.math.is_finite(value) & (value >= height - 1e-6 * (1.0 + tf.abs(height)))
            newton, gain = _newton(slope, curved)
            mode = tf.where(better[:, tf.newaxis], there, mode)
            move = tf.where(better[:, tf.newaxis], newton, move)
            length = tf.where(better, tf.ones_like(length), 0.25 * length)
            away = tf.where(better, gain > _NEAR, length > 1e-4)
            root = [
                [tf.where(better, now, before) for now, before in zip(a, b, strict=True)]
                for a, b in zip(curved, root, strict=True)
            ]
            height = tf.where(better, value, height)
            return number + 1, (mode, height, move, length, root, away)

        ones, q = tf.ones([slots], dtype), self.groups.size
        state = (
            start,
            tf.fill([slots], tf.constant(-np.inf, dtype)),
            tf.zeros_like(start),
            ones,
            [[ones] * q for _ in range(q)],
            tf.fill([slots], True),
        )
        _, (mode, _, move, length, root, _) = tf.while_loop(
            unfinished,
            step,
            (tf.constant(0), state),
            maximum_iterations=_MOST_STEPS,
            parallel_iterations=1,
        )
        mode = tf.stop_gradient(mode + length[:, tf.newaxis] * move)
        return Normal(mode, [[tf.stop_gradient(entry) for entry in row] for row in root])

    def _held(self, dataset: Tensors) -> Normal:
        """Return the mode and information that packs hold."""
        q = self.groups.size
        mode = tf.reshape(dataset[MODE], [-1, q])
        root = tf.reshape(dataset[ROOT], [-1, q, q])
        return Normal(mode, [[root[:, i, j] for j in range(q)] for i in range(q)])

    def _curvature(
        self, joint: Callable[[tf.Tensor], tf.Tensor], effects: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, list[list[tf.Tensor]]]:
        """Return log density, gradient and root of the information at some effects."""
        q = self.groups.size
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as outer:
            outer.watch(effects)
            with tf.GradientTape(watch_accessed_variables=False) as inner:
                inner.watch(effects)
                value = joint(effects)
                total = tf.reduce_sum(value)
            slope = inner.gradient(total, effects, unconnected_gradients="zero")
            parts = [tf.reduce_sum(slope[:, j]) for j in range(q)]
        bends = [outer.gradient(part, effects, unconnected_gradients="zero") for part in parts]
        return value, slope, _root([[-bends[i][:, j] for j in range(q)] for i in range(q)])


def _spec(tensor: tf.Tensor) -> tf.TensorSpec:
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _root(matrix: list[list[tf.Tensor]]) -> list[list[tf.Tensor]]:
    """Return the Cholesky root of small matrices, entry by entry, with pivots that are positive."""
    q = len(matrix)
    largest = tf.reduce_max(tf.stack([tf.abs(matrix[j][j]) for j in range(q)]), 0)
    floor = _FLOOR * largest + 1e-20
    root: list[list[tf.Tensor]] = [[None] * q for _ in range(q)]
    for j in range(q):
        pivot = matrix[j][j] - sum((root[j][k] ** 2 for k in range(j)), start=0.0)
        root[j][j] = tf.sqrt(tf.maximum(tf.abs(pivot), floor))
        for i in range(j + 1, q):
            known = sum((root[i][k] * root[j][k] for k in range(j)), start=0.0)
            root[i][j] = (0.5 * (matrix[i][j] + matrix[j][i]) - known) / root[j][j]
            root[j][i] = tf.zeros_like(pivot)
    return root


def _newton(slope: tf.Tensor, root: list[list[tf.Tensor]]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return Newton steps (L Lᵀ)⁻¹ g, and what they promise, gᵀ(L Lᵀ)⁻¹ g."""
    q = len(root)
    half: list[tf.Tensor] = []
    for i in range(q):
        known = sum((root[i][k] * half[k] for k in range(i)), start=0.0)
        half.append((slope[:, i] - known) / root[i][i])
    forward = tf.stack(half, -1)
    step = Normal(slope, root).spread(forward)
    return step, tf.reduce_sum(forward**2, -1)
