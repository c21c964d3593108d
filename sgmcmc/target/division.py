"""Some of the parameters, and the others, as parts of one flat vector."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from sgmcmc.target.layout import Layout


class Division:
    """Divides flat vectors into the coordinates of some parameters and those of the others.

    Args:
        layout: the places of all parameters in the flat vector.
        names: the parameters that are meant.

    Attributes:
        part: the layout of these parameters alone.
        rest: the layout of the others.
        alone: whether there are no others.
        none: whether there are none of these.
    """

    def __init__(self, layout: Layout, names: Iterable[str]) -> None:
        self._layout = layout
        self.part = layout.subset(names)
        self.rest = layout.subset(name for name in layout.names if name not in self.part.shapes)
        self.alone = self.rest.size == 0
        self.none = self.part.size == 0

    def divide(self, vector: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the coordinates that are meant and the others; a scalar serves both."""
        if vector.shape.rank == 0 or self.alone:
            return vector, vector
        if self.none:
            return vector[..., :0], vector
        places = self._layout.slices
        on, others = (
            tf.concat([vector[..., places[name]] for name in part.names], -1)
            for part in (self.part, self.rest)
        )
        return on, others

    def unite(self, on: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
        """Return the vector that ``divide`` would divide so."""
        if self.alone:
            return on
        mine, theirs = self.part.slices, self.rest.slices
        pieces = [
            on[mine[name]] if name in mine else others[theirs[name]] for name in self._layout.names
        ]
        return tf.concat(pieces, 0)
