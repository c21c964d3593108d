"""Chains of a posterior with several modes: some in each, with their report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sgmcmc.bars import Clock
from sgmcmc.gradients import ControlVariate
from sgmcmc.model.geometry import root_of
from sgmcmc.plan.choices import Chosen
from sgmcmc.plan.curvature import Information
from sgmcmc.plan.modes import Survey
from sgmcmc.plan.plan import Plan
from sgmcmc.plan.reports.judging import unconstrained
from sgmcmc.plan.reports.reporting import (
    Sections,
    chain_facts,
    make_report,
    no_mode_warnings,
)
from sgmcmc.plan.stopping import Requirements, UntilEffective, with_smaller_steps
from sgmcmc.results.diagnostics import RHAT, Diagnostics, diagnose
from sgmcmc.results.report import Report
from sgmcmc.results.samples import Samples
from sgmcmc.run.driver import run_lengths
from sgmcmc.run.request import Request, center_is_open
from sgmcmc.run.sampler_origin import origin_of

_START_SPREAD = (
    0.5  # root mean square distance of starts from their modes, in posterior SDs
)
_COMPONENTS_SHOWN = 3  # of a parameter, in the position of a mode
_VISIT = 0.01  # share of a chain's draws in another mode from which the chain visits it

# Largest multiple of the predicted length, without a time limit: chains that hardly leave a mode of
# an odd shape, or of several parts, would run for minutes and say the same.
_PATIENCE = 40


class UntilEffectiveInEach(UntilEffective):
    """Runs until the chains of each mode have their part of the effective sample size.

    Args:
        modes: Number of the mode that each chain starts in.
        arguments: Arguments of :class:`UntilEffective`.
    """

    def __init__(self, modes: list[int], *arguments: Any) -> None:
        super().__init__(*arguments)
        if self._required.n_iters is None and self._required.max_seconds is None:
            self.cap = min(self.cap, _PATIENCE * self.first)
        self._modes = np.array(modes)
        self._count = len(set(modes))
        self.pooled: Diagnostics | None = None

    @property
    def required_ess(self) -> float:
        """Requested effective sample size of each mode."""
        return self._required.ess / self._count

    @property
    def reached(self) -> bool:
        """Whether the draws of each mode, or of all together, have the requested ESS."""
        if self.pooled is not None and self.pooled.enough(self._required.ess):
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


def run_in_modes(
    chosen: Chosen,
    survey: Survey,
    required: Requirements,
    thin: int,
    verbose: bool,
    start_time: float,
) -> Samples:
    """Run chains in every mode, and report the mode of each.

    Coordinates are whitened by the mean of the modes' informations, so that none is much narrower
    than the chains expect; control variates are centered at each chain's own mode.

    Args:
        chosen: Request with the constants chosen at the heaviest mode.
        survey: Modes that were found.
        required: Requested precision and length of the draws.
        thin: Number of iterations between kept draws.
        verbose: Whether to show progress.
        start_time: Time at which the clock of ``max_seconds`` was started.
    """
    mode_of_chain = _modes_of_chains(survey, required.n_chains)
    plan = _plan_for_all_modes(chosen, survey)

    def run_chains(factor: float) -> tuple[Plan, UntilEffectiveInEach, Samples]:
        lowered = (
            plan if factor == 1 else replace(plan, stepsize=factor * plan.stepsize)
        )
        mode_request = _mode_request(chosen, lowered, survey, mode_of_chain)
        d = chosen.target.size
        lengths = UntilEffectiveInEach(
            mode_of_chain, required, lowered, d, thin, start_time
        )
        return lowered, lengths, run_lengths(mode_request, lengths, verbose)

    may_lower = plan.given.stepsize is None
    plan, lengths, samples = (
        with_smaller_steps(run_chains) if may_lower else run_chains(1)
    )
    report = _report(samples, chosen, plan, survey, mode_of_chain, lengths, start_time)
    return samples.with_report(report)


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
        spread = 0.0 if centered else _START_SPREAD
        starts.append(target.space.params(mode.position + spread * step, target.dtype))
    request = chosen.completed(plan, starts)
    return (
        replace(request, gradient=ControlVariate(1.0, n_iters_opt=0))
        if centered
        else request
    )


def _report(
    samples: Samples,
    chosen: Chosen,
    plan: Plan,
    survey: Survey,
    mode_of_chain: list[int],
    lengths: UntilEffectiveInEach,
    start_time: float,
) -> Report:
    pooled, within = lengths.pooled, lengths.diagnostics
    assert pooled is not None and within is not None
    fractions = _fractions_by_mode(samples, chosen, survey)
    crossed = bool(((fractions > _VISIT).sum(1) > 1).any())
    agree = pooled.enough(0.0)
    warnings = no_mode_warnings(survey)
    warnings += _warnings(survey, fractions, mode_of_chain, crossed, agree)
    if plan.prediction.worst > 1.001 * plan.given.tolerance:
        warnings.append(
            f"The predicted error of a posterior SD is {plan.prediction.worst:.1%}, above the "
            f"tolerance of {plan.given.tolerance:.1%}."
        )
    if not lengths.reached:
        warnings += [
            f"In one of the modes: {w}" for w in within.warnings(lengths.required_ess)
        ]
    sampler, clock = origin_of(samples).sampler, Clock(start_time, plan.seconds)
    clock.done("chains")
    shares = {
        f"chain {chain + 1}: fraction of draws by mode": ", ".join(
            f"{p:.3f}" for p in row
        )
        for chain, row in enumerate(fractions)
    }
    sections: Sections = {
        "Modes": _mode_facts(chosen, survey, mode_of_chain),
        "Chain": chain_facts(samples, sampler),
        "Predicted": {
            "SD error (noise under Laplace approximation)": plan.prediction.error.tolist(),
            "autocorrelation time, iterations": plan.prediction.times.tolist(),
        },
        "Draws": {
            "ESS within modes (worst mode), bulk": within.bulk,
            "ESS within modes (worst mode), tail": within.tail,
            "R-hat within modes (worst mode)": within.rhat,
            **shares,
        },
    }
    return make_report(sampler, samples, pooled, sections, warnings, clock)


def _fractions_by_mode(samples: Samples, chosen: Chosen, survey: Survey) -> np.ndarray:
    """Return the fraction of each chain's draws nearest to each mode, (chains, modes)."""
    u = unconstrained(samples, chosen.target.space)
    distances = []
    for mode in survey.modes:
        deviation = u - mode.position
        distances.append(
            np.einsum("cki,ij,ckj->ck", deviation, mode.information.matrix, deviation)
        )
    nearest = np.argmin(distances, 0)
    return np.stack([(nearest == k).mean(1) for k in range(len(survey.modes))], 1)


