"""Zero-variance control variates: exact where theory says so, sound where they are collinear."""

from __future__ import annotations

import functools
import importlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc import Samples, zero_variance
from tests import seams

N = 50
rng = np.random.default_rng(3)
ROOT = np.linalg.cholesky(np.array([[2.0, 0.5], [0.5, 1.0]]))
DATA = rng.normal(size=(N, 2)) @ ROOT.T + [1.0, -2.0]
PRECISION = np.linalg.inv(ROOT @ ROOT.T)


def log_lik(params: Any, dataset: Any) -> tf.Tensor:
    residuals = dataset["x"] - tf.stack([params["a"], params["b"][0]])
    return -0.5 * tf.reduce_sum(
        residuals * tf.matmul(residuals, tf.constant(PRECISION))
    )


def gaussian(**given: Any) -> Samples:
    """Full-data SGLD in double precision: a Gaussian posterior with exact gradients."""
    arguments = {
        "log_lik": log_lik,
        "dataset": {"x": DATA},
        "params": {"a": 1.0, "b": [-2.0]},
        "stepsize": 1e-2,
        "minibatch_size": N,
        "n_iters": 400,
        "verbose": False,
        "seed": 1,
        "dtype": tf.float64,
        "store_gradients": True,
        "jit_compile": False,
    }
    return sgmcmc.sgld(**{**arguments, **given})


@functools.cache
def one_chain() -> Samples:
    """Return the chain as it is without changes, run once for all tests."""
    return gaussian()


MEAN = DATA.mean(axis=0)
COVARIANCE = ROOT @ ROOT.T / N


def test_degree_one_makes_the_mean_of_a_gaussian_exact() -> None:
    corrected = zero_variance(one_chain(), 1)
    np.testing.assert_allclose(corrected["a"], MEAN[0], rtol=1e-9)
    np.testing.assert_allclose(corrected["b"][:, 0], MEAN[1], rtol=1e-9)
    np.testing.assert_allclose(corrected.mean["b"], MEAN[1:], rtol=1e-9)
    assert (corrected.variance_ratio["b"] > 1e9).all()
    # h̃ = θ + a z with z = ½ Λ(θ − θ̂): the coefficients are −2 Λ⁻¹.
    np.testing.assert_allclose(
        corrected.coefficients["a"], -2 * COVARIANCE[:, 0], rtol=1e-9
    )


def test_degree_two_makes_the_second_moments_of_a_gaussian_exact() -> None:
    moments = {
        "aa": lambda params: params["a"] ** 2,
        "ab": lambda params: params["a"] * params["b"][0],
    }
    corrected = zero_variance(one_chain(), 2, moments)
    np.testing.assert_allclose(
        corrected["aa"], MEAN[0] ** 2 + COVARIANCE[0, 0], rtol=1e-8
    )
    np.testing.assert_allclose(
        corrected["ab"], MEAN[0] * MEAN[1] + COVARIANCE[0, 1], rtol=1e-8
    )
    first = zero_variance(one_chain(), 1, moments)
    assert first.variance_ratio["aa"] < 1e6


def test_stored_test_functions_and_functions_given_later_agree() -> None:
    functions = {"square": lambda params: params["b"] ** 2}
    chain = gaussian(test_functions=functions)
    for degree in (1, 2):
        stored = zero_variance(chain, degree, ["square"])
        later = zero_variance(chain, degree, functions)
        assert stored["square"].shape == (400, 1)
        np.testing.assert_allclose(stored["square"], later["square"], rtol=1e-10)


@pytest.mark.slow
def test_the_mean_is_unbiased_with_coefficients_from_other_draws() -> None:
    """The control variates have mean zero: five standard errors over 200 independent chains."""
    chains = gaussian(n_chains=40, n_iters=200, burn_in=200)
    z = -0.5 * chains.gradients["a"]
    error = z.mean(axis=1).std(ddof=1) / np.sqrt(40)
    assert abs(z.mean()) < 5 * error


