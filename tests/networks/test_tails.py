"""Tails of predictive densities: what held-out rows say of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sgmcmc.networks.held_out import PredictiveMoments, judge_tails, student_gain

N = 2000
NORMAL = 2 * stats.norm.cdf(-5)
MEANS = 0.05 * np.random.default_rng(1).normal(size=(20, N))
SCALES = np.ones((20, N))
MOMENTS = PredictiveMoments(MEANS, SCALES, SCALES**2)


def test_normal_responses_have_no_warning() -> None:
    y = np.random.default_rng(2).normal(size=N)
    facts, warnings = judge_tails(y, MOMENTS, NORMAL, student=False)
    assert warnings == [] and facts["rows beyond 5 predicted SDs"] == 0
    low, high = facts["gain by Student's t, a row"]
    assert low < high < 0.01


def test_a_few_rows_far_away_are_warned_of() -> None:
    """Four of two thousand, as in a split of the bike rentals."""
    y = np.random.default_rng(2).normal(size=N)
    y[:4] = 16, -20, 24, 27
    facts, warnings = judge_tails(y, MOMENTS, NORMAL, student=False)
    assert facts["rows beyond 5 predicted SDs"] == 4
    assert len(warnings) == 1 and warnings[0].startswith(
        "4 of 2000 held-out rows lie more than 5"
    )
    assert '`likelihood="student"`' in warnings[0]
    far = 2 * stats.t(4).cdf(-5 * np.sqrt(2))
    moments = PredictiveMoments(MEANS, SCALES, 2 * SCALES**2)
    _, warnings = judge_tails(y, moments, far, student=True)
    assert warnings == []  # Student's t expects four


def test_students_responses() -> None:
    """The gain is the mean difference of the log densities, with the predicted SD that of y."""
    y = stats.t(4).rvs(size=N, random_state=3)
    sd = float(y.std())
    means, scales = np.zeros((1, N)), np.full((1, N), sd)
    degrees, gain, error = student_gain(y, means, scales)
    exact = (stats.t(4).logpdf(y) - stats.norm(0, sd).logpdf(y)).mean()
    assert (
        degrees in (3, 4, 6)
        and gain == pytest.approx(exact, abs=0.01)
        and gain > 2 * error
    )
    moments = PredictiveMoments(means, scales, scales**2)
    _, warnings = judge_tails(y, moments, NORMAL, student=False)
    assert len(warnings) == 1
