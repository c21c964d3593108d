"""Draws without a chain over the rows, beside those of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import sgmcmc


def need_posterior_of_chain(formula: str, frame: pd.DataFrame, family: str) -> None:
    """Compare means and SDs, of scales those of logs: shapes have heavy tails."""
    many: dict[str, Any] = {"ess": 2000, "seed": 1, "verbose": False}
    direct = sgmcmc.glm(formula, frame, family, **many).samples
    chain = sgmcmc.glm(
        formula, frame, family, reduce=False, tolerance=0.01, **many
    ).samples
    assert direct.settings["method"] == "elliptical_slice" != chain.settings["method"]
    for name in direct:
        own, other = (
            np.asarray(samples[name], np.float64).reshape(-1, *samples[name].shape[2:])
            for samples in (direct, chain)
        )
        if name.startswith("cor_"):
            own, other = np.arctanh(own), np.arctanh(other)
        elif name != "b" and not name.startswith("r_"):
            own, other = np.log(own), np.log(other)
        sd = other.std(0)
        mean_error = np.sqrt(2.0 / 2000) + 0.01
        assert (np.abs(own.mean(0) - other.mean(0)) < 4.5 * mean_error * sd).all(), name
        # Of a kurtosis of 6, an SD has √(5/4/2000) as its standard error.
        rtol = 4.5 * np.sqrt(2.5 / 2000) + 0.02
        np.testing.assert_allclose(own.std(0), sd, rtol=rtol, err_msg=name)
