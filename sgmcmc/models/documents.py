"""Documents as sequences of words, padded to the longest, and as unit vectors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from scipy import sparse

from sgmcmc.checks import describe
from sgmcmc.counts import Counts, as_table
from sgmcmc.data.dataset import Tensors

Ints = NDArray[np.int32]

WEIGHTINGS = ("tf-idf", "counts", "unit")
"""Sources of the documents' unit vectors: see :func:`unit_vectors`."""


class Documents(NamedTuple):
    """Documents as sequences of words.

    Attributes:
        words: Number of each word in the vocabulary, (documents, longest); 0 after the end.
        lengths: Number of words in each document, (documents,).
    """

    words: Ints
    lengths: Ints


def unrolled(counts: Counts) -> Documents:
    """Return documents as sequences in which a word occurs as often as it is counted.

    The order is that of the vocabulary: the model has no other.

    Example:
        >>> unrolled(Counts.read([[0, 2, 1], [1, 0, 0]])).words
        array([[1, 1, 2],
               [0, 0, 0]], dtype=int32)
    """
    lengths = counts.row_totals
    document = np.repeat(np.arange(len(counts)), lengths)
    slot = np.arange(len(document)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    longest = max(1, int(lengths.max(initial=0)))
    words = np.zeros((len(counts), longest), np.int32)
    words[document, slot] = np.repeat(counts.indices, counts.data)
    return Documents(words, lengths.astype(np.int32))


def need_words(counts: Counts, label: str = "counts") -> None:
    """Raise an error if a document has no words."""
    empty = np.flatnonzero(counts.row_totals == 0)
    if empty.size:
        raise ValueError(
            f"`{label}`: document {empty[0]} has no words. Leave such documents out."
        )


def word_columns(counts: Counts) -> Tensors:
    """Return documents as columns of a dataset, ``"words"`` and ``"lengths"``."""
    return {
        name: tf.constant(array) for name, array in unrolled(counts)._asdict().items()
    }


def held_out(counts: Counts, every: int) -> tuple[Counts, Ints, Ints]:
    """Return documents less words number every, 2·every, ... of each, and those words.

    The hidden words are two arrays of equal length, document and word of each.

    Example:
        >>> rest, document, word = held_out(Counts.read([[0, 2, 1], [1, 0, 0]]), every=2)
        >>> rest.toarray().tolist(), document.tolist(), word.tolist()
        ([[0, 1, 1], [1, 0, 0]], [0], [1])
    """
    words, lengths = unrolled(counts)
    slot = np.arange(words.shape[1])
    inside = slot < lengths[:, np.newaxis]
    is_hidden = inside & (slot % every == every - 1)
    document, at = np.nonzero(inside & ~is_hidden)
    shown = Counts.from_triples(
        document, words[document, at], np.ones(len(at)), counts.shape
    )
    document, at = np.nonzero(is_hidden)
    return shown, document.astype(np.int32), words[document, at]


def inverse_document_frequency(counts: Counts) -> NDArray[np.float64]:
    """Return log((1 + N) / (1 + n_w)) + 1 for each word w, n_w the documents that hold it.

    The ones let a word that no document holds, or that all do, keep a finite positive weight.

    Example:
        >>> inverse_document_frequency(Counts.read([[2, 0, 1], [1, 0, 0]])).round(3)
        array([1.   , 2.099, 1.405])

    Source:
        Manning, Raghavan & Schütze, Introduction to Information Retrieval, 2008, section 6.2.
    """
    holding = np.bincount(counts.indices, minlength=counts.shape[1])
    frequencies: NDArray[np.float64] = np.log((1 + len(counts)) / (1 + holding)) + 1
    return frequencies


def unit_vectors(
    documents: Any,
    weighting: str,
    frequencies: NDArray[np.float64] | None = None,
    width: int | None = None,
) -> tuple[sparse.csr_array, NDArray[np.float64] | None]:
    """Return documents as rows of length 1, and the weights of the words, if they have any.

    Args:
        documents: Counts, in any form that `Counts.read` accepts; for ``"unit"`` unit vectors, an
            array or a sparse matrix of SciPy.
        weighting: Weighting of the counts: ``"tf-idf"``, a count times the inverse document
            frequency of its word; ``"counts"``, counts as they are; ``"unit"``, unit vectors that
            are only checked.
        frequencies: Inverse document frequencies; ``None`` computes them from these documents.
        width: Number of coordinates that they must have; ``None`` for any.

    Raises:
        TypeError, ValueError: They are wrong; the message says how.

    Example:
        >>> rows, _ = unit_vectors([[3, 0, 4], [0, 2, 0]], "counts")
        >>> rows.toarray()
        array([[0.6, 0. , 0.8],
               [0. , 1. , 0. ]])
    """
    if weighting == "unit":
        rows = _checked(documents)
        _check_width(rows.shape[1], width)
        return rows, None
    counts = Counts.read(documents, "documents")
    _check_width(counts.shape[1], width)
    need_words(counts, "documents")
    values = counts.data.astype(np.float64)
    if weighting == "tf-idf":
        if frequencies is None:
            frequencies = inverse_document_frequency(counts)
        values *= frequencies[counts.indices]
    rows = sparse.csr_array((values, counts.indices, counts.indptr), counts.shape)
    return _scaled(rows), frequencies


def columns(rows: sparse.csr_array) -> Tensors:
    """Return unit vectors as columns of a dataset, in float32.

    Vectors with few entries other than 0 are ``"places"`` and ``"values"``, (N, T) each, padded to
    the most that any has; others ``"vectors"`` (N, W).

    Example:
        >>> sorted(columns(sparse.csr_array(np.eye(8))))
        ['places', 'values']
        >>> sorted(columns(sparse.csr_array(np.full((1, 4), 0.5))))
        ['vectors']
    """
    lengths = np.diff(rows.indptr)
    longest = int(lengths.max())
    if 3 * longest > rows.shape[1]:
        return {"vectors": tf.constant(rows.toarray().astype(np.float32))}
    coordinates = np.zeros((rows.shape[0], longest), np.int32)
    values = np.zeros(coordinates.shape, np.float32)
    inside = np.arange(longest) < lengths[:, np.newaxis]
    coordinates[inside], values[inside] = rows.indices, rows.data
    return {"places": tf.constant(coordinates), "values": tf.constant(values)}


def _checked(documents: Any) -> sparse.csr_array:
    """Return unit vectors, scaled again to length 1 after rounding."""
    if not sparse.issparse(documents):
        documents = as_table(documents, "documents")
    if documents.dtype.kind not in "iuf":
        raise TypeError(
            f"`documents` must hold real numbers; its dtype is {documents.dtype}."
        )
    if len(documents.shape) != 2 or 0 in documents.shape:
        raise ValueError(
            "`documents` must have two axes, documents and coordinates, and neither of length 0; "
            f"it is {describe(documents)}."
        )
    rows = sparse.csr_array(documents).astype(np.float64)
    rows.sum_duplicates()
    lengths = _lengths(rows)
    rounding = 1e-4  # tolerated difference of the length of a vector in float32 from 1
    wrong = np.flatnonzero(~(np.abs(lengths - 1) < rounding))
    if wrong.size:
        raise ValueError(
            f"`documents`: document {wrong[0]} has length {lengths[wrong[0]]:g}, not 1. Divide "
            'each by its length; for counts of words use `weighting="tf-idf"`.'
        )
    return _scaled(rows)


def _check_width(size: int, width: int | None) -> None:
    if width is not None and size != width:
        raise ValueError(
            f"`documents` have {size} coordinates, and the model {width}: held-out documents must "
            "be counted in the same vocabulary."
        )


def _scaled(rows: sparse.csr_array) -> sparse.csr_array:
    scaled = rows.copy()
    scaled.data = rows.data / np.repeat(_lengths(rows), np.diff(rows.indptr))
    return scaled


def _lengths(rows: sparse.csr_array) -> NDArray[np.float64]:
    squares: NDArray[np.float64] = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
    return np.sqrt(squares)
