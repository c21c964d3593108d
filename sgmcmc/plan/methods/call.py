"""A call without constants, as the methods see it, and what a method returns that gives way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from sgmcmc.interrupts import TimeUpError, limited, out_of_time
from sgmcmc.plan.choices import BoundRequest, Chosen, choose, has_dense_information
from sgmcmc.plan.cost import WARN_SECONDS, Cost, seconds_of_gradient
from sgmcmc.plan.mode import DENSE_UP_TO, Mode
from sgmcmc.plan.modes import exchangeable_parameters
from sgmcmc.plan.objective import Objective
from sgmcmc.plan.stopping import Goal
from sgmcmc.results.samples import Samples
from sgmcmc.run.request import Model, Request, all_parts_open, open_arguments

# All chosen or all given, if no mode is searched for.
CONSTANTS = ("gradient", "minibatches", "minibatch_size", "preconditioner", "stepsize")


@dataclass(frozen=True)
class _Settings:
    share_to_choose: float = 0.5  # of `max_seconds`, in which constants are chosen
    least_to_choose: float = 5.0  # at least: without them all that follows takes longer
    # Coordinates for each number of a row from which rows have few numbers.
    few_numbers: int = 10


_SETTINGS = _Settings()


class SuitsBetter(NamedTuple):
    """Why HMC suits better than chains of minibatches, what it costs, and what bounds its run."""

    reason: str
    cost: Cost | None = None
    bound: Cost | None = None


@dataclass(frozen=True)
class Left:
    """Why a method has left a posterior to the next ones, and what they may use.

    Attributes:
        reason: The reason, for the report.
        warnings: Further warnings of the report; `nuts` has them in its own.
        mode: Mode around which chains may start; those of `nuts` do.
        hurried: Whether there is no time to choose constants; `nuts` then warms up briefly.
        hmc: Why HMC suits better, if that is the reason; `hmc_around_mode` runs if there is one.
        draws: Function that returns draws with their report if no other method has the time.
    """

    reason: str
    warnings: Sequence[str] = ()
    mode: Mode | None = None
    hurried: bool = False
    hmc: SuitsBetter | None = None
    draws: Callable[[], Samples] | None = None

    def after(self, earlier: Left | None) -> Left:
        """Return the same with what an earlier method has left, where this one leaves nothing."""
        if earlier is None:
            return self
        return replace(
            self,
            warnings=tuple(dict.fromkeys([*earlier.warnings, *self.warnings])),
            mode=earlier.mode if self.mode is None else self.mode,
            hurried=earlier.hurried or self.hurried,
            hmc=self.hmc or earlier.hmc,
            draws=self.draws or earlier.draws,
        )


class Method(NamedTuple):
    """A way to draws of a posterior without constants.

    Attributes:
        name: Name, as reports have it.
        run: Function that returns draws with their report, or why it leaves the posterior to the
            methods after it; ``None`` if it is for posteriors of another kind. What those before it
            have left comes with the call: the latest of each attribute, and all warnings.
    """

    name: str
    run: Callable[[Call, Left | None], Samples | Left | None]


@dataclass(frozen=True)
class Call:
    """A call of :func:`sgmcmc.sample`: what it is for, and what methods ask of it, made once.

    Attributes:
        bound: Request of the user, read; "auto" for open constants.
        goal: Requested precision and length of the draws.
    """

    bound: BoundRequest
    goal: Goal

    @property
    def request(self) -> Request:
        """Request of the user."""
        return self.bound.request

    @property
    def model(self) -> Model:
        """The model that the request describes."""
        return self.request.read

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.model.target.size

    @property
    def is_stored(self) -> bool:
        """Whether the draws are written to disk."""
        return self.model.options.store is not None

    @property
    def any_sampler_will_do(self) -> bool:
        """Whether the user leaves the sampler open, too."""
        return not self.is_stored and all_parts_open(self.request)

    @cached_property
    def cost_of_hmc(self) -> Cost | None:
        """Predicted cost of HMC; ``None`` if it is ruled out by what the user has given."""
        if not all_parts_open(self.request) or not self.goal.length_is_open:
            return None
        gradient = seconds_of_gradient(self.model.target, self.model.data)
        return Cost.of_hmc(gradient, self.size, self.goal)

    @cached_property
    def is_exchangeable(self) -> bool:
        """Whether entries of parameters can change places, in a call that chooses constants."""
        if self.request.groups is not None or self.is_stored:
            return False
        model, is_open = self.model, open_arguments(self.request)
        start = model.starts[0].astype(np.float64)
        return set(CONSTANTS) <= set(is_open) and bool(
            exchangeable_parameters(model.target, model.data, start, model.seed)
        )

    @cached_property
    def is_without_mode(self) -> bool:
        """Whether no mode is searched for: coordinates are too many, or can change places."""
        if self.size > DENSE_UP_TO and not needs_mode(self):
            return True
        return self.is_exchangeable

    @cached_property
    def chosen(self) -> Chosen | Left:
        """Constants for chains around a mode, or why there are none.

        Raises:
            TimeoutError: Time is up, and the user has chosen a sampler that needs them.
        """
        goal = self.goal
        share = _SETTINGS.share_to_choose * goal.seconds
        end = goal.start_time + max(share, _SETTINGS.least_to_choose)
        try:
            with contextlib.suppress(TimeUpError), limited(end):
                return choose(self.bound, goal.tolerance, goal.verbose)
        except np.linalg.LinAlgError:
            if not all_parts_open(self.request):
                raise
            return Left(
                "the log posterior has no finite curvature where its mode was looked for"
            )
        if not all_parts_open(self.request):
            raise out_of_time(
                "the constants of the sampler were chosen",
                goal.start_time,
                ", or all of `minibatch_size`, `preconditioner`, `stepsize`, `n_iters` and "
                "`burn_in`",
            )
        reason = "the time to choose constants for minibatches was over"
        return Left(reason, hurried=True)


def needs_mode(call: Call) -> bool:
    """Return whether only chains around a mode are quick, and a dense information is possible.

    If a row has few numbers, gradients of minibatches cost next to nothing. If it has many,
    the products of HMC with all rows, for all chains at once, are as quick.
    """
    cost, model = call.cost_of_hmc, call.model
    if cost is None or (cost.affordable and cost.seconds <= WARN_SECONDS):
        return False
    if not has_dense_information(model):
        return False
    if not cost.affordable:
        return True
    width = Objective(model.target, model.data).width
    return width is not None and _SETTINGS.few_numbers * width <= model.target.size
