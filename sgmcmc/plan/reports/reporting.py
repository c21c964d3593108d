"""The report on draws: constants, predictions, and diagnostics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sgmcmc.dynamics.hamiltonian import Hamiltonian
from sgmcmc.dynamics.scaled import Scaled
from sgmcmc.groups.anchors import QuadratureError
from sgmcmc.groups.marginal import Marginal
from sgmcmc.inputs.support import support_warnings
from sgmcmc.plan.mode import Mode
from sgmcmc.plan.plan import Plan
from sgmcmc.plan.prediction import error_factor
from sgmcmc.plan.reports.judging import Judgement, cannot_judge, final_stepsize, judge
from sgmcmc.plan.reports.robust import robust_draws, robust_section
from sgmcmc.plan.reports.temperature import temperature_facts
from sgmcmc.plan.reports.warnings import (
    draw_warnings,
    far_from_normal_warnings,
    is_within_tolerance,
    judgement_warnings,
    mode_warnings,
    no_mode_warnings,
    quadrature_warnings,
    rounding_warnings,
)
from sgmcmc.plan.stopping import Goal, UntilEffective
from sgmcmc.reduce.rows import CountedRows
from sgmcmc.results.arrays import by_chain, without_chains
from sgmcmc.results.diagnostics import Diagnostics, diagnose
from sgmcmc.results.report import Fact, Report, Section, Timings
from sgmcmc.results.samples import Samples
from sgmcmc.run.request import Request
from sgmcmc.run.sampler import Sampler
from sgmcmc.run.sampler_origin import origin_of

TOLERANCE = 0.05  # error of an SD, if the user gave the constants
REQUIRED_ESS = 100.0  # if the user gave the constants
_LOOKED_AT = 16  # draws at which the quadrature's error is measured

_NODES_AT_EACH_DRAW = "around its mode at each draw"
_FIXED_NODES = {
    False: "around its mode at the posterior's mode",
    True: "around its mode, linear in the parameters",
}

Sections = dict[str, Any]
"""Facts by section, or functions that return them."""


def make_report(
    sampler: Sampler,
    samples: Samples,
    diagnostics: Diagnostics | None,
    sections: Sections,
    warnings: list[str],
    timings: Timings,
) -> Report:
    """Return a report: the given sections, and those of every report.

    Args:
        sampler: Sampler that made the draws.
        samples: Draws.
        diagnostics: Diagnostics of their coordinates; ``None`` if others stand in their place.
        sections: Facts by section; those on draws are added to the section "Draws".
        warnings: Sentences on problems; those on groups are added.
        timings: Seconds of the call, by task.
    """
    settings = samples.settings
    draws: dict[str, Any] = {
        Fact.CHAINS: settings["n_chains"] or 1,
        Fact.DRAWS_PER_CHAIN: next(iter(by_chain(settings, samples).values())).shape[1],
        Fact.BURN_IN: settings["burn_in"],
    }
    if diagnostics is not None:
        draws |= diagnostics.facts
    groups, group_warnings = _group_facts(sampler, samples)
    return Report(
        {
            "method": settings["method"],
            **_reduction(sampler.request),
            **sections,
            Section.DRAWS: {**draws, **sections[Section.DRAWS]},
            **groups,
            Section.SECONDS: timings.facts(),
            Section.WARNINGS: [*warnings, *group_warnings],
        }
    )


def _reduction(request: Request) -> Sections:
    """Return the section on what the chain has in place of the user's rows, if it has."""
    structure, dataset = request.groups, request.dataset
    if structure is not None and structure.packs is not None:
        assert structure.integrated is not None
        rows = int((structure.packs.slots >= 0).sum())
        groups = len(structure.packs.labels)
        text = f"{rows} rows as {groups} groups of {structure.integrated.by!r}, integrated out"
        return {Section.MODEL: {Fact.REDUCTION: text}}
    if isinstance(dataset, CountedRows) and dataset.places is not None:
        distinct = len(dataset[dataset.counts])
        text = f"{len(dataset.places)} rows as {distinct} distinct ones, with their numbers"
        return {Section.MODEL: {Fact.REDUCTION: text}}
    return {}


def watched_facts(diagnostics: Mapping[str, Diagnostics]) -> dict[str, Any]:
    """Return facts about watched quantities, by name."""
    return {
        name: f"ESS {of_series.smallest:.0f}, R-hat {max(of_series.rhat):.3f}"
        for name, of_series in diagnostics.items()
    }


