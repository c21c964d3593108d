"""Writes the data that other packages ship to files of NumPy; runs in their environment."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

SCIKIT_LEARN = ("breast_cancer", "diabetes", "digits", "iris", "wine")
STATSMODELS = (
    *(
        "anes96",
        "cancer",
        "ccard",
        "china_smoking",
        "committee",
        "copper",
        "cpunish",
        "engel",
    ),
    *(
        "fair",
        "grunfeld",
        "heart",
        "longley",
        "macrodata",
        "modechoice",
        "randhie",
        "scotland",
    ),
    *("spector", "stackloss", "star98", "statecrime", "strikes"),
)


def main(folder: Path) -> None:
    """Write one file for each dataset, with an array for each of its columns."""
    for name in SCIKIT_LEARN:
        load = getattr(importlib.import_module("sklearn.datasets"), f"load_{name}")
        raw = {"scaled": False} if name == "diabetes" else {}
        np.savez(folder / f"{name}.npz", **_columns(load(as_frame=True, **raw).frame))
    for name in STATSMODELS:
        data = (
            importlib.import_module(f"statsmodels.datasets.{name}").load_pandas().data
        )
        np.savez(folder / f"{name}.npz", **_columns(data))


def _columns(frame: Any) -> dict[str, np.ndarray]:
    """Return columns of numbers; texts become the numbers of their places in the alphabet."""
    return {
        str(name).replace(" ", "_").replace("/", "_"): frame[name].to_numpy(np.float64)
        if frame[name].dtype.kind in "biuf"
        else np.unique(frame[name].astype(str), return_inverse=True)[1].astype(
            np.float64
        )
        for name in frame.columns
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
