"""Executors of the chains of a phase: threads, groups of chains in one kernel, or workers.

Many chains of a small model run in groups, each in one kernel. A chain alone takes a thread, a
call and small matrices, which leave the processor mostly idle. If there are many chains, groups of
them share a kernel (:mod:`sgmcmc.engine.vectorized`). So do chains of exact dynamics that would
read a large dataset one after the other. The rule, :func:`group_size`, depends on the sampler
alone, not on the machine, so that the same call gives the same draws again. They differ from those
of chains run one by one by no more than rounding.

A worker of another executor gets the state of a chain, runs a segment of about a second, and
returns the draws that the chain has kept and its new state. So the caller shows progress and
writes the store, a worker that dies costs a second, and any worker may run the next segment.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from sgmcmc import libraries
from sgmcmc.dynamics import ExactDynamics
from sgmcmc.engine import scheduler
from sgmcmc.engine.iteration import Carry
from sgmcmc.engine.kernel import ChainStart, Kernel, block_length
from sgmcmc.engine.prefetcher import (
    Buffers,
    Pool,
    Prefetcher,
    core_to_spare,
    pool_of,
)
from sgmcmc.engine.runner import Diverged, Runner, Snapshot
from sgmcmc.engine.scheduler import Progress
from sgmcmc.engine.vectorized import (
    Group,
    GroupBuffers,
    GroupKernel,
    begin_together,
    group_pool,
)
from sgmcmc.graphs.compiler import Compiler
from sgmcmc.interrupts import pass_on
from sgmcmc.machines import HERE, Workers
from sgmcmc.minibatches.streams import MinibatchSource, SharedStream, make_shared_stream
from sgmcmc.run.builder import (
    ChainExecutor,
    PhaseRun,
    chosen_stream,
    make_kernel,
    prepares_ahead,
)
from sgmcmc.run.sampler import Phase, Sampler


@dataclass(frozen=True)
class _Settings:
    # Groups of chains with minibatches. Chains by themselves keep the cores busy if there are fewer
    # than four groups, or if minibatches are so large that the cache holds those of few chains.
    min_chains: int = 64
    min_group: int = 16
    max_group: int = 32  # with more, no iteration gets cheaper
    cache_bytes: int = 2**18  # minibatches of an iteration that a core's cache holds
    max_block_bytes: int = 2**26  # inputs of a group's block; so are its results
    max_full_data_rows: int = 2**14  # rows, if every iteration uses all

    # Chains of exact dynamics read a dataset together if that takes most of the time: it does not
    # stay in the cache from one gradient to the next.
    min_row_bytes: int = 2**7
    min_data_bytes: int = 2**25

    # Segments on workers. Large states, such as tables with a row for each observation, make them
    # longer: these would otherwise be sent most of the time.
    segment_seconds: float = 1.0
    max_segment_bytes: int = 2**25  # draws
    state_bytes_a_second: float = 2e6
    last_seconds: float = 10.0  # after Ctrl-C, to finish segments


_SETTINGS = _Settings()


# ------------------------------------------------------------------------------------------ groups


def group_size(sampler: Sampler, phase: Phase) -> int:
    """Return the number of chains of a phase that share a kernel; 1 if each has its own.

    A chain has its own kernel if it is one of few, or if its minibatches
    are so large that a group's would not stay in the cache; and if the chains of a group would
    have to stop at different places, or do what has no form for many chains at a time: with NUTS,
    latent variables, parameters that move in turn, gradients that use the whole
    dataset on the way (SVRG, SAGA), draws from other distributions than the normal, without XLA, on
    a GPU, and step by step.

    Chains of exact dynamics that take as many gradients as each other share one if rows are wide
    and do not stay in the cache: then most of the time is that of reading them.
    """
    chains, data = len(sampler.starts), sampler.data
    exact = isinstance(phase.dynamics, ExactDynamics)
    min_chains = 2 if exact else _SETTINGS.min_chains
    if chains < min_chains or libraries.no_groups() or not _can_share(sampler, phase):
        return 1
    if not exact:
        max_group = _chains_in_cache(sampler, phase)
    elif (
        data.row_bytes >= _SETTINGS.min_row_bytes
        and data.size * data.row_bytes >= _SETTINGS.min_data_bytes
    ):
        max_group = _SETTINGS.max_group
    else:
        return 1
    return -(-chains // -(-chains // max_group))


def _chains_in_cache(sampler: Sampler, phase: Phase) -> int:
    """Return the largest number of chains whose minibatches stay in the cache together."""
    stream, target = chosen_stream(sampler, phase), sampler.target
    dynamics = phase.dynamics
    rows = dynamics.steps * stream.size
    if sampler.draws.every_row:
        if stream.size > _SETTINGS.max_full_data_rows:
            return 1
        rows = 0  # the same for all
    vectors = dynamics.normals + 2
    iteration_bytes = 4 * rows + vectors * target.size * target.dtype.size
    block_bytes = block_length(stream, dynamics, target) * iteration_bytes
    chains = min(
        _SETTINGS.max_group,
        _SETTINGS.cache_bytes // max(1, rows * sampler.data.row_bytes),
        _SETTINGS.max_block_bytes // block_bytes,
        len(sampler.starts) // 4,
    )
    return 1 if chains < _SETTINGS.min_group else chains


def _can_share(sampler: Sampler, phase: Phase) -> bool:
    """Return whether chains of a phase can share a kernel, whether or not that pays."""
    dynamics, recorder = phase.dynamics, phase.recorder
    assert recorder is not None, "not bound"
    return (
        sampler.compiler.uses_xla
        and sampler.latents is None
        and phase.turns is None
        and not recorder.stepwise
        and (
            dynamics.in_step
            if isinstance(dynamics, ExactDynamics)
            else not dynamics.seeds
        )
        and phase.gradient.refresh_every(sampler.whole()) is None
        and shared_stream(sampler, phase, 1) is not None
    )


def shared_stream(sampler: Sampler, phase: Phase, chains: int) -> SharedStream | None:
    """Return the stream of so many chains that share a kernel, or ``None`` if there is none."""
    dtype, with_rows = sampler.target.dtype, phase.gradient.needs_rows
    source = MinibatchSource(sampler.data, sampler.draws, dtype, with_rows)
    return make_shared_stream(source, chains=chains, steps=phase.dynamics.steps)


def start_in_groups(
    sampler: Sampler,
    kernel: Kernel,
    stream: SharedStream | None,
    starts: Sequence[ChainStart],
) -> list[Carry] | None:
    """Return the starts of chains that run in groups; ``None`` if they cannot.

    A log-likelihood may do what ``tf.vectorized_map`` cannot do to many chains at a time.

    Args:
        sampler: Sampler.
        kernel: Kernel of a single chain.
        stream: Stream of the minibatches of a group.
        starts: Starting positions of the chains.
    """
    if stream is None or not sampler.compiler.uses_xla:
        return None
    try:
        return begin_together(kernel, stream, starts)
    except Exception as error:
        # Of any kind; what is wrong with a single chain shows there, too
        pass_on(error)
        return None


def by_group(
    goals: Sequence[int], runners: Sequence[Runner], size: int
) -> list[list[tuple[int, Runner]]]:
    """Return the goals and runners of each group, given the number of chains in a group."""
    members: dict[int, list[tuple[int, Runner]]] = {}
    for goal, runner in zip(goals, runners, strict=True):
        members.setdefault(runner.chain // size, []).append((goal, runner))
    return list(members.values())


def group_of(
    kernel: GroupKernel,
    pool: Pool[GroupBuffers],
    goals: Sequence[int],
    runners: Sequence[Runner],
) -> Group:
    """Return the group of some runners, each of which has its place by its number."""
    positions = [runner.chain % kernel.chains for runner in runners]
    return Group(
        kernel,
        pool,
        dict(zip(positions, runners, strict=True)),
        dict(zip(positions, goals, strict=True)),
    )


# ---------------------------------------------------------------------------- in this process


def executor_of(run: PhaseRun) -> ChainExecutor:
    """Return the executor of the chains of a phase."""
    machines, size = run.sampler.options.executor, group_size(run.sampler, run.phase)
    if isinstance(machines, Workers):
        return WorkerExecutor(machines, run, size)
    threads = ThreadExecutor(run.sampler.compiler)
    return threads if size == 1 else GroupExecutor(threads, run, size)


class ThreadExecutor:
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


class GroupExecutor:
    """Runs the chains of a phase in groups, or by themselves if that turns out to be impossible.

    Args:
        ungrouped: Executor that runs chains by themselves.
        run: Run of the phase.
        size: Number of chains in a group.
    """

    def __init__(self, ungrouped: ChainExecutor, run: PhaseRun, size: int) -> None:
        self._ungrouped, self._sampler, self._size = ungrouped, run.sampler, size
        self._stepsizes = run.phase.stepsizes
        self._stream = shared_stream(run.sampler, run.phase, size)
        self._kernel: GroupKernel | None = None
        self._pool: Pool[GroupBuffers] | None = None

    @property
    def together(self) -> bool:
        """Whether chains share a kernel; known once they have begun."""
        return self._kernel is not None

    def begin(self, kernel: Kernel, starts: Sequence[ChainStart]) -> list[Carry]:
        """Return the states from which the chains start."""
        self._kernel = self._pool = None
        carries = start_in_groups(self._sampler, kernel, self._stream, starts)
        if carries is None:
            return self._ungrouped.begin(kernel, starts)
        assert self._stream is not None
        self._kernel = GroupKernel(kernel, self._stream)
        return carries

    def compile(self, runner: Runner) -> bool:
        """Compile the kernel of all runners; return whether XLA could."""
        if self._kernel is not None:
            self._pool = group_pool(self._kernel, self._stepsizes)
            (group,) = self._groups([runner.total], [runner])
            if group.compile(self._sampler.compiler):
                return True
            self._kernel = None
        return self._ungrouped.compile(runner)

    def advance_to(
        self, goals: Sequence[int], runners: Sequence[Runner], progress: Progress
    ) -> None:
        """Run each runner up to its goal, a number of iterations in all."""
        if self._kernel is None:
            self._ungrouped.advance_to(goals, runners, progress)
            return
        groups = cast("list[Any]", self._groups(goals, runners))
        scheduler.advance_to([max(goals)] * len(groups), groups, progress)

    def _groups(self, goals: Sequence[int], runners: Sequence[Runner]) -> list[Group]:
        assert self._kernel is not None and self._pool is not None, "not compiled"
        return [
            group_of(self._kernel, self._pool, *zip(*members, strict=True))
            for members in by_group(goals, runners, self._size)
        ]


# ------------------------------------------------------------------------ segments on workers


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


class SegmentRunner:
    """Runs segments of the chains of a phase, on a worker.

    Args:
        run: Run of the phase.
        names: Names of the stored records.
        structure: Structure of the state after an iteration.
        size: Number of chains in a group; 1 if each runs by itself.
    """

    def __init__(
        self, run: PhaseRun, names: tuple[str, ...], structure: Carry, size: int
    ) -> None:
        # What does not matter to a chain may be large, or may not leave the process.
        sampler = run.sampler
        request = replace(
            sampler.request, dataset={}, params=None, keywords={}, model=None
        )
        sampler_of_chains = replace(
            sampler,
            request=request,
            options=replace(sampler.options, executor=HERE),
            phases=(run.phase,),
            tuning={},
        )
        self._run = replace(run, sampler=sampler_of_chains)
        self._names, self._structure, self._size = names, structure, size
        self._ahead = prepares_ahead(sampler)
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._whole = self._run.sampler.whole()
        self._kernel: Kernel | None = None
        self._pool: Pool[Buffers] | None = None
        self._group: tuple[GroupKernel, Pool[GroupBuffers]] | None = None
        self._compiled: bool | None = None
        self._runners: dict[int, tuple[Runner, dict[str, _RowBuffer]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        names = ("_run", "_names", "_structure", "_ahead", "_size")
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

    def run_segment(
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
            runners[0].prepare_ahead(core_to_spare(len(self._run.sampler.starts)))
        try:
            while any(
                runner.iteration < goal
                for runner, goal in zip(runners, goals, strict=True)
            ):
                if group is not None:
                    group.advance()
                else:
                    runners[0].advance(goals[0] - runners[0].iteration)
                bytes_held = sum(r.nbytes for record in rows for r in record.values())
                if (
                    bytes_held > _SETTINGS.max_segment_bytes
                    or time.monotonic() > deadline
                ):
                    break
        except Diverged as event:
            diverged = event.iterations, event.parameter, event.advice
        finally:
            runners[0].prepare_ahead(False)
        snapshots = [runner.snapshot() for runner in runners]
        written = []
        for record in rows:
            popped = {name: buffer.pop() for name, buffer in record.items()}
            written.append({name: new for name, new in popped.items() if new})
        return Segment(snapshots, written, diverged)

    def _runner(
        self, task: ChainTask, total: int
    ) -> tuple[Runner, dict[str, _RowBuffer]]:
        """Return the runner of a chain at its present state, and its records."""
        sampler, phase, number = self._run.sampler, self._run.phase, task.number
        with self._lock:
            if self._kernel is None:
                for column in sampler.data.columns.values():
                    column.unpack()
                self._kernel = make_kernel(sampler, phase, self._ahead)
                self._pool = pool_of(self._kernel, phase.stepsizes)
            if number not in self._runners:
                assert self._pool is not None
                source = self._run.source(number)
                rows = {name: _RowBuffer() for name in self._names}
                runner = Runner(
                    Prefetcher(self._kernel, self._pool, source),
                    self._whole.of_chain(number),
                    self._structure,
                    rows,
                )
                runner.stops = self._size == 1
                self._runners[number] = runner, rows
        runner, rows = self._runners[number]
        runner.total = total
        runner.restore(task.state)
        return runner, rows

    def _compiles(self, runner: Runner) -> bool:
        """Compile the kernel if that was not done before; return whether XLA could."""
        sampler, phase = self._run.sampler, self._run.phase
        with self._lock:
            if self._compiled is not None:
                return self._compiled
            if self._size == 1:
                self._compiled = runner.compile(sampler.compiler)
                return self._compiled
            stream = shared_stream(sampler, phase, self._size)
            assert stream is not None and self._kernel is not None, "seen by the caller"
            kernel = GroupKernel(self._kernel, stream)
            self._group = kernel, group_pool(kernel, phase.stepsizes)
            group = group_of(*self._group, [runner.total], [runner])
            self._compiled = group.compile(sampler.compiler)
            return self._compiled


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


class WorkerExecutor:
    """The workers of an executor.

    Args:
        machines: Executor.
        run: Run of the phase.
        size: Number of chains in a group; 1 if each runs by itself.
    """

    def __init__(self, machines: Workers, run: PhaseRun, size: int) -> None:
        self._machines, self._run = machines, run
        self._group_size = self._size = size
        self._segments: SegmentRunner | None = None

    @property
    def together(self) -> bool:
        """Whether chains share a kernel; known once they have begun."""
        return self._size > 1

    def begin(self, kernel: Kernel, starts: Sequence[ChainStart]) -> list[Carry]:
        """Return the states from which the chains start."""
        self._size, carries = self._group_size, None
        if self._size > 1:
            stream = shared_stream(self._run.sampler, self._run.phase, self._size)
            carries = start_in_groups(self._run.sampler, kernel, stream, starts)
        if carries is None:
            self._size = 1
            return [kernel.init(start) for start in starts]
        return carries

    def _segments_of(self, runner: Runner) -> SegmentRunner:
        """Return the object that workers need to run the chains, of which this is one."""
        if self._segments is None:
            structure = tf.nest.map_structure(lambda _: 0, runner.carry)
            names = tuple(runner.records)
            self._segments = SegmentRunner(self._run, names, structure, self._size)
        return self._segments

    def compile(self, runner: Runner) -> bool:
        """Have a worker compile the kernel of all runners; return whether that worked."""
        compiler = self._run.sampler.compiler
        if not compiler.uses_xla:
            return True
        call = ChainTask(runner.chain, runner.snapshot(), runner.total), runner.total
        ((compiled, messages),) = self._machines.map(
            self._segments_of(runner), "compiles", [call]
        )
        if not compiled and self._size > 1:
            self._size, self._segments = 1, None
            return self.compile(runner)
        for text in messages:
            warnings.warn(text, stacklevel=2)
        if not compiled:
            compiler.uses_xla, self._segments = False, None
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
        with (
            self._machines,
            self._machines.calls(self._segments_of(runners[0])) as calls,
        ):

            def send(number: int) -> None:
                tasks = [
                    ChainTask(r.chain, r.snapshot(), goal) for goal, r in groups[number]
                ]
                size = sum(
                    array.nbytes for task in tasks for array in task.state.values()
                )
                total = groups[number][0][1].total
                seconds = _SETTINGS.segment_seconds
                seconds += size / _SETTINGS.state_bytes_a_second
                calls.submit(number, "run_segment", (tasks, total, seconds))

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
                for answer in calls.last(_SETTINGS.last_seconds):
                    receive(*answer)
                raise
