"""Short runs of every public sampler, to hold a rebuilt engine to the draws of the one before."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc

RNG = np.random.default_rng(5)
X = RNG.normal(size=(4000, 12)).astype(np.float32)
Y = (RNG.uniform(size=4000) < 1 / (1 + np.exp(-X.sum(1)))).astype(np.float32)
Z = RNG.multinomial(1, [0.6, 0.3, 0.1, 0.0], 400).astype(np.float32)
PLAIN = ("sgld", "sghmc", "sgnht")
CENTRED = ("sgldcv", "sghmccv", "sgnhtcv")
POINTS = ("scir", "sgrld")
TUNING = {"sghmc": {"alpha": {"beta": 0.1, "bias": 0.3}, "L": 3}, "sgnht": {"a": 0.05}}


def logistic(params: Any, data: Any) -> tf.Tensor:
    logits = tf.linalg.matvec(data["x"], params["beta"]) + params["bias"]
    return tf.reduce_sum(data["y"] * logits - tf.math.softplus(logits))


def prior(params: Any) -> tf.Tensor:
    return -tf.reduce_sum(tf.abs(params["beta"])) - tf.abs(params["bias"])


def counts(params: Any, data: Any) -> tf.Tensor:
    return tf.reduce_sum(data["z"] * tf.math.log(params["omega"]))


def normal(params: Any, data: Any) -> tf.Tensor:
    gap = data["z"][:, 0] - params["mu"]
    return tf.reduce_sum(0.5 * tf.math.log(params["tau"]) - 0.5 * params["tau"] * gap**2)


def mixture(params: Any, data: Any) -> tf.Tensor:
    return -0.5 * tf.reduce_sum((data["z"] - params["theta"]) ** 2 * data["w"][:, None])


def gibbs(params: Any, data: Any, seed: tf.Tensor) -> Any:
    chance = tf.nn.sigmoid(tf.reduce_sum(data["z"] - params["theta"], 1))
    u = tf.random.stateless_uniform(tf.shape(chance), seed, dtype=chance.dtype)
    return {**data, "w": tf.cast(u < chance, chance.dtype)}


def call(method: str, **given: Any) -> dict[str, np.ndarray]:
    """Return draws and whatever else comes with them."""
    arguments: dict[str, Any] = {
        "log_lik": logistic,
        "dataset": {"x": X, "y": Y},
        "params": {"beta": np.zeros(12), "bias": 0.1},
        "stepsize": {"beta": 2e-5, "bias": 1e-5},
        "log_prior": prior,
        "minibatch_size": 100,
        "n_iters": 100,
        "verbose": False,
        "seed": 7,
    }
    for start, tuning in TUNING.items():
        if method.startswith(start):
            arguments |= tuning
    if method.endswith("cv"):
        arguments |= {"opt_stepsize": 1e-4, "n_iters_opt": 50}
    if method in POINTS:
        arguments |= {
            "log_lik": counts, "dataset": {"z": Z}, "params": {"omega": np.full(4, 0.25)},
            "stepsize": 0.1, "log_prior": None, "alpha": 0.1, "minibatch_size": 40,
        }  # fmt: skip
    given = {**arguments, **given}
    given = {name: value for name, value in given.items() if value is not ...}
    samples = getattr(sgmcmc, method)(**given)
    found = {f"draws/{name}": np.array(a) for name, a in samples.items()}
    for part in ("gradients", "test_functions", "mode", "mode_gradient", "unnormalised"):
        if getattr(samples, part) is not None:
            found |= {f"{part}/{k}": np.array(v) for k, v in getattr(samples, part).items()}
    if samples.reductions is not None:
        found |= {f"reductions/{k}": np.array(v) for k, v in samples.reductions.flat().items()}
    found["log_post"] = np.array(samples.log_post.values)
    return found


def step(method: str, **given: Any) -> dict[str, np.ndarray]:
    """Return the state after some steps, saved and restored on the way."""
    arguments: dict[str, Any] = {
        "log_lik": logistic, "dataset": {"x": X, "y": Y},
        "params": {"beta": np.zeros(12), "bias": 0.1}, "stepsize": 2e-5, "log_prior": prior,
        "minibatch_size": 100, "seed": 7,
    }  # fmt: skip
    if method.endswith("cv"):
        arguments |= {"opt_stepsize": 1e-4, "n_iters_opt": 50, "verbose": False}
    if method in POINTS:
        arguments |= {
            "log_lik": counts, "dataset": {"z": Z}, "params": {"omega": np.full(4, 0.25)},
            "stepsize": 0.1, "log_prior": None, "alpha": 0.1, "minibatch_size": 40,
        }  # fmt: skip
    sampler = getattr(sgmcmc, method + "_setup")(**{**arguments, **given})
    sess = sgmcmc.init_sess(sampler, verbose=False)
    sgmcmc.sgmcmc_step(sampler, sess)
    sgmcmc.sgmcmc_step(sampler, sess, n_steps=30)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.npz"
        sess.save(path)
        sess = sgmcmc.init_sess(sampler, verbose=False, restore=path)
    sgmcmc.sgmcmc_step(sampler, sess, n_steps=20)
    return dict(sgmcmc.get_params(sampler, sess))


def _stored(method: str) -> dict[str, np.ndarray]:
    with tempfile.TemporaryDirectory() as folder:
        return call(method, store=Path(folder) / "chain", n_chains=2)


def _cases() -> dict[str, Callable[[], dict[str, np.ndarray]]]:
    cases: dict[str, Callable[[], dict[str, np.ndarray]]] = {}
    for m in PLAIN + CENTRED + POINTS:
        cases[m] = lambda m=m: call(m)
        cases[f"{m} step by step"] = lambda m=m: step(m)
        cases[f"{m} chains"] = lambda m=m: call(m, n_chains=3, burn_in=5, thin=2)
        cases[f"{m} store"] = lambda m=m: _stored(m)
    for m in PLAIN + CENTRED:
        cases[f"{m} plain graph"] = lambda m=m: call(m, jit_compile=False, n_chains=2)
        cases[f"{m} float64"] = lambda m=m: call(m, dtype=tf.float64, store_gradients=True)
        cases[f"{m} replace"] = lambda m=m: call(m, replace=True)
    rest: dict[str, Callable[[], dict[str, np.ndarray]]] = {
        "whole dataset": lambda: call("sghmc", minibatch_size=4000),
        "heavy in place": lambda: call("sgldcv", minibatch_size=2000, n_chains=2),
        "step by step in place": lambda: step("sghmccv", minibatch_size=1000, n_chains=2),
        "schedule": lambda: call(
            "sgld",
            stepsize={"beta": sgmcmc.polynomial_decay(1e-4, 10, 0.5), "bias": 1e-4},
            n_iters=500,
        ),
        "euler": lambda: call("sghmc", integrator="euler"),
        "test functions": lambda: call(
            "sgld", test_functions={"s": lambda p: tf.reduce_sum(p["beta"])}, thin=3,
            store_params=["bias"], store_gradients=True,
        ),  # fmt: skip
        "reductions": lambda: call(
            "sgld", store_params=False, n_chains=2,
            reductions={"m": sgmcmc.running_moments(lambda p: p["beta"])},
        ),  # fmt: skip
        "unnormalised": lambda: call("scir", store_unnormalised=True, store_gradients=True),
        "theta0": lambda: call("sgrld", theta0={"omega": np.array([1.0, 2, 3, 4])}),
        "tiny long": lambda: call("sgld", n_iters=9000, thin=50, minibatch_size=2),
    }
    for m in ("sgld", "sghmccv", "sgnht"):
        given: dict[str, Any] = {
            "log_lik": normal, "dataset": {"z": Z}, "params": {"mu": 0.0, "tau": 1.0},
            "log_prior": None, "stepsize": 1e-4, "alpha": 0.1 if m.startswith("sghmc") else ...,
            "bijectors": {"tau": tfp.bijectors.Exp()}, "store_gradients": True,
        }  # fmt: skip
        rest[f"{m} bijectors"] = lambda m=m, given=given: call(m, **given)
    latent: dict[str, Any] = {
        "log_lik": mixture, "dataset": {"z": Z}, "params": {"theta": np.zeros(4)},
        "log_prior": None, "stepsize": 1e-4, "gibbs": gibbs, "jit_compile": False,
    }  # fmt: skip
    for m in ("sgld", "sgldcv", "sghmccv"):
        alpha = {"alpha": 0.1} if m.startswith("sghmc") else {}
        rest[f"{m} latent"] = lambda m=m, a=alpha: call(m, **latent, **a)
        rest[f"{m} latents kept"] = lambda m=m, a=alpha: call(
            m, **{**latent, "latents": {"w": np.ones(400)}}, **a, n_chains=2
        )
    both: dict[str, Any] = {
        "log_lik": lambda p, d: counts(p, d) - tf.reduce_sum((d["z"][:, 0] - p["mu"]) ** 2),
        "params": {"mu": 0.2, "omega": np.full(4, 0.25)},
        "alpha": {"omega": 0.1},
        "stepsize": {"mu": 1e-4, "omega": 0.1},
    }
    rest["scir others"] = lambda: call("scir", **both)
    rest["sgrld others"] = lambda: call("sgrld", **both, store_gradients=True)
    return {**cases, **rest}


CASES = _cases()
