"""Calls that are spread over the workers of an executor, and survive the death of some.

A call names the object whose method it is by a key. A worker that does not have the object answers
so, and the call is made again with the object. While it is on its way to a worker, other calls
that this worker has turned away wait, so that an object goes about once to each.
"""

from __future__ import annotations

import queue
import time
import weakref
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass, field
from typing import Any

from sgmcmc.machines import pools, worker
from sgmcmc.machines.here import HERE, Machines
from sgmcmc.machines.parcels import Courier, Parcel, pack

_DEATHS = 4
"""How many workers may die in a row at the same call."""

_TICK = 0.5
"""Some systems let Ctrl-C through only between waits, so none is longer, in seconds."""

_PER_WORKER = 2
"""Calls under way for each worker, so that none waits for its next."""


class Spread(Machines):
    """The workers of an executor.

    Args:
        executor: a ``concurrent.futures.Executor``, or a function without arguments that makes
            one. What is made here is shut down where the outermost ``with`` block ends.
        couriers: how objects are sent that many others share, by type.

    Raises:
        TypeError, ValueError: it is no executor, or cannot be used.
    """

    def __init__(self, executor: Any, couriers: Mapping[type, Courier]) -> None:
        self._maker = executor if pools.is_maker(executor) else None
        self._given = None if self._maker else pools.checked(executor)
        self._own: Executor | None = None
        self._depth = 0
        self._couriers = couriers
        self._parcels: dict[int, tuple[weakref.ref[Any], Parcel]] = {}
        self.generation = 0

    def __enter__(self) -> Spread:
        if self._depth == 0:
            # Workers start, and import TensorFlow, while the call is being read here.
            self.submit(worker.ready)
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._let_go()
            self._parcels.clear()

    @property
    def again(self) -> Machines:
        """These machines, for another call; this process where the executor has been shut down."""
        gone = self._given is not None and pools.is_shut_down(self._given)
        return HERE if gone else self

    @property
    def width(self) -> int:
        """How many workers there are."""
        return pools.width(self._executor())

    def map(self, thing: Any, method: str, calls: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield what a method of an object returns for these arguments, in their order."""
        if not self._there():
            yield from HERE.map(thing, method, calls)
            return
        with self, Calls(self, thing) as under_way:
            numbered, found = enumerate(calls), {}
            most, yielded, submitted = 2 * _PER_WORKER * self.width, 0, 0
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
        """Tell whether there are workers: after the call, a report may be asked for without."""
        if self._depth:
            return True
        try:
            return self._given is not None and not self.submit(worker.ready).cancelled()
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

    def submit(self, function: Any, *arguments: Any) -> Future[Any]:
        """Have a worker call a function, of an executor that is made anew if it is broken."""
        for _ in range(_DEATHS):
            generation = self.generation
            try:
                return self._executor().submit(function, *arguments)
            except BrokenExecutor as error:
                self.renew(generation, error)
            except RuntimeError as error:
                raise ValueError(f"`executor` takes no work: {error}.") from error
        raise _given_up()

    def renew(self, generation: int, error: BaseException) -> None:
        """Replace the executor, unless that was done since.

        Raises:
            BrokenExecutor: there is no way to make another.
        """
        if generation != self.generation:
            return
        if self._maker is None:
            broken = self._own or self._given
            assert broken is not None
            another = pools.like(broken)
            if another is None:
                if isinstance(error, BrokenExecutor):
                    raise BrokenExecutor(
                        "`executor` is broken, and no other can be made. Hand in a function that "
                        "makes one."
                    ) from error
                return  # it replaces its workers itself
            self._let_go()
            self._own = another
        else:
            self._let_go()
        self.generation += 1

    def _executor(self) -> Executor:
        if self._own is None and self._maker is not None:
            self._own = pools.checked(self._maker())
        found = self._own or self._given
        assert found is not None
        return found

    def _let_go(self) -> None:
        """Shut down what was made here."""
        if self._own is not None:
            own, self._own = self._own, None
            own.shutdown(wait=False, cancel_futures=True)
            if self._maker is None:
                # The user's own is broken for good.
                self.generation += 1


def _given_up() -> BrokenExecutor:
    return BrokenExecutor(
        f"`executor`: workers died {_DEATHS} times in a row at the same work. They may be short of "
        'memory; or the script that starts them lacks `if __name__ == "__main__":` around what '
        "only it is to do; or a library that your functions load ends their process."
    )


@dataclass
class _Call:
    """A call that has no result yet."""

    tag: Hashable
    method: str
    arguments: tuple[Any, ...]
    wanted: tuple[str, ...] = ()
    sent_for: str | None = None
    deaths: int = 0
    generation: int = field(default=0)


class Calls:
    """Calls of one object's methods that are under way; those that are not, when it is left, end.

    Args:
        machines: where they run.
        thing: the object.
    """

    def __init__(self, machines: Spread, thing: Any) -> None:
        self._machines, self._parcel = machines, machines.parcel(thing)
        self._waiting: deque[_Call] = deque()
        self._turned_away: deque[_Call] = deque()
        self._under_way: dict[Future[Any], _Call] = {}
        self._done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        self._served: set[str] = set()
        self._most = _PER_WORKER * machines.width

    def __enter__(self) -> Calls:
        return self

    def __exit__(self, *_: object) -> None:
        for future in self._under_way:
            future.cancel()

    def submit(self, tag: Hashable, method: str, arguments: tuple[Any, ...]) -> None:
        """Have a method called, soon; the tag comes back with its result."""
        self._waiting.append(_Call(tag, method, arguments))
        self._fill()

    def next(self) -> tuple[Any, Any] | None:
        """Return tag and result of a call, or ``None`` if there was none for half a second.

        Raises:
            Exception: what a call has raised.
            BrokenExecutor: workers die again and again.
        """
        self._fill()
        try:
            future = self._done.get(timeout=_TICK)
        except queue.Empty:
            return None
        call = self._under_way.pop(future)
        error: BaseException | None = None
        try:
            answer = future.result()
        except BaseException as raised:
            if not pools.is_loss(raised):
                raise
            error = raised
        if call.sent_for is not None:
            self._served.discard(call.sent_for)
            call.sent_for = None
            self._waiting.extend(self._turned_away)
            self._turned_away.clear()
        if error is not None:
            self._lost(call, error)
        elif isinstance(answer, worker.Missing):
            self._send_for(call, answer)
        else:
            return call.tag, answer
        return None

    def last(self, seconds: float) -> Iterator[tuple[Any, Any]]:
        """Yield what calls still return that are at work, for so many seconds at most."""
        until = time.monotonic() + seconds
        self._waiting.clear()
        for future in self._under_way:
            future.cancel()
        while time.monotonic() < until and any(future.running() for future in self._under_way):
            try:
                future = self._done.get(timeout=_TICK)
            except queue.Empty:
                continue
            call = self._under_way.pop(future)
            if not future.cancelled() and future.exception() is None:
                answer = future.result()
                if not isinstance(answer, worker.Missing):
                    yield call.tag, answer

    def _lost(self, call: _Call, error: BaseException) -> None:
        """Make a call again whose worker is gone."""
        call.deaths += 1
        if call.deaths >= _DEATHS:
            raise _given_up() from error
        self._machines.renew(call.generation, error)
        self._waiting.appendleft(call)

    def _send_for(self, call: _Call, missing: worker.Missing) -> None:
        """Make a call again with what a worker lacks, or wait if that is on its way there."""
        if missing.worker in self._served:
            self._turned_away.append(call)
        else:
            self._served.add(missing.worker)
            call.sent_for, call.wanted = missing.worker, missing.keys
            self._waiting.appendleft(call)

    def _fill(self) -> None:
        """Submit calls as long as workers may be short of them."""
        while self._waiting and len(self._under_way) < self._most:
            call = self._waiting.popleft()
            blobs = {key: self._blob(key) for key in call.wanted}
            call.wanted = ()
            needs = tuple(self._parcel.needs)
            call.generation = self._machines.generation
            future = self._machines.submit(
                worker.work, self._parcel.key, needs, blobs, call.method, call.arguments
            )
            self._under_way[future] = call
            future.add_done_callback(self._done.put)

    def _blob(self, key: str) -> bytes:
        return self._parcel.blob if key == self._parcel.key else self._parcel.needs[key]()
