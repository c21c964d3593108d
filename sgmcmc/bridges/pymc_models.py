"""Models of PyMC."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.bridges.jax_functions import JaxFunction, jax, jax_bijector
from sgmcmc.bridges.models import (
    Plate,
    TracedModel,
    as_column,
    as_seed,
    read_plates,
    size_of,
)
from sgmcmc.bridges.row_checks import dependent, refuse_dependent_rows
from sgmcmc.data.dataset import Tensors
from sgmcmc.data.entries import refuse_nan

_OLDEST = 6  # oldest major version of PyMC that is read


def from_pymc(
    model: Any,
    rows: Sequence[str] | None = None,
    *,
    groups: Mapping[str, Any] | None = None,
    dtype: Any = tf.float32,
) -> PyMCModel:
    """Convert a model of PyMC to a model for the samplers.

    The log-likelihood has a term for each row, the sum of log p(y_i | θ) over the observed
    variables named in ``rows``; the log prior is the log density of everything else, potentials
    included. PyTensor compiles both for JAX, and their operations become those of TensorFlow
    (:func:`sgmcmc.from_jax`). Constrained parameters get PyMC's own transforms.

    Columns are the observed values, and all ``pm.Data`` and constant arrays of their densities
    whose first axis is as long: a minibatch has its own rows of them.

    Args:
        model: A ``pymc.Model``, whose observed variables hold data.
        rows: Names of the observed variables whose first axis counts the rows, which are
            independent of each other given the parameters; ``None`` for all that are observed.
        groups: Local variables, whose first axis counts groups of rows, as names by the ``pm.Data``
            with the group of each row, counted from 0: ``{"site": ["u"]}``. They become
            :class:`sgmcmc.Groups`, and rows must use ``u[site]``. With ``None`` all variables are
            coordinates of the chain.
        dtype: Dtype of parameters and of columns that are floats; integers stay integers.

    Returns:
        The model, with ``dataset``, ``params``, ``log_lik``, ``log_prior``, ``bijectors``,
        ``sample`` and ``prior_predictive``.

    Raises:
        ImportError: PyMC or JAX is not installed.
        ValueError: Rows depend on each other; the prior depends on the rows; a parameter is
            discrete, or has a value for each row; variables of ``groups`` are not group effects.
        TypeError: ``model`` is not a PyMC model.

    Example:
        >>> import numpy as np, pymc as pm, sgmcmc  # doctest: +SKIP
        >>> x = np.linspace(0, 1, 500)  # doctest: +SKIP
        >>> y = 1 + 2 * x + np.random.default_rng(1).normal(size=500)  # doctest: +SKIP
        >>> with pm.Model() as regression:  # doctest: +SKIP
        ...     a = pm.Normal("a", 0, 5)
        ...     b = pm.Normal("b", 0, 5)
        ...     sigma = pm.HalfNormal("sigma", 2)
        ...     pm.Normal("y", a + b * pm.Data("x", x), sigma, observed=y)
        >>> model = sgmcmc.from_pymc(regression)  # doctest: +SKIP
        >>> samples = model.sample(seed=1)  # doctest: +SKIP

    Source:
        p(θ, y) = p(θ) ∏ᵢ p(yᵢ | θ); Abril-Pla et al., *PyMC: a modern, and comprehensive
        probabilistic programming framework in Python*, PeerJ Computer Science 9, 2023.
    """
    return PyMCModel(model, rows, groups, dtype)


class PyMCModel(TracedModel):
    """A model of PyMC, as :func:`sgmcmc.from_pymc` returns it.

    Args:
        model: A ``pymc.Model``.
        rows: Observed variables whose first axis counts the rows.
        groups: Local variables by the column with the group of each row.
        dtype: Dtype of parameters and of columns that are floats.

    Attributes:
        dataset: Observed variables with rows, by their names, and covariates: by the names of
            ``pm.Data``, and ``"constant_1"``, ... for arrays without a name.
        params: Starting values of a chain: PyMC's, its ``initial_point``.
        bijectors: Bijectors of the constrained parameters, by name.
        groups: ``Groups`` of the local variables, which are not in ``params``.

    Example:
        >>> import numpy as np, pymc as pm, sgmcmc  # doctest: +SKIP
        >>> with pm.Model() as mean:  # doctest: +SKIP
        ...     mu = pm.Normal("mu", 0, 5)
        ...     pm.Normal("y", mu, 1, observed=np.random.default_rng(1).normal(size=500))
        >>> model = sgmcmc.from_pymc(mean)  # doctest: +SKIP
        >>> print(model.sample(seed=1).report)  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Any,
        rows: Sequence[str] | None = None,
        groups: Mapping[str, Any] | None = None,
        dtype: Any = tf.float32,
    ) -> None:
        _pymc()
        if not hasattr(model, "rvs_to_values"):
            raise TypeError(
                f"`model` must be a pymc.Model; it is a {type(model).__name__}."
            )
        self._model, self.dtype = model, tf.as_dtype(dtype)
        self._rows = _observed_rows(model, rows)
        # Densities are those of the variables themselves, whatever PyMC transforms them to.
        self._values = {v.name: v.type(name=v.name) for v in model.free_RVs}
        for name, value in self._values.items():
            if value.dtype.startswith(("int", "uint", "bool")):
                raise ValueError(
                    f"`model`: the variable {name!r} is discrete and not observed. Sum it out, as "
                    "pm.Mixture does, or with pymc_extras.marginalize."
                )
        if not self._values:
            raise ValueError(
                "`model` observes all of its variables: none is left to sample."
            )
        self.params: dict[str, Any] = {}
        self.bijectors: dict[str, Any] = {}
        self._start()
        self._local = {}
        self._read_rows()
        self._prior = JaxFunction(_Graph(self._values, self._prior_graph()))
        self._check_parameters()
        plates = read_plates(groups, self.params, self.bijectors, self.dataset)
        if plates:
            self._effects = {plate: self._effects_of(plate) for plate in plates}
            self._set_groups(plates)
            self._prior = JaxFunction(_Graph(self._values, self._prior_graph()))

    def _check_parameters(self) -> None:
        """Refuse rows that depend on each other, and parameters with a value for each row."""
        try:
            self._refuse_overflow(
                refuse_dependent_rows(self, {name: name for name in self._rows})
            )
        except Exception as error:
            for name, start in self.params.items():
                if start.ndim and len(start) == self.N:
                    raise ValueError(
                        f"`model`: the variable {name!r} has a value for each row, which a "
                        "minibatch does not look up. Integrate it out, or name its groups in "
                        "`groups`."
                    ) from error
            if str(error).startswith("`"):
                raise
            raise ValueError(
                "`model`: the log density of a part of the rows cannot be computed: "
                f"{type(error).__name__}: {error} All arrays with a value for each row must have "
                "the rows as their first axis, and shapes must follow from them."
            ) from error

    def _start(self) -> None:
        """Set starting values, and bijectors of constrained parameters."""
        point = self._model.initial_point()
        for variable in self._model.free_RVs:
            name, transform = variable.name, self._model.rvs_to_transforms[variable]
            u = self._model.rvs_to_values[variable]
            start = point[u.name]
            if transform is not None:
                inputs, theta = variable.owner.inputs, self._values[name]
                graphs = [
                    ({"u": u}, transform.backward(u, *inputs)),
                    ({"theta": theta}, transform.forward(theta, *inputs)),
                    ({"u": u}, transform.log_jac_det(u, *inputs).sum()),
                ]
                if set(_ancestors([graph for _, graph in graphs])) & set(
                    self._model.basic_RVs
                ):
                    raise ValueError(
                        f"`model`: the support of {name!r} depends on another variable, so that no "
                        "one transform fits. Write it as a function of a variable with a fixed "
                        "support."
                    )
                forward, inverse, log_det = (
                    _Graph(inputs_of, graph) for inputs_of, graph in graphs
                )
                free, start = start, graphs[0][1].eval({u: start})
                shapes = np.shape(free), np.shape(start)
                self.bijectors[name] = jax_bijector(
                    name, forward, inverse, log_det, shapes
                )
            self.params[name] = np.asarray(start, self.dtype.as_numpy_dtype)

    def _read_rows(self) -> None:
        """Set the columns, and the log-likelihood as a function of them."""
        observed = [v for v in self._model.observed_RVs if v.name in self._rows]
        values = {v.name: self._model.rvs_to_values[v] for v in observed}
        for name, value in values.items():
            if any(
                "Random" in type(leaf.type).__name__ for leaf in _ancestors([value])
            ):
                raise ValueError(
                    f"`model`: the observed values of {name!r} are drawn at random, as by "
                    "pm.Minibatch. Observe all rows: minibatches are drawn for you."
                )
        arrays = {name: _array_of(value) for name, value in values.items()}
        self.N = size_of(arrays, "rows")
        columns = {name: _of_any_length(value, name) for name, value in values.items()}
        replaced: dict[Any, Any] = {}

        def by_rows(outputs: Sequence[Any]) -> dict[Any, Any]:
            """Return inputs in the place of all data that have a value for each row."""
            for leaf in _ancestors(outputs):
                array = _array_of(leaf) if leaf.owner is None else np.zeros(())
                if (
                    array.ndim
                    and len(array) == self.N > 1
                    and leaf not in inputs | set(replaced)
                ):
                    shared = hasattr(leaf, "get_value")
                    name = leaf.name if shared else f"constant_{len(replaced) + 1}"
                    arrays[name] = array
                    columns[name] = replaced[leaf] = _of_any_length(leaf, name)
            return replaced

        inputs = {*self._values.values(), *columns.values()}
        by_rows(observed)
        densities = []
        for v in observed:
            observed_with = {w: columns[w.name] for w in observed if w is not v}
            (rebuilt,) = _rebuilt([v], {**replaced, **observed_with})
            value = columns[v.name]
            density = self._density(rebuilt, value)
            # Densities may hold data that distributions do not, and lengths of all rows.
            densities += _rebuilt(
                [density], by_rows([density]), (self.N, value.shape[0])
            )
        for name, density in zip(values, densities, strict=True):
            if density.type.ndim == 0:
                raise ValueError(
                    dependent(name, "its distribution has one density for all rows")
                )
        for name, array in arrays.items():
            refuse_nan(name, array)
        self.dataset = {
            name: as_column(name, a, self.dtype) for name, a in arrays.items()
        }
        self._columns_of = {name: name for name in self._rows}
        terms = sum(
            density.reshape((density.shape[0], -1)).sum(1) for density in densities
        )
        self._terms = JaxFunction(_Graph({**self._values, **columns}, terms))
        self._replaced = {*replaced, *(self._model.rvs_to_values[v] for v in observed)}

    def _density(self, variable: Any, value: Any) -> Any:
        """Return the log density of a variable at a value with another number of rows."""
        axes = variable.type.ndim - variable.owner.op.ndim_supp
        resized = _pymc("distributions.shape_utils").change_dist_size(
            variable, [value.shape[axis] for axis in range(axes)]
        )
        before = set(_ancestors([resized])) - {variable}
        values = {
            v: its for v, its in self._values_of_variables().items() if v in before
        }
        return _pymc("logprob.basic").conditional_logp({resized: value, **values})[
            value
        ]

    def _values_of_variables(self) -> dict[Any, Any]:
        """Return the values of all variables: inputs of those that are free, or data."""
        free = {v: self._values[v.name] for v in self._model.free_RVs}
        return {
            **free,
            **{v: self._model.rvs_to_values[v] for v in self._model.observed_RVs},
        }

    def _prior_graphs(self) -> dict[str, Any]:
        """Return the log densities of all that has no rows, by name, in PyTensor."""
        with_rows, values = {*self._rows, *self._local}, self._values_of_variables()
        log_probs = _pymc("logprob.basic").conditional_logp(values)
        terms = {
            v.name: log_probs[u].sum()
            for v, u in values.items()
            if v.name not in with_rows
        }
        potentials = _pymc("logprob.utils").replace_rvs_by_values(
            self._model.potentials, rvs_to_values=values
        )
        named = zip(self._model.potentials, potentials, strict=True)
        return terms | {potential.name: term.sum() for potential, term in named}

    def _prior_graph(self) -> Any:
        """Return the log density of all that has no rows, in PyTensor."""
        named = self._prior_graphs()
        terms = list(named.values())
        potentials = [named[potential.name] for potential in self._model.potentials]
        used = set(_ancestors(terms))
        for name in self._local:
            if self._values[name] in used:
                raise ValueError(
                    f"`groups`: {name!r} is used by a pm.Potential or by another variable without "
                    "rows, so that its values do not go with groups of rows alone."
                )
        leaves = [leaf for leaf in _ancestors(potentials) if leaf.owner is None]
        of_rows = any(_array_of(leaf).shape[:1] == (self.N,) for leaf in leaves)
        if self._replaced & used or (self.N > 1 and of_rows):
            raise ValueError(
                "`model`: the density of its parameters, or a pm.Potential, depends on the rows. "
                "Compute what it needs of all rows before; give each row its own term, by "
                "pm.CustomDist with observed values."
            )
        return sum(terms)

    def log_prior(self, params: Tensors) -> tf.Tensor:
        """Return the log density of the parameters, and of observed variables without rows.

        Args:
            params: Values of the parameters.

        Returns:
            A scalar.
        """
        return self._prior({**self._local, **params})

    def _effects_of(self, plate: Plate) -> JaxFunction:
        """Return the log density of some effects of a plate, in the place of those of all groups.

        Raises:
            ValueError: The groups have no common distribution.
        """
        values = {name: self._values[name] for name in plate.names}
        new = {
            name: v.type.clone(shape=(None, *v.type.shape[1:]))(name)
            for name, v in values.items()
        }
        variables = {v.name: v for v in self._model.free_RVs}
        densities = [self._density(variables[name], new[name]) for name in plate.names]
        total = sum(
            density.reshape((density.shape[0], -1)).sum(1) for density in densities
        )
        return JaxFunction(_Graph({**self._values, **new}, total))

    def effects_density(
        self, plate: Plate, effects: Tensors, params: Tensors
    ) -> tf.Tensor:
        """Return the log density of some effects of a plate given the parameters, (g,)."""
        return self._effects[plate]({**self._local, **params, **effects})

    def prior_terms(self, params: Tensors) -> dict[str, tf.Tensor]:
        """Return the log density of each variable without rows."""
        named = self._prior_graphs()
        graph = _Graph(self._values, list(named.values()))
        return dict(zip(named, JaxFunction(graph)(dict(params)), strict=True))

    def prior_predictive(
        self, n: int, seed: int | None = None
    ) -> dict[str, np.ndarray]:
        """Return draws of all variables, by ``pymc.sample_prior_predictive``.

        Args:
            n: Number of draws.
            seed: Seed of the random numbers, an integer; ``None`` draws one.

        Returns:
            An array ``(n, *shape)`` for each variable, the parameters and what was observed.
        """
        count = checks.whole_number("n", n, 1)
        names = [v.name for v in self._model.basic_RVs]
        draw = _pymc("sampling.forward").sample_prior_predictive
        draws = draw(
            draws=count,
            model=self._model,
            var_names=names,
            random_seed=as_seed(seed),
            return_inferencedata=False,
        )
        return {name: np.asarray(values) for name, values in draws.items()}


