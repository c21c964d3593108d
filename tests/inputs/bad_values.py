"""Wrong stepsizes, constants, parameters and data."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.inputs.bad import INF, NAN, TWO, X, bad_type, bad_value, fails, returning

STEPSIZES = {
    "unknown key": bad_value(
        "`stepsize`", "'thet'", "'theta'", stepsize={"thet": 1e-3}
    ),
    "missing key": bad_value(
        "`stepsize`", "lacks 'phi'", params=TWO, stepsize={"theta": 1e-3}
    ),
    "negative": bad_value("`stepsize`", "positive", "-0.001", stepsize=-0.001),
    "zero": bad_value("`stepsize`", "positive", "it is 0", stepsize=0),
    "zero in dict": bad_value(
        "`stepsize['theta']`", "positive", stepsize={"theta": 0.0}
    ),
    "NaN": bad_value("`stepsize`", "finite", "nan", stepsize=NAN),
    "inf": bad_value("`stepsize`", "finite", "inf", stepsize=INF),
    "string": bad_type("`stepsize`", "'small' (str)", "schedule", stepsize="small"),
    "list": bad_value(
        "`stepsize`", "shape (2,)", "(3,)", params=TWO, stepsize=[0.1, 0.2]
    ),
    "array": bad_value(
        "`stepsize`", "shape (2,)", params=TWO, stepsize=np.array([0.1, 0.2])
    ),
    "matrix": bad_value(
        "`stepsize`", "shape (3, 1)", params=TWO, stepsize=np.ones((3, 1))
    ),
    "array for a number": bad_value("`stepsize`", "shape (1,)", "()", stepsize=[0.1]),
    "array in dict": bad_value(
        "`stepsize['phi']`",
        "shape (3,)",
        "(2,)",
        params=TWO,
        stepsize={"theta": 1, "phi": [1] * 3},
    ),
    "zero in array": bad_value(
        "`stepsize`", "positive", params=TWO, stepsize=[0.1, 0.0, 0.1]
    ),
    "NaN in array in dict": bad_value(
        "`stepsize['phi']`",
        "finite",
        params=TWO,
        stepsize={"theta": 1, "phi": [NAN, 1.0]},
    ),
    "array of text": bad_type(
        "`stepsize`", "array", params=TWO, stepsize=["a", "b", "c"]
    ),
    "ragged": bad_type("`stepsize`", params=TWO, stepsize=[[0.1], [0.1, 0.2]]),
    "opt array": bad_value(
        "`opt_stepsize`",
        "shape (2,)",
        method="sgldcv",
        params=TWO,
        opt_stepsize=[0.1, 0.2],
    ),
    "bool": bad_type("`stepsize`", "True (bool)", stepsize=True),
    "None": bad_type("`stepsize`", "None", stepsize=None),
    "schedule returns negative": bad_value(
        "`stepsize`", "schedule", "iteration 1", "-1", stepsize=lambda m: -m
    ),
    "schedule returns text": bad_value("schedule", "'a'", stepsize=returning("a")),
    "schedule returns array": bad_value(
        "schedule", "array", stepsize=returning(np.ones(2))
    ),
    "schedule in dict": bad_value(
        "`stepsize['theta']`", stepsize={"theta": returning(0.0)}
    ),
    "schedule fails": bad_value(
        "`stepsize`", "schedule", "iteration 1", stepsize=fails
    ),
    "schedule without argument": bad_value(
        "`stepsize`", "schedule", stepsize=lambda: 1e-3
    ),
    "opt unknown key": bad_value(
        "`opt_stepsize`", "'beta'", method="sgldcv", opt_stepsize={"beta": 1e-3}
    ),
    "opt missing key": bad_value(
        "`opt_stepsize`",
        "lacks 'phi'",
        method="sgldcv",
        params=TWO,
        opt_stepsize={"theta": 1.0},
    ),
    "opt non-positive": bad_value("`opt_stepsize`", method="sghmccv", opt_stepsize=0.0),
    "opt string": bad_type("`opt_stepsize`", method="sgnhtcv", opt_stepsize="1e-3"),
}

TUNING = {
    "alpha unknown key": bad_value(
        "`alpha`", "'beta'", method="sghmc", alpha={"beta": 0.1}
    ),
    "alpha missing key": bad_value(
        "`alpha`", "lacks 'phi'", method="sghmc", params=TWO, alpha={"theta": 0.1}
    ),
    "alpha zero": bad_value("`alpha`", "positive", method="sghmc", alpha=0.0),
    "alpha negative in dict": bad_value(
        "`alpha['theta']`", method="sghmc", alpha={"theta": -1}
    ),
    "alpha string": bad_type("`alpha`", "'x'", method="sghmccv", alpha="x"),
    "alpha above 1 for euler": bad_value(
        "`alpha`", "at most 1", "1.5", method="sghmc", alpha=1.5, integrator="euler"
    ),
    "integrator": bad_value(
        "`integrator`", "'euler'", "'leap'", method="sghmc", integrator="leap"
    ),
    "integrator an array": bad_value(
        "`integrator`",
        "array",
        method="sghmc",
        integrator=np.array(["euler", "symmetric"]),
    ),
    "storage an array": bad_value("`storage`", "array", storage=np.ones(2)),
    "integrator not hashable": bad_value(
        "`integrator`", method="sghmc", integrator=["euler"]
    ),
    "L zero": bad_value("`L`", "1 or more", "it is 0", method="sghmc", L=0),
    "L fraction": bad_value("`L`", "integer", "2.5", method="sghmc", L=2.5),
    "L string": bad_type("`L`", "'5'", method="sghmc", L="5"),
    "n_leapfrog zero": bad_value(
        "`n_leapfrog`", "1 or more", method="hmc", n_leapfrog=0
    ),
    "n_leapfrog string": bad_type("`n_leapfrog`", "'5'", method="hmc", n_leapfrog="5"),
    "n_leapfrog and length": bad_value(
        "`n_leapfrog`", "`length`", method="hmc", n_leapfrog=3, length=1.0
    ),
    "length negative": bad_value("`length`", "positive", method="hmc", length=-1.0),
    "jitter one": bad_value("`jitter`", "below 1", method="hmc", jitter=1.0),
    "jitter string": bad_type("`jitter`", "'x'", method="hmc", jitter="x"),
    "max_tree_depth fraction": bad_value(
        "`max_tree_depth`", "2.5", method="nuts", max_tree_depth=2.5
    ),
    "exact stepsize": bad_value("`stepsize`", "positive", method="nuts", stepsize=0.0),
    "a unknown key": bad_value("`a`", "'beta'", method="sgnht", a={"beta": 0.1}),
    "a zero": bad_value("`a`", "positive", method="sgnht", a=0),
    "a negative": bad_value("`a`", "positive", method="sgnhtcv", a=-0.1),
}

RAGGED = {"theta": [[1.0, 2.0], [3.0]]}
PARAMS = {
    "empty": bad_value("`params`", "empty", params={}),
    "not a dict": bad_type("`params`", "dict", "0.0 (float)", params=0.0),
    "list of wrong length": bad_value(
        "`params`",
        "`n_chains` must be 2",
        "it is 3",
        params=[{"theta": 0.0}] * 2,
        n_chains=3,
    ),
    "list without n_chains": bad_value(
        "`params`", "`n_chains` must be 2", "None", params=[{"theta": 0.0}] * 2
    ),
    "list of numbers": bad_type(
        "`params[1]`", "dict", params=[{"theta": 0.0}, 1.0], n_chains=2
    ),
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
    "NaN": bad_value(
        "`params['theta']`", "finite", "nan", params={"theta": [0.0, NAN]}
    ),
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
    "unequal first axes": bad_value(
        "`dataset`", "'x' 20", "'y' 19", dataset={"x": X, "y": X[:-1]}
    ),
    "scalar": bad_value("`dataset['y']`", "first axis", dataset={"x": X, "y": 1.0}),
    "scalar tensor": bad_value(
        "`dataset['x']`", "axis", dataset={"x": tf.constant(1.0)}
    ),
    "NaN": bad_value(
        "`dataset['x']`", "NaN", "(3,)", dataset={"x": [0.0, 0.0, 0.0, NAN]}
    ),
    "NaN tensor": bad_value(
        "`dataset['x']`", "NaN", dataset={"x": tf.constant([0.0, NAN])}
    ),
    "masked": bad_value("`dataset['x']`", "masked", dataset={"x": MASKED}),
    "objects": bad_type("`dataset['x']`", "object", dataset={"x": [1.0, None, 2.0]}),
    "strings": bad_type("`dataset['x']`", "numbers", dataset={"x": ["a", "b"]}),
    "string tensor": bad_type(
        "`dataset['x']`", "string", dataset={"x": tf.constant(["a", "b"])}
    ),
    "ragged": bad_value(
        "`dataset['x']`", "regular", dataset={"x": [[1.0], [1.0, 2.0]]}
    ),
    "ragged tensor": bad_type(
        "`dataset['x']`",
        "RaggedTensor",
        dataset={"x": tf.ragged.constant([[1.0], [1.0, 2.0]])},
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
    "beyond float32": bad_value(
        "`dataset['x']`", "1e+60", "float32", dataset={"x": [0.0, 1e60]}
    ),
}

MINIBATCH = {
    "zero": bad_value("`minibatch_size`", "it is 0", minibatch_size=0),
    "negative": bad_value("`minibatch_size`", "-5", minibatch_size=-5),
    "above N": bad_value("`minibatch_size`", "1 to 20", "21", minibatch_size=21),
    "1.5": bad_value("`minibatch_size`", "integer", "1.5", minibatch_size=1.5),
    "rounds to none": bad_value("`minibatch_size`", "0.01", "20", minibatch_size=0.01),
    "NaN": bad_value("`minibatch_size`", "nan", minibatch_size=NAN),
    "string": bad_type("`minibatch_size`", "'10%'", minibatch_size="10%"),
    "bool": bad_type("`minibatch_size`", "True", minibatch_size=True),
}
