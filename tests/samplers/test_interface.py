"""The interface: signatures, docstrings, and named functions as faces of `sample`."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import doctest
import importlib
import inspect
import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc import samplers
from sgmcmc.samplers import table
from tests.conftest import METHODS, short_arguments
from tests.contract import interface
from tests.ladder import BY_NAME, DISTINCT, GEODESIC, POINTS, Case, every
from tests.samplers import test_simplex_runs as simplex

KEYWORDS = {
    "n_chains": None,
    "burn_in": 0,
    "thin": 1,
    "store_gradients": False,
    "test_functions": None,
    "store_params": True,
    "reductions": None,
    "store": None,
    "bijectors": None,
    "replace": False,
    "minibatches": None,
    "preconditioner": None,
    "temperature": 1.0,
    "updates": "joint",
    "dtype": tf.float32,
    "integers": (),
    "storage": None,
    "jit_compile": None,
    "gibbs": None,
    "latents": None,
    "groups": None,
    "executor": None,
}
"""Those of every named function."""
OF_GEODESICS = {"manifolds": None}
"""Those of functions alone that move along manifolds, or may."""

OF_A_RUN = (
    "burn_in",
    "thin",
    "store_gradients",
    "test_functions",
    "store_params",
    "reductions",
    "store",
    "store_unnormalized",
    "executor",
)
NONE = inspect.Parameter.empty
NAMED = (*(case for case in DISTINCT if case.public), *GEODESIC)


def positional(case: Case) -> dict[str, Any]:
    """Return the arguments of a named function that may go by position, in their order."""
    opt = {"opt_stepsize": NONE} if case.centered else {}
    iters_opt = {"n_iters_opt": 10_000} if case.centered else {}
    return {
        **dict.fromkeys(("log_lik", "dataset", "params", "stepsize"), NONE),
        **opt,
        "log_prior": None,
        "minibatch_size": 0.01,
        **case.constants,
        "n_iters": 10_000,
        **iters_opt,
        "verbose": True,
        "seed": None,
    }


def keywords(case: Case) -> dict[str, Any]:
    """Return the arguments of a named function that go by keyword alone."""
    return {**KEYWORDS, **case.keywords, **(OF_GEODESICS if case in GEODESIC else {})}


def of_kind(function: Any, kind: Any) -> dict[str, Any]:
    """Return the parameters of a kind, with their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is kind}


POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
KEYWORD = inspect.Parameter.KEYWORD_ONLY


@every(NAMED)
def test_signature(case: Case) -> None:
    assert list(of_kind(case.function, POSITIONAL).items()) == list(
        positional(case).items()
    )
    assert of_kind(case.function, KEYWORD) == keywords(case)
    both = of_kind(case.function, POSITIONAL) | of_kind(case.function, KEYWORD)
    assert len(both) == len(inspect.signature(case.function).parameters)


@every(NAMED)
def test_signature_of_the_setup(case: Case) -> None:
    """The one-call arguments less ``n_iters`` and those of a run."""
    gone = {"n_iters"} if case.centered else {"n_iters", "verbose"}
    expected = [entry for entry in positional(case).items() if entry[0] not in gone]
    assert list(of_kind(case.setup, POSITIONAL).items()) == expected
    expected_keywords = {
        name: v for name, v in keywords(case).items() if name not in OF_A_RUN
    }
    assert of_kind(case.setup, KEYWORD) == expected_keywords


@every((*DISTINCT, *GEODESIC))
def test_the_dynamics_have_the_constants_of_the_function(case: Case) -> None:
    """Under the same names, with the same defaults, in the same order; and no others."""
    fields = {f.name: f.default for f in dataclasses.fields(case.dynamics) if f.repr}
    expected = {**case.constants, **case.keywords}
    assert list(fields) == list(expected)
    for name, default in expected.items():
        assert fields[name] is (
            dataclasses.MISSING if default is NONE else default
        ) or (fields[name] == default)


