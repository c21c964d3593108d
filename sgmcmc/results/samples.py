"""Samples: the result of a sampler."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, overload

import numpy as np

from sgmcmc import checks
from sgmcmc.results.arrays import Arrays, LogPost, Results, by_chain, need_slice, sliced
from sgmcmc.results.conversions import Conversions, read_archive, write_archive
from sgmcmc.results.diagnostics import read_weights, weights_of
from sgmcmc.results.measured_error import MeasuredError, measured_error
from sgmcmc.results.origin import Origin, need_chains
from sgmcmc.results.report import Report, draws_table, html_page
from sgmcmc.results.store import read_store


@checks.renamed("unnormalised")
class Samples(Conversions):
    """The draws of a chain: a read-only mapping from parameter names to arrays.

    An array has shape ``(draws, *param_shape)``, or ``(n_chains, draws, *param_shape)`` if
    ``n_chains`` was given. ``samples[100:]`` and ``samples[::10]`` are slices along the draws, of
    all chains and of all that is kept with each draw; ``settings["slice"]`` says which. They keep
    ``log_post`` as it is, and lose reductions and report, which are about all draws.

    Args:
        draws: Kept draws, by parameter.
        log_post: Estimates of the log posterior along the chain, burn-in included, each from the
            minibatch of its iteration: at least a hundred, or one for each iteration of a chain
            with fewer; one for each block if 64 or more chains share a kernel.
        settings: Method, tuning constants, N, n, seed and versions; only what JSON can hold.
        gradients: Gradient estimate at each kept draw, by parameter, in the space in which the
            chain moves; ``None`` if not requested.
        test_functions: Values of the test functions at each kept draw, by name, or ``None``.
        mode: Mode that the control variate is centered at, for the control variate methods.
        mode_gradient: Gradient of the log posterior at that mode over the whole dataset, in the
            space in which the chain moves.
        reductions: Results of the running reductions, by name: an array, or a mapping of arrays;
            ``None`` if there were none.
        unnormalized: θ at each kept draw, of the parameters ω = θ / Σθ; ``None`` if not requested.
        report: Report on how the constants were chosen and how good the draws are, if that is
            known.
        weights: Weights of the draws of a chain, ``(draws,)``, if they are not those of the
            stepsizes.

    Example:
        >>> samples = Samples({"theta": np.zeros((100, 2))}, settings={"method": "sgld"})
        >>> samples
        Samples of sgld:
          theta  (100, 2)  float64
        >>> samples["theta"].mean(axis=0).tolist()
        [0.0, 0.0]
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
        super().__init__(draws, settings or {})
        self.log_post = log_post or LogPost(np.zeros(0, int), np.zeros(0))
        self.gradients = None if gradients is None else Arrays(gradients)
        self.test_functions = None if test_functions is None else Arrays(test_functions)
        self.mode = None if mode is None else Arrays(mode)
        self.mode_gradient = None if mode_gradient is None else Arrays(mode_gradient)
        self.reductions = None if reductions is None else Results(reductions)
        self.unnormalized = None if unnormalized is None else Arrays(unnormalized)
        self._report = None if report is None else Report(report)
        self.own_weights = None if weights is None else read_weights(weights, self)

    @overload
    def __getitem__(self, name: str) -> np.ndarray: ...
    @overload
    def __getitem__(self, name: slice) -> Samples: ...
    def __getitem__(self, name: str | slice) -> Any:
        if isinstance(name, str):
            return super().__getitem__(name)
        with_draws = ("draws", "gradients", "test_functions", "unnormalized")
        groups = {group: self._groups()[group] for group in with_draws}
        settings, sliced_arrays = sliced(self.settings, groups, need_slice(name))
        subset = Samples(
            **sliced_arrays,
            log_post=self.log_post,
            settings=settings,
            mode=self.mode,
            mode_gradient=self.mode_gradient,
        )
        subset._origin = self._origin
        subset.own_weights = (
            None if self.own_weights is None else self.own_weights[name]
        )
        return subset

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
        return weights_of(self)

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
        if (
            self._report is None
            and self._origin is not None
            and not self._origin.judges_quickly
        ):
            return ["Not checked yet (slow for this model); run print(samples.report)."]
        return [] if self.report is None else self.report.warnings

    def __getstate__(self) -> dict[str, Any]:
        # The sampler holds the user's functions and data, which stay in this process.
        return {**self.__dict__, "_origin": None}

    def __copy__(self) -> Samples:
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__dict__)
        return clone

    def made_by(self, origin: Origin) -> Samples:
        """Return the same draws, as made by this sampler."""
        clone = copy.copy(self)
        clone._origin = origin
        return clone

    def extend(self, n_iters: int, verbose: bool = True) -> Samples:
        """Continue the same chains from where they ended, and return all draws, old and new.

        They are the draws of one call with as many iterations in all, bit for bit. Draws in a store
        continue in the store. A search for a mode is not repeated.

        Args:
            n_iters: Number of further iterations.
            verbose: Whether to show progress.

        Returns:
            New samples; the present ones are unchanged.

        Raises:
            ValueError: The draws are a slice, or are no longer linked to their sampler.
        """
        go_on = need_chains(self.settings, self._origin)
        return go_on(
            checks.whole_number("n_iters", n_iters, 1), checks.flag("verbose", verbose)
        )

    def update(
        self, rows: Any, seed: int | None = None, verbose: bool = True
    ) -> Samples:
        """Make the posterior with new rows added to the dataset.

        The call that made these draws is made again on all rows, the old and the new. The search
        for the mode begins at the old mode with the old information, scaled to the number of rows,
        and takes a few passes over the data.

        Args:
            rows: New rows, in the form of ``dataset``: the same names, shapes and kinds.
            seed: Integer, the seed of the new chains; ``None`` for that of the draws plus one.
            verbose: Whether to show progress.

        Returns:
            New samples, which can be updated in turn; the present ones are unchanged.

        Raises:
            ValueError, TypeError: The rows are not like those of the dataset; or the draws were
                made with constants that you chose, or are no longer linked to their sampler.

        Example:
            >>> import numpy as np, sgmcmc, tensorflow as tf
            >>> x = np.random.default_rng(1).normal(3.0, 1.0, 3000)
            >>> def log_lik(params, dataset):
            ...     return -0.5 * (dataset["x"] - params["theta"]) ** 2
            >>> samples = sgmcmc.sample(
            ...     log_lik, {"x": x[:2500]}, {"theta": 0.0}, seed=1, verbose=False)
            >>> samples = samples.update({"x": x[2500:]}, verbose=False)
            >>> samples.settings["N"], bool(abs(samples["theta"].mean() - x.mean()) < 0.01)
            (3000, True)
        """
        need_chains(self.settings, self._origin)
        assert self._origin is not None
        if self._origin.update is None:
            raise ValueError(
                "`samples` was made with constants that you chose: make that call again on all "
                "rows, with `params` where these chains ended."
            )
        if seed is not None:
            seed = checks.whole_number("seed", seed, 0)
        return self._origin.update(self, rows, seed, checks.flag("verbose", verbose))

    def check(
        self, tolerance: float = 0.05, seed: int | None = None, verbose: bool = True
    ) -> MeasuredError:
        """Measure the error of these draws: run the same chains at half the stepsize.

        The chains are run again from the same starts, with ε/2 for ε and twice the iterations, so
        that they take twice as long. The difference gives the error: if the error is proportional
        to ε, error(ε) = 2 (q(ε) − q(ε/2)); for dynamics with a closed form the factor comes from
        it. No closed form is needed, and it works on manifolds and the simplex too.

        Args:
            tolerance: Largest accepted relative error of a posterior SD; means may be off by 0.1
                posterior SDs.
            seed: Integer, the seed of the new chains; ``None`` for that of the draws plus one.
            verbose: Whether to show progress.

        Returns:
            :class:`sgmcmc.MeasuredError`: ``table`` with a row for each watched quantity (each
            scalar; of an array its coordinates, or of more than 20 the mean, the mean square and
            the coordinates with the fewest effective draws; each test function), ``warnings``
            that name what is off and by how much, and the draws ``at_half`` the stepsize.

        Raises:
            ValueError: The draws are a slice, or made by HMC or NUTS, or are no longer linked to
                their sampler.

        Example:
            >>> import numpy as np, sgmcmc, tensorflow as tf
            >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
            >>> def log_lik(params, dataset):
            ...     return -0.5 * (dataset["x"] - params["theta"]) ** 2
            >>> chain = sgmcmc.sgld(
            ...     log_lik, {"x": x}, {"theta": 3.0}, 5e-4, minibatch_size=50, n_chains=4,
            ...     n_iters=5000, seed=1, verbose=False)
            >>> found = chain.check(verbose=False)
            >>> found.warnings[0][:37]  # the noise of 50 rows makes it twice as wide
            'The posterior SD of theta is off by +'

        Source:
            SGLD's bias is O(ε): Teh, Thiery & Vollmer, Journal of Machine Learning Research 17,
            2016; extrapolation from two stepsizes is Richardson's.
        """
        origin, settings = self._origin, self.settings
        need_chains(settings, origin)
        assert origin is not None
        if not checks.positive_number("tolerance", tolerance) < 1:
            raise ValueError(
                f"`tolerance` must be below 1, a relative error; it is {tolerance}."
            )
        if seed is not None:
            seed = checks.whole_number("seed", seed, 0)
        at_half, factor = origin.at_half_stepsize(
            self, seed, checks.flag("verbose", verbose)
        )
        coarse, fine = (
            {
                **by_chain(settings, samples),
                **by_chain(settings, samples.test_functions or {}),
            }
            for samples in (self, at_half)
        )
        return measured_error(coarse, fine, factor, tolerance, at_half)

    def robust(self) -> Samples:
        """Return draws whose covariance holds if the model is wrong: that of the sandwich.

        With J the information at the mode (prior included), s_i the gradient of the log-likelihood
        of observation i there, and K = Σ s_i s_iᵀ − N s̄ s̄ᵀ, these draws have about the covariance
        J⁻¹ K J⁻¹, which is that of the mode over repeated data, whatever they are drawn from; if
        the model holds, J⁻¹ itself. In unconstrained coordinates, with J⁻¹ = CCᵀ,
        u' = ū + C(CᵀKC)^½C⁻¹(u − ū): the least move that does so. With groups whose effects are
        integrated out, observations are whole groups, which may then depend in any way within.

        Returns:
            Moved draws. They are for intervals and SDs of parameters and of functions of them;
            other results, such as :meth:`sgmcmc.Samples.loo`, need the original draws.

        Raises:
            ValueError: There is no mode, more than 2000 coordinates, or the draws are no longer
                linked to their sampler.

        Example:
            >>> import numpy as np, sgmcmc, tensorflow as tf
            >>> x = np.random.default_rng(1).normal(0.0, 3.0, 1000)  # the model says SD 1
            >>> def log_lik(params, dataset):
            ...     return -0.5 * (dataset["x"] - params["theta"]) ** 2
            >>> samples = sgmcmc.sample(log_lik, {"x": x}, {"theta": 0.0}, seed=1, verbose=False)
            >>> round(float(samples.robust()["theta"].std() / samples["theta"].std()))
            3

        References:
            Huber (1967); White (1982). Müller (2013), *Risk of Bayesian inference in misspecified
            models, and the sandwich covariance matrix*, Econometrica 81, for posteriors with this
            covariance; Williams & Savitsky (2021), *Uncertainty estimation for pseudo-Bayesian
            inference under complex sampling*, International Statistical Review 89, for moving
            draws.
        """
        if self._origin is None:
            raise ValueError(
                "`samples` are no longer linked to their sampler, which has the data. Make the "
                "call again."
            )
        adjusted = Samples(
            self._origin.robust(self), settings=self.settings, report=self._report
        )
        return adjusted.made_by(self._origin)

    @property
    def _head(self) -> str:
        head = f"Samples of {self.settings.get('method', 'unknown origin')}"
        chains = self.settings.get("n_chains")
        return head if chains is None else f"{head}, {chains} chains"

    def __repr__(self) -> str:
        rows = _rows("", self) + _rows("test function ", self.test_functions)
        warnings = [f"  ! {warning}" for warning in self.quick_warnings()]
        return "\n".join([self._head + ":", *(rows or ["  no draws kept"]), *warnings])

    def _repr_html_(self) -> str:
        warnings = self.quick_warnings()
        shown = draws_table(self.settings, self, self._report)
        return html_page(self._head, shown, warnings=warnings)

    def with_report(self, report: Report) -> Samples:
        """Return the same draws with this report."""
        clone = copy.copy(self)
        clone._report = report
        return clone

    def _groups(self) -> dict[str, Mapping[str, np.ndarray] | None]:
        return {
            "draws": self,
            "gradients": self.gradients,
            "test_functions": self.test_functions,
            "mode": self.mode,
            "mode_gradient": self.mode_gradient,
            "reductions": None if self.reductions is None else self.reductions.flat(),
            "unnormalized": self.unnormalized,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file, in NumPy's npz format.

        The file appears under its name only once it is complete; one that was there is replaced.

        Args:
            path: File to write; the name is used as it is.

        Raises:
            OSError: The file cannot be written; an existing file is unchanged.

        Example:
            >>> import tempfile, os
            >>> samples = Samples({"theta": np.arange(3.0)}, settings={"method": "sgld"})
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     samples.save(os.path.join(folder, "chain.npz"))
            ...     Samples.load(os.path.join(folder, "chain.npz"))["theta"]
            array([0., 1., 2.])
        """
        groups = {
            group: arrays
            for group, arrays in self._groups().items()
            if arrays is not None
        }
        if self.weights is not None:
            groups["weights"] = {"weights": self.weights}
        write_archive(Path(path), groups, self.log_post, self.settings, self._report)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Samples:
        """Read what :meth:`save` wrote. Nothing in the file is ever executed.

        Args:
            path: File.

        Returns:
            The saved samples.

        Raises:
            ValueError: The file is not one that :meth:`save` wrote, or is incomplete.
            OSError: The file cannot be opened.
        """
        return cls(**read_archive(path))

    @classmethod
    def open(cls, path: str | os.PathLike[str], verify: bool | None = None) -> Samples:
        """Open what a sampler with ``store=path`` has written so far, without loading it.

        The arrays are mapped from disk: a slice reads only itself. The chain may still be
        running; what it writes later is seen by opening again.

        Args:
            path: Folder.
            verify: Whether to read everything once and compare it with the checksums that were
                stored when it was written. ``None`` does so up to a gigabyte, which takes about a
                second.

        Returns:
            The draws, as from the call that made the store.

        Raises:
            ValueError: The folder is not a store, or damaged, or holds no draws yet.
            OSError: It cannot be read.

        Example:
            >>> import os, tempfile, numpy as np, sgmcmc, tensorflow as tf
            >>> def log_lik(params, dataset):
            ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = os.path.join(folder, "chain")
            ...     chain = sgmcmc.sgld(log_lik, {"x": np.zeros(100)}, {"theta": 0.0}, 1e-3,
            ...                         n_iters=500, verbose=False, seed=1, store=path)
            ...     sgmcmc.Samples.open(path)["theta"].shape
            (500,)
        """
        verified = None if verify is None else checks.flag("verify", verify)
        return cls(**read_store(Path(path), verified))


def _rows(label: str, arrays: Mapping[str, np.ndarray] | None) -> list[str]:
    return [
        f"  {label}{name}  {a.shape}  {a.dtype}" for name, a in (arrays or {}).items()
    ]
