"""Wrong functions of the user's, lengths, options and names."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tests.inputs.bad import INF, TWO, X, bad_type, bad_value, fails, returning


def terms(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return a term for each observation."""
    return -0.5 * (dataset["x"] - params["theta"]) ** 2


def with_float64(
    params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
) -> tf.Tensor:
    """Mix dtypes."""
    return tf.reduce_sum(tf.constant(2.0, tf.float64) * dataset["x"] * params["theta"])


def with_int_labels(
    params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
) -> tf.Tensor:
    """Multiply by an integer tensor."""
    return tf.reduce_sum(dataset["x"] * dataset["label"] * params["theta"])


def with_branch(params: dict[str, tf.Tensor], *_: Any) -> tf.Tensor:
    """Decide in Python what only the graph knows."""
    return params["theta"] if params["theta"] > 0 else -params["theta"]


def theta_only(
    params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
) -> tf.Tensor:
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
        "`log_lik`",
        "(4,)",
        "5 observations",
        "tf.reduce_sum",
        log_lik=lambda *g: terms(*g)[1:],
    ),
    "a column of terms": bad_value(
        "`log_lik`",
        "(5, 1)",
        "tf.reduce_sum",
        log_lik=lambda *given: terms(*given)[:, None],
    ),
    "terms of several kinds": bad_value(
        "`log_lik`",
        "(5, 2)",
        "tf.reduce_sum",
        log_lik=lambda *g: tf.stack([terms(*g)] * 2, 1),
    ),
    "a term of the prior for each observation": bad_value(
        "`log_prior`",
        "(5,)",
        "tf.reduce_sum",
        log_prior=lambda p: -tf.ones(5) * p["theta"] ** 2,
    ),
    "None": bad_type("`log_lik`", "None", "return", log_lik=returning(None)),
    "text": bad_type("`log_lik`", "scalar", "'a'", log_lik=returning("a")),
    "dict": bad_type("`log_lik`", "scalar", log_lik=returning({})),
    "integer": bad_type(
        "`log_lik`", "int32", "float32", log_lik=returning(tf.constant(1))
    ),
    "float64": bad_type(
        "`log_lik`",
        "float64",
        "tf.float32",
        log_lik=returning(tf.constant(1.0, tf.float64)),
    ),
    "ignores a parameter": bad_value(
        "`log_lik`", "'phi'", params=TWO, log_lik=theta_only
    ),
    "ignores all": bad_value("`log_lik`", "'theta'", log_lik=returning(0.0)),
    "dtype clash": bad_type(
        "`log_lik`", "dtype", "tf.constant(..., dtype=tf.float32)", log_lik=with_float64
    ),
    "clash with int tensor": bad_type(
        "`log_lik`", "tf.cast", dataset=LABELS, log_lik=with_int_labels
    ),
    "NumPy": bad_type("`log_lik`", "TensorFlow", "np.log", log_lik=in_numpy),
    "Python branch": bad_type("`log_lik`", "tf.where", log_lik=with_branch),
    "own error": bad_value(
        "`log_lik`", "ArithmeticError", "positive definite", log_lik=fails
    ),
    "wrong number of arguments": bad_type(
        "`log_lik`", "`params` and `dataset`", log_lik=lambda params: params["theta"]
    ),
    "wrong dataset key": bad_value(
        "`log_lik`", "KeyError: 'y'", "'x' (5,)", log_lik=wrong_key
    ),
    "NaN at the start": bad_value(
        "`log_lik`",
        "nan",
        "start",
        log_lik=lambda p, d: tf.math.log(-1.0 - p["theta"] ** 2),
    ),
    "infinite gradient": bad_value("gradient", "'theta'", "inf", log_lik=root),
    "prior not callable": bad_type("`log_prior`", "function", "None", log_prior=0.0),
    "prior vector": bad_value(
        "`log_prior`", "(2,)", "tf.reduce_sum", params=TWO, log_prior=lambda p: p["phi"]
    ),
    "prior None": bad_type("`log_prior`", "None", log_prior=returning(None)),
    "prior dtype clash": bad_type(
        "`log_prior`",
        "float32",
        log_prior=lambda p: p["theta"] * tf.constant(1.0, tf.float64),
    ),
    "prior NumPy": bad_type("`log_prior`", "TensorFlow", log_prior=in_numpy),
    "prior own error": bad_value("`log_prior`", "positive definite", log_prior=fails),
    "prior wrong key": bad_value(
        "`log_prior`", "KeyError", "'theta'", log_prior=lambda p: p["q"]
    ),
    "prior minus infinity": bad_value(
        "`log_prior`", "-inf", log_prior=lambda p: tf.math.log(p["theta"])
    ),
    "prior infinite gradient": bad_value("gradient", "'theta'", log_prior=root),
}

