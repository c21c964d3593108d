"""Nodes that stay in place, against those that are searched for, and against algebra."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.data.dataset import Data
from sgmcmc.data.reading import read_dataset
from sgmcmc.groups.anchors import Anchor, Gauge, free
from sgmcmc.groups.marginal import MODE, ROOT
from sgmcmc.groups.model import read_groups
from sgmcmc.run.origin import origin_of

LEVELS = 40
SIZES = np.random.default_rng(1).integers(1, 9, LEVELS)
GROUP = np.repeat(np.arange(LEVELS), SIZES)
X = np.random.default_rng(2).normal(size=len(GROUP))
COUNTS = (
    np.random.default_rng(3)
    .poisson(np.exp(0.3 + 0.4 * X + 0.6 * np.random.default_rng(4).normal(size=LEVELS)[GROUP]))
    .astype(float)
)


def log_lik(params, dataset):
    eta = params["a"] + params["b"] * dataset["x"] + params["z"]
    return dataset["y"] * eta - tf.exp(eta)


def law(effects, params):
    return -0.5 * (effects["z"] / params["tau"]) ** 2 - tf.math.log(params["tau"])


def _model(nodes: int | None = None):
    groups = sgmcmc.Groups("g", {"z": 0.0}, law, nodes)
    params = {"a": 0.3, "b": 0.4, "tau": 0.6}
    model = read_groups(
        groups, log_lik, {"x": X, "y": COUNTS, "g": GROUP}, params, None, tf.float64
    )
    whole = ("g", "groups/slot", "groups/filled")
    data = read_dataset(model.dataset, tf.float64, whole)
    return model.log_lik, data, {name: np.float64(value) for name, value in params.items()}


def _derivatives(marginal, data: Data, at):
    """Return value, gradient and Hessian of the log-likelihood."""

    @tf.function
    def found(v):
        with tf.GradientTape() as outer:
            outer.watch(v)
            with tf.GradientTape() as inner:
                inner.watch(v)
                named = dict(zip(("a", "b", "tau"), tf.unstack(v), strict=True))
                value = tf.reduce_sum(marginal(named, data.whole))
            slope = inner.gradient(value, v)
        return value, slope, outer.jacobian(slope, v)

    return [part.numpy() for part in found(tf.constant(list(at.values()), tf.float64))]


def test_at_the_anchor_nothing_differs_from_modes_that_are_searched_for():
    marginal, data, params = _model()
    held = Anchor(marginal, data).at(params)
    assert held.columns[MODE].row_shape == (marginal.most, 1)
    assert held.columns[ROOT].row_shape == (marginal.most, 1, 1)
    for one, other in zip(
        _derivatives(marginal, held, params), _derivatives(marginal, data, params), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-10)
    assert set(free(held).columns) == set(data.columns)


def test_searches_begin_at_the_modes_of_the_last_place():
    marginal, data, params = _model()
    anchor = Anchor(marginal, data)
    anchor.at({**params, "a": np.float64(-1.0), "tau": np.float64(2.0)})
    second = anchor.at(params).columns[MODE].slice(0, data.size)
    first = Anchor(marginal, data).at(params).columns[MODE].slice(0, data.size)
    # Both are as near the mode as the search goes: a gain of 1e-5 and less by the next step.
    np.testing.assert_allclose(second, first, atol=5e-3)


def test_nodes_in_place_are_right_near_the_anchor_and_their_error_is_measured():
    marginal, data, params = _model(21)
    held = Anchor(marginal, data).at(params)
    moved = {"a": np.float64(0.35), "b": np.float64(0.38), "tau": np.float64(0.65)}
    near = _derivatives(marginal, held, moved)
    exact = _derivatives(marginal, data, moved)
    # 21 nodes, a tenth of the effects' own sd away.
    np.testing.assert_allclose(near[0], exact[0], atol=1e-5)
    np.testing.assert_allclose(near[1], exact[1], atol=1e-3)
    places = {
        name: params[name] + 0.05 * np.random.default_rng(k).normal(size=4)
        for k, name in enumerate(params)
    }
    gauge = Gauge(marginal, held, places, 500)
    errors = [gauge.error(nodes) for nodes in (3, 5, 9, 21)]
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[3] < 1e-6


def test_sample_holds_nodes_and_takes_as_many_as_it_needs():
    rng = np.random.default_rng(6)
    group = np.repeat(np.arange(300), 5)
    y = 0.5 + rng.normal(size=300)[group] + rng.normal(size=1500)

    def terms(params, dataset):
        return -0.5 * (dataset["y"] - params["a"] - params["z"]) ** 2

    def of_groups(effects, params):
        return -0.5 * effects["z"] ** 2 + 0.0 * params["a"]

    def drawn(**given):
        return sgmcmc.sample(
            terms, {"y": y, "g": group}, {"a": 0.0}, seed=1, verbose=False, ess=200,
            groups=sgmcmc.Groups("g", {"z": 0.0}, of_groups, **given),
        )  # fmt: skip

    samples = drawn()
    sampler = origin_of(samples).sampler
    assert MODE in sampler.data.columns
    assert samples.report["Groups"]["nodes in each direction"] == 5
    assert samples.settings["groups"]["g"]["nodes"] == 5
    assert samples.report["Groups"]["quadrature error of the log posterior, SD over draws"] < 0.02
    variance = 1.2 / 300  # of the mean of means of five, each with variance 1 + 1/5
    assert abs(samples["a"].mean() - y.mean()) < 4 * np.sqrt(variance / 200)
    assert abs(samples["a"].std() / np.sqrt(variance) - 1) < 0.05 + 4 / np.sqrt(400)
    assert drawn(nodes=9).report["Groups"]["nodes in each direction"] == 9


def test_few_groups_search_at_each_draw():
    few = GROUP < 8
    data = {"x": X[few], "y": COUNTS[few], "g": GROUP[few]}

    def prior(params):
        return -params["tau"]

    samples = sgmcmc.sghmc(
        log_lik, data, {"a": 0.3, "b": 0.4, "tau": 0.6}, "auto", log_prior=prior,
        minibatch_size=4, n_iters=10,
        groups=sgmcmc.Groups("g", {"z": 0.0}, law), seed=1, verbose=False,
        bijectors={"tau": tfp.bijectors.Exp()},
    )  # fmt: skip
    assert MODE not in origin_of(samples).sampler.data.columns
