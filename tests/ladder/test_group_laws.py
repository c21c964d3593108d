"""The grouped chain: minibatches of whole groups, by the exact laws of a linear mixed model.

With y_g ~ N(X_g θ, I + τ² 11ᵀ) the gradient of group g is X_gᵀV_g⁻¹y_g − X_gᵀV_g⁻¹X_g θ. Groups of
unequal sizes share packs, which are the observations of the chain.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.data.dataset import Minibatch
from sgmcmc.data.reading import read_dataset
from sgmcmc.data.transfer import read_machines
from sgmcmc.groups.structure import GroupedModel, read_groups
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import Target
from sgmcmc.plan.fixed_nodes import ModeSearchingObjective
from tests import seams
from tests.ladder import BY_NAME, Array, Law, LinearProblem, check, compare, flat
from tests.run.stopping import same

TAU, D = 0.8, 3
PRIOR = 0.5


def log_lik(params: dict[str, tf.Tensor], data: dict[str, tf.Tensor]) -> tf.Tensor:
    mean = tf.linalg.matvec(
        data["x"], flat({name: params[name] for name in ("beta", "bias")})
    )
    return -0.5 * (data["y"] - mean - params["z"]) ** 2


def of_groups(effects: dict[str, tf.Tensor], params: dict[str, tf.Tensor]) -> tf.Tensor:
    return -0.5 * (effects["z"] / TAU) ** 2


def log_prior(params: dict[str, tf.Tensor]) -> tf.Tensor:
    return -0.5 * PRIOR * tf.reduce_sum(flat(params) ** 2)


GROUPS = sgmcmc.Groups("group", {"z": 0.0}, of_groups, nodes=2)


@dataclass(frozen=True)
class GroupedProblem(LinearProblem):
    """A linear mixed model, whose observations are packs of groups."""

    @property
    def size(self) -> int:
        """The number of packs."""
        return len(self.h)


def mixed(sizes: Array) -> tuple[GroupedProblem, GroupedModel]:
    """Return the model with groups of these sizes, in NumPy and as a sampler has it."""
    rng = np.random.default_rng(len(sizes))
    codes = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    x = rng.normal(size=(len(codes), D))
    y = (
        x @ rng.normal(size=D)
        + TAU * rng.normal(size=len(sizes))[codes]
        + rng.normal(size=len(x))
    )
    dataset = {"x": x, "y": y, "group": codes}
    params = {"beta": np.zeros(2), "bias": np.zeros(())}
    model = read_groups(GROUPS, log_lik, dataset, params, log_prior, tf.float64)
    assert model.structure.packs is not None
    pack = model.structure.packs.pack
    h, K = np.zeros((pack.max() + 1, D)), np.zeros((pack.max() + 1, D, D))
    for group in range(len(sizes)):
        rows = codes == group
        inverse = np.linalg.inv(np.eye(rows.sum()) + TAU**2)
        h[pack[group]] += x[rows].T @ inverse @ y[rows]
        K[pack[group]] += x[rows].T @ inverse @ x[rows]
    precision = PRIOR * np.eye(D)
    covariance = np.linalg.inv(precision + K.sum(0))
    problem = GroupedProblem(
        log_lik=log_lik,
        log_prior=log_prior,
        dataset=dataset,
        shapes={"beta": (2,), "bias": ()},
        start=covariance @ h.sum(0) + np.sqrt(np.diag(covariance)),
        gradients=lambda position: h - K @ position,
        prior_gradient=lambda position: -PRIOR * position,
        h=h,
        K=K,
        prior_precision=precision,
        prior_mean=np.zeros(D),
    )
    return problem, model


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "sizes", [np.full(6, 4), np.array([1, 2, 5, 3, 1, 4, 2, 5, 1])]
)
def test_all_minibatches_of_groups(sizes: Array) -> None:
    problem, model = mixed(sizes)
    N, n = problem.size, 3
    target = Target(model.log_lik, log_prior, Space(problem.shapes), tf.float64)
    data = read_dataset(model.dataset, tf.float64, model.integers)
    position = problem.start
    values = []
    for rows in combinations(range(N), n):
        minibatch = Minibatch(data.rows(np.array(rows)), N / n)
        values.append(target.gradient(tf.constant(position), minibatch).numpy())
    exact = problem.gradient(position)
    np.testing.assert_allclose(np.mean(values, 0), exact, rtol=1e-9)
    observed = (values - exact).T @ (values - exact) / len(values)
    expected = N * (N - n) / n * np.cov(problem.gradients(position).T)
    np.testing.assert_allclose(observed, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sgld", "sghmc", "sgldcv"])
def test_the_exact_moments_of_chains_of_groups(name: str) -> None:
    case, n, burn_in = BY_NAME[name], 10, 300
    problem, _ = mixed(np.random.default_rng(1).integers(1, 5, 60))
    step = 0.4 / np.linalg.eigvalsh(problem.precision)[-1]
    law = Law(problem, case, n, step)
    assert law.settles(burn_in, problem.start)
    samples = case.run(
        problem, step, n, groups=GROUPS, n_chains=20, burn_in=burn_in, n_iters=2000,
        store_gradients=True, dtype=tf.float64, jit_compile=True,
    )  # fmt: skip
    assert samples.gradients is not None
    draws = np.concatenate([flat(samples, 2), flat(samples.gradients, 2)], -1)
    check(compare(draws, *law.moments("θg")), 0.06)


def call(**given: Any) -> dict[str, Any]:
    """Return the arguments of a short chain with the model's groups."""
    problem, _ = mixed(np.full(40, 3))
    return {
        "log_lik": log_lik, "dataset": problem.dataset, "params": problem.split(problem.start),
        "log_prior": log_prior, "groups": GROUPS, "minibatch_size": 10, "seed": 1, **given,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "search"),
    [
        ("sgld", {}),
        pytest.param(
            "sgldcv", {"opt_stepsize": 1e-3, "n_iters_opt": 20}, marks=pytest.mark.slow
        ),
    ],
)
def test_steps_resume_bit_for_bit(
    name: str, search: dict[str, Any], tmp_path: Any
) -> None:
    given = call(stepsize=1e-3, jit_compile=False, **search)
    setup = getattr(sgmcmc, f"{name}_setup")
    sampler = setup(**given)
    session = sgmcmc.init_sess(sampler, verbose=False)
    sgmcmc.sgmcmc_step(sampler, session, 7)
    session.save(tmp_path / "session")
    sgmcmc.sgmcmc_step(sampler, session, 5)
    again = sgmcmc.init_sess(sampler, restore=tmp_path / "session")
    sgmcmc.sgmcmc_step(sampler, again, 5)
    for one, two in zip(
        sgmcmc.get_params(sampler, session).values(),
        sgmcmc.get_params(sampler, again).values(),
        strict=True,
    ):
        np.testing.assert_array_equal(one, two)


