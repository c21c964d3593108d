"""Length of the chains of a large model, by their predictions and by named quantities."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from sgmcmc.results.arrays import by_chain
from sgmcmc.results.diagnostics import Diagnostics, diagnose
from sgmcmc.results.measured_error import watched
from sgmcmc.results.samples import Samples
from sgmcmc.run.lengths import FEWEST, Lengths, Requirements, RowsWatched
from sgmcmc.target.target import Target
from sgmcmc.tuning.local import LocalPlan

_MOST_BYTES = 2**29
"""Memory that the draws of all chains may use."""

_MOST_DRAWS = 2000
"""Largest number of draws that each chain keeps."""

_WORK = 2.4e11
"""Rows × coordinates that a chain processes by default."""

_SHORTEST = 3000
"""Least length of a chain."""

_LONGEST = 200_000
"""Largest length of a chain."""

_BURN_IN = 6
"""Length of a chain, in lengths of its burn-in."""

_LEAST_BURN_IN = 500
"""Least length of the burn-in."""

_LOOKS = 4
"""Number of times that chains are checked."""


class Watched(Lengths):
    """Runs until predictions and every watched quantity have their effective sample size.

    Args:
        required: Requested precision and length of the draws.
        plan: Plan that was chosen.
        target: Log posterior, without a preconditioner.
        rows: Rows whose log-likelihood is watched.
        thin: Number of iterations between the draws that the user wants to keep; fewer are kept if
            memory is short.
        began: Time at which the clock of ``max_seconds`` was started.

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
        began: float,
    ) -> None:
        super().__init__(required, began)
        d = target.space.user_layout.size
        self.burn_in, self.cap = lengths_of(required, plan, d, thin)
        a_draw = required.n_chains * d * np.dtype(target.dtype.as_numpy_dtype).itemsize
        most = max(1, min(_MOST_DRAWS, _MOST_BYTES // a_draw))
        self.thin = max(thin, -(-self.cap // most))
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
            found.enough(self._required.ess) for found in self.diagnostics.values()
        )

    def goals(self) -> Iterator[int]:
        """Yield the numbers of iterations after burn-in at which to stop."""
        started, least = time.monotonic(), FEWEST * self.thin
        goal = least if np.isfinite(self.left) else max(least, self.cap // _LOOKS)
        while True:
            goal = min(goal, self.cap)
            yield goal
            if self.reached or self.left <= 0 or goal >= self.cap:
                return
            more = max(self.cap // _LOOKS, goal)
            if np.isfinite(self.left):
                in_time = self.left * goal / (time.monotonic() - started)
                more = int(min(more, max(least, in_time)))
            goal += more

    def see(self, samples: Samples) -> None:
        """Look at the draws so far."""
        draws = by_chain(samples.settings, samples)
        tests = by_chain(samples.settings, samples.test_functions or {})
        self.series = {**self.rows.along(draws), **watched({**draws, **tests})}
        self.diagnostics = {name: diagnose({name: a}) for name, a in self.series.items()}


def lengths_of(required: Requirements, plan: LocalPlan, d: int, thin: int) -> tuple[int, int]:
    """Return the burn-in and the largest number of iterations after it."""
    length = int(np.clip(_WORK / (plan.minibatch_size * d), _SHORTEST, _LONGEST))
    cap = required.n_iters or max(length, FEWEST * thin)
    burn_in = required.burn_in
    if burn_in is None:
        burn_in = max(_LEAST_BURN_IN, min(length, cap) // _BURN_IN)
    return burn_in, cap
