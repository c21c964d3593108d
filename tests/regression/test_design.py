"""The design of a regression in pieces, with terms as integers, against one dense matrix."""

from __future__ import annotations

from typing import Any

import formulaic
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import tensorflow as tf

import sgmcmc
from sgmcmc.groups.structure import read_groups
from sgmcmc.regression.building import make_model, sample_arguments
from sgmcmc.regression.columns import (
    block,
    blocks,
    dependent,
    moments,
    need_independent,
)
from sgmcmc.regression.design import Design, make_design
from sgmcmc.regression.families import read_family
from sgmcmc.regression.formula import parse
from sgmcmc.regression.priors import log_prior
from tests import seams

N = 3000
RNG = np.random.default_rng(1)
FRAME = pd.DataFrame(
    {
        "x": RNG.normal(5.0, 2.0, N),
        "z": RNG.normal(size=N),
        "f": RNG.choice([f"L{level:02d}" for level in range(40)], N),
        "g": RNG.integers(0, 50, N),
        "h": RNG.choice(["a", "b"], N),
        "my col": RNG.uniform(1.0, 2.0, N),
    }
)
QUIET: dict[str, Any] = {"seed": 1, "verbose": False}


def _dense(design: Design, frame: pd.DataFrame) -> np.ndarray:
    """Return all columns of a design as one matrix."""
    made, found = block(design, frame), np.zeros((len(frame), len(design.terms)))
    found[:, design.dense] = made.dense
    for each, (places, weights) in zip(design.coded, made.coded, strict=True):
        own = np.zeros((len(frame), each.size + 1))
        own[np.arange(len(frame)), places] = 1.0 if weights is None else weights
        found[:, each.first : each.first + each.size] = own[:, :-1]
    return found


@pytest.mark.parametrize(
    "terms",
    [
        "x + f", "x * f", "f:h", "f * h", "0 + f", "x:f", "C(g):h + z", "x * C(g) + bs(z, df=5)",
        "`my col`:f", "C(g, contr.sum)", "bs(x, df=4):f", "C(f, Treatment('L03'))",
    ],
)  # fmt: skip
def test_integers_and_pieces_give_the_matrix_of_formulaic(
    terms: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = formulaic.Formula(terms).get_model_matrix(FRAME)
    values = wanted.to_numpy(float)
    design = make_design(terms, FRAME, large=10)
    assert design.terms == tuple(wanted.columns)
    np.testing.assert_allclose(_dense(design, FRAME), values, atol=1e-12)
    # Rows alone are the same: levels and knots are those of all rows.
    some = FRAME.iloc[[5, 900]].reset_index(drop=True)
    np.testing.assert_allclose(_dense(design, some), values[[5, 900]], atol=1e-12)
    settings = seams.changed(seams.REGRESSION_FRAMES, numbers_at_once=5000)
    monkeypatch.setattr(seams.REGRESSION_FRAMES, settings)
    assert len(list(blocks(design, FRAME))) > 1
    found = moments(design, FRAME)
    np.testing.assert_allclose(found.mean, values.mean(0), atol=1e-12)
    centered = values - values.mean(0)
    np.testing.assert_allclose(found.products, centered.T @ centered, atol=1e-8)
    np.testing.assert_allclose(found.sd, values.std(0), rtol=1e-9, atol=1e-7)
    settings = seams.changed(seams.REGRESSION_COLUMNS, max_products=1)
    monkeypatch.setattr(seams.REGRESSION_COLUMNS, settings)
    np.testing.assert_allclose(
        moments(design, FRAME).sd, found.sd, rtol=1e-9, atol=1e-7
    )


def test_large_terms_are_integers_unless_a_row_has_several_columns() -> None:
    for terms, count in [
        ("x + f", 1),
        ("x * f", 2),
        ("C(g) + f:h", 3),
        ("C(g, contr.sum)", 0),
    ]:
        assert len(make_design(terms, FRAME).coded) == count, terms
    assert not make_design("h", FRAME).coded


@pytest.mark.parametrize(
    ("terms", "column"),
    [
        ("I(x - x.mean())", FRAME["x"] - FRAME["x"].mean()),
        ("I(`my col` / max(`my col`))", FRAME["my col"] / FRAME["my col"].max()),
        (
            "I((x - mean(x)) / sd(x))",
            (FRAME["x"] - FRAME["x"].mean()) / FRAME["x"].std(),
        ),
        (
            "x.clip(x.quantile(0.1), 6.0)",
            FRAME["x"].clip(FRAME["x"].quantile(0.1), 6.0),
        ),
        ("scale(x)", (FRAME["x"] - FRAME["x"].mean()) / FRAME["x"].std()),
        (
            "np.where(z > np.median(z), 1.0, x)",
            np.where(FRAME.z > FRAME.z.median(), 1.0, FRAME.x),
        ),
    ],
)
def test_numbers_of_all_rows_are_kept_for_predictions(terms: str, column: Any) -> None:
    design = make_design(terms, FRAME)
    some = FRAME.iloc[7:9].reset_index(drop=True)
    np.testing.assert_allclose(design.matrix(some)[:, 1], np.asarray(column)[7:9])
    assert design.terms[1].replace(" ", "") == terms.replace(" ", "")


def test_numbers_of_all_rows_in_offsets_and_responses() -> None:
    formula = parse("log(y / mean(y)) ~ x + offset(z - z.mean())")
    frame = FRAME.assign(y=np.exp(FRAME["z"] ** 2))
    model, y = make_model(formula, frame, read_family("gaussian", None), None)
    np.testing.assert_allclose(y, np.log(frame["y"] / frame["y"].mean()))
    some = frame.iloc[3:5].reset_index(drop=True)
    wanted = frame["z"] - frame["z"].mean()
    rows = model.rows(some)
    terms = rows["X"] @ (model.origin * model.scale)
    np.testing.assert_allclose(rows["reference"] - terms, wanted[3:5])


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ("x.shift()", "holds 'x.shift'"),
        ("np.cumsum(x)", "holds 'np.cumsum'"),
        ("nothing + x", "names 'nothing'"),
        ("I(x - y.mean())", "names 'y'"),
        ("__import__('os').getcwd()", "names '__import__'"),
        ("x.to_csv('file')", "holds 'x.to_csv'"),
        ("np.load('file')", "holds 'np.load'"),
        ("x.mean.__globals__", "holds"),
        ("[x for x in x]", "listcomp"),
        ("x[0]", "subscript"),
    ],
)
def test_what_formulas_may_not_hold(terms: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"`formula`.*{message}"):
        make_design(f"0 + I({terms})", FRAME)


