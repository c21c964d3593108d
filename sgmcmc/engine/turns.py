"""Turns: how parameters that move one after the other share a state."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sgmcmc.target.layout import Layout


class Turns:
    """The order in which the named parameters move, and what of a state belongs to each.

    A tensor of the state with an entry for each coordinate, such as a momentum, or for each
    parameter, such as a thermostat, can be divided between them; others cannot.

    Args:
        layout: the places of the parameters in the flat position.

    Example:
        >>> turns = Turns(Layout({"bias": (), "beta": (2,)}))
        >>> turns.moved(1, tf.zeros(3), tf.ones(3)).numpy().tolist()
        [0.0, 1.0, 1.0]
    """

    def __init__(self, layout: Layout) -> None:
        self.slices = tuple(layout.slices.values())
        self._size = layout.size

    def __len__(self) -> int:
        return len(self.slices)

    def divides(self, state: Any) -> bool:
        """Tell whether every tensor of a state can be divided between the parameters."""
        sizes = (self._size, len(self))
        return all(
            leaf.shape.rank == 1 and leaf.shape[0] in sizes for leaf in tf.nest.flatten(state)
        )

    def moved(self, number: int, before: Any, after: Any) -> Any:
        """Return a state in which only what belongs to one parameter is as it is afterwards.

        Args:
            number: of the parameter, from 0.
            before: the state, or a single tensor.
            after: the same after a step of all parameters.
        """

        def one(old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
            place = self.slices[number]
            if old.shape[0] != self._size:
                place = slice(number, number + 1)
            return tf.concat([old[: place.start], new[place], old[place.stop :]], 0)

        return tf.nest.map_structure(one, before, after)

    def first_alone(self, gradient: tf.Tensor) -> tf.Tensor:
        """Return a gradient with zeros for all parameters but the first.

        The next pass looks at no more of it, so that XLA need not compute the rest.
        """
        return self.moved(0, tf.zeros_like(gradient), gradient)
