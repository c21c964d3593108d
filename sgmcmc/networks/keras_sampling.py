"""A network of Keras as an ensemble uses it: frozen layers, computed once, and the rest."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.special import softmax

from sgmcmc import checks
from sgmcmc.checks import describe
from sgmcmc.data.dataset import ArrayColumn, Data
from sgmcmc.data.reading import read_dataset
from sgmcmc.networks.chains import EnsembleChains
from sgmcmc.networks.held_out import classes_judged, judged, mixture, uniformity_error
from sgmcmc.networks.keras_models import all_layers, check_network, weight_names
from sgmcmc.networks.losses import BINARY, SPARSE, RowDensity
from sgmcmc.networks.training import (
    Array,
    Network,
    Schedule,
    Trained,
    Training,
    Weights,
    check_memory,
    chunked,
)
from sgmcmc.results.report import Report
from sgmcmc.results.samples import Samples


@dataclass(frozen=True)
class _Settings:
    frozen_rows: int = 256  # of features that frozen layers compute at a time
    numbers: int = 2**24  # features and outputs that predictions hold at a time
    held_rows: int = 10_000  # at most
    # Distance of an epoch: chains of a few epochs go nowhere, so that little noise counts
    reach: float = 1.0


_SETTINGS = _Settings()


class KerasNetwork:
    """A network in two parts: frozen layers, whose outputs are computed once, and the rest.

    Args:
        model: Keras model.
        loss: Loss, as the user gave it.
    """

    def __init__(self, model: Any, loss: Any) -> None:
        check_network(model)
        self.log_density = RowDensity(loss, "loss", "`data`: the targets")
        self.names = weight_names(model)
        inputs = getattr(model, "inputs", None) or []
        if len(inputs) > 1:
            raise ValueError(
                f"`model` has {len(inputs)} inputs; features must be one array."
            )
        self.integers = bool(inputs) and str(inputs[0].dtype).startswith("int")
        self._frozen, self._trainable = _split(model)
        self.has_frozen = self._frozen is not None
        self._variables = model.trainable_variables
        self.size = sum(int(np.prod(tuple(v.shape))) for v in self._variables)
        layers = [type(layer).__name__ for layer in all_layers(self._trainable)]
        # The convolutions of XLA on a CPU take five times as long as TensorFlow's own.
        self.jit_compile = False if any("Conv" in name for name in layers) else None

    def typed(self, X: Any) -> Array:
        """Return features in the dtype of the network's input."""
        try:
            return np.asarray(X, np.int32 if self.integers else np.float32)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"`data`: the features must be numbers in an array, a row for each target; {error}."
            ) from None

    def features(self, X: Array) -> Array:
        """Return the outputs of the frozen layers for some features."""
        if self._frozen is None:
            return X
        blocks = chunked(len(X), _SETTINGS.frozen_rows, 1)
        outputs = [self._frozen(X[rows], training=False) for rows in blocks]
        return np.concatenate([np.asarray(output) for output in outputs])

    def outputs(self, weights: Mapping[str, Any], features: Any) -> tf.Tensor:
        """Return the outputs of one set of weights, float32 whatever the network computes in."""
        values = [weights[name] for name in self.names]
        fixed = self._trainable.non_trainable_variables
        outputs, _ = self._trainable.stateless_call(
            values, fixed, features, training=False
        )
        if isinstance(outputs, list | tuple | dict):
            raise ValueError(
                f"`model` has {len(outputs)} outputs; they must be one array: join them with "
                "keras.layers.Concatenate."
            )
        return tf.cast(outputs, tf.float32)

    def check(self, data: Data, weights: Weights) -> None:
        """Raise an error if targets and outputs are not those that the loss is made for.

        Args:
            data: Features, those after the frozen layers, and targets.
            weights: Weights of all members, the first of which makes the outputs.
        """
        y = np.asarray(data.columns["y"].tensor(0, data.size))
        one = {name: tf.constant(array[0]) for name, array in weights.items()}
        rows = data.rows(np.arange(min(_SETTINGS.frozen_rows, data.size)))
        self.log_density.check(y, np.asarray(self.outputs(one, rows["X"])))

    def network(self, scale: float) -> Network:
        """Return the network of an ensemble, in which each member has its own kernel."""
        sds = {}
        for name, variable in zip(self.names, self._variables, strict=True):
            is_kernel = variable.path.endswith("kernel")
            inputs = np.prod(tuple(variable.shape)[:-1])
            sds[name] = scale / np.sqrt(inputs) if is_kernel else 1.0

        def forward(weights: Weights, features: Any) -> tf.Tensor:
            count = weights[self.names[0]].shape[0]
            members = [
                {name: a[k] for name, a in weights.items()} for k in range(count)
            ]
            return tf.stack([self.outputs(one, features) for one in members])

        def log_density(y: Any, outputs: tf.Tensor) -> tf.Tensor:
            densities = [
                self.log_density(y, outputs[k]) for k in range(outputs.shape[0])
            ]
            return tf.stack(densities)

        return Network(
            forward, log_density, sds, one_by_one=True, jit_compile=self.jit_compile
        )

    def calibration(self, outputs: Array, y: Array, members: int) -> dict[str, Any]:
        """Return facts on calibration, of outputs (draws, n, ...), if the loss has any."""
        density = self.log_density
        if density.loss is None:
            try:
                cdf = [density.distribution(tf.constant(one)).cdf(y) for one in outputs]
            except (NotImplementedError, AttributeError):
                return {}
            error = uniformity_error(np.mean(cdf, 0).ravel())
            return {"calibration error, mean over intervals": error}
        if "crossentropy" not in density.name:
            return {}
        logits = density.from_logits
        if density.name == BINARY:
            p = 1 / (1 + np.exp(-outputs)) if logits else outputs
            if p.shape[-1] != 1:
                return {}
            both = np.concatenate([1 - p, p], -1)
            return classes_judged(both, y.ravel().astype(int), members)
        p = softmax(outputs, -1) if logits else outputs
        codes = y.ravel().astype(int) if density.name == SPARSE else y.argmax(-1)
        return classes_judged(p, codes, members) if p.ndim == 3 else {}


