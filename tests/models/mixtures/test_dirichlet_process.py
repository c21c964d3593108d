"""The Dirichlet-process mixture: the slice sampler's moves, and chains against enumeration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats
from scipy.special import gammaln

import sgmcmc
from sgmcmc.dynamics.scir import gamma_number
from sgmcmc.models import DPMixture, dp_mixture
from sgmcmc.models import mixtures as slices
from tests.models.mixtures.partitions import exact_posterior

TABLE = np.array([[3, 0, 0], [2, 1, 0], [0, 3, 1], [0, 2, 0], [1, 0, 2], [0, 1, 4]])
BASE, PRIOR = 0.5, (4.0, 8.0)
PARAMS = {
    "sticks": np.array([[0.3, 0.7], [0.6, 0.4], [0.5, 0.5]]),
    "components": np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7], [0.3, 0.6, 0.1]]),
}
WEIGHTS = np.array([0.3, 0.42, 0.14])


def tensors(params: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
    return {name: tf.constant(value, tf.float64) for name, value in params.items()}


# ------------------------------------------------------------------------ the moves


def test_weights_are_those_of_the_sticks() -> None:
    log_w, log_rest = slices.log_weights(tf.constant(PARAMS["sticks"]))
    np.testing.assert_allclose(np.exp(log_w), WEIGHTS, rtol=1e-12)
    assert np.exp(log_rest) == pytest.approx(0.14)


def test_a_move_has_the_law_of_slice_and_component() -> None:
    """P(z → j) = ∫_0^{w_z} 1(w_j > u) f_j / Σ_l 1(w_l > u) f_l du / w_z, component by component."""
    copies, f = 20_000, np.array([0.2, 0.5, 1.0])
    levels = np.sort(np.append(WEIGHTS, 0.0))
    before = np.repeat(np.arange(3), copies)
    after, enough = slices.draw_components(
        tf.constant(np.log(WEIGHTS)),
        tf.constant(-100.0, tf.float64),
        tf.constant(np.tile(np.log(f), (len(before), 1))),
        tf.constant(before, tf.int32),
        tf.constant(np.random.default_rng(1).random((2, len(before)))),
    )
    assert bool(enough)
    for z in range(3):
        p = np.zeros(3)
        for low, high in zip(levels, levels[1:], strict=False):
            if high <= WEIGHTS[z]:
                p += (
                    (high - low)
                    / WEIGHTS[z]
                    * (WEIGHTS >= high)
                    * f
                    / f[WEIGHTS >= high].sum()
                )
        observed = np.bincount(after[before == z], minlength=3)
        possible = p > 0
        assert (observed[~possible] == 0).all()
        if possible.sum() > 1:
            found = stats.chisquare(observed[possible], copies * p[possible])
            assert found.pvalue > 1e-4


def test_rows_without_a_component_get_one_of_those_held() -> None:
    copies, f = 20_000, np.array([0.2, 0.5, 1.0])
    after, enough = slices.draw_components(
        tf.constant(np.log(WEIGHTS)),
        tf.constant(np.log(1e-9), tf.float64),
        tf.constant(np.tile(np.log(f), (copies, 1))),
        tf.fill([copies], -1),
        tf.constant(np.random.default_rng(2).random((2, copies))),
    )
    p = WEIGHTS * f / (WEIGHTS * f).sum()
    assert bool(enough)
    assert stats.chisquare(np.bincount(after, minlength=3), copies * p).pvalue > 1e-4


@pytest.mark.some(1)
@pytest.mark.parametrize("size", [20_000, 500])
@pytest.mark.parametrize("held", [128, 512])
def test_long_rows_start_where_slices_are_above_the_rest(size: int, held: int) -> None:
    """The likelihood of long rows outweighs any weight: all different, they use all components."""
    rng = np.random.default_rng(1)
    kinds = rng.dirichlet(np.full(50, 0.5), size=400)
    model = dp_mixture(
        np.stack([rng.multinomial(size, p) for p in kinds]), max_components=held
    )
    gibbs = tf.function(model.gibbs)
    for seed in range(3):
        params = {
            name: tf.constant(a, tf.float32)
            for name, a in model.start(seed=seed).items()
        }
        drawn = {**model.dataset, **model.latents}
        for step in range(3):
            found = gibbs(params, drawn, tf.constant([seed, step]))
            assert np.isfinite(found["concentration"]).all()
            drawn = {**model.dataset, "component": found["component"]}
        assert len(np.unique(drawn["component"])) > 50


@pytest.mark.slow
def test_a_chain_on_rows_of_20_000_counts() -> None:
    rng = np.random.default_rng(1)
    kinds = rng.dirichlet(np.full(30, 0.5), size=8)
    model = dp_mixture(
        np.stack([rng.multinomial(20_000, kinds[i % 8]) for i in range(80)])
    )
    chain = sgmcmc.scir(
        model.log_lik,
        model.dataset,
        model.start(seed=1),
        0.1,
        alpha=model.alpha,
        gibbs=model.gibbs,
        latents=model.latents,
        minibatch_size=40,
        n_iters=50,
        thin=50,
        seed=1,
        verbose=False,
    )
    p = model.allocations({name: chain[name][-1] for name in chain})
    kind = np.arange(80) % 8
    np.testing.assert_allclose(p @ p.T, kind == kind[:, np.newaxis], atol=1e-3)


def test_a_slice_that_needs_more_components_is_noticed() -> None:
    for uniform, expected in (
        (0.5, True),
        (0.6, False),
    ):  # slices at 0.15 and 0.12, 0.14 is left
        _, enough = slices.draw_components(
            tf.constant(np.log(WEIGHTS)),
            tf.constant(np.log(0.14)),
            tf.zeros([1, 3], tf.float64),
            tf.constant([0]),
            tf.constant([[uniform], [0.5]], tf.float64),
        )
        assert bool(enough) == expected


@pytest.mark.some(1)
@pytest.mark.parametrize("shape", [1.0, 33.5])
def test_the_number_for_the_concentration_has_the_gamma_law(shape: float) -> None:
    seeds = tf.constant(
        np.random.default_rng(3).integers(2**31, size=(4000, 2)), tf.int32
    )
    draw = tf.function(
        lambda: tf.vectorized_map(lambda s: gamma_number(shape, s, tf.float64), seeds)
    )
    assert stats.kstest(draw(), stats.gamma(shape).cdf).pvalue > 1e-4


def test_the_counts_are_those_of_the_conditional_laws() -> None:
    """ω ∂log_lik/∂ω: (m_j, α + Σ_{l>j} m_l) of a stick, words of a component."""
    model = dp_mixture(TABLE, max_components=3)
    drawn = {
        **model.dataset,
        "component": tf.constant([0, 0, 2, 2, 1, 2]),
        "concentration": tf.fill([6], tf.constant(1.7, tf.float64)),
    }
    params = tensors(PARAMS)
    with tf.GradientTape() as tape:
        tape.watch(params)
        value = model.log_lik(params, drawn)
    slopes = tape.gradient(value, params)
    counts = {name: slopes[name] * params[name] for name in params}
    np.testing.assert_allclose(
        counts["sticks"], [[2, 5.7], [1, 4.7], [3, 1.7]], rtol=1e-10
    )
    expected = [TABLE[[0, 1]].sum(0), TABLE[4], TABLE[[2, 3, 5]].sum(0)]
    np.testing.assert_allclose(counts["components"], expected, rtol=1e-10)


# ------------------------------------------------------------------------ chains


def clusters(chain: sgmcmc.Samples, model: DPMixture) -> dict[str, np.ndarray]:
    """Return, for each chain, the law of the number of clusters, who is with whom, and E α."""
    logs = np.log(chain["sticks"].astype(float))
    log_w = logs[..., 0] + np.cumsum(logs[..., 1], -1) - logs[..., 1]
    log_p = np.einsum("nw,cikw->cink", TABLE, np.log(chain["components"].astype(float)))
    p = np.exp(log_p + log_w[:, :, np.newaxis])
    p /= p.sum(axis=-1, keepdims=True)
    uniforms = np.random.default_rng(4).random((*p.shape[:3], 1))
    z = np.sort((uniforms > np.cumsum(p, axis=-1)).sum(axis=-1), axis=-1)
    number = 1 + (np.diff(z, axis=-1) > 0).sum(axis=-1)
    shape, rate = PRIOR
    return {
        "clusters": np.stack(
            [(number == k).mean(axis=1) for k in range(1, 7)], axis=-1
        ),
        "together": np.einsum("cink,cimk->cnm", p, p) / p.shape[1],
        "concentration": (
            (shape + model.max_components) / (rate - logs[..., 1].sum(-1))
        ).mean(1),
    }


@pytest.mark.slow
def test_the_chain_on_all_data_has_the_exact_posterior() -> None:
    """Number of clusters, who is with whom and α, at a stepsize that is not small."""
    model = dp_mixture(TABLE, BASE, PRIOR, max_components=32)
    chains = 12
    chain = sgmcmc.scir(
        model.log_lik,
        model.dataset,
        model.start(seed=1, n_components=3),
        1.0,
        alpha=model.alpha,
        fresh_scale=True,
        gibbs=model.gibbs,
        latents=model.latents,
        minibatch_size=6,
        n_iters=800,
        burn_in=80,
        thin=4,
        n_chains=chains,
        seed=1,
        verbose=False,
    )
    found = clusters(chain, model)
    expected = exact_posterior(TABLE, BASE, PRIOR)
    pairs = np.triu_indices(6, 1)
    found["together"] = found["together"][:, pairs[0], pairs[1]]
    # 22 comparisons by Student's t, together wrong once in a thousand seeds.
    limit = stats.t.isf(0.5e-3 / 22, chains - 1)
    for name, exact in (
        ("clusters", expected.clusters),
        ("together", expected.together[pairs]),
        ("concentration", np.array(expected.concentration)),
    ):
        error = found[name].std(axis=0, ddof=1) / np.sqrt(chains)
        assert (np.abs(found[name].mean(axis=0) - exact) < limit * error).all(), name


def two_groups(rows: int = 40) -> np.ndarray:
    rng = np.random.default_rng(1)
    truth = np.kron(np.eye(2), np.full(4, 0.25))
    return np.stack([rng.multinomial(20, truth[i % 2]) for i in range(rows)])


@pytest.mark.parametrize(
    "method", ["scir", pytest.param("sgrld", marks=pytest.mark.slow)]
)
def test_a_chain_on_minibatches_finds_groups_that_share_no_word(method: str) -> None:
    table = two_groups()
    model = dp_mixture(table[:30], max_components=48)
    chain = getattr(sgmcmc, method)(
        model.log_lik,
        model.dataset,
        model.start(seed=1, n_components=5),
        0.1 if method == "scir" else {"sticks": 0.005, "components": 0.01},
        alpha=model.alpha,
        gibbs=model.gibbs,
        latents=model.latents,
        minibatch_size=10,
        n_iters=300,
        burn_in=200,
        thin=50,
        reductions={"score": model.prediction(table[30:]).log_predictive(draws=6)},
        seed=1,
        verbose=False,
    )
    scores = chain.reductions["score"]
    assert scores["perplexity"].shape == (6,) and 3.9 < scores["perplexity"][-1] < 5.0
    last = {name: chain[name][-1] for name in chain}
    p = model.allocations(last)[:, :-1]
    together = p @ p.T
    assert together[0, 1] < 0.01 < 0.3 < together[0, 2::2].mean()


def test_the_bound_ends_the_chain_and_is_named() -> None:
    model = dp_mixture(two_groups(), max_components=2)
    with pytest.raises(sgmcmc.DivergenceError, match="`max_components` is reached"):
        sgmcmc.scir(
            model.log_lik,
            model.dataset,
            model.start(seed=1, n_components=1),
            0.5,
            alpha=model.alpha,
            gibbs=model.gibbs,
            latents=model.latents,
            minibatch_size=20,
            n_iters=200,
            seed=1,
            verbose=False,
            jit_compile=False,
        )


# ------------------------------------------------------------------------ after the chain


def test_predictions_and_allocations_count_components_that_are_not_held() -> None:
    model = dp_mixture(TABLE, BASE, max_components=3)
    held = WEIGHTS * np.exp(TABLE @ np.log(PARAMS["components"]).T)
    new = gammaln(3 * BASE) - gammaln(3 * BASE + TABLE.sum(axis=1))
    new += (gammaln(BASE + TABLE) - gammaln(BASE)).sum(axis=1)
    joint = np.column_stack([held, 0.14 * np.exp(new)])
    task = model.prediction(TABLE)
    found = task.log_probabilities(tensors(PARAMS))
    np.testing.assert_allclose(found, np.log(joint.sum(axis=1)), rtol=1e-10)
    expected = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.allocations(PARAMS), expected, rtol=1e-10)
    np.testing.assert_allclose(
        model.allocations(PARAMS, TABLE[2:4]), expected[2:4], rtol=1e-10
    )


def test_the_log_predictive_is_that_of_the_mean_over_draws() -> None:
    task = dp_mixture(TABLE, BASE, max_components=3).prediction(TABLE[:4])
    other = PARAMS | {"components": PARAMS["components"][::-1].copy()}
    reduction = task.log_predictive(draws=3)
    state = reduction.start(tensors(PARAMS), tf.float64)
    for draw in (PARAMS, other):
        state = tf.function(reduction.update)(state, tensors(draw))
    found = reduction.result(state)
    each = [task.log_probabilities(tensors(draw)).numpy() for draw in (PARAMS, other)]
    expected = [np.log(np.mean(np.exp(each[: i + 1]), axis=0)).mean() for i in range(2)]
    np.testing.assert_allclose(found["log_predictive"], [*expected, np.nan], rtol=1e-10)
    np.testing.assert_allclose(
        found["of_draw"], [*np.mean(each, axis=1), np.nan], rtol=1e-10
    )
    words = TABLE[:4].sum() / 4
    np.testing.assert_allclose(
        found["perplexity"][:2], np.exp(-np.array(expected) / words)
    )


# ------------------------------------------------------------------------ what goes in


@pytest.mark.parametrize(
    ("counts", "changes", "error", "message"),
    [
        ([1, 2], {}, ValueError, "`counts` must have two axes"),
        (
            [[1, -2]],
            {},
            ValueError,
            "`counts` must hold integers of at least 0; it holds -2",
        ),
        ([[1, 0.5]], {}, ValueError, "it holds 0.5"),
        ([["a", "b"]], {}, TypeError, "`counts` must hold integers; its dtype"),
        ([[1, 2], [0, 0]], {}, ValueError, "`counts`: observation 1 is empty"),
        ([[1, 2]], {"base": 0}, ValueError, "`base` must be positive"),
        ([[1, 2]], {"base": "1"}, TypeError, "`base` must be a positive number"),
        (
            [[1, 2]],
            {"concentration": 1.0},
            ValueError,
            "`concentration` must be two numbers",
        ),
        ([[1, 2]], {"concentration": (1.0, -1.0)}, ValueError, r"`concentration\[1\]`"),
        (
            [[1, 2]],
            {"max_components": 0},
            ValueError,
            "`max_components` must be an integer",
        ),
        ([[1, 2]], {"max_components": 2**31}, ValueError, "too many"),
    ],
)
def test_wrong_arguments_are_named(
    counts: Any, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        dp_mixture(counts, **changes)


def test_wrong_arguments_of_the_methods_are_named() -> None:
    model = dp_mixture([[1, 2]], max_components=3)
    with pytest.raises(KeyError, match="latents=model.latents"):
        model.gibbs(tensors(PARAMS), model.dataset, tf.constant([1, 2]))
    with pytest.raises(KeyError, match="gibbs=model.gibbs"):
        model.log_lik(tensors(PARAMS), model.dataset | model.latents)
    with pytest.raises(
        ValueError, match="`n_components` is 4, and the model holds at most 3"
    ):
        model.start(n_components=4)
    with pytest.raises(ValueError, match="`n_components` must be an integer"):
        model.start(n_components=0)
    with pytest.raises(ValueError, match="`counts` has 3 words, and the model 2"):
        model.prediction([[1, 2, 3]])
    with pytest.raises(ValueError, match="`counts`: observation 0 is empty"):
        model.allocations(PARAMS, [[0, 0]])
    with pytest.raises(ValueError, match="`draws`"):
        model.prediction([[1, 2]]).log_predictive(draws=0)
