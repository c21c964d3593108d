"""The closed laws of linear chains, against formulas and NumPy transcriptions."""

from __future__ import annotations

import numpy as np
import pytest

from sgmcmc.dynamics import SGHMC, SGLD, SGNHT, Barker, Dynamics, Underdamped
from sgmcmc.model.geometry import Space
from sgmcmc.plan.prediction import NoisyQuadratic, largest_stepsize
from sgmcmc.plan.recursion import LinearRecursion

EXACT = 1e-9
NOISES = [0.0, 0.3, 7.0]


def whitened(noise: float) -> NoisyQuadratic:
    """Return one whitened coordinate, with noise of this variance."""
    return NoisyQuadratic(np.eye(1), np.full((1, 1), noise), np.ones(1))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("epsilon", [0.01, 0.25, 1.0, 3.0])
def test_variance_of_sgld(epsilon: float, noise: float) -> None:
    """θ' = (1 − ε/2) θ + (ε/2) u + √ε η with u ~ N(0, V): v = (ε + ε²V/4) / (1 − (1 − ε/2)²)."""
    law = LinearRecursion(SGLD(), epsilon)
    decay = 1 - epsilon / 2
    expected = 1 / (1 - epsilon / 4) + epsilon**2 / 4 * noise / (1 - decay**2)
    assert law.variance(noise) == pytest.approx(expected, rel=EXACT)


@pytest.mark.parametrize("increments", ["normal", "bimodal"])
@pytest.mark.parametrize("epsilon", [1e-4, 1e-3, 0.01, 0.1, 1.0])
def test_dynamics_that_choose_between_two_moves_have_no_linear_law(
    epsilon: float, increments: str
) -> None:
    """Barker's step is linear in some directions, by chance, and not in others."""
    for curvatures in (None, np.array([1.0, 40.0]), np.array([1e3, 1e5])):
        with pytest.raises(ValueError, match="does not move linearly"):
            LinearRecursion(Barker(increments=increments), epsilon, curvatures)


@pytest.mark.parametrize("epsilon", [0.01, 0.25, 1.0])
def test_autocorrelation_time_of_sgld(epsilon: float) -> None:
    """Autocorrelations aᵏ with a = 1 − ε/2 sum up to (1 + a)/(1 − a), whatever the noise."""
    law, decay = LinearRecursion(SGLD(), epsilon), 1 - epsilon / 2
    for noise in NOISES:
        expected = (1 + decay) / (1 - decay)
        assert law.autocorrelation_time(noise) == pytest.approx(expected, rel=EXACT)


def test_an_autocorrelation_time_is_at_least_one() -> None:
    """Beyond ε = 2 draws of SGLD alternate; no more is made of them than of independent ones."""
    assert LinearRecursion(SGLD(), 3.0).autocorrelation_time(0.0) == 1.0


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("friction", [0.05, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.01, 0.25, 1.0])
def test_variance_of_underdamped(epsilon: float, friction: float, noise: float) -> None:
    """Exact without noise; noise of variance V adds (εV/4) coth(α/2)/(1 − ε/4)."""
    law = LinearRecursion(Underdamped(friction), epsilon)
    excess = epsilon * noise / 4 / np.tanh(friction / 2) / (1 - epsilon / 4)
    assert law.variance(noise) == pytest.approx(1 + excess, rel=EXACT)


