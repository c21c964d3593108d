"""Checks of user-defined dynamics, gradients and minibatches, for mistakes that stop no chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from sgmcmc.checks import describe, from_outside
from sgmcmc.data.dataset import Minibatch, Tensors
from sgmcmc.data.reading import read_dataset
from sgmcmc.data.sparse import has_sparse
from sgmcmc.dynamics import SGLD, Dynamics, ExactDynamics
from sgmcmc.dynamics.riemannian import SimplexDynamics
from sgmcmc.engine.iteration import Iteration
from sgmcmc.engine.kernel import ChainStart
from sgmcmc.gradients import Gradient, MinibatchGradient, WholeData
from sgmcmc.gradients.latents import LatentState
from sgmcmc.graphs.user_functions import naming
from sgmcmc.inputs.dry_run import Demands, dry_run
from sgmcmc.inputs.parameters import Constraints, read_geometries, read_params
from sgmcmc.inputs.user_model import UserModel
from sgmcmc.interrupts import pass_on
from sgmcmc.libraries import without_chatter
from sgmcmc.minibatches import Minibatches, Uniform
from sgmcmc.minibatches.base import check_bound, try_minibatches
from sgmcmc.minibatches.streams import MinibatchSource, make_stream
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import LogLik, LogPrior, Target
from sgmcmc.model.whole_posterior import WholePosterior


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
    geometries = read_geometries(
        Constraints(manifolds=manifolds or {}), dynamics, starts, dtype
    )
    space = Space({name: value.shape for name, value in starts[0].items()}, geometries)
    target = Target(log_lik, log_prior, space, dtype)
    position = space.start(starts[0], dtype)
    demands = Demands(terms=gradient.needs_rows)
    dry_run(UserModel(target, data, n), [position], demands)
    dynamics = dynamics.bind(space)
    whole = WholeData(target, data, n)
    gradient = gradient.bind(whole)
    source = MinibatchSource(data, draws, dtype, gradient.needs_rows)
    stream = make_stream(source, ahead=False, xla=False)
    rng = np.random.default_rng(seed)
    with naming(gradient, "init"):
        estimator = gradient.init(whole, position)
    minibatch = stream.first(rng)
    trial = _PartTrial(target, tf.constant(position), minibatch, minibatch)
    ghat = trial.gradient(gradient, estimator)
    if isinstance(part, Gradient):
        _try_refresh(gradient, whole, estimator, position)
        return
    for one_stepsize in (
        tf.constant(stepsize, dtype),
        tf.fill([target.size], tf.cast(stepsize, dtype)),
    ):
        trial.dynamics(dynamics, ghat, one_stepsize, rng)


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
        size = (np.shape(alpha) or (3,))[-1]
        counts = np.resize(rng.multinomial(5, [0.2, 0.3, 0.5], 40), (40, size))
        omega = np.full(size, 1.0 / size)

        def of_counts(params: Tensors, data: Tensors) -> tf.Tensor:
            return tf.reduce_sum(data["counts"] * tf.math.log(params["omega"]), 1)

        return of_counts, {"counts": counts}, {"omega": omega}
    x = rng.normal(size=(40, 2))
    y = x @ [1.0, -0.5] + 0.3 + rng.normal(size=40)

    def of_regression(params: Tensors, data: Tensors) -> tf.Tensor:
        mean = params["bias"] + tf.linalg.matvec(data["x"], params["beta"])
        return -0.5 * (data["y"] - mean) ** 2

    return of_regression, {"x": x, "y": y}, {"bias": 0.2, "beta": [0.6, -0.8]}


def try_parts(iteration: Iteration, start: ChainStart) -> None:
    """Try a user's own dynamics and gradient where a chain starts, before it is compiled."""
    dynamics, gradient = iteration.dynamics, iteration.gradient
    target, latents = iteration.target, iteration.latents
    inner = getattr(dynamics, "inner", dynamics)
    minibatch = at_center = start.minibatch
    rng = np.random.default_rng(1)
    if latents is not None:
        state = latents.state(gradient.centered, start.position.dtype)
        assert isinstance(state, LatentState)
        center = gradient.center(start.estimator) if gradient.centered else None
        minibatch, at_center, _ = latents.complete(
            target.space, state, start.position, center, minibatch, start.seeds
        )
    trial = _PartTrial(target, start.position, minibatch, at_center)
    if from_outside(gradient):
        ghat = trial.gradient(gradient, start.estimator)
    elif isinstance(dynamics, ExactDynamics):
        ghat = tf.zeros_like(start.position)
    else:
        ghat = gradient.estimate(
            target, start.estimator, start.position, minibatch, at_center
        )[0]
    if from_outside(inner):
        stepsize = target.space.layout.per_coordinate(start.stepsizes)
        trial.dynamics(dynamics, ghat, stepsize, rng)


