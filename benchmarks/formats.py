"""Data in the forms that they lie in, seconds and memory: `python -m benchmarks.formats --help`.

Every form holds the same numbers, the sparse matrix in a hundred times as many columns. Each is
read in a process of its own: opened and checked, one iteration, 10 000 iterations of SGLD with
minibatches of 200, and one pass over all rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

FEATURES, CHUNK, ITERATIONS, MINIBATCH = 54, 2000, 10_000, 200
PIECE = 50 * CHUNK
NEEDS = {
    "npy, mapped": "numpy",
    "HDF5": "h5py",
    "HDF5 in chunks": "h5py",
    "HDF5 gzip": "h5py",
    "Zarr": "zarr",
    "Dask": "dask",
    "Parquet": "pyarrow",
    "Hugging Face": "datasets",
    "SciPy CSR": "scipy",
}
SPREAD = 100
"""Columns of the sparse matrix for each of the others."""


def pieces(N: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield the numbers, rounded so that they can be compressed."""
    rng = np.random.default_rng(1)
    for start in range(0, N, PIECE):
        rows = slice(start, min(start + PIECE, N))
        x = rng.standard_normal((rows.stop - start, FEATURES), dtype=np.float32)
        yield rows, np.round(x, 1)


def write(form: str, path: Path, N: int) -> None:
    """Write the numbers in a form."""
    if form == "SciPy CSR":
        write_sparse(path, N)
        return
    if form in ("npy, mapped", "Dask"):
        target = np.lib.format.open_memmap(path, "w+", np.float32, (N, FEATURES))
    elif form.startswith("HDF5"):
        import h5py

        chunks = {} if form == "HDF5" else {"chunks": (CHUNK, FEATURES)}
        packing = (
            {"compression": "gzip", "compression_opts": 1} if "gzip" in form else {}
        )
        file = h5py.File(path, "w")
        target = file.create_dataset("x", (N, FEATURES), "f4", **chunks, **packing)
    elif form == "Zarr":
        import zarr

        target = zarr.create_array(
            path, shape=(N, FEATURES), chunks=(CHUNK, FEATURES), dtype="f4"
        )
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = [f"x{i}" for i in range(FEATURES)]
        schema = pa.schema([(name, pa.float32()) for name in names])
        with pq.ParquetWriter(path, schema) as writer:
            for _, x in pieces(N):
                writer.write_table(pa.table(list(x.T), schema=schema))
        return
    for rows, x in pieces(N):
        target[rows] = x
    getattr(target, "flush", lambda: None)()


def write_sparse(path: Path, N: int) -> None:
    """Write the numbers in columns that differ from row to row."""
    from scipy import sparse

    values = np.concatenate([x.reshape(-1) for _, x in pieces(N)])
    first = np.arange(FEATURES, dtype=np.int32) * SPREAD
    places = (np.arange(N, dtype=np.int32)[:, np.newaxis] % SPREAD + first).reshape(-1)
    splits = np.arange(0, N * FEATURES + 1, FEATURES)
    matrix = sparse.csr_array((values, places, splits), shape=(N, FEATURES * SPREAD))
    with path.open("wb") as file:
        sparse.save_npz(file, matrix, compressed=False)


def opened(form: str, path: Path) -> Any:
    """Return an entry of `dataset`."""
    if form == "npy, mapped":
        return np.load(path, mmap_mode="r")
    if form == "Dask":
        import dask.array

        return dask.array.from_array(
            np.load(path, mmap_mode="r"), chunks=(PIECE, FEATURES)
        )
    if form.startswith("HDF5"):
        import h5py

        return h5py.File(path)["x"]
    if form == "Zarr":
        import zarr

        return zarr.open_array(path, mode="r")
    if form == "Parquet":
        return path
    if form == "SciPy CSR":
        from scipy import sparse

        with path.open("rb") as file:
            return sparse.load_npz(file)
    import datasets

    return datasets.Dataset.from_parquet(
        str(path), cache_dir=str(path.parent / "cache")
    )


def own_memory() -> float:
    """Return the megabytes of a process that are not of files, so far as the system tells."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("RssAnon:")[2].split()[0]) / 1024
    except (OSError, IndexError, ValueError):
        return float("nan")


def measure(form: str, path: Path) -> dict[str, float]:
    """Return the seconds of each operation, and the memory at their end."""
    import tensorflow as tf

    import sgmcmc
    from sgmcmc.data.passes import chunks, shards
    from sgmcmc.data.reading import read_dataset

    def log_lik(
        params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        x, m = dataset["x"], params["m"]
        if isinstance(x, tf.SparseTensor):
            return -0.5 * tf.reduce_sum(
                tf.sparse.sparse_dense_matmul(x, m[:, tf.newaxis]) ** 2
            )
        return -0.5 * tf.reduce_sum((x - m) ** 2)

    def chain(n_iters: int) -> Callable[[], Any]:
        start = {"m": np.zeros(entry.shape[1] if form == "SciPy CSR" else FEATURES)}
        given = {
            "minibatch_size": MINIBATCH,
            "n_iters": n_iters,
            "seed": 1,
            "verbose": False,
        }
        return lambda: sgmcmc.sgld(log_lik, {"x": entry}, start, 1e-9, **given)

    entry = opened(form, path)
    chain(1)()  # TensorFlow's own start, and the file into the system's cache
    if form == "Parquet":
        os.utime(path)  # a file that has changed is unpacked anew
    before, found = own_memory(), {}

    def seconds(call: Callable[[], Any]) -> float:
        began = time.perf_counter()
        call()
        return time.perf_counter() - began

    found["open and check"] = seconds(lambda: read_dataset({"x": entry}, tf.float32))
    found["1 iteration"] = seconds(chain(1))
    found[f"{ITERATIONS} iterations"] = seconds(chain(ITERATIONS))
    data = read_dataset({"x": entry}, tf.float32)
    found["a pass"] = seconds(
        lambda: sum(
            float(tf.reduce_sum(getattr(piece["x"], "values", piece["x"])))
            for shard in shards(data)
            for *_, piece in chunks(data, shard)
        )
    )
    return {**found, "own MB more": own_memory() - before}


def main() -> None:
    """Write, read and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=9_300_000, help="2 GB by default")
    parser.add_argument("--folder", type=Path, default=None, help="where the files go")
    parser.add_argument("--forms", nargs="*", default=list(NEEDS), choices=list(NEEDS))
    parser.add_argument("--measure", nargs=2, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.measure[0], Path(given.measure[1]))))
        return
    for form in given.forms:
        if find_spec(NEEDS[form]) is None:
            print(f"{form}: {NEEDS[form]} is not installed")
            continue
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            path = Path(folder) / "x.parquet"
            write(form, path, given.rows)
            command = [
                sys.executable,
                "-m",
                "benchmarks.formats",
                "--measure",
                form,
                str(path),
            ]
            run = subprocess.run(command, check=True, capture_output=True, text=True)
            found = json.loads(run.stdout.splitlines()[-1])
            columns = "  ".join(f"{name} {value:.1f}" for name, value in found.items())
            print(f"{form}: {columns}", flush=True)


if __name__ == "__main__":
    main()