class _Graph:
    """A graph of PyTensor as a function of JAX.

    Args:
        inputs: Its inputs by name.
        output: Its output, or a list of outputs.
    """

    def __init__(self, inputs: Mapping[str, Any], output: Any) -> None:
        self._inputs, self._output = dict(inputs), output
        self._function: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_function": None}

    def __call__(self, *inputs: Any) -> Any:
        """Return the output of dicts of inputs, or of inputs in their order."""
        several = isinstance(self._output, list)
        if self._function is None:
            make, outputs = _pymc("sampling.jax").get_jaxified_graph, self._output
            with (
                jax().ensure_compile_time_eval()
            ):  # so that its constants belong to no trace
                self._function = make(
                    inputs=list(self._inputs.values()),
                    outputs=outputs if several else [outputs],
                )
        if isinstance(inputs[0], Mapping):
            named = {name: value for values in inputs for name, value in values.items()}
            inputs = tuple(named[name] for name in self._inputs)
        outputs = list(self._function(*inputs))
        return outputs if several else outputs[0]


def _pymc(module: str = "") -> Any:
    jax()
    try:
        version = importlib.import_module("pymc").__version__
        if int(version.split(".")[0]) < _OLDEST:
            raise ImportError(
                f"sgmcmc.from_pymc needs PyMC {_OLDEST} or newer; this is {version}: "
                f"pip install 'pymc>={_OLDEST}'."
            )
        return importlib.import_module(f"pymc.{module}".rstrip("."))
    except ModuleNotFoundError as error:
        raise ImportError(
            f"sgmcmc.from_pymc needs PyMC: pip install 'pymc>={_OLDEST}'."
        ) from error


