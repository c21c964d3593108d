"""Processes that are forked after TensorFlow was used, in which its calls would never end."""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc

X = np.random.default_rng(0).normal(1.0, 1.0, 50)
OPTIONS: dict[str, Any] = {"verbose": False, "seed": 1}


def log_lik(params: Any, dataset: Any) -> tf.Tensor:
    return -0.5 * (dataset["x"] - params["m"]) ** 2


def mean(params: Any, dataset: Any) -> tf.Tensor:
    return params["m"] + 0 * dataset["x"]


def _report(calls: dict[str, Any], sender: Any) -> None:
    for name, call in calls.items():
        try:
            call()
        except RuntimeError as error:
            sender.send((name, str(error)))
    sender.close()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_process_says_how_to_start_processes() -> None:
    chain = sgmcmc.sgld(
        log_lik, {"x": X}, {"m": 0.0}, 1e-3, minibatch_size=10, n_iters=100, **OPTIONS
    )
    chain.predict(mean, {"x": X})
    calls = {
        "sample": lambda: sgmcmc.sample(log_lik, {"x": X}, {"m": 0.0}, **OPTIONS),
        "nuts": lambda: sgmcmc.nuts(log_lik, {"x": X}, {"m": 0.0}, **OPTIONS),
        "sgld": lambda: sgmcmc.sgld(
            log_lik,
            {"x": X},
            {"m": 0.0},
            1e-3,
            minibatch_size=10,
            n_iters=100,
            **OPTIONS,
        ),
        "glm": lambda: sgmcmc.glm("x ~ 1", {"x": X}, reduce=False, **OPTIONS),
        "predict": lambda: chain.predict(mean, {"x": X}),
        "loo": lambda: chain.loo({"x": X}),
        "extend": lambda: chain.extend(10),
    }
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=_report, args=(calls, sender)
    )
    process.start()
    sender.close()
    said = {}
    try:
        while receiver.poll(60):
            name, message = receiver.recv()
            said[name] = message
    except EOFError:
        pass
    process.kill()
    process.join()
    assert list(said) == list(calls)
    assert all("spawn" in message for message in said.values())
