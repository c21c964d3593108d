"""The seam between what is to be done and where: methods of an object, called here or elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any


class Machines(ABC):
    """Where calls of an object's methods run; a context, for as long as there are calls."""

    here = False
    """Whether that is this process, and nothing is to be sent."""

    @property
    def again(self) -> Machines:
        """These machines, for another call; this process where they are gone."""
        return self

    @abstractmethod
    def map(self, thing: Any, method: str, calls: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield what a method of an object returns for these arguments, in their order.

        Args:
            thing: the object, which the calls must not change.
            method: name of the method.
            calls: the arguments of each call: plain values and NumPy arrays.
        """

    @abstractmethod
    def __enter__(self) -> Machines:
        """Have the machines ready."""

    @abstractmethod
    def __exit__(self, *_: object) -> None:
        """Let those machines go that were made here."""


class Here(Machines):
    """This process: calls are made one after the other, as their results are asked for."""

    here = True

    def map(self, thing: Any, method: str, calls: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield what a method of an object returns for these arguments, in their order."""
        function = getattr(thing, method)
        return (function(*arguments) for arguments in calls)

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None:
        pass


HERE = Here()
"""This process."""
