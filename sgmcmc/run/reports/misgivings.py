"""What speaks against trusting draws, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sgmcmc.gradients import ControlVariate, FullGradient, MinibatchGradient
from sgmcmc.results.diagnostics import RHAT, Diagnostics
from sgmcmc.results.samples import Samples
from sgmcmc.run.reports.judging import Judgement
from sgmcmc.run.sampler import Sampler
from sgmcmc.tuning.mode import Mode

_ROUNDING = 0.1
"""How much of a posterior sd the rounding of a coordinate may be."""

_OFF_CENTRE = 0.5
"""Posterior sds that the centre of control variates may be off the mode."""

_MARGIN = 1.2
"""How many times the tolerance is let pass: noise along the chain is a little more than before."""

_FAR, _OTHERWISE = 3.0, 2.0
"""Posterior sds between mean and mode, and factors between sds, that are too much."""

_SUPER = 1.3
"""How many times its number of draws an effective sample size may be."""


def misgivings(
    judgement: Judgement, sampler: Sampler, diagnostics: Diagnostics, tolerance: float
) -> list[str]:
    """Return what curvature and noise say against draws."""
    found = _of_stepsize(judgement, sampler, tolerance)
    if judgement.off_centre is not None and judgement.off_centre > _OFF_CENTRE:
        found.append(
            f"The control variates are centred {judgement.off_centre:.2g} posterior sds off the "
            "mode, so that gradients are noisier than they need be. Use opt_stepsize='auto', or "
            "more `n_iters_opt`."
        )
    shift = np.abs(judgement.shift)
    if shift.max() > _FAR:
        found.append(
            f"The mean of {_name(sampler, int(shift.argmax()))} is {shift.max():.2g} posterior sds "
            "from the mode: the chain has not arrived, or the posterior is far from normal."
        )
    expected = np.broadcast_to(
        judgement.prediction.ratio if judgement.prediction.known else 1.0, judgement.ratio.shape
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.abs(np.log(judgement.ratio / expected))
    gap = np.where(np.isfinite(gap), gap, 0.0)
    # Few effective draws cover less than the posterior, and the ESS says so already.
    effective = np.asarray(diagnostics.bulk)
    if len(effective) != len(gap):
        effective = np.full(len(gap), diagnostics.smallest)
    noise = 3.0 / np.sqrt(np.maximum(2.0, effective))
    if is_foretold(sampler):
        otherwise = _OTHERWISE
    else:
        otherwise, noise = 1.0 + tolerance, noise / np.sqrt(2.0)
    if (gap > np.log(otherwise) + noise).any():
        worst = int(np.argmax(gap - noise))
        if gap[worst] <= np.log(_OTHERWISE) + noise[worst]:
            said = "" if not judgement.prediction.known else f", {expected[worst]:.3g} predicted"
            return [
                *found,
                f"The sd of {_name(sampler, worst)} is {judgement.ratio[worst]:.3g} times that "
                f"which the curvature at the mode implies{said}. The noise of "
                f"{type(sampler.chain.gradient).__name__} along a chain cannot be measured "
                "beforehand: it is larger than at the mode, or its errors are correlated. Take a "
                "smaller stepsize.",
            ]
        found.append(
            f"The sd of {_name(sampler, worst)} is {judgement.ratio[worst]:.2g} times that which "
            "the curvature at the mode implies: the chain has not covered the posterior, or that "
            "is far from normal."
        )
    return found


def is_foretold(sampler: Sampler) -> bool:
    """Return whether the noise that is measured at single positions is that along the chain.

    It is not for estimators with a memory, of which the table and the centre follow the chain, or
    whose errors may be correlated, as those of a user's own.
    """
    gradient = sampler.chain.gradient
    return type(gradient) in (MinibatchGradient, ControlVariate, FullGradient)


def is_right(judgement: Judgement, tolerance: float) -> bool:
    """Return whether the law of the dynamics promises sds within the tolerance."""
    prediction = judgement.prediction
    return prediction.known and prediction.worst <= _MARGIN * tolerance


def _of_stepsize(judgement: Judgement, sampler: Sampler, tolerance: float) -> list[str]:
    prediction = judgement.prediction
    if not prediction.known or is_right(judgement, tolerance):
        return []
    advice = "Take smaller stepsizes"
    if judgement.largest:
        advice = f"Take a stepsize of at most {judgement.largest:.2g}"
    auto = f"{advice}, or stepsize='auto'."
    if judgement.largest == 0.0:
        auto = "No stepsize suits all directions: take preconditioner='auto'."
    if not prediction.stable:
        return [
            "The stepsize is too large for the curvature at the mode: the draws do not follow the "
            f"posterior. {auto}"
        ]
    worst = int(np.abs(prediction.error).argmax())
    what = (
        f"The predicted error of the sd of {_name(sampler, worst)} is "
        f"{prediction.error[worst]:+.0%}, above the tolerance of {tolerance:.0%}"
    )
    if judgement.without_noise.worst > tolerance:
        return [f"{what}: the stepsize is too large. {auto}"]
    return [
        f"{what}: the gradient noise is too large for the stepsize. {advice}, larger minibatches, "
        "or control variates with minibatches='leverage'."
    ]


def of_draws(
    diagnostics: Diagnostics, settings: Mapping[str, Any], ess: float, swings: bool = False
) -> list[str]:
    """Return what the draws themselves say against them.

    Args:
        diagnostics: Diagnostics of the draws.
        settings: Settings of the chain.
        ess: Requested effective sample size.
        swings: Whether the theory predicts negatively correlated draws, which are valid all the
            same.
    """
    found = diagnostics.warnings(ess)
    total = diagnostics.draws * (settings["n_chains"] or 1)
    most = float(np.nanmax(diagnostics.bulk))
    if most > _SUPER * total and not swings and settings["method"] not in ("hmc", "nuts"):
        found.append(
            f"The effective sample size, {most:.0f}, is larger than the number of draws, {total}: "
            "the chain swings to and fro, as it does where the stepsize is too large."
        )
    if (settings["n_chains"] or 1) == 1:
        found.append(
            f"There is a single chain, so that R-hat (at most {RHAT}) cannot tell whether chains "
            "agree. Take n_chains=4."
        )
    return found


def of_rounding(samples: Samples, mode: Mode) -> list[str]:
    """Return what rounding does to draws whose sds are small against their values."""
    dtype = np.dtype(samples.settings["dtype"])
    sds = np.sqrt(np.diag(mode.information.covariance))
    return too_coarse(float((np.finfo(dtype).eps * np.abs(mode.position) / sds).max()), dtype)


def too_coarse(rounding: float, dtype: np.dtype) -> list[str]:
    """Return a warning where the rounding of a number is no small part of its posterior sd."""
    if rounding <= _ROUNDING:
        return []
    return [
        f"A posterior sd is only {1 / rounding:.2g} times the rounding of {dtype.name}. Use "
        "dtype=tf.float64, or centre the data."
    ]


def _name(sampler: Sampler, place: int) -> str:
    """Return what a person calls a coordinate."""
    layout = sampler.target.space.layout
    name = layout.parameter_at(place)
    shape = layout.shapes[name]
    if not shape:
        return name
    at = np.unravel_index(place - layout.slices[name].start, shape)
    return f"{name}[{', '.join(str(int(k)) for k in at)}]"
