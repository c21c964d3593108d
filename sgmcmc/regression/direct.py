"""Draws of a regression without a chain over its rows: their call, their report, their origin."""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc._version import __version__
from sgmcmc.checks import outside
from sgmcmc.data.dataset import Data
from sgmcmc.engine.scheduler import Progress
from sgmcmc.groups.effects import EffectSampler
from sgmcmc.groups.labels import labeled
from sgmcmc.groups.structure import Structure
from sgmcmc.model.target import Target
from sgmcmc.plan.reports.warnings import coarse_rounding_warnings
from sgmcmc.plan.stopping import Goal, UntilEffective
from sgmcmc.reduce.elliptical import BLOCK, EllipticalChains, InvertedChains
from sgmcmc.regression.building import RegressionData
from sgmcmc.regression.sums import FactorRows
from sgmcmc.results.arrays import LogPost, by_chain
from sgmcmc.results.diagnostics import Diagnostics, diagnose
from sgmcmc.results.report import Fact, Report, Section, Timings
from sgmcmc.results.samples import Samples
from sgmcmc.run.sampler_origin import SamplerOrigin, with_more_rows
from sgmcmc.samplers.sample import sample

GoOn = Callable[[int, bool], Samples]
"""Function of a number of draws that adds them, and returns all."""

# Keywords of `sample` that mean the same here: others choose a sampler, or ask for what it has.
_KEYWORDS = {
    "dtype", "ess", "max_seconds", "n_chains", "n_iters", "seed", "tolerance", "verbose",
}  # fmt: skip


@dataclass(frozen=True)
class _Settings:
    named: int = 20  # coordinates that the report names


_SETTINGS = _Settings()


def leave_sampler_open(keywords: Iterable[str]) -> bool:
    """Return whether a user's keywords of :func:`sgmcmc.sample` leave the sampler open."""
    return set(keywords) <= _KEYWORDS


