"""`sgmcmc` itself, by its one-call functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

import sgmcmc
from benchmarks.workloads import Arrays, Workload


def logistic_log_lik(params: Any, dataset: Any) -> tf.Tensor:
    y_est = 1 / (
        1
        + tf.exp(
            -tf.squeeze(params["bias"] + tf.matmul(dataset["X"], params["beta"]), -1)
        )
    )
    return tf.reduce_sum(
        dataset["y"] * tf.math.log(y_est) + (1 - dataset["y"]) * tf.math.log(1 - y_est)
    )


def logistic_log_prior(params: Any) -> tf.Tensor:
    return -(
        tf.reduce_sum(tf.abs(params["beta"])) + tf.reduce_sum(tf.abs(params["bias"]))
    )


def logistic_terms(params: Any, dataset: Any) -> tf.Tensor:
    """The same, a term for each row."""
    y_est = 1 / (
        1
        + tf.exp(
            -tf.squeeze(params["bias"] + tf.matmul(dataset["X"], params["beta"]), -1)
        )
    )
    return dataset["y"] * tf.math.log(y_est) + (1 - dataset["y"]) * tf.math.log(
        1 - y_est
    )


def ridge_log_lik(params: Any, dataset: Any) -> tf.Tensor:
    logits = params["bias"] + tf.linalg.matvec(dataset["X"], params["beta"])
    return -tf.nn.sigmoid_cross_entropy_with_logits(dataset["y"], logits)


def ridge_log_prior(params: Any) -> tf.Tensor:
    return -0.5 * (tf.reduce_sum(params["beta"] ** 2) + params["bias"] ** 2)


def gaussian_log_lik(params: Any, dataset: Any) -> tf.Tensor:
    return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)


def gaussian_log_prior(params: Any) -> tf.Tensor:
    return -0.005 * tf.reduce_sum(params["theta"] ** 2)


def network_log_lik(params: Any, dataset: Any) -> tf.Tensor:
    hidden = tf.nn.softmax(tf.matmul(dataset["X"], params["B"]) + params["b"])
    beta = tf.nn.softmax(tf.matmul(hidden, params["A"]) + params["a"])
    return tf.reduce_sum(dataset["y"] * tf.math.log(beta))


def network_log_prior(params: Any) -> tf.Tensor:
    total = 0.0
    for name in ("A", "B", "a", "b"):
        log_precision, x = params[f"log_{name}"], params[name]
        precision = tf.exp(log_precision)
        total += 0.5 * x.shape.num_elements() * log_precision
        total += -0.5 * precision * tf.reduce_sum(x**2) + log_precision - precision
    return total


def poisson_log_lik(params: Any, dataset: Any) -> tf.Tensor:
    log_rate = params["bias"] + tf.squeeze(tf.matmul(dataset["X"], params["beta"]), -1)
    return tf.reduce_sum(dataset["y"] * log_rate - tf.exp(log_rate))


def factors_log_lik(params: Any, dataset: Any) -> tf.Tensor:
    users, items = (
        tf.gather(params[name], dataset[name[0]]) for name in ("users", "items")
    )
    return -0.5 * tf.reduce_sum((dataset["r"] - tf.reduce_sum(users * items, -1)) ** 2)


def factors_log_prior(params: Any) -> tf.Tensor:
    return -0.5 * (
        tf.reduce_sum(params["users"] ** 2) + tf.reduce_sum(params["items"] ** 2)
    )


MODELS = {
    "logistic": (logistic_log_lik, logistic_log_prior),
    "wide": (logistic_log_lik, logistic_log_prior),
    "poisson": (poisson_log_lik, logistic_log_prior),
    "factors": (factors_log_lik, factors_log_prior),
    "gaussian": (gaussian_log_lik, gaussian_log_prior),
    "network": (network_log_lik, network_log_prior),
    "ridge": (ridge_log_lik, ridge_log_prior),
}


OTHERS: dict[str, Callable[[float], Any]] = {
    "badodab": sgmcmc.dynamics.BADODAB,
    "baoab": sgmcmc.dynamics.Underdamped,
    "psgld": lambda _: sgmcmc.dynamics.PSGLD(until=None),
    "sgfs": lambda _: sgmcmc.dynamics.SGFS(diagonal=True, until=None),
    "barker": lambda _: sgmcmc.dynamics.Barker(),
    "sglrw": lambda _: sgmcmc.dynamics.SGLRW(),
    "smile": sgmcmc.dynamics.SMILE,
    "psmile": lambda friction: sgmcmc.dynamics.SMILE(
        friction, preconditioned=True, until=None
    ),
}
"""Methods by parts, of the friction."""
OF_ROWS = ("sgfs", "psmile")
"""Those that need the terms of the rows."""


FEWEST = 100
"""Iterations that a run without constants has at least."""


def exact(workload: Workload, model: tuple[Any, ...], n_iters: int) -> Arrays:
    """Draws of a sampler of the whole posterior."""
    common: dict[str, Any] = {
        "n_iters": max(n_iters, FEWEST), "burn_in": 0, "n_chains": workload.n_chains, "seed": 1,
        "verbose": False,
    }  # fmt: skip
    if workload.method == "mala":
        draws = sgmcmc.mala(
            *model, stepsize=workload.stepsize**0.5, preconditioner="none", dtype=tf.float32,
            **common,
        )  # fmt: skip
        return {name: array[:, :n_iters] for name, array in draws.items()}
    log_lik, data, params, log_prior = model
    params = {"beta": params["beta"][:, 0], "bias": params["bias"]}
    bound = sgmcmc.predictor_bound({"beta": "X", "bias": None})
    draws = getattr(sgmcmc, workload.method)(
        log_lik, data, params, log_prior, curvature_bound=bound, **common
    )
    return {name: array[:, :n_iters] for name, array in draws.items()}


def build(workload: Workload, data: Arrays, params: Arrays) -> Callable[[int], Arrays]:
    log_lik, log_prior = MODELS[workload.model]
    others: dict[str, Any] = {"verbose": False, "seed": 1, "minibatch_size": workload.n}
    if workload.n_chains > 1:
        others["n_chains"] = workload.n_chains
    if workload.model == "factors":
        others["integers"] = ("u", "i")
    if workload.method in OF_ROWS:
        log_lik = logistic_terms
    model, stepsize = (log_lik, data, params), workload.stepsize

    def chain(n_iters: int) -> Arrays:
        if workload.method == "sgldcv":  # centered at the starting values
            draws = sgmcmc.sgldcv(
                *model,
                stepsize,
                stepsize,
                log_prior,
                n_iters=n_iters,
                n_iters_opt=0,
                **others,
            )
        elif workload.method == "sghmc":
            draws = sgmcmc.sghmc(
                *model,
                stepsize,
                log_prior,
                alpha=workload.alpha,
                L=workload.L,
                n_iters=n_iters,
                **others,
            )
        elif workload.method == "sgnht":
            draws = sgmcmc.sgnht(
                *model, stepsize, log_prior, a=workload.alpha, n_iters=n_iters, **others
            )
        elif workload.method in ("mala", "zigzag", "mhss"):
            return exact(workload, (*model, log_prior), n_iters)
        elif workload.method in OTHERS:
            draws = sgmcmc.sample(
                *model, log_prior, dynamics=OTHERS[workload.method](workload.alpha),
                gradient="minibatch", minibatches="uniform", preconditioner="none",
                stepsize=stepsize, n_iters=n_iters, burn_in=0, **{"n_chains": None, **others},
            )  # fmt: skip
        else:
            draws = sgmcmc.sgld(*model, stepsize, log_prior, n_iters=n_iters, **others)
        return dict(draws)

    return chain
