"""Topics by the online variational Bayes of scikit-learn: `python -m benchmarks.online_vb --help`.

The split of KOS and the completion of the held-out documents are those of
`vignettes/topic_model.py`, so that its perplexities compare with these.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.environments import HERE, interpreter
from sgmcmc.models.documents import held_out

# One setting at a time is changed from the best of earlier runs, scored on the same documents.
BEST = {
    "max_iter": 10,
    "learning_decay": 0.6,
    "learning_offset": 10,
    "doc_topic_prior": 0.3,
    "topic_word_prior": 0.3,
}
OTHERS: dict[str, list[float]] = {
    "max_iter": [5, 20],
    "learning_decay": [0.5, 0.7, 0.9],
    "learning_offset": [1, 30],
    "doc_topic_prior": [0.1, 0.5],
    "topic_word_prior": [0.1, 0.5],
}


def settings(n_topics: int, batch_size: int, seeds: int) -> list[dict[str, Any]]:
    """Return the settings to be tried: the best with several seeds, the others with one."""
    fixed = {"n_components": n_topics, "batch_size": batch_size}
    tried = [{**BEST, "random_state": seed} for seed in range(1, seeds + 1)]
    tried += [
        {**BEST, name: value, "random_state": 1}
        for name, values in OTHERS.items()
        for value in values
    ]
    return [{**fixed, **setting} for setting in tried]


def write_documents(path: Path, corpus: Any) -> None:
    """Write training documents, shown and hidden words of the held-out ones."""
    shown, document, word = held_out(corpus.test, every=10)
    arrays = {
        f"{part}_{name}": np.asarray(value)
        for part, counts in (("train", corpus.train), ("shown", shown))
        for name, value in dataclasses.asdict(counts).items()
    }
    np.savez(path, document=document, word=word, **arrays)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Online variational Bayes on KOS.")
    parser.add_argument("--seeds", type=int, default=5, help="for the best setting")
    parser.add_argument("--smoke", action="store_true", help="tiny: only to see that all runs")
    options = parser.parse_args(arguments)

    sys.path.insert(0, str(HERE.parent / "vignettes"))
    import topic_model

    corpus = topic_model.simulate() if options.smoke else topic_model.load()
    tried = settings(5, 10, 1)[:2] if options.smoke else settings(50, 50, options.seeds)
    names = [*BEST, "random_state"]
    print("  ".join(names), " perplexity  seconds")
    with tempfile.TemporaryDirectory() as folder:
        documents, chosen = Path(folder, "documents.npz"), Path(folder, "settings.json")
        write_documents(documents, corpus)
        chosen.write_text(json.dumps(tried), encoding="utf-8")
        worker = HERE / "packages" / "with_sklearn.py"
        command = [str(interpreter("sklearn")), str(worker), str(documents), str(chosen)]
        perplexities = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as run:
            assert run.stdout is not None
            for found in map(json.loads, run.stdout):
                perplexities.append(found["perplexity"])
                cells = [f"{found[name]:g}".rjust(len(name)) for name in names]
                print("  ".join(cells), f"{found['perplexity']:11.1f}{found['seconds']:9.0f}")
        if run.returncode:
            raise SystemExit(run.returncode)
    of_best = list(itertools.islice(perplexities, options.seeds))
    print(f"\nThe first setting: {np.mean(of_best):.1f}, sd over seeds {np.std(of_best):.1f}.")


if __name__ == "__main__":
    main()
