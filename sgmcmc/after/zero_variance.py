"""Zero-variance control variates: draws corrected after the chain by their own gradients."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from sgmcmc.after.arguments import need_samples
from sgmcmc.after.draws import Part, Source, TestFunctions
from sgmcmc.checks import choice, flag, whole_number
from sgmcmc.results.arrays import Arrays
from sgmcmc.results.samples import Samples
from sgmcmc.target.layout import Layout


class ZeroVarianceSamples(Samples):
    """Corrected draws, as :func:`zero_variance` returns them.

    Args:
        draws: the corrected draws, by quantity.
        mean: the mean of the corrected draws of each quantity.
        coefficients: the coefficients of each quantity.
        variance_ratio: the variance of the draws over that of the corrected ones.
        settings: the settings of the chain, and the degree.

    Attributes:
        mean: the mean of the corrected draws of each quantity, in double precision.
        coefficients: the coefficients of each quantity, of shape ``(k, *shape)``, with a leading
            axis of chains (or of the two halves of a single chain) if each has its own. The k
            control variates come in the order that :func:`zero_variance` describes.
        variance_ratio: the variance of the draws over that of the corrected ones: how many times
            fewer independent draws would do.

    Example:
        >>> import numpy as np
        >>> from sgmcmc import Samples, zero_variance
        >>> theta = np.random.default_rng(1).normal(size=100)
        >>> corrected = zero_variance(Samples({"theta": theta}, gradients={"theta": -theta}))
        >>> bool(abs(corrected.mean["theta"]) < 1e-12)
        True
    """

    def __init__(
        self,
        draws: Mapping[str, np.ndarray],
        *,
        mean: Mapping[str, np.ndarray],
        coefficients: Mapping[str, np.ndarray],
        variance_ratio: Mapping[str, np.ndarray],
        settings: Mapping[str, Any],
    ) -> None:
        super().__init__(draws, settings=settings)
        self.mean = Arrays(mean)
        self.coefficients = Arrays(coefficients)
        self.variance_ratio = Arrays(variance_ratio)


def zero_variance(
    samples: Samples,
    degree: int = 1,
    test_functions: TestFunctions | None = None,
    *,
    fit: str = "pooled",
    batches: int | None = None,
    keep_draws: bool = True,
    bijectors: Mapping[str, Any] | None = None,
) -> ZeroVarianceSamples:
    """Correct draws by control variates made of their gradients, so that means vary less.

    With z = −½ ĝ(θ), and P a polynomial in θ, −½ ΔP(θ) + ∇P(θ)·z has mean zero under the
    posterior. A draw h is replaced by h̃ = h + Σ_j a_j f_j, with the f_j of all P up to ``degree``
    and a = −Var(f)⁻¹ Cov(f, h) estimated from the draws themselves:

    - degree 1: f = z_i for each coordinate i;
    - degree 2: then (θ_i − θ̄_i) z_i − ½ for each i, then (θ_i − θ̄_i) z_j + (θ_j − θ̄_j) z_i for
      each pair i < j in row order, with θ̄ the mean of the draws.

    Coordinates are those of the parameters in ``samples.gradients``, one after another. The
    gradient belongs to the space that the chain moves in: Stein's identity, which makes the f_j
    have mean zero, needs a density that vanishes at the borders, which that of a constrained
    parameter need not do.

    Args:
        samples: draws with their gradients (``store_gradients=True``), in memory, loaded, or
            opened from a store; they are passed over in pieces.
        degree: 1 or 2. Degree 2 has d(d + 3)/2 control variates and needs many times as many draws.
        test_functions: what to correct in place of the parameters: a list of names among
            ``samples.test_functions``, or a dict of functions of ``params``, evaluated here.
        fit: where the coefficients come from: ``"pooled"``, all draws together; ``"own"``, each
            chain by itself; ``"others"``, for each chain all the others, and with a single chain
            for each half the other. Coefficients fitted to the draws that they correct reduce
            the variance of those draws by more than that of the mean, and by far more where the
            chain moves slowly; with ``"others"`` the variance ratio is honest.
        batches: fit the coefficients to the means of this many batches of each chain, in place
            of its draws. This is far better where minibatches make the gradients noisy. The noise
            makes coefficients that are fitted to draws too small; within a batch it averages out,
            and the slow movements that cause the error of a mean stay. Take a few hundred batches
            in all, of many draws each, and more than there are control variates.
        keep_draws: ``False`` returns only means, coefficients and ratios.
        bijectors: for degree 2, those that the chain was run with.

    Returns:
        :class:`ZeroVarianceSamples`: the corrected draws, with ``.mean``, ``.coefficients`` and
        ``.variance_ratio``.

    Raises:
        ValueError: there are no gradients, or fewer than two draws.

    Warns:
        UserWarning: the control variates are collinear, so that some directions are left out, or
            too many for the draws, so that the coefficients are shrunk.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 100)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> chain = sgmcmc.sgld(log_lik, {"x": x}, {"theta": 3.0}, 1e-2, minibatch_size=100,
        ...                     n_iters=500, verbose=False, seed=1, store_gradients=True)
        >>> corrected = sgmcmc.zero_variance(chain)
        >>> bool(abs(corrected["theta"].mean() - x.mean()) < 1e-4)
        True

    Source:
        Baker, *Large-Scale Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster 2018,
        section 3.4, algorithm 2; Mira, Solgi & Imparato, Statistics and Computing 23, 2013;
        Papamarkou, Mira & Girolami, Bayesian Analysis 9, 2014.
    """
    need_samples(samples)
    if whole_number("degree", degree, 1) > 2:
        raise ValueError(f"`degree` must be 1 or 2; it is {degree}.")
    source = Source(samples, degree, test_functions, bijectors or {})
    flag("keep_draws", keep_draws)
    plan = _plan(source, choice("fit", fit, ("pooled", "own", "others")))
    length = 1 if batches is None else source.draws // whole_number("batches", batches, 2)
    if length == 0:
        raise ValueError(f"`batches` is {batches}, but there are only {source.draws} draws.")
    fits, complaints = [], set()
    for fitted, _ in plan:
        coefficients, complaint = _fit(source, fitted, length)
        fits.append(coefficients)
        complaints.add(complaint)
    for complaint in complaints - {""}:
        warnings.warn(complaint, stacklevel=2)
    out = np.empty((source.chains, source.draws, source.layout.size)) if keep_draws else None
    before, after = _Moments(source.layout.size), _Moments(source.layout.size)
    for (_, corrected_parts), coefficients in zip(plan, fits, strict=True):
        for chain, start, values, features in source.pieces(corrected_parts):
            corrected = values + features @ coefficients
            before.add(values)
            after.add(corrected)
            if out is not None:
                out[chain, start : start + len(values)] = corrected
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = before.variance / after.variance
    layout = source.layout
    return ZeroVarianceSamples(
        {} if out is None else layout.split(out if source.has_chains else out[0]),
        mean=layout.split(after.mean),
        coefficients=_by_quantity(layout, fits),
        variance_ratio=layout.split(ratio),
        settings={**samples.settings, "zero_variance_degree": degree},
    )


def _plan(source: Source, fit: str) -> list[tuple[list[Part], list[Part]]]:
    """Return pairs: the draws to fit coefficients to, and the draws to correct with them."""
    parts = [Part(chain, 0, source.draws) for chain in range(source.chains)]
    if fit == "pooled":
        return [(parts, parts)]
    if fit == "own":
        return [([part], [part]) for part in parts]
    if len(parts) == 1:
        middle = source.draws // 2
        parts = [Part(0, 0, middle), Part(0, middle, source.draws)]
    return [([other for other in parts if other != part], [part]) for part in parts]


def _by_quantity(layout: Layout, fits: list[np.ndarray]) -> dict[str, np.ndarray]:
    return layout.split(fits[0] if len(fits) == 1 else np.stack(fits))


class _Moments:
    """Mean and variance of rows that come in pieces."""

    def __init__(self, size: int) -> None:
        self._count = 0
        self.mean = np.zeros(size)
        self._squares = np.zeros(size)

    @property
    def variance(self) -> np.ndarray:
        """The variance of each column."""
        return self._squares / max(1, self._count - 1)

    def add(self, rows: np.ndarray) -> None:
        """Take in more rows."""
        count, mean = len(rows), rows.mean(axis=0)
        step, total = mean - self.mean, self._count + count
        self._squares += ((rows - mean) ** 2).sum(axis=0) + step**2 * self._count * count / total
        self.mean = self.mean + step * count / total
        self._count = total


def _fit(source: Source, parts: list[Part], length: int) -> tuple[np.ndarray, str]:
    """Return a = −Var(f)⁻¹ Cov(f, h), and what to warn of, if anything.

    Args:
        source: the draws.
        parts: those to fit to.
        length: draws in a batch, whose means take the place of draws.
    """
    features, values = _Moments(source.features), _Moments(source.layout.size)
    rows = 0
    for h, f in source.batch_means(parts, length):
        rows += len(h)
        features.add(f)
        values.add(h)
    # Unit variances: the scale of a gradient has nothing to do with how well it is determined.
    scale = np.sqrt(features.variance)
    scale[scale == 0] = 1.0
    gram = np.zeros((source.features, source.features))
    cross = np.zeros((source.features, source.layout.size))
    for h, f in source.batch_means(parts, length):
        centred = (f - features.mean) / scale
        gram += centred.T @ centred
        cross += centred.T @ (h - values.mean)
    solution, complaint = _solve(gram / rows, cross / rows, rows, source.gradient_dtype)
    return -solution / scale[:, np.newaxis], complaint


def _solve(
    correlation: np.ndarray, cross: np.ndarray, rows: int, dtype: np.dtype
) -> tuple[np.ndarray, str]:
    """Return the least-squares solution, truncated where directions are not determined.

    With too few draws (or batches) for the number of control variates any values can be fitted,
    noise included; then the solution is shrunk, as in ridge regression.
    """
    k = len(correlation)
    weights, directions = np.linalg.eigh(correlation)
    known = weights > k * np.finfo(dtype).eps * max(weights[-1], np.finfo(np.float64).tiny)
    complaint = ""
    if 2 * k > rows:
        complaint = (
            f"{k} control variates are too many for {rows} draws or batches: their coefficients "
            "are shrunk. Take more of them, or degree 1."
        )
        weights = weights + k / rows
    elif not known.all():
        complaint = (
            f"The control variates are collinear: {np.count_nonzero(~known)} of {k} directions are "
            "left out."
        )
    directions, weights = directions[:, known], weights[known]
    return directions @ ((directions.T @ cross) / weights[:, np.newaxis]), complaint
