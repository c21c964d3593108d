"""The origin of draws: their sampler, for later computations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from sgmcmc.data.dataset import Data
from sgmcmc.model.target import Target
from sgmcmc.results.report import Report


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


def need_chains(
    settings: Mapping[str, Any], origin: Origin | None
) -> Callable[[int, bool], Any]:
    """Return the function that continues the chains of some draws, or raise an error."""
    if settings.get("slice") is not None:
        raise ValueError(
            "`samples` is a slice: extend all draws, and slice what comes back."
        )
    if origin is None:
        raise ValueError(
            "`samples` is not in the process of the chain that made it, and files do not hold the "
            "model. With `store`, make the same call again with a larger `n_iters`."
        )
    if origin.go_on is None:
        raise ValueError("`samples` is of a chain that diverged, which cannot go on.")
    return origin.go_on
