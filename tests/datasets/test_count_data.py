"""The example data that are counts and ratings: parsers, what they refuse, the real files."""

from __future__ import annotations

import gzip
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sgmcmc import datasets
from sgmcmc.datasets import fetch, kos, movielens, msweb
from sgmcmc.datasets.fetch import DamagedFileError, Source

REAL = os.environ.get("SGMCMC_DATA")
NOWHERE = "http://127.0.0.1:1/"


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder chosen by the environment variable, and a cache folder in place of the user's."""
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.setattr(fetch, "user_folder", lambda: tmp_path / "cache")
    monkeypatch.setenv(fetch.VARIABLE, str(folder))
    return folder


def refuse(name: str, reason: str) -> None:
    with pytest.raises(DamagedFileError, match=reason):
        datasets.get_dataset(name)


def real(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    if not REAL:
        pytest.skip("SGMCMC_DATA is not set")
    for name in names:
        if not (Path(REAL) / name).is_file():
            pytest.skip(f"SGMCMC_DATA has no {name}")
    monkeypatch.setenv(fetch.VARIABLE, REAL)


# --- KOS

DOCWORD = b"3\n4\n5\n1 1 2\n1 3 1\n2 2 1\n3 1 1\n3 4 7\n"
VOCAB = b"ant\nbee\ncat\ndog\n"


@pytest.fixture
def small_kos(own: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    spec = kos.KosSpec(Source("d.gz", (NOWHERE,)), Source("v", (NOWHERE,)), 3, 4, 12)
    monkeypatch.setattr(kos, "SPEC", spec)
    (own / "d.gz").write_bytes(gzip.compress(DOCWORD))
    (own / "v").write_bytes(VOCAB)
    return own


def test_kos(small_kos: Path) -> None:
    for pack in (gzip.compress, bytes):  # some servers decompress on the way
        (small_kos / "d.gz").write_bytes(pack(DOCWORD))
        data = datasets.get_dataset("kos")
        expected = [[2, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 7]]
        np.testing.assert_array_equal(data["counts"].toarray(), expected)
        assert data["vocab"].tolist() == ["ant", "bee", "cat", "dog"]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"3\n4\n5", b"3\n5\n5", "does not begin with the numbers 3 and 4"),
        (DOCWORD, b"", "does not begin with"),
        (b"3\n4\n5", b"3\n4\n6", "5 counts instead of 6"),
        (b"3 4 7\n", b"", "4 counts instead of 5"),
        (b"3 4 7\n", b"3 4\n", "4.66667 counts instead of 5"),
        (b"3 4 7", b"4 4 7", "document: not one of 1 to 3"),
        (b"3 4 7", b"3 0 7", "word: not one of 1 to 4"),
        (b"1 3 1", b"1 1 1", "not in the order of documents and words"),
        (b"2 2 1\n3 1 1", b"3 1 1\n2 2 1", "not in the order of documents and words"),
        (b"3 4 7", b"3 4 6", "not positive with the sum 12"),
        (b"1 3 1\n2 2 1", b"1 3 0\n2 2 2", "not positive with the sum 12"),
        (b"3 4 7", b"3 4 x", "not integers"),
        (b"3 4 7", b"3 4 7.0", "not integers"),
    ],
)
def test_kos_refuses(small_kos: Path, old: bytes, new: bytes, reason: str) -> None:
    (small_kos / "d.gz").write_bytes(DOCWORD.replace(old, new))
    refuse("kos", reason)


def test_kos_refuses_another_vocabulary(small_kos: Path) -> None:
    for words in (b"ant\nbee\ncat\n", b"ant\nbee\ncat\ncat\n"):
        (small_kos / "v").write_bytes(words)
        refuse("kos", "words, 3 of them different, instead of 4")


def test_real_kos(monkeypatch: pytest.MonkeyPatch) -> None:
    real(monkeypatch, kos.SPEC.counts.filename, kos.SPEC.vocab.filename)
    data = datasets.get_dataset("kos")
    assert data["counts"].shape == (3430, 6906) and data["counts"].total == 467_714
    assert len(data["counts"].data) == 353_160 and data["counts"].row_totals.min() > 0
    assert data["vocab"].shape == (6906,) and "november" in data["vocab"]


# --- anonymous Microsoft web data

WEB = b"""I,4,"www.microsoft.com","created by getlog.pl"
T,1,"VRoot",0,0,"VRoot"
A,1003,1,"Knowledge, Base","/kb"
A,1000,1,"regwiz","/regwiz"
C,"10001",10001
V,1000,1
V,1003,1
C,"10002",10002
C,"10003",10003
V,1003,1
"""


@pytest.fixture
def small_web(own: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    spec = msweb.MswebSpec(Source("web", (NOWHERE,)), users=3, visits=3, areas=2)
    test = replace(spec, source=Source("test", (NOWHERE,)))
    monkeypatch.setattr(msweb, "SPECS", {"train": spec, "test": test})
    (own / "web").write_bytes(WEB)
    (own / "test").write_bytes(WEB)
    return own


def test_msweb(small_web: Path) -> None:
    data = datasets.get_dataset("msweb")
    for part in ("train", "test"):
        np.testing.assert_array_equal(data[part]["visits"], [[1, 1], [0, 0], [0, 1]])
    assert data["titles"].tolist() == ["regwiz", "Knowledge, Base"]
    assert data["paths"].tolist() == ["/regwiz", "/kb"]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"A,1003", b"B,1003", "1 areas instead of 2"),
        (b"A,1003", b"A,1000", "1 areas instead of 2"),
        (b',"/kb"', b"", "a line A does not have 5 fields"),
        (b"A,1003", b"A,x", "a number is missing"),
        (b"V,1000,1\n", b"V\n", "a number is missing"),
        (b"V,1000", b"V,1001", "a user or an area that is not there"),
        (b'C,"10001",10001\n', b"", "a user or an area that is not there"),
        (b"V,1000,1\n", b"", "3 users with 2 visits instead of 3 with 3"),
        (b'C,"10002",10002\n', b"", "2 users with 3 visits instead of 3 with 3"),
        (
            b"V,1003,1\n",
            b'V,1003,1\nC,"1",1\nC,"2",2\n',
            "a user or an area that is not there",
        ),
    ],
)
def test_msweb_refuses(small_web: Path, old: bytes, new: bytes, reason: str) -> None:
    (small_web / "web").write_bytes(WEB.replace(old, new, 1))
    refuse("msweb", reason)


