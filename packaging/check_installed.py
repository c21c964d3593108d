"""Runs a chain on the sgmcmc that is installed: ``python check_installed.py native|numpy``.

The word says who is to copy minibatches and to make random numbers: native code, or NumPy where
none was built.
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

import sgmcmc
from sgmcmc.data import native


def log_lik(params, dataset):
    """Return the log-likelihood of x_i ~ N(theta, 1)."""
    return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)


wanted = sys.argv[1] == "native"
found = {
    "copies rows": native.available(),
    "makes numbers": native.standard_normals(
        np.random.Generator(np.random.SFC64(1)), np.empty(8, np.float32)
    ),
}
if set(found.values()) != {wanted}:
    sys.exit(f"native code: {found}, and not {wanted}")
x = np.random.default_rng(1).normal(2.0, 1.0, (10_000, 2)).astype(np.float32)
chain = sgmcmc.sgldcv(
    log_lik,
    {"x": x},
    {"theta": [0.0, 0.0]},
    1e-5,
    1e-5,
    minibatch_size=100,
    seed=1,
    verbose=False,
)
error = np.abs(chain["theta"].mean(axis=0) - x.mean(axis=0)).max() * np.sqrt(len(x))
if not error < 0.5:
    sys.exit(f"the mean is off by {error} posterior SDs")
where = Path(sgmcmc.__file__).parent
print(
    f"Python {sys.version.split()[0]}, TensorFlow {tf.__version__}, NumPy {np.__version__}"
)
print(f"sgmcmc {sgmcmc.__version__} in {where}: {sys.argv[1]}, error {error:.2f} sd")
print(f"mean {chain['theta'].mean(axis=0).tolist()}")
