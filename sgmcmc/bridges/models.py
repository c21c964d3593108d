"""Common parts of models of other libraries: columns, starting values, groups, sampling.

In a joint distribution a local variable holds the effects of all groups, (G, ...), and the rows
look theirs up by a column of covariates. As :class:`sgmcmc.Groups` a chain has no coordinates for
them, and the rows of a minibatch come with an effect each. The same function of covariates serves
both: it is handed the effects of the rows, one after another, in place of those of the groups, and
the numbers of the rows in place of those of the groups. That this gives the same density is tried.
"""

from __future__ import annotations

import abc
import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc import checks, libraries
from sgmcmc.bridges.row_checks import (
    SETTINGS,
    close,
    log_density_of_rows,
    positions,
    rows_for_trial,
    some_of,
)
from sgmcmc.data.dataset import Tensors
from sgmcmc.data.entries import by_label, need_one_order, refuse_nan, refuse_overflow
from sgmcmc.groups.spec import Groups
from sgmcmc.interrupts import pass_on
from sgmcmc.results.samples import Samples
from sgmcmc.samplers.sample import sample as sample_any


class ConvertedModel(abc.ABC):
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

    _local: dict[str, Any]
    """Starting values of the local variables."""

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

    def _set_groups(self, plates: Sequence[Plate]) -> None:
        """Make the variables of plates effects of groups, which leave ``params``."""
        check_plates(self, plates)
        names = [name for plate in plates for name in plate.names]
        self._local = {name: self.params.pop(name) for name in names}
        self.groups = tuple(as_groups(self, plate, self._local) for plate in plates)

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


class TracedModel(ConvertedModel):
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
        largest_of = {
            name: int(np.abs(np.asarray(values)).max())
            for name, values in self.dataset.items()
            if np.asarray(values).dtype.kind in "iu"
        }
        largest = max(largest_of.values(), default=0)
        if self.dtype == tf.float64 or largest < SETTINGS.short_integer:
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
                    f"{largest_of}, and products of integers wrap around beyond 2**31. Pass "
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
    need_one_order(by_label(label, values))
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


class Plate(NamedTuple):
    """Local variables whose first axis counts the groups of a column.

    Attributes:
        by: Name of the column with the group of each row.
        names: Names of the variables.
        levels: Number of groups, G.
    """

    by: str
    names: tuple[str, ...]
    levels: int


def read_plates(
    groups: Any,
    params: Mapping[str, np.ndarray],
    bijectors: Mapping[str, Any],
    covariates: Mapping[str, Any],
) -> tuple[Plate, ...]:
    """Return the plates that a user names, once the names and shapes are known to be right.

    Args:
        groups: User's: names of variables, or one name, by the name of a column.
        params: Starting values of all variables.
        bijectors: Bijectors of the constrained ones.
        covariates: Columns that the joint distribution is a function of.

    Raises:
        ValueError, TypeError: Something is wrong; the message says what.
    """
    if groups is None:
        return ()
    if not isinstance(groups, Mapping) or not groups:
        raise TypeError(
            "`groups` must be a dict of local variables by the column that has the group of each "
            f"row, such as {{'site': ['u']}}; it is a {type(groups).__name__}."
        )
    if not covariates:
        raise ValueError(
            "`groups` needs a `joint` that is a function of `data`, since the rows of a minibatch "
            "look up their own effects: write def model(data): ..., and tf.gather(u, data['site'])."
        )
    plates, seen = [], set()
    for by, variables in groups.items():
        names = (variables,) if isinstance(variables, str) else tuple(variables)
        if by not in covariates:
            raise ValueError(
                f"`groups`: {by!r} is not among `data`, {list(covariates)}."
            )
        codes = np.asarray(covariates[by])
        if codes.ndim != 1 or codes.dtype.kind not in "iu":
            raise ValueError(
                f"`groups`: `data[{by!r}]` must be a vector of integers from 0 on."
            )
        for name in names:
            if name not in params:
                raise ValueError(
                    f"`groups`: {name!r} is none of the parameters, {list(params)}."
                )
            if name in seen:
                raise ValueError(f"`groups` names {name!r} twice.")
            seen.add(name)
            if name in bijectors:
                raise ValueError(
                    f"`groups`: {name!r} is constrained. Write it as a function of a variable that "
                    "is not, such as the exponential of a Normal."
                )
            if codes.min() < 0:
                raise ValueError(
                    f"`groups`: `data[{by!r}]` holds {codes.min()}; groups are counted from 0."
                )
            if params[name].ndim == 0 or len(params[name]) <= codes.max():
                raise ValueError(
                    f"`groups`: the first axis of {name!r} must count the groups of {by!r}, of "
                    f"which there are {codes.max() + 1}; its shape is {params[name].shape}."
                )
        lengths = {len(params[name]) for name in names}
        if len(lengths) != 1:
            raise ValueError(
                f"`groups`: the variables of {by!r} have {sorted(lengths)} groups."
            )
        plates.append(Plate(by, names, lengths.pop()))
    if seen == set(params):
        raise ValueError("`groups` names all parameters: none is left that is global.")
    return tuple(plates)


