"""Counted observations as sequences of words: checked and converted once."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.counts import Counts
from sgmcmc.data.minibatch import Tensors
from sgmcmc.models.documents import unrolled


def read_rows(counts: Any) -> tuple[Tensors, int]:
    """Return counted observations as sequences of words, and the size of their vocabulary."""
    table = Counts.read(counts)
    empty = np.flatnonzero(table.row_totals == 0)
    if empty.size:
        raise ValueError(f"`counts`: observation {empty[0]} is empty. Leave such rows out.")
    rows = unrolled(table)._asdict()
    return {name: tf.constant(part) for name, part in rows.items()}, table.shape[1]
