"""Other modes, and none: mixtures, wells, rearrangements, regressions that have one mode only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from sgmcmc.model.geometry import Bijected, Space
from sgmcmc.plan.mode import find_mode
from sgmcmc.plan.modes import Survey, exchangeable, has_images, rearranged, survey
from sgmcmc.plan.objective import Objective
from tests.plan.models import (
    Array,
    Tensors,
    gaussian_prior,
    laplace_prior,
    logistic_data,
    logistic_sum,
    logistic_terms,
    make,
)


def surveyed(
    log_lik: Callable[..., tf.Tensor],
    dataset: dict[str, Array],
    params: dict[str, Any],
    log_prior: Callable[..., Any] | None = None,
    bijectors: dict[str, Any] | None = None,
) -> Survey:
    """Find the mode of a model from a start, and look for others."""
    shapes = {name: np.shape(value) for name, value in params.items()}
    target, data = make(log_lik, dataset, shapes, log_prior, bijectors)
    start = {name: np.asarray(value, np.float32) for name, value in params.items()}
    u = target.space.start(start, tf.float32).astype(float)
    with np.errstate(all="ignore"):
        mode = find_mode(Objective(target, data), u)
    return survey(target, data, mode, u, seed=1)


def two_means(params: Tensors, dataset: Tensors) -> tf.Tensor:
    """Return the terms of ½ N(m1, 1) + ½ N(m2, 1)."""
    squares = [-0.5 * (dataset["x"] - params[name]) ** 2 for name in ("m1", "m2")]
    return tf.reduce_logsumexp(tf.stack(squares), 0)


def mixed(first: float, second: float, N: int, part: float = 0.5) -> dict[str, Array]:
    """Return draws of a mixture of two normals."""
    rng = np.random.default_rng([N, 1])
    return {"x": np.where(rng.random(N) < part, first, second) + rng.normal(size=N)}


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("N", "start"), [(300, (0.0, 0.5)), (300, (0.0, 0.0)), (6000, (3.0, 4.0))]
)
def test_a_mixture_has_two_modes(N: int, start: tuple[float, float]) -> None:
    found = surveyed(
        two_means,
        mixed(-4, 4, N),
        dict(zip(("m1", "m2"), start, strict=True)),
        gaussian_prior(3.0),
    )
    first, second = (np.round(mode.position).tolist() for mode in found.modes)
    assert sorted([first, second]) == [[-4, 4], [4, -4]]
    np.testing.assert_allclose(found.weights, 0.5, atol=0.01)
    assert abs(found.heights[0] - found.heights[1]) < 0.01
    assert found.rising == ()


def test_weights_that_go_with_the_means() -> None:
    """A scalar weight has to change with the labels."""

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        first = tf.math.log(params["w"]) - 0.5 * (dataset["x"] - params["m1"]) ** 2
        second = tf.math.log1p(-params["w"]) - 0.5 * (dataset["x"] - params["m2"]) ** 2
        return tf.reduce_logsumexp(tf.stack([first, second]), 0)

    found = surveyed(
        log_lik,
        mixed(-4, 4, 1000, 0.3),
        {"m1": 0.0, "m2": 0.5, "w": 0.5},
        gaussian_prior(3.0),
        {"w": tfp.bijectors.Sigmoid()},
    )
    assert len(found.modes) == 2
    np.testing.assert_allclose(
        found.modes[0].position, -found.modes[1].position, atol=0.3
    )


@pytest.mark.slow
def test_three_components_have_six_modes() -> None:
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(m, 1.0, 150) for m in (-6.0, 0.0, 6.0)])

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return tf.reduce_logsumexp(
            -0.5 * (dataset["x"][:, None] - params["mu"]) ** 2, 1
        )

    found = surveyed(
        log_lik, {"x": x}, {"mu": np.array([-1.0, 0.0, 1.0])}, gaussian_prior(5.0)
    )
    orders = {tuple(np.argsort(mode.position)) for mode in found.modes}
    assert len(orders) == len(found.modes) == 6
    np.testing.assert_allclose(found.weights, 1 / 6, atol=0.01)


ONE = {"one": np.ones(1)}


def density(log_density: Callable[[Tensors], tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Return a log-likelihood of one row that is this density."""
    return lambda params, dataset: log_density(params) * dataset["one"]


def test_wells_of_unequal_weight() -> None:
    """A normal at 2 and one at −7, of the same sd, with weights as e to 1."""
    found = surveyed(
        density(
            lambda p: tf.reduce_logsumexp(
                tf.stack([-((p["t"] - 2) ** 2), -1.0 - (p["t"] + 7) ** 2])
            )
        ),
        ONE,
        {"t": 0.5},
    )
    np.testing.assert_allclose(
        [mode.position[0] for mode in found.modes], [2, -7], atol=0.01
    )
    np.testing.assert_allclose(
        found.weights, [np.e / (1 + np.e), 1 / (1 + np.e)], rtol=1e-3
    )


