"""Expressions of formulas: what they mean in R, whatever the storage and the names of columns."""

from __future__ import annotations

import decimal
import functools
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sgmcmc
from sgmcmc.regression import building, families
from sgmcmc.regression.columns import block
from sgmcmc.regression.design import Design, evaluated, make_design
from sgmcmc.regression.formula import parse, used_columns, with_dot
from sgmcmc.regression.response import need_noise

N = 200
RNG = np.random.default_rng(5)
U, V = RNG.integers(0, 120, N), RNG.integers(0, 120, N)
FRAME = pd.DataFrame(
    {
        "u": U, "v": V, "x": RNG.normal(size=N), "y": RNG.normal(size=N),
        "a": RNG.random(N) < 0.5, "b": RNG.random(N) < 0.5, "f": RNG.choice(list("abc"), N),
    }
)  # fmt: skip
X, A, B = FRAME["x"].to_numpy(), FRAME["a"].to_numpy(), FRAME["b"].to_numpy()


def _decimals(values: Any) -> Any:
    return pd.Series([decimal.Decimal(int(value)) for value in values])


STORAGES: dict[str, Any] = {
    name: (lambda values, name=name: values.astype(name))
    for name in (
        "int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
        "float64", "Int8", "UInt8", "Int64", "Float32", "object",
    )
} | {"decimals": _decimals}  # fmt: skip


def _columns(terms: str, frame: pd.DataFrame = FRAME) -> np.ndarray:
    design = make_design(f"0 + {terms}", frame)
    return block(design, frame).dense


EXPRESSIONS = [
    "I(u**2)", "I(u - v)", "I(u * v)", "u:v", "u * v", "I(-u)", "poly(u, 3, raw=True)",
    "poly(v, 2)", "bs(u, df=4)", "center(u)", "scale(u)", "np.where(u > v, u * v, -u)",
    "I(u %/% 7)", "I(u %% 7)", "I(u // 7 - v)", "I(u > -1)", "I(u < 300)", "abs(u - v)",
    "I(u / 3)", "u.clip(0, 300)",
    "I(u - mean(u))", "I(u - u.mean())", "np.power(u, 3)", "I(u * 1000 > v * 1000)", "C(u %% 3)",
    "exp2(I(u %% 8))", "sqrt(u * v)", "I(scale(u) * v)", "as.numeric(u > v)",
    "I(u %in% c(1, 2, 3))",
]  # fmt: skip


@functools.cache
def _of_integers(terms: str) -> tuple[Design, np.ndarray]:
    """Return the design of an expression of the columns as they are, and its matrix."""
    design = make_design(terms, FRAME)
    return design, design.matrix(FRAME)


@pytest.mark.some(8)
@pytest.mark.parametrize("storage", STORAGES)
def test_expressions_do_not_depend_on_the_storage_of_columns(storage: str) -> None:
    change = STORAGES[storage]
    stored = FRAME.assign(u=change(FRAME["u"]), v=change(FRAME["v"]))
    for terms in EXPRESSIONS:
        wanted, values = _of_integers(terms)
        found = make_design(terms, stored)
        assert found.terms == wanted.terms
        np.testing.assert_allclose(
            found.matrix(stored), values, rtol=1e-12, err_msg=terms
        )
        # New rows have another storage than those of the fit.
        np.testing.assert_allclose(wanted.matrix(stored[:9]), values[:9], rtol=1e-12)
        np.testing.assert_allclose(found.matrix(FRAME[:9]), values[:9], rtol=1e-12)


@pytest.mark.parametrize("storage", STORAGES)
def test_responses_offsets_and_trials_do_not_depend_on_the_storage(
    storage: str,
) -> None:
    change = STORAGES[storage]
    stored = FRAME.assign(u=change(FRAME["u"]), v=change(FRAME["v"]))
    for text in ["u - v", "u", "log((u + 1) * (v + 1))", "u * v * u"]:
        wanted = evaluated(text, FRAME.astype({"u": float, "v": float}), {})
        np.testing.assert_allclose(
            evaluated(text, stored, {}).astype(float), wanted, rtol=1e-12
        )
    family = families.read_family("binomial", None)
    formula = parse("u | trials(u + v + 1) ~ x + offset(log(u * v + 1))")
    model, y = building.make_model(formula, stored, family, None)
    rows = building.sample_arguments(model, y, stored, None)["dataset"]
    np.testing.assert_allclose(rows["trials"], U + V + 1)
    assert formula.offset is not None
    np.testing.assert_allclose(
        evaluated(formula.offset, stored, {}), np.log(U * V + 1), rtol=1e-12
    )