def test_parts_that_depend_on_other_rows_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        seams.OF_COLUMNS, {"rank", "abs"}
    )  # none of those that are allowed does
    with pytest.raises(
        ValueError, match=r"'x.rank\(\)' of a row depends on other rows"
    ):
        make_design("x.rank()", FRAME)
    assert make_design("x.abs()", FRAME).terms[1] == "x.abs()"


@pytest.mark.parametrize(
    "terms",
    [
        "x + I(2 * x + 1)",
        "f + C(g) + I(C(g))",
        "x + f + I(f > 'L20')",
        "x + bs(x, df=4)",
    ],
)
def test_collinear_terms_are_named(terms: str) -> None:
    frame = FRAME.assign(outer=FRAME["f"].str[:2])
    if terms.startswith("f + C(g) + I"):
        terms = "f + outer"
    design = make_design(terms, frame)
    lost = dependent(design, moments(design, frame), frame)
    assert lost, "at least one"
    with pytest.raises(
        ValueError, match="is a linear combination of the terms before it"
    ):
        need_independent(design, lost, len(frame))


def test_posteriors_do_not_depend_on_how_terms_are_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame = FRAME.assign(y=RNG.poisson(2.0, N))
    formula, family = parse("y ~ x * f + (1 | g)"), read_family("poisson", None)
    made = []
    for large in (10, 1000):
        settings = seams.changed(seams.REGRESSION_DESIGN, large=large)
        monkeypatch.setattr(seams.REGRESSION_DESIGN, settings)
        model, y = make_model(formula, frame, family, None)
        found = sample_arguments(model, y, frame, None)
        assert bool(found["integers"]) == (large == 10)
        rng = np.random.default_rng(2)
        b = tf.constant(0.1 * rng.normal(size=len(model.terms)))
        rows = {
            k: v if k in found["integers"] else np.asarray(v)
            for k, v in found["dataset"].items()
        }
        cast = {
            k: tf.constant(v) if k in found["integers"] else tf.constant(v, tf.float64)
            for k, v in rows.items()
            if k != "g"
        }
        params = {
            "b": b,
            "r_g": tf.constant(rng.normal(size=(N, 1))),
            "sd_g": tf.ones(1, tf.float64),
        }
        with tf.GradientTape() as tape:
            tape.watch(b)
            value = tf.reduce_sum(model.log_lik(params, cast)) + log_prior(
                model, params
            )
        made.append((float(value), tape.gradient(value, b).numpy()))
    np.testing.assert_allclose(made[0][0], made[1][0], rtol=1e-6)
    np.testing.assert_allclose(made[0][1], made[1][1], rtol=1e-5, atol=1e-3)