@dataclass(frozen=True)
class _PartTrial:
    """The arguments with which the methods of parts are tried.

    Attributes:
        target: Log posterior.
        position: Position, flat.
        minibatch: Minibatch.
        at_center: Minibatch with latent variables drawn at the center of the gradient.
    """

    target: Target
    position: tf.Tensor
    minibatch: Minibatch
    at_center: Minibatch

    same_result: ClassVar[float] = 1e-3  # tolerated difference, relative to the change
    # Rows that exact dynamics are tried on, whose moves may take many gradients:
    exact_rows: ClassVar[int] = 64

    def gradient(self, gradient: Gradient, memory: Any) -> tf.Tensor:
        """Return the estimate of a gradient estimator, which is tried."""
        label = f"{type(gradient).__name__}.estimate"
        if gradient.centered:
            with naming(gradient, "center"):
                center = gradient.center(memory)
                _need_vector(f"{type(gradient).__name__}.center", center, self.position)

        def estimate(memory: Any, position: tf.Tensor) -> tuple[tf.Tensor, Any]:
            minibatches = self.minibatch, self.at_center
            try:
                estimated = gradient.estimate(
                    self.target, memory, position, *minibatches
                )
            except Exception as error:
                pass_on(error)
                if not gradient.needs_rows and self._works_with_rows(gradient, memory):
                    raise ValueError(
                        f"`{label}` uses `minibatch.rows`, which are provided on request: set "
                        "`needs_rows = True` in the class."
                    ) from error
                raise
            if not isinstance(estimated, tuple) or len(estimated) != 2:
                raise TypeError(
                    f"`{label}` must return the gradient and the state, a tuple of two; it "
                    f"returned {describe(estimated)}."
                )
            vector, after = estimated
            advice = " It would be broadcast."
            _need_vector(label, vector, position, "a gradient", advice)
            _need_like(label, after, memory)
            return estimated

        with naming(gradient, "estimate"):
            first, *others = _results(estimate, memory, self.position)
        for repeated in others:
            for a, b in _pairs(first, repeated):
                if _differ(a, b, 10 * self.same_result * _size(a)):
                    raise ValueError(
                        f"`{label}` gives different results for the same arguments: it draws its "
                        "own random numbers, or keeps something in Python between calls. The "
                        "memory of an estimator belongs in its state."
                    )
        return tf.constant(first[0])

    def _works_with_rows(self, gradient: Gradient, memory: Any) -> bool:
        """Return whether an estimator works once it is handed row numbers."""
        size = next(iter(self.minibatch.columns.values())).shape[0]
        minibatches = (
            batch._replace(rows=tf.range(size))
            for batch in (self.minibatch, self.at_center)
        )
        try:
            gradient.estimate(self.target, memory, self.position, *minibatches)
        except Exception as error:
            pass_on(error)
            return False
        return True

    def dynamics(
        self,
        dynamics: Dynamics,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        rng: np.random.Generator,
    ) -> None:
        """Try an iteration of bound dynamics, method by method."""
        inner = getattr(dynamics, "inner", dynamics)
        if isinstance(dynamics, ExactDynamics):
            methods = self._exact_methods(dynamics, stepsize)
        else:
            methods = self._methods(dynamics, gradient, stepsize, rng)

        def iterate() -> dict[str, Any]:
            states: dict[str, Any] = {}
            state: Any = None
            for name, method in methods.items():
                label = f"{type(inner).__name__}.{name}"
                with naming(inner, name):
                    after = method(state)
                    _need_state(label, after, self.position)
                    if state is not None:
                        _need_like(label, after, state)
                states[name] = state = after
            return states

        with naming(inner, "", f" with a stepsize of shape {stepsize.shape}"):
            first, *others = _results(iterate)
        for repeated in others:
            for name in methods:
                for a, b in _pairs(first[name], repeated[name]):
                    before = self.position.numpy()
                    size = _size(a)
                    change = size
                    if a.shape == before.shape:
                        change = np.abs(a - before).max(initial=0)
                    if _differ(a, b, self.same_result * change + 1e-7 * size):
                        raise ValueError(
                            f"`{type(inner).__name__}.{name}` gives different results for the same "
                            "arguments: it draws its own random numbers, or keeps something in "
                            "Python between calls. Use the standard normals that it receives "
                            "(`start_normals`, `refresh_normals` and `step_normals` say how many), "
                            "or ask for seeds with `seeds`: what tf.random draws cannot be drawn "
                            "again when a chain is resumed, and what NumPy draws is drawn once, "
                            "when the chain is compiled."
                        )

    def _methods(
        self,
        dynamics: Dynamics,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        rng: np.random.Generator,
    ) -> dict[str, Callable[[Any], Any]]:
        """Return the methods of dynamics, each as a function of the state before it."""
        d, dtype = self.target.size, self.target.dtype

        def normals(vectors: int) -> tf.Tensor:
            return tf.constant(rng.standard_normal((vectors, d)), dtype)

        noise = normals(dynamics.step_normals)
        if dynamics.seeds:
            seeds = rng.integers(0, 2**31 - 1, (dynamics.seeds, 2))
            noise = tf.constant(seeds, tf.int32)
        rows = next(iter(self.minibatch.columns.values())).shape[0]
        start_normals = normals(dynamics.start_normals)
        refresh_normals = normals(dynamics.refresh_normals)
        methods: dict[str, Callable[[Any], Any]] = {
            "init": lambda _: dynamics.init(
                self.position, gradient, stepsize, start_normals
            ),
            "refresh": lambda state: dynamics.refresh(state, stepsize, refresh_normals),
            "step": lambda state: dynamics.step(state, gradient, stepsize, noise),
            "learn": lambda state: dynamics.learn(state, tf.ones([rows, d], dtype)),
            "finish_step": lambda state: dynamics.finish_step(
                state, gradient, stepsize
            ),
        }
        if not dynamics.learns_noise:
            del methods["learn"]
        return methods

    def _exact_methods(
        self, dynamics: ExactDynamics, stepsize: tf.Tensor
    ) -> dict[str, Callable[[Any], Any]]:
        columns = self.minibatch.columns
        if not has_sparse(columns):
            columns = {name: c[: self.exact_rows] for name, c in columns.items()}
        seed = dynamics.drawn(tf.constant([1, 2], tf.int32), self.target.size)

        def log_post(position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return WholePosterior(self.target, columns)(position)

        return {
            "start": lambda _: dynamics.start(log_post, self.position),
            "transition": lambda state: dynamics.transition(
                log_post, state, stepsize, seed
            ),
        }


def _try_refresh(
    gradient: Gradient, whole: WholeData, memory: Any, position: np.ndarray
) -> None:
    """Try the refreshing of a gradient estimator, if it is refreshed between blocks."""
    name = type(gradient).__name__
    interval = gradient.refresh_every(whole)
    if interval is None:
        return
    if (
        isinstance(interval, bool)
        or not isinstance(interval, int | np.integer)
        or interval < 1
    ):
        raise ValueError(
            f"`{name}.refresh_every` must return None or an integer, 1 or more; it returned "
            f"{describe(interval)}."
        )
    with naming(gradient, "refresh"):
        refreshed = gradient.refresh(whole, memory, position, 1)
        if not isinstance(refreshed, tuple) or len(refreshed) != 2:
            raise TypeError(
                f"`{name}.refresh` must return a gradient or None, and the state; it returned "
                f"{describe(refreshed)}."
            )
        if refreshed[0] is not None:
            _need_vector(
                f"{name}.refresh", refreshed[0], tf.constant(position), "a gradient"
            )
        _need_like(f"{name}.refresh", refreshed[1], memory)


def _results(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return the results of two graphs of a function, each called twice, as arrays.

    What TensorFlow draws differs from call to call, and what NumPy draws from graph to graph.
    """
    results = []
    with without_chatter():
        for _ in range(2):
            graph = tf.function(function, autograph=False).get_concrete_function(
                *arguments
            )
            results += [
                tf.nest.map_structure(np.asarray, graph(*arguments)) for _ in range(2)
            ]
    return results


def _pairs(first: Any, second: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for a, b in zip(tf.nest.flatten(first), tf.nest.flatten(second), strict=True):
        yield np.asarray(a), np.asarray(b)


def _names(structure: Any) -> list[str]:
    if isinstance(structure, Mapping):
        return [
            f"{k}.{n}".rstrip(".")
            for k in sorted(structure)
            for n in _names(structure[k])
        ]
    if isinstance(structure, tuple | list):
        fields = getattr(structure, "_fields", range(len(structure)))
        return [
            f"{field}.{name}".rstrip(".")
            for field, entry in zip(fields, structure, strict=True)
            for name in _names(entry)
        ]
    return [""]


def _size(array: np.ndarray) -> float:
    return float(np.abs(array).max(initial=0)) if np.isfinite(array).all() else 0.0


def _differ(first: np.ndarray, second: np.ndarray, allowed: float) -> bool:
    if first.dtype.kind != "f":
        return not np.array_equal(first, second)
    finite = np.isfinite(first) & np.isfinite(second)
    if not np.array_equal(np.isfinite(first), np.isfinite(second)):
        return True
    return bool(np.abs(first[finite] - second[finite]).max(initial=0.0) > allowed)


def _need_state(label: str, state: Any, position: tf.Tensor) -> None:
    """Raise an error unless a value is a state with a position."""
    if not (isinstance(state, tuple) and hasattr(state, "_fields")):
        raise TypeError(
            f"`{label}` must return its state, a NamedTuple of tensors; it returned "
            f"{describe(state)}."
        )
    if not hasattr(state, "position"):
        raise TypeError(
            f"`{label}` returned a state without `position`, a {type(state).__name__} "
            f"of {', '.join(state._fields)}; `position` is the position of the chain."
        )
    _need_vector(label, state.position, position, "a state whose `position` is")


def _need_vector(
    label: str, value: Any, position: tf.Tensor, what: str = "a vector", more: str = ""
) -> None:
    """Raise an error unless a value has shape and dtype of the position."""
    tensor = tf.convert_to_tensor(value)
    shape = tuple(position.shape)
    if not tensor.shape.is_compatible_with(position.shape):
        raise ValueError(
            f"`{label}` must return {what} of shape (d,) = {shape}; it returned shape "
            f"{tensor.shape}.{more}"
        )
    if tensor.dtype != position.dtype:
        raise TypeError(
            f"`{label}` must return {what} of {position.dtype.name}, the dtype of the chain; it "
            f"returned {tensor.dtype.name}."
        )


def _need_like(label: str, after: Any, before: Any) -> None:
    """Raise an error unless a state has the structure, shapes and dtypes of the one before."""
    if type(after) is not type(before) or _names(after) != _names(before):
        raise TypeError(
            f"`{label}` must return a state like the one that it received, a "
            f"{type(before).__name__} of {', '.join(_names(before))}; it returned a "
            f"{type(after).__name__} of {', '.join(_names(after))}."
        )
    leaves = zip(
        _names(after), tf.nest.flatten(after), tf.nest.flatten(before), strict=True
    )
    for name, new, old in leaves:
        a, b = tf.convert_to_tensor(new), tf.convert_to_tensor(old)
        if not a.shape.is_compatible_with(b.shape):
            raise ValueError(
                f"`{label}` returned `{name}` of shape {a.shape}, which had shape {b.shape} "
                "before; shapes of a state do not change."
            )
        if a.dtype != b.dtype:
            raise TypeError(
                f"`{label}` returned `{name}` as {a.dtype.name}, which was {b.dtype.name} before; "
                "dtypes of a state do not change."
            )
