"""What `samples.settings` says of the call, the engine and the versions."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc import libraries
from sgmcmc._version import __version__
from sgmcmc.data import native
from sgmcmc.engine import prefetcher
from sgmcmc.graphs import compiler
from sgmcmc.inputs.options import Options


def of_options(options: Options) -> dict[str, Any]:
    """Return what a person would want to see of the keyword arguments."""
    stored = options.store_params
    manifolds = {name: repr(manifold) for name, manifold in options.manifolds.items()}
    return {
        "manifolds": manifolds,
        "n_chains": options.n_chains,
        "burn_in": options.burn_in,
        "thin": options.thin,
        "store_gradients": options.store_gradients,
        "test_functions": list(options.test_functions),
        "reductions": list(options.reductions),
        "store_params": stored if isinstance(stored, bool) else list(stored),
        "updates": options.updates,
        "bijectors": {name: bijector.name for name, bijector in options.bijectors.items()},
        "dtype": options.dtype.name,
        "integers": list(options.integers),
        "jit_compile": options.jit_compile,
        "gibbs": options.gibbs is not None,
        "latents": list(options.latents),
    }


def paths() -> dict[str, str]:
    """Return which way the engine goes where there is a fast one that is not sure to be there."""
    return {
        "graph calls": "direct" if compiler.calls_directly() else "public",
        "native code": "on" if native.available() else "off",
        "blocks": "shared" if prefetcher.shares_memory() else "copied",
    }


def versions() -> dict[str, str]:
    """Return the versions of what the numbers depend on."""
    return {
        "sgmcmc": __version__,
        "tensorflow": tf.__version__,
        "tensorflow_probability": libraries.probability_version(),
        "numpy": np.__version__,
    }
