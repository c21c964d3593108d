"""Every wrong input is refused before anything runs, by an error that names the argument."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.inputs.options import read_options
from sgmcmc.run.sampler import Sampler
from tests.ladder import DISTINCT

NAN, INF = float("nan"), float("inf")
TWO = {"theta": 0.0, "phi": [1.0, 2.0]}
X = np.linspace(-1.0, 1.0, 20)


def log_lik(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return a log-likelihood that uses whatever parameters there are."""
    centre = sum(tf.reduce_sum(value) for value in params.values())
    return -0.5 * tf.reduce_sum((dataset["x"] - centre) ** 2)


@dataclass(frozen=True)
class Bad:
    """A call that must be refused.

    Attributes:
        arguments: what is wrong with it; the rest is as it should be.
        error: the exception expected.
        says: parts of the message.
        method: the function called.
    """

    arguments: dict[str, Any]
    error: type[Exception]
    says: tuple[str, ...]
    method: str = "sgld"


def bad_value(*says: str, method: str = "sgld", **arguments: Any) -> Bad:
    """Return a call refused with ValueError."""
    return Bad(arguments, ValueError, says, method)


def bad_type(*says: str, method: str = "sgld", **arguments: Any) -> Bad:
    """Return a call refused with TypeError."""
    return Bad(arguments, TypeError, says, method)


def returning(value: Any) -> Callable[..., Any]:
    """Return a user's function that returns a constant."""
    return lambda *_: value


def fails(*_: Any) -> tf.Tensor:
    """Stand for a user's function with a bug of its own."""
    raise ArithmeticError("the matrix is not positive definite")


STEPSIZES = {
    "unknown key": bad_value("`stepsize`", "'thet'", "'theta'", stepsize={"thet": 1e-3}),
    "missing key": bad_value("`stepsize`", "lacks 'phi'", params=TWO, stepsize={"theta": 1e-3}),
    "negative": bad_value("`stepsize`", "positive", "-0.001", stepsize=-0.001),
    "zero": bad_value("`stepsize`", "positive", "it is 0", stepsize=0),
    "zero in dict": bad_value("`stepsize['theta']`", "positive", stepsize={"theta": 0.0}),
    "NaN": bad_value("`stepsize`", "finite", "nan", stepsize=NAN),
    "inf": bad_value("`stepsize`", "finite", "inf", stepsize=INF),
    "string": bad_type("`stepsize`", "'small' (str)", "schedule", stepsize="small"),
    "list": bad_value("`stepsize`", "shape (2,)", "(3,)", params=TWO, stepsize=[0.1, 0.2]),
    "array": bad_value("`stepsize`", "shape (2,)", params=TWO, stepsize=np.array([0.1, 0.2])),
    "matrix": bad_value("`stepsize`", "shape (3, 1)", params=TWO, stepsize=np.ones((3, 1))),
    "array for a number": bad_value("`stepsize`", "shape (1,)", "()", stepsize=[0.1]),
    "array in dict": bad_value(
        "`stepsize['phi']`", "shape (3,)", "(2,)", params=TWO, stepsize={"theta": 1, "phi": [1] * 3}
    ),
    "zero in array": bad_value("`stepsize`", "positive", params=TWO, stepsize=[0.1, 0.0, 0.1]),
    "NaN in array in dict": bad_value(
        "`stepsize['phi']`", "finite", params=TWO, stepsize={"theta": 1, "phi": [NAN, 1.0]}
    ),
    "array of text": bad_type("`stepsize`", "array", params=TWO, stepsize=["a", "b", "c"]),
    "ragged": bad_type("`stepsize`", params=TWO, stepsize=[[0.1], [0.1, 0.2]]),
    "opt array": bad_value(
        "`opt_stepsize`", "shape (2,)", method="sgldcv", params=TWO, opt_stepsize=[0.1, 0.2]
    ),
    "bool": bad_type("`stepsize`", "True (bool)", stepsize=True),
    "None": bad_type("`stepsize`", "None", stepsize=None),
    "schedule returns negative": bad_value(
        "`stepsize`", "schedule", "iteration 1", "-1", stepsize=lambda m: -m
    ),
    "schedule returns text": bad_value("schedule", "'a'", stepsize=returning("a")),
    "schedule returns array": bad_value("schedule", "array", stepsize=returning(np.ones(2))),
    "schedule in dict": bad_value("`stepsize['theta']`", stepsize={"theta": returning(0.0)}),
    "schedule fails": bad_value("`stepsize`", "schedule", "iteration 1", stepsize=fails),
    "schedule without argument": bad_value("`stepsize`", "schedule", stepsize=lambda: 1e-3),
    "opt unknown key": bad_value(
        "`opt_stepsize`", "'beta'", method="sgldcv", opt_stepsize={"beta": 1e-3}
    ),
    "opt missing key": bad_value(
        "`opt_stepsize`", "lacks 'phi'", method="sgldcv", params=TWO, opt_stepsize={"theta": 1.0}
    ),
    "opt non-positive": bad_value("`opt_stepsize`", method="sghmccv", opt_stepsize=0.0),
    "opt string": bad_type("`opt_stepsize`", method="sgnhtcv", opt_stepsize="1e-3"),
}

