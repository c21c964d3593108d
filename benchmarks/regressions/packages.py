"""Seconds of CPU time against bambi, rstanarm and brms, as the number of rows grows.

`python -m benchmarks.regressions.packages` runs each package with its defaults on simulated data,
up to a limit of CPU time, keeps what it measures in `packages.json`, and writes table and figure.
CPU time, that of both cores together, hardly depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import environments
from benchmarks.report import replace_section, table

HERE = Path(__file__).parent
FILE = HERE / "packages.json"
PAGE = HERE.parents[1] / "docs" / "regression.md"
FRONT = PAGE.parent / "seconds.png"
SIZE_LABELS = ["1 000", "10 000", "100 000", "1 million", "10 million"]
FIGURE = HERE.parents[1] / "docs" / "regressions.png"
LIMIT = 900.0
"""CPU seconds after which a run is ended."""

TERMS = 10
FORMULAS = {
    "logistic": "y ~ " + " + ".join(f"x{k}" for k in range(TERMS)),
    "mixed": "y ~ x0 + x1 + (1 | g)",
}
SIZES = (1000, 10_000, 100_000, 1_000_000, 10_000_000)
OURS = "sgmcmc"
PACKAGES = (OURS, "bambi", "rstanarm", "brms")


def data(kind: str, rows: int) -> Any:
    """Return simulated rows: of the mixed model, ten of each group."""
    import pandas as pd

    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, TERMS if kind == "logistic" else 2)).astype(np.float32)
    eta = x @ rng.normal(0.0, 0.3, x.shape[1]) - 0.5
    frame = pd.DataFrame({f"x{k}": x[:, k] for k in range(x.shape[1])})
    if kind == "mixed":
        frame["g"] = np.arange(rows) // 10
        eta = eta + rng.normal(0.0, 0.8, rows // 10 + 1)[frame["g"]]
    return frame.assign(y=(rng.random(rows) < 1 / (1 + np.exp(-eta))).astype(int))


def ours(path: str, formula: str, out: str) -> None:
    """Sample by this package."""
    import pandas as pd

    import sgmcmc

    rows = pd.read_csv(path)
    start = time.monotonic()
    fit = sgmcmc.glm(formula, rows, "bernoulli", seed=1, verbose=False)
    print(f"{time.monotonic() - start:.1f} s", fit.warnings)
    found = fit.fixed
    about = {
        str(term): {"mean": row["estimate"], "sd": row["error"], "ess": row["ess_bulk"]}
        for term, row in found.iterrows()
    }
    Path(out).write_text(json.dumps(about))


def _command(package: str) -> list[str]:
    if package == OURS:
        return [sys.executable, "-m", "benchmarks.regressions.packages", "--run"]
    if package == "bambi":
        return [str(environments.interpreter("bambi")), str(HERE / "with_bambi.py")]
    return ["Rscript", str(HERE / "with_r.R"), package]


def measure(package: str, kind: str, rows: int, limit: float) -> dict[str, Any]:
    """Return CPU seconds and estimates of a run, which ends after twice the limit at the latest."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "rows.csv", Path(folder) / "out.json"
        data(kind, rows).to_csv(path, index=False)
        before, start = _cpu(), time.monotonic()
        child = subprocess.Popen(
            [*_command(package), str(path), FORMULAS[kind], str(out)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True, text=True,
        )  # fmt: skip
        ended = _wait(child, 2 * limit)
        found = {
            "cpu": round(_cpu() - before, 1),
            "wall": round(time.monotonic() - start, 1),
        }
        if not ended or not out.exists():
            error = (
                "" if child.stderr is None or not ended else child.stderr.read()[-300:]
            )
            return {**found, "ended": False, "error": error}
        return {**found, "ended": True, "terms": json.loads(out.read_text())}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _wait(child: subprocess.Popen[str], limit: float) -> bool:
    """Wait for a process, or end it and all that it began after so many seconds."""
    try:
        child.wait(limit)
    except BaseException as error:  # an interrupt too
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        return False
    return True


def main() -> None:
    """Run what is missing, and write table and figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--run", nargs=3, help="path, formula and output: one run of this package"
    )
    parser.add_argument("--packages", nargs="*", default=PACKAGES)
    parser.add_argument(
        "--most", type=float, default=SIZES[-1], help="largest number of rows"
    )
    parser.add_argument(
        "--limit", type=float, default=LIMIT, help="CPU seconds of a run"
    )
    asked = parser.parse_args()
    if asked.run:
        ours(*asked.run)
        return
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    for kind in FORMULAS:
        for package in asked.packages:
            for rows in SIZES:
                name = f"{kind}/{package}/{rows}"
                if rows > asked.most:
                    break
                if name not in known:
                    known[name] = measure(package, kind, rows, asked.limit)
                    FILE.write_text(json.dumps(known, indent=1) + "\n")
                    print(
                        name,
                        {k: v for k, v in known[name].items() if k != "terms"},
                        flush=True,
                    )
                if not known[name]["ended"] or known[name]["cpu"] > LIMIT / 5:
                    break
    publish(known)


def publish(known: dict[str, Any]) -> None:
    """Write the table and the figure."""
    packages = [name for name in PACKAGES if any(f"/{name}/" in run for run in known)]
    rows = []
    for kind in FORMULAS:
        for size in SIZES:
            runs = [known.get(f"{kind}/{package}/{size}") for package in packages]
            if any(run is not None for run in runs):
                rows.append([f"{kind}, {size:_}".replace("_", " "), *map(_cell, runs)])
    replace_section(PAGE, "regressions", table(["rows", *packages], rows))
    _draw(known, packages)


def _cell(run: dict[str, Any] | None) -> str:
    if run is None:
        return ""
    if not run["ended"]:
        return f"not in {run['wall'] / 60:.0f} min"
    return f"{run['cpu']:.0f} (ESS {min(term['ess'] for term in run['terms'].values()):.0f})"


def _draw(known: dict[str, Any], packages: list[str]) -> None:
    """Draw both kinds for the page of regressions, and the first alone for the front page."""
    import matplotlib.pyplot as plt

    titles = {"logistic": "y ~ x0 + … + x9", "mixed": FORMULAS["mixed"]}
    picture, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for panel, kind in zip(panels, FORMULAS, strict=True):
        _draw_lines(panel, known, packages, kind)
        panel.set_title(titles[kind])
    panels[0].set(ylabel="CPU seconds")
    picture.tight_layout()
    picture.savefig(FIGURE, dpi=120)

    picture, panel = plt.subplots(figsize=(7, 3.4))
    _draw_lines(panel, known, packages, "logistic")
    panel.set(title="Logistic regression, ten features", ylabel="CPU time")
    panel.set_yticks([10, 60, 600, 1800], ["10 s", "1 min", "10 min", "30 min"])
    panel.set_xticks([10**k for k in range(3, 8)], SIZE_LABELS)
    panel.minorticks_off()
    panel.grid(alpha=0.25)
    picture.tight_layout()
    picture.savefig(FRONT, dpi=150)


def _draw_lines(
    panel: Any, known: dict[str, Any], packages: list[str], kind: str
) -> None:
    """Draw CPU seconds against rows, a line for each package, with its name at the end."""
    for package in packages:
        runs = [(n, known.get(f"{kind}/{package}/{n}")) for n in SIZES]
        done = [(n, run["cpu"]) for n, run in runs if run and run["ended"]]
        if done:
            (line,) = panel.loglog(*zip(*done, strict=True), marker="o")
            panel.annotate(
                package,
                done[-1],
                xytext=(0, 7),
                textcoords="offset points",
                ha="center",
                color=line.get_color(),
            )
    panel.set(xlabel="rows", xlim=(SIZES[0] / 1.6, SIZES[-1] * 2.2))
    panel.margins(y=0.15)
    panel.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
