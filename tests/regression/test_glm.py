"""Regressions by formula, against algebra, Laplace's approximation and written-out likelihoods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.stats
import tensorflow as tf

import sgmcmc
from sgmcmc.regression.families import FAMILIES
from sgmcmc.regression.formula import parse
from sgmcmc.regression.priors import log_prior
from tests import seams

N = 400
RNG = np.random.default_rng(1)
X = RNG.normal(2.0, 1.5, N)
F = RNG.choice(["a", "b", "c"], N)
FRAME = pd.DataFrame(
    {"x": X, "f": F, "y": 1.0 + 0.5 * X + 0.7 * (F == "b") + RNG.normal(size=N)}
)
DESIGN = np.column_stack([np.ones(N), X, F == "b", F == "c"]).astype(float)
QUIET: dict[str, Any] = {"seed": 1, "verbose": False}


@pytest.fixture(scope="module")
def fit() -> sgmcmc.Regression:
    return sgmcmc.glm("y ~ x + C(f)", FRAME, **QUIET)


@pytest.mark.parametrize("door", ["predict", "predictions", "comparisons", "slopes"])
def test_rows_without_a_column_or_without_rows_are_named(door: str) -> None:
    fit = sgmcmc.glm("y ~ x + (1 | f)", FRAME, **QUIET)
    arguments = ("x",) if door in ("comparisons", "slopes") else ()
    for missing in ("x", "f"):
        with pytest.raises(
            ValueError, match=f"names '{missing}', but `data` has no such"
        ):
            getattr(fit, door)(*arguments, data=FRAME.drop(columns=missing))
    with pytest.raises(ValueError, match="`data` has no rows"):
        getattr(fit, door)(*arguments, data=FRAME.iloc[:0])


@pytest.mark.parametrize(
    "text", ["k", "I(k - min(k))", "as.numeric(k)", "x + (I(k - min(k)) | f)"]
)
def test_times_have_no_unit(text: str) -> None:
    frame = FRAME.assign(
        k=pd.Timestamp("2020-01-01") + pd.to_timedelta(FRAME.index, "D")
    )
    with pytest.raises(TypeError, match="k.* holds dates or times, which have no unit"):
        sgmcmc.glm(f"y ~ {text}", frame, **QUIET)


@pytest.fixture(scope="module")
def without_f() -> sgmcmc.Regression:
    return sgmcmc.glm("y ~ x", FRAME, **QUIET)


def test_report_names_terms(fit: sgmcmc.Regression) -> None:
    assert fit.report is not None and fit.samples.report is not None
    assert "b[" in str(fit.samples.report)
    assert "b[" not in str(fit.report)


def test_gaussian_against_least_squares(fit: sgmcmc.Regression) -> None:
    table = fit.summary()
    beta, rest, *_ = np.linalg.lstsq(DESIGN, FRAME["y"], rcond=None)
    sigma = np.sqrt(rest[0] / (N - 4))
    errors = sigma * np.sqrt(np.diag(np.linalg.inv(DESIGN.T @ DESIGN)))
    assert list(table.index) == ["Intercept", "x", "C(f)[T.b]", "C(f)[T.c]", "sigma"]
    assert list(table.columns) == [
        "estimate",
        "error",
        "lower",
        "upper",
        "ess_bulk",
        "r_hat",
    ]
    # ESS 400 and more; the weak priors move estimates by less than a hundredth of an error.
    assert (np.abs(table["estimate"][:4] - beta) < (4 / 20 + 0.02) * errors).all()
    np.testing.assert_allclose(table["error"][:4], errors, rtol=0.05 + 4 / np.sqrt(800))
    assert abs(table["estimate"]["sigma"] - sigma) < 0.25 * sigma / np.sqrt(2 * N)
    assert fit.report is not None and fit.report.warnings == []
    assert "Formula: y ~ x + C(f)" in repr(fit) and "normal(" in fit.priors["x"]
    assert list(fit.fixed.index) == list(table.index[:4])


def test_predictions_and_comparisons(fit: sgmcmc.Regression) -> None:
    rows = FRAME.iloc[:5]
    beta = fit.summary()["estimate"].to_numpy()[:4]
    np.testing.assert_allclose(fit.predict(rows), DESIGN[:5] @ beta, atol=0.02)
    assert fit.predict(rows, "quantiles", quantiles=(0.1, 0.9)).shape == (2, 5)
    drawn = fit.predict(rows, "response")
    assert drawn.shape[1] == 5
    # 1000 draws, 4 standard errors.
    assert abs(
        drawn.std(0).mean() / fit.summary()["estimate"]["sigma"] - 1
    ) < 4 / np.sqrt(2000)
    assert abs(fit.residuals.mean()) < 0.02 and fit.fitted.shape == (N,)
    changes = fit.comparisons()
    assert list(changes.index) == ["f: b - a", "f: c - a", "x: +1"]
    np.testing.assert_allclose(changes["estimate"]["x: +1"], beta[1], atol=0.01)
    np.testing.assert_allclose(fit.slopes("x")["estimate"]["x"], beta[1], atol=0.01)
    with pytest.raises(ValueError, match="'f'.* has the level 'z'"):
        fit.predict(rows.assign(f="z"))
    with pytest.raises(ValueError, match="`variables` names 'w'"):
        fit.slopes("w")


def test_predictions_over_a_grid_and_by_values(fit: sgmcmc.Regression) -> None:
    beta = fit.summary()["estimate"].to_numpy()[:4]
    grid = fit.predictions({"x": [0.0, 2.0], "f": ["a", "c"]})
    assert list(grid.columns) == ["x", "f", "estimate", "error", "lower", "upper"]
    wanted = beta[0] + beta[1] * grid["x"] + beta[3] * (grid["f"] == "c")
    np.testing.assert_allclose(grid["estimate"], wanted, atol=0.02)
    # A column that is not given is at its mean.
    by_f = fit.predictions({"f": ["a"]})
    np.testing.assert_allclose(
        by_f["estimate"], beta[0] + beta[1] * X.mean(), atol=0.02
    )
    means = fit.predictions(by="f").set_index("f")["estimate"]
    np.testing.assert_allclose(means["b"], fit.fitted[F == "b"].mean(), atol=1e-6)
    changes = fit.comparisons({"x": (1.0, 3.0)}, by="f")
    assert list(changes.index) == [f"x: 3.0 - 1.0 [f = {level}]" for level in "abc"]
    np.testing.assert_allclose(changes["estimate"], 2 * beta[1], atol=0.02)
    np.testing.assert_allclose(
        fit.comparisons({"x": 2})["estimate"], 2 * beta[1], atol=0.02
    )
    assert list(fit.comparisons({"f": ("b", "c")}).index) == ["f: c - b"]
    assert list(fit.slopes("x", by="f").index) == [
        f"x [f = {level}]" for level in "abc"
    ]
    with pytest.raises(
        TypeError, match=r"`variables\['f'\]` must be a pair of values of the factor"
    ):
        fit.comparisons({"f": 2})
    with pytest.raises(ValueError, match="`data` names 'w'"):
        fit.predictions({"w": [1.0]})


def test_loo_is_that_of_the_rows(fit: sgmcmc.Regression) -> None:
    loo = fit.loo()
    beta, rest, *_ = np.linalg.lstsq(DESIGN, FRAME["y"], rcond=None)
    hat = np.einsum("ij,jk,ik->i", DESIGN, np.linalg.inv(DESIGN.T @ DESIGN), DESIGN)
    residuals = (FRAME["y"].to_numpy() - DESIGN @ beta) / (1 - hat)
    sigma = np.sqrt(rest[0] / (N - 4))
    exact = scipy.stats.norm.logpdf(residuals, scale=sigma * np.sqrt(1 + hat)).sum()
    # sigma is not refitted in the comparison, which is worth about one unit.
    assert abs(loo.elpd - exact) < 3.0
    assert (
        3.0 < loo.p_loo < 7.0
        and (loo.pareto_k < 0.7).all()
        and loo.subsampling_se == 0.0
    )
    assert abs(loo.se - np.sqrt(N) * 0.7) < 3.0


def test_loo_of_some_rows_agrees_with_all(
    monkeypatch: Any, fit: sgmcmc.Regression
) -> None:
    every = fit.loo()
    settings = seams.changed(seams.REGRESSION_FIT, loo_rows=100)
    monkeypatch.setattr(seams.REGRESSION_FIT, settings)
    some = fit.loo()
    assert len(some.rows) == 100 and 0 < some.subsampling_se < 2.0
    assert abs(some.elpd - every.elpd) < 4 * some.subsampling_se + 0.5
    assert every.compare(every) == (0.0, 0.0, 0.0) == some.compare(some)
    with pytest.raises(ValueError, match="`other` must be of the same rows"):
        some.compare(every)


def test_differences_of_regressions(
    fit: sgmcmc.Regression, without_f: sgmcmc.Regression
) -> None:
    """Rows are paired: the standard error is that of their differences."""
    one, two = fit.loo(), without_f.loo()
    found = one.compare(two)
    gaps = one.terms - two.terms
    assert found.elpd == pytest.approx(one.elpd - two.elpd)
    assert (
        found.se == pytest.approx(np.sqrt(N) * gaps.std(ddof=1))
        and found.se < one.se / 2
    )


def _response(name: str, eta: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    """Return data of a family, its log density in NumPy, and the auxiliary parameters' truth."""
    norm, link = scipy.stats.norm, np.exp(eta)
    p = 1 / (1 + np.exp(-eta))
    return {
        "student": lambda: eta + rng.standard_t(4, N),
        "bernoulli": lambda: rng.binomial(1, p),
        "binomial": lambda: rng.binomial(8, p),
        "poisson": lambda: rng.poisson(link),
        "negative_binomial": lambda: rng.poisson(rng.gamma(2.0, link / 2.0)),
        "gamma": lambda: rng.gamma(3.0, link / 3.0),
        "beta": lambda: rng.beta(5 * p, 5 * (1 - p)),
        "exponential": lambda: rng.exponential(link),
        "weibull": lambda: link * rng.weibull(1.5, N),
        "zero_inflated_poisson": lambda: np.where(
            rng.uniform(size=N) < 0.3, 0, rng.poisson(link)
        ),
        "gaussian": lambda: norm.rvs(eta, random_state=rng),
    }[name]()