TUNING = {
    "alpha unknown key": bad_value("`alpha`", "'beta'", method="sghmc", alpha={"beta": 0.1}),
    "alpha missing key": bad_value(
        "`alpha`", "lacks 'phi'", method="sghmc", params=TWO, alpha={"theta": 0.1}
    ),
    "alpha zero": bad_value("`alpha`", "positive", method="sghmc", alpha=0.0),
    "alpha negative in dict": bad_value("`alpha['theta']`", method="sghmc", alpha={"theta": -1}),
    "alpha string": bad_type("`alpha`", "'x'", method="sghmccv", alpha="x"),
    "alpha above 1 for euler": bad_value(
        "`alpha`", "at most 1", "1.5", method="sghmc", alpha=1.5, integrator="euler"
    ),
    "integrator": bad_value("`integrator`", "'euler'", "'leap'", method="sghmc", integrator="leap"),
    "integrator not hashable": bad_value("`integrator`", method="sghmc", integrator=["euler"]),
    "L zero": bad_value("`L`", "1 or more", "it is 0", method="sghmc", L=0),
    "L fraction": bad_value("`L`", "whole", "2.5", method="sghmc", L=2.5),
    "L string": bad_type("`L`", "'5'", method="sghmc", L="5"),
    "a unknown key": bad_value("`a`", "'beta'", method="sgnht", a={"beta": 0.1}),
    "a zero": bad_value("`a`", "positive", method="sgnht", a=0),
    "a negative": bad_value("`a`", "positive", method="sgnhtcv", a=-0.1),
}

RAGGED = {"theta": [[1.0, 2.0], [3.0]]}
PARAMS = {
    "empty": bad_value("`params`", "empty", params={}),
    "not a dict": bad_type("`params`", "dict", "0.0 (float)", params=0.0),
    "list of wrong length": bad_value(
        "`params`", "`n_chains` must be 2", "it is 3", params=[{"theta": 0.0}] * 2, n_chains=3
    ),
    "list without n_chains": bad_value(
        "`params`", "`n_chains` must be 2", "None", params=[{"theta": 0.0}] * 2
    ),
    "list of numbers": bad_type("`params[1]`", "dict", params=[{"theta": 0.0}, 1.0], n_chains=2),
    "empty list": bad_value("`params`", "empty", params=[]),
    "starts of unequal shapes": bad_value(
        "`params`",
        "(2,)",
        "(3,)",
        params=[{"theta": [0.0] * 2}, {"theta": [0.0] * 3}],
        n_chains=2,
    ),
    "starts of unequal names": bad_value(
        "`params`", "'phi'", params=[{"theta": 0.0}, {"phi": 0.0}], n_chains=2
    ),
    "NaN": bad_value("`params['theta']`", "finite", "nan", params={"theta": [0.0, NAN]}),
    "inf": bad_value("`params['theta']`", "finite", params={"theta": INF}),
    "beyond float32": bad_value("`params['theta']`", "float32", params={"theta": 1e60}),
    "string": bad_type("`params['theta']`", "numbers", params={"theta": "zero"}),
    "None": bad_type("`params['theta']`", "numbers", params={"theta": None}),
    "ragged": bad_value("`params['theta']`", "regular", params=RAGGED),
    "size 0": bad_value("`params['theta']`", "(0,)", params={"theta": []}),
    "key not a string": bad_type("`params`", "keys", "1", params={1: 0.0}),
    "complex": bad_type("`params['theta']`", "complex", params={"theta": 1j}),
}

