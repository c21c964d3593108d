"""Parquet and Zarr by name: here, at URLs, and at those that turn one away."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.data import named, reading, tables
from sgmcmc.data.reading import read_dataset
from sgmcmc.data.transfer import courier
from sgmcmc.machines.worker import Unpickler, pack
from sgmcmc.regression import frames
from tests import seams
from tests.conftest import short_call

X = np.random.default_rng(5).normal(size=(500, 3)).astype(np.float32)
NAMES = ["a", "b", "c"]
SECRET = "hunter2/hunter2+="
pa = pytest.importorskip("pyarrow")
fsspec = pytest.importorskip("fsspec")


def table(times: int = 1) -> Any:
    return pa.table(dict(zip(NAMES, times * X.T, strict=True)))


def write_zarr(where: str, **options: Any) -> None:
    zarr = pytest.importorskip("zarr", minversion="3")
    group = zarr.open_group(where, mode="w", **options)
    for name, array in {"x": X, "y": X[:, 0]}.items():
        chunks = (70, *array.shape[1:])
        made = group.create_array(
            name, shape=array.shape, dtype=array.dtype, chunks=chunks
        )
        made[...] = array


def write_parquet(system: Any, where: str, times: int = 1) -> None:
    from pyarrow import parquet

    with system.open(where, "wb") as file:
        parquet.write_table(table(times), file, row_group_size=70)


@pytest.fixture
def remote() -> Iterator[str]:
    """A file system in memory with a Parquet file and a folder of two."""
    system = fsspec.filesystem("memory")
    for name in ("x.parquet", "parts/1.parquet", "parts/2.parquet"):
        write_parquet(system, f"/here/{name}")
    yield "memory://here"
    system.rm("/here", recursive=True)


def check_table(dataset: Any, times: int = 1) -> None:
    data = read_dataset(dataset, tf.float32)
    assert list(data.columns) == NAMES
    found = np.stack([data.whole[name] for name in NAMES], 1)
    np.testing.assert_array_equal(found, np.concatenate([X] * times))


def test_parquet_at_a_url(remote: str, tmp_path: Path) -> None:
    check_table(f"{remote}/x.parquet")
    check_table(f"{remote}/parts", times=2)
    whole = read_dataset({"x": f"{remote}/x.parquet"}, tf.float32).whole["x"]
    np.testing.assert_array_equal(whole, X)
    write_parquet(fsspec.filesystem("file"), f"{tmp_path}/x.parquet")
    check_table(f"file://{tmp_path}/x.parquet")


@pytest.mark.parametrize("mapped", [False, True])
def test_columns_of_a_regression_at_a_url(
    remote: str, mapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mapped:
        settings = seams.changed(seams.REGRESSION_FRAMES, mapped=100)
        monkeypatch.setattr(seams.REGRESSION_FRAMES, settings)
    found = frames.as_frame(f"{remote}/parts", lambda head: ["c", "a"])
    np.testing.assert_array_equal(found, np.concatenate([X, X])[:, [2, 0]])
    assert list(found) == ["c", "a"]


@pytest.mark.some(1)
@pytest.mark.parametrize("form", ["by name", "URL", "dataset"])
def test_parquet_is_not_held_whole(form: str, tmp_path: Path) -> None:
    from pyarrow import dataset, parquet

    rows = np.random.default_rng(1).normal(
        size=(2_000_000, 5)
    )  # 80 MB that do not compress
    where = str(tmp_path / "x.parquet")
    made = pa.table(dict(zip("abcde", rows.T, strict=True)))
    parquet.write_table(made, where, row_group_size=20_000)
    del made
    if form == "dataset":
        data = dataset.dataset(where)
    else:
        data = named.open_named("x", where if form == "by name" else f"file://{where}")
    before, held, first = pa.total_allocated_bytes(), 0, 0
    for batch in tables.as_table("x", data).batches():
        last = first + len(batch["c"])
        np.testing.assert_array_equal(batch["c"], rows[first:last, 2])
        first = last
        held = max(held, pa.total_allocated_bytes() - before)
    assert first == len(rows)
    assert held < rows.nbytes / 2


def test_zarr_by_name(tmp_path: Path) -> None:
    write_zarr(f"{tmp_path}/x.zarr")
    for where in (
        f"{tmp_path}/x.zarr",
        tmp_path / "x.zarr",
        f"file://{tmp_path}/x.zarr",
    ):
        data = read_dataset(where, tf.float32)
        assert sorted(data.columns) == ["x", "y"]
        np.testing.assert_array_equal(data.whole["x"], X)
        np.testing.assert_array_equal(data.whole["y"], X[:, 0])
        data = read_dataset({"x": f"{where}/x"}, tf.float32)
        np.testing.assert_array_equal(data.whole["x"], X)
        with pytest.raises(TypeError, match="is a group of arrays, x, y"):
            read_dataset({"x": where}, tf.float32)


@pytest.mark.parametrize("form", ["Zarr", "Zarr, entry", "Parquet", "Parquet, URL"])
def test_what_has_not_changed_is_unpacked_once(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    real = reading.open_named
    monkeypatch.setattr(
        seams.OPEN_NAMED, lambda *given: opened.append(1) or real(*given)
    )
    url = form.endswith("URL")
    where = f"{'memory://' if url else ''}{tmp_path}/x.{'zarr' if 'Zarr' in form else 'parquet'}"

    def write(times: int) -> None:
        if "Zarr" in form:
            write_zarr(where, attributes={"times": times})
            zarr = pytest.importorskip("zarr")
            zarr.open_group(where)["y"][...] = times * X[:, 0]
        else:
            write_parquet(fsspec.filesystem("memory" if url else "file"), where, times)

    def last() -> np.ndarray:
        data = read_dataset(
            {"y": f"{where}/y"} if "entry" in form else where, tf.float32
        )
        return data.whole["y" if "Zarr" in form else "c"].numpy()

    write(1)
    first = last()
    np.testing.assert_array_equal(last(), first)
    assert len(opened) == 1
    write(2)
    np.testing.assert_array_equal(last(), 2 * first)
    assert len(opened) == 2
    monkeypatch.setattr(
        named.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 0})
    )
    last()  # it was unpacked, but there is no room to keep it from now on
    last()
    assert len(opened) == 3
    if url:
        monkeypatch.undo()
        monkeypatch.setattr(seams.NAMED_VERSIONS, ("ETag",))
        assert (
            named._state_of(where) is None
        )  # a file system that does not tell versions


def test_workers_open_urls(tmp_path: Path) -> None:
    write_zarr(f"{tmp_path}/x.zarr")
    write_parquet(fsspec.filesystem("file"), f"{tmp_path}/x.parquet")
    for where in (f"file://{tmp_path}/x.parquet", f"file://{tmp_path}/x.zarr"):
        data = read_dataset(where, tf.float32)
        blob = pack(courier(data)[1](), {}).blob
        there = Unpickler(blob, {}).load()
        assert len(blob) < 2000
        for name, values in data.whole.items():
            np.testing.assert_array_equal(there.whole[name], values)


class _Refusing(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A file system that turns one away, and says more than it should."""

    protocol = "refusing"
    secret = SECRET

    def __init__(self, **given: Any) -> None:
        super().__init__()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path

    def info(self, path: str, **given: Any) -> Any:
        raise PermissionError(
            f"403 Forbidden: {path} with {self.secret} of me:{self.secret}"
        )

    ls = info


