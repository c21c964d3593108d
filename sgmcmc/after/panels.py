"""Panels in Matplotlib alone: of draws, for ArviZ 1, whose plots return other objects than axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class _Settings:
    positions: int = 200  # of the curve of a density
    draws: int = 1000  # used for it, at most
    max_bars: int = 50  # of a response of integers


_SETTINGS = _Settings()


def plot_trace(columns: Mapping[str, np.ndarray], **keywords: Any) -> Any:
    """Return axes (coordinates, 2): densities and traces, a line for each chain."""
    _, axes = _grid("plot_trace", len(columns), 2, keywords, (10.0, 2.0))
    for (density, trace), (name, column) in zip(axes, columns.items(), strict=True):
        for chain in np.asarray(column, np.float64):
            density.plot(*_density(chain), linewidth=1)
            trace.plot(chain, linewidth=0.6, alpha=0.7)
        density.set_title(name)
        trace.set_title(name)
    return axes


def plot_posterior(
    columns: Mapping[str, np.ndarray],
    round_to: int,
    hdi_prob: float = 0.94,
    **keywords: Any,
) -> Any:
    """Return axes, one for each coordinate: density, mean, highest density interval."""
    across = min(4, len(columns))
    down = -(-len(columns) // across)
    _, axes = _grid("plot_posterior", down, across, keywords, (3.5, 2.5))
    for ax, (name, column) in zip(axes.flat, columns.items(), strict=False):
        flat = np.asarray(column, np.float64).ravel()
        low, high = _interval(flat, hdi_prob)
        ax.plot(*_density(flat))
        ax.plot([low, high], [0.0, 0.0], "k", linewidth=3)
        for x, text in ((low, low), (high, high)):
            ax.annotate(
                f"{text:.{round_to}g}", (x, 0.0), (0, 4), textcoords="offset points"
            )
        ax.set_title(f"{name}, mean {flat.mean():.{round_to}g}", fontsize=10)
        ax.set_yticks([])
    for ax in axes.flat[len(columns) :]:
        ax.set_visible(False)
    shown = axes.ravel()[: len(columns)]
    return shown[0] if len(shown) == 1 else shown


def plot_forest(
    columns: Mapping[str, np.ndarray], combined: bool, hdi_prob: float, **keywords: Any
) -> Any:
    """Return an array of one axes with the intervals of all coordinates, the first on top."""
    _, axes = _grid("plot_forest", 1, 1, keywords, (6.0, 1 + 0.35 * len(columns)))
    ax = axes[0, 0]
    labels = list(columns)[::-1]
    for row, name in enumerate(labels):
        column = np.asarray(columns[name], np.float64)
        chains = [column.ravel()] if combined else list(column)
        for k, chain in enumerate(chains):
            y = row + 0.6 * ((k + 0.5) / len(chains) - 0.5)
            ax.hlines(y, *_interval(chain, hdi_prob), color=f"C{k}", linewidth=1)
            ax.hlines(y, *np.quantile(chain, [0.25, 0.75]), color=f"C{k}", linewidth=3)
            ax.plot(np.median(chain), y, "o", color=f"C{k}", markerfacecolor="w")
    ax.set_yticks(range(len(labels)), labels)
    ax.set_title(f"{hdi_prob:.0%} HDI", fontsize=10)
    return axes.ravel()


def plot_pair(
    columns: Mapping[str, np.ndarray],
    marginals: bool,
    scatter_kwargs: Mapping[str, Any],
    **keywords: Any,
) -> Any:
    """Return axes (coordinates, coordinates): draws of pairs, densities on the diagonal."""
    names, size = list(columns), len(columns)
    _, axes = _grid("plot_pair", size, size, keywords, (2.2, 2.2))
    flat = [np.asarray(columns[name], np.float64).ravel() for name in names]
    for i in range(size):
        for j in range(size):
            ax = axes[i, j]
            if j > i or (i == j and not marginals):
                ax.set_visible(False)
            elif i == j:
                ax.plot(*_density(flat[i]))
                ax.set_yticks([])
            else:
                ax.plot(flat[j], flat[i], ".", **scatter_kwargs)
            if i == size - 1:
                ax.set_xlabel(names[j])
            if j == 0 and i:
                ax.set_ylabel(names[i])
    return axes


def plot_rank(name: str, column: np.ndarray, ax: Any, bins: int = 20) -> None:
    """Draw bars of the ranks of each chain's draws among those of all."""
    from scipy.stats import rankdata

    ranks = rankdata(column, method="average").reshape(column.shape)
    edges = np.linspace(0, ranks.size, bins + 1)
    for chain, chain_ranks in enumerate(ranks):
        counts, _ = np.histogram(chain_ranks, edges)
        heights = 0.8 * counts / max(1, counts.max())
        width = edges[1] - edges[0]
        ax.bar(
            edges[:-1], heights, width, chain, align="edge", color="C0", edgecolor="w"
        )
    ax.set_yticks(range(len(ranks)))
    ax.set_ylabel("chain")
    ax.set_title(name)


