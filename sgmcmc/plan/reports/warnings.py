"""Warnings: reasons not to trust draws, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgmcmc.gradients import ControlVariate, FullGradient, MinibatchGradient
from sgmcmc.plan.mode import Mode
from sgmcmc.plan.reports.judging import Judgement
from sgmcmc.results.arrays import coordinate_name
from sgmcmc.results.diagnostics import RHAT, Diagnostics
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


_SETTINGS = _Settings()


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
            f"There is a single chain, so that R-hat (at most {RHAT}) cannot compare chains. Use "
            "n_chains=4."
        )
    return warnings


def rounding_warnings(samples: Samples, mode: Mode) -> list[str]:
    """Return a warning about rounding, if SDs are small compared with the values."""
    dtype = np.dtype(samples.settings["dtype"])
    sds = np.sqrt(np.diag(mode.information.covariance))
    return coarse_rounding_warnings(
        float((np.finfo(dtype).eps * np.abs(mode.position) / sds).max()), dtype
    )


def coarse_rounding_warnings(rounding: float, dtype: np.dtype) -> list[str]:
    """Return a warning if the rounding error of a number is large relative to its posterior SD."""
    if rounding <= _SETTINGS.rounding:
        return []
    return [
        f"A posterior SD is only {1 / rounding:.2g} times the rounding error of {dtype.name}. Use "
        "dtype=tf.float64, or center the data."
    ]


def _name(sampler: Sampler, index: int) -> str:
    layout = sampler.target.space.layout
    name = layout.parameter_at(index)
    return coordinate_name(name, layout.shapes[name], index - layout.slices[name].start)
