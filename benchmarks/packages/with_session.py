"""The design of the R package: TensorFlow 1 sessions, one call for each parameter and step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.packages.loops import one_after_another
from benchmarks.packages.with_sgmcmc import MODELS
from benchmarks.workloads import Arrays, Workload

v1 = tf.compat.v1


class Graph:
    """Variables, placeholders and for each parameter the ops of a step."""

    def __init__(self, workload: Workload, data: Arrays, params: Arrays) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.params = {
                k: v1.get_variable(
                    f"p_{k}", initializer=tf.constant(v), use_resource=True
                )
                for k, v in params.items()
            }
            self.placeholders = {
                k: v1.placeholder(v.dtype, (workload.n, *v.shape[1:]))
                for k, v in data.items()
            }
            gradient = self._gradient(workload, self.params)
            if workload.method == "sgldcv":
                center = {k: tf.constant(v) for k, v in params.items()}
                at_center = self._gradient(workload, center)
                full = self._full_gradient(workload, data, center)
                gradient = {k: full[k] + gradient[k] - at_center[k] for k in gradient}
            self.refresh, self.steps = self._dynamics(workload, gradient)
            self.initialise = v1.global_variables_initializer()

    def _gradient(
        self, workload: Workload, params: Any, data: Any = None
    ) -> dict[str, Any]:
        log_lik, log_prior = MODELS[workload.model]
        scale = workload.N / workload.n if data is None else 1.0
        log_post = log_prior(params) + scale * log_lik(
            params, data or self.placeholders
        )
        return dict(
            zip(params, tf.gradients(log_post, list(params.values())), strict=True)
        )

    def _full_gradient(
        self, workload: Workload, data: Arrays, center: Any
    ) -> dict[str, Any]:
        whole = {k: v1.placeholder(tf.float32, v.shape) for k, v in data.items()}
        gradient = self._gradient(workload, center, whole)
        with v1.Session() as session:
            found = session.run(gradient, {whole[k]: data[k] for k in data})
        return {k: tf.constant(v) for k, v in found.items()}

    def _dynamics(
        self, workload: Workload, gradient: dict[str, Any]
    ) -> tuple[list, list]:
        epsilon, alpha = workload.stepsize, workload.alpha
        refresh, steps = [], []
        for name, theta in self.params.items():
            noise = tf.random.normal(theta.shape)
            if workload.method not in ("sghmc", "sgnht"):
                move = 0.5 * epsilon * gradient[name] + epsilon**0.5 * noise
                steps.append(theta.assign_add(move, read_value=False))
                continue
            nu = v1.get_variable(
                f"nu_{name}", initializer=tf.zeros(theta.shape), use_resource=True
            )
            if workload.method == "sghmc":
                refresh.append(
                    nu.assign(
                        epsilon**0.5 * tf.random.normal(theta.shape), read_value=False
                    )
                )
            if workload.method == "sgnht":
                friction = tf.constant(alpha)
                xi = v1.get_variable(
                    f"xi_{name}", initializer=friction, use_resource=True
                )
                new = (
                    (1 - xi) * nu
                    + epsilon * gradient[name]
                    + (2 * alpha * epsilon) ** 0.5 * noise
                )
                heat = tf.reduce_mean(new**2) - epsilon
                updates = (
                    nu.assign(new, read_value=False),
                    theta.assign_add(new, read_value=False),
                    xi.assign_add(heat, read_value=False),
                )
                steps.append(tf.group(*updates))
                continue
            new = (
                (1 - alpha) * nu
                + epsilon * gradient[name]
                + (2 * alpha * epsilon) ** 0.5 * noise
            )
            updates = (
                nu.assign(new, read_value=False),
                theta.assign_add(new, read_value=False),
            )
            steps.append(tf.group(*updates))
        return refresh, steps


def build(workload: Workload, data: Arrays, params: Arrays) -> Callable[[int], Arrays]:
    built = Graph(workload, data, params)
    session = v1.Session(graph=built.graph)
    rng = np.random.default_rng(1)

    def one_chain(n_iters: int, draws: Arrays) -> None:
        session.run(built.initialise)
        for i in range(n_iters):
            for op in built.refresh:
                session.run(op)
            for _ in range(workload.L):
                rows = rng.choice(workload.N, workload.n, replace=False, shuffle=False)
                feed = {built.placeholders[k]: v[rows] for k, v in data.items()}
                for op in built.steps:
                    session.run(op, feed)
            for name, value in session.run(built.params).items():
                draws[name][i] = value

    return one_after_another(workload, params, one_chain)
