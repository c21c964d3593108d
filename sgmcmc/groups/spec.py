"""Groups of observations as a user describes them, and a trial of the user's functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.checks import describe
from sgmcmc.data.dataset import Data
from sgmcmc.data.levels import plain
from sgmcmc.interrupts import pass_on

LogDensity = Callable[[dict[str, tf.Tensor], dict[str, tf.Tensor]], tf.Tensor]
"""Log density of the effects of each group, a function of effects and global parameters."""

MOST_INTEGRATED = 3  # largest size of a group's effects that are integrated out
# Nodes of the quadrature in each direction, by the number of directions.
_NODES = {1: 11, 2: 7, 3: 5}

Tensors = dict[str, tf.Tensor]


@dataclass(frozen=True)
class _Settings:
    rows: int = 20  # rows, or groups, that functions are tried on
    step: float = 0.5  # distance by which the effects of the first group are moved
    # Third difference of a quadratic function, by rounding, as a part of its largest value.
    third_difference: float = 1e-5
    # Sizes of steps with which functions are found to be quadratic.
    step_sizes: tuple[float, ...] = (1.0, 30.0, 1000.0)
    # Relative and absolute difference of numbers that are equal up to rounding.
    close: tuple[float, float] = 1e-4, 1e-5


_SETTINGS = _Settings()


@dataclass(frozen=True)
class Groups:
    """Effects of groups of observations, such as those of sites, users or schools.

    With y_g the observations of group g, z_g its effects and θ the global parameters, the chain
    samples p(θ) ∏_g p(y_g | θ), in which the effects are integrated out,

        p(y_g | θ) = ∫ p(z_g | θ) ∏_{i in g} p(y_i | θ, z_g) dz_g,

    by adaptive Gauss–Hermite quadrature at each group's mode. So the chain has only the global
    parameters, and its observations are whole groups.
    :meth:`sgmcmc.Samples.effects` draws the effects of each group afterward, given each draw of θ.

    Args:
        by: Name of the entry of ``dataset`` with the group of each row: integers, strings or
            categories.
        effects: Dict of starting values of *one* group's effects, numbers or arrays. With up to
            three numbers in all they are integrated out; more become coordinates of the chain.
        log_prior: Function of two dicts, ``effects`` and ``params``, that returns the log density
            of the effects of each group, normalizing constants that depend on ``params`` included:
            an effect of shape ``s`` is passed as ``(g, *s)``, and the result has shape (g,).
        nodes: Number of nodes of the quadrature in each direction. By default the search for the
            mode has 11 for one number a group, 7 for two and 5 for three, and the chains have as
            many as a small error requires. ``samples.report`` has the error, measured with more
            nodes.
        normal: Whether log_lik and log_prior are quadratic functions of the effects, as in linear
            mixed models; the integral then has a closed form, and ``nodes`` is 1. ``None`` tries
            them at the starting values, unless there are ``nodes``; ``samples.report`` then has the
            error, as for a quadrature.
        members: Labels of all groups, in the order of their effects, if there may be some without
            rows, whose effects are then drawn from their distribution; ``None`` for the groups
            that have rows, sorted.

    Raises:
        ValueError, TypeError: An argument is wrong; the message names it.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> def log_density(effects, params):
        ...     return -0.5 * (effects["z"] / params["tau"]) ** 2 - tf.math.log(params["tau"])
        >>> sgmcmc.Groups("site", effects={"z": 0.0}, log_prior=log_density).nodes
        11

    References:
        Pinheiro & Bates (1995), *Approximations to the log-likelihood function in the nonlinear
        mixed-effects model*, section 2.4; Liu & Pierce (1994), *A note on Gauss–Hermite
        quadrature*, eq. 1.
    """

    by: str
    effects: Mapping[str, Any]
    log_prior: LogDensity
    nodes: int | None = None
    normal: bool | None = None
    members: Sequence[Any] | None = field(default=None, repr=False)
    shapes: dict[str, tuple[int, ...]] = field(init=False, repr=False)
    start: np.ndarray = field(init=False, repr=False, compare=False)
    nodes_given: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.by, str):
            raise TypeError(
                f"`by` must name an entry of `dataset`; it is {describe(self.by)}."
            )
        effects = checks.by_name(
            "effects", self.effects, "of starting values of one group's effects"
        )
        if not effects:
            raise ValueError(
                "`effects` is empty: it must name at least one effect of a group."
            )
        starts = {}
        for name, value in effects.items():
            try:
                starts[name] = np.asarray(value, np.float64)
            except (TypeError, ValueError):
                raise TypeError(
                    f"`effects[{name!r}]` must be a number or an array of numbers, the start of "
                    f"one group's effect; it is {describe(value)}."
                ) from None
            if starts[name].size == 0 or not np.isfinite(starts[name]).all():
                raise ValueError(
                    f"`effects[{name!r}]` must be finite and not empty; it is {describe(value)}."
                )
        checks.function("log_prior", self.log_prior, "of `effects` and `params`")
        if self.members is not None:
            object.__setattr__(self, "members", tuple(map(plain, self.members)))
        size = sum(value.size for value in starts.values())
        nodes = self.nodes
        object.__setattr__(self, "nodes_given", nodes is not None)
        if self.normal is not None and checks.flag("normal", self.normal):
            nodes = 1
        elif nodes is None:
            nodes = _NODES.get(size, 1)
        elif checks.whole_number("nodes", nodes, 1) > 101:
            raise ValueError(f"`nodes` must be at most 101; it is {nodes}.")
        object.__setattr__(self, "nodes", int(nodes))
        object.__setattr__(
            self, "shapes", {name: v.shape for name, v in starts.items()}
        )
        flat = np.concatenate([value.reshape(-1) for value in starts.values()])
        object.__setattr__(self, "start", flat)

    @property
    def size(self) -> int:
        """Numbers in the effects of one group."""
        return len(self.start)

    @property
    def integrated(self) -> bool:
        """Whether the effects are few enough to be integrated out."""
        return self.size <= MOST_INTEGRATED

    def named(self, flat: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return effects by name, ``(..., *shape)``, of flat ones, ``(..., size)``."""
        effects, first = {}, 0
        for name, shape in self.shapes.items():
            last = first + int(np.prod(shape))
            entries = flat[..., first:last]
            effects[name] = entries[..., 0] if not shape else _reshape(entries, shape)
            first = last
        return effects

    def __hash__(self) -> int:
        return hash((self.by, tuple(self.shapes.items()), self.nodes))


