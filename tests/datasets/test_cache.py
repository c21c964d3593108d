"""Data sets: parsed arrays that are kept, other processes, the real files."""

from __future__ import annotations

import bz2
import io
import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

import sgmcmc.datasets as datasets
from sgmcmc.datasets import covertype, fetch, mnist
from sgmcmc.datasets.fetch import DamagedFileError
from tests.datasets.sources import ARRAY, NAME, REAL, TEXT, names, spec_of


@pytest.fixture
def parses(own, monkeypatch) -> list[Path]:
    """A source in the own folder; the list grows by one at each parsing."""
    (own / NAME).write_bytes(bz2.compress(TEXT))
    calls: list[Path] = []
    original = covertype.parse

    def counted(path: Path, spec: covertype.CovertypeSpec) -> np.ndarray:
        calls.append(path)
        return original(path, spec)

    monkeypatch.setattr(covertype, "parse", counted)
    return calls


def load_own() -> np.ndarray:
    array = covertype.load_spec(spec_of("http://127.0.0.1:1/"), verbose=False)
    assert (
        array.dtype == np.float32 and array.flags.writeable and array.flags.c_contiguous
    )
    return array


def test_parsed_once(own, parses):
    first, second = load_own(), load_own()
    np.testing.assert_array_equal(first, ARRAY)
    np.testing.assert_array_equal(second, ARRAY)
    assert len(parses) == 1 and not np.shares_memory(first, second)
    cached = np.load(
        own / f"{NAME}.sgmcmc.npy", allow_pickle=False
    )  # a .npy like any other
    np.testing.assert_array_equal(cached, ARRAY)


def test_changed_source_is_parsed_anew(own, parses):
    load_own()
    times = (own / NAME).stat()
    (own / NAME).write_bytes(bz2.compress(TEXT.replace(b"0.25", b"0.75")))
    os.utime(own / NAME, ns=(times.st_atime_ns, times.st_mtime_ns))
    for _ in range(2):
        assert load_own()[0, 1] == 0.75
    assert len(parses) == 2


def test_source_damaged_later_is_noticed(own, parses):
    load_own()
    (own / NAME).write_bytes(bz2.compress(TEXT)[:-3])
    with pytest.raises(DamagedFileError):
        load_own()


def cache_damage(whole: bytes) -> dict[str, bytes]:
    pickled = io.BytesIO()
    np.save(pickled, np.array([None]), allow_pickle=True)
    return {
        "empty": b"",
        "cut": whole[:-1],
        "cut in the numbers": whole[:150],
        "cut in the header": whole[:40],
        "too long": whole + b"x",
        "other number": whole[:140] + b"\x01" + whole[141:],
        "other shape": whole.replace(b"(4, 4), ", b"(2, 8), "),
        "other dtype": whole.replace(b"<f4", b"<i4"),
        "huge shape": whole.replace(b"(4, 4), }  ", b"(4, 400)}  "),
        "pickle": pickled.getvalue(),
        "pickle with seal": pickled.getvalue() + whole[-44:],
        "text": b"not an array at all" * 20,
    }


@pytest.mark.parametrize("kind", cache_damage(b""))
def test_torn_cache_is_not_trusted(own, parses, kind):
    load_own()
    path = own / f"{NAME}.sgmcmc.npy"
    whole = path.read_bytes()
    torn = cache_damage(whole)[kind]
    assert torn != whole
    path.write_bytes(torn)
    np.testing.assert_array_equal(load_own(), ARRAY)
    assert len(parses) == 2 and path.read_bytes() == whole
    assert names(own) == [NAME, path.name]


def test_cache_that_cannot_be_written_is_done_without(own, parses, monkeypatch):
    (own / f"{NAME}.sgmcmc.npy").mkdir()
    np.testing.assert_array_equal(load_own(), ARRAY)
    assert names(own) == [NAME, f"{NAME}.sgmcmc.npy"]  # no partial file either
    monkeypatch.setattr(
        covertype.np, "save", lambda *a, **k: (_ for _ in ()).throw(OSError(28, ""))
    )
    np.testing.assert_array_equal(load_own(), ARRAY)
    assert names(own) == [NAME, f"{NAME}.sgmcmc.npy"]