class DirectDraws(ABC):
    """Draws of a regression, as many as are asked for.

    Args:
        chains: Number of chains.
        seed: Seed, or the entropy drawn in its place.
        dtype: Floating point type of draws.

    Attributes:
        sampler: Sampler of positions.
    """

    sampler: EllipticalChains | InvertedChains

    def __init__(self, chains: int, seed: int, dtype: np.dtype) -> None:
        self._chains, self._seed, self._dtype = chains, seed, dtype
        self._blocks: list[tuple[dict[str, np.ndarray], np.ndarray]] = []

    @property
    def length(self) -> int:
        """Number of draws of each chain so far."""
        return BLOCK * len(self._blocks)

    def add_block(self) -> None:
        """Make the next draws of all chains."""
        burn_in = self.sampler.burn_in // BLOCK
        if not self._blocks:
            for number in range(burn_in):
                self.sampler.block(number)
        number = burn_in + len(self._blocks)
        draws, log_post = self.at(self.sampler.block(number), number)
        draws = {name: array.astype(self._dtype) for name, array in draws.items()}
        self._blocks.append((draws, log_post))

    @abstractmethod
    def at(
        self, positions: np.ndarray, number: int
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the parameters of a block, by name, and the log posterior, (chains, draws).

        Args:
            positions: Positions, (chains, draws, d).
            number: Number of the block.
        """

    def first(self, count: int) -> tuple[dict[str, np.ndarray], LogPost]:
        """Return the first draws of each chain, by parameter, and the log posterior there."""
        needed = self._blocks[: -(-count // BLOCK)]
        draws = {
            name: np.concatenate([block[name] for block, _ in needed], 1)[:, :count]
            for name in needed[0][0]
        }
        log_post = np.concatenate([values for _, values in needed], 1)[:, :count]
        iterations = self.sampler.burn_in + 1 + np.arange(count)
        return draws, LogPost(iterations, log_post)


class DirectCall(ABC):
    """A call for draws of a regression.

    Args:
        data: Model and data.
        keywords: User's keywords of :func:`sgmcmc.sample`.

    Attributes:
        source: Name of what the likelihood is computed from, in the settings of draws.
        factors: Groups of rows; ``None`` if there are none.
    """

    source: ClassVar[str]

    def __init__(self, data: RegressionData, keywords: Mapping[str, Any]) -> None:
        self.clock = Timings()
        self.data, self.keywords = data, keywords
        self.goal = Goal(
            keywords.get("tolerance", 0.05),
            keywords.get("ess", 400),
            keywords.get("n_chains", 4),
            keywords.get("n_iters"),
            None,
            keywords.get("max_seconds"),
            keywords.get("verbose", True),
        ).checked(self.clock.began)
        self.seed = checks.seed_number("seed", keywords.get("seed"))
        self.factors = FactorRows.of(data) if data.model.effects else None

    @property
    @abstractmethod
    def draws(self) -> DirectDraws:
        """Draws, none to begin with."""

    @property
    def structure(self) -> Structure | None:
        """The groups of the model, without packs of their rows; ``None`` if there are none."""
        return None if self.factors is None else self.factors.structure

    @property
    @abstractmethod
    def method(self) -> str:
        """Name of the sampler."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of parameters, those that are drawn given others included."""

    @abstractmethod
    def model_facts(self) -> dict[str, Any]:
        """Return the facts about the model."""

    @abstractmethod
    def group_facts(self, samples: Samples) -> tuple[dict[str, Any], list[str]]:
        """Return the facts about groups, and warnings."""

    @abstractmethod
    def effects_given(
        self, structure: Structure, draws: Mapping[str, np.ndarray], seed: int
    ) -> EffectSampler:
        """Return the distribution of the effects of groups given draws."""

    def effect_sampler(
        self, draws: Mapping[str, np.ndarray], seed: int
    ) -> EffectSampler:
        """Return the same, if there are groups.

        Raises:
            ValueError: There are no groups.
        """
        if self.structure is None:
            raise ValueError(
                "`samples` is of a model without `groups`: it has no effects to draw."
            )
        return self.effects_given(self.structure, draws, seed)

    def with_effects(self, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return draws with all that are coordinates of a chain over the rows."""
        return dict(draws)

    def origin(self, go_on: GoOn | None) -> DirectOrigin:
        """Return the origin of draws.

        Args:
            go_on: Function that adds draws; ``None`` if they are from a file.
        """
        return DirectOrigin(self, go_on)

    @cached_property
    def over_rows(self) -> SamplerOrigin:
        """A sampler of the same posterior over the rows, set up when it is first asked for."""
        return self.data.over_rows(self.goal.n_chains)

    def finish(self) -> Samples:
        """Return as many draws as the call asks for, with their report."""
        lengths = UntilEffective(self.goal, _Pace(), self.size, 1)
        for length in lengths.goals():
            count = self._advance(length, self.goal.verbose, lengths.until)
            samples = self._samples(count)
            lengths.see(samples)
            if count < length:
                break
        diagnostics = lengths.diagnostics
        if diagnostics is not None and not diagnostics.complete:
            diagnostics = None
        return self._linked(samples, count, diagnostics)

    def _go_on(self, count: int) -> GoOn:
        """Return a function that adds draws to a number of draws, and returns all."""

        def more(n_iters: int, verbose: bool) -> Samples:
            self.clock = Timings()
            length = self._advance(count + n_iters, verbose, np.inf)
            return self._linked(self._samples(length), length)

        return more

    def _linked(
        self, samples: Samples, count: int, diagnostics: Diagnostics | None = None
    ) -> Samples:
        self.clock.done("draws")
        report = report_on(self, samples, self.clock, diagnostics)
        return samples.with_report(report).made_by(self.origin(self._go_on(count)))

    def _advance(self, count: int, verbose: bool, until: float) -> int:
        """Make draws up to a number, and return how many there are by the end of the time."""
        draws, chains = self.draws, self.goal.n_chains
        total = -(-count // BLOCK) * BLOCK * chains
        done = min(total, draws.length * chains)
        with Progress(self.method, total, verbose, done) as progress:
            try:
                while draws.length < count:
                    if draws.length and time.monotonic() > until:
                        return draws.length
                    draws.add_block()
                    progress.advance(BLOCK * chains)
            except KeyboardInterrupt:
                if not draws.length:
                    raise
                text = f"Interrupted: the {draws.length} draws so far are returned."
                warnings.warn(text, stacklevel=outside())
                return draws.length
        return count

    def _samples(self, count: int) -> Samples:
        draws, log_post = self.draws.first(count)
        return Samples(draws, log_post=log_post, settings=self._settings())

    def _settings(self) -> dict[str, Any]:
        """Return the settings of draws, under the names that those of a chain have."""
        structure, n = self.structure, len(self.data.frame)
        return {
            "method": self.method,
            "N": n,
            "n": n,
            "seed": self.seed,
            "reduce": True,
            "source": self.source,
            "n_chains": self.goal.n_chains,
            "burn_in": self.draws.sampler.burn_in,
            "thin": 1,
            "dtype": self.data.dtype.name,
            "integers": list(self.data.model.integers),
            "weights": None,
            "temperature": 1.0,
            "groups": None if structure is None else structure.to_json(),
            "levels": {},
            "labels": {} if structure is None else structure.labels_to_json(),
            "indices": [],
            "versions": {
                "sgmcmc": __version__,
                "tensorflow": tf.__version__,
                "numpy": np.__version__,
            },
        }


@dataclass(frozen=True)
class _Pace:
    autocorrelation: float = 2.0


def report_on(
    call: DirectCall,
    samples: Samples,
    clock: Timings,
    diagnostics: Diagnostics | None = None,
) -> Report:
    """Return the report on draws, with their diagnostics if these are known."""
    diagnostics = diagnostics or diagnose(by_chain(samples.settings, samples))
    messages = diagnostics.warnings(call.goal.ess)
    if "b" in samples:
        dtype = np.dtype(samples.settings["dtype"])
        b = np.asarray(samples["b"], np.float64)
        sds = b.std((0, 1))
        sizes = np.finfo(dtype).eps * np.abs(b).max((0, 1))
        rounding = np.max(sizes / np.where(sds > 0, sds, np.inf))
        messages += coarse_rounding_warnings(float(rounding), dtype)
    of_groups, group_warnings = call.group_facts(samples)
    messages += group_warnings
    clock.done("report")
    names = diagnostics.names
    named = {"of": ", ".join(names)} if len(names) <= _SETTINGS.named else {}
    return Report(
        {
            "method": samples.settings["method"],
            Section.MODEL: call.model_facts(),
            Section.DRAWS: {
                Fact.CHAINS: samples.settings["n_chains"],
                Fact.DRAWS_PER_CHAIN: diagnostics.draws,
                Fact.BURN_IN: samples.settings["burn_in"],
                **named,
                **diagnostics.facts,
            },
            **({Section.GROUPS: of_groups} if of_groups else {}),
            Section.SECONDS: clock.facts(),
            Section.WARNINGS: messages,
        }
    )


@dataclass(frozen=True)
class DirectOrigin:
    """The origin of draws; see :class:`sgmcmc.results.origin.Origin`.

    Target, dataset and units that are left out are those of a sampler over the rows, which is set
    up when it is first asked for, and does not run.

    Attributes:
        run: Call that made the draws.
        go_on: Function that adds draws; ``None`` if they are from a file.
    """

    run: DirectCall
    go_on: GoOn | None
    judges_quickly: bool = field(default=True, init=False)

    @property
    def target(self) -> Target:
        """Target, in the coordinates of a chain over the rows."""
        return self.run.over_rows.target

    @property
    def data(self) -> Data:
        """The dataset."""
        return self.run.over_rows.data

    @property
    def groups(self) -> Structure | None:
        """The groups of the model, without packs of their rows."""
        return self.run.structure

    def weights(self, iterations: np.ndarray) -> np.ndarray | None:
        """Return ``None``: all draws are alike."""
        return None

    def with_effects(self, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return draws with all that are coordinates of a chain over the rows."""
        return self.run.with_effects(draws)

    def effects(
        self, draws: Mapping[str, np.ndarray], by: str, groups: Any, seed: int
    ) -> dict[str, np.ndarray]:
        """Return draws of the effects of groups given draws of the parameters, by name."""
        return self.run.effect_sampler(draws, seed).draw(by, groups).effects

    def coded(self, by: str, values: Any) -> tuple[tuple[Any, ...], np.ndarray]:
        """Return the groups of rows, known or new, and the number of each row's group."""
        of_rows = labeled(by, values)
        return of_rows.levels.values, of_rows.codes

    def effects_of_labels(
        self, draws: Mapping[str, np.ndarray], by: str, levels: Sequence[Any], seed: int
    ) -> dict[str, np.ndarray]:
        """Return draws of the effects of groups, known or new, by name."""
        return self.run.effect_sampler(draws, seed).of_levels(by, levels)

    def rows(
        self, f: Any, draws: dict[str, np.ndarray], dataset: Mapping[str, Any] | None
    ) -> tuple[Any, dict[str, np.ndarray], Any]:
        """Return function, draws and dataset for evaluations by row, effects included."""
        if self.run.structure is None:
            return f, draws, dataset
        if dataset is None:
            dataset = self.run.data.arguments()["dataset"]
        return self.run.effect_sampler(draws, 0).for_rows(f, dataset)

    def robust(self, samples: Any) -> dict[str, np.ndarray]:
        """Return draws moved so that their covariance is that of the sandwich."""
        settings = samples.settings
        draws = self.with_effects(by_chain(settings, samples))
        moved = self.run.over_rows.robust(Samples(draws, settings=settings))
        return {name: moved[name] for name in samples}

    def units(self, by: str | None) -> Any:
        """Return the terms of rows or groups; ``None`` if observations are rows."""
        if self.run.structure is None and by is None:
            return None
        return self.run.over_rows.units(by)

    def at_half_stepsize(
        self, samples: Any, seed: int | None, verbose: bool
    ) -> tuple[Any, float]:
        """Refuse: there is no stepsize."""
        raise ValueError(
            f"`samples`: draws by {samples.settings['method']} have no error of the stepsize: "
            "there is none."
        )

    def report(self, samples: Any) -> Report | None:
        """Return the report on some of the draws."""
        return report_on(self.run, samples, Timings())

    def update(
        self, samples: Samples, rows: Any, seed: int | None, verbose: bool
    ) -> Samples:
        """Return draws for these and more rows, by a chain over all of them."""
        arguments = self.run.data.arguments()
        arguments["dataset"] = with_more_rows(arguments["dataset"], rows, self.groups)
        settings = {
            **self.run.keywords,
            "seed": self.run.seed + 1 if seed is None else seed,
            "verbose": verbose,
        }
        return sample(**arguments, start=samples, **settings)
