"""Mistakes in a user's own parts, each of which ran silently or died far from its cause.

A user's own minibatches are checked in each block too, and recognised by what they draw.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.dynamics import SGLD, Dynamics, ExactDynamics
from sgmcmc.gradients import SVRG, Gradient, MinibatchGradient
from sgmcmc.minibatches import Minibatches, Uniform, Weighted
from sgmcmc.minibatches.base import _need_right_weights
from tests import seams

N, SIZE = 60, 6
Array = np.ndarray


def log_lik(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    return -0.5 * (dataset["x"] - params["theta"]) ** 2


DATA = {"x": np.random.default_rng(1).normal(size=N)}


def chain(**parts: Any) -> sgmcmc.Samples:
    """Run a short chain with parts of a user's own."""
    given = {
        "dynamics": "sgld",
        "gradient": "minibatch",
        "minibatches": "uniform",
        **parts,
    }
    if given["gradient"] != "full":
        given.setdefault("minibatch_size", SIZE)
    return sgmcmc.sample(
        log_lik, DATA, {"theta": 0.1}, preconditioner="none", stepsize=1e-3, n_chains=2,
        n_iters=120, burn_in=0, seed=1, verbose=False, jit_compile=False, **given,
    )  # fmt: skip


# ------------------------------------------------------------------------------------ minibatches


@dataclass(frozen=True)
class Own(Minibatches):
    """Uniform draws that a function changes."""

    change: Callable[[Array], Any]
    weights: Any = None
    after: int = 1

    def bind(self, rows: int, size: int) -> Any:
        return OwnDraws(rows, size, self)

    def to_json(self) -> Any:
        return "own"


class OwnDraws:
    every_row = False

    def __init__(self, rows: int, size: int, own: Own) -> None:
        self.size, self._rows, self._own, self._calls = size, rows, own, 0
        self.weights = own.weights(rows, size) if callable(own.weights) else own.weights

    def draw(self, rng: np.random.Generator, count: int) -> Any:
        self._calls += 1
        rows = np.sort(rng.integers(0, self._rows, (count, self.size)), 1)
        return self._own.change(rows) if self._calls >= self._own.after else rows


def last_replaced(value: int) -> Callable[[Array], Array]:
    def change(rows: Array) -> Array:
        rows = rows.copy()
        rows[-1, -1] = value
        return rows

    return change


WRONG_ROWS = {
    "row 60; the rows of the dataset are 0 to 59": last_replaced(N),
    "row 2000000009; the rows": last_replaced(2 * 10**9 + 9),
    "row -1; the rows": last_replaced(-1),
    "must return an array of shape": np.transpose,
    "must return row numbers, integers": lambda rows: rows.astype(float),
}


@pytest.mark.parametrize("message", WRONG_ROWS)
def test_wrong_rows(message: str) -> None:
    """Rows that are none are refused before anything runs."""
    with pytest.raises((ValueError, TypeError), match=f"OwnDraws.draw.*{message}"):
        chain(minibatches=Own(WRONG_ROWS[message]))
    with pytest.raises((ValueError, TypeError), match=f"OwnDraws.draw.*{message}"):
        own = Own(WRONG_ROWS[message])
        sgmcmc.check_part(own, log_lik, DATA, {"theta": 0.1}, minibatch_size=SIZE)


class LateDraws:
    """Draws that go wrong in the second block alone."""

    every_row, weights = False, None

    def __init__(self, rows: int, size: int) -> None:
        self.size, self._rows = size, rows

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        rows = np.sort(rng.integers(0, self._rows, (count, self.size)), 1)
        if count == 16:  # that is a block of a chain
            rows[-1, -1] = self._rows + 7
        return rows


class Late(Minibatches):
    def bind(self, rows: int, size: int) -> Any:
        return LateDraws(rows, size)

    def to_json(self) -> Any:
        return "late"


