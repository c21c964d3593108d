"""Chains of a posterior with several modes: some in each, with their report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sgmcmc.gradients import ControlVariate
from sgmcmc.model.geometry import root_of
from sgmcmc.plan.choices import Chosen
from sgmcmc.plan.curvature import Information
from sgmcmc.plan.methods.call import Call, Left
from sgmcmc.plan.modes import Survey
from sgmcmc.plan.plan import Plan
from sgmcmc.plan.reports.judging import unconstrained
from sgmcmc.plan.reports.reporting import (
    Sections,
    chain_facts,
    make_report,
)
from sgmcmc.plan.reports.warnings import multimodal_warnings, no_mode_warnings
from sgmcmc.plan.stopping import UntilEffective, with_smaller_steps
from sgmcmc.results.diagnostics import RHAT, Diagnostics, diagnose
from sgmcmc.results.report import Report, Section, Timings
from sgmcmc.results.samples import Samples
from sgmcmc.run.driver import run_until
from sgmcmc.run.request import Request, center_is_open
from sgmcmc.run.sampler_origin import origin_of


@dataclass(frozen=True)
class _Settings:
    # Root mean square distance of starts from their modes, in posterior SDs.
    start_spread: float = 0.5
    components_shown: int = 3  # of a parameter, in the position of a mode
    # Largest multiple of the predicted length, without a time limit: chains that hardly leave a
    # mode of an odd shape, or of several parts, would run for minutes and say the same.
    patience: int = 40


_SETTINGS = _Settings()


class UntilEffectiveInEach(UntilEffective):
    """Runs until the chains of each mode have their part of the effective sample size.

    Args:
        modes: Number of the mode that each chain starts in.
        arguments: Arguments of :class:`UntilEffective`.
    """

    def __init__(self, modes: list[int], *arguments: Any) -> None:
        super().__init__(*arguments)
        if self._goal.n_iters is None and self._goal.max_seconds is None:
            self.cap = min(self.cap, _SETTINGS.patience * self.first)
        self._modes = np.array(modes)
        self._count = len(set(modes))
        self.pooled: Diagnostics | None = None

    @property
    def required_ess(self) -> float:
        """Requested effective sample size of each mode."""
        return self._goal.ess / self._count

    @property
    def reached(self) -> bool:
        """Whether the draws of each mode, or of all together, have the requested ESS."""
        if self.pooled is not None and self.pooled.enough(self._goal.ess):
            return True
        diagnostics = self.diagnostics
        if diagnostics is None or diagnostics.smallest < self.required_ess:
            return False
        return bool(
            np.isnan(diagnostics.rhat).all() or np.nanmax(diagnostics.rhat) <= RHAT
        )

    def see(self, samples: Samples) -> None:
        """Look at the draws so far: the worst of the modes counts."""
        self.pooled = diagnose(samples)
        by_mode = []
        for mode in range(self._count):
            chains = np.flatnonzero(self._modes == mode)
            by_mode.append(
                diagnose({name: array[chains] for name, array in samples.items()})
            )
        self.diagnostics = min(by_mode, key=lambda diagnostics: diagnostics.smallest)


def several_modes(call: Call, left: Left | None) -> Samples | Left | None:
    """Run chains in every mode, and report the mode of each.

    Coordinates are whitened by the mean of the modes' informations, so that none is much narrower
    than the chains expect; control variates are centered at each chain's own mode.
    """
    chosen, goal = call.chosen, call.goal
    if isinstance(chosen, Left):
        return chosen
    survey = chosen.plan.surveyed
    if survey is None:
        return None
    if not survey.several:
        return Left("no second mode was found")
    mode_of_chain = _modes_of_chains(survey, goal.n_chains)
    common = _plan_for_all_modes(chosen, survey)
    d, thin = chosen.target.size, chosen.request.read.options.thin

    def run_chains(factor: float) -> tuple[Plan, UntilEffectiveInEach, Samples]:
        plan = (
            common
            if factor == 1
            else replace(common, stepsize=factor * common.stepsize)
        )
        mode_request = _mode_request(chosen, plan, survey, mode_of_chain)
        rule = UntilEffectiveInEach(mode_of_chain, goal, plan, d, thin)
        return plan, rule, run_until(mode_request, rule, goal.verbose)

    may_lower = common.given.stepsize is None
    plan, rule, samples = with_smaller_steps(run_chains) if may_lower else run_chains(1)
    timings = Timings(goal.start_time, plan.seconds)
    chains = _ModeChains(chosen, survey, mode_of_chain, plan, samples)
    return samples.with_report(chains.report(rule, timings))


def in_modes(chosen: Chosen, survey: Survey, n_chains: int) -> tuple[Plan, Request]:
    """Return the plan and the request for chains in every mode."""
    plan = _plan_for_all_modes(chosen, survey)
    return plan, _mode_request(chosen, plan, survey, _modes_of_chains(survey, n_chains))


def _modes_of_chains(survey: Survey, n_chains: int) -> list[int]:
    return [chain % len(survey.modes) for chain in range(n_chains)]


def _plan_for_all_modes(chosen: Chosen, survey: Survey) -> Plan:
    """Return the plan for coordinates whitened by the mean of the modes' informations."""
    plan = chosen.plan
    if plan.given.preconditioner != "dense":
        return plan
    modes = survey.modes
    matrix = np.mean([mode.information.matrix for mode in modes], 0)
    scale = np.sqrt(np.diag(matrix))
    covariance = np.linalg.inv(matrix / np.outer(scale, scale)) / np.outer(scale, scale)
    first = modes[0].information
    pooled = Information(matrix, covariance, first.held_up, first.scale)
    common = replace(plan, mode=replace(modes[0], information=pooled))
    return common.rewhitened(chosen.target, chosen.data, covariance, chosen.seed)


