"""The sampler object of the step-by-step functions: what was set up, and the present state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.assembly import Modes
from sgmcmc.driver import flat_seen
from sgmcmc.layout import Layout
from sgmcmc.sampler import Sampler


class StepwiseSampler:
    """A sampler that is set up to be run step by step, as the ``*_setup`` functions return it.

    Its tuning constants are attributes too, under the names of the arguments (``stepsize``,
    ``alpha``, ``L``, ``a``, ``opt_stepsize``).

    Args:
        sampler: the sampler, checked and put together.
        n_iters_opt: iterations of mode-finding.
        verbose: show its progress.

    Attributes:
        params: the present state of the session stepped last, in the user's space: a dict of
            ``tf.Variable``, with a leading chain axis where ``n_chains`` was given. Reading it,
            or handing it to ``log_lik``, is what it is for; assigning to it changes no chain.
        params_opt: for the control variate methods, the mode θ̂: a dict of NumPy arrays, or
            ``None`` before ``init_sess`` has found it.
        log_post_opt_grad: the gradient of the log posterior there over the whole dataset, in the
            space the chain moves in, or ``None`` before.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> sampler = sgmcmc.sgld_setup(log_lik, {"x": np.zeros(100)}, {"theta": 0.0}, 1e-3, seed=1)
        >>> sampler.N, sampler.n, sampler.stepsize
        (100, 1, 0.001)
    """

    def __init__(self, sampler: Sampler, n_iters_opt: int, verbose: bool) -> None:
        self._sampler = sampler
        self._n_iters_opt = n_iters_opt
        self._verbose = verbose
        self.params_opt: dict[str, np.ndarray] | None = None
        self.log_post_opt_grad: dict[str, np.ndarray] | None = None
        self.__dict__.update(sampler.tuning)
        self.params = {
            name: tf.Variable(value, name=name, trainable=False)
            for name, value in self._split(sampler, sampler.starts).items()
        }

    @property
    def N(self) -> int:
        """The number of observations."""
        return self._sampler.data.size

    @property
    def n(self) -> int:
        """The number of observations in a minibatch."""
        return self._sampler.minibatches.size

    @property
    def data(self) -> Mapping[str, Any]:
        """The dataset, as it was handed over."""
        return self._sampler.target.dataset

    @property
    def log_lik(self) -> Any:
        """The user's log-likelihood."""
        return self._sampler.target.log_lik

    @property
    def log_prior(self) -> Any:
        """The user's log-prior, or ``None``."""
        return self._sampler.target.log_prior

    def est_log_post(self, minibatch: Mapping[str, Any]) -> tf.Tensor:
        """Return log_prior(params) + (N/n) log_lik(params, minibatch) at the present state.

        n is the number of observations in ``minibatch``, whatever the chain uses.

        Args:
            minibatch: dict of arrays or tensors that share their first axis.

        Returns:
            A scalar tensor.
        """
        sampler = self._sampler
        tensors = {
            name: value
            if tf.is_tensor(value)
            else tf.constant(np.asarray(value), sampler.data.columns[name].dtype)
            for name, value in minibatch.items()
        }
        params = {name: tf.convert_to_tensor(value) for name, value in self.params.items()}
        rows = next(iter(tensors.values())).shape[0]
        value = sampler.data.size / rows * sampler.target.log_lik(params, tensors)
        if sampler.target.log_prior is not None:
            value += sampler.target.log_prior(params)
        return value

    def __repr__(self) -> str:
        sampler = self._sampler
        shapes = ", ".join(f"{k} {tuple(v.shape)}" for k, v in self.params.items())
        return f"{sampler.method}_setup: N = {self.N}, n = {self.n}; {shapes}"

    def _split(self, sampler: Sampler, positions: list[np.ndarray]) -> dict[str, np.ndarray]:
        """Return flat unconstrained positions, one for each chain, in the user's space."""
        return self._user(sampler.model.user_layout, flat_seen(sampler.model, positions))

    def _user(self, layout: Layout, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return a row for each chain as the arrays that the user sees."""
        return layout.split(rows[0] if self._sampler.options.n_chains is None else rows)

    def _show(self, positions: list[np.ndarray]) -> None:
        """Let ``params`` be what the session stepped last has come to."""
        # `assign` checks what is sure here, and takes five times as long.
        for name, value in self._split(self._sampler, positions).items():
            tf.raw_ops.AssignVariableOp(resource=self.params[name].handle, value=value)

    def _show_modes(self, modes: Modes) -> None:
        model = self._sampler.model
        self.params_opt = self._split(self._sampler, modes.positions)
        self.log_post_opt_grad = self._user(model.layout, np.stack(modes.gradients))
