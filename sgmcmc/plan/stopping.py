"""When chains stop: by their draws so far, or when time is up."""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.data.dataset import Data, Tensors
from sgmcmc.data.random_numbers import Purpose, RunPhase, generator
from sgmcmc.errors import DivergenceError
from sgmcmc.graphs.tracing import trace
from sgmcmc.interrupts import limited
from sgmcmc.model.target import Target
from sgmcmc.plan.local import LocalPlan
from sgmcmc.results.arrays import by_chain
from sgmcmc.results.diagnostics import Diagnostics, diagnose, until_enough
from sgmcmc.results.measured_error import watched
from sgmcmc.results.samples import Samples
from sgmcmc.run.driver import StoppingRule

# Effective size of a first run over the required one: the worst coordinate's is below the
# prediction.
_FIRST = 1.6
FEWEST = 25  # kept draws from which on a chain is checked


@dataclass(frozen=True)
class _Settings:
    memory: int = 2**29  # bytes of draws, if their number is not given
    max_draws: int = 2_000_000  # of each chain, if it is not given
    # Iterations after which the draws are checked first, if seconds are limited.
    first_look: int = 1000
    margin: float = 1.2  # factor by which chains are longer than they seem to need
    warning: float = 60.0  # predicted seconds above which there is one
    attempts: int = 4  # of chains that diverge
    divisor: float = 4.0  # of the stepsize from one attempt to the next
    # That chains have, once they are compiled, whatever came before.
    share_of_seconds: float = 0.2
    seconds: float = 5.0  # that they have at least: most chains have some draws by then
    rows: int = 500  # whose log-likelihood is watched
    draws_of_rows: int = 2000  # of each chain, along which that of each row is computed


_SETTINGS = _Settings()

# Share of the user's seconds until the end of a warm-up.
SHARE_OF_WARM_UP = 0.5


@dataclass(frozen=True)
class Goal:
    """Precision and length that a call asks of its draws, and the clock that it goes by.

    Attributes:
        tolerance: Largest relative error of a posterior SD.
        ess: Effective sample size, bulk and tail, that every coordinate should reach.
        n_chains: Number of chains.
        n_iters: Number of iterations after burn-in; ``None`` for as many as necessary.
        burn_in: Number of iterations dropped first; ``None`` for as many as necessary.
        max_seconds: Time limit of the whole call in seconds, or ``None``.
        verbose: Whether to show progress.
        hurried: Whether the time for the choice of constants is over.
        start_time: Time at which the clock of ``max_seconds`` was started.
        max_gradients: Gradients over all rows after which full-data chains end, in all of them.
    """

    tolerance: float
    ess: float
    n_chains: Any
    n_iters: int | None
    burn_in: int | None
    max_seconds: float | None
    verbose: bool = True
    hurried: bool = False
    start_time: float = 0.0
    max_gradients: float = math.inf

    @property
    def length_is_open(self) -> bool:
        """Whether neither length nor burn-in of the chains is given."""
        return self.n_iters is None and self.burn_in is None

    @property
    def seconds(self) -> float:
        """Time limit in seconds, infinite for none."""
        return math.inf if self.max_seconds is None else self.max_seconds

    @property
    def end_time(self) -> float:
        """Time at which the call should end, by the monotonic clock."""
        return self.start_time + self.seconds

    @property
    def seconds_left(self) -> float:
        """Seconds that are left."""
        return self.end_time - time.monotonic()

    @property
    def end_of_warm_up(self) -> float:
        """Time at which a warm-up should end, by the monotonic clock."""
        share = self.start_time + SHARE_OF_WARM_UP * self.seconds
        return max(share, (time.monotonic() + self.end_time) / 2)

    def limit(self, share: float) -> contextlib.AbstractContextManager[None]:
        """Return the context whose work ends after a share of the seconds of the call."""
        return limited(self.start_time + share * self.seconds)

    def checked(self, start_time: float) -> Goal:
        """Return the same, checked, with a clock that was started then."""
        verbose = checks.flag("verbose", self.verbose)
        tolerance = checks.positive_number("tolerance", self.tolerance)
        if tolerance >= 1:
            raise ValueError(
                f"`tolerance` must be below 1, a relative error; it is {tolerance:g}."
            )
        ess = checks.positive_number("ess", self.ess)
        n_chains = checks.whole_number("n_chains", self.n_chains, 2)
        n_iters, burn_in, max_seconds = self.n_iters, self.burn_in, self.max_seconds
        if n_iters is not None:
            n_iters = checks.whole_number("n_iters", n_iters, 100)
        if burn_in is not None:
            burn_in = checks.whole_number("burn_in", burn_in, 0)
        if max_seconds is not None:
            max_seconds = checks.positive_number("max_seconds", max_seconds)
        return Goal(
            tolerance,
            ess,
            n_chains,
            n_iters,
            burn_in,
            max_seconds,
            verbose,
            self.hurried,
            start_time,
            self.max_gradients,
        )


