"""The tables that networks are compared on, and the scores."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

Array = np.ndarray
Split = tuple[Array, Array, Array, Array]
"""Features and responses of the training part, then of the test part."""

DATA = Path(os.environ.get("SGMCMC_DATA", "data"))
LEFT_OUT = ["casual", "registered", "instant", "dteday"]
TABLES = ("airfoil", "bikesharing")


def split(name: str) -> Split:
    """Return a table split 80/20, standardized on the training part."""
    if name == "airfoil":
        frame = pd.read_csv(DATA / "airfoil.csv")
        X, y = frame.drop(columns="target"), frame["target"]
    else:
        frame = pd.read_csv(DATA / "bikesharing-hour.csv").drop(columns=LEFT_OUT)
        X, y = frame.drop(columns="cnt"), frame["cnt"]
    parts = train_test_split(
        X.to_numpy(float), y.to_numpy(float), test_size=0.2, random_state=0
    )
    return standardized(*parts)


def tiny() -> Split:
    """Return a small simulated table."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(250, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=250)
    return standardized(X[:200], X[200:], y[:200], y[200:])


def standardized(X: Array, X_test: Array, y: Array, y_test: Array) -> Split:
    """Return both parts in units of the training part."""
    middle, spread = X.mean(0), X.std(0)
    spread = np.where(spread > 0, spread, 1.0)
    center, unit = y.mean(), y.std()
    return (
        (X - middle) / spread,
        (y - center) / unit,
        (X_test - middle) / spread,
        (y_test - center) / unit,
    )


def scores(mean: Array, sd: Array, y: Array) -> dict[str, float]:
    """Return RMSE, and the negative log density of a normal with these means and SDs."""
    nll = 0.5 * np.log(2 * np.pi * sd**2) + 0.5 * ((y - mean) / sd) ** 2
    return {"rmse": float(np.sqrt(np.mean((y - mean) ** 2))), "nll": float(nll.mean())}
