"""HMC, MALA and NUTS: exact laws, the log posterior in pieces, and what is chosen."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.dynamics import HMC, MALA, NUTS
from sgmcmc.dynamics.hamiltonian import Motion, Point, log_weight
from sgmcmc.graphs.compiler import Compiled, FlatGraph
from sgmcmc.model.geometry import Preconditioner, Space
from sgmcmc.model.target import Target
from sgmcmc.model.whole_posterior import WholePosterior
from sgmcmc.plan.reports.warnings import divergence_warnings
from sgmcmc.plan.start import find_start, with_tried_model
from sgmcmc.plan.stopping import Goal
from sgmcmc.plan.warm_up import DualAveraging, spread_of
from sgmcmc.results.diagnostics import diagnose
from sgmcmc.results.store import Store
from sgmcmc.run.request import Request
from sgmcmc.run.sampler_origin import SamplerOrigin, origin_of
from tests import seams
from tests.ladder import (
    EXACT,
    Array,
    Case,
    check,
    compare,
    every,
    flat,
    gaussian,
    logistic,
)
from tests.run.stopping import StopError, same, short_blocks_of, stop_after

tfb = tfp.bijectors
BOTH = pytest.mark.parametrize("function", [sgmcmc.hmc, sgmcmc.nuts])
CHAINS = 40


def by_parts(problem: Any, **given: Any) -> sgmcmc.Samples:
    """Run exact dynamics with constants on a problem."""
    arguments = {
        "gradient": "full",
        "minibatches": "uniform",
        "preconditioner": "none",
        "burn_in": 0,
        "seed": 1,
        "verbose": False,
        "dtype": tf.float64,
        **given,
    }
    start = problem.split(problem.start)
    return sgmcmc.sample(
        problem.log_lik, problem.dataset, start, problem.log_prior, **arguments
    )


# Exact laws.


@pytest.mark.parametrize(
    "d",
    [
        pytest.param(1, marks=pytest.mark.slow),
        3,
        pytest.param(10, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("dynamics", "stepsize"),
    [
        ("nuts", 0.6),
        (HMC(n_leapfrog=3), 0.9),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (HMC(n_leapfrog=1, jitter=0.0), 1.3),
                (HMC(length=1.5), 0.5),
                (HMC(length=2.0, spread=0.9), 0.5),
                (HMC(n_leapfrog=2, frequency=1.0), 1.6),
                (NUTS(frequency=0.7), 0.9),
                (MALA(), 1.3),
                (NUTS(max_tree_depth=2), 1.2),
                (NUTS(), 0.6),
            )
        ),
    ],
    ids=str,
)
def test_stationary_mean_and_covariance_are_those_of_the_posterior(
    dynamics: Any, stepsize: float, d: int
) -> None:
    """With large steps, of which many are refused; NUTS by its own function."""
    problem = gaussian(d, 50)
    given: dict[str, Any] = {
        "stepsize": stepsize,
        "preconditioner": np.atleast_2d(problem.covariance) * 1.2,
        "n_chains": CHAINS,
        "n_iters": 200 if dynamics == "nuts" else 600,
        "burn_in": 50,
    }
    if dynamics == "nuts":
        model = (
            problem.log_lik,
            problem.dataset,
            problem.split(problem.start),
            problem.log_prior,
        )
        samples = sgmcmc.nuts(*model, seed=1, verbose=False, **given)
        assert samples.report["method"] == "nuts"
    else:
        samples = by_parts(problem, dynamics=dynamics, **given)
    check(compare(flat(samples, 2), problem.mean, problem.covariance), 0.05)


def test_a_normal_posterior_is_moved_through_exactly() -> None:
    """With frequency one: no error of energy in a long step, and any step can be undone."""
    rng = np.random.default_rng(1)
    start, z, velocity = tf.constant(rng.normal(size=(3, 4)))

    def log_post(z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        zeta = start + z
        return -tf.reduce_sum(zeta**2) / 2 - tf.reduce_sum(zeta**4), -zeta - 4 * zeta**3

    def of_normal(z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return -tf.reduce_sum((start + z) ** 2) / 2, -(start + z)

    for frequency, target in ((1.0, of_normal), (0.6, log_post), (0.0, log_post)):
        motion = Motion(target, start, tf.constant(frequency, tf.float64))
        here = Point(z, *target(z))
        there, turned = motion.step(here, velocity, tf.constant(0.3, tf.float64))
        back, again = motion.step(there, turned, tf.constant(-0.3, tf.float64))
        np.testing.assert_allclose(back.z, z, atol=1e-12)
        np.testing.assert_allclose(again, velocity, atol=1e-12)
        if target is of_normal:
            far, fast = motion.step(here, velocity, tf.constant(1.9, tf.float64))
            np.testing.assert_allclose(
                log_weight(far, fast), log_weight(here, velocity)
            )
            angle = np.cos(1.9) * (start + z) + np.sin(1.9) * velocity
            np.testing.assert_allclose(start + far.z, angle, rtol=1e-12)


def test_lengths_of_trajectories_spread_evenly() -> None:
    """As many gradients as ``length`` requires on average, the same in all chains."""
    samples = by_parts(
        PROBLEM, dynamics=HMC(length=4.0, spread=0.5), stepsize=0.1, n_iters=50, n_chains=2,
        jit_compile=False,
    )  # fmt: skip
    shares = np.arange(1, 51) * (np.sqrt(5.0) - 1.0) / 2.0 % 1.0
    steps = np.ceil(40 * (0.5 + shares) - 1e-4).mean()
    assert steps == pytest.approx(40.5, abs=1.0)
    for facts in origin_of(samples).facts:
        assert facts["gradients of a move"] == pytest.approx(steps)


def test_mala_makes_the_moves_of_one_leapfrog_step() -> None:
    """Bit for bit; and its moves that were accepted are Langevin steps by its own formula."""
    problem = gaussian(3, 50)
    given: dict[str, Any] = {
        "stepsize": 0.15,
        "n_iters": 200,
        "n_chains": 2,
        "jit_compile": False,
    }
    one = by_parts(problem, dynamics="mala", **given)
    other = by_parts(problem, dynamics=HMC(n_leapfrog=1, jitter=0.0), **given)
    np.testing.assert_array_equal(flat(one, 2), flat(other, 2))


@pytest.mark.slow
def test_mala_accepts_by_the_ratio_of_its_densities() -> None:
    """Means of the acceptance rate, by its formula at exact draws of a normal posterior."""
    problem, epsilon = gaussian(3, 50), 0.3
    precision = np.linalg.inv(np.atleast_2d(problem.covariance))
    rng = np.random.default_rng(3)
    x = rng.multivariate_normal(problem.mean, problem.covariance, 200_000)
    drift = 0.5 * epsilon**2 * precision
    y = x - (x - problem.mean) @ drift + epsilon * rng.normal(size=x.shape)

    def log_ratio(a: Array, b: Array) -> Array:
        """Return log p(a) + log q(b | a), up to a constant."""
        from_mean = a - problem.mean
        step = b - a + from_mean @ drift
        quadratic = np.einsum("ni,ij,nj->n", from_mean, precision, from_mean)
        return -0.5 * quadratic - 0.5 * (step**2).sum(1) / epsilon**2

    expected = np.minimum(1.0, np.exp(log_ratio(y, x) - log_ratio(x, y)))
    samples = by_parts(
        problem,
        dynamics="mala",
        stepsize=epsilon,
        n_chains=CHAINS,
        n_iters=1000,
        burn_in=50,
    )
    draws = flat(samples, 2)
    moved = (np.diff(draws, axis=1) != 0).any(-1).mean(1)
    error = np.hypot(moved.std() / np.sqrt(CHAINS), expected.std() / np.sqrt(len(x)))
    assert abs(moved.mean() - expected.mean()) < 4.5 * error


@pytest.mark.slow
@pytest.mark.parametrize("dynamics", [HMC(n_leapfrog=4), NUTS()], ids=str)
def test_float32_has_the_same_law(dynamics: Any) -> None:
    problem = gaussian(3, 50)
    samples = by_parts(
        problem,
        dynamics=dynamics,
        stepsize=0.6,
        preconditioner=problem.covariance,
        n_chains=CHAINS,
        n_iters=600,
        burn_in=50,
        dtype=tf.float32,
    )
    check(compare(flat(samples, 2), problem.mean, problem.covariance), 0.05)


@pytest.mark.slow
@BOTH
def test_a_bijected_parameter_has_its_law(function: Any) -> None:
    """x_i ~ Exponential(rate) with a Gamma(2, 1) prior: rate | x ~ Gamma(2 + N, 1 + Σx)."""
    x = np.random.default_rng(1).exponential(0.5, 6)
    samples = function(
        lambda params, data: tf.math.log(params["rate"]) - params["rate"] * data["x"],
        {"x": x},
        {"rate": 1.0},
        lambda params: tf.math.log(params["rate"]) - params["rate"],
        bijectors={"rate": tfb.Exp()},
        n_iters=2000,
        verbose=False,
        seed=1,
    )
    rate, shape = samples["rate"], 2 + len(x)
    mean, error = shape / (1 + x.sum()), np.sqrt(shape) / (1 + x.sum()) / np.sqrt(3000)
    assert abs(rate.mean() - mean) < 5 * error
    assert abs(rate.std() / (np.sqrt(shape) / (1 + x.sum())) - 1) < 5 * 0.03


# The log posterior in pieces.


def target_of(problem: Any, dtype: tf.DType = tf.float64) -> Target:
    """Return the target of a problem, with a preconditioner and a bijector."""
    space = Space(problem.shapes)
    d = space.layout.size
    root = np.tril(np.random.default_rng(2).normal(size=(d, d))) + 3 * np.eye(d)
    space = space.preconditioned(Preconditioner(root, np.ones(d)))
    return Target(problem.log_lik, problem.log_prior, space, dtype)


@pytest.mark.some(4)
@pytest.mark.parametrize("rows", [1, 7, 20, 41, 82, 83, 1000])
@pytest.mark.parametrize("jit_compile", [True, False])
def test_pieces_add_up_to_the_whole(rows: int, jit_compile: bool) -> None:
    problem = logistic(3, 82)
    target = target_of(problem)
    columns = {name: tf.constant(a) for name, a in problem.dataset.items()}
    zeta = tf.constant([0.1, -0.2, 0.05], tf.float64)
    posterior = WholePosterior(target, columns, rows)
    value, gradient = tf.function(posterior, jit_compile=jit_compile)(zeta)
    with tf.GradientTape() as tape:
        tape.watch(zeta)
        params = target.space.constrain(zeta)
        whole = problem.log_lik(params, columns) + problem.log_prior(params)
    expected = tape.gradient(whole, zeta)
    np.testing.assert_allclose(value, whole, rtol=1e-12)
    np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize(
    ("added", "dtype", "wide", "pieces"),
    [
        (False, tf.float32, 1, False),
        (True, tf.float32, 1, True),  # its sum would be in float32
        (True, tf.float64, 1, False),
        (
            False,
            tf.float32,
            10_000,
            True,
        ),  # more results than there should be at a time
    ],
)
def test_one_piece_where_that_is_precise_and_takes_little_memory(
    added: bool, dtype: tf.DType, wide: int, pieces: bool
) -> None:
    seen = []

    def log_lik(params: Any, data: Any) -> tf.Tensor:
        seen.append(data["x"].shape[0])
        terms = -0.5 * tf.reduce_sum(
            (data["x"][:, None] - params["theta"] * tf.ones([wide], dtype)) ** 2, 1
        )
        return tf.reduce_sum(terms) if added else terms

    x = tf.ones([20_000], dtype)
    target = Target(log_lik, None, Space({"theta": ()}), dtype)
    tf.function(WholePosterior(target, {"x": x})).get_concrete_function(
        tf.zeros([1], dtype)
    )
    assert (set(seen) != {20_000}) == pieces


def test_terms_are_added_up_in_double_precision() -> None:
    """Differences at a log posterior of 7 × 10⁵, of which float32 knows 0.06, are right to 0.01."""
    N = 300_000
    x = np.random.default_rng(1).normal(size=N).astype(np.float32) + 2.0
    space = Space({"theta": ()})

    def log_lik(params: Any, data: Any) -> tf.Tensor:
        return -0.5 * tf.reduce_sum((data["x"] - params["theta"]) ** 2 + 2.0)

    posterior = WholePosterior(
        Target(log_lik, None, space, tf.float32), {"x": tf.constant(x)}
    )
    mode = x.mean(dtype=float)
    thetas = (mode + np.linspace(-1.0, 1.0, 9) / np.sqrt(N)).astype(np.float32)
    graph = tf.function(posterior)
    values = [float(graph(tf.constant([theta]))[0]) for theta in thetas]
    exact = [-0.5 * N * (float(theta) - mode) ** 2 for theta in thetas]
    assert abs(values[0]) > 4e5
    np.testing.assert_allclose(
        np.array(values) - values[4], np.array(exact) - exact[4], atol=0.01
    )


def test_what_is_not_a_number_is_refused_by_the_chain() -> None:
    """log θ is not a number below zero, where the posterior has no mass."""
    samples = sgmcmc.sample(
        lambda params, data: tf.math.log(params["theta"]) - params["theta"] * data["x"],
        {"x": np.ones(2)}, {"theta": 1.0}, dynamics="hmc", gradient="full", minibatches="uniform",
        preconditioner="none", stepsize=0.5, n_iters=2000, burn_in=0, n_chains=20, seed=1,
        verbose=False, dtype=tf.float64,
    )  # fmt: skip
    assert (samples["theta"] > 0).all()
    # Gamma(3, 2)
    assert abs(samples["theta"].mean() - 1.5) < 0.05


def test_a_log_likelihood_that_is_no_sum_is_refused_where_it_is_taken_in_pieces() -> (
    None
):
    x = np.zeros(20_000)

    def mean(params: Any, data: Any) -> tf.Tensor:
        return -tf.reduce_mean((data["x"] - params["theta"]) ** 2)

    with pytest.raises(
        ValueError, match=r"`log_lik` must be a sum over the observations"
    ):
        sgmcmc.hmc(mean, {"x": x}, {"theta": 1.0}, verbose=False, seed=1, stepsize=0.1,
                   preconditioner="none")  # fmt: skip


# The engine.


@pytest.mark.some(1)
@every(EXACT)
def test_step_by_step_is_one_call(case: Case) -> None:
    problem = logistic(3, 30)
    arguments: dict[str, Any] = {
        "n_chains": 2,
        "seed": 1,
        "jit_compile": False,
        **case.tuning,
    }
    model = problem.log_lik, problem.dataset, problem.split(problem.start), 0.2
    whole = case.function(*model, n_iters=30, verbose=False, **arguments)
    sampler = case.setup(*model, **arguments)
    session = sgmcmc.init_sess(sampler, verbose=False)
    for i in range(1, 31):
        sgmcmc.sgmcmc_step(sampler, session)
        if i % 10 == 0:
            for name, value in sgmcmc.get_params(sampler, session).items():
                np.testing.assert_array_equal(value, whole[name][:, i - 1])


@pytest.mark.some(1)
@every(EXACT)
def test_a_stopped_run_goes_on_to_the_bit(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_blocks_of(2**10, monkeypatch)
    problem = logistic(3, 30)

    def run(**given: Any) -> sgmcmc.Samples:
        return case.run(
            problem, 0.2, 30, n_iters=60, n_chains=2, store_gradients=True, jit_compile=False,
            **given,
        )  # fmt: skip

    expected = run()
    undo = stop_after(5, monkeypatch)
    with pytest.raises(StopError):
        run(store=tmp_path / "chain")
    undo()
    same(run(store=tmp_path / "chain"), expected)


def test_log_posterior_estimates_of_exact_dynamics() -> None:
    """They are the log posterior itself."""
    problem = gaussian(1, 20)
    samples = by_parts(problem, dynamics="hmc", stepsize=0.1, n_iters=300, n_chains=None,
                       jit_compile=False)  # fmt: skip
    assert samples.log_post.iterations.tolist() == list(range(2, 301, 2))
    for iteration, value in zip(*samples.log_post, strict=True):
        params = {"theta": tf.constant(samples["theta"][iteration - 1])}
        data = {"x": tf.constant(problem.dataset["x"])}
        expected = problem.log_lik(params, data) + problem.log_prior(params)
        np.testing.assert_allclose(value, float(expected), rtol=1e-10)


# Without constants.


def posterior_of(function: Any, **given: Any) -> sgmcmc.Samples:
    """Sample a logistic regression on raw scales."""
    rng = np.random.default_rng(4)
    X = np.column_stack(
        [np.ones(400), rng.normal(50, 12, 400), rng.lognormal(10, 0.8, 400)]
    )
    y = (rng.random(400) < 1 / (1 + np.exp(-X @ [-4.0, 0.05, 2e-5]))).astype(float)

    def log_lik(params: Any, data: Any) -> tf.Tensor:
        logits = tf.linalg.matvec(data["X"], params["beta"])
        return -tf.nn.sigmoid_cross_entropy_with_logits(data["y"], logits)

    arguments = {"verbose": False, "seed": 1, **given}
    return function(
        log_lik,
        {"X": X, "y": y},
        {"beta": np.zeros(3)},
        lambda params: -0.5 * tf.reduce_sum((params["beta"] / 10) ** 2),
        **arguments,
    )


def moments(samples: sgmcmc.Samples) -> tuple[Array, Array]:
    draws = samples["beta"].reshape(-1, 3)
    return draws.mean(0), draws.std(0)


@functools.cache
def on_raw_scales(name: str) -> sgmcmc.Samples:
    """Return the draws of a function without constants; only trees are worth compiling."""
    function = getattr(sgmcmc, name)
    # At an effective size of 400 chance alone takes an R-hat beyond 1.01 now and then.
    compiled = None if name == "nuts" else False
    return posterior_of(function, ess=1000, jit_compile=compiled)


@pytest.mark.slow
def test_all_agree_on_raw_scales() -> None:
    mean, sd = moments(on_raw_scales("hmc"))
    for name in ("nuts", "mala"):
        other, another = moments(on_raw_scales(name))
        assert (np.abs(mean - other) < 5 * sd * np.sqrt(2 / 400)).all()
        assert (np.abs(sd / another - 1) < 5 * np.sqrt(1 / 400)).all()


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["hmc", "mala", "nuts"])
def test_the_report_says_what_was_chosen_and_reached(name: str) -> None:
    report = on_raw_scales(name).report
    assert report is not None and report.warnings == []
    assert report["method"] == name and report["Mode"]["found"]
    # Beyond the 50 iterations of the warm-up the stepsize is not adapted.
    low = 0.4 if name == "mala" else 0.6
    assert all(low < rate < 1.0 for rate in report["Chain"]["acceptance rate"])
    assert report["Chain"]["divergences"] == 0
    assert 1 <= report["Chain"]["gradients per trajectory"] < 20
    assert (
        min(report["Draws"]["ESS, bulk"]) > 400 and max(report["Draws"]["R-hat"]) < 1.01
    )
    assert "acceptance rate" in str(report)
    assert on_raw_scales(name)["beta"].dtype == np.float64


def test_warm_up_and_chain_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same graph, whatever burn-in and coordinates are."""
    names: list[str] = []

    def compiled(function: Any, *arguments: Any) -> Compiled:
        graph = FlatGraph(function, *arguments, jit_compile=True)
        names.append(graph._graph.name)
        return Compiled(graph)

    monkeypatch.setattr(seams.BY_XLA, compiled)
    posterior_of(sgmcmc.mala, n_iters=100, burn_in=7)
    assert len(names) == 2 and len(set(names)) == 1


