"""Documents as a rectangle: the words of each, one after another, padded to the longest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgmcmc.counts import Counts

Ints = NDArray[np.int32]


class Documents(NamedTuple):
    """Documents as sequences of words.

    Attributes:
        words: number of each word in the vocabulary, (documents, longest); 0 after the end.
        lengths: words in each document, (documents,).
    """

    words: Ints
    lengths: Ints


def unrolled(counts: Counts) -> Documents:
    """Return documents as sequences in which a word stands as often as it is counted.

    The order is that of the vocabulary: the model does not know any other.

    Args:
        counts: documents × words.

    Example:
        >>> unrolled(Counts.read([[0, 2, 1], [1, 0, 0]])).words
        array([[1, 1, 2],
               [0, 0, 0]], dtype=int32)
    """
    lengths = counts.row_totals
    document = np.repeat(np.arange(len(counts)), lengths)
    place = np.arange(len(document)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    words = np.zeros((len(counts), max(1, int(lengths.max(initial=0)))), np.int32)
    words[document, place] = np.repeat(counts.indices, counts.data)
    return Documents(words, lengths.astype(np.int32))


def held_out(counts: Counts, every: int) -> tuple[Counts, Ints, Ints]:
    """Return documents less every ``every``-th of their words, and those words.

    Args:
        counts: documents × words.
        every: of each document's sequence of words, numbers every, 2·every, ... are hidden.

    Returns:
        What is left, and document and word of each hidden one, two arrays of equal length.

    Example:
        >>> rest, document, word = held_out(Counts.read([[0, 2, 1], [1, 0, 0]]), every=2)
        >>> rest.toarray().tolist(), document.tolist(), word.tolist()
        ([[0, 1, 1], [1, 0, 0]], [0], [1])
    """
    words, lengths = unrolled(counts)
    place = np.arange(words.shape[1])
    inside = place < lengths[:, np.newaxis]
    goes = inside & (place % every == every - 1)
    document, at = np.nonzero(inside & ~goes)
    rest = Counts.from_triples(document, words[document, at], np.ones(len(at)), counts.shape)
    document, at = np.nonzero(goes)
    return rest, document.astype(np.int32), words[document, at]