def test_a_mode_of_no_weight_is_not_spoken_of() -> None:
    def log_density(p: Tensors) -> tf.Tensor:
        return tf.reduce_logsumexp(
            tf.stack([-((p["t"] - 2) ** 2), -20.0 - (p["t"] + 7) ** 2])
        )

    assert not surveyed(density(log_density), ONE, {"t": 0.5}).several
    # From the other side it is left for the one that counts.
    found = surveyed(density(log_density), ONE, {"t": -7.5})
    assert not found.several
    assert found.modes[0].position[0] == pytest.approx(2.0, abs=0.01)


def bent(p: Tensors) -> tf.Tensor:
    return -0.5 * p["a"] ** 2 - 12.5 * (p["b"] - p["a"] ** 2) ** 2


def heavy(p: Tensors) -> tf.Tensor:
    return -tf.math.log(1.0 + p["a"] ** 2) - 2 * tf.math.log(1.0 + p["b"] ** 2 / 3)


@pytest.mark.some(1)
@pytest.mark.parametrize("log_density", [bent, heavy])
def test_one_mode_that_is_not_normal(
    log_density: Callable[[Tensors], tf.Tensor],
) -> None:
    found = surveyed(density(log_density), ONE, {"a": 2.0, "b": 1.0})
    assert not found.several and found.rising == ()


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("N", "d", "prior", "log_lik"),
    [
        (60, 3, gaussian_prior(10.0), logistic_terms),
        (60, 3, laplace_prior(1.0), logistic_terms),
        (400, 8, laplace_prior(1.0), logistic_sum),
        (5000, 12, gaussian_prior(10.0), logistic_terms),
    ],
)
def test_regressions_have_one_mode(
    N: int, d: int, prior: Callable[..., Any], log_lik: Callable[..., tf.Tensor]
) -> None:
    rng = np.random.default_rng([N, d])
    scales = np.exp(2 * rng.normal(size=d))
    X, beta = rng.normal(size=(N, d)) * scales, rng.normal(size=d) / scales
    found = surveyed(log_lik, logistic_data(X, beta), {"beta": np.zeros(d)}, prior)
    assert not found.several and found.rising == ()
    np.testing.assert_allclose(found.weights, 1.0)


def linear(params: Tensors, dataset: Tensors) -> tf.Tensor:
    """Return the terms of a linear regression with unknown sd."""
    gap = dataset["y"] - tf.linalg.matvec(dataset["X"], params["beta"])
    return -tf.math.log(params["sd"]) - 0.5 * (gap / params["sd"]) ** 2


@pytest.mark.slow
def test_an_unknown_sd() -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(100, 3)) * [1.0, 10.0, 100.0]
    dataset = {"X": X, "y": X @ [1.0, 0.2, 0.01] + rng.normal(size=100)}
    start = {"beta": np.zeros(3), "sd": 1.0}
    found = surveyed(linear, dataset, start, None, {"sd": tfp.bijectors.Exp()})
    assert not found.several and found.rising == ()


