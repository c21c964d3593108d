"""`max_seconds` bounds the whole call: what ends when time is up, and with what."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.interrupts import TimeUpError, limited, need_time, pass_on, time_left
from sgmcmc.plan import solve, stopping
from sgmcmc.plan.methods import hmc, local_minibatches
from tests import seams

X = np.random.default_rng(0).normal(3.0, 1.0, 40).astype(np.float32)


def log_lik(params: Any, dataset: Any) -> tf.Tensor:
    return -0.5 * (dataset["x"] - params["m"]) ** 2


def nuts(function: Any = sgmcmc.nuts, **options: Any) -> sgmcmc.Samples:
    given = {"stepsize": 0.15, "preconditioner": "none", "burn_in": 10, "n_iters": 300}
    return function(
        log_lik,
        {"x": X},
        {"m": 3.0},
        n_chains=2,
        seed=1,
        verbose=False,
        **{**given, **options},
    )


def test_the_first_of_several_limits_counts() -> None:
    now = time.monotonic()
    assert time_left() == np.inf
    with limited(now + 1000):
        with limited(now + 2000):
            assert time_left() <= 1000
        with limited(now - 1), pytest.raises(TimeUpError):
            need_time()
        need_time()
    assert time_left() == np.inf


def test_an_error_that_says_so_is_not_held_back() -> None:
    with pytest.raises(TimeUpError):
        pass_on(TimeUpError())


def test_draws_are_the_same_bit_for_bit_if_time_suffices() -> None:
    """Chains with a limit run in pieces, which change neither draws nor estimates."""
    given = {"function": sgmcmc.hmc, "n_leapfrog": 3, "jit_compile": False}
    one, other = nuts(**given), nuts(**given, max_seconds=1e6)
    np.testing.assert_array_equal(one["m"], other["m"])
    for one_part, other_part in zip(one.log_post, other.log_post, strict=True):
        np.testing.assert_array_equal(one_part, other_part)


def up_after(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the time be over when a chain looks at it for the nth time."""
    left = iter(range(calls))

    def need_time() -> None:
        if next(left, None) is None:
            raise TimeUpError

    monkeypatch.setattr(seams.NEED_TIME, need_time)


def test_draws_until_then_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    up_after(40, monkeypatch)
    samples = nuts(n_iters=20_000, max_seconds=1e6)
    assert 4 <= samples["m"].shape[1] < 20_000
    assert "effective sample size" in str(samples.report.warnings)


def test_no_draws_by_then_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains go on until the main thread has read the first report: the burn-in is longer."""
    up_after(0, monkeypatch)
    with pytest.raises(TimeoutError, match="`max_seconds`: time was up"):
        nuts(max_seconds=1e6, burn_in=200_000)


def test_gradients_of_small_data_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit: a wish that cannot be granted ends, by a count, and is said to be open."""
    monkeypatch.setattr(seams.MOST_GRADIENTS, 4000)
    monkeypatch.setattr(seams.LENGTHS_FIRST, 0.5)  # too few for this number, so far
    samples = nuts(n_iters=None, ess=4000)
    assert samples["m"].shape[1] == 1000
    assert "effective sample size" in str(samples.report.warnings)
    np.testing.assert_array_equal(
        samples["m"][:, :250], nuts(n_iters=None, ess=1)["m"][:, :250]
    )


def over(*arguments: Any, **named: Any) -> Any:
    raise TimeUpError