@pytest.mark.slow
def test_same_bits_twice() -> None:
    again = posterior_of(sgmcmc.hmc, jit_compile=False)
    np.testing.assert_array_equal(again["beta"], on_raw_scales("hmc")["beta"])


@pytest.mark.slow
def test_sample_takes_them_by_name_with_constants() -> None:
    """The constants that were chosen give a chain of the same law."""
    settings = on_raw_scales("hmc").settings
    again = posterior_of(
        sgmcmc.sample, dynamics=HMC(length=settings["length"]), gradient="full",
        minibatches="uniform", preconditioner=np.array(settings["preconditioner"]),
        stepsize=settings["stepsize"], n_iters=500, burn_in=100, dtype=tf.float64,
    )  # fmt: skip
    mean, sd = moments(on_raw_scales("hmc"))
    assert (np.abs(moments(again)[0] - mean) < 5 * sd * np.sqrt(2 / 400)).all()


@pytest.mark.slow
def test_a_store_with_chosen_constants_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was chosen is read again, not chosen again, so that the bits are the same."""
    short_blocks_of(2**17, monkeypatch)
    expected = posterior_of(
        sgmcmc.hmc, n_iters=100, store=tmp_path / "whole", seed=None
    )
    seed = expected.settings["seed"]
    with monkeypatch.context() as patch:
        save = Store.save_warm_up

        def saved(self: Store, found: Any) -> None:
            save(self, found)
            stop_after(2, patch)

        patch.setattr(seams.SAVE_WARM_UP, saved)
        with pytest.raises(StopError):
            posterior_of(sgmcmc.hmc, n_iters=100, store=tmp_path / "chain", seed=seed)
    assert (tmp_path / "chain" / "warm-up.npz").exists()
    monkeypatch.setattr(seams.FIND_START, None)
    resumed = posterior_of(sgmcmc.hmc, n_iters=100, store=tmp_path / "chain", seed=None)
    same(resumed, expected)
    opened = sgmcmc.Samples.open(tmp_path / "chain")
    np.testing.assert_array_equal(opened["beta"], expected["beta"])
    with pytest.raises(ValueError, match=r"`store`.*another chain.*dynamics"):
        posterior_of(
            sgmcmc.hmc, n_iters=100, store=tmp_path / "chain", seed=None, n_leapfrog=4
        )


GIVEN: tuple[dict[str, Any], ...] = (
    {"preconditioner": "diagonal"},
    {"preconditioner": "none", "stepsize": 0.2},
    {"preconditioner": "none"},
    {"stepsize": 0.5},
    {"stepsize": np.array([0.2, 0.3, 0.25]), "preconditioner": "none"},
    {"preconditioner": [0.1, 0.1, 0.1]},
    {"params": [{"beta": [0.0, 0.0], "bias": b} for b in (0.0, 0.5, -0.5, 1.0)]},
)


@pytest.mark.slow
@pytest.mark.parametrize("given", GIVEN, ids=str)
@BOTH
def test_some_constants_may_be_given(function: Any, given: dict[str, Any]) -> None:
    problem = logistic(3, 100)
    given = dict(given)
    start = given.pop("params", problem.split(problem.start))
    samples = function(
        problem.log_lik, problem.dataset, start, problem.log_prior, n_iters=300, ess=100, seed=1,
        verbose=False, **given,
    )  # fmt: skip
    assert samples["beta"].shape == (4, 300, 2)
    assert max(samples.report["Draws"]["R-hat"]) < 1.05
    if "stepsize" in given:
        np.testing.assert_array_equal(samples.settings["stepsize"], given["stepsize"])


def groups(number: int = 30, apart: float = 0.5) -> tuple[Any, ...]:
    """Return a hierarchical model, whose density has no bound where all groups are equal."""
    rng = np.random.default_rng(3)
    g = np.repeat(np.arange(number), 5)
    y = rng.normal(0, apart, number)[g] + rng.normal(size=len(g))

    def log_lik(params: Any, data: Any) -> tf.Tensor:
        mean = params["m"] + tf.gather(params["a"], tf.cast(data["g"], tf.int32))
        return -0.5 * (data["y"] - mean) ** 2

    def log_prior(params: Any) -> tf.Tensor:
        a, t = params["a"] / params["t"], params["t"]
        return (
            -0.5 * tf.reduce_sum(a**2)
            - number * tf.math.log(t)
            - 0.5 * (t**2 + params["m"] ** 2)
        )

    params = {"m": 0.0, "t": 1.0, "a": np.zeros(number)}
    return log_lik, {"y": y, "g": g.astype(float)}, params, log_prior


def test_the_neck_of_a_funnel_is_no_mode() -> None:
    log_lik, data, params, log_prior = groups(number=3, apart=0.0)
    keywords = {"bijectors": {"t": tfb.Exp()}, "dtype": tf.float64, "n_chains": 4}
    request = Request(
        "nuts",
        "nuts",
        log_lik,
        data,
        params,
        log_prior,
        NUTS(),
        None,
        None,
        None,
        1,
        keywords,
    )
    goal = Goal(0.05, 400, 4, None, None, None, verbose=False)
    start = find_start(with_tried_model(request), None, goal)
    assert start.mode is None and "No mode" in start.warnings[0]
    assert start.params["t"] == 1.0


@pytest.mark.parametrize(
    ("scale", "said"), [(1.5, "sd[1] comes near zero"), (0.1, "is m.")]
)
def test_a_warning_of_divergences_names_a_parameter(scale: float, said: str) -> None:
    """A scale of which one draw in a hundred is near zero, or the slowest coordinate."""

    class Draws(dict[str, Array]):
        settings = {"n_chains": 4, "stepsize": 0.4}

    rng = np.random.default_rng(1)
    sds = np.exp([0.1, scale] * rng.normal(size=(4, 500, 2)))
    draws = Draws(sd=sds, m=np.repeat(rng.normal(size=(4, 50)), 10, axis=1))
    facts = [{"moves": 500.0, "divergences": diverged} for diverged in (1.0, 2.0, 0, 0)]
    (text,) = divergence_warnings(facts, draws, diagnose(draws))
    assert text.startswith("3 of 2000 trajectories diverged")
    assert "a smaller `stepsize`, such as 0.2, or" in text
    assert said in text


@pytest.mark.slow
@pytest.mark.parametrize("narrow", [1e-12, 0.0])
def test_a_hierarchical_model_from_its_funnel(
    narrow: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``narrow`` at zero the neck passes for a mode, and the warm-up finds out.

    By quadrature over t, with m and a integrated out: E t = 0.58, sd 0.13.
    """
    monkeypatch.setattr(seams.START_NARROW, narrow)
    log_lik, data, params, log_prior = groups()
    samples = sgmcmc.nuts(
        log_lik,
        data,
        params,
        log_prior,
        bijectors={"t": tfb.Exp()},
        seed=1,
        verbose=False,
    )
    mean, sd = _group_sd(data)
    assert abs(samples["t"].mean() - mean) < 5 * sd / np.sqrt(400)
    assert abs(samples["t"].std() / sd - 1) < 5 / np.sqrt(400)
    assert len(samples.report.warnings) == 1 and "No mode" in samples.report.warnings[0]


