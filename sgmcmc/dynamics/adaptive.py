"""Langevin dynamics whose preconditioner is learned from the gradients of the chain."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.checks import choice, describe, flag, is_number
from sgmcmc.dynamics.base import Dynamics
from sgmcmc.dynamics.langevin import overdamped
from sgmcmc.dynamics.learning import (
    BURN_IN,
    RunningMean,
    covariance_of_sum,
    frozen_after,
    read_until,
)
from sgmcmc.model.geometry import Space
from sgmcmc.model.layout import Layout, positive_constant


class PreconditionedState(NamedTuple):
    """The state of dynamics with a preconditioner from the squares of gradients.

    Attributes:
        position: θ, flat and unconstrained.
        mean_square: V, for each coordinate.
        count: Number of gradients in V, for each parameter; constant once V is.
    """

    position: tf.Tensor
    mean_square: tf.Tensor
    count: tf.Tensor


@dataclass(frozen=True)
class PSGLD(Dynamics):
    """V ← αV + (1 − α) ĝ(θ)²; θ' = θ + (ε/2) G ĝ(θ) + √(εG) η with G = 1/(λ + √V).

    Squares, roots and products are by coordinate, and V starts at ĝ². V is learned in the burn-in
    and then frozen: from there on the chain is SGLD with stepsizes εG, with its distribution.

    A V that goes on changing (``until=None``, as published) changes it: Langevin dynamics with
    a G that depends on θ need the term Γ_i = ∂G_i/∂θ_i in the drift (the update with it is
    θ' = θ + (ε/2) [G ĝ + Γ] + √(εG) η). It needs second derivatives, and the paper drops it.
    The error does not vanish with ε: as ε → 0 at fixed α, V becomes E[ĝ²] at the present θ, and in
    one dimension the stationary density is p(θ|x) (λ + √E[ĝ(θ)²]) up to a constant. It is small
    if 1/(1 − α) iterations are long against the autocorrelation of the chain.

    Here ĝ is the gradient of the log posterior. The paper divides it by N: ε is N times, and λ is N
    times that of the paper.

    Args:
        alpha: α, the weight of the past in V, at least 0 and less than 1.
        damping: λ, positive: a number, or a dict with one for each parameter.
        until: End of the learning of V: ``"burn_in"``, or the number of iterations, burn-in
            included; ``None`` never freezes it.
        layout: Places of the named parameters in the flat position; set by ``bind``.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.PSGLD(alpha=0.9, until=1000)
        PSGLD(alpha=0.9, damping=1e-05, until=1000)

    Source:
        Li, Chen, Carlson & Carin, AAAI 2016, algorithm 1; Ma, Chen & Fox, NeurIPS 2015, eq. 5, for
        Γ.
    """

    alpha: float = 0.99
    damping: Any = 1e-5
    until: int | str | None = BURN_IN
    layout: Layout | None = field(
        default=None, repr=False, metadata={"constant": False}
    )

    name = "psgld"

    def after_burn_in(self, burn_in: int) -> PSGLD:
        """Return these dynamics, with the iteration at which V is frozen."""
        return replace(
            self, until=frozen_after(self.until, burn_in, self, "its preconditioner")
        )

    def bind(self, space: Space) -> PSGLD:
        """Return these dynamics with their constants checked."""
        if not is_number(self.alpha):
            raise TypeError(f"`alpha` must be a number; it is {describe(self.alpha)}.")
        if not 0 <= self.alpha < 1:
            raise ValueError(
                f"`alpha` must be at least 0 and less than 1; it is {self.alpha!r}."
            )
        damping = positive_constant("damping", self.damping, space.layout)
        return replace(
            self, damping=damping, until=read_until(self.until), layout=space.layout
        )

    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> PreconditionedState:
        """Return the state at the start of a chain, with V of the gradient there."""
        assert self.layout is not None, "not bound"
        count = tf.zeros([len(self.layout.names)], position.dtype)
        return PreconditionedState(position, gradient * gradient, count)

    def step(
        self,
        state: PreconditionedState,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> PreconditionedState:
        """Return the state one step on; ``normals`` is η, of shape (1, d)."""
        assert self.layout is not None, "not bound"
        square, count = state.mean_square, state.count
        learned = self.alpha * square + (1.0 - self.alpha) * gradient * gradient
        if isinstance(self.until, int):
            learns = count < float(self.until)
            learned = tf.where(self.layout.per_coordinate(learns), learned, square)
            count = tf.where(learns, count + 1.0, count)
        damping = tf.constant(self.damping, gradient.dtype)
        scaled = stepsize / (damping + tf.sqrt(learned))
        position = overdamped(state.position, gradient, scaled, normals[0])
        return PreconditionedState(position, learned, count)


class ScoringState(NamedTuple):
    """The state of stochastic gradient Fisher scoring.

    Attributes:
        position: θ, flat and unconstrained.
        information: F, (d, d), or (d,) if it is diagonal.
    """

    position: tf.Tensor
    information: RunningMean


@dataclass(frozen=True)
class _ScoringSettings:
    matrix: int = 1000  # coordinates, at most, of an information that is a matrix


_SETTINGS = _ScoringSettings()

INFORMATION = "information"
"""The user's value for B = F."""


@dataclass(frozen=True)
class SGFS(Dynamics):
    """θ' = θ + 2 A⁻¹ (ĝ(θ) + η), η ~ N(0, 4B/ε), with A = F + V + 4B/ε.

    F = N Cov(∇log p(x_i|θ)) is the empirical Fisher information, the mean over the steps so far of
    the estimates from the rows of each minibatch; V is the covariance of the gradient noise,
    (N/n)(1 − n/N) F of rows drawn without replacement. The paper has V = (N/n) F, that of rows
    drawn with replacement. As ε → 0 this is SGLD with the preconditioner B⁻¹; as ε grows the noise
    of the gradient takes the place of η.

    With F learned in the burn-in and then frozen, the chain is linear for a normal posterior. Its
    covariance is the posterior's, at any ε and n, if F is the curvature of the log posterior. F is
    not if the prior is informative, whose curvature it lacks, or if the model is wrong, so that
    the covariance of the rows' gradients is not their curvature. In a direction with the curvature
    (1 + p) F the variance is then s/(s − p) times the posterior's, with s = V/F + 4/ε for B = F:
    the bias is small if n is small against N, or if ε is small. With ``until=None``, as published,
    F goes on changing, by a part 1/k at iteration k.

    Args:
        B: B: ``"information"`` for F, as the paper recommends; or positive numbers on the
            diagonal: one, or a dict with one for each parameter.
        diagonal: Whether A and F are diagonal (SGFS-d).
        until: End of the learning of F: ``"burn_in"``, or the number of iterations, burn-in
            included; ``None`` never freezes it.
        rows, size, unseen: Numbers N and n, and the part of the noise of rows drawn with
            replacement that there is; set by ``for_rows``.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.SGFS(diagonal=True, until=500)
        SGFS(B='information', diagonal=True, until=500)

    Source:
        Ahn, Korattikara & Welling, ICML 2012, algorithm 1.
    """

    B: Any = INFORMATION
    diagonal: bool = False
    until: int | str | None = BURN_IN
    rows: int = field(default=1, repr=False, metadata={"constant": False})
    size: int = field(default=1, repr=False, metadata={"constant": False})
    unseen: float = field(default=1.0, repr=False, metadata={"constant": False})

    name = "sgfs"
    learns_noise = True
    learns_information = True

    def after_burn_in(self, burn_in: int) -> SGFS:
        """Return these dynamics, with the iteration at which F is frozen."""
        return replace(
            self, until=frozen_after(self.until, burn_in, self, "its information")
        )

    def for_rows(self, rows: int, size: int, unseen: float) -> SGFS:
        """Return these dynamics with N, n, and the part of the noise that is present."""
        return replace(self, rows=rows, size=size, unseen=unseen)

    def bind(self, space: Space) -> SGFS:
        """Return these dynamics with their constants checked."""
        flag("diagonal", self.diagonal)
        if space.layout.size > _SETTINGS.matrix and not self.diagonal:
            raise ValueError(
                f"`diagonal`: SGFS keeps a matrix, and there are {space.layout.size} coordinates, "
                f"more than {_SETTINGS.matrix}. Use SGFS(diagonal=True)."
            )
        B = self.B
        if isinstance(B, str):
            choice("B", B, [INFORMATION])
        else:
            B = positive_constant("B", B, space.layout)
        return replace(self, B=B, until=read_until(self.until))

    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> ScoringState:
        """Return the state at the start of a chain; F is that of the first minibatch on."""
        shape = position.shape if self.diagonal else [*position.shape, *position.shape]
        return ScoringState(position, RunningMean.empty(shape, position.dtype))

    def step(
        self,
        state: ScoringState,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> ScoringState:
        """Return the state one step on; ``normals`` are those of η, of shape (1, d).

        The chain stays where it is until enough rows were seen for A to be regular.
        """
        seen = state.information.count * float(self.size - 1)
        ready = seen >= (1.0 if self.diagonal else gradient.shape[0] + 1.0)
        if not isinstance(self.B, str):
            ready = tf.constant(True)
        information = state.information.mean
        if self.diagonal:
            information = tf.where(ready, information, tf.ones_like(information))
            B = information
            if not isinstance(self.B, str):
                B = tf.constant(self.B, gradient.dtype)
            injected = 4.0 * B / stepsize
            whole = (1.0 + self._noise) * information + injected
            direction = (gradient + tf.sqrt(injected) * normals[0]) / whole
        else:
            direction = self._direction(
                information, ready, gradient, stepsize, normals[0]
            )
        position = tf.where(ready, state.position + 2.0 * direction, state.position)
        return state._replace(position=position)

    def learn(self, state: ScoringState, parts: tf.Tensor) -> ScoringState:
        """Return the state with F moved toward the estimate from another minibatch."""
        estimate = self.size / self.rows * covariance_of_sum(parts, self.diagonal)
        return state._replace(
            information=state.information.updated(estimate, self.until)
        )

    @property
    def _noise(self) -> float:
        """V as a multiple of F."""
        return self.rows / self.size * self.unseen

    def _direction(
        self,
        information: tf.Tensor,
        ready: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> tf.Tensor:
        """Return A⁻¹ (ĝ + η)."""
        size, dtype = gradient.shape[0], gradient.dtype
        scale = 2.0 * tf.math.rsqrt(stepsize) * tf.ones([size], dtype)
        if isinstance(self.B, str):
            eye = tf.eye(size, dtype=dtype)
            # Rounding, or a coordinate without rows, does not make it singular.
            diagonal = tf.linalg.diag_part(information)
            rounding = np.finfo(dtype.as_numpy_dtype).eps
            jitter = 8.0 * rounding * tf.reduce_max(diagonal)
            regular = tf.linalg.set_diag(information, diagonal + jitter)
            information = tf.where(ready, regular, eye)
            root = scale[:, tf.newaxis] * tf.linalg.cholesky(information)
        else:
            root = tf.linalg.diag(scale * tf.sqrt(tf.constant(self.B, dtype)))
        injected = tf.matmul(root, root, transpose_b=True)
        whole = tf.linalg.cholesky((1.0 + self._noise) * information + injected)
        kicked = gradient + tf.linalg.matvec(root, normals)
        return tf.linalg.cholesky_solve(whole, kicked[:, tf.newaxis])[:, 0]