def test_a_factor_of_many_levels_by_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means and SDs of the posterior of a linear model, against least squares."""
    y = FRAME["x"] + (FRAME["f"] == "L07") + RNG.normal(size=N)
    frame = FRAME.assign(y=y)
    fit = sgmcmc.glm("y ~ x + f", frame, **QUIET)
    X = formulaic.Formula("x + f").get_model_matrix(frame).to_numpy(float)
    beta, rest, *_ = np.linalg.lstsq(X, y, rcond=None)
    sds = np.sqrt(rest[0] / (N - X.shape[1]) * np.diag(np.linalg.inv(X.T @ X)))
    table = fit.fixed
    assert len(fit._model.design.coded) == 1 and len(table) == 41
    assert (np.abs(table["estimate"] - beta) < (4 / 20 + 0.05) * sds).all()
    np.testing.assert_allclose(table["error"], sds, rtol=0.05 + 4 / np.sqrt(800))
    np.testing.assert_allclose(
        fit.predict(frame.iloc[:3]), X[:3] @ table["estimate"], atol=0.03
    )
    settings = seams.changed(seams.REGRESSION_FIT, max_shown=5)
    monkeypatch.setattr(seams.REGRESSION_FIT, settings)
    assert (
        "36 more terms" in repr(fit) and "L05" not in repr(fit) and "sigma" in repr(fit)
    )
    with pytest.raises(ValueError, match="'f'.* has the level 'new'"):
        fit.predict(frame.iloc[:2].assign(f="new"))


def test_several_predictors_with_a_factor_of_many_levels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame = FRAME.assign(y=RNG.choice(["u", "v", "w"], N))
    family, found = read_family("categorical", None), []
    for large in (10, 1000):
        settings = seams.changed(seams.REGRESSION_DESIGN, large=large)
        monkeypatch.setattr(seams.REGRESSION_DESIGN, settings)
        model, _ = make_model(parse("y ~ x + f"), frame, family, None)
        rows = {
            k: tf.convert_to_tensor(v) for k, v in model.rows(frame.iloc[:50]).items()
        }
        b = tf.constant(np.random.default_rng(1).normal(size=(2, 41)))
        found.append(model.predictor({"b": b}, rows).numpy())
    assert found[0].shape == (50, 2)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("unit", [1.0, 1e4])
def test_slopes_of_large_numbers_are_integrated_out_exactly(unit: float) -> None:
    """The likelihood of a linear mixed model, against that of a multivariate normal."""
    rng, n = np.random.default_rng(3), 200
    x, g, y = rng.uniform(0.2, 2.0, n), np.arange(n) % 20, rng.normal(size=n)
    frame = pd.DataFrame({"x": unit * x, "g": g, "y": y})
    model, _ = make_model(
        parse("y ~ 1 + (1 + x | g)"), frame, read_family("gaussian", None), None
    )
    made = sample_arguments(model, y, frame, None)
    b = (0.3 - model.origin) / model.unit
    at = {"b": b, "sigma": 0.8, "sd_g": [0.5, 0.7 / unit], "cor_g": [-0.4]}
    params = {name: np.asarray(value, np.float32) for name, value in at.items()}
    found = read_groups(
        made["groups"], model.log_lik, made["dataset"], params, None, tf.float32
    )
    packs = {name: tf.convert_to_tensor(value) for name, value in found.dataset.items()}
    tensors = {name: tf.constant(value) for name, value in params.items()}
    total = float(tf.reduce_sum(found.log_lik(tensors, packs)))
    Z = np.stack(
        [np.ones(n), x - x.mean()], 1
    )  # the intercept is that at the mean of x
    within = g[:, np.newaxis] == g
    cov = within * (Z @ [[0.25, -0.14], [-0.14, 0.49]] @ Z.T) + 0.64 * np.eye(n)
    exact = scipy.stats.multivariate_normal(np.full(n, 0.3), cov).logpdf(y)
    assert total == pytest.approx(exact, abs=0.01)
