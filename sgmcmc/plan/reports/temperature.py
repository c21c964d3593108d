"""Temperatures of chains on manifolds, from the noise of their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.dynamics import GSGNHT, SGGMC
from sgmcmc.model.geometry import Space
from sgmcmc.plan.noise import NoiseMeter
from sgmcmc.plan.reports.judging import (
    centers_of,
    draws_in_order,
    final_stepsize,
    unconstrained,
)
from sgmcmc.plan.reports.warnings import (
    friction_warnings,
    kick_warnings,
    thermostat_warnings,
)
from sgmcmc.results.samples import Samples
from sgmcmc.run.sampler import Sampler

_POSITIONS = 64  # draws at which noise is measured


def temperature_facts(
    sampler: Sampler, samples: Samples, tolerance: float
) -> tuple[dict[str, Any], list[str]]:
    """Return facts and warnings on the noise of gradients, for geodesic dynamics.

    A step adds ε²V to the variance ε of ν in each direction of the tangent space, V the variance
    of the gradient estimate there, and friction α takes 2α of its excess away. The temperature,
    relative to the right one, is 1 + ε(V − V')/(2(α + β̂)), V' the part of V that the dynamics
    correct for and β̂ their friction for it; near a mode the posterior's variances are as many
    times too large. A thermostat has to find the friction εV/2.

    Args:
        sampler: Sampler that made the draws.
        samples: Draws.
        tolerance: Largest accepted relative error of an SD.
    """
    dynamics, stored = sampler.chain.dynamics, set(samples)
    is_geodesic = isinstance(dynamics, SGGMC | GSGNHT)
    everything = stored == set(sampler.target.space.layout.names)
    if (
        not is_geodesic
        or sampler.draws.every_row
        or sampler.latents is not None
        or not everything
    ):
        return {}, []
    kick, excess = _kick_and_excess(sampler, samples)
    facts: dict[str, Any] = {"friction for gradient noise, εV/2": kick}
    if isinstance(dynamics, GSGNHT):
        warnings = thermostat_warnings(excess)
    else:
        facts["temperature (1 is right)"] = {
            name: 1.0 + value for name, value in excess.items()
        }
        warnings = friction_warnings(excess, tolerance)
    return facts, warnings or kick_warnings(kick)


def _kick_and_excess(
    sampler: Sampler, samples: Samples
) -> tuple[dict[str, float], dict[str, float]]:
    """Return εV/2, and its part that is left over friction, by parameter."""
    space, dynamics = sampler.target.space, sampler.chain.dynamics
    positions = draws_in_order(unconstrained(samples, space), _POSITIONS)
    centers = centers_of(samples, space)
    meter = NoiseMeter(
        sampler.target, sampler.data, sampler.draws, sampler.chain.gradient
    )
    center = positions[0] if centers is None else centers[0]
    noise = meter.at(positions, center, sampler.seed)
    tangent = [
        space.tangent(tf.constant(u), tf.constant(v)).numpy()
        for u, v in zip(positions, noise, strict=True)
    ]
    variance = _by_parameter(space, np.mean(np.stack(tangent) ** 2, 0))
    stepsize = final_stepsize(sampler.chain, samples)
    stepsize = np.broadcast_to(stepsize, positions.shape[1])
    epsilon = {
        name: float(stepsize[entries].mean()) for name, entries in _slices(space)
    }
    kick = {name: 0.5 * epsilon[name] * variance[name] for name, _ in _slices(space)}
    excess = {}
    for name, entries in _slices(space):
        if isinstance(dynamics, GSGNHT):
            excess[name] = kick[name] / _mean(dynamics.a, entries)
            continue
        assert isinstance(dynamics, SGGMC)
        known_variance = (
            variance[name] if dynamics.learns_noise else dynamics.noise_variance
        )
        if callable(known_variance):
            known_variance = np.mean(
                [dynamics.variance_at(tf.constant(p)).numpy() for p in positions], 0
            )
        known_variance = _mean(known_variance, entries)
        friction = _mean(dynamics.alpha, entries) + np.arcsinh(
            0.5 * epsilon[name] * known_variance
        )
        excess[name] = float(
            max(0.0, kick[name] - 0.5 * epsilon[name] * known_variance) / friction
        )
    return kick, excess


def _slices(space: Space) -> list[tuple[str, slice]]:
    return list(space.layout.slices.items())


def _mean(values: Any, entries: slice) -> float:
    return float(np.mean(values[entries] if np.ndim(values) else values))


def _by_parameter(space: Space, squares: np.ndarray) -> dict[str, float]:
    """Return the mean over the directions of the tangent space, by parameter."""
    dimensions = space.dimensions()
    return {
        name: float(squares[entries].sum() / dimensions[name])
        for name, entries in _slices(space)
    }
