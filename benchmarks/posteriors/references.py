"""References: long Hamiltonian chains on the whole data, in double precision.

`python -m benchmarks.posteriors.references [NAME ...]` makes those that are missing, or these
again, and keeps their means and SDs in `references.json`.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import optimize

from benchmarks.posteriors.base import Posterior
from benchmarks.posteriors.families import POSTERIORS
from benchmarks.posteriors.moments import moments

FILE = Path(__file__).parent / "references.json"
CHAINS, BLOCK = 16, 100
MANY, FEW_CHAINS, LOWER = (
    5000,
    4,
    4000,
)  # rows from which chains and their ESS are these
WARM_UPS, BLOCKS = 3, 5
ROUND, ROUNDS = 10, 12  # blocks, and how often so many at most
ESS, RHAT = 10_000, 1.005
ACCEPT, STEPS, MOST_STEPS, LARGEST = 0.85, 6, 60, 0.5
SEED = 20261122


class Density:
    """The log posterior on the unconstrained space, in float64, written without the package."""

    def __init__(self, posterior: Posterior) -> None:
        self._posterior = posterior
        self._bijectors = {name: tfp.bijectors.Identity() for name in posterior.params}
        self._bijectors |= dict(posterior.bijectors)
        self.data = {
            name: tf.constant(a, tf.float64 if a.dtype.kind == "f" else a.dtype)
            for name, a in posterior.dataset.items()
        }
        start = {
            n: tf.constant(np.asarray(a, float)) for n, a in posterior.params.items()
        }
        free = {
            name: self._bijectors[name].inverse(value) for name, value in start.items()
        }
        self._shapes = {name: tuple(value.shape) for name, value in free.items()}
        self.start = np.concatenate([np.ravel(value) for value in free.values()])

    def _split(self, u: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the unconstrained parameters of flat positions, (..., d)."""
        sizes = [int(np.prod(shape)) for shape in self._shapes.values()]
        parts = tf.split(u, sizes, axis=-1)
        return {
            name: tf.reshape(part, (*u.shape[:-1], *shape))
            for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }

    def params(self, u: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the user's parameters of flat positions, (..., d)."""
        return {
            name: self._bijectors[name].forward(v) for name, v in self._split(u).items()
        }

    def __call__(self, u: tf.Tensor, data: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Return the log posterior at one flat position, (d,)."""
        params = self.params(u)
        value = tf.reduce_sum(self._posterior.log_lik(params, data))
        if self._posterior.log_prior is not None:
            value += self._posterior.log_prior(params)
        for name, free in self._split(u).items():
            value += self._bijectors[name].forward_log_det_jacobian(
                free, len(self._shapes[name])
            )
        return value


def sampler(
    density: Density, steps: int
) -> Callable[..., tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
    """Return a compiled function that runs TFP's Hamiltonian Monte Carlo, whitened by a matrix.

    The stepsize is drawn again for each iteration, from half to one and a half times its mean, so
    that no trajectory is a whole turn for long.
    """

    @functools.partial(tf.function, autograph=False)
    def run(zeta, origin, root, stepsize, n_iters, seed, data):
        def log_density(zeta: tf.Tensor) -> tf.Tensor:
            u = origin + tf.linalg.matmul(zeta, root, transpose_b=True)
            return tf.vectorized_map(lambda one: density(one, data), u)

        draws = tf.TensorArray(tf.float64, n_iters, element_shape=zeta.shape)

        def step(i, zeta, draws, accepted):
            seeds = tf.random.experimental.stateless_fold_in(seed, i)
            jitter = tf.random.stateless_uniform([], seeds, dtype=tf.float64)
            kernel = tfp.mcmc.HamiltonianMonteCarlo(
                log_density, stepsize * (0.5 + jitter), steps
            )
            zeta, results = kernel.one_step(
                zeta, kernel.bootstrap_results(zeta), seed=seeds + 1
            )
            probability = tf.exp(tf.minimum(results.log_accept_ratio, 0.0))
            probability = tf.where(tf.math.is_finite(probability), probability, 0.0)
            return (
                i + 1,
                zeta,
                draws.write(i, zeta),
                accepted + tf.reduce_mean(probability),
            )

        zero = tf.zeros([], tf.float64)
        _, zeta, draws, accepted = tf.while_loop(
            lambda i, *_: i < n_iters,
            step,
            (0, zeta, draws, zero),
            parallel_iterations=1,
        )
        return zeta, draws.stack(), accepted / tf.cast(n_iters, tf.float64)

    return run


def mode(density: Density) -> tuple[np.ndarray, np.ndarray]:
    """Return the mode, and a root of the covariance that the curvature there implies."""

    @functools.partial(tf.function, autograph=False)
    def both(u: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(u)
            value = density(u, density.data)
        return value, tape.gradient(value, u)

    @functools.partial(tf.function, autograph=False)
    def hessian(u: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as outer:
            outer.watch(u)
            with tf.GradientTape() as tape:
                tape.watch(u)
                value = density(u, density.data)
            slope = tape.gradient(value, u)
        return outer.jacobian(slope, u, experimental_use_pfor=False)

    best, place = np.inf, density.start

    def value_of(u: np.ndarray) -> float:
        nonlocal best, place
        value = -float(both(tf.constant(u))[0])
        if value < best:
            best, place = value, u.copy()
        return value if np.isfinite(value) else np.inf

    for method in ("trust-exact", "L-BFGS-B"):
        try:
            optimize.minimize(
                value_of,
                place,
                jac=lambda u: -both(tf.constant(u))[1].numpy(),
                hess=(lambda u: -hessian(tf.constant(u)).numpy())
                if "trust" in method
                else None,
                method=method,
                options={"maxiter": 200},
            )
            break
        except (
            UnboundLocalError,
            np.linalg.LinAlgError,
        ):  # SciPy's, at curvatures like 1e300
            continue
    matrix = -hessian(tf.constant(place)).numpy()
    scale = np.sqrt(np.maximum(np.abs(np.diag(matrix)), 1e-8))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    # Where nothing is known, a prior with kinks say, the warm-up will tell.
    return place, (vectors / np.sqrt(np.maximum(np.abs(values), 1e-13))) / scale[
        :, np.newaxis
    ]


def tuned(stepsize: float, accepted: float) -> float:
    """Return a stepsize that brings acceptance nearer to what it should be."""
    factor = np.clip(np.exp(2.0 * (accepted - ACCEPT)), 0.3, 1.5)
    return float(min(LARGEST, stepsize * factor))


def sample(density: Density) -> dict[str, np.ndarray]:
    """Return draws by parameter, each (chain, draw, ...)."""
    run = sampler(density, STEPS)
    origin, root = mode(density)
    d = len(origin)
    many = len(next(iter(density.data.values()))) >= MANY
    chains, enough = (FEW_CHAINS, LOWER) if many else (CHAINS, ESS)
    rng = np.random.default_rng(SEED)
    zeta, stepsize, calls = tf.constant(rng.normal(size=(chains, d))), 0.2, 0

    def more() -> tuple[np.ndarray, float]:
        nonlocal zeta, calls
        calls += 1
        zeta, draws, accepted = run(
            zeta,
            tf.constant(origin),
            tf.constant(root),
            tf.constant(stepsize, tf.float64),
            BLOCK,
            tf.constant([SEED, calls]),
            density.data,
        )
        return draws.numpy(), float(accepted)

    for _ in range(WARM_UPS):
        seen = []
        for _ in range(BLOCKS):
            draws, accepted = more()
            seen.append(draws)
            stepsize = tuned(stepsize, accepted)
        half = np.concatenate(seen[BLOCKS // 2 :]).reshape(-1, d)
        center, before = half.mean(0), origin
        covariance = np.cov(half.T) + 1e-6 * np.eye(d)
        turn = np.linalg.cholesky(covariance)
        origin, root = before + root @ center, root @ turn
        zeta = tf.constant(np.linalg.solve(turn, (zeta.numpy() - center).T).T)
    for _ in range(3):
        _, accepted = more()
        stepsize = tuned(stepsize, accepted)
    # Trajectories of a few posterior SDs, whatever the stepsize that accepts.
    run = sampler(
        density, int(np.clip(np.ceil(LARGEST * STEPS / stepsize), STEPS, MOST_STEPS))
    )
    kept: list[np.ndarray] = []  # unconstrained
    for _ in range(ROUNDS):
        draws = np.concatenate([more()[0] for _ in range(ROUND)])
        kept.append(np.swapaxes(origin + draws @ root.T, 0, 1))
        found = moments(np.concatenate(kept, 1))
        if min(found.ess) >= enough and max(found.rhat) <= RHAT:
            break
    params = density.params(tf.constant(np.concatenate(kept, 1)))
    return {name: value.numpy() for name, value in params.items()}


def make(name: str) -> dict[str, Any]:
    """Return the reference of a posterior, as it is written to the file."""
    posterior, began = POSTERIORS[name](), time.perf_counter()
    other, turned = posterior.like or (name, dict)
    params = turned(sample(Density(POSTERIORS[other]())))
    flat = [np.reshape(value, (*value.shape[:2], -1)) for value in params.values()]
    draws = np.concatenate(flat, 2)
    found = moments(draws)
    return {
        **found.rounded(),
        "chains, draws": list(draws.shape[:2]),
        "seconds": round(time.perf_counter() - began, 1),
    }


def read() -> dict[str, Any]:
    """Return the references that there are, by posterior."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="posteriors to make anew")
    names = parser.parse_args(arguments).names
    for name in names or [name for name in POSTERIORS if name not in read()]:
        made = make(name)
        FILE.write_text(_text({**read(), name: made}))
        print(
            f"{name}: ESS {min(made['ess']):.0f}, R-hat {max(made['rhat']):.4f}, "
            f"{made['chains, draws']}, {made['seconds']} s",
            flush=True,
        )


def _text(references: Mapping[str, Any]) -> str:
    """Return the file: a line for each list, so that changes can be read."""
    lines = [
        json.dumps(name)
        + ": {"
        + ",\n  ".join(f'"{k}": {json.dumps(v)}' for k, v in made.items())
        for name, made in sorted(references.items())
    ]
    return "{\n" + "},\n".join(lines) + "}\n}\n"


if __name__ == "__main__":
    main()