def report_around_mode(
    samples: Samples,
    plan: Plan,
    rule: UntilEffective,
    eigenvalues: np.ndarray,
    goal: Goal,
) -> Report:
    """Return the report on draws whose constants were chosen here.

    Args:
        samples: Draws.
        plan: Plan of their chains.
        rule: Rule by which they stopped.
        eigenvalues: Eigenvalues of their covariance in whitened coordinates, ascending.
        goal: Requested precision and length of the draws.
    """
    sampler = origin_of(samples).sampler
    timings = Timings(goal.start_time, plan.seconds)
    diagnostics = rule.diagnostics
    assert diagnostics is not None
    if not diagnostics.complete:
        diagnostics = diagnose(samples)
    timings.done("chains")
    judgement = judge(sampler, samples, goal.tolerance, plan.mode, plan.meter)
    warnings = mode_warnings(plan.mode) if plan.given.stepsize is None else []
    warnings += no_mode_warnings(plan.surveyed)
    warnings += _support_warnings(samples, sampler)
    warnings += judgement_warnings(judgement, sampler, diagnostics, goal.tolerance)
    warnings += rounding_warnings(samples, plan.mode)
    warnings += diagnostics.warnings(goal.ess)
    warnings += far_from_normal_warnings(eigenvalues)
    rows: dict[str, Any] = {}
    if plan.around.is_noiseless:
        rows["rows"] = "all"
    elif plan.given.minibatches is None:
        rows["rows"] = "in proportion to leverage"
    if np.isfinite(plan.effective_rows):
        rows["effective number of rows, 1/Σp²"] = plan.effective_rows
    sections: Sections = {
        Section.MODE: mode_facts(plan.mode),
        Section.CHAIN: {
            **chain_facts(samples, sampler),
            **rows,
            "eigenvalues of draws' covariance, whitened": eigenvalues.tolist(),
        },
        Section.PREDICTED: {
            "SD error (noise under Laplace approximation)": plan.prediction.error.tolist(),
            **_predicted_facts(judgement, sampler),
        },
        Section.DRAWS: _measured_facts(judgement),
        **robust_section(sampler, plan.mode),
    }
    timings.done("report")
    return make_report(sampler, samples, diagnostics, sections, warnings, timings)


def _group_facts(
    sampler: Sampler, samples: Samples
) -> tuple[dict[str, Any], list[str]]:
    structure = sampler.request.groups
    if structure is None:
        return {}, []
    facts: dict[str, Any] = {
        f"levels of {by!r}": len(labels) for by, labels in structure.labels.items()
    }
    marginal = sampler.request.log_lik
    if structure.integrated is None or not isinstance(marginal, Marginal):
        return {Section.GROUPS: {**facts, "effects": "coordinates of the chain"}}, []
    by, fixed_nodes = structure.integrated.by, sampler.request.fixed_nodes
    facts["integrated out"] = by
    if structure.integrated.normal:
        facts["integral"] = "in closed form"
        if not structure.found_normal:
            return {Section.GROUPS: facts}, []
    else:
        facts["nodes in each direction"] = marginal.nodes
        facts["nodes of a group"] = (
            _NODES_AT_EACH_DRAW
            if fixed_nodes is None
            else _FIXED_NODES[bool(fixed_nodes.sides)]
        )
    error = quadrature_error(sampler, samples)
    facts["quadrature error of the log posterior, SD over draws"] = error
    warnings = quadrature_warnings(structure, marginal.nodes, error)
    return {Section.GROUPS: facts}, warnings


def quadrature_error(sampler: Sampler, samples: Samples) -> float:
    """Return the error of the log posterior by the quadrature over effects, its SD over draws."""
    marginal = sampler.request.log_lik
    assert isinstance(marginal, Marginal)
    flat = without_chains(by_chain(samples.settings, samples))
    count = len(next(iter(flat.values())))
    indices = np.unique(np.linspace(0, count - 1, _LOOKED_AT).astype(int))
    params = {name: array[indices] for name, array in flat.items()}
    fixed_nodes = sampler.request.fixed_nodes
    center = (
        fixed_nodes.center if fixed_nodes is not None and fixed_nodes.slope else None
    )
    return QuadratureError(marginal, sampler.data, params, center).error(marginal.nodes)


