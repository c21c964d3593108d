"""The figure of a report: SDs, ranks of the worst coordinates, noise along the chain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgmcmc import libraries
from sgmcmc.after import panels
from sgmcmc.after.draws import need_draws
from sgmcmc.results.arrays import by_chain, coordinate_names
from sgmcmc.results.samples import Samples

_NAMED = 25  # largest number of coordinates with names on the axis
_RANKED = 2  # number of coordinates with a panel of ranks


@dataclass(frozen=True)
class ReportLists:
    """Contents of a report that the figure shows; each is ``None`` if the report lacks it.

    Attributes:
        predicted: Predicted relative error of the SD of each coordinate.
        measured: SD of the draws over the Laplace SD, of each coordinate.
        effective: Bulk effective sample size of each coordinate.
        noise: Gradient noise in consecutive parts of the chain.
    """

    predicted: np.ndarray | None
    measured: np.ndarray | None
    effective: np.ndarray | None
    noise: np.ndarray | None

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> ReportLists:
        """Return these contents of a report."""
        return cls(
            _numbers(report, "Predicted", "SD error (noise along the chain)"),
            _numbers(report, "Draws", "SD of draws / Laplace SD"),
            _numbers(report, "Draws", "ESS, bulk"),
            _numbers(report, "Predicted", "whitened gradient noise, along the chain"),
        )


def _numbers(report: Mapping[str, Any], section: str, name: str) -> np.ndarray | None:
    """Return a list of numbers of a report, if there is one."""
    facts = report.get(section, {})
    value = facts.get(name) if isinstance(facts, Mapping) else None
    if not isinstance(value, list | tuple) or not value:
        return None
    return np.asarray(value, np.float64)


def plot_report(samples: Samples) -> Any:
    """Plot the report on the draws: predicted and measured SDs, ranks, and noise.

    The first panel shows the SD of the draws over the Laplace SD for each coordinate, with two
    standard errors, and its prediction: if the posterior is normal the two agree. The next two show
    the ranks of the draws of each chain among those of all, for the two coordinates with the
    smallest effective sample sizes; bars of equal height mean that the chains agree. The last shows
    the gradient noise along the chain, whitened, which the prediction assumes to be constant.

    Args:
        samples: Draws, with a report.

    Returns:
        Array of four Matplotlib axes: SDs, ranks, ranks, noise. A panel for which the report has no
        data says so.

    Raises:
        ValueError: There are no draws, or there is no report.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> samples = sgmcmc.sample(log_lik, {"x": x}, {"theta": 0.0}, verbose=False, seed=1)
        >>> axes = sgmcmc.plot_report(samples)
        >>> axes.shape, axes[0].get_ylabel()
        ((4,), 'SD of draws / Laplace SD')

    Source:
        Vehtari et al., Bayesian Analysis 16, 2021, for rank plots; docs/automatic.md for the rest.
    """
    import matplotlib.pyplot as plt

    need_draws(samples)
    report = samples.report
    if report is None:
        raise ValueError(
            "`samples` has no report: a report is made in the process of the sampler, and saved "
            "only if it was read there."
        )
    lists = ReportLists.of(report)
    draws = by_chain(samples.settings, samples)
    names = [
        label
        for name, a in draws.items()
        for label in coordinate_names(name, a.shape[2:])
    ]
    figure, grid = plt.subplots(2, 2, figsize=(11, 7), layout="constrained")
    axes = grid.reshape(-1)
    figure.suptitle(warning_line(report.warnings) or "no warnings", fontsize=9)
    plot_sds(axes[0], lists, names)
    _plot_ranks(axes[1:3], samples, lists, names)
    plot_noise(axes[3], lists)
    return axes


def warning_line(warnings: list[str], width: int = 110) -> str:
    """Return warnings in one line: the first, cut short if need be, and how many more there are."""
    if not warnings:
        return ""
    more = (
        f" (and {len(warnings) - 1} more: print(samples.report))"
        if len(warnings) > 1
        else ""
    )
    first = warnings[0]
    if len(first) > width:
        first = first[: width - 1].rsplit(" ", 1)[0] + " …"
    return f"! {first}{more}"


def plot_sds(ax: Any, lists: ReportLists, names: list[str]) -> None:
    """Plot SDs, measured with their standard errors and predicted, in units of the mode's."""
    ax.set_ylabel("SD of draws / Laplace SD")
    shown = lists.measured if lists.measured is not None else lists.predicted
    if shown is None:
        _say(ax, "The report has no prediction of SDs.")
        return
    positions = np.arange(len(shown))
    ax.axhline(1.0, color="0.7", linewidth=0.8)
    if lists.measured is not None:
        error = None
        if lists.effective is not None:
            effective = lists.effective
            if len(effective) != len(shown):  # a bijector that changes the shape
                effective = np.full(len(shown), np.nanmin(effective))
            # Of a normal sample, the relative error of an sd is (2n)^(−1/2).
            error = 2.0 * lists.measured / np.sqrt(2.0 * np.maximum(effective, 1.0))
        ax.errorbar(
            positions,
            lists.measured,
            error,
            fmt="o",
            markersize=3,
            label="measured ± 2 s.e.",
        )
    if lists.predicted is not None:
        ax.plot(
            positions,
            1.0 + lists.predicted,
            "_",
            color="C3",
            markersize=9,
            label="predicted",
        )
    ax.legend(fontsize=8)
    if len(names) == len(shown) <= _NAMED:
        ax.set_xticks(positions, names, rotation=90, fontsize=7)
    else:
        ax.set_xlabel("coordinate")


