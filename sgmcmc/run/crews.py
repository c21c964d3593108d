"""Who runs the chains of a phase: threads of this process, or the workers of an executor.

A worker is handed where a chain is, runs it for about a second, and hands back what the chain has
kept and where it is then. So whoever waits shows progress and writes the store, a worker that dies
costs a second, and any worker may run the next stretch.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.engine import cores, scheduler
from sgmcmc.engine.block import Carry
from sgmcmc.engine.buffers import Pool
from sgmcmc.engine.kernel import Kernel, Start
from sgmcmc.engine.prefetcher import Prefetcher, Source
from sgmcmc.engine.progress import Progress
from sgmcmc.engine.runner import Diverged, Runner, Snapshot
from sgmcmc.graphs.compiler import Compiler
from sgmcmc.machines import HERE, Calls, Spread
from sgmcmc.run.builder import Crew, make_kernel, prepares_ahead
from sgmcmc.run.groups import Groups, group_size
from sgmcmc.run.phases import Phase
from sgmcmc.run.sampler import Sampler

_STRETCH = 1.0
"""Seconds of a chain that a worker runs in one go."""

_MOVED = 2e6
"""Bytes of what a chain carries along that make a stretch a second longer: tables with a row for
each observation would else be on the way most of the time."""

_KEPT_BYTES = 2**25
"""How much a stretch may bring back."""

_LAST = 10.0
"""Seconds that Ctrl-C leaves to the stretches that workers are at."""


def crew_of(sampler: Sampler, phase: Phase, total: int) -> Crew:
    """Return who runs the chains of a phase.

    Args:
        sampler: the sampler.
        phase: the phase.
        total: iterations that there may be.
    """
    machines = sampler.options.machines
    if isinstance(machines, Spread):
        return Workers(machines, sampler, phase, total)
    size = group_size(sampler, phase)
    alone = Threads(sampler.compiler)
    return alone if size == 1 else Groups(alone, sampler, phase, size)


class Threads:
    """Threads of this process.

    Args:
        compiler: compiles what they run.
    """

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler

    def begin(self, kernel: Kernel, starts: Sequence[Start]) -> list[Carry]:
        """Return what the chains start from."""
        return [kernel.init(start) for start in starts]

    def compile(self, runner: Runner) -> bool:
        """Compile the kernel of all runners; tell whether that worked."""
        return runner.compile(self._compiler)

    def advance_to(
        self, goals: Sequence[int], runners: Sequence[Runner], progress: Progress
    ) -> None:
        """Run each runner until it has done so many iterations in all."""
        scheduler.advance_to(goals, runners, progress)


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


class Workers:
    """The workers of an executor.

    Args:
        machines: the executor.
        sampler: the sampler.
        phase: the phase.
        total: iterations that there may be.
    """

    def __init__(self, machines: Spread, sampler: Sampler, phase: Phase, total: int) -> None:
        self._machines, self._sampler, self._phase, self._total = machines, sampler, phase, total
        self._chains: _Chains | None = None

    def begin(self, kernel: Kernel, starts: Sequence[Start]) -> list[Carry]:
        """Return what the chains start from."""
        return [kernel.init(start) for start in starts]

    def _of(self, runner: Runner) -> _Chains:
        """Return what workers need to run the chains of which this is one."""
        if self._chains is None:
            structure = tf.nest.map_structure(lambda _: 0, runner.carry)
            names = tuple(runner.records)
            self._chains = _Chains(self._sampler, self._phase, self._total, names, structure)
        return self._chains

    def compile(self, runner: Runner) -> bool:
        """Have a worker compile the kernel of all runners; tell whether that worked."""
        compiler = self._sampler.compiler
        if not compiler.uses_xla:
            return True
        call = runner.chain, runner.snapshot(), runner.total
        ((works, said),) = self._machines.map(self._of(runner), "compiles", [call])
        for text in said:
            warnings.warn(text, stacklevel=2)
        if not works:
            compiler.uses_xla, self._chains = False, None
        return works

    def advance_to(
        self, goals: Sequence[int], runners: Sequence[Runner], progress: Progress
    ) -> None:
        """Run each runner until it has done so many iterations in all.

        At Ctrl-C, workers first end the stretches that they are at; a second one does not wait.

        Raises:
            Diverged: a chain is not finite any more.
        """
        turns = {runner.chain: (goal, runner) for goal, runner in zip(goals, runners, strict=True)}
        with self._machines, Calls(self._machines, self._of(runners[0])) as calls:

            def send(number: int) -> None:
                goal, runner = turns[number]
                state = runner.snapshot()
                seconds = _STRETCH + sum(a.nbytes for a in state.values()) / _MOVED
                calls.submit(number, "advance", (number, state, goal, runner.total, seconds))

            def take(number: int, stretch: Stretch) -> None:
                goal, runner = turns[number]
                before = runner.iteration
                runner.take_over(stretch.snapshot, stretch.kept)
                if stretch.diverged is not None:
                    raise Diverged(*stretch.diverged)
                runner.save()
                progress.advance(runner.iteration - before, runner.estimate)
                if runner.iteration >= goal:
                    del turns[number]

            for number in turns:
                send(number)
            try:
                while turns:
                    answer = calls.next()
                    if answer is not None:
                        take(*answer)
                        if answer[0] in turns:
                            send(answer[0])
            except KeyboardInterrupt:
                for answer in calls.last(_LAST):
                    take(*answer)
                raise


class _Chains:
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
        self._pool: Pool | None = None
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
                self._pool = Pool(self._kernel, phase.stepsizes)
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
