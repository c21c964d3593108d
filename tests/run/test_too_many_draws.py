"""Draws that no memory holds."""

from __future__ import annotations

import pytest

from tests.conftest import short_call


@pytest.mark.parametrize("n_iters", [10**14, 2**62])
def test_they_are_refused_before_anything_runs(n_iters: int) -> None:
    """More than any machine has, or than there are addresses; the search would diverge."""
    with pytest.raises(
        MemoryError, match="`n_iters`: the draws need .* GB .*`thin`, .*`store`"
    ):
        short_call("sgldcv", n_iters=n_iters, opt_stepsize=1e30)
