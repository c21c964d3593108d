"""The target of a chain: the log posterior, estimated from a minibatch, and its gradient."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from sgmcmc.data.minibatch import Minibatch, Tensors
from sgmcmc.data.sparse import over_rows
from sgmcmc.target.geometry import Preconditioner, Space

LogLik = Callable[[Tensors, Tensors], tf.Tensor]
LogPrior = Callable[[Tensors], tf.Tensor]


class Target:
    """The log posterior in the coordinates of the chain.

    With z the flat position and θ = f(z) the user's parameters, the estimate from a minibatch S
    is log p(θ) + Σ_{i∈S} w_i log p(x_i | θ) + log |det f'(z)|, with w_i = N/n where rows are drawn
    uniformly.

    Args:
        log_lik: the user's log-likelihood, summed over the observations it is handed, or its
            terms, one for each of them.
        log_prior: the user's log-prior, or ``None`` for a flat one.
        space: where the parameters live.
        dtype: the floating point type of everything.
    """

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

    @property
    def size(self) -> int:
        """The length of the flat position."""
        return self.space.layout.size

    def log_post(self, position: tf.Tensor, minibatch: Minibatch) -> tf.Tensor:
        """Return the estimate of the log posterior."""
        params = self.space.constrain(position)
        value = self._data_part(params, minibatch)
        value = self._with_prior(value, params, self.space.coordinates(position))
        for term in self.space.log_prior(position):
            value += term
        return value

    def gradient(
        self, position: tf.Tensor, minibatch: Minibatch, with_prior: bool = True
    ) -> tf.Tensor:
        """Return the gradient of the estimate of the log posterior, flat.

        It is what each parameter's geometry passes to the dynamics, ``Geometry.slope``.

        Args:
            position: where, flat.
            minibatch: the observations and their weights.
            with_prior: ``False`` leaves out the prior and the Jacobian.
        """
        columns, weights = minibatch.columns, minibatch.weights
        if not isinstance(weights, float) and self._gives_sum(position, columns):
            # A gradient taken through the rows one by one would make XLA treat the data as
            # constants, and compile the chain anew for each block.
            terms = self.term_gradients(position, columns)
            slope = tf.linalg.matvec(terms, weights, transpose_a=True)
            return slope + self.prior_gradient(position) if with_prior else slope

        def value(params: Tensors, u: Tensors) -> tf.Tensor:
            data_part = self._data_part(params, minibatch)
            return self._with_prior(data_part, params, u) if with_prior else data_part

        return self._slope(position, value)

    def prior_value(self, params: Tensors, u: Tensors) -> tf.Tensor:
        """Return log-prior and log-Jacobian alone, of the parameters and their coordinates."""
        return self._with_prior(tf.zeros([], self.dtype), params, u)

    def prior_gradient(self, position: tf.Tensor) -> tf.Tensor:
        """Return the gradient of log-prior and Jacobian alone, flat."""
        return self._slope(position, self.prior_value)

    def term_gradients(self, position: tf.Tensor, columns: Tensors) -> tf.Tensor:
        """Return the gradient of each observation's own term, (n, d)."""

        return over_rows(
            lambda row: self.gradient(position, Minibatch(row), with_prior=False),
            columns,
            self.dtype,
        )

    def terms(self, params: Tensors, columns: Tensors) -> tf.Tensor:
        """Return the log-likelihood's terms, (n,), row by row where ``log_lik`` gives their sum."""
        return terms(self.log_lik, params, columns)

    def _gives_sum(self, position: tf.Tensor, columns: Tensors) -> bool:
        """Tell whether ``log_lik`` gives the sum of its terms."""
        value = self.log_lik(self.space.constrain(position), dict(columns))
        return getattr(value, "shape", tf.TensorShape([])).rank == 0

    def missing_gradients(self, position: tf.Tensor, columns: Tensors) -> list[str]:
        """Return the parameters on which the log posterior does not depend differentiably."""
        params = self.space.constrain(position)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(list(params.values()))
            value = tf.reduce_sum(self.log_lik(params, dict(columns)))
            if self.log_prior is not None:
                value += self.log_prior(dict(params))
        gradients = tape.gradient(value, list(params.values()))
        return [name for name, part in zip(params, gradients, strict=True) if part is None]

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
        """Return the value with the log-prior and the log-Jacobian added."""
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

        def gradients(points: Tensors) -> Tensors:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(list(points.values()))
                value = value_of(self.space.of_points(points), u)
            # A parameter may stand in the prior alone; that none stands nowhere was checked before.
            found = tape.gradient(
                value, list(points.values()), unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            return dict(zip(points, map(tf.convert_to_tensor, found), strict=True))

        limits = self.space.limits(points)
        if limits is None:
            return self.space.slope(points, gradients(points))
        return self.space.slope(points, gradients(points), limits, gradients(limits))


def terms(log_lik: LogLik, params: Tensors, columns: Tensors) -> tf.Tensor:
    """Return a log-likelihood's terms, (n,), row by row where it gives their sum."""
    value = log_lik(dict(params), dict(columns))
    if value.shape.rank == 1:
        return value
    return over_rows(lambda row: log_lik(dict(params), row), columns, value.dtype)
