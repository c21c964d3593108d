"""CPU time of steps on manifolds, and of the spherical admixture model, and where it goes."""

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
from benchmarks.topics import read
from sgmcmc.data.dataset import Minibatch
from sgmcmc.dynamics import SGGMC
from sgmcmc.manifolds import Manifold, Sphere, Stiefel
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import Target
from sgmcmc.models import SphericalTopicModel, sam

DOCS = HERE.parent / "docs"
Call = Callable[[], Any]


def projections(
    params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
) -> tf.Tensor:
    """Return the log-likelihood of rows whose variance is larger along the columns of v."""
    v = params["v"]
    along = tf.matmul(dataset["x"], v[:, tf.newaxis] if v.shape.rank == 1 else v)
    return 0.3 * tf.reduce_sum(along**2, -1)


def directions(smoke: bool) -> dict[str, tuple[Chain, int]]:
    """Return chains of a direction and of a frame, by the samplers for manifolds and in ℝᵈ."""
    N, d, n_iters = (200, 4, 50) if smoke else (10_000, 10, 20_000)
    x = np.random.default_rng(1).normal(size=(N, d))
    frame = np.eye(d, 3)

    def chain(method: str, start: np.ndarray, manifold: Manifold | None) -> Chain:
        given = {"manifolds": {"v": manifold}} if manifold else {}
        prior = (
            None
            if manifold
            else (lambda params: -1e4 * tf.reduce_sum(params["v"] ** 2))
        )
        return lambda: getattr(sgmcmc, f"{method}_setup")(
            projections,
            {"x": x},
            {"v": start},
            1e-5,
            prior,
            minibatch_size=100,
            seed=1,
            **given,
        )

    runs = {
        "`sgld` in ℝ¹⁰": chain("sgld", frame[:, 0], None),
        "`sghmc` in ℝ¹⁰, of five updates": chain("sghmc", frame[:, 0], None),
        "`sggmc`, a direction in ℝ¹⁰": chain("sggmc", frame[:, 0], Sphere()),
        "`gsgnht`, a direction in ℝ¹⁰": chain("gsgnht", frame[:, 0], Sphere()),
        "`sggmc`, a frame of 10 × 3": chain("sggmc", frame, Stiefel()),
        "`gsgnht`, a frame of 10 × 3": chain("gsgnht", frame, Stiefel()),
    }
    return {label: (run, n_iters) for label, run in runs.items()}


def topics_on_the_sphere(model: SphericalTopicModel, method: str) -> Chain:
    """Return a chain of the spherical admixture model."""
    return lambda: getattr(sgmcmc, f"{method}_setup")(
        model.log_lik,
        model.dataset,
        model.start(seed=1),
        1e-7,
        model.log_prior,
        manifolds={"topics": Sphere()},
        gibbs=model.gibbs,
        latents=model.latents,
        minibatch_size=50,
        seed=1,
    )


def parts(model: SphericalTopicModel) -> dict[str, Call]:
    """Return what a step consists of, at the start of a chain."""
    start, rng = model.start(seed=1), np.random.default_rng(1)
    space = Space({"topics": start["topics"].shape}, {"topics": Sphere()})
    position = tf.constant(space.start(start, tf.float32))
    target = Target(model.log_lik, None, space, tf.float32)
    prior = Target(model.log_lik, model.log_prior, space, tf.float32)
    kept = {**model.dataset, **model.latents}
    N = kept["proportions"].shape[0]
    minibatch = {
        name: tf.gather(part, rng.choice(N, 50, False)) for name, part in kept.items()
    }
    params, seed = space.constrain(position), tf.constant([1, 2])
    sweeps = graph(lambda params: model.gibbs(params, minibatch, seed)["drawn"], True)
    drawn = {**minibatch, "drawn": sweeps(params)}
    slope = graph(lambda u: target.gradient(u, Minibatch(drawn, N / 50)), True)
    of_prior = graph(prior.prior_gradient, True)
    dynamics, h = SGGMC(alpha=1.0).bind(space), tf.constant(1e-7)
    gradient, d = slope(position), position.shape[0]

    def normals() -> tf.Tensor:
        return tf.constant(rng.standard_normal((1, d), np.float32))

    state = dynamics.init(position, gradient, h, normals())

    def moved(state: Any, gradient: tf.Tensor, normals: tf.Tensor) -> Any:
        return dynamics.finish_step(
            dynamics.step(state, gradient, h, normals), gradient, h
        )

    move, noise = graph(moved, True), normals()
    return {
        "Gibbs sweeps": lambda: sweeps(params),
        "`log_lik` and its gradient": lambda: slope(position),
        "`log_prior` and its gradient": lambda: of_prior(position),
        "the move along great circles": lambda: move(state, gradient, noise),
        "as many normals by NumPy": normals,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="CPU time of steps on manifolds.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--smoke", action="store_true", help="tiny: only to see that all runs"
    )
    options = parser.parse_args(arguments)
    rounds, calls = (1, 3) if options.smoke else (options.rounds, 50)
    show(
        "manifolds",
        "100 of 10 000 rows a step, one chain: CPU time of all threads, median of "
        f"{rounds} runs of 20 000 steps.",
        steps(directions(options.smoke), rounds),
        {},
        options.smoke,
        DOCS / "simplex.md",
    )
    model = sam(read(options.smoke), n_topics=20)
    of_topics = {
        f"`{method}`": (
            topics_on_the_sphere(model, method),
            5 if options.smoke else 500,
        )
        for method in ("sggmc", "gsgnht")
    }
    show(
        "spherical",
        f"50 of {model.latents['proportions'].shape[0]} documents a step, {model.n_topics} topics, "
        f"{model.n_words} words: CPU time of all threads, median of {rounds} runs of 500 "
        f"steps, and of {calls} calls of each part by itself, compiled.",
        steps(of_topics, rounds),
        measured(parts(model), calls),
        options.smoke,
        DOCS / "models.md",
    )


if __name__ == "__main__":
    main()
