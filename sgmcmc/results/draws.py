"""Draws with what is kept of their run, and their origin, the sampler that made them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from sgmcmc.checks import describe, known_keys, renamed
from sgmcmc.data.dataset import Data
from sgmcmc.data.levels import Levels
from sgmcmc.dynamics.schedules import schedule_of
from sgmcmc.model.target import Target
from sgmcmc.results.arrays import Arrays, LogPost, Results, by_chain, draw_numbers
from sgmcmc.results.report import Report, draws_table, html_page


class Origin(Protocol):
    """The sampler that made some draws.

    Attributes:
        target: Target, in the coordinates of the chain.
        data: Dataset.
        go_on: Function that continues the chains for a number of iterations, with progress or
            without, and returns all draws; ``None`` if they diverged.
    """

    @property
    def target(self) -> Target:
        """Target, in the coordinates of the chain."""

    @property
    def data(self) -> Data:
        """The dataset."""

    @property
    def groups(self) -> Any:
        """The groups of the model, if it has any; ``labels`` holds the groups of each factor."""

    @property
    def judges_quickly(self) -> bool:
        """Whether ``report`` takes about a second, or less."""

    @property
    def go_on(self) -> Callable[[int, bool], Any] | None:
        """Function that continues the chains."""

    @property
    def update(self) -> Callable[[Any, Any, int | None, bool], Any] | None:
        """Function that makes the draws of the same call with more rows."""

    def weights(self, iterations: np.ndarray) -> np.ndarray | None:
        """Return the weights of draws at these iterations; ``None`` if all are alike."""

    def with_effects(self, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return draws with those of effects that functions of rows ask for."""

    def effects(
        self, draws: Mapping[str, np.ndarray], by: str, groups: Any, seed: int
    ) -> dict[str, np.ndarray]:
        """Return draws of the effects of groups given draws of the parameters, by name."""

    def coded(self, by: str, values: Any) -> tuple[tuple[Any, ...], np.ndarray]:
        """Return the groups of rows, known or new, and the number of each row's group."""

    def effects_of_labels(
        self, draws: Mapping[str, np.ndarray], by: str, levels: Sequence[Any], seed: int
    ) -> dict[str, np.ndarray]:
        """Return draws of the effects of groups, known or new, by name."""

    def rows(
        self, f: Any, draws: dict[str, np.ndarray], dataset: Mapping[str, Any] | None
    ) -> tuple[Any, dict[str, np.ndarray], Any]:
        """Return function, draws and dataset for evaluations by row, effects included."""

    def robust(self, samples: Any) -> dict[str, np.ndarray]:
        """Return draws moved so that their covariance is that of the sandwich."""

    def units(self, by: str | None) -> Any:
        """Return the terms of rows or groups; ``None`` if observations of the chain are rows."""

    def at_half_stepsize(
        self, samples: Any, seed: int | None, verbose: bool
    ) -> tuple[Any, float]:
        """Return draws at half the stepsize, and the factor from the difference to the error."""

    def report(self, samples: Any) -> Report | None:
        """Return the report on these draws."""


def need_chains(draws: Draws) -> Origin:
    """Return the sampler of draws whose chains can go on, or raise an error."""
    if draws.settings.get("slice") is not None:
        raise ValueError(
            "`samples` is a slice: extend all draws, and slice what comes back."
        )
    if draws.origin is None:
        raise ValueError(
            "`samples` is not in the process of the chain that made it, and files do not hold the "
            "model. With `store`, make the same call again with a larger `n_iters`."
        )
    if draws.origin.go_on is None:
        raise ValueError("`samples` is of a chain that diverged, which cannot go on.")
    return draws.origin


