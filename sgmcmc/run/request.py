"""The user's request, the model read from it once per call, and what surrounds that call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.data.dataset import Data
from sgmcmc.data.transfer import read_machines
from sgmcmc.dynamics import Dynamics, Underdamped
from sgmcmc.dynamics.hamiltonian import Hamiltonian
from sgmcmc.gradients import ControlVariate, Gradient
from sgmcmc.graphs.tracing import quiet_start
from sgmcmc.groups.anchors import FixedNodes
from sgmcmc.groups.structure import Structure, read_groups
from sgmcmc.inputs import parts
from sgmcmc.inputs.options import Options, check_names, read_options
from sgmcmc.inputs.parameters import (
    Constraints,
    read_columns,
    read_geometries,
    read_params,
)
from sgmcmc.interrupts import passed_on
from sgmcmc.model.geometry import Preconditioner, Space
from sgmcmc.model.target import LogLik, LogPrior, Target, tempered
from sgmcmc.reduce.rows import number_of_rows
from sgmcmc.results.report import Report
from sgmcmc.results.samples import Samples

if TYPE_CHECKING:
    from sgmcmc.plan.mode import Mode
    from sgmcmc.plan.plan import Plan

Function = TypeVar("Function", bound=Callable[..., Any])

# The user's values for what should be chosen: any constant, a preconditioner, weights of rows
AUTO = "auto"
PRECONDITIONERS = (AUTO, "dense", "diagonal")
MINIBATCHES = (AUTO, "leverage")

_SAMPLER_ARGUMENTS = {
    "dynamics",
    "gradient",
    "minibatches",
    "minibatch_size",
    "preconditioner",
    "stepsize",
}


def is_open(value: Any) -> bool:
    """Return whether a constant should be chosen."""
    return value is None or (isinstance(value, str) and value == AUTO)


@dataclass(frozen=True)
class Model:
    """A user's model, read and checked.

    Attributes:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        params: Starting values, one dict, or one for each chain.
        options: Keyword arguments.
        seed: Seed, or the entropy drawn in its place.
        values: Values of the user's functions at the start; ``None`` before they were tried.
    """

    target: Target
    data: Data
    params: list[dict[str, np.ndarray]]
    options: Options
    seed: int
    values: dict[str, float] | None = None

    @property
    def starts(self) -> list[np.ndarray]:
        """Starting positions, flat."""
        return [
            self.target.space.start(start, self.target.dtype) for start in self.params
        ]

    def preconditioned(
        self, preconditioner: Preconditioner | None
    ) -> tuple[Target, list[np.ndarray]]:
        """Return the target in the coordinates of a preconditioner, and the starts there."""
        old = self.target
        space = old.space.preconditioned(preconditioner)
        starts = [space.start(start, old.dtype) for start in self.params]
        return Target(old.log_lik, old.log_prior, space, old.dtype), starts


class LaplaceApproximation(NamedTuple):
    """The normal approximation of a posterior whose coordinates are mostly effects of groups.

    Attributes:
        whitening: û, near the mode, and C.
        others: Indices of the coordinates that are no effects.
    """

    whitening: Preconditioner
    others: np.ndarray


class Earlier(NamedTuple):
    """A plan for fewer rows of the same kind.

    Attributes:
        plan: Plan.
        rows: Number of rows.
    """

    plan: Plan
    rows: int

    def noise_in(self, whitening: Preconditioner, rows: int) -> np.ndarray:
        """Return the noise of gradients for a number of rows, in the coordinates of a chain.

        As long as minibatches have one size, its covariance grows like the information.
        """
        earlier_root, root = (
            coordinates.times(np.eye(len(coordinates.origin))).T
            for coordinates in (self.plan.whitening, whitening)
        )
        change = np.linalg.solve(earlier_root, root)
        return rows / self.rows * change.T @ self.plan.around.noise @ change


class PreviousFit(NamedTuple):
    """An earlier posterior, at whose mode chains of this one begin.

    Attributes:
        hessian: Hessian of the log-likelihood there, (d, d).
        rows: Number of observations, or sum of their weights.
        plan: Plan whose noise was measured, if these observations are among those of this one.
        values: Values of the user's functions at the start, for the same.
        pace: Iterations that gave an effective draw of the slowest coordinate, for the same.
    """

    hessian: np.ndarray
    rows: float
    plan: Earlier | None = None
    values: dict[str, float] | None = None
    pace: float | None = None


class Reporter(Protocol):
    """Statements on draws whose constants the user gave, computed when they are asked for."""

    def report(self, sampler: Any, samples: Samples) -> Report | None:
        """Return the report on draws of a sampler."""

    def robust(self, sampler: Any, samples: Samples) -> dict[str, np.ndarray]:
        """Return draws moved so that their covariance is that of the sandwich."""

    def error_factor(self, dynamics: Dynamics) -> float:
        """Return ε's error over its difference to that of ε/2."""


