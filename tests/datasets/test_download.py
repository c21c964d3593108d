"""Data sets: download from a local server, damage, folders that cannot be written."""

from __future__ import annotations

import bz2
import gzip
import io
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sgmcmc.datasets import covertype, fetch, mnist
from sgmcmc.datasets.fetch import DamagedFileError, DownloadError, Source
from tests.datasets.sources import (
    ARRAY,
    IMAGES,
    LABELS,
    NAME,
    TEXT,
    closed_url,
    idx,
    mnist_sources,
    names,
    spec_of,
)


def test_download_once(server, cache):
    server.files["x"] = bz2.compress(TEXT)
    spec = spec_of(server.url("x"))
    first = covertype.load_spec(spec, verbose=True)
    np.testing.assert_array_equal(first, ARRAY)
    first[:] = 7  # the caller's own
    np.testing.assert_array_equal(covertype.load_spec(spec, verbose=True), ARRAY)
    assert server.asked == ["x"]
    assert (cache / NAME).read_bytes() == server.files["x"]
    assert names(cache) == [NAME, f"{NAME}.sgmcmc.npy"]


def test_download_goes_to_own_folder_which_may_be_new(
    server, cache, tmp_path, monkeypatch
):
    own = tmp_path / "new" / "own"
    monkeypatch.setenv(fetch.VARIABLE, str(own))
    server.files["x"] = bz2.compress(TEXT)
    covertype.load_spec(spec_of(server.url("x")), verbose=False)
    assert names(own) == [NAME, f"{NAME}.sgmcmc.npy"] and names(cache) == []


def test_own_file_needs_no_network(own):
    (own / NAME).write_bytes(bz2.compress(TEXT))
    np.testing.assert_array_equal(
        covertype.load_spec(spec_of(closed_url()), True), ARRAY
    )


def damaged() -> dict[str, bytes]:
    whole = bz2.compress(TEXT)
    return {
        "cut archive": whole[:-20],
        "flipped bits": whole[:30] + bytes([whole[30] ^ 255]) + whole[31:],
        "cut gzip": gzip.compress(TEXT)[:-12],
        "flipped gzip": gzip.compress(TEXT)[:-6] + b"123456",
        "bad gzip data": gzip.compress(TEXT)[:12] + bytes([255]) * 40,
        "lines missing": bz2.compress(TEXT[:-30]),
        "page": b"<html>please sign in</html>",
        "empty": b"",
    }


@pytest.mark.parametrize("kind", damaged())
def test_damaged_download_is_not_kept(server, cache, kind):
    server.files["x"] = damaged()[kind]
    spec = spec_of(server.url("x"))
    with pytest.raises(DownloadError, match="damaged content: .") as caught:
        covertype.load_spec(spec, verbose=False)
    assert server.url("x") in str(caught.value) and NAME in str(caught.value)
    assert names(cache) == []
    server.files["x"] = bz2.compress(TEXT)
    np.testing.assert_array_equal(covertype.load_spec(spec, verbose=False), ARRAY)


@pytest.mark.parametrize("kind", damaged())
def test_damaged_file_of_ones_own_is_left_alone(server, own, cache, kind):
    content = damaged()[kind]
    (own / NAME).write_bytes(content)
    server.files["x"] = bz2.compress(TEXT)
    with pytest.raises(DamagedFileError) as caught:
        covertype.load_spec(spec_of(server.url("x")), verbose=False)
    assert str(own / NAME) in str(caught.value)
    assert server.asked == [] and names(own) == [NAME] and names(cache) == []
    assert (own / NAME).read_bytes() == content


def test_damaged_cache_is_replaced_only_by_a_whole_file(server, cache):
    cache.mkdir()
    (cache / NAME).write_bytes(b"<html>")
    spec = spec_of(server.url("x"))
    with pytest.raises(DownloadError, match="not usable: line 1"):
        covertype.load_spec(spec, verbose=False)
    assert names(cache) == [NAME]
    server.files["x"] = bz2.compress(TEXT)
    np.testing.assert_array_equal(covertype.load_spec(spec, verbose=False), ARRAY)
    assert (cache / NAME).read_bytes() == server.files["x"]


def advice(error: DownloadError, url: str) -> bool:
    text = str(error)
    return (
        url in text
        and repr(NAME) in text
        and "set the environment variable SGMCMC_DATA" in text
    )


def test_broken_transfer(server, cache):
    server.files["x"] = bz2.compress(TEXT)
    server.cut.add("x")
    with pytest.raises(
        DownloadError, match="IncompleteRead|EOF|ended before"
    ) as caught:
        covertype.load_spec(spec_of(server.url("x")), verbose=False)
    assert advice(caught.value, server.url("x")) and names(cache) == []


def test_stalled_transfer(server, cache, monkeypatch):
    monkeypatch.setattr(fetch, "TIMEOUT", 0.2)
    server.files["x"] = bz2.compress(TEXT)
    server.stalled.add("x")
    start = time.monotonic()
    with pytest.raises(DownloadError, match="(?i)timed out") as caught:
        covertype.load_spec(spec_of(server.url("x")), verbose=False)
    assert time.monotonic() - start < 5
    assert advice(caught.value, server.url("x")) and names(cache) == []