def _observed_rows(model: Any, rows: Sequence[str] | None) -> list[str]:
    """Return the names of the observed variables with rows, in the order of the model."""
    names = [variable.name for variable in model.observed_RVs]
    free = {variable.name for variable in model.free_RVs}
    for name in names:
        stem = name.removesuffix("_observed")
        if stem != name and f"{stem}_unobserved" in free:
            raise ValueError(
                f"`model`: the observed values of {stem!r} have missing ones, which PyMC makes "
                f"parameters, {stem}_unobserved. Leave those rows out, of covariates too: given "
                "the parameters they say nothing."
            )
    if isinstance(rows, str):
        raise TypeError(f"`rows` must be a list of names; write rows=[{rows!r}].")
    if not names or (rows is not None and not len(rows)):
        raise ValueError(
            "`model` must have an observed variable, and `rows` must name one."
        )
    for name in rows or ():
        if name not in names:
            raise ValueError(
                f"`rows`: {name!r} is not among what is observed, {names}."
            )
    return [name for name in names if rows is None or name in rows]


def _ancestors(outputs: Sequence[Any]) -> list[Any]:
    return list(importlib.import_module("pytensor.graph.traversal").ancestors(outputs))


def _rebuilt(
    outputs: Sequence[Any],
    replaced: Mapping[Any, Any],
    rows: tuple[int, Any] | None = None,
) -> list[Any]:
    """Return a graph with other inputs, whose shapes need not be those that were there.

    PyTensor's own replacement keeps the shapes, and would refuse another number of rows.

    Args:
        outputs: Outputs of the graph.
        replaced: Other variables in the place of variables.
        rows: Number of rows that shapes within the graph insist on, and what is in its place.
    """
    new = dict(replaced)
    composed = importlib.import_module("pytensor.compile.builders").OpFromGraph
    for node in importlib.import_module("pytensor.graph.traversal").io_toposort(
        [], outputs
    ):
        inputs = [new.get(variable, variable) for variable in node.inputs]
        if rows is not None:
            inputs = _with_rows(node, inputs, *rows)
        if any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
            if isinstance(node.op, composed) and not hasattr(node.op, "ndim_supp"):
                # Such a node insists on its shapes; what it is composed of does not.
                inside = dict(zip(node.op.inner_inputs, inputs, strict=True))
                outputs_of_node = _rebuilt(node.op.inner_outputs, inside, rows)
            else:
                outputs_of_node = node.op.make_node(*inputs).outputs
            new = {**dict(zip(node.outputs, outputs_of_node, strict=True)), **new}
    return [new.get(variable, variable) for variable in outputs]


