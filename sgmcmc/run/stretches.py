"""Chains as the worker of an executor runs them: a stretch of iterations at a time."""

from __future__ import annotations

import threading
import time
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from sgmcmc.engine import cores
from sgmcmc.engine.block import Carry
from sgmcmc.engine.buffers import Buffers, Pool, pool_of
from sgmcmc.engine.diverged import Diverged
from sgmcmc.engine.kernel import Kernel
from sgmcmc.engine.prefetcher import Prefetcher, Source
from sgmcmc.engine.runner import Runner, Snapshot
from sgmcmc.machines import HERE
from sgmcmc.run.builder import make_kernel, prepares_ahead
from sgmcmc.run.phases import Phase
from sgmcmc.run.sampler import Sampler

_KEPT_BYTES = 2**25
"""How much a stretch may bring back."""


class Stretch(NamedTuple):
    """Some iterations that a worker has run.

    Attributes:
        snapshot: where the chain is after them.
        kept: what it has kept meanwhile, by record: the first row, and the rows.
        diverged: iterations, parameter and advice, if it did.
    """

    snapshot: Snapshot
    kept: dict[str, tuple[int, np.ndarray]]
    diverged: tuple[tuple[int, int], str, str | None] | None = None


class Chains:
    """The chains of a phase, as a worker runs them.

    Args:
        sampler: the sampler.
        phase: the phase.
        total: iterations that there may be.
        names: of the records that are kept.
        structure: of what an iteration leaves.
    """

    def __init__(
        self,
        sampler: Sampler,
        phase: Phase,
        total: int,
        names: tuple[str, ...],
        structure: Carry,
    ) -> None:
        # What does not matter to a chain may be large, or may not leave the process.
        self._sampler = replace(
            sampler,
            request=replace(sampler.request, dataset={}, params=None, keywords={}, data=None),
            options=replace(sampler.options, machines=HERE),
            phases=(phase,),
            tuning={},
        )
        self._total, self._names, self._structure = total, names, structure
        self._ahead = prepares_ahead(sampler)
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._whole = self._sampler.whole()
        self._kernel: Kernel | None = None
        self._pool: Pool[Buffers] | None = None
        self._compiled: bool | None = None
        self._runners: dict[int, tuple[Runner, dict[str, _Rows]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        names = ("_sampler", "_total", "_names", "_structure", "_ahead")
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def compiles(self, number: int, state: Snapshot, total: int) -> tuple[bool, list[str]]:
        """Tell whether XLA can compile the chain, and what is to be said if it cannot."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            runner, _ = self._runner(number, state, total)
            works = self._compiles(runner)
        return works, [str(w.message) for w in caught if "XLA" in str(w.message)]

    def advance(
        self, number: int, state: Snapshot, goal: int, total: int, seconds: float
    ) -> Stretch:
        """Run a chain.

        Args:
            number: of the chain.
            state: where it is.
            goal: iteration to reach.
            total: iteration that is the chain's last.
            seconds: after which to stop before.
        """
        runner, rows = self._runner(number, state, total)
        assert self._compiles(runner), "compiled elsewhere"
        runner.prepare_ahead(cores.to_spare(len(self._sampler.starts)))
        until, diverged = time.monotonic() + seconds, None
        try:
            while runner.iteration < goal and time.monotonic() < until:
                runner.advance(goal - runner.iteration)
                if sum(record.nbytes for record in rows.values()) > _KEPT_BYTES:
                    break
        except Diverged as event:
            diverged = event.iterations, event.parameter, event.advice
        finally:
            runner.prepare_ahead(False)
        kept = {name: record.taken() for name, record in rows.items()}
        return Stretch(
            runner.snapshot(), {n: found for n, found in kept.items() if found}, diverged
        )

    def _runner(self, number: int, state: Snapshot, total: int) -> tuple[Runner, dict[str, _Rows]]:
        """Return the runner of a chain, where the chain is, and what it writes to."""
        sampler, phase = self._sampler, self._sampler.chain
        with self._lock:
            if self._kernel is None:
                for column in sampler.data.columns.values():
                    column.unpack()
                self._kernel = make_kernel(sampler, phase, self._ahead)
                self._pool = pool_of(self._kernel, phase.stepsizes)
            if number not in self._runners:
                assert self._pool is not None
                source = Source(sampler.seed, number, phase.kind, phase.stepsizes, self._total)
                rows = {name: _Rows() for name in self._names}
                runner = Runner(
                    self._kernel, Prefetcher(self._kernel, self._pool, source),
                    self._whole.of_chain(number), self._structure, total, rows,
                )  # fmt: skip
                self._runners[number] = runner, rows
        runner, rows = self._runners[number]
        runner.total = total
        runner.restore(state)
        return runner, rows

    def _compiles(self, runner: Runner) -> bool:
        with self._lock:
            if self._compiled is None:
                self._compiled = runner.compile(self._sampler.compiler)
            return self._compiled


class _Rows:
    """Holds rows until they are taken away."""

    def __init__(self) -> None:
        self._first, self._parts = 0, []  # type: int, list[np.ndarray]

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        return sum(part.nbytes for part in self._parts)

    def __setitem__(self, rows: slice, values: np.ndarray) -> None:
        if not self._parts:
            self._first = rows.start
        self._parts.append(np.array(values))

    def taken(self) -> tuple[int, np.ndarray] | None:
        """Return the first row and the rows, and forget them; ``None`` if there are none."""
        parts, self._parts = self._parts, []
        return (self._first, np.concatenate(parts)) if parts else None
