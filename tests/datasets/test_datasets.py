"""Data sets: parsing, download from a local server, caches, damage, concurrent use."""

from __future__ import annotations

import bz2
import doctest
import gzip
import hashlib
import http.server
import io
import os
import re
import socket
import subprocess
import sys
import threading
import time
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sgmcmc.datasets as datasets
from sgmcmc.datasets import covertype, fetch, folders, libsvm, mnist, parsed
from sgmcmc.datasets.fetch import DamagedFileError, DownloadError, Source

REAL = os.environ.get("SGMCMC_DATA")
TEXT = b"2 1:0.25 3:1 \n1 2:1e-3\n1\n2 1:1 2:.5 3:0.125 \n"
ARRAY = np.array([[1, 0.25, 0, 1], [0, 0, 1e-3, 0], [0] * 4, [1, 1, 0.5, 0.125]], np.float32)
NAME = "small.bz2"


def spec_of(*urls: str) -> covertype.Spec:
    return covertype.Spec(Source(NAME, urls), rows=4, positives=2, features=3)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder in place of the user's, and no folder of one's own."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(folders, "user", lambda: folder)
    monkeypatch.delenv(folders.VARIABLE, raising=False)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    return folder


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder chosen by the environment variable."""
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.setenv(folders.VARIABLE, str(folder))
    return folder


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`; those in `cut` break off after half of what was announced."""

    daemon_threads = True

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut: set[str] = set()
        self.stalled: set[str] = set()
        self.asked: list[str] = []
        self.over = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        self.server.asked.append(name)
        if name not in self.server.files:
            self.send_error(404)
            return
        content = self.server.files[name]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        broken = name in self.server.cut | self.server.stalled
        self.wfile.write(content[: len(content) // 2] if broken else content)
        self.wfile.flush()
        if name in self.server.stalled:
            self.server.over.wait(10)

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def closed_url() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/x"


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
        monkeypatch.setitem(datasets._LOADERS, name, lambda verbose, name=name: (name, verbose))
        assert datasets.get_dataset(name, verbose=False) == (name, False)


def test_default_cache_folder_is_the_systems(monkeypatch):
    monkeypatch.undo()
    assert folders.user().is_absolute() and "sgmcmc" in str(folders.user())


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
    monkeypatch.setattr(libsvm, "_CHUNK", chunk)
    array = parse(tmp_path, text)
    assert array.dtype == np.float32 and array.flags.writeable
    np.testing.assert_array_equal(array, ARRAY)


def test_libsvm_agrees_with_plain_python(tmp_path):
    rng = np.random.default_rng(1)
    expected = np.zeros((500, 55), np.float32)
    lines = []
    for row in expected:
        columns = np.sort(rng.choice(np.arange(1, 55), rng.integers(0, 54), replace=False))
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
    monkeypatch.setattr(libsvm, "_CHUNK", 40)
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
    monkeypatch.setattr(libsvm, "_CHUNK", 100)
    with pytest.raises(ValueError, match="not text in lines"):
        parse(tmp_path, bytes(1000))


# --- IDX


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


IMAGES = np.random.default_rng(0).integers(0, 256, (12, 28, 28), np.uint8)
LABELS = (np.arange(12) % 10).astype(np.uint8)


def mnist_sources(*mirrors: str) -> tuple[Source, Source]:
    return tuple(
        Source(name, tuple(m + name for m in mirrors), hashlib.sha256(idx(array)).hexdigest())
        for name, array in (("images.gz", IMAGES), ("labels.gz", LABELS))
    )


@pytest.mark.parametrize("pack", [gzip.compress, bytes], ids=["gzip", "decompressed on the way"])
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
        np.testing.assert_array_equal(images, IMAGES.reshape(12, 784)[skip:] / np.float32(255))
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
        (idx(IMAGES)[:-1] + b"\0", "SHA-256 of the decompressed content is [0-9a-f]{64} instead"),
    ],
)
def test_idx_refuses(own, content, reason):
    images, labels = mnist_sources("http://127.0.0.1:1/")
    path = own / images.filename
    path.write_bytes(gzip.compress(content))
    before = path.read_bytes()
    with pytest.raises(DamagedFileError, match=f"{re.escape(str(path))} is damaged: {reason}"):
        mnist.load_pair(images, labels, skip=0, verbose=False)
    assert path.read_bytes() == before