def _sghmc(
    alpha: float, L: int, integrator: str, epsilon: float
) -> tuple[np.ndarray, ...]:
    """Return A, and what standard normals and unit noises add, of an iteration of SGHMC.

    The state is (θ, w), with w the noise of the gradient that is at hand, −θ + w.
    """
    decay, size = np.exp(-alpha), 2 + 1 + 2 * L
    units = np.eye(size)
    theta, noise, momentum = units[0], units[1], np.sqrt(epsilon) * units[2]
    for step in range(L):
        normal, fresh = units[3 + step], units[3 + L + step]
        gradient = noise - theta
        if integrator == "euler":
            spread = np.sqrt(2 * alpha * epsilon)
            momentum = (1 - alpha) * momentum + epsilon * gradient + spread * normal
            theta, noise = theta + momentum, fresh
            continue
        momentum = momentum + epsilon / 2 * gradient
        theta = theta + momentum / 2
        momentum = decay * momentum + np.sqrt(epsilon * (1 - decay**2)) * normal
        theta, noise = theta + momentum / 2, fresh
        momentum = momentum + epsilon / 2 * (noise - theta)
    rows = np.stack([theta, noise])
    return rows[:, :2], rows[:, 2 : 3 + L], rows[:, 3 + L :]


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(
    "alpha, L, integrator",
    [(0.01, 5, "symmetric"), (0.7, 3, "symmetric"), (0.2, 4, "euler")],
)
@pytest.mark.parametrize("epsilon", [0.02, 0.3])
def test_sghmc_against_its_transcription(
    epsilon: float, alpha: float, L: int, integrator: str, noise: float
) -> None:
    """The covariance is added up until nothing changes, and so are the autocovariances."""
    A, injected, estimated = _sghmc(alpha, L, integrator, epsilon)
    each = injected @ injected.T + noise * estimated @ estimated.T
    covariance, power = np.zeros((2, 2)), np.eye(2)
    while np.abs(power).max() > 1e-14:
        covariance += power @ each @ power.T
        power = A @ power
    sums, power = np.zeros((2, 2)), np.eye(2)
    while np.abs(power).max() > 1e-14:
        sums += power @ covariance
        power = A @ power
    law = LinearRecursion(SGHMC(alpha, L, integrator), epsilon)
    assert law.stable
    assert law.variance(noise) == pytest.approx(covariance[0, 0], rel=EXACT)
    time = max(1.0, 2 * sums[0, 0] / covariance[0, 0] - 1)
    assert law.autocorrelation_time(noise) == pytest.approx(time, rel=EXACT)


@pytest.mark.parametrize(
    "dynamics", [SGLD(), Underdamped(0.5)], ids=["sgld", "underdamped"]
)
def test_stable_up_to_four(dynamics: Dynamics) -> None:
    assert LinearRecursion(dynamics, 3.99).stable
    assert not LinearRecursion(dynamics, 4.01).stable


def test_fresh_momenta_and_friction_keep_sghmc_longer() -> None:
    """As the radius of the transcription's matrix tells."""
    for epsilon in (3.0, 4.1, 5.5):
        radius = np.abs(
            np.linalg.eigvals(_sghmc(0.3, 3, "symmetric", epsilon)[0])
        ).max()
        assert LinearRecursion(SGHMC(0.3, 3), epsilon).stable == (radius < 1)
    assert radius > 1


def test_a_thermostat_is_refused() -> None:
    with pytest.raises(ValueError, match="SGNHT does not move linearly"):
        LinearRecursion(SGNHT().bind(Space({"theta": ()})), 0.1)


@pytest.mark.parametrize("noise", [0.3, 7.0])
@pytest.mark.parametrize("tolerance", [0.005, 0.05])
def test_largest_stepsize_of_underdamped(tolerance: float, noise: float) -> None:
    """(1 + t)² − 1 = (εV/4) coth(α/2)/(1 − ε/4) is linear in ε, once multiplied out."""
    excess = (1 + tolerance) ** 2 - 1
    factor = noise / 4 / np.tanh(0.25)
    expected = min(1.0, excess / (factor + excess / 4))
    found = largest_stepsize(Underdamped(0.5), whitened(noise), tolerance)
    assert found == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize(
    "dynamics", [SGLD(), SGHMC(0.3, 3, "symmetric")], ids=["sgld", "sghmc"]
)
@pytest.mark.parametrize("noise", NOISES)
def test_largest_stepsize_hits_the_tolerance(dynamics: Dynamics, noise: float) -> None:
    found = largest_stepsize(dynamics, whitened(noise), 0.05)
    error = np.sqrt(LinearRecursion(dynamics, found).variance(noise)) - 1
    if found < 1.0:
        assert error == pytest.approx(0.05, rel=1e-6)
    else:
        assert error <= 0.05


def test_noise_that_no_stepsize_makes_up_for() -> None:
    """The least stepsize is returned: nothing that is tried keeps to the tolerance."""
    found = largest_stepsize(SGLD(), whitened(1e12), 0.05)
    assert found == pytest.approx(1e-6, rel=1e-3)