def test_income_squared_of_a_column_of_int32() -> None:
    income = RNG.integers(0, 90_000, N)
    frame = pd.DataFrame({"income": income.astype(np.int32)})
    np.testing.assert_array_equal(
        _columns("I(income**2)", frame)[:, 0], income.astype(float) ** 2
    )


@pytest.mark.parametrize("storage", ["bool", "boolean", "object"])
def test_flags_are_numbers_in_arithmetic(storage: str) -> None:
    frame = FRAME.assign(a=FRAME["a"].astype(storage), b=FRAME["b"].astype(storage))
    for terms, wanted in {
        "I(a + b)": 1.0 * A + B, "I(-a)": -1.0 * A, "I(a - b)": 1.0 * A - B, "a:b": 1.0 * A * B,
        "I(a * b)": A * B, "I(a & b)": A & B, "I(a | b)": A | B, "I(!a)": ~A, "I(~a)": ~A,
        "I(a == b)": A == B, "I(a > b)": A > B, "I(a**2 + a)": 2.0 * A, "I(a / 2)": A / 2,
        "I(1 - a)": 1.0 - A, "I(a == TRUE)": A, "I(a + FALSE)": A, "as.numeric(a)": A,
    }.items():  # fmt: skip
        np.testing.assert_array_equal(
            _columns(terms, frame)[:, -1], wanted, err_msg=terms
        )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x > 0 & a", (X > 0) & A),
        ("x > 0 | a", (X > 0) | A),
        ("a & x > 0 | b", (A & (X > 0)) | B),
        ("a | b & x > 0", A | (B & (X > 0))),
        ("!x > 0 & a", ~(X > 0) & A),
        ("!a & b", ~A & B),
        ("!(a | b)", ~(A | B)),
        ("!!a", A),
        ("x == x & a == b", A == B),
        ("x > 0 & x < 1", (X > 0) & (X < 1)),
        ("0 < x < 1", (X > 0) & (X < 1)),
        ("u & a", (U != 0) & A),
        ("u %in% c(1, 2) | a", np.isin(U, [1, 2]) | A),
        ("f == 'a' | f == 'b'", FRAME["f"].isin(["a", "b"])),
        ("f %in% c('a', 'b') & a", FRAME["f"].isin(["a", "b"]) & A),
        ("-2**2 + x", X - 4.0),
        ("2**-1 * x", 0.5 * X),
        ("2**3**2 + x", X + 512.0),
        ("-x**2", -(X**2)),
        ("2 * u %% 5", 2.0 * (U % 5)),
        ("-u %/% 7", (-U) // 7),
        ("u %% 5 * 2", 2.0 * (U % 5)),
        ("x + a > 0 & b", (X + A > 0) & B),
    ],
)
def test_operators_have_the_precedence_of_r(text: str, wanted: Any) -> None:
    wanted = np.asarray(wanted, float)
    np.testing.assert_allclose(_columns(f"I({text})")[:, -1], wanted)
    np.testing.assert_allclose(evaluated(text, FRAME, {}).astype(float), wanted)
    np.testing.assert_allclose(_columns(f"as.numeric({text})")[:, -1], wanted)
    if set(wanted) == {0.0, 1.0}:
        np.testing.assert_allclose(_columns(f"C({text})")[:, -1], wanted)
        np.testing.assert_allclose(_columns(f"x:I({text})")[:, -1], X * wanted)
        np.testing.assert_allclose(
            _columns(f"np.where({text}, x, 5)")[:, 0], np.where(wanted, X, 5)
        )
        formula = parse(f"{text} ~ x") if "|" not in text else parse(f"({text}) ~ x")
        family = families.read_family("bernoulli", None)
        assert (building.make_model(formula, FRAME, family, None)[1] == wanted).all()


NAMES = [
    "class", "lambda", "for", "in", "not", "is", "if", "TRUE", "True", "log", "C", "I", "np",
    "mean", "scale", "c", "contr", "as", "factor", "offset", "trials", "my col", "Sepal.Length",
    "x.y.z", "a:b", "x+y", "a|b", "y ~ x", "(1 | g)", "größe", "变量", "50%", "log(x)", "I(x)", "'",
    '"', "{x}", "[0]", "quoted0_", "part_of_formula_0_", "atom_of_formula_0_",
    "number_of_all_rows_0_", "Intercept",
    "0", "1", "_", "__FORMULAIC_STATE__", "rows", "T", "NA", "\\", "$", "x,y", ";", " x ", "x\ty",
]  # fmt: skip


POSITIVE = np.abs(X) + 0.5
NAMED = FRAME.assign(**{"z z": POSITIVE, "g g": U % 7, "other": 1.0})


@functools.cache
def _of_plain_name(terms: str) -> np.ndarray:
    """Return the columns of an expression of the column that has a plain name."""
    return block(make_design(terms.replace("{}", "`z z`"), NAMED), NAMED).dense


