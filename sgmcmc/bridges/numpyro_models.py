"""Models of NumPyro."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.bridges.jax_functions import JaxFunction, in_precision, jax, jax_bijector
from sgmcmc.bridges.models import (
    Plate,
    TracedModel,
    as_arrays,
    as_column,
    as_seed,
    read_plates,
    refuse_long,
    size_of,
)
from sgmcmc.bridges.row_checks import (
    SETTINGS,
    dependent,
    depends_on_count,
    refuse_dependent_rows,
)
from sgmcmc.data.dataset import Tensors


def from_numpyro(
    model: Callable[..., Any],
    data: Mapping[str, Any],
    *,
    fixed: Mapping[str, Any] | None = None,
    groups: Mapping[str, Any] | None = None,
    dtype: Any = tf.float32,
) -> NumPyroModel:
    """Convert a model of NumPyro to a model for the samplers.

    The log-likelihood has a term for each row, the sum of log p(y_i | θ) over the observed sites
    that grow with the rows; the log prior is the log density of everything else. JAX traces the
    model for a minibatch of rows, and its operations become those of TensorFlow
    (:func:`sgmcmc.from_jax`). Constrained parameters get NumPyro's own transforms, ``biject_to``.

    Args:
        model: Function with ``numpyro.sample`` statements. It is called with ``data`` and ``fixed``
            as keyword arguments, for a minibatch with some of the rows, so plates of rows must be
            as long as the data: ``numpyro.plate("rows", len(y))``, without ``subsample_size``.
        data: Keyword arguments with an axis of rows, arrays with the same first axis: covariates
            and observed values.
        fixed: Other keyword arguments, which are the same for all rows, such as numbers of groups.
        groups: Local variables, whose first axis counts groups of rows, as names by the column of
            ``data`` with the group of each row, counted from 0: ``{"site": ["u"]}``. They become
            :class:`sgmcmc.Groups`, and rows must use ``u[site]``. With ``None`` all variables are
            coordinates of the chain.
        dtype: Dtype of parameters and of data that are floats; integers stay integers.

    Returns:
        The model, with ``dataset``, ``params``, ``log_lik``, ``log_prior``, ``bijectors``,
        ``sample`` and ``prior_predictive``.

    Raises:
        ImportError: NumPyro is not installed.
        ValueError: Rows depend on each other; the prior depends on the rows; a parameter is
            discrete, or has a value for each row; variables of ``groups`` are not group effects.
        TypeError: ``model`` is not a function, or ``data`` is not a dict.

    Example:
        >>> import numpy as np, numpyro, sgmcmc  # doctest: +SKIP
        >>> import numpyro.distributions as dist  # doctest: +SKIP
        >>> x = np.linspace(0, 1, 500)  # doctest: +SKIP
        >>> y = 1 + 2 * x + np.random.default_rng(1).normal(size=500)  # doctest: +SKIP
        >>> def regression(x, y=None):  # doctest: +SKIP
        ...     a = numpyro.sample("a", dist.Normal(0.0, 5.0))
        ...     b = numpyro.sample("b", dist.Normal(0.0, 5.0))
        ...     sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
        ...     with numpyro.plate("rows", len(x)):
        ...         numpyro.sample("y", dist.Normal(a + b * x, sigma), obs=y)
        >>> model = sgmcmc.from_numpyro(regression, {"x": x, "y": y})  # doctest: +SKIP
        >>> samples = model.sample(seed=1)  # doctest: +SKIP

    Source:
        p(θ, y) = p(θ) ∏ᵢ p(yᵢ | θ); Phan, Pradhan & Jankowiak, *Composable Effects for Flexible and
        Accelerated Probabilistic Programming in NumPyro*, 2019.
    """
    return NumPyroModel(model, data, fixed, groups, dtype)


class NumPyroModel(TracedModel):
    """A model of NumPyro, as :func:`sgmcmc.from_numpyro` returns it.

    Args:
        model: Function with ``numpyro.sample`` statements.
        data: Keyword arguments with an axis of rows.
        fixed: Other keyword arguments.
        groups: Local variables by the column with the group of each row.
        dtype: Dtype of parameters and of data that are floats.

    Attributes:
        dataset: ``data``, floats in ``dtype`` and integers as they are.
        params: Starting values of a chain: medians of draws of the priors.
        bijectors: Bijectors of the constrained parameters, by name.
        groups: ``Groups`` of the local variables, which are not in ``params``.

    Example:
        >>> import numpy as np, numpyro, sgmcmc  # doctest: +SKIP
        >>> def mean(y=None):  # doctest: +SKIP
        ...     mu = numpyro.sample("mu", numpyro.distributions.Normal(0.0, 5.0))
        ...     with numpyro.plate("rows", 500):
        ...         numpyro.sample("y", numpyro.distributions.Normal(mu, 1.0), obs=y)
        >>> y = np.random.default_rng(1).normal(size=500)  # doctest: +SKIP
        >>> model = sgmcmc.from_numpyro(mean, {"y": y})  # doctest: +SKIP
        >>> print(model.sample(seed=1).report)  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Callable[..., Any],
        data: Mapping[str, Any],
        fixed: Mapping[str, Any] | None = None,
        groups: Mapping[str, Any] | None = None,
        dtype: Any = tf.float32,
    ) -> None:
        _numpyro("")
        checks.function("model", model, "with numpyro.sample statements")
        self._model, self.dtype = model, tf.as_dtype(dtype)
        self._fixed = dict(fixed or {})
        for name, value in self._fixed.items():
            if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
                refuse_long(f"fixed[{name!r}]", value, self.dtype)
        arrays = as_arrays("data", data)
        if not arrays:
            raise ValueError(
                "`data` must hold at least one array with an axis of rows."
            )
        self.N = size_of(arrays, "data")
        self.dataset = {
            name: as_column(name, a, self.dtype) for name, a in arrays.items()
        }
        self._few = self._some(range(SETTINGS.prior_rows))
        self._count: int | None = None
        self._local = {}
        self._axes: dict[str, int] = {}
        self._columns_of: dict[str, str] = {}
        self.bijectors: dict[str, Any] = {}
        self.params: dict[str, Any] = {}
        with in_precision(self.dtype == tf.float64):
            self._read()
        self._rows = [self._columns_of.get(name, "") for name in self._axes]
        self._rows = [name for name in self._rows if name]
        self._terms = JaxFunction(self._densities_of_rows)
        tried = refuse_dependent_rows(self, {name: name for name in self._rows})
        self._refuse_overflow(tried)
        self._set_prior(tried)
        plates = read_plates(groups, self.params, self.bijectors, self.dataset)
        if plates:
            self._set_groups(plates)

    def _set_prior(self, tried: Sequence[Tensors]) -> None:
        """Set the log prior, made with as many rows as there are if it depends on their number."""
        trial = JaxFunction(
            lambda params, rows: sum(self._densities(params, rows).values())
        )

        def made_with(rows: np.ndarray) -> Callable[[Tensors], tf.Tensor]:
            columns = self._some(rows)
            return lambda params: trial(dict(params), columns)

        counts = depends_on_count(
            self.N,
            made_with,
            tried,
            "`model`: the density of its parameters depends on the rows, or numpyro.factor "
            "adds a sum over them. Compute what it needs of all rows before, and pass it in "
            "`fixed`; give numpyro.factor one term for each row, in the plate of the rows.",
        )
        self._count = self.N if counts else None
        self._prior = JaxFunction(lambda params: sum(self._densities(params).values()))

    def _read(self) -> None:
        """Set starting values, bijectors, and which sites have rows."""
        start = _numpyro("infer.initialization")
        median = start.init_to_median(num_samples=SETTINGS.prior_draws)
        uniform = start.init_to_uniform()
        columns = {
            name: jax().numpy.asarray(values) for name, values in self.dataset.items()
        }
        # Supports may depend on the number of rows, so they are those of the model with all rows.
        sites = self._first(median, columns)
        uniform_sites = self._first(uniform, columns)

        def shapes_of_rows(count: int) -> dict[str, Any]:
            return jax().eval_shape(
                lambda rows: _shapes(self._first(median, rows)),
                self._some(range(count)),
            )

        some = shapes_of_rows(SETTINGS.prior_rows)
        fewer = shapes_of_rows(SETTINGS.prior_rows - 2)
        for name, site in sites.items():
            if site["type"] == "param":
                raise ValueError(
                    f"`model`: {name!r} is a numpyro.param, which has no prior."
                )
            if site["type"] == "plate" and len(site["value"]) < site["args"][0]:
                raise ValueError(
                    f"`model`: the plate {name!r} draws a part of its rows. Leave `subsample_size` "
                    "out: the rows of a minibatch are all that the model is called with."
                )
            if site["type"] != "sample":
                continue
            shapes = (some[name], fewer[name])
            if site["is_observed"]:
                self._read_observed(name, site, shapes)
                for column, values in columns.items():
                    if values is site["value"]:
                        self._columns_of[name] = column
            else:
                self._read_parameter(name, site, uniform_sites[name], shapes)
        if not self.params:
            raise ValueError(
                "`model` observes all of its variables: none is left to sample."
            )
        if not self._axes:
            raise ValueError(
                "`model` has no observed variable (obs=) that grows with the rows."
            )

    def _read_observed(self, name: str, site: Any, shapes: Sequence[Any]) -> None:
        """Find the axis of the rows of an observed site, if it has one."""
        kind = type(site["fn"]).__name__
        (values, density), (fewer_values, fewer) = shapes
        lengths = list(zip(density.shape, fewer.shape, strict=True))
        axes = [axis for axis, (many, few) in enumerate(lengths) if many != few]
        if not axes and values.shape == fewer_values.shape:
            return
        count = SETTINGS.prior_rows
        if len(axes) != 1 or lengths[axes[0]] != (count, count - 2):
            reason = f"{kind} has densities of shape {density.shape} for {count} rows"
            raise ValueError(dependent(name, reason))
        self._axes[name] = axes[0]

    def _read_parameter(
        self, name: str, site: Any, second_site: Any, shapes: Sequence[Any]
    ) -> None:
        if site["fn"].is_discrete:
            raise ValueError(
                f"`model`: the variable {name!r} is discrete and not observed. Sum it out, as "
                "dist.MixtureSameFamily does."
            )
        start = np.asarray(site["value"], self.dtype.as_numpy_dtype)
        if start.shape != shapes[0][0].shape or start.shape != shapes[1][0].shape:
            # NumPyro's name for what `obs_mask` leaves out
            if name.endswith("_unobserved"):
                raise ValueError(
                    f"`model`: {name!r} has the values that `obs_mask` leaves out, one for each "
                    "row. Use numpyro.handlers.mask(mask=...) in its place, which leaves their "
                    "densities out."
                )
            raise ValueError(
                f"`model`: the variable {name!r} has a value for each row, or a shape that is "
                "computed of the rows. Integrate it out, or pass the numbers of groups in `fixed`."
            )
        bijector = _bijector(name, site, second_site, start)
        self.params[name] = start
        if bijector is not None:
            self.bijectors[name] = bijector

    def _first(self, start: Any, rows: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sites at starting values, for a few rows."""
        handlers = _numpyro("handlers")
        model = handlers.substitute(handlers.seed(self._model, 0), substitute_fn=start)
        return _trace(model, {**rows, **self._fixed})

    def _sites(
        self, params: Mapping[str, Any], columns: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the sites at values of the parameters, for these rows."""
        values = {
            name: jax().numpy.asarray(a)
            for name, a in {**self._local, **params}.items()
        }
        # Without a seed, as nothing is drawn: keys would be carried through loops.
        model = _numpyro("handlers").substitute(self._model, data=values)
        return _trace(model, {**columns, **self._fixed})

    def _densities_of_rows(self, params: Any, columns: Any) -> Any:
        """Return log densities of rows, (n,), in JAX."""
        sites, numpy = self._sites(params, columns), jax().numpy
        terms = []
        for name, axis in self._axes.items():
            by_row = numpy.moveaxis(_density(sites[name]), axis, 0)
            terms.append(numpy.sum(by_row.reshape(by_row.shape[0], -1), axis=1))
        return sum(terms[1:], terms[0])

    def _sites_without_rows(self, params: Any, columns: Any = None) -> dict[str, Any]:
        """Return the sites at values of the parameters, for rows whose values do not matter."""
        numpy = jax().numpy
        if columns is None:
            columns = self._few
            if self._count is not None:
                columns = {
                    name: numpy.broadcast_to(
                        values[:1], (self._count, *values.shape[1:])
                    )
                    for name, values in columns.items()
                }
        return self._sites(params, columns)

    def _densities(self, params: Any, columns: Any = None) -> dict[str, Any]:
        """Return the log density of all that has no rows, by site, in JAX."""
        return {
            name: jax().numpy.sum(_density(site))
            for name, site in self._sites_without_rows(params, columns).items()
            if site["type"] == "sample"
            and name not in self._axes
            and name not in self._local
        }

    def prior_terms(self, params: Tensors) -> dict[str, tf.Tensor]:
        """Return the log density of each variable without rows."""
        return JaxFunction(self._densities)(dict(params))

    def log_prior(self, params: Tensors) -> tf.Tensor:
        """Return the log density of the parameters, and of observed sites without rows.

        Args:
            params: Values of the parameters.

        Returns:
            A scalar.
        """
        return self._prior(dict(params))

    def effects_density(
        self, plate: Plate, effects: Tensors, params: Tensors
    ) -> tf.Tensor:
        """Return the log density of some effects of a plate given the parameters, (g,)."""

        def of(params: Any, effects: Any) -> Any:
            sites = self._sites_without_rows(params)
            return sum(
                _of_one(sites[name]["fn"], value.ndim - 1).log_prob(value)
                for name, value in effects.items()
            )

        return JaxFunction(of)(
            dict(params), {name: effects[name] for name in plate.names}
        )

    def _some(self, rows: Sequence[int] | np.ndarray) -> dict[str, np.ndarray]:
        """Return these rows, modulo the number of rows."""
        numbers = np.asarray(rows) % self.N
        return {
            name: np.asarray(values)[numbers] for name, values in self.dataset.items()
        }

    def prior_predictive(
        self, n: int, seed: int | None = None
    ) -> dict[str, np.ndarray]:
        """Return draws of all sites from the model, with ``None`` for observed values.

        Args:
            n: Number of draws.
            seed: Seed of the random numbers, an integer; ``None`` draws one.

        Returns:
            An array ``(n, *shape)`` for each site, the parameters and what was observed.

        Raises:
            ValueError: An observed variable is none of the arrays in ``data``.
        """
        count = checks.whole_number("n", n, 1)
        missing = set(self._axes) - set(self._columns_of)
        if missing:
            raise ValueError(
                f"`model`: {min(missing)!r} cannot be drawn, since its values are not one of the "
                f"arrays in `data`, {list(self.dataset)}."
            )
        numpy, random = jax().numpy, importlib.import_module("jax.random")
        with in_precision(self.dtype == tf.float64):
            columns = {
                name: None if name in self._rows else numpy.asarray(values)
                for name, values in self.dataset.items()
            }
            draw = _numpyro("infer").Predictive(self._model, num_samples=count)
            draws = draw(random.PRNGKey(as_seed(seed)), **columns, **self._fixed)
        return {name: np.asarray(values) for name, values in draws.items()}


def _numpyro(module: str) -> Any:
    jax()
    try:
        return importlib.import_module(f"numpyro.{module}".rstrip("."))
    except ImportError as error:
        raise ImportError(
            "sgmcmc.from_numpyro needs NumPyro: pip install numpyro."
        ) from error


def _trace(model: Callable[..., Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sites of a model by name, or explain why it failed."""
    try:
        return _numpyro("handlers").trace(model).get_trace(**keywords)
    except Exception as error:
        raise ValueError(
            f"`model` failed when it was tried: {type(error).__name__}: {error} It is called with "
            "`data` and `fixed` as keyword arguments, for some of the rows: plates of rows must be "
            "as long as the data, such as numpyro.plate('rows', len(y)), and numbers of groups go "
            "into `fixed`."
        ) from error


def _shapes(sites: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the variables, and their log densities."""
    return {
        name: (site["value"], _density(site))
        for name, site in sites.items()
        if site["type"] == "sample"
    }


def _density(site: Mapping[str, Any]) -> Any:
    """Return the log density of a site's value, with its scale."""
    log_prob = site["fn"].log_prob(site["value"])
    return log_prob if site["scale"] is None else site["scale"] * log_prob


def _of_one(distribution: Any, rank: int) -> Any:
    """Return the distribution of one group's effect, with the given number of axes.

    Raises:
        ValueError: The groups have no common one.
    """
    inner = distribution
    while type(inner).__name__ in ("ExpandedDistribution", "Independent"):
        if len(inner.batch_shape) + len(inner.event_shape) <= rank:
            break
        inner = inner.base_dist
    if inner.batch_shape or len(inner.event_shape) != rank:
        raise ValueError(
            f"{type(inner).__name__} is not one distribution in a plate: its shapes are "
            f"{inner.batch_shape} and {inner.event_shape}"
        )
    return inner


def _bijector(name: str, site: Any, second_site: Any, start: np.ndarray) -> Any:
    numpy, biject_to = jax().numpy, _numpyro("distributions").biject_to
    first = biject_to(site["fn"].support)
    second = biject_to(second_site["fn"].support)
    shape = first.inverse_shape(start.shape)
    u = numpy.linspace(-1.0, 1.0, int(np.prod(shape)))
    u = u.reshape(shape).astype(start.dtype)
    by_first, by_second = (np.asarray(transform(u)) for transform in (first, second))
    if not np.allclose(by_first, by_second, rtol=1e-5, atol=1e-6):
        raise ValueError(
            f"`model`: the support of {name!r} depends on another variable, so that no one "
            "transform fits. Write it as a function of a variable with a fixed support."
        )
    if shape == start.shape and np.array_equal(by_first, u):
        return None
    return jax_bijector(
        name,
        first,
        first._inverse,
        lambda u: numpy.sum(first.log_abs_det_jacobian(u, first(u))),
        (shape, start.shape),
    )