def _split(model: Any) -> tuple[Any, Any]:
    """Return the frozen layers at the beginning of a Sequential, or ``None``, and the rest."""
    import keras

    layers = model.layers if isinstance(model, keras.Sequential) else []
    first = next((k for k, layer in enumerate(layers) if layer.trainable_variables), 0)
    if not any(layer.variables for layer in layers[:first]):
        return None, model
    frozen = keras.Model(model.inputs[0], layers[first - 1].output)
    features = keras.Input(tuple(frozen.output.shape[1:]), dtype=frozen.output.dtype)
    return frozen, keras.Sequential([features, *layers[first:]])


def new_members(models: Sequence[Any], members: int, seed: int) -> Weights:
    """Return the starting weights of all members, (members, ...)."""
    import keras

    first, names = models[0], weight_names(models[0])
    if members > len(models):
        before = random.getstate()  # from which Keras draws the seeds of new weights
        random.seed(seed)
        # A copy that is compiled, too, would need the names of losses and metrics of the user's.
        is_compiled, first.compiled = first.compiled, False
        try:
            copies = [keras.models.clone_model(first) for _ in range(members - 1)]
            models = [*models, *copies]
        except (ValueError, NotImplementedError, TypeError) as error:
            raise ValueError(
                "`model` cannot be copied by keras.models.clone_model, so that there is one "
                "member: give a list of built models, or members=1."
            ) from error
        finally:
            random.setstate(before)
            first.compiled = is_compiled
    shapes = [
        [tuple(array.shape) for array in one.trainable_variables] for one in models
    ]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(
            "`model`: all models of the list must have weights of the same shapes."
        )
    values = zip(*(one.trainable_variables for one in models), strict=True)
    return {
        name: np.stack([np.asarray(array, np.float32) for array in all_])
        for name, all_ in zip(names, values, strict=True)
    }


