"""Coordinates of effects that are not integrated out, between centered and non-centered ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.data.dataset import Minibatch
from sgmcmc.data.reading import read_dataset
from sgmcmc.groups.coordinates import EffectCoordinates, Known, density_at, is_normal
from sgmcmc.groups.structure import read_groups
from sgmcmc.model.geometry import Bijected, Space
from sgmcmc.model.target import Target
from sgmcmc.plan.joint_mode import EffectsMode
from tests import seams

J, EACH, SIGMA = 6, 4, 0.7
GLOBALS = {"m": 0.3, "tau": 0.6, "s": np.array([0.5, 2.0])}
NAMES = ("z", "w", "v")


def one_number(effects: Any, params: Any) -> tf.Tensor:
    return -0.5 * ((effects["z"] - params["m"]) / params["tau"]) ** 2 - tf.math.log(
        params["tau"]
    )


def three_numbers(effects: Any, params: Any) -> tf.Tensor:
    square = tf.reduce_sum((effects["w"] / params["s"]) ** 2, 1)
    both = (effects["v"] - effects["w"][:, 0]) ** 2
    return -0.5 * (square + both) - tf.reduce_sum(tf.math.log(params["s"]))


ONE = sgmcmc.Groups("a", {"z": 0.0}, one_number)
THREE = sgmcmc.Groups("b", {"w": np.zeros(2), "v": 0.0}, three_numbers)


def parameters() -> dict[str, tf.Tensor]:
    rng = np.random.default_rng(1)
    shapes = {"z": (J,), "w": (J, 2), "v": (J,)}
    effects = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    return {
        name: tf.constant(value, tf.float64)
        for name, value in (GLOBALS | effects).items()
    }


def coordinates() -> EffectCoordinates:
    rng = np.random.default_rng(2)
    roots = rng.normal(size=(J, 3, 3))
    known = [
        Known(ONE, rng.uniform(0, 5, (J, 1, 1)), rng.normal(size=(J, 1))),
        Known(THREE, roots @ np.swapaxes(roots, 1, 2), rng.normal(size=(J, 3))),
    ]
    return EffectCoordinates(known, tuple(GLOBALS))


def test_the_change_of_variables_is_undone_and_its_determinant_is_right() -> None:
    joint, params = coordinates(), parameters()
    back = joint.own(joint.user(params))
    for name in params:
        np.testing.assert_allclose(back[name], params[name], rtol=1e-12, atol=1e-12)
    with tf.GradientTape(persistent=True) as tape:
        flat = tf.concat([tf.reshape(params[name], [-1]) for name in NAMES], 0)
        tape.watch(flat)
        parts = tf.split(flat, [tf.size(params[name]) for name in NAMES])
        given = dict(params)
        for name, part in zip(NAMES, parts, strict=True):
            given[name] = tf.reshape(part, params[name].shape)
        user = joint.user(given)
        found = tf.concat([tf.reshape(user[name], [-1]) for name in NAMES], 0)
    _, expected = np.linalg.slogdet(tape.jacobian(found, flat).numpy())
    np.testing.assert_allclose(joint.log_jacobian(params), expected, rtol=1e-10)
    np.testing.assert_allclose(joint.log_jacobian(user), expected, rtol=1e-10)


def test_of_a_normal_model_they_are_standard_normal_whatever_the_scale_is() -> None:
    rng = np.random.default_rng(3)
    codes = np.repeat(np.arange(J), EACH)
    y = rng.normal(size=J * EACH)
    information = np.full((J, 1, 1), EACH / SIGMA**2)
    score = np.bincount(codes, y)[:, np.newaxis] / SIGMA**2
    joint = EffectCoordinates([Known(ONE, information, score)], ("m", "tau"))
    shapes = {"m": (), "tau": (), "z": (J,)}
    space = Space(shapes, {"tau": Bijected(tfp.bijectors.Exp(), ())}, joint=joint)

    def log_lik(params: Any, data: Any) -> tf.Tensor:
        return -0.5 * ((data["y"] - tf.gather(params["z"], codes)) / SIGMA) ** 2

    def log_prior(params: Any) -> tf.Tensor:
        return tf.reduce_sum(one_number({"z": params["z"]}, params))

    target = Target(log_lik, log_prior, space, tf.float64)
    rows = Minibatch({"y": tf.constant(y)})
    for scale in (1e-3, 0.6, 50.0):
        u = np.concatenate([[0.2, np.log(scale)], rng.normal(size=J)])
        gradient = target.gradient(tf.constant(u), rows).numpy()
        np.testing.assert_allclose(gradient[2:], -u[2:], rtol=1e-6, atol=1e-6)
        params = space.params(u, tf.float64)
        np.testing.assert_allclose(
            space.start(params, tf.float64), u, rtol=1e-6, atol=1e-6
        )
        draws = {name: np.stack([value, value]) for name, value in params.items()}
        own = space.of_draws(draws)
        np.testing.assert_allclose(own["z"][1], u[2:], rtol=1e-6, atol=1e-6)


def test_a_density_that_is_not_normal_is_left_as_it_is() -> None:
    def student(effects: Any, params: Any) -> tf.Tensor:
        return -2.5 * tf.math.log1p((effects["z"] / params["tau"]) ** 2 / 4)

    own = {name: np.asarray(value) for name, value in GLOBALS.items()}
    assert is_normal(ONE, own) and is_normal(THREE, own)
    assert not is_normal(sgmcmc.Groups("a", {"z": 0.0}, student), own)


def density(name: str) -> Any:
    """Return the log density of effects that are N(0, sd²), with their sd a parameter."""

    def of_groups(effects: Any, params: Any) -> tf.Tensor:
        sd = params[f"sd_{name}"]
        return -0.5 * (effects[name] / sd) ** 2 - tf.math.log(sd)

    return of_groups


def crossed(scale: float, N: int, levels: tuple[int, int]) -> dict[str, Any]:
    """Return a call with crossed effects, of which the second has a given SD."""
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, count, N) for count in levels)
    eta = 0.7 * rng.normal(size=levels[0])[a] + scale * rng.normal(size=levels[1])[b]
    y = (rng.random(N) < 1 / (1 + np.exp(-eta))).astype(np.float32)

    def log_lik(params: Any, rows: Any) -> tf.Tensor:
        eta = params["mu"] + params["u"] + params["v"]
        return rows["y"] * eta - tf.math.softplus(eta)

    def log_prior(params: Any) -> tf.Tensor:
        return -0.5 * params["mu"] ** 2 - params["sd_u"] - params["sd_v"]

    factors = {"u": "a", "v": "b"}
    return {
        "log_lik": log_lik, "dataset": {"y": y, "a": a, "b": b}, "log_prior": log_prior,
        "params": {"mu": 0.0, "sd_u": 1.0, "sd_v": 1.0}, "seed": 1, "verbose": False,
        "groups": [sgmcmc.Groups(by, {n: 0.0}, density(n)) for n, by in factors.items()],
        "bijectors": {f"sd_{name}": tfp.bijectors.Exp() for name in factors},
    }  # fmt: skip


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_whitening_of_many_effects_is_that_of_the_information_at_the_mode(
    whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = seams.changed(seams.GROUPS_STRUCTURE, many_effects=5)
    monkeypatch.setattr(seams.GROUPS_STRUCTURE, settings)
    given = crossed(0.5, 400, (15, 8))
    model = read_groups(
        given["groups"], given["log_lik"], given["dataset"], given["params"], given["log_prior"],
        tf.float64, whole=whole,
    )  # fmt: skip
    assert (model.structure.integrated is None) == whole
    shapes = {name: np.shape(value) for name, value in model.params.items()}
    geometries = {name: Bijected(b, ()) for name, b in given["bijectors"].items()}
    target = Target(
        model.log_lik, model.log_prior, Space(shapes, geometries), tf.float64
    )
    data = read_dataset(model.dataset, tf.float64, model.integers)
    factors = model.structure.coordinates
    search = EffectsMode(target, data, factors, tuple(given["params"]), 1)
    joint, u = search.run(target.space.start(model.params, tf.float64))
    around = search.around(joint, u)
    x = around.whitening.origin
    root = around.whitening.times(np.eye(len(x))).T
    differences = [
        search.look(joint, x - c)[1] - search.look(joint, x + c)[1]
        for c in 0.05 * root.T
    ]
    information = root.T @ np.stack(differences).T / 0.1
    of_others = information[around.others]
    np.testing.assert_allclose(of_others, np.eye(len(x))[around.others], atol=0.06)
    # Directions with less than twice the usual information, or more than half, are left.
    values = np.linalg.eigvalsh((information + information.T) / 2)
    assert values[0] > 1 / 2.2 and values[-1] < 2.2
    assert np.abs(root.T @ search.look(joint, x)[1]).max() < 0.3
    move = np.random.default_rng(1).standard_normal(len(x))
    np.testing.assert_allclose(
        around.whitening.into(x + around.whitening.times(move)), move
    )


@pytest.mark.parametrize("levels, whole, integrated", [
    ((800, 400), True, None),
    ((800, 400), False, "a"),  # minibatches of groups
    ((800, 20), True, "a"),
    ((400, 800), True, None),
])  # fmt: skip
def test_no_effects_of_large_crossed_factors_are_integrated_out(
    levels: tuple[int, int], whole: bool, integrated: str | None
) -> None:
    assert _integrated(crossed(0.5, 4000, levels), whole) == integrated


def test_effects_of_nested_factors_are_integrated_out() -> None:
    given = crossed(0.5, 4000, (800, 400))
    given["dataset"]["b"] = given["dataset"]["a"] // 2
    assert _integrated(given, True) == "a"


def _integrated(given: dict[str, Any], whole: bool) -> str | None:
    model = read_groups(
        given["groups"], given["log_lik"], given["dataset"], given["params"], given["log_prior"],
        whole=whole,
    )  # fmt: skip
    integrated = model.structure.integrated
    return None if integrated is None else integrated.by


@pytest.mark.slow
def test_a_chain_on_disk_goes_on_in_the_same_coordinates(tmp_path: Path) -> None:
    given = crossed(0.5, 200, (12, 4))
    given |= {"n_chains": 2, "store": tmp_path / "draws", "burn_in": 0}
    first = sgmcmc.hmc(**given, n_iters=100)
    kept = np.array(first["v"])
    longer = sgmcmc.hmc(**given, n_iters=120)
    np.testing.assert_array_equal(np.array(longer["v"])[:, :100], kept)
    assert longer.settings["own_coordinates"] == {"v": EffectCoordinates.coordinates}


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.0, 0.6])
def test_crossed_effects_agree_with_a_model_written_without_groups(
    scale: float,
) -> None:
    given = crossed(scale, 3000, (60, 12))
    a, b = given["dataset"]["a"], given["dataset"]["b"]
    samples = sgmcmc.sample(**given, ess=2000)
    assert samples.settings["method"] == "hmc"

    def log_lik(params: Any, rows: Any) -> tf.Tensor:
        u = params["sd_u"] * tf.gather(params["zu"], rows["a"])
        v = params["sd_v"] * tf.gather(params["zv"], rows["b"])
        eta = params["mu"] + u + v
        return rows["y"] * eta - tf.math.softplus(eta)

    def log_prior(params: Any) -> tf.Tensor:
        squares = tf.reduce_sum(params["zu"] ** 2) + tf.reduce_sum(params["zv"] ** 2)
        return given["log_prior"](params) - 0.5 * squares

    dataset = {
        "y": given["dataset"]["y"],
        "a": a.astype(np.int32),
        "b": b.astype(np.int32),
    }
    params = {**given["params"], "zu": np.zeros(60), "zv": np.zeros(12)}
    reference = sgmcmc.nuts(
        log_lik, dataset, params, log_prior, seed=2, n_iters=4000, verbose=False,
        bijectors=given["bijectors"], integers=["a", "b"],
    )  # fmt: skip
    for name in given["params"]:
        one, other = np.asarray(samples[name]), np.asarray(reference[name])
        assert abs(one.mean() - other.mean()) < 0.12 * other.std()
        assert abs(np.log(one.std() / other.std())) < 0.08
    effects = samples.effects("b")["v"].mean((0, 1))
    exact = (
        np.asarray(reference["sd_v"])[..., None] * np.asarray(reference["zv"])
    ).mean((0, 1))
    assert (
        np.abs(effects - exact).max()
        < 0.12 * np.asarray(samples["v"]).std((0, 1)).max()
    )


@pytest.mark.slow
@pytest.mark.parametrize("function", [sgmcmc.sample, sgmcmc.hmc])
def test_chains_that_nodes_are_too_few_for_run_again_with_others(
    function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where two factors are coordinates nodes are held at first; then they follow the draws."""
    monkeypatch.setattr(seams.QUADRATURE_ERROR, lambda *given: 1e9)
    rng, rows = np.random.default_rng(4), 240
    places = {
        name: rng.integers(0, levels, rows)
        for name, levels in zip("abc", (30, 6, 5), strict=True)
    }
    y = rng.poisson(np.exp(0.5 * rng.normal(size=30)[places["a"]] + 0.5)).astype(float)

    def log_lik(params: Any, rows: Any) -> tf.Tensor:
        eta = params["mu"] + params["ra"] + params["rb"] + params["rc"]
        return rows["y"] * eta - tf.exp(eta)

    def log_prior(params: Any) -> tf.Tensor:
        return (
            -params["sd_ra"]
            - params["sd_rb"]
            - params["sd_rc"]
            - 0.5 * params["mu"] ** 2
        )

    scales = {f"sd_r{name}": 0.5 for name in "abc"}
    samples = function(
        log_lik, {"y": y, **places}, {"mu": 0.0, **scales}, log_prior=log_prior, ess=50, seed=1,
        groups=[sgmcmc.Groups(name, {f"r{name}": 0.0}, density(f"r{name}")) for name in "abc"],
        bijectors=dict.fromkeys(scales, tfp.bijectors.Exp()), verbose=False, n_chains=2,
    )  # fmt: skip
    assert samples.report["Groups"]["integrated out"] == "a"
    assert (
        samples.report["Groups"]["nodes of a group"] == "around its mode at each draw"
    )


@pytest.mark.parametrize("q", [2, 4])
def test_a_normal_density_of_effects(q: int) -> None:
    """Its precision and the pull to its mean, by second derivatives or by differences."""
    rng = np.random.default_rng(q)
    root, mean = np.tril(rng.normal(size=(q, q))) + 2 * np.eye(q), rng.normal(size=q)

    def log_prior(effects: Any, params: Any) -> tf.Tensor:
        half = tf.linalg.matvec(
            tf.constant(root), effects["u"] - params["m"], transpose_a=True
        )
        return -0.5 * tf.reduce_sum(half**2, -1)

    groups = sgmcmc.Groups("g", {"u": np.zeros(q)}, log_prior)
    pull, precision = density_at(groups, {"m": tf.constant(mean)}, 1e-12)
    np.testing.assert_allclose(precision[0], root @ root.T, atol=1e-12)
    np.testing.assert_allclose(pull[0], root @ root.T @ mean, atol=1e-12)