def test_mnist_refuses_digits_above_nine_and_files_of_different_lengths(own):
    images, labels = (replace(s, sha256=None) for s in mnist_sources("http://127.0.0.1:1/"))
    (own / "images.gz").write_bytes(idx(IMAGES))
    (own / "labels.gz").write_bytes(idx(LABELS + np.uint8(1)))
    with pytest.raises(DamagedFileError, match="holds 10"):
        mnist.load_pair(images, labels, skip=0, verbose=False)
    (own / "labels.gz").write_bytes(idx(LABELS[:-1]))
    with pytest.raises(DamagedFileError, match="12 images, 11 labels"):
        mnist.load_pair(images, labels, skip=0, verbose=False)


# --- download


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


def test_download_goes_to_own_folder_which_may_be_new(server, cache, tmp_path, monkeypatch):
    own = tmp_path / "new" / "own"
    monkeypatch.setenv(folders.VARIABLE, str(own))
    server.files["x"] = bz2.compress(TEXT)
    covertype.load_spec(spec_of(server.url("x")), verbose=False)
    assert names(own) == [NAME, f"{NAME}.sgmcmc.npy"] and names(cache) == []


def test_own_file_needs_no_network(own):
    (own / NAME).write_bytes(bz2.compress(TEXT))
    np.testing.assert_array_equal(covertype.load_spec(spec_of(closed_url()), True), ARRAY)


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
    return url in text and repr(NAME) in text and "set the environment variable SGMCMC_DATA" in text


def test_broken_transfer(server, cache):
    server.files["x"] = bz2.compress(TEXT)
    server.cut.add("x")
    with pytest.raises(DownloadError, match="IncompleteRead|EOF|ended before") as caught:
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
    assert advice(caught.value, url) and f"now: {own}" in str(caught.value) and names(own) == []
    assert isinstance(caught.value, OSError)


def test_address_of_no_use():
    with pytest.raises(DownloadError, match="No scheme"):
        covertype.load_spec(spec_of("nowhere"), verbose=False)


def test_mirrors_in_turn(server, cache):
    server.files |= {"damaged": b"<html>", "cut": bz2.compress(TEXT), "x": bz2.compress(TEXT)}
    server.cut.add("cut")
    urls = [closed_url(), *map(server.url, ("damaged", "absent", "cut", "x", "unused"))]
    np.testing.assert_array_equal(covertype.load_spec(spec_of(*urls), verbose=False), ARRAY)
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