class TestNoMode:
    """Posteriors that rise without end are named, proper ones beside them are not."""

    X = np.random.default_rng(6).normal(size=(200, 3))
    separated = {"X": X, "y": (X[:, 0] > 0).astype(float)}

    def test_labels_that_a_feature_separates(self) -> None:
        found = surveyed(logistic_terms, self.separated, {"beta": np.zeros(3)})
        assert found.rising == ("beta",)
        held = surveyed(
            logistic_terms, self.separated, {"beta": np.zeros(3)}, gaussian_prior(5.0)
        )
        assert held.rising == ()

    def test_labels_that_a_feature_separates_in_a_part_of_the_rows(self) -> None:
        """Five rows of 20 000 are against it, which the part that is searched does not have."""
        X = np.where(np.arange(20_000) % 2, 1.0, -1.0)[:, np.newaxis]
        y = (X[:, 0] > 0).astype(float)
        y[:5] = 1 - y[:5]
        assert (
            surveyed(logistic_terms, {"X": X, "y": y}, {"beta": np.zeros(1)}).rising
            == ()
        )

    def test_a_slope_without_end(self) -> None:
        found = surveyed(
            density(lambda p: 50.0 * p["t"] - p["u"] ** 2), ONE, {"t": 0.0, "u": 1.0}
        )
        assert found.rising == ("t",)

    @pytest.mark.slow
    def test_a_scale_that_goes_to_zero(self) -> None:
        """Effects that are all equal with no sd between them: a density without bound."""
        y, sd = (
            np.array([[28.0, 8, -3, 7, -1, 1, 18, 12]]),
            np.array([[15.0, 10, 16, 11, 9]]),
        )
        dataset = {"y": y[:, :5], "sd": sd}

        def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
            return -0.5 * tf.reduce_sum(
                ((dataset["y"] - params["effect"]) / dataset["sd"]) ** 2
            )

        def log_prior(params: Tensors) -> tf.Tensor:
            gaps = tf.reduce_sum((params["effect"] - params["mean"]) ** 2)
            spread = params["tau"]
            normal = -0.5 * gaps / spread**2 - 5 * tf.math.log(spread)
            return (
                normal
                - 0.5 * (params["mean"] / 5) ** 2
                - tf.math.log(1 + (spread / 5) ** 2)
            )

        start = {"mean": 0.0, "tau": 5.0, "effect": np.zeros(5)}
        found = surveyed(
            log_lik, dataset, start, log_prior, {"tau": tfp.bijectors.Exp()}
        )
        assert found.rising == ("tau",)

    def test_parameters_that_the_data_do_not_tell_apart(self) -> None:
        """The log posterior is level along a - b, and c has a mode."""
        found = surveyed(
            density(lambda p: -((p["a"] + p["b"] - 1) ** 2) - p["c"] ** 2),
            ONE,
            {"a": 0.0, "b": 0.0, "c": 1.0},
        )
        assert found.rising == ("a", "b")

    def test_a_parameter_without_a_meaning(self) -> None:
        found = surveyed(
            density(lambda p: 0 * p["a"] - p["b"] ** 2), ONE, {"a": 3.0, "b": 0.0}
        )
        assert found.rising == ("a",)

    def test_a_level_place_that_ends(self) -> None:
        """No curvature at the mode, but a fall farther away."""
        found = surveyed(
            density(lambda p: -(p["a"] ** 4) - p["b"] ** 2), ONE, {"a": 0.0, "b": 1.0}
        )
        assert found.rising == ()

    def test_a_rise_that_ends_in_an_overflow(self) -> None:
        """A cutpoint whose level has no rows: beyond e^709 there is no number."""

        def cut(params: Tensors) -> tf.Tensor:
            return params["cut"] - 0 * tf.exp(params["cut"]) - params["b"] ** 2

        assert surveyed(density(cut), ONE, {"cut": 0.0, "b": 1.0}).rising == ("cut",)

    def test_a_pole_that_looks_like_a_mode(self) -> None:
        """Effects of a rounding error over an SD of nothing: two factors under flat priors."""
        rng = np.random.default_rng(0)
        rows = np.arange(40)
        a, b = rows % 5, rows // 10
        y = 1 + rng.normal(size=5)[a] + rng.normal(size=4)[b] + rng.normal(size=40)
        dataset = {"y": y, "A": np.eye(5)[a], "B": np.eye(4)[b]}

        def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
            effects = tf.linalg.matvec(dataset["A"], params["a"])
            effects += tf.linalg.matvec(dataset["B"], params["b"])
            return -0.5 * (dataset["y"] - params["m"] - effects) ** 2

        def log_prior(params: Tensors) -> tf.Tensor:
            return tf.add_n(
                [
                    tf.reduce_sum(
                        -0.5 * params[k] ** 2 / tf.exp(2 * params[s]) - params[s]
                    )
                    for k, s in (("a", "log_sd_a"), ("b", "log_sd_b"))
                ]
            )

        start = {
            "m": 0.0,
            "a": np.zeros(5),
            "b": np.zeros(4),
            "log_sd_a": 0.0,
            "log_sd_b": 0.0,
        }
        found = surveyed(log_lik, dataset, start, log_prior)
        assert found.rising and set(found.rising) <= {"log_sd_a", "log_sd_b"}

    def test_one_row_does_not_have_a_mean_and_an_sd(self) -> None:
        """Up the saddle there are no numbers: the search stays where it was."""

        def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
            z = (dataset["x"] - params["m"]) / params["s"]
            return -0.5 * z**2 - tf.math.log(params["s"])

        bijectors = {"s": tfp.bijectors.Exp()}
        found = surveyed(
            log_lik, {"x": np.ones(1)}, {"m": 0.0, "s": 1.0}, None, bijectors
        )
        assert np.isfinite(found.modes[0].position).all()


def test_same_seed_same_survey() -> None:
    first, again = (
        surveyed(two_means, mixed(-4, 4, 3000), {"m1": 0.0, "m2": 0.5})
        for _ in range(2)
    )
    assert first.evaluations == again.evaluations
    for one, other in zip(first.modes, again.modes, strict=True):
        np.testing.assert_array_equal(one.position, other.position)


