"""Wrong ways of working: executors, stores, integers, reductions, updates, and parts."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from sgmcmc.minibatches import Weighted
from tests.inputs.bad import NAN, TWO, X, bad_type, bad_value, returning

SHUT_DOWN = ThreadPoolExecutor(1)
SHUT_DOWN.shutdown()
MANY = 64
"""From here on chains run in groups."""


def no_integers(
    params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
) -> tf.Tensor:
    """Take whatever `x` is."""
    return -0.5 * tf.reduce_sum(
        (tf.cast(dataset["x"], tf.float32) - params["theta"]) ** 2
    )


EXECUTOR = {
    "a number of workers": bad_type(
        "`executor`", "ProcessPoolExecutor", "4 (int)", executor=4
    ),
    "a name": bad_type("`executor`", "Dask", "'dask'", executor="dask"),
    "forked": bad_value(
        "`executor`", "forked", "spawn", executor=ProcessPoolExecutor(1)
    ),
    "shut down": bad_value("`executor`", "shut down", "with", executor=SHUT_DOWN),
    "a maker with arguments": bad_type(
        "`executor`", "function without arguments", executor=lambda workers: workers
    ),
    "a list": bad_type("`executor`", "it is a list", executor=[SHUT_DOWN]),
    "forked, and many chains": bad_value(
        "`executor`", "forked", executor=ProcessPoolExecutor(1), n_chains=MANY
    ),
}

INTEGERS = {
    "number": bad_type("`integers`", "list of names", "True", integers=True),
    "positions": bad_type("`integers`", "list of names", integers=[0]),
    "a dict": bad_type("`integers`", "list of names", integers={"x": np.int32}),
    "unknown": bad_value("`integers`", "'z'", "'x'", integers=["z"]),
    "fractions": bad_value(
        "`dataset['x']`", "`integers`", "0.5", dataset={"x": [1.0, 0.5]}, integers=["x"],
        log_lik=no_integers,
    ),
    "NaN": bad_value(
        "`dataset['x']`", "NaN", dataset={"x": [1.0, NAN]}, integers=["x"], log_lik=no_integers
    ),
    "too large": bad_value(
        "`dataset['x']`", "tf.int64", dataset={"x": np.array([1, 2**40])}, integers=["x"],
        log_lik=no_integers,
    ),
}  # fmt: skip

CHAINS = {
    "fraction": bad_value("`n_chains`", "integer", "2.5", n_chains=2.5),
    "string": bad_type("`n_chains`", "'4'", n_chains="4"),
    "negative": bad_value("`n_chains`", "1 or more", n_chains=-2),
    "NaN": bad_value("`n_chains`", "integer", n_chains=NAN),
    "a start too few for a group": bad_value(
        "`params`", "`n_chains` must be 63", params=[{"theta": 0.0}] * (MANY - 1), n_chains=MANY
    ),
    "NaN in a start of a group": bad_value(
        "`params[63]['theta']`", "finite",
        params=[{"theta": 0.0}] * (MANY - 1) + [{"theta": NAN}], n_chains=MANY,
    ),
    "other shapes in a group": bad_value(
        "`params", "(2,)", params=[{"theta": 0.0}] * (MANY - 1) + [{"theta": [0.0, 1.0]}],
        n_chains=MANY,
    ),
}  # fmt: skip

KEEPING = {
    "store number": bad_type("`store`", "folder", "3 (int)", store=3),
    "store empty": bad_type("`store`", "folder", store=""),
    "store a file": bad_value("`store`", "is a file", store=__file__),
    "store of others": bad_value("`store`", "other things", store="/"),
    "reductions a list": bad_type("`reductions`", "dict", reductions=[1]),
    "reductions a number": bad_type("`reductions['m']`", "pair", reductions={"m": 3.0}),
    "reductions without update": bad_type(
        "`reductions['m'][1]`", "function", reductions={"m": (0.0, 1.0)}
    ),
    "reductions of a slash": bad_value(
        "`reductions`", "slash", reductions={"a/b": (0.0, lambda state, params: state)}
    ),
    "burn_in fraction": bad_value("`burn_in`", "integer", burn_in=0.5),
    "thin string": bad_type("`thin`", "'2'", thin="2"),
}

WEIGHTED = Weighted(np.ones(7))
PARTS = {
    "updates near miss": bad_value("`updates`", "'in_turn'", "'in turn'", updates="in turn"),
    "updates a flag": bad_value("`updates`", "True", updates=True),
    "minibatches near miss": bad_value("`minibatches`", "'uniform'", minibatches="unifrom"),
    "minibatches a number": bad_type("`minibatches`", "5 (int)", minibatches=5),
    "minibatches of other data": bad_value("`minibatches`", "7", "20", minibatches=WEIGHTED),
    "minibatches and replace": bad_value(
        "`replace=True`", "`minibatches`", minibatches="uniform", replace=True
    ),
    "preconditioner near miss": bad_value(
        "`preconditioner`", "'diagonl'", preconditioner="diagonl"
    ),
    "preconditioner negative": bad_value("`preconditioner", "positive", preconditioner=-1.0),
    "preconditioner of no parameter": bad_value(
        "`preconditioner`", "'phi'", preconditioner={"phi": 1.0}
    ),
    "preconditioner of other size": bad_value(
        "`preconditioner", "3 × 3", params=TWO, preconditioner=np.eye(4)
    ),
    "preconditioner not symmetric": bad_value(
        "`preconditioner", "symmetric", params=TWO,
        preconditioner=np.eye(3) + np.triu(np.ones((3, 3)), 1),
    ),
    "gibbs not a function": bad_type("`gibbs`", "function", gibbs=3),
    "latents without gibbs": bad_value("`latents`", "`gibbs`", latents={"z": X}),
    "latents not a dict": bad_type("`latents`", "dict", gibbs=returning({}), latents=[X]),
}  # fmt: skip
