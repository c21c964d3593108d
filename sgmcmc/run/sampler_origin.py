"""The link of draws to the sampler that made them, and posteriors that begin at their end.

Those have new rows, or are of a call like the earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import named
from sgmcmc.data.dataset import Data, Tensors
from sgmcmc.data.derived_columns import joined, need_like_rows, need_same_columns
from sgmcmc.data.levels import Categories, factorized
from sgmcmc.data.reading import read_dataset
from sgmcmc.data.tables import by_column
from sgmcmc.dynamics import ExactDynamics
from sgmcmc.groups.effects import PackedEffects, Units, own_rows, units
from sgmcmc.groups.labels import extended, labeled
from sgmcmc.groups.marginal import Marginal
from sgmcmc.groups.structure import Structure
from sgmcmc.inputs.parts import halved
from sgmcmc.model.target import LogLik, Target, terms
from sgmcmc.reduce.rows import CountedRows, number_of_rows
from sgmcmc.results.arrays import by_chain
from sgmcmc.results.report import Fact, Report, Section
from sgmcmc.results.samples import Samples
from sgmcmc.run.request import Earlier, PreviousFit, Reporter, Request, brief
from sgmcmc.run.sampler import Sampler

GoOn = Callable[[int, bool], Samples]
"""Continues chains for some more iterations, with progress or without, and returns all draws."""

Update = Callable[[Samples, Any, int | None, bool], Samples]
"""Makes the draws of the same request with more rows, from the end of these draws."""

RunAgain = Callable[[Request, int, bool], Samples]
"""Runs the sampler of a request without open choices, for a number of iterations."""


@dataclass(frozen=True)
class SamplerOrigin:
    """The sampler that made some draws.

    Args:
        sampler: Sampler.
        facts: Facts about the moves of each chain, by name.
        go_on: Function that continues the chains from their end; ``None`` if they diverged.
        run_again: Function that runs other chains of the same model.
        update: Function that makes the draws of the same call with more rows; ``None`` if the
            constants were given.
        methods: Methods of :func:`sgmcmc.sample` that were considered, with the reasons why they
            were taken or left, for the report.
    """

    sampler: Sampler
    facts: tuple[Mapping[str, float], ...] = ()
    go_on: GoOn | None = None
    run_again: RunAgain | None = None
    update: Update | None = None
    methods: Mapping[str, str] = field(default_factory=dict)

    @property
    def target(self) -> Target:
        """The sampled model, in the coordinates of the chain."""
        return self.sampler.target

    @property
    def data(self) -> Data:
        """The dataset."""
        return self.sampler.data

    @property
    def judges_quickly(self) -> bool:
        """Whether ``report`` takes about a second, or less."""
        d = self.sampler.target.size
        max_size, max_work = 200, 3e8  # for a Hessian within a second
        return d <= max_size and self.data.size * d**2 <= max_work

    def weights(self, iterations: np.ndarray) -> np.ndarray | None:
        """Return the weights of draws at these iterations; ``None`` if all are alike."""
        return self.sampler.chain.stepsizes.weights(iterations)

    def with_effects(self, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return draws with all coordinates of the chain, which they have."""
        return dict(draws)

    def effects(
        self, draws: Mapping[str, np.ndarray], by: str, groups: Any, seed: int
    ) -> dict[str, np.ndarray]:
        """Return draws of the effects of groups given draws of the parameters, by name."""
        return self._effects(draws, seed).draw(by, groups).effects

    def _effects(self, draws: Mapping[str, np.ndarray], seed: int = 0) -> PackedEffects:
        marginal = self.sampler.request.log_lik
        return PackedEffects(self._groups, draws, seed, marginal, self.data)

    def coded(self, by: str, values: Any) -> tuple[tuple[Any, ...], np.ndarray]:
        """Return the groups of rows, known or new, and the number of each row's group."""
        labels = labeled(by, values)
        return labels.levels.values, labels.codes

    def effects_of_labels(
        self, draws: Mapping[str, np.ndarray], by: str, levels: Sequence[Any], seed: int
    ) -> dict[str, np.ndarray]:
        """Return draws of the effects of groups, known or new, by name."""
        return self._effects(draws, seed).of_levels(by, levels)

    def rows(
        self, f: Any, draws: dict[str, np.ndarray], dataset: Mapping[str, Any] | None
    ) -> tuple[Any, dict[str, np.ndarray], Any]:
        """Return function, draws and dataset for evaluations by row, effects included."""
        structure, own = self.sampler.request.groups, self.sampler.request.dataset
        if structure is None:
            if (
                dataset is None
                and isinstance(own, CountedRows)
                and own.places is not None
            ):
                dataset = own.every_row()
            return f, draws, dataset
        if dataset is None:
            if structure.packs is None:
                raise ValueError(
                    "`dataset` must be given: all effects are coordinates here."
                )
            dataset = own_rows(structure, self.data)
        return self._effects(draws).for_rows(f, dataset)

    def units(self, by: str | None) -> Units | None:
        """Return the terms of rows or groups; ``None`` if observations of the chain are rows."""
        structure, marginal = self.sampler.request.groups, self.sampler.request.log_lik
        dataset = self.sampler.request.dataset
        if (
            by is None
            and isinstance(dataset, CountedRows)
            and dataset.places is not None
        ):
            once = partial(_counted_once, self.sampler.request.log_lik, dataset.counts)
            return Units(once, dataset.places, np.zeros_like(dataset.places))
        if structure is None or not isinstance(marginal, Marginal):
            if by is not None:
                raise ValueError(
                    "`by`: the model has no groups that are integrated out."
                )
            return None
        return units(structure, marginal, by)

    @property
    def groups(self) -> Structure | None:
        """The groups of the model, if it has any."""
        return self.sampler.request.groups

    @property
    def _groups(self) -> Structure:
        structure = self.groups
        if structure is None:
            raise ValueError(
                "`samples` is of a model without `groups`: it has no effects to draw."
            )
        return structure

    @property
    def _reporter(self) -> Reporter:
        reporter = self.sampler.request.reporter
        assert reporter is not None, "a request without a reporter"
        return reporter

    def report(self, samples: Samples) -> Report | None:
        """Return the report on these draws."""
        report = self._reporter.report(self.sampler, samples)
        if report is None or not self.methods:
            return report
        return report.with_section(Section.METHODS, self.methods)

    def robust(self, samples: Samples) -> dict[str, np.ndarray]:
        """Return draws moved so that their covariance is that of the sandwich."""
        return self._reporter.robust(self.sampler, samples)

    def at_half_stepsize(
        self, samples: Samples, seed: int | None, verbose: bool
    ) -> tuple[Samples, float]:
        """Return draws of the same chains at half the stepsize, over the same time.

        With them comes what their difference is multiplied by to give the error of the draws.
        """
        sampler, options = self.sampler, self.sampler.options
        dynamics = sampler.chain.dynamics
        if isinstance(dynamics, ExactDynamics):
            raise ValueError(
                f"`samples`: draws by {samples.settings['method']} have no error of the stepsize, "
                "which every move is accepted or rejected for."
            )
        assert self.run_again is not None
        draws = next(iter(by_chain(samples.settings, samples).values())).shape[1]
        with options.executor.again as machines:
            request = sampler.request.tuned(
                seed=sampler.seed + 1 if seed is None else seed,
                stepsize=halved(sampler.request.stepsize),
                burn_in=2 * options.burn_in,
                thin=2 * options.thin,
                store=None,
                store_gradients=False,
                reductions={},
                executor=machines,
            )
            halved_samples = self.run_again(request, 2 * draws * options.thin, verbose)
        return halved_samples, self._reporter.error_factor(dynamics)