def _mode_request(
    chosen: Chosen, plan: Plan, survey: Survey, mode_of_chain: list[int]
) -> Request:
    target = chosen.target
    takes_all = plan.given.takes_all(chosen.data.size, target.row_terms)
    centered = center_is_open(chosen.request.gradient) and not takes_all
    rng = np.random.default_rng([chosen.seed, 1])
    starts = []
    for number in mode_of_chain:
        mode = survey.modes[number]
        step = root_of(mode.information.covariance) @ rng.standard_normal(target.size)
        # A control variate without a center is centered at the start of its chain.
        spread = 0.0 if centered else _SETTINGS.start_spread
        starts.append(target.space.params(mode.position + spread * step, target.dtype))
    request = chosen.completed(plan, starts)
    return (
        replace(request, gradient=ControlVariate(1.0, n_iters_opt=0))
        if centered
        else request
    )


@dataclass(frozen=True)
class _ModeChains:
    """Chains in every mode, and their draws.

    Attributes:
        chosen: Request with the constants chosen at the heaviest mode.
        survey: Modes that were found.
        mode_of_chain: Number of the mode that each chain starts in.
        plan: Plan of all chains.
        samples: Draws.
    """

    chosen: Chosen
    survey: Survey
    mode_of_chain: list[int]
    plan: Plan
    samples: Samples

    def report(self, rule: UntilEffectiveInEach, timings: Timings) -> Report:
        """Return the report on the draws."""
        pooled, within = rule.pooled, rule.diagnostics
        assert pooled is not None and within is not None
        plan, sampler = self.plan, origin_of(self.samples).sampler
        fractions = self._fractions_by_mode()
        warnings = no_mode_warnings(self.survey)
        agree = pooled.enough(0.0)
        warnings += multimodal_warnings(self.survey, fractions, agree, plan)
        if not rule.reached:
            within_warnings = within.warnings(rule.required_ess)
            warnings += [f"In one of the modes: {text}" for text in within_warnings]
        timings.done("chains")
        shares = {
            f"chain {chain + 1}: fraction of draws by mode": ", ".join(
                f"{p:.3f}" for p in row
            )
            for chain, row in enumerate(fractions)
        }
        sections: Sections = {
            Section.MODES: self._mode_facts(),
            Section.CHAIN: chain_facts(self.samples, sampler),
            Section.PREDICTED: {
                "SD error (noise under Laplace approximation)": plan.prediction.error.tolist(),
                "autocorrelation time, iterations": plan.prediction.times.tolist(),
            },
            Section.DRAWS: {
                "ESS within modes (worst mode), bulk": within.bulk,
                "ESS within modes (worst mode), tail": within.tail,
                "R-hat within modes (worst mode)": within.rhat,
                **shares,
            },
        }
        return make_report(sampler, self.samples, pooled, sections, warnings, timings)

    def _fractions_by_mode(self) -> np.ndarray:
        """Return the fraction of each chain's draws nearest to each mode, (chains, modes)."""
        u = unconstrained(self.samples, self.chosen.target.space)
        distances = []
        for mode in self.survey.modes:
            deviation, information = u - mode.position, mode.information.matrix
            distances.append(
                np.einsum("cki,ij,ckj->ck", deviation, information, deviation)
            )
        nearest = np.argmin(distances, 0)
        modes = range(len(self.survey.modes))
        return np.stack([(nearest == mode).mean(1) for mode in modes], 1)

    def _mode_facts(self) -> dict[str, Any]:
        target = self.chosen.target
        facts: dict[str, Any] = {"found": len(self.survey.modes)}
        for k, mode in enumerate(self.survey.modes):
            name = f"mode {k + 1}"
            facts[f"{name}: log posterior"] = float(self.survey.heights[k])
            facts[f"{name}: Laplace weight"] = float(self.survey.weights[k])
            starting = [
                str(chain + 1)
                for chain, number in enumerate(self.mode_of_chain)
                if number == k
            ]
            facts[f"{name}: chains that start there"] = ", ".join(starting) or "none"
            params = target.space.params(mode.position, target.dtype)
            for parameter, value in params.items():
                components = [f"{x:.4g}" for x in np.ravel(value)]
                text = ", ".join(components[: _SETTINGS.components_shown])
                if len(components) > _SETTINGS.components_shown:
                    text += f", … ({len(components)})"
                facts[f"{name}: {parameter}"] = text
        return facts
