"""What is predicted of SDs and speed, against the exact law in many dimensions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg

from sgmcmc.dynamics import SGHMC, SGLD, SGNHT, Dynamics, Underdamped
from sgmcmc.model.geometry import Space
from sgmcmc.plan.prediction import NoisyQuadratic, largest_good

EXACT = 1e-9
D = 4


def covariance(seed: int) -> np.ndarray:
    """Return a covariance matrix far from diagonal."""
    root = np.random.default_rng(seed).normal(size=(D, D))
    return root @ root.T + 0.1 * np.eye(D)


@pytest.fixture(scope="module", params=["dense", "diagonal"])
def around(request: pytest.FixtureRequest) -> NoisyQuadratic:
    information, noise = covariance(1), covariance(2)
    root = (
        np.linalg.cholesky(covariance(3))
        if request.param == "dense"
        else np.arange(1.0, 1 + D)
    )
    return NoisyQuadratic(information, noise, root)


def of_coordinates(around: NoisyQuadratic, matrix: np.ndarray) -> np.ndarray:
    """Return the diagonal of C S Cᵀ."""
    root = around.root if around.root.ndim == 2 else np.diag(around.root)
    return np.diag(root @ matrix @ root.T)


@pytest.mark.parametrize("by_coordinate", [False, True])
def test_sgld_against_its_lyapunov_equation(
    around: NoisyQuadratic, by_coordinate: bool
) -> None:
    """S = ASAᵀ + ε + εVε/4 with A = 1 − εJ/2, ε a matrix if each coordinate has its own."""
    stepsize = np.array([0.02, 0.05, 0.01, 0.04]) if by_coordinate else np.full(D, 0.03)
    epsilon = np.diag(stepsize)
    A = np.eye(D) - epsilon @ around.information / 2
    S = linalg.solve_discrete_lyapunov(
        A, epsilon + epsilon @ around.noise @ epsilon / 4
    )
    expected = of_coordinates(around, S) / of_coordinates(
        around, np.linalg.inv(around.information)
    )
    times = (
        2
        * of_coordinates(around, np.linalg.solve(np.eye(D) - A, S))
        / of_coordinates(around, S)
    )
    found = around.predict(SGLD(), stepsize if by_coordinate else 0.03)
    assert found.stable
    np.testing.assert_allclose(found.ratio, np.sqrt(expected), rtol=EXACT)
    np.testing.assert_allclose(found.times, np.maximum(1.0, times - 1), rtol=EXACT)


@pytest.mark.parametrize("by_coordinate", [False, True])
def test_sgld_in_turn_against_a_simulated_pass(
    around: NoisyQuadratic, by_coordinate: bool
) -> None:
    """A pass, unit vectors fed to it, is the map whose Lyapunov equation is solved."""
    stepsize = np.array([0.02, 0.05, 0.01, 0.04]) if by_coordinate else np.full(D, 0.03)
    slices = (slice(0, 1), slice(1, 3), slice(3, 4))

    def one_pass(
        theta: np.ndarray, noise: np.ndarray, normals: np.ndarray
    ) -> np.ndarray:
        theta = theta.copy()
        for place in slices:
            g = (noise - around.information @ theta)[place]
            theta[place] += (
                stepsize[place] / 2 * g + np.sqrt(stepsize[place]) * normals[place]
            )
        return theta

    units = np.eye(3 * D).reshape(3 * D, 3, D)
    A, B, R = np.split(np.array([one_pass(*unit) for unit in units]).T, 3, 1)
    S = linalg.solve_discrete_lyapunov(A, B @ around.noise @ B.T + R @ R.T)
    expected = of_coordinates(around, S) / of_coordinates(
        around, np.linalg.inv(around.information)
    )
    summed = of_coordinates(around, np.linalg.solve(np.eye(D) - A, S))
    times = 2 * summed / of_coordinates(around, S) - 1
    found = around.predict(SGLD(), stepsize if by_coordinate else 0.03, slices)
    assert found.stable
    np.testing.assert_allclose(found.ratio, np.sqrt(expected), rtol=EXACT)
    np.testing.assert_allclose(found.times, np.maximum(1.0, times), rtol=EXACT)


def test_a_single_parameter_in_turn_is_joint(around: NoisyQuadratic) -> None:
    joint = around.predict(SGLD(), 0.03)
    alone = around.predict(SGLD(), 0.03, (slice(0, D),))
    np.testing.assert_allclose(alone.ratio, joint.ratio, rtol=EXACT)
    np.testing.assert_allclose(alone.times, joint.times, rtol=EXACT)


def test_in_turn_is_stable_where_each_parameter_is(around: NoisyQuadratic) -> None:
    """For ε < 4/λ, λ the largest curvature of each parameter with the others held."""
    slices = tuple(slice(i, i + 1) for i in range(D))
    edges = 4 / np.diag(around.information)
    assert around.predict(SGLD(), 0.98 * edges, slices).stable
    assert not around.predict(SGLD(), 1.02 * edges, slices).stable
    assert not around.predict(SGLD(), 0.98 * edges).stable


def test_of_other_dynamics_in_turn_nothing_is_known(around: NoisyQuadratic) -> None:
    with pytest.raises(ValueError, match="no closed form for Underdamped"):
        around.predict(Underdamped(), 0.03, (slice(0, 2), slice(2, D)))


@pytest.mark.parametrize(
    "dynamics",
    [SGLD(), Underdamped(0.4), SGHMC(0.2, 3), SGHMC(0.2, 2, "euler")],
    ids=repr,
)
def test_unequal_stepsizes_are_units(
    around: NoisyQuadratic, dynamics: Dynamics
) -> None:
    """As for the chain itself: θ = √ε φ, and ε = 1 for φ."""
    stepsize = np.array([0.02, 0.05, 0.01, 0.04])
    root = np.sqrt(stepsize)
    other = NoisyQuadratic(
        around.information * np.outer(root, root),
        around.noise * np.outer(root, root),
        around.root * root,
    )
    found, expected = around.predict(dynamics, stepsize), other.predict(dynamics, 1.0)
    np.testing.assert_allclose(found.ratio, expected.ratio, rtol=EXACT)


def test_a_chain_that_has_no_law(around: NoisyQuadratic) -> None:
    found = around.predict(SGLD(), 4.1 / np.linalg.eigvalsh(around.information)[-1])
    assert not found.stable and np.isinf(found.worst)


def test_noise_in_the_direction_of_coordinates() -> None:
    """Where J = 1 and C a root, that of uₖ is the noise along row k of C."""
    noise, root = covariance(2), np.linalg.cholesky(covariance(3))
    found = NoisyQuadratic(np.eye(D), noise, root).noise_by_coordinate
    rows = root / np.linalg.norm(root, axis=1, keepdims=True)
    np.testing.assert_allclose(found, np.diag(rows @ noise @ rows.T), rtol=EXACT)


@pytest.mark.some(1)
@pytest.mark.parametrize("epsilon, size", [(0.05, 2.0), (0.1, 0.5)])
def test_a_thermostat_at_rest(epsilon: float, size: float) -> None:
    """Simulated: with 20 coordinates a thermostat stays within a few per cent of its mean."""
    d, chains, steps = 20, 400, 4000
    rng = np.random.default_rng(1)
    root = np.sqrt(size / d) * rng.normal(size=(d, d))
    x, v = rng.normal(size=(chains, d)), np.sqrt(epsilon) * rng.normal(size=(chains, d))
    friction, squares = np.full((chains, 1), 0.05), np.zeros(d)
    for step in range(steps):
        gradient = rng.normal(size=(chains, d)) @ root.T - x
        noise = np.sqrt(0.1 * epsilon) * rng.normal(size=(chains, d))
        v = (1 - friction) * v + epsilon * gradient + noise
        x = x + v
        friction = friction + (v * v).mean(1, keepdims=True) - epsilon
        squares += (step >= steps // 2) * (x * x).mean(0)
    simulated = np.sqrt(squares / (steps // 2))
    space = Space({"theta": (d,)})
    found = NoisyQuadratic(np.eye(d), root @ root.T, np.ones(d)).predict(
        SGNHT(0.05).bind(space), epsilon
    )
    # Held at rest, a thermostat misses how it moves along with the kinetic energy.
    np.testing.assert_allclose(found.ratio, simulated, rtol=0.035)


@pytest.mark.parametrize("root", [1e-5, 0.03, 0.9, 1.0, 1.5])
@pytest.mark.parametrize("power", [1.0, 3.0])
def test_the_largest_good_number(root: float, power: float) -> None:
    seen: list[float] = []

    def excess(x: float) -> float:
        seen.append(x)
        return np.inf if x > 2 * root else (x / root) ** power - 1

    found = largest_good(excess, 1e-6, 1.0)
    assert found == pytest.approx(min(root, 1.0), rel=1e-7) and excess(found) <= 0
    assert len(seen) <= 30  # halving takes as many for a root near the end


def test_nothing_is_good() -> None:
    assert largest_good(lambda x: 1.0, 1e-6, 1.0) == 1e-6
