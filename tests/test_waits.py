"""Waiting for what other threads send ends in time, whatever happens meanwhile."""

from __future__ import annotations

import queue
import random
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

import pytest

from sgmcmc.interrupts import Mailbox

LATE = 30.0
"""Seconds after which a wait is not late but without end, however busy the machine."""


def in_time(function: Callable[[], None]) -> None:
    """Call a function on a thread of its own, and fail unless it comes back."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(LATE)
    assert not thread.is_alive()


def test_everything_sent_arrives_once_and_in_order() -> None:
    mailbox: Mailbox[tuple[int, int]] = Mailbox()

    def send(sender: int) -> None:
        for number in range(2000):
            mailbox.put((sender, number))

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
    for thread in threads:
        thread.start()
    taken = [mailbox.take(LATE) for _ in range(4 * 2000)]
    for thread in threads:
        thread.join()
    for sender in range(4):
        assert [number for who, number in taken if who == sender] == list(range(2000))
    with pytest.raises(queue.Empty):
        mailbox.take(0)


@pytest.mark.parametrize("seconds", [0.0, 1e-6, 1e-5])
def test_a_wait_ends_however_little_time_it_has(seconds: float) -> None:
    """Some in ten thousand such waits of `queue.SimpleQueue` do not, up to Python 3.12."""

    def wait_often() -> None:
        for _ in range(100_000 if seconds == 0 else 20_000):
            mailbox: Mailbox[int] = Mailbox()
            mailbox.put(1)
            mailbox.take(
                0
            )  # without waiting, so that the bell has been rung for nothing
            with pytest.raises(queue.Empty):
                mailbox.take(seconds)

    in_time(wait_often)


def test_a_wait_lasts_as_long_as_it_should() -> None:
    mailbox: Mailbox[int] = Mailbox()
    mailbox.put(1)
    mailbox.take(0)
    begun = time.monotonic()
    with pytest.raises(queue.Empty):
        mailbox.take(0.2)
    assert time.monotonic() - begun >= 0.2
    timer = threading.Timer(0.2, mailbox.put, [2])
    timer.start()
    assert mailbox.take(LATE) == 2
    timer.join()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs setitimer")
def test_signals_neither_lengthen_a_wait_nor_lose_what_was_sent() -> None:
    """Handlers run while the main thread waits, which raise as Ctrl-C does, or do nothing."""
    rng, rung = random.Random(1), [0]

    class RungError(Exception):
        pass

    def ring(_: int, frame: FrameType | None) -> None:
        rung[0] += 1
        if (
            frame is not None
            and frame.f_code is Mailbox.take.__code__
            and rng.random() < 0.5
        ):
            raise RungError

    mailbox: Mailbox[int] = Mailbox()
    stop = threading.Event()

    def send() -> None:
        number = 0
        while not stop.wait(0.001):
            mailbox.put(number)
            number += 1

    before = signal.signal(signal.SIGALRM, ring)
    sender = threading.Thread(target=send)
    sender.start()
    taken: list[int] = []
    begun = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
        while rung[0] < 1000 and time.monotonic() - begun < LATE:
            try:
                taken.append(mailbox.take(rng.choice([0, 1e-5, 0.0007, 0.002])))
            except (queue.Empty, RungError):
                continue
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        stop.set()
        sender.join()
    assert rung[0] >= 1000
    # An exception may come where something has just been taken: it loses that, and nothing else.
    assert taken == sorted(set(taken))
    assert len(set(range(taken[-1])) - set(taken)) <= rung[0]
