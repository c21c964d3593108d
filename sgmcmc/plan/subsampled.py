"""Zig-zag and MHSS: exact moves by minibatches, with their report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.data.dataset import Tensors
from sgmcmc.data.passes import Pass, chunks, shards
from sgmcmc.data.random_numbers import AliasTable
from sgmcmc.dynamics.subsampling import RowBounds, Subsampled
from sgmcmc.graphs.tracing import jacobian
from sgmcmc.graphs.user_functions import call
from sgmcmc.interrupts import TimeUpError, out_of_time
from sgmcmc.model.geometry import Preconditioner
from sgmcmc.model.target import Target
from sgmcmc.plan.mode import Mode
from sgmcmc.plan.objective import Objective
from sgmcmc.plan.reports.reporting import Sections, make_report, mode_facts, move_facts
from sgmcmc.plan.start import find_start, with_tried_model
from sgmcmc.plan.stopping import Goal, UntilEffective
from sgmcmc.plan.stored_constants import tune_once
from sgmcmc.results.diagnostics import diagnose
from sgmcmc.results.report import Report, Section, Timings
from sgmcmc.results.samples import Samples
from sgmcmc.run.driver import run_tuned, run_until
from sgmcmc.run.request import Model, Request, brief, is_open, on_machines
from sgmcmc.run.sampler_origin import origin_of


@dataclass(frozen=True)
class _Settings:
    # Share of `max_seconds` in which the mode and the bounds must be found.
    share_to_choose: float = 0.6
    table_numbers: int = 2**28  # in a table of all rows, of which there are two


_SETTINGS = _Settings()


@brief
@on_machines
def run_subsampled(request: Request, goal: Goal, prior_bound: Any) -> Samples:
    """Find the center and the bounds, run the chains, and return draws with their report.

    Args:
        request: Request of the user, with :class:`Subsampled` dynamics and a stepsize in units of
            posterior SDs, or ``None``.
        goal: Requested precision and length of the draws.
        prior_bound: Diagonal bound on the second derivatives of the log prior, by parameter;
            ``None`` for those at the mode, which are right for normal priors.
    """
    timings = Timings()
    goal = goal.checked(timings.began)
    keywords = {**request.keywords, "n_chains": goal.n_chains}
    request = with_tried_model(replace(request, keywords=keywords))
    model = request.read
    _check_model(model, request.dynamics)
    stepsize, slowness = request.dynamics.pace(model.target.size)
    if request.stepsize is None:
        request = replace(request, stepsize=stepsize)
    requested = request.keywords.get("preconditioner")
    try:
        with goal.limit(_SETTINGS.share_to_choose):
            form = None if is_open(requested) else requested
            start = find_start(request, form, goal)
            if start.mode is None or start.preconditioner is None:
                raise ValueError(
                    f"`{request.function}` needs a mode, around which gradients are known, and "
                    "none was found. Use sgmcmc.nuts()."
                )
            timings.done("mode and information")
            preconditioner = start.preconditioner
            bounds = _bounds(
                model, request.dynamics, start.mode, preconditioner, prior_bound
            )
            timings.done("bounds of all rows")
    except TimeUpError:
        task = "the mode and the bounds of all rows were known"
        raise out_of_time(task, timings.began) from None
    rule = UntilEffective(
        goal,
        _AssumedAutocorrelation(slowness),
        model.target.size,
        model.options.thin,
    )

    def tune(request: Request) -> Request:
        return request.tuned(
            start.params,
            preconditioner=preconditioner,
            mode=start.mode,
            burn_in=rule.burn_in,
        )

    dynamics = replace(request.dynamics, bounds=bounds)
    if model.options.store is None:
        samples = run_until(
            replace(tune(request), dynamics=dynamics), rule, goal.verbose
        )
    else:
        if goal.n_iters is None:
            raise ValueError(
                "`store`: a chain on disk has a fixed length. Give `n_iters`."
            )
        request = replace(tune_once(request, tune), dynamics=dynamics)
        samples = run_tuned(request, goal.n_iters, goal.verbose)
    timings.done("chain")
    return samples.with_report(_report(samples, timings, start.mode, goal.ess))


class _AssumedAutocorrelation:
    """A chain of which a guess of its autocorrelation time decides how long it runs at first."""

    def __init__(self, autocorrelation: float) -> None:
        self.autocorrelation = autocorrelation


def _check_model(model: Model, dynamics: Any) -> None:
    name, options, data = type(dynamics).__name__, model.options, model.data
    if options.bijectors or options.manifolds:
        argument = "bijectors" if options.bijectors else "manifolds"
        raise ValueError(
            f"`{argument}`: `curvature_bound` is about the parameters as they are, and {name} "
            "moves them unconstrained. Write the model in unconstrained parameters."
        )
    if options.store_gradients:
        raise ValueError(
            f"`store_gradients`: {name} computes no gradients over the dataset."
        )
    if data.sparse:
        raise ValueError(
            f"`dataset`: {name} picks single rows, and a matrix is sparse."
        )
    if data.size * model.target.size > _SETTINGS.table_numbers:
        raise ValueError(
            f"`dataset`: {name} keeps two numbers for each row and coordinate, {data.size} × "
            f"{model.target.size} of them. Use sgmcmc.sample()."
        )


def _bounds(
    model: Model,
    dynamics: Subsampled,
    mode: Mode,
    preconditioner: Preconditioner,
    prior: Any,
) -> RowBounds:
    target, data = model.target, model.data
    root = preconditioner.root if preconditioner.dense else np.diag(preconditioner.root)
    # R_j, and the gradient of each row's term at the mode, (N, d) both.
    point = tf.constant(mode.position, target.dtype)
    params = target.space.constrain(point)
    terms = Pass(data, {"gradients": target.term_gradients})
    tables: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    max_rows = max(1, 2**22 // max(1, target.size))
    for shard in shards(data, max_rows):
        for _, columns in chunks(data, shard):
            tables[0].append(_factors(dynamics, target, params, columns))
            tables[1].append(terms.run("gradients", point, columns).numpy())
    factors, gradients = np.concatenate(tables[0]), np.concatenate(tables[1])
    factors, gradients = factors @ root, gradients @ root
    gradient = Objective(target, data).value_and_gradient(mode.position)[1]
    matrix = _prior_curvature(target, mode.position, prior)
    matrix = root.T @ matrix @ root
    largest = float(np.linalg.eigvalsh(matrix)[-1])
    prior_bounds = np.sqrt(np.maximum(np.diag(matrix), 0.0) * max(largest, 0.0))
    table = AliasTable.of(dynamics.weights(factors))
    return RowBounds(factors, gradients, table, root.T @ gradient, prior_bounds)


def _factors(
    dynamics: Subsampled, target: Target, params: Tensors, columns: Tensors
) -> np.ndarray:
    """Return the factors of the bounds by the user's function for some rows, (n, d)."""
    layout = target.space.layout
    rows = next(iter(columns.values())).shape[0]
    arguments = f"params and {rows} rows"
    returned = call(
        "curvature_bound",
        target.dtype,
        dynamics.curvature_bound,
        arguments,
        params=params,
        dataset=columns,
    )
    shapes = {name: (rows, *shape) for name, shape in layout.shapes.items()}
    if not isinstance(returned, Mapping):
        raise TypeError(
            "`curvature_bound` must return a dict with an array for each parameter; it returned "
            f"{checks.describe(returned)}."
        )
    checks.known_keys("curvature_bound", returned, shapes, "the parameters are")
    factors = []
    for name, shape in shapes.items():
        factor = np.asarray(returned.get(name, np.zeros(shape)), np.float64)
        if factor.shape != shape:
            raise ValueError(
                f"`curvature_bound` must return an array of shape {shape} for {name!r}, a factor "
                f"for each row; it returned one of shape {factor.shape}."
            )
        if not np.isfinite(factor).all():
            raise ValueError(
                f"`curvature_bound` returned numbers for {name!r} that are not finite."
            )
        factors.append(factor.reshape(rows, -1))
    return np.concatenate(factors, 1)


