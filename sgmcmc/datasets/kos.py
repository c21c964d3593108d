"""Words of blog posts, in the format of UCI's bags of words.

``docword``: a line each with the number of documents, of words in the vocabulary and of counts,
then ``document word count``, all numbered from 1. ``vocab``: a word on each line.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sgmcmc.counts import Counts
from sgmcmc.datasets import fetch

_HOME = "https://archive.ics.uci.edu/ml/machine-learning-databases/bag-of-words/"


def _source(name: str) -> fetch.Source:
    return fetch.Source(name, (_HOME + name,))


@dataclass(frozen=True)
class KosSpec:
    """Expected content of the files: no official sum of their content is known.

    Attributes:
        counts: File of the counts.
        vocab: File of the words.
        documents: Number of documents.
        words: Number of words in the vocabulary.
        total: Number of words in all documents together.
    """

    counts: fetch.Source
    vocab: fetch.Source
    documents: int
    words: int
    total: int


SPEC = KosSpec(
    _source("docword.kos.txt.gz"), _source("vocab.kos.txt"), 3430, 6906, 467_714
)


def load(verbose: bool = True) -> dict[str, Counts | NDArray[np.str_]]:
    """Load ``counts`` and ``vocab``; see `sgmcmc.datasets.get_dataset`."""
    return {
        "counts": fetch.load(SPEC.counts, partial(parse_counts, spec=SPEC), verbose),
        "vocab": fetch.load(SPEC.vocab, partial(parse_vocab, spec=SPEC), verbose),
    }


def parse_counts(path: Path, spec: KosSpec) -> Counts:
    """Return the checked counts, documents × words, of a file that may be compressed."""
    with fetch.open_decompressed(path) as file:
        numbers = fetch.whole_numbers(file.read().split())
    shape = (spec.documents, spec.words)
    if len(numbers) < 3 or tuple(numbers[:2]) != shape:
        raise ValueError(f"does not begin with the numbers {shape[0]} and {shape[1]}")
    if len(numbers) != 3 + 3 * numbers[2]:
        raise ValueError(f"{(len(numbers) - 3) / 3:g} counts instead of {numbers[2]}")
    document, word, count = numbers[3:].reshape(-1, 3).T
    for name, values, upper in (
        ("document", document, shape[0]),
        ("word", word, shape[1]),
    ):
        fetch.need_range(name, values, upper)
    if np.any(np.diff(document * (shape[1] + 1) + word) <= 0):
        raise ValueError("the counts are not in the order of documents and words")
    if np.any(count < 1) or count.sum() != spec.total:
        raise ValueError(f"the counts are not positive with the sum {spec.total}")
    return Counts.from_triples(document - 1, word - 1, count, shape)


def parse_vocab(path: Path, spec: KosSpec) -> NDArray[np.str_]:
    """Return the checked words, in the order of the columns of the counts."""
    with fetch.open_decompressed(path) as file:
        words = np.array(file.read().decode().split())
    if len(words) != spec.words or len(np.unique(words)) != spec.words:
        raise ValueError(
            f"{len(words)} words, {len(np.unique(words))} of them different, "
            f"instead of {spec.words}"
        )
    return words
