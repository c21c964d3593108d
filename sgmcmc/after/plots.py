"""Plots of draws, through ArviZ and Matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, log10
from typing import Any

import numpy as np

from sgmcmc import libraries
from sgmcmc.after import panels
from sgmcmc.after.draws import need_draws
from sgmcmc.after.report_plots import warning_line
from sgmcmc.results.arrays import by_chain, coordinate_names
from sgmcmc.results.samples import Samples

MOST_SHOWN = 20  # largest number of coordinates with a separate panel, by default


def plot_trace(
    samples: Samples,
    var_names: Sequence[str] | None = None,
    *,
    most: int = MOST_SHOWN,
    **keywords: Any,
) -> Any:
    """Plot the density and the trace of each coordinate, on its own scale, a line for each chain.

    If there are more than ``most`` coordinates, those with the smallest effective sample sizes are
    shown. If the report has warnings, a line above the panels says so.

    Args:
        samples: Draws.
        var_names: Names of the parameters to show; ``None`` shows all.
        most: Largest number of coordinates to show.
        keywords: Passed to ``arviz.plot_trace``; with ArviZ 1 only ``figsize``.

    Returns:
        Array of Matplotlib axes, of shape (coordinates, 2).

    Raises:
        ValueError: There are no draws, or no parameter of a name.

    Example:
        >>> import numpy as np
        >>> from sgmcmc import Samples, plot_trace
        >>> draws = np.random.default_rng(1).normal(size=(100, 2))
        >>> plot_trace(Samples({"theta": draws})).shape
        (2, 2)

    Source:
        Kumar et al., Journal of Open Source Software 4(33), 2019 (ArviZ).
    """
    shown, title = _worst(samples, var_names, most)
    axes = _plots().plot_trace(shown, **keywords)
    for density, trace in axes:
        density.set_ylabel("density")
        trace.set_xlabel("draw")
    figure = axes[0, 0].figure
    doubt = warning_line(samples.quick_warnings())
    if doubt or title:
        figure.suptitle(
            "\n".join(filter(None, [title, doubt])),
            fontsize=9,
            color="C3" if doubt else "k",
        )
    figure.tight_layout()
    return axes


def plot_posterior(
    samples: Samples,
    var_names: Sequence[str] | None = None,
    *,
    most: int = MOST_SHOWN,
    **keywords: Any,
) -> Any:
    """Plot the density of each coordinate, with its mean and its highest density interval.

    Numbers have as many digits as the smallest SD needs. If there are more than ``most``
    coordinates, those with the smallest effective sample sizes are shown.

    Args:
        samples: Draws.
        var_names: Names of the parameters to show; ``None`` shows all.
        most: Largest number of coordinates to show.
        keywords: Passed to ``arviz.plot_posterior``; with ArviZ 1 only ``figsize``.

    Returns:
        A Matplotlib axes, or an array of them.

    Raises:
        ValueError: There are no draws, or no parameter of a name.

    Example:
        >>> import numpy as np
        >>> from sgmcmc import Samples, plot_posterior
        >>> draws = np.random.default_rng(1).normal(size=(100, 2))
        >>> plot_posterior(Samples({"theta": draws})).shape
        (2,)

    Source:
        Kumar et al., Journal of Open Source Software 4(33), 2019 (ArviZ).
    """
    shown, _ = _worst(samples, var_names, most)
    keywords.setdefault("round_to", _digits(shown))
    return _plots().plot_posterior(shown, **keywords)


def plot_forest(
    samples: Samples, var_names: Sequence[str] | None = None, **keywords: Any
) -> Any:
    """Plot the intervals of all coordinates below each other, those of the chains together.

    Args:
        samples: Draws.
        var_names: Names of the parameters to show; ``None`` shows all.
        keywords: Passed to ``arviz.plot_forest``; with ArviZ 1 only ``figsize``.

    Returns:
        Array of Matplotlib axes.

    Raises:
        ValueError: There are no draws, or no parameter of a name.

    Example:
        >>> import numpy as np
        >>> from sgmcmc import Samples, plot_forest
        >>> draws = np.random.default_rng(1).normal(size=(100, 2))
        >>> axes = plot_forest(Samples({"theta": draws}))
        >>> [label.get_text() for label in axes[0].get_yticklabels()]
        ['theta[1]', 'theta[0]']

    Source:
        Kumar et al., Journal of Open Source Software 4(33), 2019 (ArviZ).
    """
    keywords = {"combined": True, "hdi_prob": 0.9, **keywords}
    return _plots().plot_forest(_columns(samples, var_names), **keywords)


def plot_pairs(
    samples: Samples,
    var_names: Sequence[str] | None = None,
    *,
    most: int = 5,
    **keywords: Any,
) -> Any:
    """Plot the draws of each pair of coordinates against each other, with their densities.

    If there are more than ``most`` coordinates, those with the smallest effective sample sizes are
    shown.

    Args:
        samples: Draws.
        var_names: Names of the parameters to show; ``None`` shows all.
        most: Largest number of coordinates to show.
        keywords: Passed to ``arviz.plot_pair``; with ArviZ 1 only ``figsize``.

    Returns:
        A Matplotlib axes, or an array of them.

    Raises:
        ValueError: There are no draws, no parameter of a name, or only one coordinate.

    Example:
        >>> import numpy as np
        >>> from sgmcmc import Samples, plot_pairs
        >>> draws = np.random.default_rng(1).normal(size=(100, 2))
        >>> plot_pairs(Samples({"theta": draws})).shape
        (2, 2)

    Source:
        Kumar et al., Journal of Open Source Software 4(33), 2019 (ArviZ).
    """
    shown, _ = _worst(samples, var_names, most)
    if len(shown) < 2:
        raise ValueError(
            "`samples` has a single coordinate here; there are no pairs to plot."
        )
    keywords = {
        "marginals": True,
        "scatter_kwargs": {"alpha": 0.2, "rasterized": True},
        **keywords,
    }
    return _plots().plot_pair(shown, **keywords)


def _plots() -> Any:
    """Return the module that plots: ArviZ, or our own panels from ArviZ 1 on."""
    return panels if libraries.arviz_is_new() else libraries.arviz()


def _columns(
    samples: Samples, var_names: Sequence[str] | None
) -> dict[str, np.ndarray]:
    """Return the draws of each coordinate, (chain, draw), by its label."""
    names = need_draws(samples, var_names)
    columns = {}
    for name, array in by_chain(samples.settings, samples).items():
        if name in names:
            flat = np.reshape(array, (*array.shape[:2], -1))
            labels = coordinate_names(name, array.shape[2:])
            columns.update(
                {label: flat[:, :, index] for index, label in enumerate(labels)}
            )
    return columns


def _worst(
    samples: Samples, var_names: Sequence[str] | None, limit: int
) -> tuple[dict[str, np.ndarray], str]:
    """Return the coordinates to show, in their order, and a sentence on the others."""
    columns = _columns(samples, var_names)
    if len(columns) <= limit:
        return columns, ""
    az = libraries.arviz()
    effective = np.array(
        [az.ess(np.asarray(column, np.float64)) for column in columns.values()]
    )
    # A coordinate that never moved has no effective sample size, and is the worst of all.
    selected = np.sort(np.argsort(np.nan_to_num(effective, nan=0.0))[:limit])
    names = list(columns)
    title = f"{limit} of {len(names)} coordinates: those with the smallest effective sample sizes"
    return {names[index]: columns[names[index]] for index in selected}, title


def _digits(columns: dict[str, np.ndarray]) -> int:
    """Return the number of significant digits that distinguishes the ends of every interval."""
    needed = [2]
    for column in columns.values():
        size, sd = np.abs(column).max(), column.std()
        if sd > 0 and np.isfinite(size):
            needed.append(2 + ceil(log10(size / sd)))
    return min(max(needed), 8)


def plot_log_post(samples: Samples, ax: Any = None) -> Any:
    """Plot the log posterior estimates along the chain, a line for each chain.

    Each is the estimate from one minibatch, so it scatters with the choice of the minibatch. A
    trend means that the chain has not converged yet.

    Args:
        samples: Draws.
        ax: Matplotlib axes to draw on; ``None`` makes a figure.

    Returns:
        The axes.

    Raises:
        ValueError: There are no estimates.

    Example:
        >>> import numpy as np
        >>> from sgmcmc import Samples, plot_log_post
        >>> from sgmcmc.results.samples import LogPost
        >>> estimates = LogPost(np.array([75, 150]), np.array([-10.0, -9.0]))
        >>> plot_log_post(Samples({}, log_post=estimates)).get_xlabel()
        'iteration'

    Source:
        The R package prints these estimates while it runs: Baker, *Large-Scale Bayesian Computation
        Using Stochastic Gradient MCMC*, Lancaster 2018, section 4.5.1.
    """
    iterations, values = samples.log_post
    if not iterations.size:
        raise ValueError("`samples` holds no log posterior estimates.")
    ax = _axes(ax)
    lines = np.atleast_2d(values)
    for number, line in enumerate(lines):
        ax.plot(iterations, line, linewidth=0.8, label=f"chain {number}")
    ax.set(xlabel="iteration", ylabel="log posterior estimate")
    if len(lines) > 1:
        ax.legend(fontsize=8)
    return ax


def plot_zero_variance(
    before: Mapping[str, np.ndarray],
    after: Mapping[str, np.ndarray],
    name: str,
    ax: Any = None,
) -> Any:
    """Plot the draws of one quantity before and after correction, as box plots side by side.

    Args:
        before: Draws, such as ``samples`` or ``samples.test_functions``.
        after: Corrected draws, as :func:`zero_variance` returns them.
        name: Name of the quantity. Each component of an array has its own pair of boxes, centered
            at the mean before.
        ax: Matplotlib axes to draw on; ``None`` makes a figure.

    Returns:
        The axes.

    Raises:
        ValueError: There is no quantity of that name.

    Example:
        >>> import numpy as np
        >>> from sgmcmc import plot_zero_variance
        >>> draws = np.random.default_rng(1).normal(size=(100, 3))
        >>> ax = plot_zero_variance({"theta": draws}, {"theta": 0.1 * draws}, "theta")
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['before', 'after']

    Source:
        Baker, *Large-Scale Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster 2018,
        figure 3.5.2.
    """
    for label, quantities in (("before", before), ("after", after)):
        if name not in quantities:
            raise ValueError(
                f"`{label}` has no {name!r}; there is {', '.join(quantities)}."
            )
    ax = _axes(ax)
    shape = np.shape(after[name])
    old = np.reshape(before[name], (shape[0], -1)).astype(np.float64)
    new = np.reshape(after[name], (shape[0], -1))
    single = old.shape[1] == 1
    center: np.ndarray = np.zeros(1) if single else old.mean(axis=0)
    positions = np.arange(old.shape[1])
    handles = []
    pairs: list[tuple[np.ndarray, float, str]] = [(old, -0.2, "C0"), (new, 0.2, "C1")]
    for draws, shift, color in pairs:
        boxes = ax.boxplot(
            draws - center,
            positions=positions + shift,
            widths=0.3,
            patch_artist=True,
            flierprops={"markersize": 2, "markeredgecolor": color},
            medianprops={"color": "black"},
        )
        for box in boxes["boxes"]:
            box.set(facecolor=color, alpha=0.5)
        handles.append(boxes["boxes"][0])
    ax.set_xticks(
        positions, [name] if single else [str(position) for position in positions]
    )
    ax.set_ylabel(name if single else f"{name}, less the mean before")
    if not single:
        ax.set_xlabel("component")
    ax.legend(handles, ["before", "after"])
    return ax


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]
