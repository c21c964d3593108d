"""The result of a regression: summary, effects, predictions and comparisons."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc import checks, libraries
from sgmcmc.after.panels import predictive_panel
from sgmcmc.regression import marginal_effects, saved
from sgmcmc.regression.formula import INTERCEPT, cut_names
from sgmcmc.regression.marginal_effects import Predictor, Question
from sgmcmc.regression.model import Effects, RegressionModel
from sgmcmc.regression.priors import described_priors, determined_by_priors
from sgmcmc.regression.response import trials_of
from sgmcmc.regression.sampling import (
    content_of_rows,
    need_known_levels,
    sampled,
    stacked,
)
from sgmcmc.results.arrays import by_chain, coordinate_names
from sgmcmc.results.loo import Loo, chosen_rows, leave_one_out
from sgmcmc.results.report import Report
from sgmcmc.results.samples import Samples

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class _Settings:
    max_shown: int = 60  # fixed terms that are printed
    max_rows: int = 2000  # whose predictive draws are plotted
    max_draws: int = 100  # that are plotted
    # Rows whose leave-one-out density is computed; it is extrapolated to others.
    loo_rows: int = 1000


_SETTINGS = _Settings()

_OF_ONE_CALL = {"start", "store"}  # keywords that an update does not repeat


class Regression:
    """The posterior of a regression, as :func:`sgmcmc.glm` returns it.

    Args:
        model: Model.
        samples: Draws.
        frame: Data, without rows that were dropped.
        dropped: Number of rows with missing values that were dropped.
        weights: Weight of each row's log-likelihood; ``None`` for 1.
        weights_column: Name of their column, if they are one.
        keywords: Keywords of the call of :func:`sgmcmc.glm`.

    Attributes:
        samples: Draws of the chain: coefficients ``b`` of centered and scaled columns, in SDs of a
            gaussian or student response and counted from a reference, and all other parameters.
        formula, family, link: Names, as text.
        dropped: Number of rows that were dropped.

    Example:
        >>> import numpy as np, sgmcmc
        >>> rng = np.random.default_rng(1)
        >>> x = rng.normal(size=300)
        >>> y = rng.poisson(np.exp(0.5 * x))
        >>> fit = sgmcmc.glm("y ~ x", {"x": x, "y": y}, "poisson", seed=1, verbose=False)
        >>> fit.predict({"x": [0.0]}).round(0)
        array([1.])
    """

    def __init__(
        self,
        model: RegressionModel,
        samples: Samples,
        frame: pd.DataFrame,
        dropped: int,
        weights: np.ndarray | None = None,
        weights_column: str | None = None,
        keywords: Mapping[str, Any] | None = None,
    ) -> None:
        self._model, self._frame = model, frame
        self._weights, self._weights_column = weights, weights_column
        self._keywords = {
            name: value
            for name, value in (keywords or {}).items()
            if name not in _OF_ONE_CALL
        }
        self._predictor = Predictor(model, samples, frame, weights, weights_column)
        self.samples, self.dropped = samples, dropped
        self.formula, self.family = model.formula.text, model.family.name
        self.link = model.family.link

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write draws, model and the columns of the data that it uses to a folder.

        Args:
            folder: New path, or that of a regression that was saved before, which is replaced.

        Raises:
            ValueError: The folder holds other things, or a prior is a distribution.
            OSError: It cannot be written.
        """
        saved.write(Path(folder), self.samples, self._content(only_used=True))

    def _content(self, only_used: bool) -> saved.Content:
        model, frame = self._model, self._frame
        if only_used:
            frame = frame[saved.used_columns(model, frame, self._weights_column)]
        return saved.Content(
            formula=self.formula,
            family=self.family,
            link=self.link,
            priors=model.priors,
            frame=frame,
            weights=self._weights,
            weights_column=self._weights_column,
            dropped=self.dropped,
            keywords=self._keywords,
        )

    def __getstate__(self) -> dict[str, Any]:
        # Families have functions, and samplers graphs: both are made again.
        content = self._content(only_used=False)
        content = replace(content, keywords=saved.plain_keywords(content.keywords))
        return {"samples": self.samples, "content": content}

    def __setstate__(self, state: dict[str, Any]) -> None:
        content: saved.Content = state["content"]
        made = self._made_again(state["samples"], content)
        self.__dict__.update(made.__dict__)

    @classmethod
    def _sampled(cls, content: saved.Content) -> Regression:
        """Return a regression whose draws are made for it; :func:`sgmcmc.glm` calls this."""
        return cls._of(*sampled(content), content)

    @classmethod
    def _of(
        cls, model: RegressionModel, samples: Samples, content: saved.Content
    ) -> Regression:
        return cls(
            model,
            samples,
            content.frame,
            content.dropped,
            content.weights,
            content.weights_column,
            content.keywords,
        )

    def update(
        self,
        rows: Any,
        weights: Any = None,
        seed: int | None = None,
        verbose: bool = True,
    ) -> Regression:
        """Return the regression of all rows, the old ones and new ones.

        It is that of the same call of :func:`sgmcmc.glm` on all of them. A chain begins at the
        mode of the old rows, with the information there, and takes a few passes over the data.

        Args:
            rows: New rows, in any container that ``data`` may be, with the columns of the formula.
                Groups may be new; levels of fixed factors may not.
            weights: Weight of each new row, or the name of a column; by default the column that
                the call named, else 1.
            seed: Integer, the seed of the new draws; ``None`` for that of the draws plus one.
            verbose: Whether to show progress.

        Returns:
            A new regression; the present one is unchanged.

        Raises:
            ValueError, TypeError: Rows or weights are invalid; the message names the column.

        Example:
            >>> import numpy as np, sgmcmc
            >>> x = np.random.default_rng(1).normal(size=500)
            >>> y = 1.0 + 2.0 * x + np.random.default_rng(2).normal(size=500)
            >>> old, new = ({"x": x[k], "y": y[k]} for k in (slice(400), slice(400, None)))
            >>> fit = sgmcmc.glm("y ~ x", old, seed=1, verbose=False)
            >>> fit.update(new, verbose=False).summary()["estimate"].round(0).to_dict()
            {'Intercept': 1.0, 'x': 2.0, 'sigma': 1.0}
        """
        content = self._content(only_used=True)
        if seed is None:
            seed = int(self.samples.settings["seed"]) + 1
        keywords = {**content.keywords, "seed": seed, "verbose": verbose}
        if not self.samples.settings.get("reduce"):
            keywords["start"] = self.samples
        with checks.named("data", "rows"):
            added = content_of_rows(content, rows, weights)
            need_known_levels(self._model, added.frame)
        both = stacked([content, added], self._model.coded_columns)
        return self._sampled(replace(both, keywords=keywords))

    @classmethod
    def _made_again(cls, samples: Samples, content: saved.Content) -> Regression:
        return cls._of(*saved.made_again(samples, content), content)

    def __copy__(self) -> Regression:
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        return copy

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Regression:
        """Read what :meth:`save` wrote. Nothing in the files is ever executed.

        Args:
            folder: Folder.

        Raises:
            ValueError: It holds no regression, or one of another version.
        """
        return cls._made_again(*saved.read_folder(Path(folder)))

    @property
    def report(self) -> Report | None:
        """The report on the draws, as of :func:`sgmcmc.sample`, with the formula's terms."""
        report = self.samples.report
        return None if report is None else report.renamed(self._labels)

    @property
    def _labels(self) -> dict[str, str]:
        """The formula's terms by the names of the chain's coordinates."""
        model = self._model
        labels = {}
        if model.terms:
            names = coordinate_names("b", (*model.predictors, len(model.terms)))
            labels = dict(zip(names, model.fixed_names, strict=True))
        for effects in model.effects:
            names = coordinate_names(effects.sds_name, (len(effects.terms),))
            labels |= dict(zip(names, effects.rows, strict=False))
        return labels

    @cached_property
    def _draws(self) -> dict[str, np.ndarray]:
        """Draws on the user's scale by term, (chains, draws)."""
        return self._by_term(self.samples)

    @cached_property
    def _robust(self) -> dict[str, np.ndarray]:
        """Draws with the covariance of the sandwich, by term."""
        return self._by_term(self.samples.robust())

    def _by_term(self, samples: Samples) -> dict[str, np.ndarray]:
        draws, model = by_chain(samples.settings, samples), self._model
        by_term: dict[str, np.ndarray] = {}
        if model.terms:
            of_terms = model.coefficients(draws["b"].astype(np.float64))
            for index, name in enumerate(self._model.fixed_names):
                by_term[name] = of_terms.reshape(*of_terms.shape[:2], -1)[..., index]
        for effects in model.effects:
            by_term |= self._of_groups(effects, draws)
        for parameter in model.family.aux:
            values = draws[parameter.name]
            if parameter.support != "ordered":
                by_term[parameter.name] = values.astype(np.float64) + parameter.shift
                continue
            cuts = model.cutpoints(values, draws.get("b"))
            for index, name in enumerate(cut_names(model.outcomes)):
                by_term[name] = cuts[..., index]
        return by_term

    @property
    def warnings(self) -> list[str]:
        """Warnings of the report, and of terms that their priors determine, with the reason."""
        report, groups = self.report, self._groups
        messages = [] if report is None else list(report.warnings)
        if groups is not None and self._weights is None:
            levels = {name: len(labels) for name, labels in groups.labels.items()}
            messages += single_rows_warnings(self._model, levels, len(self._frame))
        messages += aliased_terms_warning(self._model)
        draws = by_chain(self.samples.settings, self.samples)
        return messages + determined_by_priors(self._model, draws)

    @property
    def _groups(self) -> Any:
        """The groups of the sampler that made the draws; ``None`` if there are none."""
        origin = self.samples.origin
        return None if origin is None else origin.groups

    def _of_groups(self, effects: Effects, draws: Any) -> dict[str, np.ndarray]:
        sds = np.asarray(draws[effects.sds_name], np.float64)
        partial = draws.get(effects.correlations_name)
        if partial is not None:
            partial = np.asarray(partial, np.float64)
        root = effects.uncentered(effects.root(sds, partial))
        raw_sds = [np.sqrt(sum(entry**2 for entry in row)) for row in root]
        correlations = []
        for i, j in effects.pairs:
            covariance = sum(a * b for a, b in zip(root[i], root[j], strict=True))
            correlations.append(covariance / (raw_sds[i] * raw_sds[j]))
        return dict(zip(effects.rows, raw_sds + correlations, strict=True))

    def summary(self, prob: float = 0.95, robust: bool = False) -> pd.DataFrame:
        """Return a frame with a row for each term and each SD of groups.

        Args:
            prob: Probability of the central interval.
            robust: Whether to add a column ``robust`` after ``error``: standard deviations that
                hold if the model is wrong, by the sandwich of :meth:`sgmcmc.Samples.robust`. With
                effects of one factor it is clustered: groups are the observations. The interval
                is then that of the moved draws.

        Returns:
            Columns ``estimate`` (posterior mean), ``error`` (posterior standard deviation),
            ``lower`` and ``upper`` (ends of the interval), ``ess_bulk`` and ``r_hat``.
        """
        import pandas as pd

        if not (checks.is_number(prob) and 0 < prob < 1):
            raise ValueError(f"`prob` must be between 0 and 1; it is {prob!r}.")
        ends = [(1 - prob) / 2, (1 + prob) / 2]
        arviz = libraries.arviz()
        rows = {}
        for term, draws in self._draws.items():
            interval_draws = self._robust[term] if robust else draws
            lower, upper = np.quantile(interval_draws, ends)
            array = np.asarray(draws)
            several_chains = len(array) > 1
            rows[term] = {
                "estimate": draws.mean(),
                "error": draws.std(),
                **({"robust": interval_draws.std()} if robust else {}),
                "lower": lower,
                "upper": upper,
                "ess_bulk": float(arviz.ess(array, method="bulk")),
                "r_hat": float(arviz.rhat(array)) if several_chains else float("nan"),
            }
        return pd.DataFrame.from_dict(rows, orient="index")

    @property
    def fixed(self) -> pd.DataFrame:
        """The rows of the summary of fixed terms."""
        return self.summary().loc[self._model.fixed_names]

    @property
    def group_sds(self) -> pd.DataFrame:
        """The rows of the summary of standard deviations and correlations of effects of groups."""
        names = [name for effects in self._model.effects for name in effects.rows]
        return self.summary().loc[names]

    @property
    def priors(self) -> dict[str, str]:
        """The prior of each term, in words."""
        return described_priors(self._model)

    def effects(self, by: str | None = None, prob: float = 0.95) -> pd.DataFrame:
        """Return a frame with a row for each group and effect.

        Args:
            by: Factor; ``None`` if there is one.
            prob: Probability of the central interval.

        Raises:
            ValueError: The formula has no such factor.
        """
        import pandas as pd

        factors = [effects.by for effects in self._model.effects]
        if by is None and len(factors) == 1:
            by = factors[0]
        if by not in factors and f"`{by}`" in factors:
            by = f"`{by}`"
        if by not in factors:
            raise ValueError(
                f"`by` must be a factor of the formula's bars, {factors}; it is {by!r}."
                if factors
                else f"`formula` {self.formula!r} has no effects of groups."
            )
        effects = next(effects for effects in self._model.effects if effects.by == by)
        thinned = self._predictor.thinned.effects(effects.entry)
        draws = effects.of_columns(thinned[effects.effects_name])
        assert self._groups is not None
        names = self._groups.shown(effects.entry)
        index = pd.MultiIndex.from_product([names, effects.terms], names=[by, "term"])
        flat = draws.reshape(-1, len(names) * len(effects.terms))
        ends = np.quantile(flat, [(1 - prob) / 2, (1 + prob) / 2], axis=0)
        columns = {
            "estimate": flat.mean(0), "error": flat.std(0), "lower": ends[0], "upper": ends[1],
        }  # fmt: skip
        return pd.DataFrame(columns, index=index)

    def predict(
        self,
        data: Any = None,
        kind: str = "mean",
        *,
        quantiles: Sequence[float] = (0.025, 0.5, 0.975),
        seed: int = 0,
    ) -> np.ndarray:
        """Return predictions for rows, those of the data or new ones.

        Levels of groups that the regression has not seen get effects drawn from their distribution.

        Args:
            data: Rows; ``None`` for those of the regression.
            kind: Result: ``"mean"``, the posterior mean of the expected response (of binomial
                responses the expected proportion); ``"quantiles"`` of the expected response; or
                ``"response"``, draws of the response.
            quantiles: Probabilities of the quantiles.
            seed: Seed of the draws of responses.

        Returns:
            An array: (rows,) for means, (len(quantiles), rows), or (draws, rows) of responses, of
            at most 1000 draws. With families ``"ordinal"`` and ``"categorical"`` means and
            quantiles are of the probability of each level, in a last axis, and responses are
            levels.

        Raises:
            ValueError: A column or a level of a fixed factor is not known.
        """
        checks.choice("kind", kind, ["mean", "response", "quantiles"])
        return self._predictor.predict(data, kind, quantiles, seed)

    @property
    def fitted(self) -> np.ndarray:
        """The posterior mean of the expected response of each row."""
        return self.predict()

    @property
    def residuals(self) -> np.ndarray:
        """Response less expected response, of each row.

        Raises:
            ValueError: The response is a level, from which nothing can be subtracted.
        """
        if self._model.family.by_level:
            raise ValueError(
                f"Responses of family {self.family!r} are levels, without residuals."
            )
        y = self._predictor.response(self._frame)
        if self._model.family.has_trials:
            y = y / trials_of(self._model.formula, self._frame)
        return y - self.predict()

    def loo(self, seed: int = 0) -> Loo:
        """Return the leave-one-out cross-validation by Pareto-smoothed importance sampling.

        Of more than 1000 rows, 1000 are used; the log density of all rows at the posterior mean is
        the other half of a difference estimator. A weight is a number of repeated rows: each of
        them is left out alone.

        Args:
            seed: Seed of the choice of rows.

        References:
            Vehtari, Gelman & Gabry (2017); Magnusson, Andersen, Jonasson & Vehtari (2019).
        """
        counted = np.arange(len(self._frame))
        if self._weights is not None:
            counted = np.flatnonzero(self._weights)
        some = counted[chosen_rows(len(counted), _SETTINGS.loo_rows, seed)]
        return leave_one_out(
            self._predictor.log_density(some),
            some,
            len(self._frame),
            self._predictor.mean_log_density,
            self._weights,
        )

    def predictions(
        self,
        data: Any = None,
        by: Any = None,
        prob: float = 0.95,
        *,
        weights: Any = None,
        condition: Any = None,
    ) -> pd.DataFrame:
        """Return expected responses with intervals: for rows, averaged over them, or over a grid.

        Args:
            data: Rows, or a dict of values by column: then all combinations of these, other
                columns at their mean or most frequent value. ``None`` for all rows of the
                regression.
            by: Column, or list of columns, for each of whose values (combinations) predictions are
                averaged over all of its rows, Σ w_i E[y_i | θ] / Σ w_i for each draw of θ. Values
                are in the order of their levels.
            prob: Probability of the central interval.
            weights: Weight of each row in averages, an array or the name of a column; ``None`` for
                those of the regression: its own for its own rows, and for ``data`` the column of
                that name, if there is one.
            condition: Name of a column, several, or a dict as for ``data``: the grid of their
                values, all levels of a factor and 25 numbers of the range of a variable.

        Returns:
            The rows or the values of ``by``, with columns ``estimate``, ``error``, ``lower`` and
            ``upper``; of averages also ``rows``, the number of rows that each is over (the sum of
            their weights). If responses are levels there is a row for each level, in ``level``. A
            column of the data of one of these names is put in backticks.
        """
        about = Question(data, by, weights, condition, prob)
        return marginal_effects.predictions(self._predictor, about)

    def comparisons(
        self,
        variables: Any = None,
        data: Any = None,
        prob: float = 0.95,
        by: Any = None,
        *,
        weights: Any = None,
        condition: Any = None,
    ) -> pd.DataFrame:
        """Return average differences of the expected response when a variable changes.

        A numeric variable grows by one; a factor goes from its first level to each other one. The
        average is over all rows, Σ w_i (E[y_i | x_i', θ] − E[y_i | x_i, θ]) / Σ w_i for each draw
        of θ; groups have the same effects on both sides.

        Args:
            variables: Names of columns, or one; or a dict by column of pairs (from, to) or of
                numbers to add. ``None`` for all of the fixed terms. Columns of bars and of
                ``offset(...)`` may be named too; of a factor of groups name a pair.
            data: Rows to average over; ``None`` for all of the regression.
            prob: Probability of the central interval.
            by: Column, or list of columns, for whose values differences are averaged.
            weights: Weight of each row, as of :meth:`predictions`.
            condition: Grid of values, as of :meth:`predictions`, at each of which the difference
                is.

        Returns:
            Columns ``estimate``, ``error``, ``lower``, ``upper`` and ``rows``, the number of rows
            that each average is over (the sum of their weights).
        """
        about = Question(data, by, weights, condition, prob)
        return marginal_effects.comparisons(self._predictor, variables, about)

    def slopes(
        self,
        variables: Any = None,
        data: Any = None,
        prob: float = 0.95,
        by: Any = None,
        *,
        weights: Any = None,
        condition: Any = None,
    ) -> pd.DataFrame:
        """Return average slopes of the expected response in numeric variables.

        Args:
            variables: Names of columns, or one; ``None`` for all numeric ones of the fixed terms.
            data: Rows to average over; ``None`` for all of the regression.
            prob: Probability of the central interval.
            by: Column, or list of columns, for whose values slopes are averaged.
            weights: Weight of each row, as of :meth:`predictions`.
            condition: Grid of values, as of :meth:`predictions`, at each of which the slope is.

        Returns:
            Columns as of :meth:`comparisons`.
        """
        about = Question(data, by, weights, condition, prob)
        return marginal_effects.slopes(self._predictor, variables, about)

    def plot(self, prob: float = 0.95, kind: str = "estimates") -> Any:
        """Return Matplotlib axes.

        Args:
            prob: Probability of the central intervals of estimates.
            kind: Picture: ``"estimates"`` of all fixed terms with intervals, or ``"ppc"``, a
                posterior predictive check: the distribution of the response, and of draws of it
                for the same rows, at most 2000.
        """
        import matplotlib.pyplot as plt

        checks.choice("kind", kind, ["estimates", "ppc"])
        if kind == "ppc":
            return self._predictive_check()
        terms = self._model.terms * max(1, len(self._model.outcomes) - 1)
        names = [
            name
            for name, term in zip(self._model.fixed_names, terms, strict=False)
            if term != INTERCEPT
        ]
        table = self.summary(prob).loc[names]
        figure, axes = plt.subplots(figsize=(6, 1 + 0.35 * len(table)))
        positions = np.arange(len(table))[::-1]
        axes.hlines(positions, table["lower"], table["upper"])
        axes.plot(table["estimate"], positions, "o")
        axes.axvline(0.0, color="0.7", zorder=0)
        axes.set_yticks(positions, list(map(str, table.index)))
        axes.set_xlabel(f"coefficient, {prob:.0%} interval")
        figure.tight_layout()
        return axes

    def _predictive_check(self) -> Any:
        rows = np.arange(len(self._frame))
        if len(rows) > _SETTINGS.max_rows:
            rng = np.random.default_rng(0)
            rows = np.sort(rng.choice(rows, _SETTINGS.max_rows, replace=False))
        frame = self._frame.iloc[rows].reset_index(drop=True)
        drawn = self.predict(frame, "response")
        drawn = drawn[:: max(1, len(drawn) // _SETTINGS.max_draws)]
        levels = self._model.outcomes
        if self._model.family.by_level:
            codes = {level: code for code, level in enumerate(levels)}
            coded = [[codes[level] for level in row] for row in drawn.tolist()]
            drawn = np.array(coded)
        return predictive_panel(self._predictor.response(frame), drawn, levels)

    def __repr__(self) -> str:
        dropped = ""
        if self.dropped:
            dropped = f" ({self.dropped} with missing values dropped)"
        lines = [
            f"Family: {self.family} (link {self.link})",
            f"Formula: {self.formula}",
            f"Rows: {len(self._frame)}{dropped}",
        ]
        if self._groups is not None:
            for effects in self._model.effects:
                count = len(self._groups.labels[effects.entry])
                lines.append(f"Groups: {effects.by}, {count} levels")
        table = self.summary().round({"ess_bulk": 0, "r_hat": 3})
        max_shown = _SETTINGS.max_shown
        hidden = list(table.index[max_shown : len(self._model.fixed_names)])
        table = table.drop(index=hidden)
        lines += ["", table.to_string(float_format=lambda value: f"{value:.4g}")]
        if hidden:
            lines.append(f"{len(hidden)} more terms: see summary() and priors.")
        unnamed = set(self._model.terms[max_shown:])
        lines += ["", "Priors:"]
        lines += [
            f"  {name} ~ {prior}"
            for name, prior in self.priors.items()
            if name not in unnamed
        ]
        warnings = self.warnings
        lines += ["", "Warnings: " + ("none" if not warnings else "")]
        return "\n".join([*lines, *(f"  ! {warning}" for warning in warnings)])


def aliased_terms_warning(model: RegressionModel) -> list[str]:
    """Return a warning that names the terms of which the data say nothing."""
    if not model.aliased:
        return []
    names = ", ".join(map(repr, model.aliased))
    return [
        f"Of {names} the data say nothing that other terms do not say: "
        "each is zero in every row, or a linear combination of the terms before it. The priors "
        "alone tell them from those. Predictions are not affected."
    ]


def single_rows_warnings(
    model: RegressionModel, levels: Mapping[str, int], rows: int
) -> list[str]:
    """Return a warning for each factor whose groups have one row each, like the residuals.

    Args:
        model: Model.
        levels: Number of groups of each factor, by entry of the dataset.
        rows: Number of rows.
    """
    if not model.family.scaled:
        return []
    return [
        f"Each group of {effects.by!r} has one row: the data do not tell the SD of its intercepts "
        "from 'sigma', their priors do. Leave the group term out, or give groups of several rows."
        for effects in model.effects
        if INTERCEPT in effects.terms and levels.get(effects.entry) == rows
    ]
