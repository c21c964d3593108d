"""Sampling without constants from the user: methods are asked in turn."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from sgmcmc.plan.choices import bind_request
from sgmcmc.plan.methods.around_mode import (
    draws_on_disk,
    hmc_around_mode,
    minibatches_around_mode,
)
from sgmcmc.plan.methods.call import Call, Left, Method
from sgmcmc.plan.methods.full_data import (
    hmc_in_blocks,
    hmc_of_many_coordinates,
    hmc_with_effects,
    hmc_with_field,
    nuts,
)
from sgmcmc.plan.methods.local_minibatches import local_minibatches
from sgmcmc.plan.methods.multimodal import several_modes
from sgmcmc.plan.stopping import Goal
from sgmcmc.results.report import Section
from sgmcmc.results.samples import Samples
from sgmcmc.run.request import Request, brief, on_machines
from sgmcmc.run.sampler_origin import SamplerOrigin

# In the order in which they are asked.
METHODS = (
    Method("HMC, effects of groups as coordinates", hmc_with_effects),
    Method("HMC, a latent field", hmc_with_field),
    Method("HMC, blocks of coordinates", hmc_in_blocks),
    Method("HMC, many coordinates", hmc_of_many_coordinates),
    Method("minibatches, whitened along the chains", local_minibatches),
    Method("draws on disk", draws_on_disk),
    Method("minibatches around several modes", several_modes),
    Method("minibatches around the mode", minibatches_around_mode),
    Method("HMC around the mode", hmc_around_mode),
    Method("NUTS", nuts),
)


@brief
@on_machines
def solve(request: Request, goal: Goal) -> Samples:
    """Make the open choices, run the chains, and return draws with their report.

    Args:
        request: Request of the user; "auto" for open constants.
        goal: Requested precision and length of the draws.
    """
    goal = goal.checked(time.monotonic())
    keywords = {**request.keywords, "n_chains": goal.n_chains}
    bound = bind_request(replace(request, keywords=keywords))
    if bound.request.read.options.store_params is not True:
        raise ValueError(
            "`store_params`: all parameters are stored if the length is chosen from their draws."
        )
    return first_draws(Call(bound, goal), METHODS)


def first_draws(call: Call, methods: Sequence[Method]) -> Samples:
    """Return the draws of the first method that has any; their report says why others have not."""
    left, considered = None, {}
    for method in methods:
        try:
            outcome = method.run(call, left)
        except TimeoutError:
            if left is None or left.draws is None:
                raise
            outcome = left.draws()
            considered[method.name] = "time was up"
        if isinstance(outcome, Left):
            left, considered[method.name] = outcome.after(left), outcome.reason
        elif outcome is not None:
            considered.setdefault(method.name, "taken")
            if call.is_stored:  # whose report is made when it is first asked for
                return outcome
            assert outcome.report is not None
            report = outcome.report.with_section(Section.METHODS, considered)
            if isinstance(
                outcome.origin, SamplerOrigin
            ):  # for the report of longer chains
                origin = replace(outcome.origin, methods=considered)
                outcome = outcome.made_by(origin)
            return outcome.with_report(report)
    raise AssertionError("no method takes what all others leave")
