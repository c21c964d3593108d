"""The compiled chain: compiled once, whatever part of a block is run."""

from __future__ import annotations

import time

import numpy as np
import tensorflow as tf

from sgmcmc.run.builder import chain_tracks
from sgmcmc.dynamics import SGHMC, SGLD, Dynamics
from sgmcmc.run.sampler import Target, make_sampler


def log_lik(params: dict, dataset: dict) -> tf.Tensor:
    return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)


def seconds_for_spans(dynamics: Dynamics, spans: list[tuple[int, int, int]]) -> list[float]:
    target = Target(log_lik, {"x": np.arange(50.0)}, {"theta": 0.0}, None, 5)
    sampler = make_sampler("sgld", target, 1e-4, lambda layout: dynamics, 1, {})
    track = chain_tracks(sampler, None, 100, [{}])[0]
    inputs = track._feed.block(0, is_last=True)
    seconds = []
    for span in spans:
        start = time.perf_counter()
        track._chain.run(track._carry, inputs, tf.constant(span))
        seconds.append(time.perf_counter() - start)
    return seconds


def test_a_chain_is_compiled_once() -> None:
    for dynamics in (SGLD(), SGHMC(0.1, 3)):
        spans = [(0, 10, 1), (0, 7, 1), (3, 9, 4), (0, 10, 11), (2, 3, 13), (0, 5, 21)]
        first, *rest = seconds_for_spans(dynamics, spans)
        # A call takes under a thousandth of a compilation: room for a busy machine.
        assert max(rest) < first / 5
