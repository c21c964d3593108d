"""TensorFlow's start-up chatter is held back, and nothing else."""

from __future__ import annotations

import os

import pytest

from sgmcmc.libraries import without_chatter


def test_chatter_is_held_back_and_nothing_else(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with without_chatter():
        os.write(2, b"I0000 00:00:1.2 1 port.cc:1] all is well\nfirst\n")
        with without_chatter():
            os.write(2, b"2024-05-01 12:00:00.1: I core/x.cc:1] all is well\nsecond\n")
    os.write(2, b"third\n")
    assert capfd.readouterr().err.split() == ["first", "second", "third"]


def test_what_follows_a_failed_compilation_is_passed_on(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with without_chatter():
        os.write(2, b"W0000 00:00:1.2 1 op.cc:1] OP_REQUIRES failed at x.cc:2 : no\n\n")
        os.write(
            2, b'Stack trace for op definition: \nFile 1\nFile "a", line 1\n\t [[a]]\n'
        )
        os.write(2, b"W0000 00:00:1.2 1 op.cc:1] something else\n")
    words = capfd.readouterr().err.split("\n")
    assert words[0] == "File 1" and words[-2].endswith("something else")


def test_an_error_passes_through_what_holds_back(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ZeroDivisionError), without_chatter():
        os.write(2, b"before\n")
        raise ZeroDivisionError
    os.write(2, b"after\n")
    assert capfd.readouterr().err.split() == ["before", "after"]