def _prior_curvature(
    target: Target, position: np.ndarray, prior_bound: Any
) -> np.ndarray:
    """Return a matrix that bounds the second derivatives of the log prior from both sides."""
    layout = target.space.layout
    if prior_bound is None:
        point = tf.constant(position, target.dtype)
        matrix = jacobian(target.prior_gradient, point).numpy()
        values, vectors = np.linalg.eigh(np.asarray(matrix, float))
        return vectors @ np.diag(np.abs(values)) @ vectors.T
    if not isinstance(prior_bound, Mapping):
        raise TypeError(
            "`prior_bound` must be a dict with a number or an array for each parameter; it is "
            f"{checks.describe(prior_bound)}."
        )
    checks.known_keys("prior_bound", prior_bound, layout.names, "the parameters are")
    bounds_by_parameter = [
        np.broadcast_to(np.asarray(prior_bound.get(name, 0.0), float), shape).reshape(
            -1
        )
        for name, shape in layout.shapes.items()
    ]
    bounds = np.concatenate(bounds_by_parameter)
    if not (np.isfinite(bounds).all() and (bounds >= 0).all()):
        raise ValueError("`prior_bound` must be finite and not negative.")
    return np.diag(bounds)


def _report(samples: Samples, timings: Timings, mode: Mode, ess: float) -> Report:
    origin, diagnostics = origin_of(samples), diagnose(samples)
    settings = samples.settings
    sections: Sections = {
        Section.MODE: mode_facts(mode),
        Section.CHAIN: {
            "observations": settings["N"],
            "stepsize, posterior SDs": settings["stepsize"],
            **move_facts(origin.facts),
        },
        Section.DRAWS: {},
    }
    warnings = diagnostics.warnings(ess)
    return make_report(
        origin.sampler, samples, diagnostics, sections, warnings, timings
    )
