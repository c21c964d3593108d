"""Averages over rows: all of them, with their weights, in whatever pieces and order they come."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.special

import sgmcmc
from sgmcmc.regression import linear_predictor
from sgmcmc.regression.building import make_model
from sgmcmc.regression.families import read_family
from sgmcmc.regression.formula import parse
from sgmcmc.regression.model import REFERENCE
from tests import seams

SHORT: dict[str, Any] = {
    "dynamics": "hmc", "gradient": "full", "preconditioner": "none", "stepsize": 0.02,
    "n_iters": 200, "burn_in": 100, "n_chains": 2, "seed": 1, "verbose": False,
    "jit_compile": False,
}  # fmt: skip
"""A chain whose constants are given: averages are over the draws that there are."""
N = 3000
RNG = np.random.default_rng(2)
FRAME = pd.DataFrame(
    {
        "x": RNG.normal(size=N),
        "f": pd.Categorical(
            RNG.choice(["lo", "mid", "hi"], N, p=[0.69, 0.3, 0.01]), ["lo", "mid", "hi"]
        ),
        "w": RNG.integers(0, 4, N),
        "rows": RNG.choice(["b", "a"], N),
    }
)
FRAME["y"] = RNG.binomial(
    1, scipy.special.expit(FRAME["x"] - 1.0 * (FRAME["f"] == "hi"))
)
GROUPED = pd.DataFrame({"g": np.repeat(np.arange(30), 10), "x": RNG.normal(size=300)})
GROUPED["y"] = GROUPED["x"] + np.repeat(RNG.normal(size=30), 10) + RNG.normal(size=300)


@pytest.fixture(scope="module")
def fit() -> sgmcmc.Regression:
    return sgmcmc.glm("y ~ x * f", FRAME, "bernoulli", weights="w", **SHORT)


@pytest.fixture(scope="module")
def grouped() -> sgmcmc.Regression:
    return sgmcmc.glm("y ~ x + (1 | g)", GROUPED, **{**SHORT, "stepsize": 0.1})


def direct(fit: sgmcmc.Regression, frame: pd.DataFrame) -> np.ndarray:
    """Return draws of the expected response, written out: (draws, rows)."""
    by_term = fit._by_term(fit._predictor.thinned)
    b = {name: draws.reshape(-1, 1) for name, draws in by_term.items()}
    x, mid, hi = frame["x"].to_numpy(float), frame["f"] == "mid", frame["f"] == "hi"
    eta = b["Intercept"] + b["x"] * x
    for level, there in (("mid", mid.to_numpy(float)), ("hi", hi.to_numpy(float))):
        eta = eta + (b[f"f[T.{level}]"] + b[f"x:f[T.{level}]"] * x) * there
    return scipy.special.expit(eta)


def described(draws: np.ndarray) -> list[float]:
    return [draws.mean(), draws.std(), *np.quantile(draws, [0.025, 0.975])]


def test_averages_are_over_all_rows_with_their_weights(fit: sgmcmc.Regression) -> None:
    mean, w = direct(fit, FRAME), FRAME["w"].to_numpy(float)
    table = fit.predictions(by="f")
    assert list(table.columns) == ["f", "estimate", "error", "lower", "upper", "rows"]
    assert list(table["f"]) == ["lo", "mid", "hi"]
    for place, level in enumerate(["lo", "mid", "hi"]):
        own = w * (FRAME["f"] == level)
        wanted = described(mean @ own / own.sum())
        np.testing.assert_allclose(
            table.iloc[place, 1:5].astype(float), wanted, rtol=1e-9
        )
        assert table["rows"][place] == own.sum()
    changes = fit.comparisons()
    after = direct(fit, FRAME.assign(x=FRAME["x"] + 1.0))
    wanted = described((after - mean) @ w / w.sum())
    np.testing.assert_allclose(changes.loc["x: +1"].iloc[:4], wanted, rtol=1e-9)
    high, low = (direct(fit, FRAME.assign(f=level)) for level in ("hi", "lo"))
    wanted = described((high - low) @ w / w.sum())
    np.testing.assert_allclose(changes.loc["f: hi - lo"].iloc[:4], wanted, rtol=1e-9)
    by_term = fit._by_term(fit._predictor.thinned)
    slope = by_term["x"].reshape(-1, 1)
    for level in ("mid", "hi"):
        slope = (
            slope
            + by_term[f"x:f[T.{level}]"].reshape(-1, 1)
            * (FRAME["f"] == level).to_numpy()
        )
    wanted = described((mean * (1 - mean) * slope) @ w / w.sum())
    np.testing.assert_allclose(fit.slopes("x").iloc[0, :4], wanted, rtol=1e-6)
    np.testing.assert_allclose(fit.predict(), mean.mean(0), rtol=1e-9)
    every = fit.predictions()
    assert len(every) == N and not every.columns.duplicated().any()
    wanted = np.quantile(mean, [0.025, 0.975], axis=0).T
    np.testing.assert_allclose(every[["lower", "upper"]], wanted, rtol=1e-9)


def test_pieces_and_order_of_rows_change_nothing(
    fit: sgmcmc.Regression, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = FRAME.iloc[:250]
    questions: list[dict[str, Any]] = [{"by": "f"}, {"by": ["rows", "f"]}, {}]
    before = [fit.predictions(some, **each) for each in questions]
    changes = fit.comparisons("x", some, by="rows")
    shuffled = some.sample(frac=1.0, random_state=1)
    for frame in (shuffled, shuffled.reset_index(drop=True)):
        for each, wanted in zip(questions[:2], before, strict=False):
            found = fit.predictions(frame, weights="w", **each)
            pd.testing.assert_frame_equal(found, wanted, rtol=1e-9)
    settings = seams.changed(
        seams.LINEAR_PREDICTOR,
        numbers_at_once=1,
        draws_at_once=1,
        max_averages=1,
        rows_at_once=100,
    )
    monkeypatch.setattr(seams.LINEAR_PREDICTOR, settings)
    for each, wanted in zip(questions[:2], before, strict=False):
        pd.testing.assert_frame_equal(fit.predictions(some, **each), wanted, rtol=1e-9)
    pd.testing.assert_frame_equal(
        fit.comparisons("x", some, by="rows"), changes, rtol=1e-8
    )
    settings = seams.changed(seams.LINEAR_PREDICTOR, max_averages=2**16)
    monkeypatch.setattr(seams.LINEAR_PREDICTOR, settings)
    pd.testing.assert_frame_equal(fit.predictions(some), before[2], rtol=1e-9)


def test_weights_are_repeated_rows(fit: sgmcmc.Regression) -> None:
    repeated = FRAME.loc[FRAME.index.repeat(FRAME["w"])].reset_index(drop=True)
    ones = np.ones(len(repeated))
    for by in (None, "rows"):
        one = fit.comparisons(by=by)
        two = fit.comparisons(data=repeated, weights=ones, by=by)
        pd.testing.assert_frame_equal(one, two, rtol=1e-9)
    one, two = fit.slopes("x"), fit.slopes("x", repeated, weights=ones)
    pd.testing.assert_frame_equal(one, two, rtol=1e-8)
    # Rows of weight zero are not there, and a column of the fit's weights is used in new rows too.
    none = FRAME.assign(w=np.where(FRAME["f"] == "hi", 0, FRAME["w"]))
    assert list(fit.predictions(none, by="f")["f"]) == ["lo", "mid"]
    with pytest.raises(ValueError, match="`weights` are zero in every row"):
        fit.predictions(FRAME, by="f", weights=np.zeros(N))
    with pytest.raises(ValueError, match="`weights` must be a number"):
        fit.slopes("x", weights=[1.0])


def test_columns_of_results_have_names_of_their_own(fit: sgmcmc.Regression) -> None:
    by = fit.predictions(by="rows")
    assert list(by.columns) == ["`rows`", "estimate", "error", "lower", "upper", "rows"]
    assert list(by["`rows`"]) == ["a", "b"]
    names = ["estimate", "error", "lower", "upper", "`lower`", "number_"]
    some = FRAME.iloc[:7].assign(**dict.fromkeys(names, 1.0))
    table = fit.predictions(some)
    assert not table.columns.duplicated().any() and (table["`estimate`"] == 1.0).all()
    assert list(fit.predictions(some, by=["number_", "upper"]).columns)[:2] == [
        "number_",
        "`upper`",
    ]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pd.Categorical(["b", "a", None] * 2, ["b", "c", "a"]), ["b", "a", None]),
        ([True, False, True] * 2, [False, True]),
        ([2.5, np.nan, -1.0] * 2, [-1.0, 2.5, np.nan]),
        (["x", 1, "x"] * 2, [1, "x"]),
        (pd.to_datetime(["2020-01-02", "2020-01-01", None] * 2), None),
    ],
)
def test_values_of_by_are_in_the_order_of_levels(
    fit: sgmcmc.Regression, values: Any, wanted: Any
) -> None:
    some = FRAME.iloc[:6].assign(z=values, w=1)
    table = fit.predictions(some, by="z")
    assert table["rows"].sum() == 6 and len(
        fit.comparisons("x", some, by=["z"])
    ) == len(table)
    if wanted is not None:
        for found, each in zip(table["z"], wanted, strict=True):
            assert found == each or (pd.isna(found) and pd.isna(each))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "Int64", "Float32"])
def test_numbers_of_any_type_have_the_same_slopes_and_comparisons(
    fit: sgmcmc.Regression, dtype: str
) -> None:
    """255 + 1 is 256, and years of float32 have slopes."""
    whole = FRAME.assign(x=RNG.integers(250, 256, N), w=1).iloc[:500]
    other = whole.assign(x=whole["x"].astype(dtype if dtype != "int16" else "int16"))
    for found in (fit.comparisons, fit.slopes):
        pd.testing.assert_frame_equal(found("x", other), found("x", whole), rtol=1e-9)


def test_slopes_far_from_zero_and_at_the_ends_of_a_spline() -> None:
    year = 2000.0 + RNG.integers(0, 20, 200)
    y = 0.001 * (year - 2010) + 0.01 * RNG.normal(size=200)
    frame = pd.DataFrame({"year": year.astype(np.float32), "y": y})
    fit = sgmcmc.glm("y ~ year", frame, **SHORT)
    draws = fit._by_term(fit._predictor.thinned)["year"].reshape(-1)
    np.testing.assert_allclose(fit.slopes().iloc[0, :4], described(draws), rtol=1e-6)


def test_new_groups_are_drawn_once_and_alone(
    grouped: sgmcmc.Regression, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pd.DataFrame({"g": np.repeat([100, 101, 102], 3), "x": 0.0})

    def drawn(frame: pd.DataFrame) -> np.ndarray:
        return np.concatenate(
            [eta for _, eta in grouped._predictor.predictors(frame)], 1
        )

    eta = drawn(rows)
    assert (eta[:, ::3] == eta[:, 2::3]).all()
    residual = eta[:, ::3] - grouped._by_term(grouped._predictor.thinned)[
        "Intercept"
    ].reshape(-1, 1)
    correlation = np.corrcoef(residual.T)
    # Draws given the same global draws, whose SD varies little: 4.5 standard errors.
    assert np.abs(correlation - np.eye(3)).max() < 4.5 / np.sqrt(len(eta))
    # In another order, in pieces of rows, and fewer effects at a time than groups.
    settings = seams.changed(seams.REGRESSION_PREDICTIONS, draws_at_once=1)
    monkeypatch.setattr(seams.REGRESSION_PREDICTIONS, settings)
    settings = seams.changed(
        seams.LINEAR_PREDICTOR,
        numbers_at_once=1,
        draws_at_once=1,
        max_effects=2 * len(eta),
    )
    monkeypatch.setattr(seams.LINEAR_PREDICTOR, settings)
    order = np.random.default_rng(1).permutation(9)
    order = order[order < 6]  # without the last group
    # Sums of numbers of size one in float32, which may be near zero.
    np.testing.assert_allclose(
        drawn(rows.iloc[order]), eta[:, order], rtol=1e-5, atol=1e-6
    )


@pytest.mark.slow
def test_every_average_over_new_groups(
    grouped: sgmcmc.Regression, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pd.DataFrame({"g": np.repeat([3, 100, 101, 102, 5], 3), "x": 0.0})

    def drawn(frame: pd.DataFrame) -> np.ndarray:
        return np.concatenate(
            [eta for _, eta in grouped._predictor.predictors(frame)], 1
        )

    eta = drawn(rows)
    order = np.random.default_rng(1).permutation(15)
    np.testing.assert_allclose(drawn(rows.iloc[order]), eta[:, order], rtol=1e-5)
    # Sums of numbers of size one in float32, which may be near zero.
    np.testing.assert_allclose(
        drawn(rows.iloc[9:12]), eta[:, 9:12], rtol=1e-5, atol=1e-6
    )
    with monkeypatch.context() as patch:
        settings = seams.changed(seams.REGRESSION_PREDICTIONS, draws_at_once=1)
        patch.setattr(seams.REGRESSION_PREDICTIONS, settings)
        settings = seams.changed(
            seams.LINEAR_PREDICTOR,
            numbers_at_once=1,
            draws_at_once=1,
            max_effects=2 * len(eta),
        )
        patch.setattr(seams.LINEAR_PREDICTOR, settings)
        np.testing.assert_allclose(drawn(rows.iloc[order]), eta[:, order], rtol=1e-5)
    table = grouped.predictions(rows, by="g")
    np.testing.assert_allclose(table["error"][4], eta[:, 9:12].mean(1).std(), rtol=1e-5)
    slope = grouped._by_term(grouped._predictor.thinned)["x"]
    changes = grouped.comparisons("x", rows)
    np.testing.assert_allclose(changes["error"], slope.std(), rtol=1e-5)
    np.testing.assert_allclose(grouped.predict(rows), eta.mean(0), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "frame"),
    [("fit", FRAME), pytest.param("grouped", GROUPED, marks=pytest.mark.slow)],
    ids=["fit", "grouped"],
)
def test_linear_predictors_are_those_of_the_model(
    name: str, frame: pd.DataFrame, request: pytest.FixtureRequest
) -> None:
    """What NumPy computes in float64 is what the chain's function computes, in its units."""
    each, frame = request.getfixturevalue(name), frame.iloc[:50]
    predictor, model = each._predictor, each._model
    rows = model.rows(frame)
    eta = predictor.thinned.predict(model.predictor, rows, reduce=None)
    ((_, found),) = predictor.predictors(frame)
    wanted = rows[REFERENCE] + model.unit * np.reshape(eta, found.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


WIDE = pd.DataFrame({"x": RNG.normal(size=400), "t": RNG.uniform(1.0, 5.0, 400)})
WIDE["g"] = RNG.integers(0, 12, 400)
WIDE["h"] = [f"h{place % 50}" for place in range(400)]
WIDE["y"] = RNG.poisson(WIDE["t"] * np.exp(0.3 * WIDE["x"]))
WIDE["k"] = RNG.choice(["a", "b", "c"], 400)


class Known(linear_predictor.LinearPredictor):
    """A linear predictor with draws of coefficients that need no chain."""

    def __init__(self, formula: str, family: str) -> None:
        parsed, chosen = parse(formula), read_family(family, None)
        self.model, _ = make_model(parsed, WIDE, chosen, None)
        self.draws, self._names = 7, WIDE.columns
        outcomes = [2] if chosen.several else []
        b = RNG.normal(size=(self.draws, *outcomes, len(self.model.terms)))
        self._b = b if self.model.terms else None


@pytest.mark.parametrize(
    ("formula", "family"),
    [
        ("y ~ x * h + offset(log(t)) + (x | g)", "poisson"),
        ("k ~ x * h + t", "categorical"),
        ("y ~ 0 + offset(log(t)) + (x | g)", "poisson"),
        ("y ~ 0 + h", "poisson"),
    ],
)
@pytest.mark.parametrize("few", [1, 10**6])
def test_changes_of_a_few_numbers_are_those_of_all(
    formula: str, family: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of terms with and without a column for each level, offsets and effects of groups."""
    settings = seams.changed(seams.LINEAR_PREDICTOR, alone=2000, min_rows_alone=few)
    monkeypatch.setattr(seams.LINEAR_PREDICTOR, settings)
    known = Known(formula, family)
    assert ("h" in formula) == bool(known.model.design.coded)
    part = RNG.permutation(400)[:90]
    effects = [
        (
            RNG.normal(size=(len(each.terms), known.draws, 12)),
            WIDE["g"].to_numpy()[part],
        )
        for each in known.model.effects
    ]
    before = known.numbers(WIDE)
    eta = known.values(before.select(part), effects)
    changes = [
        {"x": WIDE["x"] + 1.0},
        {"t": 2.0},
        {"h": "h3"},
        {"x": 0.0, "h": "h0"},
        {},
    ]
    for changed in changes:
        after = known.numbers(WIDE.assign(**changed))
        change = linear_predictor.Change.of(before, after, known.model.design.dense)
        assert change is not None
        wanted = known.values(after.select(part), effects)
        found = known.changed(eta, change.select(part), effects)
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(eta, known.values(before.select(part), effects))


def test_changes_from_or_to_infinity() -> None:
    """A count without exposure has the offset −∞, from which nothing can be subtracted."""
    known = Known("y ~ x + offset(log(t))", "poisson")
    before = known.numbers(WIDE)
    for offset in (before.offset, np.full(400, -np.inf)):
        after = replace(before, offset=np.full(400, -np.inf))
        assert (
            linear_predictor.Change.of(
                replace(before, offset=offset), after, known.model.design.dense
            )
            is None
        )


def test_variables_of_bars_and_offsets() -> None:
    short = {"n_iters": 200, "n_chains": 2, "seed": 1, "verbose": False}
    grouped = sgmcmc.glm("y ~ x + (1 | g)", GROUPED, **short)
    change = grouped.comparisons({"g": (0, 1)}, GROUPED.iloc[:1])
    effects = grouped.effects()["estimate"].to_numpy()
    np.testing.assert_allclose(
        change["estimate"].iloc[0], effects[1] - effects[0], rtol=1e-4
    )
    with pytest.raises(
        TypeError, match=r"`variables\['g'\]` must be a pair of values; it is"
    ):
        grouped.comparisons("g")
    with pytest.raises(ValueError, match="`variables` names 'y'"):
        grouped.slopes("y")


def test_a_grid_of_conditions(fit: sgmcmc.Regression) -> None:
    table = fit.predictions(condition=["f", "x"])
    assert len(table) == 3 * 25 and list(table.columns)[:2] == ["f", "x"]
    changes = fit.comparisons("f", condition={"x": [0.0, 1.0]})
    rows = pd.DataFrame({"x": [0.0, 1.0], "f": ["hi", "hi"]})
    wanted = direct(fit, rows) - direct(fit, rows.assign(f="lo"))
    for place in range(2):
        name = f"f: hi - lo [x = {float(place)}]"
        np.testing.assert_allclose(
            changes.loc[name].iloc[:4], described(wanted[:, place])
        )
    with pytest.raises(ValueError, match="`condition` makes rows"):
        fit.slopes("x", FRAME, condition="f")