def _grid(
    function: str,
    rows: int,
    columns: int,
    keywords: dict[str, Any],
    size: tuple[float, float],
) -> Any:
    """Return figure and axes; of ArviZ 0's keywords only the size is supported."""
    import matplotlib.pyplot as plt

    figsize = keywords.pop("figsize", None)
    if keywords:
        raise TypeError(
            f"`{min(keywords)}` went to `arviz.{function}` of ArviZ 0; with ArviZ 1 only `figsize` "
            "can be given. Hand samples.to_arviz() to ArviZ's own function for all that it can do."
        )
    wide, high = size if rows == columns == 1 else (size[0], size[1] * rows)
    if columns > 2 or rows == columns > 1:
        wide = size[0] * columns
    return plt.subplots(
        rows, columns, figsize=figsize or (wide, max(2.0, high)), squeeze=False
    )


def _interval(draws: np.ndarray, prob: float) -> tuple[float, float]:
    """Return the shortest interval with this part of the draws."""
    ordered = np.sort(draws)
    length = min(int(np.ceil(prob * len(ordered))), len(ordered) - 1)
    start = int(np.argmin(ordered[length:] - ordered[: len(ordered) - length]))
    return float(ordered[start]), float(ordered[start + length])


def _density(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return positions and kernel density estimate; a spike for draws that are all the same."""
    from scipy.stats import gaussian_kde

    low, high = float(draws.min()), float(draws.max())
    if not high > low:
        return np.array([low, low]), np.array([0.0, 1.0])
    x = np.linspace(low, high, _SETTINGS.positions)
    subset = draws[:: -(-len(draws) // _SETTINGS.draws)]
    center, scale = draws.mean(), draws.std()
    if subset.max() == subset.min():
        subset = draws
    return x, gaussian_kde((subset - center) / scale)((x - center) / scale) / scale


def predictive_panel(y: np.ndarray, drawn: np.ndarray, levels: tuple[Any, ...]) -> Any:
    """Return Matplotlib axes with the distribution of the response and of draws of it.

    Args:
        y: Response, (rows,); indices of levels if there are any.
        drawn: Draws of the response, (draws, rows), in the same form.
        levels: Levels of the response, if it is not a number.
    """
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=(6, 4))
    is_integer = bool((y == np.floor(y)).all())
    if is_integer and np.ptp(y) <= _SETTINGS.max_bars:
        largest = max(y.max(), np.quantile(drawn, 0.99))
        values = np.arange(y.min(), largest + 1)
        shares = np.stack([(drawn == value).mean(1) for value in values], 1)
        ends = np.quantile(shares, [0.025, 0.975], axis=0)
        observed = [(y == value).mean() for value in values]
        axes.bar(values, observed, color="0.8", label="response")
        axes.vlines(values, *ends, color="C0")
        label = "predictive, 95% interval"
        axes.plot(values, shares.mean(0), "o", color="C0", label=label)
        if levels:
            axes.set_xticks(values, [str(levels[int(value)]) for value in values])
        axes.set_ylabel("proportion")
    else:
        all_numbers = np.concatenate([y, drawn.ravel()])
        low, high = np.quantile(all_numbers, [0.001, 0.999])
        edges = np.linspace(low, high, 41)
        middle = (edges[1:] + edges[:-1]) / 2
        for row in drawn:
            density = np.histogram(row, edges, density=True)[0]
            axes.plot(middle, density, color="C0", alpha=0.15)
        axes.plot([], [], color="C0", label="predictive draws")
        density = np.histogram(y, edges, density=True)[0]
        axes.plot(middle, density, color="k", label="response")
        axes.set_ylabel("density")
    axes.set_xlabel("response")
    axes.legend()
    return axes
