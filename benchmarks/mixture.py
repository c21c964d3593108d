"""Steps a second of the Dirichlet-process mixture, and where they go."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import sgmcmc
from benchmarks.environments import HERE
from benchmarks.steps import Chain, graph, show, steps
from benchmarks.steps import parts as measured
from sgmcmc.data.dataset import Minibatch
from sgmcmc.dynamics import SCIR
from sgmcmc.dynamics.riemannian import SimplexState
from sgmcmc.model.geometry import Space
from sgmcmc.model.geometry.gamma import OnSimplex
from sgmcmc.model.target import Target
from sgmcmc.models import DPMixture, dp_mixture

DOCUMENT = HERE.parent / "docs" / "models.md"
WHOLE: dict[str, tuple[str, float, dict[str, Any]]] = {
    "SCIR": ("scir", 0.1, {}),
    "SGRLD": ("sgrld", 0.01, {}),
    "SGRLD in a plain graph": ("sgrld", 0.01, {"jit_compile": False}),
}
GIBBS = "Gibbs sampling, all users"


def read(smoke: bool) -> np.ndarray:
    """Return the users of the web data, or a few that visit areas at random."""
    if smoke:
        return (
            np.random.default_rng(1).poisson(0.2, (200, 30))
            + np.eye(200, 30, dtype=int)[::-1]
        )
    visits = sgmcmc.get_dataset("msweb")["train"]["visits"]
    return visits[visits.any(axis=1)]


def chain(model: DPMixture, method: str, h: float, n: int, **given: Any) -> Any:
    """Run a chain, or set one up."""
    return getattr(sgmcmc, method)(
        model.log_lik,
        model.dataset,
        model.start(seed=1),
        h,
        alpha=model.alpha,
        gibbs=model.gibbs,
        latents=model.latents,
        minibatch_size=n,
        seed=1,
        **given,
    )


def chains(model: DPMixture, n: int, n_iters: int) -> dict[str, tuple[Chain, int]]:
    """Return what is timed, and for how many iterations."""

    def of(method: str, h: float, size: int, given: dict[str, Any]) -> Chain:
        return lambda: chain(model, f"{method}_setup", h, size, **given)

    found = {
        k: (of(method, h, n, given), n_iters) for k, (method, h, given) in WHOLE.items()
    }
    found[GIBBS] = (
        of("scir", 50.0, len(model), {"fresh_scale": True}),
        max(1, n_iters // 20),
    )
    return found


def parts(model: DPMixture, n: int, n_iters: int) -> dict[str, Callable[[], Any]]:
    """Return what a step of SCIR consists of, at the position after so many steps."""
    last = chain(
        model,
        "scir",
        0.1,
        n,
        n_iters=n_iters,
        thin=n_iters,
        store_unnormalized=True,
        verbose=False,
    ).unnormalized
    theta = {name: last[name][-1] for name in ("sticks", "components")}
    geometries = {
        name: OnSimplex(np.broadcast_to(model.alpha[name], value.shape), value)
        for name, value in theta.items()
    }
    space = Space({name: value.shape for name, value in theta.items()}, geometries)
    target = Target(model.log_lik, None, space, tf.float32)
    position = tf.constant(space.start(theta, tf.float32))
    rng = np.random.default_rng(1)
    rows = rng.choice(len(model), n, replace=False)
    dataset = {**model.dataset, **model.latents}
    minibatch = {name: tf.gather(part, rows) for name, part in dataset.items()}
    params, seed = space.constrain(position), tf.constant([1, 2])
    gibbs = graph(lambda params: model.gibbs(params, minibatch, seed))
    completed = gibbs(params)
    gradient = graph(lambda u: target.gradient(u, Minibatch(completed, len(model) / n)))
    counts = gradient(position)
    seeds = tf.constant(rng.integers(2**31, size=(SCIR.seeds, 2)), tf.int32)
    scir, h = SCIR(model.alpha, fresh_scale=True).bind(space), tf.constant(0.1)
    move = graph(lambda u, counts: scir.step(SimplexState(u), counts, h, seeds))
    return {
        "slices, components and α": lambda: gibbs(params),
        "`log_lik` and its gradient": lambda: gradient(position),
        "SCIR's move": lambda: move(position, counts),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Steps a second of the mixture.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--smoke", action="store_true", help="tiny: only to see that all runs"
    )
    options = parser.parse_args(arguments)
    n_iters, rounds, calls = (5, 1, 3) if options.smoke else (200, options.rounds, 50)
    model = dp_mixture(read(options.smoke))
    n = min(1000, len(model) // 4)
    show(
        "mixture",
        f"{n} of {len(model)} users a step, {model.max_components} components held, "
        f"{model.n_words} areas: CPU time of all threads, median of {rounds} runs of {n_iters} "
        f"steps, and of {calls} calls of each part by itself in a plain graph.",
        steps(chains(model, n, n_iters), rounds),
        measured(parts(model, n, n_iters), calls),
        options.smoke,
        DOCUMENT,
    )


if __name__ == "__main__":
    main()
