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
from sgmcmc.engine.diverged import Diverged
from sgmcmc.engine.kernel import Kernel, Start
from sgmcmc.engine.progress import Progress
from sgmcmc.engine.runner import Runner
from sgmcmc.graphs.compiler import Compiler
from sgmcmc.machines import Spread
from sgmcmc.run.builder import Crew
from sgmcmc.run.groups import Groups, group_size
from sgmcmc.run.phases import Phase
from sgmcmc.run.sampler import Sampler
from sgmcmc.run.stretches import Chains, Stretch

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
        self._chains: Chains | None = None

    def begin(self, kernel: Kernel, starts: Sequence[Start]) -> list[Carry]:
        """Return what the chains start from."""
        return [kernel.init(start) for start in starts]

    def _of(self, runner: Runner) -> Chains:
        """Return what workers need to run the chains of which this is one."""
        if self._chains is None:
            structure = tf.nest.map_structure(lambda _: 0, runner.carry)
            names = tuple(runner.records)
            self._chains = Chains(self._sampler, self._phase, self._total, names, structure)
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
        with self._machines, self._machines.calls(self._of(runners[0])) as calls:

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
