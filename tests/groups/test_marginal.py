"""Effects integrated out, against algebra; packs of whole groups."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.special
import scipy.stats
import tensorflow as tf

from sgmcmc.groups import Groups
from sgmcmc.groups.labels import labeled
from sgmcmc.groups.marginal import Marginal
from sgmcmc.groups.packs import MODE, ROOT, SLOT, pack
from sgmcmc.groups.structure import read_groups

LOG_2PI = np.log(2 * np.pi)
SIZES = np.array([1, 7, 3, 3, 12, 2, 5, 9, 1, 4])
GROUP = np.repeat(np.arange(len(SIZES)), SIZES)


def _linear(dims: int, seed: int = 1):
    """Return the data of a linear mixed model, and its parameters."""
    rng = np.random.default_rng(seed)
    n = len(GROUP)
    z = np.stack([rng.normal(size=n) for _ in range(dims)], 1)
    z[:, 0] = 1.0
    x = rng.normal(size=n)
    effects = rng.normal(size=(len(SIZES), dims)) * 0.7
    y = 0.4 + 0.9 * x + (z * effects[GROUP]).sum(1) + 0.6 * rng.normal(size=n)
    return {"x": x, "y": y, "Z": z, "g": GROUP}, np.array([0.4, 0.9, 0.6, 0.7])


def _log_lik(p, d):
    mean = p["a"] + p["b"] * d["x"] + tf.reduce_sum(d["Z"] * p["u"], 1)
    return -0.5 * ((d["y"] - mean) / p["s"]) ** 2 - tf.math.log(p["s"]) - 0.5 * LOG_2PI


def _law(effects, p):
    u = effects["u"] / p["tau"][..., tf.newaxis]
    return tf.reduce_sum(-0.5 * u**2 - 0.5 * LOG_2PI, 1) - u.shape[1] * tf.math.log(
        p["tau"]
    )


def _named(v):
    return dict(zip(("a", "b", "s", "tau"), tf.unstack(v), strict=True))


def _derivatives(terms, at):
    """Return gradient and Hessian of a sum of terms."""

    @tf.function
    def both(v):
        with tf.GradientTape() as outer:
            outer.watch(v)
            with tf.GradientTape() as inner:
                inner.watch(v)
                value = tf.reduce_sum(terms(v))
            slope = inner.gradient(value, v)
        return slope, outer.jacobian(slope, v, experimental_use_pfor=False)

    return both(tf.constant(at, tf.float64))


def _model(dims: int, nodes: int | None = None, normal: bool = False):
    data, at = _linear(dims)
    groups = Groups("g", {"u": np.zeros(dims)}, _law, nodes, normal=normal)
    params = dict(zip(("a", "b", "s", "tau"), at, strict=True))
    model = read_groups(groups, _log_lik, data, params, None, tf.float64)
    tensors = {
        name: tf.convert_to_tensor(value) for name, value in model.dataset.items()
    }
    return model, tensors, data, at


def _exact(data, v):
    """The log density of a multivariate normal."""
    same = data["g"][:, None] == data["g"][None, :]
    cov = v[3] ** 2 * (data["Z"] @ data["Z"].T) * same + v[2] ** 2 * np.eye(len(same))
    mean = v[0] + v[1] * data["x"]
    return scipy.stats.multivariate_normal(mean, cov).logpdf(data["y"])


@pytest.mark.parametrize("normal", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_linear_mixed_model_has_the_value_of_algebra(dims, normal):
    model, tensors, data, at = _model(dims, normal=normal)
    found = tf.reduce_sum(model.log_lik(_named(tf.constant(at)), tensors))
    # Quadrature of a normal density around its own mode is exact, up to the steps of the search.
    np.testing.assert_allclose(float(found), _exact(data, at), rtol=1e-10)


def _held_anywhere(model, dims):
    """Return packs that hold nodes at places that are not the modes of their groups."""
    rng, packs, most = (
        np.random.default_rng(2),
        len(model.dataset[SLOT]),
        model.log_lik.most,
    )
    root = np.tril(rng.normal(0.0, 0.5, (packs, most, dims, dims)), -1) + 2.0 * np.eye(
        dims
    )
    mode = rng.normal(size=(packs, most, dims))
    return {MODE: tf.constant(mode), ROOT: tf.constant(root)}


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_closed_form_has_the_value_of_algebra_wherever_its_nodes_are(dims):
    model, tensors, data, at = _model(dims, normal=True)
    packs = {**tensors, **_held_anywhere(model, dims)}
    found = tf.reduce_sum(model.log_lik(_named(tf.constant(at)), packs))
    np.testing.assert_allclose(float(found), _exact(data, at), rtol=1e-10)


def test_closed_form_keeps_its_digits_far_from_where_its_nodes_are_held():
    """A scale may come near zero in a chain: heights at nodes of another scale have no digits."""
    model, tensors, data, at = _model(2, normal=True)
    packs = {**tensors, **_held_anywhere(model, 2)}
    single = {
        name: tf.cast(t, tf.float32) if t.dtype.is_floating else t
        for name, t in packs.items()
    }
    at[3] = 1e-3

    def value_and_slope(columns, dtype):
        with tf.GradientTape() as tape:
            v = tf.constant(at, dtype)
            tape.watch(v)
            value = tf.reduce_sum(model.log_lik(_named(v), columns))
        return float(value), tape.gradient(value, v).numpy()

    _, exact = value_and_slope(packs, tf.float64)
    value, slope = value_and_slope(single, tf.float32)
    np.testing.assert_allclose(value, _exact(data, at), rtol=1e-5)
    # The gradient in log τ is of the size of the number of effects.
    error = (slope - exact) * at
    assert np.abs(error).max() < 1e-3


def _exact_of_any_scale(data, v):
    """The same from eigenvalues of each group, which keeps its digits at any τ."""
    total, rest = 0.0, data["y"] - v[0] - v[1] * data["x"]
    for g in range(len(SIZES)):
        z, r = data["Z"][GROUP == g], rest[GROUP == g]
        vectors, roots, _ = np.linalg.svd(z, full_matrices=False)
        along, variances = vectors.T @ r, v[2] ** 2 + (v[3] * roots) ** 2
        total -= 0.5 * (np.log(variances).sum() + (along**2 / variances).sum())
        total -= 0.5 * (r @ r - along @ along) / v[2] ** 2 + (
            len(r) - len(roots)
        ) * np.log(v[2])
    return total - 0.5 * len(GROUP) * LOG_2PI


@pytest.mark.parametrize("dtype", [tf.float64, tf.float32])
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.some(2)
def test_closed_form_is_right_at_any_scale_of_effects(dims, held, dtype):
    """There is no false peak where the SD of effects goes to zero."""
    model, tensors, data, at = _model(dims, normal=True)
    packs = {**tensors, **(_held_anywhere(model, dims) if held else {})}
    given = {
        n: tf.cast(t, dtype) if t.dtype.is_floating else t for n, t in packs.items()
    }

    @tf.function
    def value(v):
        return tf.reduce_sum(model.log_lik(_named(v), given))

    # In float32 a group of one row does not tell 1e-12 from nothing in its second direction.
    largest = 10 if dims == 1 or dtype == tf.float64 else 4
    for scale in 10.0 ** np.arange(-30, largest + 1, 2):
        found = float(value(tf.constant([*at[:3], scale], dtype)))
        exact = _exact_of_any_scale(data, [*at[:3], scale])
        assert abs(found - exact) < (1e-6 if dtype == tf.float64 else 1e-3), scale


def test_a_scale_near_zero_around_a_mean_that_moves():
    """Effects around a parameter, far from where nodes are held."""
    data, at = _linear(1)

    def law(effects, p):
        away = (effects["u"][:, 0] - p["b"]) / p["tau"]
        return -0.5 * away**2 - 0.5 * LOG_2PI - tf.math.log(p["tau"])

    def log_lik(p, d):
        return -0.5 * (d["y"] - p["a"] - p["u"][:, 0]) ** 2 / p["s"] ** 2 - tf.math.log(
            p["s"]
        )

    groups = Groups("g", {"u": np.zeros(1)}, law, normal=True)
    params = dict(zip(("a", "b", "s", "tau"), at, strict=True))
    model = read_groups(groups, log_lik, data, params, None, tf.float64)
    packs = {name: tf.convert_to_tensor(value) for name, value in model.dataset.items()}
    packs |= _held_anywhere(model, 1)
    rest = data["y"] - at[0] - at[1]
    limit = -0.5 * rest @ rest / at[2] ** 2 - len(rest) * np.log(at[2])

    @tf.function
    def value(v):
        return tf.reduce_sum(model.log_lik(_named(v), packs))

    for scale in (1e-6, 1e-9, 1e-12, 1e-15, 1e-20, 1e-25, 1e-30):
        found = float(value(tf.constant([*at[:3], scale])))
        # Below 1e-12 no number is within an SD of the mean: it may be low there, never high.
        assert found < limit + 1 and (scale < 1e-13 or abs(found - limit) < 1e-3), scale


@pytest.mark.parametrize(
    ("dims", "normal", "held"),
    [
        pytest.param(1, False, False, marks=pytest.mark.slow),
        (2, False, False),
        pytest.param(2, True, False, marks=pytest.mark.slow),
        (2, True, True),
    ],
)
def test_derivatives_are_those_of_the_integral(dims, normal, held):
    model, tensors, data, at = _model(dims, normal=normal)
    if held:
        tensors |= _held_anywhere(model, dims)

    slope, bends = _derivatives(lambda v: model.log_lik(_named(v), tensors), at)
    step, axes = 1e-4, np.eye(4)

    def exact(move):
        return _exact(data, at + step * move)

    slopes = [(exact(a) - exact(-a)) / (2 * step) for a in axes]
    hessian = [
        [
            (exact(a + b) - exact(a - b) - exact(b - a) + exact(-a - b)) / (4 * step**2)
            for a in axes
        ]
        for b in axes
    ]
    # Central differences of the exact value: an error of about step² of the next derivatives.
    np.testing.assert_allclose(slope, slopes, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(bends, hessian, rtol=1e-4, atol=2e-3)


def test_closed_form_where_residuals_are_zero():
    """The third derivative of r ** 2 is NaN in TensorFlow at r = 0."""
    x = np.linspace(-1.0, 1.0, 6).reshape(3, 2).round(1)
    y = np.full((3, 2), 1e5)

    def log_lik(p, d):
        mean = 1e5 + p["b"] * d["x"] + p["z"]
        return -0.5 * ((d["y"] - mean) / p["s"]) ** 2 - tf.math.log(p["s"])

    def law(effects, p):
        return -0.5 * (effects["z"] / p["tau"]) ** 2 - tf.math.log(p["tau"])

    dataset = {"x": x.ravel(), "y": y.ravel(), "g": np.repeat(np.arange(3), 2)}
    at = {"b": 0.0, "s": 0.6, "tau": 0.7}
    groups = Groups("g", {"z": 0.0}, law, normal=True)
    model = read_groups(groups, log_lik, dataset, at, None, tf.float64)
    tensors = {
        name: tf.convert_to_tensor(value) for name, value in model.dataset.items()
    }

    def by_group(v):
        return model.log_lik(dict(zip(at, tf.unstack(v), strict=True)), tensors)

    slope, bends = _derivatives(by_group, list(at.values()))
    s2, t2 = (
        0.36,
        0.49,
    )  # a group's covariance is s² I + τ² 1 1ᵀ, with the eigenvalues s², s² + 2τ²
    np.testing.assert_allclose(
        slope, [0.0, -3 / 0.6 - 3 * 0.6 / (s2 + 2 * t2), -6 * 0.7 / (s2 + 2 * t2)], rtol=1e-9,
        atol=1e-12,
    )  # fmt: skip
    inverse = np.linalg.inv(s2 * np.eye(2) + t2)
    np.testing.assert_allclose(
        -bends[0, 0], np.einsum("gi,ij,gj", x, inverse, x), rtol=1e-9
    )
    assert np.isfinite(bends).all()


@pytest.mark.parametrize("rounded", ["log_lik", "law"])
def test_closed_form_is_refused_where_the_density_is_not_normal(rounded):
    def log_lik(p, d):
        found = _log_lik(p, d)
        return found - 0.1 * p["u"][:, 0] ** 4 if rounded == "log_lik" else found

    def law(effects, p):
        found = _law(effects, p)
        return (
            found - tf.math.log1p(effects["u"][:, 0] ** 2)
            if rounded == "law"
            else found
        )

    data, at = _linear(1)
    groups = Groups("g", {"u": np.zeros(1)}, law, normal=True)
    params = dict(zip(("a", "b", "s", "tau"), at, strict=True))
    with pytest.raises(ValueError, match=r"`groups`: 'g' has normal=True.*effect 'u'"):
        read_groups(groups, log_lik, data, params, None)


@pytest.mark.parametrize("apart", [True, False])
def test_closed_form_is_refused_where_effects_have_a_cubic_product(apart):
    """It is quadratic in each effect alone, and cubic in two together."""

    def log_lik(p, d):
        u, v = (p["u"], p["v"]) if apart else (p["w"][:, 0], p["w"][:, 1])
        return -0.5 * (d["y"] - p["a"] - u - 0.1 * u * v) ** 2

    def law(effects, p):
        return sum(-0.5 * tf.reduce_sum(tf.reshape(e, [e.shape[0], -1]) ** 2, 1)
                   for e in effects.values())  # fmt: skip

    data, _ = _linear(1)
    effects = {"u": 0.0, "v": 0.0} if apart else {"w": np.zeros(2)}
    groups = Groups("g", effects, law, normal=True)
    said = "effects 'u' and 'v'" if apart else "effect 'w'"
    with pytest.raises(ValueError, match=rf"`groups`: 'g' has normal=True.*{said}"):
        read_groups(groups, log_lik, data, {"a": 0.4}, None)


def _huber(r):
    return tf.where(tf.abs(r) < 3.0, 0.5 * r**2, 3.0 * tf.abs(r) - 4.5)


@pytest.mark.parametrize(
    "kind, normal",
    [
        ("linear", True),
        ("logistic", False),
        ("student, whose scale is far too large", False),  # quadratic nearby
        ("huber, whose scale is far too large", False),
        ("power 2", False),  # another value of the power is not
    ],
)
def test_functions_that_are_quadratic_in_the_effects_are_found(kind, normal):
    def log_lik(p, d):
        eta = p["a"] + p["u"][:, 0]
        if kind == "logistic":
            return -tf.nn.sigmoid_cross_entropy_with_logits(d["y"], eta)
        r = (d["y"] - eta) / p["s"]
        if kind.startswith("student"):
            return -2.5 * tf.math.log1p(r**2 / 4) - tf.math.log(p["s"])
        if kind.startswith("huber"):
            return -_huber(r)
        if kind.startswith("power"):
            return -0.5 * tf.abs(r) ** p["power"]
        return -0.5 * r**2 - tf.math.log(p["s"])

    data, _ = _linear(1)
    params = {
        "a": 0.4,
        "s": 100.0 if "large" in kind else 1.0,
        "power": 2.0,
        "tau": 0.7,
    }
    model = read_groups(
        Groups("g", {"u": np.zeros(1)}, _law), log_lik, data, params, None
    )
    assert model.structure.found_normal == normal
    assert (model.log_lik.nodes == 1) == normal
    for groups in (
        Groups("g", {"u": np.zeros(1)}, _law, normal=False),
        Groups("g", {"u": np.zeros(1)}, _law, nodes=5),
    ):
        asked = read_groups(groups, log_lik, data, params, None)
        assert not asked.structure.found_normal and asked.log_lik.nodes > 1


def test_logistic_groups_against_adaptive_integration():
    rng = np.random.default_rng(2)
    x = rng.normal(size=len(GROUP))
    y = (rng.uniform(size=len(GROUP)) < 0.6).astype(float)
    y[GROUP == 4] = 1.0  # a group that is separated

    def log_lik(p, d):
        return -tf.nn.sigmoid_cross_entropy_with_logits(
            d["y"], p["b"] * d["x"] + p["z"]
        )

    def law(effects, p):
        return (
            -0.5 * (effects["z"] / p["tau"]) ** 2
            - tf.math.log(p["tau"])
            - 0.5 * LOG_2PI
        )

    groups = Groups("g", {"z": 0.0}, law, 21)
    model = read_groups(
        groups,
        log_lik,
        {"x": x, "y": y, "g": GROUP},
        {"b": 0.5, "tau": 1.3},
        None,
        tf.float64,
    )
    tensors = {
        name: tf.convert_to_tensor(value) for name, value in model.dataset.items()
    }
    params = {"b": tf.constant(0.5, tf.float64), "tau": tf.constant(1.3, tf.float64)}
    found = (
        model.log_lik.of_slots(params, tensors)
        .numpy()
        .reshape(-1, model.structure.packs.most)
    )
    for g in range(len(SIZES)):
        eta, signs = 0.5 * x[GROUP == g], 2 * y[GROUP == g] - 1

        def density(z, eta=eta, signs=signs):
            terms = -np.logaddexp(0, -signs * (eta + z)).sum()
            return np.exp(terms + scipy.stats.norm.logpdf(z, scale=1.3))

        exact = np.log(
            scipy.integrate.quad(density, -12, 12, epsabs=1e-14, epsrel=1e-12)[0]
        )
        value = found[model.structure.packs.pack[g], model.structure.packs.slot[g]]
        # 21 nodes: what is left of the rule, for densities near normal.
        np.testing.assert_allclose(value, exact, atol=2e-6)


def test_more_nodes_are_nearer():
    exact = float(tf.reduce_sum(_poisson(41)))
    errors = [
        abs(float(tf.reduce_sum(_poisson(nodes))) - exact) for nodes in (3, 7, 15)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-6


def _poisson(nodes):
    rng = np.random.default_rng(3)
    y = rng.poisson(1.5, len(GROUP)).astype(float)

    def log_lik(p, d):
        return d["y"] * (p["b"] + p["z"]) - tf.exp(p["b"] + p["z"])

    def law(effects, p):
        return -0.5 * effects["z"] ** 2

    model = read_groups(
        Groups("g", {"z": 0.0}, law, nodes), log_lik, {"y": y, "g": GROUP}, {"b": 0.2}, None,
        tf.float64,
    )  # fmt: skip
    tensors = {
        name: tf.convert_to_tensor(value) for name, value in model.dataset.items()
    }
    return model.log_lik({"b": tf.constant(0.2, tf.float64)}, tensors)


def test_far_starts_and_heavy_groups_find_their_modes():
    counts = np.repeat([0.0, 4.0, 3000.0], 40)
    group = np.repeat(np.arange(3), 40)

    def log_lik(p, d):
        return d["y"] * (p["b"] + p["z"]) - tf.exp(p["b"] + p["z"])

    def law(effects, p):
        return -0.5 * (effects["z"] / 5.0) ** 2

    groups = Groups("g", {"z": -6.0}, law)
    model = read_groups(
        groups, log_lik, {"y": counts, "g": group}, {"b": 0.0}, None, tf.float64
    )
    tensors = {
        name: tf.convert_to_tensor(value) for name, value in model.dataset.items()
    }
    mode = (
        model.log_lik.normal({"b": tf.constant(0.0, tf.float64)}, tensors)
        .mode[:, 0]
        .numpy()
    )
    slope = counts.reshape(3, 40).sum(1) - 40 * np.exp(mode) - mode / 25
    sd = 1 / np.sqrt(40 * np.exp(mode) + 1 / 25)
    np.testing.assert_allclose(slope * sd, 0.0, atol=0.01)


@pytest.mark.parametrize("sizes", [SIZES, np.full(6, 4), np.array([500] + [2] * 300)])
def test_packs_hold_every_row_once_with_its_whole_group(sizes):
    codes = np.random.default_rng(1).permutation(
        np.repeat(np.arange(len(sizes)), sizes)
    )
    packs = pack(np.arange(len(sizes)), codes)
    there = packs.slots >= 0
    assert sorted(packs.rows[there].tolist()) == list(range(len(codes)))
    where = packs.pack[codes], packs.slot[codes]
    number = np.argsort(packs.rows[there])
    assert (np.nonzero(there)[0][number] == where[0]).all()
    assert (packs.slots[there][number] == where[1]).all()
    assert (packs.filled == np.bincount(packs.pack)).all()
    # Little is padded: a pack is as wide as the largest group, and most places are taken.
    assert packs.slots.shape[1] == sizes.max()
    assert there.mean() > 0.5
    if (sizes == sizes[0]).all():
        assert packs.most == 1


def test_labels_may_be_strings_categories_or_integers():
    found = labeled("g", ["b", "a", "b"])
    assert found.labels.tolist() == ["a", "b"] and found.codes.tolist() == [1, 0, 1]
    assert labeled("g", np.array([3.0, 1.0])).labels.tolist() == [1, 3]


def test_minibatches_of_packs_are_unbiased_over_all_of_them():
    model, tensors, _, at = _model(1)
    params = _named(tf.constant(at))
    every = model.log_lik(params, tensors).numpy()
    N = len(every)
    # All minibatches of one pack and of all but one, exactly.
    alone = [
        N
        * model.log_lik(params, {k: v[i : i + 1] for k, v in tensors.items()}).numpy()[
            0
        ]
        for i in range(N)
    ]
    np.testing.assert_allclose(np.mean(alone), every.sum(), rtol=1e-10)
    assert isinstance(model.log_lik, Marginal)


def _bad(**changes):
    data, at = _linear(1)
    params = dict(zip(("a", "b", "s", "tau"), at, strict=True))
    given = {
        "groups": Groups("g", {"u": np.zeros(1)}, _law),
        "log_lik": _log_lik,
        "dataset": data,
        "params": params,
        "log_prior": None,
    }
    given |= changes
    return read_groups(*given.values(), dtype=tf.float64)


def test_wrong_inputs_are_named():
    data, _ = _linear(1)
    n = len(GROUP)
    with pytest.raises(TypeError, match="`groups` must be sgmcmc.Groups"):
        _bad(groups="g")
    with pytest.raises(ValueError, match="`groups` names 'site'"):
        _bad(groups=Groups("site", {"u": [0.0]}, _law))
    with pytest.raises(ValueError, match="one level"):
        _bad(dataset={**data, "g": np.zeros(n, int)})
    with pytest.raises(ValueError, match="missing values, the first in row 0"):
        _bad(dataset={**data, "g": np.where(np.arange(n) == 0, np.nan, GROUP)})
    with pytest.raises(ValueError, match="`params` holds 'u'"):
        _bad(params={"a": 0.0, "b": 0.0, "s": 1.0, "tau": 1.0, "u": 0.0})
    with pytest.raises(ValueError, match="one term for each row"):
        _bad(log_lik=lambda p, d: tf.reduce_sum(_log_lik(p, d)))
    with pytest.raises(ValueError, match="`log_lik` mixes rows"):
        _bad(log_lik=lambda p, d: _log_lik(p, d) + tf.reduce_sum(p["u"]))
    with pytest.raises(
        ValueError, match="`log_lik` mixes rows: the terms of some rows differ"
    ):
        _bad(log_lik=lambda p, d: _log_lik(p, d) * tf.reduce_mean(d["y"]))
    with pytest.raises(
        ValueError, match="the log_prior of 'g' must return the log density"
    ):
        _bad(groups=Groups("g", {"u": [0.0]}, lambda e, p: tf.reduce_sum(_law(e, p))))
    with pytest.raises(ValueError, match="the log_prior of 'g' mixes groups"):
        _bad(
            groups=Groups(
                "g", {"u": [0.0]}, lambda e, p: _law(e, p) - tf.reduce_sum(e["u"] ** 2)
            )
        )
    with pytest.raises(ValueError, match="`log_lik` ignores the effect 'u'"):
        _bad(log_lik=lambda p, d: -0.5 * (d["y"] - p["a"]) ** 2)
    with pytest.raises(ValueError, match="`log_lik` must return one term for each row"):
        _bad(
            log_lik=lambda p, d: (
                _log_lik(p, d)[:, tf.newaxis] * tf.ones([1, 2], tf.float64)
            )
        )
    with pytest.raises(ValueError, match=r"one label for each row; its shape is \(2, "):
        _bad(dataset={**data, "g": np.stack([GROUP, GROUP])})
    with pytest.raises(ValueError, match="`groups` is an empty list"):
        _bad(groups=[])
    with pytest.raises(ValueError, match="two factors have effects called 'u'"):
        _bad(groups=[Groups("g", {"u": [0.0]}, _law), Groups("g", {"u": [0.0]}, _law)])
    with pytest.raises(ValueError, match=r"`nodes` must be an integer, 1 or more"):
        Groups("g", {"u": 0.0}, _law, nodes=0)
    with pytest.raises(TypeError, match="`log_prior` must be a function"):
        Groups("g", {"u": 0.0}, None)
    with pytest.raises(ValueError, match=r"`effects` is empty"):
        Groups("g", {}, _law)
    with pytest.raises(ValueError, match=r"`effects\['u'\]` must be finite"):
        Groups("g", {"u": np.nan}, _law)
    with pytest.raises(TypeError, match="`by` must name"):
        Groups(3, {"u": 0.0}, _law)


def _bernoulli(params, data):
    eta = params["a"] + params["b"] * data["x"] + params["u"]
    return data["y"] * eta - tf.math.softplus(eta)


def _intercepts(effects, params):
    tau = params["tau"]
    return -0.5 * (effects["u"] / tau) ** 2 - tf.math.log(tau) - 0.5 * LOG_2PI


@pytest.mark.parametrize(
    ("nodes", "theirs"),
    [
        (1, [-0.1487418985, 0.6238225077, 0.6686574252, -130.0777897]),
        pytest.param(
            25, [-0.1505286899, 0.6295742958, 0.7201608918, -129.8782816],
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_maximum_of_glmer(nodes, theirs):
    """The same as lme4's `glmer(y ~ x + (1 | g), d, binomial, nAGQ = nodes)`, version 1.1-31."""
    rng = np.random.default_rng(5)
    group, x = np.repeat(np.arange(40), 5), rng.normal(size=200)
    eta = -0.3 + 0.8 * x + 1.2 * rng.normal(size=40)[group]
    y = (rng.random(200) < 1 / (1 + np.exp(-eta))).astype(float)
    groups = Groups("g", {"u": 0.0}, _intercepts, nodes)
    start = {"a": 0.0, "b": 0.0, "tau": 1.0}
    model = read_groups(
        groups, _bernoulli, {"x": x, "y": y, "g": group}, start, None, tf.float64
    )
    tensors = {
        name: tf.convert_to_tensor(value) for name, value in model.dataset.items()
    }

    @tf.function
    def negative(v):
        with tf.GradientTape() as tape:
            tape.watch(v)
            value = -tf.reduce_sum(
                model.log_lik(dict(zip(start, tf.unstack(v), strict=True)), tensors)
            )
        return value, tape.gradient(value, v)

    found = scipy.optimize.minimize(
        lambda v: tuple(np.asarray(part) for part in negative(tf.constant(v))),
        [0.0, 0.0, 1.0], jac=True, method="BFGS",
    )  # fmt: skip
    # The tolerance of its search.
    np.testing.assert_allclose([*found.x, -found.fun], theirs, atol=5e-4)
