"""Names of columns: what a column is called does not matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.inputs.parameters import read_start
from sgmcmc.regression import building, families
from sgmcmc.regression.families import AT
from sgmcmc.regression.formula import entry_of, parameter_names, parse, with_dot
from sgmcmc.regression.model import REFERENCE
from sgmcmc.regression.priors import described_priors

N = 300
RNG = np.random.default_rng(7)
X, Z = RNG.normal(size=N), RNG.normal(size=N)
G = RNG.integers(0, 12, N)
Y = 2.0 * (X + 1.0) + 3.0 * Z + RNG.normal(size=N)
QUIET: dict[str, Any] = {"seed": 3, "verbose": False, "ess": 400}


def _made(
    formula: str, frame: pd.DataFrame, family: str = "gaussian", priors: Any = None
) -> Any:
    parsed = with_dot(parse(formula), frame, None)
    return building.make_model(
        parsed, frame, families.read_family(family, None), priors
    )


def _near(found: pd.DataFrame, wanted: pd.DataFrame) -> None:
    """Compare estimates; effects of groups are drawn from a seed with the name of the factor."""
    near = 0.3 * wanted["error"].max()  # of some 1000 draws, whose error is 0.04
    np.testing.assert_allclose(found["estimate"], wanted["estimate"], atol=near)


def test_columns_called_as_the_regressions_own_parameters() -> None:
    frame = pd.DataFrame({"Intercept": X + 1.0, "sigma": Z, "y": Y})
    fit = sgmcmc.glm("y ~ 0 + Intercept + sigma", frame, **QUIET)
    table = fit.summary()
    assert list(table.index) == ["`Intercept`", "`sigma`", "sigma"]
    error = np.linalg.inv(
        np.array(frame[["Intercept", "sigma"]].T @ frame[["Intercept", "sigma"]])
    )
    exact = error @ (frame[["Intercept", "sigma"]].to_numpy().T @ Y)
    assert np.abs(table["estimate"].to_numpy()[:2] - exact).max() < 4 * np.sqrt(
        np.diag(error).max() / 400
    )
    residual = Y - frame[["Intercept", "sigma"]].to_numpy() @ exact
    assert abs(table["estimate"]["sigma"] - residual.std()) < 0.03
    assert list(fit.fixed.index) == ["`Intercept`", "`sigma`"]
    assert list(fit.priors) == list(table.index)


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("gaussian", "sigma"), ("student", "nu"), ("gamma", "shape"), ("beta", "phi"),
        ("zero_inflated_poisson", "zi"), ("weibull", "shape"), ("negative_binomial", "shape"),
    ],
)  # fmt: skip
def test_priors_tell_a_term_from_an_auxiliary_parameter(family: str, name: str) -> None:
    y = (
        np.full(N, 0.5) + 0.1 * np.tanh(X)
        if family == "beta"
        else np.floor(np.abs(Y)) + 1.0
    )
    frame = pd.DataFrame({name: X, "y": y})
    own = 2.0 if name != "zi" else None
    priors = {f"`{name}`": (0.25, 0.5)} | ({name: own} if own else {})
    model, _ = _made(f"y ~ {name}", frame, family, priors)
    said = described_priors(model)
    assert said[f"`{name}`"] == "normal(0.25, 0.5)"
    assert said[name] == ("exponential(2)" if own else "uniform(0, 1)")
    if own:
        with pytest.raises(TypeError, match=f"The term is '`{name}`'"):
            _made(f"y ~ {name}", frame, family, {name: (0.0, 1.0)})


def test_names_that_no_parameter_has_stay_as_they_are() -> None:
    frame = pd.DataFrame({"shape": X, "b": Z, "sd": X * Z, "k": G})
    model, _ = _made("k ~ shape + b + sd", frame, "poisson", {"`b`": (0.0, 1.0)})
    assert model.terms == ("Intercept", "shape", "b", "sd")
    assert described_priors(model)["b"] == "normal(0, 1)"


FACTORS = [
    "X", "y", "offset", "weights", "trials", "censored", "place_0", "weight_0", "Z_g", "b",
    "sigma", "sd", "rows", "Intercept", "r_b", "index",
]  # fmt: skip


@pytest.mark.parametrize("name", FACTORS)
def test_factors_called_as_entries_of_the_dataset(name: str) -> None:
    x = RNG.permutation(N) % 40
    frame = pd.DataFrame({"v": Y, "x": X, "many": x, "t": np.exp(Z), "w": 1.0, "k": G})
    formula = "v ~ x + C(many) + offset(t) + (1 + x | {})"
    plain, _ = _made(formula.format("k"), frame)
    wanted = building.sample_arguments(plain, Y, frame, np.ones(N))
    renamed = frame.rename(columns={"k": name})
    model, _ = _made(formula.format(name), renamed)
    found = building.sample_arguments(model, Y, renamed, np.ones(N))
    entry = found["groups"][0].by
    assert sorted(map(len, found["dataset"].values())) == [N] * len(wanted["dataset"])
    for key, values in wanted["dataset"].items():
        own = {"k": entry, "Z_k": f"Z_{name}"}.get(key, key)
        np.testing.assert_array_equal(found["dataset"][own], values)
    assert len(found["params"]) == len(wanted["params"])
    assert set(model.rows(renamed)) - {REFERENCE} == set(found["dataset"]) - {
        AT,
        "weights",
    }


def test_a_factor_of_two_columns_next_to_a_column_of_its_name() -> None:
    frame = pd.DataFrame(
        {"y": Y, "a": G % 3, "b": G // 3, "a_b": RNG.integers(0, 5, N)}
    )
    model, y = _made("y ~ 1 + (1 | a:b) + (1 | a_b)", frame)
    assert {"sd_a:b", "sd_a_b"} <= set(
        building.sample_arguments(model, y, frame, None)["params"]
    )
    assert parameter_names(["a:b", "g"]) == {"a:b": "a_b", "g": "g"}


def test_entries_of_groups_are_none_of_the_datasets_own() -> None:
    frame = pd.DataFrame({"y": G % 2, "n": G + 1, "t": G + 1.0, "g": G % 3, "c": G % 2})
    for formula, family in [
        ("y | trials(n) ~ t + (1 | g)", "binomial"),
        ("t | cens(c) ~ y + offset(n) + (1 | g)", "weibull"),
    ]:
        model, y = _made(formula, frame, family)
        dataset = building.sample_arguments(model, y, frame, np.ones(N))["dataset"]
        assert [name for name in dataset if entry_of(name) == name] == ["g"]


@pytest.mark.slow
def test_a_factor_called_censored_in_a_model_of_survival() -> None:
    rng = np.random.default_rng(3)
    times, flags = np.exp(0.3 * Z) * rng.weibull(2.0, N), rng.integers(0, 2, N)
    frame = pd.DataFrame({"t": times, "c": flags, "z": Z, "k": G})
    wanted = sgmcmc.glm("t | cens(c) ~ z + (1 | k)", frame, "weibull", **QUIET)
    renamed = frame.rename(columns={"k": "censored"})
    found = sgmcmc.glm("t | cens(c) ~ z + (1 | censored)", renamed, "weibull", **QUIET)
    np.testing.assert_array_equal(found.summary(), wanted.summary())
    _near(found.effects("censored"), wanted.effects("k"))
    near = 0.3 * wanted.predictions(frame[:9])["error"].max()
    np.testing.assert_allclose(
        found.predict(renamed[:9]), wanted.predict(frame[:9]), atol=near
    )


def test_columns_of_one_name_are_refused_by_name() -> None:
    frame = pd.DataFrame(np.column_stack([Y, X, Z, Z]), columns=["y", "x", "z", "z"])
    with pytest.raises(ValueError, match="`data` has 2 columns 'z'"):
        sgmcmc.glm("y ~ z", frame)
    assert _made("y ~ x", frame)[0].terms == ("Intercept", "x")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"": 0.0}, "'' is no name"),
        ({" ": 0.0}, "' ' is no name"),
        ({"chain": 0.0}, "'chain' is the name of an axis"),
        (
            {"a": np.zeros(2), "a[1]": 0.0},
            r"'a\[1\]' is also the name of a coordinate of 'a'",
        ),
        ({"a": np.zeros((2, 3)), "a[1, 2]": 0.0}, ".* name of a coordinate of 'a'"),
        (
            {"a": np.zeros(2), "a_dim_0": 0.0},
            "'a_dim_0' is also the name of an axis of 'a'",
        ),
        ({"a": np.zeros(2), "a[2]": 0.0, "a_dim_1": 0.0, "a[0, 0]": 0.0}, ""),
        (
            {
                "a": 0.0,
                "a[0]": 0.0,
                "a/b": 0.0,
                "log_post": 0.0,
                "x'\n\"": 0.0,
                "β": 0.0,
            },
            "",
        ),
    ],
)
def test_names_of_parameters_that_are_not_distinct_are_refused(
    names: dict[str, Any], message: str
) -> None:
    if not message:
        assert list(read_start("params", names, tf.float32)) == list(names)
        return
    with pytest.raises(ValueError, match=f"`params`: {message}"):
        read_start("params", names, tf.float32)


def test_draws_by_strange_names_are_written_and_read(tmp_path: Path) -> None:
    names = [
        "a/b",
        "a[0]",
        "log_post",
        "theta:0",
        "my p",
        "x'",
        '"',
        "β",
        "..",
        "settings",
        "%s",
    ]

    def log_lik(
        params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        return -0.5 * sum((dataset["x"] - params[name]) ** 2 for name in names)

    samples = sgmcmc.sgld(
        log_lik, {"x": X}, dict.fromkeys(names, 0.0), 1e-4, n_iters=20, minibatch_size=10, seed=1,
        n_chains=2, verbose=False, store=tmp_path / "store", jit_compile=False,
        test_functions={"a/b": lambda params: 2.0 * params["a/b"]},
    )  # fmt: skip
    samples.save(tmp_path / "draws.npz")
    again = sgmcmc.Samples.load(tmp_path / "draws.npz")
    assert list(again) == list(samples) == names
    for name in names:
        np.testing.assert_array_equal(again[name], samples[name])
    np.testing.assert_allclose(
        again.test_functions["a/b"], 2.0 * samples["a/b"], rtol=1e-6
    )
    assert list(sgmcmc.summary(samples).index) == names


@pytest.mark.slow
def test_a_regression_of_columns_with_spaces_and_reserved_names() -> None:
    frame = pd.DataFrame(
        {"sigma": X, "my k": G, "if": np.abs(Z) + 1.0, "estimate": Z, "my y": Y}
    )
    plain = dict(zip(frame, ["u", "k", "t", "v", "y"], strict=True))
    fit = sgmcmc.glm(
        "`my y` ~ sigma + estimate + offset(log(if)) + (1 | `my k`)", frame, **QUIET
    )
    wanted = sgmcmc.glm(
        "y ~ u + v + offset(log(t)) + (1 | k)", frame.rename(columns=plain), **QUIET
    )
    np.testing.assert_array_equal(fit.summary(), wanted.summary())
    rows = ["Intercept", "`sigma`", "estimate", "sd(`my k`: Intercept)", "sigma"]
    assert list(fit.summary().index) == rows
    _near(fit.effects("my k"), wanted.effects("k"))
    new, old = frame[:5], frame[:5].rename(columns=plain)
    near = 0.3 * wanted.predictions(old)["error"].max()
    np.testing.assert_allclose(fit.predict(new), wanted.predict(old), atol=near)
    _near(fit.comparisons("sigma"), wanted.comparisons("u"))
    _near(fit.slopes("estimate"), wanted.slopes("v"))
    assert [name.replace("`sigma`", "u") for name in fit.priors][:3] == [
        "Intercept",
        "u",
        "estimate",
    ]