def need_draws(goal: Goal, thin: int) -> None:
    """Raise an error if a user's length leaves too few draws to judge them."""
    if goal.n_iters is not None and goal.n_iters < FEWEST * thin:
        raise ValueError(
            f"`thin` is {thin}, so that of `n_iters`={goal.n_iters} iterations only "
            f"{goal.n_iters // thin} are kept: too few to judge the chain, which needs "
            f"{FEWEST}."
        )


class ClockedRule(StoppingRule):
    """Stopping rule with the clock of a goal.

    Args:
        goal: Requested precision and length of the draws, and the clock.

    Attributes:
        doubt: A sentence on the posterior that is known before the chains, for the warning of a
            long run; empty for none.
    """

    doubt = ""

    def __init__(self, goal: Goal) -> None:
        self._goal, self._warned = goal, False

    @property
    def until(self) -> float:
        """Time at which the chains should end, by the monotonic clock."""
        return self._goal.end_time

    @property
    def least_seconds(self) -> float:
        """Seconds that chains have, once they are compiled, even if time is up by then."""
        return max(_SETTINGS.share_of_seconds * self._goal.seconds, _SETTINGS.seconds)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._goal.seconds_left

    def announce(self, seconds: float, reached: str = "") -> None:
        """Warn, once, that many more seconds are predicted, if the user has set no limit.

        Args:
            seconds: Predicted seconds.
            reached: What has been reached so far.
        """
        if (
            seconds <= _SETTINGS.warning
            or self._goal.max_seconds is not None
            or self._warned
        ):
            return
        self._warned = True
        warnings.warn(
            f"The chains will take about {seconds / 60:.0f} more minutes{reached}. Ctrl-C returns "
            f"the draws there are; `max_seconds` bounds the time. {self.doubt}".rstrip(),
            UserWarning,
            stacklevel=checks.outside(),
        )


class HasAutocorrelation(Protocol):
    """Plan with a predicted autocorrelation time.

    Attributes:
        autocorrelation: Autocorrelation time, in iterations.
    """

    @property
    def autocorrelation(self) -> float:
        """Autocorrelation time, in iterations."""


class UntilEffective(ClockedRule):
    """Runs until every coordinate has its effective sample size, or time is up.

    Args:
        goal: Requested precision and length of the draws, and the clock.
        plan: Plan that was chosen.
        d: Number of coordinates.
        thin: Number of iterations between kept draws.
        pace: Iterations that gave an effective draw of chains like these; ``None`` to predict it.

    Attributes:
        started: Time at which the chains were started, if that was before the first goal here.
        first_look: Number of iterations after which a chain with a time limit is first examined.

    Raises:
        ValueError: Too few draws would be kept to judge them.
    """

    def __init__(
        self,
        goal: Goal,
        plan: HasAutocorrelation,
        d: int,
        thin: int,
        pace: float | None = None,
    ) -> None:
        need_draws(goal, thin)
        super().__init__(goal)
        autocorrelation = plan.autocorrelation
        self.burn_in = goal.burn_in
        if self.burn_in is None:
            self.burn_in = int(max(100, 20 * autocorrelation))
            self.burn_in = min(self.burn_in, _SETTINGS.max_draws)
        iterations = _FIRST * goal.ess * max(autocorrelation, thin) / goal.n_chains
        if pace is not None:
            iterations = _SETTINGS.margin * goal.ess * pace
        first = int(np.ceil(max(250, FEWEST * thin, iterations)))
        draws_in_memory = int(_SETTINGS.memory / (4 * d * goal.n_chains))
        max_iterations = thin * min(_SETTINGS.max_draws, draws_in_memory)
        self.cap = goal.n_iters or min(max_iterations, 200 * first)
        self.first_look = _SETTINGS.first_look
        self._fewest = FEWEST * thin
        self.first = min(goal.n_iters or first, self.cap)
        self.diagnostics: Diagnostics | None = None
        self.started: float | None = None

    @property
    def _trial(self) -> int:
        return max(self.first_look, self._fewest)

    @property
    def reached(self) -> bool:
        """Whether the requested effective sample size is reached."""
        return self.diagnostics is not None and self.diagnostics.enough(self._goal.ess)

    @property
    def first_goal(self) -> int:
        """Number of iterations after which the length is decided first."""
        return (
            self.first
            if self._goal.max_seconds is None
            else min(self.first, self._trial)
        )

    def goals(self) -> Iterator[int]:
        """Yield numbers of iterations after burn-in; ``see`` receives the draws so far."""
        started = self.started or time.monotonic()
        goal = self.first_goal
        while True:
            yield goal
            if self.reached or self.left <= 0 or goal >= self.cap:
                return
            assert self.diagnostics is not None
            shortfall = self._goal.ess / max(1.0, self.diagnostics.smallest)
            self.announce(
                (time.monotonic() - started) * (_SETTINGS.margin * shortfall - 1.0),
                f": the smallest effective sample size is {self.diagnostics.smallest:.0f} "
                f"({self.diagnostics.scarcest}) of {self._goal.ess:g} so far",
            )
            # The smallest of many noisy estimates is too small, the more so for few draws.
            extra = goal * (
                min(4.0, max(1.3, np.sqrt(_SETTINGS.margin * shortfall))) - 1.0
            )
            in_time = self.left * goal / (time.monotonic() - started)
            goal = min(
                self.cap, goal + int(np.ceil(min(extra, max(self._trial, in_time))))
            )

    def see(self, samples: Samples) -> None:
        """Look at the draws so far."""
        self.diagnostics = until_enough(samples, self._goal.ess)


