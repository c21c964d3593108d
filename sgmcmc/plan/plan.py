"""Plan of a chain: open constants are chosen from mode, information and noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.random_numbers import Purpose, RunPhase, generator
from sgmcmc.dynamics import Dynamics
from sgmcmc.gradients import Gradient
from sgmcmc.minibatches import Minibatches, Reshuffled, Uniform, Weighted
from sgmcmc.model.geometry import Preconditioner, root_of
from sgmcmc.model.target import Target
from sgmcmc.plan.curvature import Information
from sgmcmc.plan.leverage import (
    STRATA,
    STRATUM_ROWS,
    leverage,
    leverage_minibatches,
    strata_by_leverage,
)
from sgmcmc.plan.mode import Mode, find_mode
from sgmcmc.plan.modes import Survey, survey
from sgmcmc.plan.noise import NoiseMeter
from sgmcmc.plan.objective import Objective, kept_graphs
from sgmcmc.plan.prediction import (
    ChainPrediction,
    NoisyQuadratic,
    largest_stepsize,
)
from sgmcmc.plan.recursion import has_thermostat
from sgmcmc.results.report import Timings
from sgmcmc.run.request import Earlier, Model

PART_ROWS = 20_000  # least number of rows on which a mode is first searched
# Largest number of observations for which every gradient uses all: noise would cost more than it
# saves.
WHOLE_UP_TO = 2000
LARGEST = 0.25  # largest stepsize in whitened coordinates: beyond, what is not Gaussian counts
# Largest stepsize if every gradient uses all of few observations: their posteriors are farther
# from normal, and iterations are cheap.
LARGEST_OF_FEW = 0.05
LARGEST_WITH_THERMOSTAT = 0.01  # largest stepsize if a thermostat must follow


@dataclass(frozen=True)
class _Settings:
    # Rows of the first search for each coordinate, if Hessians are quick: fewer leave a level of a
    # factor, whose rows look alike, without a mode near that of all rows.
    rows_per_coordinate: int = 50
    max_products: float = 1e11  # multiplications of a Hessian on these rows
    # Directions in which leverage is measured for the second search.
    sample_probes: int = 16
    # Observations: all are used, however many terms one has.
    always_whole_below: int = 250
    max_whole_terms: int = 100_000  # terms of all observations up to which all are used
    sizes: tuple[int, ...] = (
        125,
        250,
        500,
        1000,
        2000,
        4000,
    )  # minibatch sizes to choose from
    small_sizes: tuple[int, ...] = (
        16,
        32,
        64,
    )  # further sizes if a row has several terms
    reference_rows: int = 500  # of the minibatches with which noise is measured
    reference_terms: int = 2**17  # of these minibatches, if a row has several
    noise_positions: int = 1024  # positions of the posterior at which noise is measured
    # Microseconds; only ratios of costs matter.
    iteration_cost: float = 8.0  # of an iteration without its minibatch
    byte_cost: float = 1e-4  # of a byte of the minibatch
    term_cost: float = 2e-3  # of a term, if rows have several
    # An earlier plan is used again within these changes.
    max_growth: float = 2.0  # of the number of rows
    max_change: float = 1.5  # of the information in any direction, apart from growth
    max_distance: float = 5.0  # of the modes, in posterior SDs of a coordinate (RMS)


_SETTINGS = _Settings()


@dataclass(frozen=True)
class GivenConstants:
    """Settings of a chain that the user fixed; ``None`` leaves one to be chosen.

    Attributes:
        dynamics: Dynamics, bound.
        gradient: Gradient estimator; ``None`` for control variates centered at the mode, or the
            whole dataset if that is small.
        minibatches: Way of drawing rows; ``None`` for leverage.
        minibatch_size: Number of observations in a minibatch, n.
        preconditioner: "dense", "diagonal", "none", or the user's own.
        stepsize: Stepsize ε: a number, or an array with one for each coordinate.
        tolerance: Largest relative error of a posterior SD.
        in_turn: Slices of parameters that move one after the other; ``None`` if they move together.
    """

    dynamics: Dynamics
    gradient: Gradient | None = None
    minibatches: Minibatches | None = None
    minibatch_size: int | None = None
    preconditioner: str | Preconditioner = "dense"
    stepsize: float | np.ndarray | None = None
    tolerance: float = 0.05
    in_turn: Sequence[slice] | None = None

    def takes_all(self, size: int, row_terms: int = 1) -> bool:
        """Return whether every gradient should use the whole dataset.

        Args:
            size: Number of observations.
            row_terms: Terms of the user's log-likelihood that one of them is made of.
        """
        if self.gradient is not None:
            return self.gradient.whole_dataset or self.minibatch_size == size
        is_small = size <= WHOLE_UP_TO and (
            size < _SETTINGS.always_whole_below
            or size * row_terms <= _SETTINGS.max_whole_terms
        )
        is_open = self.minibatches is None and self.minibatch_size is None
        return self.minibatch_size == size or (is_open and is_small)


@dataclass(frozen=True)
class Plan:
    """Chosen constants, and the facts from which they were chosen.

    Attributes:
        given: User's choices.
        mode: θ̂ and the information there.
        preconditioner: û and C, or ``None`` for none.
        minibatches: Way of drawing the rows.
        minibatch_size: Number of observations in a minibatch, n.
        stepsize: ε in the coordinates of the chain.
        around: Curvature there, and the gradient noise with n rows.
        prediction: Prediction by the distribution of the linearized dynamics.
        meter: Meter of the gradient noise in the coordinates of the chain; ``None`` if there is
            none.
        seconds: Seconds, by task.
        surveyed: Further modes that were found.
        earlier: Plan that noise and number of modes come from; ``None`` if they were found here.
    """

    given: GivenConstants
    mode: Mode
    preconditioner: Preconditioner | None
    minibatches: Minibatches
    minibatch_size: int
    stepsize: float | np.ndarray
    around: NoisyQuadratic
    prediction: ChainPrediction
    meter: NoiseMeter | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    surveyed: Survey | None = None
    earlier: Earlier | None = None

    @property
    def whitening(self) -> Preconditioner:
        """The preconditioner; the identity for none."""
        return self.preconditioner or unchanged(len(self.mode.position))

    @property
    def autocorrelation(self) -> float:
        """Iterations for an independent draw, of the worst of the coordinates."""
        return float(self.prediction.times.max())

    @property
    def effective_rows(self) -> float:
        """Effective number of rows, 1/Σp²."""
        if isinstance(self.minibatches, Weighted):
            return float(1.0 / (self.minibatches.p**2).sum())
        return float("nan")

    def still_holds(self, mode: Mode, given: GivenConstants, growth: float) -> bool:
        """Return whether this plan is good for a posterior of somewhat more rows too.

        Its information, as if it had grown with their number, must be nearly that of the other, and
        the mode must be near.

        Args:
            mode: Mode of the other.
            given: User's choices for it.
            growth: Factor by which the number of rows has grown.
        """
        surveyed = self.surveyed
        is_unimodal = surveyed is not None and not (surveyed.several or surveyed.rising)
        same_size = given.minibatch_size in (None, self.minibatch_size)
        if self.around.is_noiseless or not (
            is_unimodal and same_size and mode.converged
        ):
            return False
        root = root_of(self.mode.information.covariance / growth)
        matrix = mode.information.matrix
        values = np.linalg.eigvalsh(root.T @ matrix @ root)
        difference = mode.position - self.mode.position
        relative_change = max(
            growth / _SETTINGS.max_growth,
            1 / (_SETTINGS.max_change * values[0]),
            values[-1] / _SETTINGS.max_change,
        )
        return bool(
            growth >= 1
            and relative_change <= 1
            and difference @ matrix @ difference
            <= _SETTINGS.max_distance**2 * len(difference)
        )

    def rewhitened(
        self, target: Target, data: Data, covariance: np.ndarray, seed: int
    ) -> Plan:
        """Return the plan for coordinates in which this covariance is the identity."""
        whitening = whitening_at(self.mode.position, covariance)
        draft = _Draft(self.given, self.mode, whitening, self.minibatches)
        plan = draft.cheapest(target, data, seed, kept_graphs(target, data))
        return replace(plan, seconds=self.seconds, surveyed=self.surveyed, earlier=None)


class Knowledge(NamedTuple):
    """Knowledge of a posterior before its plan is made.

    Attributes:
        mode: Mode.
        hessian: Same as ``known`` in :func:`find_mode`.
        earlier: Plan for most of these rows, at whose mode the start is. If mode and information
            have hardly changed, there is one mode as there was, and the noise is as it was.
        far: Same as in :func:`sgmcmc.plan.modes.survey`.
    """

    mode: Mode | None = None
    hessian: np.ndarray | None = None
    earlier: Earlier | None = None
    far: bool = True


def make_plan(
    model: Model,
    start: np.ndarray,
    given: GivenConstants,
    stage: Callable[[str], None],
    knowledge: Knowledge,
) -> Plan:
    """Return the plan of a chain.

    Args:
        model: Model, read.
        start: Start of the search for the mode, flat and unconstrained.
        given: User's choices.
        stage: Function that is called with the name of the next stage.
        knowledge: What is known already.
    """
    timings = Timings()
    stage("finding the mode")
    target, data, seed = model.target, model.data, model.seed
    objective = Objective(target, data)

    def find(u: np.ndarray) -> Mode:
        return mode_from(objective, u, seed)

    mode = knowledge.mode
    if mode is None:
        mode = mode_from(objective, start, seed, knowledge.hessian)
    timings.done("mode and information")
    earlier = knowledge.earlier
    if earlier is not None:
        growth = data.size / earlier.rows
        if not earlier.plan.still_holds(mode, given, growth):
            earlier = None
    if earlier is None or earlier.plan.surveyed is None:
        stage("looking for other modes")
        far = knowledge.far
        surveyed = survey(target, data, mode, start, seed, objective, find, far)
        mode = surveyed.modes[0]
        timings.done("other modes")
    else:
        surveyed = replace(earlier.plan.surveyed, modes=(mode,))
    preconditioner = make_preconditioner(given.preconditioner, mode)
    minibatches = given.minibatches
    if minibatches is None:
        minibatches = Uniform()
        if not given.takes_all(data.size, target.row_terms):
            stage("leverage of the observations")
            dense = whitening_at(mode.position, mode.information.covariance)
            leverages = leverage(target, data, dense, seed, objective=objective.rough)
            minibatches = leverage_minibatches(leverages)
            timings.done("leverage")
    stage("noise of the gradients")
    draft = _Draft(given, mode, preconditioner, minibatches)
    plan = draft.cheapest(target, data, seed, objective.rough.graphs, earlier)
    timings.done("noise and stepsize")
    return replace(plan, seconds=timings.seconds, surveyed=surveyed, earlier=earlier)


def mode_from(
    objective: Objective,
    start: np.ndarray,
    seed: int,
    hessian: np.ndarray | None = None,
) -> Mode:
    """Return the mode that is found from a position, of a large dataset first on a part.

    Args:
        objective: Log posterior, without a preconditioner.
        start: Position, flat and unconstrained.
        seed: Seed of the rows.
        hessian: Same as ``known`` in :func:`find_mode`.
    """
    target = objective.chain_target
    data = objective.data
    objective = objective.over(None)
    subset = objective_on_subset(objective, data, seed)
    if subset is None:
        return find_mode(objective, start, known=hessian)

    def sample(u: np.ndarray, information: Information) -> Objective:
        whitening = whitening_at(u, information.covariance)
        rng = generator(seed, 1, RunPhase.MODE, Purpose.PART)
        probes = _SETTINGS.sample_probes
        rough = objective.rough
        leverages = leverage(target, data, whitening, seed, probes, rough)
        return objective.over(strata_by_leverage(leverages, rng))

    if data.size < 2 * STRATA * STRATUM_ROWS:
        return find_mode(objective, start, subset, None, hessian)
    # Leverage is quickly found if the log-likelihood gives its terms.
    params = target.space.constrain(tf.constant(start, target.dtype))
    value = target.log_lik(dict(params), data.rows(np.arange(2)))
    gives_terms = getattr(value, "shape", None) == (2,)
    return find_mode(objective, start, subset, sample if gives_terms else None, hessian)


def part_size(objective: Objective, smallest: int = PART_ROWS) -> int:
    """Return the number of rows on which a mode is first searched."""
    if objective.width is None:
        return smallest
    wanted_rows = min(
        _SETTINGS.rows_per_coordinate * objective.size,
        int(_SETTINGS.max_products / objective.width**2),
    )
    return max(smallest, wanted_rows // objective.rows)


def objective_on_subset(
    objective: Objective, data: Data, seed: int
) -> Objective | None:
    """Return the log posterior over a part of a large dataset; ``None`` if it is not large."""
    size = part_size(objective)
    if data.size <= 2 * size:
        return None
    rng = generator(seed, 0, RunPhase.MODE, Purpose.PART)
    rows = np.sort(rng.choice(data.size, size, replace=False))
    return objective.over([(rows, data.size / size)])


def unchanged(d: int) -> Preconditioner:
    """Return the preconditioner that changes nothing."""
    return Preconditioner(np.ones(d), np.zeros(d))


def make_preconditioner(
    choice: str | Preconditioner, mode: Mode
) -> Preconditioner | None:
    """Return the preconditioner that goes by a name; the user's own is used as it is."""
    if isinstance(choice, Preconditioner):
        return choice
    if choice == "none":
        return None
    covariance = mode.information.covariance
    if choice == "diagonal":
        return Preconditioner(np.sqrt(np.diag(covariance)), mode.position)
    return whitening_at(mode.position, covariance)


