"""Step by step: the user writes the loop, and each step is the same compiled chain.

A :class:`StepwiseSampler` is what was set up, a :class:`Session` is one run of it: R's package
has the same two.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.assembly import Modes, chain_tracks
from sgmcmc.driver import divergence, find_modes, flat_seen, with_seed
from sgmcmc.identity import difference, identify
from sgmcmc.inputs.numbers import describe, flag, whole_number
from sgmcmc.layout import Layout
from sgmcmc.sampler import Sampler
from sgmcmc.track import Diverged, Track
from sgmcmc.whole_files import read_arrays, write_arrays
from sgmcmc.workers import core_to_spare

_FORMAT = 1
_MOST_ITERATIONS = 2**31 - 1


class StepwiseSampler:
    """A sampler that is set up to be run step by step, as the ``*_setup`` functions return it.

    Its tuning constants are attributes too, under the names of the arguments (``stepsize``,
    ``alpha``, ``L``, ``a``, ``opt_stepsize``).

    Args:
        sampler: the sampler, checked and put together.
        n_iters_opt: iterations of mode-finding.
        verbose: show its progress.

    Attributes:
        params: the present state of the session stepped last, in the user's space: a dict of
            ``tf.Variable``, with a leading chain axis where ``n_chains`` was given. Reading it,
            or handing it to ``log_lik``, is what it is for; assigning to it changes no chain.
        params_opt: for the control variate methods, the mode θ̂: a dict of NumPy arrays, or
            ``None`` before ``init_sess`` has found it.
        log_post_opt_grad: the gradient of the log posterior there over the whole dataset, in the
            space the chain moves in, or ``None`` before.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> sampler = sgmcmc.sgld_setup(log_lik, {"x": np.zeros(100)}, {"theta": 0.0}, 1e-3, seed=1)
        >>> sampler.N, sampler.n, sampler.stepsize
        (100, 1, 0.001)
    """

    def __init__(self, sampler: Sampler, n_iters_opt: int, verbose: bool) -> None:
        self._sampler = sampler
        self._n_iters_opt = n_iters_opt
        self._verbose = verbose
        self.params_opt: dict[str, np.ndarray] | None = None
        self.log_post_opt_grad: dict[str, np.ndarray] | None = None
        self.__dict__.update(sampler.tuning)
        self.params = {
            name: tf.Variable(value, name=name, trainable=False)
            for name, value in self._split(sampler, sampler.starts).items()
        }

    @property
    def N(self) -> int:
        """The number of observations."""
        return self._sampler.data.size

    @property
    def n(self) -> int:
        """The number of observations in a minibatch."""
        return self._sampler.minibatches.size

    @property
    def data(self) -> Mapping[str, Any]:
        """The dataset, as it was handed over."""
        return self._sampler.target.dataset

    @property
    def log_lik(self) -> Any:
        """The user's log-likelihood."""
        return self._sampler.target.log_lik

    @property
    def log_prior(self) -> Any:
        """The user's log-prior, or ``None``."""
        return self._sampler.target.log_prior

    def est_log_post(self, minibatch: Mapping[str, Any]) -> tf.Tensor:
        """Return log_prior(params) + (N/n) log_lik(params, minibatch) at the present state.

        n is the number of observations in ``minibatch``, whatever the chain uses.

        Args:
            minibatch: dict of arrays or tensors that share their first axis.

        Returns:
            A scalar tensor.
        """
        sampler = self._sampler
        tensors = {
            name: value
            if tf.is_tensor(value)
            else tf.constant(np.asarray(value), sampler.data.columns[name].dtype)
            for name, value in minibatch.items()
        }
        params = {name: tf.convert_to_tensor(value) for name, value in self.params.items()}
        rows = next(iter(tensors.values())).shape[0]
        value = sampler.data.size / rows * sampler.target.log_lik(params, tensors)
        if sampler.target.log_prior is not None:
            value += sampler.target.log_prior(params)
        return value

    def __repr__(self) -> str:
        sampler = self._sampler
        shapes = ", ".join(f"{k} {tuple(v.shape)}" for k, v in self.params.items())
        return f"{sampler.method}_setup: N = {self.N}, n = {self.n}; {shapes}"

    def _split(self, sampler: Sampler, positions: list[np.ndarray]) -> dict[str, np.ndarray]:
        """Return flat unconstrained positions, one for each chain, in the user's space."""
        return self._user(sampler.model.user_layout, flat_seen(sampler.model, positions))

    def _user(self, layout: Layout, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return a row for each chain as the arrays that the user sees."""
        return layout.split(rows[0] if self._sampler.options.n_chains is None else rows)

    def _show(self, positions: list[np.ndarray]) -> None:
        """Let ``params`` be what the session stepped last has come to."""
        # `assign` checks what is sure here, and takes five times as long.
        for name, value in self._split(self._sampler, positions).items():
            tf.raw_ops.AssignVariableOp(resource=self.params[name].handle, value=value)

    def _show_modes(self, modes: Modes) -> None:
        model = self._sampler.model
        self.params_opt = self._split(self._sampler, modes.positions)
        self.log_post_opt_grad = self._user(model.layout, np.stack(modes.gradients))


class Session:
    """A run of a :class:`StepwiseSampler`, made by :func:`init_sess`.

    Args:
        sampler: what the session runs.
        modes: where the control variates are centred, or ``None``.

    Attributes:
        iteration: iterations run so far.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> sampler = sgmcmc.sgld_setup(log_lik, {"x": np.zeros(100)}, {"theta": 0.0}, 1e-3, seed=1)
        >>> sess = sgmcmc.init_sess(sampler)
        >>> sgmcmc.sgmcmc_step(sampler, sess, n_steps=30)
        >>> sess.iteration
        30
    """

    def __init__(self, sampler: Sampler, modes: Modes | None) -> None:
        self._sampler = sampler
        self._modes = modes
        rows: list[dict[str, Any]] = [{} for _ in sampler.starts]
        self._tracks = chain_tracks(sampler, modes, _MOST_ITERATIONS, rows)
        if core_to_spare(len(self._tracks)):
            ahead = ThreadPoolExecutor(1, "sgmcmc-feed")
            weakref.finalize(self, ahead.shutdown, wait=False)
            for track in self._tracks:
                track.prepare_on(ahead)

    @property
    def iteration(self) -> int:
        """Iterations run so far."""
        return self._tracks[0].iteration

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write where the session is to a file; ``init_sess`` goes on from it bit for bit.

        The file appears under its name only once it is whole; one that was there is replaced.

        Args:
            path: the file to write.

        Raises:
            OSError: the file cannot be written; what was there stays as it was.
        """
        about = {"format": _FORMAT, "identity": identify(self._sampler)}
        arrays = {"about": np.array(json.dumps(about))}
        for number, track in enumerate(self._tracks):
            arrays |= {f"{number}/{name}": value for name, value in track.snapshot().items()}
        if self._modes is not None:
            arrays["modes"], arrays["mode_gradients"] = (np.stack(part) for part in self._modes)
        write_arrays(Path(path), arrays)

    def _step(self, n_steps: int) -> None:
        for track in self._tracks:
            end = track.iteration + n_steps
            while track.iteration < end:
                track.advance(end - track.iteration)

    def _positions(self) -> list[np.ndarray]:
        return [track.position() for track in self._tracks]


def init_sess(
    sampler: StepwiseSampler,
    verbose: bool = True,
    *,
    restore: str | os.PathLike[str] | None = None,
) -> Session:
    """Start a run of a sampler that was set up.

    For the control variate methods the mode is found and the full gradient taken there.

    Args:
        sampler: what a ``*_setup`` function returned.
        verbose: show the progress of mode-finding.
        restore: a file that :meth:`Session.save` wrote, to go on from there bit for bit. A sampler
            that was set up without a seed takes over the seed of that session.

    Returns:
        The session.

    Raises:
        ValueError: the file was written by a session of another sampler, or by none.
        DivergenceError: mode-finding became NaN or infinite.

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
    if restore is not None:
        return _restored(sampler, Path(restore))
    inner, modes = sampler._sampler, None
    if inner.opt_stepsizes is not None:
        shown = verbose and sampler._verbose
        modes = find_modes(inner, inner.opt_stepsizes, sampler._n_iters_opt, shown)
        sampler._show_modes(modes)
    session = Session(inner, modes)
    sampler._show(session._positions())
    return session


def sgmcmc_step(sampler: StepwiseSampler, sess: Session, n_steps: int = 1) -> None:
    """Take a session some iterations further, in as few compiled calls as there are blocks.

    Afterwards ``sampler.params`` is the new state.

    Args:
        sampler: what a ``*_setup`` function returned.
        sess: the session.
        n_steps: iterations to run.

    Returns:
        Nothing: the session and ``sampler.params`` have moved on.

    Raises:
        DivergenceError: a chain became NaN or infinite.
        ValueError: the session belongs to another sampler.

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
        raise divergence(diverged, "stepsize", None) from None
    sampler._show(sess._positions())


def get_params(sampler: StepwiseSampler, sess: Session) -> dict[str, np.ndarray]:
    """Return the present state of a session, in the user's space.

    Args:
        sampler: what a ``*_setup`` function returned.
        sess: the session.

    Returns:
        Dict of NumPy arrays, of the parameters' shapes, with a leading chain axis where
        ``n_chains`` was given.

    Raises:
        ValueError: the session belongs to another sampler.

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


def _restored(sampler: StepwiseSampler, path: Path) -> Session:
    """Return the session that a file tells of."""
    inner = sampler._sampler
    try:
        arrays = read_arrays(path)
        about = json.loads(str(arrays["about"]))
        if about["format"] != _FORMAT:
            raise ValueError(f"its format is {about['format']}, this version's is {_FORMAT}")
        identity = about["identity"]
    except OSError:
        raise
    except Exception as error:
        raise ValueError(
            f"`restore`: {str(path)!r} is not a file that Session.save wrote, or not whole: {error}"
        ) from error
    if not inner.seed_given:
        inner = sampler._sampler = with_seed(inner, identity["seed"])
    found = difference(identity, identify(inner))
    if found is not None:
        raise ValueError(f"`restore`: {str(path)!r} is of another sampler: {found}.")
    modes = None
    if "modes" in arrays:
        modes = Modes(list(arrays["modes"]), list(arrays["mode_gradients"]))
        sampler._show_modes(modes)
    session = Session(inner, modes)
    for number, track in enumerate(session._tracks):
        _restore_track(track, arrays, f"{number}/")
    sampler._show(session._positions())
    return session


def _restore_track(track: Track, arrays: Mapping[str, np.ndarray], start: str) -> None:
    track.restore(
        {name[len(start) :]: value for name, value in arrays.items() if name.startswith(start)}
    )


def _need_sampler(sampler: Any) -> None:
    if not isinstance(sampler, StepwiseSampler):
        raise TypeError(
            "`sampler` must be what a setup function, such as sgld_setup, returned; it is "
            f"{describe(sampler)}."
        )


def _need_session(sampler: Any, sess: Any) -> None:
    _need_sampler(sampler)
    if not isinstance(sess, Session):
        raise TypeError(f"`sess` must be what init_sess returned; it is {describe(sess)}.")
    if sess._sampler is not sampler._sampler:
        raise ValueError("`sess` belongs to another sampler: make it with init_sess(sampler).")
