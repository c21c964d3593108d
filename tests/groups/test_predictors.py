"""Hessians of likelihoods whose effects are integrated out, from their linear predictors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from sgmcmc.data.dataset import ArrayColumn, Data
from sgmcmc.groups import Groups, predictors
from sgmcmc.groups.packs import SLOT
from sgmcmc.groups.structure import read_groups
from sgmcmc.model.geometry import Bijected, Space
from sgmcmc.model.target import Target
from sgmcmc.plan.fixed_nodes import ModeSearchingObjective
from sgmcmc.plan.objective import Objective
from tests import seams

RNG = np.random.default_rng(1)
SIZES = {
    "one to twelve rows": np.array([1, 7, 3, 3, 12, 2, 5, 9, 1, 4]),
    "four rows": np.full(10, 4),
    "one to forty": np.array([1, 1, 2, 1, 1, 1, 3, 1, 2, 40]),
}
EXP = Bijected(tfp.bijectors.Exp(), ())
D = 3


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams.FACTORED_FROM, 1)
    settings = seams.changed(seams.GROUPS_PREDICTORS, min_coordinates=1)
    monkeypatch.setattr(seams.GROUPS_PREDICTORS, settings)


def standard(effects: Any, params: Any) -> tf.Tensor:
    return tf.reduce_sum(-0.5 * effects["z"] ** 2, 1)


def scaled(effects: Any, params: Any) -> tf.Tensor:
    z = effects["z"] / params["tau"]
    return tf.reduce_sum(-0.5 * z**2, 1) - z.shape[1] * tf.math.log(params["tau"])


def linear(params: Any, data: Any) -> tf.Tensor:
    """Rows of numbers and of levels, and effects of groups with slopes."""
    eta = tf.linalg.matvec(data["X"], params["b"]) + tf.gather(
        params["f"], data["level"]
    )
    return eta + tf.reduce_sum(data["Z"] * params["z"], 1)


def logistic(params: Any, data: Any) -> tf.Tensor:
    return -tf.nn.sigmoid_cross_entropy_with_logits(
        labels=data["y"], logits=linear(params, data)
    )


def uncentered(params: Any, data: Any) -> tf.Tensor:
    return logistic({**params, "z": params["tau"] * params["z"]}, data)


def correlated(params: Any, data: Any) -> tf.Tensor:
    """Effects times a triangle of parameters, which is a product of data, too."""
    root = tf.reshape(
        tf.stack([params["tau"], 0.0, params["b"][0], params["tau"]]), [2, 2]
    )
    return logistic(
        {**params, "z": tf.matmul(params["z"], root, transpose_b=True)}, data
    )


def levels_alone(params: Any, data: Any) -> tf.Tensor:
    eta = tf.gather(params["f"], data["level"]) + tf.gather(params["g"], data["other"])
    eta += params["tau"] * params["z"][:, 0] + params["b"][0]
    return -tf.nn.sigmoid_cross_entropy_with_logits(labels=data["y"], logits=eta)


def gaussian(params: Any, data: Any) -> tf.Tensor:
    error = (data["y"] - linear(params, data)) / params["s"]
    return -0.5 * error**2 - tf.math.log(params["s"])


MODELS: dict[str, tuple[Any, Any, int, bool]] = {
    "scaled": (logistic, scaled, 1, False),
    "slopes": (logistic, scaled, 2, False),
    "uncentered": (uncentered, standard, 1, False),
    "correlated": (correlated, standard, 2, False),
    "levels": (levels_alone, standard, 1, False),
    "normal": (gaussian, scaled, 1, True),
    "normal slopes": (gaussian, scaled, 2, True),
}


def of(
    name: str, sizes: np.ndarray, held: bool = False
) -> tuple[Objective, np.ndarray]:
    """Return the objective of a model, and a position."""
    log_lik, law, dims, normal = MODELS[name]
    group, n = np.repeat(np.arange(len(sizes)), sizes), int(sizes.sum())
    dataset = {
        "X": RNG.normal(size=(n, D)),
        "Z": np.concatenate([np.ones((n, 1)), RNG.normal(size=(n, 1))], 1)[:, :dims],
        "y": (RNG.uniform(size=n) < 0.5).astype(float),
        "level": RNG.integers(0, 4, n).astype(np.int32),
        "other": RNG.integers(0, 5, n).astype(np.int32),
        "group": group,
    }
    params = {
        "b": np.zeros(D), "f": np.zeros(4), "g": np.zeros(5), "tau": 1.0, "s": 1.0,
    }  # fmt: skip
    groups = Groups("group", {"z": np.zeros(dims)}, law, normal=normal)
    integers = ["level", "other"]
    model = read_groups(groups, log_lik, dataset, params, None, tf.float64, integers)
    shapes = {key: np.shape(value) for key, value in params.items()}
    space = Space(shapes, {"tau": EXP, "s": EXP})
    columns = {
        key: ArrayColumn(np.asarray(value)) for key, value in model.dataset.items()
    }
    data = Data(columns, len(model.dataset[SLOT]))
    target = Target(model.log_lik, None, space, tf.float64)
    u = 0.3 * np.random.default_rng(2).standard_normal(space.layout.size)
    return ModeSearchingObjective(target, data) if held else Objective(target, data), u


def _unless_default(name: str, sizes: str, held: bool) -> Any:
    """Return a case, slow unless it is one of those that have all the others' parts."""
    default = (name, sizes, held) in (
        (
            "slopes",
            "one to twelve rows",
            False,
        ),  # two effects, whose law has parameters
        (
            "levels",
            "one to forty",
            False,
        ),  # no predictor of numbers, and groups of one row
        (
            "normal",
            "one to twelve rows",
            True,
        ),  # in closed form, at nodes that are held
    )
    return pytest.param(name, sizes, held, marks=() if default else pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "sizes", "held"),
    [
        *(_unless_default(name, "one to twelve rows", False) for name in MODELS),
        *(
            _unless_default("levels", sizes, False)
            for sizes in ("four rows", "one to forty")
        ),
        *(
            _unless_default(name, "one to twelve rows", True)
            for name in ("scaled", "normal")
        ),
    ],
)
@pytest.mark.some(1)
def test_hessian_of_grouped_predictors(name: str, sizes: str, held: bool) -> None:
    """That of differentiating twice, and its products with vectors."""
    objective, u = of(name, SIZES[sizes], held)
    assert objective.has_factors(u)
    found = objective.likelihood_hessian(u)
    (exact,) = objective._sum("hessian", u)
    scale = np.abs(exact).max()
    np.testing.assert_allclose(found, exact, rtol=1e-8, atol=1e-8 * scale)
    vectors = np.random.default_rng(3).standard_normal((len(u), 2))
    products = objective.times_hessians(u, vectors)
    np.testing.assert_allclose(products, exact @ vectors, atol=1e-7 * scale)


def test_other_likelihoods_have_the_general_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Laplace's approximation is another function; of few coordinates it takes less time."""
    objective, u = of("levels", SIZES["four rows"])
    target = objective.target
    laplace = Target(target.log_lik.with_nodes(1), None, target.space, target.dtype)
    assert not Objective(laplace, objective._pass.data).has_factors(u)
    settings = seams.changed(seams.GROUPS_PREDICTORS, min_coordinates=len(u) + 1)
    monkeypatch.setattr(seams.GROUPS_PREDICTORS, settings)
    assert predictors.find_predictors(target.log_lik, target, objective._one) is None