def whitening_at(position: np.ndarray, covariance: np.ndarray) -> Preconditioner:
    """Return the change to coordinates in which this covariance is the identity."""
    return Preconditioner(root_of(covariance), position)


def information_in(whitening: Preconditioner, mode: Mode) -> np.ndarray:
    """Return the information in the coordinates of a chain, CᵀJC."""
    root = whitening.root if whitening.dense else np.diag(whitening.root)
    return root.T @ mode.information.matrix @ root


@dataclass(frozen=True)
class _Draft:
    """Parts of a chain before the size of its minibatches and its stepsize are chosen.

    Attributes:
        given: User's choices.
        mode: Mode.
        preconditioner: û and C; ``None`` for none.
        minibatches: Way of drawing the rows.
    """

    given: GivenConstants
    mode: Mode
    preconditioner: Preconditioner | None
    minibatches: Minibatches

    def cheapest(
        self,
        target: Target,
        data: Data,
        seed: int,
        graphs: dict[Any, Any],
        earlier: Earlier | None = None,
    ) -> Plan:
        """Return the plan of the least time per effective draw.

        Args:
            target: Log posterior, without a preconditioner.
            data: Dataset.
            seed: Seed of the positions and minibatches.
            graphs: Graphs of the target that are kept.
            earlier: Plan that gives the size of the minibatches, and their noise.
        """
        given, minibatches = self.given, self.minibatches
        whitening = self.preconditioner or unchanged(target.size)
        information = information_in(whitening, self.mode)
        geometry = NoisyQuadratic(
            information, np.zeros_like(information), whitening.root
        )
        if given.takes_all(data.size, target.row_terms):
            return self._with_stepsize(data.size, geometry)
        sizes = self._sizes(target, data, earlier)
        largest = max(sizes[0], _SETTINGS.reference_terms // target.row_terms)
        reference = sizes[0]
        if len(sizes) > 1:
            reference = min(_SETTINGS.reference_rows, largest, data.size)
        whitened = target.preconditioned(self.preconditioner)
        center = whitening.into(self.mode.position)
        draws = minibatches.bind(data.size, reference)
        meter = NoiseMeter(whitened, data, draws, given.gradient, graphs)
        if earlier is not None:
            noise = earlier.noise_in(whitening, data.size)
            epoch = epoch_of(minibatches, data.size, sizes[0])
            plan_of_earlier = self._with_stepsize(
                sizes[0], geometry.with_noise(noise, epoch)
            )
            return replace(plan_of_earlier, meter=meter)
        rng = generator(seed, 0, RunPhase.MODE, Purpose.NOISE)
        normals = rng.standard_normal((_SETTINGS.noise_positions, target.size))
        spread = np.linalg.solve(np.linalg.cholesky(information).T, normals.T).T
        noise = meter.covariance(center + spread, center, seed)

        def of_size(n: int) -> Plan:
            epoch = epoch_of(minibatches, data.size, n)
            return self._with_stepsize(
                n, geometry.with_noise(noise * meter.factor(n), epoch)
            )

        def cost(plan: Plan) -> float:
            row_cost = _SETTINGS.byte_cost * data.row_bytes
            row_cost += _SETTINGS.term_cost * (target.row_terms - 1)
            iteration_cost = _SETTINGS.iteration_cost + row_cost * plan.minibatch_size
            return plan.autocorrelation * iteration_cost

        return replace(_cheapest(of_size, sizes, reference, cost), meter=meter)

    def _sizes(self, target: Target, data: Data, earlier: Earlier | None) -> list[int]:
        """Return the sizes of minibatches to choose from."""
        if earlier is not None:
            return [earlier.plan.minibatch_size]
        if self.given.minibatch_size is not None:
            return [self.given.minibatch_size]
        small_sizes = _SETTINGS.small_sizes if target.row_terms != 1 else ()
        candidates = small_sizes + _SETTINGS.sizes
        return [n for n in candidates if n <= data.size] or [data.size]

    def _with_stepsize(self, n: int, geometry: NoisyQuadratic) -> Plan:
        """Return the plan for n rows, with its stepsize."""
        given = self.given
        dynamics, in_turn = given.dynamics, given.in_turn
        stepsize = given.stepsize
        if stepsize is None:
            largest = LARGEST_OF_FEW if geometry.is_noiseless else LARGEST
            if has_thermostat(dynamics):
                largest = LARGEST_WITH_THERMOSTAT
            # Several steps with one momentum should not go round.
            largest = min(largest, (0.5 * np.pi / dynamics.steps) ** 2)
            tolerance = given.tolerance
            stepsize = largest_stepsize(dynamics, geometry, tolerance, largest, in_turn)
        try:
            prediction = geometry.predict(dynamics, stepsize, in_turn)
        except ValueError:  # a user's stepsize, for dynamics without a closed form
            if given.stepsize is None:
                raise
            prediction = ChainPrediction.unknown(len(self.mode.position))
        return Plan(
            given,
            self.mode,
            self.preconditioner,
            self.minibatches,
            n,
            stepsize,
            geometry,
            prediction,
        )


def _cheapest(
    of_size: Callable[[int], Plan],
    sizes: Sequence[int],
    first: int,
    cost: Callable[[Plan], float],
) -> Plan:
    """Return the plan of the cheapest minibatch size, from a first one on up or down.

    Rows that are few cost an independent draw its iterations, rows that are many cost time in each,
    so that costs fall and then rise with their number.
    """
    first_index = max((k for k, n in enumerate(sizes) if n <= first), default=0)
    best = of_size(sizes[first_index])
    lowest_cost = cost(best)
    for direction in (sizes[first_index + 1 :], sizes[:first_index][::-1]):
        for n in direction:
            candidate = of_size(n)
            if cost(candidate) >= lowest_cost:
                break
            best, lowest_cost = candidate, cost(candidate)
        if best.minibatch_size > first:
            break
    return best


def epoch_of(minibatches: Minibatches, rows: int, n: int) -> float | None:
    """Return the minibatches in an epoch, if they come in order."""
    return rows / n if isinstance(minibatches, Reshuffled) else None
