"""Sparse matrices in a dataset: what `log_lik` sees of them, and chains like those of arrays."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import sparse

import sgmcmc
from sgmcmc.data.dataset import Minibatch
from sgmcmc.data.passes import chunks, shards
from sgmcmc.data.reading import read_dataset
from sgmcmc.data.sparse import RowSlices
from sgmcmc.minibatches import Uniform
from sgmcmc.minibatches.streams import MinibatchSource, make_stream
from sgmcmc.model import whole_posterior
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import Target
from tests import seams

N, P = 300, 5
RNG = np.random.default_rng(4)
X = sparse.random_array((N, P), density=0.4, format="csr", dtype=np.float32, rng=RNG)
X.data[:] = RNG.normal(size=X.nnz)
B = np.array([1.0, -1.0, 0.5, 0.0, 2.0])
Y = (RNG.random(N) < 1 / (1 + np.exp(-(X @ B)))).astype(np.float32)


def logits(params: dict, dataset: dict) -> tf.Tensor:
    x, beta = dataset["X"], params["beta"]
    if isinstance(x, tf.SparseTensor):
        return tf.sparse.sparse_dense_matmul(x, beta[:, tf.newaxis])[:, 0]
    return tf.linalg.matvec(x, beta)


def terms(params: dict, dataset: dict) -> tf.Tensor:
    return -tf.nn.sigmoid_cross_entropy_with_logits(
        dataset["y"], logits(params, dataset)
    )


def log_lik(params: dict, dataset: dict) -> tf.Tensor:
    return tf.reduce_sum(terms(params, dataset))


def log_prior(params: dict) -> tf.Tensor:
    return -0.5 * tf.reduce_sum(params["beta"] ** 2)


def both(call: Any) -> tuple[Any, Any]:
    """Return what a call makes of the sparse matrix, and of the dense one."""
    return tuple(call({"X": matrix, "y": Y}) for matrix in (X, X.toarray()))


def matrices() -> dict[str, Any]:
    """Return the same matrix in the forms there are, some of them not canonical."""
    coo = sparse.coo_array(X)
    unsorted = X.copy()
    for row in range(N):
        part = slice(X.indptr[row], X.indptr[row + 1])
        unsorted.indices[part] = X.indices[part][::-1]
        unsorted.data[part] = X.data[part][::-1]
    unsorted.has_sorted_indices = unsorted.has_canonical_format = False
    twice = sparse.csr_array(
        (np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr), X.shape
    )
    zeros = sparse.csr_array(
        (
            np.append(X.data, 0.0),
            np.append(X.indices, 3),
            np.append(X.indptr[:-1], X.nnz + 1),
        ),
        X.shape,
    )
    return {
        "csr_array": X,
        "csr_matrix": sparse.csr_matrix(X),
        "float64": X.astype(np.float64),
        "csc": sparse.csc_array(X),
        "coo": coo,
        "bsr": sparse.bsr_array(X, blocksize=(3, 1)),
        "lil": sparse.lil_array(X),
        "dok": sparse.dok_array(X),
        "unsorted": unsorted,
        "duplicates": twice,
        "explicit zeros": zeros,
        "SparseTensor": tf.SparseTensor(
            np.stack([coo.row, coo.col], 1), coo.data, X.shape
        ),
    }


@pytest.mark.parametrize("form", list(matrices()))
def test_all_forms_are_the_same_and_none_is_changed(form: str) -> None:
    given = matrices()[form]
    before = pickle.dumps(given) if form != "SparseTensor" else b""
    data = read_dataset({"X": given}, tf.float32)
    found = data.whole["X"]
    assert found.shape == (N, P) and found.dtype == tf.float32
    np.testing.assert_allclose(tf.sparse.to_dense(found), X.toarray(), rtol=1e-6)
    assert form == "SparseTensor" or pickle.dumps(given) == before


def shapes() -> list[tuple[np.ndarray, str]]:
    """Return matrices of many shapes and patterns."""
    rng, found = np.random.default_rng(7), []
    for rows, width, density in ((1, 1, 1.0), (9, 40, 0.05), (12, 3, 0.9), (6, 4, 0)):
        matrix = rng.normal(size=(rows, width)) * (rng.random((rows, width)) < density)
        matrix[rows // 2 :][: rows // 3] = 0.0  # a block of empty rows
        found.append((matrix, f"{rows}x{width}, {density}"))
    heavy = np.zeros((8, 50))
    heavy[3], heavy[7, -1] = 1.0, 2.0
    return [*found, (heavy, "one long row"), (np.eye(5), "diagonal")]


@pytest.mark.some(6)
@pytest.mark.parametrize("dense", [pytest.param(m, id=name) for m, name in shapes()])
@pytest.mark.parametrize("dtype", [np.float64, np.int16, np.bool_])
def test_rows_are_those_of_the_dense_matrix(dense: np.ndarray, dtype: type) -> None:
    dense = dense.astype(dtype)
    data = read_dataset({"X": sparse.csr_array(dense)}, tf.float64)
    rng, size = np.random.default_rng(1), len(dense)

    def same(found: tf.SparseTensor, rows: Any) -> None:
        wanted = dense[rows].astype(np.float64)
        assert found.shape == wanted.shape
        np.testing.assert_array_equal(
            tf.sparse.to_dense(found), wanted
        )  # checks the order, too
        np.testing.assert_array_equal(tf.sparse.reduce_sum(found, 1), wanted.sum(1))

    for rows in (
        rng.integers(0, size, 4),
        np.arange(size),
        np.array([size - 1, 0, size - 1]),
    ):
        same(data.rows(rows)["X"], rows)
    for shard in shards(data, 3):
        for start, piece in chunks(data, shard):
            same(piece["X"], slice(start, start + min(3, size - start)))
    slices = RowSlices(data.whole)
    for start, length in ((0, size // 2), (size // 2, size - size // 2), (size - 1, 1)):
        same(slices.rows(start, length)["X"], slice(start, start + length))
    draws = Uniform(True).bind(size, 3)
    source = MinibatchSource(data, draws, tf.float64, with_rows=True)
    stream = make_stream(source, ahead=True, xla=False)
    out = {name: np.empty(*spec) for name, spec in stream.shapes(5).items()}
    stream.prepare(rng, out, 5)
    block = {name: tf.constant(array) for name, array in out.items()}
    graph = tf.function(lambda step: stream.minibatch(stream.fixed, block, step))
    for step in range(5):
        minibatch = graph(tf.constant(step))
        same(minibatch.columns["X"], minibatch.rows.numpy())


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(log_lik, id="sum", marks=pytest.mark.slow),
        pytest.param(terms, id="terms"),
    ],
)
def test_gradients_are_those_of_the_dense_matrix(model: Any) -> None:
    space = Space({"beta": (P,)}, {})
    target = Target(model, log_prior, space, tf.float32)
    position = tf.constant(B, tf.float32)
    weights = tf.constant(RNG.uniform(1, 2, 20).astype(np.float32))

    def found(dataset: dict) -> list[tf.Tensor]:
        columns = read_dataset(dataset, tf.float32).rows(np.arange(0, 40, 2))
        return [
            target.log_post(position, Minibatch(columns, 3.0)),
            target.gradient(position, Minibatch(columns, 3.0)),
            target.gradient(position, Minibatch(columns, weights)),
            target.term_gradients(position, columns),
            target.terms({"beta": position}, columns),
        ]

    for one, other in zip(*both(found), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


FUNCTIONS: dict[str, tuple[Any, tuple, dict[str, Any]]] = {
    "sgld, weighted": (
        sgmcmc.sgld,
        (1e-3,),
        {"minibatches": sgmcmc.minibatches.Weighted(1 + Y)},
    ),
    "sghmc, replacement": (sgmcmc.sghmc, (1e-3,), {"replace": True, "n_chains": 2}),
    "sgldcv, leverage": (
        sgmcmc.sgldcv,
        (1e-3, "auto"),
        {"preconditioner": "dense", "minibatches": "leverage"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "sgld, weighted",
        pytest.param("sghmc, replacement", marks=pytest.mark.slow),
        pytest.param("sgldcv, leverage", marks=pytest.mark.slow),
    ],
)
def test_draws_are_those_of_the_dense_matrix(name: str) -> None:
    function, constants, keywords = FUNCTIONS[name]

    def draws(dataset: dict) -> np.ndarray:
        chain = function(
            terms, dataset, {"beta": np.zeros(P)}, *constants, log_prior=log_prior, n_iters=30,
            minibatch_size=30, jit_compile=False, verbose=False, seed=3, **keywords,
        )  # fmt: skip
        return chain["beta"]

    one, other = both(draws)
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "gradient",
    [
        "full",
        *(pytest.param(g, marks=pytest.mark.slow) for g in ("saga", "svrg", "HMC")),
    ],
)
def test_steps_are_those_of_the_dense_matrix(
    gradient: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = whole_posterior._Settings(piece_rows=128)
    monkeypatch.setattr(seams.WHOLE_POSTERIOR_SETTINGS, settings)
    exact = gradient == "HMC"
    dynamics = sgmcmc.dynamics.HMC(3) if exact else "sgld"
    gradient = "full" if exact else gradient

    def draw(dataset: dict) -> np.ndarray:
        sampler = sgmcmc.setup(
            log_lik, dataset, {"beta": np.zeros(P)}, dynamics=dynamics, gradient=gradient,
            minibatches="uniform", minibatch_size=None if gradient == "full" else 30,
            preconditioner="none", stepsize=1e-2 if exact else 1e-3, n_chains=None,
            log_prior=log_prior, seed=1,
            jit_compile=False,
        )  # fmt: skip
        session = sgmcmc.init_sess(sampler, verbose=False)
        for _ in range(12):
            sgmcmc.sgmcmc_step(sampler, session)
        return sgmcmc.get_params(sampler, session)["beta"]

    one, other = both(draw)
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_predictions_and_iterations_on_fed_minibatches() -> None:
    feeds = pytest.importorskip("sgmcmc_r.feeds", reason="not in the source")

    def found(dataset: dict) -> list[np.ndarray]:
        chain = call(dataset["X"])
        fresh = {name: values[:40] for name, values in dataset.items()}
        sampler = sgmcmc.sgld_setup(
            log_lik, dataset, {"beta": np.zeros(P)}, 1e-3, minibatch_size=20, seed=2
        )
        session = sgmcmc.init_sess(sampler)
        sgmcmc.sgmcmc_step(sampler, session)
        feeds.step_on(sampler, session, fresh)
        return [
            chain["beta"],
            chain.predict(lambda p, d: tf.sigmoid(logits(p, d)), fresh),
            chain.log_lik(fresh),
            sgmcmc.get_params(sampler, session)["beta"],
            sampler.est_log_post(fresh).numpy(),
        ]

    for one, other in zip(*both(found), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_sample_without_constants() -> None:
    chain = sgmcmc.sample(
        terms, {"X": X, "y": Y}, {"beta": np.zeros(P)}, log_prior=log_prior,
        n_chains=2, ess=100, verbose=False, seed=1,
    )  # fmt: skip
    dense = sgmcmc.sample(
        terms, {"X": X.toarray(), "y": Y}, {"beta": np.zeros(P)}, log_prior=log_prior,
        n_chains=2, ess=400, verbose=False, seed=2,
    )  # fmt: skip
    one, other = (np.asarray(c["beta"]).reshape(-1, P) for c in (chain, dense))
    # Four standard errors of the difference of two means, of at least 100 and 400 draws.
    assert np.all(
        np.abs(one.mean(0) - other.mean(0)) < 4 * other.std(0) * np.sqrt(1.25 / 100)
    )


def test_a_chain_in_a_store_knows_its_matrix(tmp_path: Path) -> None:
    def run(matrix: Any, n_iters: int) -> Any:
        return sgmcmc.sgld(
            log_lik, {"X": matrix, "y": Y}, {"beta": np.zeros(P)}, 1e-3,
            minibatch_size=30, n_iters=n_iters, verbose=False, seed=3, store=tmp_path / "chain",
            jit_compile=False,
        )  # fmt: skip

    run(X, 10)
    longer = run(sparse.csc_array(X), 20)
    assert len(longer["beta"]) == 20
    other = X.copy()
    other.data[0] += 1
    with pytest.raises(ValueError, match="`dataset`|dataset"):
        run(other, 20)


def call(matrix: Any, **keywords: Any) -> Any:
    given = {
        "minibatch_size": 30,
        "n_iters": 2,
        "verbose": False,
        "seed": 3,
        **keywords,
    }
    return sgmcmc.sgld(
        log_lik, {"X": matrix, "y": Y}, {"beta": np.zeros(P)}, 1e-3, **given
    )


def nan_at(row: int, column: int) -> sparse.csr_array:
    dense = X.toarray()
    dense[row, column] = np.nan
    return sparse.csr_array(dense)


@pytest.mark.parametrize(
    ("matrix", "keywords", "words"),
    [
        (nan_at(17, 3), {}, ("`dataset['X']`", "NaN", "(17, 3)")),
        (X.astype(np.complex64), {}, ("`dataset['X']`", "real numbers")),
        (
            X.astype(np.float64) * 1e300,
            {},
            ("`dataset['X']`", "beyond the range of float32"),
        ),
        (sparse.coo_array(Y), {}, ("`dataset['X']`", "observation in each row")),
        (X[:100], {}, ("`dataset`", "same length")),
        (X, {"jit_compile": True}, ("`jit_compile=True`", "sparse", "None")),
    ],
    ids=["NaN", "complex", "overflow", "vector", "length", "XLA"],
)
def test_what_is_refused(matrix: Any, keywords: dict, words: tuple[str, ...]) -> None:
    with pytest.raises((TypeError, ValueError)) as error:
        call(matrix, **keywords)
    for word in words:
        assert word in str(error.value)


def test_a_mean_is_found() -> None:
    with pytest.raises(
        ValueError, match="`log_lik` must be a sum over the observations; it is a m"
    ):
        sgmcmc.sgld(
            lambda p, d: tf.reduce_mean(terms(p, d)), {"X": X, "y": Y}, {"beta": np.zeros(P)},
            1e-3, minibatch_size=30, n_iters=2, verbose=False,
        )  # fmt: skip
