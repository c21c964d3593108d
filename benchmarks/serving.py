"""A large posterior as a SavedModel: seconds to load it, and to ask it in a process of its own.

``python -m benchmarks.serving``: a regression on a thousand columns, 25 000 draws, 100 MB.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import sgmcmc

COLUMNS, DRAWS, ROWS = 1000, 25_000, 100
ASK = """
import sys, time
import numpy as np, tensorflow as tf
x = tf.constant(np.load(sys.argv[2]))
def seconds(call):
    start = time.perf_counter()
    value = call()
    return value, time.perf_counter() - start
tf.matmul(x, x, transpose_b=True)  # TensorFlow's own start
model, loading = seconds(lambda: tf.saved_model.load(sys.argv[1]))
ask = lambda: model.signatures["mean"](x=x)["mean"].numpy()
mean, first = seconds(ask)
_, second = seconds(ask)
assert not any(name.startswith("sgmcmc") for name in sys.modules)
np.save(sys.argv[3], mean)
print(f"loaded in {loading:.2f} s, first call {first:.2f} s, second {second:.2f} s")
"""


def predict(params: Any, dataset: Any) -> tf.Tensor:
    """Return the probability of each row."""
    return tf.sigmoid(tf.linalg.matvec(dataset["x"], params["beta"]))


def main() -> None:
    """Export, load, ask, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=DRAWS)
    count = parser.parse_args().draws
    rng = np.random.default_rng(1)
    beta = (
        rng.standard_normal((4, count // 4, COLUMNS), dtype=np.float32) / COLUMNS**0.5
    )
    samples = sgmcmc.Samples(
        {"beta": beta}, settings={"n_chains": 4, "dtype": "float32"}
    )
    x = rng.standard_normal((ROWS, COLUMNS), dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        served = samples.export(
            Path(folder, "served"), predict, {"x": x[:2]}, draws=count
        )
        seconds = time.perf_counter() - start
        size = sum(file.stat().st_size for file in served.rglob("*") if file.is_file())
        np.save(Path(folder, "x.npy"), x)
        print(f"{size / 1e6:.0f} MB, written in {seconds:.2f} s", flush=True)
        paths = [str(Path(folder, name)) for name in ("served", "x.npy", "mean.npy")]
        subprocess.run([sys.executable, "-c", ASK, *paths], check=True, cwd=folder)
        off = np.abs(np.load(paths[2]) - samples.predict(predict, {"x": x})).max()
        print(f"largest difference from samples.predict: {off:.1e}")


if __name__ == "__main__":
    main()
