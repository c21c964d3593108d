"""Joint distributions as models: log densities against hand-written ones, refusals, draws."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.stats as st
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from tests import seams

tfd = tfp.distributions
rng = np.random.default_rng(3)
F = np.float32


class Case(NamedTuple):
    joint: Any
    observed: dict[str, Any]
    params: dict[str, Any]
    log_lik: Callable[[dict[str, Any]], Any]
    log_prior: Callable[[dict[str, Any]], Any]
    data: dict[str, Any] | None = None
    bijectors: tuple[str, ...] = ()


Y8 = np.array([28, 8, -3, 7, -1, 1, 18, 12], F)
S8 = np.array([15, 10, 16, 11, 9, 11, 10, 18], F)
X = rng.normal(size=(40, 3)).astype(F)
YG = rng.normal(size=40).astype(F)
YB = rng.integers(0, 2, 40)
YC = rng.poisson(2.0, 40)
YK = rng.integers(0, 3, 40)
G = rng.integers(0, 5, 40).astype(np.int32)
ITEM = rng.integers(0, 4, 40).astype(np.int32)
N = st.norm.logpdf


def eight_schools() -> Case:
    joint = tfd.JointDistributionSequential(
        [
            tfd.Normal(0.0, 10.0, name="mu"),
            tfd.Normal(5.0, 1.0, name="log_tau"),
            tfd.Independent(tfd.Normal(tf.zeros(8), tf.ones(8)), 1, name="eta"),
            lambda eta, log_tau, mu: tfd.Independent(
                tfd.Normal(
                    mu[..., tf.newaxis] + tf.exp(log_tau)[..., tf.newaxis] * eta, S8
                ),
                1,
                name="y",
            ),
        ]
    )
    params = {"mu": 2.0, "log_tau": 1.5, "eta": np.linspace(-1, 1, 8)}
    return Case(
        joint,
        {"y": Y8},
        params,
        lambda p: N(Y8, p["mu"] + np.exp(p["log_tau"]) * p["eta"], S8),
        lambda p: N(p["mu"], 0, 10) + N(p["log_tau"], 5, 1) + N(p["eta"]).sum(),
    )


def mixed_effects() -> Case:
    @tfd.JointDistributionCoroutineAutoBatched
    def joint() -> Any:
        b = yield tfd.Normal(tf.zeros(3), 5.0, name="b")
        tau = yield tfd.HalfCauchy(0.0, 2.0, name="tau")
        u = yield tfd.Sample(tfd.Normal(0.0, tau), 5, name="u")
        sigma = yield tfd.Exponential(1.0, name="sigma")
        yield tfd.Normal(tf.linalg.matvec(X, b) + tf.gather(u, G), sigma, name="y")

    return Case(
        joint,
        {"y": YG},
        {"b": [0.1, -0.2, 0.3], "tau": 0.7, "u": np.linspace(-1, 1, 5), "sigma": 1.3},
        lambda p: N(YG, X @ p["b"] + p["u"][G], p["sigma"]),
        lambda p: (
            N(p["b"], 0, 5).sum()
            + st.halfcauchy.logpdf(p["tau"], scale=2)
            + N(p["u"], 0, p["tau"]).sum()
            + st.expon.logpdf(p["sigma"])
        ),
        bijectors=("sigma", "tau"),
    )


def item_response() -> Case:
    def joint(data: Any) -> Any:
        return tfd.JointDistributionNamedAutoBatched(
            {
                "mean": tfd.Normal(0.75, 1.0),
                "ability": tfd.Normal(tf.zeros(5), 1.0),
                "difficulty": tfd.Normal(tf.zeros(4), 1.0),
                "y": lambda mean, ability, difficulty: tfd.Bernoulli(
                    logits=mean
                    + tf.gather(ability, data["person"])
                    - tf.gather(difficulty, data["item"])
                ),
            }
        )

    def log_lik(p: Any) -> Any:
        eta = p["mean"] + p["ability"][G] - p["difficulty"][ITEM]
        return YB * eta - np.logaddexp(0, eta)

    return Case(
        joint,
        {"y": YB},
        {
            "mean": 0.4,
            "ability": np.linspace(-1, 1, 5),
            "difficulty": [0.2, 0.1, -0.3, 0.5],
        },
        log_lik,
        lambda p: N(p["mean"], 0.75) + N(p["ability"]).sum() + N(p["difficulty"]).sum(),
        {"person": G, "item": ITEM},
    )


def mixture() -> Case:
    joint = tfd.JointDistributionNamed(
        {
            "w": tfd.Dirichlet([2.0, 3.0]),
            "m": tfd.Independent(tfd.Normal([-1.0, 1.0], 2.0), 1),
            "y": lambda w, m: tfd.Sample(
                tfd.MixtureSameFamily(tfd.Categorical(probs=w), tfd.Normal(m, 1.0)), 40
            ),
        }
    )
    return Case(
        joint,
        {"y": YG},
        {"w": [0.3, 0.7], "m": [-0.5, 0.8]},
        lambda p: np.log((p["w"] * np.exp(N(YG[:, None], p["m"]))).sum(1)),
        lambda p: st.dirichlet.logpdf(p["w"], [2, 3]) + N(p["m"], [-1, 1], 2).sum(),
        bijectors=("w",),
    )


def regression() -> Case:
    def joint(data: Any) -> Any:
        return tfd.JointDistributionSequentialAutoBatched(
            [
                tfd.Normal(0.0, 1.0, name="a"),
                tfd.Normal(tf.zeros(3), 2.0, name="b"),
                tfd.InverseGamma(3.0, 2.0, name="v"),
                lambda v, b, a: tfd.Normal(
                    a + tf.linalg.matvec(data["x"], b), tf.sqrt(v), name="y"
                ),
            ]
        )

    return Case(
        joint,
        {"y": YG},
        {"a": 0.3, "b": [0.1, -0.2, 0.3], "v": 1.7},
        lambda p: N(YG, p["a"] + X @ p["b"], np.sqrt(p["v"])),
        lambda p: (
            N(p["a"]) + N(p["b"], 0, 2).sum() + st.invgamma.logpdf(p["v"], 3, scale=2)
        ),
        {"x": X},
        ("v",),
    )


def logistic() -> Case:
    @tfd.JointDistributionCoroutine
    def joint() -> Any:
        b = yield tfd.JointDistributionCoroutine.Root(
            tfd.MultivariateNormalDiag(tf.zeros(3), tf.ones(3), name="b")
        )
        yield tfd.Independent(tfd.Bernoulli(logits=tf.linalg.matvec(X, b)), 1, name="y")

    return Case(
        joint,
        {"y": YB},
        {"b": [0.1, -0.2, 0.3]},
        lambda p: YB * (X @ p["b"]) - np.logaddexp(0, X @ p["b"]),
        lambda p: N(p["b"]).sum(),
    )


def poisson() -> Case:
    def joint(data: Any) -> Any:
        return tfd.JointDistributionNamed(
            {
                "b": tfd.Sample(tfd.Laplace(0.0, 1.0), 3),
                "y": lambda b: tfd.Poisson(log_rate=tf.linalg.matvec(data["x"], b)),
            }
        )

    return Case(
        joint,
        {"y": YC},
        {"b": [0.1, -0.2, 0.3]},
        lambda p: st.poisson.logpmf(YC, np.exp(X @ p["b"])),
        lambda p: st.laplace.logpdf(p["b"]).sum(),
        {"x": X},
    )


def robust() -> Case:
    @tfd.JointDistributionCoroutineAutoBatched
    def joint() -> Any:
        nu = yield tfd.Gamma(2.0, 0.1, name="nu")
        scale = yield tfd.LogNormal(0.0, 1.0, name="scale")
        mu = yield tfd.Uniform(-5.0, 5.0, name="mu")
        yield tfd.Sample(tfd.StudentT(nu, mu, scale), 40, name="y")

    return Case(
        joint,
        {"y": YG},
        {"nu": 4.0, "scale": 0.8, "mu": 0.2},
        lambda p: st.t.logpdf(YG, p["nu"], p["mu"], p["scale"]),
        lambda p: (
            st.gamma.logpdf(p["nu"], 2, scale=10)
            + st.lognorm.logpdf(p["scale"], 1)
            - np.log(10)
        ),
        bijectors=("mu", "nu", "scale"),
    )


def categories() -> Case:
    def joint(data: Any) -> Any:
        return tfd.JointDistributionCoroutineAutoBatched(lambda: _categories(data))

    def _categories(data: Any) -> Any:
        b = yield tfd.Normal(tf.zeros((3, 3)), 1.0, name="b")
        yield tfd.Categorical(logits=data["x"] @ b, name="y")

    def log_lik(p: Any) -> Any:
        eta = X @ p["b"]
        return eta[np.arange(40), YK] - np.log(np.exp(eta).sum(1))

    b = np.linspace(-1, 1, 9).reshape(3, 3)
    return Case(
        joint, {"y": YK}, {"b": b}, log_lik, lambda p: N(p["b"]).sum(), {"x": X}
    )


def measurement_error() -> Case:
    """Two observed variables with rows, one given the other, and one observed without rows."""

    def joint(data: Any) -> Any:
        return tfd.JointDistributionNamedAutoBatched(
            {
                "a": tfd.Normal(0.0, 1.0),
                "total": lambda a: tfd.Normal(a, 0.1),
                "z": lambda a: tfd.Normal(a * data["x"], 1.0),
                "y": lambda z, a: tfd.Normal(z + a, tf.ones(3)),
            }
        )

    Z = np.stack([YG, YG + 1, YG - 1], 1)
    return Case(
        joint,
        {"y": Z, "z": X, "total": np.array(0.4)},
        {"a": 0.3},
        lambda p: (N(X, p["a"] * X) + N(Z, X + p["a"])).sum(1),
        lambda p: N(p["a"]) + N(0.4, p["a"], 0.1),
        {"x": X},
    )


CASES = [
    eight_schools,
    mixed_effects,
    item_response,
    mixture,
    regression,
    logistic,
    poisson,
    robust,
    categories,
    measurement_error,
]


def made(case: Case) -> sgmcmc.JointModel:
    rows = ["y", "z"] if "z" in case.observed else ["y"]
    return sgmcmc.from_joint(case.joint, case.observed, rows, data=case.data)


@pytest.mark.some(1)
@pytest.mark.parametrize("of", CASES, ids=lambda of: of.__name__)
def test_densities_are_those_written_by_hand(of: Callable[[], Case]) -> None:
    case = of()
    model = made(case)
    params = {name: np.asarray(value, F) for name, value in case.params.items()}
    wide = {name: np.asarray(value, float) for name, value in case.params.items()}
    found = model.log_lik(params, model.dataset).numpy()
    np.testing.assert_allclose(found, case.log_lik(wide), rtol=2e-5, atol=2e-5)
    prior = model.log_prior(params)
    np.testing.assert_allclose(prior, case.log_prior(wide), rtol=2e-5, atol=2e-5)
    assert tuple(sorted(model.bijectors)) == case.bijectors
    assert {name: a.shape for name, a in model.params.items()} == {
        name: a.shape for name, a in params.items()
    }
    some = np.array([5, 1, 1, 3])
    part = {
        name: tf.gather(tf.convert_to_tensor(a), some)
        for name, a in model.dataset.items()
    }
    np.testing.assert_allclose(model.log_lik(params, part), found[some], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "of", [mixed_effects, regression, item_response], ids=lambda of: of.__name__
)
def test_chains_run(of: Callable[[], Case]) -> None:
    model = made(of())
    samples = model.sample(
        dynamics="sgld", gradient="minibatch", minibatches="uniform", minibatch_size=10,
        preconditioner="none", stepsize=1e-3, n_iters=50, burn_in=0, n_chains=None, seed=1,
        verbose=False,
    )  # fmt: skip
    assert all(np.isfinite(draws).all() for draws in samples.values())


@pytest.mark.slow
def test_posterior_is_right() -> None:
    joint = tfd.JointDistributionNamed(
        {
            "mu": tfd.Normal(0.0, 10.0),
            "y": lambda mu: tfd.Sample(tfd.Normal(mu, 1.0), 40),
        }
    )
    samples = sgmcmc.from_joint(joint, {"y": YG}).sample(seed=1, verbose=False)
    precision = 40 + 0.01
    assert abs(samples["mu"].mean() - YG.sum() / precision) < 0.2 / np.sqrt(precision)
    assert abs(samples["mu"].std() * np.sqrt(precision) - 1) < 0.15


def test_prior_predictive_is_the_joint() -> None:
    model = made(regression())
    draws = model.prior_predictive(2000, seed=1)
    assert draws["y"].shape == (2000, 40) and draws["b"].shape == (2000, 3)
    assert abs(draws["b"].std() - 2) < 5 * 2 / np.sqrt(2 * 6000)
    gap = draws["y"] - draws["a"][:, None] - draws["b"] @ X.T
    z = gap / np.sqrt(draws["v"])[:, None]
    assert abs(z.mean()) < 5 / np.sqrt(z.size) and abs(z.std() - 1) < 0.02
    again = model.prior_predictive(2000, seed=1)
    assert all(np.array_equal(draws[name], again[name]) for name in draws)


def _process() -> Any:
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(F(1), F(1))
    return tfd.JointDistributionNamed(
        {
            "s": tfd.HalfNormal(1.0),
            "y": lambda s: tfd.GaussianProcess(kernel, X, observation_noise_variance=s),
        }
    )


def _walk() -> Any:
    """An autoregression: the density of a row changes with the row before it."""

    class Walk(tfd.Distribution):
        def __init__(self, step: Any) -> None:
            self._step = tf.convert_to_tensor(step)
            super().__init__(tf.float32, tfd.NOT_REPARAMETERIZED, False, True)

        def _batch_shape(self) -> Any:
            return tf.TensorShape([40])

        def _event_shape(self) -> Any:
            return tf.TensorShape([])

        def _sample_n(self, n: int, seed: Any = None) -> Any:
            return tf.zeros((n, 40))

        def _log_prob(self, y: Any) -> Any:
            before = tf.concat([tf.zeros(1), y[..., :-1]], -1)
            return -0.5 * ((y - before) / self._step) ** 2

    return tfd.JointDistributionNamed(
        {"s": tfd.HalfNormal(1.0), "y": lambda s: Walk(s)}
    )


def _wrong(**parts: Any) -> Any:
    return tfd.JointDistributionNamedAutoBatched(
        {
            "mu": tfd.Normal(0.0, 1.0),
            "y": lambda mu: tfd.Sample(tfd.Normal(mu, 1.0), 40),
            **parts,
        }
    )


REFUSED: list[tuple[Callable[[], Any], dict[str, Any], str]] = [
    (_process, {}, "rows of 'y' are not independent.*GaussianProcess has one density"),
    (_walk, {}, "the density of a row changes with another row"),
    (lambda: _wrong(k=tfd.Bernoulli(0.5)), {}, "'k' is discrete"),
    (lambda: _wrong(k=lambda mu: tfd.Uniform(mu, mu + 1)), {}, "support of 'k' depends"),
    (_wrong, {"observed": {"z": YG}}, "`observed`: `joint` has no variable 'z'"),
    (_wrong, {"observed": {"y": YG[:, None]}},
     r"`observed\['y'\]` has the shape \(40, 1\), and a draw of 'y' from `joint` has \(40,\)"),
    (_wrong, {"observed": {"y": YG[:9]}}, r"`observed\['y'\]` has the shape \(9,\)"),
    (lambda: lambda data: tfd.JointDistributionNamed({
        "mu": tfd.Normal(0.0, 1.0), "y": lambda mu: tfd.Normal(mu + data["x"], 1.0)}),
     {"data": {"x": YG[:, None]}}, r"has the shape \(40,\), .* has \(40, 1\)"),
    (lambda: tfd.JointDistributionNamed({
        "mu": tfd.Normal(0.0, 1.0), "z": lambda mu: tfd.Normal(mu, 1.0),
        "y": lambda z: tfd.Normal(z, 1.0)}),
     {"observed": {"z": YG[:, None], "y": YG}},
     r"'y' has values of shape \(40,\), and densities of shape \(40, 40\)"),
    (_wrong, {"rows": "y"}, r"write rows=\['y'\]"),
    (_wrong, {"rows": ["mu"]}, "'mu' is not among what is `observed`"),
    (_wrong, {"observed": {}}, "at least one variable"),
    (_wrong, {"observed": {"y": YG, "mu": 0.0}, "rows": ["y"]}, "none is left to sample"),
    (_wrong, {"observed": {"mu": 0.0}}, "'mu' is a single number"),
    (_wrong, {"data": {"x": X}}, "covariates need a `joint` that is a function"),
    (lambda: 3, {}, "`joint` must be a joint distribution"),
    (lambda: lambda data: 3, {"data": {"x": X}}, "must return a joint distribution"),
    (lambda: lambda data: _wrong(), {}, "`data` must hold the covariates"),
    (lambda: lambda data: tfd.JointDistributionNamed({
        "mu": tfd.Normal(0.0, tf.math.reduce_std(data["x"])),
        "y": lambda mu: tfd.Normal(mu + data["x"], 1.0)}),
     {"data": {"x": YG}}, "density of its parameters depends on the rows"),
]  # fmt: skip


@pytest.mark.parametrize("joint, given, message", REFUSED)
def test_refusals(
    joint: Callable[[], Any], given: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        sgmcmc.from_joint(joint(), **{"observed": {"y": YG}, **given})


def test_double_precision() -> None:
    joint = tfd.JointDistributionNamed(
        {
            "mu": tfd.Normal(np.float64(0), np.float64(1)),
            "y": lambda mu: tfd.Sample(tfd.Normal(mu, np.float64(1)), 40),
        }
    )
    model = sgmcmc.from_joint(joint, {"y": YG})
    assert model.dtype == tf.float64
    found = model.log_lik({"mu": np.float64(0.3)}, model.dataset)
    np.testing.assert_allclose(found, N(np.asarray(YG, float), 0.3), rtol=1e-12)


SITE = rng.integers(0, 30, 400).astype(np.int32)
XS = rng.normal(size=400).astype(F)
YS = (1 + 2 * XS + 0.8 * rng.normal(size=30)[SITE] + rng.normal(size=400)).astype(F)
DATA = {"x": XS, "site": SITE}


def multilevel(
    law: Callable[..., Any] = lambda tau: tfd.Sample(tfd.Normal(0.0, tau), 30),
    of_rows: Callable[..., Any] = lambda u, site: tf.gather(u, site),
    **parts: Any,
) -> Callable[[Any], Any]:
    """Return a model of rows in sites, each with an effect of its own."""

    def joint(data: Any) -> Any:
        return tfd.JointDistributionNamedAutoBatched(
            {
                "a": tfd.Normal(0.0, 3.0),
                "b": tfd.Normal(0.0, 3.0),
                "tau": tfd.HalfNormal(1.0),
                "u": law,
                "y": lambda a, b, u: tfd.Normal(
                    a + b * data["x"] + of_rows(u, data["site"]), 1.0
                ),
                **parts,
            }
        )

    return joint


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "law",
    [
        lambda tau: tfd.Sample(tfd.Normal(0.0, tau), 30),
        lambda tau: tfd.Normal(tf.zeros(30), tau),
        lambda tau: tfd.Independent(tfd.Normal(tf.zeros(30), tau * tf.ones(30)), 1),
    ],
    ids=["sample", "batch", "independent"],
)
def test_local_variables_are_groups(law: Any) -> None:
    """Densities as by hand, whatever the groups; the model is that with groups written by hand."""
    model = sgmcmc.from_joint(
        multilevel(law), {"y": YS}, data=DATA, groups={"site": "u"}
    )
    assert sorted(model.params) == ["a", "b", "tau"] and sorted(model.bijectors) == [
        "tau"
    ]
    assert model.local == ("u",)
    (groups,) = model.groups
    params = {"a": F(0.3), "b": F(1.5), "tau": F(0.7)}
    effects = rng.normal(size=400).astype(F)
    found = model.log_lik({**params, "u": effects}, model.dataset)
    np.testing.assert_allclose(
        found, N(YS, 0.3 + 1.5 * XS + effects, 1.0), rtol=1e-4, atol=1e-5
    )
    some = {"u": tf.constant(effects[:7])}
    np.testing.assert_allclose(
        groups.log_prior(some, params), N(effects[:7], 0, 0.7), rtol=1e-5
    )
    by_hand = N(0.3, 0, 3) + N(1.5, 0, 3) + st.halfnorm.logpdf(0.7)
    np.testing.assert_allclose(model.log_prior(params), by_hand, rtol=1e-5)


@pytest.mark.slow
def test_the_posterior_with_groups_is_that_of_the_coordinates_integrated() -> None:
    """Normal throughout, so the marginal likelihood is a formula, and the posterior its grid."""
    model = sgmcmc.from_joint(
        multilevel(), {"y": YS}, data=DATA, groups={"site": ["u"]}
    )
    samples = model.sample(seed=1, verbose=False)
    design = np.stack([np.ones(400), XS], 1).astype(float)
    same = (SITE[:, None] == SITE[None]).astype(float)
    taus = np.linspace(0.3, 2.0, 60)
    logs, means = [], []
    for tau in taus:
        cov = np.eye(400) + tau**2 * same
        inverse = np.linalg.inv(cov)
        precision = design.T @ inverse @ design + np.eye(2) / 9
        mean = np.linalg.solve(precision, design.T @ inverse @ YS)
        marginal = cov + 9 * design @ design.T
        logs.append(
            -0.5 * np.linalg.slogdet(marginal)[1]
            - 0.5 * YS @ np.linalg.solve(marginal, YS)
            - 0.5 * tau**2
        )
        means.append([*mean, tau])
    weights = np.exp(np.array(logs) - max(logs))
    expected = np.average(means, axis=0, weights=weights)
    sd = np.sqrt(np.average((taus - expected[2]) ** 2, weights=weights))
    assert abs(samples["tau"].mean() - expected[2]) < 0.25 * sd
    assert abs(samples["tau"].std() / sd - 1) < 0.2
    assert abs(samples["b"].mean() - expected[1]) < 0.25 / np.sqrt(400)
    assert samples.effects("site")["u"].shape[-1] == 30
    found = sgmcmc.sbc(
        model, 2, draws=3, seed=1, verbose=False,
        fit=lambda one, seed: sgmcmc.Samples({n: np.zeros(10) for n in one.params}),
    )  # fmt: skip
    assert sorted(found.ranks) == ["a", "b", "tau"]


NO_PLATES: list[tuple[Any, Any, str]] = [
    (multilevel(), {"site": "tau"}, "'tau' is constrained"),
    (
        multilevel(),
        {"site": "a"},
        r"first axis of 'a' must count the groups.*there are 30",
    ),
    (multilevel(), {"place": "u"}, "'place' is not among `data`"),
    (multilevel(), {"x": "u"}, r"`data\['x'\]` must be a vector of integers"),
    (multilevel(), {"site": ["v"]}, "'v' is none of the parameters"),
    (multilevel(), ["u"], "must be a dict of local variables"),
    (
        multilevel(lambda tau: tfd.Normal(tf.linspace(0.0, 1.0, 30), tau)),
        {"site": "u"},
        "have different distributions",
    ),
    (
        multilevel(
            lambda tau: tfd.MultivariateNormalTriL(tf.zeros(30), tau * tf.eye(30))
        ),
        {"site": "u"},
        "one density for all groups",
    ),
    (
        multilevel(of_rows=lambda u, site: tf.gather(u - tf.reduce_mean(u), site)),
        {"site": "u"},
        r"in another way than tf.gather\(effects, data\[column\]\)",
    ),
    (
        multilevel(v=lambda u: tfd.Normal(tf.reduce_sum(u), 1.0)),
        {"site": "u"},
        "the density of other parameters depends on them",
    ),
]


@pytest.mark.parametrize("joint, groups, message", NO_PLATES)
def test_what_are_no_groups(
    joint: Any, groups: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the checks of rows, which take longest, and which groups have nothing to do with."""
    monkeypatch.setattr(seams.JOINT_MODEL_CHECK, lambda self: None)
    with pytest.raises((ValueError, TypeError), match=message):
        sgmcmc.from_joint(joint, {"y": YS}, data=DATA, groups=groups)


def test_groups_need_a_function_of_covariates() -> None:
    joint = multilevel()({name: tf.constant(values) for name, values in DATA.items()})
    with pytest.raises(
        ValueError, match="needs a `joint` that is a function of `data`"
    ):
        sgmcmc.from_joint(joint, {"y": YS}, groups={"site": "u"})
