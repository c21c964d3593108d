"""Checks of user-defined dynamics, gradients and minibatches, for mistakes that stop no chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import describe, from_outside
from sgmcmc.data.reading import read_dataset
from sgmcmc.dynamics import SGLD, Dynamics, ExactDynamics
from sgmcmc.dynamics.simplex import SimplexDynamics
from sgmcmc.engine.iteration import Iteration
from sgmcmc.engine.kernel import ChainStart
from sgmcmc.gradients import Gradient, MinibatchGradient, WholeData
from sgmcmc.gradients.latents import LatentState
from sgmcmc.graphs.user_functions import naming
from sgmcmc.inputs.arrays import read_params
from sgmcmc.inputs.dry_run import dry_run
from sgmcmc.inputs.geometries import read_geometries
from sgmcmc.inputs.part_trials import try_dynamics, try_gradient, try_refresh
from sgmcmc.minibatches import Minibatches, Uniform
from sgmcmc.minibatches.own import check_bound, try_minibatches
from sgmcmc.minibatches.streams import make_stream
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import LogLik, LogPrior, Target


def check_part(
    part: Dynamics | Gradient | Minibatches,
    log_lik: LogLik | None = None,
    dataset: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    log_prior: LogPrior | None = None,
    *,
    minibatch_size: int | None = None,
    stepsize: float = 1e-3,
    manifolds: Mapping[str, Any] | None = None,
    dtype: tf.DType = tf.float32,
    seed: int = 1,
) -> None:
    """Check your own part, and raise an error that explains any mistake.

    It is for your own dynamics, gradient estimators and minibatches what scikit-learn's
    ``check_estimator`` is for estimators. Most mistakes in a part do not stop a chain: its draws
    are wrong. The same checks run, in a few hundredths of a second, before each chain with such a
    part.

    - **Dynamics**: ``init``, ``refresh``, ``step``, ``learn`` and ``finish_step`` (``start`` and
      ``transition`` of exact ones) return a ``NamedTuple`` with a ``position`` of shape (d,), and
      the same shapes and dtypes throughout, whether the stepsize is a number or has (d,). The
      same arguments give the same state: there is no other randomness than that of ``normals``
      and seeds.
    - **Gradients**: ``estimate`` returns a gradient of shape (d,), not a number that would be
      broadcast, and its state in the same shapes and dtypes; ``refresh`` does too. The same
      arguments give the same estimate; ``needs_rows`` is set if it uses row numbers.
    - **Minibatches**: ``draw`` returns integers of shape (count, n) between 0 and N − 1, the same
      for the same generator. Weights are positive, one for each row, and rows are drawn as often
      as they say, so that a sum over the dataset is estimated without bias: E Σ w = N. If a row is
      in a minibatch twice, its places are neighbors. ``to_json`` returns what JSON holds.

    Args:
        part: Object of your own class (or of this package).
        log_lik: Log-likelihood for the test run; by default, with ``dataset`` and ``params``, a
            small built-in regression, or counts for dynamics of the simplex.
        dataset: Dataset.
        params: Starting values, a dict.
        log_prior: Log-prior; ``None`` is flat.
        minibatch_size: Minibatch size n; by default a quarter of the rows, at most 100.
        stepsize: Stepsize for the test run of dynamics.
        manifolds: Parameters on manifolds.
        dtype: Dtype of the chain.
        seed: Seed of the random numbers that the part receives.

    Returns:
        ``None``, if nothing is wrong.

    Raises:
        TypeError, ValueError: The part is wrong; the message names the class, the method, and the
            mistake.

    Example:
        >>> import dataclasses, sgmcmc, tensorflow as tf
        >>> @dataclasses.dataclass(frozen=True)
        ... class Averaged(sgmcmc.gradients.MinibatchGradient):
        ...     def estimate(self, target, state, position, minibatch, at_center):
        ...         gradient = target.gradient(position, minibatch)
        ...         return tf.reduce_mean(gradient), state
        >>> sgmcmc.check_part(sgmcmc.gradients.MinibatchGradient())
        >>> sgmcmc.check_part(Averaged())
        Traceback (most recent call last):
            ...
        ValueError: `Averaged.estimate` must return a gradient of shape (d,) = (3,); ...
    """
    if not isinstance(part, Dynamics | Gradient | Minibatches):
        hint = f" Did you mean {part.__name__}(...)?" if isinstance(part, type) else ""
        raise TypeError(
            "`part` must be an object of a subclass of sgmcmc.dynamics.Dynamics, "
            f"sgmcmc.gradients.Gradient or sgmcmc.minibatches.Minibatches; it is {describe(part)}."
            f"{hint}"
        )
    provided = [argument is not None for argument in (log_lik, dataset, params)]
    if any(provided) and not all(provided):
        raise ValueError(
            "Give `log_lik`, `dataset` and `params` together, or none of them."
        )
    dynamics = part if isinstance(part, Dynamics) else SGLD()
    gradient = part if isinstance(part, Gradient) else MinibatchGradient()
    if log_lik is None or dataset is None or params is None:
        log_lik, dataset, params = _built_in(dynamics)
    data = read_dataset(dataset, dtype, ())
    n = max(1, min(100, data.size // 4)) if minibatch_size is None else minibatch_size
    if gradient.whole_dataset or isinstance(dynamics, ExactDynamics):
        n = data.size
    draws = (part if isinstance(part, Minibatches) else Uniform()).bind(data.size, n)
    if isinstance(part, Minibatches):
        check_bound(draws, data.size)
        try_minibatches(part, draws, data.size, neighbours=True)
        return
    starts = read_params(params, None, dtype)
    geometries = read_geometries({}, manifolds or {}, dynamics, starts, dtype)
    space = Space({name: value.shape for name, value in starts[0].items()}, geometries)
    target = Target(log_lik, log_prior, space, dtype)
    position = space.start(starts[0], dtype)
    dry_run(target, data, n, [position], None, gradient.needs_rows)
    dynamics = dynamics.bind(space)
    whole = WholeData(target, data, n)
    gradient = gradient.bind(whole)
    stream = make_stream(
        data, draws, dtype, with_rows=gradient.needs_rows, ahead=False, xla=False
    )
    rng = np.random.default_rng(seed)
    with naming(gradient, "init"):
        estimator = gradient.init(whole, position)
    minibatch = stream.first(rng)
    ghat = try_gradient(
        gradient, target, estimator, tf.constant(position), minibatch, minibatch
    )
    if isinstance(part, Gradient):
        try_refresh(gradient, whole, estimator, position)
        return
    for one_stepsize in (
        tf.constant(stepsize, dtype),
        tf.fill([target.size], tf.cast(stepsize, dtype)),
    ):
        try_dynamics(
            dynamics, target, tf.constant(position), ghat, one_stepsize, minibatch, rng
        )


def _built_in(dynamics: Dynamics) -> tuple[LogLik, dict[str, Any], dict[str, Any]]:
    """Return log-likelihood, dataset and starting values of a small model."""
    rng = np.random.default_rng(1)
    if isinstance(dynamics, SimplexDynamics):
        alpha = getattr(dynamics, "alpha", None)
        if alpha is None or isinstance(alpha, Mapping):
            raise ValueError(
                f"`part`: {type(dynamics).__name__} names its parameters; give `log_lik`, "
                "`dataset` and `params` too."
            )
        counts = rng.multinomial(5, [0.2, 0.3, 0.5], 40)
        omega = np.full(
            np.shape(alpha)[-1:] or (3,), 1.0 / (np.shape(alpha) or (3,))[-1]
        )
        counts = np.resize(counts, (40, len(omega)))
        return (
            lambda params, data: tf.reduce_sum(
                data["counts"] * tf.math.log(params["omega"]), 1
            ),
            {"counts": counts},
            {"omega": omega},
        )
    x = rng.normal(size=(40, 2))
    y = x @ [1.0, -0.5] + 0.3 + rng.normal(size=40)
    return (
        lambda params, data: (
            -0.5
            * (data["y"] - params["bias"] - tf.linalg.matvec(data["x"], params["beta"]))
            ** 2
        ),
        {"x": x, "y": y},
        {"bias": 0.2, "beta": [0.6, -0.8]},
    )


def try_parts(iteration: Iteration, start: ChainStart) -> None:
    """Try a user's own dynamics and gradient where a chain starts, before it is compiled."""
    dynamics, gradient, target = (
        iteration.dynamics,
        iteration.gradient,
        iteration.target,
    )
    inner = getattr(dynamics, "inner", dynamics)
    minibatch = at_center = start.minibatch
    latents, rng = iteration.latents, np.random.default_rng(1)
    if latents is not None:
        state = latents.state(gradient.centered, start.position.dtype)
        assert isinstance(state, LatentState)
        center = gradient.center(start.estimator) if gradient.centered else None
        minibatch, at_center, _ = latents.complete(
            target.space, state, start.position, center, minibatch, start.seeds
        )
    if from_outside(gradient):
        ghat = try_gradient(
            gradient, target, start.estimator, start.position, minibatch, at_center
        )
    elif isinstance(dynamics, ExactDynamics):
        ghat = tf.zeros_like(start.position)
    else:
        ghat = gradient.estimate(
            target, start.estimator, start.position, minibatch, at_center
        )[0]
    if from_outside(inner):
        stepsize = target.space.layout.spread(start.stepsizes)
        try_dynamics(dynamics, target, start.position, ghat, stepsize, minibatch, rng)
