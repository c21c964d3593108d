"""Rows that come in order or from elsewhere: `python -m benchmarks.streams --help`.

Each form is opened, unpacked and checked in a process of its own, and then once more. Seconds of
the clock and of the processor, and the process's own memory, without what is mapped from files.
S3 is moto's server in a separate process (moto[server], s3fs, zarr and pyarrow must be installed).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.formats import own_memory
from sgmcmc.data.reading import read_dataset

FEATURES, CHUNK = 4, 100_000
FORMS = ("tf.data, slices", "tf.data", "generator", "Zarr", "Zarr, s3", "Parquet, s3")
SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(*server.get_host_and_port(), flush=True)
sys.stdin.read()
"""


def batches(N: int, size: int = CHUNK) -> Iterator[dict[str, np.ndarray]]:
    """Yield rows of five numbers."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((size, FEATURES), dtype=np.float32)
    for start in range(0, N, size):
        rows = min(size, N - start)
        yield {"x": x[:rows], "y": np.arange(start, start + rows, dtype=np.float32) % 7}


def write(form: str, where: str, N: int) -> None:
    """Write the rows as Zarr or Parquet."""
    if form.startswith("Zarr"):
        import zarr

        group = zarr.open_group(where, mode="w")
        for name, tail in {"x": (FEATURES,), "y": ()}.items():
            made = group.create_array(
                name, shape=(N, *tail), dtype="f4", chunks=(CHUNK, *tail)
            )
            for place, batch in enumerate(batches(N)):
                made[place * CHUNK : place * CHUNK + len(batch[name])] = batch[name]
        return
    import fsspec
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [*(f"x{k}" for k in range(FEATURES)), "y"]
    schema = pa.schema([(name, pa.float32()) for name in names])
    with fsspec.open(where, "wb") as file, pq.ParquetWriter(file, schema) as writer:
        for batch in batches(N):
            writer.write_table(pa.table([*batch["x"].T, batch["y"]], schema=schema))


def opened(form: str, where: str, N: int) -> Any:
    """Return what is handed in as `dataset`."""
    if form == "generator":
        return batches(N)
    if form == "tf.data, slices":
        parts = list(batches(N))
        whole = {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0]
        }
        return tf.data.Dataset.from_tensor_slices(whole).batch(256)
    if form == "tf.data":
        spec = {"x": tf.TensorSpec([None, FEATURES]), "y": tf.TensorSpec([None])}
        return tf.data.Dataset.from_generator(lambda: batches(N), output_signature=spec)
    return where


class Highest:
    """The largest of the process's own memory within a ``with`` block."""

    def __enter__(self) -> Highest:
        self.megabytes = own_memory()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self.megabytes = max(self.megabytes, own_memory())

    def __exit__(self, *_: Any) -> None:
        self._done.set()
        self._thread.join()


def measure(form: str, where: str, N: int) -> dict[str, float]:
    """Return seconds and megabytes of the first call, and seconds of the second."""
    read_dataset(next(batches(10)), tf.float32)
    dataset = opened(form, where, N)
    before = own_memory()
    start, processor = time.perf_counter(), time.process_time()
    with Highest() as highest:
        data = read_dataset(dataset, tf.float32)
    found = {
        "seconds": time.perf_counter() - start,
        "CPU": time.process_time() - processor,
    }
    assert data.size == N
    start = time.perf_counter()
    again = read_dataset(dataset, tf.float32)
    found["again"] = time.perf_counter() - start
    assert all(again.columns[name] is column for name, column in data.columns.items())
    return {**found, "own MB more": highest.megabytes - before}


def main() -> None:
    """Write, read and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="200 MB by default"
    )
    parser.add_argument("--forms", nargs="*", default=list(FORMS), choices=FORMS)
    parser.add_argument("--measure", nargs=2, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(*given.measure, given.rows)))
        return
    server = None
    if any(form.endswith("s3") for form in given.forms):
        server = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert server.stdout is not None
        host, port = server.stdout.readline().split()
        os.environ.update(
            AWS_ENDPOINT_URL=f"http://{host}:{port}", AWS_ACCESS_KEY_ID="somebody",
            AWS_SECRET_ACCESS_KEY="something", AWS_DEFAULT_REGION="us-east-1",
        )  # fmt: skip
        import fsspec

        fsspec.filesystem("s3").mkdir("bucket")
    with tempfile.TemporaryDirectory() as folder:
        for form in given.forms:
            kind = "zarr" if form.startswith("Zarr") else "parquet"
            where = (
                f"s3://bucket/x.{kind}"
                if form.endswith("s3")
                else str(Path(folder, "x.zarr"))
            )
            if kind == "zarr" or form.startswith("Parquet"):
                write(form, where, given.rows)
            command = [
                sys.executable,
                "-m",
                "benchmarks.streams",
                "--rows",
                str(given.rows),
            ]
            run = subprocess.run(
                [*command, "--measure", form, where],
                check=True,
                capture_output=True,
                text=True,
            )
            found = json.loads(run.stdout.splitlines()[-1])
            print(
                f"{form}: ",
                "  ".join(f"{k} {v:.2f}" for k, v in found.items()),
                flush=True,
            )
    if server is not None:
        server.terminate()


if __name__ == "__main__":
    main()