PARTS = {
    "dynamics": None,
    "gradient": None,
    "minibatches": None,
    "minibatch_size": None,
    "preconditioner": None,
    "stepsize": None,
}
MODEL = {"log_lik": NONE, "dataset": NONE, "params": NONE, "log_prior": None}


def test_signature_of_sample() -> None:
    assert list(of_kind(sgmcmc.sample, POSITIONAL).items()) == list(MODEL.items())
    found = of_kind(sgmcmc.sample, KEYWORD)
    expected = {
        **{name: default for name, default in KEYWORDS.items() if name != "replace"},
        **OF_GEODESICS,
        **PARTS,
        "n_chains": 4,
        "n_iters": None,
        "burn_in": None,
        "seed": None,
        "verbose": True,
    }
    assert expected.items() <= found.items()
    assert list(found)[: len(PARTS)] == list(PARTS)
    assert "replace" not in found


def test_signature_of_setup() -> None:
    assert list(of_kind(sgmcmc.setup, POSITIONAL).items()) == list(MODEL.items())
    found = of_kind(sgmcmc.setup, KEYWORD)
    kept = {
        name: v for name, v in KEYWORDS.items() if name not in (*OF_A_RUN, "replace")
    }
    assert found == {
        **kept,
        **OF_GEODESICS,
        **PARTS,
        "n_chains": 4,
        "seed": None,
        "verbose": True,
    }
    assert list(found)[: len(PARTS)] == list(PARTS)


SAMPLERS = [
    getattr(samplers, name) for name in samplers.__all__ if name != "predictor_bound"
]


@pytest.mark.parametrize("function", SAMPLERS, ids=lambda function: function.__name__)
def test_the_source_shows_an_editor_every_argument(function: Any) -> None:
    """Those in the source, and those of the type of ``**keywords``, are all that there are."""
    inner = inspect.unwrap(function)
    complete = set(inspect.signature(function, follow_wrapped=False).parameters)
    code = inner.__code__
    shown = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    of_type = inner.__annotations__["keywords"].removeprefix("Unpack[").rstrip("]")
    keywords = getattr(table, of_type).__optional_keys__
    assert not keywords & set(shown)
    assert keywords | set(shown) == complete


# ---------------------------------------------------------------------------------- docstrings

PARTS_OF_A_SAMPLER = (
    sgmcmc.dynamics,
    sgmcmc.gradients,
    sgmcmc.manifolds,
    sgmcmc.minibatches,
)
MODULES = (sgmcmc, sgmcmc.models, sgmcmc.counts)
PUBLIC = {name: getattr(module, name) for module in MODULES for name in module.__all__}
PUBLIC_PARTS = {
    name: getattr(module, name)
    for module in PARTS_OF_A_SAMPLER
    for name in module.__all__
}


def members(thing: Any, name: str) -> list[tuple[str, Any]]:
    """Return a public class or function, and the public members of a class, with their names."""
    if not inspect.isclass(thing):
        return [(name, thing)] if callable(thing) else []
    own = [m for m in vars(thing) if not m.startswith("_")]
    return [(name, thing), *((f"{name}.{m}", getattr(thing, m)) for m in own)]


@pytest.mark.parametrize("thing", PUBLIC.values(), ids=PUBLIC)
def test_docstring(thing: Any) -> None:
    text = inspect.getdoc(thing) or ""
    summary = text.split("\n")[0]
    assert summary.endswith(".") and len(summary) <= 100
    if not (inspect.isclass(thing) and "__init__" not in vars(thing)):
        assert "Args:" in text
        assert "\nExample:\n    >>> " in text
    if inspect.isfunction(thing):
        assert "\nReturns:\n" in text and "\nRaises:\n" in text
        for name in inspect.signature(thing).parameters:
            assert re.search(rf"^    {name}: \S", text, re.MULTILINE), name
    assert "{arguments}" not in text


EXAMPLES = {
    f"{module}.{member}": inspect.getdoc(thing) or ""
    for module in interface.MODULES
    for name in importlib.import_module(module).__all__
    for member, thing in members(getattr(importlib.import_module(module), name), name)
    if ">>>" in (inspect.getdoc(thing) or "")
}


