"""What comes back: a read-only mapping that can be saved and loaded."""

from __future__ import annotations

import copy
import json
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from sgmcmc import Samples
from sgmcmc.results.samples import LogPost
from tests.conftest import short_call


def made_by_hand() -> Samples:
    """Return samples with something in every place, and names with odd characters."""
    draws = np.arange(24.0, dtype=np.float32).reshape(2, 4, 3)
    return Samples(
        {
            "a/b": draws,
            "ä": draws[:, :, 0],
            "": draws[..., None],
            "../up": draws[:, :, :0],
        },
        log_post=LogPost(np.array([2, 4]), np.array([[-1.5, -1.0], [-2.0, -1.25]])),
        settings={
            "method": "sgldcv",
            "n_chains": 2,
            "seed": 2**100,
            "bijectors": {"ä": "exp"},
        },
        gradients={"a/b": -draws},
        test_functions={"f(x) = x²": draws > 3, "about": np.arange(8).reshape(2, 4)},
        mode={"a/b": np.ones((2, 3), np.float32)},
        mode_gradient={"a/b": np.zeros((2, 3))},
    )


GROUPS = ("gradients", "test_functions", "mode", "mode_gradient")


def check_equal(first: Samples, second: Samples) -> None:
    """Check that two objects hold the same, bit for bit."""
    check_equal_arrays(first, second)
    for group in GROUPS:
        check_equal_arrays(getattr(first, group), getattr(second, group))
    for mine, theirs in zip(first.log_post, second.log_post, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert first.settings == second.settings


def check_equal_arrays(first: Any, second: Any) -> None:
    """Check that two mappings of arrays, or two ``None``, are the same."""
    assert (first is None) == (second is None)
    if first is not None:
        assert list(first) == list(second)
        for name, array in first.items():
            assert second[name].dtype == array.dtype
            np.testing.assert_array_equal(second[name], array)


def test_it_is_a_mapping() -> None:
    samples = made_by_hand()
    assert isinstance(samples, Mapping)
    assert list(samples) == ["a/b", "ä", "", "../up"] and len(samples) == 4
    assert "ä" in samples and "beta" not in samples
    assert dict(samples)["ä"].shape == (2, 4)
    assert samples.get("beta") is None
    assert [name for name, _ in samples.items()] == list(samples.keys())


def test_an_unknown_name_says_what_there_is() -> None:
    with pytest.raises(KeyError, match="'beta'.*a/b, ä"):
        made_by_hand()["beta"]
    gradients = made_by_hand().gradients
    assert gradients is not None
    with pytest.raises(KeyError, match="'ä'.*a/b"):
        gradients["ä"]


@pytest.mark.parametrize("group", [None, *GROUPS])
def test_nothing_can_be_written_to(group: str | None) -> None:
    samples = made_by_hand()
    mapping: Any = samples if group is None else getattr(samples, group)
    name = next(iter(mapping))
    with pytest.raises(ValueError, match="read-only"):
        mapping[name][...] = 0
    with pytest.raises(TypeError, match="assignment"):
        mapping[name] = 0
    with pytest.raises(TypeError, match="deletion"):
        del mapping[name]


def test_a_chain_gives_what_cannot_be_written_to() -> None:
    samples = short_call("sgldcv", store_gradients=True, n_chains=2)
    for mapping in (samples, samples.gradients, samples.mode, samples.mode_gradient):
        assert mapping is not None and not mapping["theta"].flags.writeable


def test_the_users_array_stays_writeable() -> None:
    array = np.zeros(3)
    Samples({"theta": array})
    array[0] = 1.0


def test_settings_are_a_copy() -> None:
    settings = {"method": "sgld"}
    Samples({}, settings=settings).settings["method"] = "other"
    assert settings == {"method": "sgld"}


def test_repr() -> None:
    assert repr(made_by_hand()).split("\n") == [
        "Samples of sgldcv, 2 chains:",
        "  a/b  (2, 4, 3)  float32",
        "  ä  (2, 4)  float32",
        "    (2, 4, 3, 1)  float32",
        "  ../up  (2, 4, 0)  float32",
        "  test function f(x) = x²  (2, 4, 3)  bool",
        "  test function about  (2, 4)  int64",
    ]
    assert repr(Samples({})) == "Samples of unknown origin:\n  no draws kept"
    assert repr(made_by_hand().mode) == "Arrays:\n  a/b  (2, 3)  float32"


def test_repr_of_a_chain() -> None:
    """The arrays, and what the report warns of."""
    head, array, *warnings = repr(short_call()).splitlines()
    assert (head, array) == ("Samples of sgld:", "  theta  (20,)  float32")
    assert warnings and all(line.startswith("  ! ") for line in warnings)


def test_round_trip(tmp_path: Path) -> None:
    samples = made_by_hand()
    samples.save(tmp_path / "chain.npz")
    check_equal(samples, Samples.load(tmp_path / "chain.npz"))


def test_round_trip_of_almost_nothing(tmp_path: Path) -> None:
    samples = Samples({})
    samples.save(tmp_path / "chain")
    check_equal(samples, Samples.load(tmp_path / "chain"))


def test_round_trip_of_a_chain(tmp_path: Path) -> None:
    samples = short_call(
        "sghmccv",
        params={"theta": 0.0},
        n_chains=2,
        store_gradients=True,
        store_params=False,
        test_functions={"θ / 2": lambda params: params["theta"] / 2.0},
        dtype=tf.float64,
    )
    samples.save(str(tmp_path / "chain"))
    check_equal(samples, Samples.load(str(tmp_path / "chain")))


def test_copies_are_whole() -> None:
    samples = made_by_hand()
    check_equal(samples, copy.deepcopy(samples))
    check_equal(samples, pickle.loads(pickle.dumps(samples)))


@pytest.mark.parametrize("name", ["chain", "chain.npz", "chain.draws", "chain with ä"])
def test_the_path_is_taken_as_it_is(name: str, tmp_path: Path) -> None:
    made_by_hand().save(tmp_path / name)
    assert os.listdir(tmp_path) == [name]


def test_saving_replaces_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "chain.npz"
    Samples({"old": np.zeros(1000)}).save(path)
    made_by_hand().save(path)
    check_equal(made_by_hand(), Samples.load(path))


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_write_that_fails_leaves_the_old_file(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "chain.npz"
    made_by_hand().save(path)
    before = path.read_bytes()

    def savez(file: Any, **contents: Any) -> None:
        file.write(b"PK\x03\x04")
        raise error("stopped half-way")

    monkeypatch.setattr(np, "savez", savez)
    with pytest.raises(error, match="half-way"):
        Samples({"theta": np.zeros(3)}).save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["chain.npz"]


def test_objects_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="'theta'.*objects"):
        Samples({"theta": np.array([{}, None])}).save(tmp_path / "chain")
    assert os.listdir(tmp_path) == []


def test_settings_that_json_cannot_hold_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="JSON"):
        Samples({}, settings={"method": object()}).save(tmp_path / "chain")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        made_by_hand().save(tmp_path / "nowhere" / "chain.npz")
    with pytest.raises(FileNotFoundError):
        Samples.load(tmp_path / "nowhere.npz")


