# %% [markdown]
# # A million documents, a hundred thousand words
#
# Text as counts of words is a matrix of mostly zeros. Here it has 10⁶ rows and 10⁵ columns: 400 GB
# as a dense array, and 0.3 GB if only nonzero entries are stored. A SciPy matrix in `dataset` stays
# sparse, and `log_lik` receives the rows of a minibatch as a `tf.SparseTensor`.
#
# Words are simulated by Zipf's law: a few are in most documents, most are in a few dozen. Each word
# has a coefficient from a normal distribution, and the labels of the documents are drawn from the
# logistic regression with these coefficients. The distribution of the coefficients is the prior, so
# the right posterior is known: nine in ten of its 90 % intervals contain the true coefficient, for
# common words and for rare ones, and no other prediction has a smaller expected loss.
#
# Run it with `python vignettes/sparse_text.py`. The tests run `--short`.

# %%
from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure
from scipy import optimize, sparse, special

import sgmcmc

from _figures import figure

# %% [markdown]
# ## The data
#
# The lengths of documents are heavy-tailed, too. An entry is log(1 + count) times the inverse
# document frequency, and rows are scaled to length one, as is usual for text.

# %%
PRIOR_SD = 3.0


class Text(NamedTuple):
    """Documents with their labels, and the coefficients that these were drawn with."""

    X: sparse.csr_array
    y: np.ndarray
    beta: np.ndarray

    def rows(self, rows: slice) -> Text:
        return Text(self.X[rows], self.y[rows], self.beta)


def simulate(documents: int, words: int, length: float = 40.0, seed: int = 1) -> Text:
    rng = np.random.default_rng(seed)
    lengths = np.ceil(rng.lognormal(np.log(length) - 0.32, 0.8, documents)).astype(
        np.int64
    )
    cumulative = np.cumsum(1.0 / (np.arange(words) + 3.0))
    splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    drawn = np.empty(splits[-1], np.int32)
    for start in range(0, len(drawn), 2**22):
        part = drawn[start : start + 2**22]
        part[:] = np.searchsorted(
            cumulative, cumulative[-1] * rng.random(len(part)), "right"
        )
    X = sparse.csr_array(
        (np.ones(len(drawn), np.float32), drawn, splits), shape=(documents, words)
    )
    X.sum_duplicates()
    appears = np.bincount(X.indices, minlength=words)
    X.data = (
        np.log1p(X.data)
        * np.log(documents / np.maximum(appears, 1)).astype(np.float32)[X.indices]
    )
    norms = np.sqrt(np.maximum((X * X).sum(axis=1), 1e-12))
    X.data /= np.repeat(norms, np.diff(X.indptr)).astype(np.float32)
    beta = rng.normal(0.0, PRIOR_SD, words)
    y = (rng.random(documents) < special.expit(X @ beta)).astype(np.float32)
    return Text(X, y, beta)


# %% [markdown]
# ## The model
#
# The model uses TensorFlow's product of a sparse and a dense matrix. `log_lik` could also return
# the terms of single documents.


# %%
def logits(params, dataset):
    return tf.sparse.sparse_dense_matmul(dataset["X"], params["beta"][:, tf.newaxis])[
        :, 0
    ]


def log_lik(params, dataset):
    losses = tf.nn.sigmoid_cross_entropy_with_logits(
        labels=dataset["y"], logits=logits(params, dataset)
    )
    return -tf.reduce_sum(losses)


def log_prior(params):
    return -0.5 * tf.reduce_sum(params["beta"] ** 2) / PRIOR_SD**2


# %% [markdown]
# ## Mode and scales
#
# SciPy's L-BFGS finds the mode, by products with the sparse matrix. There the diagonal of the
# information, Σᵢ pᵢ(1 − pᵢ) xᵢⱼ² + 1/sd², shows how wide the posterior is in each coordinate: the
# SD of a common word is a small fraction of the prior's, that of a rare one nearly all of it. So
# the coordinates of the chain are scaled by it.


# %%
def mode_and_variances(train: Text) -> tuple[np.ndarray, np.ndarray]:
    X, y = train.X, train.y
    precision = PRIOR_SD**-2.0
    squares = X.copy()
    squares.data **= 2
    # A quarter is the largest that p(1 − p) can be.
    root = 1.0 / np.sqrt(0.25 * squares.sum(axis=0) + precision)

    def loss(z: np.ndarray) -> tuple[float, np.ndarray]:
        beta = root * z
        f = (X @ beta.astype(np.float32)).astype(np.float64)
        value = np.logaddexp(0.0, f).sum() - f @ y + 0.5 * precision * beta @ beta
        slope = X.T @ (special.expit(f) - y).astype(np.float32)
        return value, root * (slope + precision * beta)

    found = optimize.minimize(
        loss,
        np.zeros(X.shape[1]),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 100},
    )
    mode = root * found.x
    p = special.expit(X @ mode.astype(np.float32))
    return mode, 1.0 / (squares.T @ (p * (1 - p)) + precision)


# %% [markdown]
# ## The chain
#
# SGLD with control variates, centered at the mode. In these coordinates every posterior SD is about
# one, so that autocorrelation decays by a fraction h/2 in an iteration with stepsize h. Gradient
# noise makes variances larger by a fraction that is proportional to h and to N/n.


