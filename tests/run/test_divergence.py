"""Chains that become NaN or infinite: what is raised, and what is kept."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from tests.conftest import PLAIN, log_lik

Run = Callable[..., sgmcmc.Samples]


def two_parameters(
    params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
) -> tf.Tensor:
    """Return a log-likelihood in which only the second parameter has data to disagree with."""
    part = tf.cast(tf.shape(dataset["x"])[0], tf.float32) / 20.0  # of the rows
    return log_lik(params, dataset) - 0.5 * part * tf.reduce_sum(params["calm"] ** 2)


DIVERGENT: dict[str, Any] = {
    "log_lik": two_parameters,
    "params": {"calm": [0.0, 0.0], "theta": 0.0},
    "stepsize": {"calm": 1e-4, "theta": 0.5},
    "n_iters": 10_000,
}


def check_divergence(error: sgmcmc.DivergenceError, argument: str) -> None:
    """Check what a divergence of theta says."""
    first, last = error.iterations
    assert 1 <= first <= last <= 10_000
    assert error.parameter == "theta"
    for part in (f"{first} and {last}", "'theta'", f"`{argument}`", "smaller"):
        assert part in str(error)


@pytest.mark.some(1)
@pytest.mark.parametrize("method", PLAIN)
@pytest.mark.parametrize("n_chains", [None, 2])
def test_divergence(method: str, n_chains: int | None, run: Run) -> None:
    with pytest.raises(sgmcmc.DivergenceError) as caught:
        run(method, **DIVERGENT, n_chains=n_chains, burn_in=10, thin=3)
    check_divergence(caught.value, "stepsize")
    samples = caught.value.samples
    assert samples is not None
    leading = () if n_chains is None else (n_chains,)
    draws = samples["theta"].shape[-1]
    # The last finite draw is the one before the range.
    first, last = caught.value.iterations
    assert first == 10 + 3 * draws + 1 and last == 10 + 3 * (draws + 1)
    assert 1 <= draws < 10_000
    assert samples["theta"].shape == (*leading, draws)
    assert samples["calm"].shape == (*leading, draws, 2)
    assert all(np.isfinite(array).all() for array in samples.values())


def test_divergence_during_burn_in(run: Run) -> None:
    with pytest.raises(sgmcmc.DivergenceError) as caught:
        run(**DIVERGENT, burn_in=9_999)
    check_divergence(caught.value, "stepsize")
    assert len(caught.value.samples["theta"]) == 0


@pytest.mark.parametrize(
    "store_params", [pytest.param(False, marks=pytest.mark.slow), ["calm"]]
)
def test_divergence_of_what_is_not_stored(store_params: Any, run: Run) -> None:
    functions = {"calm": lambda params: params["calm"]}
    with pytest.raises(sgmcmc.DivergenceError) as caught:
        run(**DIVERGENT, store_params=store_params, test_functions=functions)
    check_divergence(caught.value, "stepsize")
    assert all(np.isfinite(array).all() for array in caught.value.samples.values())


@pytest.mark.parametrize("n_chains", [pytest.param(None, marks=pytest.mark.slow), 2])
def test_divergence_of_the_mode_finding(n_chains: int | None, run: Run) -> None:
    with pytest.raises(sgmcmc.DivergenceError, match="(?i)mode-finding") as caught:
        run(
            "sgldcv",
            **{**DIVERGENT, "stepsize": 1e-4},
            opt_stepsize={"calm": 1e-4, "theta": 0.5},
            n_iters_opt=10_000,
            n_chains=n_chains,
        )
    check_divergence(caught.value, "opt_stepsize")
    assert caught.value.samples is None


def test_one_chain_of_two_diverges(run: Run) -> None:
    """A double well that has no floor far out: the start decides which chain falls."""

    def quartic(
        params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        return tf.reduce_sum(0.0 * dataset["x"] - params["theta"] ** 4 / 20)

    with pytest.raises(sgmcmc.DivergenceError) as caught:
        run(
            log_lik=quartic,
            params=[{"theta": 0.0}, {"theta": 1e3}],
            n_chains=2,
            stepsize=1e-3,
            n_iters=50,
        )
    assert caught.value.parameter == "theta"
    assert np.isfinite(caught.value.samples["theta"]).all()


def test_divergence_error_survives_a_pickle() -> None:
    samples = sgmcmc.Samples({"theta": np.arange(3.0)})
    error = sgmcmc.DivergenceError(
        "gone", iterations=(3, 5), parameter="theta", samples=samples
    )
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.iterations, again.parameter) == ("gone", (3, 5), "theta")
    assert again.samples["theta"].tolist() == [0.0, 1.0, 2.0]
