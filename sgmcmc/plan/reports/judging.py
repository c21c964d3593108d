"""Draws judged against the posterior's curvature and the noise of their own gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sgmcmc.dynamics import Dynamics
from sgmcmc.dynamics.riemannian import SimplexDynamics
from sgmcmc.dynamics.scaled import Scaled
from sgmcmc.inputs.parts import one_or_each
from sgmcmc.minibatches.reshuffled import OrderedDraws
from sgmcmc.model.geometry import Space
from sgmcmc.plan.mode import DENSE_UP_TO, Mode
from sgmcmc.plan.modes import exchangeable_parameters
from sgmcmc.plan.noise import NoiseMeter
from sgmcmc.plan.objective import Objective
from sgmcmc.plan.plan import information_in, mode_from, unchanged
from sgmcmc.plan.prediction import ChainPrediction, NoisyQuadratic, largest_stepsize
from sgmcmc.results.arrays import by_chain
from sgmcmc.results.samples import Samples
from sgmcmc.run.sampler import Phase, Sampler

# Draws at which noise is measured: each of its variances to 6 %, one standard error.
_POSITIONS = 512
_SEGMENTS = 8  # of the chain, in which these draws are averaged
_ROWS = 20_000  # draws of all chains, at most, from which SDs are computed


@dataclass(frozen=True)
class Judgement:
    """Comparison of draws with the posterior's own curvature.

    Attributes:
        mode: Mode nearest to the draws, and the information there.
        geometry: Curvature there and gradient noise at the draws, in the chain's coordinates.
        prediction: Prediction by the distribution of the linearized dynamics.
        without_noise: Prediction without gradient noise.
        ratio: SD of the draws over the Laplace SD, per coordinate, (d,).
        shift: (mean − mode) / Laplace SD, per coordinate, (d,).
        off_center: (control-variate center − mode) / Laplace SD, root mean square over coordinates,
            of the worst chain; ``None`` if there is no center.
        noise_along: Gradient noise, averaged over the coordinates, in consecutive parts of the
            chains.
        largest: Largest stepsize that keeps to the tolerance, 0 if none was found; ``None`` if each
            coordinate has its own, or there is no prediction.
    """

    mode: Mode
    geometry: NoisyQuadratic
    prediction: ChainPrediction
    without_noise: ChainPrediction
    ratio: np.ndarray
    shift: np.ndarray
    off_center: float | None
    noise_along: list[float]
    largest: float | None


def cannot_judge(sampler: Sampler, samples: Samples) -> str | None:
    """Return the reason why draws cannot be judged by curvature; ``None`` if they can."""
    dynamics, stored = sampler.chain.dynamics, set(samples)
    if sampler.latents is not None:
        return "latent variables are drawn by `gibbs`"
    if isinstance(dynamics, SimplexDynamics):
        return f"there are {dynamics.moves}"
    if sampler.options.manifolds:
        return "there are parameters on manifolds, on which no curvature is computed"
    if sampler.target.size > DENSE_UP_TO:
        return f"there are more than {DENSE_UP_TO} coordinates"
    if stored != set(sampler.target.space.layout.names):
        return "not all parameters were stored"
    target = sampler.target.preconditioned(None)
    last = unconstrained(samples, sampler.target.space)
    if exchangeable_parameters(target, sampler.data, last[0, -1], sampler.seed):
        return (
            "entries of parameters can change places, so that there are very many modes"
        )
    return None


def judge(
    sampler: Sampler,
    samples: Samples,
    tolerance: float,
    mode: Mode | None = None,
    meter: NoiseMeter | None = None,
) -> Judgement:
    """Return the comparison of draws with the posterior's curvature.

    Args:
        sampler: Sampler that made the draws.
        samples: Draws.
        tolerance: Largest accepted relative error of an SD.
        mode: Mode, if it is known.
        meter: Meter of the gradient noise in the chain's coordinates, if there is one.
    """
    space = sampler.target.space
    whitening = space.preconditioner or unchanged(space.layout.size)
    u = unconstrained(samples, space)
    flat = u.reshape(-1, u.shape[-1])
    if mode is None:
        objective = Objective(sampler.target.preconditioned(None), sampler.data)
        mode = mode_from(objective, flat.mean(0), sampler.seed)
    sds = np.sqrt(np.diag(mode.information.covariance))
    information = information_in(whitening, mode)
    centers = centers_of(samples, space)
    quiet = NoisyQuadratic(information, np.zeros_like(information), whitening.root)
    geometry, noise_along = quiet, []
    if not sampler.draws.every_row:
        if meter is None:
            meter = NoiseMeter(
                sampler.target, sampler.data, sampler.draws, sampler.chain.gradient
            )
        positions = draws_in_order(u, _POSITIONS)
        center = mode.position if centers is None else centers[0]
        noise = meter.at(
            whitening.into(positions), whitening.into(center), sampler.seed
        )
        noise = noise * np.sqrt(meter.factor(sampler.draws.size))
        draws = sampler.draws
        epoch = (
            sampler.data.size / draws.size if isinstance(draws, OrderedDraws) else None
        )
        geometry = quiet.with_noise(noise.T @ noise / len(noise), epoch)
        values, vectors = geometry.axes
        whitened = (noise @ vectors / np.sqrt(values)) ** 2
        segments = np.array_split(whitened, min(_SEGMENTS, len(whitened)))
        noise_along = [float(segment.mean()) for segment in segments]
    stepsize = final_stepsize(sampler.chain, samples)
    prediction = _predicted(geometry, sampler.chain, stepsize)
    without_noise = _predicted(quiet, sampler.chain, stepsize)
    largest = None
    if prediction.known and np.ndim(stepsize) == 0 and prediction.worst > tolerance:
        largest = _largest_within_tolerance(
            _unscaled(sampler.chain), geometry, tolerance, _slices(sampler.chain)
        )
    off_center = None
    if centers is not None:
        gaps = centers - mode.position
        J = mode.information.matrix
        off_center = float(
            np.sqrt(np.einsum("ci,ij,cj->c", gaps, J, gaps) / len(J)).max()
        )
    return Judgement(
        mode,
        geometry,
        prediction,
        without_noise,
        flat.std(0) / sds,
        (flat.mean(0) - mode.position) / sds,
        off_center,
        noise_along,
        largest,
    )


def _largest_within_tolerance(
    dynamics: Dynamics,
    geometry: NoisyQuadratic,
    tolerance: float,
    in_turn: Sequence[slice] | None,
) -> float:
    """Return the largest stepsize that keeps to the tolerance, or 0.

    If curvatures are very unequal, a stepsize small enough for the largest does not move the chain
    in the direction of the smallest, to rounding.
    """
    stepsize = largest_stepsize(dynamics, geometry, tolerance, in_turn=in_turn)
    prediction = geometry.predict(dynamics, stepsize, in_turn)
    return stepsize if prediction.worst <= tolerance else 0.0


def _predicted(
    geometry: NoisyQuadratic, chain: Phase, stepsize: float | np.ndarray
) -> ChainPrediction:
    try:
        return geometry.predict(_unscaled(chain), stepsize, _slices(chain))
    except ValueError:  # there is no closed form
        return ChainPrediction.unknown(len(geometry.root))


def _slices(chain: Phase) -> tuple[slice, ...] | None:
    return None if chain.turns is None else chain.turns.slices


def final_stepsize(chain: Phase, samples: Samples) -> float | np.ndarray:
    """Return the stepsizes at the end of a chain: one number, or one for each coordinate."""
    draws = next(iter(by_chain(samples.settings, samples).values())).shape[1]
    last = samples.settings["burn_in"] + draws * samples.settings["thin"]
    assert chain.recorder is not None, "not bound"
    layout = chain.recorder.target.space.layout
    stepsizes = one_or_each(chain.stepsizes.at(max(1, last), 1)[0], layout)
    if isinstance(chain.dynamics, Scaled):
        facts = getattr(samples.origin, "facts", ())
        return stepsizes * chain.dynamics.factors(facts)
    return stepsizes


def _unscaled(chain: Phase) -> Dynamics:
    return (
        chain.dynamics.inner if isinstance(chain.dynamics, Scaled) else chain.dynamics
    )


def unconstrained(samples: Samples, space: Space) -> np.ndarray:
    """Return draws in unconstrained coordinates, (chains, k, d), evenly thinned to not too many."""
    flat = {}
    for name, array in by_chain(samples.settings, samples).items():
        step = max(1, array.shape[0] * array.shape[1] // _ROWS)
        draws = np.asarray(array[:, ::step])
        shape = draws.shape[:2]
        flat[name] = draws.reshape(-1, *draws.shape[2:])
    u = as_matrix(space.of_draws(flat)).reshape(*shape, -1)
    # Infinities, of draws at the edge of their space, are drawn inwards.
    fine = np.isfinite(u)
    if fine.all():
        return u
    low = np.where(fine, u, np.inf).min((0, 1))
    high = np.where(fine, u, -np.inf).max((0, 1))
    low, high = (np.where(fine.any((0, 1)), bound, 0.0) for bound in (low, high))
    return np.clip(np.where(np.isnan(u), low, u), low, high)


def as_matrix(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return arrays with one leading axis as one matrix, in float64."""
    flat = [np.reshape(array, (len(array), -1)) for array in arrays.values()]
    return np.concatenate(flat, 1).astype(np.float64)


def centers_of(samples: Samples, space: Space) -> np.ndarray | None:
    """Return the centers of control variates, unconstrained, a row for each chain."""
    if samples.mode is None:
        return None
    return as_matrix(space.of_draws(by_chain(samples.settings, samples.mode)))


def draws_in_order(u: np.ndarray, most: int) -> np.ndarray:
    """Return some draws of all chains in the order of their iterations, (k, d)."""
    ordered = u.transpose(1, 0, 2).reshape(-1, u.shape[-1])
    indices = np.linspace(0, len(ordered) - 1, min(most, len(ordered)))
    return ordered[indices.astype(int)]
