"""The loop over the methods of `sample`: the order, what they leave, and one of a user's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.data.dataset import Minibatch
from sgmcmc.graphs.tracing import vectorized_map
from sgmcmc.plan.choices import Chosen
from sgmcmc.plan.methods.call import Call, Left, Method
from sgmcmc.plan.solve import METHODS, first_draws
from sgmcmc.results.report import Report, Section
from sgmcmc.run.sampler import make_sampler
from sgmcmc.run.sampler_origin import SamplerOrigin
from tests import seams

DRAWS = sgmcmc.Samples({"theta": np.zeros(4)}, settings={}, report=Report({}))


CALL: Any = SimpleNamespace(is_stored=False)


def leaves(reason: str, **given: Any) -> Method:
    return Method(reason, lambda call, left: Left(reason, **given))


def of_another_kind(call: Any, left: Left | None) -> None:
    return None


def out_of_time(call: Any, left: Left | None) -> Any:
    raise TimeoutError


def test_the_first_with_draws_is_taken_and_the_report_says_why_others_were_left() -> (
    None
):
    seen = []

    def last(call: Any, left: Left | None) -> sgmcmc.Samples:
        seen.append(left)
        return DRAWS

    methods = [
        leaves("first", warnings=["one mode"], hurried=True, draws=lambda: DRAWS),
        leaves("second", warnings=["one mode", "no peak"]),
        Method("other", of_another_kind),
        Method("last", last),
        Method("never asked", out_of_time),
    ]
    draws = first_draws(CALL, methods)
    assert draws.report[Section.METHODS] == {
        "first": "first", "second": "second", "last": "taken",
    }  # fmt: skip
    (left,) = seen
    assert left.reason == "second" and left.warnings == ("one mode", "no peak")
    assert left.hurried and left.draws() is DRAWS and left.mode is left.hmc is None


def test_draws_in_hand_are_returned_if_no_other_method_has_the_time() -> None:
    methods = [
        leaves("far from normal", draws=lambda: DRAWS),
        Method("", out_of_time),
    ]
    draws = first_draws(CALL, methods)
    assert draws.report[Section.METHODS] == {
        "far from normal": "far from normal", "": "time was up",
    }  # fmt: skip
    with pytest.raises(TimeoutError):
        first_draws(CALL, [leaves("no draws"), *methods[1:]])


def importance_sampling(call: Call, left: Left | None) -> sgmcmc.Samples | Left:
    """Return independent draws of Laplace's approximation, resampled by their weights."""
    if not isinstance(call.chosen, Chosen):
        return Left("no mode")
    chosen, goal = call.chosen, call.goal
    target, mode = chosen.target, chosen.plan.mode
    rng = np.random.default_rng(chosen.seed)
    root = np.linalg.cholesky(mode.information.covariance)
    z = rng.standard_normal((4000, target.size))
    positions = mode.position + z @ root.T
    everything = Minibatch(chosen.data.rows(np.arange(chosen.data.size)))
    log_post = vectorized_map(
        lambda u: target.log_post(u, everything), tf.constant(positions, target.dtype)
    ).numpy()
    log_weights = log_post + 0.5 * (z**2).sum(1)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    if 1.0 / (weights**2).sum() < goal.ess:
        return Left("weights are too unequal")
    rows = rng.choice(len(z), (goal.n_chains, int(goal.ess)), p=weights)
    constrained = vectorized_map(
        target.space.constrain, tf.constant(positions, target.dtype)
    )
    arrays = {name: value.numpy()[rows] for name, value in constrained.items()}
    settings = {"method": "importance", "n_chains": goal.n_chains}
    samples = sgmcmc.Samples(arrays, settings=settings, report=Report({}))
    return samples.made_by(SamplerOrigin(make_sampler(chosen.completed())))


def test_a_method_of_ones_own_is_a_function_and_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gamma posterior on the log scale: shape 31 and rate 31 of 30 exponential waits."""
    own = Method("importance sampling", importance_sampling)
    names = [method.name for method in METHODS]
    at = names.index("minibatches around the mode")
    monkeypatch.setattr(seams.METHODS, (*METHODS[:at], own, *METHODS[at:]))

    def log_lik(
        params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        return params["log_rate"] - tf.exp(params["log_rate"]) * dataset["x"]

    def log_prior(params: dict[str, tf.Tensor]) -> tf.Tensor:
        return params["log_rate"] - tf.exp(params["log_rate"])

    waits = np.full(30, 1.0)
    arguments = (log_lik, {"x": waits}, {"log_rate": 0.0}, log_prior)
    draws = sgmcmc.sample(*arguments, seed=1, verbose=False)
    assert draws.report[Section.METHODS]["importance sampling"] == "taken"
    rate = np.exp(draws["log_rate"])
    assert rate.shape == (4, 400)
    # At most 4000 independent numbers.
    assert abs(rate.mean() - 1.0) < 4 * rate.std() / np.sqrt(1600)
    assert abs(rate.std() / 31**-0.5 - 1.0) < 4 / np.sqrt(2 * 1600)
    assert draws.settings["method"] == "importance"


@pytest.mark.slow
def test_what_importance_sampling_leaves_others_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sixty coordinates with tails of Student's t: the weights of all of them are unequal."""
    own = Method("importance sampling", importance_sampling)
    at = [method.name for method in METHODS].index("minibatches around the mode")
    monkeypatch.setattr(seams.METHODS, (*METHODS[:at], own, *METHODS[at:]))

    def log_lik(
        params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        squares = (dataset["x"][:, tf.newaxis] - params["mu"]) ** 2
        return -2.5 * tf.reduce_sum(tf.math.log1p(squares / 4.0), -1)

    x = np.array([-0.5, 0.5])
    start = {"mu": np.zeros(60)}
    draws = sgmcmc.sample(log_lik, {"x": x}, start, seed=1, verbose=False)
    methods = draws.report[Section.METHODS]
    assert methods["importance sampling"] == "weights are too unequal"
    assert list(methods.values())[-1] == "taken"


def test_reports_say_how_the_draws_came_about() -> None:
    """Of thousands of rows the chains around the mode are taken."""
    x = np.random.default_rng(1).normal(size=2000)

    def log_lik(
        params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        return -0.5 * (dataset["x"] - params["mu"]) ** 2

    draws = sgmcmc.sample(log_lik, {"x": x}, {"mu": 0.0}, seed=1, verbose=False)
    assert draws.report[Section.METHODS] == {
        "minibatches around several modes": "no second mode was found",
        "minibatches around the mode": "taken",
    }
    assert "Methods" in str(draws.report)