NUMBERS = [
    name for name, links in FAMILIES.items() if not next(iter(links.values())).by_level
]


@pytest.mark.parametrize("name", [name for name in NUMBERS if name != "gaussian"])
@pytest.mark.some(1)
def test_families_against_their_laplace_approximation(name: str) -> None:
    """The mode and the curvature there, in float64 by differences of slopes, of the density."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=N)
    frame = pd.DataFrame({"x": x, "y": _response(name, 0.3 + 0.4 * x, rng)})
    formula = "y | trials(8) ~ x" if name == "binomial" else "y ~ x"
    fit = sgmcmc.glm(formula, frame, name, **QUIET)
    model = fit._model
    rows = {
        key: tf.constant(np.asarray(v), tf.float64)
        for key, v in fit._predictor.dataset(frame).items()
    }
    aux = [parameter.name for parameter in model.family.aux]
    unit = [parameter.support == "unit" for parameter in model.family.aux]

    def log_density(u: tf.Tensor) -> tf.Tensor:
        params, jacobian = {"b": u[:2]}, 0.0
        for k, key in enumerate(aux):
            value = tf.sigmoid(u[2 + k]) if unit[k] else tf.exp(u[2 + k])
            jacobian += tf.math.log(value * (1 - value)) if unit[k] else u[2 + k]
            params[key] = value
        terms = tf.reduce_sum(model.log_lik(params, rows))
        return terms + log_prior(model, params) + jacobian

    @tf.function
    def value_and_slope(u: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(u)
            value = -log_density(u)
        return value, tape.gradient(value, u)

    def negative(u: np.ndarray) -> Any:
        return tuple(part.numpy() for part in value_and_slope(tf.constant(u)))

    start = np.concatenate([[model.start - model.origin[0], 0.0], np.zeros(len(aux))])
    found = scipy.optimize.minimize(
        negative, start, jac=True, method="BFGS", options={"gtol": 1e-4}
    )
    step = 1e-4 * np.eye(len(start))
    slopes = [
        negative(found.x + move)[1] - negative(found.x - move)[1] for move in step
    ]
    hessian = np.array(slopes) / 2e-4
    sds = np.sqrt(np.diag(np.linalg.inv(hessian)))[:2]
    draws = fit.samples["b"].reshape(-1, 2).astype(float)
    # N = 400: the posterior of coefficients is normal to a few per cent of an sd.
    assert (np.abs(draws.mean(0) - found.x[:2]) < (0.1 + 4 / 20) * sds).all()
    np.testing.assert_allclose(draws.std(0), sds, rtol=0.08 + 4 / np.sqrt(800))
    assert np.isfinite(fit.predict(frame.iloc[:3])).all()
    assert fit.predict(frame.iloc[:3], "response").shape[1] == 3


@pytest.mark.parametrize("link", ["probit", "cloglog"])
@pytest.mark.slow
def test_links(link: str) -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=2000)
    p = (
        scipy.stats.norm.cdf(0.5 * x)
        if link == "probit"
        else 1 - np.exp(-np.exp(0.5 * x))
    )
    frame = {"x": x, "y": rng.binomial(1, p)}
    table = sgmcmc.glm("y ~ x", frame, "bernoulli", link=link, **QUIET).summary()
    assert (np.abs(table["estimate"] - [0.0, 0.5]) < 4 * table["error"]).all()


@pytest.mark.slow
def test_offsets_of_counts() -> None:
    rng = np.random.default_rng(5)
    t, x = rng.uniform(1, 20, N), rng.normal(size=N)
    frame = pd.DataFrame({"x": x, "t": t, "y": rng.poisson(t * np.exp(0.2 + 0.3 * x))})
    table = sgmcmc.glm("y ~ x + offset(log(t))", frame, "poisson", **QUIET).summary()
    assert (np.abs(table["estimate"] - [0.2, 0.3]) < 4 * table["error"]).all()


def test_offsets_and_censored_times() -> None:
    rng = np.random.default_rng(5)
    t, x = rng.uniform(1, 20, N), rng.normal(size=N)
    time = rng.exponential(t * np.exp(1.0 + 0.4 * x))
    cens = (time > 40.0).astype(int)
    assert 0.1 < cens.mean() < 0.9
    frame = pd.DataFrame({"x": x, "t": t, "time": np.minimum(time, 40), "cens": cens})
    formula = "time | cens(cens) ~ x + offset(log(t))"
    table = sgmcmc.glm(formula, frame, "exponential", **QUIET).summary()
    assert (np.abs(table["estimate"] - [1.0, 0.4]) < 4 * table["error"]).all()


def test_weights_of_four_halve_errors(without_f: sgmcmc.Regression) -> None:
    fit = sgmcmc.glm("y ~ x", FRAME, weights=np.full(N, 4.0), **QUIET)
    ratio = fit.summary()["error"] / without_f.summary()["error"]
    np.testing.assert_allclose(ratio, 0.5, rtol=0.05 + 4 / np.sqrt(800) * np.sqrt(2))


def test_effects_of_groups(
    mixed: sgmcmc.Regression, mixed_frame: pd.DataFrame, effects_of_sites: pd.DataFrame
) -> None:
    u = mixed_frame.groupby("site")["u"].first()
    assert list(mixed.group_sds.index) == ["sd(site: Intercept)"]
    table = mixed.summary()
    for term, truth in (
        ("x", 0.5),
        ("sigma", 0.7),
        ("sd(site: Intercept)", u.std(ddof=0)),
    ):
        assert abs(table["estimate"][term] - truth) < 4 * table["error"][term]
    effects = effects_of_sites
    assert effects.shape == (40, 4) and effects.index[0] == ("s00", "Intercept")
    assert np.corrcoef(effects["estimate"], u)[0, 1] > 0.9
    rows = pd.DataFrame({"x": [0.0, 0.0], "f": "low", "site": ["s03", "another"]})
    new = mixed.predict(rows, "response")
    assert new[:, 1].std() > new[:, 0].std()
    with pytest.raises(ValueError, match="`by` must be a factor"):
        mixed.effects("school")


@pytest.mark.slow
def test_new_groups_with_two_effects() -> None:
    rng = np.random.default_rng(7)
    site = np.repeat(np.arange(40), 10)
    x = rng.normal(size=400)
    own = rng.normal(size=(40, 2)) @ np.diag([1.0, 0.5])
    y = 1.0 + x + own[site, 0] + own[site, 1] * x + 0.3 * rng.normal(size=400)
    frame = pd.DataFrame({"y": y, "x": x, "site": site})
    fit = sgmcmc.glm("y ~ x + (1 + x | site)", frame, ess=200, **QUIET)
    rows = pd.DataFrame({"x": np.ones(200), "site": np.arange(100, 300)})
    found = fit.predict(rows, "response")
    # All that is known of their effects is their distribution, whose correlation is small.
    one, other = fit.group_sds["estimate"].to_numpy()[:2]
    least, most = (
        np.sqrt(one**2 + other**2 + 2 * r * one * other) for r in (-0.5, 0.5)
    )
    assert 0.9 * least < found.std() < 1.1 * most


@pytest.mark.slow
def test_correlated_effects() -> None:
    rng = np.random.default_rng(7)
    cov = np.array([[0.5, 0.2], [0.2, 0.3]])
    site = np.repeat(np.arange(80), 15)
    u = rng.multivariate_normal([0, 0], cov, 80)
    x = rng.normal(size=1200)
    y = 1.0 + 0.5 * x + u[site, 0] + u[site, 1] * x + 0.7 * rng.normal(size=1200)
    frame = pd.DataFrame({"x": x, "y": y, "site": site})
    table = sgmcmc.glm("y ~ x + (1 + x | site)", frame, **QUIET).summary()
    found = np.cov(u.T)
    truth = {
        "sd(site: Intercept)": np.sqrt(found[0, 0]),
        "sd(site: x)": np.sqrt(found[1, 1]),
        "cor(site: Intercept, x)": found[0, 1] / np.sqrt(found[0, 0] * found[1, 1]),
    }
    for term, value in truth.items():
        assert abs(table["estimate"][term] - value) < 3 * table["error"][term]
    apart = sgmcmc.glm("y ~ x + (1 + x || site)", frame, **QUIET).group_sds
    assert list(apart.index) == ["sd(site: Intercept)", "sd(site: x)"]


@pytest.mark.parametrize(
    ("text", "fixed", "bars"),
    [
        ("y ~ x", "x", []),
        ("y ~ (1 | g)", "1", [("1", "g", True)]),
        (
            "y ~ x*C(f) + (1 + x | a/b)",
            "x*C(f)",
            [("1 + x", "a", True), ("1 + x", "a:b", True)],
        ),
        (
            "y ~ (1 | g) + x + (0 + x || h)",
            "x",
            [("1", "g", True), ("0 + x", "h", False)],
        ),
        ("y ~ (x + z)**2 + (1|g)", "(x + z)**2", [("1", "g", True)]),
    ],
)
def test_formulas(text: str, fixed: str, bars: list[Any]) -> None:
    found = parse(text)
    assert found.fixed == fixed
    assert [(bar.terms, bar.by, bar.correlated) for bar in found.bars] == bars


def test_the_left_side_and_offsets() -> None:
    found = parse("y | trials(n) ~ x + offset(log(t))")
    assert (found.response, found.trials, found.offset, found.fixed) == (
        "y",
        "n",
        "log(t)",
        "x",
    )
    assert parse("time | cens(c) ~ 1").censored == "c"
    found = parse("y ~ factor(f) + as.factor(g):x + (1 | factor(g))")
    assert (found.fixed, found.bars[0].by) == ("C(f) + C(g):x", "g")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("y x", FRAME), "`formula` must have a response"),
        (("y | what(n) ~ x", FRAME), "trials"),
        (("y ~ z", FRAME), "`formula`.*'z'"),
        (("w ~ x", FRAME), "`formula` names 'w'"),
        (("y ~ x", FRAME, "normal"), "`family` must be .*mean 'gaussian'"),
        (("cbind(y, n - y) ~ x", FRAME, "binomial"), "'cbind'.* Write y | trials"),
        (("y ~ I(x^2)", FRAME), r"Powers inside of I\(\) are x \*\* 2"),
        (("y ~ x", FRAME, "poisson"), "must hold integers, 0 or more"),
        (("y ~ x + I(2 * x)", FRAME), "is a linear combination"),
        (("y ~ x + C(f)", FRAME.assign(f="a")), "'f'.* has one level"),
        (
            ("y ~ x", FRAME.assign(x=np.where(np.arange(N) == 3, np.nan, X))),
            "missing values",
        ),
        (("y ~ x + (1 | )", FRAME), "must have terms, a bar and a factor"),
        (("y | trials(8) ~ x", FRAME), "is for family 'binomial' only"),
        (
            ("y ~ x", FRAME.assign(y=1), "binomial"),
            "'binomial' needs the number of trials",
        ),
        (("y ~ ", FRAME), "'~' and terms"),
        (("y ~ x + 1 | f", FRAME), "of groups in parentheses"),
    ],
)
def test_wrong_inputs_are_named(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sgmcmc.glm(*arguments, **QUIET)


def test_columns_of_a_dot_may_be_redundant() -> None:
    """All indicators of a factor, and a column of zeros: the predictions are those without."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": X, "a": rng.random(N) < 0.4, "none": 0.0}).astype(float)
    frame["b"] = 1.0 - frame["a"]
    frame["y"] = 1.0 + X + frame["a"] + rng.normal(size=N)
    fit = sgmcmc.glm("y ~ .", frame, **QUIET)
    assert fit.warnings[0].startswith("Of 'none', 'b' the data say nothing")
    design = np.column_stack([np.ones(N), X, frame["a"]])
    beta, rest, *_ = np.linalg.lstsq(design, frame["y"], rcond=None)
    error = 4 * np.sqrt(rest[0] / (N - 3)) / np.sqrt(N)
    assert np.abs(fit.predict() - design @ beta).max() < error
    with pytest.raises(ValueError, match="'b' is a linear combination"):
        sgmcmc.glm("y ~ x + a + b", frame, **QUIET)


