"""Chains as the worker of an executor runs them: a stretch of iterations at a time.

Where chains run in groups, a worker runs all chains of a group, as they would be run without an
executor, so that they draw the same to the bit.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from sgmcmc.engine.block import Carry
from sgmcmc.engine.kernel import Kernel
from sgmcmc.engine.prefetcher import Buffers, Pool, Prefetcher, Source, core_to_spare, pool_of
from sgmcmc.engine.runner import Diverged, Runner, Snapshot
from sgmcmc.engine.vectorized import GroupBuffers, GroupKernel, group_pool
from sgmcmc.machines import HERE
from sgmcmc.run.builder import make_kernel, prepares_ahead
from sgmcmc.run.groups import group_of, shared_stream
from sgmcmc.run.phases import Phase
from sgmcmc.run.sampler import Sampler

_KEPT_BYTES = 2**25
"""How much a stretch may bring back."""


class Stretch(NamedTuple):
    """Some iterations that a worker has run.

    Attributes:
        snapshots: where each chain is after them.
        kept: what each has kept meanwhile, by record: the first row, and the rows.
        diverged: iterations, parameter and advice, if one did.
    """

    snapshots: list[Snapshot]
    kept: list[dict[str, tuple[int, np.ndarray]]]
    diverged: tuple[tuple[int, int], str, str | None] | None = None


class Place(NamedTuple):
    """Where a chain is, and is to get to.

    Attributes:
        number: of the chain.
        state: where it is.
        goal: iteration to reach.
    """

    number: int
    state: Snapshot
    goal: int


class Chains:
    """The chains of a phase, as a worker runs them.

    Args:
        sampler: the sampler.
        phase: the phase.
        total: iterations that there may be.
        names: of the records that are kept.
        structure: of what an iteration leaves.
        size: chains of a group; 1 where each runs by itself.
    """

    def __init__(
        self,
        sampler: Sampler,
        phase: Phase,
        total: int,
        names: tuple[str, ...],
        structure: Carry,
        size: int,
    ) -> None:
        # What does not matter to a chain may be large, or may not leave the process.
        self._sampler = replace(
            sampler,
            request=replace(sampler.request, dataset={}, params=None, keywords={}, model=None),
            options=replace(sampler.options, executor=HERE),
            phases=(phase,),
            tuning={},
        )
        self._total, self._names, self._structure = total, names, structure
        self._ahead, self._size = prepares_ahead(sampler), size
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._whole = self._sampler.whole()
        self._kernel: Kernel | None = None
        self._pool: Pool[Buffers] | None = None
        self._group: tuple[GroupKernel, Pool[GroupBuffers]] | None = None
        self._compiled: bool | None = None
        self._runners: dict[int, tuple[Runner, dict[str, _Rows]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        names = ("_sampler", "_total", "_names", "_structure", "_ahead", "_size")
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def compiles(self, place: Place, total: int) -> tuple[bool, list[str]]:
        """Tell whether XLA can compile the chain, and what is to be said if it cannot."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            runner, _ = self._runner(place, total)
            works = self._compiles(runner)
        return works, [str(w.message) for w in caught if "XLA" in str(w.message)]

    def advance(self, places: Sequence[Place], total: int, seconds: float) -> Stretch:
        """Run a chain, or the chains of a group.

        Args:
            places: where each is.
            total: iteration that is a chain's last.
            seconds: after which to stop before.
        """
        found = [self._runner(place, total) for place in places]
        runners, rows = [runner for runner, _ in found], [record for _, record in found]
        assert self._compiles(runners[0]), "compiled elsewhere"
        goals = [place.goal for place in places]
        until, diverged = time.monotonic() + seconds, None
        together = None if self._group is None else group_of(*self._group, goals, runners)
        if together is None:
            runners[0].prepare_ahead(core_to_spare(len(self._sampler.starts)))
        try:
            while _behind(runners, goals):
                if together is not None:
                    together.advance()
                else:
                    runners[0].advance(goals[0] - runners[0].iteration)
                held = sum(r.nbytes for record in rows for r in record.values())
                if held > _KEPT_BYTES or time.monotonic() > until:
                    break
        except Diverged as event:
            diverged = event.iterations, event.parameter, event.advice
        finally:
            runners[0].prepare_ahead(False)
        snapshots = [runner.snapshot() for runner in runners]
        return Stretch(snapshots, [_taken(record) for record in rows], diverged)

    def _runner(self, place: Place, total: int) -> tuple[Runner, dict[str, _Rows]]:
        """Return the runner of a chain, where the chain is, and what it writes to."""
        sampler, phase, number = self._sampler, self._sampler.chain, place.number
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
                    stops=self._size == 1,
                )  # fmt: skip
                self._runners[number] = runner, rows
        runner, rows = self._runners[number]
        runner.total = total
        runner.restore(place.state)
        return runner, rows

    def _compiles(self, runner: Runner) -> bool:
        with self._lock:
            if self._compiled is None:
                self._compiled = self._compile(runner)
            return self._compiled

    def _compile(self, runner: Runner) -> bool:
        sampler, phase = self._sampler, self._sampler.chain
        if self._size == 1:
            return runner.compile(sampler.compiler)
        stream = shared_stream(sampler, phase, self._size)
        assert stream is not None and self._kernel is not None, "seen by the caller"
        kernel = GroupKernel(self._kernel, stream)
        self._group = kernel, group_pool(kernel, phase.stepsizes)
        return group_of(*self._group, [runner.total], [runner]).compile(sampler.compiler)


def _behind(runners: Sequence[Runner], goals: Sequence[int]) -> bool:
    """Tell whether a chain is not yet where it is to get to."""
    return any(runner.iteration < goal for runner, goal in zip(runners, goals, strict=True))


def _taken(record: dict[str, _Rows]) -> dict[str, tuple[int, np.ndarray]]:
    """Return what a chain has written, and forget it."""
    taken = {name: rows.taken() for name, rows in record.items()}
    return {name: rows for name, rows in taken.items() if rows}


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
