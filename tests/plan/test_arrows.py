"""Blocks of the information found by products with the Hessian, and products of many vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from sgmcmc.data.reading import read_dataset
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import Target
from sgmcmc.plan.curvature import Products, arrow_at, dense_at, find_structure
from sgmcmc.plan.objective import Objective
from tests import seams

G, N = 25, 200
SHAPES = {"beta": (3,), "tau": (), "slopes": (G, 2), "own": (G,), "other": (8,)}


def log_lik(params: Mapping[str, Any], data: Mapping[str, Any]) -> tf.Tensor:
    slopes = tf.gather(params["slopes"], data["group"])
    eta = tf.linalg.matvec(data["X"], params["beta"]) + tf.gather(
        params["other"], data["other"]
    )
    eta += params["tau"] * (slopes[:, 0] + slopes[:, 1] * data["X"][:, 1])
    return data["y"] * eta - tf.math.softplus(
        eta + tf.gather(params["own"], data["group"])
    )


def log_prior(params: Mapping[str, Any]) -> tf.Tensor:
    return -20.0 * tf.add_n([tf.reduce_sum(value**2) for value in params.values()])


def objective(names: Sequence[str]) -> tuple[Objective, Any]:
    """Return the log posterior of a model with two effects and one more for each group."""
    rng = np.random.default_rng(1)
    dataset = {
        "X": rng.normal(size=(N, 3)),
        "y": rng.integers(0, 2, N).astype(float),
        "group": tf.constant(rng.integers(0, G, N), tf.int32),
        "other": tf.constant(rng.integers(0, 8, N), tf.int32),
    }
    data = read_dataset(dataset, tf.float64, ())
    space = Space({name: SHAPES[name] for name in names})
    return Objective(Target(log_lik, log_prior, space, tf.float64), data), data


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(list(SHAPES), id="last"),
        pytest.param(list(SHAPES)[::-1], id="first", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("most", [50, 5], ids=["averaged", "at the mean"])
def test_blocks_are_found_and_the_information_is_that_of_all_coordinates(
    names: list[str], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two parameters of the same groups belong together; a factor of few levels is of the core,
    before the parameters of few coordinates or after them."""
    monkeypatch.setattr(seams.ARROWS_FEW, most)
    found, data = objective(names)
    layout, d = found.target.space.layout, found.size
    u = 0.3 * np.random.default_rng(2).normal(size=d)
    structure = find_structure(found, layout, u, seed=1)
    assert structure is not None and set(structure.names) == {"slopes", "own"}
    assert structure.leaves.shape == (G, 3) and len(structure.core) == d - 3 * G
    information = -found.likelihood_hessian(u) - found.prior_hessian(u)
    for few in (100, 0):  # one by one; and compiled, in blocks
        monkeypatch.setattr(seams.ONE_BY_ONE, few)
        times = Products(found, found.target, data)
        np.testing.assert_allclose(times(u, np.eye(d)), information, atol=1e-10)
        for whitening in (
            arrow_at(times, structure, [u], seed=3),
            dense_at(times, [u]),
        ):
            C = whitening.times(np.eye(d)).T
            np.testing.assert_allclose(C.T @ information @ C, np.eye(d), atol=1e-8)


def test_dense_information_has_no_blocks() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(100, 30))
    data = read_dataset({"X": X, "y": X[:, 0]}, tf.float64, ())

    def squares(params: Mapping[str, Any], data: Mapping[str, Any]) -> tf.Tensor:
        return -0.5 * (data["y"] - tf.linalg.matvec(data["X"], params["beta"])) ** 2

    found = Objective(
        Target(squares, log_prior, Space({"beta": (30,)}), tf.float64), data
    )
    assert (
        find_structure(found, found.target.space.layout, np.zeros(30), seed=1) is None
    )