def _reshape(entries: tf.Tensor, shape: tuple[int, ...]) -> tf.Tensor:
    if len(shape) == 1:
        return entries
    outer = entries.shape[:-1]
    return (
        tf.reshape(entries, [*outer, *shape])
        if outer.is_fully_defined()
        else tf.reshape(entries, tf.concat([tf.shape(entries)[:-1], shape], 0))
    )


@dataclass(frozen=True)
class GroupTrial:
    """The user's functions, to be tried on some rows.

    Attributes:
        log_lik: Log-likelihood.
        global_params: Global parameters.
        effects: Effects, an entry for each row.
        columns: Rows.
        data: The same data, as they are read.
        rows_used: Numbers of the rows.
    """

    log_lik: Callable[[Tensors, Tensors], tf.Tensor]
    global_params: Tensors
    effects: Tensors
    columns: Tensors
    data: Data
    rows_used: np.ndarray

    @classmethod
    def of(
        cls,
        log_lik: Callable[[Tensors, Tensors], tf.Tensor],
        factors: Sequence[Groups],
        rows: Data,
        codes: Mapping[str, np.ndarray],
        params: Mapping[str, Any],
        dtype: tf.DType,
    ) -> GroupTrial:
        """Return a trial on the first rows of the first factor's groups.

        Args:
            log_lik: Log-likelihood.
            factors: Groups.
            rows: Rows.
            codes: Group of each row, for each factor.
            params: Starting values of the global parameters.
            dtype: Dtype of the chain.
        """
        rows_used = np.argsort(codes[factors[0].by], kind="stable")[: _SETTINGS.rows]
        columns = {
            name: column.tensor_at(rows_used) for name, column in rows.columns.items()
        }
        global_params = {
            name: tf.constant(np.asarray(value), dtype)
            for name, value in params.items()
        }
        effects: Tensors = {}
        for factor in factors:
            start = tf.constant(factor.start, dtype)[tf.newaxis]
            effects |= factor.named(tf.repeat(start, len(rows_used), axis=0))
        return cls(log_lik, global_params, effects, columns, rows, rows_used)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.rows_used)

    def terms(self, effects: Tensors) -> tf.Tensor:
        """Return the terms of the rows."""
        value = self.log_lik({**self.global_params, **effects}, dict(self.columns))
        terms = tf.convert_to_tensor(value)
        if terms.shape != (self.rows,):
            raise ValueError(
                f"`log_lik` must return one term for each row if there are `groups`: for "
                f"{self.rows} rows a tensor of shape ({self.rows},); it returned one of shape "
                f"{terms.shape}."
            )
        return terms

    def first(self, count: int) -> tf.Tensor:
        """Return the terms of the first rows, without the others."""
        rows_used = self.rows_used[:count]
        columns = {
            name: column.tensor_at(rows_used)
            for name, column in self.data.columns.items()
        }
        effects = {name: value[:count] for name, value in self.effects.items()}
        return self.log_lik({**self.global_params, **effects}, columns)

    def not_quadratic(self, factor: Groups, size: float = 1.0) -> list[str]:
        """Return effects in which log_lik and the density are no quadratic functions, if any.

        Third differences of a quadratic function are zero.

        Args:
            factor: Factor.
            size: Size of the steps.
        """
        effects = {name: self.effects[name] for name in factor.shapes}
        # Unlike steps of the entries, for what is cubic in several of them together.
        step = size * np.sqrt(1.0 + np.arange(factor.size))
        steps = factor.named(tf.constant(step, next(iter(effects.values())).dtype))

        def density(changed: Tensors) -> tf.Tensor:
            return factor.log_prior(dict(changed), dict(self.global_params))

        def terms(changed: Tensors) -> tf.Tensor:
            return self.terms({**self.effects, **changed})

        for names in [*([name] for name in effects), list(effects)]:
            points = [
                {**effects, **{n: effects[n] + k * steps[n][tf.newaxis] for n in names}}
                for k in range(4)
            ]
            for function in (density, terms):
                values = np.stack([function(point).numpy() for point in points]).astype(
                    np.float64
                )
                third = values.T @ [-1.0, 3.0, -3.0, 1.0]
                if not (
                    np.abs(third) <= _SETTINGS.third_difference * np.abs(values).max()
                ).all():
                    return names
        return []


