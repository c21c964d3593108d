"""Models of PyMC: log densities against PyMC's own and by hand, refusals, posteriors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats as st
import tensorflow as tf

import sgmcmc

pm = pytest.importorskip("pymc", minversion="6")
pytest.importorskip("jax")
pt = pytest.importorskip("pytensor.tensor")

rng = np.random.default_rng(3)
F = np.float32
X = rng.normal(size=(40, 3))
Y = rng.normal(size=40)
YB, YK, YC = rng.integers(0, 2, 40), rng.integers(0, 3, 40), rng.poisson(2.0, 40)
G = rng.integers(0, 5, 40)


def regression() -> None:
    """Covariates are plain arrays."""
    a, b, sigma = pm.Normal("a", 0, 5), pm.Normal("b", 0, 5), pm.HalfNormal("sigma", 2)
    pm.Normal("y", a + b * X[:, 0], sigma, observed=Y)


def multilevel() -> None:
    """Covariates are data with dimensions."""
    x, g = pm.Data("x", X, dims=("row", "feature")), pm.Data("g", G, dims="row")
    b = pm.Normal("b", 0, 5, shape=3)
    tau = pm.HalfNormal("tau", 1.0)
    u = pm.Normal("u", 0, tau, dims="groups")
    mean = pm.Deterministic("mean", x @ b + u[g], dims="row")
    pm.Normal("y", mean, 1.0, observed=pm.Data("y_seen", Y, dims="row"), dims="row")


def mixture() -> None:
    w = pm.Dirichlet("w", np.array([2.0, 3.0]))
    m = pm.Normal("m", np.array([-1.0, 1.0]), 2.0)
    pm.NormalMixture("y", w, m, 1.0, observed=Y)


def logistic() -> None:
    pm.Bernoulli("y", logit_p=X @ pm.Normal("b", 0, 1, shape=3), observed=YB)


def counts() -> None:
    b, alpha = pm.Laplace("b", 0, 1, shape=3), pm.Gamma("alpha", 2, 0.1)
    pm.NegativeBinomial("y", mu=pt.exp(X @ b), alpha=alpha, observed=YC)


def categories() -> None:
    pm.Categorical("y", logit_p=X @ pm.Normal("b", 0, 1, shape=(3, 3)), observed=YK)


def ordinal() -> None:
    b = pm.Normal("b", 0, 1, shape=3)
    ordered = pm.distributions.transforms.ordered
    c = pm.Normal("c", 0, 2, shape=2, transform=ordered, initval=np.array([-1.0, 1.0]))
    pm.OrderedLogistic("y", eta=X @ b, cutpoints=c, compute_p=False, observed=YK)


def robust() -> None:
    mu, nu, s = pm.Uniform("mu", -5, 5), pm.Gamma("nu", 2, 0.1), pm.LogNormal("s", 0, 1)
    pm.StudentT("y", nu=nu, mu=mu, sigma=s, observed=Y)


def measurement_error() -> None:
    """Two observed variables with rows, one given the other, one without, and a potential."""
    a = pm.Normal("a", 0, 1)
    z = pm.Normal("z", a * X[:, 0], 1.0, observed=X[:, 1])
    pm.Normal("total", a, 0.1, observed=0.4)
    pm.Normal("y", a + z, 1.0, observed=Y)
    pm.Potential("bent", -(a**2))


def inflated() -> None:
    psi, a = pm.Beta("psi", 2, 2), pm.Normal("a", 0, 1)
    pm.ZeroInflatedPoisson("y", psi, pt.exp(a), observed=YC)


def censored() -> None:
    a, s = pm.Normal("a", 0, 1), pm.HalfCauchy("s", 1)
    pm.Censored(
        "y", pm.Normal.dist(a, s), lower=-1, upper=None, observed=np.maximum(Y, -1)
    )


CASES: dict[str, tuple[Callable[[], None], tuple[str, ...]]] = {
    "regression": (regression, ("sigma",)),
    "multilevel": (multilevel, ("tau",)),
    "mixture": (mixture, ("w",)),
    "logistic": (logistic, ()),
    "counts": (counts, ("alpha",)),
    "categories": (categories, ()),
    "ordinal": (ordinal, ("c",)),
    "robust": (robust, ("mu", "nu", "s")),
    "measurement error": (measurement_error, ()),
    "inflated": (inflated, ("psi",)),
    "censored": (censored, ("s",)),
}


def made(build: Callable[[], None], **given: Any) -> tuple[Any, sgmcmc.PyMCModel]:
    with pm.Model(coords={"groups": range(5), "row": range(40)}) as model:
        build()
    return model, sgmcmc.from_pymc(model, **given)


@pytest.mark.parametrize("name", CASES)
def test_densities_are_those_of_pymc(name: str) -> None:
    build, constrained = CASES[name]
    rows = ["y", "z"] if name == "measurement error" else None
    theirs, model = made(build, rows=rows)
    assert tuple(sorted(model.bijectors)) == constrained
    point = theirs.initial_point()
    point = {
        n: np.asarray(v + 0.3 * rng.normal(size=np.shape(v))) for n, v in point.items()
    }
    params, jacobian = {}, 0.0
    for variable in theirs.free_RVs:
        value = tf.constant(point[theirs.rvs_to_values[variable].name], tf.float32)
        if variable.name in constrained:
            bijector = model.bijectors[variable.name]
            rank = value.shape.rank
            jacobian += float(
                bijector.forward_log_det_jacobian(value, event_ndims=rank)
            )
            value = bijector.forward(tf.identity(value))
        params[variable.name] = value
    terms = model.log_lik(params, model.dataset)
    found = float(tf.reduce_sum(terms) + model.log_prior(params)) + jacobian
    np.testing.assert_allclose(found, theirs.compile_logp()(point), rtol=2e-5)
    some = np.array([5, 1, 1, 3])
    part = {
        n: tf.gather(tf.convert_to_tensor(a), some) for n, a in model.dataset.items()
    }
    np.testing.assert_allclose(
        model.log_lik(params, part), terms.numpy()[some], rtol=1e-4
    )


def weights() -> None:
    w = pm.Dirichlet("w", np.ones(3))
    pm.Normal("y", w[0] - w[1], 1.0, observed=Y)


@pytest.mark.parametrize(
    ("build", "name"), [(ordinal, "c"), (weights, "w"), (robust, "s")]
)
def test_transforms_of_many_draws_are_those_of_each(
    build: Callable[[], None], name: str
) -> None:
    """Draws have leading axes; the functions of a transform are of one value."""
    bijector = made(build)[1].bijectors[name]
    free = bijector.inverse_event_shape(np.shape(made(build)[1].params[name]))
    u = tf.constant(rng.normal(size=(2, 4, *free)), tf.float32)
    together, rank = bijector.forward(u), len(free)
    np.testing.assert_allclose(bijector.inverse(tf.identity(together)), u, atol=1e-4)
    found = bijector.forward_log_det_jacobian(u, event_ndims=rank)
    assert found.shape == (2, 4)
    for i, k in np.ndindex(2, 4):
        np.testing.assert_allclose(together[i, k], bijector.forward(u[i, k]), rtol=1e-5)
        each = bijector.forward_log_det_jacobian(u[i, k], event_ndims=rank)
        np.testing.assert_allclose(found[i, k], each, rtol=1e-5, atol=1e-5)


def test_columns_have_names() -> None:
    assert sorted(made(regression)[1].dataset) == ["constant_1", "y"]
    assert sorted(made(multilevel)[1].dataset) == ["g", "x", "y"]


def test_posterior_is_right() -> None:
    def build() -> None:
        pm.Normal("y", pm.Normal("mu", 0, 10), 1.0, observed=Y)

    samples = made(build)[1].sample(seed=1, verbose=False)
    precision = 40 + 0.01
    assert abs(samples["mu"].mean() - Y.sum() / precision) < 0.2 / np.sqrt(precision)
    assert abs(samples["mu"].std() * np.sqrt(precision) - 1) < 0.15


def test_prior_predictive_and_calibration() -> None:
    model = made(regression)[1]
    draws = model.prior_predictive(500, seed=1)
    assert draws["y"].shape == (500, 40) and draws["a"].shape == (500,)
    means = draws["a"][:, None] + draws["b"][:, None] * X[:, 0]
    z = (draws["y"] - means) / draws["sigma"][:, None]
    assert abs(z.mean()) < 5 / np.sqrt(z.size) and abs(z.std() - 1) < 0.04
    found = sgmcmc.sbc(
        model, 2, draws=3, seed=1, verbose=False,
        fit=lambda one, seed: sgmcmc.Samples({n: np.zeros(10) for n in one.params}),
    )  # fmt: skip
    assert sorted(found.ranks) == ["a", "b", "sigma"]


def test_local_variables_are_groups() -> None:
    model = made(multilevel, groups={"g": "u"})[1]
    assert sorted(model.params) == ["b", "tau"] and model.local == ("u",)
    params, effects = (
        {"b": np.full(3, 0.3, F), "tau": F(0.7)},
        rng.normal(size=40).astype(F),
    )
    terms = model.log_lik({**params, "u": effects}, model.dataset)
    expected = st.norm.logpdf(Y, 0.3 * X.sum(1) + effects)
    np.testing.assert_allclose(terms, expected, rtol=1e-4, atol=1e-5)
    (group,) = model.groups
    some = {"u": tf.constant(effects[:7])}
    expected = st.norm.logpdf(effects[:7], 0, 0.7)
    np.testing.assert_allclose(group.log_prior(some, params), expected, rtol=1e-5)
    by_hand = 3 * st.norm.logpdf(0.3, 0, 5) + st.halfnorm.logpdf(0.7)
    np.testing.assert_allclose(model.log_prior(params), by_hand, rtol=1e-5)


def test_double_precision() -> None:
    model = made(regression, dtype=tf.float64)[1]
    params = {"a": np.float64(1 / 3), "b": np.float64(0.1), "sigma": np.float64(1.5)}
    expected = st.norm.logpdf(Y, 1 / 3 + X[:, 0] / 10, 1.5)
    np.testing.assert_allclose(
        model.log_lik(params, model.dataset), expected, rtol=1e-12
    )


def _wrong(add: Callable[[Any], Any]) -> Callable[[], None]:
    def build() -> None:
        b = pm.Normal("b", 0, 1)
        add(b)
        pm.Normal("y", b * X[:, 0], 1.0, observed=Y)

    return build


def _process() -> None:
    s = pm.HalfNormal("s", 1.0)
    near = np.exp(-((X[:, None, 0] - X[:, 0]) ** 2)) + s * np.eye(40)
    pm.MvNormal("y", np.zeros(40), cov=near, observed=Y)


def _walk() -> None:
    pm.GaussianRandomWalk("y", sigma=pm.HalfNormal("s", 1.0), observed=Y,
                          init_dist=pm.Normal.dist(0, 1))  # fmt: skip


def _by_row() -> None:
    pm.Normal("y", pm.Normal("u", 0, 1, shape=40), 1.0, observed=Y)


REFUSED: list[tuple[Callable[[], None], dict[str, Any], str]] = [
    (_process, {}, "rows of 'y' are not independent"),
    (_walk, {}, "rows of 'y' are not independent"),
    (_by_row, {}, "'u' has a value for each row"),
    (_wrong(lambda b: pm.Bernoulli("k", 0.5)), {}, "'k' is discrete"),
    (_wrong(lambda b: pm.Uniform("k", b, b + 1)), {}, "support of 'k' depends"),
    (
        _wrong(lambda b: pm.Potential("p", pt.sum(b * X[:, 0]))),
        {},
        "pm.Potential, depends on",
    ),
    (regression, {"rows": "y"}, r"write rows=\['y'\]"),
    (regression, {"rows": ["z"]}, "'z' is not among what is observed"),
    (measurement_error, {}, "'total' is a single number"),
    (lambda: pm.Normal("y", 0, 1, observed=Y), {}, "none is left to sample"),
    (lambda: pm.Normal("b", 0, 1), {}, "must have an observed variable"),
    (multilevel, {"groups": {"x": "u"}}, r"`data\['x'\]` must be a vector of integers"),
]


@pytest.mark.parametrize("build, given, message", REFUSED)
def test_refusals(
    build: Callable[[], None], given: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        made(build, **given)


def test_what_is_no_model() -> None:
    with pytest.raises(TypeError, match="`model` must be a pymc.Model"):
        sgmcmc.from_pymc(regression)