RUN = {
    "n_iters zero": bad_value("`n_iters`", "1 or more", "it is 0", n_iters=0),
    "n_iters negative": bad_value("`n_iters`", "-3", n_iters=-3),
    "n_iters fraction": bad_value("`n_iters`", "integer", "2.5", n_iters=2.5),
    "n_iters string": bad_type("`n_iters`", "'many'", n_iters="many"),
    "n_iters inf": bad_value("`n_iters`", "inf", n_iters=INF),
    "n_iters_opt negative": bad_value(
        "`n_iters_opt`", "-1", method="sgldcv", n_iters_opt=-1
    ),
    "thin zero": bad_value("`thin`", "1 or more", thin=0),
    "thin above n_iters": bad_value("`thin`", "21", "20", thin=21),
    "burn_in negative": bad_value("`burn_in`", "-1", burn_in=-1),
    "n_chains zero": bad_value("`n_chains`", "1 or more", n_chains=0),
    "n_chains bool": bad_type("`n_chains`", "True", n_chains=True),
    "verbose": bad_type("`verbose`", "True or False", "'no'", verbose="no"),
    "verbose number": bad_type("`verbose`", "1", verbose=1),
    "seed negative": bad_value("`seed`", "-1", seed=-1),
    "seed fraction": bad_value("`seed`", "integer", "1.5", seed=1.5),
    "seed string": bad_type("`seed`", "'a'", seed="a"),
    "dtype int32": bad_value(
        "`dtype`", "tf.float32 or tf.float64", "int32", dtype=tf.int32
    ),
    "dtype nonsense": bad_value("`dtype`", "'real'", dtype="real"),
    "dtype None": bad_value("`dtype`", "None", dtype=None),
    "jit_compile": bad_type("`jit_compile`", "or None", "'yes'", jit_compile="yes"),
    "replace": bad_type("`replace`", "True or False", "it is 1", replace=1),
    "store_gradients": bad_type("`store_gradients`", "'x'", store_gradients="x"),
}

EXP = tfp.bijectors.Exp()
OPTIONS = {
    "store_params unknown": bad_value(
        "`store_params`", "'beta'", store_params=["beta"]
    ),
    "store_params empty": bad_value("`store_params`", "empty", store_params=[]),
    "store_params string": bad_type(
        "`store_params`", "list", "'theta'", store_params="theta"
    ),
    "store_params number in list": bad_value("`store_params`", "1", store_params=[1]),
    "store_params False alone": bad_value("`test_functions`", store_params=False),
    "test_functions not a dict": bad_type(
        "`test_functions`", "dict", test_functions=[tf.exp]
    ),
    "test_functions key": bad_type(
        "`test_functions`", "keys", test_functions={1: tf.exp}
    ),
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
        "`test_functions['f']`",
        "tensor",
        test_functions={"f": lambda p: {"a": p["theta"]}},
    ),
    "bijectors not a dict": bad_type("`bijectors`", "dict", bijectors=EXP),
    "bijectors unknown": bad_value(
        "`bijectors`", "'tau'", "'theta'", bijectors={"tau": EXP}
    ),
    "bijectors not one": bad_type(
        "`bijectors['theta']`", "tfp", bijectors={"theta": tf.exp}
    ),
    "bijectors a class": bad_type(
        "`bijectors['theta']`", "()", bijectors={"theta": tfp.bijectors.Exp}
    ),
    "start out of range": bad_value(
        "`params['theta']`",
        "range",
        "-1.0",
        params={"theta": -1.0},
        bijectors={"theta": EXP},
    ),
    "bijector does not fit": bad_value(
        "`bijectors['theta']`",
        bijectors={"theta": tfp.bijectors.IteratedSigmoidCentered()},
    ),
    "bijector of a matrix": bad_value(
        "`bijectors['theta']`",
        params={"theta": [1.0, 2.0]},
        bijectors={"theta": tfp.bijectors.FillScaleTriL()},
    ),
}

UNKNOWN = {
    "near miss": bad_type("sgld()", "`n_chain`", "`n_chains`", n_chain=2),
    "minibatchSize": bad_type("`minibatchSize`", "`minibatch_size`", minibatchSize=5),
    "nIters": bad_type("`nIters`", "`n_iters`", nIters=5),
    "logPrior": bad_type("`logPrior`", "`log_prior`", logPrior=None),
    "nItersOpt": bad_type("`nItersOpt`", "`n_iters_opt`", method="sgldcv", nItersOpt=5),
    "of another sampler": bad_type("sgld()", "no argument `alpha`", "sghmc", alpha=0.1),
    "nothing near": bad_type("sghmc()", "`color`", method="sghmc", color="red"),
}
