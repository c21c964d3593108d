"""Simulation-based calibration: right posteriors pass, wrong ones do not."""

from typing import Any

import numpy as np
import pytest
import tensorflow_probability as tfp

import sgmcmc

tfd = tfp.distributions
JOINT = tfd.JointDistributionNamed(
    {
        "mu": tfd.Sample(tfd.Normal(0.0, 1.0), 2),
        "y": lambda mu: tfd.Sample(tfd.Normal(mu[..., 0] + mu[..., 1], 1.0), 4),
    }
)
MODEL = sgmcmc.from_joint(JOINT, {"y": np.zeros(4)})


def exact(scale: float = 1.0, shift: float = 0.0) -> Any:
    """Return a function that draws from the posterior, or from one that is off."""

    def fit(model: Any, seed: int) -> sgmcmc.Samples:
        covariance = np.linalg.inv(np.eye(2) + 4 * np.ones((2, 2)))
        mean = covariance @ np.full(2, model.dataset["y"].sum())
        rng = np.random.default_rng(seed)
        draws = rng.multivariate_normal(mean, covariance, size=(2, 100))
        return sgmcmc.Samples(
            {"mu": mean + scale * (draws - mean) + shift}, settings={"n_chains": 2}
        )

    return fit


def test_exact_posterior_passes() -> None:
    found = sgmcmc.sbc(MODEL, 300, fit=exact(), seed=3, verbose=False)
    assert found.ranks["mu"].shape == (300, 2) and found.ranks["mu"].max() <= 63
    assert (found.p_values["mu"] > 1e-3).all()
    again = sgmcmc.sbc(MODEL, 300, fit=exact(), seed=3, verbose=False)
    np.testing.assert_array_equal(found.ranks["mu"], again.ranks["mu"])


@pytest.mark.parametrize("scale, shift", [(0.5, 0.0), (2.0, 0.0), (1.0, 0.7)])
def test_wrong_posteriors_do_not(scale: float, shift: float) -> None:
    found = sgmcmc.sbc(MODEL, 200, fit=exact(scale, shift), seed=3, verbose=False)
    assert (found.p_values["mu"] < 1e-4).all()


def test_chains_of_the_model_are_run() -> None:
    found = sgmcmc.sbc(
        MODEL, 2, seed=1, verbose=False, draws=31, dynamics="sgld", gradient="minibatch",
        minibatches="uniform", minibatch_size=4,
        preconditioner="none", stepsize=0.01, n_iters=100, burn_in=0, n_chains=None,
        jit_compile=False,
    )  # fmt: skip
    assert found.ranks["mu"].shape == (2, 2) and np.isnan(found.p_values["mu"]).all()
    assert "2 simulations" in repr(found)


def test_figure_and_refusals() -> None:
    found = sgmcmc.sbc(MODEL, 50, fit=exact(), seed=3, verbose=False)
    axes = found.plot()
    assert [ax.get_title() for ax in axes] == ["mu[0]", "mu[1]"]
    assert sum(patch.get_height() for patch in axes[0].patches[1:]) == 50
    with pytest.raises(ValueError, match="there is no 'nu'"):
        found.plot(["nu"])
    with pytest.raises(
        ValueError, match="`draws` must be at most the posterior draws, 200"
    ):
        sgmcmc.sbc(MODEL, 2, draws=255, fit=exact(), verbose=False)
    with pytest.raises(TypeError, match="'stepsize' has no use"):
        sgmcmc.sbc(MODEL, 2, fit=exact(), stepsize=0.1, verbose=False)