# %%
def sample(
    train: Text,
    mode: np.ndarray,
    variances: np.ndarray,
    n: int,
    stepsize: float,
    n_iters: int,
) -> sgmcmc.Samples:
    return sgmcmc.sgldcv(
        log_lik,
        {"X": train.X, "y": train.y},
        {"beta": mode},
        stepsize=stepsize,
        opt_stepsize=1e-3,
        log_prior=log_prior,
        minibatch_size=n,
        n_iters=n_iters,
        n_iters_opt=0,
        burn_in=n_iters // 8,
        thin=max(1, n_iters // 200),
        verbose=False,
        preconditioner={"beta": variances},
        seed=1,
    )


# %% [markdown]
# ## Comparison
#
# The table has the loss on held-out documents of the true probabilities, of the posterior averaged
# over draws, of its mode, and of scikit-learn's classifiers with the same penalty, if it is
# installed.


# %%
def log_loss(y: np.ndarray, p: np.ndarray) -> float:
    p = np.clip(p, 1e-7, 1 - 1e-7)
    return float(-np.mean(y * np.log(p) + (1 - y) * np.log1p(-p)))


def by_others(train: Text, test: Text, most_saga: int = 200_000) -> dict[str, float]:
    try:
        from sklearn.linear_model import LogisticRegression, SGDClassifier
    except ImportError:
        return {}
    rows = len(train.y)
    models: dict[str, Any] = {
        "scikit-learn, SGD": SGDClassifier(
            loss="log_loss", alpha=PRIOR_SD**-2.0 / rows, fit_intercept=False, max_iter=20,
            tol=None, average=True, random_state=1,
        ),
    }  # fmt: skip
    if rows <= most_saga:
        models["scikit-learn, SAGA"] = LogisticRegression(
            C=PRIOR_SD**2, solver="saga", fit_intercept=False, max_iter=100
        )
    X, fresh = sparse.csr_matrix(train.X), sparse.csr_matrix(test.X)
    return {
        name: log_loss(test.y, model.fit(X, train.y).predict_proba(fresh)[:, 1])
        for name, model in models.items()
    }


# %%
def by_frequency(
    train: Text, draws: np.ndarray
) -> list[tuple[float, int, float, float]]:
    """Return documents, words, posterior SD and coverage of 90 % intervals, by class of words."""
    appears = np.bincount(train.X.indices, minlength=len(train.beta))
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    holds, sd = (low < train.beta) & (train.beta < high), draws.std(axis=0)
    edges = 4.0 ** np.arange(0, 12)
    found = []
    for least, most in zip(edges[:-1], edges[1:], strict=True):
        words = (appears >= least) & (appears < most)
        if words.sum() >= 20:
            typical = float(np.median(appears[words]))
            found.append(
                (
                    typical,
                    int(words.sum()),
                    float(sd[words].mean()),
                    float(holds[words].mean()),
                )
            )
    return found


def plot(
    classes: list[tuple[float, int, float, float]], losses: dict[str, float]
) -> Figure:
    picture = figure(13, 4)
    left, middle, right = picture.subplots(1, 3)
    documents, words, sds, coverage = np.array(classes).T
    left.plot(documents, sds, "o-", label="posterior")
    left.axhline(PRIOR_SD, color="0.6", label="prior")
    left.set(xscale="log", yscale="log", xlabel="documents with the word", ylabel="sd")
    left.legend()
    middle.errorbar(
        documents,
        coverage,
        2 * np.sqrt(0.09 / words),
        fmt="o",
        label="two standard errors",
    )
    middle.axhline(0.9, color="0.6")
    middle.set(
        xscale="log", ylim=(0, 1), xlabel="documents with the word",
        ylabel="coverage of 90 % intervals",
    )  # fmt: skip
    middle.legend(loc="lower left")
    others = {name: loss for name, loss in losses.items() if name != "truth"}
    right.barh(list(others), [loss - losses["truth"] for loss in others.values()])
    right.set(xlabel="held-out log loss beyond the true probabilities'")
    return picture


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Logistic regression on sparse text.")
    parser.add_argument(
        "--short", action="store_true", help="few documents, short chains"
    )
    parser.add_argument(
        "--output", default="sparse_text.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)
    documents, words, n, stepsize, n_iters = (
        (6000, 1500, 1000, 0.1, 1500)
        if options.short
        else (10**6, 10**5, 2500, 0.02, 5000)
    )
    held_out = documents // 10 if options.short else 20_000
    began = time.perf_counter()

    def done(what: str) -> None:
        nonlocal began
        now = time.perf_counter()
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{what:32}{now - began:8.1f} s{most:10.0f} MB peak so far", flush=True)
        began = now

    text = simulate(documents + held_out, words)
    train, test = text.rows(slice(0, documents)), text.rows(slice(documents, None))
    entries = train.X.nnz
    del text
    done("simulation")
    mode, variances = mode_and_variances(train)
    done("mode and scales")
    chain = sample(train, mode, variances, n, stepsize, n_iters)
    done(f"{n_iters} iterations")
    fresh = {"X": test.X, "y": test.y}
    p = chain.predict(
        lambda params, dataset: tf.sigmoid(logits(params, dataset)), fresh
    )
    done("predictions")
    losses = {
        "truth": log_loss(test.y, special.expit(test.X @ test.beta)),
        "posterior": log_loss(test.y, p),
        "mode": log_loss(test.y, special.expit(test.X @ mode)),
        **by_others(train, test),
    }
    done("others")
    print(
        f"\n{documents} × {words}, {entries} entries: {entries * 8 / 1e6:.0f} MB, and "
        f"{documents * words * 4 / 1e6:.0f} MB if it were dense\n"
    )
    print("held-out log loss")
    for name, loss in losses.items():
        print(f"  {name:20}{loss:.4f}")
    draws = np.asarray(chain["beta"])
    classes = by_frequency(train, draws)
    print("\ndocuments    words  posterior sd  coverage of 90 % intervals")
    for row in classes:
        print("{:9.0f}{:9d}{:14.3f}{:10.3f}".format(*row))
    plot(classes, losses).savefig(options.output, dpi=120)
    print(f"\nThe figure: {options.output}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
