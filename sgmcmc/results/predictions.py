"""Predictions from draws, and the terms of the log-likelihood."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.data.dataset import Data, Tensors
from sgmcmc.data.levels import Levels, read_categories
from sgmcmc.data.reading import read_dataset
from sgmcmc.data.tables import by_column
from sgmcmc.data.travel import read_machines
from sgmcmc.graphs.user_functions import need_sum
from sgmcmc.model.target import LogLik, terms, untempered
from sgmcmc.results.arrays import Arrays, by_chain
from sgmcmc.results.evaluation import (
    Evaluation,
    OfRows,
    Span,
    all_values,
    read_path,
    reduced,
)
from sgmcmc.results.loo import Loo, chosen_rows, leave_one_out
from sgmcmc.results.origin import Origin

_LOO_NUMBERS = 2**24  # largest number of terms held for leave-one-out cross-validation


class Predictions(Arrays):
    """Draws of parameters, at which functions of parameters and data can be evaluated.

    Args:
        draws: Draws, by parameter.
        settings: Settings of the run.
    """

    def __init__(
        self, draws: Mapping[str, np.ndarray], settings: Mapping[str, Any]
    ) -> None:
        super().__init__(draws)
        self.settings = dict(settings)
        self._origin: Origin | None = None

    @property
    def levels(self) -> dict[str, list[Any]]:
        """The levels of each column of categories, in the order of their numbers in the model.

        Rows that are new to the model are numbered by these, whatever container they come in. Of a
        factor of ``groups`` they are the labels of its groups, in the order of their effects; there
        are none of a factor with more than 100 000.
        """
        labels = self.settings.get("labels", {}).items()
        group_levels = {
            by: Levels.from_json(stored)
            for by, stored in labels
            if isinstance(stored, Mapping)
        }
        return {
            name: list(stored.values)
            for name, stored in {**self._levels, **group_levels}.items()
        }

    @property
    def _levels(self) -> dict[str, Levels]:
        stored = self.settings.get("levels", {})
        return {name: Levels.from_json(facts) for name, facts in stored.items()}

    @property
    def weights(self) -> np.ndarray | None:
        """Weights of the draws of each chain; ``None`` if all are alike."""
        return None

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
        if reduce not in ("mean", "quantiles", None):
            raise ValueError(
                f"`reduce` must be 'mean', 'quantiles' or None; it is {reduce!r}."
            )
        path = read_path(store)
        if reduce is not None and path is not None:
            raise ValueError(
                "`store`: reduced values stay in memory. Write reduce=None with it."
            )
        for q in quantiles if reduce == "quantiles" else ():
            if not (checks.is_number(q) and 0 <= q <= 1):
                raise ValueError(
                    f"`quantiles` must be between 0 and 1; there is {q!r}."
                )
        draws = self._by_chain()
        if self._origin is not None:
            f, draws, dataset = self._origin.rows(f, draws, dataset)
        with read_machines(executor) as machines:
            evaluation = self._evaluation(
                "f", f, self._data(dataset).on(machines), draws
            )
            if reduce is None:
                return all_values(evaluation, path)
            evaluation.weights = self.weights
            return reduced(
                evaluation, list(quantiles) if reduce == "quantiles" else None
            )

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
        path, units = read_path(store), self._units(dataset, log_lik, by)
        if units is not None:
            if path is not None:
                raise ValueError(
                    "`store`: terms of a model with `groups` stay in memory. Thin the draws first."
                )
            with read_machines(executor) as machines:
                packs, draws = self._data(None).on(machines), self._by_chain()
                evaluation = self._evaluation("log_lik", units.function, packs, draws)
                return all_values(evaluation, None)[:, :, units.pack, units.place]
        function, data = self._log_lik(log_lik), self._data(dataset)
        of_rows = _terms_of(function)
        with read_machines(executor) as machines:
            evaluation = self._evaluation(
                "log_lik", of_rows, data.on(machines), self._by_chain()
            )
            _need_sum(function, by_chain(self.settings, self), evaluation)
            return all_values(evaluation, path)

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
        temperature = self.settings.get("temperature", 1.0)
        if temperature != 1.0:
            raise ValueError(
                f"`samples` was drawn with temperature={temperature:g}: importance weights of rows "
                "left out are for draws of the posterior, temperature=1."
            )
        units = self._units(dataset, log_lik, by)
        data = self._data(dataset)
        function = units.function if units is not None else self._log_lik(log_lik)
        size, seed = (
            checks.whole_number("rows", rows, 2),
            checks.whole_number("seed", seed, 0),
        )
        N = data.size if units is None else len(units.pack)
        draws, of_rows = (
            self._by_chain(),
            function if units is not None else _terms_of(function),
        )
        chains, count = next(iter(draws.values())).shape[:2]
        if self.weights is not None:
            # Systematic resampling: draws that all count once.
            cumulative = np.cumsum(self.weights) / self.weights.sum()
            resampled = np.searchsorted(cumulative, (np.arange(count) + 0.5) / count)
            draws = {name: array[:, resampled] for name, array in draws.items()}
        step = -(-chains * count * min(size, N) // _LOO_NUMBERS)
        draws = {name: array[:, ::step] for name, array in draws.items()}
        evaluation = self._evaluation("log_lik", of_rows, data, draws)
        if units is None:
            _need_sum(function, draws, evaluation)
        chosen = chosen_rows(N, size, seed)

        def mean_log_density() -> np.ndarray:
            with read_machines(executor) as machines:
                distributed = data.on(machines)
                for point in (
                    _mean(draws),
                    {name: array[-1:, -1:] for name, array in draws.items()},
                ):
                    log_density = reduced(
                        self._evaluation("log_lik", of_rows, distributed, point)
                    )
                    if units is not None:
                        log_density = log_density[units.pack, units.place]
                    if np.isfinite(log_density).all():
                        break
            return log_density

        if units is None:
            return leave_one_out(
                evaluation.at(data.rows(chosen)), chosen, N, mean_log_density
            )
        packs, index = np.unique(units.pack[chosen], return_inverse=True)
        terms = evaluation.at(data.rows(packs))[
            :, index.reshape(-1), units.place[chosen]
        ]
        return leave_one_out(terms, chosen, N, mean_log_density)

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
            >>> samples = sgmcmc.sample(
            ...     log_lik, {"y": y, "site": site}, {"mu": 0.0}, verbose=False, seed=1,
            ...     groups=sgmcmc.Groups("site", effects={"z": 0.0}, log_prior=log_density))
            >>> samples[::100].effects("site", [0, 19])["z"].shape[2:]
            (2,)
        """
        if self._origin is None:
            raise ValueError(
                "`samples` is not in the process of the chain that made it, and files do not hold "
                "the model: effects cannot be drawn."
            )
        seed = checks.whole_number("seed", seed, 0)
        return self._origin.effects(self._by_chain(), by, groups, seed)

    def _units(self, dataset: Any, log_lik: Any, by: str | None) -> Any:
        """Return the terms of rows or groups of a model whose observations are groups, if so."""
        is_own = self._origin is not None and dataset is None and log_lik is None
        if by is not None and not is_own:
            raise ValueError(
                "`by`: groups are left out of the chain's own data, in the process of the chain "
                "that made the draws."
            )
        if not is_own:
            return None
        assert self._origin is not None
        return self._origin.units(by)

    def _by_chain(self) -> dict[str, np.ndarray]:
        """Return the draws, (chains, draws, *shape), of which there are some."""
        if not len(self):
            raise ValueError("`samples` holds no draws of parameters.")
        draws = by_chain(self.settings, self)
        if not next(iter(draws.values())).shape[1]:
            raise ValueError("`samples` holds no draws.")
        return draws

    def _evaluation(
        self, label: str, function: OfRows, data: Data, draws: Mapping[str, np.ndarray]
    ) -> Evaluation:
        return Evaluation(label, function, draws, data, self._dtype)

    @property
    def _dtype(self) -> tf.DType:
        if "dtype" in self.settings:
            return tf.as_dtype(self.settings["dtype"])
        dtype = np.result_type(*self.values()) if len(self) else np.dtype(np.float32)
        return tf.as_dtype(dtype if dtype == np.float32 else np.float64)

    def rows_of(self, dataset: Mapping[str, Any] | None) -> int:
        """Return the number of rows of a dataset, or of the chain's own."""
        units = self._units(dataset, None, None)
        return self._data(dataset).size if units is None else len(units.pack)

    def _data(self, dataset: Mapping[str, Any] | None) -> Data:
        if dataset is not None:
            integers = [*self.settings.get("integers", ()), *self._indices_in(dataset)]
            return read_dataset(dataset, self._dtype, integers, levels=self._levels)
        if self._origin is None:
            raise ValueError(
                "`dataset` must be given: these draws are not in the process of the chain that "
                "made them, and do not hold its data."
            )
        return self._origin.data

    def _indices_in(self, dataset: Any) -> list[str]:
        """Return the columns that hold categories, where the model has integers."""
        columns = by_column(dataset) or {}
        names = [name for name in self.settings.get("indices", ()) if name in columns]
        return [name for name in names if read_categories(columns[name]) is not None]

    def _log_lik(self, log_lik: LogLik | None) -> LogLik:
        if log_lik is not None:
            checks.function("log_lik", log_lik, "of `params` and `dataset`")
            return log_lik
        if self._origin is None:
            raise ValueError(
                "`log_lik` must be given: these draws are not in the process of the chain that "
                "made them, and files do not hold functions."
            )
        if self.settings.get("gibbs"):
            raise ValueError(
                "`log_lik` must be given: that of the chain is one of data which `gibbs` has "
                "completed. Write one of `params` and `dataset` alone."
            )
        target = self._origin.target
        for name in target.space.layout.names:
            if name not in self:
                raise ValueError(
                    f"`samples` lacks the draws of {name!r}, which `log_lik` may need. Run the "
                    "sampler with `store_params=True`."
                )
        return untempered(target.log_lik)


def _terms_of(function: LogLik) -> OfRows:
    def of_rows(params: Tensors, columns: Tensors) -> tf.Tensor:
        values = terms(function, params, columns)
        if values.shape.rank != 1:
            raise ValueError(
                f"it must return one number for each row, not {values.shape}"
            )
        return values

    return of_rows


def _mean(draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the posterior mean, as the one draw of one chain."""
    return {
        name: array.mean(axis=(0, 1), keepdims=True, dtype=np.float64).astype(
            array.dtype
        )
        for name, array in draws.items()
    }


def _need_sum(
    function: LogLik, draws: Mapping[str, np.ndarray], evaluation: Evaluation
) -> None:
    """Raise an error if a log-likelihood is not the sum of its values at single rows."""
    rows = Span(0, min(evaluation.rows, 11), 0)
    columns = evaluation.columns(rows)
    params = {
        name: tf.constant(np.asarray(array[0, 0])) for name, array in draws.items()
    }
    together = float(np.sum(function(params, dict(columns)), dtype=np.float64))
    alone = evaluation.block(0, Span(0, 1, 0), columns)[0].astype(np.float64)
    need_sum(together, alone)