@pytest.mark.parametrize("chains", [1, 2, 80])
def test_rows_are_checked_in_each_block(
    chains: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seams.LONGEST_BLOCK, 16)
    with pytest.raises(
        ValueError, match="LateDraws.draw returned row 67; the rows .* 0 to 59"
    ):
        sgmcmc.sgld(
            log_lik, DATA, {"theta": 0.1}, 1e-3, minibatch_size=SIZE, minibatches=Late(),
            n_chains=chains, n_iters=40, seed=1, verbose=False,
        )  # fmt: skip


WRONG_WEIGHTS = {
    "must have an entry for each of the 60 rows": np.full(N - 1, N / SIZE),
    "it has shape (60, 1)": np.full((N, 1), N / SIZE),
    "must be positive and finite; that of row 7 is nan": np.where(
        np.arange(N) == 7, np.nan, 10.0
    ),
    "that of row 0 is 0": np.where(np.arange(N) == 0, 0.0, 10.0),
    "that of row 59 is -10": np.where(np.arange(N) == 59, -10.0, 10.0),
    "multiply them by 10": np.ones(N),
    "multiply them by 0.1": np.full(N, 100.0),
    "a NumPy array of numbers": [10.0] * N,
}


@pytest.mark.parametrize("message", WRONG_WEIGHTS)
def test_wrong_weights(message: str) -> None:
    own = Own(lambda rows: rows, WRONG_WEIGHTS[message])
    with pytest.raises(
        (ValueError, TypeError), match=f"OwnDraws.*{re.escape(message)}"
    ):
        chain(minibatches=own)


