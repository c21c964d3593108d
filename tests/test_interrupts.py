"""Errors that stand for Ctrl-C, and those that do not."""

from __future__ import annotations

import pytest
import tensorflow as tf

from sgmcmc.interrupts import pass_on, passed_on

MISMATCH = (
    "pybind11::error_already_set: MISMATCH of original and normalized active exception types: "
    "ORIGINAL InvalidArgumentError REPLACED BY KeyboardInterrupt: <EMPTY MESSAGE>\nAt:\n  ops.py"
)
"""Word for word from the call that `tests/run/stress.py` broke with it."""


def caused(cause: BaseException, error: Exception) -> Exception:
    """Return an error with a cause."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        caused(
            KeyboardInterrupt(), SystemError("returned a result with an exception set")
        ),
        RuntimeError(MISMATCH),
        caused(RuntimeError(MISMATCH), ValueError("`log_lik` failed")),
        tf.errors.UnknownError(None, None, "KeyboardInterrupt: \nTraceback: ..."),
    ],
)
def test_what_stands_for_ctrl_c_is_ctrl_c(error: Exception) -> None:
    with pytest.raises(KeyboardInterrupt) as raised, passed_on():
        raise error
    assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("`n_iters` must be positive"),
        caused(
            TypeError("no KeyboardInterrupt at all"), RuntimeError("of another kind")
        ),
        tf.errors.UnknownError(None, None, "ValueError: no\nTraceback"),
    ],
)
def test_other_errors_are_themselves(error: Exception) -> None:
    pass_on(error)
    with pytest.raises(type(error)) as raised, passed_on():
        raise error
    assert raised.value is error
