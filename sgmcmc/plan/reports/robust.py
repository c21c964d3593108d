"""Standard deviations that hold if the model is wrong: scores, and the sandwich made of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data, Tensors
from sgmcmc.data.passes import Pass
from sgmcmc.data.random_numbers import Purpose, RunPhase, generator
from sgmcmc.graphs.tracing import trace, vectorized_map
from sgmcmc.groups.effects import whole_groups
from sgmcmc.groups.marginal import Marginal
from sgmcmc.groups.structure import Structure
from sgmcmc.model.target import Target
from sgmcmc.plan.mode import Mode
from sgmcmc.plan.objective import Objective, kept_graphs
from sgmcmc.plan.plan import mode_from
from sgmcmc.plan.reports.judging import as_matrix, cannot_judge
from sgmcmc.reduce.rows import CountedRows, number_of_rows
from sgmcmc.results.arrays import by_chain, coordinate_names, without_chains
from sgmcmc.results.report import Section
from sgmcmc.results.samples import Samples
from sgmcmc.run.sampler import Sampler

_ROWS = 20_000  # largest number of rows, or groups, whose scores the report is made of
_COORDINATES = 200  # largest number of coordinates for which the report has robust SDs
_ROWS_PER_COORDINATE = 10  # smallest number with which the report has robust SDs

_CHUNK_NUMBERS = 2**22


def robust_section(
    sampler: Sampler, mode: Mode
) -> dict[str, Callable[[], dict[str, Any]]]:
    """Return the section of a report on robust SDs, computed when it is first asked for.

    Args:
        sampler: Sampler.
        mode: Mode.
    """
    size, structure = sampler.target.size, sampler.request.groups
    if _dependence(structure) is not None:
        return {}
    size -= int(_effects_of_large(sampler).sum())
    few = _observations(sampler) < _ROWS_PER_COORDINATE * size
    if sampler.data.sparse or few or size > _COORDINATES or not mode.converged:
        return {}
    return {Section.ROBUST: lambda: _facts(sampler, mode)}


def _facts(sampler: Sampler, mode: Mode) -> dict[str, Any]:
    sandwiched = ~_effects_of_large(sampler)
    M = mode.information.covariance[np.ix_(sandwiched, sandwiched)]
    K, used = _covariance_of_observations(sampler, mode.position, _ROWS)
    ratio = np.sqrt(np.einsum("ij,jk,ki->i", M, K, M) / np.diag(M))
    names = [
        label
        for name, shape in sampler.target.space.layout.shapes.items()
        for label in coordinate_names(name, shape)
    ]
    names = [name for name, is_in in zip(names, sandwiched, strict=True) if is_in]
    with np.errstate(divide="ignore"):  # data may say nothing of a coordinate
        far = int(np.argmax(np.abs(np.log(ratio))))
    return {
        "robust SD over SD of the model": ratio.tolist(),
        "farthest from 1": f"{names[far]}, {ratio[far]:.3g}",
        "observations used": round(used),
    }


def _dependence(structure: Structure | None) -> str | None:
    """Return why there are no independent observations; ``None`` if there are."""
    if structure is None or (structure.integrated and not structure.coordinates):
        return None
    return (
        "rows and groups depend on each other through effects of "
        f"{', '.join(repr(factor.by) for factor in structure.coordinates)}, which are coordinates "
        "of the chain. One factor, with one to three effects a group, has independent groups"
    )


def _observations(sampler: Sampler) -> float:
    """Return the number of observations: groups, or rows, of which one may stand for several."""
    structure = sampler.request.groups
    if structure is not None and structure.packs is not None:
        return len(structure.packs.labels)
    return number_of_rows(sampler.request.dataset, sampler.data.size)


def _counts(sampler: Sampler) -> str | None:
    """Return the column with the number of observations that a row is; ``None`` for one each."""
    dataset = sampler.request.dataset
    return dataset.counts if isinstance(dataset, CountedRows) else None


def _effects_of_large(sampler: Sampler) -> np.ndarray:
    """Return which coordinates are effects of large groups, (d,)."""
    structure, layout = sampler.request.groups, sampler.target.space.layout
    names = () if structure is None else structure.names_of_large
    sizes = [int(np.prod(shape)) for shape in layout.shapes.values()]
    return np.repeat([name in names for name in layout.shapes], sizes)


def _covariance_of_observations(
    sampler: Sampler, u: np.ndarray, most: int | None = None
) -> tuple[np.ndarray, float]:
    """Return the covariance of the scores of rows or groups, and how many of them were used.

    Args:
        sampler: Sampler.
        u: Position.
        most: Number of rows or groups that represent all, if there are more; ``None`` for all.
    """
    data, used = sampler.data, _observations(sampler)
    if sampler.request.groups is not None:
        scores = _scores_of_groups(sampler, u, most)
        centered = scores - scores.mean(0)
        return centered.T @ centered * (used / len(scores)), len(scores)
    rows, target = None, sampler.target.preconditioned(None)
    if most is not None and data.size > most:
        rng = generator(sampler.seed, 2, RunPhase.MODE, Purpose.PART)
        rows = np.sort(rng.choice(data.size, most, replace=False))
        used = len(rows)
    return score_covariance(target, data, u, rows, _counts(sampler)), used


def _scores_of_groups(
    sampler: Sampler, u: np.ndarray, most: int | None = None
) -> np.ndarray:
    """Return ∇ log p(y_g | θ) of groups, large ones too, (groups, coordinates but effects).

    Args:
        sampler: Sampler of a model with groups.
        u: Position.
        most: Number of groups that represent all, if there are more; ``None`` for all.
    """
    structure, marginal = sampler.request.groups, sampler.request.log_lik
    assert structure is not None and isinstance(marginal, Marginal)
    space, dtype = sampler.target.preconditioned(None).space, sampler.target.dtype
    position, sandwiched = tf.constant(u, dtype), ~_effects_of_large(sampler)
    scores = []
    for likelihood, pieces in whole_groups(structure, marginal, sampler.data, most):
        target, gradients = Target(likelihood, None, space, dtype), None
        for columns, count in pieces:
            packs = {name: tf.constant(column) for name, column in columns.items()}
            if gradients is None:
                gradients = trace(target.term_gradients, position, packs)
            of_groups = gradients(position, packs).numpy()[:count]
            scores.append(of_groups[:, sandwiched])
    return np.concatenate(scores).astype(np.float64)


def robust_draws(sampler: Sampler, samples: Samples) -> dict[str, np.ndarray]:
    """Return draws moved so that their covariance is J⁻¹ K J⁻¹; see ``Samples.robust``.

    Of a model with groups these are the observations, and K is of their marginal likelihood.
    Effects of large groups, coordinates of the chain, follow as their mean given the others does.

    Raises:
        ValueError: The model has no curvature at a mode, or no mode, or no independent groups.
    """
    reason = cannot_judge(sampler, samples) or _dependence(sampler.request.groups)
    if reason is not None:
        raise ValueError(f"`samples`: there is no robust covariance: {reason}.")
    target = sampler.target.preconditioned(None)
    space, draws = target.space, by_chain(samples.settings, samples)
    u = as_matrix(space.of_draws(without_chains(draws)))
    weights = samples.weights
    weights = None if weights is None else np.resize(weights, len(u))
    center = np.average(u, axis=0, weights=weights)
    mode = mode_from(Objective(target, sampler.data), center, sampler.seed)
    if not mode.converged:
        raise ValueError("`samples`: there is no robust covariance: no mode was found.")
    M, effects = mode.information.covariance, _effects_of_large(sampler)
    K, _ = _covariance_of_observations(sampler, mode.position)
    of_others = M[np.ix_(~effects, ~effects)]
    root = np.linalg.cholesky(of_others)
    values, vectors = np.linalg.eigh(root.T @ K @ root)
    scale = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    others = u[:, ~effects] - center[~effects]
    move = others @ (root @ scale @ np.linalg.inv(root)).T - others
    slopes = np.linalg.solve(of_others, M[np.ix_(~effects, effects)])
    u[:, ~effects] += move
    u[:, effects] += move @ slopes
    positions = tf.constant(u, sampler.target.dtype)
    params = trace(partial(vectorized_map, space.constrain), positions)(positions)
    return {
        name: params[name].numpy().reshape(samples[name].shape).astype(array.dtype)
        for name, array in draws.items()
    }


def score_covariance(
    target: Target,
    data: Data,
    u: np.ndarray,
    rows: np.ndarray | None = None,
    counts: str | None = None,
) -> np.ndarray:
    """Return Σ s_i s_iᵀ − N s̄ s̄ᵀ of the scores s_i = ∇ log p(x_i | θ), (d, d), in one pass.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        u: Position, (d,).
        rows: Row numbers that represent all; ``None`` for all.
        counts: Column with the number of observations that a row is, by which its term is
            multiplied; ``None`` for one each.
    """

    def scores(position: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
        of_rows = tf.cast(target.term_gradients(position, columns), tf.float64)
        number = tf.ones_like(of_rows[:, 0])
        if counts is not None:
            number = tf.cast(columns[counts], tf.float64)
        # n s sᵀ of n observations, of whose terms the gradient is n s.
        roots = tf.math.multiply_no_nan(tf.math.rsqrt(number), tf.sign(number))
        scaled = of_rows * roots[:, tf.newaxis]
        return [
            tf.reduce_sum(of_rows, 0),
            tf.matmul(scaled, scaled, transpose_a=True),
            tf.reduce_sum(number),
        ]

    over = Pass(data, {"scores": scores}, graphs=kept_graphs(target, data))
    position = u.astype(target.dtype.as_numpy_dtype)
    if rows is None:
        rows_per_chunk = max(1, _CHUNK_NUMBERS // target.size)
        results = over.sums("scores", position, max_terms=rows_per_chunk)
    else:
        results = [p.numpy() for p in over.run("scores", position, data.rows(rows))]
    sums, products, number = results
    share = 1.0 if rows is None else len(rows) / data.size
    return (products - np.outer(sums, sums) / number) / share