def test_not_found(server, cache):
    with pytest.raises(DownloadError, match="404") as caught:
        covertype.load_spec(spec_of(server.url("x")), verbose=False)
    assert advice(caught.value, server.url("x")) and names(cache) == []


def test_no_network(own):
    url = closed_url()
    with pytest.raises(DownloadError, match="ConnectionError.*refused") as caught:
        covertype.load_spec(spec_of(url), verbose=False)
    assert (
        advice(caught.value, url)
        and f"now: {own}" in str(caught.value)
        and names(own) == []
    )
    assert isinstance(caught.value, OSError)


def test_address_of_no_use():
    with pytest.raises(DownloadError, match="No scheme"):
        covertype.load_spec(spec_of("nowhere"), verbose=False)


def test_mirrors_in_turn(server, cache):
    server.files |= {
        "damaged": b"<html>",
        "cut": bz2.compress(TEXT),
        "x": bz2.compress(TEXT),
    }
    server.cut.add("cut")
    urls = [closed_url(), *map(server.url, ("damaged", "absent", "cut", "x", "unused"))]
    np.testing.assert_array_equal(
        covertype.load_spec(spec_of(*urls), verbose=False), ARRAY
    )
    assert server.asked == ["damaged", "absent", "cut", "x"]
    assert (cache / NAME).read_bytes() == server.files["x"]


def test_mnist_download(server, cache):
    server.files |= {"images.gz": gzip.compress(idx(IMAGES)), "labels.gz": b"no"}
    server.files["b/labels.gz"] = gzip.compress(idx(LABELS))
    images, labels = mnist_sources(server.url(""), server.url("b/"))
    data = mnist.load_pair(images, labels, skip=2, verbose=False)
    assert data["images"].shape == (10, 784) and data["labels"].shape == (10, 10)
    assert names(cache) == ["images.gz", "labels.gz"]


def test_interrupted_download_leaves_nothing(server, cache):
    server.files["x"] = b"content"

    def read(path: Path) -> None:
        assert [path.name] == names(cache) and path.name.endswith(".part")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch.load(Source(NAME, (server.url("x"),)), read)
    assert names(cache) == []


def test_file_put_there_during_download_is_kept(server, own):
    server.files["x"] = b"content"

    def read(path: Path) -> bytes:
        (own / NAME).write_bytes(b"the user's")
        return path.read_bytes()

    assert fetch.load(Source(NAME, (server.url("x"),)), read) == b"content"
    assert (own / NAME).read_bytes() == b"the user's" and names(own) == [NAME]


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("verbose", [True, False])
def test_progress_bar(server, monkeypatch, capsys, shown, verbose):
    monkeypatch.setattr(fetch, "_shows_progress", lambda: shown)
    server.files["x"] = bz2.compress(TEXT)
    covertype.load_spec(spec_of(server.url("x")), verbose)
    assert (NAME in capsys.readouterr().err) == (shown and verbose)


def test_progress_bar_only_where_it_can_be_seen(server, monkeypatch):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    for stream, shown in ((io.StringIO(), False), (terminal, True), (None, False)):
        monkeypatch.setattr(sys, "stderr", stream)
        assert fetch._shows_progress() == shown
    server.files["x"] = bz2.compress(TEXT)  # with no standard error at all
    covertype.load_spec(spec_of(server.url("x")), verbose=True)


# --- folders that cannot be written


def test_own_folder_read_only(server, own, cache, closed):
    (own / NAME).write_bytes(bz2.compress(TEXT))
    closed(own)
    for _ in range(2):
        np.testing.assert_array_equal(
            covertype.load_spec(spec_of(closed_url()), False), ARRAY
        )
    assert names(own) == [NAME] and names(cache) == [f"{NAME}.sgmcmc.npy"]


def test_own_folder_read_only_and_empty(server, own, cache, closed):
    closed(own)
    server.files["x"] = bz2.compress(TEXT)
    for _ in range(2):
        covertype.load_spec(spec_of(server.url("x")), verbose=False)
    assert names(own) == [] and NAME in names(cache) and server.asked == ["x"]


def test_nothing_writable(server, own, cache, closed):
    closed(own)
    closed(cache)
    server.files["x"] = bz2.compress(TEXT)
    for _ in range(2):
        np.testing.assert_array_equal(
            covertype.load_spec(spec_of(server.url("x")), verbose=False), ARRAY
        )
    assert names(own) == names(cache) == [] and server.asked == ["x", "x"]


def test_folder_is_a_file(server, cache, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"mine")
    monkeypatch.setenv(fetch.VARIABLE, str(tmp_path / "file"))
    server.files["x"] = bz2.compress(TEXT)
    covertype.load_spec(spec_of(server.url("x")), verbose=False)
    assert NAME in names(cache) and (tmp_path / "file").read_bytes() == b"mine"