@dataclass(frozen=True)
class SampledNetwork:
    """The draws of a network; :func:`sgmcmc.keras.sample_network` makes it.

    Attributes:
        samples: Weights by layer and kind, a chain for each member, (members, draws, ...); none if
            weights were not stored.
        report: Report on held-out rows: log density of the best member, of the trained members
            together and of the draws, gains, calibration, disagreement of members, warnings.
        predictions: Outputs at the rows of ``predict_at``, (members, draws, n, ...), or ``None``.

    Example:
        >>> import keras, numpy as np, sgmcmc.keras
        >>> X = np.random.default_rng(1).normal(size=(200, 2)).astype("float32")
        >>> network = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> fit = sgmcmc.keras.sample_network(
        ...     network, (X, X.sum(1, keepdims=True)), "mean_squared_error", members=1, epochs=20,
        ...     n_iters=50, draws=10, seed=1, verbose=False)
        >>> fit.predict(X[:3]).shape, len(fit.samples)
        ((3, 1), 2)
    """

    samples: Samples
    report: Report
    predictions: Array | None
    _parts: KerasNetwork = field(repr=False)

    def predict(self, X: Any, function: Any = None) -> Array:
        """Return the mean over all draws of a function of the network's outputs.

        Args:
            X: Features, in the form of those that were sampled.
            function: Function of outputs (n, ...) that returns a tensor with a first axis of n, or
                the name of an activation of Keras, such as ``"softmax"``; ``None`` for the outputs
                themselves.

        Returns:
            An array with a first axis of n, float64.

        Raises:
            ValueError: No weights were stored.
        """
        import keras

        activation = keras.activations.get(function)
        return self._over_draws(
            X, None, lambda outputs, _: activation(outputs), np.mean
        )

    def log_score(self, X: Any, y: Any) -> float:
        """Return the mean log predictive density of targets: that of the mixture of all draws.

        Args:
            X: Features.
            y: Targets.

        Raises:
            ValueError: No weights were stored.
        """

        def density(outputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
            return self._parts.log_density(targets, outputs)

        densities = self._over_draws(
            X, np.asarray(y), density, lambda by_draw, _: mixture(by_draw)
        )
        return float(densities.mean())

    def _over_draws(self, X: Any, y: Array | None, function: Any, reduce: Any) -> Array:
        """Return reduced values of a function of outputs and targets, in pieces of rows."""
        if not len(self.samples):
            raise ValueError("`store_weights` was False: only `predictions` were kept.")
        draws = {
            name: np.asarray(values).reshape(-1, *values.shape[2:])
            for name, values in self.samples.items()
        }
        count = len(next(iter(draws.values())))
        features, reduced = self._parts.features(self._parts.typed(X)), []

        @tf.function(autograph=False, reduce_retracing=True)
        def value(weights: Weights, rows: tf.Tensor, targets: Any) -> tf.Tensor:
            return function(self._parts.outputs(weights, rows), targets)

        numbers_of_row = count + int(np.prod(features.shape[1:]))
        for block in chunked(len(features), _SETTINGS.numbers, numbers_of_row):
            rows = tf.constant(features[block])
            targets = None if y is None else tf.constant(y[block])
            values = []
            for k in range(count):
                weights = {name: tf.constant(a[k]) for name, a in draws.items()}
                values.append(value(weights, rows, targets))
            reduced.append(reduce(np.asarray(values, np.float64), 0))
        return np.concatenate(reduced)


def sample_network(
    model: Any,
    data: Any,
    loss: Any,
    *,
    members: int = 4,
    n_iters: int = 2000,
    draws: int = 50,
    prior_scale: float = 4.0,
    epochs: int | None = None,
    validation_fraction: float = 0.1,
    batch_size: int = 256,
    predict_at: Any = None,
    store_weights: bool = True,
    seed: int | None = None,
    verbose: bool = True,
) -> SampledNetwork:
    """Sample the weights of a Keras network, by chains that start at trained members.

    log p(θ | x, y) = Σ_i log p(y_i | f_θ(x_i)) + log p(θ), with f the network and θ its trainable
    weights, whose prior is N(0, prior_scale² / inputs) for kernels and N(0, 1) for others.
    ``members`` networks are trained by Adam, the first from the present weights, the others from
    new ones. Each is then the start of a chain of underdamped Langevin dynamics: at the end of
    training, with all rows, or at the epoch with the best held-out density, if held-out rows are
    clearly better predicted from there. Weights need not mix: the report judges the predictions of
    held-out rows by chains without them. The model itself is not changed.

    Args:
        model: Built :class:`keras.Model`; or a list of models of the same layers, the starts of the
            members. Frozen weights are not sampled; frozen layers at the beginning of a
            :class:`keras.Sequential` compute their outputs once.
        data: Features and targets: a pair of arrays, a dict of ``"X"`` and ``"y"``, or a
            :class:`tf.data.Dataset` of such elements.
        loss: Loss, the negative log-likelihood of a row: its name or a
            :class:`keras.losses.Loss`; or a function of targets and outputs that returns a loss for
            each row. Of a loss that is a mean over the outputs of a row the sum is used. Or a
            function of the outputs that returns a distribution of TensorFlow Probability.
        members: Number of networks, each a chain; ignored if ``model`` is a list.
        n_iters: Iterations of each chain, after shorter chains that held-out rows judge.
        draws: Number of draws to keep of each member.
        prior_scale: SD of a kernel's weights times √inputs.
        epochs: Number of epochs of training; 0 for none, where the given weights may have been
            trained on held-out rows, as the report says; ``None`` for 30 000 steps, but at least 5
            epochs.
        validation_fraction: Fraction of the rows that is held out for the report, at most 10 000.
        batch_size: Number of rows in a minibatch of training and chains.
        predict_at: Features at which the outputs of all draws are stored.
        store_weights: Whether to store the weights of all draws; without them memory holds the
            members and ``predict_at``'s outputs.
        seed: Seed of new weights, order of rows, and chains.
        verbose: Whether to show progress.

    Returns:
        A :class:`sgmcmc.keras.SampledNetwork`.

    Raises:
        TypeError: The model is not a Keras model, or data or loss are none of these.
        ValueError: The model has no weights, batch normalization or random numbers outside of its
            frozen layers, regularizers or constraints, or does not fit into memory; the loss is no
            log density; targets or outputs are not those that it needs; the data are NaN or have a
            single class.

    Example:
        >>> import keras, numpy as np, sgmcmc.keras
        >>> X = np.random.default_rng(1).normal(size=(300, 2)).astype("float32")
        >>> y = (X[:, 0] > 0).astype("int32")
        >>> dense = keras.layers.Dense
        >>> network = keras.Sequential([keras.Input((2,)), dense(4, "tanh"), dense(2)])
        >>> loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        >>> fit = sgmcmc.keras.sample_network(
        ...     network, (X, y), loss, members=2, epochs=50, n_iters=100, draws=10, seed=1,
        ...     verbose=False)
        >>> bool(fit.predict(X, "softmax")[y == 1, 1].mean() > 0.8), fit.log_score(X, y) > -0.4
        (True, True)

    Source:
        Sommer and others, *Microcanonical Langevin ensembles: advancing the sampling of Bayesian
        neural networks*, ICLR 2025, for chains that start at trained members; Lakshminarayanan,
        Pritzel & Blundell, NeurIPS 2017, for the ensemble.
    """
    for name, value, smallest in (
        ("members", members, 1), ("n_iters", n_iters, 1), ("draws", draws, 1),
        ("batch_size", batch_size, 1), ("epochs", 1 if epochs is None else epochs, 0),
    ):  # fmt: skip
        checks.whole_number(name, value, smallest)
    scale = checks.positive_number("prior_scale", prior_scale)
    if not (checks.is_number(validation_fraction) and 0 < validation_fraction < 1):
        raise ValueError(
            f"`validation_fraction` must be between 0 and 1; it is {validation_fraction!r}."
        )
    if not checks.flag("store_weights", store_weights) and predict_at is None:
        raise ValueError(
            "`store_weights=False` keeps only predictions: give `predict_at`."
        )
    is_list = isinstance(model, list | tuple)
    models = list(model) if is_list else [model]
    if not models:
        raise ValueError("`model`: the list is empty.")
    keras_network = KerasNetwork(models[0], loss)
    seed = checks.seed_number("seed", seed) % 2**31
    count = len(models) if is_list else members
    check_memory(count, keras_network.size, draws if store_weights else 0)
    start = new_members(models, count, seed)
    rows = _read(data, keras_network)
    keras_network.check(rows, start)
    network = keras_network.network(scale)
    rng = np.random.default_rng(seed)
    order = rng.permutation(rows.size)
    n_held = max(1, round(validation_fraction * rows.size))
    n_held = min(_SETTINGS.held_rows, n_held)
    held_rows, training_rows = order[:n_held], order[n_held:]
    trained = Trained(start, start)
    if epochs != 0:
        training = Training(network, rows, Schedule(epochs, batch_size), rng)
        used = training_rows if len(training_rows) else order
        trained = training.run(start, (used, held_rows))
    run = _NetworkRun(
        keras_network, network, rows, held_rows, batch_size, seed, verbose
    )
    return run.sample(trained, n_iters, draws, predict_at, store_weights)


def _read(data: Any, network: KerasNetwork) -> Data:
    """Return the data, with the outputs of frozen layers for features."""
    is_stream = isinstance(data, tf.data.Dataset)
    elements = data.element_spec if is_stream else data
    if isinstance(elements, tuple | list) and len(elements) == 3:
        raise TypeError(
            "`data` has three parts; it must have two, features and targets. Weights of rows are "
            "not supported: repeat a row as often as it counts."
        )
    if isinstance(data, tuple | list) and len(data) == 2:
        data = dict(zip(("X", "y"), data, strict=True))
    if is_stream and isinstance(elements, tuple) and len(elements) == 2:
        data = data.map(lambda X, y: {"X": X, "y": y})
    spec = data.element_spec if is_stream else data
    if not isinstance(spec, Mapping) or set(spec) != {"X", "y"}:
        raise TypeError(
            "`data` must be a pair of features and targets, a dict of 'X' and 'y', or a "
            f"tf.data.Dataset of such elements; it is {describe(data)}."
        )
    if is_stream:
        dtype = np.dtype(spec["y"].dtype.as_numpy_dtype)
        network.log_density.need_numbers(np.empty(0, dtype))
    else:
        y = _numbers(data["y"])
        dtype = y.dtype
        network.log_density.need_numbers(y)
        data = {"X": network.typed(data["X"]), "y": y}
    integers = ["X"] * network.integers + ["y"] * (dtype.kind in "iub")
    with checks.named("dataset", "data"):
        read = read_dataset(data, tf.float32, integers)
    y = np.asarray(read.columns["y"].tensor(0, read.size))
    if (y == y[0]).all():
        raise ValueError(
            "`data`: the targets are the same in every row: nothing can be learned."
        )
    columns = {**read.columns, "weight": ArrayColumn(np.ones(read.size, np.float32))}
    if network.has_frozen:
        X = np.asarray(columns["X"].tensor(0, read.size))
        columns["X"] = ArrayColumn(network.features(X))
    return Data(columns, read.size)


def _numbers(y: Any) -> Array:
    """Return targets as an array, with numbers out of arrays of objects."""
    y = np.asarray(y)
    if y.dtype != object or any(isinstance(entry, str) for entry in y.flat):
        return y
    try:
        numbers = y.astype(np.float64)
    except (TypeError, ValueError):
        return y
    return numbers.astype(np.int64) if (numbers == np.floor(numbers)).all() else numbers


@dataclass(frozen=True)
class _NetworkRun:
    """The training and the chains of one call.

    Attributes:
        keras_network: Network of Keras.
        network: The same, as an ensemble uses it.
        data: Features, those after the frozen layers, and targets.
        held_rows: Numbers of the rows that are held out.
        batch_size: Number of rows in a minibatch.
        seed: Seed.
        verbose: Whether to show progress.
    """

    keras_network: KerasNetwork
    network: Network
    data: Data
    held_rows: Array
    batch_size: int
    seed: int
    verbose: bool

    def sample(
        self, members: Trained, n_iters: int, draws: int, predict_at: Any, store: bool
    ) -> SampledNetwork:
        """Run the chains, and judge them."""
        chains = EnsembleChains(
            self.network,
            self.data,
            members.best,
            self.batch_size,
            self.seed,
            self.verbose,
            reach=_SETTINGS.reach,
        )
        keywords: dict[str, Any] = {"store_params": store}
        if predict_at is not None:
            typed = self.keras_network.typed(predict_at)
            X = tf.constant(self.keras_network.features(typed))
            keywords["test_functions"] = {
                "outputs": lambda weights: self.network.forward(weights, X)
            }
        trained = chains.outputs(self.held_rows)
        sampled, samples = chains.fit(
            members, self.held_rows, n_iters, draws, **keywords
        )
        y = self.data.rows(self.held_rows)["y"]
        outputs = sampled.reshape(-1, *sampled.shape[2:])
        report = judged(
            self.network.densities(y, trained),
            self.network.densities(y, outputs),
            self.keras_network.calibration(outputs, y.numpy(), chains.count),
            chains.facts(samples, draws),
            may_be_seen=members.retrain is None,
        )
        weights = chains.by_member(samples) if store else {}
        return SampledNetwork(
            Samples(weights, settings=samples.settings),
            report,
            None if predict_at is None else chains.values(samples, "outputs"),
            self.keras_network,
        )
