"""Bad input is refused before anything runs, by an error of a known class with the name in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc import dynamics, gradients, minibatches
from tests.contract.golden import BOUND, MODEL, SIMPLEX, logistic, normal_prior

X, Y = MODEL[1]["X"], MODEL[1]["y"]
TABLE = {"y": np.arange(20.0), "x": np.linspace(0.0, 1.0, 20), "g": np.arange(20) % 4}


def _sgld(**given: Any) -> Callable[[], Any]:
    """Return a call of `sgld` of which some arguments are other ones."""
    whole = {
        "log_lik": logistic, "dataset": MODEL[1], "params": MODEL[2], "stepsize": 1e-3,
        "log_prior": normal_prior, "minibatch_size": 20, "n_iters": 10, "verbose": False,
    }  # fmt: skip
    return lambda: sgmcmc.sgld(**{**whole, **given})


def _sample(**given: Any) -> Callable[[], Any]:
    return lambda: sgmcmc.sample(*MODEL, normal_prior, verbose=False, **given)


def _glm(
    formula: str = "y ~ x", family: Any = "gaussian", **given: Any
) -> Callable[[], Any]:
    data = {**TABLE, **given.pop("columns", {})}
    return lambda: sgmcmc.glm(formula, data, family, verbose=False, **given)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "stepsize below zero": (_sgld(stepsize=-1.0), ValueError, "stepsize"),
    "stepsize, text": (_sgld(stepsize="small"), TypeError, "stepsize"),
    "stepsize, not a number": (_sgld(stepsize=np.nan), ValueError, "stepsize"),
    "stepsize of an unknown parameter": (_sgld(stepsize={"gamma": 1e-3}), ValueError, "stepsize"),
    "minibatch of no rows": (_sgld(minibatch_size=0), ValueError, "minibatch_size"),
    "minibatch, more than all": (_sgld(minibatch_size=1000), ValueError, "minibatch_size"),
    "iterations, none": (_sgld(n_iters=0), ValueError, "n_iters"),
    "iterations, a part of one": (_sgld(n_iters=2.5), (TypeError, ValueError), "n_iters"),
    "burn-in below zero": (_sgld(burn_in=-1), ValueError, "burn_in"),
    "thinning by none": (_sgld(thin=0), ValueError, "thin"),
    "no chains": (_sgld(n_chains=0), ValueError, "n_chains"),
    "a seed that is none": (_sgld(seed="seven"), TypeError, "seed"),
    "temperature zero": (_sgld(temperature=0.0), ValueError, "temperature"),
    "a log-likelihood that is none": (_sgld(log_lik=3), TypeError, "log_lik"),
    "a log-likelihood of one argument": (_sgld(log_lik=lambda a: 0.0), TypeError, "log_lik"),
    "a log-likelihood that returns nothing": (
        _sgld(log_lik=lambda params, dataset: None), TypeError, "log_lik",
    ),
    "a log-likelihood of NumPy": (
        _sgld(log_lik=lambda params, dataset: np.sum(np.log(params["beta"]))), TypeError, "log_lik",
    ),
    "a log-likelihood that does not depend on a parameter": (
        _sgld(log_lik=lambda p, d: tf.reduce_sum(d["y"]) * p["bias"], log_prior=None),
        ValueError, "beta",
    ),
    "a mean in place of a sum": (
        _sgld(log_lik=lambda p, d: tf.reduce_mean(logistic(p, d))), ValueError, "log_lik",
    ),
    "a log-prior of two arguments": (
        _sgld(log_prior=lambda params, dataset: 0.0), TypeError, "log_prior",
    ),
    "no data": (_sgld(dataset={}), ValueError, "dataset"),
    "columns of other lengths": (
        _sgld(dataset={"X": X, "y": Y[:-1]}), ValueError, "dataset",
    ),
    "a missing value": (
        _sgld(dataset={"X": X, "y": np.where(np.arange(len(Y)) == 3, np.nan, Y)}), ValueError, "y",
    ),
    "text in data": (_sgld(dataset={"X": X, "y": np.array(["a"] * len(Y))}), TypeError, "y"),
    "no parameters": (_sgld(params={}), ValueError, "params"),
    "a start that is not finite": (
        _sgld(params={"beta": np.array([np.inf, 0.0]), "bias": 0.0}), ValueError, "beta",
    ),
    "another dtype": (_sgld(dtype=tf.int32), (TypeError, ValueError), "dtype"),
    "an unknown argument": (_sgld(step_size=1e-3), TypeError, "step_size"),
    "a bijector of an unknown parameter": (
        _sgld(bijectors={"gamma": "softplus"}), (TypeError, ValueError), "bijectors",
    ),
    "a simplex off the simplex": (
        lambda: sgmcmc.scir(*SIMPLEX[:2], {"omega": np.array([0.5, 0.6, 0.2])}, 0.1, alpha=0.5),
        ValueError, "omega",
    ),
    "no alpha": (
        lambda: sgmcmc.sgrld(*SIMPLEX, 0.01), TypeError, "alpha",
    ),
    "friction below zero": (
        lambda: sgmcmc.sghmc(*MODEL, 1e-3, normal_prior, 20, alpha=-0.1), ValueError, "alpha",
    ),
    "no steps of the trajectory": (
        lambda: sgmcmc.sghmc(*MODEL, 1e-3, normal_prior, 20, L=0), ValueError, "L",
    ),
    "an optimizer's stepsize below zero": (
        lambda: sgmcmc.sgldcv(*MODEL, 1e-3, -1e-3, normal_prior, 20), ValueError, "opt_stepsize",
    ),
    "no leapfrog steps": (
        lambda: sgmcmc.hmc(*MODEL, normal_prior, n_leapfrog=0), ValueError, "n_leapfrog",
    ),
    "an ESS below zero": (_sample(ess=-5), ValueError, "ess"),
    "a tolerance of nothing": (_sample(tolerance=0.0), ValueError, "tolerance"),
    "no seconds": (_sample(max_seconds=0.0), ValueError, "max_seconds"),
    "dynamics by a wrong name": (_sample(dynamics="sgldd"), (TypeError, ValueError), "dynamics"),
    "a gradient for dynamics": (
        _sample(dynamics=gradients.SAGA()), (TypeError, ValueError), "dynamics",
    ),
    "dynamics for minibatches": (_sample(minibatches=dynamics.SGLD()), TypeError, "minibatches"),
    "an unknown preconditioner": (_sample(preconditioner="full"), ValueError, "preconditioner"),
    "weights of rows below zero": (
        lambda: minibatches.Weighted(np.array([1.0, -1.0])), ValueError, "`p`",
    ),
    "no bound of the curvature": (
        lambda: sgmcmc.zigzag(*MODEL, normal_prior), TypeError, "curvature_bound",
    ),
    "gamma below zero": (
        lambda: sgmcmc.mhss(*MODEL, normal_prior, curvature_bound=BOUND, gamma=-0.5),
        ValueError, "gamma",
    ),
    "a formula without a response": (_glm("~ x"), ValueError, "formula"),
    "a formula with an unknown column": (_glm("y ~ z"), (KeyError, ValueError), "z"),
    "an unknown family": (_glm(family="gauss"), ValueError, "family"),
    "counts below zero": (_glm(family="poisson", columns={"y": -np.arange(20.0)}), ValueError, "y"),
    "coins that are none": (_glm(family="bernoulli"), ValueError, "y"),
    "a link of another family": (_glm(family="poisson", link="logit"), ValueError, "link"),
    "weights of another length": (_glm(weights=np.ones(3)), ValueError, "weights"),
    "data that are no table": (lambda: sgmcmc.glm("y ~ x", 3), TypeError, "data"),
    "a prior of an unknown term": (
        _glm(priors={"z": 1.0}), (TypeError, ValueError), "priors",
    ),
}  # fmt: skip
"""Calls, the class of their error, and a word of it."""


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_by_name(name: str) -> None:
    call, kind, word = REFUSED[name]
    with pytest.raises(kind, match=word):
        call()


def test_a_store_of_another_call_stays_as_it_is(tmp_path: Path) -> None:
    first = _sgld(store=tmp_path / "store", seed=1)()
    with pytest.raises((ValueError, FileExistsError), match="store"):
        _sgld(store=tmp_path / "store", seed=1, stepsize=2e-3)()
    kept = sgmcmc.Samples.open(tmp_path / "store")
    np.testing.assert_array_equal(kept["beta"], first["beta"])
