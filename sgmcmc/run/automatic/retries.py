"""Chains that diverge start anew with smaller steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from sgmcmc.errors import DivergenceError

Result = TypeVar("Result")


def with_smaller_steps(
    plan: Any, attempt: Callable[[Any], Result], tries: int, factor: float
) -> tuple[Any, Result]:
    """Return the first plan by which an attempt does not diverge, and what came of it.

    Args:
        plan: a dataclass with a ``stepsize``, to begin with.
        attempt: is handed a plan.
        tries: how many there are.
        factor: by which the stepsize is divided after each.

    Raises:
        DivergenceError: the last attempt diverged too.
    """
    for left in reversed(range(tries)):
        try:
            return plan, attempt(plan)
        except DivergenceError:
            if left == 0:
                raise
            plan = replace(plan, stepsize=plan.stepsize / factor)
    raise AssertionError("not reached")
