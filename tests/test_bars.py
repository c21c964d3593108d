"""Progress bars of a front end."""

from typing import Any

import pytest
from tqdm.auto import tqdm

from sgmcmc import bars
from sgmcmc.engine.scheduler import Progress


def test_a_front_end_has_its_own() -> None:
    made: list[Any] = []

    class Bar(tqdm):  # type: ignore[type-arg]
        def display(self, msg: Any = None, pos: Any = None) -> None:
            made.append((self.desc, self.n, self.total, self.postfix))

    with bars.made_by(Bar), Progress("sgld", 100, True) as progress:
        assert bars.are_replaced()
        progress.advance(100, -12.5)
    assert made[0] == ("sgld", 0, 100, None)
    assert made[-1] == ("sgld", 100, 100, "log posterior estimate -12.5")
    assert not bars.are_replaced()


def test_errors_leave_the_usual_ones() -> None:
    with pytest.raises(KeyError), bars.made_by(tqdm):
        raise KeyError
    assert not bars.are_replaced()
