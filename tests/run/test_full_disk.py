"""A disk that is full at any write: a clear error, nothing lost, and the run goes on with room.

The disk is a small tmpfs, filled to its last few pages (four kilobytes each), one page less full
from run to run, so that each time another write is the first that fails.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc import Samples
from sgmcmc.datasets import fetch
from sgmcmc.datasets.covertype import load_or_parse
from tests import seams
from tests.conftest import short_call, short_setup
from tests.run.stopping import same, short_blocks_of

KEEPS: dict[str, Any] = {
    "store_gradients": True,
    "test_functions": {"square": lambda params: params["theta"] ** 2},
    "reductions": {"mean": sgmcmc.running_mean(lambda params: params["theta"])},
}
SAID = "`store`: cannot write to .*; what was written before is whole. No space left on device"


def terms(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return a term of the log-likelihood for each observation."""
    return -0.5 * (dataset["x"] - params["theta"]) ** 2


class Disk:
    """A small disk.

    Attributes:
        path: where it is mounted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, pages: int) -> None:
        """Leave so many pages."""
        self.clear()
        free = os.statvfs(self.path)
        with open(self.path / "filler", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, (free.f_bfree - pages) * free.f_bsize)

    def clear(self) -> None:
        """Leave all that nobody else has taken."""
        (self.path / "filler").unlink(missing_ok=True)

    def read_only(self, switched_on: bool) -> None:
        """Let nobody write to it, or everybody again."""
        option = "ro" if switched_on else "rw"
        subprocess.run(["mount", "-o", f"remount,{option}", self.path], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Mount a disk of a megabyte."""
    path = tmp_path / "disk"
    path.mkdir()
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("only root mounts file systems")
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(path)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this system mounts no tmpfs")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have checkpoints at every block, and large arrays in files of their own."""
    short_blocks_of(2**11, monkeypatch)
    monkeypatch.setattr(seams.LARGE_BYTES, 9)


def each_write_fails(
    disk: Disk, prepare: Callable[[], None], attempt: Callable[[], bool]
) -> int:
    """Attempt something on a disk with more and more room; return how often it failed.

    Args:
        disk: the disk.
        prepare: brings about what is there before.
        attempt: tells whether it came to its end; it looks after what it finds otherwise.
    """
    for pages in itertools.count():
        disk.clear()
        prepare()
        disk.fill(pages)
        if attempt():
            return pages
    raise AssertionError


def check_prefix(store: Path, whole: Samples, least: int) -> None:
    """A store that was stopped holds the first draws of a whole chain, or says that it has none."""
    try:
        found = Samples.open(store, verify=True)
    except ValueError as error:
        assert least == 0 and re.search(
            "no draws yet|not a folder that `store` made", str(error)
        )
        return
    draws = len(found["theta"])
    assert draws >= least
    np.testing.assert_array_equal(found["theta"], whole["theta"][:draws])


@pytest.mark.faults
@pytest.mark.parametrize("method", ["sgld", "sghmccv"])
@pytest.mark.parametrize("before", [0, 600])
def test_store_on_a_full_disk(
    method: str, before: int, disk: Disk, short_blocks: None
) -> None:
    """A store that is made, and one that grows."""
    store = disk.path / "chain"
    given = {"method": method, **KEEPS}
    whole = short_call(**given, n_iters=3000)

    def prepare() -> None:
        shutil.rmtree(store, ignore_errors=True)
        if before:
            short_call(**given, n_iters=before, store=store)

    def attempt() -> bool:
        try:
            same(short_call(**given, n_iters=3000, store=store), whole)
        except OSError as error:
            assert re.search(SAID, str(error))
        else:
            return True
        check_prefix(store, whole, before)
        disk.clear()
        same(short_call(**given, n_iters=3000, store=store), whole)
        assert not list(store.glob("*.part"))
        return False

    failed = each_write_fails(disk, prepare, attempt)
    print(f"{method}, {before} iterations before: failed at {failed} places")
    assert failed > 6


@pytest.mark.faults
def test_store_that_gets_one_page_at_a_time(disk: Disk, short_blocks: None) -> None:
    """Each attempt goes on from what the one before has left."""
    store = disk.path / "chain"
    whole = short_call(**KEEPS, n_iters=6000)

    def attempt() -> bool:
        try:
            same(short_call(**KEEPS, n_iters=6000, store=store), whole)
        except OSError as error:
            assert re.search(SAID, str(error))
            check_prefix(store, whole, 0)
            return False
        return True

    assert each_write_fails(disk, lambda: None, attempt) > 6


