"""A gallery of models of NumPyro, each with the log density that NumPyro gives it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import sgmcmc
from sgmcmc.bridges.jax_functions import in_precision
from tests.bridges.gallery import (
    F8,
    N,
    X,
    Y,
    assert_densities,
    binary,
    counts,
    g,
    generator,
    h,
    hits,
    kinds,
    p,
    parts,
    positive,
    t,
    trials,
    x,
    y,
)

numpyro = pytest.importorskip("numpyro")
jax = pytest.importorskip("jax")
dist, jnp = pytest.importorskip("numpyro.distributions"), jax.numpy
util = pytest.importorskip("numpyro.infer.util")
reparam = pytest.importorskip("numpyro.infer.reparam")
flow = pytest.importorskip("numpyro.contrib.control_flow")

shown = x > -0.5
s = numpyro.sample


class Case(NamedTuple):
    model: Callable[..., Any]
    data: dict[str, Any]
    fixed: dict[str, Any] = {}


GALLERY: list[Case] = []


def case(*, fixed: dict[str, Any] | None = None, **data: Any) -> Callable[[Any], Any]:
    """Add a model to the gallery, with its data."""

    def add(model: Callable[..., Any]) -> Callable[..., Any]:
        GALLERY.append(Case(model, data, fixed or {}))
        return model

    return add


def rows(values: Any) -> Any:
    return numpyro.plate("rows", len(values))


@case(x=X, y=y)
def linear(x: Any, y: Any) -> None:
    b = s("b", dist.Normal(0, 5).expand([3]).to_event(1))
    sigma = s("sigma", dist.HalfNormal(2.0))
    with rows(x):
        s("y", dist.Normal(x @ b, sigma), obs=y)


@case(x=X, y=binary)
def logistic(x: Any, y: Any) -> None:
    b = s("b", dist.Laplace(jnp.zeros(3), 1.0))
    s("y", dist.Bernoulli(logits=x @ b), obs=y)


@case(x=x, y=y, g=g, fixed={"groups": 5})
def varying_intercepts(x: Any, y: Any, g: Any, groups: int) -> None:
    mu, tau = s("mu", dist.Normal(0, 1)), s("tau", dist.HalfCauchy(1.0))
    with numpyro.plate("groups", groups):
        u = s("u", dist.Normal(mu, tau))
    with rows(x):
        s("y", dist.Normal(u[g], 1.0), obs=y)


@case(x=x, y=y, g=g, h=h)
def crossed(x: Any, y: Any, g: Any, h: Any) -> None:
    sd = s("sd", dist.Exponential(jnp.ones(2)).to_event(1))
    with numpyro.plate("G", 5):
        u = s("u", dist.Normal(0, sd[0]))
    with numpyro.plate("H", 4):
        v = s("v", dist.StudentT(4.0, 0, sd[1]))
    with rows(x):
        s("y", dist.Normal(u[g] + v[h], 1.0), obs=y)


@case(y=y, g=g, h=h)
def nested_plates(y: Any, g: Any, h: Any) -> None:
    with numpyro.plate("H", 4, dim=-1):
        m = s("m", dist.Normal(0, 1))
        with numpyro.plate("G", 5, dim=-2):
            u = s("u", dist.Normal(m, 0.5))
    with rows(y):
        s("y", dist.Normal(u[g, h], 1.0), obs=y)


@case(x=x, y=y, g=g)
def correlated_slopes(x: Any, y: Any, g: Any) -> None:
    L, sd = s("L", dist.LKJCholesky(2, 2.0)), s("sd", dist.HalfNormal(jnp.ones(2)))
    with numpyro.plate("groups", 5):
        u = s("u", dist.MultivariateNormal(jnp.zeros(2), scale_tril=sd[:, None] * L))
    with rows(x):
        s("y", dist.Normal(u[g, 0] + u[g, 1] * x, 1.0), obs=y)


@case(y=Y)
def outcomes_in_columns(y: Any) -> None:
    m = s("m", dist.Normal(0, 1).expand([3]))
    with numpyro.plate("items", 3, dim=-1), numpyro.plate("rows", len(y), dim=-2):
        s("y", dist.Normal(m, 1.0), obs=y)


@case(y=Y)
def outcomes_last(y: Any) -> None:
    m = s("m", dist.Normal(0, 1).expand([3]))
    with numpyro.plate("rows", len(y), dim=-1), numpyro.plate("items", 3, dim=-2):
        s("y", dist.Normal(m[:, None], 1.0), obs=y.T)


@case(y=Y)
def multivariate(y: Any) -> None:
    m, L = (
        s("m", dist.Normal(0, 1).expand([3]).to_event(1)),
        s("L", dist.LKJCholesky(3)),
    )
    with rows(y):
        s("y", dist.MultivariateNormal(m, scale_tril=L), obs=y)


@case(y=Y)
def low_rank(y: Any) -> None:
    w = s("w", dist.Normal(jnp.zeros((3, 1)), 1.0).to_event(2))
    d = s("d", dist.Gamma(2.0, jnp.ones(3)).to_event(1))
    with rows(y):
        s("y", dist.LowRankMultivariateNormal(jnp.zeros(3), w, d), obs=y)


@case(y=parts)
def multinomial(y: Any) -> None:
    w = s("w", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    with rows(y):
        s("y", dist.Multinomial(6, w), obs=y)


@case(y=parts)
def dirichlet_multinomial(y: Any) -> None:
    a = s("a", dist.LogNormal(jnp.zeros(3), 1.0).to_event(1))
    with rows(y):
        s("y", dist.DirichletMultinomial(a, 6), obs=y)


@case(x=X, y=kinds)
def softmax(x: Any, y: Any) -> None:
    b = s("b", dist.Normal(0, 1).expand([3, 2]).to_event(2))
    logits = jnp.concatenate([jnp.zeros((len(x), 1)), x @ b], 1)
    s("y", dist.Categorical(logits=logits), obs=y)


@case(x=x, y=kinds)
def ordinal(x: Any, y: Any) -> None:
    ordered = dist.transforms.OrderedTransform()
    base = dist.Normal(jnp.zeros(2), 1).to_event(1)
    c, b = (
        s("c", dist.TransformedDistribution(base, ordered)),
        s("b", dist.Normal(0, 1)),
    )
    s("y", dist.OrderedLogistic(b * x, c), obs=y)


@case(y=y)
def mixture(y: Any) -> None:
    w = s("w", dist.Dirichlet(jnp.ones(3)))
    m = s("m", dist.Normal(jnp.arange(3.0), 1.0).to_event(1))
    with rows(y):
        s(
            "y",
            dist.MixtureSameFamily(dist.Categorical(probs=w), dist.Normal(m, 0.7)),
            obs=y,
        )


@case(x=x, y=y)
def mixture_with_weights_by_row(x: Any, y: Any) -> None:
    a, m = s("a", dist.Normal(0, 1)), s("m", dist.Normal(jnp.array([-1.0, 1.0]), 1.0))
    p = jax.nn.sigmoid(a * x)
    several = [dist.Normal(m[0], 1.0), dist.StudentT(3.0, m[1], 1.0)]
    mixing = dist.Categorical(probs=jnp.stack([p, 1 - p], -1))
    s("y", dist.MixtureGeneral(mixing, several), obs=y)


@case(x=x, y=counts)
def negative_binomial(x: Any, y: Any) -> None:
    b, c = s("b", dist.Normal(0, 1)), s("c", dist.InverseGamma(2.0, 1.0))
    s("y", dist.NegativeBinomial2(jnp.exp(b * x), c), obs=y)


@case(y=counts)
def zero_inflated(y: Any) -> None:
    gate, rate = s("gate", dist.Beta(2.0, 2.0)), s("rate", dist.Gamma(2.0, 1.0))
    with rows(y):
        s("y", dist.ZeroInflatedPoisson(gate, rate), obs=y)


@case(y=hits, n=trials)
def beta_binomial(y: Any, n: Any) -> None:
    a, b = s("a", dist.Gamma(2.0, 1.0)), s("b", dist.Pareto(0.1, 1.5))
    with rows(y):
        s("y", dist.BetaBinomial(a, b, n), obs=y)


@case(y=hits, n=trials, x=x)
def binomial(y: Any, n: Any, x: Any) -> None:
    a = s("a", dist.Cauchy(0.0, 2.5))
    s("y", dist.Binomial(n, logits=a + x), obs=y)


@case(y=p, x=x)
def beta_regression(y: Any, x: Any) -> None:
    b, phi = s("b", dist.Normal(0, 1)), s("phi", dist.Gamma(1.0, 0.1))
    m = jax.nn.sigmoid(b * x)
    s("y", dist.Beta(m * phi, (1 - m) * phi), obs=y)


@case(y=positive, x=x)
def gamma_regression(y: Any, x: Any) -> None:
    b, shape = s("b", dist.Normal(0, 1)), s("shape", dist.Uniform(0.1, 20.0))
    s("y", dist.Gamma(shape, shape / jnp.exp(b * x)), obs=y)


@case(y=positive, x=x, seen=shown)
def censored_weibull(y: Any, x: Any, seen: Any) -> None:
    b, k = s("b", dist.Normal(0, 1)), s("k", dist.LogNormal(0.0, 0.5))
    hazard = (y / jnp.exp(b * x)) ** k
    with rows(x):
        with numpyro.handlers.mask(mask=seen):
            s("died", dist.Weibull(jnp.exp(b * x), k), obs=y)
        with numpyro.handlers.mask(mask=~seen):
            numpyro.factor("alive", -hazard)


@case(y=np.maximum(y, -1.0), x=x)
def censored_by_where(y: Any, x: Any) -> None:
    b, sd = s("b", dist.Normal(0, 1)), s("sd", dist.HalfNormal(1.0))
    law = dist.Normal(b * x, sd)
    with rows(x):
        numpyro.factor(
            "y", jnp.where(y > -1.0, law.log_prob(y), jnp.log(law.cdf(-1.0)))
        )


@case(y=np.clip(y, -0.9, 3.0), x=x)
def truncated(y: Any, x: Any) -> None:
    b = s("b", dist.Normal(0, 1))
    s("y", dist.TruncatedNormal(b * x, 1.0, low=-1.0), obs=y)


@case(y=y % np.pi, x=x)
def angles(y: Any, x: Any) -> None:
    m, k = s("m", dist.Uniform(-3.0, 3.0)), s("k", dist.Exponential(1.0))
    with rows(x):
        s("y", dist.VonMises(m, k), obs=y)


@case(y=y, m=shown)
def masked_rows(y: Any, m: Any) -> None:
    mu = s("mu", dist.Normal(0, 1))
    with rows(y), numpyro.handlers.mask(mask=m):
        s("y", dist.Normal(mu, 1.0), obs=y)


@case(y=y)
def masked_prior(y: Any) -> None:
    with numpyro.handlers.mask(mask=jnp.array([True, False, True])):
        m = s("m", dist.Normal(0, 1).expand([3]))
    with rows(y):
        s("y", dist.Normal(m.sum(), 1.0), obs=y)


@case(y=y, w=np.exp(x))
def weighted(y: Any, w: Any) -> None:
    mu = s("mu", dist.Normal(0, 1))
    with rows(y), numpyro.handlers.scale(scale=w):
        s("y", dist.Normal(mu, 1.0), obs=y)


@case(y=y)
def scaled_prior(y: Any) -> None:
    sd = s("sd", dist.Gamma(2.0, 2.0))
    with numpyro.handlers.scale(scale=0.5):
        mu = s("mu", dist.Normal(0, 1))
        with rows(y), numpyro.handlers.scale(scale=3.0):
            s("y", dist.Normal(mu, sd), obs=y)


@case(y=y, x=x)
def factor_by_row(y: Any, x: Any) -> None:
    b = s("b", dist.ImproperUniform(dist.constraints.real, (), ()))
    with rows(x):
        numpyro.factor("y", -jnp.abs(y - b * x))


@case(y=y)
def factor_of_parameters(y: Any) -> None:
    m = s("m", dist.Normal(jnp.zeros(4), 1.0))
    numpyro.factor("soft", -50.0 * m.sum() ** 2)
    with rows(y):
        s("y", dist.Normal(m[0] - m[1], 1.0), obs=y)


@case(x=x, y=y)
def prior_by_number_of_rows(x: Any, y: Any) -> None:
    b, sd = s("b", dist.Normal(0, 1 / jnp.sqrt(len(x)))), s("sd", dist.HalfNormal(1.0))
    numpyro.factor("reference", -len(x) * jnp.log(sd))
    with rows(x):
        s("y", dist.Normal(b * x, sd), obs=y)


@case(x=x, y=y)
def support_by_number_of_rows(x: Any, y: Any) -> None:
    change = s("change", dist.Uniform(0.0, len(x)))
    with rows(x):
        s("y", dist.Normal(jnp.tanh(change / 60) * x, 1.0), obs=y)


@case(x=x, y=y, c=counts)
def two_outcomes(x: Any, y: Any, c: Any) -> None:
    a, b = s("a", dist.Normal(0, 1)), s("b", dist.Normal(0, 1))
    with rows(x):
        s("y", dist.Normal(a * x, 1.0), obs=y)
        s("c", dist.Poisson(jnp.exp(a + b * y)), obs=c)


@case(x=x, y=y, fixed={"other": generator().normal(size=17)})
def outcomes_of_two_lengths(x: Any, y: Any, other: Any) -> None:
    m, v = s("m", dist.Normal(0, 1)), s("v", dist.InverseGamma(3.0, 1.0))
    with numpyro.plate("others", len(other)):
        s("other", dist.Normal(m, jnp.sqrt(v)), obs=other)
    with rows(x):
        s("y", dist.Normal(m * x, jnp.sqrt(v)), obs=y)


@case(y=y, t=t)
def latent_walk_by_scan(y: Any, t: Any) -> None:
    sd = s("sd", dist.HalfNormal(1.0))

    def step(z: Any, _: Any) -> Any:
        z = s("z", dist.Normal(0.9 * z, sd))
        return z, z

    _, z = flow.scan(step, 0.0, None, length=6)
    with rows(y):
        s("y", dist.Normal(z[t], 1.0), obs=y)


@case(y=y, t=t)
def latent_walk(y: Any, t: Any) -> None:
    z = s("z", dist.GaussianRandomWalk(0.5, num_steps=6))
    with rows(y):
        s("y", dist.Normal(z[t], 1.0), obs=y)


@case(y=y, t=t)
def loop_of_jax(y: Any, t: Any) -> None:
    a, e = s("a", dist.Beta(2.0, 2.0)), s("e", dist.Normal(jnp.zeros(6), 1.0))
    _, z = jax.lax.scan(lambda z, e: (a * z + e, a * z + e), 0.0, e)
    with rows(y):
        s("y", dist.Normal(z[t], 1.0), obs=y)


@case(x=x, y=y, g=g)
def noncentered_by_reparam(x: Any, y: Any, g: Any) -> None:
    mu, tau = s("mu", dist.Normal(0, 1)), s("tau", dist.HalfNormal(1.0))
    with numpyro.handlers.reparam(config={"u": reparam.LocScaleReparam(0)}):
        with numpyro.plate("groups", 5):
            u = s("u", dist.Normal(mu, tau))
    with rows(x):
        s("y", dist.Normal(u[g] * x, 1.0), obs=y)


@case(x=X, y=y)
def horseshoe(x: Any, y: Any) -> None:
    tau, lam = s("tau", dist.HalfCauchy(0.1)), s("lam", dist.HalfCauchy(jnp.ones(3)))
    z = s("z", dist.Normal(jnp.zeros(3), 1.0))
    b = numpyro.deterministic("b", tau * lam * z)
    with rows(x):
        s("y", dist.StudentT(4.0, x @ b, 1.0), obs=y)


@case(x=x, y=y, g=np.where(g == 4, -1, g))
def negative_codes_count_from_the_end(x: Any, y: Any, g: Any) -> None:
    u = s("u", dist.Normal(jnp.zeros(5), 1.0))
    with rows(x):
        s("y", dist.Normal(u[g], 1.0), obs=y)


@case(x=np.round(4e9 + 1e9 * x).astype(np.int64), y=y)
def long_integers(x: Any, y: Any) -> None:
    b = s("b", dist.Normal(0, 1))
    with rows(x):
        s("y", dist.Normal(b * (x - 4_000_000_000) / 1e9, 1.0), obs=y)


@pytest.mark.some(12)
@pytest.mark.parametrize("case", GALLERY, ids=lambda case: case.model.__name__)
def test_densities_are_those_of_numpyro(case: Case) -> None:
    def theirs(free: dict[str, Any], params: dict[str, Any]) -> float:
        with in_precision(True):
            data = {name: jnp.asarray(values) for name, values in case.data.items()}
            values = {name: jnp.asarray(u) for name, u in free.items()}
            energy = util.potential_energy(
                case.model, (), {**data, **case.fixed}, values
            )
            return -float(energy)

    model = sgmcmc.from_numpyro(case.model, case.data, fixed=case.fixed, dtype=F8)
    assert_densities(model, theirs)


def of_mean(mean: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return a model of rows whose mean depends on b and the covariates."""

    def model(x: Any, y: Any) -> None:
        b = s("b", dist.Normal(0, 1))
        with rows(x):
            s("y", dist.Normal(mean(b, x), 1.0), obs=y)

    return model