def test_msweb_refuses_files_with_different_areas(small_web: Path) -> None:
    (small_web / "test").write_bytes(WEB.replace(b"/kb", b"/search"))
    refuse("msweb", "web and test do not belong together")


def test_real_msweb(monkeypatch: pytest.MonkeyPatch) -> None:
    real(monkeypatch, *(spec.source.filename for spec in msweb.SPECS.values()))
    data = datasets.get_dataset("msweb")
    for part, users, visits in (("train", 32_711, 98_654), ("test", 5000, 15_191)):
        table = data[part]["visits"]
        assert (
            table.shape == (users, 294) and table.sum() == visits and table.max() == 1
        )
    assert data["paths"][:3].tolist() == ["/regwiz", "/support", "/athome"]
    # "Free Downloads" is the area that most users have seen.
    assert (
        data["titles"][data["train"]["visits"].sum(axis=0).argmax()] == "Free Downloads"
    )


# --- MovieLens

RATINGS = b"2\t1\t5\t881250949\n1\t3\t1\t891717742\n1\t1\t4\t878887116\n"


@pytest.fixture
def small_ratings(own: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    names = {"all": "u.data", "train": "u1.base", "test": "u1.test"}
    sources = {
        part: Source(f"ml-100k/{name}", (NOWHERE,)) for part, name in names.items()
    }
    rows = {"all": 3, "train": 2, "test": 1}
    monkeypatch.setattr(
        movielens, "SPEC", movielens.MovieLensSpec(sources, rows, users=2, items=3)
    )
    (own / "ml-100k").mkdir()
    lines = RATINGS.splitlines(keepends=True)
    for name, part in zip(
        names.values(), (lines, lines[:0:-1], lines[:1]), strict=True
    ):
        (own / "ml-100k" / name).write_bytes(b"".join(part))
    return own / "ml-100k"


def test_movielens_of_another_sum(
    small_ratings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {**movielens.SPEC.sources}
    sources["all"] = replace(sources["all"], sha256="0" * 64)
    monkeypatch.setattr(movielens, "SPEC", replace(movielens.SPEC, sources=sources))
    with pytest.raises(
        DamagedFileError, match="SHA-256 of the decompressed content is"
    ):
        datasets.get_dataset("movielens")


def test_movielens(small_ratings: Path) -> None:
    data = datasets.get_dataset("movielens")
    expected: dict[str, Any] = {
        "user": [1, 0, 0],
        "item": [0, 2, 0],
        "rating": [5, 1, 4],
    }
    for name, values in expected.items():
        assert (
            data["all"][name].tolist() == values and data["all"][name].flags.writeable
        )
        assert data["train"][name].tolist() == values[:0:-1]
        assert data["test"][name].tolist() == values[:1]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (RATINGS, b"", "0 lines instead of 3"),
        (b"1\t3\t1\t8", b"1\t3\t8", "a line is not 'user item rating timestamp'"),
        (b"1\t3\t1\t8", b"1\t3\tx\t8", "not integers"),
        (b"2\t1\t5", b"3\t1\t5", "user: not one of 1 to 2"),
        (b"1\t3\t1", b"1\t0\t1", "item: not one of 1 to 3"),
        (b"2\t1\t5", b"2\t1\t6", "rating: not one of 1 to 5"),
        (b"2\t1\t5", b"2\t1\t4", "do not belong together"),
    ],
)
def test_movielens_refuses(
    small_ratings: Path, old: bytes, new: bytes, reason: str
) -> None:
    (small_ratings / "u.data").write_bytes(RATINGS.replace(old, new))
    refuse("movielens", re.escape(reason))


def test_real_movielens(monkeypatch: pytest.MonkeyPatch) -> None:
    real(monkeypatch, *(source.filename for source in movielens.SPEC.sources.values()))
    data = datasets.get_dataset("movielens")
    sizes = {"all": 100_000, "train": 80_000, "test": 20_000}
    assert {part: len(columns["user"]) for part, columns in data.items()} == sizes
    assert len(np.unique(data["all"]["user"])) == 943
    assert len(np.unique(data["all"]["item"])) == 1682
    # From the file that comes with the data: 6110 ones to 21201 fives.
    assert np.bincount(data["all"]["rating"])[1:].tolist() == [
        6110,
        11370,
        27145,
        34174,
        21201,
    ]


def test_a_file_in_a_folder_is_downloaded_into_it(
    small_ratings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {path.name: path.read_bytes() for path in small_ratings.iterdir()}
    for path in small_ratings.iterdir():
        path.unlink()
    small_ratings.rmdir()

    def transfer(url: str, part: Path, title: str, verbose: bool) -> None:
        part.write_bytes(content[title.removeprefix("ml-100k/")])

    monkeypatch.setattr(datasets.fetch, "_transfer", transfer)
    assert len(datasets.get_dataset("movielens")["all"]["user"]) == 3
    assert sorted(path.name for path in small_ratings.iterdir()) == sorted(content)
