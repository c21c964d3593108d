"""Common parts of models of other libraries: rows, starting values, sampling."""

from __future__ import annotations

import abc
import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.bridges.row_checks import rows_for_trial, some_of
from sgmcmc.data.dataset import Tensors
from sgmcmc.data.entries import refuse_nan, refuse_overflow
from sgmcmc.groups.spec import Groups
from sgmcmc.results.samples import Samples
from sgmcmc.samplers.sample import sample as sample_any

FEW = 7
"""Rows of covariates that a prior is made with if it does not depend on them."""

_SHORT = 1000  # bound of integers of which products of three do not wrap around


class Model(abc.ABC):
    """A model that was written for another library.

    Attributes:
        dataset: Columns: observed variables with rows, and covariates.
        params: Starting values of a chain.
        bijectors: Bijectors of the constrained parameters, by name.
        dtype: Dtype of the parameters.
        groups: ``Groups`` of the local variables, which are not in ``params``; ``sample`` uses
            them.
        N: Number of rows.
    """

    dataset: dict[str, Any]
    params: dict[str, Any]
    bijectors: dict[str, Any]
    dtype: tf.DType
    groups: tuple[Groups, ...] = ()
    N: int
    _rows: Sequence[str]
    """Columns that are observed variables."""

    @property
    def local(self) -> tuple[str, ...]:
        """Names of the variables that are effects of ``groups``."""
        return tuple(name for group in self.groups for name in group.effects)

    @abc.abstractmethod
    def log_lik(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return the log density of each row, (n,).

        Args:
            params: Values of the parameters.
            dataset: Rows of ``dataset``.

        Returns:
            Σ log p(y_i | θ) over the observed variables with rows, for each row i.
        """

    @abc.abstractmethod
    def log_prior(self, params: Tensors) -> tf.Tensor:
        """Return the log density of the parameters, and of observed variables without rows.

        Args:
            params: Values of the parameters.

        Returns:
            A scalar.
        """

    def sample(self, **keywords: Any) -> Samples:
        """Sample the posterior, by :func:`sgmcmc.sample`.

        Args:
            keywords: Keyword arguments of :func:`sgmcmc.sample`; ``params`` and ``bijectors``
                replace the model's.

        Returns:
            The draws.
        """
        params = keywords.pop("params", self.params)
        bijectors = {**self.bijectors, **(keywords.pop("bijectors", None) or {})}
        keywords.setdefault("dtype", self.dtype)
        if self.groups:
            keywords.setdefault("groups", list(self.groups))
        return sample_any(
            self.log_lik,
            self.dataset,
            params,
            self.log_prior,
            bijectors=bijectors or None,
            **keywords,
        )

    def observing(self, observed: Mapping[str, Any]) -> Any:
        """Return the same model with other values of the observed variables.

        Args:
            observed: Values by name, of the same shapes; missing names stay as they are.

        Returns:
            The model; this one stays as it is.

        Raises:
            ValueError: A name or a shape is another.
        """
        current, replacements = self._observed_values(), as_arrays("observed", observed)
        for name, values in replacements.items():
            if name not in current:
                raise ValueError(f"`observed`: {name!r} was not observed before.")
            shape = tuple(current[name].shape)
            if values.shape != shape:
                raise ValueError(
                    f"`observed`: {name!r} must have the shape {shape}; it has {values.shape}."
                )
        model = copy.copy(self)
        model._replace(replacements)
        return model

    @abc.abstractmethod
    def _observed_values(self) -> Mapping[str, Any]:
        """Return the values of the observed variables, by name."""

    @abc.abstractmethod
    def _replace(self, observed: Mapping[str, np.ndarray]) -> None:
        """Replace values of observed variables, without a change to those that others hold."""

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{name} {np.shape(value)}" for name, value in self.params.items()
        )
        kind = type(self).__name__
        of = f" of {', '.join(self._rows)}" if self._rows else ""
        return f"{kind} of {self.N} rows{of}; parameters {shapes}"


class TracedModel(Model):
    """A model whose densities JAX traces."""

    _terms: Callable[..., tf.Tensor]
    """Log densities of rows, a function of parameters and columns."""

    _columns_of: dict[str, str]
    """Columns of the observed variables, by the names of the variables."""

    def log_lik(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return the log density of each row, (n,).

        Args:
            params: Values of the parameters.
            dataset: Rows of ``dataset``.

        Returns:
            Σ log p(y_i | θ) over the observed variables with rows, for each row i.
        """
        return self.log_lik_of_rows(
            params, dataset, [group.by for group in self.groups]
        )

    def log_lik_of_rows(
        self, params: Tensors, dataset: Tensors, by: Sequence[str]
    ) -> tf.Tensor:
        """Return the log density of each row, with the row's own effects as local variables."""
        columns = {name: tf.convert_to_tensor(dataset[name]) for name in self.dataset}
        row = tf.range(tf.shape(columns[next(iter(columns))])[0])
        columns.update({name: tf.cast(row, columns[name].dtype) for name in by})
        return self._terms(dict(params), columns)

    def _refuse_overflow(self, tried: Sequence[Tensors]) -> None:
        """Refuse integers that are too long for what the model computes of them.

        In single precision JAX computes with integers of 32 bits, which wrap around in silence.

        Raises:
            ValueError: In double precision the density of a row is another.
        """
        lengths = {
            name: int(np.abs(np.asarray(values)).max())
            for name, values in self.dataset.items()
            if np.asarray(values).dtype.kind in "iu"
        }
        if self.dtype == tf.float64 or max(lengths.values(), default=0) < _SHORT:
            return
        columns = some_of(self.dataset, rows_for_trial(self.dataset, self.N))
        wider = {tf.int32: tf.int64, self.dtype: tf.float64}

        def widened(tensors: Tensors) -> Tensors:
            return {
                name: tf.cast(t, wider.get(t.dtype, t.dtype))
                for name, t in tensors.items()
            }

        for params in tried:
            single = self.log_lik(params, columns).numpy()
            double = self.log_lik(widened(params), widened(columns)).numpy()
            if np.isfinite(double).all() and not np.allclose(
                single, double, rtol=0.01, atol=0.1
            ):
                row = int(np.abs(single - double).argmax())
                raise ValueError(
                    f"`data`: in single precision the log density of a row is {single[row]:g}, and "
                    f"{double[row]:g} in double precision. The largest integers of columns are "
                    f"{lengths}, and products of integers wrap around beyond 2**31. Pass "
                    "dtype=tf.float64, or floats in larger units."
                )

    def _observed_values(self) -> dict[str, Any]:
        return {name: self.dataset[column] for name, column in self._columns_of.items()}

    def _replace(self, observed: Mapping[str, np.ndarray]) -> None:
        columns = {self._columns_of[name]: values for name, values in observed.items()}
        self.dataset = self.dataset | {
            column: as_column(column, values, self.dtype, self.dataset[column])
            for column, values in columns.items()
        }


def as_column(name: str, array: np.ndarray, dtype: tf.DType, like: Any = None) -> Any:
    """Return a column in a dtype that JAX has: floats as arrays, integers and bool as tensors.

    Args:
        name: Name, for messages.
        array: Values.
        dtype: Dtype of floats.
        like: Column whose dtype it has; ``None`` keeps the kind of the values.

    Raises:
        TypeError, ValueError: The values are no numbers, or the dtype cannot hold them.
    """
    if like is not None:
        array = array.astype(tf.as_dtype(like.dtype).as_numpy_dtype)
    if array.dtype.kind == "f":
        return as_floats(f"data[{name!r}]", array, dtype)
    if array.dtype.kind not in "iub":
        raise TypeError(
            f"`data` must hold arrays of numbers; {name!r} has the dtype {array.dtype}."
        )
    if array.dtype.kind == "b":
        return tf.constant(array)
    # JAX makes floats of 64 bits of integers of 64 bits alone.
    refuse_long(f"data[{name!r}]", array, dtype)
    wide = dtype == tf.float64 and array.dtype.itemsize == 8
    return tf.constant(array.astype(np.int64 if wide else np.int32))


def as_floats(label: str, array: np.ndarray, dtype: tf.DType) -> np.ndarray:
    """Return floats in a dtype, whose range they must be in."""
    if array.size and array.dtype.itemsize > dtype.size:
        refuse_overflow(label, array, dtype)
    return array.astype(dtype.as_numpy_dtype)


def refuse_long(label: str, array: np.ndarray, dtype: tf.DType) -> None:
    """Refuse integers that JAX would wrap around in silence, in the precision of a dtype."""
    power = 63 if dtype == tf.float64 else 31
    if array.size and not (-(2**power) <= array.min() and array.max() < 2**power):
        advice = "floats" if power == 63 else "dtype=tf.float64, or floats"
        precision = "double" if power == 63 else "single"
        raise ValueError(
            f"`{label}` holds integers from {array.min()} to {array.max()}, beyond the 2**{power} "
            f"of {precision} precision. Pass {advice} in larger units."
        )


def as_seed(seed: int | None) -> int:
    """Return a seed, drawn if there is none."""
    if seed is None:
        return int(np.random.default_rng().integers(2**31))
    return checks.whole_number("seed", seed, 0)


def as_arrays(label: str, values: Any) -> dict[str, np.ndarray]:
    """Return a dict of arrays, or raise an error."""
    if not isinstance(values, Mapping):
        raise TypeError(
            f"`{label}` must be a dict of arrays; it is a {type(values).__name__}."
        )
    arrays = {name: np.asarray(array) for name, array in values.items()}
    for name, array in arrays.items():
        refuse_nan(f"{label}[{name!r}]", array)
        if np.ma.is_masked(values[name]):
            raise ValueError(
                f"`{label}[{name!r}]` has masked values. Drop or impute missing values before."
            )
    return arrays


def size_of(columns: Mapping[str, Any], label: str) -> int:
    """Return the length of the first axis, which all columns share."""
    for name, array in columns.items():
        if len(np.shape(array)) == 0:
            raise ValueError(
                f"`{label}`: {name!r} is a single number, which has no axis of rows. Name in "
                f"`{label}` only variables that have one."
            )
    lengths = {name: len(array) for name, array in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(
            f"`{label}`: the first axes must have one length; they have {lengths}."
        )
    return next(iter(lengths.values()))
