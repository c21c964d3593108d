"""Length of the chains of a large model, by their predictions and by named quantities."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sgmcmc.model.target import Target
from sgmcmc.plan.lengths import FEWEST, Lengths, Requirements, RowsWatched
from sgmcmc.plan.local import LocalPlan
from sgmcmc.results.arrays import by_chain
from sgmcmc.results.diagnostics import Diagnostics, diagnose
from sgmcmc.results.measured_error import watched
from sgmcmc.results.samples import Samples

_SHORTEST = 3000  # iterations of a chain at least
_LONGEST = 200_000  # iterations of a chain at most
_LEAST_BURN_IN = 500  # iterations
_MOST_BYTES = 2**29  # memory for the draws of all chains


@dataclass(frozen=True)
class _Settings:
    max_draws: int = 2000  # that each chain keeps
    work: float = 2.4e11  # rows × coordinates that a chain processes by default
    burn_ins: int = 6  # in the length of a chain
    looks: int = 4  # times that chains are checked


_SETTINGS = _Settings()


class Watched(Lengths):
    """Runs until predictions and every watched quantity have their effective sample size.

    Args:
        required: Requested precision and length of the draws.
        plan: Plan that was chosen.
        target: Log posterior, without a preconditioner.
        rows: Rows whose log-likelihood is watched.
        thin: Number of iterations between the draws that the user wants to keep; fewer are kept if
            memory is short.
        start_time: Time at which the clock of ``max_seconds`` was started.

    Attributes:
        thin: Number of iterations between kept draws.
        series: Watched quantities at the last look, (chains, draws) by name.
        diagnostics: Diagnostics of each of them, by name.
    """

    def __init__(
        self,
        required: Requirements,
        plan: LocalPlan,
        target: Target,
        rows: RowsWatched,
        thin: int,
        start_time: float,
    ) -> None:
        super().__init__(required, start_time)
        d = target.space.user_layout.size
        self.burn_in, self.cap = lengths_of(required, plan, d, thin)
        bytes_of_draw = (
            required.n_chains * d * np.dtype(target.dtype.as_numpy_dtype).itemsize
        )
        max_draws = max(1, min(_SETTINGS.max_draws, _MOST_BYTES // bytes_of_draw))
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
            diagnostics.enough(self._required.ess)
            for diagnostics in self.diagnostics.values()
        )

    def goals(self) -> Iterator[int]:
        """Yield the numbers of iterations after burn-in at which to stop."""
        started, shortest = time.monotonic(), FEWEST * self.thin
        goal = (
            shortest
            if np.isfinite(self.left)
            else max(shortest, self.cap // _SETTINGS.looks)
        )
        while True:
            goal = min(goal, self.cap)
            yield goal
            if self.reached or self.left <= 0 or goal >= self.cap:
                return
            more = max(self.cap // _SETTINGS.looks, goal)
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


def lengths_of(
    required: Requirements, plan: LocalPlan, d: int, thin: int
) -> tuple[int, int]:
    """Return the burn-in and the largest number of iterations after it."""
    length = int(
        np.clip(_SETTINGS.work / (plan.minibatch_size * d), _SHORTEST, _LONGEST)
    )
    cap = required.n_iters or max(length, FEWEST * thin)
    burn_in = required.burn_in
    if burn_in is None:
        burn_in = max(_LEAST_BURN_IN, min(length, cap) // _SETTINGS.burn_ins)
    return burn_in, cap
