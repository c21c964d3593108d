"""Regressions of 10⁷ rows from Parquet: seconds and memory.

python -m benchmarks.regressions.large FOLDER [rows]

Writes simulated data to the folder, once, and runs each regression in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.memory import Anonymous, peak

ROWS = 10_000_000
LEVELS, USERS, COLUMNS = 1000, 100_000, 20
_PIECE = 500_000

CASES = {
    "20 numeric terms": (
        "y ~ " + " + ".join(f"x{k}" for k in range(COLUMNS)),
        "bernoulli",
    ),
    "two factors of 1000 levels": ("z ~ x0 + f + g", "gaussian"),
    "two factors, (1 | user)": ("z ~ x0 + f + g + (1 | user)", "gaussian"),
    "(1 | user)": ("z ~ x0 + x1 + (1 | user)", "gaussian"),
}
"""Formula and family of each regression."""


def truth() -> dict[str, np.ndarray]:
    """Return the coefficients that the data are drawn with."""
    rng = np.random.default_rng(1)
    return {
        "b": rng.normal(0.0, 0.3, COLUMNS),
        "f": np.append(0.0, rng.normal(0.0, 0.5, LEVELS - 1)),
        "g": np.append(0.0, rng.normal(0.0, 0.5, LEVELS - 1)),
        "user": rng.normal(0.0, 0.7, USERS),
    }


def write(path: Path, rows: int) -> None:
    """Write the data, unless they are there."""
    import pyarrow
    import pyarrow.parquet

    if path.exists():
        return
    known, rng = truth(), np.random.default_rng(2)
    path.parent.mkdir(parents=True, exist_ok=True)
    names = np.array([f"level {place:04d}" for place in range(LEVELS)])
    part, writer = path.with_suffix(".part"), None
    for start in range(0, rows, _PIECE):
        n = min(_PIECE, rows - start)
        x = rng.normal(size=(n, COLUMNS)).astype(np.float32)
        f, g = rng.integers(LEVELS, size=(2, n))
        user = rng.integers(USERS, size=n)
        p = 1.0 / (1.0 + np.exp(-(x @ known["b"] - 1.0)))
        z = 1.0 + 0.5 * x[:, 0] + known["f"][f] + known["g"][g] + known["user"][user]
        table = pyarrow.table(
            {
                "y": (rng.uniform(size=n) < p).astype(np.int8),
                "z": (z + rng.normal(size=n)).astype(np.float32),
                **{f"x{k}": x[:, k] for k in range(COLUMNS)},
                "f": pyarrow.array(names[f]),
                "g": pyarrow.array(names[g]),
                "user": user.astype(np.int32),
            }
        )
        writer = writer or pyarrow.parquet.ParquetWriter(part, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
    part.rename(path)


def run(case: str, path: Path) -> dict[str, object]:
    """Return what one regression took, and how far its estimates are from the truth."""
    import sgmcmc

    formula, family = CASES[case]
    start, cpu = time.monotonic(), time.process_time()
    with Anonymous() as memory:
        fit = sgmcmc.glm(formula, path, family, seed=1, verbose=False, max_seconds=1800)
    took = time.monotonic() - start
    table = fit.summary()
    known = truth()
    away = {}
    for k in range(COLUMNS):
        if f"x{k}" in table.index:
            true = known["b"][k] if family == "bernoulli" else 0.5 * (k == 0)
            away[f"x{k}"] = (table["estimate"][f"x{k}"] - true) / table["error"][
                f"x{k}"
            ]
    for factor in "fg":
        rows = [f"{factor}[T.level {place:04d}]" for place in range(1, LEVELS)]
        if rows[0] in table.index:
            gaps = (table["estimate"][rows] - known[factor][1:]) / table["error"][rows]
            away[factor] = float(np.sqrt((gaps**2).mean()))
    assert fit.report is not None
    return {
        "case": case,
        "seconds": round(took, 1),
        "CPU seconds": round(time.process_time() - cpu, 1),
        "peak GB": round(memory.most / 1e9, 2),
        "peak GB with mapped files": round(peak() / 1e9, 2),
        "smallest ESS": float(table["ess_bulk"].min()),
        "SDs from the truth": {
            name: round(float(value), 2) for name, value in away.items()
        },
        "seconds of": fit.report.get("Seconds"),
        "warnings": fit.warnings,
    }


def main() -> None:
    """Run all regressions, each in a process of its own."""
    folder = Path(sys.argv[1])
    rows = int(float(sys.argv[2])) if len(sys.argv) > 2 else ROWS
    path = folder / f"regression-{rows}.parquet"
    if len(sys.argv) > 3:
        print(json.dumps(run(sys.argv[3], path)))
        return
    write(path, rows)
    for case in CASES:
        command = [
            sys.executable,
            "-m",
            "benchmarks.regressions.large",
            str(folder),
            str(rows),
        ]
        done = subprocess.run([*command, case], capture_output=True, text=True)
        print(done.stdout.strip() or done.stderr[-2000:], flush=True)


if __name__ == "__main__":
    main()
