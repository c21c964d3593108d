"""Posteriors without tuning constants: exact answers, requirements, messages."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.plan import plan
from tests import seams
from tests.ladder.comparisons import bound

Array = np.ndarray
Tensors = Mapping[str, tf.Tensor]

TOLERANCE = 0.05
"""Of the sds, where no other is asked for."""


class Posterior(NamedTuple):
    """A model as a user writes it, and its exact posterior moments by parameter."""

    log_lik: Callable[..., tf.Tensor]
    dataset: dict[str, Array]
    params: dict[str, Any]
    log_prior: Callable[..., tf.Tensor] | None
    mean: dict[str, Array]
    sd: dict[str, Array]
    keywords: dict[str, Any]

    def sample(self, **given: Any) -> sgmcmc.Samples:
        """Sample without constants; everything can be overridden."""
        keywords = {"verbose": False, "seed": 1, **self.keywords, **given}
        params = keywords.pop("params", self.params)
        return sgmcmc.sample(
            self.log_lik, self.dataset, params, self.log_prior, **keywords
        )


def normal_mean(N: int) -> Posterior:
    """x_i ~ N(θ, 4), θ ~ N(0, 9); `log_lik` returns the sum."""
    x = np.random.default_rng(N).normal(3.0, 2.0, N).astype(np.float32)
    precision = N / 4 + 1 / 9
    return Posterior(
        lambda params, dataset: (
            -0.125 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        ),
        {"x": x},
        {"theta": 0.0},
        lambda params: -0.5 * params["theta"] ** 2 / 9,
        {"theta": np.array(x.astype(float).sum() / 4 / precision)},
        {"theta": np.array(precision**-0.5)},
        {},
    )


def regression(N: int, scales: tuple[float, ...] = (1.0, 0.01, 500.0)) -> Posterior:
    """Correlated columns on raw scales with an intercept, known noise, a wide normal prior."""
    rng = np.random.default_rng([N, 2])
    X = rng.normal(size=(N, 3))
    X[:, 1] += 2 * X[:, 0]
    X = (X * scales).astype(np.float32)
    y = (1.5 + X @ (np.array([1.0, -0.5, 0.2]) / scales) + rng.normal(size=N)).astype(
        np.float32
    )
    design = np.column_stack([np.ones(N), X]).astype(float)
    covariance = np.linalg.inv(design.T @ design + np.eye(4) / 1e6)
    mean, sd = covariance @ design.T @ y.astype(float), np.sqrt(np.diag(covariance))

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        fitted = params["bias"] + tf.linalg.matvec(dataset["X"], params["beta"])
        return -0.5 * (dataset["y"] - fitted) ** 2

    return Posterior(
        log_lik,
        {"X": X, "y": y},
        {"bias": 0.0, "beta": np.zeros(3)},
        lambda params: (
            -0.5e-6 * (params["bias"] ** 2 + tf.reduce_sum(params["beta"] ** 2))
        ),
        {"bias": mean[0], "beta": mean[1:]},
        {"bias": sd[0], "beta": sd[1:]},
        {},
    )


def gamma_poisson(N: int) -> Posterior:
    """Counts of rate λ with λ ~ Gamma(2, 3), through exp."""
    y = np.random.default_rng([N, 3]).poisson(0.7, N).astype(np.float32)
    shape, rate = 2 + y.sum(dtype=float), 3.0 + N
    return Posterior(
        lambda params, dataset: (
            dataset["y"] * tf.math.log(params["rate"]) - params["rate"]
        ),
        {"y": y},
        {"rate": 1.0},
        lambda params: tf.math.log(params["rate"]) - 3.0 * params["rate"],
        {"rate": np.array(shape / rate)},
        {"rate": np.array(np.sqrt(shape) / rate)},
        {"bijectors": {"rate": tfp.bijectors.Exp()}},
    )


POSTERIORS = {
    "regression, all rows": regression(200),
    "normal mean, all rows": normal_mean(300),
    "normal mean, minibatches": normal_mean(4000),
    "regression, minibatches": regression(6000),
    "counts, few": gamma_poisson(40),
    "counts, minibatches": gamma_poisson(5000),
}


@functools.cache
def drawn(name: str) -> sgmcmc.Samples:
    """Return the draws of a posterior, with more time than is needed; once for all tests."""
    return POSTERIORS[name].sample(ess=2000, max_seconds=1000)


def check_moments(
    samples: sgmcmc.Samples, posterior: Posterior, tolerance: float
) -> None:
    """Assert that means and sds are right, within Monte Carlo error and the stated tolerance."""
    report, place = samples.report, 0
    comparisons = 2 * sum(np.size(m) for m in posterior.mean.values())
    for name, mean in posterior.mean.items():
        draws = samples[name].reshape(-1, np.size(mean)).astype(float)
        sd, size = np.ravel(posterior.sd[name]), np.size(mean)
        bulk = np.array(report["Draws"]["ESS, bulk"][place : place + size])
        place += size
        z = (draws.mean(0) - np.ravel(mean)) / (sd / np.sqrt(bulk))
        assert np.abs(z).max() < bound(comparisons)
        # The sd of a normal sample of size n has the relative error 1/√(2n).
        gap = np.abs(draws.std(0) / sd - 1)
        assert (gap < tolerance + bound(comparisons) / np.sqrt(2 * bulk)).all()


@pytest.mark.some(2)
@pytest.mark.parametrize("name", POSTERIORS)
def test_moments(name: str) -> None:
    samples = drawn(name)
    check_moments(samples, POSTERIORS[name], TOLERANCE)
    assert samples.report.warnings == []


@pytest.mark.some(2)
@pytest.mark.parametrize("name", POSTERIORS)
def test_what_is_chosen_and_reached(name: str) -> None:
    samples, N = drawn(name), len(next(iter(POSTERIORS[name].dataset.values())))
    report, whole = samples.report, N <= 2000
    assert report["Mode"]["found"]
    assert report["Chain"]["rows"] == ("all" if whole else "in proportion to leverage")
    assert report["Chain"]["gradient"] == (
        "FullGradient" if whole else "ControlVariate"
    )
    assert report["Chain"]["dynamics"] == "Underdamped(friction=0.5)"
    assert samples.settings["n"] == N if whole else samples.settings["n"] <= N
    assert min(report["Draws"]["ESS, bulk"] + report["Draws"]["ESS, tail"]) >= 2000
    assert max(report["Draws"]["R-hat"]) <= 1.01
    assert max(report["Predicted"]["SD error (noise along the chain)"]) <= TOLERANCE
    assert 0 < report["Seconds"]["all"] < 60  # the time that there was is not used up
    assert all(array.shape[0] == 4 for array in samples.values())
    if whole:
        assert report["Predicted"]["whitened gradient noise, along the chain"] == []
    else:
        assert 0 < report["Chain"]["effective number of rows, 1/Σp²"] <= N


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("normal mean, minibatches", {}),
        pytest.param("regression, minibatches", {"ess": 1000}, marks=pytest.mark.slow),
    ],
)
def test_a_stepsize_too_large_for_the_noise_along_the_chains_is_lowered(
    name: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stepsize is chosen from the noise at draws of the Laplace approximation."""
    largest, chosen = plan.largest_stepsize, []

    def too_large(*arguments: Any) -> float:
        chosen.append(4 * largest(*arguments))
        return chosen[-1]

    monkeypatch.setattr(seams.LARGEST_STEPSIZE, too_large)
    posterior = POSTERIORS[name]
    samples = posterior.sample(gradient="minibatch", minibatch_size=500, **given)
    assert samples.report["Chain"]["stepsize"] < 0.5 * chosen[-1]
    check_moments(samples, posterior, TOLERANCE)
    assert samples.report.warnings == []


