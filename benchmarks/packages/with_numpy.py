"""A loop in NumPy with the gradients worked out by hand: what a patient user could write."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.packages.loops import one_after_another
from benchmarks.workloads import Arrays, Workload


def _softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def logistic(params: Arrays, batch: Arrays, scale: float) -> Arrays:
    y_est = 1 / (1 + np.exp(-(params["bias"] + batch["X"] @ params["beta"][:, 0])))
    residual = scale * (batch["y"] - y_est)
    return {
        "bias": residual.sum() - np.sign(params["bias"]),
        "beta": (residual @ batch["X"])[:, np.newaxis] - np.sign(params["beta"]),
    }


def gaussian(params: Arrays, batch: Arrays, scale: float) -> Arrays:
    x, theta = batch["x"], params["theta"]
    return {"theta": scale * (x.sum(axis=0) - len(x) * theta) - 0.01 * theta}


def network(params: Arrays, batch: Arrays, scale: float) -> Arrays:
    X = batch["X"]
    hidden = _softmax(X @ params["B"] + params["b"])
    at_output = scale * (batch["y"] - _softmax(hidden @ params["A"] + params["a"]))
    at_hidden = at_output @ params["A"].T
    at_input = hidden * (at_hidden - (at_hidden * hidden).sum(axis=1, keepdims=True))
    gradient = {
        "A": hidden.T @ at_output,
        "B": X.T @ at_input,
        "a": at_output.sum(axis=0),
        "b": at_input.sum(axis=0),
    }
    for name in tuple(gradient):
        x, precision = params[name], np.exp(params[f"log_{name}"])
        gradient[name] -= precision * x
        gradient[f"log_{name}"] = (
            0.5 * x.size - 0.5 * precision * np.sum(x**2) + 1 - precision
        )
    return gradient


def poisson(params: Arrays, batch: Arrays, scale: float) -> Arrays:
    rate = np.exp(params["bias"] + batch["X"] @ params["beta"][:, 0])
    residual = scale * (batch["y"] - rate)
    return {
        "bias": residual.sum() - np.sign(params["bias"]),
        "beta": (residual @ batch["X"])[:, np.newaxis] - np.sign(params["beta"]),
    }


def factors(params: Arrays, batch: Arrays, scale: float) -> Arrays:
    users, items = params["users"][batch["u"]], params["items"][batch["i"]]
    residual = scale * (batch["r"] - (users * items).sum(axis=1))[:, np.newaxis]
    gradient = {name: -x for name, x in params.items()}
    np.add.at(gradient["users"], batch["u"], residual * items)
    np.add.at(gradient["items"], batch["i"], residual * users)
    return gradient


GRADIENTS = {
    "logistic": logistic,
    "wide": logistic,
    "poisson": poisson,
    "factors": factors,
    "gaussian": gaussian,
    "network": network,
}


def build(workload: Workload, data: Arrays, params: Arrays) -> Callable[[int], Arrays]:
    estimate, scale = GRADIENTS[workload.model], workload.N / workload.n
    rng = np.random.default_rng(1)
    epsilon, alpha = np.float32(workload.stepsize), np.float32(workload.alpha)
    root, friction_root = np.sqrt(epsilon), np.sqrt(2 * alpha * epsilon)

    def minibatch() -> Arrays:
        rows = rng.integers(workload.N, size=workload.n)
        return {name: array[rows] for name, array in data.items()}

    def gradient(theta: Arrays) -> Arrays:
        return estimate(theta, minibatch(), scale)

    if workload.method == "sgldcv":
        center, full = params, estimate(params, data, 1.0)

        def gradient(theta: Arrays) -> Arrays:
            batch = minibatch()
            here, there = estimate(theta, batch, scale), estimate(center, batch, scale)
            return {name: full[name] + here[name] - there[name] for name in theta}

    def normal(x: np.ndarray) -> np.ndarray:
        return rng.standard_normal(x.shape, dtype=np.float32)

    def sgld(theta: Arrays) -> None:
        slope = gradient(theta)
        for name, x in theta.items():
            theta[name] = x + (epsilon / 2) * slope[name] + root * normal(x)

    def sghmc(theta: Arrays) -> None:
        nu = {name: root * normal(x) for name, x in theta.items()}
        for _ in range(workload.L):
            slope = gradient(theta)
            for name, v in nu.items():
                noise = friction_root * normal(v)
                nu[name] = (1 - alpha) * v + epsilon * slope[name] + noise
                theta[name] = theta[name] + nu[name]

    momentum: Arrays = {}
    friction: dict[str, np.float32] = {}

    def sgnht(theta: Arrays) -> None:
        slope = gradient(theta)
        for name, v in momentum.items():
            pull = epsilon * slope[name] + friction_root * normal(v)
            momentum[name] = v = (1 - friction[name]) * v + pull
            theta[name] = theta[name] + v
            friction[name] += np.mean(v * v) - epsilon

    iteration = {"sghmc": sghmc, "sgnht": sgnht}.get(workload.method, sgld)

    def one_chain(n_iters: int, draws: Arrays) -> None:
        theta = dict(params)
        momentum.update({name: root * normal(x) for name, x in theta.items()})
        friction.update({name: alpha for name in theta})
        for i in range(n_iters):
            iteration(theta)
            for name, x in theta.items():
                draws[name][i] = x

    return one_after_another(workload, params, one_chain)
