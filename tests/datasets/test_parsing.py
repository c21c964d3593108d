"""Data sets: names, parsing of LIBSVM and IDX files, what is refused."""

from __future__ import annotations

import bz2
import doctest
import gzip
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sgmcmc.datasets as datasets
from sgmcmc.datasets import covertype, fetch, mnist
from sgmcmc.datasets.fetch import DamagedFileError
from tests.datasets.sources import (
    ARRAY,
    IMAGES,
    LABELS,
    NAME,
    TEXT,
    idx,
    mnist_sources,
    spec_of,
)

# --- get_dataset


@pytest.mark.parametrize("name", ["minst", "MNIST", "nothing", "", 3, None])
def test_unknown_name(name):
    with pytest.raises(ValueError, match="^name: no data set") as caught:
        datasets.get_dataset(name)
    assert repr(name) in str(caught.value)
    assert "Available: 'covertype', 'mnist'" in str(caught.value)
    assert ("Did you mean 'mnist'" in str(caught.value)) == (name in ("minst", "MNIST"))


def test_doctest():
    result = doctest.testmod(datasets)
    assert result.attempted and not result.failed


def test_each_name_has_its_loader(monkeypatch):
    for name in ("covertype", "mnist"):
        monkeypatch.setitem(
            datasets._LOADERS, name, lambda verbose, name=name: (name, verbose)
        )
        assert datasets.get_dataset(name, verbose=False) == (name, False)


def test_default_cache_folder_is_the_systems(monkeypatch):
    monkeypatch.undo()
    assert fetch.user_folder().is_absolute() and "sgmcmc" in str(fetch.user_folder())


# --- LIBSVM text


def parse(tmp_path: Path, text: bytes, **changes: int) -> np.ndarray:
    path = tmp_path / NAME
    path.write_bytes(bz2.compress(text))
    return covertype.parse(path, replace(spec_of(), **changes))


@pytest.mark.parametrize(
    "text",
    [TEXT, TEXT.rstrip(), TEXT.replace(b"\n", b"\r\n"), TEXT.replace(b" ", b"\t")],
    ids=["as published", "no last line end", "windows", "tabs"],
)
@pytest.mark.parametrize("chunk", [12, 17, 1 << 20])
def test_libsvm(tmp_path, monkeypatch, text, chunk):
    monkeypatch.setattr(covertype, "_CHUNK", chunk)
    array = parse(tmp_path, text)
    assert array.dtype == np.float32 and array.flags.writeable
    np.testing.assert_array_equal(array, ARRAY)


def test_libsvm_agrees_with_plain_python(tmp_path):
    rng = np.random.default_rng(1)
    expected = np.zeros((500, 55), np.float32)
    lines = []
    for row in expected:
        columns = np.sort(
            rng.choice(np.arange(1, 55), rng.integers(0, 54), replace=False)
        )
        values = [f"{v:.6g}" for v in rng.random(columns.size) ** 9]
        row[0] = rng.integers(2)
        row[columns] = [float(v) for v in values]
        pairs = [f"{c}:{v}" for c, v in zip(columns, values, strict=True)]
        lines.append(" ".join([str(int(row[0]) + 1), *pairs]))
    positives = int(expected[:, 0].sum())
    text = "\n".join(lines).encode()
    array = parse(tmp_path, text, rows=500, positives=positives, features=54)
    np.testing.assert_array_equal(array, expected)


NO_LINE = "is not 'label index:value ...'"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", NO_LINE),
        (b"  ", NO_LINE),
        (b"1 1", NO_LINE),
        (b"1 1:0.5:0.5", NO_LINE),
        (b"1 1:", NO_LINE),
        (b"1 :0.5", NO_LINE),
        (b"1 1::0.5", NO_LINE),
        (b"1:0.5", NO_LINE),
        (b"1 1 2:0.5", NO_LINE),
        (b"1 1:0.5 2", NO_LINE),
        (b"1 1:0.5.5", NO_LINE),
        (b"1 1:0.5-1", NO_LINE),
        (b"1 1:e", NO_LINE),
        (b"1 1:x", NO_LINE),
        (b"x 1:0.5", NO_LINE),
        (b"1 1:\x000.5", NO_LINE),
        (b"<html>", NO_LINE),
        (b"3 1:0.5", "label is not 1 or 2"),
        (b"-1 1:0.5", "label is not 1 or 2"),
        (b"1.5 1:0.5", "label is not 1 or 2"),
        (b"1 0:0.5", "index is not one of 1 to 3"),
        (b"1 4:0.5", "index is not one of 1 to 3"),
        (b"1 111:0.5", "index is not one of 1 to 3"),
        (b"1 -1:0.5", "index is not one of 1 to 3"),
        (b"1 1.5:0.5", "index is not one of 1 to 3"),
        (b"1 1:1.5", "value is not in [0, 1]"),
        (b"1 1:-0.5", "value is not in [0, 1]"),
        (b"1 1:nan", "value is not in [0, 1]"),
        (b"1 2:0.5 1:0.5", "indices are not in ascending order"),
        (b"1 2:0.5 2:0.5", "indices are not in ascending order"),
    ],
)
def test_libsvm_refuses(tmp_path, line, reason):
    text = TEXT.replace(b"1 2:1e-3", line)
    with pytest.raises(ValueError, match=f"^line 2.*{re.escape(reason)}"):
        parse(tmp_path, text)


