"""Compiled by XLA or not: the same draws, a fallback that is told, and memory that runs out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.config_pb2 import ConfigProto
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
from tensorflow.python.eager import context

import sgmcmc
from sgmcmc.graphs.compiler import Compiler, FlatGraph, side_by_side
from sgmcmc.graphs.tracing import trace
from tests import seams
from tests.conftest import CENTERED, METHODS, PLAIN, log_lik

Run = Callable[..., sgmcmc.Samples]


def uncompilable(
    params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
) -> tf.Tensor:
    """Return the log-likelihood by way of an op that XLA does not know."""
    as_text = tf.strings.as_string(dataset["x"], precision=9)
    return log_lik(params, {"x": tf.strings.to_number(as_text)})


@pytest.mark.some(1)
@pytest.mark.parametrize(("method", "n_chains"), [(PLAIN[0], None), (CENTERED[-1], 2)])
def test_fallback(
    method: str, n_chains: int | None, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        samples = run(method, log_lik=uncompilable, n_chains=n_chains, jit_compile=None)
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == 1, messages
    assert (
        "XLA" in messages[0]
        and "AsString" in messages[0]
        and "jit_compile=False" in messages[0]
    )
    expected = run(method, n_chains=n_chains)
    np.testing.assert_allclose(samples["theta"], expected["theta"], rtol=1e-5)
    assert capfd.readouterr() == ("", "")


def test_no_fallback_from_compilation_on_demand(run: Run) -> None:
    with pytest.raises(
        ValueError, match=r"`jit_compile=True`.*AsString.*`jit_compile=False`"
    ):
        run(log_lik=uncompilable, jit_compile=True)


def test_no_compilation_no_warning(run: Run) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(log_lik=uncompilable, jit_compile=False)


OPS: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "where": lambda x, theta: tf.reduce_sum(
        (tf.gather(x, tf.where(x > 1.0)) - theta) ** 2
    ),
    "boolean_mask": lambda x, theta: tf.reduce_sum(
        (tf.boolean_mask(x, x > 1.0) - theta) ** 2
    ),
    "unique": lambda x, theta: tf.reduce_sum(
        (tf.gather(*tf.unique(tf.round(x))) - theta) ** 2
    ),
    "cond": lambda x, theta: tf.reduce_sum(
        tf.ones_like(x) * tf.cond(theta > 0.0, lambda: theta**2, lambda: -theta)
    ),
    "special": lambda x, theta: tf.reduce_sum(
        tf.ones_like(x) * (tf.math.lgamma(1.0 + theta**2) + tf.math.softplus(theta))
    ),
}


@pytest.mark.some(1)
@pytest.mark.parametrize("op", OPS)
def test_compiled_or_not_the_draws_are_the_same(op: str, run: Run) -> None:
    def model(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
        return -OPS[op](dataset["x"], params["theta"])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tried = run(log_lik=model, jit_compile=None)
    plain = run(log_lik=model, jit_compile=False)
    np.testing.assert_allclose(tried["theta"], plain["theta"], rtol=1e-4, atol=1e-6)


@pytest.mark.some(1)
@pytest.mark.parametrize("method", METHODS)
def test_compiled_or_not_every_method_draws_the_same(method: str, run: Run) -> None:
    compiled, plain = (run(method, jit_compile=jit)["theta"] for jit in (True, False))
    np.testing.assert_allclose(compiled, plain, rtol=1e-4, atol=1e-6)


def no_memory(*_: Any) -> None:
    """Fail as TensorFlow does where an array does not fit."""
    raise tf.errors.ResourceExhaustedError(
        None, None, "Out of memory allocating 8 bytes.\nMore."
    )


@pytest.mark.parametrize("jit_compile", [None, True])
def test_no_memory_is_not_taken_for_what_xla_cannot_compile(
    jit_compile: bool | None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And there is no warning of a fallback, nor a second try."""
    monkeypatch.setattr(seams.FLAT_GRAPH_CALL, no_memory)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            MemoryError, match="`minibatch_size`.*allocating 8 bytes"
        ) as caught:
            run(jit_compile=jit_compile)
    assert "XLA" not in str(caught.value) and "More." not in str(caught.value)


def test_a_compiler_that_lacked_memory_still_uses_xla(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler = Compiler(None)
    with monkeypatch.context() as patch:
        patch.setattr(seams.FLAT_GRAPH_CALL, no_memory)
        with pytest.raises(MemoryError):
            compiler.compile(lambda x: x + 1.0, tf.constant(1.0))
    assert compiler.uses_xla
    compiled = compiler.compile(lambda x: x + 1.0, tf.constant(1.0))
    assert compiled is not None and float(compiled(tf.constant(2.0))) == 3.0


@pytest.mark.some(2)
@pytest.mark.parametrize("jit_compile", [False, True], ids=["plain graph", "XLA"])
@pytest.mark.parametrize("n_chains", [None, 2])
def test_no_memory_on_the_way(
    jit_compile: bool, n_chains: int | None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose memory goes after compilation ends with a MemoryError as well."""
    call, calls = FlatGraph.__call__, 0

    def after_three(self: FlatGraph, leaves: list[tf.Tensor]) -> list[tf.Tensor]:
        nonlocal calls
        calls += 1
        return no_memory() if calls > 3 else call(self, leaves)

    monkeypatch.setattr(seams.LONGEST_BLOCK, 5)
    monkeypatch.setattr(seams.FLAT_GRAPH_CALL, after_three)
    with pytest.raises(MemoryError, match="allocating 8 bytes"):
        run(jit_compile=jit_compile, n_iters=50, n_chains=n_chains)


def test_plain_graphs_are_called_without_rewritten_sums() -> None:
    """Sums through temporary variables clash between threads; the user's own calls keep them."""
    seen: list[bytes] = []
    before = context.context().function_call_options

    def call(leaves: list[tf.Tensor]) -> list[tf.Tensor]:
        seen.append(context.context().function_call_options.config_proto_serialized)
        return leaves

    assert side_by_side(call)([tf.ones(2)])[0].shape == (2,)
    assert context.context().function_call_options is before
    rewriting = ConfigProto.FromString(seen[0]).graph_options.rewrite_options
    assert rewriting.arithmetic_optimization == RewriterConfig.OFF
    fails = side_by_side(lambda leaves: [leaves[7]])
    with pytest.raises(IndexError):
        fails([])
    assert context.context().function_call_options is before


@pytest.mark.parametrize(
    "stacks, compiled", [((), False), ((210,), False), ((210, 1), True)]
)
def test_products_that_may_end_the_process_are_compiled(
    stacks: tuple[int, ...], compiled: bool
) -> None:
    """TensorFlow 2.21 with oneDNN writes outside of its memory in the last one."""
    rng = np.random.default_rng(1)
    A, B = (
        rng.normal(size=shape).astype(np.float32) for shape in ((*stacks, 4, 4), (4, 1))
    )
    graph = trace(tf.matmul, tf.constant(A), tf.constant(B))
    assert graph.function_def.attr["_XlaMustCompile"].b == compiled
    for _ in range(20):
        np.testing.assert_allclose(
            graph(tf.constant(A), tf.constant(B)), A @ B, atol=1e-5
        )
