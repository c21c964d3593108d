"""The density of a group's effects, entry by entry or of matrices."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from sgmcmc.regression.model import Effects
from tests import seams


def effects(correlated: tuple[tuple[int, ...], ...]) -> Effects:
    q = sum(map(len, correlated))
    return Effects(
        "g",
        "g",
        (),
        tuple("abcd"[:q]),
        (),
        correlated,
        np.zeros(q),
        np.linspace(1, 3, q),
        2.0,
    )


@pytest.mark.parametrize(
    "correlated", [((0, 1),), ((0, 1, 2),), ((0, 1, 2, 3),), ((0, 1), (2,))]
)
def test_the_density_is_that_of_its_covariance(
    correlated: tuple[tuple[int, ...], ...],
) -> None:
    found, rng = effects(correlated), np.random.default_rng(len(correlated[0]))
    q = len(found.terms)
    sds, r = rng.uniform(0.5, 2.0, q), rng.normal(size=(5, q))
    partial = rng.uniform(-0.9, 0.9, len(found.pairs))
    params = {"sd_g": tf.constant(sds), "cor_g": tf.constant(partial)}
    value = found.log_density({"r_g": tf.constant(r)}, params).numpy()
    root = np.array(found.root(sds * found.scale / found.unit, partial), float)
    squares = (np.linalg.solve(root, r.T) ** 2).sum(0)
    logs = np.log(np.diag(root)).sum() + 0.5 * q * np.log(2 * np.pi)
    np.testing.assert_allclose(value, -0.5 * squares - logs, rtol=1e-12)


def test_both_forms_have_the_same_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    found, rng = effects(((0, 1, 2),)), np.random.default_rng(0)
    r = tf.constant(rng.normal(size=(4, 3)))

    def derivatives() -> list[np.ndarray]:
        params = {
            "sd_g": tf.ones(3, tf.float64),
            "cor_g": tf.constant([0.3, 0.0, -0.8]),
        }
        params["cor_g"] = tf.cast(params["cor_g"], tf.float64)
        with tf.GradientTape() as outer:
            outer.watch(params)
            with tf.GradientTape() as inner:
                inner.watch(params)
                value = tf.reduce_sum(found.log_density({"r_g": r}, params))
            slopes = list(inner.gradient(value, params).values())
            flat = tf.concat(slopes, 0)
        return [
            flat.numpy(),
            *(part.numpy() for part in outer.jacobian(flat, params).values()),
        ]

    both = derivatives()
    settings = seams.changed(seams.REGRESSION_MODEL, many_effects=9)
    monkeypatch.setattr(seams.REGRESSION_MODEL, settings)
    for one, other in zip(both, derivatives(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
