"""Many chains of a small model run in groups, each in one kernel.

A chain alone takes a thread, a call and small matrices, which leave the processor mostly idle.
If there are many chains, groups of them share a kernel (:mod:`sgmcmc.engine.vectorized`). So do
chains of exact dynamics that would read a large dataset one after the other. The rule below depends
on the sampler alone, not on the machine, so that the same call gives the same draws again. They
differ from those of chains run one by one by no more than rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from sgmcmc import libraries
from sgmcmc.data.dataset import Data
from sgmcmc.dynamics import ExactDynamics
from sgmcmc.engine import scheduler
from sgmcmc.engine.iteration import Carry
from sgmcmc.engine.kernel import ChainStart, Kernel, block_length
from sgmcmc.engine.prefetcher import Pool
from sgmcmc.engine.runner import Runner
from sgmcmc.engine.scheduler import Progress
from sgmcmc.engine.vectorized import (
    Group,
    GroupBuffers,
    GroupKernel,
    begin_together,
    group_pool,
)
from sgmcmc.interrupts import pass_on
from sgmcmc.minibatches.streams import SharedStream, make_shared_stream
from sgmcmc.run.builder import ChainExecutor, chosen_stream
from sgmcmc.run.sampler import Phase, Sampler

# Chains for which groups are made: four groups of 16, so that the cores of a small machine have
# work. Fewer chains fill the cores as well by themselves.
FEWEST = 64
LARGEST = 32  # chains of a group at most; with more, no iteration gets cheaper

# Chains of a group at least: with minibatches so large that fewer stay in the cache, a chain keeps
# a core busy by itself.
SMALLEST = 16

# Bytes of the minibatches of a group's iteration, which should stay in a core's cache.
_CACHE = 2**18
_BLOCK = 2**26  # bytes of the inputs of a group's block, and of its results, at most
_FULL_DATA_ROWS = (
    2**14
)  # largest number of rows of a dataset of which every iteration uses all
_WIDE = (
    2**7
)  # bytes of a row from which on chains of exact dynamics read a large dataset together
_LARGE = (
    2**25
)  # bytes of a dataset that does not stay in the cache from one gradient to the next


def group_size(sampler: Sampler, phase: Phase) -> int:
    """Return the number of chains of a phase that share a kernel; 1 if each has its own.

    A chain has its own kernel if it is one of fewer than ``FEWEST``, or if its minibatches
    are so large that a group's would not stay in the cache; and if the chains of a group would
    have to stop at different places, or do what has no form for many chains at a time: with NUTS,
    latent variables, parameters that move in turn, gradients that use the whole
    dataset on the way (SVRG, SAGA), draws from other distributions than the normal, without XLA, on
    a GPU, and step by step.

    Chains of exact dynamics that take as many gradients as each other share one if rows are wide
    and do not stay in the cache: then most of the time is that of reading them.
    """
    chains = len(sampler.starts)
    exact = isinstance(phase.dynamics, ExactDynamics)
    fewest = 2 if exact else FEWEST
    if chains < fewest or libraries.no_groups() or not _can_share(sampler, phase):
        return 1
    largest_group = (
        _exact_chains(sampler.data) if exact else _chains_in_cache(sampler, phase)
    )
    return -(-chains // -(-chains // largest_group))


def _exact_chains(data: Data) -> int:
    """Return the largest number of chains of exact dynamics that share a kernel."""
    large = data.row_bytes >= _WIDE and data.size * data.row_bytes >= _LARGE
    return LARGEST if large else 1


def _chains_in_cache(sampler: Sampler, phase: Phase) -> int:
    """Return the largest number of chains whose minibatches stay in the cache together."""
    stream, target, dynamics = (
        chosen_stream(sampler, phase),
        sampler.target,
        phase.dynamics,
    )
    rows = dynamics.steps * stream.size
    if sampler.draws.every_row:
        if stream.size > _FULL_DATA_ROWS:
            return 1
        rows = 0  # the same for all
    iteration_bytes = (
        4 * rows + (dynamics.normals + 2) * target.size * target.dtype.size
    )
    block_bytes = block_length(stream, dynamics, target) * iteration_bytes
    in_cache = _CACHE // max(1, rows * sampler.data.row_bytes)
    chains = min(LARGEST, in_cache, _BLOCK // block_bytes, len(sampler.starts) // 4)
    return 1 if chains < SMALLEST else chains


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
    return make_shared_stream(
        sampler.data,
        sampler.draws,
        sampler.target.dtype,
        with_rows=phase.gradient.needs_rows,
        chains=chains,
        steps=phase.dynamics.steps,
    )


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
    except (
        Exception
    ) as error:  # of any kind; what is wrong with a single chain shows there, too
        pass_on(error)
        return None


class GroupedChains:
    """Runs the chains of a phase in groups, or by themselves if that turns out to be impossible.

    Args:
        ungrouped: Executor that runs chains by themselves.
        sampler: Sampler.
        phase: Phase.
        size: Number of chains in a group.
    """

    def __init__(
        self, ungrouped: ChainExecutor, sampler: Sampler, phase: Phase, size: int
    ) -> None:
        self._ungrouped, self._sampler, self._stepsizes = (
            ungrouped,
            sampler,
            phase.stepsizes,
        )
        self._stream, self._size = shared_stream(sampler, phase, size), size
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
