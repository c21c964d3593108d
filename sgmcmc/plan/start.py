"""Start of chains whose moves are exact: the mode, and coordinates there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sgmcmc.data.random_numbers import Purpose, RunPhase, generator
from sgmcmc.engine.scheduler import Progress
from sgmcmc.inputs.dry_run import Demands, dry_run
from sgmcmc.inputs.support import need_precision
from sgmcmc.inputs.user_model import UserModel
from sgmcmc.model.geometry import Preconditioner
from sgmcmc.model.target import Target
from sgmcmc.model.whole_posterior import is_in_pieces
from sgmcmc.plan.curvature import observed_information
from sgmcmc.plan.local import local_geometry
from sgmcmc.plan.mode import DENSE_UP_TO, Mode
from sgmcmc.plan.objective import Objective
from sgmcmc.plan.plan import mode_from, whitening_at
from sgmcmc.plan.reports.warnings import NO_USEFUL_MODE
from sgmcmc.plan.stopping import Goal
from sgmcmc.run.request import Model, Request, prepared

_NARROW = 1e-12  # ratio of SDs that only the neck of a funnel has


@dataclass(frozen=True)
class _Settings:
    # Root mean square distance of starts from the mode, in posterior SDs.
    spread: float = 1.5
    newton_step: float = 2.0  # largest, in posterior SDs, from a usable mode
    # Of the log posterior from the mode to a start, beyond the usual for d.
    drop: float = 100.0
    halvings: int = 20  # of a start's distance from the mode
    # Coordinates whose covariance a warm-up determines by itself.
    dense_from_draws: int = 200


_SETTINGS = _Settings()


def with_tried_model(request: Request) -> Request:
    """Return a request whose model has been read and tried.

    Raises:
        ValueError, TypeError: An argument is wrong; the message names it.
    """
    request = prepared(request)
    model = request.read
    request.dynamics.bind(model.target.space)
    if model.values is None:
        tried = UserModel(model.target, model.data, min(500, model.data.size))
        demands = Demands(in_parts=is_in_pieces(model.data), corrected=True)
        values = dry_run(tried, model.starts, demands)
        model = replace(model, values=values)
    return replace(request, model=model)


@dataclass(frozen=True)
class Start:
    """Starts of chains.

    Attributes:
        preconditioner: û and C; ``None`` for the user's.
        params: User's parameters there, for each chain or for all.
        mode: Mode; ``None`` if none was useful.
        metric: Form of the coordinates that the warm-up may change: "dense", "diagonal", or "none".
        scaled: Indices of the coordinates whose scale alone it may change; ``None`` for all.
        warnings: Sentences on problems.
    """

    preconditioner: Preconditioner | None
    params: Any
    mode: Mode | None
    metric: str
    warnings: tuple[str, ...] = ()
    scaled: np.ndarray | None = None


def find_start(
    request: Request, form: str | None, goal: Goal, large: bool = False
) -> Start:
    """Return over-dispersed starts around the mode, or the user's if no mode of use was found.

    Args:
        request: Request, read; at the mode that it may have, precision has been checked.
        form: Requested form: "dense", "diagonal", or either.
        goal: Number of chains, and whether to show progress.
        large: Whether no mode is assumed.
    """
    model, mode = request.read, request.mode
    target, data, seed = model.target, model.data, model.seed
    if form not in (None, "auto", "dense", "diagonal"):
        raise ValueError(
            "`preconditioner` must be 'dense', 'diagonal', 'none', an array of p or p × p numbers "
            f"(p = {target.size}), or a dict of arrays by parameter; it is {form!r}."
        )
    if large or target.size > DENSE_UP_TO:
        return start_at_params(model, form, True)
    dense = _is_dense(target, form)
    with Progress("finding the mode", 1, goal.verbose) as progress:
        objective = Objective(target, data)
        if mode is None:
            start = model.starts[0].astype(np.float64)
            mode = _usable_mode(objective, start, seed, request.previous_hessian)
            if mode is not None:
                need_precision(target, data, mode.position, mode.information.covariance)
        progress.advance(1)
    if mode is None:
        return start_at_params(model, form)
    whitening = whitening_at(mode.position, mode.information.covariance)
    rng = generator(seed, 0, RunPhase.MODE, Purpose.START)
    steps = rng.standard_normal((goal.n_chains, target.size)) @ whitening.root.T
    top = objective.value_and_gradient(mode.position)[0]
    lowest = top - 10 * target.size * _SETTINGS.spread**2 - _SETTINGS.drop
    spread = []
    for step in _SETTINGS.spread * steps:
        # A start is nearer to the mode if the posterior does not reach that far.
        for _ in range(_SETTINGS.halvings):
            value, gradient = objective.value_and_gradient(mode.position + step)
            if value > lowest and np.isfinite(gradient).all():
                break
            step = step / 2
        spread.append(target.space.params(mode.position + step, target.dtype))
    if not dense:
        sds = np.sqrt(np.diag(mode.information.covariance))
        whitening = Preconditioner(sds, mode.position)
    return Start(whitening, spread, mode, "dense" if dense else "diagonal")


def start_at_params(model: Model, form: str | None, large: bool = False) -> Start:
    """Return the user's starts, with scales from the curvature there.

    Args:
        model: Model, read.
        form: Requested form: "dense", "diagonal", or either.
        large: Whether no mode is assumed: the scales are then those of minibatches' gradients.
    """
    target, starts = model.target, [start.astype(np.float64) for start in model.starts]
    params = _params(model)
    if large:
        geometry = local_geometry(target, model.data, starts, model.seed)
        return Start(geometry.whitening, params, None, "diagonal")
    objective = Objective(target, model.data)
    u = starts[0]
    try:
        with np.errstate(all="ignore"):
            curvature = np.abs(np.diag(observed_information(objective, u).matrix))
    except (np.linalg.LinAlgError, ValueError):
        curvature = np.ones(len(u))
    good = np.isfinite(curvature) & (curvature > 0)
    scales = Preconditioner(1.0 / np.sqrt(np.where(good, curvature, 1.0)), u)
    dense = _is_dense(target, form) and (
        form == "dense" or target.size <= _SETTINGS.dense_from_draws
    )
    return Start(
        scales, params, None, "dense" if dense else "diagonal", (NO_USEFUL_MODE,)
    )


def start_without_curvature(model: Model, form: str | None) -> Start:
    """Return the user's starts, with nothing known of scales.

    Args:
        model: Model, read.
        form: Requested form: "dense", "diagonal", or either.
    """
    scales = Preconditioner(
        np.ones(model.target.size), model.starts[0].astype(np.float64)
    )
    metric = "dense" if form == "dense" else "diagonal"
    return Start(scales, _params(model), None, metric)


def _params(model: Model) -> Any:
    """Return the user's starts, for each chain or for all."""
    target = model.target
    params = [target.space.params(start, target.dtype) for start in model.starts]
    return params[0] if len(params) == 1 else params


def _is_dense(target: Target, form: str | None) -> bool:
    return form == "dense" or (form != "diagonal" and target.size <= DENSE_UP_TO)


def _usable_mode(
    objective: Objective, start: np.ndarray, seed: int, hessian: np.ndarray | None
) -> Mode | None:
    try:
        with np.errstate(all="ignore"):
            mode = mode_from(objective, start, seed, hessian)
    except (np.linalg.LinAlgError, ValueError, FloatingPointError):
        return None
    variances = np.diag(mode.information.covariance)
    good = (
        np.isfinite(mode.information.covariance).all()
        and mode.distance < _SETTINGS.newton_step
    )
    good = good and variances.min() > _NARROW**2 * variances.max()
    return mode if good else None