class Harmful:
    """A pickle of it creates a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def refused(path: Path, reason: str = "") -> None:
    """Check that a file is refused, by name."""
    with pytest.raises(
        ValueError, match=rf"`path`: .*{path.name}.*Samples\.save"
    ) as caught:
        Samples.load(path)
    assert reason in str(caught.value)
    assert "allow_pickle" not in str(caught.value)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    trace, path = tmp_path / "executed", tmp_path / "chain"
    path.write_bytes(pickle.dumps(Harmful(trace)))
    refused(path, "npz")
    with open(path, "wb") as file:
        np.save(file, np.array([Harmful(trace)], dtype=object), allow_pickle=True)
    refused(path, "npz")
    assert not trace.exists()


def test_pickles_inside_are_never_loaded(tmp_path: Path) -> None:
    trace, path = tmp_path / "executed", tmp_path / "chain"
    about = json.dumps({"format": 1, "settings": {}, "names": {"draws": ["theta"]}})
    with open(path, "wb") as file:
        np.savez(file, about=np.array(about), **{"draws/0": np.array([Harmful(trace)])})
    with pytest.raises(ValueError, match=r"Samples\.save"):
        Samples.load(path)
    assert not trace.exists()


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "chain"
    path.write_text("theta\n1.0\n")
    refused(path, "npz")
    path.write_bytes(b"")
    refused(path, "npz")
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))
    refused(path, "npz")
    with open(path, "wb") as file:
        np.savez(file, theta=np.zeros(3))
    refused(path, "what it holds")


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "chain"
    made_by_hand().save(path)
    path.write_bytes(path.read_bytes()[:-200])
    refused(path, "incomplete")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "chain"
    made_by_hand().save(path)
    data = bytearray(path.read_bytes())
    place = data.index(np.arange(24.0, dtype=np.float32).tobytes())
    data[place + 8] ^= 1
    path.write_bytes(data)
    refused(path, "CRC")


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "chain"
    with open(path, "wb") as file:
        np.savez(file, about=np.array(json.dumps({"format": 99})))
    refused(path, "99")
