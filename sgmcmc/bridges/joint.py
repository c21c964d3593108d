"""Joint distributions of TensorFlow Probability as models."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks, libraries
from sgmcmc.bridges.models import (
    ConvertedModel,
    Plate,
    as_arrays,
    as_floats,
    as_seed,
    log_prior_of,
    of_one_row,
    read_plates,
    size_of,
)
from sgmcmc.bridges.row_checks import (
    SETTINGS,
    by_shape,
    dependent,
    depends_on_count,
    indices_explained,
    refuse_dependent_rows,
)
from sgmcmc.data.dataset import Tensors
from sgmcmc.data.entries import by_label, need_one_order
from sgmcmc.graphs.tracing import trace
from sgmcmc.interrupts import pass_on

ROW = "row"
"""The column of the dataset with the numbers of the rows, if the distribution has all of them."""


def from_joint(
    joint: Any,
    observed: Mapping[str, Any],
    rows: Sequence[str] | None = None,
    *,
    data: Mapping[str, Any] | None = None,
    groups: Mapping[str, Any] | None = None,
    dtype: Any = tf.float32,
) -> JointModel:
    """Convert a joint distribution of TensorFlow Probability to a model for the samplers.

    The log-likelihood has a term for each row, the sum of log p(y_i | θ) over the variables named
    in ``rows``; the log prior is the log density of everything else. Constrained parameters get the
    default bijectors of their distributions.

    Args:
        joint: A ``JointDistributionCoroutineAutoBatched``, ``JointDistributionCoroutine``,
            ``JointDistributionNamed`` or ``JointDistributionSequential`` (or the latter two with
            ``AutoBatched``), whose variables have names; or, with ``data``, a function of the dict
            of covariates that returns one. A distribution that contains the covariates of all rows
            is evaluated on all rows for each minibatch; a function is called only with the
            covariates of the minibatch.
        observed: Values of observed variables, by name.
        rows: Names of the observed variables whose first axis counts the rows, which are
            independent of each other given the parameters; ``None`` for all that are observed.
        data: Covariates, arrays by name with the same first axis, for a ``joint`` that is a
            function.
        groups: Local variables, whose first axis counts groups of rows, as names by the column of
            ``data`` with the group of each row, counted from 0: ``{"site": ["u"]}``. They become
            :class:`sgmcmc.Groups`: a chain integrates them out, and ``samples.effects("site")``
            draws them afterward. With ``None`` all variables are coordinates of the chain. Groups
            must be independent and identically distributed given the other parameters, and rows
            must use ``tf.gather(u, data["site"])``.
        dtype: Dtype of covariates that are floats; integers stay integers.

    Returns:
        The model, with ``dataset``, ``params``, ``log_lik``, ``log_prior``, ``bijectors``,
        ``sample`` and ``prior_predictive``.

    Raises:
        ValueError: Rows depend on each other; the prior depends on the rows; a support depends on
            another parameter; a parameter is discrete; a name is unknown; variables of ``groups``
            are not group effects.
        TypeError: ``joint`` is not a joint distribution.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow_probability as tfp
        >>> tfd = tfp.distributions
        >>> x = np.linspace(-1, 1, 200).astype(np.float32)
        >>> y = 1 + 2 * x + np.random.default_rng(1).normal(0, 0.5, 200).astype(np.float32)
        >>> def regression(data):
        ...     return tfd.JointDistributionNamedAutoBatched(dict(
        ...         a=tfd.Normal(0.0, 5.0), b=tfd.Normal(0.0, 5.0), sigma=tfd.HalfNormal(2.0),
        ...         y=lambda a, b, sigma: tfd.Normal(a + b * data["x"], sigma)))
        >>> model = sgmcmc.from_joint(regression, observed={"y": y}, data={"x": x})
        >>> sorted(model.params), sorted(model.bijectors), sorted(model.dataset)
        (['a', 'b', 'sigma'], ['sigma'], ['x', 'y'])
        >>> samples = model.sample(seed=1, verbose=False)
        >>> bool(abs(samples["b"].mean() - 2) < 0.2)
        True

    Source:
        p(θ, y) = p(θ) ∏ᵢ p(yᵢ | θ); Piponi, Moore & Dillon, *Joint Distributions for TensorFlow
        Probability*, 2020.
    """
    return JointModel(joint, observed, rows, data, dtype, groups)


class JointModel(ConvertedModel):
    """A joint distribution as a model, as :func:`sgmcmc.from_joint` returns it.

    Args:
        joint: Joint distribution, or a function of covariates that returns one.
        observed: Observed values, by name.
        rows: Observed variables whose first axis counts the rows.
        data: Covariates.
        dtype: Dtype of covariates that are floats.
        groups: Local variables by the column with the group of each row.

    Attributes:
        dataset: Observed variables of ``rows`` and covariates. If the distribution holds the
            covariates of all rows itself, ``"row"`` has the numbers of the rows.
        params: Starting values of a chain: medians of draws of the prior.
        bijectors: Bijectors of the constrained parameters, by name.
        dtype: Dtype of the parameters.
        groups: ``Groups`` of the local variables, which are not in ``params``; ``sample`` takes
            them.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow_probability as tfp
        >>> tfd = tfp.distributions
        >>> joint = tfd.JointDistributionNamed(dict(
        ...     mu=tfd.Normal(0.0, 10.0), y=lambda mu: tfd.Sample(tfd.Normal(mu, 1.0), 5)))
        >>> model = sgmcmc.from_joint(joint, observed={"y": np.zeros(5)})
        >>> model.log_lik({"mu": np.float32(1.0)}, model.dataset).numpy().round(2)
        array([-1.42, -1.42, -1.42, -1.42, -1.42], dtype=float32)
    """

    def __init__(
        self,
        joint: Any,
        observed: Mapping[str, Any],
        rows: Sequence[str] | None = None,
        data: Mapping[str, Any] | None = None,
        dtype: Any = tf.float32,
        groups: Mapping[str, Any] | None = None,
    ) -> None:
        self._tfp = libraries.tensorflow_probability()
        self._model, self._floats = joint, tf.as_dtype(dtype)
        self._covariates: dict[str, Any] = {}
        for name, a in as_arrays("data", data or {}).items():
            if a.dtype.kind == "f":
                self._covariates[name] = as_floats(f"data[{name!r}]", a, self._floats)
            else:
                self._covariates[name] = tf.constant(a)
        arrays = as_arrays("observed", observed)
        need_one_order(by_label("data", data or {}) | by_label("observed", observed))
        observed = arrays
        self._rows_of_prior: np.ndarray | None = None
        self._joint = self._of(self._covariates)
        self._names = _names(self._joint)
        _need_names(self._names, observed, rows)
        self._rows = tuple(observed if rows is None else rows)
        self.N = size_of(
            {**{name: observed[name] for name in self._rows}, **self._covariates},
            "rows",
        )
        self._free = [name for name in self._names if name not in observed]
        if not self._free:
            raise ValueError(
                "`observed` holds all variables of `joint`: none is left to sample."
            )
        kinds = dict(zip(self._names, tf.nest.flatten(self._joint.dtype), strict=True))
        self._observed = {
            name: _as_kind(name, values, kinds[name])
            for name, values in observed.items()
        }
        self.dtype = self._dtype(kinds)
        with indices_explained(self._covariates):
            self.bijectors, self.params = self._start()
        self.dataset: dict[str, Any] = {name: self._entry(name) for name in self._rows}
        if callable(joint) and not self._is_joint(joint):
            self.dataset |= self._covariates
            self._rows_of_prior = np.arange(self.N)[: SETTINGS.prior_rows]
            self._few = self._of_rows(self._rows_of_prior)
        else:
            if ROW in self._names:
                raise ValueError(
                    f"`joint`: its variable {ROW!r} needs another name here."
                )
            self.dataset[ROW] = tf.range(self.N)
            self._few = self._joint
        self._local = {}
        try:
            self._check()
        except Exception as error:
            pass_on(error)
            if isinstance(error, ValueError) and str(error).startswith("`"):
                raise
            raise ValueError(
                "`joint`: the log density of a part of the rows cannot be compiled: "
                f"{type(error).__name__}: {error} All arrays with a value for each row must be "
                "in `data`; the number of rows is tf.shape(data[name])[0]."
            ) from error
        plates = read_plates(groups, self.params, self.bijectors, self._covariates)
        if plates:
            self._set_groups(plates)
            self._local = {
                name: tf.constant(start, self.dtype)
                for name, start in self._local.items()
            }
            self._free = list(self.params)

    def effects_density(
        self, plate: Plate, effects: Tensors, params: Tensors
    ) -> tf.Tensor:
        """Return the log density of some effects of a plate given the parameters, (g,)."""
        return log_prior_of(plate, self.distributions(params), effects)

    def distributions(self, params: Tensors) -> dict[str, Any]:
        """Return the distributions of all variables given the parameters, over a few rows."""
        return self._without_rows(self._few, self._rows_of_prior, params)[0]

    def prior_terms(self, params: Tensors) -> dict[str, tf.Tensor]:
        """Return the log density of each variable without rows."""
        return self._prior_terms(self._few, self._rows_of_prior, params)

    def log_lik_of_rows(
        self, params: Tensors, dataset: Tensors, by: Sequence[str]
    ) -> tf.Tensor:
        """Return the log density of each row, with the row's own effects as local variables."""
        row = tf.range(tf.shape(tf.convert_to_tensor(dataset[self._rows[0]]))[0])
        with_rows = {**dataset, **dict.fromkeys(by, row)}
        if tf.inside_function():
            return self._terms(params, with_rows)
        # Joint distributions draw from themselves first, to learn their shapes: there the numbers
        # of rows are looked up among groups. In a graph that is left out, since nothing uses it.
        return by_shape(self._terms)(params, with_rows)

    def _of(self, covariates: Mapping[str, Any]) -> Any:
        joint = self._model
        if not self._is_joint(joint):
            if not callable(joint):
                raise TypeError(
                    "`joint` must be a joint distribution of TensorFlow Probability, or a function "
                    f"of `data` that returns one; it is a {type(joint).__name__}."
                )
            if not covariates:
                raise ValueError(
                    "`data` must hold the covariates that `joint` is a function of."
                )
            joint = joint(
                {name: tf.convert_to_tensor(a) for name, a in covariates.items()}
            )
            if not self._is_joint(joint):
                raise TypeError(
                    "`joint` must return a joint distribution of TensorFlow Probability; it "
                    f"returned a {type(joint).__name__}."
                )
        elif covariates:
            raise ValueError(
                "`data`: covariates need a `joint` that is a function of them."
            )
        return joint

    def _is_joint(self, joint: Any) -> bool:
        return isinstance(joint, self._tfp.distributions.JointDistribution)

    def _entry(self, name: str) -> Any:
        """Return an observed variable as a column: floats as arrays, integers as tensors."""
        values = self._observed[name]
        return values.numpy() if values.dtype.is_floating else values

    def _dtype(self, kinds: Mapping[str, tf.DType]) -> tf.DType:
        for name in self._free:
            if not kinds[name].is_floating:
                raise ValueError(
                    f"`joint`: the variable {name!r} is discrete ({kinds[name].name}) and not "
                    "observed. Sum it out, as tfd.MixtureSameFamily does, or draw it in `gibbs`."
                )
        dtypes = {kinds[name] for name in self._free}
        if len(dtypes) > 1:
            raise ValueError(
                f"`joint`: its parameters have several dtypes, {sorted(map(str, dtypes))}."
            )
        return dtypes.pop()

    def _distributions(self, joint: Any, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the distribution of each variable given the values of those before it."""
        seed = tf.zeros(2, tf.int32)  # nothing is drawn if every value is given
        structure = tf.nest.pack_sequence_as(
            self._joint.dtype, [values[name] for name in self._names]
        )
        distributions, _ = joint.sample_distributions(value=structure, seed=seed)
        return dict(zip(self._names, _flat(distributions), strict=True))

    def _draw(self, seed: int, count: int) -> dict[str, np.ndarray]:
        """Return draws of all variables, (count, *shape)."""
        seeds = tf.random.split(
            tf.constant([seed & 0x7FFFFFFF, seed >> 31], tf.int32), count
        )

        def draw(seeds: tf.Tensor) -> list[tf.Tensor]:
            return tf.map_fn(
                lambda one: tf.nest.flatten(self._joint.sample(seed=one)),
                seeds,
                fn_output_signature=tf.nest.flatten(self._joint.dtype),
            )

        return {
            name: a.numpy()
            for name, a in zip(self._names, trace(draw, seeds)(seeds), strict=True)
        }

    def _start(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return bijectors of constrained parameters, and possible starts of chains."""
        draws = self._draw(0, SETTINGS.prior_draws)
        for name, values in self._observed.items():
            _need_shape(name, tuple(values.shape), draws[name].shape[1:])

        def distributions(k: int) -> dict[str, Any]:
            values = {name: tf.constant(draws[name][k]) for name in self._names}
            return self._distributions(self._joint, {**values, **self._observed})

        by_draw = distributions(0), distributions(1)
        bijectors, params = {}, {}
        for name in self._free:
            first, second = (
                d[name].experimental_default_event_space_bijector() for d in by_draw
            )
            shape = draws[name].shape[1:]
            inner = tuple(first.inverse_event_shape(tf.TensorShape(shape)).as_list())
            grid = np.linspace(-1.0, 1.0, int(np.prod(inner))).reshape(inner)
            u = tf.constant(grid, self.dtype)
            by_first, by_second = (np.asarray(b.forward(u)) for b in (first, second))
            if not np.allclose(by_first, by_second, rtol=1e-5, atol=1e-6):
                raise ValueError(
                    f"`joint`: the support of {name!r} depends on another variable, so that no one "
                    "bijector fits. Write it as a function of a variable with a fixed support."
                )
            unconstrained = np.asarray(first.inverse(tf.constant(draws[name])))
            median = np.median(unconstrained, axis=0)
            median = np.nan_to_num(median, posinf=0.0, neginf=0.0)
            params[name] = np.asarray(first.forward(tf.constant(median, self.dtype)))
            if shape != inner or not np.array_equal(by_first, u):
                bijectors[name] = first
        return bijectors, params

    def _values(self, params: Tensors, observed: Mapping[str, Any]) -> dict[str, Any]:
        parameters = {
            name: tf.convert_to_tensor(a)
            for name, a in params.items()
            if name in self._names
        }
        return {**self._local, **parameters, **observed}

    def _without_rows(
        self, joint: Any, rows: np.ndarray | None, params: Tensors
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return distributions and values of all variables, of some rows or of all."""
        observed = {
            name: values
            if rows is None or name not in self._rows
            else tf.gather(values, rows)
            for name, values in self._observed.items()
        }
        values = self._values(params, observed)
        return self._distributions(joint, values), values

    def log_lik(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return the log density of each row, (n,).

        Args:
            params: Values of the parameters.
            dataset: Rows of ``dataset``.

        Returns:
            Σ log p(y_i | θ) over the variables of ``rows``, for each row i.
        """
        if self.groups:
            return self.log_lik_of_rows(
                params, dataset, [group.by for group in self.groups]
            )
        return self._terms(params, dataset)

    def _terms(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        of_rows = {
            name: tf.cast(dataset[name], self._observed[name].dtype)
            for name in self._rows
        }
        if ROW in self.dataset:
            joint, row = self._joint, tf.convert_to_tensor(dataset[ROW])
            for name, values in of_rows.items():
                of_rows[name] = tf.tensor_scatter_nd_update(
                    self._observed[name], row[:, tf.newaxis], values
                )
        else:
            joint = self._of({name: dataset[name] for name in self._covariates})
        all_values = self._values(params, {**self._observed, **of_rows})
        distributions = self._distributions(joint, all_values)
        terms = [
            _by_row(name, distributions[name], all_values[name]) for name in self._rows
        ]
        total = tf.add_n(terms)
        return tf.gather(total, row) if ROW in self.dataset else total

    def log_prior(self, params: Tensors) -> tf.Tensor:
        """Return the log density of the parameters, and of observed variables without rows.

        Args:
            params: Values of the parameters.

        Returns:
            A scalar.
        """
        return self._prior(self._few, self._rows_of_prior, params)

    def _prior(self, joint: Any, rows: np.ndarray | None, params: Tensors) -> tf.Tensor:
        return tf.add_n(list(self._prior_terms(joint, rows, params).values()))

    def _prior_terms(
        self, joint: Any, rows: np.ndarray | None, params: Tensors
    ) -> dict[str, tf.Tensor]:
        distributions, values = self._without_rows(joint, rows, params)
        return {
            name: tf.reduce_sum(distributions[name].log_prob(values[name]))
            for name in self._names
            if name not in self._rows and name not in self._local
        }

    def _check(self) -> None:
        """Refuse rows that depend on each other, and a prior that depends on rows."""
        tried = refuse_dependent_rows(self, {name: name for name in self._rows})
        if self._few is not self._joint and depends_on_count(
            self.N,
            lambda rows: functools.partial(self._prior, self._of_rows(rows), rows),
            tried,
            "`joint`: the density of its parameters depends on the rows of `data`. Compute "
            "what it needs of all rows before, outside the function.",
        ):
            self._few, self._rows_of_prior = self._joint, None

    def _of_rows(self, rows: np.ndarray) -> Any:
        """Return the joint distribution of some rows, or that of all."""
        if len(rows) == self.N and np.array_equal(rows, np.arange(self.N)):
            return self._joint
        return self._of({n: tf.gather(a, rows) for n, a in self._covariates.items()})

    def prior_predictive(
        self, n: int, seed: int | None = None
    ) -> dict[str, np.ndarray]:
        """Return draws of all variables from the joint distribution.

        Args:
            n: Number of draws.
            seed: Seed of the random numbers, an integer; ``None`` draws one.

        Returns:
            An array ``(n, *shape)`` for each variable, the parameters and what was observed.
        """
        count = checks.whole_number("n", n, 1)
        return self._draw(as_seed(seed), count)

    def _observed_values(self) -> dict[str, tf.Tensor]:
        return self._observed

    def _replace(self, observed: Mapping[str, np.ndarray]) -> None:
        self._observed = self._observed | {
            name: _as_kind(name, values, self._observed[name].dtype)
            for name, values in observed.items()
        }
        self.dataset = self.dataset | {name: self._entry(name) for name in self._rows}


def _as_kind(name: str, values: np.ndarray, kind: tf.DType) -> tf.Tensor:
    """Return observed values in the dtype of their distribution, which must hold them."""
    if values.dtype.kind not in "iufb":
        raise TypeError(
            f"`observed[{name!r}]` must hold numbers; its dtype is {values.dtype}."
        )
    if kind.is_integer and not np.array_equal(
        values, values.astype(kind.as_numpy_dtype)
    ):
        raise ValueError(
            f"`observed[{name!r}]` must hold integers that {kind.name} can hold, the dtype of its "
            "distribution."
        )
    if kind.is_floating and values.dtype.kind == "f":
        values = as_floats(f"observed[{name!r}]", values, kind)
    return tf.constant(values, kind)


def _need_shape(name: str, observed: tuple[int, ...], drawn: tuple[int, ...]) -> None:
    """Refuse observed values that would be broadcast to pairs with those of the distribution.

    The distribution may have fewer axes, and axes of length 1: then values share its parameters.
    """
    try:
        fits = np.broadcast_shapes(observed, drawn) == observed
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"`observed[{name!r}]` has the shape {observed}, and a draw of {name!r} from `joint` "
            f"has {drawn}. Both must be the same."
        )


def _names(joint: Any) -> list[str]:
    """Return the names of the variables, in the order of the flattened structure."""
    kinds = joint.dtype
    if isinstance(kinds, Mapping):
        names = sorted(kinds)  # as tf.nest orders them
    elif hasattr(kinds, "_fields"):
        names = list(kinds._fields)
    else:
        names = [name for name, _ in joint.resolve_graph()]
    if len(tf.nest.flatten(kinds)) != len(names):
        raise ValueError(
            "`joint` holds joint distributions within it, which do not have rows."
        )
    return names


def _flat(distributions: Any) -> list[Any]:
    """Return distributions in the order of `_names`."""
    if isinstance(distributions, Mapping):
        return [distributions[name] for name in sorted(distributions)]
    return list(distributions)


def _need_names(names: list[str], observed: Mapping[str, Any], rows: Any) -> None:
    """Refuse names that the joint distribution, or `observed`, does not have."""
    for name in observed:
        if name not in names:
            raise ValueError(
                f"`observed`: `joint` has no variable {name!r}; it has {names}."
            )
    if isinstance(rows, str):
        raise TypeError(f"`rows` must be a list of names; write rows=[{rows!r}].")
    if not observed or (rows is not None and not len(rows)):
        raise ValueError(
            "`observed` and `rows` must name at least one variable of `joint`."
        )
    for name in rows or ():
        if name not in observed:
            raise ValueError(
                f"`rows`: {name!r} is not among what is `observed`, {list(observed)}."
            )


def _by_row(name: str, distribution: Any, value: tf.Tensor) -> tf.Tensor:
    """Return the log density of each row, summed over all axes of a row."""
    inner = of_one_row(distribution)
    log_prob = inner.log_prob(value)
    # A distribution without a batch has as many rows as there are values; else an axis of the event
    # counts them, and they come from one draw together.
    event = inner.event_shape.rank
    if event is None or value.shape.rank - event < 1 or log_prob.shape.rank < 1:
        kind = type(inner).__name__
        raise ValueError(
            dependent(
                name,
                f"{kind} has one density for all of them, of shape {inner.event_shape}",
            )
        )
    shape = value.shape[: value.shape.rank - event]
    if log_prob.shape != shape:  # values and parameters were broadcast to pairs
        raise ValueError(
            f"`rows`: {name!r} has values of shape {shape}, and densities of shape "
            f"{log_prob.shape}. Both must be the same."
        )
    return tf.reduce_sum(log_prob, axis=list(range(1, log_prob.shape.rank)))
