"""The link of draws to the sampler that made them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgmcmc.data.dataset import Data
from sgmcmc.dynamics import ExactDynamics
from sgmcmc.groups.effects import (
    Units,
    draw_effects,
    effects_of_labels,
    for_rows,
    own_rows,
    units,
)
from sgmcmc.groups.labels import labeled
from sgmcmc.groups.marginal import Marginal
from sgmcmc.groups.model import Structure
from sgmcmc.inputs.parts import halved
from sgmcmc.model.target import Target
from sgmcmc.results.arrays import by_chain
from sgmcmc.results.report import Report
from sgmcmc.results.samples import Samples
from sgmcmc.run.request import Reporter, Request
from sgmcmc.run.sampler import Sampler

_QUICK_SIZE = 200  # coordinates up to which a Hessian costs about a second
_QUICK_WORK = 3e8  # N times squared coordinates up to which it does

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
    """

    sampler: Sampler
    facts: tuple[Mapping[str, float], ...] = ()
    go_on: GoOn | None = None
    run_again: RunAgain | None = None
    update: Update | None = None

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
        return d <= _QUICK_SIZE and self.data.size * d**2 <= _QUICK_WORK

    def weights(self, iterations: np.ndarray) -> np.ndarray | None:
        """Return the weights of draws at these iterations; ``None`` if all are alike."""
        return self.sampler.chain.stepsizes.weights(iterations)

    def effects(
        self, draws: Mapping[str, np.ndarray], by: str, groups: Any, seed: int
    ) -> dict[str, np.ndarray]:
        """Return draws of the effects of groups given draws of the parameters, by name."""
        structure, request = self._groups, self.sampler.request
        return draw_effects(
            structure, request.log_lik, draws, self.data, by, groups, seed
        ).effects

    def coded(self, by: str, values: Any) -> tuple[tuple[Any, ...], np.ndarray]:
        """Return the groups of rows, known or new, and the number of each row's group."""
        labels = labeled(by, values)
        return labels.levels.values, labels.codes

    def effects_of_labels(
        self, draws: Mapping[str, np.ndarray], by: str, levels: Sequence[Any], seed: int
    ) -> dict[str, np.ndarray]:
        """Return draws of the effects of groups, known or new, by name."""
        structure, marginal = self._groups, self.sampler.request.log_lik
        return effects_of_labels(
            structure, marginal, draws, self.data, by, levels, seed
        )

    def rows(
        self, f: Any, draws: dict[str, np.ndarray], dataset: Mapping[str, Any] | None
    ) -> tuple[Any, dict[str, np.ndarray], Any]:
        """Return function, draws and dataset for evaluations by row, effects included."""
        structure = self.sampler.request.groups
        if structure is None:
            return f, draws, dataset
        if dataset is None:
            if structure.packs is None:
                raise ValueError(
                    "`dataset` must be given: all effects are coordinates here."
                )
            dataset = own_rows(structure, self.data)
        return for_rows(
            structure, self.sampler.request.log_lik, f, draws, self.data, dataset
        )

    def units(self, by: str | None) -> Units | None:
        """Return the terms of rows or groups; ``None`` if observations of the chain are rows."""
        structure, marginal = self.sampler.request.groups, self.sampler.request.log_lik
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
        return self._reporter.report(self.sampler, samples)

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
