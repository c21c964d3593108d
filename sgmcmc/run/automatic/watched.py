"""How long the chains of a large model run, by what they predict and by some of its coordinates."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.minibatch import Tensors
from sgmcmc.data.numbers import Purpose, RunPhase, generator
from sgmcmc.graphs.tracing import trace
from sgmcmc.results.diagnostics import Diagnostics, diagnose
from sgmcmc.results.samples import Samples
from sgmcmc.run.lengths import FEWEST, Lengths, Wishes
from sgmcmc.target.target import Target
from sgmcmc.tuning.local import LocalPlan

_MOST_BYTES, _MOST_DRAWS = 2**29, 2000
"""Memory that the draws of all chains may take, and how many each chain keeps at most."""

_WORK, _SHORTEST, _LONGEST = 2.4e11, 3000, 200_000
"""Rows × coordinates that a chain goes through unless told otherwise, and bounds of its length."""

_BURN_IN, _LEAST_BURN_IN = 6, 500
"""What part of a chain its burn-in is as long as, and how long it is at least."""

_LOOKS = 4
"""How often chains are looked at."""

_ROWS, _COORDINATES = 500, 50
"""Rows whose log-likelihood is watched, and coordinates that are, drawn at random."""


class Watched(Lengths):
    """Runs until predictions and some coordinates have their effective sample size.

    Of a network single weights say little: hidden units change places, and chains need not agree
    on them. What it predicts is watched by the log-likelihood of some rows.

    Args:
        wishes: User's wishes for the draws.
        plan: Plan that was chosen.
        target: Log posterior, without a preconditioner.
        data: Dataset.
        seed: Seed of the choice of rows and coordinates.
        thin: Number of iterations between the draws that the user wants to keep; fewer are kept if
            memory is short.
        began: Time at which the clock of ``max_seconds`` was started.

    Attributes:
        thin: Number of iterations between kept draws.
        predictions: Diagnostics of the log-likelihood of the rows, at the last look.
        coordinates: Diagnostics of the coordinates.
    """

    def __init__(
        self,
        wishes: Wishes,
        plan: LocalPlan,
        target: Target,
        data: Data,
        seed: int,
        thin: int,
        began: float,
    ) -> None:
        super().__init__(wishes, began)
        self._target = target
        d = target.space.user_layout.size
        length = int(np.clip(_WORK / (plan.minibatch_size * d), _SHORTEST, _LONGEST))
        self.cap = wishes.n_iters or max(length, FEWEST * thin)
        self.burn_in = wishes.burn_in
        if self.burn_in is None:
            self.burn_in = max(_LEAST_BURN_IN, min(length, self.cap) // _BURN_IN)
        a_draw = wishes.n_chains * d * np.dtype(target.dtype.as_numpy_dtype).itemsize
        most = max(1, min(_MOST_DRAWS, _MOST_BYTES // a_draw))
        self.thin = max(thin, -(-self.cap // most))
        rng = generator(seed, 1, RunPhase.CHAIN, Purpose.PROBES)
        rows = np.sort(rng.choice(data.size, min(_ROWS, data.size), replace=False))
        self.rows = len(rows)
        self._columns = data.rows(rows)
        self._places = np.sort(rng.choice(d, min(_COORDINATES, d), replace=False))
        self._values = np.zeros((wishes.n_chains, 0))
        self._graph: object = None
        self.predictions: Diagnostics | None = None
        self.coordinates: Diagnostics | None = None

    @property
    def reached(self) -> bool:
        """Whether the draws are what was asked for."""
        found = self.predictions, self.coordinates
        return all(one is not None and one.enough(self._wishes.ess) for one in found)

    def goals(self) -> Iterator[int]:
        """Yield how many iterations to have run after burn-in."""
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
        chains, draws = next(iter(samples.values())).shape[:2]
        new = [
            [
                self._log_lik({n: a[chain, draw] for n, a in samples.items()})
                for chain in range(chains)
            ]
            for draw in range(self._values.shape[1], draws)
        ]
        if new:
            self._values = np.concatenate([self._values, np.transpose(new)], 1)
        self.predictions = diagnose({"log-likelihood": self._values})
        self.coordinates = diagnose({"coordinates": self._watched(samples)})

    def _log_lik(self, params: Mapping[str, np.ndarray]) -> float:
        """Return the log-likelihood of the rows that are watched."""
        point = {name: tf.constant(value) for name, value in params.items()}

        def value(params: Tensors, columns: Tensors) -> tf.Tensor:
            return tf.reduce_sum(self._target.log_lik(dict(params), dict(columns)))

        if self._graph is None:
            self._graph = trace(value, point, self._columns)
        return float(self._graph(point, self._columns))  # type: ignore[operator]

    def _watched(self, samples: Samples) -> np.ndarray:
        """Return the coordinates that are watched, (chains, draws, k)."""
        found = []
        for name, place in self._target.space.user_layout.slices.items():
            flat = samples[name].reshape(*samples[name].shape[:2], -1)
            mine = self._places[(self._places >= place.start) & (self._places < place.stop)]
            found.append(flat[:, :, mine - place.start])
        return np.concatenate(found, -1)
