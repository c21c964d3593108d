"""Stepsizes that change with the iteration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sgmcmc.checks import describe, is_number, positive_number, whole_number
from sgmcmc.interrupts import pass_on

Schedule = Callable[[int], float]


@dataclass(frozen=True)
class PolynomialDecay:
    """The schedule that :func:`polynomial_decay` returns."""

    h: float
    tau: float
    kappa: float

    def __call__(self, iteration: int) -> float:
        """Return the stepsize at an iteration."""
        return float(self.h * (1.0 + iteration / self.tau) ** (-self.kappa))

    def weights(self, iterations: np.ndarray) -> np.ndarray:
        """Return the weights of draws at these iterations: their stepsizes."""
        return (1.0 + iterations / self.tau) ** (-self.kappa)


def polynomial_decay(h: float, tau: float, kappa: float) -> PolynomialDecay:
    """Return the polynomially decaying stepsize h(1 + m/τ)^(−κ) at iteration m.

    Iterations are counted from 1, burn-in included; the mode-finding of the control variate
    methods counts its own. Averages over draws of decreasing stepsizes are weighted by the
    stepsizes, Σ ε_m f(θ_m) / Σ ε_m: ``samples.weights`` has them, and ``summary`` and ``predict``
    use them.

    Args:
        h: Stepsize at the start, positive.
        tau: τ, the number of iterations after which decay sets in, positive.
        kappa: κ, the rate of decay, not negative.

    Returns:
        A function of the iteration, valid wherever a stepsize is.

    Raises:
        ValueError, TypeError: An argument is out of its range, or no number.

    Example:
        >>> import sgmcmc
        >>> stepsize = sgmcmc.polynomial_decay(0.5, tau=10, kappa=0.33)
        >>> round(stepsize(10), 4)
        0.3978

    Source:
        J. Baker, *Large-Scale Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster
        2018, appendix B.5; Welling & Teh, ICML 2011, eq. 11, for the weights, and Teh, Thiery &
        Vollmer, Journal of Machine Learning Research 17, 2016, for their consistency.
    """
    if not is_number(kappa):
        raise TypeError(f"`kappa` must be a number; it is {describe(kappa)}.")
    if not (kappa >= 0 and np.isfinite(kappa)):
        raise ValueError(f"`kappa` must be finite and not negative; it is {kappa!r}.")
    return PolynomialDecay(
        positive_number("h", h), positive_number("tau", tau), float(kappa)
    )


@dataclass(frozen=True)
class Cyclical:
    """The schedule that :func:`cyclical` returns."""

    h: float
    cycle: int
    exploration: float

    def __call__(self, iteration: int) -> float:
        """Return the stepsize at an iteration."""
        return float(
            0.5 * self.h * (np.cos(np.pi * self._cycle_fraction(iteration)) + 1.0)
        )

    def counts(self, n_draws: int, burn_in: int = 0, thin: int = 1) -> np.ndarray:
        """Return which draws are of the sampling part of their cycle, a boolean for each.

        Args:
            n_draws: Number of draws of a chain.
            burn_in: Number of iterations before the first draw.
            thin: Number of iterations for a draw.
        """
        return self.weights(burn_in + thin * (1 + np.arange(n_draws))) > 0

    def weights(self, iterations: np.ndarray) -> np.ndarray:
        """Return the weights of draws at these iterations: 1 if they count, otherwise 0."""
        return np.asarray(self._cycle_fraction(iterations) >= self.exploration, float)

    def _cycle_fraction(self, iteration: int | np.ndarray) -> float | np.ndarray:
        return ((iteration - 1) % self.cycle) / self.cycle


def cyclical(h: float, cycle: int, exploration: float = 0.5) -> Cyclical:
    """Return the cyclical stepsize (h/2) [cos(π mod(k − 1, M)/M) + 1] at iteration k.

    Each cycle of M iterations starts with the large stepsize h, at which the chain crosses to other
    modes, and ends near zero, where it samples the mode that it is in. Draws of the first part of a
    cycle have a large discretization error and should not count. Modes are visited as often as
    their basins are entered at large stepsizes, which is not their posterior probability.

    Iterations are counted from 1, burn-in included. Noise is added at all of them; the paper leaves
    it out in the first part.

    Args:
        h: Largest stepsize, positive.
        cycle: M, the number of iterations in a cycle.
        exploration: Part of a cycle whose draws do not count, at least 0 and less than 1.

    Returns:
        A function of the iteration, valid wherever a stepsize is, with a method
        ``counts(n_draws, burn_in, thin)`` that returns which draws count. ``samples.weights`` are
        zero for the others, so that ``summary`` and ``predict`` leave them out.

    Raises:
        ValueError, TypeError: An argument is out of its range, or no number.

    Example:
        >>> import sgmcmc
        >>> stepsize = sgmcmc.cyclical(0.5, cycle=4)
        >>> [round(stepsize(k), 3) for k in range(1, 6)]
        [0.5, 0.427, 0.25, 0.073, 0.5]
        >>> stepsize.counts(5).tolist()
        [False, False, True, True, False]

    Source:
        Zhang, Li, Zhang, Chen & Wilson, ICLR 2020, eq. 1 and algorithm 1.
    """
    if not is_number(exploration):
        raise TypeError(
            f"`exploration` must be a number; it is {describe(exploration)}."
        )
    if not 0 <= exploration < 1:
        raise ValueError(
            f"`exploration` must be at least 0 and less than 1; it is {exploration!r}."
        )
    return Cyclical(
        positive_number("h", h), whole_number("cycle", cycle, 1), float(exploration)
    )


class Stepsizes:
    """The stepsizes of all parameters at any run of iterations.

    One number or schedule serves all parameters, or there is one for each, in the layout's order;
    or an array, with a number for each coordinate.

    Args:
        argument: Name of the user's argument, for messages.
        values: One entry for all parameters, or one for each.
        names: Parameters, if there is an entry for each.
        sizes: Sizes of the parameters.

    Attributes:
        constant: Whether no entry is a schedule.
        columns: Number of columns of the table that ``at`` returns: one, one for each parameter, or
            one for each coordinate if an entry is an array.

    Example:
        >>> Stepsizes("stepsize", (1e-3, polynomial_decay(1.0, 1.0, 1.0))).at(1, 2)
        array([[0.001     , 0.5       ],
               [0.001     , 0.33333333]])
    """

    def __init__(
        self,
        argument: str,
        values: tuple[float | Schedule | np.ndarray, ...],
        names: tuple[str, ...] = (),
        sizes: tuple[int, ...] = (),
    ) -> None:
        self.argument = argument
        self.values = values
        self.labels = tuple(f"{argument}[{name!r}]" for name in names) or (
            argument,
        ) * len(values)
        self.constant = not any(callable(value) for value in values)
        self._widths = [1] * len(values)
        if any(isinstance(value, np.ndarray) for value in values):
            self._widths = list(sizes) if len(values) == len(sizes) else [sum(sizes)]
        self.columns = sum(self._widths)

    def at(self, first: int, count: int) -> np.ndarray:
        """Return the stepsizes of iterations ``first`` to ``first + count - 1``, a row for each.

        Raises:
            ValueError: A schedule failed, or returned something that is not a positive finite
                number.
        """
        table = np.empty((count, self.columns))
        end = 0
        for label, value, width in zip(
            self.labels, self.values, self._widths, strict=True
        ):
            columns = table[:, end : end + width]
            end += width
            if not callable(value):
                columns[...] = np.reshape(value, -1)
                continue
            for row in range(count):
                columns[row] = _evaluate(label, value, first + row)
        return table

    def weights(self, iterations: np.ndarray) -> np.ndarray | None:
        """Return the weights of draws at these iterations; ``None`` if all are alike.

        They are in proportion to the stepsizes, or what a schedule's own ``weights`` says. If
        schedules of several parameters are not in proportion to each other, no weights are right
        for all, and there are none.
        """
        if self.constant or not iterations.size:
            return None
        entry_weights = [
            _weights(label, value, iterations)
            for label, value in zip(self.labels, self.values, strict=True)
        ]
        same = all(
            np.allclose(weights_of_entry, entry_weights[0], rtol=1e-6, atol=1e-12)
            for weights_of_entry in entry_weights
        )
        return entry_weights[0] if same else None

    def to_json(self) -> dict[str, Any] | None:
        """Return a schedule of this package, for files; ``None`` if there is none."""
        first = self.values[0]
        if not isinstance(first, PolynomialDecay | Cyclical):
            return None
        first_iterations = 1 + np.arange(64)
        if self.weights(first_iterations) is None:
            return None
        return {"schedule": type(first).__name__, **asdict(first)}


def schedule_of(facts: Mapping[str, Any]) -> PolynomialDecay | Cyclical:
    """Return the schedule of which ``Stepsizes.to_json`` gave these facts."""
    kinds = {kind.__name__: kind for kind in (PolynomialDecay, Cyclical)}
    return kinds[facts["schedule"]](
        **{k: v for k, v in facts.items() if k != "schedule"}
    )


def _weights(label: str, value: Any, iterations: np.ndarray) -> np.ndarray:
    """Return the weights by one entry of the stepsizes, with mean one."""
    own_weights = getattr(value, "weights", None)
    if not callable(value):
        weights = np.ones(iterations.size)
    elif callable(own_weights):
        weights = own_weights(iterations)
    else:
        weights = np.array([_evaluate(label, value, int(k)) for k in iterations])
    return weights / max(weights.mean(), np.finfo(float).tiny)


def _evaluate(label: str, schedule: Schedule, iteration: int) -> float:
    try:
        returned = schedule(iteration)
    except Exception as error:
        pass_on(error)
        raise ValueError(
            f"`{label}`: the schedule, a function of the iteration, failed at iteration "
            f"{iteration}: {type(error).__name__}: {error}"
        ) from error
    try:
        stepsize = float(returned)
    except (TypeError, ValueError):
        stepsize = float("nan")
    if not (stepsize > 0 and np.isfinite(stepsize)):
        raise ValueError(
            f"`{label}`: the schedule must return a positive, finite number; at iteration "
            f"{iteration} it returned {returned!r}."
        )
    return stepsize
