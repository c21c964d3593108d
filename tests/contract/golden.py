"""Draws of every named function and of a few calls of `sample`, to the bit.

`python -m tests.contract.golden` writes `golden.json`. A change of it is a change of draws for the
same seed: it belongs into the changelog, with the reason.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc import dynamics, gradients, minibatches

FILE = Path(__file__).parent / "golden.json"

RNG = np.random.default_rng(11)
N = 60
X = RNG.normal(size=(N, 2)).astype(np.float32)
Y = (RNG.uniform(size=N) < 0.5 + 0.3 * np.tanh(X[:, 0])).astype(np.float32)
WORDS = RNG.multinomial(5, [0.5, 0.3, 0.2], size=N).astype(np.float32)
BY = RNG.integers(0, 6, N)

PICKS = minibatches.Uniform()
QUIET: dict[str, Any] = {"seed": 3, "verbose": False}
SHORT: dict[str, Any] = {**QUIET, "n_iters": 25, "minibatch_size": 20}
EXACT: dict[str, Any] = {
    **QUIET,
    "n_iters": 100,
    "burn_in": 0,
    "n_chains": 2,
    "stepsize": 0.1,
}
DIAGONAL = {**EXACT, "preconditioner": "diagonal"}
PLAIN = {**EXACT, "preconditioner": "none"}


def logistic(params: Any, dataset: Any) -> tf.Tensor:
    """Return the log-likelihood of a logistic regression, by row."""
    eta = tf.linalg.matvec(dataset["X"], params["beta"]) + params["bias"]
    return dataset["y"] * eta - tf.nn.softplus(eta)


def linear(params: Any, dataset: Any) -> tf.Tensor:
    """Return the log-likelihood of a linear regression, by row: its posterior is normal."""
    eta = tf.linalg.matvec(dataset["X"], params["beta"]) + params["bias"]
    return -0.5 * (dataset["y"] - eta) ** 2


def normal_prior(params: Any) -> tf.Tensor:
    """Return the log density of normal priors with variance 4."""
    return -0.125 * (tf.reduce_sum(params["beta"] ** 2) + params["bias"] ** 2)


def normal(params: Any, dataset: Any) -> tf.Tensor:
    """Return the log-likelihood of a mean and an SD, by row."""
    return -0.5 * ((dataset["x"] - params["mu"]) / params["sigma"]) ** 2 - tf.math.log(
        params["sigma"]
    )


def student(params: Any, dataset: Any) -> tf.Tensor:
    """Return the log-likelihood of a location with three degrees of freedom, by row."""
    return -2.0 * tf.math.log1p((dataset["x"] - params["mu"]) ** 2 / 3.0)


def mixture(params: Any, dataset: Any) -> tf.Tensor:
    """Return the log-likelihood of two normal components, whose means may be exchanged, by row."""
    away = dataset["x"][:, tf.newaxis] - params["means"]
    return tf.reduce_logsumexp(-0.5 * away**2, 1)


def counts(params: Any, dataset: Any) -> tf.Tensor:
    """Return the log-likelihood of counts, by row."""
    return tf.reduce_sum(dataset["z"] * tf.math.log(params["omega"]), 1)


def on_sphere(params: Any, dataset: Any) -> tf.Tensor:
    """Return a log-likelihood of directions, by row."""
    return tf.linalg.matvec(dataset["X"], params["mu"])


MODEL = (logistic, {"X": X, "y": Y}, {"beta": np.zeros(2), "bias": 0.0})
MEASURED = np.random.default_rng(12).normal(size=200).astype(np.float32)
BIMODAL = MEASURED[:N] + np.where(np.arange(N) % 2, 3.0, -3.0).astype(np.float32)
MANY = np.random.default_rng(13).normal(size=(20_000, 2)).astype(np.float32)
TOSSES = np.random.default_rng(14).integers(0, 2, 20_000).astype(np.float32)
SIMPLEX = (counts, {"z": WORDS}, {"omega": np.ones(3) / 3})
BOUND = sgmcmc.predictor_bound({"beta": "X", "bias": None})


def _step_by_step() -> dict[str, np.ndarray]:
    sampler = sgmcmc.sgld_setup(*MODEL, 1e-3, normal_prior, 20, seed=3)
    session = sgmcmc.init_sess(sampler, verbose=False)
    kept = []
    for _ in range(5):
        sgmcmc.sgmcmc_step(sampler, session, 3)
        kept.append(sgmcmc.get_params(sampler, session))
    return {name: np.stack([params[name] for params in kept]) for name in kept[0]}


def _named(
    function: Callable[..., Any], *stepsizes: float, **given: Any
) -> Callable[[], Any]:
    return lambda: function(*MODEL, *stepsizes, normal_prior, **{**SHORT, **given})


def _composed(moves: Any, gradient: Any, picks: Any, **given: Any) -> Callable[[], Any]:
    return lambda: sgmcmc.sample(
        *MODEL, normal_prior, dynamics=moves, gradient=gradient, minibatches=picks,
        preconditioner="none", burn_in=5, n_chains=2, **{"stepsize": 1e-3, **SHORT, **given},
    )  # fmt: skip


CASES: dict[str, Callable[[], Any]] = {
    "sgld": _named(sgmcmc.sgld, 1e-3),
    "sgld, chains": _named(sgmcmc.sgld, 1e-3, n_chains=3, thin=5),
    "sgldcv": _named(sgmcmc.sgldcv, 1e-3, 1e-3, n_iters_opt=20),
    "sghmc": _named(sgmcmc.sghmc, 1e-3),
    "sghmccv": _named(sgmcmc.sghmccv, 1e-3, 1e-3, n_iters_opt=20),
    "sgnht": _named(sgmcmc.sgnht, 1e-3),
    "sgnhtcv": _named(sgmcmc.sgnhtcv, 1e-3, 1e-3, n_iters_opt=20),
    "sgrld": lambda: sgmcmc.sgrld(*SIMPLEX, 0.01, alpha=0.5, **SHORT),
    "scir": lambda: sgmcmc.scir(*SIMPLEX, 0.1, alpha=0.5, **SHORT),
    "sggmc": lambda: sgmcmc.sggmc(
        on_sphere, {"X": X}, {"mu": np.array([0.6, 0.8])}, 1e-3,
        manifolds={"mu": sgmcmc.manifolds.Sphere()}, **SHORT,
    ),
    "gsgnht": lambda: sgmcmc.gsgnht(
        on_sphere, {"X": X}, {"mu": np.array([0.6, 0.8])}, 1e-3,
        manifolds={"mu": sgmcmc.manifolds.Sphere()}, **SHORT,
    ),
    "hmc": lambda: sgmcmc.hmc(*MODEL, normal_prior, n_leapfrog=4, **PLAIN),
    "nuts": lambda: sgmcmc.nuts(*MODEL, normal_prior, **PLAIN),
    "mala": lambda: sgmcmc.mala(*MODEL, normal_prior, **PLAIN),
    "step by step": _step_by_step,
    "zigzag": lambda: sgmcmc.zigzag(
        *MODEL, normal_prior, curvature_bound=BOUND, **{**DIAGONAL, "stepsize": 1.0}
    ),
    "mhss": lambda: sgmcmc.mhss(
        *MODEL, normal_prior, curvature_bound=BOUND, **DIAGONAL
    ),
    **{
        type(moves).__name__: _composed(moves, gradients.MinibatchGradient(), PICKS)
        for moves in (
            dynamics.PSGLD(), dynamics.SGFS(), dynamics.Barker(), dynamics.SGLRW(),
            dynamics.BADODAB(), dynamics.SMILE(),
            dynamics.ReplicaExchange((1.0, 4.0), dynamics.SGLD()),
        )
    },
    "underdamped": _composed(dynamics.Underdamped(), gradients.MinibatchGradient(), PICKS),
    "saga": _composed(dynamics.SGLD(), gradients.SAGA(), PICKS),
    "svrg": _composed(dynamics.SGLD(), gradients.SVRG(), PICKS),
    "reshuffled": _composed(
        dynamics.SGLD(), gradients.MinibatchGradient(), minibatches.Reshuffled()
    ),
    "weighted": _composed(
        dynamics.SGLD(), gradients.MinibatchGradient(), minibatches.Weighted(1.0 + np.arange(N) % 3)
    ),
    "sample, linear": lambda: sgmcmc.sample(linear, *MODEL[1:], normal_prior, ess=50, **QUIET),
    "sample, mean and SD": lambda: sgmcmc.sample(
        normal, {"x": MEASURED}, {"mu": 0.0, "sigma": 1.0}, ess=50,
        bijectors={"sigma": tfp.bijectors.Exp()}, **QUIET,
    ),
    "sample, few rows": lambda: sgmcmc.sample(
        student, {"x": MEASURED[:5]}, {"mu": 0.0}, ess=50, **QUIET
    ),
    "sample, two modes": lambda: sgmcmc.sample(
        mixture, {"x": BIMODAL}, {"means": np.array([-1.0, 1.0])}, ess=50, **QUIET
    ),
    "sample, minibatches": lambda: sgmcmc.sample(
        logistic, {"X": MANY, "y": TOSSES}, MODEL[2], normal_prior, ess=50, **QUIET
    ),
    "sample, logistic": lambda: sgmcmc.sample(*MODEL, normal_prior, ess=50, **QUIET),
}  # fmt: skip
"""Calls by name."""


def draws(name: str) -> dict[str, Any]:
    """Return what is kept of the draws of a case: a digest of all, and some numbers."""
    found = CASES[name]()
    arrays = {key: np.ascontiguousarray(found[key]) for key in sorted(found)}
    digest = hashlib.sha256(
        b"".join(array.tobytes() for array in arrays.values())
    ).hexdigest()[:16]
    shown = {
        key: np.ravel(array)[:: max(1, array.size // 6)]
        for key, array in arrays.items()
    }
    return {
        "digest": digest,
        "draws": {key: part.tolist() for key, part in shown.items()},
    }


def machine() -> str:
    """Return the kind of processor and the version of TensorFlow, for which bits are the same."""
    lines = (
        Path("/proc/cpuinfo").read_text().splitlines()
        if Path("/proc/cpuinfo").exists()
        else []
    )
    names = [
        line.partition(":")[2].strip()
        for line in lines
        if line.startswith("model name")
    ]
    return f"{(names or [platform.processor()])[0]}, TensorFlow {tf.__version__}"


if __name__ == "__main__":
    content = {"machine": machine(), "cases": {name: draws(name) for name in CASES}}
    FILE.write_text(json.dumps(content, indent=1) + "\n")
