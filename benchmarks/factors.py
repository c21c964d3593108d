"""CPU time of a step of matrix factorization, and where it goes."""

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
from sgmcmc.dynamics import SGLD
from sgmcmc.gradients import SAGA, ControlVariate
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import Target
from sgmcmc.models import HeldOutRatings, MatrixFactorization, matrix_factorization

DOCUMENT = HERE.parent / "docs" / "models.md"


def read(smoke: bool) -> tuple[MatrixFactorization, HeldOutRatings]:
    """Return ml-100k, split u1, or a few random ratings; and those held out."""
    if smoke:
        rng = np.random.default_rng(1)
        user, item = rng.integers(30, size=600), rng.integers(20, size=600)
        every = {"user": user, "item": item, "rating": rng.normal(3.0, 1.0, 600)}
        train, test = (
            {k: c[part] for k, c in every.items()}
            for part in (slice(500), slice(500, 600))
        )
        model = matrix_factorization(train, 2, n_users=30, n_items=20)
        return model, model.held_out(test)
    data = sgmcmc.get_dataset("movielens")
    model = matrix_factorization(data["train"], 20, n_users=943, n_items=1682)
    return model, model.held_out(data["test"])


def chain(model: MatrixFactorization, gradient: Callable[[], Any], n: int) -> Chain:
    """Return a chain with the published stepsizes, that keeps its last draw alone."""
    return lambda: sgmcmc.setup(
        model.log_lik,
        model.dataset,
        model.start(seed=1),
        model.log_prior,
        dynamics="sgld",
        gradient=gradient(),
        minibatches="uniform",
        preconditioner="none",
        minibatch_size=n,
        stepsize=sgmcmc.gradient_scaled(5e-3, until=None),
        n_chains=1,
        seed=1,
        verbose=False,
    )


def parts(
    model: MatrixFactorization, test: HeldOutRatings, n: int
) -> dict[str, Callable[[], Any]]:
    """Return what a step consists of, and the score of a draw, at the start of a chain."""
    rng, space = np.random.default_rng(1), Space(model.shapes, {})
    target = Target(model.log_lik, model.log_prior, space, tf.float32)
    position = tf.constant(space.start(model.start(seed=1), tf.float32))
    N, d = len(model.dataset["rating"]), position.shape[0]
    rows = np.sort(rng.choice(N, n, replace=False))
    columns = {
        name: tf.constant(column[rows]) for name, column in model.dataset.items()
    }
    slope = graph(lambda u: target.gradient(u, Minibatch(columns, N / n)), True)
    dynamics, h = SGLD().bind(space), tf.constant(1e-3)

    def normals() -> tf.Tensor:
        return tf.constant(rng.standard_normal((1, d), np.float32))

    gradient, noise = slope(position), normals()
    state = dynamics.init(position, gradient, h, noise)
    move = graph(lambda state, g, noise: dynamics.step(state, g, h, noise), True)
    reduction = test.score(10)
    kept = reduction.start(space.constrain(position), tf.float32)
    score = graph(lambda u: reduction.update(kept, space.constrain(u)), True)
    return {
        "the gradient": lambda: slope(position),
        "the move, without its scales": lambda: move(state, gradient, noise),
        "as many normals by NumPy": normals,
        f"the score of a draw on {len(test)} ratings": lambda: score(position),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="CPU time of a step of matrix factorization."
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--smoke", action="store_true", help="tiny: only to see that all runs"
    )
    options = parser.parse_args(arguments)
    n_iters, n, rounds, calls = (
        (20, 50, 1, 3) if options.smoke else (2000, 5000, options.rounds, 50)
    )
    model, test = read(options.smoke)
    gradients: dict[str, Callable[[], Any]] = {
        "SGLD": lambda: "minibatch",
        "SGLD-CV": lambda: ControlVariate(sgmcmc.gradient_scaled(1e-2), 100),
        "SAGA with `lookups`": lambda: SAGA(lookups=model.lookups),
    }
    show(
        "factors",
        f"{n} of {len(model.dataset['rating'])} ratings a step, "
        f"{sum(int(np.prod(shape)) for shape in model.shapes.values())} numbers: CPU time of all "
        f"threads, median of {rounds} runs of {n_iters} steps, and of {calls} calls of each part "
        "by itself, compiled.",
        steps(
            {k: (chain(model, make, n), n_iters) for k, make in gradients.items()},
            rounds,
        ),
        measured(parts(model, test, n), calls),
        options.smoke,
        DOCUMENT,
    )


if __name__ == "__main__":
    main()
