"""Files and stores that are cut off, mutated or made with ill will: refused, or read right."""

from __future__ import annotations

import json
import random
import resource
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sgmcmc import Samples
from sgmcmc.results.arrays import LogPost
from tests.conftest import short_call
from tests.run.stopping import same


def archive(folder: Path) -> Path:
    """Return a file with something of everything."""
    rng = np.random.default_rng(1)
    samples = Samples(
        {
            "theta": rng.normal(size=(2, 30, 3)).astype(np.float32),
            "u": rng.normal(size=(2, 30)),
        },
        log_post=LogPost(np.arange(4), rng.normal(size=(2, 4))),
        settings={
            "method": "sgld",
            "seed": 1,
            "n_chains": 2,
            "stepsize": {"theta": 1e-3},
        },
        gradients={"theta": rng.normal(size=(2, 30, 3))},
        reductions={
            "mean": rng.normal(size=(2, 3)),
            "both": {"count": np.array([3, 3])},
        },
    )
    samples.save(folder / "chain.npz")
    return folder / "chain.npz"


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Return a file with flipped, lost, doubled or overwritten bytes, or cut off."""
    found = bytearray(content)
    kind, place = rng.randrange(5), rng.randrange(len(found))
    length = rng.choice([1, 1, 2, 4, 16, 200])
    if kind == 0:
        for _ in range(length):
            found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del found[place:]
    elif kind == 2:
        del found[place : place + length]
    elif kind == 3:
        found[place:place] = found[place : place + length]
    else:
        found[place : place + length] = rng.randbytes(length)
    return bytes(found)


def check_files(path: Path, mutations: int, seed: int) -> int:
    """Mutate a file again and again; return how often it was still read, and read right."""
    rng, content, expected = random.Random(seed), path.read_bytes(), Samples.load(path)
    other, read = path.with_name("other.npz"), 0
    for _ in range(mutations):
        other.write_bytes(mutated(content, rng))
        try:
            found = Samples.load(other)
        except ValueError as error:
            assert str(error).startswith("`path`: ")
            continue
        read += 1
        same(found, expected)
        assert found.settings == expected.settings
    return read


def test_mutated_files_are_refused_or_read_right(tmp_path: Path) -> None:
    assert check_files(archive(tmp_path), 1_000, seed=1) < 200


@pytest.mark.faults
def test_a_hundred_thousand_mutated_files(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert check_files(archive(tmp_path), 100_000, seed=2) < 20_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 50_000  # KiB


def with_about(path: Path, change: Any) -> None:
    """Write a file again, as an ill-meaning person would, whole and with right checksums."""
    arrays = dict(np.load(path))
    about = json.loads(str(arrays["about"]))
    arrays["about"] = np.array(json.dumps(change(about)))
    np.savez(path, **arrays)


def anything(rng: random.Random, depth: int = 0) -> Any:
    """Return any value that JSON can hold."""
    kind = rng.randrange(7 if depth < 3 else 5)
    if kind == 5:
        return [anything(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 6:
        return {
            rng.choice("abcdefg"): anything(rng, depth + 1)
            for _ in range(rng.randrange(4))
        }
    return [
        None,
        rng.random() < 0.5,
        rng.randrange(-5, 10**30),
        "theta/../x",
        float("nan"),
    ][kind]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container in a value with each of its keys."""
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def check_facts(path: Path, mutations: int, seed: int) -> None:
    """Put anything anywhere in what a file says of itself; nothing but ``ValueError`` comes."""
    rng, content = random.Random(seed), path.read_bytes()

    def change(about: Any) -> Any:
        container, key = rng.choice(list(places(about)))
        container[key] = anything(rng)
        return about

    for _ in range(mutations):
        path.write_bytes(content)
        with_about(path, change)
        try:
            found = Samples.load(path)
        except ValueError as error:
            assert str(error).startswith("`path`: ")
        else:
            repr(found)


