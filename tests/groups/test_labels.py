"""Labels of groups are values: new rows in any form are of the groups of the same labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.bridges.models import Plate, as_groups
from sgmcmc.data.levels import Levels
from sgmcmc.data.reading import read_dataset
from sgmcmc.groups.effects import PackedEffects
from sgmcmc.groups.labels import labeled
from sgmcmc.groups.spec import Groups
from sgmcmc.groups.structure import GroupedModel, code_column, read_groups
from sgmcmc.run.sampler_origin import with_more_rows

RNG = np.random.default_rng(1)
SITES = RNG.permutation(np.repeat([3, 5, 7, 20], 5))
Y = RNG.normal(size=20)
KINDS = np.array(["p", "q"])[RNG.integers(0, 2, 20)]
ROWS = [20, 3, 5, 20]
DRAWS = {"mu": RNG.normal(size=(1, 2)), "z": RNG.normal(size=(1, 2, 4, 4))}


def _law(effects: Any, params: Any) -> tf.Tensor:
    return -0.5 * tf.reduce_sum(effects["z"] ** 2, -1)


def _log_lik(params: Any, dataset: Any) -> tf.Tensor:
    return -0.5 * (dataset["y"] - params["mu"] - tf.reduce_sum(params["z"], -1)) ** 2


def _model(sites: Any, members: Any = None) -> GroupedModel:
    """Return a model whose effects, four of each group, are coordinates."""
    groups = Groups("site", {"z": np.zeros(4)}, _law, members=members)
    dataset = {"y": Y, "site": sites, "kind": pd.Categorical(KINDS)}
    return read_groups(groups, _log_lik, dataset, {"mu": 0.0}, None)


FORMS: dict[str, Any] = {
    "integers": np.array(ROWS),
    "a list": ROWS,
    "floats": np.array(ROWS, float),
    "text": np.array(ROWS).astype(str),
    "text of floats": np.array(ROWS, float).astype(str),
    "objects": np.array(ROWS, object),
    "categories": pd.Categorical(ROWS),
    "categories in another order": pd.Categorical(ROWS, [20, 9, 5, 3]),
    "categories of text": pd.Categorical(list(map(str, ROWS))),
    "a series": pd.Series(ROWS, index=range(7, 11)),
    "nullable": pd.array(ROWS, dtype="Int64"),
}
FITS: dict[str, Any] = {
    "integers": SITES,
    "floats": SITES.astype(float),
    "text": SITES.astype(str),
    "categories": pd.Categorical(SITES, [99, 20, 7, 5, 3]),
}


@pytest.mark.parametrize("fit", FITS)
def test_new_rows_of_any_form(fit: str) -> None:
    model = _model(FITS[fit])
    at = model.structure.factors["site"].codes(ROWS)
    assert [int(model.structure.labels["site"][place]) for place in at] == ROWS
    for values in FORMS.values():
        given = {"site": values, "y": np.zeros(4)}
        _, draws, rows = PackedEffects(model.structure, DRAWS, 0, None, None).for_rows(
            _log_lik, given
        )
        found = draws["z"][:, :, np.asarray(rows[code_column("site")])]
        np.testing.assert_array_equal(found, DRAWS["z"][:, :, at])


def test_tables_of_new_rows() -> None:
    pa = pytest.importorskip("pyarrow")
    model = _model(SITES)
    at = model.structure.factors["site"].codes(ROWS)
    frame = pd.DataFrame({"site": pd.Categorical(ROWS), "y": np.zeros(4)})
    for table in (
        frame,
        pa.table({"site": pa.array(list(map(str, ROWS))), "y": np.zeros(4)}),
    ):
        _, draws, rows = PackedEffects(model.structure, DRAWS, 0, None, None).for_rows(
            _log_lik, table
        )
        found = draws["z"][:, :, np.asarray(rows[code_column("site")])]
        np.testing.assert_array_equal(found, DRAWS["z"][:, :, at])
    whole = pa.table(
        {"y": Y, "site": SITES, "kind": pa.array(KINDS).dictionary_encode()}
    )
    groups = Groups("site", {"z": np.zeros(4)}, _law)
    again = read_groups(groups, _log_lik, whole, {"mu": 0.0}, None)
    np.testing.assert_array_equal(
        again.dataset[code_column("site")], model.dataset[code_column("site")]
    )


@pytest.mark.parametrize(
    "form", ["floats", "text", "text of floats", "categories of text"]
)
def test_groups_of_an_update(form: str) -> None:
    """Rows of known groups stay with these, and new groups are added behind them."""
    model = _model(SITES)
    old = {"y": Y, "site": SITES, "kind": pd.Categorical(KINDS)}
    new = {"y": Y[:4], "site": FORMS[form], "kind": pd.Categorical(["q"] * 4)}
    found = with_more_rows(old, new, model.structure)
    own = labeled("site", found["site"])
    assert own.labels.tolist() == [3, 5, 7, 20]
    assert own.labels[own.codes].tolist() == [*SITES, *ROWS]
    assert np.asarray(found["kind"]).tolist() == [*KINDS, *["q"] * 4]
    more = with_more_rows(old, {**new, "site": ["8", "3", "8", "x"]}, model.structure)[
        "site"
    ]
    assert labeled("site", more).labels.tolist() == ["20", "3", "5", "7", "8", "x"]
    few = with_more_rows(old, {**new, "site": ["8", "3", "8", "3"]}, model.structure)[
        "site"
    ]
    assert labeled("site", few).labels.tolist() == [3, 5, 7, 8, 20]
    with pytest.raises(ValueError, match="`rows\\['kind'\\]` has the level 'r'"):
        with_more_rows(old, {**new, "kind": list("qqqr")}, model.structure)


def test_effects_of_members_are_in_their_places() -> None:
    members = [20, 4, 3, 7, 5]
    model = _model(SITES, members)
    assert model.params["z"].shape == (5, 4)  # coordinates: those without rows are too
    draws: Mapping[str, np.ndarray] = {
        "mu": np.zeros((1, 2)),
        "z": RNG.normal(size=(1, 2, 5, 4)),
    }
    sampler = PackedEffects(model.structure, draws, 0, None, None)
    found = sampler.draw("site")
    np.testing.assert_array_equal(found.effects["z"], draws["z"])
    assert found.labels.tolist() == members
    some = sampler.draw("site", ["7", 20])
    np.testing.assert_array_equal(some.effects["z"], draws["z"][:, :, [3, 0]])


def test_categories_without_rows_are_no_groups() -> None:
    found = labeled("g", pd.Categorical(["b", "a"], ["z", "b", "a"]))
    assert found.labels.tolist() == ["a", "b"] and found.levels == Levels(("a", "b"))


def test_missing_labels_are_named() -> None:
    pa = pytest.importorskip("pyarrow")
    null = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))
    masked = np.ma.masked_array(["a", "b"], [False, True])
    for values in (null, masked, ["a", None], pd.Categorical(["a", None]), [1.0, np.nan],
                   pd.array(["a", pd.NA], dtype="string")):  # fmt: skip
        with pytest.raises(ValueError, match="1 missing values, the first in row 1"):
            labeled("g", values)


def test_plates_name_their_members() -> None:
    groups = as_groups(None, Plate("site", ("u",), 5), {"u": np.zeros(5)})
    assert groups.members == (0, 1, 2, 3, 4)


@pytest.mark.slow
def test_effects_of_a_plate_are_in_the_places_of_its_codes() -> None:
    """Given the global parameters, members without rows have the prior, others their posterior."""
    tfd = pytest.importorskip("tensorflow_probability").distributions
    site = np.repeat([0, 1, 2, 4, 5, 7], 20)
    y = np.float32(2.0 * site + RNG.normal(size=len(site)))

    def joint(data: Any) -> Any:
        return tfd.JointDistributionNamedAutoBatched(
            {
                "tau": tfd.HalfNormal(np.float32(10.0)),
                "u": lambda tau: tfd.Sample(tfd.Normal(np.float32(0.0), tau), 8),
                "y": lambda u: tfd.Normal(tf.gather(u, data["site"]), np.float32(1.0)),
            }
        )

    model = sgmcmc.from_joint(
        joint, {"y": y}, data={"site": site}, groups={"site": "u"}
    )
    grouped = read_groups(
        model.groups, model.log_lik, model.dataset, model.params, model.log_prior
    )
    draws = {"tau": np.full((1, 400), 3.0, np.float32)}
    data = read_dataset(grouped.dataset, tf.float32, grouped.integers)
    found = PackedEffects(grouped.structure, draws, 0, grouped.log_lik, data).draw(
        "site"
    )
    assert found.labels.tolist() == list(range(8))
    u = found.effects["u"]
    assert u.shape == (1, 400, 8)
    for code in range(8):
        rows = y[site == code]
        precision = len(rows) + 1 / 9
        sd = precision**-0.5
        assert abs(u[..., code].mean() - rows.sum() / precision) < 5 * sd / 20
        assert abs(u[..., code].std() / sd - 1) < 5 / np.sqrt(800)