@pytest.fixture
def closed(request):
    """Closes folders, and opens them again at the end, for pytest to clean up."""
    if os.name != "posix":
        pytest.skip("needs permission bits")
    done: list[Path] = []

    def close(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        folder.chmod(0o555)
        done.append(folder)

    yield close
    for folder in done:
        folder.chmod(0o755)


def test_own_folder_read_only(server, own, cache, closed):
    (own / NAME).write_bytes(bz2.compress(TEXT))
    closed(own)
    for _ in range(2):
        np.testing.assert_array_equal(covertype.load_spec(spec_of(closed_url()), False), ARRAY)
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
    monkeypatch.setenv(folders.VARIABLE, str(tmp_path / "file"))
    server.files["x"] = bz2.compress(TEXT)
    covertype.load_spec(spec_of(server.url("x")), verbose=False)
    assert NAME in names(cache) and (tmp_path / "file").read_bytes() == b"mine"


# --- cache of parsed arrays


@pytest.fixture
def parses(own, monkeypatch) -> list[Path]:
    """A source in the own folder; the list grows by one at each parsing."""
    (own / NAME).write_bytes(bz2.compress(TEXT))
    calls: list[Path] = []
    original = covertype.parse

    def counted(path: Path, spec: covertype.Spec) -> np.ndarray:
        calls.append(path)
        return original(path, spec)

    monkeypatch.setattr(covertype, "parse", counted)
    return calls


def load_own() -> np.ndarray:
    array = covertype.load_spec(spec_of("http://127.0.0.1:1/"), verbose=False)
    assert array.dtype == np.float32 and array.flags.writeable and array.flags.c_contiguous
    return array


def test_parsed_once(own, parses):
    first, second = load_own(), load_own()
    np.testing.assert_array_equal(first, ARRAY)
    np.testing.assert_array_equal(second, ARRAY)
    assert len(parses) == 1 and not np.shares_memory(first, second)
    cached = np.load(own / f"{NAME}.sgmcmc.npy", allow_pickle=False)  # a .npy like any other
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
    monkeypatch.setattr(parsed.np, "save", lambda *a, **k: (_ for _ in ()).throw(OSError(28, "")))
    np.testing.assert_array_equal(load_own(), ARRAY)
    assert names(own) == [NAME, f"{NAME}.sgmcmc.npy"]


def test_seal_covers_the_numbers():
    seal = parsed._seal(ARRAY, bytes(32))
    assert seal.endswith(zlib.crc32(ARRAY.tobytes()).to_bytes(4, "little"))


# --- other processes

# The package proper is left out: it would only make the processes slow to start.
CHILD = """
import pathlib, sys, types
package = types.ModuleType("sgmcmc")
package.__path__ = [sys.argv[1]]
sys.modules["sgmcmc"] = package
from sgmcmc.datasets import covertype, fetch
spec = covertype.Spec(fetch.Source("small.bz2", (sys.argv[2],)), rows=4, positives=2, features=3)
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
        subprocess.Popen([sys.executable, "-c", CHILD, *arguments], stderr=subprocess.PIPE)
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
    monkeypatch.setenv(folders.VARIABLE, REAL)


def test_real_covertype(cache, monkeypatch, tmp_path):
    real(monkeypatch, covertype.SPEC.source.filename)
    own = tmp_path / "linked"  # the parsed array goes next to the link, not to the real folder
    own.mkdir()
    name = covertype.SPEC.source.filename
    (own / name).symlink_to((Path(REAL) / name).resolve())
    monkeypatch.setenv(folders.VARIABLE, str(own))
    first = datasets.get_dataset("covertype")
    assert first.shape == (581012, 55) and first.dtype == np.float32
    assert np.count_nonzero(first[:, 0] == 1) == 283301
    assert np.count_nonzero(first[:, 0] == 0) == 297711
    assert (first.min(0) == 0).all() and (first.max(0) == 1).all()
    # One of 4 wilderness areas and one of 40 soil types.
    assert (first[:, 11:15].sum(1) == 1).all() and (first[:, 15:].sum(1) == 1).all()
    monkeypatch.setattr(covertype, "parse", lambda path, spec: pytest.fail("parsed twice"))
    np.testing.assert_array_equal(datasets.get_dataset("covertype"), first)


def test_real_mnist(monkeypatch):
    real(monkeypatch, *(source.filename for pair in mnist.SOURCES.values() for source in pair))
    data = datasets.get_dataset("mnist")
    for part, count in (("train", 55000), ("test", 10000)):
        images, labels = data[part]["images"], data[part]["labels"]
        assert images.shape == (count, 784) and labels.shape == (count, 10)
        assert images.dtype == labels.dtype == np.float32
        assert images.min() == 0 and images.max() == 1
        assert (labels.sum(1) == 1).all()
    # The published test set begins with these.
    assert data["test"]["labels"][:5].argmax(1).tolist() == [7, 2, 1, 0, 4]
