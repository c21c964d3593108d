"""Ascent and warm-up of the chains of a model that is too large for Newton steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Minibatch
from sgmcmc.data.random_numbers import Purpose, RunPhase, generator
from sgmcmc.dynamics import Dynamics
from sgmcmc.dynamics.schedules import Stepsizes
from sgmcmc.engine.recorder import Recorder
from sgmcmc.gradients import FullGradient, Gradient, MinibatchGradient, WholeData
from sgmcmc.inputs.options import KEYWORDS, without
from sgmcmc.minibatches import Uniform
from sgmcmc.model.geometry import Preconditioner, Space
from sgmcmc.model.target import Target
from sgmcmc.plan.local import LocalGeometry, LocalPlan
from sgmcmc.plan.stopping import with_smaller_steps
from sgmcmc.run.driver import search
from sgmcmc.run.request import Request
from sgmcmc.run.sampler import Phase, make_sampler


class AscentState(NamedTuple):
    """The state of an ascent.

    Attributes:
        position: ζ.
        first: Running mean of the gradient.
        second: Running mean of its squares.
        count: Number of iterations so far.
    """

    position: tf.Tensor
    first: tf.Tensor
    second: tf.Tensor
    count: tf.Tensor


@dataclass(frozen=True)
class Ascent(Dynamics):
    """ζ' = ζ + ε m / (√v + 1), with m and v the running means of the gradient and its squares.

    In coordinates whose posterior SDs are near one. A gradient of one, that of the log posterior
    one SD away, is not blown up to a whole step, so that coordinates of which the data say nothing
    stay where they are.

    Args:
        first: β₁, the decay rate of the running mean m.
        second: β₂, that of v.

    Source:
        Kingma & Ba, ICLR 2015, algorithm 1, with their ε = 1.
    """

    first: float = 0.9
    second: float = 0.99

    step_normals = 0

    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> AscentState:
        """Return the state at the start."""
        nothing = tf.zeros_like(position)
        return AscentState(position, nothing, nothing, tf.zeros([], position.dtype))

    def step(
        self,
        state: AscentState,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> AscentState:
        """Return the state one step up."""
        count = state.count + 1.0
        first = self.first * state.first + (1.0 - self.first) * gradient
        second = self.second * state.second + (1.0 - self.second) * gradient**2
        mean = first / (1.0 - self.first**count)
        square = second / (1.0 - self.second**count)
        update = stepsize * mean / (tf.sqrt(square) + 1.0)
        return AscentState(state.position + update, first, second, count)


class ShareState(NamedTuple):
    """State of the estimate.

    Attributes:
        share: Fraction of the prior's gradient that counts, by coordinate.
    """

    share: tf.Tensor


class InformedGradient(Gradient):
    """The minibatch gradient of the likelihood, and a fraction of the prior's.

    The density of a large hierarchical model is highest where all weights are zero and their
    precision is huge, far from its posterior. So the prior's gradient counts by the part that the
    data have in the information on a coordinate: the weights go up the likelihood, within their
    prior, and the scales of priors stay where they are.

    Args:
        share: Fraction of the prior's gradient, (d,).
    """

    def __init__(self, share: np.ndarray) -> None:
        self._share = share

    def init(self, whole: WholeData, position: np.ndarray) -> ShareState:
        """Return the state at the start of an ascent."""
        return ShareState(tf.constant(self._share, whole.target.dtype))

    def estimate(
        self,
        target: Target,
        state: ShareState,
        position: tf.Tensor,
        minibatch: Minibatch,
        at_center: Minibatch,
    ) -> tuple[tf.Tensor, ShareState]:
        """Return the estimate, and the state as it was."""
        of_data = target.gradient(position, minibatch, with_prior=False)
        return of_data + state.share * target.prior_gradient(position), state


_SHORTEST = 1000  # iterations of the ascent at least
_LONGEST = 4000  # iterations of the ascent at most


@dataclass(frozen=True)
class _Settings:
    first_step: float = 0.1  # of the ascent at first, in SDs of a coordinate
    passes: int = 20  # over the data in the ascent, within these bounds
    minibatch_rows: int = 500  # of the ascent's minibatches


_SETTINGS = _Settings()


# Keywords that matter before there are draws.
_KEYWORDS_BEFORE_DRAWS = (
    "bijectors",
    "dtype",
    "jit_compile",
    "executor",
    "n_chains",
    "preconditioner",
    "minibatches",
)


def spread_out(
    space: Space,
    starts: Sequence[np.ndarray],
    chains: int,
    geometry: LocalGeometry,
    seed: int,
) -> list[np.ndarray]:
    """Return the starts of chains, flat and unconstrained: the user's, or spread around one.

    The first chain starts at ``params``. The others start about one sd of each coordinate away, but
    no further than the components of a parameter are in the root mean square, which stays what it
    is: weights that were made small on purpose do not become large.
    """
    if len(starts) > 1:
        return [start.astype(np.float64) for start in starts]
    u = starts[0].astype(np.float64)
    scale = geometry.whitening.root.copy()
    shrinkage = np.ones(len(u))
    for entries in space.layout.slices.values():
        size = float(np.sqrt((u[entries] ** 2).mean()))
        if size > 0:
            scale[entries] = np.minimum(scale[entries], size / np.sqrt(2.0))
            shrinkage[entries] = np.sqrt(1.0 - (scale[entries] / size) ** 2)
    rng = generator(seed, 0, RunPhase.MODE, Purpose.START)
    return [
        u,
        *(
            shrinkage * u + scale * rng.standard_normal(len(u))
            for _ in range(chains - 1)
        ),
    ]


def ascend(
    request: Request,
    positions: list[np.ndarray],
    geometry: LocalGeometry,
    verbose: bool,
) -> list[np.ndarray]:
    """Return the positions after an ascent of the likelihood, of each chain by itself.

    Raises:
        DivergenceError: The ascent fails even with small steps.
    """
    size = request.read.data.size
    n = min(_SETTINGS.minibatch_rows, size)
    n_iters = int(np.clip(_SETTINGS.passes * size / n, _SHORTEST, _LONGEST))
    gradient, whitening = InformedGradient(geometry.share), geometry.whitening

    def attempt(factor: float) -> list[np.ndarray]:
        step = factor * _SETTINGS.first_step

        def falling(iteration: Any) -> Any:
            return step * max(1.0 - (iteration - 1) / n_iters, 1.0 / n_iters)

        stepsizes = Stepsizes("stepsize", (falling,))
        ascent_request = _tuned(
            request, positions, whitening, Ascent(), gradient, n, step
        )
        return _run(ascent_request, whitening, stepsizes, n_iters, "ascent", verbose)

    return with_smaller_steps(attempt)


def warm_up(
    request: Request,
    plan: LocalPlan,
    positions: list[np.ndarray],
    n_iters: int,
    verbose: bool,
) -> list[np.ndarray]:
    """Return the positions after some iterations of the chains as they are planned so far."""
    chain_request = planned(request, plan, positions)
    stepsizes = Stepsizes("stepsize", (plan.stepsize,))
    whitening = plan.around.whitening
    return _run(chain_request, whitening, stepsizes, n_iters, "warm-up", verbose)


def planned(request: Request, plan: LocalPlan, positions: list[np.ndarray]) -> Request:
    """Return the request with everything given that the plan has chosen."""
    whole = plan.minibatch_size >= plan.around.size
    gradient = FullGradient() if whole else MinibatchGradient()
    size = None if whole else plan.minibatch_size
    return _tuned(
        request,
        positions,
        plan.around.whitening,
        plan.dynamics,
        gradient,
        size,
        plan.stepsize,
    )


def _tuned(
    request: Request,
    positions: list[np.ndarray],
    whitening: Preconditioner,
    dynamics: Dynamics,
    gradient: Gradient,
    n: int | None,
    stepsize: float,
) -> Request:
    target = request.read.target
    return request.tuned(
        [target.space.params(u, target.dtype) for u in positions],
        dynamics=dynamics,
        gradient=gradient,
        minibatch_size=n,
        stepsize=stepsize,
        n_chains=len(positions),
        preconditioner=whitening,
        minibatches=Uniform(),
    )


def _run(
    request: Request,
    whitening: Preconditioner,
    stepsizes: Stepsizes,
    n_iters: int,
    task: str,
    verbose: bool,
) -> list[np.ndarray]:
    later = [name for name in KEYWORDS if name not in _KEYWORDS_BEFORE_DRAWS]
    options = without(request.read.options, later)
    sampler = make_sampler(
        replace(request, model=replace(request.read, options=options))
    )
    chain = sampler.chain
    phase = Phase(
        RunPhase.MODE,
        f"{request.method}, {task}",
        "stepsize",
        chain.dynamics,
        chain.gradient,
        stepsizes,
        n_iters,
        Recorder(sampler.target),
    )
    positions = search(replace(sampler, phases=(phase, chain)), verbose)
    return [whitening.origin + whitening.root * u.astype(np.float64) for u in positions]