@pytest.mark.parametrize("room", [pytest.param(solve, marks=pytest.mark.slow), hmc])
def test_chains_begin_without_a_mode(
    room: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the search for it takes too long."""
    monkeypatch.setattr(room, "choose" if room is solve else "find_start", over)
    door = sgmcmc.sample if room is solve else sgmcmc.hmc
    samples = door(
        log_lik, {"x": X}, {"m": 0.0}, ess=50, max_seconds=1e6, seed=1, verbose=False
    )
    assert "`max_seconds`: the time to look for the mode" in samples.report.warnings[0]
    error = 1 / np.sqrt(40 * 50)
    assert abs(samples["m"].mean() - X.mean()) < 5 * error
    assert samples["m"].std() == pytest.approx(1 / np.sqrt(40), rel=0.5)


def test_constants_of_another_sampler_need_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(seams.POSTERIOR_CHOOSE, over)
    with pytest.raises(
        TimeoutError, match="`max_seconds`: time was up before the constants"
    ):
        sgmcmc.sample(
            log_lik,
            {"x": X},
            {"m": 0.0},
            dynamics="sghmc",
            max_seconds=1e6,
            verbose=False,
        )


def test_shards_share_the_seconds_that_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a clock of which each shard takes ten seconds; none has less than one."""
    clock, given = SimpleNamespace(now=100.0), []
    monkeypatch.setattr(seams.SHARDS_TIME, SimpleNamespace(monotonic=lambda: clock.now))

    def sampler(
        log_lik: Any, dataset: Any, params: Any, log_prior: Any, seed: int, verbose: bool,
        max_seconds: float,
    ) -> sgmcmc.Samples:  # fmt: skip
        given.append(max_seconds)
        clock.now += 10.0
        draws = np.random.default_rng(seed).normal(size=(4, 50))
        return sgmcmc.Samples({"m": draws}, settings={"n_chains": 4})

    options: dict[str, Any] = {
        "sampler": sampler,
        "shards": 4,
        "seed": 1,
        "verbose": False,
    }
    sgmcmc.divide(log_lik, {"x": X}, {"m": 0.0}, max_seconds=40.0, **options)
    assert given == [10.0] * 4
    given.clear()
    sgmcmc.divide(log_lik, {"x": X}, {"m": 0.0}, max_seconds=20.0, **options)
    assert given == [5.0, 10 / 3, 1.0, 1.0]
    with pytest.raises(ValueError, match="`max_seconds` must be"):
        sgmcmc.divide(log_lik, {"x": X}, {"m": 0.0}, max_seconds=-1.0, **options)


def test_bounds_of_all_rows_need_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams.SUBSAMPLED_BOUNDS, over)
    with pytest.raises(
        TimeoutError, match="`max_seconds`: time was up before the mode and the b"
    ):
        sgmcmc.zigzag(
            log_lik, {"x": X}, {"m": 3.0}, curvature_bound=lambda params, rows: {"m": np.ones(40)},
            max_seconds=1e6, verbose=False,
        )  # fmt: skip


@pytest.fixture
def of_many_coordinates(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a call for a model that counts as one of very many coordinates."""
    monkeypatch.setattr(seams.POSTERIOR_DENSE_UP_TO, 5)
    monkeypatch.setattr(seams.METHODS_AFFORDABLE, 0.0)
    monkeypatch.setattr(seams.COST, seams.changed(seams.COST, share_of_limit=0.0))
    for name, value in (("_SHORTEST", 300), ("_LONGEST", 300), ("_LEAST_BURN_IN", 50)):
        monkeypatch.setattr(stopping, name, value)
    monkeypatch.setattr(seams.POSTERIOR_NEEDS_MODE, lambda *given: False)
    monkeypatch.setattr(seams.WARM_UP_SHORTEST, 50)
    monkeypatch.setattr(seams.WARM_UP_LONGEST, 50)
    rows = np.random.default_rng(2).normal(size=(3000, 8))

    def call() -> sgmcmc.Samples:
        return sgmcmc.sample(
            lambda params, dataset: -0.5 * tf.reduce_sum((dataset["x"] - params["m"]) ** 2, -1),
            {"x": rows}, {"m": np.zeros(8)}, max_seconds=1000.0, n_iters=300, seed=1, verbose=False,
        )  # fmt: skip

    return call


@pytest.mark.slow
def test_setting_up_of_very_many_coordinates_looks_at_the_clock(
    of_many_coordinates: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time is over after the first look around: chains run by what it found."""
    look, ascend, left = local_minibatches._look, local_minibatches.ascend, []

    def first(*given: Any) -> Any:
        left.append(time_left())
        if len(left) > 1:
            raise TimeUpError
        return look(*given)

    def limited_ascent(*given: Any) -> Any:
        assert time_left() <= 250.0
        return ascend(*given)

    monkeypatch.setattr(seams.LARGE_LOOK, first)
    monkeypatch.setattr(seams.LARGE_ASCEND, limited_ascent)
    samples = of_many_coordinates()
    assert samples["m"].shape[1] > 4
    assert max(left[:3]) <= 500.0 and left[3] <= 1000.0
    facts = samples.report["Found around the chains"]
    assert "time was up" in facts["largest curvature at the end of the chains"]


def test_no_look_around_by_then_is_an_error(
    of_many_coordinates: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seams.LARGE_LOOK, over)
    with pytest.raises(TimeoutError, match="`max_seconds`: time was up before scales"):
        of_many_coordinates()
