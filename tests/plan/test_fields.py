"""Latent fields: how they are found, their coordinates, and chains that move them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.data.dataset import ArrayColumn, Data
from sgmcmc.model.geometry import Bijected, Space
from sgmcmc.model.target import Target
from sgmcmc.plan.latent_field import FieldCoordinates, _FieldMode, find_field

T, SD = 40, 0.4
Model = dict[str, Any]


def walk(params: Any) -> tf.Tensor:
    """A random walk, from a first level near a mean that is a parameter."""
    x, tau = params["x"], params["tau"]
    steps = (x[1:] - x[:-1]) / tau
    value = -0.5 * tf.reduce_sum(steps**2) - (T - 1) * tf.math.log(tau)
    return value - 0.5 * (x[0] - params["mean"]) ** 2 - 0.5 * params["mean"] ** 2 - tau


def second_order(params: Any) -> tf.Tensor:
    """A smoother walk, as of a spline, whose first two levels have a law of their own."""
    x, tau = params["x"], params["tau"]
    bends = (x[2:] - 2 * x[1:-1] + x[:-2]) / tau
    value = -0.5 * tf.reduce_sum(bends**2) - (T - 2) * tf.math.log(tau)
    return value - 0.5 * tf.reduce_sum(x[:2] ** 2) - 0.5 * params["mean"] ** 2 - tau


def autoregression(params: Any) -> tf.Tensor:
    """Levels around a mean that they come back to, at a rate which is a parameter."""
    x, tau, phi = params["x"] - params["mean"], params["tau"], tf.tanh(params["phi"])
    steps = (x[1:] - phi * x[:-1]) / tau
    value = -0.5 * tf.reduce_sum(steps**2) - T * tf.math.log(tau)
    return value - 0.5 * (x[0] / tau) ** 2 - 0.5 * params["mean"] ** 2


def with_an_edge(params: Any) -> tf.Tensor:
    """A walk whose first level also has a precision that is not a number for a positive number."""
    return walk(params) - 0.5 * tf.sqrt(-params["edge"]) * params["x"][0] ** 2


def independent(params: Any) -> tf.Tensor:
    return -0.5 * tf.reduce_sum((params["x"] / params["tau"]) ** 2) - T * tf.math.log(
        params["tau"]
    )


def robust(params: Any) -> tf.Tensor:
    x, tau = params["x"], params["tau"]
    return -tf.reduce_sum(
        tf.math.log1p(((x[1:] - x[:-1]) / tau) ** 2)
    ) - T * tf.math.log(tau)


def of_known_scale(params: Any) -> tf.Tensor:
    x = params["x"]
    return -0.5 * tf.reduce_sum((x[1:] - x[:-1]) ** 2) - 0.5 * x[0] ** 2 - params["tau"]


def normal(params: Any, dataset: Any) -> tf.Tensor:
    return -0.5 * ((dataset["y"] - tf.gather(params["x"], dataset["time"])) / SD) ** 2


def observed(seed: int = 1) -> dict[str, np.ndarray]:
    """Two observations of most times."""
    rng = np.random.default_rng(seed)
    level = 0.5 + np.cumsum(0.3 * rng.normal(size=T))
    time = np.sort(rng.permutation(np.repeat(np.arange(T), 2))[: 2 * T - 15]).astype(
        np.int32
    )
    return {"y": level[time] + SD * rng.normal(size=len(time)), "time": time}


def of_one_scale(params: Any) -> tf.Tensor:
    """Levels that come back to zero, all of whose precision has one scale."""
    x, tau = params["x"], params["tau"]
    steps = (x[1:] - 0.9 * x[:-1]) / tau
    value = (
        -0.5 * tf.reduce_sum(steps**2) - T * tf.math.log(tau) - 0.5 * (x[0] / tau) ** 2
    )
    return value - 0.5 * params["mean"] ** 2 - params["sd"]


def normal_of_unknown_sd(params: Any, dataset: Any) -> tf.Tensor:
    away = (dataset["y"] - tf.gather(params["x"], dataset["time"])) / params["sd"]
    return -0.5 * away**2 - tf.math.log(params["sd"])


def target_of(
    log_prior: Any, log_lik: Any = normal, **more: Any
) -> tuple[Target, Data, np.ndarray]:
    params = {"x": np.zeros(T), "tau": np.array(0.5), "mean": np.array(0.3), **more}
    positive = Bijected(tfp.bijectors.Exp(), ())
    shapes = {name: np.shape(value) for name, value in params.items()}
    space = Space(shapes, {name: positive for name in ("tau", "sd") if name in shapes})
    target = Target(log_lik, log_prior, space, tf.float64)
    data = observed()
    columns = {name: ArrayColumn(a) for name, a in data.items()}
    return (
        target,
        Data(columns, len(data["y"])),
        space.start(params, tf.float64).astype(float),
    )


@pytest.mark.parametrize(
    "log_prior, moves", [(walk, True), (second_order, False), (autoregression, True)]
)
def test_a_field_is_found_with_its_scale(log_prior: Any, moves: bool) -> None:
    more = {"phi": np.array(0.8)} if log_prior is autoregression else {}
    target, _, u = target_of(log_prior, **more)
    field = find_field(target, u, 1)
    assert field is not None
    assert (field.name, field.mean_moves) == ("x", moves)
    assert target.space.layout.parameter_at(field.scale) == "tau"


def test_a_parameter_near_the_edge_of_its_support_is_no_scale() -> None:
    target, _, u = target_of(with_an_edge, edge=np.array(-0.3))
    for seed in range(4):  # it is tried from either side
        field = find_field(target, u, seed)
        assert field is not None
        assert target.space.layout.parameter_at(field.scale) == "tau"


@pytest.mark.parametrize("log_prior", [independent, robust, of_known_scale, None])
def test_other_parameters_are_no_fields(log_prior: Any) -> None:
    target, _, u = target_of(log_prior)
    assert find_field(target, u, 1) is None


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "log_prior, log_lik",
    [(walk, normal), (second_order, normal), (of_one_scale, normal_of_unknown_sd)],
)
def test_a_field_of_normal_observations_is_standard_normal_given_any_scale(
    log_prior: Any, log_lik: Any
) -> None:
    """log p(θ, z | y) = −|z|²/2 + a function of θ alone."""
    more = {} if log_lik is normal else {"sd": np.array(0.6)}
    target, data, u = target_of(log_prior, log_lik, **more)
    field = find_field(target, u, 1)
    assert field is not None
    found = _FieldMode(target, data, field, 1).run(u)
    assert found is not None
    joint = found[0]
    there = target.space.joined_by(joint)
    moved = Target(target.log_lik, target.log_prior, there, tf.float64)
    rng, columns = np.random.default_rng(3), data.rows(np.arange(data.size))
    for tau, mean, sd in ((0.02, 0.0, 0.3), (0.4, 1.0, 1.0), (20.0, -3.0, 2.0)):
        values = []
        for z in (np.zeros(T), rng.normal(size=T), 3 * rng.normal(size=T)):
            others = {"tau": np.log(tau), "mean": np.array(mean), "sd": np.log(sd)}
            given = {name: others[name] for name in there.layout.names if name != "x"}
            position = there.layout.join({"x": z, **given}, np.dtype(np.float64))
            params = there.constrain(tf.constant(position))
            value = tf.reduce_sum(log_lik(params, columns))
            value += moved.prior_value(params, there.coordinates(tf.constant(position)))
            values.append(float(value) + 0.5 * float(z @ z))
        np.testing.assert_allclose(values, values[0], rtol=1e-9, atol=1e-6)


def test_the_change_of_variables_is_undone_and_its_determinant_is_right() -> None:
    target, data, u = target_of(walk)
    field = find_field(target, u, 1)
    assert field is not None
    found = _FieldMode(target, data, field, 1).run(u)
    assert found is not None
    joint = FieldCoordinates.of_arrays("x", walk, found[0].arrays())
    z = tf.constant(np.random.default_rng(2).normal(size=T))
    params = {
        "x": z,
        "tau": tf.constant(0.2, tf.float64),
        "mean": tf.constant(1.0, tf.float64),
    }
    np.testing.assert_allclose(joint.own(joint.user(params))["x"], z, atol=1e-9)
    with tf.GradientTape() as tape:
        tape.watch(z)
        x = joint.user({**params, "x": z})["x"]
    jacobian = tape.jacobian(x, z).numpy()
    np.testing.assert_allclose(
        joint.log_jacobian(params), np.linalg.slogdet(jacobian)[1], rtol=1e-9
    )


def exact_law(data: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log τ on a grid, its density, and the means of x given it."""
    steps = np.diff(np.eye(T), axis=0)
    first = np.eye(T)[0] - np.zeros(T)
    Z = np.eye(T)[data["time"]]
    logs = np.linspace(-4, 1.5, 400)
    values, means = [], []
    for tau in np.exp(logs):
        # x and the mean together: Q of (x, mean).
        Q = np.zeros((T + 1, T + 1))
        Q[:T, :T] = steps.T @ steps / tau**2
        ends = np.append(first, -1.0)
        Q += np.outer(ends, ends)
        Q[T, T] += 1.0
        P = Q.copy()
        P[:T, :T] += Z.T @ Z / SD**2
        b = np.append(Z.T @ data["y"], 0.0) / SD**2
        center = np.linalg.solve(P, b)
        prior = -(T - 1) * np.log(tau) - tau + np.log(tau)
        values.append(prior + 0.5 * b @ center - 0.5 * np.linalg.slogdet(P)[1])
        means.append(center[:T])
    density = np.exp(np.array(values) - max(values))
    return logs, density / density.sum(), np.array(means)


