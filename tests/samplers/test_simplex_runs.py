"""Runs of SCIR and SGRLD: step by step, thinned, in chains, on disk; what comes back; refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc import DivergenceError, Samples, get_params, init_sess, sgmcmc_step
from tests import seams
from tests.ladder import BY_NAME, POINTS
from tests.run.stopping import StopError, same, short_blocks_of, stop_after

METHODS = tuple(case.name for case in POINTS)
Tensors = dict[str, tf.Tensor]


def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
    """Return the log-likelihood of a mixture given the components, and of their means."""
    mixed = (
        tf.math.log(params["omega"]) - 0.5 * (dataset["x"][:, None] - params["mu"]) ** 2
    )
    chosen = tf.one_hot(dataset["z"], 3, dtype=mixed.dtype)
    return tf.reduce_sum(chosen * mixed)


def log_prior(params: Tensors) -> tf.Tensor:
    return -0.5 * tf.reduce_sum(params["mu"] ** 2)


def gibbs(params: Tensors, minibatch: Tensors, seed: tf.Tensor) -> Tensors:
    """Move the component of each observation by a Metropolis step."""
    logits = (
        tf.math.log(params["omega"])
        - 0.5 * (minibatch["x"][:, None] - params["mu"]) ** 2
    )
    draws = tf.random.stateless_uniform(
        [2, minibatch["x"].shape[0]], seed, dtype=logits.dtype
    )
    proposal = tf.cast(3 * draws[0], tf.int32)
    ratio = tf.gather(logits, proposal, batch_dims=1) - tf.gather(
        logits, minibatch["z"], batch_dims=1
    )
    accepted = tf.math.log(draws[1]) < ratio
    return {**minibatch, "z": tf.where(accepted, proposal, minibatch["z"])}


def arguments(**given: Any) -> dict[str, Any]:
    x = np.random.default_rng(1).normal(np.repeat([-3.0, 0.0, 3.0], [20, 12, 8]))
    return {
        "log_lik": log_lik,
        "dataset": {"x": x},
        "params": {"omega": np.full(3, 1 / 3), "mu": [-2.0, 0.0, 2.0]},
        "stepsize": {"omega": 0.05, "mu": 0.01},
        "log_prior": log_prior,
        "minibatch_size": 10,
        "seed": 1,
        "jit_compile": False,
        "alpha": {"omega": 0.5},
        "gibbs": gibbs,
        "latents": {"z": np.zeros(40, np.int32)},
        **given,
    }


def short_call(method: str, **given: Any) -> Samples:
    return BY_NAME[method].function(
        **arguments(
            **{"n_iters": 40, "verbose": False, "store_unnormalized": True, **given}
        )
    )


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks a few iterations long, and save after each."""
    short_blocks_of(2**9, monkeypatch)


