"""Models of NumPyro: log densities against NumPyro's own and by hand, refusals, posteriors."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.stats as st
import tensorflow as tf

import sgmcmc

numpyro = pytest.importorskip("numpyro")
jax = pytest.importorskip("jax")
dist, jnp = pytest.importorskip("numpyro.distributions"), jax.numpy
util = pytest.importorskip("numpyro.infer.util")

rng = np.random.default_rng(3)
F = np.float32
X = rng.normal(size=(40, 3)).astype(F)
Y = rng.normal(size=40).astype(F)
YK, YC = rng.integers(0, 3, 40), rng.poisson(2.0, 40)
G = rng.integers(0, 5, 40).astype(np.int32)


class Case(NamedTuple):
    model: Callable[..., Any]
    data: dict[str, Any]
    fixed: dict[str, Any]
    bijectors: tuple[str, ...] = ()


def regression(x: Any, y: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(0, 5))
    b = numpyro.sample("b", dist.Normal(0, 5).expand([3]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(a + x @ b, sigma), obs=y)


def multilevel(x: Any, g: Any, groups: int, y: Any = None) -> None:
    b = numpyro.sample("b", dist.Normal(jnp.zeros(3), 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(2.0))
    with numpyro.plate("groups", groups):
        u = numpyro.sample("u", dist.Normal(0, tau))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(x @ b + u[g], 1.0), obs=y)


def mixture(y: Any, x: Any) -> None:
    w = numpyro.sample("w", dist.Dirichlet(jnp.array([2.0, 3.0])))
    m = numpyro.sample("m", dist.Normal(jnp.array([-1.0, 1.0]), 2.0).to_event(1))
    parts = dist.MixtureSameFamily(dist.Categorical(probs=w), dist.Normal(m, 1.0))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", parts, obs=y)


def ordinal(x: Any, y: Any = None) -> None:
    b = numpyro.sample("b", dist.Normal(jnp.zeros(3), 1.0))
    ordered = dist.transforms.OrderedTransform()
    cut = dist.TransformedDistribution(
        dist.Normal(jnp.zeros(2), 1).to_event(1), ordered
    )
    c = numpyro.sample("c", cut)
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.OrderedLogistic(x @ b, c), obs=y)


def correlated(x: Any, g: Any, y: Any = None) -> None:
    cholesky = numpyro.sample("cholesky", dist.LKJCholesky(2, 2.0))
    sd = numpyro.sample("sd", dist.HalfNormal(jnp.ones(2)).to_event(1))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([5, 2]).to_event(2))
    u = numpyro.deterministic("u", z @ (sd[:, None] * cholesky).T)
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(u[g, 0] + u[g, 1] * x[:, 0], 1.0), obs=y)


def by_factor(x: Any, y: Any) -> None:
    b = numpyro.sample("b", dist.StudentT(3.0, 0.0, 1.0).expand([3]))
    with numpyro.plate("rows", len(x)):
        numpyro.factor("density", -0.5 * (y - x @ b) ** 2)


def two_plates(x: Any, y: Any = None) -> None:
    m = numpyro.sample("m", dist.Uniform(-5, 5))
    nu = numpyro.sample("nu", dist.Gamma(2.0, 0.1))
    with numpyro.plate("items", 3, dim=-1), numpyro.plate("rows", len(x), dim=-2):
        numpyro.sample("y", dist.StudentT(nu, m + x, 1.0), obs=y)
    numpyro.sample("total", dist.Normal(m, 0.1), obs=jnp.array(0.4))


def counts(x: Any, y: Any = None) -> None:
    b = numpyro.sample("b", dist.Normal(0, 1).expand([3]))
    c = numpyro.sample("c", dist.LogNormal(0, 1))
    with numpyro.plate("rows", len(x)), numpyro.handlers.scale(scale=2.0):
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(x @ b), c), obs=y)


CASES = [
    Case(regression, {"x": X, "y": Y}, {}, ("sigma",)),
    Case(multilevel, {"x": X, "g": G, "y": Y}, {"groups": 5}, ("tau",)),
    Case(mixture, {"x": X, "y": Y}, {}, ("w",)),
    Case(ordinal, {"x": X, "y": YK}, {}, ("c",)),
    Case(correlated, {"x": X, "g": G, "y": Y}, {}, ("cholesky", "sd")),
    Case(by_factor, {"x": X, "y": Y}, {}),
    Case(two_plates, {"x": X, "y": X + 1}, {}, ("m", "nu")),
    Case(counts, {"x": X, "y": YC}, {}, ("c",)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model.__name__)
def test_densities_are_those_of_numpyro(case: Case) -> None:
    model = sgmcmc.from_numpyro(case.model, case.data, fixed=case.fixed)
    assert tuple(sorted(model.bijectors)) == case.bijectors
    free = {
        name: model.bijectors[name].inverse(tf.constant(value)) if name in case.bijectors else value
        for name, value in model.params.items()
    }  # fmt: skip
    moved = {
        name: tf.constant(u + rng.normal(size=np.shape(u)), tf.float32)
        for name, u in free.items()
    }
    params = {
        name: model.bijectors[name].forward(u) if name in case.bijectors else u
        for name, u in moved.items()
    }  # fmt: skip
    given = {
        name: jnp.asarray(values) for name, values in case.data.items()
    } | case.fixed
    values = {name: jnp.asarray(value) for name, value in params.items()}
    expected = util.log_density(case.model, (), given, values)[0]
    terms = model.log_lik(params, model.dataset)
    found = tf.reduce_sum(terms) + model.log_prior(params)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    # With the Jacobian it is the density in the space where chains move.
    potential = util.potential_energy(
        case.model, (), given, {name: jnp.asarray(u) for name, u in moved.items()}
    )
    for name in case.bijectors:
        rank = moved[name].shape.rank
        found += model.bijectors[name].forward_log_det_jacobian(
            moved[name], event_ndims=rank
        )
    np.testing.assert_allclose(-found, potential, rtol=1e-5)
    some = np.array([5, 1, 1, 3])
    part = {
        name: tf.gather(tf.convert_to_tensor(a), some)
        for name, a in model.dataset.items()
    }
    np.testing.assert_allclose(
        model.log_lik(params, part), terms.numpy()[some], rtol=1e-4
    )


def test_posterior_is_right() -> None:
    def means(y: Any) -> None:
        mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    samples = sgmcmc.from_numpyro(means, {"y": Y}).sample(seed=1, verbose=False)
    precision = 40 + 0.01
    assert abs(samples["mu"].mean() - Y.sum() / precision) < 0.2 / np.sqrt(precision)
    assert abs(samples["mu"].std() * np.sqrt(precision) - 1) < 0.15


def test_prior_predictive_and_calibration() -> None:
    model = sgmcmc.from_numpyro(regression, {"x": X, "y": Y})
    draws = model.prior_predictive(2000, seed=1)
    assert draws["y"].shape == (2000, 40) and draws["b"].shape == (2000, 3)
    z = (draws["y"] - draws["a"][:, None] - draws["b"] @ X.T) / draws["sigma"][:, None]
    assert abs(z.mean()) < 5 / np.sqrt(z.size) and abs(z.std() - 1) < 0.02
    found = sgmcmc.sbc(
        model, 2, draws=3, seed=1, verbose=False,
        fit=lambda one, seed: sgmcmc.Samples({n: np.zeros((10, *np.shape(v)))
                                              for n, v in one.params.items()}),
    )  # fmt: skip
    assert sorted(found.ranks) == ["a", "b", "sigma"]
    other = model.observing({"y": np.zeros(40)})
    assert not np.any(other.dataset["y"]) and np.any(model.dataset["y"])


def test_double_precision() -> None:
    model = sgmcmc.from_numpyro(regression, {"x": X, "y": Y}, dtype=tf.float64)
    params = {"a": np.float64(1 / 3), "b": np.full(3, 0.1), "sigma": np.float64(1.5)}
    found = model.log_lik(params, model.dataset)
    expected = st.norm.logpdf(Y.astype(float), 1 / 3 + X.astype(float).sum(1) / 10, 1.5)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert model.params["b"].dtype == np.float64 and jnp.ones(1).dtype == jnp.float32


@pytest.mark.parametrize(
    "law",
    [
        lambda tau: dist.Normal(0, tau),
        lambda tau: dist.Normal(0, tau).expand([5]),
        lambda tau: dist.Normal(0, tau).expand([5]).to_event(1),
    ],
    ids=["plate", "expanded", "event"],
)
def test_local_variables_are_groups(law: Any) -> None:
    def model(x: Any, g: Any, y: Any = None) -> None:
        b = numpyro.sample("b", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        if law(1.0).batch_shape or law(1.0).event_shape:
            u = numpyro.sample("u", law(tau))
        else:
            with numpyro.plate("groups", 5):
                u = numpyro.sample("u", law(tau))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Normal(b * x[:, 0] + u[g], 1.0), obs=y)

    data = {"x": X, "g": G, "y": Y}
    found = sgmcmc.from_numpyro(model, data, groups={"g": "u"})
    assert sorted(found.params) == ["b", "tau"] and found.local == ("u",)
    params, effects = {"b": F(0.3), "tau": F(0.7)}, rng.normal(size=40).astype(F)
    terms = found.log_lik({**params, "u": effects}, found.dataset)
    np.testing.assert_allclose(
        terms, st.norm.logpdf(Y, 0.3 * X[:, 0] + effects), rtol=1e-4, atol=1e-5
    )
    (group,) = found.groups
    some = {"u": tf.constant(effects[:7])}
    np.testing.assert_allclose(
        group.log_prior(some, params), st.norm.logpdf(effects[:7], 0, 0.7), rtol=1e-5
    )
    by_hand = st.norm.logpdf(0.3, 0, 5) + st.halfnorm.logpdf(0.7)
    np.testing.assert_allclose(found.log_prior(params), by_hand, rtol=1e-5)


@pytest.mark.slow
def test_the_posterior_with_groups_is_that_with_coordinates() -> None:
    given = {"x": X, "g": G, "y": Y}
    exact = sgmcmc.from_numpyro(multilevel, given, fixed={"groups": 5})
    draws = sgmcmc.nuts(
        exact.log_lik, exact.dataset, exact.params, log_prior=exact.log_prior,
        bijectors=exact.bijectors, n_iters=4000, seed=1, verbose=False,
    )  # fmt: skip
    model = sgmcmc.from_numpyro(
        multilevel, given, fixed={"groups": 5}, groups={"g": "u"}
    )
    samples = model.sample(seed=1, verbose=False)
    for name in ("b", "tau"):
        sd = draws[name].std((0, 1))
        assert (
            np.abs(samples[name].mean((0, 1)) - draws[name].mean((0, 1))) < 0.25 * sd
        ).all()
    assert samples.effects("g")["u"].shape[-1] == 5


def _wrong(**parts: Any) -> Callable[..., None]:
    def model(x: Any, y: Any = None) -> None:
        b = numpyro.sample("b", dist.Normal(0, 1))
        for name, part in parts.items():
            numpyro.sample(name, part(b, x))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Normal(b * x[:, 0], 1.0), obs=y)

    return model


def _process(x: Any, y: Any = None) -> None:
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    near = jnp.exp(-((x[:, None, 0] - x[:, 0]) ** 2)) + s * jnp.eye(len(x))
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(len(x)), near), obs=y)


def _walk(x: Any, y: Any = None) -> None:
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    with numpyro.plate("rows", len(x)):
        numpyro.factor("steps", -0.5 * ((y - jnp.roll(y, 1)) / s) ** 2)


def _fixed_plate(x: Any, y: Any = None) -> None:
    b = numpyro.sample("b", dist.Normal(0, 1))
    with numpyro.plate("rows", 40):
        numpyro.sample("y", dist.Normal(b * x[:, 0], 1.0), obs=y)


def _part_of_plate(x: Any, y: Any = None) -> None:
    b = numpyro.sample("b", dist.Normal(0, 1))
    with numpyro.plate("rows", len(x), subsample_size=3) as i:
        numpyro.sample("y", dist.Normal(b * x[i, 0], 1.0), obs=y[i])


def _scaled(x: Any, y: Any = None) -> None:
    b = numpyro.sample("b", dist.Normal(0, jnp.std(x)))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(b * x[:, 0], 1.0), obs=y)


def _sum(x: Any, y: Any = None) -> None:
    b = numpyro.sample("b", dist.Normal(0, 1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(b * x[:, 0], 1.0), obs=y)
    numpyro.factor("more", -jnp.sum((b - y) ** 2))


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (
        _process,
        {},
        "rows of 'y' are not independent.*MultivariateNormal has densities of shape",
    ),
    (_walk, {}, "without the others, a row has another density"),
    (_fixed_plate, {}, "plates of rows must be as long as the data"),
    (_part_of_plate, {}, "Leave `subsample_size` out"),
    (_scaled, {}, "density of its parameters depends on the rows"),
    (_sum, {}, "numpyro.factor adds a sum over them"),
    (_wrong(k=lambda b, x: dist.Bernoulli(0.5)), {}, "'k' is discrete"),
    (_wrong(k=lambda b, x: dist.Uniform(b, b + 1)), {}, "support of 'k' depends"),
    (
        _wrong(k=lambda b, x: dist.Normal(x[:, 0], 1)),
        {},
        "'k' has a value for each row",
    ),
    (lambda x, y: numpyro.param("p", 1.0), {}, "'p' is a numpyro.param"),
    (
        lambda x, y: numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y),
        {},
        "none is left to sample",
    ),
    (
        lambda x, y: numpyro.sample("b", dist.Normal(0.0, 1.0)),
        {},
        "no observed variable",
    ),
    (lambda z: None, {}, "unexpected keyword argument"),
    (3, {}, "`model` must be a function"),
    (regression, {"data": [X]}, "`data` must be a dict"),
    (regression, {"data": {}}, "`data` must hold at least one array"),
    (regression, {"data": {"x": X, "y": Y[:5]}}, "first axes must have one length"),
    (
        regression,
        {"data": {"x": X, "y": np.array(["a"] * 40)}},
        "must hold arrays of numbers",
    ),
    (regression, {"groups": {"x": "b"}}, r"`data\['x'\]` must be a vector of integers"),
]


@pytest.mark.parametrize("model, given, message", REFUSED)
def test_refusals(model: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        sgmcmc.from_numpyro(model, **{"data": {"x": X, "y": Y}, **given})


@pytest.mark.parametrize(
    "law, of_rows, message",
    [
        (
            lambda tau: dist.Normal(jnp.linspace(0, 1, 5), tau),
            None,
            "is not one distribution in",
        ),
        (None, lambda u, g: (u - u.mean())[g], "in another way than"),
    ],
)
def test_what_are_no_groups(law: Any, of_rows: Any, message: str) -> None:
    def model(x: Any, g: Any, y: Any = None) -> None:
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        with numpyro.plate("groups", 5):
            u = numpyro.sample("u", law(tau) if law else dist.Normal(0, tau))
        with numpyro.plate("rows", len(x)):
            numpyro.sample(
                "y", dist.Normal(of_rows(u, g) if of_rows else u[g], 1.0), obs=y
            )

    with pytest.raises(ValueError, match=message):
        sgmcmc.from_numpyro(model, {"x": X, "g": G, "y": Y}, groups={"g": "u"})