MASKED = np.ma.masked_array(X, mask=X > 0.5)
DATASET = {
    "not a dict": bad_type("`dataset`", "dict", "(20,)", dataset=X),
    "empty dict": bad_value("`dataset`", "empty", dataset={}),
    "key not a string": bad_type("`dataset`", "keys", dataset={0: X}),
    "zero rows": bad_value("`dataset['x']`", "no observations", dataset={"x": []}),
    "unequal first axes": bad_value("`dataset`", "'x' 20", "'y' 19", dataset={"x": X, "y": X[:-1]}),
    "scalar": bad_value("`dataset['y']`", "first axis", dataset={"x": X, "y": 1.0}),
    "scalar tensor": bad_value("`dataset['x']`", "axis", dataset={"x": tf.constant(1.0)}),
    "NaN": bad_value("`dataset['x']`", "NaN", "(3,)", dataset={"x": [0.0, 0.0, 0.0, NAN]}),
    "NaN tensor": bad_value("`dataset['x']`", "NaN", dataset={"x": tf.constant([0.0, NAN])}),
    "masked": bad_value("`dataset['x']`", "masked", dataset={"x": MASKED}),
    "objects": bad_type("`dataset['x']`", "object", dataset={"x": [1.0, None, 2.0]}),
    "strings": bad_type("`dataset['x']`", "numbers", dataset={"x": ["a", "b"]}),
    "string tensor": bad_type("`dataset['x']`", "string", dataset={"x": tf.constant(["a", "b"])}),
    "ragged": bad_value("`dataset['x']`", "regular", dataset={"x": [[1.0], [1.0, 2.0]]}),
    "ragged tensor": bad_type(
        "`dataset['x']`", "RaggedTensor", dataset={"x": tf.ragged.constant([[1.0], [1.0, 2.0]])}
    ),
    "None": bad_type("`dataset['x']`", "numbers", dataset={"x": None}),
    "large integers": bad_value(
        "`dataset['x']`",
        "16777217",
        "float32",
        "tf.Tensor",
        "tf.float64",
        dataset={"x": np.array([0, 2**24 + 1])},
    ),
    "large negative integers": bad_value("-16777218", dataset={"x": [0, -(2**24) - 2]}),
    "beyond float32": bad_value("`dataset['x']`", "1e+60", "float32", dataset={"x": [0.0, 1e60]}),
}

MINIBATCH = {
    "zero": bad_value("`minibatch_size`", "it is 0", minibatch_size=0),
    "negative": bad_value("`minibatch_size`", "-5", minibatch_size=-5),
    "above N": bad_value("`minibatch_size`", "1 to 20", "21", minibatch_size=21),
    "1.5": bad_value("`minibatch_size`", "whole", "1.5", minibatch_size=1.5),
    "rounds to none": bad_value("`minibatch_size`", "0.01", "20", minibatch_size=0.01),
    "NaN": bad_value("`minibatch_size`", "nan", minibatch_size=NAN),
    "string": bad_type("`minibatch_size`", "'10%'", minibatch_size="10%"),
    "bool": bad_type("`minibatch_size`", "True", minibatch_size=True),
}


