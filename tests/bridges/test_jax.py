"""Functions of JAX as functions of TensorFlow: values and derivatives against JAX's own."""

from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import pytest
import tensorflow as tf

import sgmcmc

jax = pytest.importorskip("jax")
jnp, lax, jsp = jax.numpy, jax.lax, jax.scipy

rng = np.random.default_rng(5)
F = np.float32
A = rng.normal(size=(4, 4)).astype(F)
P = np.exp(A)
S = A @ A.T + 4 * np.eye(4, dtype=F)
L = np.linalg.cholesky(S).astype(F)
V = rng.normal(size=4).astype(F)
K, J = np.array([3, 0, 0, 1], np.int32), np.array([3, -5, 0, 1], np.int32)
Function = Callable[..., Any]

ELEMENTWISE: dict[str, Function] = {
    "arithmetic": lambda a: a**3 + (1.5 + jnp.abs(a)) ** -2 - 3 * a / (a**2 + 2),
    "powers": lambda a: jnp.exp(a) ** 0.3 + 2.0**a + jnp.cbrt(jnp.exp(a)),
    "exponentials": lambda a: jnp.exp2(a) + jnp.expm1(a) + jnp.log1p(jnp.exp(a)),
    "roots": lambda a: jnp.sqrt(a**2 + 1) + lax.rsqrt(a**2 + 1),
    "trigonometry": lambda a: jnp.sin(a) * jnp.cos(a) + jnp.tan(a / 2) + jnp.arctan2(a, 2 + a**2),
    "hyperbolic": lambda a: jnp.tanh(a) + jnp.sinh(a) + jnp.cosh(a) + jnp.arcsinh(a),
    "inverses": lambda a: jnp.arcsin(a / 9) + 2 * jnp.arccos(a / 9) + jnp.arctan(a),
    "inverse hyperbolic": lambda a: jnp.arctanh(a / 9) + jnp.arccosh(2 + a**2),
    "rounding": lambda a: jnp.floor(a) * a + jnp.round(a) * a + jnp.ceil(a),
    "remainders": lambda a: a % 0.7 + a % -0.3 + jnp.fmod(a, 0.4) + lax.rem(a, F(-0.6)),
    "signs": lambda a: jnp.sign(a) * jnp.exp(a) + jnp.abs(a) + jnp.clip(a, -0.5, 0.5),
    "gamma": lambda a: jsp.special.gammaln(jnp.exp(a)) + jsp.special.digamma(jnp.exp(a) + 1),
    "beta": lambda a: jsp.special.betainc(2.0, 3.0, jax.nn.sigmoid(a)),
    "incomplete gamma": lambda a: jsp.special.gammainc(2.0, jnp.exp(a)),
    "error function": lambda a: jsp.special.log_ndtr(a) + lax.erf(a) + jsp.special.erfc(a),
    "quantile": lambda a: jsp.special.ndtri(jax.nn.sigmoid(a)),
    "bessel": lambda a: jsp.special.i0e(jnp.exp(a)),
    "rectifiers": lambda a: jax.nn.relu(a) + jax.nn.gelu(a) + jax.nn.softplus(a) + jax.nn.silu(a),
    "x log y": lambda a: jsp.special.xlogy(jnp.maximum(a, 0.0), jnp.exp(a)),
    "x log x": lambda a: jsp.special.entr(jnp.exp(a)),
    "logits": lambda a: jsp.special.logit(jax.nn.sigmoid(a)) + jax.nn.log_sigmoid(a),
    "ties": lambda a: jnp.logaddexp(0.0, 0 * a) * a + jax.nn.log_sigmoid(0 * a) + jnp.maximum(a, a),
    "where": lambda a: jnp.where(a > 0, jnp.log(jnp.where(a > 0, a, 1.0)), a**2),
    "interpolation": lambda a: jnp.interp(a, jnp.linspace(-2, 2, 5), jnp.arange(5.0)),
    "polynomial": lambda a: jnp.polyval(jnp.array([1.0, 2.0, 3.0]), a),
    "checkpoint": jax.checkpoint(lambda a: jnp.sin(a) * a),
}  # fmt: skip

