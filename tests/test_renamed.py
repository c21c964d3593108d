"""Names that changed: the old ones give the same bits, with a warning that says the new one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc import checks
from sgmcmc.dynamics import SCIR, SGRLD
from sgmcmc.gradients import ControlVariate, Gradient
from sgmcmc.results.conversions import write_archive

Z = np.repeat(np.eye(3), [70, 20, 10], axis=0)


def log_lik(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    return tf.reduce_sum(dataset["z"] * tf.math.log(params["omega"]))


def sgrld(n_iters: int = 30, **given: Any) -> sgmcmc.Samples:
    return sgmcmc.sgrld(
        log_lik, {"z": Z}, {"omega": np.ones(3) / 3}, 0.01, alpha=0.5, minibatch_size=10,
        n_iters=n_iters, seed=1, verbose=False, **given,
    )  # fmt: skip


NOW = {"store_unnormalized": True, "parameterization": "expanded_natural"}
ONCE = {"store_unnormalised": True, "parameterisation": "expanded_natural"}


def says(old: str, new: str) -> Any:
    return pytest.warns(DeprecationWarning, match=f"`{old}` is called `{new}` now")


def test_arguments_and_attributes_of_samples() -> None:
    now = sgrld(**NOW)
    with says("parameterisation", "parameterization"):
        once = sgrld(**ONCE)
    np.testing.assert_array_equal(once["omega"], now["omega"])
    with says("unnormalised", "unnormalized"):
        theta = once.unnormalised
    np.testing.assert_array_equal(theta["omega"], now.unnormalized["omega"])
    with says("unnormalised", "unnormalized"):
        assert sgmcmc.Samples({}, unnormalised={"omega": Z}).unnormalized is not None


def test_both_names_at_once_are_refused() -> None:
    with pytest.raises(TypeError, match="`parameterization` was given twice"):
        sgrld(parameterisation="expanded_mean", **NOW)


def test_parts_and_models() -> None:
    with says("centre_at", "center_at"):
        part = ControlVariate(centre_at={"theta": 1.0})
    assert part == ControlVariate(center_at={"theta": 1.0})
    with says("centre_at", "center_at"):
        assert part.centre_at == {"theta": 1.0}
    for dynamics in (SCIR, SGRLD):
        with says("store_unnormalised", "store_unnormalized"):
            assert dynamics(alpha=1.0, store_unnormalised=True).store_unnormalized
    with says("matrix_factorisation", "matrix_factorization"):
        make = sgmcmc.models.matrix_factorisation
    with says("centre", "center"):
        model = make({"user": [0], "item": [1], "rating": [4.0]}, rank=1, centre=0.5)
    with says("centre", "center"):
        assert model.centre == 0.5
    with pytest.raises(AttributeError, match="no attribute 'factor'"):
        sgmcmc.models.factor  # noqa: B018


def test_an_own_estimator_may_have_a_centre() -> None:
    with says("centred", "centered"):

        class Own(ControlVariate):
            centred = False

            def centre(self, state: Any) -> Any:
                return state

    assert not Own().centered
    assert Own().center("here") == "here"
    with says("centre", "center"):
        assert Gradient.centre.fget(Own())("here") == "here"  # type: ignore[attr-defined]


def test_stores_and_files_of_earlier_versions(tmp_path: Path) -> None:
    path = tmp_path / "store"
    sgrld(store=path, **NOW)
    about = json.loads((path / "about.json").read_text())
    once = json.dumps({key: value for key, value in about.items() if key != "checksum"})
    for old, new in checks.RENAMED.items():
        once = once.replace(f'"{new}"', f'"{old}"')
    (path / "about.json").write_text(once)
    assert "parameterization" not in (path / "about.json").read_text()
    found, longer = sgmcmc.Samples.open(path), sgrld(60, **NOW)
    assert found.settings["dynamics"]["parameterization"] == "expanded_natural"
    np.testing.assert_array_equal(
        found.unnormalized["omega"], longer.unnormalized["omega"][:30]
    )
    np.testing.assert_array_equal(
        sgrld(60, store=path, **NOW)["omega"], longer["omega"]
    )
    file = tmp_path / "once.npz"
    settings = {"parameterisation": "expanded_natural"}
    write_archive(
        file, {"draws": longer, "unnormalised": longer}, longer.log_post, settings, None
    )
    found = sgmcmc.Samples.load(file)
    np.testing.assert_array_equal(found.unnormalized["omega"], longer["omega"])
    assert found.settings == {"parameterization": "expanded_natural"}
