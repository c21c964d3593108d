"""Posteriors of joint distributions against NUTS of TensorFlow Probability on the same."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tests.bridges.test_joint import CASES, Case, made


def by_nuts(case: Case) -> dict[str, np.ndarray]:
    """Return draws (draw, chain, ...) of windowed adaptive NUTS, which knows no rows."""
    joint = case.joint
    if case.data is not None:
        joint = joint({name: tf.constant(values) for name, values in case.data.items()})
    if (
        type(joint) is tfp.distributions.JointDistributionNamed
    ):  # which need not know of chains
        joint = tfp.distributions.JointDistributionNamedAutoBatched(joint.model)
    kinds = joint.dtype
    names = (
        sorted(kinds) if isinstance(kinds, dict)
        else getattr(kinds, "_fields", None) or [name for name, _ in joint.resolve_graph()]
    )  # fmt: skip
    dtypes = dict(zip(names, tf.nest.flatten(kinds), strict=True))
    pins = {
        name: tf.constant(values, dtypes[name])
        for name, values in case.observed.items()
    }

    @tf.function(jit_compile=False, autograph=False)
    def run() -> Any:
        return tfp.experimental.mcmc.windowed_adaptive_nuts(
            1000, joint, n_chains=8, num_adaptation_steps=1000, seed=[0, 1],
            discard_tuning=True, **pins,
        )  # fmt: skip

    draws, _ = run()
    free = [name for name in names if name not in case.observed]
    return dict(zip(free, map(np.asarray, tf.nest.flatten(draws)), strict=True))


def effective(draws: np.ndarray) -> np.ndarray:
    """Return the effective sample size of each component of draws (draw, chain, ...)."""
    found = tfp.mcmc.effective_sample_size(
        draws.astype(np.float64), filter_beyond_positive_pairs=True, cross_chain_dims=1
    )
    return np.maximum(np.asarray(found), 10.0)


@pytest.mark.slow
@pytest.mark.parametrize("of", CASES, ids=lambda of: of.__name__)
def test_posteriors_are_those_of_nuts(of: Callable[[], Case]) -> None:
    """Means within 0.1 SD and SDs within 5 %, the accuracy that `sample` promises, and 4.5 SE."""
    case = of()
    reference = by_nuts(case)
    samples = made(case).sample(seed=1, ess=1000, verbose=False)
    for name, draws in samples.items():
        theirs = reference[name]
        sd = theirs.std((0, 1))
        moved = np.moveaxis(draws, 0, 1)
        for power, allowed in ((1, 0.1), (2, 0.1)):
            ours_p, theirs_p = (
                ((a - theirs.mean((0, 1))) / sd) ** power for a in (moved, theirs)
            )  # fmt: skip
            error = np.sqrt(
                ours_p.var((0, 1)) / effective(ours_p)
                + theirs_p.var((0, 1)) / effective(theirs_p)
            )
            gap = np.abs(ours_p.mean((0, 1)) - theirs_p.mean((0, 1)))
            assert (gap < allowed + 4.5 * error).all(), (name, power, gap, error)
