"""Parts of a user's own: the dynamics and the gradient estimator of a file that a user wrote, and
minibatches, through everything that a sampler does.

The statistical test fails by chance for one seed in ten thousand.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.minibatches import Minibatches
from tests import seams
from tests.linear_chains import (
    DRAWS,
    GRADIENT,
    THETA,
    Array,
    Moves,
    choices,
    compare_line,
    flat,
    line,
    logistic,
    moved,
    over_all,
    remade,
    variance,
    weights_of,
)

ROOT = Path(__file__).parents[2]
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def users_file() -> ModuleType:
    """Return the file that a user wrote."""
    folder = str(ROOT / "vignettes")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module("own_parts")


OWN = users_file()
DATA = {name: array[:200] for name, array in OWN.simulate().items()}


def run(**given: Any) -> sgmcmc.Samples:
    """Run the user's parts over several blocks and moves of the center."""
    shorter = {
        "n_iters": 150,
        "burn_in": 10,
        "gradient": OWN.AveragedCenter(7),
        **given,
    }
    n_iters = shorter.pop("n_iters")
    fixed = {"dtype": tf.float64, "minibatch_size": 10, "jit_compile": False}
    return OWN.run(DATA, n_iters, **{**fixed, **shorter})


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks 16 iterations long, and save after each."""
    monkeypatch.setattr(seams.LONGEST_BLOCK, 16)
    monkeypatch.setattr(seams.SAVE_EVERY, 0.0)


def same(one: sgmcmc.Samples, other: sgmcmc.Samples) -> None:
    """Assert that draws, gradients and log posterior estimates are the same bit for bit."""
    assert one.gradients is not None and other.gradients is not None
    for name in other:
        np.testing.assert_array_equal(one[name], other[name])
        np.testing.assert_array_equal(one.gradients[name], other.gradients[name])
    np.testing.assert_array_equal(one.log_post.values, other.log_post.values)


@pytest.mark.slow
def test_the_example_runs_from_top_to_bottom(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The documented example, in its short form, agrees with SGLD and with itself."""
    OWN.main(["--short"])
    printed = capsys.readouterr().out
    assert "The store gives the same draws again: True." in printed
    steps, means = re.findall(
        r"differ by at most (\S+?)\.? ?(?:posterior.*)?$", printed, re.M
    )
    assert float(steps) < 1e-5 and float(means) < 0.15


def test_the_parts_are_short() -> None:
    """Each part of the example takes no more than sixty lines."""
    for part in (OWN.LeimkuhlerMatthews, OWN.AveragedCenter):
        assert len(inspect.getsource(part).splitlines()) <= 60


# ---------------------------------------------------------------------- what the parts compute


