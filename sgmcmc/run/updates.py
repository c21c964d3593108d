"""Posteriors that begin at the end of another: with new rows, or of a call like an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sgmcmc.data.derived_columns import joined, need_like_rows, need_same_columns
from sgmcmc.data.levels import Categories, factorized
from sgmcmc.data.reading import read_dataset
from sgmcmc.data.tables import by_column
from sgmcmc.groups.labels import extended
from sgmcmc.groups.model import Structure
from sgmcmc.results.arrays import by_chain
from sgmcmc.results.samples import Samples
from sgmcmc.run.origin import SamplerOrigin, origin_of
from sgmcmc.run.request import Earlier, PreviousFit, Request, brief
from sgmcmc.run.sampler import Sampler

Call = Callable[[Request, bool], Samples]
"""Function that makes draws of a user's request, with progress or without."""


def updatable(samples: Samples, request: Request, call: Call) -> Samples:
    """Return draws that can make those of the same request with more rows.

    Args:
        samples: Draws.
        request: Request that they were made for.
        call: Function that made them.
    """
    origin = origin_of(samples)

    def update(old: Samples, rows: Any, seed: int | None, verbose: bool) -> Samples:
        extended = replace(
            request,
            dataset=_with_rows(request, origin, rows),
            seed=origin.sampler.seed + 1 if seed is None else seed,
            previous=None,
        )
        extended = begun_at(extended, old)
        if extended.previous is not None:
            extended = replace(
                extended,
                previous=_with_chain_facts(extended.previous, origin.sampler, old),
            )
        return updatable(call(extended, verbose), extended, call)

    def go_on(n_iters: int, verbose: bool) -> Samples:
        assert origin.go_on is not None
        return updatable(origin.go_on(n_iters, verbose), request, call)

    go_on_if_possible = None if origin.go_on is None else go_on
    return samples.made_by(replace(origin, update=update, go_on=go_on_if_possible))


@brief
def begun_at(request: Request, start: Any) -> Request:
    """Return a request whose chains begin at the end of others.

    That is the mode with the curvature there, if one was found for them, else their last draws.
    Effects of groups that are coordinates begin again, because there may be other groups.

    Args:
        request: Request of the user.
        start: Draws of an earlier call for the same parameters.
    """
    if not isinstance(start, Samples):
        raise TypeError(
            f"`start` must be the Samples of an earlier call; it is {start!r}."
        )
    params, n_chains = request.params, request.keywords.get("n_chains")
    first = params if isinstance(params, Mapping) else params[0]
    shapes = {name: np.shape(value) for name, value in first.items()}
    draws = by_chain(start.settings, start)
    draw_shapes = {name: array.shape[2:] for name, array in draws.items()}
    with_effects = request.keywords.get("groups") is not None and set(
        draw_shapes
    ) > set(shapes)
    if with_effects:
        draws = {name: draws[name] for name in shapes}
        draw_shapes = {name: draw_shapes[name] for name in shapes}
    if shapes != draw_shapes:
        raise ValueError(
            f"`start` must be of the parameters {shapes}; it is of {draw_shapes}."
        )
    origin = start.origin
    mode = origin.sampler.request.mode if isinstance(origin, SamplerOrigin) else None
    if mode is not None and mode.converged:
        assert isinstance(origin, SamplerOrigin)
        old = origin.sampler.request.read.target
        params = old.space.params(mode.position, old.dtype)
        previous = None if with_effects else PreviousFit(mode.hessian, origin.data.size)
        return replace(
            request, params={name: params[name] for name in shapes}, previous=previous
        )
    chains, length = next(iter(draws.values())).shape[:2]
    if length == 0:
        raise ValueError("`start` holds no draws.")
    last = [
        {name: array[chain, -1] for name, array in draws.items()}
        for chain in range(chains)
    ]
    return replace(request, params=last if n_chains == chains else last[0])


def _with_chain_facts(
    previous: PreviousFit, sampler: Sampler, samples: Samples
) -> PreviousFit:
    """Return an earlier posterior of the same rows, with facts about its chains.

    Args:
        previous: Earlier posterior.
        sampler: Sampler of its chains.
        samples: Draws.
    """
    request, pace = sampler.request, None
    draws = {} if samples.report is None else samples.report["Draws"]
    if {"ESS, bulk", "ESS, tail"} <= set(draws):
        count = next(iter(by_chain(samples.settings, samples).values())).shape[1]
        smallest = float(np.nanmin([*draws["ESS, bulk"], *draws["ESS, tail"]]))
        pace = count * samples.settings["thin"] / max(1.0, smallest)
    plan = request.plan
    source = None if plan is None else plan.earlier or Earlier(plan, previous.rows)
    return previous._replace(plan=source, values=request.read.values, pace=pace)


def _with_rows(request: Request, origin: SamplerOrigin, rows: Any) -> Any:
    options = origin.sampler.options
    if origin.groups is not None:
        return _as_dict(request.dataset, rows, origin.groups)
    try:
        levels = origin.data.levels
        new = read_dataset(
            rows, options.dtype, options.integers, options.storage, levels
        )
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace("`dataset", "`rows")) from None
    return joined(origin.data, new)


def _as_dict(dataset: Any, rows: Any, groups: Structure) -> dict[str, Any]:
    """Return the columns of a dataset with those of more rows behind them, labels included."""
    old, new = by_column(dataset), by_column(rows)
    if old is None or new is None:
        raise TypeError(
            "`rows` must be a dict of arrays, or a table in memory, as `dataset` is."
        )
    need_same_columns(old, new)
    return {name: _concatenated(name, old[name], new[name], groups) for name in old}


def _concatenated(name: str, old: Any, new: Any, groups: Structure) -> Any:
    """Return a column of a dataset with that of more rows behind it.

    Groups and levels are those of the same value; groups may be new, levels may not.
    """
    if name in groups.labels or name in groups.levels:
        label = f"rows[{name!r}]"
        before, after = factorized(old, f"dataset[{name!r}]"), factorized(new, label)
        levels = before.levels
        if name in groups.labels:
            levels = extended(levels, after.levels.values)
        added = after.coded_by(levels, label)
        return Categories(np.concatenate([before.codes, added]), levels)
    columns = np.asarray(old), np.asarray(new)
    need_like_rows(name, *(column.shape[1:] for column in columns))
    return np.concatenate(columns)
