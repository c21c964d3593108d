"""References: algebra, collapsed Gibbs, or long exact chains; never `sample`.

`python -m benchmarks.large.references [NAME ...]` makes those that are missing, or these again, and
keeps means and SDs of every scalar and of some coordinates in `references.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import sgmcmc
from benchmarks.large.base import Large
from benchmarks.large.collection import POSTERIORS
from benchmarks.large.gibbs import collapsed_gibbs, horseshoe, nested
from benchmarks.large.network import network
from benchmarks.large.others import coordinates
from benchmarks.large.softmax import softmax
from benchmarks.large.walk import walk
from benchmarks.posteriors.moments import moments

FILE = Path(__file__).parent / "references.json"
ESS, SECONDS = 1600, 600.0


def quantities(
    posterior: Large, draws: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return what is compared, (chain, draw, …): some coordinates of each parameter."""
    if posterior.judged is not None:
        draws = _judged(posterior, draws)
    found = {}
    for name, array in draws.items():
        flat = np.reshape(array, (*array.shape[:2], -1))
        found[name] = flat[:, :, coordinates(flat.shape[2])].astype(np.float64)
    return found


def _judged(posterior: Large, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the values that are judged in place of the parameters, (chain, draw, …)."""
    one, shape = tf.function(posterior.judged), next(iter(draws.values())).shape[:2]
    flat = {
        name: np.reshape(array, (-1, *array.shape[2:])) for name, array in draws.items()
    }
    each = [
        one({name: tf.constant(array[k], tf.float32) for name, array in flat.items()})
        for k in range(shape[0] * shape[1])
    ]
    return {
        name: np.reshape(
            [values[name].numpy() for values in each], (*shape, *each[0][name].shape)
        )
        for name in each[0]
    }


def by_chains(posterior: Large) -> dict[str, np.ndarray]:
    """Return draws of long exact chains."""
    samples = sgmcmc.hmc(
        posterior.log_lik, dict(posterior.dataset), dict(posterior.params), posterior.log_prior,
        bijectors=dict(posterior.bijectors) or None, ess=ESS, max_seconds=SECONDS, seed=20261124,
        verbose=False,
    )  # fmt: skip
    return dict(samples)


def by_algebra(posterior: Large) -> dict[str, Any]:
    """Return the reference of a normal posterior."""
    assert posterior.normal is not None
    mean, sd = posterior.normal()
    (name,) = posterior.params
    places = coordinates(len(mean))
    nothing = [0.0] * len(places)
    return {
        name: {
            "mean": mean[places].tolist(),
            "sd": sd[places].tolist(),
            "mean_error": nothing,
            "sd_error": nothing,
        }
    }


OF_ITS_OWN: dict[str, tuple[str, Callable[[Large], dict[str, np.ndarray]]]] = {
    "insteval": (
        "collapsed Gibbs",
        lambda posterior: collapsed_gibbs(posterior, centered=False),
    ),
    "insteval-centered": (
        "collapsed Gibbs",
        lambda posterior: collapsed_gibbs(posterior, centered=True),
    ),
    "nested-normal-50-million": ("Gibbs, scales without effects", nested),
    "horseshoe": ("Gibbs, scales without coefficients", horseshoe),
    "network": ("HMC, long trajectories of 16 chains", network),
    "softmax-mnist": ("HMC whitened by the whole information", softmax),
    "random-walk": ("HMC given the scale, slice sampling of it", walk),
}
"""Posteriors with a chain of their own, and its name."""


def make(name: str) -> dict[str, Any]:
    """Return the reference of a posterior, as it is written to the file."""
    posterior, began = POSTERIORS[name](), time.perf_counter()
    if posterior.normal is not None:
        found, how = by_algebra(posterior), "algebra"
    else:
        how, chain = OF_ITS_OWN.get(name, ("HMC", by_chains))
        draws = chain(posterior)
        found = {}
        for key, array in quantities(posterior, draws).items():
            every = moments(array)
            found[key] = {
                part: getattr(every, part)
                for part in ("mean", "sd", "mean_error", "sd_error")
            }
            found[key]["ess"] = [min(every.ess)]
    rounded = {
        key: {
            part: [float(f"{x:.6g}") for x in values] for part, values in parts.items()
        }
        for key, parts in found.items()
    }
    return {"how": how, "seconds": round(time.perf_counter() - began, 1), "of": rounded}


def read() -> dict[str, Any]:
    """Return the references that there are, by posterior."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="posteriors to make again")
    names = parser.parse_args(arguments).names
    for name in names or [name for name in POSTERIORS if name not in read()]:
        made = make(name)
        lines = [
            f"{json.dumps(key)}: {json.dumps(value)}"
            for key, value in sorted({**read(), name: made}.items())
        ]
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        worth = [min(parts["ess"]) for parts in made["of"].values() if "ess" in parts]
        print(f"{name}: {made['how']}, {made['seconds']} s, ESS {min(worth, default=np.inf):.0f}",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
