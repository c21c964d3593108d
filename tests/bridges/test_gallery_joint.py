"""A gallery of joint distributions, each with the log density that TFP gives it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from tests.bridges import gallery
from tests.bridges.gallery import (
    F8,
    N,
    X,
    Y,
    assert_densities,
    binary,
    counts,
    generator,
    hits,
    kinds,
    p,
    parts,
    positive,
    x,
    y,
)

tfd, tfb = tfp.distributions, tfp.bijectors
g, h, t = (codes.astype(np.int32) for codes in (gallery.g, gallery.h, gallery.t))
trials = gallery.trials.astype(float)
ONE, Z = np.float64(1), np.float64(0)  # constants in the dtype of the parameters


class Case(NamedTuple):
    joint: Any
    observed: dict[str, Any]
    rows: list[str] | None
    data: dict[str, Any] | None


GALLERY: dict[str, Case] = {}


def case(
    rows: list[str] | None = None, data: dict[str, Any] | None = None, **observed: Any
) -> Callable[[Any], Any]:
    """Add a joint distribution: a function of covariates, or of nothing."""

    def add(make: Callable[..., Any]) -> Callable[..., Any]:
        GALLERY[make.__name__] = Case(make if data else make(), observed, rows, data)
        return make

    return add


def named(**parts: Any) -> Any:
    return tfd.JointDistributionNamedAutoBatched(parts)


def normal(*shape: int) -> Any:
    return tfd.Normal(np.zeros(shape), ONE)


@case(y=y, data={"X": X})
def linear(data: Any) -> Any:
    return named(
        b=normal(3),
        sd=tfd.HalfNormal(2 * ONE),
        y=lambda b, sd: tfd.Normal(tf.linalg.matvec(data["X"], b), sd),
    )


@case(y=y)
def linear_of_all_rows() -> Any:
    return named(b=normal(3), y=lambda b: tfd.Normal(tf.linalg.matvec(X, b), ONE))


@case(y=binary, data={"X": X})
def logistic(data: Any) -> Any:
    @tfd.JointDistributionCoroutineAutoBatched
    def joint() -> Any:
        b = yield tfd.Laplace(np.zeros(3), ONE, name="b")
        yield tfd.Bernoulli(logits=tf.linalg.matvec(data["X"], b), name="y")

    return joint


@case(y=y, data={"g": g})
def varying_intercepts(data: Any) -> Any:
    return named(
        mu=normal(),
        tau=tfd.HalfCauchy(Z, ONE),
        u=lambda mu, tau: tfd.Sample(tfd.Normal(mu, tau), 5),
        y=lambda u: tfd.Normal(tf.gather(u, data["g"]), ONE),
    )


@case(y=y, data={"g": g, "h": h})
def crossed_in_sequence(data: Any) -> Any:
    return tfd.JointDistributionSequentialAutoBatched(
        [
            tfd.Exponential(np.ones(2), name="sd"),
            lambda sd: tfd.Sample(tfd.Normal(Z, sd[0]), 5, name="u"),
            lambda u, sd: tfd.Sample(tfd.StudentT(4 * ONE, Z, sd[1]), 4, name="v"),
            lambda v, u, sd: tfd.Normal(
                tf.gather(u, data["g"]) + tf.gather(v, data["h"]), ONE, name="y"
            ),
        ]
    )


@case(y=y, data={"g": g, "h": h})
def effects_of_pairs(data: Any) -> Any:
    places = tf.stack([data["g"], data["h"]], -1)
    return named(u=normal(5, 4), y=lambda u: tfd.Normal(tf.gather_nd(u, places), ONE))


@case(y=y, data={"g": g, "x": x})
def correlated_slopes(data: Any) -> Any:
    def law(u: Any) -> Any:
        own = tf.gather(u, data["g"])
        return tfd.Normal(own[..., 0] + own[..., 1] * data["x"], ONE)

    return named(
        L=tfd.CholeskyLKJ(2, 2 * ONE),
        sd=tfd.HalfNormal(np.ones(2)),
        u=lambda L, sd: tfd.Sample(
            tfd.MultivariateNormalTriL(np.zeros(2), sd[..., tf.newaxis] * L), 5
        ),
        y=law,
    )


@case(y=Y)
def outcomes_in_columns() -> Any:
    return named(
        m=normal(3), y=lambda m: tfd.Sample(tfd.Independent(tfd.Normal(m, ONE), 1), N)
    )


@case(y=Y, data={"x": x})
def means_by_row(data: Any) -> Any:
    return named(
        m=normal(3),
        L=tfd.CholeskyLKJ(3, ONE),
        y=lambda m, L: tfd.MultivariateNormalTriL(data["x"][:, tf.newaxis] * m, L),
    )


@case(y=Y)
def rows_by_sample() -> Any:
    return tfd.JointDistributionNamed(
        {
            "m": tfd.Sample(normal(), 3),
            "y": lambda m: tfd.Sample(tfd.MultivariateNormalDiag(m, np.ones(3)), N),
        }
    )


@case(y=y, data={"x": x})
def sample_of_length(data: Any) -> Any:
    """As many draws of one distribution as there are rows."""
    return named(
        m=normal(),
        sd=tfd.Gamma(2 * ONE, 2 * ONE),
        y=lambda m, sd: tfd.Sample(tfd.Normal(m, sd), tf.shape(data["x"])[0]),
    )


@case(y=y, data={"x": x})
def sample_of_all(data: Any) -> Any:
    """As many as there are in all, whatever the minibatch."""
    return tfd.JointDistributionNamed(
        {"m": normal(), "y": lambda m: tfd.Sample(tfd.Normal(m, ONE), N)}
    )


@case(y=parts)
def multinomial() -> Any:
    return named(
        w=tfd.Dirichlet(np.array([1.0, 2.0, 3.0])),
        y=lambda w: tfd.Sample(tfd.Multinomial(6 * ONE, probs=w), N),
    )


@case(y=parts, data={"n": np.full(N, 6.0)})
def dirichlet_multinomial(data: Any) -> Any:
    return named(
        a=tfd.LogNormal(np.zeros(3), ONE),
        y=lambda a: tfd.DirichletMultinomial(data["n"], a),
    )


@case(y=kinds, data={"X": X})
def softmax(data: Any) -> Any:
    def logits(b: Any) -> Any:
        fitted = data["X"] @ b
        return tf.concat([tf.zeros_like(fitted[..., :1]), fitted], -1)

    return named(b=normal(3, 2), y=lambda b: tfd.Categorical(logits=logits(b)))


@case(y=y)
def mixture() -> Any:
    return named(
        w=tfd.Dirichlet(np.ones(3)),
        m=tfd.Normal(np.arange(3.0), ONE),
        y=lambda w, m: tfd.Sample(
            tfd.MixtureSameFamily(tfd.Categorical(probs=w), tfd.Normal(m, 0.7 * ONE)), N
        ),
    )


@case(y=y, data={"x": x})
def mixture_with_weights_by_row(data: Any) -> Any:
    def law(a: Any, m: Any) -> Any:
        logits = tf.stack([a * data["x"], tf.zeros_like(data["x"])], -1)
        means = m + tf.zeros_like(logits)
        return tfd.MixtureSameFamily(
            tfd.Categorical(logits=logits), tfd.Normal(means, ONE)
        )

    return named(a=normal(), m=normal(2), y=law)


@case(y=counts, data={"x": x})
def negative_binomial(data: Any) -> Any:
    return named(
        b=normal(),
        c=tfd.InverseGamma(2 * ONE, ONE),
        y=lambda b, c: tfd.NegativeBinomial(1 / c, logits=b * data["x"]),
    )


@case(y=counts)
def geometric() -> Any:
    return named(
        gate=tfd.Kumaraswamy(2 * ONE, 2 * ONE),
        y=lambda gate: tfd.Sample(tfd.Geometric(probs=gate), N),
    )


@case(y=hits, data={"n": trials})
def beta_binomial(data: Any) -> Any:
    return named(
        a=tfd.Gamma(2 * ONE, ONE),
        b=tfd.Weibull(2 * ONE, ONE),
        y=lambda a, b: tfd.BetaBinomial(data["n"], a, b),
    )


@case(y=hits, data={"n": trials, "x": x})
def binomial(data: Any) -> Any:
    return named(
        a=tfd.Cauchy(Z, 2.5 * ONE),
        y=lambda a: tfd.Binomial(data["n"], logits=a + data["x"]),
    )


@case(y=p, data={"x": x})
def beta_regression(data: Any) -> Any:
    def law(b: Any, phi: Any) -> Any:
        m = tf.sigmoid(b * data["x"])
        return tfd.Beta(m * phi, (1 - m) * phi)

    return named(b=normal(), phi=tfd.Gamma(ONE, 0.1 * ONE), y=law)


@case(y=positive, data={"x": x})
def gamma_regression(data: Any) -> Any:
    return named(
        b=normal(),
        shape=tfd.Uniform(0.1 * ONE, 20 * ONE),
        y=lambda b, shape: tfd.Gamma(shape, shape / tf.exp(b * data["x"])),
    )


@case(y=positive, data={"x": x})
def weibull(data: Any) -> Any:
    return named(
        b=normal(),
        k=tfd.LogNormal(Z, 0.5 * ONE),
        y=lambda b, k: tfd.Weibull(k, tf.exp(b * data["x"])),
    )


@case(y=y, data={"x": x, "w": np.exp(x)})
def known_errors(data: Any) -> Any:
    return named(
        b=normal(), y=lambda b: tfd.StudentT(4 * ONE, b * data["x"], data["w"])
    )


@case(y=np.clip(y, -0.9, 3.0), data={"x": x})
def truncated(data: Any) -> Any:
    return named(
        b=normal(),
        y=lambda b: tfd.TruncatedNormal(b * data["x"], ONE, low=-ONE, high=4 * ONE),
    )


@case(y=y % np.pi)
def angles() -> Any:
    return named(
        m=tfd.Uniform(-3 * ONE, 3 * ONE),
        k=tfd.Exponential(ONE),
        y=lambda m, k: tfd.Sample(tfd.VonMises(m, k), N),
    )


@case(y=kinds, data={"x": x})
def ordinal(data: Any) -> Any:
    return named(
        c=tfd.TransformedDistribution(tfd.Sample(normal(), 2), tfb.Ascending()),
        b=normal(),
        y=lambda c, b: tfd.OrderedLogistic(c, b * data["x"]),
    )


@case(rows=["y", "c"], y=y, c=counts, total=np.array(0.4), data={"x": x})
def two_outcomes(data: Any) -> Any:
    """The second is a function of the first; a third has no rows."""
    return named(
        a=normal(),
        total=lambda a: tfd.Normal(a, 0.1 * ONE),
        y=lambda a: tfd.Normal(a * data["x"], ONE),
        c=lambda a, y: tfd.Poisson(log_rate=a + 0.3 * y),
    )


@case(rows=["y"], y=y, other=generator().normal(size=17), data={"x": x})
def outcomes_of_two_lengths(data: Any) -> Any:
    return named(
        m=normal(),
        v=tfd.InverseGamma(3 * ONE, ONE),
        other=lambda m, v: tfd.Sample(tfd.Normal(m, tf.sqrt(v)), 17),
        y=lambda m, v: tfd.Normal(m * data["x"], tf.sqrt(v)),
    )


@case(y=y, data={"t": t})
def latent_walk(data: Any) -> Any:
    return named(
        sd=tfd.HalfNormal(ONE),
        e=normal(6),
        y=lambda sd, e: tfd.Normal(tf.gather(sd * tf.cumsum(e), data["t"]), ONE),
    )


@case(y=y, data={"t": t})
def process_of_few_places(data: Any) -> Any:
    places = np.linspace(0, 1, 6)[:, None]
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic
    return named(
        s=tfd.HalfNormal(ONE),
        z=lambda s: tfd.GaussianProcess(
            kernel(s, ONE), places, observation_noise_variance=0.1 * ONE
        ),
        y=lambda z: tfd.Normal(tf.gather(z, data["t"]), ONE),
    )


@case(y=y, data={"x": x})
def prior_by_number_of_rows(data: Any) -> Any:
    size = tf.cast(tf.shape(data["x"])[0], F8)
    return named(
        b=tfd.Normal(Z, 1 / tf.sqrt(size)),
        sd=tfd.HalfNormal(ONE),
        y=lambda b, sd: tfd.Normal(b * data["x"], sd),
    )


@case(y=y, data={"x": x})
def support_by_number_of_rows(data: Any) -> Any:
    return named(
        change=tfd.Uniform(Z, tf.cast(tf.shape(data["x"])[0], F8)),
        y=lambda change: tfd.Normal(tf.tanh(change / 60) * data["x"], ONE),
    )


@case(y=y, data={"X": X})
def horseshoe(data: Any) -> Any:
    return named(
        tau=tfd.HalfCauchy(Z, 0.1 * ONE),
        lam=tfd.HalfCauchy(np.zeros(3), ONE),
        z=normal(3),
        y=lambda tau, lam, z: tfd.StudentT(
            4 * ONE, tf.linalg.matvec(data["X"], tau[..., tf.newaxis] * lam * z), ONE
        ),
    )


@case(y=y, data={"long": np.round(4e9 + 1e9 * x).astype(np.int64)})
def long_integers(data: Any) -> Any:
    units = tf.cast(data["long"] - 4_000_000_000, F8) / 1e9
    return named(b=normal(), y=lambda b: tfd.Normal(b * units, ONE))


@pytest.mark.some(1)
@pytest.mark.parametrize("name", GALLERY)
def test_densities_are_those_of_tfp(name: str) -> None:
    given = GALLERY[name]
    model = sgmcmc.from_joint(
        given.joint, given.observed, given.rows, data=given.data, dtype=F8
    )
    joint = given.joint
    if given.data:
        joint = joint({name: tf.convert_to_tensor(a) for name, a in given.data.items()})

    def theirs(free: dict[str, Any], params: dict[str, Any]) -> float:
        kinds = joint.dtype
        names = list(kinds._fields) if hasattr(kinds, "_fields") else None
        seen = {name: tf.convert_to_tensor(a) for name, a in given.observed.items()}
        values = {**params, **seen}
        if isinstance(kinds, dict):
            values = {name: tf.cast(values[name], kinds[name]) for name in kinds}
            return _total(joint.log_prob_parts(values).values())
        names = names or [name for name, _ in joint.resolve_graph()]
        flat = [
            tf.cast(values[name], kind)
            for name, kind in zip(names, tf.nest.flatten(kinds), strict=True)
        ]
        return _total(joint.log_prob_parts(tf.nest.pack_sequence_as(kinds, flat)))

    assert_densities(model, theirs, jacobian=False)


def _total(parts: Any) -> float:
    return sum(float(tf.reduce_sum(part)) for part in parts)


def rows_of(add: Callable[[Any], Any], **parts: Any) -> Callable[[Any], Any]:
    """Return a joint distribution of rows whose mean depends on b as on the covariates."""

    def joint(data: Any) -> Any:
        return named(
            b=normal(), y=lambda b: tfd.Normal(b * add(data["x"]), ONE), **parts
        )

    return joint


REFUSED: list[tuple[Callable[[Any], Any], dict[str, Any], str]] = [
    (rows_of(lambda x: x - tf.reduce_mean(x)), {}, "rows of 'y' are not independent"),
    (rows_of(lambda x: tf.concat([[Z], x[:-1]], 0)), {}, "rows of 'y' are not independent"),
    (rows_of(tf.cumsum), {}, "rows of 'y' are not independent"),
    (rows_of(lambda x: x / x.shape[0]), {}, "rows of 'y' are not independent"),
    (rows_of(lambda x: x + 0.0 * len(x)), {}, r"the number of rows is tf.shape\(data\[name\]\)"),
    (rows_of(lambda x: x + np.zeros(N)), {}, "a value for each row must be in `data`"),
    (rows_of(lambda x: x), {"observed": {"y": np.where(x > 1, np.nan, y)}},
     r"`observed\['y'\]` holds NaN"),
    (rows_of(lambda x: x), {"data": {"x": np.where(x > 1, np.nan, x)}},
     r"`data\['x'\]` holds NaN"),
    (rows_of(lambda x: x), {"observed": {"y": np.ma.masked_greater(y, 1.0)}}, "has masked values"),
    (rows_of(lambda x: tf.gather(np.zeros(5), tf.cast(x, tf.int32))),
     {"data": {"x": np.where(x > 1, -1, g)}}, "'x' -1 to 4; groups are counted from 0"),
    (lambda data: named(b=normal(), y=lambda b: tfd.Bernoulli(logits=b * data["x"])),
     {"observed": {"y": binary + 0.5}}, "must hold integers that int32 can hold"),
    (lambda data: named(b=tfd.Normal(Z, tf.reduce_max(tf.abs(data["x"]))),
                        y=lambda b: tfd.Normal(b * data["x"], ONE)),
     {}, "density of its parameters depends on the rows"),
]  # fmt: skip


@pytest.mark.parametrize("joint, given, message", REFUSED)
def test_refusals(joint: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sgmcmc.from_joint(
            joint, **{"observed": {"y": y}, "data": {"x": x}, **given}, dtype=F8
        )


def test_a_dependence_in_the_middle_is_found() -> None:
    """The sum over the rows is the same of the first and last rows."""
    middle = np.where((np.arange(N) > 10) & (np.arange(N) < 50), 3.0, 0.0)

    def joint(data: Any) -> Any:
        shift = tf.reduce_sum(data["z"])
        return named(
            b=tfd.Normal(shift, ONE), y=lambda b: tfd.Normal(b + data["z"], ONE)
        )

    with pytest.raises(
        ValueError, match="density of its parameters depends on the rows"
    ):
        sgmcmc.from_joint(joint, {"y": y}, data={"z": middle}, dtype=F8)


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["soft", "seen"])
def test_other_terms_that_read_effects_are_named(name: str) -> None:
    parts: dict[str, Any] = {
        name: lambda u: tfd.Normal(tf.reduce_mean(u, -1), 0.01 * ONE)
    }

    def joint(data: Any) -> Any:
        return named(
            m=normal(),
            u=lambda m: tfd.Sample(tfd.Normal(m, ONE), 5),
            y=lambda u: tfd.Normal(tf.gather(u, data["g"]), ONE),
            **parts,
        )

    with pytest.raises(ValueError, match=f"'u' cannot be effects .* that of '{name}'"):
        sgmcmc.from_joint(
            joint,
            {"y": y, name: np.array(0.0)},
            ["y"],
            data={"g": g},
            groups={"g": "u"},
            dtype=F8,
        )


def test_tensorflow_does_not_warn_of_retracing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def joint(data: Any) -> Any:
        return named(
            m=normal(),
            u=lambda m: tfd.Sample(tfd.Normal(m, ONE), 5),
            y=lambda u: tfd.Normal(tf.gather(u, data["g"]), ONE),
        )

    logger = tf.get_logger()
    logger.addHandler(caplog.handler)
    try:
        model = sgmcmc.from_joint(
            joint, {"y": y}, data={"g": g}, groups={"g": "u"}, dtype=F8
        )
        effects = np.zeros(N)
        for _ in range(6):
            model.log_lik({"m": np.float64(0.3), "u": effects}, model.dataset)
    finally:
        logger.removeHandler(caplog.handler)
    assert "retracing" not in caplog.text
