"""Models of NumPyro."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.data.minibatch import Tensors
from sgmcmc.neighbours.jax_functions import JaxFunction, in_precision, jax, jax_bijector
from sgmcmc.neighbours.models import (
    FEW,
    TracedModel,
    as_arrays,
    as_column,
    as_seed,
    dependent,
    size_of,
)
from sgmcmc.neighbours.plates import Plate, as_groups, check_plates, read_plates

_STARTS = 32
"""Draws of each prior whose median is where chains start."""


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
        >>> import numpyro  # doctest: +SKIP
        >>> import numpyro.distributions as dist  # doctest: +SKIP
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
        >>> model = sgmcmc.from_numpyro(regression, {"x": x, "y": y})  # doctest: +SKIP
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
        self._given, self.dtype = model, tf.as_dtype(dtype)
        self._fixed = dict(fixed or {})
        given = as_arrays("data", data)
        if not given:
            raise ValueError("`data` must hold at least one array with an axis of rows.")
        self.N = size_of(given, "data")
        self.dataset = {name: as_column(array, self.dtype) for name, array in given.items()}
        self._few = self._some(range(FEW))
        self._local: dict[str, np.ndarray] = {}
        self._axes: dict[str, int] = {}
        self._columns_of: dict[str, str] = {}
        self.bijectors: dict[str, Any] = {}
        self.params: dict[str, Any] = {}
        with in_precision(self.dtype == tf.float64):
            self._read()
        self._rows = [self._columns_of.get(name, "") for name in self._axes]
        self._rows = [name for name in self._rows if name]
        self._terms = JaxFunction(self._densities_of_rows)
        self._prior = JaxFunction(self._density_of_params)
        self._check_rows()
        last = self._some(range(self.N - FEW, self.N))
        self._check_prior(
            lambda params: self._prior(params, last),
            "`model`: the density of its parameters depends on the rows, or numpyro.factor "
            "adds a sum over them. Compute what it needs of all rows before, and pass it in "
            "`fixed`; give numpyro.factor one term for each row, in the plate of the rows.",
        )
        plates = read_plates(groups, self.params, self.bijectors, self.dataset)
        if plates:
            check_plates(self, plates)
            self._local = {name: self.params.pop(name) for plate in plates for name in plate.names}
            self.groups = tuple(as_groups(self, plate, self._local) for plate in plates)

    def _read(self) -> None:
        """Set starting values, bijectors, and which sites have rows."""
        median = _numpyro("infer.initialization").init_to_median(num_samples=_STARTS)
        rows = {name: jax().numpy.asarray(values) for name, values in self._few.items()}
        sites = self._first(median, rows)
        again = self._first(_numpyro("infer.initialization").init_to_uniform(), rows)
        fewer = jax().eval_shape(
            lambda rows: _shapes(self._first(median, rows)),
            {name: values[:-2] for name, values in rows.items()},
        )
        for name, site in sites.items():
            if site["type"] == "param":
                raise ValueError(f"`model`: {name!r} is a numpyro.param, which has no prior.")
            if site["type"] == "plate" and len(site["value"]) < site["args"][0]:
                raise ValueError(
                    f"`model`: the plate {name!r} draws a part of its rows. Leave `subsample_size` "
                    "out: the rows of a minibatch are all that the model is called with."
                )
            if site["type"] != "sample":
                continue
            if site["is_observed"]:
                self._read_observed(name, site, fewer[name])
                for column, values in rows.items():
                    if values is site["value"]:
                        self._columns_of[name] = column
            else:
                self._read_parameter(name, site, again[name], fewer[name])
        if not self.params:
            raise ValueError("`model` observes all of its variables: none is left to sample.")
        if not self._axes:
            raise ValueError("`model` has no observed variable (obs=) that grows with the rows.")

    def _read_observed(self, name: str, site: Any, fewer: Any) -> None:
        shape = np.shape(_density(site))
        grown = [i for i, (a, b) in enumerate(zip(shape, fewer[1].shape, strict=True)) if a != b]
        if len(grown) == 1:
            self._axes[name] = grown[0]
        elif grown or np.shape(site["value"]) != fewer[0].shape:
            kind = type(site["fn"]).__name__
            raise ValueError(
                dependent(name, f"{kind} has densities of shape {shape} for {FEW} rows")
            )

    def _read_parameter(self, name: str, site: Any, again: Any, fewer: Any) -> None:
        if site["fn"].is_discrete:
            raise ValueError(
                f"`model`: the variable {name!r} is discrete and not observed. Sum it out, as "
                "dist.MixtureSameFamily does."
            )
        start = np.asarray(site["value"], self.dtype.as_numpy_dtype)
        if start.shape != fewer[0].shape:
            raise ValueError(
                f"`model`: the variable {name!r} has a value for each row, or a shape that is "
                "computed of the rows. Integrate it out, or pass the numbers of groups in `fixed`."
            )
        bijector = _bijector(name, site, again, start)
        self.params[name] = start
        if bijector is not None:
            self.bijectors[name] = bijector

    def _first(self, start: Any, rows: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sites at starting values, for a few rows."""
        handlers = _numpyro("handlers")
        model = handlers.substitute(handlers.seed(self._given, 0), substitute_fn=start)
        return _trace(model, {**rows, **self._fixed})

    def _sites(self, params: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sites at values of the parameters, for these rows."""
        handlers = _numpyro("handlers")
        values = {name: jax().numpy.asarray(a) for name, a in {**self._local, **params}.items()}
        model = handlers.substitute(handlers.seed(self._given, 0), data=values)
        return _trace(model, {**columns, **self._fixed})

    def _densities_of_rows(self, params: Any, columns: Any) -> Any:
        """Return log densities of rows, (n,), in JAX."""
        sites, numpy = self._sites(params, columns), jax().numpy
        parts = []
        for name, axis in self._axes.items():
            by_row = numpy.moveaxis(_density(sites[name]), axis, 0)
            parts.append(numpy.sum(by_row.reshape(by_row.shape[0], -1), axis=1))
        return sum(parts[1:], parts[0])

    def _density_of_params(self, params: Any, columns: Any) -> Any:
        """Return the log density of all that has no rows, in JAX."""
        sites, numpy = self._sites(params, columns), jax().numpy
        counted = [
            site
            for name, site in sites.items()
            if site["type"] == "sample" and name not in self._axes and name not in self._local
        ]
        return sum(numpy.sum(_density(site)) for site in counted)

    def log_prior(self, params: Tensors) -> tf.Tensor:
        """Return the log density of the parameters, and of observed sites without rows.

        Args:
            params: Values of the parameters.

        Returns:
            A scalar.
        """
        return self._prior(dict(params), self._few)

    def effects_density(self, plate: Plate, effects: Tensors, params: Tensors) -> tf.Tensor:
        """Return the log density of some effects of a plate given the parameters, (g,)."""

        def of(params: Any, effects: Any) -> Any:
            sites = self._sites(params, self._few)
            return sum(
                _of_one(sites[name]["fn"], value.ndim - 1).log_prob(value)
                for name, value in effects.items()
            )

        return JaxFunction(of)(dict(params), {name: effects[name] for name in plate.names})

    def log_density_of(self, names: Sequence[str], params: Tensors) -> float:
        """Return the log density of some parameters given the others that they depend on."""
        sites = self._sites({name: np.asarray(a) for name, a in params.items()}, self._few)
        return float(sum(np.sum(_density(sites[name])) for name in names))

    def _some(self, rows: Sequence[int]) -> dict[str, np.ndarray]:
        """Return these rows, modulo the number of rows."""
        places = np.asarray(rows) % self.N
        return {name: np.asarray(values)[places] for name, values in self.dataset.items()}

    def prior_predictive(self, n: int, seed: int | None = None) -> dict[str, np.ndarray]:
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
            draw = _numpyro("infer").Predictive(self._given, num_samples=count)
            found = draw(random.PRNGKey(as_seed(seed)), **columns, **self._fixed)
        return {name: np.asarray(values) for name, values in found.items()}


def _numpyro(part: str) -> Any:
    """Return a module of NumPyro, or NumPyro itself."""
    jax()
    try:
        return importlib.import_module(f"numpyro.{part}".rstrip("."))
    except ImportError as error:
        raise ImportError("sgmcmc.from_numpyro needs NumPyro: pip install numpyro.") from error


def _trace(model: Callable[..., Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sites of a model by name, or explain why it failed."""
    try:
        return _numpyro("handlers").trace(model).get_trace(**keywords)
    except Exception as error:
        raise ValueError(
            f"`model` failed when it was tried with a few of the rows: {type(error).__name__}: "
            f"{error} It is called with `data` and `fixed` as keyword arguments, for some of the "
            "rows: plates of rows must be as long as the data, such as numpyro.plate('rows', "
            "len(y)), and numbers of groups go into `fixed`."
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
    found = site["fn"].log_prob(site["value"])
    return found if site["scale"] is None else site["scale"] * found


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


def _bijector(name: str, site: Any, again: Any, start: np.ndarray) -> Any:
    """Return the bijector of a parameter, or ``None`` if it has no constraint."""
    numpy, to = jax().numpy, _numpyro("distributions").biject_to
    first, other = (to(one["fn"].support) for one in (site, again))
    shape = first.inverse_shape(start.shape)
    at = numpy.linspace(-1.0, 1.0, int(np.prod(shape))).reshape(shape).astype(start.dtype)
    ends = [np.asarray(transform(at)) for transform in (first, other)]
    if not np.allclose(ends[0], ends[1], rtol=1e-5, atol=1e-6):
        raise ValueError(
            f"`model`: the support of {name!r} depends on another variable, so that no one "
            "transform fits. Write it as a function of a variable with a fixed support."
        )
    if shape == start.shape and np.array_equal(ends[0], at):
        return None
    return jax_bijector(
        name,
        first,
        first._inverse,
        lambda u: numpy.sum(first.log_abs_det_jacobian(u, first(u))),
        (shape, start.shape),
    )