@pytest.mark.some(28)
@pytest.mark.parametrize("name", NAMES)
def test_a_column_may_have_any_name(name: str) -> None:
    z, q = POSITIVE, f"`{name}`"
    renamed = NAMED.rename(columns={"z z": name})
    for terms in [
        "{}", "log({})", "I({}**2) + x", "x * {}", "scale({})", "bs({}, df=4)", "I({} - mean({}))",
        "I({} - {}.mean())", "C({} > 1 & a)", "np.where({} > 1, {}, x)", "poly({}, 2)", "x + {}:f",
    ]:  # fmt: skip
        wanted = _of_plain_name(terms)
        design = make_design(terms.replace("{}", q), renamed)
        np.testing.assert_array_equal(
            block(design, renamed).dense, wanted, err_msg=terms
        )
        assert name in design.variables
        assert len(set(design.terms)) == len(design.terms)
    formula = with_dot(
        parse(f"{q} ~ x + offset(log({q})) + (1 + {q} | {q}:f)"), renamed, None
    )
    assert set(used_columns(formula, renamed, None)) == {name, "x", "f"}
    model, y = building.make_model(
        formula, renamed, families.read_family("gaussian", None), None
    )
    np.testing.assert_array_equal(y, z)
    rows = model.rows(renamed)
    assert model.formula.offset is not None
    offset = evaluated(model.formula.offset, renamed, model.constants)
    np.testing.assert_allclose(offset, np.log(z), rtol=1e-12)
    (effects,) = model.effects
    slope = effects.columns(renamed)[:, 1] * effects.scale[1]
    np.testing.assert_allclose(slope, z - z.mean(), atol=1e-12)
    groups = rows[effects.entry]
    assert groups.levels.values[groups.codes[0]] == (z[0], FRAME["f"][0])


@pytest.mark.parametrize(
    "name", ["class", "lambda", "for", "größe", "log", "C", "np", "mean", "in"]
)
def test_names_of_words_need_no_backticks(name: str) -> None:
    frame = FRAME.rename(columns={"x": name})
    wanted = _columns("x + I(x + 1) + C(x > 0):u + exp(x) + scale(x)")
    found = make_design(
        f"0 + {name} + I({name} + 1) + C({name} > 0):u + exp({name}) + scale({name})",
        frame,
    )
    np.testing.assert_array_equal(block(found, frame).dense, wanted)
    assert found.terms[:2] == (name, f"I({name} + 1)")