def slow_and_noisy() -> Samples:
    """Return three slow autoregressions with stationary variance 1, and noisy gradients."""
    draws = np.zeros((3, 20_000))
    noise = np.random.default_rng(5).normal(size=(2, *draws.shape))
    for i in range(1, draws.shape[1]):
        draws[:, i] = 0.99 * draws[:, i - 1] + np.sqrt(1 - 0.99**2) * noise[0, :, i]
    return Samples(
        {"theta": draws},
        settings={"n_chains": 3},
        gradients={"theta": -draws + 3.0 * noise[1]},
    )


def variance_of_the_mean(draws: np.ndarray) -> float:
    """Return the variance of means of 500 draws."""
    return draws.reshape(3, 40, 500).mean(2).var()


def test_batches_see_through_the_noise_of_minibatches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow chain whose gradients are noisy: draws give coefficients that are too small."""
    samples = slow_and_noisy()
    draws = samples["theta"]
    before = variance_of_the_mean(draws)
    by_draws = zero_variance(samples, fit="others")
    by_batches = zero_variance(samples, fit="others", batches=100)
    # ĝ = −θ + 3ζ: the coefficient −2 is shrunk to −2 / (1 + 9) by draws; by means of 200 draws,
    # whose variance is about 0.6 and whose noise 9/200, to −2 · 0.93.
    np.testing.assert_allclose(by_draws.coefficients["theta"], -0.2, rtol=0.2)
    np.testing.assert_allclose(by_batches.coefficients["theta"], -1.86, rtol=0.05)
    assert before / variance_of_the_mean(by_draws["theta"]) < 1.5
    assert before / variance_of_the_mean(by_batches["theta"]) > 10
    monkeypatch.setattr(seams.DRAWS_PIECE_BYTES, 8 * 2 * 333)
    again = zero_variance(samples, fit="others", batches=100).coefficients["theta"]
    np.testing.assert_allclose(again, by_batches.coefficients["theta"], rtol=1e-9)


def test_the_form_that_is_best_out_of_sample_is_chosen() -> None:
    """Batches where the gradients are noisy; what is returned is what the form says."""
    samples = slow_and_noisy()
    corrected = zero_variance(samples)
    form = corrected.form
    assert form.fit == "others" and form.batches is not None and form.batches < 5000
    ratio = variance_of_the_mean(samples["theta"]) / variance_of_the_mean(
        corrected["theta"]
    )
    assert ratio > 10 and 0.5 < corrected.gain["theta"] / ratio < 2
    again = zero_variance(samples, form.degree, fit=form.fit, batches=form.batches)
    np.testing.assert_array_equal(again["theta"], corrected["theta"])
    assert f"{form.batches} batches" in repr(corrected)
    assert f"falls {corrected.gain['theta']:.3g} times" in corrected.sentence


def test_draws_are_taken_where_gradients_are_exact_and_degree_two_where_it_helps() -> (
    None
):
    chain = one_chain()
    first = zero_variance(chain)
    assert first.form.degree == 1 and first.gain["a"] > 1e9
    np.testing.assert_allclose(first["a"], MEAN[0], rtol=1e-9)
    second = zero_variance(
        chain, test_functions={"aa": lambda params: params["a"] ** 2}
    )
    assert second.form.degree == 2
    np.testing.assert_allclose(
        second.mean["aa"], MEAN[0] ** 2 + COVARIANCE[0, 0], rtol=1e-8
    )


def test_what_does_not_help_is_left_alone() -> None:
    rng = np.random.default_rng(2)
    draws = {"a": rng.normal(size=(4, 500)), "b": rng.normal(size=(4, 500))}
    unrelated = rng.normal(size=(4, 500, 30))
    useless = Samples(draws, gradients={"c": unrelated}, settings={"n_chains": 4})
    corrected = zero_variance(useless)
    if corrected.form is None:
        assert "the draws are as they were" in repr(corrected)
    for name, gain in corrected.gain.items():
        if gain <= 1:
            np.testing.assert_array_equal(corrected[name], draws[name])
            assert corrected.variance_ratio[name] == 1.0
    both = Samples(
        draws, gradients={"a": -draws["a"], "c": unrelated}, settings={"n_chains": 4}
    )
    corrected = zero_variance(both)
    assert corrected.gain["a"] > 5 and corrected.form is not None
    assert corrected.gain["b"] >= 1 and corrected.variance_ratio["b"] < 1.1


@pytest.mark.slow
def test_after_a_call_without_constants() -> None:
    chain = sgmcmc.sample(
        log_lik, {"x": DATA}, {"a": 1.0, "b": [-2.0]}, verbose=False, seed=1,
        dtype=tf.float64, store_gradients=True,
    )  # fmt: skip
    corrected = zero_variance(chain)
    np.testing.assert_allclose(corrected.mean["a"], MEAN[0], rtol=1e-6)
    assert corrected["a"].shape == chain["a"].shape


def test_batches_of_an_exact_fit_are_exact_too() -> None:
    corrected = zero_variance(one_chain(), batches=39)  # 400 draws leave a remainder
    np.testing.assert_allclose(corrected["a"], MEAN[0], rtol=1e-9)


def test_coefficients_from_all_own_and_other_chains() -> None:
    chains = gaussian(n_chains=3)
    pooled = zero_variance(chains, fit="pooled")
    assert pooled["a"].shape == (3, 400) and pooled.coefficients["b"].shape == (2, 1)
    for fit in ("own", "others"):
        each = zero_variance(chains, fit=fit)
        assert each.coefficients["b"].shape == (3, 2, 1)
        np.testing.assert_allclose(pooled["a"], each["a"], rtol=1e-8)
    halves = zero_variance(one_chain(), fit="others")
    assert halves.coefficients["b"].shape == (2, 2, 1)
    np.testing.assert_allclose(halves["a"], MEAN[0], rtol=1e-8)


def test_coefficients_from_others_promise_nothing_that_is_not_there() -> None:
    """Gradients that have nothing to do with the draws: in sample they seem to help."""
    rng = np.random.default_rng(1)
    walk = rng.normal(size=(2, 200, 1))
    chain = Samples(
        {"theta": walk},
        gradients={"theta": rng.normal(size=(2, 200, 40))},
        settings={"n_chains": 2},
    )
    assert zero_variance(chain, 1).variance_ratio["theta"] > 1.05
    others = zero_variance(chain, fit="others")
    assert others.variance_ratio["theta"] < 1.0 and others.gain["theta"] < 1.0
    # Coefficients 40/200 of a unit variance each: the variance grows by about a quarter.


def test_saved_loaded_and_stored_chains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = gaussian(log_prior=lambda params: -tf.abs(params["a"]))
    expected = zero_variance(chain, 2)
    chain.save(tmp_path / "chain.npz")
    gaussian(log_prior=lambda params: -tf.abs(params["a"]), store=tmp_path / "store")
    # In pieces of a few draws.
    monkeypatch.setattr(seams.DRAWS_PIECE_BYTES, 500)
    for again in (
        Samples.load(tmp_path / "chain.npz"),
        Samples.open(tmp_path / "store"),
    ):
        found = zero_variance(again, 2)
        np.testing.assert_allclose(found["a"], expected["a"], rtol=1e-9)
        np.testing.assert_allclose(
            found.coefficients["b"], expected.coefficients["b"], atol=1e-12
        )
    lean = zero_variance(chain, 2, keep_draws=False)
    assert len(lean) == 0
    np.testing.assert_allclose(lean.mean["a"], expected["a"].mean(), rtol=1e-9)


def test_bijectors_give_gradients_in_the_unconstrained_space() -> None:
    """E θ of a Gamma posterior: the correction keeps the mean and reduces the variance."""
    x = np.random.default_rng(1).exponential(0.5, 200)
    bijector = tfp.bijectors.Exp()
    chain = sgmcmc.sgld(
        lambda p, d: tf.reduce_sum(tf.math.log(p["rate"]) - p["rate"] * d["x"]),
        {"x": x},
        {"rate": 2.0},
        1e-3,
        lambda p: -p["rate"],
        minibatch_size=200,
        n_iters=20_000,
        burn_in=500,
        verbose=False,
        seed=1,
        bijectors={"rate": bijector},
        dtype=tf.float64,
        store_gradients=True,
    )
    exact = 201 / (x.sum() + 1)  # Gamma(N + 1, Σx + 1) has mean (N + 1)/(Σx + 1)
    first = zero_variance(chain)
    second = zero_variance(chain, 2, bijectors={"rate": bijector})
    assert first.variance_ratio["rate"] > 50 and second.variance_ratio["rate"] > 1000
    # The discretization of the chain biases it by a share of ε times the curvature, 0.2.
    assert abs(second.mean["rate"] / exact - 1) < 2e-3
    with pytest.raises(ValueError, match="`bijectors`: degree 2"):
        zero_variance(chain, 2)


def test_collinear_gradients_are_left_out_with_a_warning() -> None:
    """Only the sum of two parameters matters, so their gradients are the same."""

    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        return -0.5 * tf.reduce_sum(
            (dataset["x"][:, 0] - params["a"] - params["b"][0]) ** 2
        )

    chain = gaussian(log_lik=log_lik)
    with pytest.warns(UserWarning, match="collinear: 1 of 2"):
        corrected = zero_variance(chain, 1, {"sum": lambda p: p["a"] + p["b"][0]})
    np.testing.assert_allclose(corrected["sum"], MEAN[0], rtol=1e-9)


def test_more_control_variates_than_draws_are_shrunk_with_a_warning() -> None:
    """Draws are not fitted by their own noise: the corrected variance stays what it is."""
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(40, 60))
    independent = rng.normal(size=(40, 60))
    chain = Samples({"theta": theta}, gradients={"theta": -independent})
    with pytest.warns(UserWarning, match="too many"):
        corrected = zero_variance(chain)
    assert np.isfinite(corrected["theta"]).all()
    assert np.median(corrected.variance_ratio["theta"]) < 20


def test_nothing_is_said_of_a_sound_fit() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        zero_variance(one_chain(), 2)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"samples": {"a": [1.0]}}, TypeError, "`samples`"),
        ({"samples": Samples({"a": np.zeros(5)})}, ValueError, "store_gradients=True"),
        ({"degree": 3}, ValueError, "`degree`"),
        ({"degree": 0}, ValueError, "`degree`"),
        ({"fit": "all"}, ValueError, "`fit`"),
        ({"batches": 1}, ValueError, "`batches`"),
        ({"batches": 6}, ValueError, "`batches` is 6, but there are only 5 draws"),
        ({"test_functions": ["absent"]}, ValueError, "`test_functions`"),
        ({"test_functions": "absent"}, TypeError, "`test_functions`"),
        ({"test_functions": {"f": 3}}, TypeError, "`test_functions['f']`"),
    ],
)
def test_wrong_input(
    arguments: dict[str, Any], error: type[Exception], said: str
) -> None:
    few = Samples({"a": np.arange(5.0)}, gradients={"a": np.arange(5.0)})
    with pytest.raises(error) as caught:
        zero_variance(**{"samples": few, **arguments})
    assert said in str(caught.value)


@pytest.mark.slow
def test_reduction_fades_with_the_rows_but_not_with_control_variates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thesis 3.4.2: minibatch noise in ĝ grows like N² and drowns z, that of ĝ_cv does not."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "vignettes"))
    factor = importlib.import_module("zero_variance").factor
    plain = [factor("sgld", size, 20_000) for size in (100, 1000, 10_000)]
    with_cv = [factor("sgldcv", size, 20_000) for size in (100, 1000, 10_000)]
    print("plain", plain, "control variates", with_cv)
    assert plain[0] > plain[1] > plain[2] and plain[2] < 1.2
    assert min(with_cv) > 5 and with_cv[2] > 0.5 * with_cv[0]
