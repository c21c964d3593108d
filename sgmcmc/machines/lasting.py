"""An executor that outlasts its workers: a broken one is replaced."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any

from sgmcmc.machines import pools

DEATHS = 4
"""How many workers may die in a row at the same call."""


class LastingExecutor:
    """The executor of a user's, or one that is made here as often as it takes.

    Args:
        executor: a ``concurrent.futures.Executor``, or a function without arguments that makes
            one.

    Attributes:
        generation: how often it was replaced.

    Raises:
        TypeError, ValueError: it is no executor, or cannot be used.
    """

    def __init__(self, executor: Any) -> None:
        self._maker = executor if pools.is_maker(executor) else None
        self._given = None if self._maker else pools.checked(executor)
        self._own: Executor | None = None
        self.generation = 0

    @property
    def is_given(self) -> bool:
        """Whether it is the user's, who may have work for it besides."""
        return self._given is not None

    @property
    def gone(self) -> bool:
        """Whether the user's has been shut down."""
        return self._given is not None and pools.is_shut_down(self._given)

    @property
    def width(self) -> int:
        """How many workers there are."""
        return pools.width(self._executor())

    def submit(self, function: Any, *arguments: Any) -> Future[Any]:
        """Have a worker call a function, of an executor that is made anew if it is broken."""
        for _ in range(DEATHS):
            generation = self.generation
            try:
                return self._executor().submit(function, *arguments)
            except BrokenExecutor as error:
                self.renew(generation, error)
            except RuntimeError as error:
                raise ValueError(f"`executor` takes no work: {error}.") from error
        raise given_up()

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
            self.let_go()
            self._own = another
        else:
            self.let_go()
        self.generation += 1

    def _executor(self) -> Executor:
        if self._own is None and self._maker is not None:
            self._own = pools.checked(self._maker())
        found = self._own or self._given
        assert found is not None
        return found

    def let_go(self) -> None:
        """Shut down what was made here."""
        if self._own is not None:
            own, self._own = self._own, None
            own.shutdown(wait=False, cancel_futures=True)
            if self._maker is None:
                # The user's own is broken for good.
                self.generation += 1


def given_up() -> BrokenExecutor:
    return BrokenExecutor(
        f"`executor`: workers died {DEATHS} times in a row at the same work. They may be short of "
        'memory; or the script that starts them lacks `if __name__ == "__main__":` around what '
        "only it is to do; or a library that your functions load ends their process."
    )
