"""The functions of the user's loop: start a session, step it, read the state."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from sgmcmc.checks import describe, flag, whole_number
from sgmcmc.engine.runner import Diverged
from sgmcmc.interrupts import passed_on
from sgmcmc.run.driver import divergence, search
from sgmcmc.run.stepwise.sampler import Session, StepwiseSampler, restored


def init_sess(
    sampler: StepwiseSampler,
    verbose: bool = True,
    *,
    restore: str | os.PathLike[str] | None = None,
) -> Session:
    """Start a run of a sampler that was set up.

    For the control variate methods the mode is found and the full gradient computed there.

    Args:
        sampler: Sampler, as a ``*_setup`` function returns it.
        verbose: Whether to show the progress of mode-finding.
        restore: File that :meth:`Session.save` wrote, to resume it bit for bit. A sampler that was
            set up without a seed continues with the seed of that session.

    Returns:
        The session.

    Raises:
        ValueError: The file was written by a session of another sampler, or by none.
        DivergenceError: Mode-finding became NaN or infinite.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> sampler = sgmcmc.sgld_setup(log_lik, {"x": np.zeros(100)}, {"theta": 0.0}, 1e-3, seed=1)
        >>> sess = sgmcmc.init_sess(sampler)
        >>> sgmcmc.sgmcmc_step(sampler, sess, n_steps=10)
        >>> sgmcmc.get_params(sampler, sess)["theta"].shape
        ()

    Source:
        Thesis 4.5.2.
    """
    _need_sampler(sampler)
    verbose = flag("verbose", verbose)
    with passed_on():
        if restore is not None:
            return restored(sampler, Path(restore))
        inner = sampler._sampler
        session = Session(inner, search(inner, verbose and sampler._verbose))
        sampler._show_modes(session._modes())
        sampler._show(sampler._split(inner, session._positions()))
    return session


def sgmcmc_step(sampler: StepwiseSampler, sess: Session, n_steps: int = 1) -> None:
    """Run some more iterations of a session, in as few compiled calls as there are blocks.

    Afterward ``sampler.params`` is the new state.

    Args:
        sampler: Sampler, as a ``*_setup`` function returns it.
        sess: Session.
        n_steps: Number of iterations to run.

    Returns:
        Nothing: The session and ``sampler.params`` are updated in place.

    Raises:
        DivergenceError: A chain became NaN or infinite.
        ValueError: The session belongs to another sampler.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> sampler = sgmcmc.sgld_setup(log_lik, {"x": np.zeros(100)}, {"theta": 0.0}, 1e-3, seed=1)
        >>> sess = sgmcmc.init_sess(sampler)
        >>> mean = 0.0
        >>> for i in range(20):
        ...     sgmcmc.sgmcmc_step(sampler, sess)
        ...     mean += float(sampler.params["theta"]) / 20
        >>> abs(mean) < 1.0
        True

    Source:
        Thesis 4.5.2.
    """
    _need_session(sampler, sess)
    n_steps = whole_number("n_steps", n_steps, 1)
    try:
        sess._step(n_steps)
    except Diverged as diverged:
        raise divergence(diverged, sampler._sampler.chain.argument, None) from None
    sampler._show(sess._params())


def get_params(sampler: StepwiseSampler, sess: Session) -> dict[str, np.ndarray]:
    """Return the present state of a session, in the user's space.

    Args:
        sampler: Sampler, as a ``*_setup`` function returns it.
        sess: Session.

    Returns:
        Dict of NumPy arrays, of the parameters' shapes, with a leading chain axis if ``n_chains``
        was given.

    Raises:
        ValueError: The session belongs to another sampler.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> sampler = sgmcmc.sgld_setup(log_lik, {"x": np.zeros(100)}, {"theta": 2.0}, 1e-3, seed=1)
        >>> sgmcmc.get_params(sampler, sgmcmc.init_sess(sampler))
        {'theta': array(2., dtype=float32)}

    Source:
        Thesis 4.5.2.
    """
    _need_session(sampler, sess)
    values = sampler._split(sess._sampler, sess._positions())
    return {name: np.array(value) for name, value in values.items()}


def _need_sampler(sampler: Any) -> None:
    if not isinstance(sampler, StepwiseSampler):
        raise TypeError(
            "`sampler` must be what a setup function, such as sgld_setup, returned; it is "
            f"{describe(sampler)}."
        )


def _need_session(sampler: Any, sess: Any) -> None:
    _need_sampler(sampler)
    if not isinstance(sess, Session):
        raise TypeError(
            f"`sess` must be what init_sess returned; it is {describe(sess)}."
        )
    if sess._sampler is not sampler._sampler:
        raise ValueError(
            "`sess` belongs to another sampler: make it with init_sess(sampler)."
        )
