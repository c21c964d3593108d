"""Running reductions: summaries of a chain whose draws are not stored.

A reduction folds a function of the parameters over the kept draws, inside the compiled chain:
``state = update(state, params)``. Running means and variances are ready made. They are added up in
float64 whatever the chain is in: a sum in float32 stops growing at the seventeen millionth draw,
and a variance would become smaller and smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Tensors

State = Any
"""A tensor, or a dict of tensors."""


class Reduction(NamedTuple):
    """A fold over the kept draws.

    Attributes:
        init: State before the first draw: an array or a dict of arrays, or a function of the
            starting values that returns one.
        update: Function of the state and the parameters that returns the next state, of the same
            shapes and dtypes.
        finish: Function of the state that returns the result for the user, an array or a dict of
            arrays; ``None`` shows the state itself.

    Example:
        >>> import sgmcmc, tensorflow as tf
        >>> largest = sgmcmc.Reduction(-float("inf"), lambda state, params: tf.maximum(
        ...     state, params["theta"]))
        >>> float(largest.update(tf.constant(1.0), {"theta": tf.constant(2.0)}))
        2.0
    """

    init: Any
    update: Callable[[State, Tensors], State]
    finish: Callable[[State], State] | None = None

    def start(self, params: Tensors, dtype: tf.DType) -> State:
        """Return the state before the first draw, as tensors; floats get this dtype."""
        state = self.init(params) if callable(self.init) else self.init
        if isinstance(state, Mapping):
            return {name: _tensor(state[name], dtype) for name in sorted(state)}
        return _tensor(state, dtype)

    def result(self, state: State) -> State:
        """Return the result of a state."""
        return state if self.finish is None else self.finish(state)


def _tensor(value: Any, dtype: tf.DType) -> tf.Tensor:
    if tf.is_tensor(value):
        return tf.convert_to_tensor(value)
    array = np.asarray(value)
    return tf.constant(array, dtype if array.dtype.kind == "f" else None)


def running_mean(function: Callable[[Tensors], tf.Tensor]) -> Reduction:
    """Return the reduction that keeps the mean of a function over the kept draws.

    m ← m + (f(θ) − m) / k at the k-th draw.

    Args:
        function: Function of the dict of parameters that returns a tensor of any shape.

    Returns:
        A :class:`Reduction`; its result is the mean, float64.

    Raises:
        TypeError: By the sampler, if ``function`` does not return a tensor.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> chain = sgmcmc.sgld(log_lik, {"x": np.zeros(100)}, {"theta": 0.0}, 1e-3,
        ...     n_iters=500, verbose=False, seed=1,
        ...     reductions={"mean": sgmcmc.running_mean(lambda params: params["theta"])})
        >>> np.allclose(chain.reductions["mean"], chain["theta"].mean(), atol=1e-5)
        True

    Source:
        Welford, Technometrics 4, 1962.
    """

    def init(params: Tensors) -> State:
        return {"count": tf.constant(0), "mean": _zero(function(params))}

    def update(state: State, params: Tensors) -> State:
        count = state["count"] + 1
        step = _double(function(params)) - state["mean"]
        return {
            "count": count,
            "mean": state["mean"] + step / tf.cast(count, tf.float64),
        }

    return Reduction(init, update, lambda state: state["mean"])


def running_moments(function: Callable[[Tensors], tf.Tensor]) -> Reduction:
    """Return the reduction that keeps mean and variance of a function over the kept draws.

    m ← m + (f(θ) − m) / k and s ← s + (f(θ) − m_before)(f(θ) − m_after); the variance is s/k.

    Args:
        function: Function of the dict of parameters that returns a tensor of any shape.

    Returns:
        A :class:`Reduction`; its result is a dict of ``"mean"`` and ``"variance"``, float64.

    Raises:
        TypeError: By the sampler, if ``function`` does not return a tensor.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> chain = sgmcmc.sgld(log_lik, {"x": np.zeros(100)}, {"theta": 0.0}, 1e-3,
        ...     n_iters=500, verbose=False, seed=1,
        ...     reductions={"theta": sgmcmc.running_moments(lambda params: params["theta"])})
        >>> np.allclose(chain.reductions["theta"]["variance"], chain["theta"].var(), rtol=1e-3)
        True

    Source:
        Welford, Technometrics 4, 1962.
    """

    def init(params: Tensors) -> State:
        zero = _zero(function(params))
        return {"count": tf.constant(0), "mean": zero, "squares": zero}

    def update(state: State, params: Tensors) -> State:
        count = state["count"] + 1
        return {"count": count, **_with_value(state, _double(function(params)), count)}

    def finish(state: State) -> State:
        count = tf.cast(tf.maximum(state["count"], 1), tf.float64)
        return {"mean": state["mean"], "variance": state["squares"] / count}

    return Reduction(init, update, finish)


def running_batch_means(
    function: Callable[[Tensors], tf.Tensor], batch_size: int = 100
) -> Reduction:
    """Return the reduction that keeps the mean of a function and its standard error.

    The chain is cut into batches of b draws. With B whole batches whose means have the variance
    s², the standard error of the mean is s/√B: it accounts for the dependence between draws, as
    long as b is several times their autocorrelation time.

    Args:
        function: Function of the dict of parameters that returns a tensor of any shape.
        batch_size: b, the number of draws in a batch.

    Returns:
        A :class:`Reduction`; its result is a dict of ``"mean"``, over all whole batches, and
        ``"standard_error"``, which is NaN while there are fewer than two.

    Raises:
        ValueError: ``batch_size`` is not an integer ≥ 1.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> chain = sgmcmc.sgld(log_lik, {"x": np.zeros(100)}, {"theta": 0.0}, 1e-3,
        ...     n_iters=1000, verbose=False, seed=1, reductions={
        ...         "theta": sgmcmc.running_batch_means(lambda params: params["theta"])})
        >>> batches = chain["theta"].reshape(10, 100).mean(axis=1)
        >>> error = batches.std(ddof=1) / np.sqrt(10)
        >>> np.allclose(chain.reductions["theta"]["standard_error"], error, rtol=1e-3)
        True

    Source:
        Flegal & Jones, Annals of Statistics 38, 2010.
    """
    if (
        isinstance(batch_size, bool)
        or not isinstance(batch_size, int)
        or batch_size < 1
    ):
        raise ValueError(
            f"`batch_size` must be an integer of at least 1; it is {batch_size}."
        )

    def init(params: Tensors) -> State:
        zero = _zero(function(params))
        counts = {"draws": tf.constant(0), "batches": tf.constant(0)}
        return {**counts, "sum": zero, "mean": zero, "squares": zero}

    def update(state: State, params: Tensors) -> State:
        draws = state["draws"] + 1
        total = state["sum"] + _double(function(params))
        full = tf.equal(draws, batch_size)
        batches = state["batches"] + tf.cast(full, tf.int32)
        moments = _with_value(state, total / batch_size, tf.maximum(batches, 1))
        return {
            "draws": tf.where(full, 0, draws),
            "batches": batches,
            "sum": tf.where(full, tf.zeros_like(total), total),
            **{name: tf.where(full, new, state[name]) for name, new in moments.items()},
        }

    def finish(state: State) -> State:
        batches = tf.cast(state["batches"], tf.float64)
        variance = state["squares"] / (batches * (batches - 1))
        return {"mean": state["mean"], "standard_error": tf.sqrt(variance)}

    return Reduction(init, update, finish)


def _double(value: Any) -> tf.Tensor:
    return tf.cast(value, tf.float64)


def _zero(value: Any) -> tf.Tensor:
    return tf.zeros_like(_double(value))


def _with_value(state: State, value: tf.Tensor, count: tf.Tensor) -> Tensors:
    """Return mean and sum of squared deviations after one more value, the count-th."""
    before = value - state["mean"]
    mean = state["mean"] + before / tf.cast(count, tf.float64)
    return {"mean": mean, "squares": state["squares"] + before * (value - mean)}