OTHERS: dict[str, tuple[Any, ...]] = {
    "sums": (lambda a: a.sum(0) + a.mean(1) + jnp.std(a, 0) + jnp.prod(a, 1), A),
    "extremes": (lambda a: a.max(1) + a.min(0) + a[jnp.arange(4), jnp.argmax(a, 1)], A),
    "log-sum-exp": (lambda a: jsp.special.logsumexp(a, 1) + jax.nn.log_softmax(a, 0)[1], A),
    "cumulative": (lambda a: jnp.cumsum(a, 1) + jnp.cumprod(a, 0) + lax.cumlogsumexp(a), A),
    "running": (lambda a: lax.cummax(a, 1) + lax.cummin(a, 0, reverse=True), A),
    "any": (lambda a, i: a * jnp.any(i > 2) + a * jnp.all(i > 2), A, K),
    "integers": (lambda a, i: a * (i // 2) + (i % 3) + (i & 1) + lax.rem(i, 2) * a, A, J),
    "products": (lambda a, b: jnp.einsum("ij,kj,ki->i", a, b, a) + a @ b[0], A, P),
    "batches": (lambda a: jax.vmap(lambda r: r @ A)(a) + jnp.stack([a, a])[0] @ a, A),
    "shapes": (lambda a: jnp.concatenate([a.reshape(2, 8), jnp.tile(a[:2], 2)]).T[::2, 1:], A),
    "stacks": (lambda a: jnp.stack(jnp.split(a, 2)) + jnp.expand_dims(a[:2], 0), A),
    "pads": (lambda a: jnp.pad(a, ((1, 0), (0, 2)), constant_values=2.0)[:, ::2], A),
    "rolls": (lambda a: jnp.roll(a, 1, 0) + jnp.tril(a, -1) + jnp.diag(jnp.diag(a)) + a[::-1], A),
    "rows": (lambda a, i: a[i] + a[:, i] + a[i, i] + a[-1], A, K),
    "one element": (lambda a, i: a[1, i[0]] + lax.dynamic_slice(a, (i[0], 0), (2, 3)), A, K),
    "along an axis": (lambda a, i: jnp.take_along_axis(a, i[:, None], 1), A, K),
    "filled": (lambda a, i: jnp.nan_to_num(jnp.take(a, i + 2, axis=0, mode="fill")), A, K),
    "clipped": (lambda a, i: jnp.take(a, i + 2, axis=0, mode="clip"), A, K),
    "windows": (lambda a, i: jax.vmap(lambda r, j: lax.dynamic_slice(r, (j,), (2,)))(a, i), A, K),
    "updates": (lambda a, i: a.at[1, 2].set(3.0 * a[0, 0]).at[i].add(a[0]).at[:, 1].mul(2.0), A, K),
    "updates by maxima": (lambda a, i: a.at[i[:2]].max(a[0]) + a.at[i[1:2]].min(a[0]), A, K),
    "segments": (lambda a, i: jax.ops.segment_sum(a, i, 3), A, K),
    "one of k": (lambda a, i: jax.nn.one_hot(i, 4) * a, A, K),
    "sorts": (lambda a: jnp.sort(a, 0) + jnp.sort(a, 1) + jnp.median(a, 0), A),
    "orders": (lambda a: a[jnp.argsort(a[:, 0])], A),
    "largest": (lambda a: lax.top_k(a, 2)[0], A),
    "scan": (lambda a: lax.scan(lambda c, r: (c * 0.9 + r, c @ r), jnp.zeros(4), a)[1], A),
    "scan back": (lambda a: lax.scan(lambda c, r: (c * a[0] + r, c), A[0], a, reverse=True)[1], A),
    "loop": (lambda a: lax.fori_loop(0, 3, lambda i, c: c * a + i, a), A),
    "branches": (lambda a: lax.cond(a[0, 0] > 0, lambda b: b * 2, lambda b: b**2, a), A),
    "switch": (lambda a, i: lax.switch(i[3], [lambda b: b, jnp.sin, jnp.cos], a), A, K),
    "cholesky": (lambda a: jnp.linalg.cholesky(a), S),
    "triangular": (lambda a, b: jsp.linalg.solve_triangular(a, b, lower=True), L, A),
    "transposed": (lambda a, b: jsp.linalg.solve_triangular(a, b, lower=True, trans=1), L, V),
    "solved": (lambda a, b: jsp.linalg.cho_solve((jnp.linalg.cholesky(a), True), b), S, V),
    "eigenvalues": (lambda a: jnp.linalg.eigvalsh(a), S),
    "fourier": (lambda a: jnp.abs(jnp.fft.fft(a)), A),
    "a dict": (lambda a: {"x": a * 2, "y": (a[0], a.sum())}["y"][0], A),
}  # fmt: skip

CASES = {**{name: (f, A) for name, f in ELEMENTWISE.items()}, **OTHERS}


def _in_jax(function: Function, given: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """Return a value, its gradient, and the gradient of a function of that."""

    def value(*given: Any) -> Any:
        return jnp.sum(jnp.sin(function(*given)))

    def bent(*given: Any) -> Any:
        return jnp.sum(jnp.sin(jax.grad(value)(*given)))

    return value(*given), jax.grad(value)(*given), jax.grad(bent)(*given)


def _in_tensorflow(function: Function, given: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    converted = sgmcmc.from_jax(function)
    first = given[0]
    with tf.GradientTape() as outer:
        outer.watch(first)
        with tf.GradientTape() as tape:
            tape.watch(first)
            value = tf.reduce_sum(tf.sin(converted(*given)))
        gradient = tape.gradient(value, first)
        bent = tf.reduce_sum(tf.sin(gradient))
    return value, gradient, outer.gradient(bent, first)


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives_are_those_of_jax(name: str) -> None:
    function, *given = CASES[name]
    expected = _in_jax(function, tuple(map(jnp.asarray, given)))
    tensors = tuple(map(tf.constant, given))
    graph = tf.function(
        lambda *t: _in_tensorflow(function, t), jit_compile=True, autograph=False
    )
    for found in (_in_tensorflow(function, tensors), graph(*tensors)):
        for one, other in zip(found, expected, strict=True):
            scale = 1e-4 * max(1.0, float(np.abs(other).max()))
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=scale)


def test_structures_precisions_and_caches() -> None:
    function = sgmcmc.from_jax(
        lambda params, data: {"a": params["t"] * data["x"], "b": data["i"]}
    )
    data = {"x": tf.constant([1.0, 2.0], tf.float64), "i": tf.constant([1, 2])}
    found = function({"t": tf.constant(1 / 3, tf.float64)}, data)
    np.testing.assert_array_equal(found["a"], np.array([1, 2]) / 3)
    assert found["a"].dtype == tf.float64 and found["b"].numpy().tolist() == [1, 2]
    assert len(function._traced) == 1
    again = cloudpickle.loads(cloudpickle.dumps(function))
    assert not again._traced
    assert (
        again({"t": tf.constant(2.0)}, {"x": tf.ones(2), "i": tf.ones(2)})["a"].dtype
        == tf.float32
    )
    assert jnp.asarray(1.0).dtype == jnp.float32  # outside, JAX is as it was


def test_vectorized_and_of_any_length() -> None:
    def terms(params: Any, data: Any) -> Any:
        return -0.5 * (data["y"] - data["x"] @ params["b"]) ** 2

    given = sgmcmc.from_jax(terms)
    data = {"x": A, "y": V}
    several = tf.constant(rng.normal(size=(5, 4)), tf.float32)
    found = tf.vectorized_map(
        lambda b: given({"b": b}, data), several, fallback_to_while_loop=False
    )
    expected = np.stack([terms({"b": b}, data) for b in several.numpy()])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    specs = {"x": tf.TensorSpec([None, 4]), "y": tf.TensorSpec([None])}
    graph = tf.function(
        lambda data: given({"b": several[0]}, data), input_signature=[specs]
    )
    for rows in (4, 2):
        some = {name: tf.constant(values[:rows]) for name, values in data.items()}
        np.testing.assert_allclose(
            graph(some), expected[0, :rows], rtol=1e-5, atol=1e-5
        )


def test_own_derivatives_are_kept() -> None:
    @jax.custom_jvp
    def function(x: Any) -> Any:
        return x

    function.defjvp(lambda given, slopes: (given[0], 3 * slopes[0]))
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = sgmcmc.from_jax(function)(x)
    assert float(value) == 2 and float(tape.gradient(value, x)) == 3


X = rng.normal(size=(600, 3)).astype(F)
Y = (rng.random(600) < 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.2]))).astype(F)


