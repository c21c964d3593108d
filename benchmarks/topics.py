"""Steps a second of the topic model, and where they go: `python -m benchmarks.topics --help`."""

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
from sgmcmc.counts import Counts
from sgmcmc.data.dataset import Minibatch
from sgmcmc.dynamics import SCIR, SGRLD
from sgmcmc.dynamics.riemannian import SimplexState
from sgmcmc.model.geometry import Space
from sgmcmc.model.geometry.gamma import OnSimplex
from sgmcmc.model.target import Target
from sgmcmc.models import TopicModel, lda

DOCUMENT = HERE.parent / "docs" / "models.md"
ALPHA, STEPSIZE = 0.1, 0.1
WHOLE = {
    "SCIR": ("scir", None),
    "SGRLD": ("sgrld", None),
    "SGRLD in a plain graph": ("sgrld", False),
}


def read(smoke: bool) -> Counts:
    """Return KOS, or a few documents of random words."""
    if smoke:
        return Counts.read(np.random.default_rng(1).poisson(0.5, (60, 200)) + 1)
    return sgmcmc.get_dataset("kos")["counts"]


def chain(topic_model: TopicModel, method: str, **given: Any) -> Any:
    """Run a chain, or set one up."""
    return getattr(sgmcmc, method)(
        topic_model.log_lik,
        topic_model.dataset,
        topic_model.start(seed=1),
        STEPSIZE,
        alpha=ALPHA,
        gibbs=topic_model.gibbs,
        minibatch_size=50,
        seed=1,
        **given,
    )


def parts(topic_model: TopicModel, n_iters: int) -> dict[str, Callable[[], Any]]:
    """Return what a step consists of, at the position after so many steps of SCIR."""
    shape = (topic_model.n_topics, topic_model.n_words)
    whole = chain(
        topic_model,
        "scir",
        n_iters=n_iters,
        thin=n_iters,
        store_unnormalized=True,
        verbose=False,
    )
    last = whole.unnormalized["topics"][-1]
    space = Space({"topics": shape}, {"topics": OnSimplex(np.full(shape, ALPHA), last)})
    target = Target(topic_model.log_lik, None, space, tf.float32)
    position = tf.constant(space.start({"topics": last}, tf.float32))
    rng = np.random.default_rng(1)
    N = len(topic_model.dataset["lengths"])
    rows = rng.choice(N, 50, replace=False)
    minibatch = {
        name: tf.gather(part, rows) for name, part in topic_model.dataset.items()
    }
    params, seed = space.constrain(position), tf.constant([1, 2])
    gibbs = graph(lambda params: topic_model.gibbs(params, minibatch, seed))
    completed = gibbs(params)
    gradient = graph(lambda u: target.gradient(u, Minibatch(completed, N / 50)))
    counts = gradient(position)
    seeds = tf.constant(rng.integers(2**31, size=(SCIR.seeds, 2)), tf.int32)
    scir, sgrld = SCIR(ALPHA).bind(space), SGRLD(ALPHA).bind(space)
    h = tf.constant(STEPSIZE)
    scir_step = graph(lambda u, counts: scir.step(SimplexState(u), counts, h, seeds))
    sgrld_step = graph(
        lambda u, counts, noise: sgrld.step(SimplexState(u), counts, h, noise)
    )

    def normals() -> tf.Tensor:
        return tf.constant(rng.standard_normal((1, position.shape[0]), np.float32))

    return {
        "Gibbs sweeps": lambda: gibbs(params),
        "`log_lik` and its gradient": lambda: gradient(position),
        "SCIR's step": lambda: scir_step(position, counts),
        "SGRLD's step with its normals": lambda: sgrld_step(
            position, counts, normals()
        ),
        "· of which normals": normals,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Steps a second of the topic model.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--smoke", action="store_true", help="tiny: only to see that all runs"
    )
    options = parser.parse_args(arguments)
    n_iters, rounds, calls = (5, 1, 3) if options.smoke else (200, options.rounds, 50)
    topic_model = lda(read(options.smoke), n_topics=50)

    def of(method: str, jit_compile: bool | None) -> Chain:
        return lambda: chain(topic_model, f"{method}_setup", jit_compile=jit_compile)

    show(
        "topics",
        f"50 of {len(topic_model.dataset['lengths'])} documents a step, {topic_model.n_topics} "
        f"topics, {topic_model.n_words} words: CPU time of all threads, median of {rounds} runs "
        f"of {n_iters} steps, and of {calls} calls of each part by itself in a plain graph.",
        steps({label: (of(*how), n_iters) for label, how in WHOLE.items()}, rounds),
        measured(parts(topic_model, n_iters), calls),
        options.smoke,
        DOCUMENT,
    )


if __name__ == "__main__":
    main()
