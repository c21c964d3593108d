"""The target of a chain: the log posterior, estimated from a minibatch, and its gradient."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import tensorflow as tf

from sgmcmc.data.dataset import Minibatch, Tensors
from sgmcmc.data.sparse import over_rows
from sgmcmc.graphs.tracing import spec_of, trace
from sgmcmc.model.geometry import Preconditioner, Space
from sgmcmc.model.layout import is_long

LogLik = Callable[[Tensors, Tensors], tf.Tensor]
LogPrior = Callable[[Tensors], tf.Tensor]


class Target:
    """The log posterior in the coordinates of the chain.

    With z the flat position and θ = f(z) the user's parameters, the estimate from a minibatch S
    is log p(θ) + Σ_{i∈S} w_i log p(x_i | θ) + log |det f'(z)|, with w_i = N/n if rows are drawn
    uniformly.

    Args:
        log_lik: User's log-likelihood, summed over the observations that it receives, or its terms,
            one for each of them.
        log_prior: User's log-prior, or ``None`` for a flat one.
        space: Space of the parameters.
        dtype: Floating point type of everything.
    """

    _writes_gradient = True

    def __init__(
        self, log_lik: LogLik, log_prior: LogPrior | None, space: Space, dtype: tf.DType
    ) -> None:
        self.log_lik = log_lik
        self.log_prior = log_prior
        self.space = space
        self.dtype = dtype

    def preconditioned(self, preconditioner: Preconditioner | None) -> Target:
        """Return the same target in the coordinates of another preconditioner."""
        space = self.space.preconditioned(preconditioner)
        return Target(self.log_lik, self.log_prior, space, self.dtype)

    def nearer(self) -> Target:
        """Return the same target with limits that are nearer, ``Geometry.limit``."""
        return Target(self.log_lik, self.log_prior, self.space.nearer(), self.dtype)

    def concatenated(self) -> Target:
        """Return the same target with gradients that are concatenated, not written part by part.

        ``tf.vectorized_map`` needs that. So does a caller that uses one part: XLA drops the others.
        Short ones are, so that the target stays this one, with what was traced of it.
        """
        if not is_long(self.size, self.dtype):
            return self
        target = copy.copy(self)
        target.__dict__.pop("shared", None)
        target._writes_gradient = False
        return target

    @cached_property
    def shared(self) -> Target:
        """The same target for graphs that share what is traced of it."""
        return _TracedOnce(self)

    def __getstate__(self) -> dict[str, Any]:
        # A worker traces its own graphs.
        return {
            name: value for name, value in self.__dict__.items() if name != "shared"
        }

    @property
    def size(self) -> int:
        """The length of the flat position."""
        return self.space.layout.size

    @property
    def row_terms(self) -> int:
        """The number of terms of the user's log-likelihood in that of a row."""
        return getattr(self.log_lik, "row_terms", 1)

    def log_post(self, position: tf.Tensor, minibatch: Minibatch) -> tf.Tensor:
        """Return the estimate of the log posterior."""
        params = self.space.constrain(position)
        value = self._data_part(params, minibatch)
        if self.log_prior is not None:
            value += self.log_prior(dict(params))
        return self.with_geometry(value, position)

    def with_geometry(self, value: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
        """Return log-likelihood and log-prior with the terms that geometries bring along."""
        u = self.space.coordinates(position)
        for term in [*self.space.log_jacobian(u), *self.space.log_prior(position)]:
            value += term
        return value

    def gradient(
        self, position: tf.Tensor, minibatch: Minibatch, with_prior: bool = True
    ) -> tf.Tensor:
        """Return the gradient of the estimate of the log posterior, flat.

        It is what each parameter's geometry passes to the dynamics, ``Geometry.slope``.

        Args:
            position: Position, flat.
            minibatch: Observations and their weights.
            with_prior: Whether to include the prior and the Jacobian.
        """
        return self._gradient(position, minibatch, with_prior)

    def _gradient(
        self, position: tf.Tensor, minibatch: Minibatch, with_prior: bool = True
    ) -> tf.Tensor:
        if not isinstance(minibatch.weights, float):
            params = self.space.constrain(position)
            log_lik = self.log_lik(params, dict(minibatch.columns))
            if getattr(log_lik, "shape", tf.TensorShape([])).rank == 0:  # a sum
                slope = self._weighted_rows(position, minibatch)
                return slope + self.prior_gradient(position) if with_prior else slope

        def value(params: Tensors, u: Tensors) -> tf.Tensor:
            data_part = self._data_part(params, minibatch)
            return self._with_prior(data_part, params, u) if with_prior else data_part

        return self._slope(position, value)

    def once(self, key: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the function of tensors at these; a shared target traces it only once.

        Args:
            key: Name of the function, and what it depends on besides the target and the tensors.
            function: Function.
            arguments: Nested tensors.
        """
        return function(*arguments)

    def prior_value(self, params: Tensors, u: Tensors) -> tf.Tensor:
        """Return log-prior and log-Jacobian alone, of the parameters and their coordinates."""
        return self._with_prior(tf.zeros([], self.dtype), params, u)

    def prior_gradient(self, position: tf.Tensor) -> tf.Tensor:
        """Return the gradient of log-prior and Jacobian alone, flat."""
        return self._slope(position, self.prior_value)

    def term_gradients(self, position: tf.Tensor, columns: Tensors) -> tf.Tensor:
        """Return the gradient of each observation's own term, (n, d)."""
        concatenated = self.concatenated()
        return over_rows(
            lambda row: concatenated._gradient(
                position, Minibatch(row), with_prior=False
            ),
            columns,
            self.dtype,
        )

    def _weighted_rows(self, position: tf.Tensor, minibatch: Minibatch) -> tf.Tensor:
        """Return the weighted sum of gradients that are computed row by row, flat.

        A gradient through the rows one by one would make XLA treat the data as constants, and
        compile the chain again for each block.
        """
        _, points = self.space.differentiated(position)
        if self.space.limits(points) is not None:
            terms = self.term_gradients(position, minibatch.columns)
            return tf.linalg.matvec(terms, minibatch.weights, transpose_a=True)

        def of_row(row: Tensors) -> Tensors:
            return self._at_points(points, lambda params: self.log_lik(params, row))

        rows = over_rows(of_row, minibatch.columns, dict.fromkeys(points, self.dtype))
        # What a geometry makes of gradients is linear in them: once, of their sum, will do.
        sums = {name: tf.tensordot(minibatch.weights, rows[name], 1) for name in points}
        return self.space.slope(
            points, sums, onto=position if self._writes_gradient else None
        )

    def lookup_gradients(
        self, position: tf.Tensor, columns: Tensors, lookups: Mapping[str, str]
    ) -> tf.Tensor:
        """Return the gradient of each observation's own term at the rows that it looks up, (n, k).

        The user's ``log_lik`` is handed these rows as the parameters, one for each observation, and
        columns that number them in order.

        Args:
            position: Position, flat.
            columns: Observations.
            lookups: Column that numbers the row, for each parameter.
        """
        params = self.space.constrain(position)
        rows = {
            name: tf.gather(value, tf.cast(columns[lookups[name]], tf.int32))
            for name, value in params.items()
        }
        n = next(iter(rows.values())).shape[0]
        in_order = {
            name: tf.cast(tf.range(n), columns[name].dtype) for name in lookups.values()
        }
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(list(rows.values()))
            value = tf.reduce_sum(self.log_lik(dict(rows), {**columns, **in_order}))
        gradients = tape.gradient(
            value,
            list(rows.values()),
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        return tf.concat(
            [
                tf.reshape(tf.convert_to_tensor(gradient), [n, -1])
                for gradient in gradients
            ],
            1,
        )

    def terms(self, params: Tensors, columns: Tensors) -> tf.Tensor:
        """Return the log-likelihood's terms, (n,), row by row if ``log_lik`` gives their sum."""
        return terms(self.log_lik, params, columns)

    def _data_part(self, params: Tensors, minibatch: Minibatch) -> tf.Tensor:
        """Return Σ w_i log p(x_i | θ)."""
        weights = minibatch.weights
        if not isinstance(weights, float):
            return tf.reduce_sum(weights * self.terms(params, minibatch.columns))
        value = self.log_lik(dict(params), dict(minibatch.columns))
        if getattr(value, "shape", tf.TensorShape([])).rank == 1:
            value = tf.reduce_sum(value)
        return value if weights == 1.0 else weights * value

    def _with_prior(self, value: tf.Tensor, params: Tensors, u: Tensors) -> tf.Tensor:
        if self.log_prior is not None:
            value += self.log_prior(dict(params))
        for term in self.space.log_jacobian(u):
            value += term
        return value

    def _slope(
        self, position: tf.Tensor, value_of: Callable[[Tensors, Tensors], tf.Tensor]
    ) -> tf.Tensor:
        """Return the gradient of a function of θ and u, as the dynamics are handed it."""
        u, points = self.space.differentiated(position)
        onto = position if self._writes_gradient else None

        def gradients(points: Tensors) -> Tensors:
            return self._at_points(points, lambda params: value_of(params, u))

        limits = self.space.limits(points)
        if limits is None:
            return self.space.slope(points, gradients(points), onto=onto)
        return self.space.slope(
            points, gradients(points), limits, gradients(limits), onto
        )

    def _at_points(
        self, points: Tensors, value_of: Callable[[Tensors], tf.Tensor]
    ) -> Tensors:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(list(points.values()))
            value = value_of(self.space.of_points(points))
        # A parameter may occur in the prior alone; that each occurs somewhere was checked before.
        gradients = tape.gradient(
            value,
            list(points.values()),
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        return dict(zip(points, map(tf.convert_to_tensor, gradients), strict=True))


class _TracedOnce(Target):
    """A target whose gradient and log posterior are traced once for all graphs that compute them.

    Graphs call it as a function, which XLA inlines: the numbers are the same as without.

    Args:
        target: Target that is tempered.
    """

    def __init__(self, target: Target) -> None:
        super().__init__(target.log_lik, target.log_prior, target.space, target.dtype)
        self._writes_gradient = target._writes_gradient
        self._graphs: dict[tuple[Any, ...], Any] = {}

    @property
    def shared(self) -> Target:
        return self

    def concatenated(self) -> Target:
        target = super().concatenated()
        return self if target is self else _TracedOnce(target)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_graphs": {}}

    def gradient(
        self, position: tf.Tensor, minibatch: Minibatch, with_prior: bool = True
    ) -> tf.Tensor:
        weights = minibatch.weights
        scale = weights if isinstance(weights, float) else None

        def gradient(position: tf.Tensor, columns: Tensors, weights: Any) -> tf.Tensor:
            minibatch = Minibatch(columns, weights if scale is None else scale)
            return self._gradient(position, minibatch, with_prior)

        arguments = (position, minibatch.columns, () if scale is not None else weights)
        return self.once(("gradient", with_prior, scale), gradient, *arguments)

    def once(self, key: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        tensors = tf.nest.flatten(arguments)
        if tf.executing_eagerly() or any(
            isinstance(t, tf.SparseTensor) for t in tensors
        ):
            return function(*arguments)
        specs = tf.nest.map_structure(spec_of, arguments)
        key = (key, repr(specs))
        if key not in self._graphs:
            self._graphs[key] = trace(function, *specs)
        return self._graphs[key](*arguments)


def terms(log_lik: LogLik, params: Tensors, columns: Tensors) -> tf.Tensor:
    """Return a log-likelihood's terms, (n,), row by row if it gives their sum."""
    value = log_lik(dict(params), dict(columns))
    if value.shape.rank == 1:
        return value
    return over_rows(lambda row: log_lik(dict(params), row), columns, value.dtype)


@dataclass(frozen=True)
class Tempered:
    """A function of the model divided by a temperature.

    Args:
        function: Log-likelihood or log-prior.
        temperature: T, positive.
    """

    function: Callable[..., tf.Tensor]
    temperature: float

    def __call__(self, *arguments: Any) -> tf.Tensor:
        """Return the value of the function divided by T."""
        return tf.convert_to_tensor(self.function(*arguments)) / self.temperature


def tempered(function: Any, temperature: float) -> Any:
    """Return a function at a temperature: as it is at 1, or if there is none."""
    if temperature == 1.0 or function is None:
        return function
    return Tempered(function, temperature)


def untempered(function: Any) -> Any:
    """Return the user's function, which may have been divided by a temperature."""
    return cast(Any, function).function if isinstance(function, Tempered) else function