class RowsWatched:
    """Log-likelihood of some rows and log-prior along the draws.

    Of a network single weights say little: hidden units change places, and chains need not agree
    on them. What it predicts is watched by these.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        seed: Seed of the choice of rows.

    Attributes:
        name: Name of the log-likelihood, with the number of rows.
    """

    def __init__(self, target: Target, data: Data, seed: int) -> None:
        rng = generator(seed, 1, RunPhase.CHAIN, Purpose.PROBES)
        self._rows = np.sort(
            rng.choice(data.size, min(_SETTINGS.rows, data.size), replace=False)
        )
        self.name = f"log-likelihood of {len(self._rows)} rows"
        self._target, self._columns = target, data.rows(self._rows)
        self._values: np.ndarray | None = None
        self._graph: object = None

    def along(self, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return both, (chains, draws) by name; earlier values are not computed again."""
        chains, count = next(iter(draws.values())).shape[:2]
        if self._values is None or self._values.shape[1] > count:
            self._values = np.zeros((chains, 0, 2))
        n_known = self._values.shape[1]
        if n_known < count:
            new = self._computed(
                {name: array[:, n_known:] for name, array in draws.items()}
            )
            log_lik, log_prior = new[..., :-1].sum(-1), new[..., -1]
            sums = np.stack([log_lik, log_prior], -1)
            self._values = np.concatenate([self._values, sums], 1)
        return {self.name: self._values[..., 0], "log-prior": self._values[..., 1]}

    def diagnosed(self, draws: Mapping[str, np.ndarray]) -> Diagnostics:
        """Return the diagnostics of the log-likelihood of each row, along some of the draws.

        A model that does not give the terms of single rows has that of all these rows.
        """
        count = next(iter(draws.values())).shape[1]
        every = -(-count // _SETTINGS.draws_of_rows)
        values = self._computed(
            {name: array[:, ::every] for name, array in draws.items()}
        )
        diagnostics = diagnose({self.name: values[..., :-1]})
        if len(diagnostics.names) == 1:
            return replace(diagnostics, names=[self.name])
        return replace(
            diagnostics, names=[f"log-likelihood of row {row}" for row in self._rows]
        )

    def for_other_draws(self) -> RowsWatched:
        """Return the same for other draws."""
        rows = object.__new__(RowsWatched)
        rows.__dict__ = {**self.__dict__, "_values": None}
        return rows

    def _computed(self, draws: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return terms of the log-likelihood and the log-prior, (chains, draws, terms + 1)."""
        chains, count = next(iter(draws.values())).shape[:2]
        return np.array(
            [
                [
                    self._at(
                        {name: array[chain, draw] for name, array in draws.items()}
                    )
                    for draw in range(count)
                ]
                for chain in range(chains)
            ],
            np.float64,
        )

    def _at(self, params: Mapping[str, np.ndarray]) -> np.ndarray:
        point = {name: tf.constant(value) for name, value in params.items()}

        def value(params: Tensors, columns: Tensors) -> tf.Tensor:
            terms = tf.reshape(self._target.log_lik(dict(params), dict(columns)), [-1])
            prior = self._target.log_prior
            log_prior = (
                tf.zeros((), terms.dtype) if prior is None else prior(dict(params))
            )
            return tf.concat(
                [terms, tf.cast(tf.reshape(log_prior, [1]), terms.dtype)], 0
            )

        if self._graph is None:
            self._graph = trace(value, point, self._columns)
        terms: np.ndarray = self._graph(point, self._columns).numpy()  # type: ignore[operator]
        return terms


Result = TypeVar("Result")


def with_smaller_steps(
    attempt: Callable[[float], Result], tries: int = _SETTINGS.attempts
) -> Result:
    """Return the result of the first attempt that does not diverge.

    Args:
        attempt: Function of the factor that the stepsize is multiplied by: 1, then 1/4, 1/16, ….
        tries: Largest number of attempts.

    Raises:
        DivergenceError: The last attempt diverged too.
    """
    for number in range(tries):
        try:
            return attempt(_SETTINGS.divisor**-number)
        except DivergenceError:
            if number == tries - 1:
                raise
    raise AssertionError("not reached")


_SHORTEST = 3000  # iterations of a chain at least
_LONGEST = 200_000  # iterations of a chain at most
_LEAST_BURN_IN = 500  # iterations
_MOST_BYTES = 2**29  # memory for the draws of all chains


@dataclass(frozen=True)
class _WatchedSettings:
    max_draws: int = 2000  # that each chain keeps
    work: float = 2.4e11  # rows × coordinates that a chain processes by default
    burn_ins: int = 6  # in the length of a chain
    looks: int = 4  # times that chains are checked


_WATCHED_SETTINGS = _WatchedSettings()


class Watched(ClockedRule):
    """Runs until predictions and every watched quantity have their effective sample size.

    Args:
        goal: Requested precision and length of the draws, and the clock.
        plan: Plan that was chosen.
        target: Log posterior, without a preconditioner.
        rows: Rows whose log-likelihood is watched.
        thin: Number of iterations between the draws that the user wants to keep; fewer are kept if
            memory is short.

    Attributes:
        thin: Number of iterations between kept draws.
        series: Watched quantities at the last look, (chains, draws) by name.
        diagnostics: Diagnostics of each of them, by name.
    """

    def __init__(
        self,
        goal: Goal,
        plan: LocalPlan,
        target: Target,
        rows: RowsWatched,
        thin: int,
    ) -> None:
        super().__init__(goal)
        d = target.space.user_layout.size
        self.burn_in, self.cap = lengths_of(goal, plan, d, thin)
        bytes_of_draw = (
            goal.n_chains * d * np.dtype(target.dtype.as_numpy_dtype).itemsize
        )
        max_draws = max(
            1, min(_WATCHED_SETTINGS.max_draws, _MOST_BYTES // bytes_of_draw)
        )
        self.thin = max(thin, -(-self.cap // max_draws))
        self.rows = rows
        self.series: dict[str, np.ndarray] = {}
        self.diagnostics: dict[str, Diagnostics] = {}

    @property
    def predictions(self) -> Diagnostics:
        """Diagnostics of the log-likelihood of rows, at the last look."""
        return self.diagnostics[self.rows.name]

    @property
    def reached(self) -> bool:
        """Whether the requested effective sample size is reached."""
        return bool(self.diagnostics) and all(
            diagnostics.enough(self._goal.ess)
            for diagnostics in self.diagnostics.values()
        )

    def goals(self) -> Iterator[int]:
        """Yield the numbers of iterations after burn-in at which to stop."""
        started, shortest = time.monotonic(), FEWEST * self.thin
        goal = (
            shortest
            if np.isfinite(self.left)
            else max(shortest, self.cap // _WATCHED_SETTINGS.looks)
        )
        while True:
            goal = min(goal, self.cap)
            yield goal
            if self.reached or self.left <= 0 or goal >= self.cap:
                return
            more = max(self.cap // _WATCHED_SETTINGS.looks, goal)
            if np.isfinite(self.left):
                in_time = self.left * goal / (time.monotonic() - started)
                more = int(min(more, max(shortest, in_time)))
            goal += more

    def see(self, samples: Samples) -> None:
        """Look at the draws so far."""
        draws = by_chain(samples.settings, samples)
        tests = by_chain(samples.settings, samples.test_functions or {})
        self.series = {**self.rows.along(draws), **watched({**draws, **tests})}
        self.diagnostics = {
            name: diagnose({name: a}) for name, a in self.series.items()
        }


def lengths_of(goal: Goal, plan: LocalPlan, d: int, thin: int) -> tuple[int, int]:
    """Return the burn-in and the largest number of iterations after it."""
    length = int(
        np.clip(_WATCHED_SETTINGS.work / (plan.minibatch_size * d), _SHORTEST, _LONGEST)
    )
    cap = goal.n_iters or max(length, FEWEST * thin)
    burn_in = goal.burn_in
    if burn_in is None:
        burn_in = max(_LEAST_BURN_IN, min(length, cap) // _WATCHED_SETTINGS.burn_ins)
    return burn_in, cap
