"""Report on draws by HMC, MALA and NUTS."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sgmcmc.bars import Clock
from sgmcmc.plan.mode import DENSE_UP_TO, Mode
from sgmcmc.plan.reports.reporting import (
    Sections,
    make_report,
    mode_facts,
    watched_facts,
)
from sgmcmc.plan.reports.robust import robust_section
from sgmcmc.plan.reports.warnings import (
    acceptance_warnings,
    divergence_warnings,
    exchangeable_warning,
    rounding_warnings_of_draws,
)
from sgmcmc.plan.warm_up import WarmedUp
from sgmcmc.plan.whitening import Whitener
from sgmcmc.results.diagnostics import Diagnostics, diagnose
from sgmcmc.results.measured_error import watched
from sgmcmc.results.report import Fact, Report, Section
from sgmcmc.results.samples import Samples
from sgmcmc.run.sampler_origin import origin_of


@dataclass
class ChoiceLog:
    """Log of how the constants were chosen.

    Attributes:
        clock: Seconds, by task.
        reason: Reason for the dynamics; empty if the user chose them.
        mode: Mode; ``None`` if none was searched for, or none was useful.
        warmed_up: Result of the warm-up; ``None`` if there was none.
        whitener: Whitening by the information; ``None`` if that was not computed.
        exchangeable: Parameters whose entries can change places.
        predicted: Diagnostics of the log-likelihood of rows, by which draws are judged if there
            are such parameters.
        warnings: Sentences on problems.
    """

    clock: Clock = field(default_factory=Clock)
    reason: str = ""
    mode: Mode | None = None
    warmed_up: WarmedUp | None = None
    whitener: Whitener | None = None
    exchangeable: tuple[str, ...] = ()
    predicted: Diagnostics | None = None
    warnings: list[str] = field(default_factory=list)


def report_on_moves(samples: Samples, log: ChoiceLog, ess: float) -> Report:
    """Return the report on draws.

    Args:
        samples: Draws.
        log: Log of how the constants were chosen.
        ess: Requested effective sample size.
    """
    settings, diagnostics, origin = (
        samples.settings,
        diagnose(samples),
        origin_of(samples),
    )
    facts = origin.facts
    rates = [chain["acceptance rate"] for chain in facts]
    divergences = sum(chain[Fact.DIVERGENCES] for chain in facts)
    warnings = [*log.warnings, *acceptance_warnings(facts)]
    warnings += divergence_warnings(facts, samples, diagnostics)
    warnings += rounding_warnings_of_draws(samples, origin.sampler.target.space)
    sections: Sections = {}
    predicted = log.predicted
    if predicted is None:
        warnings += diagnostics.warnings(ess)
    else:
        warnings += [exchangeable_warning(log.exchangeable), *predicted.warnings(ess)]
        sections[Section.PREDICTIONS] = {
            "rows": len(predicted.names),
            **predicted.facts,
        }
    if log.reason:
        sections[Section.DYNAMICS] = {
            f"reason for {settings['dynamics']['name']}": log.reason
        }
    if log.mode is not None:
        sections[Section.MODE] = mode_facts(log.mode)
    if log.warmed_up is not None:
        sections[Section.WARM_UP] = {
            "iterations": log.warmed_up.iterations,
            "metric updates": log.warmed_up.changed,
            "full gradients, all chains": log.warmed_up.gradients,
        }
    if log.whitener is not None:
        sections[Section.WARM_UP] |= log.whitener.facts()
    sections[Section.CHAIN] = {
        "observations (full gradient)": settings["N"],
        "stepsize": settings["stepsize"],
        "acceptance rate": rates,
        Fact.DIVERGENCES: int(divergences),
        "gradients per trajectory": float(
            np.mean([chain["gradients of a move"] for chain in facts])
        ),
        "trajectories cut short": int(sum(chain["moves cut short"] for chain in facts)),
    }
    sections[Section.DRAWS] = {}
    if origin.sampler.target.size > DENSE_UP_TO:
        sections[Section.WATCHED] = watched_facts(
            {
                name: diagnose({name: series})
                for name, series in watched(samples).items()
            }
        )
    if log.reason and log.mode is not None:
        sections |= robust_section(origin.sampler, log.mode)
    return make_report(
        origin.sampler, samples, diagnostics, sections, warnings, log.clock
    )
