"""Means and SDs of long No-U-Turn chains over all parameters: `references.json`.

`python -m benchmarks.mixed.references [NAME ...]` makes those that are lacking, or these anew.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import environments
from benchmarks.mixed.designs import DESIGNS, Design
from benchmarks.mixed.models import CORRELATION, FIXED_SD, SHAPE_RATE, Mixed
from benchmarks.posteriors.moments import moments

FILE = Path(__file__).parent / "references.json"
SCRIPT = Path(__file__).parent / "with_numpyro.py"


def drawn(design: Design) -> dict[str, np.ndarray]:
    """Return draws of all parameters, (chain, draw, ...)."""
    priors = np.array([FIXED_SD, SHAPE_RATE, CORRELATION])
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "design.npz", Path(folder) / "draws.npz"
        centered = [factor in design.centered for factor in design.groups]
        np.savez(
            source,
            family=design.family,
            priors=priors,
            centered=centered,
            **design.arrays,
        )
        python = environments.interpreter("numpyro")
        subprocess.run([str(python), str(SCRIPT), str(source), str(target)], check=True)
        with np.load(target) as found:
            return dict(found)


def make(name: str) -> dict[str, Any]:
    """Return the reference of a design: moments of global parameters and of effects."""
    began = time.perf_counter()
    mixed = Mixed(DESIGNS[name])
    draws = drawn(mixed.design)
    found = moments(mixed.compared({key: draws[key] for key in mixed.params}))
    effects = [draws[f"u{k}"] for k in range(len(mixed.design.sizes))]
    return {
        **found.rounded(),
        "effects": [
            {
                "mean": np.round(u.mean((0, 1)), 5).ravel().tolist(),
                "sd": np.round(u.std((0, 1)), 5).ravel().tolist(),
            }
            for u in effects
        ],
        "seconds": round(time.perf_counter() - began, 1),
    }


def read() -> dict[str, Any]:
    """Return the references that there are."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="designs; those without a reference if none"
    )
    names = parser.parse_args(arguments).names
    for name in names or [name for name in DESIGNS if name not in read()]:
        found = make(name)
        lines = (
            f"{json.dumps(key)}: {json.dumps(r)}"
            for key, r in {**read(), name: found}.items()
        )
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        print(
            f"{name}: ESS {min(found['ess']):.0f}, R-hat {max(found['rhat']):.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
