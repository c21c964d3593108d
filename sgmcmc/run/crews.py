"""Executors of the chains of a phase: threads of this process, or workers of another executor.

A worker gets the state of a chain, runs it for about a second, and returns the draws that the chain
has kept and its new state. So the caller shows progress and writes the store, a worker that dies
costs a second, and any worker may run the next segment.
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

from sgmcmc.engine import scheduler
from sgmcmc.engine.iteration import Carry
from sgmcmc.engine.kernel import ChainStart, Kernel
from sgmcmc.engine.prefetcher import (
    BlockSource,
    Buffers,
    Pool,
    Prefetcher,
    core_to_spare,
    pool_of,
)
from sgmcmc.engine.runner import Diverged, Runner, Snapshot
from sgmcmc.engine.scheduler import Progress
from sgmcmc.engine.vectorized import GroupBuffers, GroupKernel, group_pool
from sgmcmc.graphs.compiler import Compiler
from sgmcmc.machines import HERE, Spread
from sgmcmc.run.builder import ChainExecutor, make_kernel, prepares_ahead
from sgmcmc.run.chain_groups import (
    GroupedChains,
    by_group,
    group_of,
    group_size,
    shared_stream,
    start_in_groups,
)
from sgmcmc.run.sampler import Phase, Sampler

_SEGMENT_BYTES = 2**25  # that a segment returns at most


class Segment(NamedTuple):
    """Some iterations that a worker has run.

    Attributes:
        snapshots: State of each chain after its iterations.
        draws: Draws that each has kept meanwhile, by record: the first row, and the rows.
        diverged: Iterations, parameter and advice, if one diverged.
    """

    snapshots: list[Snapshot]
    draws: list[dict[str, tuple[int, np.ndarray]]]
    diverged: tuple[tuple[int, int], str, str | None] | None = None


class ChainTask(NamedTuple):
    """The present iteration of a chain, and its last one.

    Attributes:
        number: Number of the chain.
        state: State of the chain.
        goal: Iteration to reach.
    """

    number: int
    state: Snapshot
    goal: int


class Chains:
    """The chains of a phase, as a worker runs them.

    Args:
        sampler: Sampler.
        phase: Phase.
        total: Largest possible number of iterations.
        names: Names of the stored records.
        structure: Structure of the state after an iteration.
        size: Number of chains in a group; 1 if each runs by itself.
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
            request=replace(
                sampler.request, dataset={}, params=None, keywords={}, model=None
            ),
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
        self._runners: dict[int, tuple[Runner, dict[str, _RowBuffer]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        names = ("_sampler", "_total", "_names", "_structure", "_ahead", "_size")
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def compiles(self, task: ChainTask, total: int) -> tuple[bool, list[str]]:
        """Return whether XLA can compile the chain, and the warning if it cannot."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            runner, _ = self._runner(task, total)
            compiled = self._compiles(runner)
        return compiled, [str(w.message) for w in caught if "XLA" in str(w.message)]

    def advance(
        self, tasks: Sequence[ChainTask], total: int, seconds: float
    ) -> Segment:
        """Run a chain, or the chains of a group.

        Args:
            tasks: State of each.
            total: Last iteration of a chain.
            seconds: Time limit in seconds, after which to stop before the goal.
        """
        records_by_chain = [self._runner(task, total) for task in tasks]
        runners = [runner for runner, _ in records_by_chain]
        rows = [record for _, record in records_by_chain]
        assert self._compiles(runners[0]), "compiled elsewhere"
        goals = [task.goal for task in tasks]
        deadline, diverged = time.monotonic() + seconds, None
        group = None if self._group is None else group_of(*self._group, goals, runners)
        if group is None:
            runners[0].prepare_ahead(core_to_spare(len(self._sampler.starts)))
        try:
            while _behind(runners, goals):
                if group is not None:
                    group.advance()
                else:
                    runners[0].advance(goals[0] - runners[0].iteration)
                bytes_held = sum(r.nbytes for record in rows for r in record.values())
                if bytes_held > _SEGMENT_BYTES or time.monotonic() > deadline:
                    break
        except Diverged as event:
            diverged = event.iterations, event.parameter, event.advice
        finally:
            runners[0].prepare_ahead(False)
        snapshots = [runner.snapshot() for runner in runners]
        return Segment(snapshots, [_pop_rows(record) for record in rows], diverged)

    def _runner(
        self, task: ChainTask, total: int
    ) -> tuple[Runner, dict[str, _RowBuffer]]:
        """Return the runner of a chain at its present state, and its records."""
        sampler, phase, number = self._sampler, self._sampler.chain, task.number
        with self._lock:
            if self._kernel is None:
                for column in sampler.data.columns.values():
                    column.unpack()
                self._kernel = make_kernel(sampler, phase, self._ahead)
                self._pool = pool_of(self._kernel, phase.stepsizes)
            if number not in self._runners:
                assert self._pool is not None
                source = BlockSource(
                    sampler.seed, number, phase.kind, phase.stepsizes, self._total
                )
                rows = {name: _RowBuffer() for name in self._names}
                runner = Runner(
                    self._kernel,
                    Prefetcher(self._kernel, self._pool, source),
                    self._whole.of_chain(number),
                    self._structure,
                    total,
                    rows,
                    stops=self._size == 1,
                )
                self._runners[number] = runner, rows
        runner, rows = self._runners[number]
        runner.total = total
        runner.restore(task.state)
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
        return group_of(*self._group, [runner.total], [runner]).compile(
            sampler.compiler
        )


def _behind(runners: Sequence[Runner], goals: Sequence[int]) -> bool:
    return any(
        runner.iteration < goal for runner, goal in zip(runners, goals, strict=True)
    )


def _pop_rows(record: dict[str, _RowBuffer]) -> dict[str, tuple[int, np.ndarray]]:
    """Return the rows that a chain has written, and drop them."""
    popped = {name: rows.pop() for name, rows in record.items()}
    return {name: rows for name, rows in popped.items() if rows}


class _RowBuffer:
    def __init__(self) -> None:
        self._first, self._chunks = 0, []  # type: int, list[np.ndarray]

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        return sum(chunk.nbytes for chunk in self._chunks)

    def __setitem__(self, rows: slice, values: np.ndarray) -> None:
        if not self._chunks:
            self._first = rows.start
        self._chunks.append(np.array(values))

    def pop(self) -> tuple[int, np.ndarray] | None:
        """Return the first row and the rows, and drop them; ``None`` if there are none."""
        chunks, self._chunks = self._chunks, []
        return (self._first, np.concatenate(chunks)) if chunks else None


_STRETCH = 1.0  # seconds of a chain that a worker runs in one go

# Bytes of a chain's state that make a segment a second longer: tables with a row for each
# observation would otherwise be sent most of the time.
_BYTES_A_SECOND = 2e6

_LAST = 10.0  # seconds after Ctrl-C that workers have to finish their segments


def executor_of(sampler: Sampler, phase: Phase, total: int) -> ChainExecutor:
    """Return the executor of the chains of a phase.

    Args:
        sampler: Sampler.
        phase: Phase.
        total: Largest possible number of iterations.
    """
    machines, size = sampler.options.executor, group_size(sampler, phase)
    if isinstance(machines, Spread):
        return Workers(machines, sampler, phase, total, size)
    threads = Threads(sampler.compiler)
    return threads if size == 1 else GroupedChains(threads, sampler, phase, size)


class Threads:
    """Threads of this process.

    Args:
        compiler: Compiler of the functions that they run.
    """

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler

    @property
    def together(self) -> bool:
        """Whether chains share a kernel: they do not."""
        return False

    def begin(self, kernel: Kernel, starts: Sequence[ChainStart]) -> list[Carry]:
        """Return the states from which the chains start."""
        return [kernel.init(start) for start in starts]

    def compile(self, runner: Runner) -> bool:
        """Compile the kernel of all runners; return whether that worked."""
        return runner.compile(self._compiler)

    def advance_to(
        self, goals: Sequence[int], runners: Sequence[Runner], progress: Progress
    ) -> None:
        """Run each runner up to its goal, a number of iterations in all."""
        scheduler.advance_to(goals, runners, progress)


class Workers:
    """The workers of an executor.

    Args:
        machines: Executor.
        sampler: Sampler.
        phase: Phase.
        total: Largest possible number of iterations.
        size: Number of chains in a group; 1 if each runs by itself.
    """

    def __init__(
        self, machines: Spread, sampler: Sampler, phase: Phase, total: int, size: int
    ) -> None:
        self._machines, self._sampler, self._phase, self._total = (
            machines,
            sampler,
            phase,
            total,
        )
        self._group_size = self._size = size
        self._chains: Chains | None = None

    @property
    def together(self) -> bool:
        """Whether chains share a kernel; known once they have begun."""
        return self._size > 1

    def begin(self, kernel: Kernel, starts: Sequence[ChainStart]) -> list[Carry]:
        """Return the states from which the chains start."""
        self._size, carries = self._group_size, None
        if self._size > 1:
            stream = shared_stream(self._sampler, self._phase, self._size)
            carries = start_in_groups(self._sampler, kernel, stream, starts)
        if carries is None:
            self._size = 1
            return [kernel.init(start) for start in starts]
        return carries

    def _chains_of(self, runner: Runner) -> Chains:
        """Return the object that workers need to run the chains, of which this is one."""
        if self._chains is None:
            structure = tf.nest.map_structure(lambda _: 0, runner.carry)
            names = tuple(runner.records)
            self._chains = Chains(
                self._sampler, self._phase, self._total, names, structure, self._size
            )
        return self._chains

    def compile(self, runner: Runner) -> bool:
        """Have a worker compile the kernel of all runners; return whether that worked."""
        compiler = self._sampler.compiler
        if not compiler.uses_xla:
            return True
        call = ChainTask(runner.chain, runner.snapshot(), runner.total), runner.total
        ((compiled, messages),) = self._machines.map(
            self._chains_of(runner), "compiles", [call]
        )
        if not compiled and self._size > 1:
            self._size, self._chains = 1, None
            return self.compile(runner)
        for text in messages:
            warnings.warn(text, stacklevel=2)
        if not compiled:
            compiler.uses_xla, self._chains = False, None
        return compiled

    def advance_to(
        self, goals: Sequence[int], runners: Sequence[Runner], progress: Progress
    ) -> None:
        """Run each runner up to its goal, a number of iterations in all.

        At Ctrl-C, workers first end their segments; a second one does not wait.

        Raises:
            Diverged: A chain is not finite any more.
        """
        groups = dict(enumerate(by_group(goals, runners, self._size)))
        with self._machines, self._machines.calls(self._chains_of(runners[0])) as calls:

            def send(number: int) -> None:
                tasks = [
                    ChainTask(r.chain, r.snapshot(), goal) for goal, r in groups[number]
                ]
                size = sum(
                    array.nbytes for task in tasks for array in task.state.values()
                )
                total = groups[number][0][1].total
                calls.submit(
                    number, "advance", (tasks, total, _STRETCH + size / _BYTES_A_SECOND)
                )

            def receive(number: int, segment: Segment) -> None:
                members = groups[number]
                results = zip(members, segment.snapshots, segment.draws, strict=True)
                for (_, runner), snapshot, draws in results:
                    before = runner.iteration
                    runner.take_over(snapshot, draws)
                    if segment.diverged is None:
                        runner.save()
                        progress.advance(runner.iteration - before, runner.estimate)
                if segment.diverged is not None:
                    raise Diverged(*segment.diverged)
                groups[number] = [
                    (goal, r) for goal, r in members if r.iteration < goal
                ]
                if not groups[number]:
                    del groups[number]

            for number in groups:
                send(number)
            try:
                while groups:
                    answer = calls.next()
                    if answer is not None:
                        receive(*answer)
                        if answer[0] in groups:
                            send(answer[0])
            except KeyboardInterrupt:
                for answer in calls.last(_LAST):
                    receive(*answer)
                raise
