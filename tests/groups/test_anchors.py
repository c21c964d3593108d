"""Nodes that stay in place, against those that are searched for, and against algebra."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.special
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.data.dataset import Data
from sgmcmc.data.reading import read_dataset
from sgmcmc.groups.anchors import FixedNodes, ModeSearch, QuadratureError, free
from sgmcmc.groups.packs import DRIFT, MODE, ROOT, SLOPE
from sgmcmc.groups.structure import read_groups
from sgmcmc.plan import fixed_nodes, modes
from sgmcmc.plan.methods import hmc as exact_posterior
from sgmcmc.plan.methods.around_mode import AroundMode
from sgmcmc.plan.stopping import Goal
from sgmcmc.plan.warm_up import LeftModeError
from sgmcmc.results.report import Report
from sgmcmc.run.sampler_origin import origin_of
from tests import seams

LEVELS = 40
SIZES = np.random.default_rng(1).integers(1, 9, LEVELS)
GROUP = np.repeat(np.arange(LEVELS), SIZES)
X = np.random.default_rng(2).normal(size=len(GROUP))
COUNTS = (
    np.random.default_rng(3)
    .poisson(
        np.exp(
            0.3 + 0.4 * X + 0.6 * np.random.default_rng(4).normal(size=LEVELS)[GROUP]
        )
    )
    .astype(float)
)


def log_lik(params, dataset):
    eta = params["a"] + params["b"] * dataset["x"] + params["z"]
    return dataset["y"] * eta - tf.exp(eta)


def law(effects, params):
    return -0.5 * (effects["z"] / params["tau"]) ** 2 - tf.math.log(params["tau"])


@functools.cache
def _model(nodes: int | None = None):
    groups = sgmcmc.Groups("g", {"z": 0.0}, law, nodes)
    params = {"a": 0.3, "b": 0.4, "tau": 0.6}
    model = read_groups(
        groups, log_lik, {"x": X, "y": COUNTS, "g": GROUP}, params, None, tf.float64
    )
    whole = ("g", "groups/slot", "groups/filled")
    data = read_dataset(model.dataset, tf.float64, whole)
    return (
        model.log_lik,
        data,
        {name: np.float64(value) for name, value in params.items()},
    )


@functools.cache
def _function(marginal, hessian: bool):
    """Return the function of parameters and packs that gives value, gradient and Hessian."""

    def value_and_slope(v, columns):
        with tf.GradientTape() as tape:
            tape.watch(v)
            named = dict(zip(("a", "b", "tau"), tf.unstack(v), strict=True))
            value = tf.reduce_sum(marginal(named, columns))
        return value, tape.gradient(value, v)

    def with_hessian(v, columns):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(v)
            value, slope = value_and_slope(v, columns)
        return value, slope, tape.jacobian(slope, v, experimental_use_pfor=False)

    if hessian:
        return with_hessian
    return tf.function(value_and_slope, reduce_retracing=True)


def _derivatives(marginal, data: Data, at, hessian: bool = False):
    """Return value and gradient of the log-likelihood, and its Hessian."""
    point = tf.constant(list(at.values()), tf.float64)
    return [part.numpy() for part in _function(marginal, hessian)(point, data.whole)]


def test_at_the_anchor_nothing_differs_from_modes_that_are_searched_for():
    marginal, data, params = _model(21)
    held = ModeSearch(marginal, data).at(params)
    assert held.columns[MODE].row_shape == (marginal.most, 1)
    assert held.columns[ROOT].row_shape == (marginal.most, 1, 1)
    for one, other in zip(
        _derivatives(marginal, held, params, hessian=True),
        _derivatives(marginal, data, params, hessian=True),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-10)
    assert set(free(held).columns) == set(data.columns)


def test_searches_begin_at_the_modes_of_the_last_place():
    marginal, data, params = _model()
    search = ModeSearch(marginal, data)
    search.at({**params, "a": np.float64(-1.0), "tau": np.float64(2.0)})
    second = search.at(params).columns[MODE].slice(0, data.size)
    first = ModeSearch(marginal, data).at(params).columns[MODE].slice(0, data.size)
    # Both are as near the mode as the search goes: a gain of 1e-5 and less by the next step.
    np.testing.assert_allclose(second, first, atol=5e-3)


def test_nodes_in_place_are_right_near_the_anchor_and_their_error_is_measured():
    marginal, data, params = _model(21)
    held = ModeSearch(marginal, data).at(params)
    moved = {"a": np.float64(0.35), "b": np.float64(0.38), "tau": np.float64(0.65)}
    near = _derivatives(marginal, held, moved)
    exact = _derivatives(marginal, data, moved)
    # 21 nodes, a tenth of the effects' own sd away.
    np.testing.assert_allclose(near[0], exact[0], atol=1e-5)
    np.testing.assert_allclose(near[1], exact[1], atol=1e-3)
    places = {
        name: params[name] + 0.05 * np.random.default_rng(k).normal(size=4)
        for k, name in enumerate(params)
    }
    quadrature = QuadratureError(marginal, held, places)
    errors = [quadrature.error(nodes) for nodes in (3, 5, 9, 21)]
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[3] < 1e-6


def _law_of_scale(effects, params):
    return -0.5 * (effects["z"] / 0.6) ** 2 + 0.0 * params["a"]


@dataclass
class _Troubled:
    """Draws of a and b by chains that had to start again, and what was seen of each start."""

    samples: sgmcmc.Samples | None
    samplers: list
    climbed: list
    stepsizes: list


@functools.cache
def _troubled(often: bool):
    """Return draws whose chains are lost once, and are then well.

    With ``often`` those of a second start are too coarse, and those of a third diverge.
    """
    found = _Troubled(None, [], [], [])
    run, climb = exact_posterior.WarmUp.run, modes.WhitenedPosterior.climb
    report, measured = exact_posterior.report_on_moves, exact_posterior.quadrature_error

    def lost_once(self):
        found.samplers.append(self._sampler)
        if len(found.samplers) == 1:
            return SimpleNamespace(lost=True)
        return run(self)

    def coarse_once(sampler, samples):
        return 1.0 if often and len(found.samplers) == 2 else measured(sampler, samples)

    def diverged_once(samples, *arguments):
        found.stepsizes.append(samples.settings["stepsize"])
        made = report(samples, *arguments)
        if not often or len(found.stepsizes) > 1:
            return made
        chain = {**made["Chain"], "divergences": 2}
        return Report({**made, "Chain": chain, "warnings": ["diverged"]})

    def from_where(self, zeta, known):
        found.climbed.append(zeta)
        return climb(self, zeta, known)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seams.WARM_UP_RUN, lost_once)
        patch.setattr(seams.QUADRATURE_ERROR, coarse_once)
        patch.setattr(seams.REPORT_ON_MOVES, diverged_once)
        patch.setattr(seams.CLIMBER_CLIMB, from_where)
        found.samples = sgmcmc.sample(
            log_lik, {"x": X, "y": COUNTS, "g": GROUP}, {"a": 0.3, "b": 0.4}, ess=200,
            groups=sgmcmc.Groups("g", {"z": 0.0}, _law_of_scale), seed=1, verbose=False,
            n_chains=2, jit_compile=False,
        )  # fmt: skip
    return found


@pytest.fixture
def troubled():
    return _troubled(False)


@pytest.mark.slow
def test_sample_holds_nodes_and_takes_as_many_as_it_needs(troubled):
    first, last = troubled.samplers[0], origin_of(troubled.samples).sampler
    assert MODE in first.data.columns and MODE in last.data.columns
    assert first.request.fixed_nodes.nodes == 3
    report = troubled.samples.report["Groups"]
    assert report["nodes in each direction"] == last.request.fixed_nodes.nodes
    assert report["quadrature error of the log posterior, SD over draws"] < 0.02


@pytest.mark.slow
def test_three_nodes_that_are_held_are_enough_for_normal_terms():
    rng = np.random.default_rng(6)
    group = np.repeat(np.arange(300), 5)
    y = 0.5 + rng.normal(size=300)[group] + rng.normal(size=1500)

    def terms(params, dataset):
        return -0.5 * (dataset["y"] - params["a"] - params["z"]) ** 2

    def of_groups(effects, params):
        return -0.5 * effects["z"] ** 2 + 0.0 * params["a"]

    samples = sgmcmc.sample(
        terms, {"y": y, "g": group}, {"a": 0.0}, seed=1, verbose=False, ess=200,
        groups=sgmcmc.Groups("g", {"z": 0.0}, of_groups, normal=False),
    )  # fmt: skip
    assert MODE in origin_of(samples).sampler.data.columns
    assert samples.report["Groups"]["nodes in each direction"] == 3
    assert samples.settings["groups"]["g"]["nodes"] == 3
    assert (
        samples.report["Groups"]["quadrature error of the log posterior, SD over draws"]
        < 0.02
    )
    variance = 1.2 / 300  # of the mean of means of five, each with variance 1 + 1/5
    assert abs(samples["a"].mean() - y.mean()) < 4 * np.sqrt(variance / 200)
    assert abs(samples["a"].std() / np.sqrt(variance) - 1) < 0.05 + 4 / np.sqrt(400)


def test_draws_with_held_nodes_have_the_posterior_of_integration(troubled):
    a, b, z = (
        np.linspace(-0.7, 1.3, 61),
        np.linspace(-0.1, 0.9, 61),
        np.linspace(-4.0, 4.0, 201),
    )
    a, b, z = a[:, np.newaxis, np.newaxis], b[:, np.newaxis], z
    total = np.zeros((61, 61))
    for g in range(LEVELS):
        y, x = COUNTS[GROUP == g], X[GROUP == g]
        rate = np.exp(a + z) * np.exp(b * x).sum(1, keepdims=True)
        terms = y.sum() * (a + z) + (x @ y) * b - rate - 0.5 * (z / 0.6) ** 2
        total += scipy.special.logsumexp(terms, 2)
    weights = scipy.special.softmax(total)
    for name, at, other in (("a", a.ravel(), 1), ("b", b.ravel(), 0)):
        of_name = weights.sum(other)
        mean = of_name @ at
        sd = np.sqrt(of_name @ (at - mean) ** 2)
        draws = troubled.samples[name]
        assert abs(draws.mean() - mean) < 4 * sd / np.sqrt(200)
        assert abs(draws.std() / sd - 1) < 0.05 + 4 / np.sqrt(400)


def test_chains_that_leave_the_surroundings_of_held_nodes_go_on_with_more(troubled):
    few, more = troubled.samplers[:2]
    assert more.request.fixed_nodes.nodes > few.request.fixed_nodes.nodes
    slopes = [sampler.data.columns[SLOPE].tensor(0, 1)[0] for sampler in (few, more)]
    assert all(np.any(slope) for slope in slopes) and not np.allclose(*slopes)


@pytest.mark.slow
def test_chains_stop_where_the_quadrature_is_too_coarse():
    """Its error is measured at the draws, since a wrong density may be higher than the mode."""
    troubled = _troubled(True)
    nodes = [sampler.request.fixed_nodes.nodes for sampler in troubled.samplers]
    assert nodes[0] < nodes[1] < nodes[2]
    assert troubled.samples.settings["groups"]["g"]["nodes"] == nodes[-1] == nodes[2]


@pytest.mark.parametrize("error, stops", [(1.0, True), (1e-3, False)])
def test_chains_whose_quadrature_is_too_coarse_are_stopped(monkeypatch, error, stops):
    monkeypatch.setattr(exact_posterior._UntilCostly, "see", lambda self, samples: None)
    monkeypatch.setattr(
        exact_posterior, "origin_of", lambda samples: SimpleNamespace(sampler=None)
    )
    monkeypatch.setattr(seams.QUADRATURE_ERROR, lambda sampler, samples: error)
    until = object.__new__(exact_posterior._UntilCoarse)
    with pytest.raises(LeftModeError) if stops else contextlib.nullcontext():
        until.see(None)


@pytest.mark.slow
def test_a_few_divergences_are_met_with_half_the_stepsize():
    troubled = _troubled(True)
    one, other = troubled.stepsizes
    assert other == one / 2 == troubled.samples.settings["stepsize"]
    assert troubled.samples.settings["method"] == "hmc"
    assert troubled.samples.report.warnings == []


@pytest.mark.parametrize(
    ("runs", "stepsizes", "reason"),
    [
        (["lost", 0], [None, None], None),
        (
            ["lost", "lost", "lost"],
            [None, None, None],
            "HMC left the surroundings of the mode",
        ),
        ([2, 0], [None, 0.05], None),
        ([2, 1], [None, 0.05], "of HMC: 1 diverged"),
        ([30], [None], "of HMC: 30 diverged"),
    ],
)
def test_what_follows_chains_that_were_lost_or_diverged(
    monkeypatch, runs, stepsizes, reason
):
    """More nodes, half the stepsize, and NUTS where neither helps; runs stand for whole chains."""
    asked, tried = ["5 nodes", "7 nodes"], []

    def run_on_all_rows(request, plan, goal):
        outcome = runs[len(tried)]
        tried.append(plan.stepsize)
        if outcome == "lost":
            raise LeftModeError
        report = {
            "Chain": {"divergences": outcome}, "Draws": {"chains": 2, "draws per chain": 500},
            "warnings": [f"{outcome} diverged"] if outcome else [],
        }  # fmt: skip
        samples = {"theta": np.zeros((2, 500))}
        return sgmcmc.Samples(
            samples, settings={"stepsize": 0.1}, report=Report(report)
        )

    monkeypatch.setattr(seams.RUN_ON_ALL_ROWS, run_on_all_rows)
    monkeypatch.setattr(
        seams.WITH_MORE_NODES, lambda _: asked.pop(0) if asked else None
    )
    plan = SimpleNamespace(mode=None, surveyed=None)
    chosen = SimpleNamespace(plan=plan, request="3 nodes")
    goal = Goal(0.05, 400, 4, None, None, None)
    found = AroundMode(SimpleNamespace(groups=None), chosen, goal).by_hmc("")
    assert tried == stepsizes
    assert reason in found.reason if reason else found.report.warnings == []


def test_no_mode_is_looked_for_where_held_nodes_are_wrong(troubled):
    """Rearrangements of the parameters, such as a and b exchanged, are many SDs away.

    With a million groups of two effects a search from there ended in a mode of the wrong density,
    which was higher, and chains sampled that.
    """
    assert troubled.climbed
    assert not any(zeta.any() for zeta in troubled.climbed)


@pytest.mark.slow
def test_of_all_parameters_one_mode_is_looked_for(monkeypatch):
    starts, climb = [], modes.WhitenedPosterior.climb
    monkeypatch.setattr(
        seams.CLIMBER_CLIMB,
        lambda self, zeta, known: starts.append(zeta) or climb(self, zeta, known),
    )
    _chain()
    assert len(starts) == 1
    assert not starts[0].any()


def _lost(monkeypatch, times: int):
    """Return draws if chains of HMC are said to be lost some times, and the samplers."""
    whole, seen = exact_posterior.WarmUp.run, []

    def lost(self):
        seen.append(self._sampler)
        held = MODE in self._sampler.data.columns
        return replace(whole(self), lost=held and len(seen) <= times)

    monkeypatch.setattr(seams.WARM_UP_RUN, lost)
    return _chain(), seen


@pytest.mark.slow
def test_chains_of_all_parameters_go_on_with_more_nodes(monkeypatch):
    samples, seen = _lost(monkeypatch, 1)
    few, more = (sampler.request.fixed_nodes.nodes for sampler in seen)
    assert more > few
    assert samples.settings["method"] == "hmc"
    assert samples.settings["groups"]["g"]["nodes"] == more
    slopes = [sampler.data.columns[SLOPE].tensor(0, 1)[0] for sampler in seen]
    assert all(np.any(slope) for slope in slopes) and not np.allclose(*slopes)


@pytest.mark.slow
def test_chains_that_diverge_again_go_on_by_nuts(monkeypatch):
    report_on_moves, stepsizes = exact_posterior.report_on_moves, []

    def diverged(samples, *arguments):
        report = dict(report_on_moves(samples, *arguments))
        if samples.settings["method"] == "hmc":
            stepsizes.append(samples.settings["stepsize"])
            report["Chain"] = {**report["Chain"], "divergences": 3 - len(stepsizes)}
            report["warnings"] = ["diverged"]
        return Report(report)

    monkeypatch.setattr(seams.REPORT_ON_MOVES, diverged)
    samples = _chain()
    assert stepsizes[1] == stepsizes[0] / 2
    assert samples.settings["method"] == "nuts"
    assert samples.report.warnings == []


@pytest.mark.slow
def test_chains_that_leave_the_surroundings_of_held_nodes_go_on_without_them(
    monkeypatch,
):
    """Far from the mode nodes that are held there give a wrong density: chains get lost."""
    monkeypatch.setitem(fixed_nodes._NODES, 1, (3, 5, 7))
    samples, seen = _lost(monkeypatch, 3)
    assert [MODE in sampler.data.columns for sampler in seen][-2:] == [True, False]
    assert samples.settings["method"] == "nuts"
    assert "HMC left the surroundings" in samples.report["Dynamics"]["reason for NUTS"]
    assert samples.report["Mode"]["found"]
    assert (
        samples.report["Groups"]["nodes of a group"] == "around its mode at each draw"
    )


def test_nodes_that_follow_are_where_a_search_would_put_them_in_a_linear_model():
    def normal_terms(params, dataset):
        return (
            -0.5
            * (dataset["y"] - params["a"] - params["b"] * dataset["x"] - params["z"])
            ** 2
        )

    groups = sgmcmc.Groups(
        "g", {"z": 0.0}, lambda effects, params: -0.5 * effects["z"] ** 2, 2
    )
    center = {"a": np.float64(0.3), "b": np.float64(0.4)}
    model = read_groups(
        groups,
        normal_terms,
        {"x": X, "y": COUNTS, "g": GROUP},
        center,
        None,
        tf.float64,
    )
    data = read_dataset(
        model.dataset, tf.float64, ("g", "groups/slot", "groups/filled")
    )
    moves = np.array([[0.1, 0.02], [-0.03, 0.2]])
    sides = [
        tuple(
            {
                name: center[name] + sign * step
                for name, step in zip(center, move, strict=True)
            }
            for sign in (1, -1)
        )
        for move in moves
    ]
    marginal = model.log_lik
    packs = FixedNodes(2, center, sides).packs(marginal, data)
    far = {"a": tf.constant(-1.0, tf.float64), "b": tf.constant(1.5, tf.float64)}
    searched = ModeSearch(marginal, data).at(
        {name: value.numpy() for name, value in far.items()}
    )
    np.testing.assert_allclose(
        marginal(far, packs.whole), marginal(far, searched.whole), rtol=1e-9
    )


def test_nodes_that_follow_need_fewer_and_their_derivatives_are_right():
    marginal, data, center = _model(5)
    sides = [
        tuple({**center, name: center[name] + sign * step} for sign in (1, -1))
        for name, step in (("a", 0.15), ("b", 0.1), ("tau", 0.1))
    ]
    packs = FixedNodes(5, center, sides).packs(marginal, data)
    moved = {"a": np.float64(0.5), "b": np.float64(0.3), "tau": np.float64(0.7)}
    value, gradient = _derivatives(marginal, packs, moved)
    exact = _derivatives(_model(21)[0], data, moved)
    still = _derivatives(marginal, ModeSearch(marginal, data).at(center), moved)
    assert abs(value - exact[0]) < abs(still[0] - exact[0])
    assert np.linalg.norm(gradient - exact[1]) < np.linalg.norm(still[1] - exact[1])
    for place, name in enumerate(moved):
        there, back = (
            _derivatives(marginal, packs, {**moved, name: moved[name] + sign * 1e-5})[0]
            for sign in (1, -1)
        )
        assert gradient[place] == pytest.approx(
            (there - back) / 2e-5, rel=1e-6, abs=1e-6
        )


@pytest.mark.parametrize("follow", [False, True])
def test_the_error_of_the_gradient_at_the_center_is_made_good(follow):
    """By the packs if they follow the parameters, so that its numbers are not those of a graph."""
    marginal, data, center = _model(3)
    sides = [
        tuple({**center, name: center[name] + sign * 0.1} for sign in (1, -1))
        for name in center
    ]
    held = FixedNodes(3, center, sides if follow else ())
    packs = held.packs(marginal, data)
    corrected, prior = held.corrected(marginal, packs, tf.float64).correct(packs, None)
    assert (prior is None) == follow
    with tf.GradientTape() as tape:
        point = {name: tf.constant(value) for name, value in center.items()}
        tape.watch(point)
        value = tf.reduce_sum(marginal(point, corrected.whole))
        value += 0.0 if prior is None else prior(point)
    found = [part.numpy() for part in tape.gradient(value, point).values()]
    fine = _derivatives(marginal.with_nodes(17), packs, center)[1]
    np.testing.assert_allclose(found, fine, rtol=1e-10)
    assert not np.allclose(_derivatives(marginal, packs, center)[1], fine, rtol=1e-4)


@pytest.mark.slow
def test_one_node_is_the_approximation_of_laplace_with_its_derivatives():
    marginal, data, params = _model(1)
    value, gradient, hessian = _derivatives(marginal, data, params, hessian=True)
    mode, total = np.zeros(LEVELS), 0.0
    rates = np.exp(params["a"] + params["b"] * X)
    for _ in range(50):
        rate = rates * np.exp(mode[GROUP])
        slope = np.bincount(GROUP, COUNTS - rate) - mode / params["tau"] ** 2
        bend = np.bincount(GROUP, rate) + 1 / params["tau"] ** 2
        mode += slope / bend
    height = COUNTS * np.log(rates * np.exp(mode[GROUP])) - rates * np.exp(mode[GROUP])
    total = height.sum() - 0.5 * (mode**2).sum() / params["tau"] ** 2
    total -= LEVELS * np.log(params["tau"]) + 0.5 * np.log(bend / (2 * np.pi)).sum()
    assert value == pytest.approx(total, rel=1e-9)
    for place, name in enumerate(params):
        sides = [
            _derivatives(marginal, data, {**params, name: params[name] + sign * 1e-4})
            for sign in (1, -1)
        ]
        assert gradient[place] == pytest.approx(
            (sides[0][0] - sides[1][0]) / 2e-4, rel=1e-5
        )
        np.testing.assert_allclose(
            hessian[place], (sides[0][1] - sides[1][1]) / 2e-4, rtol=1e-4, atol=1e-4
        )


@pytest.mark.slow
def test_a_chain_on_disk_holds_the_same_nodes(tmp_path):
    def drawn():
        return sgmcmc.sample(
            log_lik, {"x": X, "y": COUNTS, "g": GROUP}, {"a": 0.3, "b": 0.4, "tau": 0.6},
            lambda params: -params["tau"], n_iters=100, seed=1, verbose=False, n_chains=2,
            groups=sgmcmc.Groups("g", {"z": 0.0}, law, nodes=9), store=tmp_path / "chain",
            bijectors={"tau": tfp.bijectors.Exp()},
        )  # fmt: skip

    stored, again = drawn(), drawn()
    for samples in (stored, again):
        assert DRIFT in origin_of(samples).sampler.data.columns
        assert samples.settings["groups"]["g"]["nodes"] == 9
    for name in stored:
        np.testing.assert_array_equal(stored[name], again[name])


def test_nodes_of_few_groups_are_not_held():
    """Those of many are: the shared chain holds them. It is decided before anything is computed."""
    few = GROUP < 8
    model = read_groups(
        sgmcmc.Groups("g", {"z": 0.0}, law), log_lik,
        {"x": X[few], "y": COUNTS[few], "g": GROUP[few]}, {"a": 0.3, "b": 0.4, "tau": 0.6},
        None, tf.float64,
    )  # fmt: skip
    request = SimpleNamespace(log_lik=model.log_lik, groups=model.structure, read=None)
    assert fixed_nodes.with_nodes_at_mode(request, np.zeros(3), 1) is None


@pytest.mark.slow
def test_few_groups_search_at_each_draw():
    few = GROUP < 8
    data = {"x": X[few], "y": COUNTS[few], "g": GROUP[few]}

    def prior(params):
        return -params["tau"]

    samples = sgmcmc.sghmc(
        log_lik, data, {"a": 0.3, "b": 0.4, "tau": 0.6}, "auto", log_prior=prior,
        minibatch_size=4, n_iters=10,
        groups=sgmcmc.Groups("g", {"z": 0.0}, law), seed=1, verbose=False,
        bijectors={"tau": tfp.bijectors.Exp()},
    )  # fmt: skip
    assert MODE not in origin_of(samples).sampler.data.columns


def _chain(**given):
    return sgmcmc.sample(
        log_lik, {"x": X, "y": COUNTS, "g": GROUP}, {"a": 0.3, "b": 0.4, "tau": 0.6},
        lambda params: -params["tau"], groups=sgmcmc.Groups("g", {"z": 0.0}, law), ess=50,
        bijectors={"tau": tfp.bijectors.Exp()}, seed=1, verbose=False, **given,
    )  # fmt: skip


@pytest.mark.slow
def test_nodes_are_searched_for_where_held_ones_are_not_precise(monkeypatch):
    rows = seams.changed(
        seams.FULL_DATA, surely_quick=0
    )  # so that NUTS is predicted, too
    monkeypatch.setattr(seams.FULL_DATA, rows)
    columns = origin_of(_chain()).sampler.data.columns
    assert MODE in columns
    assert DRIFT in columns
    monkeypatch.setattr(seams.ANCHORED_ERROR, 1e-12)
    assert MODE not in origin_of(_chain(max_seconds=20)).sampler.data.columns
