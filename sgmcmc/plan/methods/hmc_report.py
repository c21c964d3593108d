"""Report on draws by HMC, MALA and NUTS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sgmcmc.bars import Clock
from sgmcmc.checks import in_words, is_number
from sgmcmc.model.geometry import Space
from sgmcmc.plan.mode import DENSE_UP_TO, Mode
from sgmcmc.plan.reports.judging import unconstrained
from sgmcmc.plan.reports.reporting import (
    Sections,
    make_report,
    mode_facts,
    watched_facts,
)
from sgmcmc.plan.reports.robust import robust_section
from sgmcmc.plan.reports.warnings import coarse_rounding_warnings
from sgmcmc.plan.warm_up import WarmedUp
from sgmcmc.plan.whitening import Whitener
from sgmcmc.results.arrays import by_chain, coordinate_name
from sgmcmc.results.diagnostics import Diagnostics, diagnose
from sgmcmc.results.measured_error import watched
from sgmcmc.results.report import Fact, Report, Section
from sgmcmc.results.samples import Samples
from sgmcmc.run.sampler_origin import origin_of


@dataclass(frozen=True)
class _Settings:
    acceptance: float = 0.5  # least rate
    cut_short: float = 0.01  # largest share of trajectories
    divergences: float = 1e-4  # largest share of trajectories: of a few thousand, none
    near_zero: float = 0.25  # share of its median below which a scale is near zero
    draws_examined: int = 10_000  # for that


_SETTINGS = _Settings()


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
    warnings = [*log.warnings, *_acceptance_warnings(facts, rates)]
    if divergences > _SETTINGS.divergences * sum(chain["moves"] for chain in facts):
        warnings.append(_of_divergences(divergences, facts, samples, diagnostics))
    warnings += _rounding_warnings(samples, origin.sampler.target.space)
    sections: Sections = {}
    predicted = log.predicted
    if predicted is None:
        warnings += diagnostics.warnings(ess)
    else:
        warnings += [_exchangeable_warning(log.exchangeable), *predicted.warnings(ess)]
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


def _exchangeable_warning(names: Sequence[str]) -> str:
    return (
        f"Entries of {in_words(names, 'and')} can change places, and the posterior is the same: it "
        "has as many modes as there are arrangements. Means, SDs, effective sample sizes and R-hat "
        "of single entries have no meaning; those of predictions (`samples.predict`) have."
    )


def _of_divergences(
    divergences: float,
    facts: Sequence[Mapping[str, float]],
    samples: Samples,
    diagnostics: Diagnostics,
) -> str:
    """Return a warning with the scale that comes near zero, or the slowest coordinate.

    A scale counts as near zero if one draw in a hundred is less than a part of the median.
    """
    trajectories = sum(chain["moves"] for chain in facts)
    stepsize = samples.settings["stepsize"]
    suggestion = f", such as {stepsize / 2:.2g}" if is_number(stepsize) else ""
    message = (
        f"{divergences:.0f} of {trajectories:.0f} trajectories diverged: the posterior has regions "
        "of high curvature that this stepsize cannot resolve, and is not explored well "
        f"there. Use a smaller `stepsize`{suggestion}, or reparameterize the model. "
    )
    near_zero: dict[str, tuple[float, float]] = {}
    for name, array in by_chain(samples.settings, samples).items():
        flat = np.asarray(array).reshape(-1, int(np.prod(array.shape[2:])))
        flat = flat[:: max(1, len(flat) // _SETTINGS.draws_examined)]
        low, median = np.quantile(flat, [0.01, 0.5], axis=0)
        for index in np.flatnonzero(
            (flat.min(0) > 0) & (low < _SETTINGS.near_zero * median)
        ):
            label = coordinate_name(name, array.shape[2:], int(index))
            near_zero[label] = float(low[index]), float(median[index])
    if not near_zero:
        return message + f"The slowest coordinate is {diagnostics.scarcest}."
    name, (low, median) = min(
        near_zero.items(), key=lambda item: item[1][0] / item[1][1]
    )
    return message + (
        f"{name} comes near zero: one draw in a hundred is below {low:.2g}, with a median of "
        f"{median:.2g}. If it is the SD of effects, integrate them out by `groups=`, write them as "
        "scale × standard normal, or give it a prior that vanishes at zero, such as Gamma(2, rate)."
    )


def _acceptance_warnings(
    facts: Sequence[Mapping[str, float]], rates: list[float]
) -> list[str]:
    warnings = []
    trajectories = sum(chain["moves"] for chain in facts)
    if min(rates) < _SETTINGS.acceptance:
        warnings.append(
            f"Only {min(rates):.0%} of the moves of a chain were accepted: the stepsize is too "
            "large for it."
        )
    n_cut = sum(chain["moves cut short"] for chain in facts)
    if n_cut > _SETTINGS.cut_short * max(1.0, trajectories):
        warnings.append(
            f"{n_cut:.0f} of {trajectories:.0f} trajectories reached the largest number of "
            "gradients. The draws are valid, but their autocorrelation is high."
        )
    return warnings


def _rounding_warnings(samples: Samples, space: Space) -> list[str]:
    dtype = np.dtype(samples.settings["dtype"])
    u = unconstrained(samples, space)
    with np.errstate(divide="ignore", invalid="ignore"):
        rounding = np.finfo(dtype).eps * np.abs(u.mean((0, 1))) / u.std((0, 1))
    return coarse_rounding_warnings(float(np.fmax(rounding, 0.0).max()), dtype)