@pytest.mark.filterwarnings("ignore:.*more minutes:UserWarning")
def test_a_clock_does_not_choose_between_methods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand times as slow: by counts all rows are affordable, and the draws are the same."""
    monkeypatch.setattr(seams.POSTERIOR_DENSE_UP_TO, 3)
    posterior = POSTERIORS["regression, all rows"]
    expected = posterior.sample(ess=20)
    for name in ("monotonic", "perf_counter"):
        clock = getattr(time, name)
        monkeypatch.setattr(time, name, lambda clock=clock: 1e3 * clock())
    samples = posterior.sample(ess=20)
    monkeypatch.undo()
    np.testing.assert_array_equal(samples["beta"], expected["beta"])
    assert samples.settings["dynamics"] == expected.settings["dynamics"]
    assert "by its operations" in samples.report["Dynamics"]["reason for HMC"]


@pytest.mark.slow
def test_same_seed_same_bits() -> None:
    posterior = POSTERIORS["counts, minibatches"]
    first, again = (posterior.sample(n_iters=300) for _ in range(2))
    other = posterior.sample(n_iters=300, seed=2)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["rate"], other["rate"])
    assert first.settings["seed"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "dynamics", ["sgld", "sghmc", sgmcmc.dynamics.Underdamped(1.0)]
)
@pytest.mark.parametrize(
    "name",
    ["regression, all rows", "regression, minibatches"],
)
def test_dynamics_that_are_given(dynamics: Any, name: str) -> None:
    samples = POSTERIORS[name].sample(dynamics=dynamics)
    check_moments(samples, POSTERIORS[name], TOLERANCE)
    assert samples.report.warnings == []
    assert samples.settings["method"] in ("sgld", "sghmc", "underdamped")


@pytest.mark.slow
def test_far_start_and_float64() -> None:
    """A start 10⁵ posterior sds off leads to the same posterior."""
    posterior = POSTERIORS["regression, minibatches"]
    away = {
        name: mean + 1e5 * posterior.sd[name] for name, mean in posterior.mean.items()
    }
    samples = posterior.sample(params=away, dtype=tf.float64)
    assert samples["beta"].dtype == np.float64
    assert samples.report["Mode"]["found"] and samples.report.warnings == []
    check_moments(samples, posterior, TOLERANCE)


@functools.cache
def few_with_a_large_tolerance() -> sgmcmc.Samples:
    """Return few draws, of three chains."""
    posterior = POSTERIORS["regression, minibatches"]
    return posterior.sample(n_iters=150, burn_in=30, n_chains=3, tolerance=0.2)


@functools.cache
def with_all_that_is_kept() -> sgmcmc.Samples:
    """Return draws with gradients, a function and a mean of them, by a small tolerance."""
    return POSTERIORS["regression, minibatches"].sample(
        n_iters=400,
        thin=4,
        tolerance=0.001,
        store_gradients=True,
        test_functions={"sum": lambda params: tf.reduce_sum(params["beta"])},
        reductions={"mean": sgmcmc.running_mean(lambda params: params["beta"])},
    )


class TestWishes:
    """What a user may ask of the draws."""

    posterior = POSTERIORS["regression, minibatches"]

    def test_n_iters_burn_in_and_n_chains(self) -> None:
        samples = few_with_a_large_tolerance()
        assert samples["beta"].shape == (3, 150, 3)
        assert samples.settings["burn_in"] == samples.report["Draws"]["burn-in"] == 30
        assert any(
            "effective sample size" in warning for warning in samples.report.warnings
        )

    @pytest.mark.slow
    def test_ess(self) -> None:
        counts = POSTERIORS["counts, few"]
        few, many = counts.sample(ess=100), counts.sample(ess=3000)
        assert few["rate"].shape[1] < many["rate"].shape[1]
        assert min(many.report["Draws"]["ESS, bulk"]) >= 3000

    def test_tolerance(self) -> None:
        """A smaller tolerance is kept to, and costs iterations or rows."""
        strict, loose = with_all_that_is_kept(), few_with_a_large_tolerance()
        errors = [
            max(s.report["Predicted"]["SD error (noise along the chain)"])
            for s in (strict, loose)
        ]
        assert errors[0] <= 0.001
        assert errors[1] <= 0.2
        cost = [
            s.settings["n"] * s.report["Predicted"]["autocorrelation time, iterations"]
            for s in (strict, loose)
        ]
        assert cost[0] >= cost[1]

    @pytest.mark.slow
    def test_max_seconds(self) -> None:
        """The wish that cannot be granted in time is given up, and that is said."""
        started = time.monotonic()
        samples = self.posterior.sample(ess=1e9, max_seconds=4)
        assert time.monotonic() - started < 12
        assert any(
            "effective sample size" in warning for warning in samples.report.warnings
        )
        assert len(samples["bias"][0]) >= 250


def test_what_is_kept_passes_through() -> None:
    posterior, samples = POSTERIORS["regression, minibatches"], with_all_that_is_kept()
    assert samples["beta"].shape == samples.gradients["beta"].shape == (4, 100, 3)
    np.testing.assert_allclose(
        samples.test_functions["sum"], samples["beta"].sum(-1), rtol=1e-5
    )
    assert samples.reductions["mean"].shape == (4, 3)
    spread = posterior.sd["beta"]
    assert (
        np.abs(samples.reductions["mean"].mean(0) - posterior.mean["beta"]) < spread
    ).all()
    # Gradients are those of the log posterior with respect to the unconstrained parameters.
    X, y = posterior.dataset["X"].astype(float), posterior.dataset["y"].astype(float)
    draws = (
        samples["beta"].reshape(-1, 3).astype(float),
        samples["bias"].reshape(-1).astype(float),
    )
    exact = (y - draws[1][:, None] - draws[0] @ X.T) @ X - 1e-6 * draws[0]
    gap = (samples.gradients["beta"].reshape(-1, 3) - exact) * spread
    # In whitened coordinates the noise has a variance of a few per cent of N/n.
    assert np.abs(gap.mean(0)).max() < 0.5
    assert sgmcmc.summary(samples).shape[0] == 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normal mean, all rows", "normal mean, minibatches"])
def test_thinned_draws_count(name: str) -> None:
    """What is asked for is reached by the draws that are kept."""
    samples = POSTERIORS[name].sample(thin=20, ess=200)
    assert min(samples.report["Draws"]["ESS, bulk"]) >= 200
    assert samples.report.warnings == []


def test_draws_that_are_thinned_much_are_few() -> None:
    rare = POSTERIORS["normal mean, all rows"].sample(thin=500, ess=50)
    assert 25 <= rare["theta"].shape[1] < 100 and rare.report.warnings == []
    assert min(rare.report["Draws"]["ESS, bulk"]) >= 50


def test_one_observation_and_one_term() -> None:
    samples = normal_mean(1).sample()
    check_moments(samples, normal_mean(1), TOLERANCE)


@pytest.mark.slow
def test_bijectors_of_vectors_and_matrices() -> None:
    """One is bound to float32; the other has fewer coordinates than components."""
    rng = np.random.default_rng(4)
    x = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 2]], 800)
    labels = rng.choice(3, 800, p=[0.1, 0.2, 0.7])

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        L = params["L"]
        z = tf.linalg.triangular_solve(L, tf.transpose(dataset["x"]))
        normal = -0.5 * tf.reduce_sum(z**2, 0) - tf.reduce_sum(
            tf.math.log(tf.linalg.diag_part(L))
        )
        return normal + tf.reduce_sum(dataset["label"] * tf.math.log(params["w"]), -1)

    samples = sgmcmc.sample(
        log_lik,
        {"x": x, "label": np.eye(3)[labels]},
        {"L": np.eye(2), "w": np.ones(3) / 3},
        bijectors={
            "L": tfp.bijectors.FillScaleTriL(),
            "w": tfp.bijectors.SoftmaxCentered(),
        },
        seed=1,
        verbose=False,
    )
    assert samples.report.warnings == []
    # A flat prior of the weights: Dirichlet(counts + 1).
    alpha = np.bincount(labels) + 1.0
    mean = alpha / alpha.sum()
    sd = np.sqrt(mean * (1 - mean) / (alpha.sum() + 1))
    assert (
        np.abs(samples["w"].mean((0, 1)) - mean) < bound(3) * sd / np.sqrt(400)
    ).all()
    L = samples["L"].astype(float)
    covariance = (L @ np.swapaxes(L, -1, -2)).mean((0, 1))
    np.testing.assert_allclose(covariance, x.T @ x / 800, rtol=0.05, atol=0.05)


class TestShown:
    """What is printed, shown and saved."""

    def test_nothing_is_printed(self, capfd: pytest.CaptureFixture[str]) -> None:
        POSTERIORS["normal mean, all rows"].sample(n_iters=100)
        assert capfd.readouterr() == ("", "")

    def test_progress_names_the_stages(self, capfd: pytest.CaptureFixture[str]) -> None:
        POSTERIORS["normal mean, all rows"].sample(n_iters=100, verbose=True)
        assert "underdamped" in capfd.readouterr().err

    def test_report_is_a_page(self) -> None:
        for name in ("counts, minibatches", "regression, all rows"):
            page = str(drawn(name).report)
            for part in (
                "Mode",
                "Chain",
                "Predicted",
                "Draws",
                "Seconds",
                "Warnings\n  none",
            ):
                assert part in page
            assert max(map(len, page.splitlines())) <= 100

    def test_repr_warns(self) -> None:
        samples = few_with_a_large_tolerance()
        assert samples.report.warnings
        assert all(warning in repr(samples) for warning in samples.report.warnings)
        assert "!" not in repr(drawn("regression, all rows"))

    def test_saved_and_loaded(self, tmp_path: Path) -> None:
        samples = drawn("counts, minibatches")
        samples.save(tmp_path / "draws.npz")
        loaded = sgmcmc.Samples.load(tmp_path / "draws.npz")
        assert dict(loaded.report) == dict(samples.report)
        assert str(loaded.report) == str(samples.report)
        np.testing.assert_array_equal(loaded["rate"], samples["rate"])


def with_one_row(
    log_density: Callable[..., tf.Tensor],
    params: dict[str, Any],
    max_seconds: float = 3,
) -> sgmcmc.Samples:
    """Sample a density as it stands."""
    return sgmcmc.sample(
        lambda params, dataset: log_density(params) * dataset["one"],
        {"one": np.ones(1)},
        params,
        max_seconds=max_seconds,
        seed=1,
        verbose=False,
    )


class TestNotTrusted:
    """Where constants cannot be chosen well the report says so."""

    @pytest.mark.slow
    def test_two_modes(self) -> None:
        def density(params: Tensors) -> tf.Tensor:
            t = params["t"]
            return tf.reduce_logsumexp(tf.stack([-((t - 2) ** 2), -((t + 2) ** 2)]))

        samples = with_one_row(density, {"t": 0.5})
        assert samples.report["Modes"]["found"] == 2
        # ½ N(2, ½) + ½ N(−2, ½), if the chains cross often enough; else that is said.
        right = abs(samples["t"].std() / np.sqrt(4.5) - 1) < 0.05
        assert right or any(
            "do not cross" in w or "rarely" in w for w in samples.report.warnings
        )

    @pytest.mark.slow
    def test_bent(self) -> None:
        def density(params: Tensors) -> tf.Tensor:
            a, b = params["a"], params["b"]
            return -0.5 * a**2 - 12.5 * (b - a**2) ** 2

        assert with_one_row(density, {"a": 0.5, "b": 0.0}).report.warnings

    @pytest.mark.slow
    def test_funnel(self) -> None:
        def density(params: Tensors) -> tf.Tensor:
            v, x = params["v"], params["x"]
            return -(v**2) / 18 - 0.5 * tf.reduce_sum(x**2) * tf.exp(-v) - 2.5 * v

        samples = with_one_row(density, {"v": 0.5, "x": np.zeros(5)})
        assert any("agree" in w or "effective" in w for w in samples.report.warnings)

    @pytest.mark.slow
    def test_no_mode(self) -> None:
        # Half of the time is for the mode, which busy cores take longer for.
        samples = with_one_row(
            lambda params: 50.0 * params["t"], {"t": 0.0}, max_seconds=16
        )
        assert "reason for NUTS" in samples.report["Dynamics"]
        assert "No mode of use was found" in repr(samples)

    def test_sds_that_float32_cannot_hold(self) -> None:
        x = np.random.default_rng(1).normal(1e4, 0.01, 500)

        def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
            return -0.5 * ((dataset["x"] - params["theta"]) / 0.01) ** 2

        given = {"n_iters": 1000, "seed": 1, "verbose": False}
        rounded = sgmcmc.sample(log_lik, {"x": x}, {"theta": 0.0}, **given)
        assert any(
            "the rounding error of float32" in w for w in rounded.report.warnings
        )
        exact = sgmcmc.sample(
            log_lik, {"x": x}, {"theta": 0.0}, dtype=tf.float64, **given
        )
        assert not any("rounding" in w for w in exact.report.warnings)
        assert exact["theta"].std() == pytest.approx(0.01 / np.sqrt(500), rel=0.1)

    @pytest.mark.slow
    def test_labels_that_a_feature_separates(self) -> None:
        """Without a prior there is no posterior; the chains wander off, and do not agree."""
        X = np.linspace(-1, 1, 40).astype(np.float32)

        def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
            logits = dataset["X"] * params["b"]
            return dataset["y"] * logits - tf.math.softplus(logits)

        samples = sgmcmc.sample(
            log_lik,
            {"X": X, "y": (X > 0).astype(float)},
            {"b": 0.0},
            max_seconds=3,
            seed=1,
            verbose=False,
        )
        assert any("agree" in warning for warning in samples.report.warnings)


def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
    """Return the log-likelihood of the calls that are refused."""
    return -0.5 * tf.reduce_sum((dataset["x"] - tf.reduce_sum(params["theta"])) ** 2)


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "gradient": ({"gradient": "minibach"}, ValueError, "`gradient` must be"),
    "minibatch_size": ({"minibatch_size": 51}, ValueError, "`minibatch_size`"),
    "preconditioner": (
        {"preconditioner": [-1.0]},
        ValueError,
        "`preconditioner` must hold",
    ),
    "gibbs": (
        {"gibbs": lambda params, dataset, seed: {}},
        ValueError,
        "`stepsize` must be given, and cannot be chosen here: latent variables",
    ),
    "a simplex": (
        {"dynamics": sgmcmc.dynamics.SCIR(1.0), "params": {"theta": [0.5, 0.5]}},
        ValueError,
        "`stepsize` must be given, and cannot be chosen here: SCIR moves points",
    ),
    "store": ({"store": "anywhere"}, ValueError, "`store`: a chain on disk"),
    "store_params": ({"store_params": False}, ValueError, "`store_params"),
    "friction by parameter": (
        {
            "dynamics": sgmcmc.dynamics.Underdamped({"theta": 0.5, "phi": 0.9}),
            "params": {"theta": np.zeros(2), "phi": 0.0},
            "log_prior": lambda params: -(params["phi"] ** 2),
        },
        ValueError,
        "`dynamics`: Underdamped does not move linearly, in the same way in every",
    ),
    "unknown dynamics": ({"dynamics": "sgldd"}, ValueError, "`dynamics`"),
    "tolerance zero": ({"tolerance": 0}, ValueError, "`tolerance` must be"),
    "tolerance one": ({"tolerance": 1.0}, ValueError, "`tolerance` must be below 1"),
    "tolerance words": ({"tolerance": "small"}, TypeError, "`tolerance`"),
    "ess": ({"ess": -5}, ValueError, "`ess` must be"),
    "ess infinite": ({"ess": np.inf}, ValueError, "`ess` must be"),
    "n_chains one": ({"n_chains": 1}, ValueError, "`n_chains` must be"),
    "n_chains none": ({"n_chains": None}, TypeError, "`n_chains`"),
    "n_iters": ({"n_iters": 10}, ValueError, "`n_iters` must be"),
    "n_iters a half": ({"n_iters": 100.5}, ValueError, "`n_iters`"),
    "burn_in": ({"burn_in": -1}, ValueError, "`burn_in` must be"),
    "max_seconds": ({"max_seconds": 0}, ValueError, "`max_seconds` must be"),
    "seed": ({"seed": -1}, ValueError, "`seed`"),
    "verbose": ({"verbose": "no"}, TypeError, "`verbose`"),
    "unknown keyword": ({"n_iter": 100}, TypeError, "n_iters"),
    "thin": ({"thin": 30, "n_iters": 200}, ValueError, "`thin` is 30, so that of"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything runs, by an error that names the argument."""
    monkeypatch.chdir(tmp_path)
    given, error, message = REFUSED[case]
    keywords = {"params": {"theta": 0.0}, "verbose": False, **given}
    with pytest.raises(error, match=message.replace("(", r"\(")):
        sgmcmc.sample(log_lik, {"x": np.ones(50)}, keywords.pop("params"), **keywords)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_rare_features() -> None:
    """10⁵ rows with features of prevalence 0.3 to 10⁻⁴: sds against the same model, all rows."""
    rng, N = np.random.default_rng(7), 100_000
    prevalence = np.geomspace(0.3, 1e-4, 100)
    X = np.column_stack([np.ones(N), rng.random((N, 100)) < prevalence]).astype(
        np.float32
    )
    beta = np.concatenate([[-1.0], rng.normal(0, 0.5, 100)])
    y = (rng.random(N) < 1 / (1 + np.exp(-X @ beta))).astype(np.float32)

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        logits = tf.linalg.matvec(dataset["X"], params["beta"])
        return -tf.nn.sigmoid_cross_entropy_with_logits(dataset["y"], logits)

    def log_prior(params: Tensors) -> tf.Tensor:
        return -0.5 * tf.reduce_sum(params["beta"] ** 2)

    samples = sgmcmc.sample(
        log_lik, {"X": X, "y": y}, {"beta": np.zeros(101)}, log_prior, ess=1000, seed=1,
        verbose=False,
    )  # fmt: skip
    print(f"\n{samples.report}")
    assert samples.report.warnings == []
    # The whole dataset at every step: no minibatch noise, BAOAB with a quarter of the stepsize.
    draws = samples["beta"].reshape(-1, 101).astype(float)
    reference = sgmcmc.sample(
        log_lik, {"X": X, "y": y}, {"beta": draws.mean(0)}, log_prior, dynamics="underdamped",
        gradient="full", minibatches="uniform", preconditioner=np.cov(draws.T), stepsize=0.25,
        n_chains=2, n_iters=3000, burn_in=200, seed=2, verbose=False,
    )["beta"].reshape(-1, 101).astype(float)  # fmt: skip
    effective = 3000 * 2 / 5
    error = np.sqrt(0.5 / effective + 0.5 / 1000)
    gap = np.abs(np.log(draws.std(0) / reference.std(0)))
    print(f"sd ratios {np.exp(-gap.max()):.3f} to {np.exp(gap.max()):.3f}")
    assert gap.max() < TOLERANCE + bound(101) * error
    z = (draws.mean(0) - reference.mean(0)) / reference.std(0)
    assert np.abs(z).max() < bound(101) * np.sqrt(1 / effective + 1 / 1000)
