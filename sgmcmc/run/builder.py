"""Puts the runners of a phase together: data stream × gradient × dynamics, compiled once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from sgmcmc.engine.iteration import Carry, Iteration
from sgmcmc.engine.kernel import ChainStart, Kernel
from sgmcmc.engine.prefetcher import BlockSource, Prefetcher, core_to_spare, pool_of
from sgmcmc.engine.runner import RowWriter, Runner
from sgmcmc.engine.scheduler import Progress
from sgmcmc.gradients import WholeData
from sgmcmc.inputs.part_checks import try_parts
from sgmcmc.inputs.parts import unseen
from sgmcmc.minibatches.streams import MinibatchSource, Stream, make_stream
from sgmcmc.run.sampler import Phase, Sampler


class ChainExecutor(Protocol):
    """Runner of the chains of a phase: threads, a group, or workers."""

    @property
    def together(self) -> bool:
        """Whether chains share a kernel; known once they have begun."""

    def begin(self, kernel: Kernel, starts: Sequence[ChainStart]) -> list[Carry]:
        """Return the states from which the chains start."""

    def compile(self, runner: Runner) -> bool:
        """Compile the kernel of all runners; return whether XLA could."""

    def advance_to(
        self, goals: Sequence[int], runners: Sequence[Runner], progress: Progress
    ) -> None:
        """Run each runner up to its goal, a number of iterations in all.

        Args:
            goals: Iterations to reach, for each runner.
            runners: Runners that have not reached their goals yet.
            progress: Progress bar, updated at each step on the way.
        """


Save = Callable[[int, Runner], None]
"""Receives the number of a chain and its runner after each block."""


@dataclass(frozen=True)
class PhaseRun:
    """A run of a phase of a sampler.

    Attributes:
        sampler: Sampler.
        phase: Phase.
        total: Total number of iterations, or the largest possible one.
    """

    sampler: Sampler
    phase: Phase
    total: int

    def source(self, chain: int) -> BlockSource:
        """Return the source of the random numbers and stepsizes of a chain, by its number."""
        seed, phase = self.sampler.seed, self.phase
        return BlockSource(seed, chain, phase.kind, phase.stepsizes, self.total)


@dataclass(frozen=True)
class RunOutput:
    """Where the chains of a run write their draws and their states.

    Attributes:
        rows: Arrays to which each chain writes its records.
        resume: Function that restores the runners to their state when an earlier run was stopped.
        save: Function called after each block of a chain.
    """

    rows: Sequence[Mapping[str, RowWriter]]
    resume: Callable[[Sequence[Runner]], None] = lambda runners: None
    save: Save = lambda number, runner: None

    @classmethod
    def nowhere(cls, chains: int) -> RunOutput:
        """Return the output of chains of which nothing is kept."""
        return cls([{} for _ in range(chains)])


def make_runners(
    run: PhaseRun,
    starts: Sequence[np.ndarray],
    whole: Sequence[WholeData],
    output: RunOutput,
    executor: ChainExecutor,
) -> list[Runner]:
    """Return the runners of a phase, one for each chain, compiled and ready.

    Args:
        run: Run of the phase.
        starts: Starting positions of the chains, flat.
        whole: Target with the whole dataset, for each chain.
        output: Where the chains write.
        executor: Executor of the chains.
    """
    while True:
        kernel = make_kernel(run.sampler, run.phase)
        pool = pool_of(kernel, run.phase.stepsizes)
        prefetchers = [
            Prefetcher(kernel, pool, run.source(number))
            for number in range(len(starts))
        ]
        chain_starts = [
            prefetcher.start(start, kernel.gradient.init(data_of_chain, start))
            for prefetcher, start, data_of_chain in zip(
                prefetchers, starts, whole, strict=True
            )
        ]
        if kernel.iteration.own_parts:
            try_parts(kernel.iteration, chain_starts[0])
        carries = executor.begin(kernel, chain_starts)
        runners = [
            Runner(
                prefetcher,
                whole[number],
                carries[number],
                output.rows[number],
                partial(output.save, number),
            )
            for number, prefetcher in enumerate(prefetchers)
        ]
        for runner in runners:
            runner.stops = not executor.together
        output.resume(runners)
        # They all run the same kernel. If XLA cannot compile it, the next is a plain graph,
        # which may need another data stream.
        unfinished = [runner for runner in runners if not runner.finished]
        if not unfinished or executor.compile(unfinished[0]):
            # They share no kernel after all if that did not compile.
            for runner in runners:
                runner.stops = not executor.together
            return runners


def make_kernel(sampler: Sampler, phase: Phase, ahead: bool | None = None) -> Kernel:
    """Return the kernel of a phase.

    Args:
        sampler: Sampler.
        phase: Phase.
        ahead: Same as in :func:`chosen_stream`.
    """
    assert phase.recorder is not None, "not bound"
    stream = chosen_stream(sampler, phase, ahead)
    iteration = Iteration(
        sampler.target.shared,
        phase.dynamics,
        phase.gradient,
        stream,
        phase.recorder,
        sampler.latents,
        phase.turns,
        unseen(sampler.draws, sampler.data.size),
    )
    return Kernel(iteration)


def prepares_ahead(sampler: Sampler) -> bool:
    """Return whether blocks are prepared ahead in full.

    Those of several chains would need more memory than is worth the time.
    """
    return len(sampler.starts) == 1 and core_to_spare(1)


def chosen_stream(sampler: Sampler, phase: Phase, ahead: bool | None = None) -> Stream:
    """Return the data stream of a phase.

    Args:
        sampler: Sampler.
        phase: Phase.
        ahead: Whether blocks are prepared ahead in full; ``None`` for the best in this process.
    """
    has_kept_latents = sampler.latents is not None and bool(sampler.latents.starts)
    with_rows = has_kept_latents or phase.gradient.needs_rows
    dtype = sampler.target.dtype
    source = MinibatchSource(sampler.data, sampler.draws, dtype, with_rows)
    ahead = prepares_ahead(sampler) if ahead is None else ahead
    return make_stream(source, ahead=ahead, xla=sampler.compiler.uses_xla)