def added(part: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    """Return a model with a further factor."""

    def model(x: Any, y: Any) -> None:
        b = s("b", dist.Normal(0, 1))
        with rows(x):
            s("y", dist.Normal(b * x, 1.0), obs=y)
        numpyro.factor("more", part(b, x, y))

    return model


def scanned(x: Any, y: Any) -> None:
    sd = s("sd", dist.HalfNormal(1.0))

    def step(before: Any, value: Any) -> Any:
        s("y", dist.Normal(before, sd), obs=value)
        return value, None

    flow.scan(step, 0.0, y)


def half_masked(x: Any, y: Any) -> None:
    b = s("b", dist.Normal(0, 1))
    with rows(x):
        s("y", dist.Normal(b * x, 1.0), obs=y, obs_mask=x > 0)


def scaled_by_size(x: Any, y: Any) -> None:
    b = s("b", dist.Normal(0, 1))
    with rows(x), numpyro.handlers.scale(scale=N / len(x)):
        s("y", dist.Normal(b * x, 1.0), obs=y)


def by_code(x: Any, y: Any) -> None:
    u = s("u", dist.Normal(jnp.zeros(5), 1.0))
    with rows(x):
        s("y", dist.Normal(u[x], 1.0), obs=y)


MIDDLE = np.where((np.arange(N) > 10) & (np.arange(N) < 50), 3.0, 0.0)
NOT_ROWS, PRIOR = (
    "rows of 'y' are not independent",
    "density of its parameters depends on the rows",
)
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (of_mean(lambda b, x: b * (x - x.mean())), {}, NOT_ROWS),
    (of_mean(lambda b, x: b * jnp.cumsum(x)), {}, NOT_ROWS),
    (of_mean(lambda b, x: b * jnp.append(0.0, x[:-1])), {}, NOT_ROWS),
    (of_mean(lambda b, x: b * x / len(x)), {}, NOT_ROWS),
    (scaled_by_size, {}, NOT_ROWS),
    (scanned, {}, NOT_ROWS),
    (added(lambda b, x, y: -jnp.sum((b - x) ** 2)), {"x": MIDDLE}, PRIOR),
    (added(lambda b, x, y: -b * x[0]), {}, PRIOR),
    (
        of_mean(lambda b, x: b * x**2 / 1e9),
        {"x": 30_000 * g},
        "products of integers wrap",
    ),
    (half_masked, {}, "the values that `obs_mask` leaves out"),
    (by_code, {"x": np.where(x > 1, 9, g)}, "'x' 0 to 9; groups are counted from 0"),
    (
        by_code,
        {"x": np.where(x > 1, 2**31, g)},
        r"beyond the 2\*\*31 of single precision",
    ),
    (
        added(lambda b, x, y: 0.0),
        {"y": np.where(x > 1, np.nan, y)},
        r"`data\['y'\]` holds NaN",
    ),
    (added(lambda b, x, y: 0.0), {"y": 1e39 * y}, "beyond the range of float32"),
    (
        added(lambda b, x, y: 0.0),
        {"y": np.ma.masked_greater(y, 1.0)},
        "has masked values",
    ),
]


