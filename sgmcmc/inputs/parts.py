"""The parts of a sampler: dynamics, gradient, minibatches, given by name or as objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from sgmcmc import dynamics as dynamics_room
from sgmcmc import gradients as gradients_room
from sgmcmc.checks import (
    describe,
    did_you_mean,
    from_outside,
    is_number,
    minibatch_rows,
    or_list,
)
from sgmcmc.dynamics import Dynamics, ExactDynamics
from sgmcmc.dynamics.simplex import SimplexDynamics
from sgmcmc.gradients import SAGA, FullGradient, Gradient, MinibatchGradient
from sgmcmc.inputs.options import Options
from sgmcmc.minibatches import Minibatches, Reshuffled, RowDraws, Uniform
from sgmcmc.minibatches.own import check_bound, try_minibatches
from sgmcmc.minibatches.reshuffled import OrderedDraws
from sgmcmc.minibatches.uniform import UniformDraws


def _has_name(part: Any) -> bool:
    return isinstance(getattr(part, "name", None), str) and bool(part.name)


# The parts that go by a name.
_DYNAMICS, _GRADIENTS = (
    {
        part.name: part
        for part in (getattr(room, name) for name in room.__all__)
        if _has_name(part)
    }
    for room in (dynamics_room, gradients_room)
)

_MINIBATCHES: Mapping[str, Minibatches] = {
    "uniform": Uniform(),
    "replacement": Uniform(replace=True),
    "reshuffled": Reshuffled(),
    "symmetric": Reshuffled(symmetric=True),
}
_PartType = TypeVar("_PartType")


def _read_part(
    argument: str, value: Any, names: Mapping[str, Any], kind: type[_PartType]
) -> _PartType:
    if isinstance(value, kind):
        return value
    allowed = f"{or_list(names)}, or an object of {kind.__module__.rpartition('.')[0]}"
    if value is None:
        raise ValueError(f"`{argument}` must be given: {allowed}.")
    if not isinstance(value, str):
        hint = (
            f" Did you mean {value.__name__}(...)?" if isinstance(value, type) else ""
        )
        raise TypeError(
            f"`{argument}` must be {allowed}; it is {describe(value)}.{hint}"
        )
    if value not in names:
        raise ValueError(
            f"`{argument}` must be {allowed}; it is {value!r}.{did_you_mean(value, names)}"
        )
    chosen = names[value]
    if not isinstance(chosen, type):
        return chosen
    needed = [f"{name}=..." for name in getattr(chosen, "needs", ())]
    if needed:
        raise ValueError(
            f"`{argument}`: {value!r} has a constant that must be given; write "
            f"{chosen.__module__.rpartition('.')[0]}.{chosen.__name__}({', '.join(needed)})."
        )
    return chosen()


@dataclass(frozen=True)
class SamplerParts:
    """The parts of a sampler, known to be compatible.

    Attributes:
        dynamics: Dynamics, bound to what the gradient estimator provides.
        gradient: Gradient estimator.
        minibatches: Way of drawing the rows.
    """

    dynamics: Dynamics
    gradient: Gradient
    minibatches: Minibatches

    def need_terms(self, draws: RowDraws) -> bool:
        """Return whether the terms of single observations are needed."""
        weighted = draws.weights is not None
        learns = self.dynamics.learns_noise or self.dynamics.visits
        return weighted or self.gradient.needs_rows or learns

    def to_json(self) -> dict[str, Any]:
        """Return names and constants, for the settings."""
        return {
            "dynamics": described(self.dynamics),
            "gradient": described(self.gradient),
            "minibatches": self.minibatches.to_json(),
        }


def read_parts(dynamics: Any, gradient: Any, options: Options) -> SamplerParts:
    """Return the user's parts, known to be compatible.

    Args:
        dynamics: User's dynamics: a name or an object.
        gradient: User's gradient: a name or an object.
        options: Keyword arguments.
    """
    chosen_dynamics = read_dynamics(dynamics)
    estimator = read_gradient(gradient, chosen_dynamics)
    minibatches = read_minibatches(options.minibatches, options.replace)
    return SamplerParts(
        _adapt_to_gradient(chosen_dynamics, estimator), estimator, minibatches
    )


def read_dynamics(value: Any) -> Dynamics:
    """Return the user's dynamics."""
    return _read_part("dynamics", value, _DYNAMICS, Dynamics)  # type: ignore[type-abstract]


