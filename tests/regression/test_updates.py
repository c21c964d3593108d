"""Regressions of more rows: one that new rows are added to, and several that become one."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.groups.labels import labeled
from sgmcmc.regression.building import make_model
from sgmcmc.regression.families import read_family
from sgmcmc.regression.formula import parse
from sgmcmc.regression.frames import as_frame, with_levels_of
from sgmcmc.regression.model import RegressionModel
from sgmcmc.regression.sampling import need_known_levels, stacked
from sgmcmc.regression.saved import Content
from tests import seams

QUIET: dict[str, Any] = {"seed": 1, "verbose": False}


def rows(size: int, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(3.0, 2.0, size)
    site = rng.choice(list("abcdefgh"), size)
    kind = rng.choice(["low", "middle", "high"], size)
    y = (
        1e6
        + 2.0 * x
        + (kind == "high")
        + rng.normal(size=8)[site.view("U1").view("i4") - 97]
    )
    return pd.DataFrame(
        {"x": x, "site": site, "kind": kind, "y": y + rng.normal(size=size)}
    )


FRAME = rows(300)
OLD, NEW = FRAME.iloc[:200], FRAME.iloc[200:]


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ poly(x, 2) + kind",
        pytest.param("y ~ x + (x | site)", marks=pytest.mark.slow),
    ],
)
def test_an_updated_regression_is_that_of_all_rows(formula: str) -> None:
    fit = sgmcmc.glm(formula, OLD, **QUIET)
    before = fit.summary()
    updated = fit.update(NEW, seed=1, verbose=False)
    pd.testing.assert_frame_equal(
        updated.summary(), sgmcmc.glm(formula, FRAME, **QUIET).summary()
    )
    pd.testing.assert_frame_equal(fit.summary(), before)
    assert len(updated.predict()) == 300
    again = updated.update(NEW, verbose=False)
    assert again.samples.settings["N"] == 400
    assert again.samples.settings["seed"] == 2


def test_a_chain_goes_on_from_the_old_mode() -> None:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"x": rng.normal(size=3000)})
    frame["y"] = rng.random(3000) < 1 / (1 + np.exp(-frame["x"]))
    fit = sgmcmc.glm(
        "y ~ x", frame.iloc[:2000], "bernoulli", ess=100, n_chains=2, **QUIET
    )
    updated = fit.update(frame.iloc[2000:], verbose=False)
    # Independent of the chain: Newton's method, and the information there.
    X, beta = np.column_stack([np.ones(3000), frame["x"]]), np.zeros(2)
    for _ in range(20):
        p = 1 / (1 + np.exp(-X @ beta))
        information = (X.T * (p * (1 - p))) @ X
        beta = beta + np.linalg.solve(information, X.T @ (frame["y"] - p))
    sds = np.sqrt(np.diag(np.linalg.inv(information)))
    table = updated.summary()
    assert updated.samples.settings["N"] == 3000
    errors = (table["estimate"] - beta) / sds
    assert (errors.abs() < 4 / np.sqrt(table["ess_bulk"]) + 0.05).all()
    np.testing.assert_allclose(table["error"], sds, rtol=4 / np.sqrt(2 * 100) + 0.05)


def test_combined_regressions_are_that_of_all_rows(tmp_path: Path) -> None:
    """On two machines: other orders of levels, other groups, and text that is a category."""
    formula = "y ~ x + kind + (1 | site)"
    first = OLD.assign(kind=pd.Categorical(OLD["kind"], ["low", "middle", "high"]))
    second = NEW.assign(
        kind=pd.Categorical(NEW["kind"], ["high", "low", "middle"]),
        site=NEW["site"].str.upper(),
    )
    fits = [sgmcmc.glm(formula, part, **QUIET) for part in (first, second)]
    fits[1].save(tmp_path / "fit")
    combined = sgmcmc.combine([fits[0], sgmcmc.Regression.load(tmp_path / "fit")])
    all_rows = pd.concat([OLD, second.assign(kind=NEW["kind"])], ignore_index=True)
    all_rows["kind"] = pd.Categorical(all_rows["kind"], ["low", "middle", "high"])
    together = sgmcmc.glm(formula, all_rows, **QUIET)
    pd.testing.assert_frame_equal(combined.summary(), together.summary())
    assert len(combined.effects("site")) == 16


def test_groups_of_numbers_are_those_of_the_same_value() -> None:
    """Numbers that became floating point, and text of them, in the new rows."""
    numbers = FRAME.assign(site=FRAME["site"].map(ord))
    fit = sgmcmc.glm("y ~ x + (1 | site)", numbers.iloc[:200], **QUIET)
    expected = fit.update(numbers.iloc[200:], seed=1, verbose=False).summary()
    for kind in (float, str):
        new = numbers.iloc[200:].astype({"site": kind})
        updated = fit.update(new, seed=1, verbose=False)
        assert len(updated.effects("site")) == 8
        pd.testing.assert_frame_equal(updated.summary(), expected)


@pytest.mark.parametrize("prior", [None, {"kind[T.low]": (0.0, 0.01)}])
def test_text_and_then_a_category_keep_the_reference(prior: Any) -> None:
    """Both have "high" as reference, which is not the level of the first row."""
    old = OLD.sort_values("kind", ascending=False)
    coded = NEW.assign(kind=NEW["kind"].astype("category"))
    fit = sgmcmc.glm("y ~ x + kind", old, priors=prior, **QUIET)
    expected = fit.update(NEW, seed=1, verbose=False).summary()
    found = fit.update(coded, seed=1, verbose=False).summary()
    pd.testing.assert_frame_equal(found, expected)
    other = sgmcmc.glm("y ~ x + kind", coded, priors=prior, **QUIET)
    combined = sgmcmc.combine([fit, other], verbose=False)
    pd.testing.assert_frame_equal(combined.summary(), expected)


def test_groups_of_fractions_and_of_text_are_those_of_the_same_value() -> None:
    tenths = FRAME.assign(site=FRAME["site"].map(ord) / 10)
    for kind in (float, str):
        rows = tenths.astype({"site": kind})
        fit = sgmcmc.glm("y ~ x + (1 | site)", rows.iloc[:200], **QUIET)
        expected = fit.update(rows.iloc[200:], seed=1, verbose=False).summary()
        new = tenths.iloc[200:].astype({"site": "float32"})
        updated = fit.update(new, seed=1, verbose=False)
        assert len(updated.effects("site")) == 8
        pd.testing.assert_frame_equal(updated.summary(), expected)


def test_weights_and_dropped_rows_add_up() -> None:
    weights = np.arange(300) % 3
    frame = FRAME.assign(n=weights)
    frame.loc[[5, 250], "x"] = np.nan
    keywords = {"weights": "n", "missing": "drop", **QUIET}
    fit = sgmcmc.glm("y ~ x", frame.iloc[:200], **keywords)
    updated = fit.update(frame.iloc[200:], seed=1, verbose=False)
    together = sgmcmc.glm("y ~ x", frame, **keywords)
    pd.testing.assert_frame_equal(updated.summary(), together.summary())
    assert updated.dropped == 2
    # Weights of some rows alone: the others count once.
    fit = sgmcmc.glm("y ~ x", OLD, **QUIET)
    updated = fit.update(NEW, weights=np.full(100, 2), seed=1, verbose=False)
    ones_and_twos = np.repeat([1, 2], [200, 100])
    together = sgmcmc.glm("y ~ x", FRAME, weights=ones_and_twos, **QUIET)
    pd.testing.assert_frame_equal(updated.summary(), together.summary())


def without_draws(monkeypatch: pytest.MonkeyPatch) -> list[Content]:
    """Return the contents that regressions would be sampled for from now on."""
    contents: list[Content] = []

    def sampled(content: Content) -> Any:
        contents.append(content)
        raise KeyboardInterrupt

    monkeypatch.setattr(seams.REGRESSION_SAMPLED, sampled)
    return contents


def test_columns_of_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Named in one regression alone, given as an array, or named for the new rows."""
    weighted = sgmcmc.glm("y ~ x", OLD.assign(n=2), weights="n", **QUIET)
    plain = sgmcmc.glm("y ~ x", NEW, **QUIET)
    NEW.assign(m=3).to_parquet(tmp_path / "new.parquet")
    contents = without_draws(monkeypatch)
    for call in (
        lambda: sgmcmc.combine([weighted, plain]),
        lambda: sgmcmc.combine([plain, weighted]),
        lambda: weighted.update(NEW, weights=np.full(100, 3)),
        lambda: weighted.update(tmp_path / "new.parquet", weights="m"),
    ):
        with pytest.raises(KeyboardInterrupt):
            call()
    expected = [[2, 1], [1, 2], [2, 3], [2, 3]]
    sizes = [[200, 100], [100, 200], [200, 100], [200, 100]]
    for content, of_parts, size in zip(contents, expected, sizes, strict=True):
        np.testing.assert_array_equal(content.weights, np.repeat(of_parts, size))
        if content.weights_column:
            np.testing.assert_array_equal(content.frame["n"], content.weights)
    with pytest.raises(
        ValueError, match="`rows` has no column 'k', which `weights` names"
    ):
        plain.update(NEW, weights="k")


