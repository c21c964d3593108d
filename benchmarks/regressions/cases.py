"""Regressions on real data that well-known packages ship, one or more of each family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.posteriors.base import columns

Data = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A regression.

    Attributes:
        data: Function that returns the columns.
        formula, family, link: Arguments of `sgmcmc.glm`.
        terms: Columns of the fixed terms but the intercept, for the reference.
        response: Column of the response.
        group: Column of a factor with a random intercept, if there is one.
        slope: Column with a random slope of that factor, if there is one.
    """

    data: Callable[[], Data]
    formula: str
    family: str
    terms: tuple[str, ...]
    response: str
    link: str | None = None
    group: str | None = None
    slope: str | None = None


def _of(name: str, *wanted: str) -> Callable[[], Data]:
    return lambda: {key: columns(name)[key] for key in wanted}


def _randhie() -> Data:
    data = columns("randhie")
    return {name: values[:4000] for name, values in data.items()}


def _fair() -> Data:
    data = columns("fair")
    return {**data, "affair": (data["affairs"] > 0).astype(float)}


def _heart() -> Data:
    data = columns("heart")
    return {"time": data["survival"], "gone": 1.0 - data["censors"], "age": data["age"]}


def _star98() -> Data:
    data = columns("star98")
    n = data["NABOVE"] + data["NBELOW"]
    return {**data, "n": n, "share": data["NABOVE"] / n}


def _modechoice() -> Data:
    data = columns("modechoice")
    chosen = data["choice"] == 1
    return {
        "mode": data["mode"][chosen],
        "income": data["hinc"][chosen],
        "size": data["psize"][chosen],
    }


def _scotland() -> Data:
    data = columns("scotland")
    return {**data, "share": data["YES"] / 100.0, "area": data["GDP"] / 1000.0}


def _engel() -> Data:
    data = columns("engel")
    return {
        "food": data["foodexp"],
        "income": data["income"],
        "log_income": np.log(data["income"]),
    }


_BODY = ("age", "bmi", "bp", "s5")
_VISITS = ("lncoins", "idp", "lpi", "fmde", "physlm", "disea")
_MARRIAGE = ("rate_marriage", "age", "yrs_married", "religious", "educ")
_SCHOOLS = ("LOWINC", "PERASIAN", "PERBLACK", "PERHISP", "PCTCHRT")
_VOTERS = ("age", "educ", "income", "TVnews")


def _plus(names: tuple[str, ...]) -> str:
    return " + ".join(names)


CASES = {
    "gaussian": Case(
        _of("diabetes", "target", *_BODY), f"target ~ {_plus(_BODY)}", "gaussian", _BODY, "target"
    ),
    "student": Case(_engel, "food ~ income", "student", ("income",), "food"),
    "bernoulli": Case(
        _fair, f"affair ~ {_plus(_MARRIAGE)}", "bernoulli", _MARRIAGE, "affair"
    ),
    "bernoulli, probit": Case(
        _fair, f"affair ~ {_plus(_MARRIAGE)}", "bernoulli", _MARRIAGE, "affair", "probit"
    ),
    "bernoulli, cloglog": Case(
        _fair, f"affair ~ {_plus(_MARRIAGE)}", "bernoulli", _MARRIAGE, "affair", "cloglog"
    ),
    "binomial": Case(
        _star98, f"NABOVE | trials(n) ~ {_plus(_SCHOOLS)}", "binomial", _SCHOOLS, "NABOVE"
    ),
    "poisson": Case(_randhie, f"mdvis ~ {_plus(_VISITS)}", "poisson", _VISITS, "mdvis"),
    "negative_binomial": Case(
        _randhie, f"mdvis ~ {_plus(_VISITS)}", "negative_binomial", _VISITS, "mdvis"
    ),
    "zero_inflated_poisson": Case(
        _randhie, f"mdvis ~ {_plus(_VISITS)}", "zero_inflated_poisson", _VISITS, "mdvis"
    ),
    "gamma": Case(_engel, "food ~ log_income", "gamma", ("log_income",), "food"),
    "beta": Case(
        _star98, f"share ~ {_plus(_SCHOOLS)}", "beta", _SCHOOLS, "share"
    ),
    "exponential": Case(_heart, "time | cens(gone) ~ age", "exponential", ("age",), "time"),
    "weibull": Case(_heart, "time | cens(gone) ~ age", "weibull", ("age",), "time"),
    "ordinal": Case(
        _of("anes96", "PID", *_VOTERS), f"PID ~ {_plus(_VOTERS)}", "ordinal", _VOTERS, "PID"
    ),
    "categorical": Case(
        _modechoice, "mode ~ income + size", "categorical", ("income", "size"), "mode"
    ),
    "gaussian, (1 | firm)": Case(
        _of("grunfeld", "invest", "value", "capital", "firm"),
        "invest ~ value + capital + (1 | firm)", "gaussian", ("value", "capital"), "invest",
        group="firm",
    ),
    "gaussian, (1 + value | firm)": Case(
        _of("grunfeld", "invest", "value", "capital", "firm"),
        "invest ~ value + capital + (1 + value | firm)", "gaussian", ("value", "capital"),
        "invest", group="firm", slope="value",
    ),
    "bernoulli, (1 | occupation)": Case(
        _fair, "affair ~ age + religious + (1 | occupation)", "bernoulli", ("age", "religious"),
        "affair", group="occupation",
    ),
}  # fmt: skip
"""Regressions by name."""