@pytest.mark.faults
def test_save_on_a_full_disk(disk: Disk) -> None:
    """The file that was there stays, and no half file beside it."""
    old, new = short_call(n_iters=100), short_call(n_iters=8000, store_gradients=True)
    path = disk.path / "chain.npz"

    def attempt() -> bool:
        try:
            new.save(path)
        except OSError as error:
            assert re.search(
                "`path`: cannot write .*chain.npz.*; what was there .* No space",
                str(error),
            )
            same(Samples.load(path), old)
            assert {file.name for file in disk.path.iterdir()} <= {
                "chain.npz",
                "filler",
            }
            return False
        same(Samples.load(path), new)
        return True

    assert each_write_fails(disk, lambda: old.save(path), attempt) > 10


@pytest.mark.faults
def test_values_on_a_full_disk(disk: Disk) -> None:
    """What is written piece by piece, and takes the place of a file that was there."""
    samples, path = short_call(n_iters=1000), disk.path / "values.npy"
    data = {"x": np.zeros(20, np.float32)}
    wanted = samples.log_lik(data, log_lik=terms)

    def prepare() -> None:
        np.save(path, np.arange(3.0))

    def attempt() -> bool:
        try:
            samples.log_lik(data, log_lik=terms, store=path)
        except OSError as error:
            assert re.search(
                "`store`: cannot write .*values.npy'; what .* No space", str(error)
            )
            np.testing.assert_array_equal(np.load(path), np.arange(3.0))
            assert {file.name for file in disk.path.iterdir()} <= {
                "values.npy",
                "filler",
            }
            return False
        np.testing.assert_array_equal(np.load(path), wanted)
        return True

    assert each_write_fails(disk, prepare, attempt) > 10


@pytest.mark.faults
def test_dataset_cache_on_a_full_disk(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data are at hand all the same, and no half cache is left or taken for one."""
    monkeypatch.delenv(fetch.VARIABLE, raising=False)
    monkeypatch.setattr(fetch, "user_folder", lambda: disk.path)
    source, parsed = (
        disk.path / "small.txt",
        np.arange(20_000, dtype=np.float32).reshape(-1, 2),
    )
    source.write_text("what is parsed")
    cache = disk.path / "small.txt.sgmcmc.npy"

    def prepare() -> None:
        cache.unlink(missing_ok=True)

    def attempt() -> bool:
        for _ in range(2):
            found = load_or_parse(source, "small.txt", parsed.shape, lambda _: parsed)
            np.testing.assert_array_equal(found, parsed)
        names = {file.name for file in disk.path.iterdir()} - {"filler"}
        assert names <= {"small.txt", cache.name}
        return cache.exists()

    assert each_write_fails(disk, prepare, attempt) > 10


@pytest.mark.faults
def test_download_to_a_full_disk(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that says so, and no half file."""
    monkeypatch.delenv(fetch.VARIABLE, raising=False)
    monkeypatch.setattr(fetch, "user_folder", lambda: disk.path)
    content = bytes(40_000)
    source = fetch.Source("small.txt", ("https://nowhere.invalid/small.txt",))
    monkeypatch.setattr(
        fetch, "_transfer", lambda url, part, *_: part.write_bytes(content)
    )

    def attempt() -> bool:
        try:
            assert fetch.load(source, Path.read_bytes, verbose=False) == content
        except fetch.DownloadError as error:
            assert "No space left on device" in str(error)
            assert {file.name for file in disk.path.iterdir()} <= {"filler"}
            return False
        return True

    assert each_write_fails(disk, lambda: None, attempt) > 5


@pytest.mark.faults
def test_session_on_a_full_disk(disk: Disk) -> None:
    setup = short_setup("sgldcv")
    session = sgmcmc.init_sess(setup, verbose=False)
    path = disk.path / "session.npz"
    session.save(path)
    before = path.read_bytes()
    sgmcmc.sgmcmc_step(setup, session, 3)
    disk.fill(0)
    with pytest.raises(
        OSError, match=r"`path`: cannot write .*; what was there .* No space"
    ):
        session.save(path)
    assert path.read_bytes() == before
    disk.clear()
    session.save(path)
    assert path.read_bytes() != before


@pytest.mark.faults
def test_store_on_a_read_only_disk(disk: Disk) -> None:
    """What is there is read; nothing is written, and the error says so."""
    store = disk.path / "chain"
    short = short_call(n_iters=50, store=store)
    disk.read_only(True)
    same(Samples.open(store), short)
    for path, n_iters in ((store, 50), (store, 100), (disk.path / "other", 50)):
        with pytest.raises(
            OSError, match="`store`: cannot write .*Read-only file system"
        ):
            short_call(n_iters=n_iters, store=path)
    with pytest.raises(OSError, match="`path`: cannot write .*Read-only file system"):
        short.save(disk.path / "chain.npz")
    disk.read_only(False)
    same(short_call(n_iters=100, store=store), short_call(n_iters=100))
