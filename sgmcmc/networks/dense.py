"""Dense networks as estimators of scikit-learn: what regression and classes share."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
import tensorflow as tf
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from sgmcmc import checks
from sgmcmc.data.dataset import Data
from sgmcmc.data.derived_columns import joined
from sgmcmc.data.reading import read_dataset
from sgmcmc.graphs.tracing import trace
from sgmcmc.networks.chains import EnsembleChains, whole
from sgmcmc.networks.held_out import judged
from sgmcmc.networks.training import (
    Array,
    Network,
    Schedule,
    Trained,
    Training,
    Weights,
    check_memory,
    chunked,
    count_of,
)
from sgmcmc.results.report import Report
from sgmcmc.results.samples import Samples

_ACTIVATIONS = {"relu": tf.nn.relu, "tanh": tf.tanh, "silu": tf.nn.silu}

NUMBERS = 2**23
"""Largest number of predictions held at a time."""


@dataclass(frozen=True)
class _Settings:
    full_iterations: int = 20_000  # of a chain with gradients over all rows
    minibatch_iterations: int = 100_000  # whose steps are shorter


_SETTINGS = _Settings()


class NetworkEnsemble(BaseEstimator, ABC):
    """Base class of networks for regression and for classes.

    θ are all weights, W_ij ~ N(0, prior_scale² / inputs of the layer) and biases ~ N(0, 1).
    """

    samples_: Samples
    report_: Report
    n_features_in_: int

    def __init__(
        self,
        hidden: Sequence[int] = (16, 16),
        *,
        activation: str = "silu",
        members: int = 10,
        n_iters: int | None = None,
        draws: int = 50,
        prior_scale: float = 4.0,
        epochs: int | None = None,
        validation_fraction: float = 0.1,
        batch_size: int = 1000,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.hidden = hidden
        self.activation = activation
        self.members = members
        self.n_iters = n_iters
        self.draws = draws
        self.prior_scale = prior_scale
        self.epochs = epochs
        self.validation_fraction = validation_fraction
        self.batch_size = batch_size
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @abstractmethod
    def _outputs(self) -> int:
        """Return the number of outputs of a network."""

    @abstractmethod
    def _log_density(self, y: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """Return the log density of each row, of outputs (..., rows, outputs)."""

    @abstractmethod
    def _calibration(self, outputs: Array, y: Array) -> dict[str, Any]:
        """Return facts on calibration and disagreement, of outputs and targets of held-out rows."""

    def _tails(self, outputs: Array, y: Array) -> tuple[dict[str, Any], list[str]]:
        """Return facts and warnings on the tails of predictions, if responses have any."""
        return {}, []

    def _read_constants(self) -> None:
        hidden = self.hidden if isinstance(self.hidden, Sequence) else None
        if hidden is None or not hidden:
            raise ValueError(
                f"`hidden` must be a sequence of widths; it is {self.hidden!r}."
            )
        for width in hidden:
            checks.whole_number("hidden", width, 1)
        checks.choice("activation", self.activation, _ACTIVATIONS)
        for name in ("members", "draws", "batch_size"):
            checks.whole_number(name, getattr(self, name), 1)
        for name, smallest in (("n_iters", 0), ("epochs", 1)):
            if getattr(self, name) is not None:
                checks.whole_number(name, getattr(self, name), smallest)
        checks.positive_number("prior_scale", self.prior_scale)
        if not (
            checks.is_number(self.validation_fraction)
            and 0 < self.validation_fraction < 1
        ):
            raise ValueError(
                "`validation_fraction` must be between 0 and 1; it is "
                f"{self.validation_fraction!r}."
            )

    def _validated(self, X: Any, *y: Any, reset: bool, **keywords: Any) -> Any:
        """Return X, and y if given, as scikit-learn checks them; float32 stays as it is."""
        kinds = {
            "accept_sparse": "csr",
            "dtype": [np.float64, np.float32],
            "reset": reset,
        }
        if not y:
            return validate_data(self, X, **kinds)
        return validate_data(self, X, *y, ensure_min_samples=2, **kinds, **keywords)

    def _fit(self, X: Any, y: Array) -> None:
        """Train and sample the members; ``y`` has standardized responses, or numbers of classes."""
        seed = self._seed()
        rng = np.random.default_rng(seed)
        # Sparse features keep their zeros.
        if scipy.sparse.issparse(X):
            mean = np.asarray(X.mean(0)).ravel()
            square = np.asarray(X.multiply(X).mean(0)).ravel()
            self._middle = np.zeros(X.shape[1])
            spread = np.sqrt(np.maximum(square - mean**2, 0.0))
            spread_varies = checks.varies(spread, mean, 1e-7)  # a root of a difference
        else:
            self._middle = X.mean(0, dtype=np.float64)
            spread = X.std(0, dtype=np.float64)
            spread_varies = checks.varies(spread, self._middle)
        self._spread = np.where(spread_varies, spread, 1.0)
        # Sparse and float32 features are standardized in the graph, so that none are copied.
        self._in_graph = scipy.sparse.issparse(X) or X.dtype == np.float32
        network = self._network()
        weights = self._start(rng, int(self.members))
        check_memory(int(self.members), count_of(weights), int(self.draws))
        self._data = self._read(X, y)
        self._held_rows = self._held_out(np.arange(len(y)), rng)
        schedule = Schedule(self.epochs, min(Schedule.batch_size, int(self.batch_size)))
        training = Training(network, self._data, schedule, rng)
        every_row = np.arange(self._data.size)
        rows = np.setdiff1d(every_row, self._held_rows)
        rows = rows if len(rows) else every_row
        members = training.run(weights, (rows, self._held_rows))
        self._sample(network, seed, members)

    def _sample(self, network: Network, seed: int, members: Trained) -> None:
        held_rows, best = self._held_rows, members.best
        chains = EnsembleChains(
            network, self._data, best, int(self.batch_size), seed, self.verbose
        )
        trained = chains.outputs(held_rows)
        if n_iters := self._length():
            draws = int(self.draws)
            sampled, self.samples_ = chains.fit(members, held_rows, n_iters, draws)
            weights = chains.by_member(self.samples_)
        else:
            draws = 1
            sampled = trained[:, np.newaxis]
            weights = {name: array[:, np.newaxis] for name, array in best.items()}
            self.samples_ = Samples(weights, settings={"n_chains": int(self.members)})
        self._last_weights = chains.weights
        # All draws, those of a member in a row
        self._draws = {n: a.reshape(-1, *a.shape[2:]) for n, a in weights.items()}
        y = self._data.rows(held_rows)["y"]
        outputs = sampled.reshape(-1, *sampled.shape[2:]).astype(np.float64)
        tails, remarks = self._tails(outputs, y.numpy())
        self.report_ = judged(
            network.densities(y, trained),
            network.densities(y, outputs),
            {**self._calibration(outputs, y.numpy()), **tails},
            chains.facts(self.samples_, draws),
            remarks,
        )

    def _partial_fit(self, X: Any, y: Array) -> None:
        """Add rows, and go on with the chains from where they are."""
        seed = self._seed() + self._data.size
        rng = np.random.default_rng(seed)
        old, new = self._data, self._read(X, y)
        added = self._held_out(old.size + np.arange(new.size), rng)
        self._data = joined(old, new)
        self._held_rows = np.concatenate([self._held_rows, added])
        members = Trained(self._last_weights, self._last_weights)
        self._sample(self._network(), seed, members)

    def _length(self) -> int:
        if self.n_iters is not None:
            return int(self.n_iters)
        if whole(self._data.size, int(self.batch_size)):
            return _SETTINGS.full_iterations
        return _SETTINGS.minibatch_iterations

    def _held_out(self, rows: Array, rng: np.random.Generator) -> Array:
        """Return the part of the rows that is held out; all of a single one."""
        count = max(1, round(self.validation_fraction * len(rows)))
        return rng.permutation(rows)[:count]

    def _seed(self) -> int:
        if isinstance(self.random_state, np.random.RandomState):
            return int(self.random_state.randint(2**31 - 1))
        if self.random_state is None:
            return int(np.random.default_rng().integers(2**31))
        return int(self.random_state)

    def _read(self, X: Any, y: Array) -> Data:
        columns = {
            "X": self._standardized(X),
            "y": y,
            "weight": np.ones(len(y), np.float32),
        }
        return read_dataset(columns, tf.float32, ["y"] if y.dtype.kind == "i" else [])

    def _standardized(self, X: Any) -> Any:
        """Return features as the graph reads them."""
        if self._in_graph:
            return X.astype(np.float32, copy=False)
        X = X.toarray() if scipy.sparse.issparse(X) else X
        return ((X - self._middle) / self._spread).astype(np.float32)

    @property
    def _widths(self) -> list[int]:
        return [self.n_features_in_, *map(int, self.hidden), self._outputs()]

    def _network(self) -> Network:
        """Return the dense network, with its prior."""
        sds: dict[str, Any] = {}
        for layer, inputs in enumerate(self._widths[:-1]):
            sds[f"W{layer}"] = float(self.prior_scale / np.sqrt(inputs))
            sds[f"b{layer}"] = 1.0
        return Network(self._forward, self._log_density, sds)

    def _start(self, rng: np.random.Generator, members: int) -> Weights:
        """Return starting weights: √(2 / inputs) times normals, smaller ones in the last layer."""
        weights: Weights = {}
        last = len(self._widths) - 2
        for layer, (inputs, outputs) in enumerate(itertools.pairwise(self._widths)):
            sd = np.sqrt((0.1 if layer == last else 2.0) / inputs)
            drawn = rng.normal(0.0, sd, (members, outputs, inputs))
            weights[f"W{layer}"] = drawn.astype(np.float32)
            weights[f"b{layer}"] = np.zeros((members, outputs), np.float32)
        return weights

    def _forward(self, weights: Weights, X: Any) -> tf.Tensor:
        """Return outputs, (K, n, outputs). Inside, rows are last: XLA's products are faster so."""
        activation = _ACTIVATIONS[self.activation]
        W = weights["W0"]
        if self._in_graph:
            W = W / tf.constant(self._spread, W.dtype)
        if isinstance(X, tf.SparseTensor):
            K, width, inputs = W.shape
            flat = tf.transpose(tf.reshape(W, [K * width, inputs]))
            products = tf.transpose(tf.sparse.sparse_dense_matmul(X, flat))
            h = tf.reshape(products, [K, width, -1])
        else:
            if self._in_graph:
                X = X - tf.constant(self._middle, X.dtype)
            h = tf.matmul(W, tf.transpose(X))
        for layer in range(len(self._widths) - 1):
            if layer:
                h = tf.matmul(weights[f"W{layer}"], activation(h))
            h = h + weights[f"b{layer}"][..., tf.newaxis]
        return tf.linalg.matrix_transpose(h)

    def _outputs_of(self, network: Network, weights: Weights, X: Any) -> Array:
        """Return the outputs of each draw, (draws, rows, outputs), float64."""
        if isinstance(X, tf.SparseTensor):
            X = tf.sparse.to_dense(X)
        tensors = {name: tf.constant(a, tf.float32) for name, a in weights.items()}
        numbers_of_row = len(weights["W0"]) * max(self._widths)
        graphs: dict[int, Any] = {}
        outputs = []
        for block in chunked(len(X), NUMBERS, numbers_of_row):
            rows = tf.constant(X[block])
            if len(rows) not in graphs:
                graphs[len(rows)] = trace(network.forward, tensors, rows)
            outputs.append(graphs[len(rows)](tensors, rows).numpy())
        return np.concatenate(outputs, 1).astype(np.float64)

    def _outputs_by_draw(self, X: Any) -> Array:
        """Return the outputs of every draw, (draws, rows, outputs), for checked features."""
        network, draws = self._network(), self._draws
        if not scipy.sparse.issparse(X):
            return self._outputs_of(network, draws, X)
        numbers_of_row = len(draws["W0"]) * max(self._widths) + X.shape[1]
        blocks = chunked(X.shape[0], NUMBERS, numbers_of_row)
        outputs = [
            self._outputs_of(network, draws, X[rows].toarray()) for rows in blocks
        ]
        return np.concatenate(outputs, 1)

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        return self._standardized(self._validated(X, reset=False))