def log_lik(params: Any, dataset: Any) -> Any:
    logits = dataset["x"] @ params["b"]
    return dataset["y"] * logits - jnp.logaddexp(0.0, logits)


def log_prior(params: Any) -> Any:
    return -0.5 * jnp.sum(params["b"] ** 2)


def tf_log_lik(params: Any, dataset: Any) -> Any:
    logits = tf.linalg.matvec(dataset["x"], params["b"])
    return -tf.nn.sigmoid_cross_entropy_with_logits(dataset["y"], logits)


def tf_log_prior(params: Any) -> Any:
    return -0.5 * tf.reduce_sum(params["b"] ** 2)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_chain_is_that_of_the_model_in_tensorflow(jit_compile: bool) -> None:
    chains = [
        sgmcmc.sgldcv(
            likelihood, {"x": X, "y": Y}, {"b": np.zeros(3)}, 1e-3, 1e-3, prior,
            minibatch_size=20, n_iters=200, n_iters_opt=100, verbose=False, seed=1,
            jit_compile=jit_compile, store_gradients=True,
        )
        for likelihood, prior in (
            (sgmcmc.from_jax(log_lik), sgmcmc.from_jax(log_prior)), (tf_log_lik, tf_log_prior)
        )
    ]  # fmt: skip
    np.testing.assert_allclose(chains[0]["b"], chains[1]["b"], rtol=1e-3, atol=1e-4)
    by_row = chains[0].log_lik({"x": X, "y": Y})
    np.testing.assert_allclose(
        by_row, chains[1].log_lik({"x": X, "y": Y}), rtol=1e-3, atol=1e-3
    )