def origin_of(samples: Samples) -> SamplerOrigin:
    """Return the sampler that has just made these draws."""
    assert isinstance(samples.origin, SamplerOrigin)
    return samples.origin


MakeDraws = Callable[[Request, bool], Samples]
"""Function that makes draws of a user's request, with progress or without."""


def updatable(samples: Samples, request: Request, call: MakeDraws) -> Samples:
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
        longer = origin.go_on(n_iters, verbose)
        same_methods = replace(origin_of(longer), methods=origin.methods)
        return updatable(longer.made_by(same_methods), request, call)

    go_on_if_possible = None if origin.go_on is None else go_on
    return samples.made_by(replace(origin, update=update, go_on=go_on_if_possible))


def _counted_once(
    log_lik: LogLik, counts: str, params: Tensors, rows: Tensors
) -> tf.Tensor:
    """Return the terms of rows that stand for several, as those of one of them, (n, 1)."""
    return (terms(log_lik, params, rows) / rows[counts])[:, tf.newaxis]


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
        rows = number_of_rows(origin.sampler.request.dataset, origin.data.size)
        previous = None if with_effects else PreviousFit(mode.hessian, rows)
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
    draws = {} if samples.report is None else samples.report[Section.DRAWS]
    if {Fact.BULK, Fact.TAIL} <= set(draws):
        count = next(iter(by_chain(samples.settings, samples).values())).shape[1]
        smallest = float(np.nanmin([*draws[Fact.BULK], *draws[Fact.TAIL]]))
        pace = count * samples.settings["thin"] / max(1.0, smallest)
    plan = request.plan
    source = None if plan is None else plan.earlier or Earlier(plan, sampler.data.size)
    return previous._replace(plan=source, values=request.read.values, pace=pace)


def _with_rows(request: Request, origin: SamplerOrigin, rows: Any) -> Any:
    options = origin.sampler.options
    if origin.groups is not None:
        return with_more_rows(request.dataset, rows, origin.groups)
    if isinstance(request.dataset, CountedRows):
        if request.dataset.places is not None:
            raise ValueError(
                "`rows`: identical rows of this regression are one with a weight. Use its own "
                "update(), or reduce=False."
            )
        more = with_more_rows(request.dataset, rows, None)
        return CountedRows(more, request.dataset.counts)
    levels = origin.data.levels
    with named("dataset", "rows"):
        new = read_dataset(
            rows, options.dtype, options.integers, options.storage, levels
        )
    return joined(origin.data, new)


def with_more_rows(dataset: Any, rows: Any, groups: Structure | None) -> dict[str, Any]:
    """Return the columns of a dataset with those of more rows behind them, labels included."""
    old, new = by_column(dataset), by_column(rows)
    if old is None or new is None:
        raise TypeError(
            "`rows` must be a dict of arrays, or a table in memory, as `dataset` is."
        )
    need_same_columns(old, new)
    return {name: _concatenated(name, old[name], new[name], groups) for name in old}


def _concatenated(name: str, old: Any, new: Any, groups: Structure | None) -> Any:
    """Return a column of a dataset with that of more rows behind it.

    Groups and levels are those of the same value; groups may be new, levels may not.
    """
    if groups is not None and (name in groups.labels or name in groups.levels):
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
