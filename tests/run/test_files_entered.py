"""How many files of the package a call enters before its first compiled block."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from tests import seams

RNG = np.random.default_rng(1)
X = RNG.normal(size=(5000, 4))
DATA = {"X": X, "y": (RNG.uniform(size=5000) < 0.5).astype(float)}
START = {"beta": np.zeros(4)}


def log_lik(params: Any, dataset: Any) -> tf.Tensor:
    z = tf.linalg.matvec(dataset["X"], params["beta"])
    return dataset["y"] * z - tf.math.softplus(z)


def log_prior(params: Any) -> tf.Tensor:
    return -0.5 * tf.reduce_sum(params["beta"] ** 2)


class FirstBlockError(Exception):
    """The first block is to run."""


def entered(call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the files entered on the way to the first block, with the first function of each."""
    home, found = str(Path(sgmcmc.__file__).parent), dict[str, str]()

    def look(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_filename.startswith(home)
            and code.co_name != "<module>"
        ):
            found.setdefault(code.co_filename[len(home) + 1 :], code.co_name)

    def stop(*_: Any, **__: Any) -> None:
        raise FirstBlockError

    monkeypatch.setattr(seams.RUNNER_ADVANCE, stop)
    threading.setprofile(look)
    sys.setprofile(look)
    try:
        with pytest.raises(FirstBlockError):
            call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


@pytest.mark.parametrize(
    ("call", "most"),
    [
        (
            "sgldcv(log_lik, DATA, START, 1e-4, 1e-4, log_prior, n_iters_opt=0, **QUIET)",
            55,
        ),
        pytest.param(
            "sample(log_lik, DATA, START, log_prior, **QUIET)",
            70,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_files_before_the_first_block(
    call: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {**globals(), "QUIET": {"verbose": False, "seed": 1}}
    found = entered(lambda: eval(f"sgmcmc.{call}", names), monkeypatch)
    print(f"{call.partition('(')[0]}: {len(found)} files")
    for file, function in found.items():
        print(f"  {file}: {function}")
    assert len(found) <= most