def test_a_column_called_as_an_expression_is_told_from_it() -> None:
    frame = FRAME.assign(
        **{"I(x)": X**2, "u:v": X**3, "f[T.b]": X**4, "log": np.exp(X)}
    )
    design = make_design(
        "x + I(x) + `I(x)` + u:v + `u:v` + f + `f[T.b]` + log(log)", frame
    )
    values = dict(zip(design.terms, block(design, frame).dense.T, strict=True))
    assert (values["`I(x)`"] == X**2).all() and (values["`u:v`"] == X**3).all()
    assert (values["`f[T.b]`"] == X**4).all() and (values["u:v"] == U * V).all()
    np.testing.assert_allclose(values["log(log)"], X)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("I(x && a)", "Write & for &&"),
        ("I(x > 0 || a)", r"Write \| for \|\|"),
        ("I(x > 0 and a)", "Write & for and"),
        ("I(T * x)", "'T'.*Write TRUE"),
        ("I(x == NA)", "'NA'.*isna"),
        ("I(f + 1)", "no arithmetic with text"),
        ("I(f & a)", "neither true nor false"),
        ("I(f > 1)", "Text is compared with 1"),
        ("I(x == 'a')", "'a' is compared with numbers"),
        ("lag(x)", "'lag'"),
        ("fog(x)", "'fog', a function that formulas lack. Did you mean 'log'"),
        ("I(x", "not closed"),
        ("I(`x)", "` is not closed"),
        ("I(x $ 2)", "cannot be read at"),
        ("I(9**9**9 * x)", "too large"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_design(text, FRAME)


@pytest.mark.parametrize(
    ("formula", "family", "message"),
    [
        ("u | trials(n) ~ x", "binomial", r"trials\(n\) .* integers, 1 or more; row 4 has 2.5"),
        ("u | trials(zero) ~ x", "binomial", r"trials\(zero\) .* row 4 has 0"),
        ("u | trials(negative) ~ x", "binomial", "row 4 has -3"),
        ("u | trials(gap) ~ x", "binomial", r"`data\['gap'\]` has 1 missing values"),
        ("u | trials(infinite) ~ x", "binomial", r"`data\['infinite'\]` is inf in row 4"),
        ("u | trials(f) ~ x", "binomial", r"trials\(f\) must hold numbers"),
        ("n | trials(1000) ~ x", "binomial", "must hold integers, 0 or more; row 4 has 2.5"),
        ("n ~ x", "poisson", "must hold integers, 0 or more; row 4 has 2.5"),
        ("infinite ~ x", "gaussian", r"`data\['infinite'\]` is inf in row 4"),
        ("infinite ~ x", "poisson", r"`data\['infinite'\]` is inf in row 4"),
        ("infinite ~ x", "gamma", r"`data\['infinite'\]` is inf in row 4"),
        ("log(zero) ~ x", "gaussian", r"'log\(zero\)' is -inf in row 4, where zero is 0"),
        ("y ~ x + offset(log(zero))", "gaussian", r"'log\(zero\)' is -inf in row 4, where zero"),
        ("u ~ x + offset(infinite)", "poisson", r"`data\['infinite'\]` is inf in row 4"),
        ("n | cens(n) ~ x", "weibull", r"cens\(n\) must hold 1 if .* row 0 has 500"),
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused_by_name(
    formula: str, family: str, message: str
) -> None:
    def with_one(value: float) -> np.ndarray:
        return np.where(np.arange(N) == 4, value, 500.0)

    frame = FRAME.assign(
        n=with_one(2.5), zero=with_one(0.0), negative=with_one(-3.0), gap=with_one(np.nan),
        infinite=with_one(np.inf), u=U % 5,
    )  # fmt: skip
    with pytest.raises((ValueError, TypeError), match=message):
        building.make_model(
            parse(formula), frame, families.read_family(family, None), None
        )


def test_offsets_of_new_rows_must_be_finite() -> None:
    frame = FRAME.assign(t=1.0)
    family = families.read_family("poisson", None)
    model, _ = building.make_model(parse("u ~ x + offset(log(t))"), frame, family, None)
    with pytest.raises(ValueError, match=r"'log\(t\)' is -inf in row 2, where t is 0"):
        model.rows(frame[:3].assign(t=[1.0, 1.0, 0.0]))


@pytest.mark.parametrize(
    ("formula", "family", "message"),
    [
        ("I(0 * x + 5) ~ x", "gaussian", "is 5 in every row.*'sigma'"),
        ("I(0 * x + 0.1) ~ x", "gaussian", "is 0.1 in every row"),
        ("I(0 * x + 0.1) ~ 1", "student", "is 0.1 in every row"),
        ("I(0 * x) ~ x", "gaussian", "is 0 in every row"),
        ("I(0 * x + 0.1) ~ 0 + (1 | f)", "gaussian", "is 0.1 in every row"),
        ("I(2 * x + 0.3) ~ x", "gaussian", "is a linear combination of the terms"),
        ("I(2e9 + x / 7) ~ x + u", "student", "is a linear combination of the terms"),
        ("I(x + 2) ~ u + offset(x)", "gaussian", "is 2 in every row"),
        (
            "I((f == 'a') * 0.3) ~ 1 + (1 | f)",
            "gaussian",
            "same in all rows of each group of 'f'",
        ),
        ("I(0 * x + 0.1) ~ x", "beta", "is 0.1 in every row.*'phi'"),
        ("I(0 * x + 7) ~ x", "gamma", "is 7 in every row.*'shape'"),
        ("I(0 * x + 7) ~ x", "weibull", "is 7 in every row.*'shape'"),
        ("I(0 * x + 5) ~ 0 + x", "gaussian", ""),
        ("I(0 * x + 5) ~ 1 + offset(x)", "gaussian", ""),
        ("I(1e9 + x / 1e3) ~ u", "gaussian", ""),
        ("I(0 * x + 5) ~ x", "poisson", ""),
        ("I(0 * x + 7) ~ x", "exponential", ""),
    ],
)
def test_responses_without_noise_are_refused(
    formula: str, family: str, message: str
) -> None:
    model, y = building.make_model(
        parse(formula), FRAME, families.read_family(family, None), None
    )
    if not message:
        need_noise(model, y, FRAME)
        return
    with pytest.raises(ValueError, match=message):
        need_noise(model, y, FRAME)
    with pytest.raises(ValueError, match=message):
        sgmcmc.glm(formula, FRAME, family)


def test_terms_that_are_not_finite_are_refused_by_name() -> None:
    frame = FRAME.assign(
        t=np.where(np.arange(N) == 3, 0.0, 1.0), many=np.arange(N) // 2
    )
    with pytest.raises(
        ValueError, match=r"the term 'log\(t\)' is -inf in row 3, where x is .*, t"
    ):
        make_design("x + log(t)", frame).matrix(frame)
    design = make_design("C(many):log(t)", frame)
    with pytest.raises(ValueError, match=r"log\(t\)' is -inf in row 3"):
        block(design, frame)