def _group_sd(data: dict[str, Array]) -> tuple[float, float]:
    """Return mean and sd of t: group means are N(0, 1/n + t² + 1·) given t, m integrated out."""
    means = np.array([data["y"][data["g"] == g].mean() for g in np.unique(data["g"])])
    n, k = len(data["y"]) // len(means), len(means)
    t = np.linspace(1e-4, 4, 4000)
    v = 1 / n + t**2
    precision = 1 + k / v
    log = (
        -0.5 * k * np.log(v) - 0.5 * ((means[:, None] ** 2).sum(0) / v)
        + 0.5 * (means.sum() / v) ** 2 / precision - 0.5 * np.log(precision) - 0.5 * t**2
    )  # fmt: skip
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    mean = float((weight * t).sum())
    return mean, float(np.sqrt((weight * (t - mean) ** 2).sum()))


# The parts of the warm-up.


def test_dual_averaging_finds_the_stepsize() -> None:
    averaging = DualAveraging(1.0, 0.8)
    rng = np.random.default_rng(1)
    for _ in range(400):
        averaging.see(float(np.exp(-(averaging.stepsize**2)) + rng.normal(0, 0.05)))
    assert abs(np.exp(-(averaging.settled**2)) - 0.8) < 0.02


def test_a_warm_up_that_ends_at_once_keeps_the_first_stepsize() -> None:
    """One acceptance of 1 calls for ten times the stepsize, at which chains would stay in place."""
    averaging = DualAveraging(0.1, 0.8)
    averaging.see(1.0)
    assert averaging.stepsize > 1.0 and averaging.settled == 0.1


