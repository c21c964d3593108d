"""Memory of a wide Keras network of which only predictions are stored.

`python -m benchmarks.networks.wide DRAWS` samples a million weights and prints the peak of the
process in GB; a process each for a few draws and for many tells if the peak grows with them.
"""

from __future__ import annotations

import sys

import keras
import numpy as np

import sgmcmc.keras
from benchmarks.memory import peak

WIDTH, ROWS, FEATURES, ASKED = 1000, 5000, 20, 100


def main(draws: int) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    y = (np.sin(X[:, :1]) + 0.1 * rng.normal(size=(ROWS, 1))).astype(np.float32)
    keras.utils.set_random_seed(1)
    hidden = [keras.layers.Dense(WIDTH, "silu") for _ in range(2)]
    network = keras.Sequential(
        [keras.Input((FEATURES,)), *hidden, keras.layers.Dense(1)]
    )
    before = peak()
    fit = sgmcmc.keras.sample_network(
        network, (X, y), "mean_squared_error", members=2, epochs=3, n_iters=10 * draws,
        draws=draws, predict_at=X[:ASKED], store_weights=False, seed=1, verbose=False,
    )  # fmt: skip
    print(
        f"{network.count_params()} weights, predictions {np.shape(fit.predictions)}: "
        f"{before / 1e9:.2f} GB before, {peak() / 1e9:.2f} GB at the peak"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
