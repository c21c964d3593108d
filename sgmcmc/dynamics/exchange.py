"""Replica exchange: chains at several temperatures that exchange their positions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.checks import describe, is_number, whole_number
from sgmcmc.dynamics.base import Dynamics, Elsewhere, ExactDynamics
from sgmcmc.dynamics.langevin import SGLD
from sgmcmc.model.geometry import Space

_RATE = "exchange rate of temperatures "


class ExchangeState(NamedTuple):
    """The state of several replicas.

    Attributes:
        inner: State of the dynamics of each replica, the coldest first.
        gradients: Gradient estimates at the positions of the others, (K − 1, d).
        log_ratios: Estimated log acceptance ratio of each pair of neighbors, (K − 1,).
        steps: Number of steps so far.
        proposed, exchanged: Numbers of proposals and exchanges of each pair, (K − 1,).
    """

    inner: tuple[Any, ...]
    gradients: tf.Tensor
    log_ratios: tf.Tensor
    steps: tf.Tensor
    proposed: tf.Tensor
    exchanged: tf.Tensor

    @property
    def position(self) -> tf.Tensor:
        """θ of the coldest replica, flat and unconstrained."""
        return self.inner[0].position


@dataclass(frozen=True)
class ReplicaExchange(Dynamics):
    """Replicas θ_k at temperatures T_1 < … < T_K, of which the coldest is the chain.

    Each moves by the same dynamics, with the gradient ĝ(θ_k)/T_k and the stepsize εT_k: for SGLD
    θ_k' = θ_k + (ε/2) ĝ(θ_k) + √(T_k ε) η. Every few steps, neighbors k and k + 1 exchange their
    positions with probability min(1, e^r),

    r = δ Δ − F δ² s²/2, with δ = 1/T_k − 1/T_{k+1},

    where Δ estimates log p(θ_{k+1}|x) − log p(θ_k|x) from the minibatch, and s² is its variance,
    estimated from the rows of the minibatch. Without the correction (F = 0) the noise of Δ makes
    exchanges too frequent, and the cold chain too warm. With F = 1 exchanges satisfy detailed
    balance, if Δ is normal and s² right. Even and odd pairs take turns.

    A chain that is stuck in one mode reaches the others through the hotter replicas, and is in each
    in proportion to its probability. An iteration costs K gradients. Neighbors must overlap: with d
    coordinates, ratios of temperatures of about 1 + √(2/d) give exchange rates of a quarter and
    more, without noise. Momenta, if there are any, stay with their temperature.

    Args:
        temperatures: Temperatures, 1 first, rising. With ``temperature`` they multiply it.
        dynamics: Dynamics of each replica, an object.
        every: Number of steps between proposals.
        correction: F, not negative; the noise of Δ is ignored at 0.
        space: Places of the parameters; set by ``bind``.
        unseen: Part of the noise of rows drawn with replacement that there is; set by ``for_rows``.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.ReplicaExchange((1.0, 3.0, 10.0)).normals
        5

        With one coordinate: three for the replicas, two for the exchanges between neighbors.

    Source:
        Deng, Feng, Gao, Liang & Lin, ICML 2020, eq. 6 for the correction, where the two energies
        have independent noise of variance s²/2 each; Ceperley & Dewing, Journal of Chemical Physics
        110, 1999, eq. 10, for detailed balance.
    """

    temperatures: Sequence[float] = (1.0,)
    dynamics: Dynamics = field(default_factory=SGLD)
    every: int = 10
    correction: float = 1.0
    space: Space | None = field(
        default=None, repr=False, compare=False, metadata={"constant": False}
    )
    unseen: float = field(default=1.0, repr=False, metadata={"constant": False})

    name = "replica_exchange"
    needs = ("temperatures",)
    visits = True

    @property
    def steps(self) -> int:  # type: ignore[override]
        """Number of steps of an iteration."""
        return self.dynamics.steps

    @property
    def start_normals(self) -> int:  # type: ignore[override]
        """Number of vectors of normals that all replicas start with."""
        return len(self.temperatures) * self.dynamics.start_normals

    @property
    def refresh_normals(self) -> int:  # type: ignore[override]
        """Number of vectors of normals that all replicas open an iteration with."""
        return len(self.temperatures) * self.dynamics.refresh_normals

    @property
    def step_normals(self) -> int:  # type: ignore[override]
        """Number of vectors of normals of a step, for all replicas and the exchanges."""
        size = 1 if self.space is None else self.space.layout.size
        pairs = len(self.temperatures) - 1
        return len(self.temperatures) * self.dynamics.step_normals + math.ceil(
            pairs / size
        )

    @property
    def on_manifolds(self) -> bool:  # type: ignore[override]
        """Whether the replicas move along manifolds."""
        return self.dynamics.on_manifolds

    def after_burn_in(self, burn_in: int) -> ReplicaExchange:
        """Return these dynamics for a chain with so much burn-in."""
        self._need_parts()
        return replace(self, dynamics=self.dynamics.after_burn_in(burn_in))

    def for_rows(self, rows: int, size: int, unseen: float) -> ReplicaExchange:
        """Return these dynamics with the part of the noise of the rows that is present."""
        return replace(
            self, unseen=unseen, dynamics=self.dynamics.for_rows(rows, size, unseen)
        )

    def bind(self, space: Space) -> ReplicaExchange:
        """Return these dynamics with their constants checked."""
        self._need_parts()
        if not is_number(self.correction):
            raise TypeError(
                f"`correction` must be a number; it is {describe(self.correction)}."
            )
        if not 0 <= self.correction < np.inf:
            raise ValueError(
                f"`correction` must not be negative; it is {self.correction!r}."
            )
        return replace(
            self,
            temperatures=_read_temperatures(self.temperatures),
            dynamics=self.dynamics.bind(space),
            every=whole_number("every", self.every, 1),
            space=space,
        )

    def _need_parts(self) -> None:
        inner = self.dynamics
        if not isinstance(inner, Dynamics):
            raise TypeError(
                "`dynamics` of ReplicaExchange must be an object of sgmcmc.dynamics, such as "
                f"SGLD(); it is {describe(inner)}."
            )
        if (
            isinstance(inner, ExactDynamics)
            or inner.seeds
            or inner.learns_noise
            or inner.visits
        ):
            raise ValueError(
                f"`dynamics`: {type(inner).__name__} cannot be that of replicas. Use SGLD, SGHMC, "
                "SGNHT, Underdamped or others that are given gradients and normals alone."
            )

    def check_stepsize(self, stepsize: np.ndarray) -> None:
        """Raise an error if the constants are not compatible with the stepsize of a replica."""
        for temperature in self.temperatures:
            self.dynamics.check_stepsize(temperature * stepsize)

    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> ExchangeState:
        """Return the state at the start of a chain: all replicas begin at one position."""
        pairs, dtype = len(self.temperatures) - 1, position.dtype
        inner = [
            self.dynamics.init(position, gradient / T, T * stepsize, replica_normals)
            for T, replica_normals in zip(
                self.temperatures, self._divided(normals), strict=True
            )
        ]
        return ExchangeState(
            tuple(inner),
            tf.tile(gradient[tf.newaxis], [pairs, 1]),
            tf.zeros([pairs], dtype),
            tf.zeros([], tf.int32),
            tf.zeros([pairs], dtype),
            tf.zeros([pairs], dtype),
        )

    def refresh(
        self, state: ExchangeState, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> ExchangeState:
        """Return the state at the start of an iteration."""
        every = zip(state.inner, self.temperatures, self._divided(normals), strict=True)
        inner = [
            self.dynamics.refresh(replica, T * stepsize, replica_normals)
            for replica, T, replica_normals in every
        ]
        return state._replace(inner=tuple(inner))

    def step(
        self,
        state: ExchangeState,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> ExchangeState:
        """Return the state at the next positions; the last normals draw the exchanges."""
        replicas = len(self.temperatures)
        step_normals, left = tf.split(
            normals, [replicas * self.dynamics.step_normals, -1]
        )
        uniforms = 0.5 * tf.math.erfc(
            -tf.reshape(left, [-1])[: replicas - 1] / math.sqrt(2.0)
        )
        state, gradients = self._exchanged(state, gradient, uniforms)
        every = zip(
            state.inner,
            gradients,
            self.temperatures,
            self._divided(step_normals),
            strict=True,
        )
        inner = [
            self.dynamics.step(replica, slope / T, T * stepsize, numbers)
            for replica, slope, T, numbers in every
        ]
        return state._replace(inner=tuple(inner), steps=state.steps + 1)

    def visit(self, state: ExchangeState, elsewhere: Elsewhere) -> ExchangeState:
        """Return the state with the gradients of the other replicas, and ratios for exchanges."""
        gradients = [
            elsewhere.gradient(replica.position) for replica in state.inner[1:]
        ]

        def ratios() -> tf.Tensor:
            return self._log_ratios(
                [elsewhere.log_post(replica.position) for replica in state.inner]
            )

        log_ratios = tf.cond(
            self._due(state), ratios, lambda: tf.zeros_like(state.log_ratios)
        )
        return state._replace(gradients=tf.stack(gradients), log_ratios=log_ratios)

    def finish_step(
        self, state: ExchangeState, gradient: tf.Tensor, stepsize: tf.Tensor
    ) -> ExchangeState:
        """Return the state at the end of a step."""
        gradients = [gradient, *tf.unstack(state.gradients)]
        every = zip(state.inner, gradients, self.temperatures, strict=True)
        inner = [
            self.dynamics.finish_step(replica, g / T, T * stepsize)
            for replica, g, T in every
        ]
        return state._replace(inner=tuple(inner))

    def facts(self, state: ExchangeState) -> dict[str, float]:
        """Return the rates at which neighbors have exchanged their positions."""
        rates = np.asarray(state.exchanged) / np.maximum(np.asarray(state.proposed), 1)
        pairs = zip(self.temperatures, self.temperatures[1:], rates, strict=False)
        return {f"{_RATE}{a:g} and {b:g}": float(rate) for a, b, rate in pairs}

    def _divided(self, normals: tf.Tensor) -> list[tf.Tensor]:
        return tf.split(normals, len(self.temperatures))

    def _due(self, state: ExchangeState) -> tf.Tensor:
        """Return whether the next step begins with proposals."""
        return tf.equal(state.steps % self.every, 0) & (state.steps > 0)

    def _log_ratios(self, densities: list[tuple[tf.Tensor, tf.Tensor]]) -> tf.Tensor:
        """Return δΔ − Fδ²s²/2 of each pair of neighbors.

        Args:
            densities: Weighted terms of the rows, (n,), and log prior, of each replica.
        """
        ratios = []
        for k, (colder, hotter) in enumerate(
            zip(densities, densities[1:], strict=False)
        ):
            delta = 1.0 / self.temperatures[k] - 1.0 / self.temperatures[k + 1]
            differences = hotter[0] - colder[0]
            n = differences.shape[0]
            gain = tf.reduce_sum(differences) + hotter[1] - colder[1]
            variance = (
                self.unseen
                * n
                * n
                / max(1, n - 1)
                * tf.math.reduce_variance(differences)
            )
            ratios.append(delta * gain - 0.5 * self.correction * delta**2 * variance)
        return tf.stack(ratios)

    def _exchanged(
        self, state: ExchangeState, gradient: tf.Tensor, uniforms: tf.Tensor
    ) -> tuple[ExchangeState, list[tf.Tensor]]:
        """Return the state with positions exchanged, and the gradients at all of them."""
        due, round_ = self._due(state), state.steps // self.every
        pairs = tf.range(len(self.temperatures) - 1)
        proposed = due & tf.equal((pairs + round_) % 2, 0)
        accepted = proposed & (tf.math.log(uniforms) < state.log_ratios)
        positions = [replica.position for replica in state.inner]
        gradients = [gradient, *tf.unstack(state.gradients)]
        for k, swaps in enumerate(tf.unstack(accepted)):
            for values in (positions, gradients):
                a, b = values[k], values[k + 1]
                values[k], values[k + 1] = tf.where(swaps, b, a), tf.where(swaps, a, b)
        inner = [
            replica._replace(position=position)
            for replica, position in zip(state.inner, positions, strict=True)
        ]
        return (
            state._replace(
                inner=tuple(inner),
                proposed=state.proposed + tf.cast(proposed, gradient.dtype),
                exchanged=state.exchanged + tf.cast(accepted, gradient.dtype),
            ),
            gradients,
        )


def _read_temperatures(value: Any) -> tuple[float, ...]:
    expected = "a list of two or more temperatures, rising, of which the first is 1"
    if isinstance(value, str | Mapping) or not np.iterable(value):
        raise TypeError(f"`temperatures` must be {expected}; it is {describe(value)}.")
    entries = list(value)
    if not all(is_number(entry) for entry in entries):
        raise TypeError(f"`temperatures` must be {expected}; it is {describe(value)}.")
    temperatures = tuple(float(entry) for entry in entries)
    if (
        len(temperatures) < 2
        or temperatures[0] != 1.0
        or not all(np.isfinite(temperatures))
    ):
        raise ValueError(
            f"`temperatures` must be {expected}; it is {list(temperatures)}."
        )
    if not all(a < b for a, b in zip(temperatures, temperatures[1:], strict=False)):
        raise ValueError(
            f"`temperatures` must be {expected}; it is {list(temperatures)}."
        )
    return temperatures