def plot_noise(ax: Any, lists: ReportLists) -> None:
    """Plot the gradient noise in parts of the chain, one after another."""
    ax.set(xlabel="part of the chain", ylabel="gradient noise, whitened variance")
    if lists.noise is None:
        _say(ax, "Gradients use all observations, or their noise was not measured.")
        return
    segments = np.arange(1, len(lists.noise) + 1)
    ax.bar(segments, lists.noise, color="0.75")
    ax.axhline(lists.noise.mean(), color="C3", linewidth=0.8, label="mean")
    ax.legend(fontsize=8)


def _plot_ranks(
    axes: Any, samples: Samples, lists: ReportLists, names: list[str]
) -> None:
    az = libraries.arviz()
    draws = by_chain(samples.settings, samples)
    if next(iter(draws.values())).shape[0] < 2:
        for ax in axes:
            _say(ax, "A single chain has no ranks among others.")
        return
    for ax, coordinate in zip(axes, worst_places(lists, len(names)), strict=False):
        column = _column(draws, coordinate)
        if libraries.arviz_is_new():
            panels.plot_rank(names[coordinate], column, ax)
        else:
            az.plot_rank({names[coordinate]: column}, ax=ax, kind="bars", colors="C0")
    for ax in axes[len(names) :]:
        _say(ax, "There are no more coordinates.")


def worst_places(lists: ReportLists, size: int) -> list[int]:
    """Return the coordinates with the smallest effective sample sizes, the worst first."""
    if lists.effective is None or len(lists.effective) != size:
        return list(range(min(size, _RANKED)))
    return np.argsort(lists.effective)[:_RANKED].tolist()


def _column(draws: Mapping[str, np.ndarray], index: int) -> np.ndarray:
    """Return the draws of one coordinate, (chain, draw)."""
    for array in draws.values():
        size = int(np.prod(array.shape[2:]))
        if index < size:
            return np.asarray(
                np.reshape(array, (*array.shape[:2], -1))[:, :, index], np.float64
            )
        index -= size
    raise IndexError(index)


def _say(ax: Any, text: str) -> None:
    """Put a sentence where a plot would be."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.text(
        0.5,
        0.5,
        text,
        transform=ax.transAxes,
        ha="center",
        va="center",
        fontsize=9,
        wrap=True,
    )
