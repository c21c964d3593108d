"""Local variables of joint distributions, which have a value for each group of rows.

In a joint distribution such a variable holds the effects of all groups, (G, ...), and the rows look
theirs up by a column of covariates. As :class:`sgmcmc.Groups` a chain has no coordinates for them,
and the rows of a minibatch come with an effect each. The same function of covariates serves both:
it is handed the effects of the rows, one after another, in place of those of the groups, and the
numbers of the rows in place of those of the groups. That this gives the same density is tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc import libraries
from sgmcmc.bridges.row_checks import (
    close,
    log_density_of_rows,
    positions,
    rows_for_trial,
    some_of,
)
from sgmcmc.data.dataset import Tensors
from sgmcmc.groups.spec import Groups

_POSITIONS = 2  # number of positions at which groups are tried, with the start


class Plate(NamedTuple):
    """Local variables whose first axis counts the groups of a column.

    Attributes:
        by: Name of the column with the group of each row.
        names: Names of the variables.
        levels: Number of groups, G.
    """

    by: str
    names: tuple[str, ...]
    levels: int


def read_plates(
    groups: Any,
    params: Mapping[str, np.ndarray],
    bijectors: Mapping[str, Any],
    covariates: Mapping[str, Any],
) -> tuple[Plate, ...]:
    """Return the plates that a user names, once the names and shapes are known to be right.

    Args:
        groups: User's: names of variables, or one name, by the name of a column.
        params: Starting values of all variables.
        bijectors: Bijectors of the constrained ones.
        covariates: Columns that the joint distribution is a function of.

    Raises:
        ValueError, TypeError: Something is wrong; the message says what.
    """
    if groups is None:
        return ()
    if not isinstance(groups, Mapping) or not groups:
        raise TypeError(
            "`groups` must be a dict of local variables by the column that has the group of each "
            f"row, such as {{'site': ['u']}}; it is a {type(groups).__name__}."
        )
    if not covariates:
        raise ValueError(
            "`groups` needs a `joint` that is a function of `data`, since the rows of a minibatch "
            "look up their own effects: write def model(data): ..., and tf.gather(u, data['site'])."
        )
    plates, seen = [], set()
    for by, variables in groups.items():
        names = (variables,) if isinstance(variables, str) else tuple(variables)
        if by not in covariates:
            raise ValueError(
                f"`groups`: {by!r} is not among `data`, {list(covariates)}."
            )
        codes = np.asarray(covariates[by])
        if codes.ndim != 1 or codes.dtype.kind not in "iu":
            raise ValueError(
                f"`groups`: `data[{by!r}]` must be a vector of integers from 0 on."
            )
        for name in names:
            if name not in params:
                raise ValueError(
                    f"`groups`: {name!r} is none of the parameters, {list(params)}."
                )
            if name in seen:
                raise ValueError(f"`groups` names {name!r} twice.")
            seen.add(name)
            if name in bijectors:
                raise ValueError(
                    f"`groups`: {name!r} is constrained. Write it as a function of a variable that "
                    "is not, such as the exponential of a Normal."
                )
            if codes.min() < 0:
                raise ValueError(
                    f"`groups`: `data[{by!r}]` holds {codes.min()}; groups are counted from 0."
                )
            if params[name].ndim == 0 or len(params[name]) <= codes.max():
                raise ValueError(
                    f"`groups`: the first axis of {name!r} must count the groups of {by!r}, of "
                    f"which there are {codes.max() + 1}; its shape is {params[name].shape}."
                )
        lengths = {len(params[name]) for name in names}
        if len(lengths) != 1:
            raise ValueError(
                f"`groups`: the variables of {by!r} have {sorted(lengths)} groups."
            )
        plates.append(Plate(by, names, lengths.pop()))
    if seen == set(params):
        raise ValueError("`groups` names all parameters: none is left that is global.")
    return tuple(plates)


def log_prior_of(
    plate: Plate, distributions: Mapping[str, Any], effects: Mapping[str, tf.Tensor]
) -> tf.Tensor:
    """Return the log density of the effects of some groups, (g,).

    Args:
        plate: Plate.
        distributions: Distributions of the variables given the global parameters.
        effects: Effects of some groups, (g, ...), by name.
    """
    terms = [_by_group(distributions[name], effects[name]) for name in plate.names]
    return tf.add_n(terms)


def of_one_row(distribution: Any) -> Any:
    """Return the distribution inside of ``Independent`` and ``Sample``, whose batch is the rows."""
    tfd = libraries.tensorflow_probability().distributions
    while isinstance(distribution, tfd.Independent):
        distribution = distribution.distribution
    if isinstance(distribution, tfd.Sample) and not distribution.batch_shape.rank:
        distribution = distribution.distribution
        while isinstance(distribution, tfd.Independent):
            distribution = distribution.distribution
    return distribution


def _by_group(distribution: Any, effects: tf.Tensor) -> tf.Tensor:
    inner = of_one_row(distribution)
    event, batch = inner.event_shape.rank, inner.batch_shape.rank
    if event is None or batch is None or effects.shape.rank - event < 1:
        raise ValueError(
            f"{type(inner).__name__} has one density for all groups, of shape {inner.event_shape}"
        )
    if batch == effects.shape.rank - event:
        inner = inner[0]  # all groups have the same
    log_prob = inner.log_prob(effects)
    return tf.reduce_sum(log_prob, axis=list(range(1, log_prob.shape.rank)))


def as_groups(model: Any, plate: Plate, starts: Mapping[str, Any]) -> Groups:
    """Return the groups of a plate, whose effects start at zero."""
    effects = {name: np.zeros(np.shape(starts[name])[1:]) for name in plate.names}

    def log_prior(effects: Tensors, params: Tensors) -> tf.Tensor:
        return model.effects_density(plate, effects, params)

    return Groups(plate.by, effects, log_prior, members=range(plate.levels))


def check_plates(model: Any, plates: Sequence[Plate]) -> None:
    """Refuse variables that cannot be effects of groups.

    Args:
        model: Model whose ``params`` hold all variables.
        plates: Plates.

    Raises:
        ValueError: Groups depend on each other or have different distributions; something else
            depends on their effects; or rows use effects of groups that are not theirs.
    """
    rng = np.random.default_rng(0)
    shapes = {name: value.shape for name, value in model.params.items()}

    def redrawn(names: Sequence[str]) -> dict[str, tf.Tensor]:
        return {n: tf.constant(rng.normal(size=shapes[n]), model.dtype) for n in names}

    local = [name for plate in plates for name in plate.names]
    for params in itertools.islice(positions(model), _POSITIONS):
        for plate in plates:
            values_of_all = {**params, **redrawn(local)}
            both = ({**values_of_all, **redrawn(plate.names)} for _ in range(2))
            _refuse_dependent_groups(model, plate, *both)
    values = {**next(positions(model)), **redrawn(local)}
    some = some_of(model.dataset, rows_for_trial(model.dataset, model.N))
    expected = log_density_of_rows(model.log_lik, values, some, model.dataset)
    rows = dict(values)
    for plate in plates:
        for name in plate.names:
            rows[name] = tf.gather(values[name], some[plate.by])
    by_rows = (
        "they are used by rows in another way than tf.gather(effects, data[column])"
    )
    try:
        actual = model.log_lik_of_rows(rows, some, [plate.by for plate in plates])
    except Exception as error:
        raise ValueError(_no_plate(plates[0], f"{by_rows}. {error}")) from error
    if not close(actual, expected, model.dtype):
        raise ValueError(_no_plate(plates[0], by_rows))


def _refuse_dependent_groups(
    model: Any,
    plate: Plate,
    values: dict[str, tf.Tensor],
    redrawn: dict[str, tf.Tensor],
) -> None:
    """Refuse groups that depend on each other, and other variables that depend on them.

    Args:
        model: Model.
        plate: Plate.
        values: Values of all variables.
        redrawn: The same, with other effects of the plate.
    """
    try:
        densities, densities_redrawn = (
            model.effects_density(
                plate, {n: values[n] for n in plate.names}, all_values
            )
            for all_values in (values, redrawn)
        )
    except Exception as error:
        reason = f"their density cannot be computed: {error}"
        raise ValueError(_no_plate(plate, reason)) from error
    terms, terms_redrawn = (
        {n: float(v) for n, v in model.prior_terms(all_values).items()}
        for all_values in (values, redrawn)
    )
    whole = sum(terms[name] for name in plate.names)
    if not np.isclose(np.sum(densities), whole, rtol=1e-4, atol=1e-4):
        raise ValueError(_no_plate(plate, "the groups have different distributions"))
    if not np.allclose(densities, densities_redrawn, rtol=1e-5, atol=1e-5):
        raise ValueError(_no_plate(plate, "their densities depend on each other"))
    for name in terms:
        if name not in plate.names and not close(
            terms[name], terms_redrawn[name], model.dtype
        ):
            what = "the density of other parameters depends on them"
            raise ValueError(_no_plate(plate, f"{what}, that of {name!r}"))


def _no_plate(plate: Plate, reason: str) -> str:
    names = ", ".join(map(repr, plate.names))
    return (
        f"`groups`: {names} cannot be effects of the groups of {plate.by!r}, since {reason}. Leave "
        "`groups` out, and they are coordinates of the chain."
    )