def _warnings(
    survey: Survey,
    fractions: np.ndarray,
    mode_of_chain: list[int],
    crossed: bool,
    agree: bool,
) -> list[str]:
    warnings = []
    count = len(survey.modes)
    if not agree:
        occupancy = "; ".join(
            f"mode {k + 1} (Laplace weight {survey.weights[k]:.2g}): "
            + (_format_chains(np.flatnonzero(fractions[:, k] > _VISIT)) or "no chain")
            for k in range(count)
        )
        cross = "cross too rarely" if crossed else "do not cross"
        warnings.append(
            f"The posterior has {count} modes, which chains {cross}: {occupancy}. The number of "
            "draws in each mode does not estimate its weight; moments pooled over chains mix the "
            "modes."
        )
    if count > len(mode_of_chain):
        warnings.append(
            f"There are {count} modes, and only {len(mode_of_chain)} chains to start in them."
        )
    return warnings


def _format_chains(chains: np.ndarray) -> str:
    if not len(chains):
        return ""
    word = "chain " if len(chains) == 1 else "chains "
    return word + ", ".join(str(chain + 1) for chain in chains)


def _mode_facts(
    chosen: Chosen, survey: Survey, mode_of_chain: list[int]
) -> dict[str, Any]:
    facts: dict[str, Any] = {"found": len(survey.modes)}
    for k, mode in enumerate(survey.modes):
        params = chosen.target.space.params(mode.position, chosen.target.dtype)
        name = f"mode {k + 1}"
        facts[f"{name}: log posterior"] = float(survey.heights[k])
        facts[f"{name}: Laplace weight"] = float(survey.weights[k])
        starting = [
            str(chain + 1) for chain, number in enumerate(mode_of_chain) if number == k
        ]
        facts[f"{name}: chains that start there"] = ", ".join(starting) or "none"
        for parameter, value in params.items():
            facts[f"{name}: {parameter}"] = _format_components(value)
    return facts


def _format_components(value: np.ndarray) -> str:
    """Return the first components of a parameter."""
    flat = [f"{x:.4g}" for x in np.ravel(value)]
    return ", ".join(flat[:_COMPONENTS_SHOWN]) + (
        f", … ({len(flat)})" if len(flat) > _COMPONENTS_SHOWN else ""
    )
