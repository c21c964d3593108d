"""The No-U-Turn Sampler: trajectories that are doubled until they turn back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import tensorflow as tf

from sgmcmc.checks import whole_number
from sgmcmc.dynamics.hamiltonian import (
    SETTINGS,
    Hamiltonian,
    Motion,
    Moves,
    Point,
    log_weight,
    normals,
    read_frequency,
)
from sgmcmc.model.geometry import Space

# Angle of the rotation in a step, at most. After half a turn or full ones draws are not new, and
# with half this angle a gradient gives half as many.
_LARGEST_TURN = 1.4


class _End(NamedTuple):
    """A point of a trajectory, and the velocity there."""

    point: Point
    velocity: tf.Tensor


class _Branch(NamedTuple):
    """Points on one side of a tree, as many as the tree has, made one after the other.

    Attributes:
        number: Number of points so far.
        last: The last of them.
        first: Velocity at the first.
        chosen: One of them, drawn with probability in proportion to e^(−H).
        weight: log Σ e^(H₀ − H).
        total: Sum of the velocities.
        saved, totals: Velocities at the points where subtrees begin, and totals there, a row for
            each level.
        u_turn, diverged: Whether a subtree turned back; whether the energy was left.
        acceptance: Sum of min(1, e^(H₀ − H)).
    """

    number: tf.Tensor
    last: _End
    first: tf.Tensor
    chosen: Point
    weight: tf.Tensor
    total: tf.Tensor
    saved: tf.Tensor
    totals: tf.Tensor
    u_turn: tf.Tensor
    diverged: tf.Tensor
    acceptance: tf.Tensor


class _Tree(NamedTuple):
    """A trajectory.

    Attributes:
        depth: log₂ of the number of its points.
        left, right: Its ends.
        chosen, weight, total: Chosen point, weight and total, as of a branch.
        going: Whether it may be doubled.
        diverged: Whether the energy was left.
        acceptance, gradients: Sum of min(1, e^(H₀ − H)) over all points but the first; number
            of these points.
    """

    depth: tf.Tensor
    left: _End
    right: _End
    chosen: Point
    weight: tf.Tensor
    total: tf.Tensor
    going: tf.Tensor
    diverged: tf.Tensor
    acceptance: tf.Tensor
    gradients: tf.Tensor


@dataclass(frozen=True)
class _Path:
    """The path on which the points of a trajectory are.

    Attributes:
        motion: Motion.
        energy: −H where the trajectory started.
        stepsize: ε, negative to the left.
    """

    motion: Motion
    energy: tf.Tensor
    stepsize: tf.Tensor


@dataclass(frozen=True)
class NUTS(Hamiltonian):
    """Hamiltonian Monte Carlo whose trajectories are doubled until they turn back.

    A trajectory turns back if (Σν) · ν ≤ 0 at one of its ends, the sum over its points, or that of
    a subtree, or of one half with the next point of the other. Of its points one is drawn, with
    probability in proportion to e^(−H) within each half; a new half replaces the draw of the old
    one with probability min(1, ratio of their weights). The posterior is the stationary
    distribution, whatever ε is.

    Args:
        max_tree_depth: Largest depth: a trajectory has at most 2^max_tree_depth − 1 leapfrog steps.
        frequency: ω, from 0 to 1, the same as in :class:`HMC`.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.NUTS(max_tree_depth=8).max_tree_depth
        8

    Source:
        Hoffman & Gelman, Journal of Machine Learning Research 15, 2014, algorithm 3; with the
        multinomial sampling and the criterion of Betancourt, *A Conceptual Introduction to
        Hamiltonian Monte Carlo*, 2017, appendix A.
    """

    max_tree_depth: int = 10
    frequency: float = 0.0

    name = "nuts"
    acceptance = 0.85

    def bind(self, space: Space) -> NUTS:
        """Return this dynamics with its constants checked."""
        depth = whole_number("max_tree_depth", self.max_tree_depth, 1)
        return replace(
            self, max_tree_depth=depth, frequency=read_frequency(self.frequency)
        )

    def suitable(self, stepsize: float, frequency: float) -> float:
        """Return a stepsize whose rotation is less than a quarter of a turn.

        Near a normal posterior kicks are small, and no acceptance rate bounds the stepsize.
        """
        return min(stepsize, _LARGEST_TURN / frequency) if frequency > 0 else stepsize

    def move(
        self, motion: Motion, here: Point, stepsize: tf.Tensor, seed: tf.Tensor
    ) -> tuple[Point, Moves]:
        """Return the point drawn from one trajectory."""
        seeds = tf.random.split(seed, self.max_tree_depth + 1, alg="philox")
        velocity = normals(here.z.shape, seeds[-1])
        energy = log_weight(here, velocity)
        zero = tf.zeros([], tf.float64)
        end = _End(here, velocity)
        tree = _Tree(
            depth=tf.constant(0),
            left=end,
            right=end,
            chosen=here,
            weight=zero,
            total=velocity,
            going=tf.constant(True),
            diverged=tf.constant(False),
            acceptance=zero,
            gradients=tf.constant(0),
        )

        path = _Path(motion, energy, stepsize)

        def doubled(tree: _Tree) -> tuple[_Tree]:
            return (self._doubled(path, tree, tf.gather(seeds, tree.depth)),)

        (tree,) = tf.while_loop(
            lambda tree: tree.going & (tree.depth < self.max_tree_depth),
            doubled,
            (tree,),
            parallel_iterations=1,
        )
        mean = tree.acceptance / tf.cast(tree.gradients, tf.float64)
        return tree.chosen, Moves(1.0, mean, tree.diverged, tree.gradients, tree.going)

    def _doubled(self, path: _Path, tree: _Tree, seed: tf.Tensor) -> _Tree:
        """Return the tree with as many points again, on one of its sides."""
        of_tree, of_branch = tf.unstack(tf.random.split(seed, 2, alg="philox"))
        uniforms = tf.random.stateless_uniform(
            [2], of_tree, dtype=tf.float64, alg="philox"
        )
        right = uniforms[0] < 0.5
        edge = _where(right, tree.right, tree.left)
        inner = edge.velocity
        outer = _where(right, tree.left.velocity, tree.right.velocity)
        signed = tf.where(right, path.stepsize, -path.stepsize)
        beyond = replace(path, stepsize=signed)
        branch = self._branch(beyond, edge, tree.depth, of_branch)
        whole = ~(branch.u_turn | branch.diverged)
        accepted = whole & (tf.math.log(uniforms[1]) < branch.weight - tree.weight)
        total = tree.total + branch.total
        u_turn = (
            _is_u_turn(outer, branch.last.velocity, total)
            | _is_u_turn(outer, branch.first, tree.total + branch.first)
            | _is_u_turn(inner, branch.last.velocity, branch.total + inner)
        )
        return _Tree(
            depth=tree.depth + 1,
            left=_where(right, tree.left, branch.last),
            right=_where(right, branch.last, tree.right),
            chosen=_where(accepted, branch.chosen, tree.chosen),
            weight=_log_sum(tree.weight, branch.weight),
            total=total,
            going=whole & ~u_turn,
            diverged=branch.diverged,
            acceptance=tree.acceptance + branch.acceptance,
            gradients=tree.gradients + branch.number,
        )

    def _branch(
        self, path: _Path, edge: _End, depth: tf.Tensor, seed: tf.Tensor
    ) -> _Branch:
        """Return 2^depth points beyond an edge, or fewer if these turn back or diverge."""
        zero, none = tf.zeros([], tf.float64), tf.zeros_like(edge.velocity)
        rows = tf.zeros([self.max_tree_depth, none.shape[0]], tf.float64)
        start = _Branch(
            number=tf.constant(0),
            last=edge,
            first=none,
            chosen=edge.point,
            weight=zero - float("inf"),
            total=none,
            saved=rows,
            totals=rows,
            u_turn=tf.constant(False),
            diverged=tf.constant(False),
            acceptance=zero,
        )
        size = tf.bitwise.left_shift(1, depth)

        def extended(branch: _Branch) -> tuple[_Branch]:
            return (_extended(path, branch, seed),)

        return tf.while_loop(
            lambda b: (b.number < size) & ~b.u_turn & ~b.diverged,
            extended,
            (start,),
            parallel_iterations=1,
        )[0]


def _extended(path: _Path, branch: _Branch, seed: tf.Tensor) -> _Branch:
    """Return a branch with one more point."""
    number = branch.number
    point, velocity = path.motion.step(*branch.last, path.stepsize)
    above = log_weight(point, velocity) - path.energy
    above = tf.where(
        tf.math.is_nan(above), tf.constant(-float("inf"), tf.float64), above
    )
    weight = _log_sum(branch.weight, above)
    point_seed = tf.random.experimental.stateless_fold_in(seed, number, alg="philox")
    uniform = tf.random.stateless_uniform(
        [], point_seed, dtype=tf.float64, alg="philox"
    )
    total = branch.total + velocity
    # A subtree begins at each even point. Those that end at an odd one have as many levels as its
    # number has ones at the end; the others that are open have a row for each other one.
    ends = _ones(tf.bitwise.bitwise_xor(number, number + 1)) - 1
    level = _ones(tf.bitwise.right_shift(number, 1))
    saved, totals = tf.cond(
        tf.equal(ends, 0),
        lambda: (
            _with_row(branch.saved, level, velocity),
            _with_row(branch.totals, level, total),
        ),
        lambda: (branch.saved, branch.totals),
    )

    def check(i: tf.Tensor, u_turn: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        first = tf.gather(saved, i)
        total_of_subtree = total - tf.gather(totals, i) + first
        return i - 1, u_turn | _is_u_turn(first, velocity, total_of_subtree)

    _, u_turn = tf.while_loop(
        lambda i, u_turn: (i > level - ends) & ~u_turn,
        check,
        (level, branch.u_turn),
        parallel_iterations=1,
    )
    chooses_it = tf.math.log(uniform) < above - weight
    return _Branch(
        number=number + 1,
        last=_End(point, velocity),
        first=tf.where(tf.equal(number, 0), velocity, branch.first),
        chosen=_where(chooses_it, point, branch.chosen),
        weight=weight,
        total=total,
        saved=saved,
        totals=totals,
        u_turn=u_turn,
        diverged=~(above > SETTINGS.diverged),
        acceptance=branch.acceptance + tf.exp(tf.minimum(above, 0.0)),
    )


def _is_u_turn(left: tf.Tensor, right: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
    """Return whether a trajectory turns back, given the velocities at its ends and their sum."""
    middle = total - (left + right) / 2
    return (tf.tensordot(left, middle, 1) <= 0) | (tf.tensordot(right, middle, 1) <= 0)


def _where(condition: tf.Tensor, chosen: Any, alternative: Any) -> Any:
    return tf.nest.map_structure(
        lambda a, b: tf.where(condition, a, b), chosen, alternative
    )


def _with_row(rows: tf.Tensor, number: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
    return tf.tensor_scatter_nd_update(
        rows, tf.reshape(number, [1, 1]), row[tf.newaxis]
    )


def _ones(number: tf.Tensor) -> tf.Tensor:
    """Return the number of ones among the binary digits of an integer."""
    return tf.cast(tf.raw_ops.PopulationCount(x=number), tf.int32)


def _log_sum(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Return log(eᵃ + eᵇ), neither of which is infinite upwards."""
    largest = tf.maximum(a, b)
    log_sum = largest + tf.math.log1p(tf.exp(-tf.abs(a - b)))
    return tf.where(tf.math.is_inf(largest), largest, log_sum)
