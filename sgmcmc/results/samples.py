"""Samples: the result of a sampler."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from sgmcmc import checks
from sgmcmc.model.target import LogLik
from sgmcmc.results import conversions, evaluation, serving
from sgmcmc.results.arrays import LogPost as LogPost
from sgmcmc.results.arrays import need_slice, sliced
from sgmcmc.results.draws import Draws, Origin, need_chains
from sgmcmc.results.evaluation import OfRows, Statistic, Terms
from sgmcmc.results.loo import Loo, loo, need_posterior
from sgmcmc.results.measured_error import MeasuredError, measure_error
from sgmcmc.results.report import Report
from sgmcmc.results.store import read_store


class Samples(Draws):
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
        >>> import numpy as np
        >>> from sgmcmc import Samples
        >>> samples = Samples({"theta": np.zeros((100, 2))}, settings={"method": "sgld"})
        >>> samples
        Samples of sgld:
          theta  (100, 2)  float64
        >>> samples["theta"].mean(axis=0).tolist()
        [0.0, 0.0]
    """

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
        if self.own_weights is not None:
            subset.own_weights = self.own_weights[name]
        return subset

    def __copy__(self) -> Samples:
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__dict__)
        return clone

    def made_by(self, origin: Origin) -> Samples:
        """Return the same draws, as made by this sampler."""
        clone = copy.copy(self)
        clone._origin = origin
        return clone

    def with_report(self, report: Report) -> Samples:
        """Return the same draws with this report."""
        clone = copy.copy(self)
        clone._report = report
        return clone

    def predict(
        self,
        f: OfRows,
        dataset: Mapping[str, Any] | None = None,
        *,
        reduce: str | None = "mean",
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        store: str | os.PathLike[str] | None = None,
        executor: Any = None,
    ) -> np.ndarray:
        """Return a function of parameters and data over all draws: mean, quantiles, or all values.

        The function is compiled, and runs over pieces of rows and draws, so that memory is bounded;
        its value for a row must depend on that row alone. It may draw random numbers, with the
        operations of ``tf.random``: then these are draws of the posterior predictive.

        Args:
            f: Function of ``params``, the dict of one draw, and ``dataset``, some rows of it, that
                returns a tensor with one entry, a number or an array, for each row.
            dataset: Dict of arrays, of which ``f`` may use any; those on disk are read in pieces.
                ``None`` uses the chain's own.
            reduce: Reduction: ``"mean"``, over all draws of all chains; ``"quantiles"``; or
                ``None``, no reduction. Draws have their ``weights``, if there are such.
            quantiles: Probabilities of the quantiles, each between 0 and 1.
            store: Path of an npy file to write to, instead of memory, without a reduction.
            executor: ``concurrent.futures.Executor`` whose workers evaluate it, or a function
                without arguments that makes one; ``None`` stays in this process.

        Returns:
            An array: (N, ...) in float64; for quantiles (len(quantiles), N, ...); without a
            reduction (chains, draws, N, ...), in the dtype of ``f``, mapped from disk if it is in
            a file.

        Raises:
            ValueError, TypeError: ``f`` does not return an entry for each row; ``dataset`` is
                needed, since the draws come from a file.

        Example:
            >>> import numpy as np, sgmcmc
            >>> samples = sgmcmc.Samples({"theta": np.array([1.0, 2.0, 3.0])})
            >>> data = {"x": np.array([1.0, 10.0])}
            >>> samples.predict(lambda params, dataset: params["theta"] * dataset["x"], data)
            array([ 2., 20.])
        """
        checks.function("f", f, "of `params` and `dataset`")
        statistic = Statistic.read(reduce, quantiles, store)
        return evaluation.predict(self, f, dataset, statistic, executor)

    def log_lik(
        self,
        dataset: Mapping[str, Any] | None = None,
        *,
        log_lik: LogLik | None = None,
        by: str | None = None,
        store: str | os.PathLike[str] | None = None,
        executor: Any = None,
    ) -> np.ndarray:
        """Return the terms of the log-likelihood, log p(x_i | θ), of all rows at all draws.

        If ``log_lik`` returns the sum over its rows, the terms are its values on each of them
        alone. They take chains × draws × N numbers: thin first, ``samples[::10].log_lik()``, or
        write them to disk.

        In a model with ``groups`` the term of a row is log p(x_i | x_j: j ≠ i in its group, θ), and
        that of a group log p(x_g | θ): effects are integrated out in both.

        Args:
            dataset: Dict of arrays; ``None`` uses the chain's own.
            log_lik: Log-likelihood; ``None`` uses the chain's own. Draws from a file have none, and
                a chain with ``gibbs`` has one of completed data only.
            by: Name of a factor of ``groups``, for the terms of its groups, in the order of their
                sorted labels; ``None`` for those of rows.
            store: Path of an npy file to write to, instead of memory; an existing one is replaced.
            executor: ``concurrent.futures.Executor`` whose workers evaluate it, or a function
                without arguments that makes one; ``None`` stays in this process.

        Returns:
            An array (chains, draws, N) in the dtype of the chain, with the axis of chains even if
            there is one chain; mapped from disk if it is in a file.

        Raises:
            ValueError, TypeError: ``dataset`` or ``log_lik`` is needed, since the draws come from
                a file; the log-likelihood is not a sum over rows.

        Example:
            >>> import numpy as np, sgmcmc
            >>> samples = sgmcmc.Samples({"theta": np.array([1.0, 2.0, 3.0])})
            >>> def log_lik(params, dataset):
            ...     return -0.5 * (dataset["x"] - params["theta"]) ** 2
            >>> samples.log_lik({"x": np.array([1.0, 2.0])}, log_lik=log_lik)
            array([[[-0. , -0.5],
                    [-0.5, -0. ],
                    [-2. , -0.5]]])
        """
        path = evaluation.read_path(store)
        terms = Terms(self, dataset, log_lik, by)
        return evaluation.log_lik_terms(terms, path, executor)

    def loo(
        self,
        dataset: Mapping[str, Any] | None = None,
        *,
        rows: int = 400,
        log_lik: LogLik | None = None,
        by: str | None = None,
        seed: int = 0,
        executor: Any = None,
    ) -> Loo:
        """Return leave-one-out cross-validation from some rows, with its standard error.

        The log density of all rows at the posterior mean, one pass over the data, plus N times the
        mean difference of leave-one-out density and that on ``rows`` rows drawn at random: an
        unbiased estimate of the sum over all rows. The leave-one-out density of a row is that of
        Pareto-smoothed importance sampling over the draws, of which there are at most 2²⁴ / rows.
        In a model with ``groups`` effects are integrated out, so that the weights are those of the
        global parameters alone. Draws that have ``weights`` are resampled by them.

        Args:
            dataset: Dict of arrays; ``None`` uses the chain's own.
            rows: Number of rows for which all draws are used; with all rows nothing is estimated.
            log_lik: Log-likelihood; ``None`` uses the chain's own, as in :meth:`log_lik`.
            by: Name of a factor of ``groups``, to leave out whole groups, which ``rows`` counts
                then; ``None`` for rows.
            seed: Seed of the choice of rows, an integer.
            executor: ``concurrent.futures.Executor`` whose workers make the pass over all rows, or
                a function without arguments that makes one; ``None`` stays in this process.

        Returns:
            ``elpd``, ``se``, ``subsampling_se``, ``p_loo``, ``pareto_k`` and ``rows``. A row whose
            Pareto k is above 0.7 is too influential for the estimate.

        Raises:
            ValueError, TypeError: ``dataset`` or ``log_lik`` is needed, since the draws come from
                a file; the log-likelihood is not a sum over rows.

        Example:
            >>> import numpy as np, sgmcmc
            >>> rng = np.random.default_rng(1)
            >>> x = rng.normal(size=10_000)
            >>> samples = sgmcmc.Samples({"theta": rng.normal(x.mean(), 0.01, 2000)})
            >>> def log_lik(params, dataset):
            ...     return -0.5 * (dataset["x"] - params["theta"]) ** 2 - 0.5 * np.log(2 * np.pi)
            >>> found = samples.loo({"x": x}, log_lik=log_lik)
            >>> exact = (-0.5 * (x - x.mean()) ** 2 - 0.5 * np.log(2 * np.pi)).sum() - 1
            >>> bool(abs(found.elpd - exact) < 1), bool(found.subsampling_se < 1)
            (True, True)

        Source:
            Vehtari, Gelman & Gabry, Statistics and Computing 27, 2017; Magnusson, Andersen,
            Jonasson & Vehtari, ICML 2019, for the difference estimator
            Σ_i π̃_i + (N/m) Σ_{j in S} (π_j − π̃_j); Merkle, Furr & Rabe-Hesketh, Psychometrika 84,
            2019, for effects that are integrated out.
        """
        need_posterior(self.settings)
        return loo(Terms(self, dataset, log_lik, by), rows, seed, executor)

    def effects(
        self, by: str, groups: Any = None, *, seed: int = 0
    ) -> dict[str, np.ndarray]:
        """Return draws of the effects of groups, each given the global draw at the same place.

        A draw z_g ~ p(z_g | y_g, θ) ∝ p(z_g | θ) ∏_{i in g} p(y_i | θ, z_g) for each kept draw of θ
        is the end of 8 moves of an independence sampler around the group's mode.

        Args:
            by: Entry of the dataset that names the groups, as in :class:`sgmcmc.Groups`.
            groups: Labels of some groups, in the order wanted; ``None`` for all, sorted.
            seed: Seed of the random numbers, an integer.

        Returns:
            A dict: an array of shape ``(chains, draws, groups, *shape)`` for each effect.

        Raises:
            ValueError: The model has no such groups, or the draws come from a file, which holds no
                model.

        Example:
            >>> import numpy as np, sgmcmc, tensorflow as tf
            >>> site = np.repeat(np.arange(20), 5)
            >>> y = np.random.default_rng(1).normal(site / 10, 1.0)
            >>> def log_lik(params, dataset):
            ...     return -0.5 * (dataset["y"] - params["mu"] - params["z"]) ** 2
            >>> def log_density(effects, params):
            ...     return -0.5 * effects["z"] ** 2
            >>> samples = sgmcmc.sgld(
            ...     log_lik, {"y": y, "site": site}, {"mu": 0.0}, 0.01, n_iters=100,
            ...     minibatch_size=10, verbose=False, seed=1,
            ...     groups=sgmcmc.Groups("site", effects={"z": 0.0}, log_prior=log_density))
            >>> samples[::10].effects("site", [0, 19])["z"].shape[2:]
            (2,)
        """
        if self._origin is None:
            raise ValueError(
                "`samples` is not in the process of the chain that made it, and files do not hold "
                "the model: effects cannot be drawn."
            )
        seed = checks.whole_number("seed", seed, 0)
        return self._origin.effects(evaluation.arrays_of(self), by, groups, seed)

    def rows_of(self, dataset: Mapping[str, Any] | None) -> int:
        """Return the number of rows of a dataset, or of the chain's own."""
        return Terms(self, dataset).size

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
        go_on = need_chains(self).go_on
        assert go_on is not None
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
            >>> x = np.random.default_rng(1).normal(3.0, 1.0, 600)
            >>> def log_lik(params, dataset):
            ...     return -0.5 * (dataset["x"] - params["theta"]) ** 2
            >>> samples = sgmcmc.sample(
            ...     log_lik, {"x": x[:500]}, {"theta": 0.0}, seed=1, verbose=False)
            >>> samples = samples.update({"x": x[500:]}, verbose=False)
            >>> samples.settings["N"], bool(abs(samples["theta"].mean() - x.mean()) < 0.01)
            (600, True)
        """
        update = need_chains(self).update
        if update is None:
            raise ValueError(
                "`samples` was made with constants that you chose: make that call again on all "
                "rows, with `params` where these chains ended."
            )
        if seed is not None:
            seed = checks.whole_number("seed", seed, 0)
        return update(self, rows, seed, checks.flag("verbose", verbose))

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
        return measure_error(self, tolerance, seed, verbose)

    def robust(self) -> Samples:
        """Return draws whose covariance holds if the model is wrong: that of the sandwich.

        With J the information at the mode (prior included), s_i the gradient of the log-likelihood
        of observation i there, and K = Σ s_i s_iᵀ − N s̄ s̄ᵀ, these draws have about the covariance
        J⁻¹ K J⁻¹, which is that of the mode over repeated data, whatever they are drawn from; if
        the model holds, J⁻¹ itself. In unconstrained coordinates, with J⁻¹ = CCᵀ,
        u' = ū + C(CᵀKC)^½C⁻¹(u − ū): the least move that does so. With groups of one factor,
        whose effects are integrated out, observations are whole groups, which may then depend in
        any way within.

        Returns:
            Moved draws. They are for intervals and SDs of parameters and of functions of them;
            other results, such as :meth:`sgmcmc.Samples.loo`, need the original draws.

        Raises:
            ValueError: There is no mode, more than 2000 coordinates, effects of several factors
                (no observations are independent), or the draws are no longer linked to their
                sampler.

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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file, in NumPy's npz format.

        The file appears under its name only once it is complete; one that was there is replaced.

        Args:
            path: File to write; the name is used as it is.

        Raises:
            OSError: The file cannot be written; an existing file is unchanged.

        Example:
            >>> import os, tempfile, numpy as np
            >>> from sgmcmc import Samples
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
        conversions.write_archive(
            Path(path), groups, self.log_post, self.settings, self._report
        )

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
        return cls(**conversions.read_archive(path))

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

    def export(
        self,
        folder: str | os.PathLike[str],
        f: OfRows,
        dataset: Mapping[str, Any] | None = None,
        *,
        draws: int = 1000,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    ) -> Path:
        """Write a SavedModel that predicts with ``f`` over the draws, for TensorFlow alone.

        Loading it needs neither this package nor the code of ``f``:
        ``tf.saved_model.load(folder).signatures["mean"](x=...)["mean"]``. Its signatures ``mean``,
        ``quantiles`` and ``draws`` give what :meth:`predict` gives for the same draws; their inputs
        are the entries of ``dataset``, with any number of rows. Of a column of categories these are
        the levels themselves, integers (int64) or else text, which the loaded model lists in
        ``levels``; a level that the model has not seen is an error. A call holds draws × rows
        values, so pass thousands of rows at a time, not millions. If draws have
        ``weights``, means and quantiles use them, and ``draws`` gives them too, as ``weights``;
        draws of weight zero are left out.

        Args:
            folder: Path of the folder; it must not exist, or be empty. It appears only once it is
                complete.
            f: Function of ``params`` and ``dataset``, as of :meth:`predict`. It is compiled for an
                unknown number of rows.
            dataset: Some rows, of which only names, shapes and dtypes are used; only the entries
                that ``f`` needs. ``None`` uses those of the chain's own that ``f`` reads.
            draws: Largest number of draws, of all chains together, evenly spaced.
            quantiles: Probabilities of the signature ``quantiles``, each between 0 and 1.

        Returns:
            The folder.

        Raises:
            ValueError, TypeError: ``f`` does not return an entry for each row; the folder is there;
                the model has groups, whose effects a SavedModel does not have.
            OSError: The folder cannot be written.

        Example:
            >>> import numpy as np, sgmcmc, tempfile, tensorflow as tf
            >>> samples = sgmcmc.Samples({"theta": np.array([1.0, 2.0, 3.0])})
            >>> data = {"x": np.array([1.0, 10.0])}
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = samples.export(folder, lambda p, d: p["theta"] * d["x"], data)
            ...     served = tf.saved_model.load(str(path)).signatures["mean"]
            ...     served(x=tf.constant([5.0], tf.float64))["mean"].numpy()
            array([10.])
        """
        checks.function("f", f, "of `params` and `dataset`")
        evaluation.check_probabilities(quantiles)
        served = serving.Served.of(self, f, draws, quantiles)
        return serving.write_saved_model(folder, served, self, dataset)

    def to_dataframe(self) -> Any:
        """Return the draws as a pandas data frame, a row for each, a column for each component.

        Returns:
            A ``pandas.DataFrame``, with columns such as ``theta`` and ``beta[0, 1]``, indexed by
            ``chain`` and ``draw``.

        Example:
            >>> import numpy as np, sgmcmc
            >>> sgmcmc.Samples({"theta": np.array([[0.0, 1.0], [2.0, 3.0]])}).to_dataframe()
                        theta[0]  theta[1]
            chain draw
            0     0          0.0       1.0
                  1          2.0       3.0
        """
        return conversions.to_dataframe(self)

    def to_arviz(
        self,
        *,
        dims: Mapping[str, Sequence[str]] | None = None,
        coords: Mapping[str, Sequence[Any]] | None = None,
        observed_data: Mapping[str, Any] | None = None,
        log_likelihood: Mapping[str, Any] | np.ndarray | bool | None = None,
        log_likelihood_draws: int | None = None,
        effects: str | Sequence[str] | Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the draws as an ArviZ ``InferenceData``.

        Its group ``posterior`` has the draws with dimensions ``chain`` and ``draw`` in front;
        ``sample_stats`` the log posterior estimates ``lp``, which are fewer than the draws and
        have the dimension ``lp_iteration``, and the ``weight`` of each draw if there are weights:
        ArviZ's own statistics do not use them; ``test_functions`` the test functions.

        Args:
            dims: Names of the further dimensions, by parameter.
            coords: Labels along dimensions, by dimension.
            observed_data: Arrays for the group ``observed_data``; the dataset is not kept with the
                draws.
            log_likelihood: Source of the group ``log_likelihood``: the dataset whose terms of the
                log-likelihood, as of :meth:`log_lik`, it should hold; ``True`` uses the chain's own
                data; or an array of such terms. Then ``az.loo``, ``az.waic`` and ``az.compare``
                work.
            log_likelihood_draws: Number of draws for that group, of all chains together, evenly
                spaced; all groups hold only these, since ArviZ expects the same draws in all.
                ``None`` uses all of them, or, with a warning, as many as make 256 MB; ArviZ needs
                several times that.
            effects: Factors of ``groups`` whose effects, drawn as by :meth:`effects`, are in the
                group ``posterior`` too, with the factor's name as a dimension and its labels as
                coordinates: a name, several, or a dict with the labels of some groups.

        Returns:
            An ``arviz.InferenceData``, which can be written to NetCDF.

        Example:
            >>> import numpy as np, sgmcmc
            >>> samples = sgmcmc.Samples({"beta": np.zeros((100, 2))})
            >>> data = samples.to_arviz(
            ...     dims={"beta": ["feature"]}, coords={"feature": ["age", "height"]})
            >>> dict(data.posterior.sizes)
            {'chain': 1, 'draw': 100, 'feature': 2}

        Source:
            The InferenceData schema, ArviZ documentation.
        """
        contents = conversions.Contents(
            dims, coords, observed_data, log_likelihood, log_likelihood_draws, effects
        )
        return conversions.to_inference_data(self, contents)

    def to_zarr(
        self,
        path: str | os.PathLike[str],
        *,
        dims: Mapping[str, Sequence[str]] | None = None,
        coords: Mapping[str, Sequence[Any]] | None = None,
    ) -> Path:
        """Write the draws as a Zarr store, which ``xarray.open_zarr`` opens without reading it all.

        Draws of a ``store`` that do not fit in memory are copied chunk by chunk. It needs zarr.

        Args:
            path: Path of the folder; it must not exist, or be empty. It appears only once it is
                complete.
            dims: Names of the further dimensions, by parameter.
            coords: Labels along dimensions, by dimension.

        Returns:
            The folder.

        Raises:
            ValueError: There are no draws; the folder is there.
            ImportError: zarr is not installed.
            OSError: The folder cannot be written.

        Example:
            ``xarray.open_zarr(samples.to_zarr("draws.zarr"))["beta"].mean(("chain", "draw"))``
        """
        return conversions.write_zarr(self, path, dims, coords)