def report_on_constants(sampler: Sampler, samples: Samples) -> Report | None:
    """Return the report on draws whose constants the user gave."""
    if (
        not samples
        or next(iter(by_chain(samples.settings, samples).values())).shape[1] < 4
    ):
        return None
    timings = Timings()
    diagnostics = diagnose(by_chain(samples.settings, samples))
    reason = cannot_judge(sampler, samples)
    judgement = judge(sampler, samples, TOLERANCE) if reason is None else None
    if judgement is not None and not judgement.mode.converged:
        reason, judgement = "no mode was found from the mean of the draws", None
    chain = chain_facts(samples, sampler)
    exact = isinstance(sampler.chain.dynamics, Hamiltonian)
    if judgement is None:
        warm, warnings = temperature_facts(sampler, samples, TOLERANCE)
        sections: Sections = {
            Section.CHAIN: chain,
            Section.PREDICTED: {"not available": reason, **warm},
            Section.DRAWS: {},
        }
        warnings += draw_warnings(diagnostics, samples.settings, REQUIRED_ESS, exact)
    else:
        swings = exact or is_within_tolerance(judgement, TOLERANCE)
        warnings = judgement_warnings(judgement, sampler, diagnostics, TOLERANCE)
        warnings += draw_warnings(diagnostics, samples.settings, REQUIRED_ESS, swings)
        warnings += rounding_warnings(samples, judgement.mode)
        sections = {
            Section.MODE: mode_facts(judgement.mode),
            Section.CHAIN: chain,
            Section.PREDICTED: _predicted_facts(judgement, sampler),
            Section.DRAWS: _measured_facts(judgement),
            **robust_section(sampler, judgement.mode),
        }
    warnings = [*_support_warnings(samples, sampler), *warnings]
    timings.done("report")
    return make_report(sampler, samples, diagnostics, sections, warnings, timings)


def _support_warnings(samples: Samples, sampler: Sampler) -> list[str]:
    return support_warnings(samples, sampler.target, sampler.request.read.params[0])


def mode_facts(mode: Mode) -> dict[str, Any]:
    """Return the facts about the mode."""
    return {
        "found": mode.converged,
        "remaining Newton step, posterior SDs": mode.distance,
        "passes over the data": mode.evaluations,
        "condition number of observed information": mode.information.shown_condition,
        **(
            {"information from a sample, relative error": mode.error}
            if mode.error
            else {}
        ),
    }


def chain_facts(samples: Samples, sampler: Sampler) -> dict[str, Any]:
    """Return the facts about the chain."""
    settings = samples.settings
    stepsize = np.atleast_1d(final_stepsize(sampler.chain, samples)).tolist()
    rows = settings["minibatches"]
    preconditioner = sampler.target.space.preconditioner
    moves = getattr(samples.origin, "facts", ())
    describes_moves = moves and not isinstance(sampler.chain.dynamics, Scaled)
    return {
        "dynamics": repr(sampler.chain.dynamics),
        "gradient": settings["gradient"]["name"],
        "minibatch size": f"{settings['n']} of {settings['N']}",
        "rows": rows
        if isinstance(rows, str)
        else "weighted (user-supplied probabilities)",
        "stepsize": stepsize[0] if len(stepsize) == 1 else stepsize,
        "preconditioner": ("none" if preconditioner is None else preconditioner.kind),
        **({} if sampler.chain.turns is None else {"updates": "in turn"}),
        **(
            {}
            if settings["temperature"] == 1.0
            else {"temperature": settings["temperature"]}
        ),
        **(move_facts(moves) if describes_moves else {}),
    }


def move_facts(facts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean over chains of the facts about their moves."""
    return {name: float(np.mean([chain[name] for chain in facts])) for name in facts[0]}


def _predicted_facts(judgement: Judgement, sampler: Sampler) -> dict[str, Any]:
    prediction, geometry = judgement.prediction, judgement.geometry
    noise = {Fact.NOISE: judgement.noise_along}
    if judgement.noise_along:
        noise["whitened gradient noise, by coordinate"] = (
            geometry.noise_by_coordinate.tolist()
        )
    if not prediction.known:
        reason = "not known for these dynamics"
        if sampler.chain.turns is not None:
            reason += " with parameters that move in turn"
        return {Fact.SD_ERROR: reason, **noise}
    if not prediction.stable:
        return {Fact.SD_ERROR: "unbounded: the stepsize is too large"}
    return {
        Fact.SD_ERROR: prediction.error.tolist(),
        "autocorrelation time, iterations": prediction.times.tolist(),
        **noise,
    }


def _measured_facts(judgement: Judgement) -> dict[str, Any]:
    facts: dict[str, Any] = {
        Fact.SD_RATIO: judgement.ratio.tolist(),
        "(mean − mode) / Laplace SD": judgement.shift.tolist(),
    }
    if judgement.off_center is not None:
        facts["(control-variate center − mode) / Laplace SD"] = judgement.off_center
    return facts


class CurvatureReporter:
    """Reports by the curvature at the mode; see :class:`sgmcmc.run.request.Reporter`."""

    report = staticmethod(report_on_constants)
    robust = staticmethod(robust_draws)
    error_factor = staticmethod(error_factor)
