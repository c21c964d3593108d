"""Groups of very unequal sizes: those that are too large for a pack, and those of one row."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

import sgmcmc
from sgmcmc.data.dataset import ArrayColumn, MappedColumn
from sgmcmc.groups.packs import large_groups, pack, packed, without_large
from sgmcmc.groups.structure import read_groups
from tests import seams

LOG_2PI = np.log(2 * np.pi)
SIZES = np.array([3, 4000, 1, 5, 2, *[3] * 60, 2500, 4, *[2] * 60])
CODES = np.random.default_rng(1).permutation(np.repeat(np.arange(len(SIZES)), SIZES))
LARGE = np.flatnonzero(SIZES > 1000)
NAMES = np.array([f"g{k:03}" for k in range(len(SIZES))])
TAU, SIGMA = 0.8, 1.0
RNG = np.random.default_rng(2)
X = RNG.normal(size=len(CODES))
Y = (
    0.5
    + X
    + TAU * RNG.normal(size=len(SIZES))[CODES]
    + SIGMA * RNG.normal(size=len(CODES))
)
DATA = {"x": X, "y": Y, "site": NAMES[CODES]}


def log_lik(params, dataset):
    mean = params["a"] + params["b"] * dataset["x"] + params["z"]
    return -0.5 * ((dataset["y"] - mean) / SIGMA) ** 2 - 0.5 * LOG_2PI


def law(effects, params):
    return (
        -0.5 * (effects["z"] / TAU) ** 2
        - np.log(TAU)
        - 0.5 * LOG_2PI
        + 0.0 * params["a"]
    )


GROUPS = sgmcmc.Groups("site", effects={"z": 0.0}, log_prior=law)


def test_packs_are_not_as_wide_as_the_largest_group():
    large = large_groups(CODES)
    np.testing.assert_array_equal(large, LARGE)
    packs = pack(np.arange(len(SIZES)), without_large(CODES, large))
    there = packs.slots >= 0
    assert packs.rows.shape[1] == 32
    assert sorted(packs.rows[there].tolist()) == list(range(len(CODES)))
    assert there.mean() > 0.8
    for k in (0, 3, 70):
        own = (np.nonzero(there)[0] == packs.pack[k]) & (
            packs.slots[there] == packs.slot[k]
        )
        assert sorted(packs.rows[there][own]) == np.flatnonzero(CODES == k).tolist()
    assert not len(large_groups(np.repeat(np.arange(20), 400)))


def test_effects_of_large_groups_are_parameters_and_the_density_is_that_of_algebra():
    model = read_groups(GROUPS, log_lik, DATA, {"a": 0.0, "b": 0.0}, None, tf.float64)
    assert model.params["z_large"].shape == (2,)
    assert model.structure.to_json()["site"]["large"] == NAMES[LARGE].tolist()
    tensors = {
        name: tf.convert_to_tensor(value) for name, value in model.dataset.items()
    }
    params = {
        "a": tf.constant(0.4, tf.float64),
        "b": tf.constant(0.9, tf.float64),
        "z_large": tf.constant([0.3, -0.2], tf.float64),
    }
    found = float(
        tf.reduce_sum(model.log_lik(params, tensors)) + model.log_prior(params)
    )
    exact = 0.0
    for g in range(len(SIZES)):
        rows = CODES == g
        rest = Y[rows] - 0.4 - 0.9 * X[rows]
        if g in LARGE:
            z = [0.3, -0.2][LARGE.tolist().index(g)]
            exact += scipy.stats.norm.logpdf(rest - z, scale=SIGMA).sum()
            exact += scipy.stats.norm.logpdf(z, scale=TAU)
        else:
            cov = TAU**2 + SIGMA**2 * np.eye(rows.sum())
            exact += scipy.stats.multivariate_normal(np.zeros(rows.sum()), cov).logpdf(
                rest
            )
    np.testing.assert_allclose(found, exact, rtol=1e-9)


def effect(params, dataset):
    return params["z"]


@pytest.fixture(scope="module")
def samples():
    return sgmcmc.hmc(
        log_lik, DATA, {"a": 0.0, "b": 0.0}, groups=GROUPS, n_chains=2, seed=1, verbose=False,
        ess=200,
    )  # fmt: skip


@pytest.mark.slow
def test_effects_and_predictions_know_large_groups(samples):
    drawn = samples.effects("site")["z"]
    assert drawn.shape[2] == len(SIZES)
    np.testing.assert_array_equal(drawn[:, :, LARGE], samples["z_large"])
    Z = (CODES[:, None] == np.arange(len(SIZES))).astype(float)
    design = np.column_stack([np.ones_like(X), X, Z])
    precision = design.T @ design / SIGMA**2
    precision[2:, 2:] += np.eye(len(SIZES)) / TAU**2
    cov = np.linalg.inv(precision)
    mean, sds = cov @ design.T @ Y / SIGMA**2, np.sqrt(np.diag(cov))
    # Four and more standard errors at an ESS of 200.
    assert np.abs((drawn.mean((0, 1)) - mean[2:]) / sds[2:]).max() < 5 / np.sqrt(200)
    np.testing.assert_allclose(drawn.std((0, 1)), sds[2:], rtol=0.05 + 5 / np.sqrt(400))
    assert abs(samples["a"].mean() - mean[0]) < 4 * sds[0] / np.sqrt(200)

    few = samples[::100]
    own = few.predict(effect, reduce=None)
    assert own.shape == (*few["a"].shape, len(Y))
    for place, number in enumerate(LARGE):
        of_rows = own[..., CODES == number]
        assert (of_rows == few["z_large"][..., place, np.newaxis]).all()


@pytest.mark.slow
def test_predictions_of_new_rows_know_large_groups(samples):
    few = samples[::20]
    found = few.predict(effect, {"x": np.zeros(2), "site": NAMES[[1, 3]]}, reduce=None)
    np.testing.assert_array_equal(found[..., 0], few["z_large"][..., 0])


def test_an_effect_of_each_row():
    rng = np.random.default_rng(5)
    n = 400
    y = rng.poisson(np.exp(1.0 + 0.5 * rng.normal(size=n))).astype(float)

    def terms(params, dataset):
        eta = params["a"] + params["z"]
        return dataset["y"] * eta - tf.exp(eta)

    def of_rows(effects, params):
        return -0.5 * (effects["z"] / 0.5) ** 2

    model = read_groups(
        sgmcmc.Groups("row", {"z": 0.0}, of_rows, 31), terms, {"y": y, "row": np.arange(n)},
        {"a": 1.0}, None, tf.float64,
    )  # fmt: skip
    tensors = {
        name: tf.convert_to_tensor(value) for name, value in model.dataset.items()
    }
    found = model.log_lik({"a": tf.constant(1.0, tf.float64)}, tensors).numpy()
    z, step = np.linspace(-6, 6, 4001, retstep=True)
    eta = 1.0 + z[:, None]
    exact = np.log(
        np.exp(y * eta - np.exp(eta) - 0.5 * (z[:, None] / 0.5) ** 2).sum(0) * step
    )
    # The trapezoidal rule is exact here to rounding; 31 nodes to about 1e-8.
    np.testing.assert_allclose(found, exact, atol=1e-6)


def test_rows_of_files_are_sorted_into_packs_in_pieces(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    codes = rng.permutation(np.repeat(np.arange(60), rng.integers(1, 9, 60)))
    packs = pack(np.arange(60), codes)
    values = rng.normal(size=(len(codes), 3)).astype(np.float32)
    np.save(tmp_path / "values.npy", values)
    monkeypatch.setattr(seams.PACKS_PIECE_BYTES, 500)
    column = MappedColumn(
        np.load(tmp_path / "values.npy", mmap_mode="r"), np.dtype(np.float32)
    )
    found = packed(column, packs.rows)
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, values[packs.rows])
    np.testing.assert_array_equal(
        packed(ArrayColumn(values), packs.rows), values[packs.rows]
    )


def test_groups_on_disk_give_the_draws_of_groups_in_memory(tmp_path):
    rng = np.random.default_rng(2)
    group = rng.permutation(np.repeat(np.arange(40), 4))
    columns = {"x": rng.normal(size=160), "y": rng.normal(size=160)}
    for name, array in columns.items():
        np.save(tmp_path / f"{name}.npy", array)
    on_disk = {
        name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in columns
    }

    def terms(params, dataset):
        return -0.5 * (dataset["y"] - params["b"] * dataset["x"] - params["z"]) ** 2

    first, second = (
        sgmcmc.sgld(
            terms, {**data, "g": group}, {"b": 0.0}, 1e-3, minibatch_size=8, n_iters=5, seed=1,
            groups=sgmcmc.Groups("g", {"z": 0.0}, lambda effects, params: -0.5 * effects["z"] ** 2),
            verbose=False,
        )
        for data in (columns, on_disk)
    )  # fmt: skip
    np.testing.assert_array_equal(first["b"], second["b"])