def try_functions(trial: GroupTrial, factors: Sequence[Groups]) -> None:
    """Refuse functions that do not return a term for each row, or for each group.

    Args:
        trial: Functions, and rows to try them on.
        factors: Groups.

    Raises:
        ValueError: A function returns another shape, mixes groups or rows, or ignores an effect.
    """
    effects = trial.effects
    terms = trial.terms
    n = trial.rows
    for factor in factors:
        _need_terms_of_groups(
            factor, {name: effects[name] for name in factor.shapes}, trial.global_params
        )
    for factor in factors:
        if factor.normal:
            if names := trial.not_quadratic(factor):
                listed = " and ".join(repr(name) for name in names)
                raise ValueError(
                    f"`groups`: {factor.by!r} has normal=True, but log_lik and log_prior are no "
                    f"quadratic functions of the effect{'s' * (len(names) > 1)} {listed}. Leave "
                    "`normal` out."
                )
    whole = terms(effects)
    half_count = (n + 1) // 2
    terms_of_half = trial.first(half_count)
    if not np.allclose(
        terms_of_half, whole[:half_count], *_SETTINGS.close, equal_nan=True
    ):
        raise ValueError(
            "`log_lik` mixes rows: the terms of some rows differ without the others. The term of "
            "a row may depend on nothing of another row: a mean or sum over rows belongs into "
            "`dataset`, computed once."
        )
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(effects)
        total = tf.reduce_sum(terms(effects))
    for name, slope in tape.gradient(total, effects).items():
        if slope is None:
            raise ValueError(
                f"`log_lik` ignores the effect {name!r} of `groups`: params[{name!r}], which "
                "has an entry for each row there."
            )
        if (row := _mixed(terms, effects, name)) is not None:
            raise ValueError(
                f"`log_lik` mixes rows: the term of row {row} depends on the effect {name!r} of "
                f"another row. In `log_lik`, params[{name!r}] has an entry for each row already."
            )


def is_quadratic(trial: GroupTrial, factor: Groups) -> bool:
    """Return whether log_lik and the density of effects are quadratic functions of these.

    They are tried with short and very long steps, since a function of another kind may look
    quadratic nearby, and at two values of the global parameters.

    Args:
        trial: Functions, and rows to try them on.
        factor: Factor.
    """
    perturbed = replace(
        trial,
        global_params={
            name: 1.1 * value + 0.05 for name, value in trial.global_params.items()
        },
    )
    try:
        with np.errstate(all="ignore"):
            return not any(
                t.not_quadratic(factor, size)
                for t in (trial, perturbed)
                for size in _SETTINGS.step_sizes
            )
    except Exception as error:  # of any kind: a function that refuses these values
        pass_on(error)
        return False


def _need_terms_of_groups(factor: Groups, effects: Tensors, params: Tensors) -> None:
    n = next(iter(effects.values())).shape[0]

    def density(candidates: Tensors) -> tf.Tensor:
        value = tf.convert_to_tensor(factor.log_prior(dict(candidates), dict(params)))
        if value.shape != (n,):
            raise ValueError(
                f"`groups`: the log_prior of {factor.by!r} must return the log density of the "
                f"effects of each group: for {n} groups a tensor of shape ({n},); it returned one "
                f"of shape {value.shape}."
            )
        return value

    density(effects)
    for name in effects:
        if _mixed(density, effects, name) is not None:
            raise ValueError(
                f"`groups`: the log_prior of {factor.by!r} mixes groups: the density of a group "
                f"depends on the effect {name!r} of another. Sum over the axes of one group's "
                "effects, axis=1 and on, not over the first axis."
            )


def _mixed(
    function: Callable[[Tensors], tf.Tensor], effects: Tensors, name: str
) -> int | None:
    """Return the first other entry that changes with the effect of the first; ``None`` if none."""
    values = effects[name]
    n = values.shape[0]
    ones = [1] * (len(values.shape) - 1)
    step = tf.reshape(_SETTINGS.step * tf.one_hot(0, n, dtype=values.dtype), [n, *ones])
    before, after = (
        function({**effects, name: value}).numpy().astype(np.float64)
        for value in (values, values + step)
    )
    differs = ~np.isclose(after, before, *_SETTINGS.close, equal_nan=True)
    changed_rows = np.flatnonzero(differs[1:])
    return int(changed_rows[0]) + 1 if changed_rows.size else None
