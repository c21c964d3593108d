"""Calls of an object's methods, in this process or on an executor's workers.

A call names the object whose method it is by a key. A worker that does not have the object answers
so, and the call is made again with the object. While it is on its way to a worker, other calls
that this worker has turned away wait, so that an object goes about once to each.
"""

from __future__ import annotations

import itertools
import queue
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass, field
from typing import Any

from sgmcmc.interrupts import TICK, Mailbox
from sgmcmc.machines import worker
from sgmcmc.machines.executors import SETTINGS, LastingExecutor, given_up, is_loss
from sgmcmc.machines.worker import PickledObject, PickleRecipe, pack


@dataclass
class _PendingCall:
    """A call that has no result yet."""

    tag: Hashable
    method: str
    arguments: tuple[Any, ...]
    requested_keys: tuple[str, ...] = ()
    sent_for: str | None = None
    deaths: int = 0
    generation: int = field(default=0)


class Calls:
    """Calls of one object's methods in progress; leaving the context cancels the others."""

    def __init__(self, executor: LastingExecutor, pickled: PickledObject) -> None:
        self._executor, self._pickled = executor, pickled
        self._waiting: deque[_PendingCall] = deque()
        self._turned_away: deque[_PendingCall] = deque()
        self._under_way: dict[Future[Any], _PendingCall] = {}
        self._done: Mailbox[Future[Any]] = Mailbox()
        self._served: set[str] = set()
        self._max_under_way = SETTINGS.calls * executor.width

    def __enter__(self) -> Calls:
        return self

    def __exit__(self, *_: object) -> None:
        for future in self._under_way:
            future.cancel()

    def submit(self, tag: Hashable, method: str, arguments: tuple[Any, ...]) -> None:
        """Have a method called, soon; the tag comes back with its result."""
        self._waiting.append(_PendingCall(tag, method, arguments))
        self._fill()

    def next(self) -> tuple[Any, Any] | None:
        """Return tag and result of a call, or ``None`` if there was none for half a second.

        Raises:
            Exception: What a call has raised.
            BrokenExecutor: Workers die again and again.
        """
        self._fill()
        try:
            future = self._done.take(TICK)
        except queue.Empty:
            return None
        call = self._under_way.pop(future)
        error: BaseException | None = None
        try:
            answer = future.result()
        except BaseException as raised:
            if not is_loss(raised):
                raise
            error = raised
        if call.sent_for is not None:
            self._served.discard(call.sent_for)
            call.sent_for = None
            self._waiting.extend(self._turned_away)
            self._turned_away.clear()
        if error is not None:
            call.deaths += 1
            if call.deaths >= SETTINGS.deaths:
                raise given_up() from error
            self._executor.renew(call.generation, error)
            self._waiting.appendleft(call)
        elif isinstance(answer, worker.Missing):
            # Make a call again with the objects that a worker lacks, or wait for them.
            if answer.worker in self._served:
                self._turned_away.append(call)
            else:
                self._served.add(answer.worker)
                call.sent_for, call.requested_keys = answer.worker, answer.keys
                self._waiting.appendleft(call)
        else:
            return call.tag, answer
        return None

    def last(self, seconds: float) -> Iterator[tuple[Any, Any]]:
        """Yield the results of unfinished calls, waiting a limited number of seconds."""
        until = time.monotonic() + seconds
        self._waiting.clear()
        for future in self._under_way:
            future.cancel()
        while time.monotonic() < until and any(
            future.running() for future in self._under_way
        ):
            try:
                future = self._done.take(TICK)
            except queue.Empty:
                continue
            call = self._under_way.pop(future)
            if not future.cancelled() and future.exception() is None:
                answer = future.result()
                if not isinstance(answer, worker.Missing):
                    yield call.tag, answer

    def _fill(self) -> None:
        """Submit calls as long as workers may be short of them."""
        while self._waiting and len(self._under_way) < self._max_under_way:
            call = self._waiting.popleft()
            key, blob, needs = self._pickled
            blobs = {
                requested: blob if requested == key else needs[requested]()
                for requested in call.requested_keys
            }
            call.requested_keys = ()
            call.generation = self._executor.generation
            future = self._executor.submit(
                worker.work, key, tuple(needs), blobs, call.method, call.arguments
            )
            self._under_way[future] = call
            future.add_done_callback(self._done.put)