@dataclass(frozen=True)
class Request:
    """The user's request, as it was given.

    Attributes:
        function: Name of the function that was called.
        method: Name of the sampler in the settings and next to the progress bar.
        log_lik: Log-likelihood.
        dataset: Dataset.
        params: Starting values.
        log_prior: Log-prior, or ``None``.
        dynamics: Name or object.
        gradient: Name or object.
        minibatch_size: Proportion or number; ``None`` if the gradient has it.
        stepsize: Stepsize of the chain.
        seed: Integer, or ``None``.
        keywords: Keyword arguments that every sampler has.
        stepwise: Whether the user runs the chain, and keeps the draws.
        model: Model that was read from all this, if it was.
        groups: Groups of the model, if it has any: ``log_lik`` and ``dataset`` are then those of
            packs of groups.
        fixed_nodes: Fixed quadrature nodes of groups; ``None`` if they are searched for.
        laplace: Normal approximation, if coordinates are mostly effects; otherwise ``None``.
        previous: Earlier posterior whose mode ``params`` is; ``None`` if there is none.
        mode: Mode that what was chosen goes by; ``None`` if nothing was chosen.
        plan: Plan by which it was chosen; ``None`` if nothing was.
        reporter: What reports on the draws.
    """

    function: str
    method: str
    log_lik: LogLik
    dataset: Mapping[str, Any]
    params: Any
    log_prior: LogPrior | None
    dynamics: Any
    gradient: Any
    minibatch_size: Any
    stepsize: Any
    seed: int | None
    keywords: Mapping[str, Any] = field(default_factory=dict)
    stepwise: bool = False
    model: Model | None = None
    groups: Structure | None = None
    fixed_nodes: FixedNodes | None = None
    laplace: LaplaceApproximation | None = None
    previous: PreviousFit | None = None
    mode: Mode | None = None
    plan: Plan | None = None
    reporter: Reporter | None = None

    @property
    def read(self) -> Model:
        """The model, which has been read."""
        assert self.model is not None, "not prepared"
        return self.model

    @property
    def previous_hessian(self) -> np.ndarray | None:
        """Hessian at the mode of :attr:`previous`, scaled to the rows here, or ``None``."""
        if self.previous is None:
            return None
        rows = number_of_rows(self.dataset, self.read.data.size)
        return self.previous.hessian * (rows / self.previous.rows)

    def tuned(
        self, params: Any = None, *, seed: int | None = None, **changes: Any
    ) -> Request:
        """Return the request with choices; the model is not read again.

        Args:
            params: Parameters where chains start, a dict or one for each chain; ``None`` for those
                there are.
            seed: Another seed.
            changes: Other parts, by the name of the attribute, and other keyword arguments.
        """
        attributes = {name: changes.pop(name) for name in _CHOSEN if name in changes}
        model = self.read
        starts = model.params
        if params is not None:
            starts = list(params) if isinstance(params, list | tuple) else [params]
        model = replace(
            model,
            params=starts,
            options=replace(model.options, **changes),
            seed=model.seed if seed is None else seed,
        )
        return replace(
            self, **attributes, keywords={**self.keywords, **changes}, model=model
        )


# Attributes of a request that are chosen for it
_CHOSEN = (
    "method",
    "dynamics",
    "gradient",
    "minibatch_size",
    "stepsize",
    "mode",
    "plan",
)


def is_one_of(value: Any, names: tuple[str, ...]) -> bool:
    """Return whether a value is one of some names."""
    return isinstance(value, str) and value in names


def center_is_open(gradient: Any) -> bool:
    """Return whether the center of control variates should be the mode that is found here."""
    named = is_one_of(gradient, (AUTO, ControlVariate.name))
    return named or (
        isinstance(gradient, ControlVariate)
        and is_one_of(gradient.opt_stepsize, (AUTO,))
    )