def test_sample_takes_it_and_predictions_are_served(tmp_path: Any) -> None:
    samples = sgmcmc.sample(
        sgmcmc.from_jax(log_lik), {"x": X, "y": Y}, {"b": np.zeros(3)},
        sgmcmc.from_jax(log_prior), n_iters=400, seed=1, verbose=False,
    )  # fmt: skip
    exact = sgmcmc.hmc(
        tf_log_lik, {"x": X, "y": Y}, {"b": np.zeros(3)}, log_prior=tf_log_prior, n_iters=400,
        seed=1, verbose=False,
    )  # fmt: skip
    sd = exact["b"].std((0, 1))
    assert (
        np.abs(samples["b"].mean((0, 1)) - exact["b"].mean((0, 1))) < 0.3 * sd
    ).all()
    f = sgmcmc.from_jax(
        lambda params, dataset: jax.nn.sigmoid(dataset["x"] @ params["b"])
    )
    served = tf.saved_model.load(
        str(samples.export(tmp_path / "m", f, {"x": X[:2]}, draws=50))
    )
    found = served.signatures["mean"](x=tf.constant(X[:7]))["mean"]
    np.testing.assert_allclose(found, samples.predict(f, {"x": X[:7]}), atol=0.05)


@pytest.mark.parametrize(
    "function, message",
    [
        (
            lambda p, d: jnp.linalg.det(p["b"][None] * jnp.eye(3)) * d["y"],
            "primitive 'lu' of JAX",
        ),
        (
            lambda p, d: jax.random.normal(jax.random.PRNGKey(0)) * p["b"][0] + d["y"],
            "random",
        ),
        (
            lambda p, d: d["y"] * (p["b"][0] if p["b"][0] > 0 else 1.0),
            "Traced|Tracer|boolean",
        ),
        (lambda p, d: np.exp(p["b"][0]) * d["y"], "numpy.ndarray conversion|[Tt]racer"),
    ],
)
def test_what_cannot_be_translated_is_named(function: Function, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        sgmcmc.sgld(
            sgmcmc.from_jax(function), {"x": X, "y": Y}, {"b": np.ones(3)}, 1e-4, n_iters=2,
            verbose=False,
        )  # fmt: skip


def test_sparse_columns_are_refused() -> None:
    sparse = tf.sparse.from_dense(tf.eye(3))
    with pytest.raises(ValueError, match="sparse column"):
        sgmcmc.from_jax(lambda x: x)(sparse)