@renamed("unnormalised")
class Draws(Arrays):
    """Draws of a run, what is kept with them, and the sampler that made them.

    The arguments are those of :class:`sgmcmc.Samples`, which adds what users do with it.
    """

    def __init__(
        self,
        draws: Mapping[str, np.ndarray],
        *,
        log_post: LogPost | None = None,
        settings: Mapping[str, Any] | None = None,
        gradients: Mapping[str, np.ndarray] | None = None,
        test_functions: Mapping[str, np.ndarray] | None = None,
        mode: Mapping[str, np.ndarray] | None = None,
        mode_gradient: Mapping[str, np.ndarray] | None = None,
        reductions: Mapping[str, Any] | None = None,
        unnormalized: Mapping[str, np.ndarray] | None = None,
        report: Mapping[str, Any] | None = None,
        weights: np.ndarray | None = None,
    ) -> None:
        super().__init__(draws)
        self.settings = dict(settings or {})
        self._origin: Origin | None = None
        self.log_post = log_post or LogPost(np.zeros(0, int), np.zeros(0))
        self.gradients = None if gradients is None else Arrays(gradients)
        self.test_functions = None if test_functions is None else Arrays(test_functions)
        self.mode = None if mode is None else Arrays(mode)
        self.mode_gradient = None if mode_gradient is None else Arrays(mode_gradient)
        self.reductions = None if reductions is None else Results(reductions)
        self.unnormalized = None if unnormalized is None else Arrays(unnormalized)
        self._report = None if report is None else Report(report)
        self.own_weights = None if weights is None else _read_weights(weights, self)

    def __getstate__(self) -> dict[str, Any]:
        # The sampler holds the user's functions and data, which stay in this process.
        return {**self.__dict__, "_origin": None}

    @property
    def origin(self) -> Origin | None:
        """The sampler that made the draws, if they are in its process; else ``None``."""
        return self._origin

    @property
    def weights(self) -> np.ndarray | None:
        """Weights of the draws of each chain, with mean one, (draws,); ``None`` if all are alike.

        A schedule that decreases, such as :func:`sgmcmc.polynomial_decay` or your own function,
        gives weights in proportion to its stepsizes; :func:`sgmcmc.cyclical` gives zeros to draws
        of exploring stages. If parameters have schedules that are not in proportion to each other,
        no weights are right for all, and there are none. Draws opened from a store do not have
        your own function, and have no weights then.
        """
        weights, origin = self.own_weights, self._origin
        if weights is None and (origin is not None or self.settings.get("weights")):
            numbers = np.asarray(draw_numbers(self.settings, number_of_draws(self)))
            thin = self.settings.get("thin", 1)
            iterations = self.settings.get("burn_in", 0) + thin * (1 + numbers)
            if origin is None:
                weights = schedule_of(self.settings["weights"]).weights(iterations)
            else:
                weights = origin.weights(iterations)
        if weights is None or np.ptp(weights) == 0 < weights[0]:
            return None
        if not weights.any():
            raise ValueError(
                "`samples` holds no draw that counts: all are of exploring stages."
            )
        return weights / weights.mean()

    @property
    def levels(self) -> dict[str, list[Any]]:
        """The levels of each column of categories, in the order of their numbers in the model.

        Rows that are new to the model are numbered by these, whatever container they come in. Of a
        factor of ``groups`` they are the labels of its groups, in the order of their effects; there
        are none of a factor with more than 100 000.
        """
        labels = self.settings.get("labels", {}).items()
        groups = {
            by: Levels.from_json(stored)
            for by, stored in labels
            if isinstance(stored, Mapping)
        }
        levels = {**column_levels(self.settings), **groups}
        return {name: list(stored.values) for name, stored in levels.items()}

    @property
    def report(self) -> Report | None:
        """The choice of the constants and the quality of the draws; made at the first access.

        ``None`` if the draws came from a file without a report.
        """
        if self._report is None and self._origin is not None:
            self._report = self._origin.report(self)
        return self._report

    def quick_warnings(self) -> list[str]:
        """Return the report's warnings, if it exists or can be made in about a second.

        If that would take longer, a sentence says so.
        """
        origin = self._origin
        if self._report is None and origin is not None and not origin.judges_quickly:
            return ["Not checked yet (slow for this model); run print(samples.report)."]
        return [] if self.report is None else self.report.warnings

    def _groups(self) -> dict[str, Mapping[str, np.ndarray] | None]:
        """Return the arrays, by the argument that they are."""
        return {
            "draws": self,
            "gradients": self.gradients,
            "test_functions": self.test_functions,
            "mode": self.mode,
            "mode_gradient": self.mode_gradient,
            "reductions": None if self.reductions is None else self.reductions.flat(),
            "unnormalized": self.unnormalized,
        }

    @property
    def _head(self) -> str:
        head = f"Samples of {self.settings.get('method', 'unknown origin')}"
        chains = self.settings.get("n_chains")
        return head if chains is None else f"{head}, {chains} chains"

    def __repr__(self) -> str:
        lines = [f"{self._head}:"]
        groups = (("", self), ("test function ", self.test_functions))
        for label, arrays in groups:
            for name, array in (arrays or {}).items():
                lines.append(f"  {label}{name}  {array.shape}  {array.dtype}")
        if len(lines) == 1:
            lines.append("  no draws kept")
        lines += [f"  ! {warning}" for warning in self.quick_warnings()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        warnings = self.quick_warnings()
        shown = draws_table(self.settings, self, self._report)
        return html_page(self._head, shown, warnings=warnings)


def column_levels(settings: Mapping[str, Any]) -> dict[str, Levels]:
    """Return the levels of the columns of categories of a model."""
    stored = settings.get("levels", {})
    return {name: Levels.from_json(facts) for name, facts in stored.items()}


def number_of_draws(draws: Draws) -> int:
    """Return the number of draws of each chain."""
    for arrays in (draws, draws.test_functions):
        if arrays:
            chains = by_chain(draws.settings, arrays)
            return next(iter(chains.values())).shape[1]
    return 0


def _read_weights(value: Any, draws: Draws) -> np.ndarray:
    weights, count = np.asarray(value, float), number_of_draws(draws)
    if weights.shape != (count,):
        raise ValueError(
            f"`weights` must have one number for each of the {count} draws of a chain; its shape "
            f"is {weights.shape}."
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise ValueError(
            "`weights` must be finite and not negative, and not all zero; they are "
            f"{describe(value)}."
        )
    return weights


def need_samples(samples: Any) -> None:
    """Raise an error if these are not samples."""
    if not isinstance(samples, Draws):
        raise TypeError(
            f"`samples` must be what a sampler returned; it is {describe(samples)}."
        )


def need_draws(samples: Any, var_names: Sequence[str] | None = None) -> list[str]:
    """Return the requested names of parameters, checked."""
    need_samples(samples)
    if not len(samples):
        raise ValueError("`samples` holds no draws of parameters.")
    if var_names is None:
        return list(samples)
    if isinstance(var_names, str):
        raise TypeError("`var_names` must be a list of names; it is a string.")
    known_keys("var_names", var_names, samples, "the parameters are")
    return list(var_names)
