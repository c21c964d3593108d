"""Simulation-based calibration: whether a sampler gives the posterior of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgmcmc import bars, checks
from sgmcmc.results.arrays import by_chain
from sgmcmc.results.samples import Samples


@dataclass(frozen=True)
class _Settings:
    expected: int = 5  # simulations in a bin, on average, for a χ² test
    bins: int = 20  # at most


_SETTINGS = _Settings()


class Calibration:
    """Ranks of true parameters among posterior draws, as :func:`sgmcmc.sbc` returns them.

    Args:
        ranks: Number of posterior draws below the true value: for each parameter
            ``(simulations, *shape)``.
        draws: Number of posterior draws in each comparison; ranks are 0, ..., ``draws``.

    Attributes:
        ranks, draws: Ranks and number of draws, as given.
        p_values: P-values of the χ² test of uniform ranks, for each component of each parameter;
            NaN with fewer than ten simulations.

    Example:
        >>> import numpy as np, sgmcmc
        >>> ranks = {"theta": np.random.default_rng(1).integers(0, 64, 200)}
        >>> sgmcmc.Calibration(ranks, 63)
        Calibration of 200 simulations, ranks among 63 draws:
          theta  smallest p-value 0.34
    """

    def __init__(self, ranks: Mapping[str, np.ndarray], draws: int) -> None:
        from scipy.stats import chisquare

        self.ranks = {name: np.asarray(values) for name, values in ranks.items()}
        self.draws = draws
        self.n = len(next(iter(self.ranks.values())))
        self._bins = 1
        for bins in range(2, _SETTINGS.bins + 1):
            if (draws + 1) % bins == 0 and bins * _SETTINGS.expected <= self.n:
                self._bins = bins
        self.p_values: dict[str, np.ndarray] = {}
        for name, values in self.ranks.items():
            shape = values.shape[1:]
            p_values = np.full(shape, np.nan)
            if self._bins > 1:
                flat = values.reshape(self.n, -1).T
                tests = [chisquare(self._counts(one)) for one in flat]
                p_values = np.reshape([test.pvalue for test in tests], shape)
            self.p_values[name] = p_values

    def _counts(self, ranks: np.ndarray) -> np.ndarray:
        """Return the number of simulations in each bin of ranks."""
        return np.bincount(ranks * self._bins // (self.draws + 1), minlength=self._bins)

    def plot(self, var_names: Any = None) -> Any:
        """Plot the histogram of ranks of each component, with a 99 % band of uniform ones.

        A histogram like ∪ means that posteriors are too narrow, like ∩ too wide, and a slope means
        that they are shifted.

        Args:
            var_names: Names of parameters; ``None`` for all.

        Returns:
            Array of Matplotlib axes, one for each component.

        Raises:
            ValueError: There is no parameter of a name.
        """
        import matplotlib.pyplot as plt
        from scipy.stats import binom

        from sgmcmc.results.arrays import coordinate_names

        names = list(self.ranks) if var_names is None else list(var_names)
        panels: list[tuple[str, np.ndarray]] = []
        for name in names:
            if name not in self.ranks:
                raise ValueError(
                    f"`var_names`: there is no {name!r}; there are {list(self.ranks)}."
                )
            ranks = self.ranks[name]
            titles = coordinate_names(name, ranks.shape[1:])
            panels += zip(titles, ranks.reshape(self.n, -1).T, strict=True)
        bins = max(self._bins, min(self.draws + 1, 4))
        low, high = binom.ppf([0.005, 0.995], self.n, 1 / bins)
        columns = min(4, len(panels))
        rows = -(-len(panels) // columns)
        figure, axes = plt.subplots(
            rows,
            columns,
            figsize=(3 * columns, 2.2 * rows),
            squeeze=False,
            layout="constrained",
        )
        edges = np.linspace(0, self.draws + 1, bins + 1) - 0.5
        for ax, (title, ranks) in zip(axes.flat, panels, strict=False):
            ax.axhspan(low, high, color="0.9")
            ax.hist(ranks, edges, color="C0")
            ax.axhline(self.n / bins, color="0.5", linewidth=0.8)
            ax.set_title(title, fontsize=9)
        for ax in axes.flat[len(panels) :]:
            ax.set_visible(False)
        figure.supxlabel(f"rank among {self.draws} draws", fontsize=9)
        return axes.flat[: len(panels)]

    def __repr__(self) -> str:
        lines = [
            f"Calibration of {self.n} simulations, ranks among {self.draws} draws:"
        ]
        for name, p in self.p_values.items():
            lines.append(f"  {name}  smallest p-value {np.min(p):.2g}")
        return "\n".join(lines)


def sbc(
    model: Any,
    n: int = 100,
    *,
    draws: int = 63,
    fit: Callable[..., Samples] | None = None,
    seed: int | None = None,
    verbose: bool = True,
    **keywords: Any,
) -> Calibration:
    """Return the ranks of true parameters among posterior draws, over simulated datasets.

    Parameters are drawn from the prior, data from the model given them, and the posterior of those
    data is sampled. If the sampler is right, the rank of each true value among independent draws is
    uniform on 0, ..., ``draws``.

    Args:
        model: A model of :func:`sgmcmc.from_joint`, or any object with its ``prior_predictive``,
            ``observing``, ``params`` and ``sample``.
        n: Number of datasets; each is a whole run of the sampler.
        draws: Number of posterior draws, evenly spaced over those of all chains, with which a true
            value is compared. One less than a power of two allows the most numbers of bins.
        fit: Function of the model of one dataset and of ``seed`` that returns ``Samples``; ``None``
            uses ``model.sample(**keywords)``.
        seed: Seed of all random numbers, an integer; ``None`` draws one.
        verbose: Whether to show progress.
        keywords: Keyword arguments of :func:`sgmcmc.sample`.

    Returns:
        Ranks, p-values of their uniformity, and a figure.

    Raises:
        ValueError: A posterior has fewer than ``draws`` draws.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow_probability as tfp
        >>> tfd = tfp.distributions
        >>> joint = tfd.JointDistributionNamed(dict(
        ...     mu=tfd.Normal(0.0, 1.0), y=lambda mu: tfd.Sample(tfd.Normal(mu, 1.0), 3)))
        >>> model = sgmcmc.from_joint(joint, observed={"y": np.zeros(3)})
        >>> def exact(model, seed):
        ...     rng = np.random.default_rng(seed)
        ...     mean = model.dataset["y"].sum() / 4
        ...     return sgmcmc.Samples({"mu": rng.normal(mean, 0.5, 200)})
        >>> found = sgmcmc.sbc(model, 50, fit=exact, seed=1, verbose=False)
        >>> bool(found.p_values["mu"] > 0.01)
        True

    Source:
        Talts, Betancourt, Simpson, Vehtari & Gelman, *Validating Bayesian Inference Algorithms with
        Simulation-Based Calibration*, 2018, algorithm 1: rank of θ̃ = #{θ_l < θ̃}.
    """
    n = checks.whole_number("n", n, 1)
    draws = checks.whole_number("draws", draws, 1)
    shown = checks.flag("verbose", verbose)
    if fit is not None:
        checks.function("fit", fit, "of a model and `seed`")
        if keywords:
            raise TypeError(f"`fit` is given, so that {min(keywords)!r} has no use.")
    start = None if seed is None else checks.whole_number("seed", seed, 0)
    seeds = np.random.SeedSequence(start).generate_state(n + 1) >> 1
    simulated = model.prior_predictive(n, seed=int(seeds[0]))
    names = list(model.params)
    hidden = {*names, *getattr(model, "local", ())}
    ranks: dict[str, list[np.ndarray]] = {name: [] for name in names}
    with bars.make_bar(total=n, desc="calibration", disable=not shown) as bar:
        for simulation in range(n):
            data = {k: v[simulation] for k, v in simulated.items() if k not in hidden}
            simulated_model = model.observing(data)
            chain_seed = int(seeds[simulation + 1])
            if fit is None:
                samples = simulated_model.sample(
                    seed=chain_seed, verbose=False, **keywords
                )
            else:
                samples = fit(simulated_model, seed=chain_seed)
            for name, array in by_chain(samples.settings, samples).items():
                if name in ranks:
                    ranks[name].append(_rank(array, simulated[name][simulation], draws))
            bar.update(1)
    return Calibration({name: np.stack(a) for name, a in ranks.items()}, draws)


def _rank(array: np.ndarray, true: np.ndarray, draws: int) -> np.ndarray:
    """Return the rank of the true value among some evenly spaced draws."""
    flat = array.reshape(-1, *array.shape[2:])
    if len(flat) < draws:
        raise ValueError(
            f"`draws` must be at most the posterior draws, {len(flat)}; it is {draws}."
        )
    spaced = flat[np.linspace(0, len(flat) - 1, draws).round().astype(int)]
    return (spaced < true).sum(axis=0)
