"""Files that this version writes: draws, a store, a session, a regression, and what is in them.

`python -m tests.contract.files` writes them into `files/`, in a folder of their format. They
stay as they are from version to version: a change of a format adds files, and takes none away.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

import sgmcmc
from tests.contract.golden import MODEL, QUIET, normal_prior

FOLDER = Path(__file__).parent / "files"
FORMAT = "2026-11"
"""Name of the folder of today's format."""

TABLE = {
    "y": np.array([1.0, 0.0, 2.0, 5.0, 1.0, 3.0, 0.0, 4.0, 2.0, 6.0]),
    "x": np.linspace(-1.0, 1.0, 10),
    "kind": np.array(["a", "b"] * 5),
}
NEW = {"x": np.array([0.25, 2.0]), "kind": np.array(["b", "a"])}
"""New rows, of which means are predicted."""


def write(to: Path) -> None:
    """Write all files, and what is read from them."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    given: dict[str, Any] = {
        **QUIET,
        "n_iters": 40,
        "minibatch_size": 20,
        "n_chains": 2,
    }
    samples = sgmcmc.sgld(*MODEL, 1e-3, normal_prior, **given)
    samples.save(to / "samples.npz")
    sgmcmc.sgld(*MODEL, 1e-3, normal_prior, store=to / "store", **given)
    sampler = stepwise()
    session = sgmcmc.init_sess(sampler, verbose=False)
    sgmcmc.sgmcmc_step(sampler, session, 5)
    session.save(to / "session.npz")
    fit = sgmcmc.glm("y ~ x + kind", TABLE, "poisson", ess=50, **QUIET)
    fit.save(to / "regression")
    (to / "expected.json").write_text(json.dumps(read(to), indent=1) + "\n")


def stepwise() -> sgmcmc.StepwiseSampler:
    """Return the sampler of the session."""
    return sgmcmc.sgld_setup(*MODEL, 1e-3, normal_prior, 20, seed=3)


def read(folder: Path) -> dict[str, Any]:
    """Return numbers of what is read from the files of a folder."""
    fit = sgmcmc.Regression.load(folder / "regression")
    sampler = stepwise()
    session = sgmcmc.init_sess(sampler, verbose=False, restore=folder / "session.npz")
    sgmcmc.sgmcmc_step(sampler, session, 1)  # goes on where it was
    reached = sgmcmc.get_params(sampler, session)
    return {
        "session": {
            name: np.asarray(value).tolist() for name, value in reached.items()
        },
        "samples": _numbers(sgmcmc.Samples.load(folder / "samples.npz")),
        "store": _numbers(sgmcmc.Samples.open(folder / "store")),
        "coefficients": {
            name: float(value) for name, value in fit.fixed["estimate"].items()
        },
        "means of new rows": fit.predict(NEW).tolist(),
    }


def _numbers(samples: Any) -> dict[str, Any]:
    """Return the last draw of each chain."""
    return {name: np.asarray(samples[name])[:, -1].tolist() for name in sorted(samples)}


if __name__ == "__main__":
    write(FOLDER / FORMAT)