def log_prior_of(
    plate: Plate, distributions: Mapping[str, Any], effects: Mapping[str, tf.Tensor]
) -> tf.Tensor:
    """Return the log density of the effects of some groups, (g,).

    Args:
        plate: Plate.
        distributions: Distributions of the variables given the global parameters.
        effects: Effects of some groups, (g, ...), by name.
    """
    terms = []
    for name in plate.names:
        inner, values = of_one_row(distributions[name]), effects[name]
        event, batch = inner.event_shape.rank, inner.batch_shape.rank
        if event is None or batch is None or values.shape.rank - event < 1:
            raise ValueError(
                f"{type(inner).__name__} has one density for all groups, of shape "
                f"{inner.event_shape}"
            )
        if batch == values.shape.rank - event:
            inner = inner[0]  # all groups have the same
        log_prob = inner.log_prob(values)
        axes = list(range(1, log_prob.shape.rank))
        terms.append(tf.reduce_sum(log_prob, axis=axes))
    return tf.add_n(terms)


def of_one_row(distribution: Any) -> Any:
    """Return the distribution inside of ``Independent`` and ``Sample``, whose batch is the rows."""
    tfd = libraries.tensorflow_probability().distributions
    while isinstance(distribution, tfd.Independent):
        distribution = distribution.distribution
    if isinstance(distribution, tfd.Sample) and not distribution.batch_shape.rank:
        distribution = distribution.distribution
        while isinstance(distribution, tfd.Independent):
            distribution = distribution.distribution
    return distribution


def as_groups(model: Any, plate: Plate, starts: Mapping[str, Any]) -> Groups:
    """Return the groups of a plate, whose effects start at zero."""
    effects = {name: np.zeros(np.shape(starts[name])[1:]) for name in plate.names}

    def log_prior(effects: Tensors, params: Tensors) -> tf.Tensor:
        return model.effects_density(plate, effects, params)

    return Groups(plate.by, effects, log_prior, members=range(plate.levels))


def check_plates(model: Any, plates: Sequence[Plate]) -> None:
    """Refuse variables that cannot be effects of groups.

    Args:
        model: Model whose ``params`` hold all variables.
        plates: Plates.

    Raises:
        ValueError: Groups depend on each other or have different distributions; something else
            depends on their effects; or rows use effects of groups that are not theirs.
    """
    rng = np.random.default_rng(0)
    shapes = {name: value.shape for name, value in model.params.items()}

    def redrawn(names: Sequence[str]) -> dict[str, tf.Tensor]:
        return {n: tf.constant(rng.normal(size=shapes[n]), model.dtype) for n in names}

    local = [name for plate in plates for name in plate.names]
    for params in itertools.islice(positions(model), SETTINGS.group_positions):
        for plate in plates:
            values_of_all = {**params, **redrawn(local)}
            both = ({**values_of_all, **redrawn(plate.names)} for _ in range(2))
            _refuse_dependent_groups(model, plate, *both)
    values = {**next(positions(model)), **redrawn(local)}
    some = some_of(model.dataset, rows_for_trial(model.dataset, model.N))
    expected = log_density_of_rows(model.log_lik, values, some, model.dataset)
    rows = dict(values)
    for plate in plates:
        for name in plate.names:
            rows[name] = tf.gather(values[name], some[plate.by])
    by_rows = (
        "they are used by rows in another way than tf.gather(effects, data[column])"
    )
    try:
        actual = model.log_lik_of_rows(rows, some, [plate.by for plate in plates])
    except Exception as error:
        pass_on(error)
        raise ValueError(_no_plate(plates[0], f"{by_rows}. {error}")) from error
    if not close(actual, expected, model.dtype):
        raise ValueError(_no_plate(plates[0], by_rows))


def _refuse_dependent_groups(
    model: Any,
    plate: Plate,
    values: dict[str, tf.Tensor],
    redrawn: dict[str, tf.Tensor],
) -> None:
    """Refuse groups that depend on each other, and other variables that depend on them.

    Args:
        model: Model.
        plate: Plate.
        values: Values of all variables.
        redrawn: The same, with other effects of the plate.
    """
    try:
        densities, densities_redrawn = (
            model.effects_density(
                plate, {n: values[n] for n in plate.names}, all_values
            )
            for all_values in (values, redrawn)
        )
    except Exception as error:
        pass_on(error)
        reason = f"their density cannot be computed: {error}"
        raise ValueError(_no_plate(plate, reason)) from error
    terms, terms_redrawn = (
        {n: float(v) for n, v in model.prior_terms(all_values).items()}
        for all_values in (values, redrawn)
    )
    whole = sum(terms[name] for name in plate.names)
    if not np.isclose(np.sum(densities), whole, rtol=1e-4, atol=1e-4):
        raise ValueError(_no_plate(plate, "the groups have different distributions"))
    if not np.allclose(densities, densities_redrawn, rtol=1e-5, atol=1e-5):
        raise ValueError(_no_plate(plate, "their densities depend on each other"))
    for name in terms:
        if name not in plate.names and not close(
            terms[name], terms_redrawn[name], model.dtype
        ):
            what = "the density of other parameters depends on them"
            raise ValueError(_no_plate(plate, f"{what}, that of {name!r}"))


def _no_plate(plate: Plate, reason: str) -> str:
    names = ", ".join(map(repr, plate.names))
    return (
        f"`groups`: {names} cannot be effects of the groups of {plate.by!r}, since {reason}. Leave "
        "`groups` out, and they are coordinates of the chain."
    )
