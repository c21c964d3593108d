"""What a run shows and tells: silence, progress, log posterior, settings, seeds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.inputs.options import DEFAULTS
from tests import seams
from tests.conftest import ANY_SHAPE, METHODS, any_shape, once
from tests.ladder import BY_NAME

Run = Callable[..., sgmcmc.Samples]


@pytest.mark.slow
def test_silence(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    """In a process of its own, from the import on: ``test_threads.py``."""
    run("sghmccv", n_chains=2)
    out, err = capfd.readouterr()
    assert out == "" and err == ""


@pytest.mark.some(1)
@pytest.mark.parametrize("method", METHODS[::-1])
def test_progress(method: str, run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    run(method, verbose=True, n_chains=2, n_iters=20, burn_in=5)
    out, err = capfd.readouterr()
    assert out == ""
    last = [line.split("\r")[-1] for line in err.strip().split("\n")]
    case = BY_NAME[method]
    assert len(last) == 1 + case.centered
    for line in last:
        assert "100%" in line and re.search(r"log posterior estimate -?\d", line)
    assert f"{case.method}:" in last[-1] and "50/50" in last[-1]
    if case.centered:
        assert "mode-finding" in last[0] and "20/20" in last[0]


def test_no_mode_finding_no_bar(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    samples = run("sgldcv", verbose=True, n_iters_opt=0, params={"theta": 0.25})
    assert "mode-finding" not in capfd.readouterr().err
    assert samples.mode["theta"] == 0.25


@pytest.mark.parametrize(
    "call",
    [
        "sgld(**given, stepsize=1e-3)",
        "sgld_setup(**given, stepsize=1e-3)",
        "sample(**given)",
    ],
)
def test_tracebacks_of_wrong_arguments_are_short(call: str, x: np.ndarray) -> None:
    """This line, the function that was called, and where the error is raised again."""

    def log_lik(
        params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        return -0.5 * (dataset["x"] - params["theta"]) ** 2

    given = {"log_lik": log_lik, "dataset": {"x": x}, "params": {"theta": 0.0}}
    given |= {"minibatch_size": "many"}
    with pytest.raises(TypeError, match="^`minibatch_size`") as caught:
        eval(f"sgmcmc.{call}", {"sgmcmc": sgmcmc, "given": given})
    home = Path(sgmcmc.__file__).parent
    assert sum(home in Path(entry.path).parents for entry in caught.traceback) <= 2


@pytest.mark.parametrize("n_chains", [None, 3])
def test_log_post(n_chains: int | None, run: Run) -> None:
    samples = run(n_chains=n_chains, minibatch_size=20, burn_in=10, n_iters=30)
    iterations, values = samples.log_post
    assert iterations.dtype.kind == "i" and iterations[-1] == 40
    assert (np.diff(iterations) > 0).all() and iterations[0] >= 1
    leading = () if n_chains is None else (n_chains,)
    assert values.shape == (*leading, len(iterations))


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("n_iters", "apart"), [(200, 2), (30, 1), (99, 1), (100, 1), (199, 1), (1000, 8)]
)
def test_log_post_has_a_hundred_points(n_iters: int, apart: int, run: Run) -> None:
    """Or as many as there are iterations; and taking them leaves the draws as they are."""
    samples = run(n_iters=n_iters, n_chains=2, seed=1)
    expected = sorted({*range(apart, n_iters + 1, apart), n_iters})
    assert samples.log_post.iterations.tolist() == expected
    assert len(expected) >= min(n_iters, 100)
    longer = run(n_iters=1000, n_chains=2, seed=1)
    np.testing.assert_array_equal(samples["theta"], longer["theta"][:, :n_iters])


def test_blocks_that_are_short_enough_are_not_interrupted(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long ones every few iterations; short ones, whose iterations are heavy, at most every 16."""
    monkeypatch.setattr(seams.LONGEST_BLOCK, 40)
    for n_iters, each in ((299, 16), (1600, 16), (4001, 40)):
        assert run(n_iters=n_iters).log_post.iterations.tolist() == sorted(
            {*range(each, n_iters, each), *range(40, n_iters, 40), n_iters}
        )
    monkeypatch.setattr(seams.LONGEST_BLOCK, 65)
    assert run(n_iters=299).log_post.iterations.tolist() == sorted(
        {*range(2, 299, 2), *range(65, 299, 65), 299}
    )