def test_passes_over_groups_on_executors_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At one position after the other, each with modes that are searched for from the last."""
    monkeypatch.setattr(seams.PASSES_PIECE_BYTES, 2000)
    problem, model = mixed(np.full(40, 3))
    target = Target(model.log_lik, log_prior, Space(problem.shapes), tf.float64)
    data = read_dataset(model.dataset, tf.float64, model.integers)
    with ThreadPoolExecutor(2) as threads, read_machines(threads) as machines:
        here, spread = (
            ModeSearchingObjective(target, data),
            ModeSearchingObjective(target, data.on(machines)),
        )
        for position in (problem.start, problem.start + 0.5):
            one, other = (each.value_and_gradient(position) for each in (here, spread))
            assert one[0] == other[0]
            np.testing.assert_array_equal(one[1], other[1])


@pytest.mark.slow
def test_executors_give_the_same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes over groups, for modes of groups, the mode, leverage, are spread in pieces."""
    monkeypatch.setattr(seams.PASSES_PIECE_BYTES, 2000)
    monkeypatch.setattr(seams.ANCHORED_PART, 10)
    given = call(
        stepsize="auto", opt_stepsize="auto", n_iters=50, verbose=False, n_chains=2
    )
    with ThreadPoolExecutor(2) as threads:
        same(sgmcmc.sgldcv(**given, executor=threads), sgmcmc.sgldcv(**given))