fsspec.register_implementation("refusing", _Refusing, clobber=True)

TURNED_AWAY = [
    f"refusing://me:{SECRET}@bucket/x.parquet",
    f"refusing://bucket/x.parquet?user=me&signature={SECRET}",
    "refusing://bucket/x.parquet",  # the secret is in the environment
    "refusing://bucket/folder",
    "refusing://bucket/x.csv?token=" + SECRET,
]


@pytest.mark.parametrize("where", TURNED_AWAY)
@pytest.mark.parametrize("as_entry", [False, True])
def test_credentials_are_not_shown(
    where: str,
    as_entry: bool,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("REFUSING_SECRET_KEY", SECRET)
    with pytest.raises((ValueError, TypeError)) as caught:
        short_call(dataset={"x": where} if as_entry else where)
    said = "".join(traceback.format_exception_only(caught.value)) + "".join(
        capfd.readouterr()
    )
    assert SECRET not in said and "hunter2" not in said and "`dataset" in said
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    if not where.partition("?")[0].endswith(".csv"):
        assert (
            "403 Forbidden" in said
            and "bucket/" in said
            and "Credentials are looked" in said
        )


def test_what_is_shown_of_a_url() -> None:
    assert named.shown("s3://k:a/b@c@bucket/x.zarr?sig=d") == "s3://***@bucket/x.zarr"
    assert (
        named.shown("simplecache::s3://k:s@b/x.parquet")
        == "simplecache::s3://***@b/x.parquet"
    )
    assert named.shown("folder@home/x?y.parquet") == "folder@home/x?y.parquet"
    assert not named.is_url("C:\\x.parquet") and not named.is_url(Path("x"))


def test_names_that_lead_nowhere(remote: str, tmp_path: Path) -> None:
    for where, says in {
        f"{remote}/y.parquet": "there is no 'memory://here/y.parquet'",
        "nosuch://bucket/x.parquet": "nosuch",
        str(tmp_path / "y.zarr"): "there is no",
    }.items():
        with pytest.raises(ValueError, match=says):
            read_dataset(where, tf.float32)
    with pytest.raises(TypeError, match=r"memory://here/x.csv.*Parquet's and Zarr's"):
        read_dataset({"x": f"{remote}/x.csv"}, tf.float32)
    (tmp_path / "empty.zarr").mkdir()
    zarr = pytest.importorskip("zarr", minversion="3")
    zarr.open_group(str(tmp_path / "empty.zarr"), mode="w")
    with pytest.raises(ValueError, match="group without arrays"):
        read_dataset(tmp_path / "empty.zarr", tf.float32)


def test_what_breaks_off_says_where(
    remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that fails in its middle, after it was opened."""

    class Failing:
        shape, dtype, chunks = (500, 3), np.dtype(np.float32), (70, 3)

        def __getitem__(self, rows: slice) -> Any:
            raise OSError(f"expired: {SECRET}")

    url = f"https://me:{SECRET}@host/x.zarr"
    with pytest.raises(
        ValueError, match="'https://.*host/x.zarr' cannot be read. OSError: exp"
    ):
        read_dataset({"x": named.Remote("dataset['x']", url, Failing())}, tf.float32)


@contextlib.contextmanager
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server of S3's on this machine."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(
        "127.0.0.1", 0, verbose=False
    )
    pytest.importorskip("s3fs")
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        yield f"{host}:{port}"
    finally:
        server.stop()


def test_s3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Parquet through fsspec and pyarrow's own, Zarr, and a store that knows no secret."""
    with s3(monkeypatch) as host:
        system = fsspec.filesystem("s3")
        system.mkdir("bucket")
        write_parquet(system, "bucket/rows/1.parquet")
        check_table("s3://bucket/rows/1.parquet")
        check_table("s3://bucket/rows/")
        options = f"endpoint_override={host}&scheme=http&region=us-east-1"
        url = f"s3://somebody:{SECRET.replace('/', '%2F')}@bucket/rows/1.parquet?{options}"
        check_table(url)
        write_zarr("s3://bucket/x.zarr")
        np.testing.assert_array_equal(
            read_dataset("s3://bucket/x.zarr", tf.float32).whole["x"], X
        )
        short_call(dataset={"x": "s3://bucket/x.zarr/y"}, store=tmp_path / "store")
        kept = [
            path.read_bytes()
            for path in (tmp_path / "store").rglob("*")
            if path.is_file()
        ]
        assert kept and not any(SECRET.encode() in part for part in kept)
        with pytest.raises(ValueError, match="there is no 's3://bucket/y.parquet'"):
            read_dataset("s3://bucket/y.parquet", tf.float32)


def test_a_url_where_none_is_read_is_not_shown() -> None:
    groups = sgmcmc.Groups(
        "g", effects={"z": 0.0}, log_prior=lambda e, p: -(e["z"] ** 2)
    )
    with pytest.raises(TypeError, match="it is a URL"):
        short_call(dataset=TURNED_AWAY[0], groups=groups)