def model(**changes: Any) -> Model:
    data = observed()
    return {
        "log_lik": normal,
        "dataset": {**data, "time": tf.constant(data["time"])},
        "params": {"x": np.zeros(T), "tau": 0.5, "mean": 0.3},
        "log_prior": walk,
        "bijectors": {"tau": tfp.bijectors.Exp()},
        "verbose": False,
        "seed": 1,
        **changes,
    }


@pytest.mark.parametrize(
    "function, ess",
    [(sgmcmc.sample, 1000), pytest.param(sgmcmc.nuts, 400, marks=pytest.mark.slow)],
)
def test_the_draws_have_the_exact_law(function: Any, ess: int) -> None:
    samples = function(**model(ess=ess))
    logs, density, means = exact_law(observed())
    drawn = np.log(np.asarray(samples["tau"]))
    mean = density @ logs
    sd = np.sqrt(density @ (logs - mean) ** 2)
    error = 1 / np.sqrt(ess)
    assert abs(drawn.mean() - mean) < 4 * sd * error
    # An SD's standard error is at most 1.5/√ESS of it for laws with kurtosis of up to ten.
    assert abs(drawn.std() / sd - 1) < 4 * 1.5 * error
    x = np.asarray(samples["x"]).reshape(-1, T)
    gaps = (x.mean(0) - density @ means) / x.std(0)
    assert np.abs(gaps).max() < 4.5 * error
    assert samples.report.warnings == []
    assert "latent field" in str(samples.settings["own_coordinates"])


@pytest.mark.slow
def test_a_chain_on_disk_uses_its_coordinates_again(tmp_path: Path) -> None:
    given = model(store=tmp_path / "chain", n_iters=100)
    first = sgmcmc.hmc(**given)
    again = sgmcmc.hmc(**{**given, "n_iters": 200})
    whole = sgmcmc.hmc(**{**given, "store": tmp_path / "other", "n_iters": 200})
    np.testing.assert_array_equal(again["x"], whole["x"])
    np.testing.assert_array_equal(np.asarray(again["tau"])[..., :100], first["tau"])