def read_gradient(value: Any, dynamics: Dynamics) -> Gradient:
    """Return the user's gradient estimator, known to be compatible with the dynamics."""
    gradient = _read_part("gradient", value, _GRADIENTS, Gradient)  # type: ignore[type-abstract]
    if isinstance(dynamics, ExactDynamics) and not isinstance(gradient, FullGradient):
        raise ValueError(
            f"`gradient`: {type(gradient).__name__} is not compatible with "
            f"{type(dynamics).__name__}, which accepts or rejects by the log posterior over the "
            "whole dataset; an estimated gradient is not enough for that. Use 'full'."
        )
    search = gradient.search() if isinstance(dynamics, SimplexDynamics) else None
    if search is not None and search.n_iters:
        raise ValueError(
            f"`gradient`: {type(gradient).__name__} finds its center by stochastic gradient "
            f"ascent, which is not compatible with {type(dynamics).__name__}. Give the center, "
            "ControlVariate(center_at={...}), or use 'svrg', whose center follows the chain."
        )
    return gradient


def _adapt_to_gradient(dynamics: Dynamics, gradient: Gradient) -> Dynamics:
    if isinstance(dynamics, SimplexDynamics) and (
        gradient.centered or isinstance(gradient, SAGA)
    ):
        return replace(dynamics, differences=True)
    return dynamics


def need_no_latents(dynamics: Dynamics, gibbs: Any) -> None:
    """Raise an error if latent variables are drawn for dynamics that need log p(θ | x)."""
    if gibbs is not None and isinstance(dynamics, ExactDynamics):
        raise ValueError(
            f"`gibbs`: {type(dynamics).__name__} needs the log posterior of the parameters alone, "
            "and with latent variables drawn at each step there is none. Sum or integrate them out "
            "in `log_lik`."
        )


def need_geodesics(dynamics: Dynamics, manifolds: Mapping[str, Any]) -> None:
    """Raise an error if dynamics of ℝᵈ would move parameters on manifolds."""
    if manifolds and not dynamics.on_manifolds:
        raise ValueError(
            f"`dynamics`: {type(dynamics).__name__} moves in ℝᵈ, and `manifolds` names "
            f"{next(iter(manifolds))!r}. Use 'sggmc' or 'gsgnht'."
        )


def unseen(draws: RowDraws, rows: int) -> float:
    """Return the variance of the gradient's noise as a part of that of draws with replacement."""
    once = isinstance(draws, OrderedDraws) or (
        isinstance(draws, UniformDraws) and not draws.replace
    )
    return 1.0 - draws.size / rows if once else 1.0


def need_known_noise(
    dynamics: Dynamics, gradient: Gradient, gibbs: Any, draws: RowDraws
) -> None:
    """Raise an error if dynamics should learn the gradient's noise, and it cannot be estimated."""
    if dynamics.visits and gibbs is not None:
        raise ValueError(
            f"`gibbs`: {type(dynamics).__name__} compares the log posterior at several positions, "
            "and latent variables are drawn at one. Sum or integrate them out in `log_lik`."
        )
    if not dynamics.learns_noise:
        return
    n, reason = draws.size, None
    if dynamics.learns_information:
        _need_rows_alike(dynamics, gradient, draws)
    if type(gradient).terms is Gradient.terms:
        reason = (
            f"{type(gradient).__name__} does not estimate the noise of its estimates"
        )
    elif gibbs is not None:
        reason = "latent variables are drawn by `gibbs`, which add noise"
    elif n < 2:
        reason = "a minibatch of one row does not show how much rows differ"
    if reason is not None:
        if dynamics.learns_information:
            raise ValueError(
                f"`dynamics`: the information cannot be estimated: {reason}."
            )
        raise ValueError(
            f"`noise_variance` cannot be estimated: {reason}. Give a number, or 0."
        )