@pytest.mark.parametrize("df", [3.0, pytest.param(np.inf, marks=pytest.mark.slow)])
def test_rotations_of_nuts_are_less_than_a_quarter_turn(df: float) -> None:
    """Of a posterior near normal, whose energy is almost kept whatever the stepsize.

    After a rotation by φ squares have the correlation cos² φ: 0.95 for the stepsize that the
    acceptance rate gives, of 52 turns and a half.
    """
    x = np.random.default_rng(1).normal(size=(800, 2))

    def log_lik(
        params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        square = tf.reduce_sum((dataset["x"] - params["theta"]) ** 2, 1)
        if np.isinf(df):
            return -0.5 * square
        return -0.5 * (df + 2) * tf.math.log1p(square / df)

    samples = sgmcmc.nuts(
        log_lik, {"x": x}, {"theta": np.zeros(2)}, n_iters=500, seed=1, verbose=False
    )
    frequency = samples.settings["dynamics"]["frequency"]
    assert 0.9 < frequency * samples.settings["stepsize"] < np.pi / 2
    theta = samples["theta"]
    squares = (theta - theta.mean((0, 1))) ** 2
    square = squares - squares.mean((0, 1))
    correlation = (square[:, 1:] * square[:, :-1]).mean((0, 1)) / square.var((0, 1))
    assert (np.abs(correlation) < 0.6).all()


@pytest.mark.slow
def test_trees_do_not_go_round_in_circles() -> None:
    """On N(0, I), where at a stepsize of 0.9 some trajectories take all the steps they may."""
    d, nuts = 10, NUTS()
    assert nuts.suitable(3.0, 0.0) == 3.0 and nuts.suitable(3.0, 0.5) == 2.8
    for stepsize in (1.2, 0.95, 0.78, 0.42, 0.3, 0.2):
        samples = sgmcmc.sample(
            lambda params, data: -0.5 * params["z"] ** 2 * data["one"][0], {"one": [1.0] * d},
            {"z": np.zeros(d)}, dynamics=nuts, gradient="full", minibatches="uniform",
            preconditioner="none", stepsize=stepsize, n_iters=200, burn_in=0,
            n_chains=4, seed=1, verbose=False, dtype=tf.float64,
        )  # fmt: skip
        origin = samples.origin
        assert isinstance(origin, SamplerOrigin)
        assert max(facts["gradients of a move"] for facts in origin.facts) < 33
        assert sum(facts["moves cut short"] for facts in origin.facts) == 0


@pytest.mark.parametrize("dense", [True, False])
def test_few_draws_do_not_change_coordinates(dense: bool) -> None:
    draws = np.random.default_rng(1).normal(size=(100, 55))
    _, widest, narrowest = spread_of(draws, dense)
    assert widest < 2.5 and narrowest > 0.4
    _, widest, _ = spread_of(draws * np.where(np.arange(55) == 7, 10.0, 1.0), dense)
    assert widest > 2.5


# What is refused.

PROBLEM = logistic(3, 30)


@BOTH
@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"minibatches": "uniform"}, TypeError, "`minibatches`"),
        ({"replace": True}, TypeError, "`replace`"),
        ({"gibbs": lambda *_: None}, TypeError, "`gibbs`"),
        ({"minibatch_size": 5}, TypeError, "`minibatch_size`"),
        ({"stepsize": -1.0, "preconditioner": "none"}, ValueError, "`stepsize`"),
        ({"preconditioner": "full"}, ValueError, "`preconditioner`"),
        ({"preconditioner": [1.0]}, ValueError, "`preconditioner`"),
        ({"n_chains": 1}, ValueError, "`n_chains`"),
        ({"n_iters": 10}, ValueError, "`n_iters`"),
        ({"ess": 0}, ValueError, "`ess`"),
        ({"store": "somewhere"}, ValueError, "`store`.*`n_iters`"),
        ({"store_params": ["beta"]}, ValueError, "`store_params`"),
        ({"seed": -1}, ValueError, "`seed`"),
        ({"dtype": tf.int32}, ValueError, "`dtype`"),
        ({"thin": 0}, ValueError, "`thin`"),
        ({"verbose": 1}, TypeError, "`verbose`"),
    ],
)
def test_wrong_arguments_are_refused(
    function: Any, given: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        function(
            PROBLEM.log_lik,
            PROBLEM.dataset,
            PROBLEM.split(PROBLEM.start),
            PROBLEM.log_prior,
            **{"verbose": False, "seed": 1, **given},
        )


@pytest.mark.parametrize(
    ("function", "given", "error", "says"),
    [
        (sgmcmc.hmc, {"n_leapfrog": 0}, ValueError, "`n_leapfrog`"),
        (sgmcmc.hmc, {"max_tree_depth": 5}, TypeError, "`max_tree_depth`"),
        (sgmcmc.nuts, {"max_tree_depth": 0}, ValueError, "`max_tree_depth`"),
        (sgmcmc.nuts, {"n_leapfrog": 5}, TypeError, "`n_leapfrog`"),
    ],
)
def test_wrong_constants_are_refused(
    function: Any, given: dict[str, Any], error: type[Exception], says: str
) -> None:
    test_wrong_arguments_are_refused(function, given, error, says)


@pytest.mark.parametrize("gradient", ["minibatch", "svrg", "saga"])
@pytest.mark.parametrize("dynamics", ["hmc", "nuts"])
def test_estimates_are_refused(gradient: str, dynamics: str) -> None:
    with pytest.raises(ValueError, match=r"`gradient`.*whole dataset.*'full'"):
        by_parts(PROBLEM, dynamics=dynamics, gradient=gradient, minibatch_size=5, stepsize=0.1,
                 n_iters=10)  # fmt: skip


@pytest.mark.parametrize(
    "dynamics",
    [
        HMC(n_leapfrog=3, length=1.0), HMC(jitter=1.0), HMC(length=-1.0),
        HMC(length=1.0, spread=1.0), HMC(n_leapfrog=3, spread=0.5),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_constants_of_hmc_are_refused(dynamics: HMC) -> None:
    with pytest.raises(ValueError, match="`n_leapfrog`|`jitter`|`length`|`spread`"):
        by_parts(PROBLEM, dynamics=dynamics, stepsize=0.1, n_iters=10)


def test_latent_variables_are_refused() -> None:
    with pytest.raises(ValueError, match="`gibbs`"):
        by_parts(
            PROBLEM,
            dynamics="hmc",
            stepsize=0.1,
            n_iters=10,
            gibbs=lambda params, data, seed: data,
        )


@BOTH
def test_signature_and_help_name_every_argument(function: Any) -> None:
    parameters = inspect.signature(function).parameters
    for name in (
        "ess",
        "thin",
        "store",
        "bijectors",
        "dtype",
        "reductions",
        "max_seconds",
    ):
        assert name in parameters and f"\n    {name}: " in function.__doc__
    assert not {"minibatches", "replace", "gibbs", "latents"} & set(parameters)
    assert parameters["dtype"].default == tf.float64
