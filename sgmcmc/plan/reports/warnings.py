"""Warnings: reasons not to trust draws, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgmcmc.checks import in_words, is_number
from sgmcmc.gradients import ControlVariate, FullGradient, MinibatchGradient
from sgmcmc.groups.structure import Structure
from sgmcmc.model.geometry import Space
from sgmcmc.plan.local import LocalPlan
from sgmcmc.plan.mode import Mode
from sgmcmc.plan.modes import Survey
from sgmcmc.plan.plan import Plan
from sgmcmc.plan.reports.judging import Judgement, unconstrained
from sgmcmc.plan.stopping import Watched
from sgmcmc.results.arrays import by_chain, coordinate_name
from sgmcmc.results.diagnostics import RHAT, Diagnostics
from sgmcmc.results.report import Fact
from sgmcmc.results.samples import Samples
from sgmcmc.run.sampler import Sampler


@dataclass(frozen=True)
class _Settings:
    rounding: float = 0.1  # largest error of a coordinate, in posterior SDs
    # Largest distance of control variates from the mode, in posterior SDs.
    off_center: float = 0.5
    # Of the tolerance: three standard errors of the noise along the chain.
    margin: float = 1.2
    mean_shift: float = 3.0  # from the mode, in posterior SDs, that is too large
    sd_ratio: float = 2.0  # that is too large
    ess_per_draw: float = 1.3  # largest
    # Share of a chain's draws in another mode from which the chain visits it.
    visit: float = 0.01


_SETTINGS = _Settings()


@dataclass(frozen=True)
class _ExactSettings:
    acceptance: float = 0.5  # least rate
    cut_short: float = 0.01  # largest share of trajectories
    divergences: float = 1e-4  # largest share of trajectories: of a few thousand, none
    near_zero: float = 0.25  # share of its median below which a scale is near zero
    draws_examined: int = 10_000  # for that


_EXACT_SETTINGS = _ExactSettings()


@dataclass(frozen=True)
class _LocalSettings:
    names_shown: int = 3  # watched quantities that a warning names
    curvature_growth: float = 2.0  # largest, until the chain's end


_LOCAL_SETTINGS = _LocalSettings()

# Variance of a whitened direction, or its inverse, that was not known well at the mode.
WIDE = 8.0
# Error of the log posterior, from draw to draw, at which a quadrature is called coarse.
COARSE = 0.1

NO_TIME_WARNING = (
    "`max_seconds`: the time to look for the mode and for coordinates was over. Chains started at "
    "`params`, in coordinates of the warm-up alone. Give more seconds, or a `preconditioner`."
)

NO_USEFUL_MODE = (
    "No mode of use was found: chains started at `params`, and coordinates come from the warm-up "
    "alone."
)


def judgement_warnings(
    judgement: Judgement, sampler: Sampler, diagnostics: Diagnostics, tolerance: float
) -> list[str]:
    """Return warnings from curvature and noise."""
    warnings = _stepsize_warnings(judgement, sampler, tolerance)
    if judgement.off_center is not None and judgement.off_center > _SETTINGS.off_center:
        warnings.append(
            f"The control variates are centered {judgement.off_center:.2g} posterior SDs from the "
            "mode, so that gradients are noisier than necessary. Use opt_stepsize='auto', or "
            "more `n_iters_opt`."
        )
    shift = np.abs(judgement.shift)
    if shift.max() > _SETTINGS.mean_shift:
        warnings.append(
            f"The mean of {_name(sampler, int(shift.argmax()))} is {shift.max():.2g} posterior "
            "SDs from the mode: the chain has not converged, or the posterior is far from normal."
        )
    expected = np.broadcast_to(
        judgement.prediction.ratio if judgement.prediction.known else 1.0,
        judgement.ratio.shape,
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = np.abs(np.log(judgement.ratio / expected))
    log_ratio = np.where(np.isfinite(log_ratio), log_ratio, 0.0)
    # Few effective draws cover less than the posterior, and the ESS says so already.
    effective = np.asarray(diagnostics.bulk)
    if len(effective) != len(log_ratio):
        effective = np.full(len(log_ratio), diagnostics.smallest)
    noise = 3.0 / np.sqrt(np.maximum(2.0, effective))
    if noise_is_predictable(sampler):
        otherwise = _SETTINGS.sd_ratio
    else:
        otherwise, noise = 1.0 + tolerance, noise / np.sqrt(2.0)
    if (log_ratio > np.log(otherwise) + noise).any():
        worst = int(np.argmax(log_ratio - noise))
        if log_ratio[worst] <= np.log(_SETTINGS.sd_ratio) + noise[worst]:
            predicted = (
                ""
                if not judgement.prediction.known
                else f", {expected[worst]:.3g} predicted"
            )
            return [
                *warnings,
                f"The SD of {_name(sampler, worst)} is {judgement.ratio[worst]:.3g} times the "
                f"Laplace SD{predicted}. The noise of {type(sampler.chain.gradient).__name__} "
                "along a chain cannot be measured in advance: it is larger than at the mode, or "
                "its errors are correlated. Use a smaller stepsize.",
            ]
        warnings.append(
            f"The SD of {_name(sampler, worst)} is {judgement.ratio[worst]:.2g} times the Laplace "
            "SD: the chain has not explored the posterior, or the posterior is far from normal."
        )
    return warnings


def noise_is_predictable(sampler: Sampler) -> bool:
    """Return whether the noise that is measured at single positions is that along the chain.

    It is not for estimators with a memory, whose table or center follows the chain, or whose errors
    may be correlated, as those of user-defined ones.
    """
    gradient = sampler.chain.gradient
    return type(gradient) in (MinibatchGradient, ControlVariate, FullGradient)


def is_within_tolerance(judgement: Judgement, tolerance: float) -> bool:
    """Return whether the predicted SDs are within the tolerance."""
    prediction = judgement.prediction
    return prediction.known and prediction.worst <= _SETTINGS.margin * tolerance


def _stepsize_warnings(
    judgement: Judgement, sampler: Sampler, tolerance: float
) -> list[str]:
    prediction = judgement.prediction
    if not prediction.known or is_within_tolerance(judgement, tolerance):
        return []
    advice = "Use smaller stepsizes"
    if judgement.largest:
        advice = f"Use a stepsize of at most {judgement.largest:.2g}"
    auto = f"{advice}, or stepsize='auto'."
    if judgement.largest == 0.0:
        auto = (
            "No stepsize is small enough for some directions and large enough for others: use "
            "preconditioner='auto'."
        )
    if not prediction.stable:
        return [
            "The stepsize is too large for the curvature at the mode: the draws do not follow the "
            f"posterior. {auto}"
        ]
    worst = int(np.abs(prediction.error).argmax())
    what = (
        f"The predicted error of the SD of {_name(sampler, worst)} is "
        f"{prediction.error[worst]:+.0%}, above the tolerance of {tolerance:.0%}"
    )
    if judgement.without_noise.worst > tolerance:
        return [f"{what}: the stepsize is too large. {auto}"]
    return [
        f"{what}: the gradient noise is too large for the stepsize. {advice}, larger minibatches, "
        "or control variates with minibatches='leverage'."
    ]


def draw_warnings(
    diagnostics: Diagnostics,
    settings: Mapping[str, Any],
    ess: float,
    swings: bool = False,
) -> list[str]:
    """Return warnings from the draws themselves.

    Args:
        diagnostics: Diagnostics of the draws.
        settings: Settings of the chain.
        ess: Requested effective sample size.
        swings: Whether negatively correlated draws are valid, because the theory predicts them or
            the dynamics have no discretization error.
    """
    warnings = diagnostics.warnings(ess)
    total = diagnostics.draws * (settings["n_chains"] or 1)
    largest_ess = float(np.nanmax(diagnostics.bulk))
    if largest_ess > _SETTINGS.ess_per_draw * total and not swings:
        warnings.append(
            f"The effective sample size, {largest_ess:.0f}, is larger than the number of draws, "
            f"{total}: successive draws are negatively correlated, which a too-large stepsize "
            "causes."
        )
    if (settings["n_chains"] or 1) == 1:
        warnings.append(
            f"There is a single chain, so that there is no R-hat, which should be at most {RHAT}. "
            "Use n_chains=4."
        )
    return warnings


def rounding_warnings(samples: Samples, mode: Mode) -> list[str]:
    """Return a warning about rounding, if SDs are small compared with the values."""
    dtype = np.dtype(samples.settings["dtype"])
    sds = np.sqrt(np.diag(mode.information.covariance))
    errors = np.finfo(dtype).eps * np.abs(mode.position)
    return coarse_rounding_warnings(float((errors / sds).max()), dtype)


def coarse_rounding_warnings(rounding: float, dtype: np.dtype) -> list[str]:
    """Return a warning if the rounding error of a number is large relative to its posterior SD."""
    if rounding <= _SETTINGS.rounding:
        return []
    return [
        f"A posterior SD is only {1 / rounding:.2g} times the rounding error of {dtype.name}. Use "
        "dtype=tf.float64, or center the data."
    ]


def rounding_warnings_of_draws(samples: Samples, space: Space) -> list[str]:
    """Return a warning about rounding, if SDs of draws are small compared with their means."""
    dtype = np.dtype(samples.settings["dtype"])
    u = unconstrained(samples, space)
    means, sds = u.mean((0, 1)), u.std((0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        rounding = np.finfo(dtype).eps * np.abs(means) / sds
    return coarse_rounding_warnings(float(np.fmax(rounding, 0.0).max()), dtype)


def mode_warnings(mode: Mode) -> list[str]:
    """Return a warning about a mode that was not found, or is none."""
    if mode.converged and mode.information.upward is not None:
        return [
            "The mode is a saddle: the gradient is zero there, and the log posterior curved "
            "upward in some direction. Start at another place, not at one of symmetry such as zero."
        ]
    if mode.converged:
        return []
    return [
        f"The mode was not found: the remaining Newton step is {mode.distance:.2g} posterior SDs. "
        "Gradient noise may be larger than necessary."
    ]


def no_mode_warnings(surveyed: Survey | None) -> list[str]:
    """Return a warning about a log posterior without a mode."""
    if surveyed is None or not surveyed.rising:
        return []
    names = ", ".join(repr(name) for name in surveyed.rising)
    return [
        f"There is no mode: the log posterior keeps rising, or does not fall, as {names} moves "
        "away from its start. The posterior may be improper (separable data, such as a feature "
        "that separates the classes, or parameters that the data do not tell apart, under a flat "
        "prior), or unbounded as a scale goes to zero. Use a proper prior, or write the scaled "
        "parameters as scale × standard normal."
    ]


def far_from_normal_warnings(eigenvalues: np.ndarray) -> list[str]:
    """Return a warning if draws are far from the normal approximation at the mode.

    Args:
        eigenvalues: Eigenvalues of their covariance in whitened coordinates, ascending.
    """
    if not (eigenvalues[-1] > WIDE or eigenvalues[0] < 1 / WIDE):
        return []
    return [
        "The posterior is far from normal: in whitened coordinates, the eigenvalues of the "
        f"draws' covariance range from {eigenvalues[0]:.2g} to {eigenvalues[-1]:.2g}."
    ]


def multimodal_warnings(
    survey: Survey, fractions: np.ndarray, agree: bool, plan: Plan
) -> list[str]:
    """Return warnings about modes that chains do not visit in proportion to their weight.

    Args:
        survey: Modes.
        fractions: Fraction of each chain's draws nearest to each mode, (chains, modes).
        agree: Whether the chains agree.
        plan: Plan of the chains.
    """
    warnings = []
    visits, count = fractions > _SETTINGS.visit, len(survey.modes)
    if not agree:
        occupancy = []
        for k in range(count):
            chains = [str(chain + 1) for chain in np.flatnonzero(visits[:, k])]
            word = "chain" if len(chains) == 1 else "chains"
            visited_by = f"{word} {', '.join(chains)}" if chains else "no chain"
            weight = f"Laplace weight {survey.weights[k]:.2g}"
            occupancy.append(f"mode {k + 1} ({weight}): {visited_by}")
        crossed = bool((visits.sum(1) > 1).any())
        cross = "cross too rarely" if crossed else "do not cross"
        warnings.append(
            f"The posterior has {count} modes, which chains {cross}: {'; '.join(occupancy)}. The "
            "number of draws in each mode does not estimate its weight; moments pooled over chains "
            "mix the modes."
        )
    if count > len(fractions):
        warnings.append(
            f"There are {count} modes, and only {len(fractions)} chains to start in "
            "them."
        )
    if plan.prediction.worst > 1.001 * plan.given.tolerance:
        warnings.append(
            f"The predicted error of a posterior SD is {plan.prediction.worst:.1%}, above the "
            f"tolerance of {plan.given.tolerance:.1%}."
        )
    return warnings


def quadrature_warnings(structure: Structure, nodes: int, error: float) -> list[str]:
    """Return a warning if the quadrature over effects is coarse.

    Args:
        structure: Groups, some of whose effects are integrated out.
        nodes: Nodes in each direction.
        error: Error of the log posterior, its SD over draws.
    """
    if structure.integrated is None or not error > COARSE:
        return []
    advice = (
        "`log_lik` or the density is not quadratic in the effects there, as it is at the "
        "starting values: give `Groups` normal=False."
        if structure.found_normal
        else f"Give `Groups` more `nodes` than {nodes}."
    )
    return [
        f"The quadrature over effects of {structure.integrated.by!r} changes the log posterior by "
        f"{error:.2g} from draw to draw when it has more nodes. {advice}"
    ]


def friction_warnings(excess: dict[str, float], tolerance: float) -> list[str]:
    """Return a warning if gradient noise that is left over friction widens SDs."""
    worst = max(excess, key=excess.__getitem__)
    wider = float(np.sqrt(1.0 + excess[worst])) - 1.0
    if wider <= tolerance:
        return []
    return [
        f"Gradient noise raises the temperature of {worst!r} to {1 + excess[worst]:.3g} times the "
        f"right one: its SDs are too large by about {wider:.0%}. Use control variates, "
        "noise_variance='fisher', a smaller stepsize, or larger minibatches."
    ]


def kick_warnings(kick: dict[str, float]) -> list[str]:
    """Return a warning if noise, whatever absorbs it, is larger than a step."""
    worst = max(kick, key=kick.__getitem__)
    if kick[worst] <= 1.0:
        return []
    return [
        f"Gradient noise of {worst!r} is too large for the stepsize: εV/2 is {kick[worst]:.2g}, "
        "and should be below 1. Use control variates, a smaller stepsize, or larger minibatches."
    ]


def thermostat_warnings(excess: dict[str, float]) -> list[str]:
    """Return a warning if a thermostat has to find a friction far from that at its start."""
    worst = max(excess, key=excess.__getitem__)
    if excess[worst] <= 1.0:
        return []
    return [
        f"The thermostat of {worst!r} must find a friction for gradient noise {excess[worst]:.2g} "
        "times as large as `a`. If there are few dimensions, that takes very many iterations, and "
        f"until then SDs are too large, by up to {np.sqrt(1.0 + excess[worst]) - 1.0:.0%}. Use "
        "control variates or a larger `a`; `samples.check()` measures the error."
    ]


def acceptance_warnings(facts: Sequence[Mapping[str, float]]) -> list[str]:
    """Return warnings about moves that were rejected, and trajectories that were cut short."""
    warnings, rates = [], [chain["acceptance rate"] for chain in facts]
    trajectories = sum(chain["moves"] for chain in facts)
    if min(rates) < _EXACT_SETTINGS.acceptance:
        warnings.append(
            f"Only {min(rates):.0%} of the moves of a chain were accepted: the stepsize is too "
            "large for it."
        )
    n_cut = sum(chain["moves cut short"] for chain in facts)
    if n_cut > _EXACT_SETTINGS.cut_short * max(1.0, trajectories):
        warnings.append(
            f"{n_cut:.0f} of {trajectories:.0f} trajectories reached the largest number of "
            "gradients. The draws are valid, but their autocorrelation is high."
        )
    return warnings


def divergence_warnings(
    facts: Sequence[Mapping[str, float]],
    samples: Samples,
    diagnostics: Diagnostics,
) -> list[str]:
    """Return a warning with the scale that comes near zero, or the slowest coordinate.

    A scale counts as near zero if one draw in a hundred is less than a part of the median.

    Args:
        facts: Facts of each chain.
        samples: Draws.
        diagnostics: Diagnostics of their coordinates.
    """
    divergences = sum(chain[Fact.DIVERGENCES] for chain in facts)
    trajectories = sum(chain["moves"] for chain in facts)
    if divergences <= _EXACT_SETTINGS.divergences * trajectories:
        return []
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
        flat = flat[:: max(1, len(flat) // _EXACT_SETTINGS.draws_examined)]
        low, median = np.quantile(flat, [0.01, 0.5], axis=0)
        for index in np.flatnonzero(
            (flat.min(0) > 0) & (low < _EXACT_SETTINGS.near_zero * median)
        ):
            label = coordinate_name(name, array.shape[2:], int(index))
            near_zero[label] = float(low[index]), float(median[index])
    if not near_zero:
        return [message + f"The slowest coordinate is {diagnostics.scarcest}."]
    name, (low, median) = min(
        near_zero.items(), key=lambda item: item[1][0] / item[1][1]
    )
    return [
        f"{message}{name} comes near zero: one draw in a hundred is below {low:.2g}, with a "
        f"median of {median:.2g}. If it is the SD of effects, integrate them out by "
        "`groups=`, write them as scale × standard normal, or give it a prior that vanishes at "
        "zero, such as Gamma(2, rate)."
    ]


def exchangeable_warning(names: Sequence[str]) -> str:
    """Return the warning about parameters whose entries are exchangeable."""
    return (
        f"Entries of {in_words(names, 'and')} can change places, and the posterior is the same: it "
        "has as many modes as there are arrangements. Means, SDs, effective sample sizes and R-hat "
        "of single entries have no meaning; those of predictions (`samples.predict`) have."
    )


def local_warnings(
    plan: LocalPlan, tolerance: float, final_curvature: float
) -> list[str]:
    """Return warnings on noise and curvature of chains with a local plan.

    Args:
        plan: Plan of the chains.
        tolerance: Largest relative error of a posterior SD.
        final_curvature: Largest curvature at the end of the chains; 0 if it is not known.
    """
    warnings = []
    if not max(plan.stiff_error, plan.error.max()) <= 1.001 * tolerance:
        warnings.append(
            f"Gradient noise makes SDs too large: by {plan.stiff_error:.1%} in the direction of "
            f"the largest curvature (a local bound); the tolerance is {tolerance:.1%}. "
            "Larger minibatches have less noise."
        )
    largest_curvature = _LOCAL_SETTINGS.curvature_growth * plan.around.curvature
    if final_curvature > largest_curvature:
        warnings.append(
            f"The largest curvature grew from {plan.around.curvature:.3g} to "
            f"{final_curvature:.3g} along the chains: the constants chosen at their start "
            "are not suitable at their end."
        )
    return warnings


def agreement_warnings(rule: Watched, required_ess: float) -> list[str]:
    """Return warnings on watched quantities of few effective draws, or of unequal chains."""
    warnings = []
    of_each = rule.diagnostics
    ess = {name: diagnostics.smallest for name, diagnostics in of_each.items()}
    few = sorted(
        (name for name in ess if ess[name] < required_ess), key=ess.__getitem__
    )
    if few:
        names = _named_first(few, rule)
        listed = ", ".join(f"{ess[name]:.0f} for {name}" for name in names)
        warnings.append(
            f"Effective sample sizes are below {required_ess:g}: {listed}{_and_more(few)}."
        )
    rhat = {name: max(diagnostics.rhat) for name, diagnostics in of_each.items()}
    disagreeing = sorted(
        (name for name in rhat if rhat[name] > RHAT), key=rhat.__getitem__, reverse=True
    )
    if disagreeing:
        names = _named_first(disagreeing, rule)
        listed = ", ".join(f"{rhat[name]:.3f} for {name}" for name in names)
        warnings.append(
            f"The chains do not agree; R-hat is {listed}{_and_more(disagreeing)}."
        )
    return warnings


def _named_first(names: list[str], rule: Watched) -> list[str]:
    """Return the log-likelihood of rows if it is among the names, and the first of the others."""
    of_rows = [name for name in names if name == rule.rows.name]
    return [*of_rows, *(name for name in names if name not in of_rows)][
        : _LOCAL_SETTINGS.names_shown
    ]


def _and_more(names: list[str]) -> str:
    """Return the number of those that are not named."""
    more = len(names) - _LOCAL_SETTINGS.names_shown
    return f", and {more} other watched quantities fall short" if more > 0 else ""


def _name(sampler: Sampler, index: int) -> str:
    layout = sampler.target.space.layout
    name = layout.parameter_at(index)
    return coordinate_name(name, layout.shapes[name], index - layout.slices[name].start)
