"""A design as a model with `groups=`: coordinates that are compared, and effects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from benchmarks.mixed.designs import Design

tfb = tfp.bijectors
Tensors = dict[str, tf.Tensor]

FIXED_SD, SHAPE_RATE, CORRELATION = 5.0, 0.2, 2.0
"""Priors: N(0, 5²) of fixed effects, Exp(0.2) of the negative binomial's shape, LKJ(2) of
correlations; scales have Exp(1)."""


@dataclass(frozen=True)
class Mixed:
    """A mixed model for `sgmcmc`.

    Attributes:
        design: Design.
    """

    design: Design

    @property
    def dataset(self) -> dict[str, np.ndarray]:
        """Rows."""
        return self.design.arrays

    @property
    def params(self) -> dict[str, Any]:
        """Start of the global parameters."""
        found: dict[str, Any] = {"b": np.zeros(self.design.arrays["X"].shape[1])}
        for k, q in enumerate(self.design.sizes):
            found[f"sd{k}"] = np.full(q, 0.5)
            if q > 1:
                found[f"L{k}"] = np.eye(q)
        if self.design.family == "normal":
            found["sigma"] = 0.5
        if self.design.family == "negative_binomial":
            found["shape"] = 5.0
        return found

    @property
    def bijectors(self) -> dict[str, tfb.Bijector]:
        """Bijectors of scales and correlations."""
        kinds = {
            "sd": tfb.Exp,
            "L": tfb.CorrelationCholesky,
            "sigma": tfb.Exp,
            "shape": tfb.Exp,
        }
        return {
            name: kinds[name.rstrip("0123456789")]()
            for name in self.params
            if name != "b"
        }

    @property
    def groups(self) -> list[sgmcmc.Groups]:
        """Effects of each factor."""
        return [
            sgmcmc.Groups(f"g{k}", {f"u{k}": np.zeros(q)}, of_groups(k, q))
            for k, q in enumerate(self.design.sizes)
        ]

    def log_lik(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return the terms of rows."""
        eta = tf.linalg.matvec(dataset["X"], params["b"])
        for k in range(len(self.design.sizes)):
            eta += tf.reduce_sum(dataset[f"Z{k}"] * params[f"u{k}"], -1)
        y, family = dataset["y"], self.design.family
        if family == "normal":
            return -0.5 * ((y - eta) / params["sigma"]) ** 2 - tf.math.log(
                params["sigma"]
            )
        if family == "binomial":
            return y * eta - dataset["trials"] * tf.nn.softplus(eta)
        if family == "poisson":
            return y * eta - tf.exp(eta)
        shape = params["shape"]
        total = tf.math.lgamma(y + shape) - tf.math.lgamma(shape)
        return (
            total
            + y * eta
            + shape * tf.math.log(shape)
            - (y + shape) * tf.math.log(shape + tf.exp(eta))
        )

    def log_prior(self, params: Tensors) -> tf.Tensor:
        """Return the log prior density."""
        total = -0.5 * tf.reduce_sum((params["b"] / FIXED_SD) ** 2)
        for k, q in enumerate(self.design.sizes):
            total -= tf.reduce_sum(params[f"sd{k}"])
            powers = [q - j - 1 + 2 * (CORRELATION - 1) for j in range(1, q)]
            if powers:
                diagonal = tf.linalg.diag_part(params[f"L{k}"])[1:]
                total += tf.reduce_sum(
                    tf.constant(powers, total.dtype) * tf.math.log(diagonal)
                )
        if "sigma" in params:
            total -= params["sigma"]
        return total - SHAPE_RATE * params["shape"] if "shape" in params else total

    def compared(self, draws: dict[str, np.ndarray]) -> np.ndarray:
        """Return what is compared of draws, (chain, draw, coordinate): correlations for roots."""
        parts = []
        for name, value in draws.items():
            if name.startswith("L"):
                whole = value @ np.swapaxes(value, -1, -2)
                i, j = np.tril_indices(whole.shape[-1], -1)
                value = whole[..., i, j]
            parts.append(np.reshape(value, (*value.shape[:2], -1)))
        return np.concatenate(parts, -1).astype(np.float64)


def of_groups(k: int, q: int) -> Callable[[Tensors, Tensors], tf.Tensor]:
    """Return the log density of the effects of a factor: normal, with scales and correlations."""

    def density(effects: Tensors, params: Tensors) -> tf.Tensor:
        scaled = effects[f"u{k}"] / params[f"sd{k}"]
        total = -tf.reduce_sum(tf.math.log(params[f"sd{k}"]))
        if q > 1:
            root, solved = params[f"L{k}"], []
            for i in range(q):
                rest = sum((root[i, j] * solved[j] for j in range(i)), start=0.0)
                solved.append((scaled[:, i] - rest) / root[i, i])
            scaled = tf.stack(solved, -1)
            total -= tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root)))
        return total - 0.5 * tf.reduce_sum(scaled**2, -1)

    return density