def _with_rows(node: Any, inputs: list[Any], size: int, rows: Any) -> list[Any]:
    """Return the inputs of a node, in which lengths of all rows are those of a part."""
    kind = type(node.op).__name__
    if kind == "SpecifyShape":  # a length need not be specified
        specified = [
            None if _is_length(variable, size) else variable
            for variable in node.inputs[1:]
        ]
        return inputs if None not in specified else [inputs[0], *specified]
    if kind == "Alloc":
        return [
            inputs[0],
            *[
                rows if _is_length(variable, size) else variable
                for variable in inputs[1:]
            ],
        ]
    if kind == "Reshape" and hasattr(node.inputs[1], "data"):
        lengths = [
            rows if length == size else length
            for length in node.inputs[1].data.tolist()
        ]
        if rows in lengths:
            return [
                inputs[0],
                importlib.import_module("pytensor.tensor").stack(lengths),
            ]
    return inputs


def _is_length(variable: Any, size: int) -> bool:
    data = getattr(variable, "data", None)
    return data is not None and np.ndim(data) == 0 and size > 1 and int(data) == size


def _array_of(variable: Any) -> np.ndarray:
    """Return the value of a constant or of data; that of an input without one has no axes."""
    if hasattr(variable, "data"):
        return np.asarray(variable.data)
    if hasattr(variable, "get_value"):
        return np.asarray(variable.get_value())
    return np.zeros(()) if variable.owner is None else np.asarray(variable.eval())


def _of_any_length(variable: Any, name: str) -> Any:
    """Return a new input in the place of a variable, with a first axis of any length."""
    return variable.type.clone(shape=(None, *variable.type.shape[1:]))(name)
