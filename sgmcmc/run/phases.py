"""The phases of a run: each a run of the engine, whose end is the start of the next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sgmcmc.data.rng import RunPhase
from sgmcmc.dynamics import SGD, Dynamics
from sgmcmc.dynamics.schedules import Stepsizes
from sgmcmc.engine.iteration import Turns
from sgmcmc.engine.recorder import Recorder
from sgmcmc.gradients import Gradient, MinibatchGradient, WholeData
from sgmcmc.inputs.tuning import need_one_stepsize, read_scaled, read_stepsizes
from sgmcmc.inputs.turns import JOINT, read_turns
from sgmcmc.target.target import Target


@dataclass(frozen=True)
class Phase:
    """A run of the engine with its own dynamics, gradient, stepsizes and length.

    Attributes:
        kind: names its random numbers and its checkpoints.
        label: what is shown beside its progress.
        argument: the user's argument that its stepsizes came from.
        dynamics: how the state moves.
        gradient: how the gradient is estimated.
        stepsizes: its stepsizes.
        n_iters: its iterations; of the chain the driver knows them.
        recorder: what is written down.
        turns: the order in which parameters move; ``None`` where they move together.
    """

    kind: RunPhase
    label: str
    argument: str
    dynamics: Dynamics
    gradient: Gradient
    stepsizes: Stepsizes
    n_iters: int = 0
    recorder: Recorder | None = None
    turns: Turns | None = None

    def bound(self, whole: WholeData, recorder: Recorder) -> Phase:
        """Return the phase with its parts bound to target and data.

        Args:
            whole: the target with the whole dataset at hand.
            recorder: what is written down of the chain; of other phases nothing is.
        """
        is_chain = self.kind is RunPhase.CHAIN
        return replace(
            self,
            gradient=self.gradient.bind(whole),
            recorder=recorder if is_chain else Recorder(whole.target),
        )


def make_phases(
    method: str,
    stepsize: Any,
    dynamics: Dynamics,
    gradient: Gradient,
    target: Target,
    updates: str = JOINT,
    burn_in: int = 0,
) -> tuple[Phase, ...]:
    """Return the phases of a sampler: a search, if the gradient wants one, and the chain.

    Args:
        method: what the sampler is called beside the progress bar.
        stepsize: the user's, of the chain.
        dynamics: of the chain.
        gradient: of the chain.
        target: what is sampled.
        updates: whether parameters of the chain move together; in a search they do.
        burn_in: iterations of the chain whose draws are dropped.
    """
    space, phases = target.space, []
    dynamics, stepsize = read_scaled("stepsize", stepsize, dynamics, burn_in)
    stepsizes = read_stepsizes("stepsize", stepsize, space.layout)
    need_one_stepsize(stepsizes, space)
    search = gradient.search()
    if search is not None:
        climbs, opt_stepsize = read_scaled("opt_stepsize", search.stepsize, SGD(), None)
        phases.append(
            Phase(
                RunPhase.MODE,
                f"{method}, mode-finding",
                "opt_stepsize",
                climbs.bind(space),
                MinibatchGradient(),
                read_stepsizes("opt_stepsize", opt_stepsize, space.layout),
                search.n_iters,
            )
        )
    bound = dynamics.bind(space)
    turns = read_turns(updates, bound, target)
    chain = Phase(RunPhase.CHAIN, method, "stepsize", bound, gradient, stepsizes, turns=turns)
    phases.append(chain)
    return tuple(phases)
