"""What was found without silent mistakes is not tried again; anything else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.data.reading import read_dataset
from sgmcmc.inputs.dry_run import Tried
from sgmcmc.inputs.silent_mistakes import Trial
from tests import seams

Tensors = dict[str, tf.Tensor]

N = 60
X = np.random.default_rng(5).normal(size=(N, 2)).astype(np.float32)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows with each trial."""
    found: list[int] = []

    class Counted(Trial):
        def __init__(self, *arguments: Any) -> None:
            found.append(1)
            super().__init__(*arguments)

    monkeypatch.setattr(seams.SILENT_MISTAKES_TRIAL, Counted)
    return found


def run(log_lik: Callable[[Tensors, Tensors], tf.Tensor], data: np.ndarray = X) -> None:
    sgmcmc.sgld(
        log_lik, {"x": data}, {"theta": np.zeros(2)}, 1e-4, minibatch_size=10, n_iters=2, seed=1,
        verbose=False, jit_compile=False,
    )  # fmt: skip


def made(factor: float = 0.5) -> Callable[[Tensors, Tensors], tf.Tensor]:
    """Return a new function each time."""
    return lambda params, dataset: (
        -factor * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
    )


def test_the_same_model_is_tried_once(trials: list[int]) -> None:
    run(made())
    run(made())
    assert len(trials) == 1
    run(made(0.75))
    run(made(), 2 * X)
    assert len(trials) == 3


def test_the_same_graph_of_other_code(trials: list[int]) -> None:
    """On ten rows 1/10 and 1/n are the same, on halves of them they are not."""

    def tempered(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return -tf.reduce_sum((dataset["x"] - params["theta"]) ** 2) / 10

    def mean(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return (
            -tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
            / dataset["x"].shape[0]
        )

    run(tempered)
    for _ in range(2):
        with pytest.raises(ValueError, match="it is a mean over them"):
            run(mean)


def test_random_numbers_are_found_each_time(trials: list[int]) -> None:
    rng = np.random.default_rng(1)

    def drawn(params: Tensors, dataset: Tensors) -> tf.Tensor:
        moved = params["theta"] + rng.normal(size=2).astype(np.float32)
        return -tf.reduce_sum((dataset["x"] - moved) ** 2)

    for _ in range(2):
        with pytest.raises(ValueError, match="draws random numbers"):
            run(drawn)
    assert len(trials) == 2


def test_within_a_call() -> None:
    """The same functions with the same dataset, read twice where constants are chosen."""

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return tf.reduce_sum(dataset["x"])

    data = read_dataset({"x": X}, tf.float32)
    columns = data.rows(np.arange(10))

    def tried(in_parts: bool, log_lik: Any = log_lik, log_prior: Any = None) -> Tried:
        return Tried((log_lik, log_prior), data, object(), columns, in_parts)

    assert not tried(True).before
    tried(False).remember()
    assert tried(False).before and not tried(True).before
    tried(True).remember()
    assert tried(True).before and tried(False).before
    assert not tried(True, log_prior=abs).before
    assert not tried(True, log_lik=lambda *arguments: log_lik(*arguments)).before
