"""Zero-variance control variates: draws corrected after the chain by their own gradients."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from sgmcmc.after.control_variates import (
    DrawSource,
    Fitted,
    Form,
    RunningMoments,
    TestFunctions,
    best,
    fitted,
)
from sgmcmc.checks import choice, flag, whole_number
from sgmcmc.results.arrays import Arrays, has_chains
from sgmcmc.results.draws import need_samples
from sgmcmc.results.samples import Samples


class ZeroVarianceSamples(Samples):
    """Corrected draws, as :func:`zero_variance` returns them.

    Args:
        draws: Corrected draws, by quantity.
        mean: Mean of the corrected draws of each quantity.
        coefficients: Coefficients of each quantity.
        variance_ratio: Variance of the draws over that of the corrected ones.
        settings: Settings of the chain, and the degree.
        gain: Ratio of the variances of the means of long batches of draws, before over after.
        form: Form of the correction; ``None`` if there is none.

    Attributes:
        mean: Mean of the corrected draws of each quantity, in double precision.
        coefficients: Coefficients of each quantity, of shape ``(k, *shape)``, with a leading axis
            of chains (or of the two halves of a single chain) if each has its own. The k control
            variates come in the order that :func:`zero_variance` describes.
        variance_ratio: Variance of the draws over that of the corrected ones: the factor by which
            fewer independent draws would do.
        gain: Ratio of the variances of the means of long batches of draws, before over after: the
            factor by which the chain could have been shorter. It is reliable if the coefficients
            come from other draws than those that they correct.
        form: Form of the correction, with its ``degree``, ``fit`` and ``batches``; ``None`` if
            no form reduces the variance of means, and the draws are unchanged.

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
        gain: Mapping[str, np.ndarray] | None = None,
        form: Form | None = None,
    ) -> None:
        super().__init__(draws, settings=settings)
        self.mean = Arrays(mean)
        self.coefficients = Arrays(coefficients)
        self.variance_ratio = Arrays(variance_ratio)
        self.gain = Arrays(gain or {})
        self.form = form

    def __repr__(self) -> str:
        return f"{super().__repr__()}\n  zero variance: {self.sentence}"

    @property
    def sentence(self) -> str:
        """The correction, and its gain."""
        if self.form is None:
            return "no form reduces the variance of means out of sample; the draws are as they were"
        gains = np.concatenate([np.ravel(gain) for gain in self.gain.values()])
        span = f" ({gains.min():.3g} to {gains.max():.3g})" if gains.size > 1 else ""
        form = self.form.described(has_chains(self.settings))
        return (
            f"{form}: the variance of a mean falls {np.median(gains):.3g} times{span}"
        )