def open_arguments(request: Request) -> list[str]:
    """Return the names of the arguments to choose."""
    open_by_name = {
        "stepsize": is_one_of(request.stepsize, (AUTO,)),
        "dynamics": is_one_of(request.dynamics, (AUTO,)),
        "opt_stepsize": isinstance(request.gradient, Gradient)
        and center_is_open(request.gradient),
        "gradient": isinstance(request.gradient, str)
        and center_is_open(request.gradient),
        "minibatch_size": is_one_of(request.minibatch_size, (AUTO,)),
        "minibatches": is_one_of(request.keywords.get("minibatches"), MINIBATCHES),
        "preconditioner": is_one_of(
            request.keywords.get("preconditioner"), PRECONDITIONERS
        ),
    }
    return [name for name, is_open in open_by_name.items() if is_open]


def all_parts_open(request: Request) -> bool:
    """Return whether the user leaves the whole sampler open."""
    return set(open_arguments(request)) >= _SAMPLER_ARGUMENTS


def prepared(request: Request) -> Request:
    """Return a request whose model has been read and checked.

    Raises:
        ValueError, TypeError: An argument is wrong; the message names it.
    """
    if request.model is not None:
        return request
    request = _with_groups(request)
    quiet_start()
    checks.function("log_lik", request.log_lik, "of `params` and `dataset`")
    if request.log_prior is not None:
        checks.function("log_prior", request.log_prior, "of `params`, or None")
    options = read_options(request.function, request.keywords, request.stepwise)
    dtype = options.dtype
    params = read_params(request.params, options.n_chains, dtype)
    check_names(options, list(params[0]))
    dynamics = parts.read_dynamics(
        Underdamped() if is_open(request.dynamics) else request.dynamics
    )
    parts.need_no_latents(dynamics, options.gibbs)
    parts.need_geodesics(dynamics, options.manifolds)
    seed = checks.seed_number("seed", request.seed)
    temperature = options.temperature
    constraints = Constraints(options.bijectors, options.manifolds, temperature)
    geometries = read_geometries(constraints, dynamics, params, dtype)
    space = Space({name: value.shape for name, value in params[0].items()}, geometries)
    log_lik, log_prior = (
        tempered(f, temperature) for f in (request.log_lik, request.log_prior)
    )
    target = Target(log_lik, log_prior, space, dtype)
    data = read_columns(request.dataset, options)
    return replace(request, model=Model(target, data, params, options, seed))


def _with_groups(request: Request) -> Request:
    """Return a request whose ``groups`` have become log-likelihood, dataset and parameters."""
    groups = request.keywords.get("groups")
    if groups is None:
        return request
    if request.keywords.get("temperature", 1.0) != 1.0:
        raise ValueError(
            "`temperature` is for models without `groups`: effects that are integrated out have "
            "no temperature. Leave it at 1, or make the effects parameters."
        )
    if request.keywords.get("storage") is not None:
        raise ValueError(
            "`storage` is for models without `groups`, whose data are packed again."
        )
    # Chains move, or may move, by gradients over the whole dataset.
    whole = isinstance(request.dynamics, Hamiltonian) or (
        all_parts_open(request) and request.keywords.get("store") is None
    )
    keywords = {**request.keywords, "groups": None}
    model = read_groups(
        groups,
        request.log_lik,
        request.dataset,
        request.params,
        request.log_prior,
        checks.floating_dtype("dtype", keywords.get("dtype", tf.float32)),
        keywords.get("integers", ()),
        whole=whole,
    )
    return replace(
        request,
        log_lik=model.log_lik,
        dataset=model.dataset,
        params=model.params,
        log_prior=model.log_prior,
        keywords={**keywords, "integers": model.integers},
        groups=model.structure,
    )


def brief(function: Function) -> Function:
    """Start the traceback of errors that name an argument here, as if it had been read here.

    Such a message begins with the argument's name in backticks, and is complete. Of
    errors in the user's own functions the cause keeps its traceback.
    """

    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except (TypeError, ValueError) as error:
            if str(error).startswith("`"):
                error.with_traceback(None)
                raise error
            raise

    return wrapped  # type: ignore[return-value]


def on_machines(function: Function) -> Function:
    """Have the machines of a request ready while a function runs that takes the request first."""

    @functools.wraps(function)
    def wrapped(request: Request, *arguments: Any, **named: Any) -> Any:
        with read_machines(request.keywords.get("executor")) as machines:
            keywords = {**request.keywords, "executor": machines}
            with passed_on():
                return function(
                    replace(request, keywords=keywords), *arguments, **named
                )

    return wrapped  # type: ignore[return-value]