def first_half_often(rows: Array) -> Array:
    """The first half of the rows comes three times as often as the second."""
    moved = rows.copy()
    again = (rows >= N // 2) & (rows % 2 == 0)
    moved[again] -= N // 2
    return np.sort(moved, 1)


WRONG_WORKINGS = {
    "come more often than `weights` says": first_half_often,
    "come more often": lambda rows: np.maximum(rows, 1) // 2 * 2,
    "different rows for the same generator": lambda rows: np.sort(
        np.random.default_rng().integers(0, N, rows.shape), 1
    ),
}


@pytest.mark.parametrize("message", WRONG_WORKINGS)
def test_minibatches_that_would_bias(message: str) -> None:
    with pytest.raises(ValueError, match=f"OwnDraws.draw.*{message}"):
        chain(minibatches=Own(WRONG_WORKINGS[message]))


def test_places_of_a_row_are_neighbours() -> None:
    """This matters to estimators that write what they saw of each row."""
    shuffled = Own(lambda rows: np.random.default_rng(1).permuted(rows, axis=1))
    with pytest.raises(ValueError, match="OwnDraws.draw puts a row .* twice"):
        sgmcmc.check_part(shuffled)
    with pytest.raises(ValueError, match="OwnDraws.draw puts a row .* twice"):
        chain(minibatches=shuffled, gradient="saga")
    chain(minibatches=shuffled)


class Labels(Minibatches):
    """As many rows of each label in a minibatch."""

    def __init__(self, labels: Any) -> None:
        self.labels = np.asarray(labels)

    def bind(self, rows: int, size: int) -> Any:
        return LabelDraws(self.labels, size)

    def to_json(self) -> Any:
        return {"labels": np.bincount(self.labels).tolist()}


class LabelDraws:
    every_row = False

    def __init__(self, labels: Array, size: int) -> None:
        self.size, kinds = size, int(labels.max()) + 1
        self._rows = [np.flatnonzero(labels == k) for k in range(kinds)]
        counts, self._each = np.bincount(labels), size // kinds
        self.weights: Array | None = counts[labels] / self._each

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        parts = [
            rows[rng.integers(0, len(rows), (count, self._each))] for rows in self._rows
        ]
        return np.sort(np.concatenate(parts, 1), 1)


@pytest.mark.parametrize("rare", [2, 10, 30])
def test_right_weights_pass(rare: int) -> None:
    """Strata with their weights pass, and without them do not."""
    labels = Labels((np.arange(N) < rare).astype(int))
    sgmcmc.check_part(labels, log_lik, DATA, {"theta": 0.1}, minibatch_size=SIZE)
    if rare == 30:
        return

    class Unweighted(Labels):
        def bind(self, rows: int, size: int) -> Any:
            draws = LabelDraws(self.labels, size)
            draws.weights = None
            return draws

    with pytest.raises(
        ValueError, match="LabelDraws.draw: some rows, .*come more often"
    ):
        chain(minibatches=Unweighted(labels.labels))


@pytest.mark.parametrize("seed", range(30))
def test_nothing_right_is_refused(seed: int) -> None:
    """Minibatches that are right pass, with very unequal weights and in runs of neighbours."""
    rng = np.random.default_rng(seed)
    rows, size = int(10 ** rng.uniform(1, 6)), int(10 ** rng.uniform(0, 2.5))
    size, count = min(size, rows), 60
    halves = []
    weights = None
    for _ in range(2):
        if seed % 3 == 0:
            starts = rng.integers(0, rows, (count, 1))
            halves.append((starts + np.arange(size)) % rows)
        elif seed % 3 == 1:
            p = np.random.default_rng(1000 + seed).pareto(0.7, rows) + 1e-4
            draws = Weighted(p).bind(rows, size)
            weights = draws.weights
            halves.append(draws.draw(rng, count))
        else:
            halves.append(Uniform().bind(rows, size).draw(rng, count))
    _need_right_weights("X.draw", weights, rows, *halves)


def test_other_labels_do_not_resume_a_store(tmp_path: Path) -> None:
    """Two vectors of labels with the same counts are two chains."""
    labels = np.arange(N) % 2
    first = chain(minibatches=Labels(labels), store=tmp_path / "chain")
    again = chain(minibatches=Labels(labels), store=tmp_path / "chain")
    np.testing.assert_array_equal(first["theta"], again["theta"])
    with pytest.raises(ValueError, match="minibatches"):
        chain(minibatches=Labels(labels[::-1]), store=tmp_path / "chain")


# --------------------------------------------------------------------------------------- dynamics


class Place(NamedTuple):
    position: tf.Tensor


class Elsewhere(NamedTuple):
    place: tf.Tensor


class Counted(NamedTuple):
    position: tf.Tensor
    count: tf.Tensor


@dataclass(frozen=True)
class Moves(Dynamics):
    """SGLD, whose step a function changes."""

    change: Callable[[Any], Any] = lambda state: state
    begin: Callable[[tf.Tensor], Any] = Place

    def init(self, position, gradient, stepsize, normals):  # type: ignore[no-untyped-def]
        return self.begin(position)

    def step(self, state, gradient, stepsize, normals):  # type: ignore[no-untyped-def]
        move = 0.5 * stepsize * gradient + tf.sqrt(stepsize) * normals[0]
        return self.change(state._replace(position=state.position + move))


def with_noise(noise: Callable[[tf.Tensor], Any]) -> Callable[[Place], Place]:
    return lambda state: Place(state.position + noise(state.position))


WRONG_MOVES: dict[str, Dynamics] = {
    "Moves.step` gives different results": Moves(
        with_noise(
            lambda at: 0.1 * np.random.default_rng().standard_normal(at.shape[0])
        )
    ),
    "Moves.step` gives different results .*tf.random": Moves(
        with_noise(lambda at: 0.1 * tf.random.normal(at.shape, dtype=at.dtype))
    ),
    r"Moves.step` must return a state whose `position` is of shape \(d,\) = \(\d,\); it "
    r"returned shape \(1, \d\)": Moves(lambda state: Place(state.position[tf.newaxis])),
    "Moves.init` returned a state without `position`, a Elsewhere of place": Moves(
        begin=Elsewhere
    ),
    "Moves.init` must return its state, a NamedTuple": Moves(
        begin=lambda position: position
    ),
    "Moves.step` must return its state, a NamedTuple": Moves(lambda state: None),
    "Moves.step` must return a state like the one": Moves(
        lambda state: Counted(state.position, tf.constant(1))
    ),
    "Moves.step` must return a state whose `position` is of float32": Moves(
        lambda state: Place(tf.cast(state.position, tf.float64))
    ),
    "Moves.step` returned `count` as float32, which was int32": Moves(
        lambda state: state._replace(count=tf.cast(state.count, tf.float32)),
        lambda position: Counted(position, tf.constant(0)),
    ),
    "Moves.step` returned `count` of shape .*1": Moves(
        lambda state: state._replace(count=state.count[tf.newaxis]),
        lambda position: Counted(position, tf.constant(0)),
    ),
    "Moves.step` failed when it was tried. KeyError": Moves(
        lambda state: {}["nothing"]
    ),
}


@pytest.mark.parametrize("message", WRONG_MOVES)
def test_wrong_dynamics(message: str) -> None:
    for run in (sgmcmc.check_part, lambda dynamics: chain(dynamics=dynamics)):
        with pytest.raises((ValueError, TypeError), match=message):
            run(WRONG_MOVES[message])


def test_a_stepsize_for_each_coordinate() -> None:
    """Dynamics are tried with one stepsize and with a vector of them."""
    alone = Moves(lambda state: state)

    class OneStepsize(Moves):
        def step(self, state, gradient, stepsize, normals):  # type: ignore[no-untyped-def]
            return tf.cond(stepsize > 0, lambda: state, lambda: state)

    sgmcmc.check_part(alone)
    with pytest.raises(
        ValueError,
        match=r"OneStepsize` failed when it was tried .*stepsize of shape \(3,\)",
    ):
        sgmcmc.check_part(OneStepsize())


class OwnWalk(ExactDynamics):
    """A random walk that is drawn from TensorFlow's own generator."""

    def start(self, log_post, position):  # type: ignore[no-untyped-def]
        value, gradient = log_post(position)
        return Walk(position, value, tf.cast(gradient, position.dtype))

    def transition(self, log_post, state, stepsize, seed):  # type: ignore[no-untyped-def]
        return self.start(
            log_post, state.position + tf.random.normal(state.position.shape)
        )


class Walk(NamedTuple):
    position: tf.Tensor
    log_post: tf.Tensor
    gradient: tf.Tensor


def test_exact_dynamics() -> None:
    for run in (sgmcmc.check_part, lambda part: chain(dynamics=part, gradient="full")):
        with pytest.raises(
            ValueError, match="OwnWalk.transition` gives different results"
        ):
            run(OwnWalk())


# -------------------------------------------------------------------------------------- gradients


@dataclass(frozen=True)
class Estimate(MinibatchGradient):
    """The minibatch gradient, changed by a function."""

    change: Callable[..., Any] = lambda gradient, state, minibatch: (gradient, state)

    def estimate(self, target, state, position, minibatch, at_center):  # type: ignore[no-untyped-def]
        return self.change(target.gradient(position, minibatch), state, minibatch)


WRONG_ESTIMATES: dict[str, Gradient] = {
    r"Estimate.estimate` must return a gradient of shape \(d,\) = \(\d,\); it returned shape "
    r"\(\). It would be broadcast": Estimate(
        lambda g, state, _: (tf.reduce_sum(g), state)
    ),
    "Estimate.estimate` must return the gradient and the state": Estimate(
        lambda g, *_: g
    ),
    "Estimate.estimate` gives different results": Estimate(
        lambda g, state, _: (g * tf.random.normal([]), state)
    ),
    "Estimate.estimate` must return a gradient of float32": Estimate(
        lambda g, state, _: (tf.cast(g, tf.float64), state)
    ),
    "Estimate.estimate` must return a state like": Estimate(
        lambda g, state, _: (g, Counted(g, g))
    ),
    "Estimate.estimate` uses `minibatch.rows`.*needs_rows = True": Estimate(
        lambda g, state, minibatch: (
            g * tf.cast(minibatch.rows[0] >= 0, g.dtype),
            state,
        )
    ),
}


@pytest.mark.parametrize("message", WRONG_ESTIMATES)
def test_wrong_gradients(message: str) -> None:
    for run in (sgmcmc.check_part, lambda part: chain(gradient=part)):
        with pytest.raises((ValueError, TypeError), match=message):
            run(WRONG_ESTIMATES[message])


class Refreshed(SVRG):
    def refresh(self, whole, state, position, visit):  # type: ignore[no-untyped-def]
        return np.float32(1.0), state


def test_refresh_is_tried() -> None:
    with pytest.raises(
        ValueError, match=r"Refreshed.refresh` must return a gradient of shape"
    ):
        sgmcmc.check_part(Refreshed(10))


# ------------------------------------------------------------------------------------------- calls


def named(room: Any, kind: type) -> list[Any]:
    found = [getattr(room, name) for name in room.__all__]
    classes = [
        part for part in found if isinstance(part, type) and issubclass(part, kind)
    ]
    return [part() for part in classes if part.name and not part.needs]


OWN_PARTS = [
    *named(sgmcmc.dynamics, Dynamics), sgmcmc.dynamics.SCIR(0.5), sgmcmc.dynamics.SGRLD(0.5),
    Moves(), Estimate(), Uniform(), Uniform(replace=True), Weighted(np.arange(1, 41)),
    *named(sgmcmc.gradients, Gradient),
]  # fmt: skip


@pytest.mark.some(4)
@pytest.mark.parametrize(
    "part",
    [
        pytest.param(
            part, marks=[pytest.mark.slow] * (type(part).__name__ in ("HMC", "NUTS"))
        )
        for part in OWN_PARTS
    ],
    ids=lambda part: type(part).__name__,
)
def test_the_packages_own_parts_pass(part: Any) -> None:
    """What the package has passes the trial, on the built-in model."""
    sgmcmc.check_part(part)


def test_wrong_calls() -> None:
    with pytest.raises(TypeError, match=r"Did you mean SGLD\(...\)"):
        sgmcmc.check_part(SGLD)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`part` must be an object of a subclass"):
        sgmcmc.check_part(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="together"):
        sgmcmc.check_part(SGLD(), log_lik)
    sgmcmc.check_part(SGLD(), log_lik, DATA, {"theta": 0.1}, minibatch_size=5)


def test_draws_do_not_change() -> None:
    """A part that passes the trial gives the draws that the package's own one gives."""
    one = chain(
        dynamics=Moves(), gradient=Estimate(), minibatches=Own(lambda rows: rows)
    )
    other = chain(
        dynamics="sgld", gradient="minibatch", minibatches=Own(lambda rows: rows)
    )
    np.testing.assert_allclose(one["theta"], other["theta"], rtol=1e-4)


class Plain(Gradient):
    """An estimator whose state is a plain tuple, or a dict."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def init(self, whole, position):  # type: ignore[no-untyped-def]
        return self.state

    def estimate(self, target, state, position, minibatch, at_center):  # type: ignore[no-untyped-def]
        return target.gradient(position, minibatch), state


@pytest.mark.some(1)
@pytest.mark.parametrize("state", [(), {}, {"a": np.zeros(3, np.float32)}])
def test_states_of_estimators_of_any_structure(state: Any) -> None:
    sgmcmc.check_part(Plain(state))
    chain(gradient=Plain(state))


def test_a_dataset_of_any_length() -> None:
    """What is looked at of rows does not grow with the dataset."""
    rng, size = np.random.default_rng(1), 100
    first, second = (rng.integers(0, 10**12, (400, size)) for _ in range(2))
    _need_right_weights("X.draw", None, 10**12, first, second)
    with pytest.raises(ValueError, match="come more often"):
        _need_right_weights("X.draw", None, 10**12, first % 10**6, second % 10**6)
