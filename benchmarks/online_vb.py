"""Topics by the online variational Bayes of scikit-learn: `python -m benchmarks.online_vb --help`.

The split of KOS and the completion of the held-out documents are those of
`vignettes/topic_model.py`, so that its perplexities compare with these: settings are tried on the
documents for tuning, and the best is scored on the others.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.environments import HERE, interpreter
from sgmcmc.counts import Counts
from sgmcmc.models.documents import held_out

Setting = dict[str, Any]

START: Setting = {
    "max_iter": 10,
    "learning_decay": 0.6,
    "learning_offset": 10,
    "doc_topic_prior": 0.1,
    "topic_word_prior": 0.3,
}
# Tried one after the other; a value that is better is kept from there on.
OTHERS: dict[str, list[float]] = {
    "doc_topic_prior": [0.003, 0.01, 0.03, 0.3],
    "topic_word_prior": [0.2, 0.5],
    "learning_decay": [0.5, 0.7],
    "learning_offset": [1, 30],
}
PASSES: dict[str, list[float]] = {"max_iter": [5, 20, 40]}
NAMES = ["score", *START, "random_state"]


class VariationalBayes:
    """Fits by scikit-learn, in an environment of its own.

    Args:
        corpus: training documents, and those held out.
        fixed: the part of the settings that never changes.
        folder: for files.
    """

    def __init__(self, corpus: Any, fixed: Setting, folder: Path) -> None:
        self._fixed = fixed
        self._documents, self._settings = (
            folder / "documents.npz",
            folder / "settings.json",
        )
        arrays: dict[str, Any] = {}
        add_counts(arrays, "train", corpus.train)
        for part in ("tuning", "test"):
            shown, arrays[f"{part}_document"], arrays[f"{part}_word"] = held_out(
                getattr(corpus, part), every=10
            )
            add_counts(arrays, part, shown)
        np.savez(self._documents, **arrays)

    def fit(self, settings: Sequence[Setting]) -> Iterator[float]:
        """Print and yield the perplexity with each setting."""
        given = [{**self._fixed, **setting} for setting in settings]
        self._settings.write_text(json.dumps(given), encoding="utf-8")
        worker = HERE / "packages" / "with_sklearn.py"
        command = [str(interpreter("sklearn")), str(worker)]
        command += [str(self._documents), str(self._settings)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ
        ) as run:
            assert run.stdout is not None
            for found in map(json.loads, run.stdout):
                cells = [str(found[name]).rjust(len(name)) for name in NAMES]
                cells += [f"{found['perplexity']:11.1f}{found['seconds']:9.0f}"]
                print("  ".join(cells), flush=True)
                yield found["perplexity"]
        if run.returncode:
            raise SystemExit(run.returncode)

    def tune(self, setting: Setting, others: dict[str, list[float]]) -> Setting:
        """Return the setting with the values that are best on the documents for tuning."""
        fixed = {"score": "tuning", "random_state": 1}
        (lowest,) = self.fit([{**setting, **fixed}])
        for name, values in others.items():
            tried = [{**setting, name: value} for value in values]
            for changed, found in zip(
                tried, self.fit([{**t, **fixed} for t in tried]), strict=True
            ):
                if found < lowest:
                    setting, lowest = changed, found
        return setting

    def score(self, setting: Setting, seeds: int) -> str:
        """Return the perplexity of the other documents, in words."""
        tried = [
            {**setting, "score": "test", "random_state": seed}
            for seed in range(1, seeds + 1)
        ]
        found = list(self.fit(tried))
        return f"{setting}: {np.mean(found):.1f}, sd over seeds {np.std(found):.1f}"


def add_counts(arrays: dict[str, Any], part: str, counts: Counts) -> None:
    """Add the parts of a table of counts to arrays for a file."""
    for name, value in dataclasses.asdict(counts).items():
        arrays[f"{part}_{name}"] = np.asarray(value)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Online variational Bayes on KOS.")
    parser.add_argument("--seeds", type=int, default=5, help="for the scores")
    parser.add_argument(
        "--smoke", action="store_true", help="tiny: only to see that all runs"
    )
    options = parser.parse_args(arguments)

    sys.path.insert(0, str(HERE.parent / "vignettes"))
    import topic_model

    corpus = topic_model.simulate() if options.smoke else topic_model.load()
    n_topics, batch_size = (5, 10) if options.smoke else (50, 50)
    print("  ".join(NAMES), " perplexity  seconds")
    with tempfile.TemporaryDirectory() as folder:
        fixed = {"n_components": n_topics, "batch_size": batch_size}
        bayes = VariationalBayes(corpus, fixed, Path(folder))
        equal = bayes.tune(START, OTHERS)
        passes = bayes.tune(equal, PASSES)
        scored = [equal] if passes == equal else [equal, passes]
        scores = [bayes.score(setting, options.seeds) for setting in scored]
    print("\n" + "\n".join(scores))


if __name__ == "__main__":
    main()