@pytest.mark.parametrize("text", EXAMPLES.values(), ids=EXAMPLES)
def test_an_example_can_be_pasted(text: str) -> None:
    """It imports or defines every name that it uses."""
    source = "".join(e.source for e in doctest.DocTestParser().get_examples(text))
    nodes = list(ast.walk(ast.parse(source)))
    known = set(dir(builtins))
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            known |= {a.asname or a.name.partition(".")[0] for a in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler):
            known.add(node.name or "")
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.add(node.id)
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    assert used <= known


@pytest.mark.parametrize("thing", PUBLIC_PARTS.values(), ids=PUBLIC_PARTS)
def test_docstring_of_a_part(thing: Any) -> None:
    """A line of summary, which may be the equation; what is given to it; and an example."""
    text = inspect.getdoc(thing) or ""
    summary = text.split("\n")[0]
    assert summary.endswith(".") and len(summary) <= 100
    assert "\nExample:\n    >>> " in text
    for name in given_to(thing):
        assert re.search(rf"^    {name}: \S", text, re.MULTILINE), name


def given_to(part: Any) -> list[str]:
    """Return what a user gives to a part; fields that are not shown are found by ``bind``."""
    if dataclasses.is_dataclass(part):
        names = [f.name for f in dataclasses.fields(part) if f.init and f.repr]
    elif getattr(part, "_is_protocol", False):
        names = list(part.__annotations__)
    else:
        names = list(inspect.signature(part).parameters)
    return [name for name in names if not name.startswith("_")]


@pytest.mark.parametrize(
    "name", [*(case.public for case in NAMED), "polynomial_decay", "sample"]
)
def test_source_is_named(name: str) -> None:
    assert re.search(r"\nSource:\n    \S", inspect.getdoc(getattr(sgmcmc, name)) or "")


@pytest.mark.parametrize("case", DISTINCT, ids=lambda case: case.name)
def test_source_of_the_dynamics_is_named(case: Case) -> None:
    assert re.search(r"\nSource:\n    \S", inspect.getdoc(case.dynamics) or "")


# -------------------------------------------------------------------------- faces of `sample`


@pytest.mark.parametrize("method", [name for name in METHODS if BY_NAME[name].public])
@pytest.mark.parametrize("replace", [False, True], ids=["without", "with replacement"])
@pytest.mark.some(1)
def test_a_named_function_is_a_face_of_sample(method: str, replace: bool) -> None:
    case = BY_NAME[method]
    given = short_arguments(
        case, {**case.tuning, "n_iters": 20, "verbose": False, "n_chains": 2}
    )
    given |= {"store_gradients": True, "thin": 2, "burn_in": 3, "replace": replace}
    one, other = (
        call(**given) for call in (case.function, case.by_parts(sgmcmc.sample))
    )
    np.testing.assert_array_equal(one["theta"], other["theta"])
    np.testing.assert_array_equal(one.gradients["theta"], other.gradients["theta"])


@pytest.mark.some(1)
@every(POINTS)
def test_a_function_for_points_of_the_simplex_is_a_face_of_sample(case: Case) -> None:
    given = simplex.arguments(n_iters=20, verbose=False, store_unnormalized=True)
    one, other = (
        call(**given) for call in (case.function, case.by_parts(sgmcmc.sample))
    )
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
    np.testing.assert_array_equal(
        one.unnormalized["omega"], other.unnormalized["omega"]
    )


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "method", [name for name in METHODS[::-1] if BY_NAME[name].public]
)
def test_a_named_setup_is_a_face_of_setup(method: str) -> None:
    case, states = BY_NAME[method], []
    for call in (case.setup, case.by_parts()):
        shows = {"verbose": False} if case.centered else {}
        sampler = call(**short_arguments(case, {**case.tuning, **shows}))
        sess = sgmcmc.init_sess(sampler, verbose=False)
        sgmcmc.sgmcmc_step(sampler, sess, n_steps=20)
        states.append(sgmcmc.get_params(sampler, sess)["theta"])
    assert states[0] == states[1]
