"""The report on draws whose constants were chosen."""

from __future__ import annotations

import time

import numpy as np

from sgmcmc.results.report import Report
from sgmcmc.results.samples import Samples
from sgmcmc.run.lengths import UntilEffective, Wishes
from sgmcmc.tuning.plan import Plan

WIDE = 8.0
"""A direction whose variance in whitened coordinates is more than this, or less than its inverse,
was not known well at the mode."""

_ROUNDING = 0.1
"""How much of a posterior sd the rounding of a coordinate may be."""


def report_on(
    samples: Samples,
    plan: Plan,
    lengths: UntilEffective,
    wishes: Wishes,
    spread: np.ndarray,
    began: float,
) -> Report:
    """Return the report on draws whose constants were chosen here."""
    diagnostics = lengths.diagnostics
    assert diagnostics is not None
    warnings = []
    if not plan.mode.converged:
        warnings.append(
            f"The mode was not found: a Newton step would still go {plan.mode.distance:.2g} "
            "posterior sds. Gradient noise may be larger than it need be."
        )
    if plan.prediction.worst > 1.001 * wishes.tolerance:
        warnings.append(
            f"The predicted error of a posterior sd is {plan.prediction.worst:.1%}, above the "
            f"tolerance of {wishes.tolerance:.1%}."
        )
    dtype = np.dtype(samples.settings["dtype"])
    sds = np.sqrt(np.diag(plan.mode.information.covariance))
    rounding = float((np.finfo(dtype).eps * np.abs(plan.mode.position) / sds).max())
    if rounding > _ROUNDING:
        warnings.append(
            f"A posterior sd is only {1 / rounding:.2g} times the rounding of {dtype.name}. Use "
            "dtype=tf.float64, or centre the data."
        )
    warnings += diagnostics.warnings(wishes.ess)
    if spread[-1] > WIDE or spread[0] < 1 / WIDE:
        warnings.append(
            "The posterior is far from normal: in whitened coordinates variances range from "
            f"{spread[0]:.2g} to {spread[-1]:.2g}."
        )
    whole = plan.given.takes_all(samples.settings["N"])
    return Report(
        {
            "method": samples.settings["method"],
            "Mode": {
                "found": plan.mode.converged,
                "distance of a Newton step, posterior sds": plan.mode.distance,
                "passes over the data": plan.mode.evaluations,
                "condition number of the information": plan.mode.information.condition,
            },
            "Chain": {
                "dynamics": repr(plan.given.dynamics),
                "gradient": samples.settings["gradient"]["name"],
                "minibatch size": f"{plan.minibatch_size} of {samples.settings['N']}",
                "rows": "all" if whole else "in proportion to leverage",
                "rows that the probabilities are worth": plan.effective_rows,
                "stepsize, whitened coordinates": plan.stepsize,
                "variances in whitened coordinates": spread.tolist(),
            },
            "Predicted": {
                "gradient noise, whitened, by coordinate": plan.around.noise_by_coordinate.tolist(),
                "relative error of the posterior sds": plan.prediction.error.tolist(),
                "iterations for an independent draw": plan.autocorrelation,
            },
            "Draws": {
                "chains, draws of each": f"{wishes.n_chains}, {diagnostics.draws}",
                "burn-in": lengths.burn_in,
                "ESS, bulk": diagnostics.bulk,
                "ESS, tail": diagnostics.tail,
                "R-hat": diagnostics.rhat,
            },
            "Seconds": {
                **plan.seconds,
                "all": time.monotonic() - began,
            },
            "warnings": warnings,
        }
    )