@pytest.mark.some(1)
@pytest.mark.parametrize("method", METHODS)
def test_step_by_step_thinned_and_in_chains(
    method: str, tmp_path: Path, short_blocks: None
) -> None:
    """And a session that was saved on the way goes on bit for bit."""
    chains = short_call(method, n_chains=2)
    assert chains["omega"].shape == chains.unnormalized["omega"].shape == (2, 40, 3)
    draws = {name: both[0] for name, both in chains.items()}
    assert np.abs(chains["mu"][1] - draws["mu"]).max() > 1e-3
    sampler = BY_NAME[method].setup(**arguments())
    sess, found = init_sess(sampler), []
    for n_steps in (1, 2, 30, 7):
        sgmcmc_step(sampler, sess, n_steps)
        found.append(get_params(sampler, sess))
        if n_steps == 30:
            sess.save(tmp_path / "sess.npz")
    np.testing.assert_allclose(sampler.params["omega"], found[-1]["omega"])
    again = init_sess(sampler, restore=tmp_path / "sess.npz")
    sgmcmc_step(sampler, again, 7)
    for name, value in found[-1].items():
        np.testing.assert_array_equal(get_params(sampler, again)[name], value)
    for name in draws:
        states = [each[name] for each in found]
        np.testing.assert_allclose(
            states, draws[name][[0, 2, 32, 39]], rtol=2e-4, atol=1e-6
        )
    thinned = short_call(method, thin=3, burn_in=4, n_iters=30, store_gradients=True)
    np.testing.assert_allclose(
        thinned["omega"], draws["omega"][6:34:3], rtol=2e-4, atol=1e-6
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("method", METHODS)
def test_on_disk_and_resumed(
    method: str, tmp_path: Path, short_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {
        "store_gradients": True,
        "test_functions": {"first": lambda params: params["omega"][0]},
        "reductions": {"mean": sgmcmc.running_mean(lambda params: params["omega"])},
    }
    kept = short_call(method, **given)
    path = tmp_path / "chain"
    go_on = stop_after(3, monkeypatch)
    with pytest.raises(StopError):
        short_call(method, **given, store=path)
    go_on()
    resumed = short_call(method, **given, store=path)
    for samples in (resumed, Samples.open(path)):
        same(samples, kept)
    with pytest.raises(ValueError, match=r"latents\['z'\]"):
        short_call(method, **given, store=path, latents={"z": np.ones(40, np.int32)})
    resumed.save(tmp_path / "saved.npz")
    loaded = Samples.load(tmp_path / "saved.npz")
    np.testing.assert_array_equal(
        loaded.unnormalized["omega"], kept.unnormalized["omega"]
    )


def test_log_posterior_estimate_step_by_step() -> None:
    sampler = sgmcmc.scir_setup(**{**arguments(), **COUNTS, "minibatch_size": 10})
    init_sess(sampler)
    omega = sampler.params["omega"].numpy()
    found = sampler.est_log_post({"z": ONE_HOT})
    np.testing.assert_allclose(
        found, ((1.0 + ONE_HOT.sum(0)) * np.log(omega)).sum(), rtol=1e-5
    )


def test_what_comes_back() -> None:
    samples = short_call("scir", store_params=["omega"], dtype=tf.float64)
    assert list(samples) == list(samples.unnormalized) == ["omega"]
    assert samples["omega"].dtype == np.float64
    theta = samples.unnormalized["omega"]
    np.testing.assert_allclose(
        samples["omega"], theta / theta.sum(-1, keepdims=True), rtol=1e-12
    )
    assert samples.settings["alpha"] == {"omega": 0.5}
    assert samples.settings["latents"] == ["z"] and samples.settings["gibbs"] is True
    with pytest.raises(TypeError, match="store_unnormalized"):
        sgmcmc.scir_setup(**arguments(store_unnormalized=True))


@pytest.mark.slow
def test_same_seed_same_bits_and_threads_do_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    once = short_call("scir", n_chains=2)
    monkeypatch.setattr(seams.AVAILABLE_CORES, lambda: 1)
    np.testing.assert_array_equal(
        short_call("scir", n_chains=2)["omega"], once["omega"]
    )


@pytest.mark.slow
def test_no_warning_that_xla_cannot(recwarn: pytest.WarningsRecorder) -> None:
    samples = short_call("scir", jit_compile=None, store_unnormalized=False)
    assert samples.unnormalized is None
    assert not [w for w in recwarn if "XLA" in str(w.message)]


def test_simplices_of_one_call_move_independently() -> None:
    """Two parameters of one shape get different noise."""
    chain = sgmcmc.scir(
        lambda params, dataset: sum(
            tf.reduce_sum(tf.math.log(p)) for p in params.values()
        ),
        {"x": np.zeros(5)},
        {"a": np.full(4, 0.25), "b": np.full(4, 0.25)},
        1.0,
        alpha=1.0,
        minibatch_size=5,
        n_iters=50,
        verbose=False,
    )
    assert (chain["a"] != chain["b"]).all()


ONE_HOT = np.repeat(np.eye(3), [5, 3, 2], axis=0)
COUNTS: dict[str, Any] = {
    "log_lik": lambda params, dataset: tf.reduce_sum(
        dataset["z"] * tf.math.log(params["omega"])
    ),
    "dataset": {"z": ONE_HOT},
    "params": {"omega": np.full(3, 1 / 3)},
    "stepsize": {"omega": 0.1},
    "log_prior": None,
    "minibatch_size": 5,
    "alpha": 1.0,
    "gibbs": None,
    "latents": None,
}


def minus(params: Tensors, dataset: Tensors) -> tf.Tensor:
    return COUNTS["log_lik"](params, dataset) - 4.0 * tf.reduce_sum(
        params["omega"] ** 2
    )


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no alpha": ({"alpha": None}, ValueError, "`alpha` must be given"),
    "off the simplex": (
        {"params": {"omega": [0.5, 0.5, 0.5]}},
        ValueError,
        "sum to 1.5",
    ),
    "negative": (
        {"params": {"omega": [1.2, -0.2, 0.0]}},
        ValueError,
        "smallest component is -0.2",
    ),
    "a number": (
        {"params": {"omega": 1.0}},
        ValueError,
        "`params['omega']` is a single number",
    ),
    "alpha zero": (
        {"alpha": 0.0},
        ValueError,
        "`alpha`: Dirichlet concentrations must be pos",
    ),
    "alpha of one": ({"alpha": {"omega": [1, 1, -1]}}, ValueError, "`alpha['omega']`"),
    "alpha shape": ({"alpha": [1.0, 2.0]}, ValueError, "`alpha` has shape (2,)"),
    "alpha name": ({"alpha": {"omge": 1.0}}, ValueError, "Did you mean 'omega'?"),
    "alpha empty": ({"alpha": {}}, ValueError, "`alpha` is an empty dict"),
    "alpha text": ({"alpha": "one"}, TypeError, "`alpha`"),
    "negative counts": ({"log_lik": minus}, ValueError, "polynomials in ω"),
    "prior": (
        {"log_prior": lambda params: tf.reduce_sum(params["omega"])},
        ValueError,
        "`log_prior` depends on 'omega'",
    ),
    "bijector": (
        {"bijectors": {"omega": tfp.bijectors.Softplus()}},
        ValueError,
        "`bijectors` names 'omega'",
    ),
    "theta0 name": ({"theta0": {"mu": [1.0]}}, ValueError, "`theta0` names 'mu'"),
    "theta0 zero": ({"theta0": {"omega": [1, 0, 1]}}, ValueError, "must be positive"),
    "theta0 shape": (
        {"theta0": {"omega": [1.0, 1.0]}},
        ValueError,
        "`theta0['omega']` has shape",
    ),
    "theta0 kind": ({"theta0": 3.0}, TypeError, "`theta0` must be a dict"),
    "latents alone": (
        {"latents": {"z": np.zeros(10)}},
        ValueError,
        "`gibbs`, which was not given",
    ),
    "gibbs kind": ({"gibbs": 3}, TypeError, "`gibbs` must be a function"),
    "gibbs arguments": (
        {"gibbs": lambda params: params},
        TypeError,
        "`gibbs` must be a function",
    ),
    "gibbs returns": (
        {"gibbs": lambda p, m, s: m["z"]},
        TypeError,
        "`gibbs` must return the mini",
    ),
    "gibbs None": (
        {"gibbs": lambda p, m, s: None},
        TypeError,
        "`gibbs` must return the minibatch",
    ),
    "latents length": (
        {"gibbs": lambda p, m, s: m, "latents": {"u": np.zeros(9)}},
        ValueError,
        "`latents['u']` must hold a value for each of the 10 observations",
    ),
    "latents name": (
        {"gibbs": lambda p, m, s: m, "latents": {"z": np.zeros(10)}},
        ValueError,
        "`dataset` has a column of that name",
    ),
    "latents NaN": (
        {"gibbs": lambda p, m, s: m, "latents": {"u": np.full(10, np.nan)}},
        ValueError,
        "starting values must be finite",
    ),
    "latents shape": (
        {"gibbs": lambda p, m, s: {"u": m["u"][:1]}, "latents": {"u": np.zeros(10)}},
        ValueError,
        "in the shape (5,)",
    ),
    "latents dtype": (
        {
            "gibbs": lambda p, m, s: {"u": m["z"][:, 0]},
            "latents": {"u": np.zeros(10, int)},
        },
        TypeError,
        "holds integers",
    ),
    "gibbs fails": ({"gibbs": lambda p, m, s: m["y"]}, ValueError, "`gibbs` failed"),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, method: str) -> None:
    change, error, says = REFUSED[case]
    with pytest.raises(error) as caught:
        short_call(method, **{**COUNTS, **change})
    assert says in str(caught.value)


def test_scir_cannot_be_compiled_by_xla() -> None:
    with pytest.raises(ValueError, match="`jit_compile=True`"):
        short_call("scir", **COUNTS, jit_compile=True)
    short_call("sgrld", **COUNTS, jit_compile=True)


def test_counts_that_turn_negative_on_the_way() -> None:
    """Where the start did not show it the chain stops, and says what log_lik must be."""

    def turns(params: Tensors, dataset: Tensors) -> tf.Tensor:
        near = tf.reduce_sum((params["omega"] - 1 / 3) ** 2)
        rows = tf.reduce_sum(dataset["z"]) / len(ONE_HOT)
        return COUNTS["log_lik"](params, dataset) - 50.0 * near * rows

    with pytest.raises(DivergenceError, match="polynomials in ω") as caught:
        short_call("scir", **{**COUNTS, "log_lik": turns}, n_iters=2000)
    assert caught.value.parameter == "omega"


def test_expected_counts_may_be_a_little_below_zero_by_rounding() -> None:
    def rounded(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return COUNTS["log_lik"](params, dataset) - 1e-5 * params["omega"][2]

    chain = short_call("scir", **{**COUNTS, "log_lik": rounded})
    assert np.isfinite(chain["omega"]).all()


# ------------------------------------------------------------------------- gamma parameters


def gamma_arguments(**given: Any) -> dict[str, Any]:
    """Return the arguments of a model with a gamma parameter of each kind, and others."""
    x = np.random.default_rng(1).normal(np.repeat([-3.0, 0.0, 3.0], [20, 12, 8]))

    def gamma_log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        mixed = (
            tf.math.log(params["omega"])
            - 0.5 * params["tau"] * dataset["x"][:, None] ** 2
        )
        rates = (
            tf.math.log(params["rates"])
            - params["rates"] * tf.abs(dataset["x"])[:, None]
        )
        variance = (
            -0.5 * tf.math.log(params["v"]) - 0.5 * dataset["x"] ** 2 / params["v"]
        )
        half = 0.5 * tf.math.log(params["tau"]) - params["mu"] ** 2
        each = tf.reduce_logsumexp(mixed, 1) + tf.reduce_sum(rates, 1) + variance + half
        return tf.reduce_sum(each)

    return {
        "log_lik": gamma_log_lik,
        "dataset": {"x": x},
        "params": {
            "rates": np.ones(2), "omega": np.full(3, 1 / 3), "mu": 0.0, "tau": 1.0, "v": 4.0,
        },
        "stepsize": {"rates": 0.5, "omega": 0.1, "mu": 0.01, "tau": 0.5, "v": 0.5},
        "alpha": {"omega": 0.5},
        "gamma": {"rates": ([1.0, 2.0], 1.0), "tau": (2.0, 1.0), "v": (3.0, 2.0, -1)},
        "minibatch_size": 10,
        "seed": 1,
        "dtype": tf.float64,
        **given,
    }  # fmt: skip


def gamma_call(**given: Any) -> Samples:
    return sgmcmc.scir(**gamma_arguments(**{"n_iters": 40, "verbose": False, **given}))


@pytest.mark.slow
@pytest.mark.parametrize("updates", ["joint", "in_turn"])
def test_gamma_parameters_however_they_are_run(
    updates: str, tmp_path: Path, short_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step by step, thinned, on disk and resumed, as in one run; gradients have their shapes."""
    given: dict[str, Any] = {"store_gradients": True, "updates": updates}
    draws = gamma_call(**given)
    assert all((draws[name] > 0).all() for name in ("rates", "tau", "v"))
    assert draws.gradients is not None
    shapes = {name: draws.gradients[name].shape[1:] for name in draws}
    assert shapes == {name: draws[name].shape[1:] for name in draws}
    sampler = sgmcmc.scir_setup(**gamma_arguments(updates=updates))
    sess, found = init_sess(sampler), []
    for n_steps in (1, 2, 37):
        sgmcmc_step(sampler, sess, n_steps)
        found.append(get_params(sampler, sess))
    thinned = gamma_call(**given, thin=3, burn_in=4, n_iters=30)
    for name in draws:
        states = [each[name] for each in found]
        np.testing.assert_allclose(states, draws[name][[0, 2, 39]], rtol=1e-9)
        np.testing.assert_allclose(thinned[name], draws[name][6:34:3], rtol=1e-9)
    path = tmp_path / "chain"
    go_on = stop_after(3, monkeypatch)
    with pytest.raises(StopError):
        gamma_call(**given, store=path)
    go_on()
    same(gamma_call(**given, store=path), draws)


def test_what_comes_back_of_gamma_parameters() -> None:
    """Kept gradients are those with respect to log λ; the density is that of log λ."""
    samples = sgmcmc.scir(
        lambda params, data: tf.reduce_sum(data["y"] * tf.math.log(params["r"]) - params["r"]),
        {"y": np.array([1.0, 4.0])}, {"r": 2.0}, 0.5, gamma={"r": (2.0, 3.0)}, minibatch_size=2,
        n_iters=20, store_gradients=True, seed=1, verbose=False, dtype=tf.float64,
    )  # fmt: skip
    assert samples.gradients is not None
    np.testing.assert_allclose(
        samples.gradients["r"], 7.0 - 5.0 * samples["r"], rtol=1e-9
    )
    last = samples["r"][-1]
    expected = 7.0 * np.log(last) - 5.0 * last
    np.testing.assert_allclose(samples.log_post.values[-1], expected, rtol=1e-9)
    assert samples.settings["gamma"] == {"r": [2.0, 3.0]}
    assert "gamma parameters" in str(samples.report)


GAMMA_REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "neither": ({"alpha": None, "gamma": None}, ValueError, "`alpha` must be given"),
    "kind": ({"gamma": 3.0}, TypeError, "`gamma` must be a dict"),
    "empty": ({"gamma": {}}, ValueError, "`gamma` is an empty dict"),
    "name": ({"gamma": {"tua": (1.0, 1.0)}}, ValueError, "Did you mean 'tau'?"),
    "no pair": ({"gamma": {"tau": 1.0}}, TypeError, "`gamma['tau']` must be a pair"),
    "shape": (
        {"gamma": {"tau": (0.0, 1.0)}},
        ValueError,
        "`gamma['tau'][0]`: shapes must be",
    ),
    "rate": (
        {"gamma": {"tau": (1.0, -1.0)}},
        ValueError,
        "`gamma['tau'][1]`: rates must be",
    ),
    "power": (
        {"gamma": {"tau": (1.0, 1.0, 0)}},
        ValueError,
        "`gamma['tau'][2]`: the power",
    ),
    "fit": (
        {"gamma": {"tau": ([1.0, 2.0], 1.0)}},
        ValueError,
        "does not fit the parameter's ()",
    ),
    "start": (
        {"params": {**gamma_arguments()["params"], "tau": 0.0}},
        ValueError,
        "`params['tau']` must start above zero",
    ),
    "both": ({"alpha": {"omega": 1.0, "tau": 1.0}}, ValueError, "`alpha` names 'tau'"),
    "bijector": (
        {"bijectors": {"tau": tfp.bijectors.Softplus()}},
        ValueError,
        "`bijectors` names 'tau', which has a gamma prior",
    ),
    "a variance": (
        {"gamma": {"v": (1.0, 1.0)}},
        ValueError,
        "`log_lik` has no counts for 'v'",
    ),
    "no rate": (
        {
            "gamma": {"more": (1.0, 0.0)},
            "params": {**gamma_arguments()["params"], "more": 1.0},
            "log_prior": lambda params: 2.0 * tf.math.log(params["more"]),
            "stepsize": 0.1,
        },
        ValueError,
        "`gamma['more']`: the rate of the prior is 0",
    ),
    "stepsize": ({"stepsize": "auto"}, ValueError, "`stepsize` must be given"),
}


@pytest.mark.parametrize("case", GAMMA_REFUSED)
def test_gamma_refused(case: str) -> None:
    change, error, says = GAMMA_REFUSED[case]
    with pytest.raises(error) as caught:
        gamma_call(**change)
    assert says in str(caught.value)
