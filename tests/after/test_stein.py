"""The kernel Stein discrepancy: its sum, its coordinates, and the value to compare it with."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc import Samples, ksd
from sgmcmc.after.stein import whitened
from tests import seams
from tests.conftest import short_call


def normal(
    draws: int, d: int, *, seed: int = 1, scale: float = 1.0
) -> tuple[Samples, np.ndarray]:
    theta = scale * np.random.default_rng(seed).normal(size=(draws, d))
    return Samples({"theta": theta}, gradients={"theta": -theta}), theta


def direct_ksd(theta: np.ndarray, g: np.ndarray, c: float, beta: float) -> float:
    """KSD from the kernel's derivatives by hand, pair by pair."""
    total = 0.0
    for x, gx in zip(theta, g, strict=True):
        for y, gy in zip(theta, g, strict=True):
            u = x - y
            base = c**2 + u @ u
            k = base**-beta
            slope = -2 * beta * base ** (-beta - 1)
            trace = -slope * len(x) - 4 * beta * (beta + 1) * base ** (-beta - 2) * (
                u @ u
            )
            total += gx @ gy * k + gx @ (-slope * u) + gy @ (slope * u) + trace
    return float(np.sqrt(total) / len(theta))


@pytest.mark.parametrize(("c", "beta"), [(1.0, 0.5), (0.7, 0.3)])
def test_ksd_is_the_sum_over_pairs(
    c: float, beta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    theta, g = rng.normal(size=(20, 3)) + 5, rng.normal(size=(20, 3))
    chain = Samples({"a": theta[:, :2], "b": theta[:, 2]})
    gradients = {"a": g[:, :2], "b": g[:, 2]}
    for block in (7, 2048):
        monkeypatch.setattr(seams.STEIN, seams.changed(seams.STEIN, block=block))
        found = ksd(chain, gradients=gradients, c=c, beta=beta, covariance=np.ones(3))
        np.testing.assert_allclose(found, direct_ksd(theta, g, c, beta), rtol=1e-10)


def test_ksd_of_exact_draws_falls_like_one_over_root_draws() -> None:
    """E KSD² = E k₀(θ, θ)/S = (d + d)/S for a standard normal, c = 1 and β = ½."""
    chains = [normal(500, 2, seed=seed)[0] for seed in range(40)]
    squares = [ksd(chain, c=1.0, covariance=np.ones(2)) ** 2 for chain in chains]
    error = np.std(squares, ddof=1) / np.sqrt(40)
    assert abs(np.mean(squares) - 4 / 500) < 5 * error


def test_ksd_sees_a_wrong_variance() -> None:
    right, _ = normal(1000, 2)
    theta = 1.3 * right["theta"]
    assert ksd(Samples({"theta": theta}), gradients={"theta": -theta}) > 2 * ksd(right)


def test_ksd_of_chains_and_with_stored_gradients() -> None:
    chains = short_call(n_chains=3, n_iters=50, store_gradients=True)
    found = ksd(chains, covariance=np.ones(1))
    assert found.shape == found.expected.shape == found.ratio.shape == (3,)
    one = Samples(
        {"theta": chains["theta"][1]}, gradients={"theta": chains.gradients["theta"][1]}
    )
    assert found[1] == pytest.approx(ksd(one, covariance=np.ones(1)))


def test_ksd_never_holds_all_pairs() -> None:
    chain, _ = normal(6000, 2)
    tracemalloc.start()
    ksd(chain, max_draws=6000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6000**2 * 8


def test_ksd_refuses_what_it_cannot_judge() -> None:
    plain = short_call()
    with pytest.raises(ValueError, match="store_gradients=True"):
        ksd(plain)
    with pytest.raises(ValueError, match=r"`gradients\['theta'\]`"):
        ksd(plain, gradients={"theta": np.zeros(3)})
    with pytest.raises(ValueError, match="`beta`"):
        ksd(plain, gradients={"theta": plain["theta"]}, beta=1.5)
    with pytest.raises(ValueError, match="`covariance`"):
        ksd(plain, gradients={"theta": plain["theta"]}, covariance=np.ones(5))
    with pytest.raises(ValueError, match="positive definite"):
        ksd(plain, gradients={"theta": plain["theta"]}, covariance=-np.ones(1))
    with pytest.raises(ValueError, match="`max_draws`"):
        ksd(plain, gradients={"theta": plain["theta"]}, max_draws=1)
    with pytest.raises(TypeError, match="`samples`"):
        ksd({"theta": plain["theta"]})


# ------------------------------------------------------------------------- whitened coordinates


def gaussian(
    scale: float, *, d: int = 10, noise: float = 0.0, draws: int = 1000, seed: int = 1
) -> tuple[Samples, np.ndarray]:
    """Draws whose SDs are so many times those of a posterior of condition number 10⁴."""
    rng = np.random.default_rng(seed)
    root = np.linalg.qr(rng.normal(size=(d, d)))[0] * np.geomspace(1.0, 100.0, d)
    inverse = np.linalg.inv(root)
    zeta = scale * rng.normal(size=(draws, d))
    slopes = -zeta + np.sqrt(noise) * rng.normal(size=(draws, d))
    return (
        Samples({"theta": 5.0 + zeta @ root.T}, gradients={"theta": slopes @ inverse}),
        root @ root.T,
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("noise", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("d", [2, 10])
def test_the_right_width_has_the_smallest_value(
    d: int, noise: float, known: bool
) -> None:
    """It ranks, and only draws of the right width have what independent draws would have."""
    found = {}
    for scale in (0.5, 1.0, 1.5, 2.3):
        chain, covariance = gaussian(scale, d=d, noise=noise)
        found[scale] = ksd(chain, covariance=covariance if known else None)
    assert min(found, key=lambda scale: found[scale]) == 1.0
    assert found[2.3] > found[1.5] > found[1.0]
    assert 0.5 < found[1.0].ratio < 1.6
    assert (
        min(found[scale].ratio for scale in (0.5, 1.5, 2.3)) > 1.25 * found[1.0].ratio
    )


@pytest.mark.parametrize("noise", [0.0, 4.0])
def test_what_is_expected_is_the_mean_square_over_exact_draws(noise: float) -> None:
    chains = [
        gaussian(1.0, d=3, noise=noise, draws=300, seed=seed)[0] for seed in range(60)
    ]
    squares = np.array([ksd(chain).ratio ** 2 for chain in chains])
    error = squares.std(ddof=1) / np.sqrt(len(squares))
    # The coordinates are estimated from the same draws, which takes a degree of freedom or two.
    assert abs(squares.mean() - 1.0) < 4 * error + 3 / 300


def test_it_does_not_depend_on_units() -> None:
    chain, _ = gaussian(1.3)
    units = np.geomspace(1e-6, 1e6, 10)
    other = Samples(
        {"theta": units * chain["theta"]},
        gradients={"theta": chain.gradients["theta"] / units},
    )
    assert ksd(other) == pytest.approx(ksd(chain), rel=1e-6)
    assert ksd(other).expected == pytest.approx(ksd(chain).expected, rel=1e-6)


def test_whitening_is_that_of_the_posterior_if_draws_are_too_wide() -> None:
    """Draws of N(0, 4Σ) have covariance 4 by the slope of the gradients −Σ⁻¹θ."""
    rng = np.random.default_rng(6)
    covariance = np.array([[1.0, 0.8], [0.8, 2.0]])
    draws = 2.0 * rng.normal(size=(4000, 2)) @ np.linalg.cholesky(covariance).T
    white, slopes = whitened(draws, -np.linalg.solve(covariance, draws.T).T)
    # The slope is exact. The largest error of four numbers of a covariance of n draws: 4·4·√(2/n).
    np.testing.assert_allclose(
        np.cov(white.T), 4.0 * np.eye(2), atol=16 * (2 / 4000) ** 0.5
    )
    np.testing.assert_allclose(slopes, -white, atol=0.05)


def test_with_few_draws_sds_alone_are_undone() -> None:
    rng = np.random.default_rng(2)
    units, zeta = np.geomspace(1e-3, 1e3, 50), rng.normal(size=(200, 50))
    found = {
        scale: ksd(
            Samples({"theta": scale * zeta * units}),
            gradients={"theta": -scale * zeta / units},
        )
        for scale in (0.5, 1.0, 2.3)
    }
    assert found[1.0] < found[0.5] < found[2.3]
    assert found[1.0].ratio == pytest.approx(1.0, abs=0.1)


def test_it_is_a_number_and_is_thinned() -> None:
    chain, _ = gaussian(1.0, draws=3000)
    found = ksd(chain, max_draws=500)
    assert isinstance(found, float) and f"{found:.3f}" == f"{float(found):.3f}"
    assert found.draws == 500 and found.expected == pytest.approx(
        float(found) / found.ratio
    )
    assert ksd(chain).draws == 2000


# ------------------------------------------------------------------------------------ bijectors


def exponential_chain(scale: float = 1.0) -> dict[str, np.ndarray]:
    """Draws of σ with log σ ~ N(0, scale²), and gradients of log N(0, 1) at log σ."""
    u = scale * np.random.default_rng(3).normal(size=1000)
    return {"draws": np.exp(u), "gradients": -u}


def test_draws_with_bijectors_are_taken_where_their_gradients_are() -> None:
    found = {}
    for scale in (0.5, 1.0, 2.3):
        made = exponential_chain(scale)
        chain = Samples(
            {"sigma": made["draws"]}, settings={"bijectors": {"sigma": "exp"}}
        )
        with pytest.raises(ValueError, match="`bijectors` must be given"):
            ksd(chain, gradients={"sigma": made["gradients"]})
        with pytest.raises(ValueError, match="`bijectors` lacks"):
            ksd(chain, gradients={"sigma": made["gradients"]}, bijectors={})
        found[scale] = ksd(
            chain,
            gradients={"sigma": made["gradients"]},
            bijectors={"sigma": tfp.bijectors.Exp()},
        )
    assert found[1.0] < min(found[0.5], found[2.3])
    assert found[1.0].ratio == pytest.approx(1.0, abs=0.5)


@pytest.mark.slow
def test_bijectors_and_whitening_come_from_the_sampler() -> None:
    x = np.random.default_rng(1).normal(1.0, 2.0, 500)

    def log_lik(params: dict, dataset: dict) -> tf.Tensor:
        z = (dataset["x"] - 1.0) / params["sigma"]
        return -0.5 * z**2 - tf.math.log(params["sigma"])

    chain = sgmcmc.sample(
        log_lik,
        {"x": x},
        {"sigma": 1.0},
        bijectors={"sigma": tfp.bijectors.Exp()},
        store_gradients=True,
        thin=25,
        verbose=False,
        seed=1,
    )
    # Draws 25 iterations apart are nearly independent.
    assert ksd(chain).shape == (4,) and (ksd(chain).ratio < 2.0).all()
