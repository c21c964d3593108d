"""The Dirichlet-process mixture of categoricals, by the stochastic slice sampler.

With weights w_j = v_j Π_{l<j} (1 − v_l) an observation in component z has a slice u ~ U(0, w_z),
and given it

    p(z = j | u, v, θ, x) ∝ 1(w_j > u) Π_w θ_jw^{x_w}.

The components above the slice are finitely many, and if u > Π_j (1 − v_j) over those that are held,
they are all among these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import positive_number, whole_number
from sgmcmc.counts import Counts
from sgmcmc.data.dataset import Tensors
from sgmcmc.dynamics.scir import gamma_number
from sgmcmc.engine.reductions import Reduction
from sgmcmc.models.documents import word_columns
from sgmcmc.models.scores import ProbabilityScores, score_probabilities


def dp_mixture(
    counts: Any,
    base: float = 0.5,
    concentration: Sequence[float] = (1.0, 1.0),
    max_components: int = 128,
) -> DPMixture:
    """Return a Dirichlet-process mixture of categoricals, for samplers on the simplex.

    Observation i is drawn as x_i ~ Multi(n_i, θ_{z_i}) with P(z_i = j) = v_j Π_{l<j} (1 − v_l),
    v_j ~ Beta(1, α), θ_j ~ Dir(a, ..., a), j = 1, 2, ..., and α ~ Gamma(s, r). There are
    infinitely many components; the slice sampler (``gibbs``) needs finitely many at a time, of
    which the first ``max_components`` are held, whether any observation is in them or not. A slice
    that needs more ends the chain with an error. The sampler moves the sticks and the components,
    at the concentrations of ``model.alpha``.

    Args:
        counts: Count of each word (category) in each observation, (N, W): an array, a
            sparse matrix of SciPy, or `sgmcmc.counts.Counts`.
        base: a, Dirichlet concentration of each word in a component.
        concentration: s and r, shape and rate of the gamma prior of α.
        max_components: K, the largest number of components. Some 25 times α is enough for tens of
            thousands of observations.

    Returns:
        A :class:`DPMixture`.

    Raises:
        TypeError: ``counts`` holds no numbers, or another argument is not one.
        ValueError: A count is negative or not whole, an observation is empty, ``base`` or
            ``concentration`` is not positive, ``max_components`` is not an integer ≥ 1.

    Example:
        >>> from sgmcmc.models import dp_mixture
        >>> model = dp_mixture([[2, 0, 1], [0, 3, 0]], base=0.1, max_components=20)
        >>> model.dataset["words"].numpy().tolist()
        [[0, 0, 2], [1, 1, 1]]

    Source:
        Dunson and Xing, JASA 104 (2009); Baker, *Large-Scale Bayesian Computation Using Stochastic
        Gradient MCMC*, Lancaster 2018, equation 5.5.1.
    """
    base = positive_number("base", base)
    if isinstance(concentration, (str, Mapping)) or np.shape(concentration) != (2,):
        raise ValueError(
            "`concentration` must be two numbers, shape and rate of the gamma prior of α; it is "
            f"{concentration!r}."
        )
    shape, rate = (
        positive_number(f"concentration[{i}]", concentration[i]) for i in range(2)
    )
    K = whole_number("max_components", max_components, 1)
    dataset, n_words = _read_rows(counts)
    if n_words * K >= 2**31:
        raise ValueError(
            f"`max_components` × words must be below 2**31; {K} is too many."
        )
    return DPMixture(dataset, n_words, base, (shape, rate), K)


@dataclass(frozen=True, eq=False)
class DPMixture:
    """A Dirichlet-process mixture, as a sampler uses it; made by :func:`dp_mixture`.

    Args:
        dataset: Observations: ``"words"`` int32 (N, T) and ``"lengths"`` int32 (N,), T the words of
            the longest.
        n_words: W, the words in the vocabulary.
        base: Dirichlet concentration of each word in a component.
        concentration: Shape and rate of the gamma prior of the process's concentration α.
        max_components: K, the number of components in the approximation.

    Example:
        >>> from sgmcmc.models import dp_mixture
        >>> model = dp_mixture([[2, 0, 1], [0, 3, 0]], max_components=20)
        >>> model.n_words, model.dataset["lengths"].numpy().tolist()
        (3, [3, 3])
    """

    dataset: Tensors
    n_words: int
    base: float
    concentration: tuple[float, float]
    max_components: int

    @property
    def alpha(self) -> dict[str, Any]:
        """Concentrations of components and sticks, for a sampler's ``alpha``.

        A stick (v, 1 − v) is Dirichlet(1, α). α is drawn, so its part of the prior is in
        :meth:`log_lik`, and here it is almost zero.
        """
        zero = 1e-30  # which samplers on the simplex accept
        return {"sticks": np.array([1.0, zero]), "components": self.base}

    @property
    def latents(self) -> Tensors:
        """Latent variables that a sampler keeps, ``{"component": (N,)}``, none at the start."""
        return {"component": tf.fill(self.dataset["lengths"].shape, -1)}

    def gibbs(self, params: Tensors, minibatch: Tensors, seed: tf.Tensor) -> Tensors:
        """Draw slice and component of each observation of a minibatch, and α.

        u_i ~ U(0, w_{z_i}), p(z_i = j) ∝ 1(w_j > u_i) Π_w θ_jw^{x_iw}, and
        α ~ Gamma(s + K, r − Σ_j log(1 − v_j)), with the prior Gamma(s, r).

        Args:
            params: ``{"sticks": (K, 2), "components": (K, W)}``.
            minibatch: Rows of ``dataset``, n of them, and of ``latents``.
            seed: Two int32.

        Returns:
            The minibatch with ``"component"`` drawn, int32 (n,), and with ``"concentration"``
            (n,), α once for each. That is NaN, and ends the chain, if a slice was so low that a
            component might be above it that is not held.

        Raises:
            KeyError: The minibatch has no components: the sampler was not given
                ``latents=model.latents``.

        Example:
            >>> import tensorflow as tf
            >>> from sgmcmc.models import dp_mixture
            >>> model = dp_mixture([[2, 0], [0, 3]], max_components=2)
            >>> params = {"sticks": tf.constant([[0.5, 0.5], [0.999, 0.001]]),
            ...     "components": tf.constant([[0.99, 0.01], [1e-9, 1.0]])}
            >>> drawn = model.gibbs(params, model.dataset | model.latents, tf.constant([1, 2]))
            >>> drawn["component"].numpy().tolist()
            [0, 1]

        Source:
            Walker, Communications in Statistics 36 (2007); Kalli, Griffin and Walker, Statistics
            and Computing 21 (2011); Baker, *Large-Scale Bayesian Computation Using Stochastic
            Gradient MCMC*, Lancaster 2018, appendix B.4; Escobar and West, JASA 90 (1995).
        """
        if "component" not in minibatch:
            raise KeyError(
                "the minibatch lacks 'component': pass latents=model.latents"
            )
        sticks, components = params["sticks"], params["components"]
        words, lengths = minibatch["words"], minibatch["lengths"]
        before = minibatch["component"]
        seeds = tf.random.split(seed, 2, alg="philox")
        uniforms = tf.random.stateless_uniform(
            [2, *before.shape], seeds[0], dtype=sticks.dtype, alg="philox"
        )
        log_w, log_rest = log_weights(sticks)
        table = word_table(words, lengths, self.n_words, sticks.dtype)
        log_lik = tf.matmul(table, tf.math.log(components), transpose_b=True)
        drawn, all_covered = draw_components(log_w, log_rest, log_lik, before, uniforms)
        shape, rate = self.concentration
        number = gamma_number(shape + self.max_components, seeds[1], sticks.dtype)
        concentration = tf.where(all_covered, number / (rate - log_rest), np.nan)
        filled = tf.fill(before.shape, concentration)
        return {**minibatch, "component": drawn, "concentration": filled}

    gibbs.advice = (  # type: ignore[attr-defined]
        "For a Dirichlet-process mixture that mostly means that `max_components` is reached: a "
        "slice was so low that a component might be above it which is not held. Make the model "
        "with twice as many. If this recurs, use a smaller `stepsize`; or the rows have so many "
        "counts, and are so different, that each needs a component of its own: a Dirichlet process "
        "then needs some 25 times as many as there are, and `sgmcmc.models.lda` suits them better."
    )

    def log_lik(self, params: Tensors, minibatch: Tensors) -> tf.Tensor:
        """Return the log-likelihood of observations and their components, and the sticks' prior.

        Σ_i [log w_{z_i} + Σ_w x_iw log θ_{z_i w} + (α/N) Σ_j log(1 − v_j)]. The last term is what
        the prior of the sticks depends on α by, in N equal parts.

        Args:
            params: ``{"sticks": (K, 2), "components": (K, W)}``.
            minibatch: Result of :meth:`gibbs`.

        Returns:
            A scalar.

        Raises:
            KeyError: The minibatch has no ``"concentration"``: the sampler was not given
                ``gibbs=model.gibbs``.

        Example:
            >>> import tensorflow as tf
            >>> from sgmcmc.models import dp_mixture
            >>> model = dp_mixture([[1, 0], [0, 1]], max_components=1)
            >>> params = {"sticks": tf.constant([[0.5, 0.5]]),
            ...     "components": tf.constant([[0.25, 0.75]])}
            >>> drawn = {**model.dataset, "component": tf.constant([0, 0]),
            ...     "concentration": tf.constant([2.0, 2.0])}
            >>> round(float(tf.exp(model.log_lik(params, drawn))), 6)  # ½ · ¼ · ½ · ¾ · ½²
            0.011719
        """
        if "concentration" not in minibatch:
            raise KeyError(
                "the minibatch lacks 'concentration': pass gibbs=model.gibbs"
            )
        sticks, components = params["sticks"], params["components"]
        rows, words = component_counts(
            minibatch["component"],
            minibatch["words"],
            minibatch["lengths"],
            (self.max_components, self.n_words),
            sticks.dtype,
        )
        log_w, log_rest = log_weights(sticks)
        prior = tf.reduce_sum(minibatch["concentration"]) / len(self) * log_rest
        data = tf.reduce_sum(words * tf.math.log(components))
        return tf.reduce_sum(rows * log_w) + data + prior

    def __len__(self) -> int:
        """Return N, the number of observations."""
        return int(self.dataset["lengths"].shape[0])

    def start(
        self, seed: int | None = None, n_components: int = 20
    ) -> dict[str, np.ndarray]:
        """Return starting values: components from their prior, some of them of equal weight.

        Args:
            seed: Seed of the draw.
            n_components: Number of components that share the weight at the start equally, except
                for one such share that all others have together.

        Returns:
            ``{"sticks": (K, 2), "components": (K, W)}``, float64.

        Raises:
            TypeError: ``n_components`` is not a number.
            ValueError: It is not whole, below 1, or above ``max_components``.

        Example:
            >>> from sgmcmc.models import dp_mixture
            >>> model = dp_mixture([[2, 0, 1]], max_components=5)
            >>> model.start(seed=1, n_components=3)["sticks"][:3, 0].round(2).tolist()
            [0.25, 0.33, 0.5]
        """
        n_components = whole_number("n_components", n_components, 1)
        if n_components > self.max_components:
            raise ValueError(
                f"`n_components` is {n_components}, and the model holds at most "
                f"{self.max_components} components: use fewer, or a larger `max_components`."
            )
        rng, K = np.random.default_rng(seed), self.max_components
        shape, rate = self.concentration
        weights = np.maximum(rng.gamma(self.base, size=(K, self.n_words)), 1e-30)
        v = rng.beta(1.0, max(shape / rate, 1e-2), size=K)
        v[:n_components] = 1.0 / (n_components + 1 - np.arange(n_components))
        sticks = np.clip(np.stack([v, 1 - v], axis=1), 1e-30, 1.0)
        return {
            "sticks": sticks,
            "components": weights / weights.sum(axis=1, keepdims=True),
        }

    def allocations(self, params: Mapping[str, Any], counts: Any = None) -> np.ndarray:
        """Return the probability of each component for each observation, given a draw.

        p(z_i = j | v, θ, x_i) ∝ w_j Π_w θ_jw^{x_iw}; those not held have what is left of the
        weight, and together the likelihood ∫ Π_w θ_w^{x_iw} dG_0(θ). Given a draw, observations
        are independent: the probability that i and l are in the same component is
        Σ_j p(z_i = j) p(z_l = j), on average over the draws.

        Args:
            params: A draw, ``{"sticks": (K, 2), "components": (K, W)}``.
            counts: Observations, in any form that :func:`dp_mixture` accepts; by default those of
                the model.

        Returns:
            (n, K + 1), float64; the last column is for all components that are not held.

        Raises:
            ValueError: ``counts`` has another vocabulary.

        Example:
            >>> from sgmcmc.models import dp_mixture
            >>> model = dp_mixture([[2, 0], [0, 3]], base=1.0, max_components=1)
            >>> params = {"sticks": [[0.5, 0.5]], "components": [[1.0, 1e-9]]}
            >>> model.allocations(params).round(3).tolist()  # the second cannot be there
            [[0.75, 0.25], [0.0, 1.0]]
        """
        rows = self.dataset if counts is None else self._read(counts)
        drawn = {
            name: tf.constant(np.asarray(params[name], float))
            for name in ("sticks", "components")
        }
        return tf.nn.softmax(joint(drawn, rows, self.base), axis=1).numpy()

    def prediction(self, counts: Any) -> Prediction:
        """Return the task of predicting held-out observations.

        Args:
            counts: Held-out observations, in any form that :func:`dp_mixture` accepts.

        Returns:
            A :class:`Prediction`, which scores a chain inside it.

        Raises:
            TypeError: ``counts`` holds no numbers.
            ValueError: The vocabulary is another, or an observation is empty.

        Example:
            >>> from sgmcmc.models import dp_mixture
            >>> task = dp_mixture([[2, 0, 1]]).prediction([[1, 1, 2]])
            >>> task.lengths.numpy().tolist()
            [4]
        """
        rows = self._read(counts)
        return Prediction(rows["words"], rows["lengths"], self.base)

    def _read(self, counts: Any) -> Tensors:
        dataset, n_words = _read_rows(counts)
        if n_words != self.n_words:
            raise ValueError(
                f"`counts` has {n_words} words, and the model {self.n_words}: observations must "
                "be counted in the same vocabulary."
            )
        return dataset


def _read_rows(counts: Any) -> tuple[Tensors, int]:
    """Return counted observations as sequences of words, and the size of their vocabulary."""
    table = Counts.read(counts)
    empty = np.flatnonzero(table.row_totals == 0)
    if empty.size:
        raise ValueError(
            f"`counts`: observation {empty[0]} is empty. Leave such rows out."
        )
    return word_columns(table), table.shape[1]


def log_weights(sticks: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return log w_j of the stored components, (K,), and log Π_j (1 − v_j), that of all others.

    Row j of ``sticks``, (K, 2), is v_j and 1 − v_j.
    """
    logs = tf.math.log(sticks)
    log_left = logs[:, 1]
    return logs[:, 0] + tf.cumsum(log_left, exclusive=True), tf.reduce_sum(log_left)