@pytest.mark.slow
def test_of_columns_that_a_dot_goes_without_nothing_is_said() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": X, "a": rng.random(N) < 0.4, "none": 0.0}).astype(float)
    frame["b"] = 1.0 - frame["a"]
    frame["y"] = 1.0 + X + frame["a"] + rng.normal(size=N)
    assert not sgmcmc.glm("y ~ . - b - none", frame, **QUIET).warnings


def test_wrong_priors_and_rows_that_are_dropped() -> None:
    with pytest.raises(ValueError, match="`priors` names 'z'"):
        sgmcmc.glm("y ~ x", FRAME, priors={"z": (0, 1)}, **QUIET)
    with pytest.raises(
        ValueError, match="`priors\\['x'\\]`.* a positive standard deviation"
    ):
        sgmcmc.glm("y ~ x", FRAME, priors={"x": (0, -1)}, **QUIET)
    with pytest.raises(TypeError, match="read others with pandas first"):
        sgmcmc.glm("y ~ x", "rows.csv", **QUIET)
    with pytest.raises(TypeError, match="must be a pair"):
        sgmcmc.glm("y ~ x", FRAME, priors={"x": 3}, **QUIET)
    gaps = FRAME.assign(x=np.where(np.arange(N) < 7, np.nan, X))
    fit = sgmcmc.glm("y ~ x", gaps, priors={"x": (0.5, 1e-4)}, missing="drop", **QUIET)
    assert fit.dropped == 7 and "7 with missing values dropped" in repr(fit)
    assert abs(fit.summary()["estimate"]["x"] - 0.5) < 1e-3


def test_a_response_without_terms() -> None:
    y = RNG.normal(0.0, 2.0, 100)
    table = sgmcmc.glm("y ~ 0", {"y": y}, **QUIET).summary()
    assert list(table.index) == ["sigma"]
    sigma = np.sqrt(np.mean(y**2))
    assert abs(table["estimate"]["sigma"] - sigma) < 0.5 * sigma / np.sqrt(200)
