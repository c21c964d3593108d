"""Who runs the chains of a phase: threads of this process, or the workers of an executor.

A worker is handed where a chain is, runs it for about a second, and hands back what the chain has
kept and where it is then. So whoever waits shows progress and writes the store, a worker that dies
costs a second, and any worker may run the next stretch.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import tensorflow as tf

from sgmcmc.engine import scheduler
from sgmcmc.engine.block import Carry
from sgmcmc.engine.kernel import Kernel, Start
from sgmcmc.engine.runner import Diverged, Runner
from sgmcmc.engine.scheduler import Progress
from sgmcmc.graphs.compiler import Compiler
from sgmcmc.machines import Spread
from sgmcmc.run.builder import Crew
from sgmcmc.run.groups import Groups, begun_in_groups, by_group, group_size, shared_stream
from sgmcmc.run.phases import Phase
from sgmcmc.run.sampler import Sampler
from sgmcmc.run.stretches import Chains, Place, Stretch

_STRETCH = 1.0
"""Seconds of a chain that a worker runs in one go."""

_MOVED = 2e6
"""Bytes of what a chain carries along that make a stretch a second longer: tables with a row for
each observation would else be on the way most of the time."""

_LAST = 10.0
"""Seconds that Ctrl-C leaves to the stretches that workers are at."""


def crew_of(sampler: Sampler, phase: Phase, total: int) -> Crew:
    """Return who runs the chains of a phase.

    Args:
        sampler: the sampler.
        phase: the phase.
        total: iterations that there may be.
    """
    machines, size = sampler.options.executor, group_size(sampler, phase)
    if isinstance(machines, Spread):
        return Workers(machines, sampler, phase, total, size)
    alone = Threads(sampler.compiler)
    return alone if size == 1 else Groups(alone, sampler, phase, size)


class Threads:
    """Threads of this process.

    Args:
        compiler: compiles what they run.
    """

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler

    @property
    def together(self) -> bool:
        """Whether chains share a kernel: they do not."""
        return False

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


class Workers:
    """The workers of an executor.

    Args:
        machines: the executor.
        sampler: the sampler.
        phase: the phase.
        total: iterations that there may be.
        size: chains of a group; 1 where each runs by itself.
    """

    def __init__(
        self, machines: Spread, sampler: Sampler, phase: Phase, total: int, size: int
    ) -> None:
        self._machines, self._sampler, self._phase, self._total = machines, sampler, phase, total
        self._wanted = self._size = size
        self._chains: Chains | None = None

    @property
    def together(self) -> bool:
        """Whether chains share a kernel; known once they have begun."""
        return self._size > 1

    def begin(self, kernel: Kernel, starts: Sequence[Start]) -> list[Carry]:
        """Return what the chains start from."""
        self._size, carries = self._wanted, None
        if self._size > 1:
            stream = shared_stream(self._sampler, self._phase, self._size)
            carries = begun_in_groups(self._sampler, kernel, stream, starts)
        if carries is None:
            self._size = 1
            return [kernel.init(start) for start in starts]
        return carries

    def _of(self, runner: Runner) -> Chains:
        """Return what workers need to run the chains of which this is one."""
        if self._chains is None:
            structure = tf.nest.map_structure(lambda _: 0, runner.carry)
            names = tuple(runner.records)
            self._chains = Chains(
                self._sampler, self._phase, self._total, names, structure, self._size
            )
        return self._chains

    def compile(self, runner: Runner) -> bool:
        """Have a worker compile the kernel of all runners; tell whether that worked."""
        compiler = self._sampler.compiler
        if not compiler.uses_xla:
            return True
        call = Place(runner.chain, runner.snapshot(), runner.total), runner.total
        ((works, said),) = self._machines.map(self._of(runner), "compiles", [call])
        if not works and self._size > 1:
            self._size, self._chains = 1, None
            return self.compile(runner)
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
        turns = dict(enumerate(by_group(goals, runners, self._size)))
        with self._machines, self._machines.calls(self._of(runners[0])) as calls:

            def send(number: int) -> None:
                places = [Place(r.chain, r.snapshot(), goal) for goal, r in turns[number]]
                size = sum(array.nbytes for place in places for array in place.state.values())
                total = turns[number][0][1].total
                calls.submit(number, "advance", (places, total, _STRETCH + size / _MOVED))

            def take(number: int, stretch: Stretch) -> None:
                members = turns[number]
                found = zip(members, stretch.snapshots, stretch.kept, strict=True)
                for (_, runner), snapshot, kept in found:
                    before = runner.iteration
                    runner.take_over(snapshot, kept)
                    if stretch.diverged is None:
                        runner.save()
                        progress.advance(runner.iteration - before, runner.estimate)
                if stretch.diverged is not None:
                    raise Diverged(*stretch.diverged)
                turns[number] = [(goal, r) for goal, r in members if r.iteration < goal]
                if not turns[number]:
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