def word_table(
    words: tf.Tensor, lengths: tf.Tensor, n_words: int, dtype: tf.DType
) -> tf.Tensor:
    """Return the count of each word in each row, (n, W).

    ``words`` is (n, T), with anything after the end of a row, and ``lengths`` (n,).
    """
    rows = words.shape[0]
    cell = tf.range(rows)[:, tf.newaxis] * n_words + words
    counts = _add_up(cell, is_word(words, lengths), rows * n_words, dtype)
    return tf.reshape(counts, [rows, n_words])


def component_counts(
    component: tf.Tensor,
    words: tf.Tensor,
    lengths: tf.Tensor,
    shape: tuple[int, int],
    dtype: tf.DType,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the number of rows of each component, (K,), and its count of each word, (K, W).

    ``component`` and ``lengths`` are (n,), ``words`` is (n, T), and ``shape`` is K and W.
    """
    K, W = shape
    rows = tf.math.unsorted_segment_sum(tf.ones(component.shape, dtype), component, K)
    cell = component[:, tf.newaxis] * W + words
    counts = _add_up(cell, is_word(words, lengths), K * W, dtype)
    return rows, tf.reshape(counts, [K, W])


def is_word(words: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Return which places of the rows hold a word, (n, T)."""
    return tf.range(words.shape[1]) < lengths[:, tf.newaxis]


def _add_up(
    cell: tf.Tensor, counted: tf.Tensor, size: int, dtype: tf.DType
) -> tf.Tensor:
    ones = tf.ones(cell.shape, dtype)
    return tf.math.unsorted_segment_sum(ones, tf.where(counted, cell, -1), size)


def draw_components(
    log_w: tf.Tensor,
    log_rest: tf.Tensor,
    log_lik: tf.Tensor,
    before: tf.Tensor,
    uniforms: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Draw a slice and then a component for each row.

    A row without a component is given one with probability ∝ w_j Π_w θ_jw^{x_w}, of those held
    but the last: from a weight near the rest the next slice could be below it. Long rows would
    choose such components, because the likelihood outweighs any weight.

    Args:
        log_w: log w_j, (K,).
        log_rest: Log Π_j (1 − v_j).
        log_lik: Σ_w x_w log θ_jw, (n, K).
        before: Component of each row, int32 (n,), -1 for none.
        uniforms: Uniform numbers in [0, 1), (2, n).

    Returns:
        The components, int32 (n,), and whether all slices are above what is left for components
        that are not held.
    """
    K, fresh = log_w.shape[0], before < 0
    present = tf.maximum(before, 0)
    # 1 − U is as uniform as U, and never zero.
    log_u = tf.gather(log_w, present) + tf.math.log1p(-uniforms[0])
    all_covered = tf.reduce_all(fresh | (log_u > log_rest))
    # Of two roundings of the same number one may be the larger: the present one is always above.
    above = (log_w > log_u[:, tf.newaxis]) | (tf.range(K) == present[:, tf.newaxis])
    # Rows start in components with weights far above that of all that are not held, e³⁰ times or
    # half of the largest log ratio: a slice is below the latter with probability e⁻³⁰.
    distance = tf.minimum(30.0, 0.5 * (tf.reduce_max(log_w) - log_rest))
    first = log_w >= log_rest + distance
    log_p = log_lik + tf.where(fresh[:, tf.newaxis], log_w, tf.zeros_like(log_w))
    covered = tf.where(fresh[:, tf.newaxis], first, above)
    log_p = tf.where(covered, log_p, -float("inf"))
    weights = tf.exp(log_p - tf.reduce_max(log_p, axis=1, keepdims=True))
    cumulative = tf.cumsum(weights, axis=1)
    # The limit is below the total, as U is below 1 by more than rounding, so one is always found.
    limit = uniforms[1][:, tf.newaxis] * cumulative[:, -1:]
    passed = tf.cast((cumulative > limit) & (weights > 0), tf.int8)
    return tf.argmax(passed, axis=1, output_type=tf.int32), all_covered


def joint(params: Tensors, rows: Tensors, base: float) -> tf.Tensor:
    """Return log of weight times likelihood, for each observation and component, (n, K + 1).

    The last column is for all components that are not held: with θ ~ Dir(a, ..., a) their
    likelihood is Γ(Wa) / Γ(Wa + n_i) Π_w Γ(a + x_iw) / Γ(a).

    ``rows`` has ``"words"`` (n, T) and ``"lengths"`` (n,); ``base`` is a.
    """
    sticks, components = params["sticks"], params["components"]
    W = components.shape[1]
    words = rows["words"]
    lengths = rows["lengths"]
    log_w, log_rest = log_weights(sticks)
    table = word_table(words, lengths, W, sticks.dtype)
    log_joint = log_w + tf.matmul(table, tf.math.log(components), transpose_b=True)
    a, total = tf.constant(base, table.dtype), tf.constant(W * base, table.dtype)
    log_lik = tf.reduce_sum(tf.math.lgamma(a + table) - tf.math.lgamma(a), axis=1)
    sizes = tf.cast(lengths, table.dtype)
    new = log_rest + log_lik + tf.math.lgamma(total) - tf.math.lgamma(total + sizes)
    return tf.concat([log_joint, new[:, tf.newaxis]], axis=1)


@dataclass(frozen=True, eq=False)
class Prediction:
    """Held-out observations, to be predicted; made by :meth:`DPMixture.prediction`.

    Args:
        words: Words of the observations, int32 (n, T).
        lengths: Number of words of each, int32 (n,).
        base: Dirichlet concentration of each word in a component.

    Example:
        >>> import tensorflow as tf
        >>> from sgmcmc.models import dp_mixture
        >>> task = dp_mixture([[1, 1]], base=1.0, max_components=1).prediction([[1, 0]])
        >>> params = {"sticks": tf.constant([[0.5, 0.5]]), "components": tf.constant([[0.1, 0.9]])}
        >>> round(float(tf.exp(task.log_probabilities(params))[0]), 6)  # ½ · 0.1 + ½ · ½
        0.3
    """

    words: tf.Tensor
    lengths: tf.Tensor
    base: float

    def log_probabilities(self, params: Tensors) -> tf.Tensor:
        """Return log p(x_i | v, θ) of each observation, (n,), components not held included.

        The multinomial coefficient, which no parameter bears on, is left out.

        Args:
            params: ``{"sticks": (K, 2), "components": (K, W)}``.
        """
        rows = {"words": self.words, "lengths": self.lengths}
        return tf.reduce_logsumexp(joint(params, rows, self.base), axis=1)

    def log_predictive(self, draws: int) -> Reduction:
        """Return the reduction that follows the log predictive probability along a chain.

        Σ_i log p̄_i / n, p̄_i the mean over the draws seen so far of p(x_i | v, θ), and the
        perplexity of a word, exp(−Σ_i log p̄_i / Σ_i n_i).

        Args:
            draws: Number of draws that the chain keeps, ``n_iters // thin``.

        Returns:
            A `sgmcmc.Reduction`; its result is a dict of ``"log_predictive"``, ``"perplexity"``
            and ``"of_draw"``, the log predictive of each draw alone, all (draws,), NaN if there
            was none.

        Raises:
            TypeError: ``draws`` is not a number.
            ValueError: It is not an integer ≥ 1.

        Example:
            >>> import tensorflow as tf
            >>> from sgmcmc.models import dp_mixture
            >>> model = dp_mixture([[1, 1]], base=1.0, max_components=1)
            >>> score = model.prediction([[1, 0]]).log_predictive(draws=1)
            >>> params = {"sticks": tf.constant([[0.5, 0.5]]),
            ...     "components": tf.constant([[0.5, 0.5]])}
            >>> state = score.update(score.start(params, tf.float32), params)
            >>> float(score.result(state)["perplexity"][0])
            2.0
        """
        names = ("log_predictive", "of_draw", "perplexity")
        words_each = float(np.mean(self.lengths.numpy()))

        def log_probabilities(params: Tensors, at: tf.Tensor) -> tf.Tensor:
            return self.log_probabilities(params)

        def scores(mean: tf.Tensor, new: tf.Tensor) -> Tensors:
            now = tf.reduce_mean(mean)
            values = now, tf.reduce_mean(new), tf.exp(-now / words_each)
            return dict(zip(names, values, strict=True))

        def finish(state: Tensors) -> Tensors:
            return {name: state[name] for name in names}

        predictive = ProbabilityScores(
            names, len(self.lengths), log_probabilities, scores, finish
        )
        return score_probabilities(draws, predictive)