@pytest.mark.some(1)
@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize("draws", ["without", "weighted"])
def test_step_by_step(
    draws: str, jit_compile: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both parts together are a transcription in NumPy, over blocks and moves of the center."""
    length, n, every, stepsize = 16, 2, 7, 0.02
    monkeypatch.setattr(seams.LONGEST_BLOCK, length)
    model = logistic(3, 6)
    numbers = remade(model, draws, n, starts=1, iterations=40, length=length)
    center = theta = model.origin

    def estimate(theta: Array, rows: Array) -> Array:
        change = (model.terms(theta) - model.terms(center))[rows]
        prior = model.prior(theta) - model.prior(center)
        return model.full(center) + prior + weights_of(draws, 6, rows) @ change

    g, before = estimate(theta, numbers.start_rows), numbers.start_noise[0]
    visits, found, gradients = [theta], [], []
    for i, (normals, rows) in enumerate(zip(numbers.noise, numbers.rows, strict=True)):
        if i and i % every == 0:
            visits.append(theta)
            center = np.mean(visits, 0)
        noise = np.sqrt(stepsize) * (before + normals[0]) / 2
        theta, before = theta + stepsize / 2 * g + noise, normals[0]
        g = estimate(theta, rows)
        found.append(theta)
        gradients.append(g)
    chain = model.chain(
        dynamics=OWN.LeimkuhlerMatthews(),
        gradient=OWN.AveragedCenter(every),
        minibatches=DRAWS[draws],
        minibatch_size=n,
        stepsize=stepsize,
        store_gradients=True,
        jit_compile=jit_compile,
    )
    np.testing.assert_allclose(flat(chain), found, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(
        flat(chain.gradients or {}), gradients, rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("draws", ["without", "with", "weighted"])
def test_the_estimate_over_all_minibatches(draws: str) -> None:
    """The user's estimator has the full gradient as its mean and the formula's covariance."""
    model, n = logistic(3, 6), 2
    center = model.origin + 0.3
    state = OWN.Center(tf.constant(center), tf.constant(model.full(center)))
    found = over_all(OWN.AveragedCenter(5), state, model, model.origin, draws, n)
    mean, covariance = found.moments()
    np.testing.assert_allclose(mean, model.full(model.origin), rtol=1e-12, atol=1e-12)
    terms = model.terms(model.origin) - model.terms(center)
    np.testing.assert_allclose(
        covariance, variance(draws, terms, n), rtol=1e-10, atol=1e-12
    )


NOISE = 3


@pytest.mark.slow
def test_stationary_law() -> None:
    """The variance of the user's dynamics is that of their own second moment equation with
    minibatches, and with exact gradients that of the posterior."""
    problem, n, stepsize = line(6), 2, 0.12
    h, K, prior, _ = *problem[1:], problem.total

    def before(z: Array) -> None:
        z[THETA] += stepsize / 2 * z[GRADIENT] + np.sqrt(stepsize) / 2 * z[NOISE]
        z[NOISE] = 0.0

    def after(z: Array) -> None:
        z[THETA] += np.sqrt(stepsize) / 2 * z[NOISE]

    def law(n: int) -> Array:
        def estimate(weights: Array, rows: Array) -> Any:
            def change(z: Array) -> None:
                z[GRADIENT] = -prior * z[THETA] + weights @ (
                    h[rows] * z[0] - K[rows] * z[THETA]
                )

            return moved(change)

        one = (
            Moves(4)
            .then([(1.0, moved(before))])
            .noise(NOISE, 1.0)
            .then([(1.0, moved(after))])
        )
        steps = [
            (c.chance, estimate(c.weights, c.rows)) for c in choices("without", 6, n)
        ]
        return one.then(steps).stationary()

    exact = law(6)
    assert exact[THETA, THETA] - exact[0, THETA] ** 2 == pytest.approx(
        1 / problem.total, 1e-12
    )
    draws = problem.model.chain(
        dynamics=OWN.LeimkuhlerMatthews(),
        minibatch_size=n,
        stepsize=stepsize,
        n_chains=64,
        burn_in=200,
        n_iters=3000,
    )["theta"]
    found = compare_line(draws, law(n))
    assert found.precision < 0.02, "the run is too short to tell"
    assert found.accepts, found
    assert not compare_line(draws, exact).accepts


# --------------------------------------------------------------------------- however they run


@functools.cache
def with_own_minibatches() -> sgmcmc.Samples:
    """Return a chain of which every part is the user's; asked for where blocks are short."""
    return run(minibatches=Runs())


def test_the_settings_tell_the_parts(short_blocks: None) -> None:
    """The settings name the user's parts and their constants."""
    settings = with_own_minibatches().settings
    assert settings["dynamics"] == {"name": "LeimkuhlerMatthews"}
    assert settings["gradient"] == {"name": "AveragedCenter", "every": 7}
    assert settings["method"] == "leimkuhlermatthews"


@pytest.mark.slow
def test_any_parts_beside_the_users(short_blocks: None) -> None:
    """The user's dynamics go with every gradient, and the user's gradient with all dynamics."""
    for gradient in (
        "minibatch",
        "svrg",
        "saga",
        sgmcmc.gradients.ControlVariate(0.01, 20),
    ):
        assert np.isfinite(flat(run(gradient=gradient, n_iters=20), 2)).all()
    for dynamics in ("sgld", "sghmc", "sgnht", "underdamped"):
        assert np.isfinite(
            flat(run(dynamics=dynamics, stepsize=0.02, n_iters=20), 2)
        ).all()


@pytest.mark.parametrize(
    "portions",
    [
        pytest.param(((14, 3), (146, 149)), marks=pytest.mark.slow),
        pytest.param(((15, 4), (3, 7), (60, 67), (82, 149)), marks=pytest.mark.slow),
    ],
    ids=len,
)
def test_step_by_step_is_one_call(
    portions: Any, tmp_path: Path, short_blocks: None
) -> None:
    """Sessions with the user's parts, each gone on with from a file, give the draws of one call.

    The first of two ends where the center moves; of the draws ten iterations are dropped.
    """
    expected, saved = with_own_minibatches(), tmp_path / "session.npz"
    for steps, at in portions:
        sampler = sgmcmc.setup(
            OWN.log_lik,
            DATA,
            OWN.START,
            OWN.log_prior,
            dynamics=OWN.LeimkuhlerMatthews(),
            gradient=OWN.AveragedCenter(7),
            minibatches=Runs(),
            minibatch_size=10,
            preconditioner=OWN.preconditioner(DATA),
            stepsize=0.3,
            n_chains=4,
            seed=1,
            dtype=tf.float64,
            jit_compile=False,
        )
        session = sgmcmc.init_sess(sampler, restore=saved if saved.exists() else None)
        sgmcmc.sgmcmc_step(sampler, session, steps)
        params = sgmcmc.get_params(sampler, session)
        for name in expected:
            np.testing.assert_allclose(params[name], expected[name][:, at], **EXACT)
        session.save(saved)


CHILD = """
import sys
sys.path.insert(0, {root!r})
import sgmcmc.engine.kernel, sgmcmc.run.checkpoints
sgmcmc.engine.kernel.LONGEST_BLOCK = 16
sgmcmc.run.checkpoints.SAVE_EVERY = 0.001
from tests.samplers.test_own_parts import run
print("ready", flush=True)
run(store={store!r}, n_iters=1000)
print("done", flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_run_goes_on_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process killed in the middle of a run of four preconditioned chains leaves what the same
    call ends as if nothing had happened, and zero variance takes it from there."""
    monkeypatch.setattr(seams.LONGEST_BLOCK, 16)
    store = tmp_path / "chain"
    script = CHILD.format(root=str(ROOT), store=str(store))
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    killed = 0
    for attempt in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        ) as child:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and child.poll() is None:
                if attempt or len(list(store.glob("*chain*"))) >= 4:
                    break
                time.sleep(0.01)
            time.sleep(0.1 + attempt)
            child.send_signal(signal.SIGKILL)
            killed += child.stdout.read() != "done\n"
    assert killed
    found, expected = run(store=store, n_iters=1000), run(n_iters=1000)
    same(found, expected)
    same(sgmcmc.Samples.open(store), expected)
    corrected = sgmcmc.zero_variance(found)
    for name in expected:
        ratio = np.asarray(corrected.variance_ratio[name])
        assert np.isfinite(corrected.mean[name]).all() and (ratio > 1).all()
    with pytest.raises(ValueError, match="every"):
        run(store=store, n_iters=1000, gradient=OWN.AveragedCenter(8))


