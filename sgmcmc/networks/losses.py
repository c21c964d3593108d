"""Losses of Keras, and distributions of TensorFlow Probability, as log densities of rows.

A loss of Keras averages over the outputs of a row; the log density of a row is a sum over them.
Whether a loss averages is found by trying it: the mean over an axis of K outputs is the weighted
mean of the loss of the first output alone and of that of the K − 1 others.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import describe
from sgmcmc.interrupts import pass_on
from sgmcmc.libraries import tensorflow_probability

Array = np.ndarray

# Parts of the names of losses of Keras that are no log densities
_NO_DENSITIES = (
    "hinge",
    "cosine_similarity",
    "dice",
    "tversky",
    "focal",
    "circle",
    "percentage",
    "logarithmic",
    "kl_divergence",
    "kullback",
    "generalized",
)

SPARSE = "sparse_categorical_crossentropy"
CATEGORICAL = "categorical_crossentropy"
BINARY = "binary_crossentropy"

# Losses of Keras that need a target for each output
_BY_OUTPUT = (
    BINARY,
    CATEGORICAL,
    "mean_squared_error",
    "mean_absolute_error",
    "huber",
    "log_cosh",
    "poisson",
)


@dataclass(frozen=True)
class _Settings:
    rows: int = 3  # of the trial of a loss
    longest: int = 4  # axis of the trial, if the whole outputs are too many
    numbers: int = 2**22  # outputs of the trial that are not too many
    close: float = 1e-4  # relative difference of equal losses, by rounding
    probability_sum: float = 1e-3  # difference from 1 of a sum of probabilities


_SETTINGS = _Settings()


class RowDensity:
    """log p(y | outputs) of each row, from a loss or from a function that returns a distribution.

    Args:
        likelihood: Loss of Keras, its name, a function of targets and outputs that returns a loss
            for each row, or a function of outputs that returns a distribution.
        argument: Name of the argument, for messages.
        targets: Name of the targets, for messages.

    Attributes:
        loss: Function of targets and outputs; ``None`` for a distribution.
        name: Keras's name of the loss; "" if it has none, or is not one of Keras.
        from_logits: Whether outputs are logits; ``None`` if the loss has no such option.

    Raises:
        TypeError: The likelihood is none of these.
        ValueError: Keras has no loss of this name, or the loss is no log density.
    """

    def __init__(self, likelihood: Any, argument: str, targets: str) -> None:
        self._argument, self._targets = argument, targets
        self._averaged: dict[Any, tuple[int, ...]] = {}
        self._likelihood = likelihood
        self.loss: Callable[[Any, Any], Any] | None = None
        self.name = ""
        self._options: dict[str, Any] = {}
        self._read(likelihood)
        for fragment in _NO_DENSITIES:
            if fragment in self.name:
                raise ValueError(
                    f"`{argument}`: {self.name} is no log density, so that there is no posterior. "
                    "Use a cross-entropy, the mean squared error, or a function of the outputs "
                    "that returns a distribution."
                )
        if self._options.get("label_smoothing"):
            raise ValueError(
                f"`{argument}`: with `label_smoothing` a loss is no log density."
            )
        self._of_keras = self.name in (*_BY_OUTPUT, SPARSE)
        self.from_logits = (
            bool(self._options.get("from_logits", False))
            if "crossentropy" in self.name
            else None
        )

    def _read(self, likelihood: Any) -> None:
        """Read name, options and function of the likelihood."""
        import keras

        argument = self._argument
        if isinstance(likelihood, type) and issubclass(likelihood, keras.losses.Loss):
            raise TypeError(
                f"`{argument}` is the class {likelihood.__name__}: give an instance, "
                f"{likelihood.__name__}()."
            )
        if isinstance(likelihood, str):
            try:
                likelihood = keras.losses.get(likelihood)
            except ValueError:
                raise ValueError(
                    f"`{argument}`: Keras has no loss called {likelihood!r}."
                ) from None
        if isinstance(likelihood, keras.losses.Loss):
            function = getattr(likelihood, "fn", None)
            self._options = dict(getattr(likelihood, "_fn_kwargs", {}))
            self.name = getattr(function, "__name__", likelihood.name or "")
            self.loss = likelihood.call
            return
        if not callable(likelihood):
            raise TypeError(
                f"`{argument}` must be the name of a loss of Keras, a keras.losses.Loss, or a "
                "function of the outputs that returns a distribution; it is "
                f"{describe(likelihood)}."
            )
        if _needs_two(likelihood):
            self.loss, function = likelihood, likelihood
            while isinstance(function, functools.partial):
                self._options = {**function.keywords, **self._options}
                function = function.func
            if str(getattr(function, "__module__", "")).startswith("keras."):
                self.name = getattr(function, "__name__", "")

    def __call__(self, y: Any, outputs: Any) -> tf.Tensor:
        """Return the log density of each row, (n,), of targets and outputs, (n, ...) each."""
        if isinstance(outputs, list | tuple | dict) and self.loss is not None:
            raise ValueError(
                f"`model` has {len(outputs)} outputs, and a loss is of one: join them with "
                "keras.layers.Concatenate, or give a function of the outputs that returns a "
                f"distribution for `{self._argument}`."
            )
        if self.loss is None:
            return self._rows(self.distribution(outputs).log_prob(y), outputs)
        y, outputs = self._shaped(y, outputs)
        inside = self._inside(y, outputs)
        if self.name == SPARSE:
            y = tf.cast(y if inside is None else tf.where(inside, y, 0), tf.int32)
        else:
            y = tf.cast(y, outputs.dtype)
        value = -self._rows(self.loss(y, outputs), outputs)
        for axis in self._axes(y, outputs):
            value *= tf.cast(tf.shape(y)[axis], value.dtype)
        if inside is None:
            return value
        inside = tf.reduce_all(tf.reshape(inside, [tf.shape(inside)[0], -1]), axis=1)
        return tf.where(inside, value, tf.constant(np.nan, value.dtype))

    def distribution(self, outputs: Any) -> Any:
        """Return the distribution of targets that the user's function makes of outputs."""
        distribution = self._likelihood(outputs)
        if not hasattr(distribution, "log_prob"):
            raise TypeError(
                f"`{self._argument}` must return a distribution of TensorFlow Probability; it "
                f"returned {describe(distribution)}. A loss is a function of two arguments, "
                "targets and outputs."
            )
        return _Aligned(distribution, self._targets)

    def _rows(self, terms: Any, outputs: Any) -> tf.Tensor:
        """Return the sum of the terms of each row."""
        terms = tf.convert_to_tensor(terms)
        rows = tf.nest.flatten(outputs)[0].shape[0]
        if terms.shape.rank == 0 or (
            None not in (rows, terms.shape[0]) and terms.shape[0] != rows
        ):
            raise ValueError(
                f"`{self._argument}` must return a value for each row; for {rows} rows it returned "
                f"a tensor of shape {tuple(terms.shape)}."
            )
        return tf.reduce_sum(tf.reshape(terms, [tf.shape(terms)[0], -1]), axis=1)

    def _shaped(self, y: Any, outputs: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return targets in the shape that the loss needs, and outputs."""
        y, outputs = tf.convert_to_tensor(y), tf.convert_to_tensor(outputs)
        y = tf.cast(y, tf.int32) if y.dtype.is_bool else y
        if None in (y.shape.rank, outputs.shape.rank):
            return y, outputs  # nothing is known of them in front of the graph
        if self.name == SPARSE:
            if y.shape.rank == outputs.shape.rank and y.shape[-1] == 1:
                y = tf.squeeze(y, -1)
            self._need_shape(y, outputs.shape[:-1], outputs)
        if self.name in _BY_OUTPUT:
            if y.shape.rank == outputs.shape.rank - 1 and outputs.shape[-1] == 1:
                y = y[..., tf.newaxis]
            elif y.shape.rank == outputs.shape.rank + 1 and y.shape[-1] == 1:
                y = tf.squeeze(y, -1)
            self._need_shape(y, outputs.shape, outputs)
        return y, outputs

    def _need_shape(self, y: tf.Tensor, needed: Any, outputs: tf.Tensor) -> None:
        if y.shape[1:].is_compatible_with(needed[1:]):
            return
        classes = outputs.shape[-1] or "K"
        if self.name == SPARSE and y.shape[1:].is_compatible_with(outputs.shape[1:]):
            advice = f"For rows of {classes} zeros and ones use {CATEGORICAL}."
        elif self.name == CATEGORICAL and y.shape.rank == outputs.shape.rank - 1:
            advice = f"For the numbers of classes, from 0, use {SPARSE}."
        else:
            advice = "Give targets of this shape, or another number of outputs."
        raise ValueError(
            f"{self._targets} of a row have the shape {tuple(y.shape[1:])}; with outputs of shape "
            f"{tuple(outputs.shape[1:])} {self.name} needs {tuple(needed[1:])}. {advice}"
        )

    def _inside(self, y: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor | None:
        """Return which targets are in the support of a loss of Keras, by target."""
        if self.name == SPARSE:
            inside = (y >= 0) & (y < tf.cast(tf.shape(outputs)[-1], y.dtype))
            if y.dtype.is_floating:
                inside &= tf.floor(y) == y
            ignored = self._options.get("ignore_class")
            return inside if ignored is None else inside | (y == ignored)
        if self.name == "poisson":
            return y >= 0
        return (y >= 0) & (y <= 1) if self.name in (BINARY, CATEGORICAL) else None

    def _axes(self, y: tf.Tensor, outputs: tf.Tensor) -> tuple[int, ...]:
        """Return the axes of outputs over which the loss averages, by a trial in front of it."""
        if self.name == CATEGORICAL or None in (y.shape.rank, outputs.shape.rank):
            return ()
        key = y.dtype, tuple(y.shape[1:]), tuple(outputs.shape[1:]), outputs.dtype
        if key not in self._averaged:
            with tf.init_scope():
                self._averaged[key] = self._tried(*key)
        return self._averaged[key]

    def _tried(
        self, kind: tf.DType, of_y: Any, of_outputs: Any, dtype: tf.DType
    ) -> Any:
        """Return the axes over which the loss averages, at random targets and outputs."""
        rows, longest = _SETTINGS.rows, _SETTINGS.longest
        numbers = np.prod([length or 1 for length in of_outputs]) * rows
        is_small = numbers <= _SETTINGS.numbers

        def shape(lengths: Any) -> list[int]:
            known = [length or longest for length in lengths]
            return [rows, *(k if is_small else min(k, longest) for k in known)]

        shapes = shape(of_y), shape(of_outputs)
        rng = np.random.default_rng(1)
        # Targets and outputs may be numbers of any kind, positive ones, probabilities or classes.
        y = rng.uniform(0.2, 0.8, shapes[0])
        y = tf.cast((y > 0.5) if kind.is_integer or kind.is_bool else y, kind)
        outputs = tf.cast(rng.uniform(0.2, 0.8, shapes[1]), dtype)
        whole = self._trial(y, outputs)
        if whole is None:
            return ()
        alone = self._trial(y[:1], outputs[:1])
        if alone is not None and not _equal(whole[:1], alone):
            raise ValueError(
                f"`{self._argument}`: the value of a row depends on the other rows, for targets of "
                f"shape {(rows, *of_y)} and outputs of shape {(rows, *of_outputs)}. Return a sum "
                "over the outputs of each row; if targets and outputs were broadcast against each "
                "other, give both the same shape."
            )
        axes = range(1, min(y.shape.rank, outputs.shape.rank))
        return tuple(axis for axis in axes if self._averages(y, outputs, axis, whole))

    def _averages(
        self, y: tf.Tensor, outputs: tf.Tensor, axis: int, whole: Array
    ) -> bool:
        """Return whether the loss is a mean over an axis of targets and outputs."""
        size, times = y.shape[axis], outputs.shape[axis] // y.shape[axis]
        if (
            size < 2
            or outputs.shape[axis] != size * times
            or y.shape.rank != outputs.shape.rank
        ):
            return False
        # Outputs may have several blocks of this size, such as means and scales.
        blocks = tf.split(outputs, times, axis)

        def loss_of(indices: list[int]) -> Array | None:
            outputs_of = [tf.gather(block, indices, axis=axis) for block in blocks]
            return self._trial(
                tf.gather(y, indices, axis=axis), tf.concat(outputs_of, axis)
            )

        first, of_others = loss_of([0]), loss_of(list(range(1, size)))
        if first is None or of_others is None:
            return False
        return _equal(whole, (first + (size - 1) * of_others) / size)

    def _trial(self, y: tf.Tensor, outputs: tf.Tensor) -> Array | None:
        """Return the loss of each row, (n,), or ``None`` if it has none at these values."""
        assert self.loss is not None
        try:
            terms = self.loss(y, outputs)
        except Exception as error:
            pass_on(error)
            return None
        losses = np.asarray(self._rows(terms, outputs), np.float64)
        return losses if np.isfinite(losses).all() else None

    def check(self, y: Array, outputs: Any) -> None:
        """Raise an error if targets or outputs are not those that the likelihood is made for.

        Args:
            y: Targets, (N, ...).
            outputs: Outputs of the network for the first rows, (n, ...).
        """
        self.need_numbers(y)
        if self.loss is not None and not isinstance(outputs, list | tuple | dict):
            self._shaped(y[:1], outputs[:1])
            self._check_targets(y)
            self.check_outputs(np.asarray(outputs))
            if self.name == SPARSE:
                classes, ignored = outputs.shape[-1], self._options.get("ignore_class")
                used = y if ignored is None else y[y != ignored]
                if ((used < 0) | (used >= classes) | (used != np.floor(used))).any():
                    raise ValueError(
                        f"{self._targets} must be integers from 0 to {classes - 1}, a number for "
                        "each output of the network. Number the classes from 0, as "
                        "np.unique(y, return_inverse=True)[1] does. They are from "
                        f"{used.min()} to {used.max()}."
                    )
        rows = min(len(y), len(tf.nest.flatten(outputs)[0]))
        values = self(
            tf.constant(y[:rows]), tf.nest.map_structure(lambda a: a[:rows], outputs)
        )
        wrong = np.flatnonzero(~np.isfinite(np.asarray(values)))
        if wrong.size:
            raise ValueError(
                f"`{self._argument}` gives no finite log density for row {wrong[0]}: "
                f"{np.asarray(values)[wrong[0]]}. Are the targets values that it allows?"
            )

    def need_numbers(self, y: Array) -> None:
        """Raise an error if targets are no numbers."""
        if y.dtype.kind in "OUSMm":
            raise TypeError(
                f"{self._targets} must be numbers; they are {y.dtype.name}. Number the classes "
                "from 0, as np.unique(y, return_inverse=True)[1] does."
            )

    def _check_targets(self, y: Array) -> None:
        if self.name in (BINARY, CATEGORICAL) and not ((y >= 0) & (y <= 1)).all():
            wrong = y[(y < 0) | (y > 1)].flat[0]
            raise ValueError(
                f"{self._targets} must be from 0 to 1 for {self.name}; one is {wrong}."
            )
        if self.name == CATEGORICAL:
            sums = y.sum(self._options.get("axis", -1), dtype=np.float64)
            fine = np.abs(sums - 1) <= _SETTINGS.probability_sum
            if not fine.all():
                wrong = sums[np.abs(sums - 1) > _SETTINGS.probability_sum]
                raise ValueError(
                    f"{self._targets} of a row must have the sum 1 over the classes for "
                    f"{self.name}; one is {wrong.flat[0]:g}. For "
                    f"several labels a row use {BINARY}."
                )
        if self.name == "poisson" and not (y >= 0).all():
            raise ValueError(
                f"{self._targets} must be counts for the loss poisson; one is {y.min()}."
            )

    def check_outputs(self, outputs: Array) -> None:
        """Raise an error if outputs are not probabilities or rates, though the loss needs them."""
        if self.name == "poisson" and (outputs < 0).any():
            raise ValueError(
                f"`{self._argument}`: poisson needs positive outputs, and the network's are as low "
                f'as {outputs.min():.3g}. End the network in activation="exponential".'
            )
        highest = 1 + _SETTINGS.probability_sum
        if self.from_logits is False and ((outputs < 0) | (outputs > highest)).any():
            last = "sigmoid" if self.name == BINARY else "softmax"
            kind = "".join(word.title() for word in self.name.split("_"))
            raise ValueError(
                f"`{self._argument}`: {self.name} needs probabilities, and the network's outputs "
                f"are from {outputs.min():.3g} to {outputs.max():.3g}. Use keras.losses.{kind}"
                f'(from_logits=True), or end the network in activation="{last}".'
            )
        if (
            self.from_logits
            and self.name != BINARY
            and outputs.shape[-1] > 1
            and (outputs >= 0).all()
            and (np.abs(outputs.sum(-1) - 1) < _SETTINGS.close).all()
        ):
            raise ValueError(
                f"`{self._argument}` has from_logits=True, and the network's outputs are "
                "probabilities already: use from_logits=False, or end the network without softmax."
            )


class _Aligned:
    """A distribution that reads targets in its own shape and dtype."""

    def __init__(self, distribution: Any, targets: str) -> None:
        self._distribution, self._targets = distribution, targets

    def log_prob(self, y: Any) -> Any:
        """Return the log density of targets."""
        return self._distribution.log_prob(self._read(y))

    def cdf(self, y: Any) -> Any:
        """Return the distribution function at targets."""
        return self._distribution.cdf(self._read(y))

    def _read(self, y: Any) -> Any:
        distribution = self._distribution
        base = tensorflow_probability().distributions.Distribution
        if not isinstance(distribution, base) or tf.nest.is_nested(distribution.dtype):
            return y
        y = tf.convert_to_tensor(y)
        dtype = distribution.dtype
        if dtype is not None and (y.dtype.is_integer or y.dtype.is_bool):
            y = tf.cast(y, dtype)
        shape = distribution.batch_shape + distribution.event_shape
        if shape.rank in (None, 0):
            return y
        if y.shape.rank == shape.rank - 1 and shape[-1] == 1:
            y = y[..., tf.newaxis]
        elif y.shape.rank == shape.rank + 1 and y.shape[-1] == 1:
            y = tf.squeeze(y, -1)
        fits = y.shape.rank == shape.rank and all(
            expected in (1, None) or actual in (expected, None)
            for expected, actual in zip(shape[1:], y.shape[1:], strict=True)
        )
        if not fits:
            raise ValueError(
                f"{self._targets} of a row have the shape {tuple(y.shape[1:])}, and the "
                f"distribution of a row has {tuple(shape[1:])}: give both the same shape, or use "
                "tfd.Independent for several outputs."
            )
        return y


def _needs_two(function: Callable[..., Any]) -> bool:
    """Return whether a function needs two arguments, as losses do: targets and outputs."""
    if isinstance(function, type):
        return False
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    needed = [p for p in parameters if p.kind in positional and p.default is p.empty]
    return len(needed) == 2


def _equal(a: Array, b: Array) -> bool:
    return bool(np.allclose(a, b, rtol=_SETTINGS.close, atol=1e-7))
