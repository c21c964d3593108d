"""`posteriors`: its transforms in a Python loop, as its documentation has it."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import posteriors
import torch

from benchmarks.packages import UnsupportedError
from benchmarks.packages.loops import one_after_another
from benchmarks.workloads import Arrays, Workload


def logistic_log_lik(params: Any, batch: Any) -> torch.Tensor:
    y_est = 1 / (
        1 + torch.exp(-(params["bias"] + batch["X"] @ params["beta"]).squeeze(-1))
    )
    return (
        batch["y"] * torch.log(y_est) + (1 - batch["y"]) * torch.log(1 - y_est)
    ).sum()


def logistic_log_prior(params: Any) -> torch.Tensor:
    return -(params["beta"].abs().sum() + params["bias"].abs().sum())


def gaussian_log_lik(params: Any, batch: Any) -> torch.Tensor:
    return -0.5 * ((batch["x"] - params["theta"]) ** 2).sum()


def gaussian_log_prior(params: Any) -> torch.Tensor:
    return -0.005 * (params["theta"] ** 2).sum()


def network_log_lik(params: Any, batch: Any) -> torch.Tensor:
    hidden = torch.softmax(batch["X"] @ params["B"] + params["b"], -1)
    beta = torch.softmax(hidden @ params["A"] + params["a"], -1)
    return (batch["y"] * torch.log(beta)).sum()


def network_log_prior(params: Any) -> torch.Tensor:
    total = torch.zeros(())
    for name in ("A", "B", "a", "b"):
        log_precision, x = params[f"log_{name}"], params[name]
        precision = torch.exp(log_precision)
        total = total + 0.5 * x.numel() * log_precision
        total = total - 0.5 * precision * (x**2).sum() + log_precision - precision
    return total


def poisson_log_lik(params: Any, batch: Any) -> torch.Tensor:
    log_rate = params["bias"] + (batch["X"] @ params["beta"]).squeeze(-1)
    return (batch["y"] * log_rate - log_rate.exp()).sum()


def factors_log_lik(params: Any, batch: Any) -> torch.Tensor:
    users, items = params["users"][batch["u"]], params["items"][batch["i"]]
    return -0.5 * ((batch["r"] - (users * items).sum(-1)) ** 2).sum()


def factors_log_prior(params: Any) -> torch.Tensor:
    return -0.5 * ((params["users"] ** 2).sum() + (params["items"] ** 2).sum())


MODELS = {
    "logistic": (logistic_log_lik, logistic_log_prior),
    "wide": (logistic_log_lik, logistic_log_prior),
    "poisson": (poisson_log_lik, logistic_log_prior),
    "factors": (factors_log_lik, factors_log_prior),
    "gaussian": (gaussian_log_lik, gaussian_log_prior),
    "network": (network_log_lik, network_log_prior),
}


def build(workload: Workload, data: Arrays, params: Arrays) -> Callable[[int], Arrays]:
    log_lik, log_prior = MODELS[workload.model]
    scale, N, n = workload.N / workload.n, workload.N, workload.n

    def log_posterior(params: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return log_prior(params) + scale * log_lik(params, batch), torch.tensor([])

    if workload.method == "sgldcv":
        raise UnsupportedError("no control variates")
    if workload.method == "sgnht":
        lr = sqrt(workload.stepsize)
        transform = posteriors.sgmcmc.sgnht.build(
            log_posterior, lr, workload.alpha / lr
        )
    elif workload.method == "sghmc":  # its momentum is ours over √ε
        lr = sqrt(workload.stepsize)
        transform = posteriors.sgmcmc.sghmc.build(
            log_posterior, lr, workload.alpha / lr
        )
    else:  # its SGLD is θ + lr ĝ + √(2 lr) η
        transform = posteriors.sgmcmc.sgld.build(log_posterior, workload.stepsize / 2)
    tensors = {name: torch.from_numpy(array) for name, array in data.items()}
    start = {name: torch.from_numpy(array) for name, array in params.items()}

    def one_chain(n_iters: int, draws: Arrays) -> None:
        state = transform.init({name: value.clone() for name, value in start.items()})
        for i in range(n_iters):
            for _ in range(workload.L):
                rows = torch.randint(N, (n,))
                batch = {name: tensor[rows] for name, tensor in tensors.items()}
                state, _ = transform.update(state, batch)
            for name in draws:
                draws[name][i] = state.params[name].numpy()

    torch.manual_seed(1)
    return one_after_another(workload, params, one_chain)