def _need_rows_alike(dynamics: Dynamics, gradient: Gradient, draws: RowDraws) -> None:
    """Raise an error if the information cannot be estimated from the rows' gradients."""
    name = type(dynamics).__name__
    if not isinstance(gradient, MinibatchGradient):
        raise ValueError(
            f"`gradient`: {name} estimates the information by the rows' own gradients, and those "
            f"of {type(gradient).__name__} are differences. Use 'minibatch' or 'full'."
        )
    if draws.weights is not None:
        raise ValueError(
            f"`minibatches`: {name} estimates the information by rows that are drawn alike. Use "
            "'uniform', 'replacement' or 'reshuffled'."
        )


def read_minibatches(value: Any, replace: bool) -> Minibatches:
    """Return the user's way of drawing rows.

    Args:
        value: User's ``minibatches``; ``None`` leaves it to ``replace``.
        replace: User's ``replace``.
    """
    if value is None:
        return Uniform(replace)
    minibatches = _read_part("minibatches", value, _MINIBATCHES, Minibatches)  # type: ignore[type-abstract]
    if replace and minibatches != Uniform(replace=True):
        raise ValueError(
            "`replace=True` draws uniformly with replacement; with `minibatches` of another kind "
            "leave it out."
        )
    return minibatches


def bind_minibatches(
    minibatches: Minibatches, gradient: Gradient, minibatch_size: Any, size: int
) -> RowDraws:
    """Return the way of drawing rows, bound to this dataset.

    Args:
        minibatches: User's way of drawing minibatches.
        gradient: Gradient estimator, which may need the whole dataset.
        minibatch_size: User's minibatch size: a proportion or a number; ``None`` if the gradient
            determines it.
        size: Number of observations.
    """
    if gradient.whole_dataset:
        if minibatches != Uniform():
            raise ValueError(
                "`minibatches`: the gradient uses the whole dataset; use 'uniform'."
            )
        if minibatch_size is not None and not (
            is_number(minibatch_size) and minibatch_size == size
        ):
            raise ValueError(
                f"`minibatch_size`: the gradient uses the whole dataset of {size} observations; "
                f"omit it. It is {describe(minibatch_size)}."
            )
        return minibatches.bind(size, size)
    if minibatch_size is None:
        raise ValueError(
            "`minibatch_size` must be given: a proportion between 0 and 1 or an integer from 1 "
            f"to {size}."
        )
    draws = minibatches.bind(
        size, minibatch_rows("minibatch_size", minibatch_size, size)
    )
    if from_outside(draws):
        check_bound(draws, size)
        try_minibatches(minibatches, draws, size, gradient.needs_rows)
    return draws


def constants(part: object) -> dict[str, Any]:
    """Return the constants of a part, by name, for the settings."""
    fields = getattr(part, "__dataclass_fields__", None)
    if fields is None:
        return {name: v for name, v in vars(part).items() if not name.startswith("_")}
    return {
        name: getattr(part, name)
        for name, field in fields.items()
        if field.metadata.get("constant", True)
    }


def described(part: object) -> dict[str, Any]:
    """Return the name of a part and its constants, for the settings."""
    named = {name: json_value(value) for name, value in constants(part).items()}
    return {"name": type(part).__name__, **named}


def json_value(value: Any) -> Any:
    """Return a setting in the form that JSON gives back unchanged."""
    if isinstance(value, Mapping):
        return {name: json_value(entry) for name, entry in value.items()}
    if value is None or isinstance(value, bool | str):
        return value
    if callable(value):
        return repr(value)
    try:
        array = np.asarray(value)
    except ValueError:  # a list of numbers and arrays
        return [json_value(entry) for entry in value]
    return repr(value) if array.dtype.kind == "O" else array.tolist()