@pytest.mark.parametrize("model, data, message", REFUSED)
def test_refusals(model: Any, data: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sgmcmc.from_numpyro(model, {"x": x, "y": y, **data})


@pytest.mark.parametrize("kind", ["factor", "observed mean"])
def test_other_terms_that_read_effects_are_named(kind: str) -> None:
    def model(g: Any, y: Any) -> None:
        m = s("m", dist.Normal(0, 1))
        with numpyro.plate("groups", 5):
            u = s("u", dist.Normal(m, 1.0))
        if kind == "factor":
            numpyro.factor("soft", -50.0 * u.sum() ** 2)
        else:
            s("soft", dist.Normal(u.mean(), 0.01), obs=0.0)
        with rows(y):
            s("y", dist.Normal(u[g], 1.0), obs=y)

    with pytest.raises(ValueError, match="'u' cannot be effects .* that of 'soft'"):
        sgmcmc.from_numpyro(model, {"g": g, "y": y}, groups={"g": "u"})


def test_long_integers_of_fixed_arguments() -> None:
    def model(x: Any, y: Any, start: Any) -> None:
        b = s("b", dist.Normal(0, 1))
        with rows(x):
            s("y", dist.Normal(b * (x - start[0]), 1.0), obs=y)

    with pytest.raises(ValueError, match=r"`fixed\['start'\]` holds integers"):
        sgmcmc.from_numpyro(model, {"x": x, "y": y}, fixed={"start": np.array([2**31])})