class Machines(ABC):
    """Processes that run calls of an object's methods; a context around these calls."""

    is_local = False
    """Whether that is this process, so that nothing is sent."""

    @property
    def again(self) -> Machines:
        """These machines, for another call; this process if they are gone."""
        return self

    @property
    def width(self) -> int:
        """Number of calls that run at a time."""
        return 1

    @abstractmethod
    def map(
        self, obj: Any, method: str, calls: Iterable[tuple[Any, ...]]
    ) -> Iterator[Any]:
        """Yield the results of an object's method for these arguments, in their order.

        The calls must not change the object; their arguments are plain values and NumPy arrays.
        """

    @abstractmethod
    def __enter__(self) -> Machines:
        """Have the machines ready."""

    @abstractmethod
    def __exit__(self, *_: object) -> None:
        """Let those machines go that were made here."""


class LocalProcess(Machines):
    """This process: calls are made one after the other, as their results are asked for."""

    is_local = True

    def map(
        self, obj: Any, method: str, calls: Iterable[tuple[Any, ...]]
    ) -> Iterator[Any]:
        """Yield the results of an object's method for these arguments, in their order."""
        function = getattr(obj, method)
        return (function(*arguments) for arguments in calls)

    def __enter__(self) -> LocalProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass


HERE = LocalProcess()
"""This process."""


class Workers(Machines):
    """The workers of an executor.

    What is made here of a function that makes executors is shut down when the outermost ``with``
    block ends. ``recipes`` send objects that many others share, by type.
    """

    def __init__(self, executor: Any, recipes: Mapping[type, PickleRecipe]) -> None:
        self._executor = LastingExecutor(executor)
        self._depth = 0
        self._recipes = recipes
        self._pickled_objects: dict[int, tuple[weakref.ref[Any], PickledObject]] = {}

    def __enter__(self) -> Workers:
        if self._depth == 0:
            # Workers start, and import TensorFlow, while the call is being read here.
            self._executor.submit(worker.ready)
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._executor.let_go()
            self._pickled_objects.clear()

    @property
    def again(self) -> Machines:
        """These machines, for another call; this process if the executor was shut down."""
        return HERE if self._executor.gone else self

    @property
    def width(self) -> int:
        """Number of workers."""
        return self._executor.width

    def calls(self, obj: Any) -> Calls:
        """Return the calls of an object's methods, of which there are none yet."""
        return Calls(self._executor, self.pickled(obj))

    def map(
        self, obj: Any, method: str, calls: Iterable[tuple[Any, ...]]
    ) -> Iterator[Any]:
        """Yield the results of an object's method for these arguments, in their order."""
        if not self._has_workers():
            yield from HERE.map(obj, method, calls)
            return
        with self, self.calls(obj) as under_way:
            remaining, results = iter(calls), {}
            max_ahead = 2 * SETTINGS.calls * self._executor.width
            yielded = submitted = 0
            while True:
                ahead = max_ahead - (submitted - yielded)
                for arguments in itertools.islice(remaining, ahead):
                    under_way.submit(submitted, method, arguments)
                    submitted += 1
                if yielded == submitted:
                    return
                while yielded not in results:
                    answer = under_way.next()
                    if answer is not None:
                        number, result = answer
                        results[number] = result
                yield results.pop(yielded)
                yielded += 1

    def _has_workers(self) -> bool:
        """Return whether there are workers: after the call, a report may be asked for without."""
        if self._depth:
            return True
        try:
            executor = self._executor
            return executor.is_given and not executor.submit(worker.ready).cancelled()
        except (ValueError, BrokenExecutor):
            return False

    def pickled(self, obj: Any) -> PickledObject:
        """Return an object as it is sent, which is made once for as long as it lives."""
        entry = self._pickled_objects.get(id(obj))
        if entry is not None and entry[0]() is obj:
            return entry[1]
        packed = pack(obj, self._recipes)
        self._pickled_objects[id(obj)] = weakref.ref(obj), packed
        return packed