def test_files_that_say_anything_of_themselves(tmp_path: Path) -> None:
    check_facts(archive(tmp_path), 300, seed=1)


def test_more_is_not_promised_than_there_is(tmp_path: Path) -> None:
    """Headers that speak of more memory than the file has, and compressed members, are refused."""
    path = archive(tmp_path)
    arrays = dict(np.load(path))
    np.savez_compressed(path, **{**arrays, "draws/0": np.zeros((2, 10**7))})
    with pytest.raises(ValueError, match="promises more than it holds"):
        Samples.load(path)
    np.savez_compressed(path, **arrays)
    with pytest.raises(ValueError, match="compressed|promises more"):
        Samples.load(path)
    with zipfile.ZipFile(path, "w") as members:
        for name, array in arrays.items():
            with members.open(f"{name}.npy", "w") as member:
                shape = (10**12,) if name == "draws/0" else array.shape
                header = {
                    "descr": np.lib.format.dtype_to_descr(array.dtype),
                    "fortran_order": False,
                    "shape": shape,
                }
                np.lib.format.write_array_header_1_0(member, header)
                member.write(array.tobytes())
    with pytest.raises(ValueError, match="another size"):
        Samples.load(path)


def test_a_store_is_no_file_and_a_file_no_store(tmp_path: Path) -> None:
    short_call(store=tmp_path / "chain", n_iters=20)
    with pytest.raises(
        ValueError, match=r"`path`: .* is a folder; Samples.open reads a store"
    ):
        Samples.load(tmp_path / "chain")
    path = archive(tmp_path)
    with pytest.raises(ValueError, match=r"`path`: .* is a file.*Samples.load"):
        Samples.open(path)


STORED = {
    "n_iters": 60,
    "n_chains": 2,
    "store_gradients": True,
    "test_functions": {"square": lambda params: params["theta"] ** 2},
}


def check_stores(folder: Path, places: int, seed: int) -> tuple[int, int]:
    """Flip a byte or cut off a file of a store; return how often it was refused, and resumed."""
    rng, chain = random.Random(seed), folder / "chain"
    expected = short_call("sgldcv", **STORED, store=chain)
    longer = {**STORED, "n_iters": 70}
    goes_on = short_call("sgldcv", **longer)
    files = sorted(file for file in chain.iterdir() if file.stat().st_size)
    refused = resumed = 0
    for number in range(places):
        other = folder / "other"
        shutil.copytree(chain, other)
        file = other / rng.choice(files).name
        content = bytearray(file.read_bytes())
        place = rng.randrange(len(content))
        if rng.random() < 0.5:
            content[place] ^= 1 << rng.randrange(8)
        else:
            del content[place:]
        file.write_bytes(content)
        try:
            same(Samples.open(other), expected)
        except ValueError as error:
            assert str(error).startswith("`path`: ")
            refused += 1
        if number % 10 == 0:
            try:
                same(short_call("sgldcv", **longer, store=other), goes_on)
                resumed += 1
            except ValueError as error:
                assert str(error).startswith("`store`: ")
        shutil.rmtree(other)
    return refused, resumed


def test_a_damaged_store_is_refused_or_read_right(tmp_path: Path) -> None:
    refused, _ = check_stores(tmp_path, 40, seed=1)
    assert refused > 20


@pytest.mark.faults
def test_five_hundred_damaged_stores(tmp_path: Path) -> None:
    refused, resumed = check_stores(tmp_path, 500, seed=2)
    assert refused > 250 and resumed > 0


def test_the_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    short_call(store=tmp_path / "chain", n_iters=20)
    file = next((tmp_path / "chain").glob("array-0.npy"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"`path`: '.*array-0.npy' is damaged"):
        Samples.open(tmp_path / "chain")
    with pytest.raises(ValueError, match=r"`store`: '.*array-0.npy' is damaged"):
        short_call(store=tmp_path / "chain", n_iters=30)
    Samples.open(tmp_path / "chain", verify=False)