def test_seal_covers_the_numbers():
    seal = covertype._seal(ARRAY, bytes(32))
    assert seal.endswith(zlib.crc32(ARRAY.tobytes()).to_bytes(4, "little"))


# --- other processes

# The package proper is left out: it would only make the processes slow to start.
CHILD = """
import pathlib, sys, types
package = types.ModuleType("sgmcmc")
package.__path__ = [sys.argv[1]]
sys.modules["sgmcmc"] = package
from sgmcmc.datasets import covertype, fetch
source = fetch.Source("small.bz2", (sys.argv[2],))
spec = covertype.CovertypeSpec(source, rows=4, positives=2, features=3)
for _ in range(20):
    array = covertype.load_spec(spec, verbose=False)
    assert array.sum() == float(sys.argv[3]), array
    for name in (spec.source.filename, spec.source.filename + ".sgmcmc.npy"):
        (pathlib.Path(sys.argv[4]) / name).unlink(missing_ok=True)
assert "tensorflow" not in sys.modules
"""


def test_concurrent_processes(server, own):
    server.files["x"] = bz2.compress(TEXT)
    source = str(Path(datasets.__file__).parents[1])
    arguments = [source, server.url("x"), str(float(ARRAY.sum())), str(own)]
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, *arguments], stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    for child in children:
        assert child.communicate(timeout=60)[1] == b"" and child.returncode == 0
    assert not [name for name in names(own) if name.endswith(".part")]


# --- the real files


def real(monkeypatch: pytest.MonkeyPatch, *files: str) -> None:
    if not REAL:
        pytest.skip("SGMCMC_DATA is not set")
    for name in files:
        if not (Path(REAL) / name).is_file():
            pytest.skip(f"SGMCMC_DATA has no {name}")
    monkeypatch.setenv(fetch.VARIABLE, REAL)


@pytest.mark.slow
def test_real_covertype(cache, monkeypatch, tmp_path):
    real(monkeypatch, covertype.SPEC.source.filename)
    own = (
        tmp_path / "linked"
    )  # the parsed array goes next to the link, not to the real folder
    own.mkdir()
    name = covertype.SPEC.source.filename
    (own / name).symlink_to((Path(REAL) / name).resolve())
    monkeypatch.setenv(fetch.VARIABLE, str(own))
    first = datasets.get_dataset("covertype")
    assert first.shape == (581012, 55) and first.dtype == np.float32
    assert np.count_nonzero(first[:, 0] == 1) == 283301
    assert np.count_nonzero(first[:, 0] == 0) == 297711
    assert (first.min(0) == 0).all() and (first.max(0) == 1).all()
    # One of 4 wilderness areas and one of 40 soil types.
    assert (first[:, 11:15].sum(1) == 1).all() and (first[:, 15:].sum(1) == 1).all()
    monkeypatch.setattr(
        covertype, "parse", lambda path, spec: pytest.fail("parsed twice")
    )
    np.testing.assert_array_equal(datasets.get_dataset("covertype"), first)


def test_real_mnist(monkeypatch):
    real(
        monkeypatch,
        *(source.filename for pair in mnist.SOURCES.values() for source in pair),
    )
    data = datasets.get_dataset("mnist")
    for part, count in (("train", 55000), ("test", 10000)):
        images, labels = data[part]["images"], data[part]["labels"]
        assert images.shape == (count, 784) and labels.shape == (count, 10)
        assert images.dtype == labels.dtype == np.float32
        assert images.min() == 0 and images.max() == 1
        assert (labels.sum(1) == 1).all()
    # The published test set begins with these.
    assert data["test"]["labels"][:5].argmax(1).tolist() == [7, 2, 1, 0, 4]
