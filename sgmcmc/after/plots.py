"""Plots of draws and of the report on them, through ArviZ and Matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log10
from typing import Any

import numpy as np

from sgmcmc import libraries
from sgmcmc.after import panels
from sgmcmc.results.arrays import by_chain, coordinate_names
from sgmcmc.results.draws import need_draws
from sgmcmc.results.report import Fact, Section
from sgmcmc.results.samples import Samples


@dataclass(frozen=True)
class _PlotSettings:
    panels: int = 20  # coordinates with a separate panel, by default
    pairs: int = 5  # coordinates of which pairs are shown, by default
    named: int = 25  # coordinates with names on the axis
    ranked: int = 2  # coordinates with a panel of ranks
    digits: int = 8  # significant, at most


_SETTINGS = _PlotSettings()


def plot_trace(
    samples: Samples,
    var_names: Sequence[str] | None = None,
    *,
    most: int = _SETTINGS.panels,
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
    most: int = _SETTINGS.panels,
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
    needed = [2]
    for column in shown.values():
        size = np.abs(column).max()
        sd = column.std()
        if sd > 0 and np.isfinite(size):
            needed.append(2 + ceil(log10(size / sd)))
    keywords.setdefault("round_to", min(max(needed), _SETTINGS.digits))
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
    most: int = _SETTINGS.pairs,
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
            _numbers(report, Section.PREDICTED, Fact.SD_ERROR),
            _numbers(report, Section.DRAWS, Fact.SD_RATIO),
            _numbers(report, Section.DRAWS, Fact.BULK),
            _numbers(report, Section.PREDICTED, Fact.NOISE),
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
        Vehtari et al., Bayesian Analysis 16, 2021, for rank plots; docs/reports.md for the rest.
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
    columns = _columns(samples, None)
    figure, grid = plt.subplots(2, 2, figsize=(11, 7), layout="constrained")
    axes = grid.reshape(-1)
    figure.suptitle(warning_line(report.warnings) or "no warnings", fontsize=9)
    plot_sds(axes[0], lists, list(columns))
    _plot_ranks(axes[1:3], columns, lists)
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
    if len(names) == len(shown) <= _SETTINGS.named:
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
    axes: Any, columns: Mapping[str, np.ndarray], lists: ReportLists
) -> None:
    names, arrays = list(columns), list(columns.values())
    if len(arrays[0]) < 2:
        for ax in axes:
            _say(ax, "A single chain has no ranks among others.")
        return
    for ax, coordinate in zip(axes, worst_places(lists, len(names)), strict=False):
        name = names[coordinate]
        column = np.asarray(arrays[coordinate], np.float64)
        if libraries.arviz_is_new():
            panels.plot_rank(name, column, ax)
        else:
            libraries.arviz().plot_rank({name: column}, ax=ax, kind="bars", colors="C0")
    for ax in axes[len(names) :]:
        _say(ax, "There are no more coordinates.")


def worst_places(lists: ReportLists, size: int) -> list[int]:
    """Return the coordinates with the smallest effective sample sizes, the worst first."""
    if lists.effective is None or len(lists.effective) != size:
        return list(range(min(size, _SETTINGS.ranked)))
    return np.argsort(lists.effective)[: _SETTINGS.ranked].tolist()


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