def terms(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return a term for each observation."""
    return -0.5 * (dataset["x"] - params["theta"]) ** 2


def with_float64(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Mix dtypes."""
    return tf.reduce_sum(tf.constant(2.0, tf.float64) * dataset["x"] * params["theta"])


def with_int_labels(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Multiply by an integer tensor."""
    return tf.reduce_sum(dataset["x"] * dataset["label"] * params["theta"])


def with_branch(params: dict[str, tf.Tensor], *_: Any) -> tf.Tensor:
    """Decide in Python what only the graph knows."""
    return params["theta"] if params["theta"] > 0 else -params["theta"]


def theta_only(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Ignore phi."""
    return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)


def wrong_key(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Ask for data that are not there."""
    return tf.reduce_sum(dataset["y"] * params["theta"])


def root(params: dict[str, tf.Tensor], *_: Any) -> tf.Tensor:
    """Return a function that is finite at 0 with a gradient that is not."""
    return tf.sqrt(params["theta"])


def in_numpy(params: dict[str, tf.Tensor], *_: Any) -> Any:
    """Use NumPy on a tensor."""
    return np.sum(np.log(params["theta"]))


LABELS = {"x": X, "label": tf.ones(20, tf.int32)}
MODEL = {
    "not callable": bad_type("`log_lik`", "function", "3 (int)", log_lik=3),
    "a term too few": bad_value(
        "`log_lik`", "(4,)", "5 observations", "tf.reduce_sum", log_lik=lambda *g: terms(*g)[1:]
    ),
    "a column of terms": bad_value(
        "`log_lik`", "(5, 1)", "tf.reduce_sum", log_lik=lambda *given: terms(*given)[:, None]
    ),
    "terms of several kinds": bad_value(
        "`log_lik`", "(5, 2)", "tf.reduce_sum", log_lik=lambda *g: tf.stack([terms(*g)] * 2, 1)
    ),
    "a term of the prior for each observation": bad_value(
        "`log_prior`", "(5,)", "tf.reduce_sum", log_prior=lambda p: -tf.ones(5) * p["theta"] ** 2
    ),
    "None": bad_type("`log_lik`", "None", "return", log_lik=returning(None)),
    "text": bad_type("`log_lik`", "scalar", "'a'", log_lik=returning("a")),
    "dict": bad_type("`log_lik`", "scalar", log_lik=returning({})),
    "integer": bad_type("`log_lik`", "int32", "float32", log_lik=returning(tf.constant(1))),
    "float64": bad_type(
        "`log_lik`", "float64", "tf.float32", log_lik=returning(tf.constant(1.0, tf.float64))
    ),
    "ignores a parameter": bad_value("`log_lik`", "'phi'", params=TWO, log_lik=theta_only),
    "ignores all": bad_value("`log_lik`", "'theta'", log_lik=returning(0.0)),
    "dtype clash": bad_type(
        "`log_lik`", "dtype", "tf.constant(..., dtype=tf.float32)", log_lik=with_float64
    ),
    "clash with int tensor": bad_type(
        "`log_lik`", "tf.cast", dataset=LABELS, log_lik=with_int_labels
    ),
    "NumPy": bad_type("`log_lik`", "TensorFlow", "np.log", log_lik=in_numpy),
    "Python branch": bad_type("`log_lik`", "tf.where", log_lik=with_branch),
    "own error": bad_value("`log_lik`", "ArithmeticError", "positive definite", log_lik=fails),
    "wrong number of arguments": bad_type(
        "`log_lik`", "`params` and `dataset`", log_lik=lambda params: params["theta"]
    ),
    "wrong dataset key": bad_value("`log_lik`", "KeyError: 'y'", "'x' (5,)", log_lik=wrong_key),
    "NaN at the start": bad_value(
        "`log_lik`", "nan", "start", log_lik=lambda p, d: tf.math.log(-1.0 - p["theta"] ** 2)
    ),
    "infinite gradient": bad_value("gradient", "'theta'", "inf", log_lik=root),
    "prior not callable": bad_type("`log_prior`", "function", "None", log_prior=0.0),
    "prior vector": bad_value(
        "`log_prior`", "(2,)", "tf.reduce_sum", params=TWO, log_prior=lambda p: p["phi"]
    ),
    "prior None": bad_type("`log_prior`", "None", log_prior=returning(None)),
    "prior dtype clash": bad_type(
        "`log_prior`", "float32", log_prior=lambda p: p["theta"] * tf.constant(1.0, tf.float64)
    ),
    "prior NumPy": bad_type("`log_prior`", "TensorFlow", log_prior=in_numpy),
    "prior own error": bad_value("`log_prior`", "positive definite", log_prior=fails),
    "prior wrong key": bad_value("`log_prior`", "KeyError", "'theta'", log_prior=lambda p: p["q"]),
    "prior minus infinity": bad_value(
        "`log_prior`", "-inf", log_prior=lambda p: tf.math.log(p["theta"])
    ),
    "prior infinite gradient": bad_value("gradient", "'theta'", log_prior=root),
}

RUN = {
    "n_iters zero": bad_value("`n_iters`", "1 or more", "it is 0", n_iters=0),
    "n_iters negative": bad_value("`n_iters`", "-3", n_iters=-3),
    "n_iters fraction": bad_value("`n_iters`", "whole", "2.5", n_iters=2.5),
    "n_iters string": bad_type("`n_iters`", "'many'", n_iters="many"),
    "n_iters inf": bad_value("`n_iters`", "inf", n_iters=INF),
    "n_iters_opt negative": bad_value("`n_iters_opt`", "-1", method="sgldcv", n_iters_opt=-1),
    "thin zero": bad_value("`thin`", "1 or more", thin=0),
    "thin above n_iters": bad_value("`thin`", "21", "20", thin=21),
    "burn_in negative": bad_value("`burn_in`", "-1", burn_in=-1),
    "n_chains zero": bad_value("`n_chains`", "1 or more", n_chains=0),
    "n_chains bool": bad_type("`n_chains`", "True", n_chains=True),
    "verbose": bad_type("`verbose`", "True or False", "'no'", verbose="no"),
    "verbose number": bad_type("`verbose`", "1", verbose=1),
    "seed negative": bad_value("`seed`", "-1", seed=-1),
    "seed fraction": bad_value("`seed`", "whole", "1.5", seed=1.5),
    "seed string": bad_type("`seed`", "'a'", seed="a"),
    "dtype int32": bad_value("`dtype`", "tf.float32 or tf.float64", "int32", dtype=tf.int32),
    "dtype nonsense": bad_value("`dtype`", "'real'", dtype="real"),
    "dtype None": bad_value("`dtype`", "None", dtype=None),
    "jit_compile": bad_type("`jit_compile`", "or None", "'yes'", jit_compile="yes"),
    "replace": bad_type("`replace`", "True or False", "it is 1", replace=1),
    "store_gradients": bad_type("`store_gradients`", "'x'", store_gradients="x"),
}

EXP = tfp.bijectors.Exp()
OPTIONS = {
    "store_params unknown": bad_value("`store_params`", "'beta'", store_params=["beta"]),
    "store_params empty": bad_value("`store_params`", "empty", store_params=[]),
    "store_params string": bad_type("`store_params`", "list", "'theta'", store_params="theta"),
    "store_params number in list": bad_value("`store_params`", "1", store_params=[1]),
    "store_params False alone": bad_value("`test_functions`", store_params=False),
    "test_functions not a dict": bad_type("`test_functions`", "dict", test_functions=[tf.exp]),
    "test_functions key": bad_type("`test_functions`", "keys", test_functions={1: tf.exp}),
    "test_functions not callable": bad_type(
        "`test_functions['f']`", "function", test_functions={"f": 1.0}
    ),
    "test_functions failing": bad_value(
        "`test_functions['f']`", "positive definite", test_functions={"f": fails}
    ),
    "test_functions None": bad_type(
        "`test_functions['f']`", "None", test_functions={"f": returning(None)}
    ),
    "test_functions NumPy": bad_type(
        "`test_functions['f']`", "TensorFlow", test_functions={"f": in_numpy}
    ),
    "test_functions dict": bad_type(
        "`test_functions['f']`", "tensor", test_functions={"f": lambda p: {"a": p["theta"]}}
    ),
    "bijectors not a dict": bad_type("`bijectors`", "dict", bijectors=EXP),
    "bijectors unknown": bad_value("`bijectors`", "'tau'", "'theta'", bijectors={"tau": EXP}),
    "bijectors not one": bad_type("`bijectors['theta']`", "tfp", bijectors={"theta": tf.exp}),
    "bijectors a class": bad_type(
        "`bijectors['theta']`", "()", bijectors={"theta": tfp.bijectors.Exp}
    ),
    "start out of range": bad_value(
        "`params['theta']`", "range", "-1.0", params={"theta": -1.0}, bijectors={"theta": EXP}
    ),
    "bijector does not fit": bad_value(
        "`bijectors['theta']`", bijectors={"theta": tfp.bijectors.IteratedSigmoidCentered()}
    ),
    "bijector of a matrix": bad_value(
        "`bijectors['theta']`",
        params={"theta": [1.0, 2.0]},
        bijectors={"theta": tfp.bijectors.FillScaleTriL()},
    ),
    "bijector of another dtype": bad_value(
        "`bijectors['theta']`", "float64", bijectors={"theta": tfp.bijectors.Scale(np.float64(2.0))}
    ),
}

UNKNOWN = {
    "near miss": bad_type("sgld()", "`n_chain`", "`n_chains`", n_chain=2),
    "minibatchSize": bad_type("`minibatchSize`", "`minibatch_size`", minibatchSize=5),
    "nIters": bad_type("`nIters`", "`n_iters`", nIters=5),
    "logPrior": bad_type("`logPrior`", "`log_prior`", logPrior=None),
    "nItersOpt": bad_type("`nItersOpt`", "`n_iters_opt`", method="sgldcv", nItersOpt=5),
    "of another sampler": bad_type("sgld()", "no argument `alpha`", "sghmc", alpha=0.1),
    "nothing near": bad_type("sghmc()", "`colour`", method="sghmc", colour="red"),
}

TABLES = {
    "stepsizes": STEPSIZES,
    "tuning": TUNING,
    "params": PARAMS,
    "dataset": DATASET,
    "minibatch": MINIBATCH,
    "model": MODEL,
    "run": RUN,
    "options": OPTIONS,
    "unknown": UNKNOWN,
}
CASES = [
    pytest.param(case, id=f"{table}: {name}")
    for table, cases in TABLES.items()
    for name, case in cases.items()
]


@pytest.fixture(autouse=True)
def no_chain_runs(monkeypatch: pytest.MonkeyPatch) -> list[Sampler]:
    """Put a list of what would have been run in the run's place."""
    ran: list[Sampler] = []

    class NoRun:
        def __init__(self, sampler: Sampler, n_iters: int, store: Any) -> None:
            ran.append(sampler)

        def finish(self, verbose: bool) -> None:
            """Do nothing."""

    monkeypatch.setattr("sgmcmc.run.driver._Run", NoRun)
    return ran


@pytest.mark.parametrize("case", CASES)
def test_wrong_input_is_refused(
    case: Bad, run: Callable[..., Any], no_chain_runs: list[Any]
) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        run(case.method, **case.arguments)
    message = str(caught.value)
    assert caught.type is case.error, message
    for part in case.says:
        assert part in message
    assert len(message) < 900, "a message is for reading"
    assert "/site-packages/" not in message
    assert not no_chain_runs


def test_nan_on_disk_is_found(tmp_path: Path, run: Callable[..., Any]) -> None:
    column = np.memmap(tmp_path / "x", np.float64, "w+", shape=(100, 2))
    column[70, 1] = NAN
    with pytest.raises(ValueError, match=r"dataset\['x'\].*NaN.*\(70, 1\)"):
        run(dataset={"x": column})


def test_nan_on_disk_is_found_in_a_later_piece(
    tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgmcmc.inputs.arrays.PIECE_BYTES", 160)
    column = np.memmap(tmp_path / "x", np.float64, "w+", shape=(100, 2))
    column[70, 1] = NAN
    with pytest.raises(ValueError, match=r"NaN.*\(70, 1\)"):
        run(dataset={"x": column})


def test_large_integers_on_disk_are_found(tmp_path: Path, run: Callable[..., Any]) -> None:
    column = np.memmap(tmp_path / "x", np.int64, "w+", shape=(100,))
    column[99] = 2**40
    with pytest.raises(ValueError, match="1099511627776.*float32"):
        run(dataset={"x": column})


@pytest.mark.parametrize(
    "arguments",
    [
        {"n_iters": 100.0},
        {"seed": 13.0},
        {"seed": None},
        {"seed": 2**70},
        {"minibatch_size": 20.0},
        {"minibatch_size": np.float64(0.5)},
        {"minibatch_size": np.int64(3)},
        {"n_chains": 2.0, "burn_in": 3.0, "thin": 2.0},
        {"stepsize": np.float32(1e-3)},
        {"stepsize": np.array(1e-3)},
        {"stepsize": tf.constant(1e-3)},
        {"stepsize": {"theta": 1}},
        {"params": {"theta": tf.Variable(1.0)}},
        {"dtype": "float64"},
        {"dtype": np.float64},
        {"store_params": ("theta",)},
        {"verbose": np.True_},
        {"dataset": {"x": np.array([0, 2**24, -(2**24)] * 5)}},
        {"dataset": {"x": np.array([0, 2**24 + 1] * 5)}, "dtype": tf.float64},
        {"dataset": {"x": np.array([0.0, INF] * 5)}, "log_lik": lambda p, d: -(p["theta"] ** 2)},
        {"log_lik": tf.function(log_lik)},
        {"log_lik": functools.partial(log_lik)},
        {"log_lik": lambda p, d: 0.0, "log_prior": lambda p: -(p["theta"] ** 2)},
        {"log_prior": lambda p: 0.0},
        {"dataset": {"x": X, "id": tf.constant([2**40] * 20, tf.int64)}},
    ],
    ids=lambda arguments: ", ".join(
        f"{name}={type(value).__name__ if callable(value) else repr(value)}"
        for name, value in arguments.items()
    )[:60],
)
def test_right_input_is_accepted(
    arguments: dict[str, Any], run: Callable[..., Any], no_chain_runs: list[Any]
) -> None:
    run(**arguments)
    assert len(no_chain_runs) == 1


@pytest.mark.parametrize("method", [case.name for case in DISTINCT if "L" in case.constants])
def test_whole_floats_are_steps(
    method: str, run: Callable[..., Any], no_chain_runs: list[Any]
) -> None:
    run(method, L=5.0, alpha={"theta": 1})
    assert no_chain_runs[0].chain.dynamics.steps == 5


def test_a_prior_alone_may_hold_a_parameter(
    run: Callable[..., Any], no_chain_runs: list[Any]
) -> None:
    def log_prior(params: dict[str, tf.Tensor]) -> tf.Tensor:
        return -tf.reduce_sum(params["phi"] ** 2)

    run(params=TWO, log_lik=theta_only, log_prior=log_prior)
    assert len(no_chain_runs) == 1


def test_every_start_is_tried(run: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"params\[1\].*gradient.*'theta'"):
        run(log_lik=root, params=[{"theta": 1.0}, {"theta": 0.0}], n_chains=2)


@pytest.mark.parametrize("method", ["unknown"])
def test_unknown_keyword_of_a_method_that_is_not_a_function(method: str) -> None:
    with pytest.raises(TypeError, match=rf"{method}\(\).*`thinn`.*`thin`"):
        read_options(method, {"thinn": 1}, stepwise=False)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((0.0, 1, 1), "h"), ((1, -1, 1), "tau"), ((1, 1, -0.1), "kappa"), ((NAN, 1, 1), "h")],
)
def test_polynomial_decay_refuses_values(arguments: tuple[float, ...], name: str) -> None:
    with pytest.raises(ValueError, match=f"`{name}`"):
        sgmcmc.polynomial_decay(*arguments)


@pytest.mark.parametrize("value", ["a", None, True, [1.0]])
def test_polynomial_decay_refuses_types(value: Any) -> None:
    with pytest.raises(TypeError, match="`tau`"):
        sgmcmc.polynomial_decay(1.0, value, 1.0)
