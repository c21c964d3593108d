"""The compiled kernel: compiled once, whatever part of a block is run."""

from __future__ import annotations

import time

import pytest
import tensorflow as tf

from sgmcmc.dynamics import SGHMC, SGLD, Dynamics
from sgmcmc.engine.runner import Runner
from sgmcmc.gradients import MinibatchGradient
from sgmcmc.graphs.compiler import Compiler
from sgmcmc.run.builder import PhaseRun, RunOutput, make_runners
from sgmcmc.run.chain_executors import ThreadExecutor
from sgmcmc.run.driver import whole_by_chain
from sgmcmc.run.request import Request
from sgmcmc.run.sampler import make_sampler
from tests.conftest import log_lik, observations


def runner_of(dynamics: Dynamics) -> Runner:
    """Return the runner of a chain on the tiny model."""
    request = Request(
        "sgld",
        "sgld",
        log_lik,
        {"x": observations()},
        {"theta": 0.0},
        None,
        dynamics,
        MinibatchGradient(),
        5,
        1e-4,
        1,
        {
            "store_params": False,
            "test_functions": {"none": lambda params: params["theta"]},
        },
    )
    sampler = make_sampler(request)
    return make_runners(
        PhaseRun(sampler, sampler.chain, 100),
        sampler.starts,
        whole_by_chain(sampler),
        RunOutput.nowhere(1),
        ThreadExecutor(sampler.compiler),
    )[0]


def seconds_for_spans(
    dynamics: Dynamics, spans: list[tuple[int, int, int, int]]
) -> tuple[float, list[float]]:
    """Return what compilation takes, and then the runs of each span."""
    runner = runner_of(dynamics)
    kernel, inputs = runner._kernel, runner._inputs(0, 0)
    start = time.perf_counter()
    assert kernel.compile(Compiler(True), runner.carry, inputs)
    compiled, seconds = time.perf_counter() - start, []
    for span in spans:
        start = time.perf_counter()
        kernel.run(runner.carry, inputs, tf.constant(span))
        seconds.append(time.perf_counter() - start)
    return compiled, seconds


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "dynamics", [SGLD(), SGHMC(0.1, 3)], ids=["one step", "three steps"]
)
def test_a_chain_is_compiled_once(dynamics: Dynamics) -> None:
    """Before the first run, which is as fast as any."""
    of_chain = [(0, 10, 1), (0, 7, 1), (3, 9, 4), (0, 10, 11), (2, 3, 13), (0, 5, 21)]
    spans = [(*span, burn_in) for span, burn_in in zip(of_chain, range(6), strict=True)]
    compiled, seconds = seconds_for_spans(dynamics, spans)
    # A call takes about a hundredth of a compilation: room for a busy machine.
    assert max(seconds) < compiled / 5
