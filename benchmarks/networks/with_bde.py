"""`bde` on one split, for about so many seconds; run in its own environment.

Reads a request as JSON: file of the split, seed, seconds; prints seconds and where predictions are.
The warm-up has 50 steps for each ten that are kept, as in its publication; both are shortened so
that all fits into the seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ["XLA_FLAGS"] = (
    f"--xla_force_host_platform_device_count={os.cpu_count() or 1}"
)

import numpy as np

PILOTS = (500, 2500)
"""Steps of warm-up of two short runs, from which the seconds of a step are known."""


def fit(data: Any, seed: int, warm_up: int) -> tuple[float, Any]:
    from bde import BdeRegressor
    from bde.loss.loss import GaussianNLL

    model = BdeRegressor(
        n_members=10,
        hidden_layers=[16, 16, 16, 16],
        loss=GaussianNLL(),
        epochs=1200,
        validation_split=0.15,
        lr=1e-3,
        weight_decay=1e-4,
        warmup_steps=warm_up,
        n_samples=max(10, warm_up // 50),
        n_thinning=10,
        patience=20,
        seed=seed,
    )
    began = time.perf_counter()
    model.fit(data["X"], data["y"])
    predicted = model.predict(data["X_test"], mean_and_std=True)
    return time.perf_counter() - began, predicted


def main() -> None:
    request = json.load(sys.stdin)
    with np.load(request["split"]) as file:
        data = {name: file[name] for name in file.files}
    short, long = (fit(data, request["seed"], steps)[0] for steps in PILOTS)
    each = max((long - short) / (PILOTS[1] - PILOTS[0]), 1e-6)
    warm_up = int(
        np.clip(PILOTS[0] + (request["seconds"] - short) / each, PILOTS[0], 50_000)
    )
    seconds, (mean, sd) = fit(data, request["seed"], warm_up)
    np.savez(request["out"], mean=np.asarray(mean).ravel(), sd=np.asarray(sd).ravel())
    print(json.dumps({"seconds": seconds, "warm_up": warm_up}))


if __name__ == "__main__":
    main()
