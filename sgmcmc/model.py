"""The user's model: log posterior estimate, its gradient, and the space the chain moves in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.layout import Layout
from sgmcmc.simplex import Simplex, normalise, smallest, smallest_with_gradient

Tensors = dict[str, tf.Tensor]
LogLik = Callable[[Tensors, Tensors], tf.Tensor]
LogPrior = Callable[[Tensors], tf.Tensor]


class Model:
    """The log posterior on the unconstrained space, estimated from a minibatch.

    With u the flat unconstrained position, θ = f(u) the user's parameters and f the bijectors
    (the identity where there is none), the estimate from a minibatch S of n of the N observations
    is log p(θ) + (N/n) Σ_{i∈S} log p(x_i | θ) + log |det f'(u)|.

    A point ω of the simplex is the softmax of its u, and Σ alpha log ω, the density of u under the
    Dirichlet prior, takes the place of log |det f'(u)|.

    Args:
        log_lik: the user's log-likelihood, summed over the observations it is handed.
        log_prior: the user's log-prior, or ``None`` for a flat one.
        shapes: shape of each parameter, as the user sees it.
        bijectors: TFP bijectors by parameter.
        dtype: the floating point type of everything.
        alpha: Dirichlet concentrations of the parameters that are points of the simplex.

    Attributes:
        user_layout: places of the parameters as the user sees them.
        layout: their places in the unconstrained position.
        simplex: which parameters are points of the simplex.
    """

    def __init__(
        self,
        log_lik: LogLik,
        log_prior: LogPrior | None,
        shapes: Mapping[str, tuple[int, ...]],
        bijectors: Mapping[str, Any],
        dtype: tf.DType,
        alpha: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.log_lik = log_lik
        self.log_prior = log_prior
        self.dtype = dtype
        self.bijectors = dict(bijectors)
        self.user_layout = Layout(shapes)
        self.layout = Layout({name: self._free_shape(name) for name in shapes})
        self.simplex = Simplex(self.layout, alpha or {})

    def _free_shape(self, name: str) -> tuple[int, ...]:
        shape = self.user_layout.shapes[name]
        if name not in self.bijectors:
            return shape
        return tuple(self.bijectors[name].inverse_event_shape(tf.TensorShape(shape)).as_list())

    @property
    def free(self) -> bool:
        """Whether the chain moves in the very space that the user sees."""
        return not self.bijectors and self.simplex.empty

    def constrain(self, position: tf.Tensor) -> Tensors:
        """Return the user's parameters at a flat unconstrained position."""
        parts = self.layout.split(position)
        params = self._with_bijectors(parts)
        least = smallest(self.dtype)
        return params | {name: normalise(parts[name], least) for name in self.simplex.names}

    def _with_bijectors(self, parts: Mapping[str, tf.Tensor]) -> Tensors:
        # A bijector remembers its last inputs and outputs; `identity` keeps what it remembers of
        # one graph from being handed out in another.
        return {
            name: self.bijectors[name].forward(tf.identity(part))
            if name in self.bijectors
            else part
            for name, part in parts.items()
        }

    def unconstrain(self, params: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the flat unconstrained position of the user's parameters, as NumPy.

        A point of the simplex may be given normalised or not.
        """
        free = {
            name: self.bijectors[name].inverse(tf.constant(value, self.dtype)).numpy()
            if name in self.bijectors
            else value
            for name, value in params.items()
        }
        least = smallest(self.dtype)
        free |= {name: np.log(np.maximum(free[name], least)) for name in self.simplex.names}
        return self.layout.join(free, self.dtype.as_numpy_dtype)

    def flat_user(self, position: tf.Tensor) -> tf.Tensor:
        """Return the user's parameters at a flat unconstrained position, flat again."""
        if self.free:
            return position
        return tf.concat([tf.reshape(v, [-1]) for v in self.constrain(position).values()], 0)

    def log_post(self, position: tf.Tensor, minibatch: Tensors, scale: float) -> tf.Tensor:
        """Return the estimate of the log posterior; ``scale`` is N/n."""
        parts = self.layout.split(position)
        value = self._log_post_at(self.constrain(position), parts, minibatch, scale, True)
        return value if self.simplex.empty else value + self.simplex.log_prior(position)

    def _log_post_at(
        self,
        params: Tensors,
        parts: Mapping[str, tf.Tensor],
        minibatch: Tensors,
        scale: float,
        with_prior: bool,
    ) -> tf.Tensor:
        """Return the estimate without the prior of the points of the simplex."""
        value = self.log_lik(dict(params), dict(minibatch))
        if scale != 1.0:
            value = scale * value
        if not with_prior:
            return value
        if self.log_prior is not None:
            value += self.log_prior(dict(params))
        for name, bijector in self.bijectors.items():
            free = tf.identity(parts[name])
            rank = len(self.layout.shapes[name])
            value += tf.reduce_sum(bijector.forward_log_det_jacobian(free, event_ndims=rank))
        return value

    def gradient(
        self, position: tf.Tensor, minibatch: Tensors, scale: float, with_prior: bool = True
    ) -> tf.Tensor:
        """Return the flat gradient of the log posterior estimate.

        In the coordinates of points of the simplex it holds the expected counts instead,
        ĉ = (N/n) ω ∂log_lik/∂ω, of which ``Simplex.score`` makes the gradient.

        Args:
            position: where, flat and unconstrained.
            minibatch: the observations.
            scale: N/n.
            with_prior: ``False`` leaves out the prior and the Jacobian.
        """
        parts = self.layout.split(position)
        least = smallest_with_gradient(self.dtype)
        watched = {
            name: normalise(part, least) if name in self.simplex else part
            for name, part in parts.items()
        }
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(list(watched.values()))
            params = self._with_bijectors(watched)
            value = self._log_post_at(params, parts, minibatch, scale, with_prior)
        # A parameter may stand in the prior alone; that none stands nowhere was checked before.
        gradients = tape.gradient(
            value, list(watched.values()), unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        flat = [
            tf.reshape(watched[name] * gradient if name in self.simplex else gradient, [-1])
            for name, gradient in zip(watched, map(tf.convert_to_tensor, gradients), strict=True)
        ]
        return tf.concat(flat, 0)

    def missing_gradients(self, position: tf.Tensor, minibatch: Tensors) -> list[str]:
        """Return the parameters on which the log posterior does not depend differentiably."""
        params = self.constrain(position)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(list(params.values()))
            value = self.log_lik(params, dict(minibatch))
            if self.log_prior is not None:
                value += self.log_prior(dict(params))
        gradients = tape.gradient(value, list(params.values()))
        return [name for name, part in zip(params, gradients, strict=True) if part is None]
