"""Stepsizes that change with the iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Schedule = Callable[[int], float]


@dataclass(frozen=True)
class PolynomialDecay:
    """The schedule that :func:`polynomial_decay` returns."""

    h: float
    tau: float
    kappa: float

    def __call__(self, iteration: int) -> float:
        return float(self.h * (1.0 + iteration / self.tau) ** (-self.kappa))


def polynomial_decay(h: float, tau: float, kappa: float) -> PolynomialDecay:
    """Return the polynomially decaying stepsize h(1 + m/τ)^(−κ) at iteration m.

    Iterations are counted from 1, burn-in included; the mode-finding of the control variate
    methods counts its own.

    Args:
        h: the stepsize at the start, positive.
        tau: τ, the number of iterations after which decay sets in, positive.
        kappa: κ, the rate of decay, not negative.

    Returns:
        A function of the iteration that goes wherever a stepsize goes.

    Raises:
        ValueError: an argument is out of its range.

    Example:
        >>> stepsize = polynomial_decay(0.5, tau=10, kappa=0.33)
        >>> round(stepsize(10), 4)
        0.3978

    Source:
        J. Baker, *Large-Scale Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster
        2018, appendix B.5.
    """
    checks = {"h": (h, h > 0), "tau": (tau, tau > 0), "kappa": (kappa, kappa >= 0)}
    for name, (value, good) in checks.items():
        if not (good and np.isfinite(value)):
            bound = "not negative" if name == "kappa" else "positive"
            raise ValueError(f"`{name}` must be finite and {bound}; it is {value!r}.")
    return PolynomialDecay(float(h), float(tau), float(kappa))


class Stepsizes:
    """The stepsizes of all parameters at any run of iterations.

    One number or schedule serves all parameters, or there is one for each, in the layout's order.

    Args:
        argument: the name of the user's argument, for messages.
        values: one entry for all parameters, or one for each.

    Example:
        >>> Stepsizes("stepsize", (1e-3, polynomial_decay(1.0, 1.0, 1.0))).at(1, 2)
        array([[0.001     , 0.5       ],
               [0.001     , 0.33333333]])
    """

    def __init__(self, argument: str, values: tuple[float | Schedule, ...]) -> None:
        self.argument = argument
        self.values = values
        self.constant = not any(callable(value) for value in values)

    def at(self, first: int, count: int) -> np.ndarray:
        """Return the stepsizes of iterations ``first`` to ``first + count - 1``, a row for each.

        Raises:
            ValueError: a schedule returned something that is not a positive finite number.
        """
        table = np.empty((count, len(self.values)))
        for column, value in enumerate(self.values):
            if not callable(value):
                table[:, column] = value
                continue
            for row in range(count):
                table[row, column] = self._evaluate(value, first + row)
        return table

    def _evaluate(self, schedule: Schedule, iteration: int) -> float:
        returned = schedule(iteration)
        try:
            stepsize = float(returned)
        except (TypeError, ValueError):
            stepsize = float("nan")
        if not (stepsize > 0 and np.isfinite(stepsize)):
            raise ValueError(
                f"`{self.argument}`: the schedule must return a positive, finite number; at "
                f"iteration {iteration} it returned {returned!r}."
            )
        return stepsize
