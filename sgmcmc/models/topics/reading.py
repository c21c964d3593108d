"""Topics, for a person to read."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from sgmcmc.checks import whole_number


def top_words(topics: ArrayLike, vocab: ArrayLike, n: int = 10) -> list[list[str]]:
    """Return the most probable words of each topic, the first of them first.

    Args:
        topics: probabilities, (K, W): a draw, or a mean of draws.
        vocab: the W words.
        n: how many to give of each topic.

    Returns:
        K lists of n words.

    Raises:
        TypeError: ``n`` is not a number.
        ValueError: ``topics`` does not have two axes, or not as many columns as there are words;
            ``n`` is not whole, or below 1.

    Example:
        >>> from sgmcmc.models import top_words
        >>> top_words([[0.1, 0.7, 0.2], [0.8, 0.1, 0.1]], ["cat", "dog", "eel"], n=2)
        [['dog', 'eel'], ['cat', 'dog']]
    """
    n = whole_number("n", n, 1)
    table, words = np.asarray(topics), np.asarray(vocab)
    if table.ndim != 2 or table.shape[1] != len(words):
        raise ValueError(
            f"`topics` must have the shape (topics, {len(words)}), a column for each word of "
            f"`vocab`; it has {table.shape}."
        )
    return [[str(word) for word in words[np.argsort(-row, kind="stable")[:n]]] for row in table]