def test_a_call_is_repeated_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keywords = {"missing": "drop", "ess": 50, "n_chains": 2, "dtype": tf.float64}
    fit = sgmcmc.glm("y ~ x", OLD, priors={"x": (0, 1)}, **keywords, **QUIET)
    fit.save(tmp_path / "fit")
    loaded = sgmcmc.Regression.load(tmp_path / "fit")
    contents = without_draws(monkeypatch)
    for regression in (fit, loaded, copy.deepcopy(fit)):
        with pytest.raises(KeyboardInterrupt):
            regression.update(NEW.assign(x=NEW["x"].where(NEW["x"] > 2)), verbose=False)
        with pytest.raises(KeyboardInterrupt):
            sgmcmc.combine([regression, fit])
    for content in contents:
        given = {**content.keywords, "dtype": tf.as_dtype(content.keywords["dtype"])}
        assert {name: given[name] for name in keywords} == keywords
        assert content.priors == {"x": (0.0, 1.0)}
    assert contents[0].dropped == (NEW["x"] <= 2).sum()


def test_flags_and_numbers_are_one_column(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = sgmcmc.glm("y ~ k", OLD.assign(k=OLD["x"] > 3), **QUIET)
    contents = without_draws(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        fit.update(NEW.assign(k=(NEW["x"] > 3).astype(int)))
    np.testing.assert_array_equal(contents[0].frame["k"], (FRAME["x"] > 3).astype(int))


def test_the_rows_are_those_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the user does with the frame afterwards."""
    frame = OLD.copy()
    fit = sgmcmc.glm("y ~ x", frame, **QUIET)
    frame["x"] *= 100
    contents = without_draws(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        fit.update(NEW)
    np.testing.assert_array_equal(contents[0].frame["x"], FRAME["x"])


@pytest.fixture(scope="module")
def fit() -> sgmcmc.Regression:
    return sgmcmc.glm("y ~ x + kind", OLD, **QUIET)


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (NEW.drop(columns="x"), "`rows` has no column 'x', which the formula uses"),
        (NEW.assign(kind="none"), "'none'"),
        (NEW.iloc[:0], "`rows` has no rows"),
        (NEW.assign(x=np.nan), "`rows` has 100 missing values in 'x'|'x'"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    fit: sgmcmc.Regression, new: pd.DataFrame, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        fit.update(new, verbose=False)


def test_what_cannot_be_combined_is_refused(fit: sgmcmc.Regression) -> None:
    with pytest.raises(TypeError, match="`fits` must be a list of regressions"):
        sgmcmc.combine([fit, fit.samples])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="`fits` must be two regressions or more"):
        sgmcmc.combine([fit])
    other = sgmcmc.glm("y ~ x", OLD, **QUIET)
    with pytest.raises(ValueError, match="formula is 'y ~ x [+] kind' in the first"):
        sgmcmc.combine([fit, other])
    other = sgmcmc.glm("y ~ x + kind", OLD, priors={"x": (0, 1)}, **QUIET)
    with pytest.raises(ValueError, match="priors is"):
        sgmcmc.combine([fit, other])
    dots = [
        sgmcmc.glm("y ~ .", OLD[columns], **QUIET)
        for columns in (["y", "x"], ["y", "x", "kind"])
    ]
    with pytest.raises(ValueError, match="formula is"):
        sgmcmc.combine(dots)
    with pytest.raises(TypeError, match="`reduce`"):
        sgmcmc.combine([fit, fit], reduce="no")


def test_a_new_level_of_the_response_is_refused() -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"x": rng.normal(size=60), "y": np.arange(60) % 3})
    fit = sgmcmc.glm("y ~ x", frame, "ordinal", ess=50, n_chains=2, **QUIET)
    with pytest.raises(ValueError, match="3"):
        fit.update(frame.assign(y=3), verbose=False)


CODES = np.random.default_rng(4).choice([1, 2, 10], 60)
CODES[:5] = 10, 2, 1, 2, 10  # neither the first level nor their order comes first
FORMS: dict[str, Any] = {
    "integers": CODES,
    "floats": CODES.astype(float),
    "single precision": CODES.astype(np.float32),
    "text": CODES.astype(str),
    "text of floats": CODES.astype(float).astype(str),
    "categories": pd.Categorical(CODES),
    "categories in another order": pd.Categorical(CODES, [10, 1, 2]),
    "categories of text": pd.Categorical(CODES.astype(str), ["2", "10", "1"]),
}


def _content(codes: Any) -> Content:
    y = np.arange(float(len(codes)))
    frame = as_frame({"y": y, "k": codes, "h": codes})
    formula = "y ~ C(k) + (1 | h)"
    return Content(formula, "gaussian", "identity", {}, frame, None, None, 0, {})


def _model_of(content: Content) -> RegressionModel:
    family = read_family("gaussian", None)
    return make_model(parse(content.formula), content.frame, family, None)[0]


@pytest.mark.parametrize("second", FORMS)
@pytest.mark.parametrize("first", FORMS)
def test_levels_of_all_rows_are_those_of_the_first(first: str, second: str) -> None:
    """Factors keep their reference and their names, and groups of one value are one."""
    old, new = _content(FORMS[first][:40]), _content(FORMS[second][40:])
    model = _model_of(old)
    need_known_levels(model, new.frame)
    both = stacked([old, new], model.coded_columns)
    joined = _model_of(both)
    assert joined.terms == model.terms
    wanted = model.factors["k"].levels
    assert joined.factors["k"].levels.codes(wanted.values).tolist() == [0, 1, 2]
    X = joined.design.matrix(with_levels_of(both.frame, joined.factors))[:, 1:]
    np.testing.assert_array_equal(X, np.eye(3)[wanted.codes(CODES)][:, 1:])
    (groups,) = joined.labels(both.frame).values()
    found = labeled("h", groups)
    assert found.levels.codes(CODES).tolist() == found.codes.tolist()
    assert len(found.levels) == 3


def test_levels_of_fractions_and_new_groups() -> None:
    tenths = CODES / 10
    for first, second in ((float, "f4"), ("f4", float)):
        parts = [
            _content(tenths[:40].astype(first)),
            _content(tenths[40:].astype(second)),
        ]
        model = _model_of(parts[0])
        need_known_levels(model, parts[1].frame)
        joined = _model_of(stacked(parts, model.coded_columns))
        assert joined.terms == model.terms
    text, other = _content(np.array(["b", "c"] * 5)), _content(pd.Categorical(["a"]))
    both = stacked([text, other], ["k", "h"])
    assert _model_of(both).terms == ("Intercept", "C(k)[T.b]", "C(k)[T.c]")


def test_an_update_beyond_the_knots_of_a_spline() -> None:
    rows = OLD.sort_values("x")
    model = _model_of(
        replace(_content(CODES), formula="y ~ bs(x, df=4) + kind", frame=rows[:100])
    )
    need_known_levels(model, rows[100:])
    with pytest.raises(ValueError, match="'none'"):
        need_known_levels(model, rows[100:].assign(kind="none"))


def test_a_factor_of_one_regression_alone() -> None:
    numbers = FRAME.assign(kind=np.arange(300) % 3)
    fits = [
        sgmcmc.glm("y ~ x + kind", rows, **QUIET)
        for rows in (numbers[:200], numbers[200:].astype({"kind": str}))
    ]
    with pytest.raises(
        ValueError, match=r"factors is \[\] in the first and \['kind'\]"
    ):
        sgmcmc.combine(fits)
    with pytest.raises(ValueError, match="'kind' must be numbers, as in the rows"):
        fits[0].update(numbers[:9].astype({"kind": str}))
