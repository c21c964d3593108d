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
from sgmcmc.model.target import Target
from sgmcmc.plan.mode import Mode
from sgmcmc.plan.objective import Objective, kept_graphs
from sgmcmc.plan.plan import mode_from
from sgmcmc.plan.reports.judging import as_matrix, cannot_judge
from sgmcmc.results.arrays import by_chain, coordinate_names
from sgmcmc.results.report import Section
from sgmcmc.results.samples import Samples
from sgmcmc.run.sampler import Sampler

_ROWS = 20_000  # largest number of rows whose scores the report is made of
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
    size = sampler.target.size
    few = sampler.data.size < _ROWS_PER_COORDINATE * size
    if sampler.data.sparse or few or size > _COORDINATES or not mode.converged:
        return {}
    return {Section.ROBUST: lambda: _facts(sampler, mode)}


def _facts(sampler: Sampler, mode: Mode) -> dict[str, Any]:
    data, target = sampler.data, sampler.target.preconditioned(None)
    rows = None
    if data.size > _ROWS:
        rng = generator(sampler.seed, 2, RunPhase.MODE, Purpose.PART)
        rows = np.sort(rng.choice(data.size, _ROWS, replace=False))
    M = mode.information.covariance
    K = score_covariance(target, data, mode.position, rows)
    ratio = np.sqrt(np.einsum("ij,jk,ki->i", M, K, M) / np.diag(M))
    names = [
        label
        for name, shape in target.space.layout.shapes.items()
        for label in coordinate_names(name, shape)
    ]
    with np.errstate(divide="ignore"):  # data may say nothing of a coordinate
        far = int(np.argmax(np.abs(np.log(ratio))))
    return {
        "robust SD over SD of the model": ratio.tolist(),
        "farthest from 1": f"{names[far]}, {ratio[far]:.3g}",
        "observations used": data.size if rows is None else len(rows),
    }


def robust_draws(sampler: Sampler, samples: Samples) -> dict[str, np.ndarray]:
    """Return draws moved so that their covariance is J⁻¹ K J⁻¹; see ``Samples.robust``.

    Raises:
        ValueError: The model has no curvature at a mode, or no mode.
    """
    reason = cannot_judge(sampler, samples)
    if reason is not None:
        raise ValueError(f"`samples`: there is no robust covariance: {reason}.")
    target = sampler.target.preconditioned(None)
    space, draws = target.space, by_chain(samples.settings, samples)
    flat = {n: np.asarray(a).reshape(-1, *a.shape[2:]) for n, a in draws.items()}
    u = as_matrix(space.of_draws(flat))
    weights = samples.weights
    weights = None if weights is None else np.resize(weights, len(u))
    center = np.average(u, axis=0, weights=weights)
    mode = mode_from(Objective(target, sampler.data), center, sampler.seed)
    if not mode.converged:
        raise ValueError("`samples`: there is no robust covariance: no mode was found.")
    root = np.linalg.cholesky(mode.information.covariance)
    K = score_covariance(target, sampler.data, mode.position)
    values, vectors = np.linalg.eigh(root.T @ K @ root)
    scale = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    robust = center + (u - center) @ (root @ scale @ np.linalg.inv(root)).T
    positions = tf.constant(robust, sampler.target.dtype)
    params = trace(partial(vectorized_map, space.constrain), positions)(positions)
    return {
        name: params[name].numpy().reshape(samples[name].shape).astype(array.dtype)
        for name, array in draws.items()
    }


def score_covariance(
    target: Target, data: Data, u: np.ndarray, rows: np.ndarray | None = None
) -> np.ndarray:
    """Return Σ s_i s_iᵀ − N s̄ s̄ᵀ of the scores s_i = ∇ log p(x_i | θ), (d, d), in one pass.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        u: Position, (d,).
        rows: Row numbers that represent all; ``None`` for all.
    """

    def scores(position: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
        row_scores = tf.cast(target.term_gradients(position, columns), tf.float64)
        return [
            tf.reduce_sum(row_scores, 0),
            tf.matmul(row_scores, row_scores, transpose_a=True),
        ]

    over = Pass(data, {"scores": scores}, graphs=kept_graphs(target, data))
    position = u.astype(target.dtype.as_numpy_dtype)
    if rows is None:
        rows_per_chunk = max(1, _CHUNK_NUMBERS // target.size)
        sums, products = over.sums("scores", position, max_terms=rows_per_chunk)
    else:
        sums, products = (
            p.numpy() for p in over.run("scores", position, data.rows(rows))
        )
    size = data.size if rows is None else len(rows)
    return (products - np.outer(sums, sums) / size) * (data.size / size)