@pytest.mark.parametrize(
    "longest_block", [pytest.param(4096, marks=pytest.mark.slow), 3]
)
def test_log_post_of_a_chain_that_is_made_longer(
    longest_block: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory and on disk it is that of a chain which was that long from the beginning."""
    monkeypatch.setattr(seams.LONGEST_BLOCK, longest_block)
    expected = run(n_iters=250, seed=1).log_post
    store = tmp_path / "chain"
    run(n_iters=130, seed=1, store=store)
    for longer in (
        run(n_iters=130, seed=1).extend(120, verbose=False),
        run(n_iters=250, seed=1, store=store),
        sgmcmc.Samples.open(store),
    ):
        np.testing.assert_array_equal(longer.log_post.iterations, expected.iterations)
        np.testing.assert_array_equal(longer.log_post.values, expected.values)


def test_values_of_log_post(run: Run, x: np.ndarray) -> None:
    """With n = N the estimate is exact, prior included."""

    def log_prior(params: dict[str, tf.Tensor]) -> tf.Tensor:
        return -3.0 * params["theta"] ** 2

    samples = run(minibatch_size=20, log_prior=log_prior)
    theta = samples["theta"][samples.log_post.iterations - 1]
    expected = -0.5 * ((x[:, None] - theta) ** 2).sum(0) - 3.0 * theta**2
    np.testing.assert_allclose(samples.log_post.values, expected, rtol=1e-4)


@pytest.mark.some(2)
@pytest.mark.parametrize("method", METHODS)
def test_settings(method: str) -> None:
    settings, case = once(method).settings, BY_NAME[method]
    assert json.loads(json.dumps(settings)) == settings
    expected = {"method": case.method, "N": 20, "n": 5, "seed": 1, "stepsize": 1e-3}
    assert expected.items() <= settings.items()
    # Where a chain lies on disk is not what it is: a folder may be moved. How rows are drawn is
    # told by `minibatches` alone.
    assert set(DEFAULTS) - {"store", "replace", "executor"} <= set(settings)
    assert {"sgmcmc", "tensorflow", "numpy"} <= set(settings["versions"])
    assert settings["versions"]["sgmcmc"] == sgmcmc.__version__
    assert {**case.constants, **case.keywords}.items() <= settings.items()
    assert settings["dynamics"]["name"] == case.dynamics.__name__
    assert ("opt_stepsize" in settings) == case.centered
    assert (settings["minibatches"], settings["preconditioner"]) == ("uniform", "none")
    assert {"graph calls", "native code", "blocks"} <= set(settings["paths"])


def test_settings_of_everything(run: Run) -> None:
    decay = sgmcmc.polynomial_decay(1e-3, 1.0, 0.3)
    samples = run(
        stepsize={"theta": decay},
        test_functions={"double": lambda params: 2.0 * params["theta"]},
        store_params=["theta"],
        n_chains=2.0,
        thin=2,
        seed=13.0,
    )
    settings = samples.settings
    assert json.loads(json.dumps(settings)) == settings
    assert {"n_chains": 2, "thin": 2, "seed": 13}.items() <= settings.items()
    assert settings["test_functions"] == ["double"] and settings["store_params"] == [
        "theta"
    ]
    assert "0.3" in settings["stepsize"]["theta"]


def test_a_drawn_seed_can_be_given_again(run: Run) -> None:
    first = run(seed=None)
    again = run(seed=first.settings["seed"])
    np.testing.assert_array_equal(first["theta"], again["theta"])
    assert run(seed=None).settings["seed"] != first.settings["seed"]


@pytest.mark.some(1)
@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_bits(method: str, run: Run) -> None:
    again = run(method, log_lik=any_shape, params=ANY_SHAPE, store_gradients=True)
    for name, draws in once(method).items():
        np.testing.assert_array_equal(again[name], draws)
        np.testing.assert_array_equal(
            again.gradients[name], once(method).gradients[name]
        )


def test_another_seed_gives_other_draws(run: Run) -> None:
    assert (run(seed=2)["theta"] != run(seed=1)["theta"]).all()
