"""Exact moves or stochastic gradients: a choice by the predicted seconds of exact moves."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import outside
from sgmcmc.data.dataset import Data
from sgmcmc.data.minibatch import Tensors
from sgmcmc.dynamics import Dynamics
from sgmcmc.engine.prefetcher import available_cores
from sgmcmc.graphs.tracing import trace
from sgmcmc.inputs.options import without
from sgmcmc.results.samples import Samples
from sgmcmc.run.exact import run_exactly
from sgmcmc.run.exact.shape import DENSE
from sgmcmc.run.lengths import Requirements
from sgmcmc.run.request import Request
from sgmcmc.target.posterior import WholePosterior
from sgmcmc.target.target import Target
from sgmcmc.tuning.mode import Mode

_AFFORDABLE = 900.0
"""Largest predicted time of an exact method, in seconds, if the user sets no limit."""

_QUICK = 60.0
"""Predicted seconds of an exact method up to which it samples effects of groups."""

SAID = 180.0
"""Predicted seconds above which a warning comes before the run begins."""

_OF_THE_TIME = 0.8
"""Largest part of ``max_seconds`` that the prediction for an exact method may be."""

_LEFT = 0.3
"""Part of the user's seconds that must be left to begin again."""

_LEAST = 1e-3
"""Least number of seconds that an exact method is given, in which it says that they are over."""

_ROWS = 50_000
"""Rows that a gradient is timed on."""

_TIMINGS = 3
"""Number of timings."""

MOVES = 320
"""Moves of each chain of NUTS before the first draw is kept."""

_COLD = 600
"""Gradients of each chain of HMC before coordinates are known."""

_WARM_UP = 200
"""Moves of each chain of HMC after that until the first draw."""

_FIRST = 250
"""Least number of draws of HMC."""

_STEPS = 0.9
"""Gradients of a move of HMC near N(0, I), in units of d^(1/4)."""

_OVERRUN = 4.0
"""Largest multiple of the predicted seconds that an exact chain chosen here may run."""

_BYTES = 2e10
"""Bytes of a matrix that a core reads in a second, for a product with a vector."""

_BEFORE = "before these chains"
"""Name of the seconds until an exact method was chosen, in reports."""

_OF_OTHERS = ("minibatches", "replace", "updates")
"""Keywords without a meaning if every gradient uses the whole dataset and a step moves all."""


def seconds_of_gradient(target: Target, data: Data, position: np.ndarray) -> float:
    """Return the seconds that a gradient of the log posterior over all rows takes.

    Of very many rows it is timed on some.
    """
    size = min(data.size, max(1, _ROWS // target.row_terms))
    arguments = tf.constant(position, target.dtype), data.slice(0, size)
    graph = _gradient(target, *arguments)
    seconds = []
    for _ in range(_TIMINGS):
        began = time.perf_counter()
        graph(*arguments).numpy()
        seconds.append(time.perf_counter() - began)
    return min(seconds) * data.size / size


def _gradient(target: Target, point: tf.Tensor, columns: Tensors) -> Any:
    """Return the compiled gradient, as chains have it, called once."""

    def gradient(u: tf.Tensor, columns: Tensors) -> tf.Tensor:
        return WholePosterior(target, columns)(u)[1]

    for jit_compile in (True, False):
        graph = trace(gradient, point, columns, jit_compile=jit_compile)
        try:
            graph(point, columns)
        except tf.errors.OpError:  # XLA cannot compile the model
            continue
        return graph
    raise AssertionError("not reached")


@dataclass(frozen=True)
class Cost:
    """Predicted cost of exact sampling.

    Args:
        gradient: Seconds of a gradient over all rows.
        gradients: Gradients of all chains.
        required: Requested precision and length.
        whitening: Seconds of the products with a dense matrix that a gradient may need.
    """

    gradient: float
    gradients: float
    required: Requirements
    whitening: float = 0.0

    @classmethod
    def of(cls, gradient: float, d: int, required: Requirements) -> Cost:
        """Return the cost of HMC in d coordinates that are near N(0, I)."""
        steps = math.ceil(_STEPS * d**0.25)
        moves = _WARM_UP + max(_FIRST, 2.0 * required.ess / required.n_chains)
        whitening = 8.0 * d**2 / _BYTES if d <= DENSE else 0.0
        return cls(gradient, required.n_chains * (_COLD + moves * steps), required, whitening)

    @property
    def seconds(self) -> float:
        """Seconds, with chains side by side."""
        return self.gradient * self.gradients / self._at_once

    @property
    def most_seconds(self) -> float:
        """Seconds that the run may take if the user sets no limit, dense coordinates included."""
        return max(SAID, _OVERRUN * self.seconds) + self.whitening * self.gradients / self._at_once

    @property
    def _at_once(self) -> int:
        return min(self.required.n_chains, available_cores())

    @property
    def affordable(self) -> bool:
        """Whether that is within the user's time limit, or a few minutes."""
        most = self.required.max_seconds
        return self.seconds <= (_AFFORDABLE if most is None else _OF_THE_TIME * most)

    @property
    def quick(self) -> bool:
        """Whether that is within the user's time limit, and about a minute."""
        return self.seconds <= _QUICK and self.affordable

    def warn(self, function: str) -> None:
        """Warn of a long run before it begins, if the user has set no limit."""
        if self.required.max_seconds is None and self.seconds > SAID:
            warnings.warn(
                f"{function}() will take about {self.seconds / 60:.0f} minutes: a gradient over "
                f"all rows takes {self.gradient:.2g} s. `max_seconds` bounds it; effects of groups "
                "are integrated out by `groups=`, which takes a fraction of that.",
                UserWarning,
                stacklevel=outside(),
            )


def may_start_again(required: Requirements, left: float) -> bool:
    """Return whether enough of the user's time is left."""
    return required.max_seconds is None or left >= _LEFT * required.max_seconds


def run_exact(
    request: Request,
    dynamics: Dynamics,
    required: Requirements,
    verbose: bool,
    began: float,
    reason: str,
    doubts: list[str],
    cost: Cost | None = None,
    mode: Mode | None = None,
    stepsize: float | None = None,
) -> Samples:
    """Return draws by HMC or NUTS on the whole dataset, with their report.

    Args:
        request: The user's request, in which the choices made here are open.
        dynamics: HMC or NUTS.
        required: Requested precision and length.
        verbose: Whether to show progress.
        began: Time at which the clock of ``max_seconds`` was started.
        reason: Reason for the choice of the sampler, shown in the report.
        doubts: Further warnings of the report.
        cost: Predicted cost, which bounds the run if the user sets no limit.
        mode: Mode, if it is known.
        stepsize: Stepsize; ``None`` to find one.
    """
    options = without(request.read.options, _OF_OTHERS)
    exact = replace(
        request.tuned(
            method=dynamics.name,
            dynamics=dynamics,
            gradient=None,
            minibatch_size=None,
            stepsize=stepsize,
            mode=mode,
        ),
        model=replace(request.read, options=options),
        keywords={k: v for k, v in request.keywords.items() if k not in _OF_OTHERS},
    )
    before = time.monotonic() - began
    if required.max_seconds is not None:
        required = replace(required, max_seconds=max(required.max_seconds - before, _LEAST))
    elif cost is not None:
        required = replace(required, max_seconds=cost.most_seconds)
    return run_exactly(exact, required, verbose, reason, doubts, {_BEFORE: before})