# ------------------------------------------------------------------------------ own minibatches


@dataclass(frozen=True)
class Runs(Minibatches):
    """Neighbouring rows that begin anywhere, and go on at the beginning after the end."""

    step: int = 1

    def bind(self, rows: int, size: int) -> RunDraws:
        if self.step * size > rows:
            raise ValueError(f"`minibatches`: {size} rows do not go into {rows}.")
        return RunDraws(rows, size, self.step)

    def to_json(self) -> Any:
        return {"runs": self.step}


class RunDraws:
    """The rows of a run; all are drawn equally often."""

    every_row = False
    weights: Array | None = None

    def __init__(self, rows: int, size: int, step: int) -> None:
        self.size, self._rows, self._step = size, rows, step

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        first = rng.integers(0, self._rows, (count, 1))
        return (first + self._step * np.arange(self.size)) % self._rows


@dataclass(frozen=True)
class TwoHalves(Minibatches):
    """The rows of the first half three times as often as those of the second, and weighed so."""

    def bind(self, rows: int, size: int) -> HalfDraws:
        return HalfDraws(rows, size)

    def to_json(self) -> Any:
        return "halves"


class HalfDraws:
    """Independent draws, sorted."""

    every_row = False

    def __init__(self, rows: int, size: int) -> None:
        p = np.where(np.arange(rows) < rows // 2, 3.0, 1.0)
        self.size, self._p = size, p / p.sum()
        self.weights: Array | None = 1.0 / (size * self._p)

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        return np.sort(rng.choice(len(self._p), (count, self.size), p=self._p), 1)


@pytest.mark.parametrize(
    ("minibatches", "gradient"),
    [
        (TwoHalves(), "saga"),
        *(
            pytest.param(minibatches, gradient, marks=pytest.mark.slow)
            for minibatches in (Runs(), Runs(step=2), TwoHalves())
            for gradient in ("minibatch", "saga")
            if (minibatches, gradient) != (TwoHalves(), "saga")
        ),
    ],
    ids=str,
)
def test_own_minibatches(
    minibatches: Any, gradient: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain sees the rows that the user's minibatches draw, in each block again, with the user's
    weights."""
    monkeypatch.setattr(seams.LONGEST_BLOCK, 16)
    model, n, stepsize = logistic(3, 12), 3, 0.02
    monkeypatch.setitem(DRAWS, "own", minibatches)
    numbers = remade(model, "own", n, iterations=40, length=16)
    weights = minibatches.bind(12, n).weights
    table = model.terms(model.origin)

    def estimate(theta: Array, rows: Array) -> Array:
        each = np.full(n, 12 / n) if weights is None else weights[rows]
        if gradient == "minibatch":
            return model.prior(theta) + each @ model.terms(theta)[rows]
        total, change = table.sum(0), model.terms(theta)[rows] - table[rows]
        table[rows] = model.terms(theta)[rows]
        return model.prior(theta) + total + each @ change

    theta, expected = model.origin, []
    g = estimate(theta, numbers.start_rows)
    for normals, rows in zip(numbers.noise, numbers.rows, strict=True):
        theta = theta + stepsize / 2 * g + np.sqrt(stepsize) * normals[0]
        g = estimate(theta, rows)
        expected.append(theta)
    chain = model.chain(
        minibatches=minibatches, minibatch_size=n, stepsize=stepsize, gradient=gradient
    )
    np.testing.assert_allclose(flat(chain), expected, rtol=1e-10, atol=1e-10)


def test_own_minibatches_and_all_parts_with_a_store(
    tmp_path: Path, short_blocks: None
) -> None:
    """The user's dynamics, gradient and minibatches together go on from a store, which is refused
    for other minibatches."""
    for _ in range(2):
        same(run(minibatches=Runs(), store=tmp_path / "chain"), with_own_minibatches())
    with pytest.raises(ValueError, match="minibatches"):
        run(minibatches=Runs(step=2), store=tmp_path / "chain")
    with pytest.raises(ValueError, match="do not go into 200"):
        run(minibatches=Runs(step=50))


@pytest.mark.parametrize("argument", ["dynamics", "gradient", "minibatches"])
def test_what_is_no_part_is_refused(argument: str) -> None:
    """A class in place of an object, or an object of another kind, is refused by name."""
    classes = {
        "dynamics": OWN.LeimkuhlerMatthews,
        "gradient": OWN.AveragedCenter,
        "minibatches": Runs,
    }
    for wrong in (classes[argument], object(), 3):
        with pytest.raises(
            TypeError, match=f"`{argument}` must be .*, or an object of"
        ):
            run(**{argument: wrong}, n_iters=3)
