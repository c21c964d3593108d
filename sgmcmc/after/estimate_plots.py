"""Plots of estimates along a chain, and of draws before and after correction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sgmcmc.results.samples import Samples


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
    before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray], name: str, ax: Any = None
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
    for label, given in (("before", before), ("after", after)):
        if name not in given:
            raise ValueError(f"`{label}` has no {name!r}; there is {', '.join(given)}.")
    ax = _axes(ax)
    shape = np.shape(after[name])
    old = np.reshape(before[name], (shape[0], -1)).astype(np.float64)
    new = np.reshape(after[name], (shape[0], -1))
    single = old.shape[1] == 1
    center: np.ndarray = np.zeros(1) if single else old.mean(axis=0)
    places = np.arange(old.shape[1])
    handles = []
    pairs: list[tuple[np.ndarray, float, str]] = [(old, -0.2, "C0"), (new, 0.2, "C1")]
    for draws, shift, color in pairs:
        boxes = ax.boxplot(
            draws - center,
            positions=places + shift,
            widths=0.3,
            patch_artist=True,
            flierprops={"markersize": 2, "markeredgecolor": color},
            medianprops={"color": "black"},
        )
        for box in boxes["boxes"]:
            box.set(facecolor=color, alpha=0.5)
        handles.append(boxes["boxes"][0])
    ax.set_xticks(places, [name] if single else [str(place) for place in places])
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