def zero_variance(
    samples: Samples,
    degree: int | None = None,
    test_functions: TestFunctions | None = None,
    *,
    fit: str | None = None,
    batches: int | None = None,
    keep_draws: bool = True,
    bijectors: Mapping[str, Any] | None = None,
) -> ZeroVarianceSamples:
    """Correct draws by control variates made of their gradients, so that means vary less.

    With z = −½ ĝ(θ), and P a polynomial in θ, −½ ΔP(θ) + ∇P(θ)·z has mean zero under the
    posterior. A draw h is replaced by h̃ = h + Σ_j a_j f_j, with the f_j of all P up to ``degree``
    and a = −Var(f)⁻¹ Cov(f, h) estimated from draws:

    - degree 1: f = z_i for each coordinate i;
    - degree 2: then (θ_i − θ̄_i) z_i − ½ for each i, then (θ_i − θ̄_i) z_j + (θ_j − θ̄_j) z_i for
      each pair i < j in row order, with θ̄ the mean of the draws.

    Coordinates are those of the parameters in ``samples.gradients``, one after another. The
    gradient belongs to the space that the chain moves in: Stein's identity, which makes the f_j
    have mean zero, needs a density that vanishes at the borders, which that of a constrained
    parameter need not do.

    With neither ``degree`` nor ``fit`` nor ``batches`` the form is chosen: coefficients are fitted
    to draws, and to means of batches of several sizes, with degree 2 if the draws suffice for
    it; each chain is corrected with the coefficients of the others (each half of a single chain
    with those of the other half), and the form is chosen under which the means of long batches vary
    least, in the median over the quantities. A quantity that no form improves is left unchanged.
    ``.form``, ``.gain`` and ``.sentence`` report the choice and its gain.

    Args:
        samples: Draws with their gradients (``store_gradients=True``), in memory, loaded, or opened
            from a store; they are read in pieces.
        degree: Degree of the polynomials, 1 or 2; 1 if only ``fit`` or ``batches`` is given. Degree
            2 has d(d + 3)/2 control variates and needs many times as many draws.
        test_functions: Quantities to correct instead of the parameters: a list of names among
            ``samples.test_functions``, or a dict of functions of ``params``, evaluated here.
        fit: Source of the coefficients: ``"pooled"``, all draws together, as published, and the
            default if only ``degree`` or ``batches`` is given; ``"own"``, each chain by itself;
            ``"others"``, all other chains for each chain, and with a single chain the other half
            for each half. Coefficients fitted to the draws that they correct reduce the variance of
            those draws by more than that of the mean, and by far more if the chain moves slowly;
            with ``"others"`` the variance ratio is honest.
        batches: Number of batches of each chain to whose means the coefficients are fitted, instead
            of to the draws. This is far better if minibatches make the gradients noisy. The noise
            makes coefficients that are fitted to draws too small; within a batch it averages out,
            and the slow movements that cause the error of a mean remain. Use a few hundred batches
            in all, of many draws each, and more than there are control variates.
        keep_draws: Whether to return the corrected draws; ``False`` returns only means,
            coefficients and ratios.
        bijectors: Bijectors that the chain was run with, for degree 2.

    Returns:
        :class:`ZeroVarianceSamples`: the corrected draws, with ``.mean``, ``.coefficients``,
        ``.variance_ratio``, ``.form``, ``.gain`` and ``.sentence``.

    Raises:
        ValueError: There are no gradients, or fewer than two draws.

    Warns:
        UserWarning: The control variates are collinear, so that some directions are left out, or
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
    flag("keep_draws", keep_draws)
    chosen = degree is None and fit is None and batches is None
    if chosen:
        form_fitted = best(samples, test_functions, bijectors or {})
    else:
        form = Form(
            1 if degree is None else whole_number("degree", degree, 1),
            fit or "pooled",
            None if batches is None else whole_number("batches", batches, 2),
        )
        if form.degree > 2:
            raise ValueError(f"`degree` must be 1 or 2; it is {form.degree}.")
        choice("fit", form.fit, ("pooled", "own", "others"))
        source = DrawSource(samples, form.degree, test_functions, bijectors or {})
        if form.batches is not None and form.batches > source.draws:
            raise ValueError(
                f"`batches` is {form.batches}, but there are only {source.draws} draws."
            )
        form_fitted = fitted(source, form)
    gain = form_fitted.gain
    improved = gain > 1 if chosen else np.ones(gain.shape, bool)
    if improved.any():
        for complaint in form_fitted.complaints:
            warnings.warn(complaint, stacklevel=2)
    return _corrected(samples, form_fitted, improved, keep_draws)


def _corrected(
    samples: Samples, form_fitted: Fitted, improved: np.ndarray, keep_draws: bool
) -> ZeroVarianceSamples:
    """Return draws with the correction of those quantities that it improves."""
    source, form = form_fitted.source, form_fitted.form
    layout, size = source.layout, source.layout.size
    corrected_draws = None
    if keep_draws:
        corrected_draws = np.empty((source.chains, source.draws, size))
    before, after = RunningMoments(size), RunningMoments(size)
    coefficients = []
    for segments, of_all in form_fitted.corrections:
        a = np.where(improved, of_all, 0.0)
        coefficients.append(a)
        for chunk, values, features in source.chunks(segments):
            corrected = values + features @ a
            before.add(values)
            after.add(corrected)
            if corrected_draws is not None:
                chunk.of(corrected_draws)[...] = corrected
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = before.variance / after.variance
    stacked = coefficients[0] if len(coefficients) == 1 else np.stack(coefficients)
    draws: Mapping[str, np.ndarray] = {}
    if corrected_draws is not None:
        draws = layout.split(
            corrected_draws if source.has_chains else corrected_draws[0]
        )
    return ZeroVarianceSamples(
        draws,
        mean=layout.split(after.mean),
        coefficients=layout.split(stacked),
        variance_ratio=layout.split(ratio),
        settings={**samples.settings, "zero_variance_degree": form.degree},
        gain=layout.split(np.where(improved, form_fitted.gain, 1.0)),
        form=form if improved.any() else None,
    )
