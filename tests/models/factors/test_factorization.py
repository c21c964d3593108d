"""Matrix factorization: its densities, its scores, SAGA's small table, and what is refused."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import integrate, stats

import sgmcmc
from sgmcmc.data.dataset import Minibatch
from sgmcmc.gradients import SAGA
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import Target
from sgmcmc.models import MatrixFactorization, matrix_factorization

L, M, D, N, TAU = 7, 5, 3, 60, 2.0


def ratings(size: int = N, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    user, item = rng.integers(L, size=size), rng.integers(M, size=size)
    user[:2], item[:2] = (0, L - 1), (0, M - 1)
    return {"user": user, "item": item, "rating": 3 + rng.normal(size=size)}


@pytest.fixture(scope="module")
def model() -> MatrixFactorization:
    return matrix_factorization(ratings(), D, precision=TAU, prior=(2.0, 5.0))


def tensors(params: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
    return {name: tf.constant(value) for name, value in params.items()}


def drawn(model: MatrixFactorization, seed: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) for name, shape in model.shapes.items()}


def test_likelihood_and_its_gradient_by_hand(model: MatrixFactorization) -> None:
    theta, data = drawn(model), ratings()
    U, V, a, b = theta.values()
    i, j, r = data.values()
    error = r - r.mean() - (U[i] * V[j]).sum(1) - a[i] - b[j]
    expected = stats.norm.logpdf(error, scale=TAU**-0.5)
    space = Space(model.shapes)
    target = Target(model.log_lik, None, space, tf.float64)
    columns = {name: tf.constant(column, tf.float64) for name, column in data.items()}
    np.testing.assert_allclose(
        model.log_lik(tensors(theta), columns), expected, rtol=1e-12
    )
    found = target.gradient(
        tf.constant(space.start(theta, tf.float64)), Minibatch(columns, 1.0)
    ).numpy()
    gradient = {name: np.zeros(shape) for name, shape in model.shapes.items()}
    for k in range(N):
        gradient["U"][i[k]] += TAU * error[k] * V[j[k]]
        gradient["V"][j[k]] += TAU * error[k] * U[i[k]]
        gradient["a"][i[k]] += TAU * error[k]
        gradient["b"][j[k]] += TAU * error[k]
    np.testing.assert_allclose(
        found, space.layout.join(gradient, np.float64), rtol=1e-10
    )


def test_second_derivatives_pass_through(model: MatrixFactorization) -> None:
    """∂²/∂U² of a user with all else fixed is −τ Σ V Vᵀ."""
    theta, data = tensors(drawn(model)), ratings()
    columns = {name: tf.constant(column, tf.float64) for name, column in data.items()}
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(theta["U"])
        with tf.GradientTape() as inner:
            inner.watch(theta["U"])
            value = tf.reduce_sum(model.log_lik(theta, columns))
        gradient = tf.convert_to_tensor(inner.gradient(value, theta["U"]))[0]
    found = outer.jacobian(gradient, theta["U"], experimental_use_pfor=False)
    V = theta["V"].numpy()[data["item"][data["user"] == 0]]
    np.testing.assert_allclose(
        tf.convert_to_tensor(found)[:, 0], -TAU * V.T @ V, rtol=1e-10
    )


def test_prior_is_the_integral_over_the_precision(model: MatrixFactorization) -> None:
    theta = drawn(model)
    expected = 0.0
    for value in theta.values():

        def density(log_lam: float, value: np.ndarray = value) -> float:
            lam = np.exp(log_lam)
            given = stats.norm.logpdf(value, scale=lam**-0.5).sum()
            return np.exp(given + stats.gamma.logpdf(lam, 2.0, scale=1 / 5.0) + log_lam)

        expected += np.log(integrate.quad(density, -8, 8, epsabs=0)[0])
    assert float(model.log_prior(tensors(theta))) == pytest.approx(expected, rel=1e-9)
    with tf.GradientTape() as tape:
        U = tf.constant(theta["U"])
        tape.watch(U)
        value = model.log_prior({**tensors(theta), "U": U})
    mean = model.precisions(tensors(theta)).numpy()
    np.testing.assert_allclose(
        tape.gradient(value, U), -mean[0] * theta["U"], rtol=1e-12
    )


def test_scores_along_a_chain(model: MatrixFactorization) -> None:
    held = ratings(20, seed=3)
    test = model.held_out(held)
    chain = sgmcmc.sgld(
        model.log_lik, model.dataset, model.start(seed=1), 1e-3, model.log_prior,
        minibatch_size=20, n_iters=40, thin=2, seed=1, verbose=False, dtype=tf.float64,
        jit_compile=False, reductions={"test": test.score(20), "later": test.score(20, skip=5)},
        test_functions={"λ": model.precisions},
    )  # fmt: skip
    assert chain.test_functions["λ"].shape == (20, 4)
    found = chain.reductions["test"]
    means = chain.predict(model.predict, test.dataset, reduce=None)[0]
    error = held["rating"] - means
    density = stats.norm.pdf(error, scale=TAU**-0.5)
    many = np.arange(1, 21)[:, np.newaxis]
    averaged = held["rating"] - means.cumsum(0) / many
    for name, expected in {
        "rmse": np.sqrt((error**2).mean(1)),
        "rmse_averaged": np.sqrt((averaged**2).mean(1)),
        "log_predictive": np.log(density).mean(1),
        "log_predictive_averaged": np.log(density.cumsum(0) / many).mean(1),
        "mean": means.mean(0),
        "sd": np.sqrt(means.var(0) + 1 / TAU),
    }.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-8, err_msg=name)
    later, rest = chain.reductions["later"], means[5:]
    np.testing.assert_allclose(later["rmse_averaged"][:6], found["rmse"][:6], rtol=1e-8)
    np.testing.assert_allclose(later["mean"], rest.mean(0), rtol=1e-8)
    np.testing.assert_allclose(later["sd"], np.sqrt(rest.var(0) + 1 / TAU), rtol=1e-8)
    expected = np.log(density[5:].mean(0)).mean()
    np.testing.assert_allclose(
        later["log_predictive_averaged"][-1], expected, rtol=1e-8
    )
    # The uncertainty of a rating is that of its mean and its own.
    again = sgmcmc.Samples(
        {n: np.repeat(np.asarray(chain[n]), 100, 0) for n in chain}, settings={}
    )  # fmt: skip
    tf.random.set_seed(1)
    noisy = again.predict(model.predict_rating, test.dataset, reduce=None)[0]
    np.testing.assert_allclose(noisy.std(0), found["sd"], rtol=4 / np.sqrt(2 * 2000))


def test_predictions_of_unknown_users_are_not_numbers(
    model: MatrixFactorization,
) -> None:
    draws = sgmcmc.Samples(
        {name: value[np.newaxis] for name, value in drawn(model).items()}
    )
    found = draws.predict(model.predict, {"user": [0, L, 0, -1], "item": [0, 0, M, 0]})
    assert np.isnan(found).tolist() == [False, True, True, True]


def test_ids_that_are_no_integers_are_unknown(model: MatrixFactorization) -> None:
    """1.7 is not user 1, and −0.5 not user 0."""
    draws = sgmcmc.Samples(
        {name: value[np.newaxis] for name, value in drawn(model).items()}
    )
    ids = {"user": [1.0, 1.7, -0.5, 1.0], "item": [2.0, 2.0, 2.0, 0.5]}
    found = draws.predict(model.predict, ids)
    assert np.isnan(found).tolist() == [False, True, True, True]
    assert found[0] == draws.predict(model.predict, {"user": [1], "item": [2]})[0]


@pytest.mark.parametrize(
    ("factor", "shift"), [(100.0, 0.0), (1.0, 1e6), (1e-4, 0.0), (10.0, 1e8)]
)
def test_units_and_shifts_of_ratings_change_nothing_else(
    factor: float, shift: float
) -> None:
    """In float32: predictions, held-out scores and log densities are those of the ratings as given.

    A factor that is a power of ten is that of the unit.
    """
    given, held = ratings(300), ratings(20, seed=3)
    found = {}
    for name in ("own", "changed"):
        f, s = (factor, shift) if name == "changed" else (1.0, 0.0)
        train, test = ({**r, "rating": s + f * r["rating"]} for r in (given, held))
        own = matrix_factorization(train, D)
        task = own.held_out(test)
        params = {n: tf.constant(a, tf.float32) for n, a in drawn(own).items()}
        columns = {
            n: tf.constant(a, tf.float32 if a.dtype.kind == "f" else tf.int32)
            for n, a in own.dataset.items()
        }
        score = task.score(1)
        state = score.result(score.update(score.start(params, tf.float32), params))
        found[name] = {
            "log_lik": own.log_lik(params, columns).numpy() + np.log(f),
            "prior": own.log_prior(params).numpy(),
            "predict": (own.predict(params, columns).numpy() - s) / f,
            "rmse": state["rmse"].numpy() / f,
            "log_predictive": state["log_predictive"].numpy() + np.log(f),
            "mean": (state["mean"].numpy() - s) / f,
            "sd": state["sd"].numpy() / f,
        }
    assert own.unit == factor
    for name, value in found["own"].items():
        np.testing.assert_allclose(found["changed"][name], value, rtol=2e-5, atol=2e-5)


def test_units_are_those_of_stars_by_default_and_with_a_precision() -> None:
    assert matrix_factorization(ratings(), D).unit == 1
    assert "deviation" not in matrix_factorization(ratings(), D).dataset
    hundredfold = {**ratings(), "rating": 100 * ratings()["rating"]}
    assert matrix_factorization(hundredfold, D, precision=3e-4).unit == 1
    assert matrix_factorization(hundredfold, D, unit=50).unit == 50
    assert matrix_factorization({"user": [0], "item": [0], "rating": [5]}, 1).unit == 1


def test_gaps_of_ids_are_warned_of() -> None:
    user = ratings()["user"].copy()
    user[0] = 100_000
    with pytest.warns(UserWarning, match="users are numbered up to 100000"):
        matrix_factorization({**ratings(), "user": user}, D)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert matrix_factorization({**ratings(), "user": user}, D, n_users=100_001)


@pytest.mark.slow
def test_saga_with_lookups_is_saga(model: MatrixFactorization) -> None:
    """The same draws as with a table of whole gradients, which has (L + M)(D + 1) columns."""
    draws = [
        sgmcmc.sample(
            model.log_lik, model.dataset, model.start(seed=1), model.log_prior, dynamics="sgld",
            gradient=gradient, stepsize=1e-3, minibatch_size=10, n_iters=150, burn_in=0,
            n_chains=1, seed=1, verbose=False, dtype=tf.float64, minibatches="replacement",
            preconditioner={"a": np.full(L, 0.3)},
        )
        for gradient in (SAGA(), SAGA(model.lookups))
    ]  # fmt: skip
    for name in draws[0]:
        np.testing.assert_allclose(
            draws[1][name], draws[0][name], rtol=1e-9, atol=1e-11
        )


def sampled(
    model: MatrixFactorization, gradient: Any, log_lik: Any = None, **keywords: Any
) -> Any:
    return sgmcmc.sample(
        log_lik or model.log_lik, model.dataset, model.start(seed=1), model.log_prior,
        dynamics="sgld", gradient=gradient, minibatches="uniform", preconditioner="none",
        stepsize=1e-3, minibatch_size=10, n_iters=100, burn_in=0, seed=1, verbose=False,
        **keywords,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("lookups", "message"),
    [
        ({"U": "user"}, "`lookups` lacks the parameter 'V'"),
        (
            {"U": "users", "V": "item", "a": "user", "b": "item"},
            "'users'.*Did you mean 'user'",
        ),
        (
            {"U": "item", "V": "user", "a": "user", "b": "item"},
            "from 0 to 4, rows of 'V'",
        ),
        ({"U": "rating", "V": "item", "a": "user", "b": "item"}, "integers|add up"),
        ("user", "must be a dict"),
    ],
)
def test_wrong_lookups(model: MatrixFactorization, lookups: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        sampled(model, SAGA(lookups))


def test_terms_that_depend_on_other_rows_are_refused(
    model: MatrixFactorization,
) -> None:
    def with_all(params: Any, dataset: Any) -> tf.Tensor:
        return model.log_lik(params, dataset) - tf.reduce_sum(params["a"] ** 2)

    with pytest.raises(
        ValueError, match="do not add up to the gradient of their terms"
    ):
        sampled(model, SAGA(model.lookups), with_all, n_chains=1)


def change(**columns: Any) -> Callable[[], Any]:
    return lambda: matrix_factorization({**ratings(), **columns}, D)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: matrix_factorization([1, 2], D),
            TypeError,
            "`ratings` must be a dict or a table",
        ),
        (
            lambda: matrix_factorization({"user": [0]}, D),
            ValueError,
            "lacks the column 'item'",
        ),
        (
            change(user=np.zeros(3, int)),
            ValueError,
            "must have equal lengths; they have 3",
        ),
        (change(user=np.zeros((N, 1), int)), ValueError, "must be a vector"),
        (change(item=np.full(N, -1)), ValueError, "by integers from 0; row 0 is -1"),
        (change(item=np.full(N, 0.5)), ValueError, "row 0 is 0.5"),
        (change(rating=np.full(N, np.nan)), ValueError, "must be finite; row 0 is nan"),
        (
            change(user=np.full(N, "x")),
            TypeError,
            "`ratings['user']` must hold numbers",
        ),
        (lambda: matrix_factorization(ratings(), 0), ValueError, "`rank`"),
        (
            lambda: matrix_factorization(ratings(), D, n_users=3),
            ValueError,
            "there are 3 users",
        ),
        (
            lambda: matrix_factorization(ratings(), D, precision=0),
            ValueError,
            "`precision`",
        ),
        (lambda: matrix_factorization(ratings(), D, unit=0), ValueError, "`unit`"),
        (
            lambda: matrix_factorization(ratings(), D, prior=1.0),
            TypeError,
            "two numbers",
        ),
        (
            lambda: matrix_factorization(ratings(), D, prior=(1, -1)),
            ValueError,
            "`prior`",
        ),
        (
            lambda: matrix_factorization(ratings(), D, center="mean"),
            TypeError,
            "`center`",
        ),
        (
            lambda: matrix_factorization(ratings(), D).held_out(
                {**ratings(), "user": [L] * N}
            ),
            ValueError,
            f"row 0 is {L}, but there are {L} users",
        ),
    ],
)
def test_what_is_no_model(
    make: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        make()
