"""Where methods of an object are called: in this process, or spread over an executor's workers."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor
from typing import Any

from sgmcmc.machines import worker
from sgmcmc.machines.calls import PER_WORKER, Calls
from sgmcmc.machines.executors import LastingExecutor
from sgmcmc.machines.worker import Courier, Parcel, pack


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

        The calls must not change the object; their arguments are plain values and NumPy arrays.
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


class Spread(Machines):
    """The workers of an executor.

    What is made here of a function that makes executors is shut down when the outermost ``with``
    block ends. ``couriers`` send objects that many others share, by type.
    """

    def __init__(self, executor: Any, couriers: Mapping[type, Courier]) -> None:
        self._executor = LastingExecutor(executor)
        self._depth = 0
        self._couriers = couriers
        self._parcels: dict[int, tuple[weakref.ref[Any], Parcel]] = {}

    def __enter__(self) -> Spread:
        if self._depth == 0:
            # Workers start, and import TensorFlow, while the call is being read here.
            self._executor.submit(worker.ready)
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._executor.let_go()
            self._parcels.clear()

    @property
    def again(self) -> Machines:
        """These machines, for another call; this process where the executor has been shut down."""
        return HERE if self._executor.gone else self

    def calls(self, thing: Any) -> Calls:
        """Return the calls of an object's methods, of which there are none yet."""
        return Calls(self._executor, self.parcel(thing))

    def map(self, thing: Any, method: str, calls: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield what a method of an object returns for these arguments, in their order."""
        if not self._there():
            yield from HERE.map(thing, method, calls)
            return
        with self, self.calls(thing) as under_way:
            numbered, found = enumerate(calls), {}
            most, yielded, submitted = 2 * PER_WORKER * self._executor.width, 0, 0
            while True:
                while submitted - yielded < most and (call := next(numbered, None)) is not None:
                    under_way.submit(call[0], method, call[1])
                    submitted += 1
                if yielded == submitted:
                    return
                while yielded not in found:
                    answer = under_way.next()
                    if answer is not None:
                        found[answer[0]] = answer[1]
                yield found.pop(yielded)
                yielded += 1

    def _there(self) -> bool:
        """Return whether there are workers: after the call, a report may be asked for without."""
        if self._depth:
            return True
        try:
            executor = self._executor
            return executor.is_given and not executor.submit(worker.ready).cancelled()
        except (ValueError, BrokenExecutor):
            return False

    def parcel(self, thing: Any) -> Parcel:
        """Return an object as it is sent, which is made once for as long as it lives."""
        known = self._parcels.get(id(thing))
        if known is not None and known[0]() is thing:
            return known[1]
        found = pack(thing, self._couriers)
        self._parcels[id(thing)] = weakref.ref(thing), found
        return found