def test_libsvm_line_numbers_count_over_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(covertype, "_CHUNK", 40)
    with pytest.raises(ValueError, match="^line 31: label"):
        parse(tmp_path, b"1 1:0.5\n" * 30 + b"7\n", rows=50)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rows": 5}, "4 lines instead of 5"),
        ({"rows": 3}, "more than 3 lines"),
        ({"positives": 3}, "2 lines have the label 2 instead of 3"),
    ],
)
def test_covertype_counts(tmp_path, changes, reason):
    with pytest.raises(ValueError, match=reason):
        parse(tmp_path, TEXT, **changes)


def test_libsvm_refuses_endless_line(tmp_path, monkeypatch):
    monkeypatch.setattr(covertype, "_CHUNK", 100)
    with pytest.raises(ValueError, match="not text in lines"):
        parse(tmp_path, bytes(1000))


# --- IDX


@pytest.mark.parametrize(
    "pack", [gzip.compress, bytes], ids=["gzip", "decompressed on the way"]
)
def test_mnist(own, monkeypatch, pack):
    (own / "images.gz").write_bytes(pack(idx(IMAGES)))
    (own / "labels.gz").write_bytes(pack(idx(LABELS)))
    pair = mnist_sources("http://127.0.0.1:1/")
    monkeypatch.setattr(mnist, "SOURCES", {"train": pair, "test": pair})
    monkeypatch.setattr(mnist, "_SET_ASIDE", 5)
    data = datasets.get_dataset("mnist")
    for part, skip in (("train", 5), ("test", 0)):
        images, labels = data[part]["images"], data[part]["labels"]
        assert images.dtype == labels.dtype == np.float32
        assert images.flags.writeable and labels.flags.writeable
        np.testing.assert_array_equal(
            images, IMAGES.reshape(12, 784)[skip:] / np.float32(255)
        )
        assert labels.shape == (12 - skip, 10) and (labels.sum(1) == 1).all()
        np.testing.assert_array_equal(labels.argmax(1), LABELS[skip:])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not an IDX file of bytes in 3 dimension"),
        (idx(LABELS), "not an IDX file of bytes in 3 dimension"),
        (idx(IMAGES[:, :20]), r"items are of size \(20, 28\) instead of \(28, 28\)"),
        (idx(IMAGES)[:-1], "9423 bytes decompressed instead of 9424"),
        (idx(IMAGES) + b"x", "9425 bytes decompressed instead of 9424"),
        (
            idx(IMAGES)[:-1] + b"\0",
            "SHA-256 of the decompressed content is [0-9a-f]{64} instead",
        ),
    ],
)
def test_idx_refuses(own, content, reason):
    images, labels = mnist_sources("http://127.0.0.1:1/")
    path = own / images.filename
    path.write_bytes(gzip.compress(content))
    before = path.read_bytes()
    with pytest.raises(
        DamagedFileError, match=f"{re.escape(str(path))} is damaged: {reason}"
    ):
        mnist.load_pair(images, labels, skip=0, verbose=False)
    assert path.read_bytes() == before


def test_mnist_refuses_digits_above_nine_and_files_of_different_lengths(own):
    images, labels = (
        replace(s, sha256=None) for s in mnist_sources("http://127.0.0.1:1/")
    )
    (own / "images.gz").write_bytes(idx(IMAGES))
    (own / "labels.gz").write_bytes(idx(LABELS + np.uint8(1)))
    with pytest.raises(DamagedFileError, match="holds 10"):
        mnist.load_pair(images, labels, skip=0, verbose=False)
    (own / "labels.gz").write_bytes(idx(LABELS[:-1]))
    with pytest.raises(DamagedFileError, match="12 images, 11 labels"):
        mnist.load_pair(images, labels, skip=0, verbose=False)