def places(
    params: dict[str, Any], bijectors: dict[str, Any] | None = None
) -> list[list[float]]:
    """Return rearrangements of parameters, as flat lists in user's coordinates."""
    shapes = {name: np.shape(value) for name, value in params.items()}
    given = {name: Bijected(b, shapes[name]) for name, b in (bijectors or {}).items()}
    space = Space(shapes, given)
    arrays = {name: np.asarray(value, np.float32) for name, value in params.items()}
    found = rearranged(space, space.start(arrays, tf.float32).astype(float), tf.float32)
    return [
        space.flat_user(tf.constant(u, tf.float32)).numpy().round(4).tolist()
        for u in found
    ]


class TestRearranged:
    """What may be the same posterior in other places."""

    def test_parameters_of_one_shape(self) -> None:
        assert [2, 1] in places({"a": 1.0, "b": 2.0})

    def test_pairs_by_their_last_character_together(self) -> None:
        found = places({"m1": 1.0, "m2": 2.0, "s1": 3.0, "s2": 4.0, "w": [0.3, 0.7]})
        assert [2, 1, 4, 3, 0.7, 0.3] in np.round(found, 6).tolist()

    def test_entries_along_an_axis_together(self) -> None:
        found = places({"m": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "w": [0.3, 0.7]})
        assert [4, 5, 6, 1, 2, 3, 0.7, 0.3] in np.round(found, 6).tolist()

    def test_signs(self) -> None:
        found = places({"a": [1.0, 2.0], "b": 3.0})
        assert [-1, -2, 3] in found and [-1, -2, -3] in found and [-1, 2, 3] in found

    def test_impossible_values_are_left_out(self) -> None:
        found = places({"a": 1.0, "s": 2.0}, {"s": tfp.bijectors.Exp()})
        assert [-1, 2] in found and all(np.isfinite(found).all() for _ in found)
        assert all(place[1] > 0 for place in found)

    def test_many_components_stay_bounded(self) -> None:
        assert len(places({"beta": np.arange(1.0, 301.0)})) <= 24


def alike(
    log_lik: Callable[..., tf.Tensor], dataset: dict[str, Array], shapes: dict[str, Any]
) -> tuple[str, ...]:
    """Return the parameters whose entries can change places, found at a random position."""
    target, data = make(log_lik, dataset, shapes, gaussian_prior(1.0))
    rng, objective = np.random.default_rng(1), Objective(target, data)
    u = rng.standard_normal(target.size)
    return exchangeable(
        target.space,
        u,
        objective.target.dtype,
        lambda u: objective.value_and_gradient(u)[0],
        rng,
    )


class TestExchangeable:
    """Entries that can change places: hidden units, not coefficients or effects."""

    X = np.random.default_rng(2).normal(size=(50, 9))
    dataset = {"X": X, "y": X[:, 0], "group": np.arange(50) % 9}

    @pytest.mark.parametrize("units", [12, 9])
    def test_hidden_units(self, units: int) -> None:
        """Also if there are as many as inputs, so that one axis of W is not of them."""

        def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
            hidden = tf.tanh(tf.matmul(dataset["X"], params["W"]) + params["b"])
            return -0.5 * (dataset["y"] - tf.matmul(hidden, params["v"])[:, 0]) ** 2

        shapes = {"W": (9, units), "b": (units,), "v": (units, 1)}
        assert alike(log_lik, self.dataset, shapes) == ("W", "b", "v")

    def test_means_of_a_mixture(self) -> None:
        def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
            return tf.reduce_logsumexp(
                -((dataset["y"][:, None] - params["mean"]) ** 2), 1
            )

        assert alike(log_lik, self.dataset, {"mean": (8,)}) == ("mean",)
        assert alike(log_lik, self.dataset, {"mean": (7,)}) == ()

    def test_coefficients_and_effects_are_not(self) -> None:
        def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
            eta = tf.linalg.matvec(dataset["X"], params["beta"])
            effect = tf.gather(params["effect"], tf.cast(dataset["group"], tf.int32))
            return -((dataset["y"] - eta - effect) ** 2)

        assert alike(log_lik, self.dataset, {"beta": (9,), "effect": (9,)}) == ()


@pytest.mark.parametrize("signs", [True, False])
def test_images_of_a_mode(signs: bool) -> None:
    """With the sign of a product, not of a sum, both factors may be turned."""
    x = np.random.default_rng(1).normal(2.0, 1.0, 200)

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        both = params["a"] * params["b"] if signs else params["a"] + 3.0 * params["b"]
        return -0.5 * (dataset["x"] - both) ** 2

    target, data = make(log_lik, {"x": x}, {"a": (), "b": ()}, gaussian_prior(3.0))
    objective = Objective(target, data)
    mode = find_mode(objective, np.array([1.0, 1.5]))
    assert has_images(objective, target, mode) == signs
