"""A gallery of models of PyMC, each with the log density that PyMC gives it."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import sgmcmc
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

pm = pytest.importorskip("pymc", minversion="6")
jax = pytest.importorskip("jax")
pt = pytest.importorskip("pytensor.tensor")

rng = generator()
weights = rng.dirichlet([1.0, 1.0], N)


@pytest.fixture(scope="module", autouse=True)
def precision_as_it_was() -> Iterator[None]:
    """PyTensor switches JAX to double precision for the whole process, other tests included."""
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


GALLERY: dict[str, tuple[Callable[[], Any], list[str] | None]] = {}


def case(rows: list[str] | None = None) -> Callable[[Any], Any]:
    """Add a model to the gallery, with the names of its observed variables with rows."""

    def add(build: Callable[[], Any]) -> Callable[[], Any]:
        GALLERY[build.__name__] = build, rows
        return build

    return add


def normal(name: str = "b", **given: Any) -> Any:
    return pm.Normal(name, 0, 1, **given)


@case()
def linear() -> None:
    b, sd = normal(shape=3), pm.HalfNormal("sd", 2)
    pm.Normal("y", pm.Data("X", X) @ b, sd, observed=y)


@case()
def logistic() -> None:
    pm.Bernoulli("y", logit_p=X @ pm.Laplace("b", 0, 1, shape=3), observed=binary)


@case()
def varying_intercepts() -> None:
    u = pm.Normal("u", normal("mu"), pm.HalfCauchy("tau", 1), shape=5)
    pm.Normal("y", u[pm.Data("g", g)], 1.0, observed=y)


@case()
def crossed() -> None:
    sd = pm.Exponential("sd", 1, shape=2)
    u, v = (
        pm.Normal("u", 0, sd[0], shape=5),
        pm.StudentT("v", nu=4, mu=0, sigma=sd[1], shape=4),
    )
    pm.Normal("y", u[g] + v[h], 1.0, observed=y)


@case()
def effects_of_pairs() -> None:
    u = pm.Normal("u", normal("m", shape=4), 0.5, shape=(5, 4))
    pm.Normal("y", u[g, h], 1.0, observed=y)


@case()
def correlated_slopes() -> None:
    L, _, _ = pm.LKJCholeskyCov(
        "L", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0, shape=2)
    )
    u = normal("z", shape=(5, 2)) @ L.T
    pm.Normal("y", u[g, 0] + u[g, 1] * x, 1.0, observed=y)


@case()
def outcomes_in_columns() -> None:
    pm.Normal("y", normal("m", shape=3), 1.0, observed=Y)


@case()
def multivariate() -> None:
    L = pm.LKJCholeskyCov("L", n=3, eta=1.0, sd_dist=pm.HalfNormal.dist(1.0, shape=3))[
        0
    ]
    pm.MvNormal("y", normal("m", shape=3), chol=L, observed=Y)


@case()
def means_by_row() -> None:
    pm.MvNormal("y", x[:, None] * normal("m", shape=3), cov=np.eye(3), observed=Y)


@case()
def multinomial() -> None:
    pm.Multinomial("y", 6, pm.Dirichlet("w", np.array([1.0, 2.0, 3.0])), observed=parts)


@case()
def dirichlet_multinomial() -> None:
    pm.DirichletMultinomial("y", 6, pm.LogNormal("a", 0, 1, shape=3), observed=parts)


@case()
def softmax() -> None:
    logits = pt.concatenate([pt.zeros((N, 1)), X @ normal(shape=(3, 2))], axis=1)
    pm.Categorical("y", logit_p=logits, observed=kinds)


@case()
def mixture() -> None:
    w, m = pm.Dirichlet("w", np.ones(3)), pm.Normal("m", np.arange(3.0), 1.0)
    pm.NormalMixture("y", w, m, 0.7, observed=y)


@case()
def mixture_with_weights_by_row() -> None:
    m = normal("m", shape=2)
    several = [
        pm.Normal.dist(m[0], 1.0),
        pm.StudentT.dist(nu=3, mu=m[1] * x, sigma=1.0),
    ]
    pm.Mixture("y", weights, several, observed=y)


@case()
def mixture_with_computed_weights() -> None:
    p, m = pm.math.sigmoid(normal("a") * x), normal("m", shape=2)
    pm.NormalMixture("y", pt.stack([p, 1 - p], axis=-1), m, 1.0, observed=y)


@case()
def censored_by_row() -> None:
    lower, upper = -1 - np.abs(x), np.full(N, 1.0)
    law = pm.Normal.dist(normal() * x, pm.HalfNormal("sd", 1))
    pm.Censored("y", law, lower=lower, upper=upper, observed=np.clip(y, lower, upper))


@case()
def censored_counts() -> None:
    law = pm.Poisson.dist(pt.exp(normal() * x))
    pm.Censored(
        "y",
        law,
        lower=None,
        upper=pm.Data("top", 3 + g),
        observed=np.minimum(counts, 3),
    )


@case()
def truncated_counts() -> None:
    m = pm.HalfNormal("m", 1)
    law = pm.Poisson.dist(m * np.exp(x))
    pm.Truncated("y", law, lower=1, observed=np.maximum(counts, 1))


@case()
def truncated_by_row() -> None:
    law = pm.Normal.dist(normal() * x, 1.0)
    pm.Truncated("y", law, lower=-4 - np.abs(x), upper=np.full(N, 5.0), observed=y)


@case()
def truncated_normal() -> None:
    pm.TruncatedNormal("y", normal() * x, 1.0, lower=-4 - np.abs(x), observed=y)


@case()
def hurdle() -> None:
    pm.HurdlePoisson("y", pm.Beta("psi", 2, 2), pt.exp(normal() * x), observed=counts)


@case()
def hurdle_gamma() -> None:
    psi = pm.math.sigmoid(normal("a") * x)
    pm.HurdleGamma(
        "y", psi, alpha=2.0, beta=pt.exp(normal() * x), observed=positive * binary
    )


@case()
def zero_inflated() -> None:
    psi, alpha = pm.math.sigmoid(normal("a") * x), pm.Gamma("alpha", 2, 1)
    mu = pt.exp(normal())
    pm.ZeroInflatedNegativeBinomial("y", psi=psi, mu=mu, alpha=alpha, observed=counts)


@case()
def beta_binomial() -> None:
    pm.BetaBinomial(
        "y", pm.Gamma("a", 2, 1), pm.Gamma("b", 2, 1), n=trials, observed=hits
    )


@case()
def binomial() -> None:
    pm.Binomial("y", trials, logit_p=pm.Cauchy("a", 0, 2.5) + x, observed=hits)


@case()
def beta_regression() -> None:
    mu = pm.math.sigmoid(normal() * x)
    pm.Beta("y", mu=mu, nu=pm.Gamma("phi", 1, 0.1), observed=p)


@case()
def gamma_regression() -> None:
    pm.Gamma(
        "y", mu=pt.exp(normal() * x), sigma=pm.Uniform("sd", 0.1, 20), observed=positive
    )


@case()
def weibull_with_censoring() -> None:
    b, k = normal(), pm.LogNormal("k", 0, 0.5)
    law = pm.Weibull.dist(k, pt.exp(b * x))
    pm.Censored("y", law, lower=None, upper=1.5, observed=np.minimum(positive, 1.5))


@case()
def ordinal() -> None:
    ordered = pm.distributions.transforms.ordered
    c = pm.Normal("c", 0, 2, shape=2, transform=ordered, initval=np.array([-1.0, 1.0]))
    pm.OrderedProbit(
        "y", eta=normal() * x, cutpoints=c, compute_p=False, observed=kinds
    )


@case()
def own_density() -> None:
    def logp(value: Any, b: Any) -> Any:
        return -pt.abs(value - b * x) - np.log(2.0)

    pm.CustomDist("y", normal(), logp=logp, observed=y)


@case()
def own_generator() -> None:
    def law(b: Any, size: Any) -> Any:
        return pm.Normal.dist(b, 1.0, size=size) * 2.0

    pm.CustomDist("y", normal() * x, dist=law, observed=y)


@case(rows=["y", "c"])
def two_outcomes() -> None:
    """The second is a function of the first; a third has no rows."""
    a, b = normal("a"), normal()
    seen = pm.Normal("y", a * x, 1.0, observed=y)
    pm.Poisson("c", pt.exp(a + b * seen), observed=counts)
    pm.Normal("total", a, 0.1, observed=rng.normal(size=17))


@case()
def potential_of_parameters() -> None:
    m = normal("m", shape=4)
    pm.Potential("soft", -50.0 * m.sum() ** 2)
    pm.Normal("y", m[0] - m[1], 1.0, observed=y)


@case()
def latent_walk() -> None:
    z = pm.GaussianRandomWalk("z", sigma=0.5, init_dist=pm.Normal.dist(0, 1), shape=6)
    pm.Normal("y", z[t], 1.0, observed=y)


@case()
def sums_to_zero() -> None:
    u = pm.ZeroSumNormal("u", sigma=pm.HalfNormal("tau", 1), shape=5)
    pm.Normal("y", u[g], 1.0, observed=y)


@case()
def process_of_few_places() -> None:
    places = np.linspace(0, 1, 6)[:, None]
    near = np.exp(-((places - places.T) ** 2)) + 0.1 * np.eye(6)
    z = pm.MvNormal("z", np.zeros(6), cov=pm.HalfNormal("s", 1) * near)
    pm.Normal("y", z[t], 1.0, observed=y)


@case()
def negative_codes_count_from_the_end() -> None:
    pm.Normal("y", normal("u", shape=5)[np.where(g == 4, -1, g)], 1.0, observed=y)


@case()
def prior_by_number_of_rows() -> None:
    b, sd = pm.Normal("b", 0, 1 / np.sqrt(len(x))), pm.HalfNormal("sd", 1)
    pm.Potential("reference", -len(x) * pt.log(sd))
    pm.Normal("y", b * x, sd, observed=y)


@pytest.mark.some(12)
@pytest.mark.parametrize("name", GALLERY)
def test_densities_are_those_of_pymc(name: str) -> None:
    build, rows = GALLERY[name]
    with pm.Model() as model:
        build()
    log_density = model.compile_logp(mode="FAST_COMPILE")

    def theirs(free: dict[str, Any], params: dict[str, Any]) -> float:
        point = {
            model.rvs_to_values[variable].name: np.asarray(free[variable.name])
            for variable in model.free_RVs
        }
        return float(log_density(point))

    assert_densities(sgmcmc.from_pymc(model, rows, dtype=F8), theirs)


DEPENDENT: dict[str, Callable[[Any], Any]] = {
    "centered": lambda d: normal() * (d - d.mean()),
    "lagged": lambda d: normal() * pt.concatenate([[0.0], d[:-1]]),
    "cumulated": lambda d: normal() * pt.cumsum(d),
    "ranked": lambda d: normal() * pt.argsort(pt.argsort(d)),
    "scaled by their number": lambda d: normal() * d / d.shape[0],
    "all": lambda d: normal() * d.max(),
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_rows_that_depend_on_each_other(name: str) -> None:
    """At the initial point b = 0 hides it."""
    with pm.Model() as model:
        pm.Normal("y", DEPENDENT[name](pm.Data("d", x)), 1.0, observed=y)
    with pytest.raises(ValueError, match="rows of 'y' are not independent"):
        sgmcmc.from_pymc(model)


def test_what_is_refused_by_name() -> None:
    def refused(message: str, build: Callable[[], Any], **given: Any) -> None:
        with pm.Model() as model:
            build()
        with pytest.raises(ValueError, match=message):
            sgmcmc.from_pymc(model, **given)

    gaps = np.where(np.arange(N) % 7 == 3, np.nan, y)
    refused("observed values of 'y' have missing ones",
            lambda: pm.Normal("y", normal() * x, 1.0, observed=gaps))  # fmt: skip
    refused("'constant_1' 0 to 9; groups are counted from 0",
            lambda: pm.Normal("y", normal("u", shape=5)[np.where(x > 1, 9, g)], 1, observed=y),
            )  # fmt: skip
    long = np.round(4e9 + 1e9 * x).astype(np.int64)
    refused(r"integers from \d+ to \d+, beyond the 2\*\*31 of single precision",
            lambda: pm.Normal("y", normal() * pt.as_tensor(long) / 1e9, 1.0, observed=y),
            )  # fmt: skip
    refused("products of integers wrap around",
            lambda: pm.Normal("y", normal() * pt.as_tensor(30_000 * g) ** 2 / 1e9, 1.0,
                              observed=y))  # fmt: skip
    refused("drawn at random, as by pm.Minibatch",
            lambda: pm.Normal("y", normal(), 1.0, observed=pm.Minibatch(y, batch_size=20),
                              total_size=N))  # fmt: skip
    refused(r"`y` holds NaN|`constant_1` holds NaN",
            lambda: pm.Normal("y", normal() * gaps, 1.0, observed=y))  # fmt: skip
    across = pt.as_tensor(X.T.copy())
    refused("must have the rows as their first axis",
            lambda: pm.Normal("y", (normal(shape=(3, 1)) * across).sum(0), 1.0, observed=y),
            )  # fmt: skip

    def soft() -> None:
        u = pm.Normal("u", normal("m"), 1.0, shape=5)
        pm.Potential("soft", -50 * u.sum() ** 2)
        pm.Normal("y", u[pm.Data("g", g)], 1.0, observed=y)

    refused("'u' cannot be effects .* that of 'soft'", soft, groups={"g": "u"})


def test_an_old_version_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pm, "__version__", "5.25.1")
    with pytest.raises(ImportError, match="needs PyMC 6 or newer; this is 5.25.1"):
        sgmcmc.from_pymc(None)
