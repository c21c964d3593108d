"""MAMBA with SGMCMCJax's kernels, then a run with what it chose; in that package's environment.

Coullon, South & Nemeth (2023), algorithm 1, with the grid and the budgets of their logistic
regression: 14 stepsizes × 4 minibatch sizes, a third of the arms kept in each of three rounds, by
the discrepancy of every tenth draw with gradients over all rows. Seconds are of one core.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sgmcmcjax import kernels
from sgmcmcjax.optimizer import build_optax_optimizer

from benchmarks.mamba.problem import PRIOR_VARIANCE, discrepancy, thinned

BUDGET, KEPT = 1.0, 3
"""Seconds of the longest arm, and of how many arms one is kept."""
LOG_STEPSIZES = -np.arange(1.0, 8.0, 0.5)
SHARES = (1.0, 0.1, 0.01, 0.001)


def log_lik(theta: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    return -jnp.logaddexp(0.0, (1.0 - 2.0 * y) * jnp.dot(theta, x))


def log_prior(theta: Any) -> jax.Array:
    return -0.5 / PRIOR_VARIANCE * jnp.dot(theta, theta)


@dataclass
class Arm:
    """A kernel with its constants, and the draws so far.

    A compiled kernel holds the data. It is dropped after a run, so that not all arms do at once,
    and what compiling it again costs is counted apart.
    """

    chosen: dict[str, float]
    kernel: Callable[
        [], tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]
    ]
    last: Any
    draws: list[np.ndarray] = field(default_factory=list)
    score: float = np.inf
    again: float = 0.0

    def run(self, key: Any, seconds: float) -> None:
        """Add draws for so many seconds, compiling not counted in them."""
        begun = time.process_time()
        start, step, position = self.kernel()
        step = jax.jit(step)
        key, sub = jax.random.split(key)
        state = start(sub, self.last)
        jax.block_until_ready(step(1, sub, step(0, sub, state)))
        if self.draws:
            self.again += time.process_time() - begun
        begun, i = time.process_time(), 0
        while time.process_time() - begun < seconds or not i:
            key, sub = jax.random.split(key)
            state = jax.block_until_ready(step(i, sub, state))
            self.draws.append(np.asarray(position(state)))
            i += 1
        self.last = position(state)


def arms_of(method: str, data: Any, center: Any) -> list[Arm]:
    """Return an arm for each point of the grid."""
    plain = method.removesuffix("CV")
    build = getattr(kernels, f"build_{method}_kernel")
    found = []
    for share in SHARES:
        for log_step in LOG_STEPSIZES:
            size = int(share * len(data[0]))
            constants: list[Any] = [10.0**log_step]
            if plain == "sghmc":
                constants.append(5)
            tail = [center] if method.endswith("CV") else []
            kernel = partial(build, *constants, log_lik, log_prior, data, size, *tail)
            chosen = {"minibatch size": size, "stepsize": float(constants[0])}
            found.append(Arm(chosen, kernel, center))
    return found


def search(
    method: str, data: Any, center: Any, score: Callable[[Any], Any], budget: float
) -> tuple[Arm, float]:
    """Keep a third of the arms each time; return the best, and seconds of compiling again."""
    arms, key = arms_of(method, data, center), jax.random.PRNGKey(0)
    every = arms
    rounds = int(np.log(len(arms)) / np.log(KEPT))
    for i in range(rounds):
        seconds = budget / KEPT ** (rounds - 1 - i)
        for arm in arms:
            key, sub = jax.random.split(key)
            arm.run(sub, seconds)
            gc.collect()
            draws = np.array(arm.draws[::10])
            found = discrepancy(draws, np.asarray(score(jnp.asarray(draws)), float))
            arm.score = found if np.isfinite(found) else np.inf
        arms = sorted(arms, key=lambda arm: arm.score)[: max(len(arms) // KEPT, 1)]
    return min(arms, key=lambda arm: arm.score), sum(arm.again for arm in every)


def main() -> None:
    request = json.loads(sys.stdin.read())
    with np.load(request["data"]) as file:
        data = jnp.asarray(file["X"]), jnp.asarray(file["y"])
    begun = time.process_time()
    d = data[0].shape[1]
    size = len(data[0]) // 100
    adam = build_optax_optimizer(optax.adam(1e-2), log_lik, log_prior, data, size)
    center, _ = adam(jax.random.PRNGKey(0), request["adam"], jnp.zeros(d))

    def log_post(theta: Any) -> jax.Array:
        terms = jax.vmap(log_lik, (None, 0, 0))(theta, *data)
        return terms.sum() + log_prior(theta)

    one = jax.jit(jax.grad(log_post))

    def score(draws: Any) -> np.ndarray:
        return np.stack([np.asarray(one(theta)) for theta in draws])

    best, again = search(request["method"], data, center, score, request["budget"])
    searched = time.process_time() - begun - again

    begun = time.process_time()
    best.draws, best.last = [], center
    best.run(jax.random.PRNGKey(1), request["seconds"])
    draws = np.array(best.draws)
    spent = time.process_time() - begun
    np.savez(request["out"], draws=thinned(draws), mean=draws.mean(0), sd=draws.std(0))
    found = {"search": searched, "seconds": spent, "draws": len(draws), **best.chosen}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
