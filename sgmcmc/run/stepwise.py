"""Step by step: the user writes the loop, and each step is the same compiled chain.

A :class:`StepwiseSampler` is what was set up, a :class:`Session` is one run of it: R's package
has the same two.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.atomic_files import KEPT, explained, read_arrays, write_arrays
from sgmcmc.checks import describe, flag, whole_number
from sgmcmc.data.levels import Levels
from sgmcmc.data.reading import read_dataset
from sgmcmc.engine.prefetcher import core_to_spare
from sgmcmc.engine.runner import Diverged
from sgmcmc.interrupts import passed_on
from sgmcmc.model.layout import Layout
from sgmcmc.results.report import html_page, html_table
from sgmcmc.results.schema import difference
from sgmcmc.run.builder import PhaseRun, RunOutput, make_runners
from sgmcmc.run.chain_executors import ThreadExecutor
from sgmcmc.run.checkpoints import constrained, fingerprint, modes
from sgmcmc.run.driver import divergence, search, whole_by_chain, with_seed
from sgmcmc.run.sampler import Sampler

_FORMAT = 3  # of the files of sessions


class StepwiseSampler:
    """A sampler that is set up to be run step by step, as the ``*_setup`` functions return it.

    Its tuning constants are attributes too, under the names of the arguments (``stepsize``,
    ``alpha``, ``L``, ``a``, ``opt_stepsize``).

    Args:
        sampler: Sampler, checked and assembled.
        verbose: Whether to show the progress of the phases that ``init_sess`` runs first.

    Attributes:
        params: Present state of the session that was stepped last, in the user's space: a dict of
            ``tf.Variable``, with a leading chain axis if ``n_chains`` was given. Read it, or pass
            it to ``log_lik``; assigning to it changes no chain.
        params_opt: Mode θ̂, for the control variate methods: a dict of NumPy arrays, or ``None``
            before ``init_sess`` has found it.
        log_post_opt_grad: Gradient of the log posterior there over the whole dataset, in the space
            in which the chain moves, or ``None`` before.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> sampler = sgmcmc.sgld_setup(log_lik, {"x": np.zeros(100)}, {"theta": 0.0}, 1e-3, seed=1)
        >>> sampler.N, sampler.n, sampler.stepsize
        (100, 1, 0.001)
    """

    def __init__(self, sampler: Sampler, verbose: bool) -> None:
        self._sampler = sampler
        self._verbose = verbose
        self.params_opt: dict[str, np.ndarray] | None = None
        self.log_post_opt_grad: dict[str, np.ndarray] | None = None
        self.__dict__.update(
            {
                name: value
                for name, value in sampler.tuning.items()
                if name != "n_iters_opt"
            }
        )
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
        return self._sampler.draws.size

    @property
    def data(self) -> Mapping[str, Any]:
        """The dataset, as it was given; with groups, the packs that hold their rows."""
        return self._sampler.request.dataset

    @property
    def log_lik(self) -> Any:
        """The user's log-likelihood; with groups, the integral over their effects, by pack."""
        return self._sampler.request.log_lik

    @property
    def log_prior(self) -> Any:
        """The user's log-prior, or ``None``."""
        return self._sampler.request.log_prior

    def est_log_post(
        self, minibatch: Mapping[str, Any], params: Mapping[str, Any] | None = None
    ) -> tf.Tensor:
        """Return log_prior(params) + (N/n) log_lik(params, minibatch) at the present state.

        n is the number of observations in ``minibatch``, whatever the chain uses. Priors that come
        with a parameter's space, such as Σ alpha log ω of a Dirichlet, are added.

        Args:
            minibatch: Dict of arrays or tensors that share their first axis; with the latent
                variables, if ``log_lik`` uses any.
            params: Parameters, instead of the present state; a dict of arrays or tensors.

        Returns:
            A scalar tensor.
        """
        sampler, tensors = self._sampler, self.columns_of(minibatch)
        params = {
            name: tf.convert_to_tensor(value, sampler.target.dtype)
            for name, value in (self.params if params is None else params).items()
        }
        rows = next(iter(tensors.values())).shape[0]
        likelihood = tf.reduce_sum(sampler.target.log_lik(params, tensors))
        value = sampler.data.size / rows * likelihood
        if sampler.target.log_prior is not None:
            value += sampler.target.log_prior(params)
        return tf.add_n([value, *sampler.target.space.log_prior_of(params)])

    def columns_of(self, minibatch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return the arrays of a minibatch as tensors, of the dtypes that the dataset has."""
        data = self._sampler.data
        tensors = {}
        for name, value in minibatch.items():
            column = data.columns.get(name)
            if name in data.levels:
                tensors[name] = _coded(name, value, data.levels)
            elif tf.is_tensor(value):
                tensors[name] = value
            elif column is not None and column.sparse:
                tensors[name] = read_dataset(
                    {name: value}, tf.as_dtype(column.dtype)
                ).whole[name]
            else:
                dtype = None if column is None else column.dtype
                tensors[name] = tf.constant(np.asarray(value), dtype)
        return tensors

    def __repr__(self) -> str:
        sampler = self._sampler
        shapes = ", ".join(f"{k} {tuple(v.shape)}" for k, v in self.params.items())
        return f"{sampler.request.function}: N = {self.N}, n = {self.n}; {shapes}"

    def _repr_html_(self) -> str:
        facts = {
            "observations": self.N,
            "in a minibatch": self.n,
            **self._sampler.tuning,
        }
        return html_page(
            self._sampler.request.function,
            html_table(
                ["parameter", "shape"],
                [(k, str(tuple(v.shape))) for k, v in self.params.items()],
            ),
            html_table(
                ["constant", ""], [(name, str(value)) for name, value in facts.items()]
            ),
        )

    def _split(
        self, sampler: Sampler, positions: list[np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Return flat unconstrained positions, one for each chain, in the user's space."""
        space = sampler.target.space
        return self._user(space.user_layout, constrained(space, positions))

    def _user(self, layout: Layout, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return a row for each chain as the arrays that the user sees."""
        return layout.split(rows[0] if self._sampler.options.n_chains is None else rows)

    def _show(self, params: Mapping[str, Any]) -> None:
        """Let ``params`` show the state of the session stepped last."""
        # `assign` checks what is sure here, and takes five times as long.
        for name, value in params.items():
            tf.raw_ops.AssignVariableOp(resource=self.params[name].handle, value=value)

    def _show_modes(self, modes: Mapping[str, np.ndarray]) -> None:
        """Let ``params_opt`` and ``log_post_opt_grad`` show the modes, if there are any."""
        if modes:
            space = self._sampler.target.space
            self.params_opt = self._user(space.user_layout, modes["modes"])
            self.log_post_opt_grad = self._user(space.score_layout, modes["gradients"])


def _coded(name: str, values: Any, levels: Mapping[str, Levels]) -> tf.Tensor:
    if tf.is_tensor(values) and not hasattr(values, "numpy"):
        raise ValueError(
            f"`minibatch[{name!r}]` is a tensor of a graph, whose levels cannot be looked up. Pass "
            "the levels as an array, outside of tf.function."
        )
    levels_of_column = {name: levels[name]}
    return read_dataset({name: values}, tf.float32, levels=levels_of_column).whole[name]


class Session:
    """A run of a :class:`StepwiseSampler`, made by :func:`init_sess`.

    Args:
        sampler: Sampler that the session runs.
        starts: Starting positions of its chains, flat.
        found: Full gradients that an earlier session computed, with their ``positions``.

    Attributes:
        iteration: Number of iterations run so far.
        by_hand: Number of iterations on minibatches that the user passed, counted separately.
        graphs: Graphs of such iterations.

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

    def __init__(
        self,
        sampler: Sampler,
        starts: Sequence[np.ndarray],
        found: dict[str, np.ndarray] | None = None,
    ) -> None:
        self._sampler = sampler
        self._starts = starts
        self.by_hand = 0
        self.graphs: dict[Any, Any] = {}
        max_iterations = 2**31 - 1  # an int32 of the compiled chain
        self._runners = make_runners(
            PhaseRun(sampler, sampler.chain, max_iterations),
            starts,
            whole_by_chain(sampler, found),
            RunOutput.nowhere(len(starts)),
            ThreadExecutor(sampler.compiler),
        )
        for runner in self._runners:
            runner.prepare_ahead(core_to_spare(len(self._runners)))

    @property
    def iteration(self) -> int:
        """Iterations run so far."""
        return self._runners[0].iteration

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state of the session to a file; ``init_sess`` resumes it bit for bit.

        The file appears under its name only once it is complete; one that was there is replaced.

        Args:
            path: File to write.

        Raises:
            OSError: The file cannot be written; an existing file is unchanged.
        """
        about = {"format": _FORMAT, "fingerprint": fingerprint(self._sampler)}
        arrays = {"about": np.array(json.dumps(about))}
        for number, runner in enumerate(self._runners):
            arrays |= {
                f"{number}/{name}": value for name, value in runner.snapshot().items()
            }
        arrays |= {"positions": np.stack(self._starts), **self._modes()}
        arrays["by_hand"] = np.array(self.by_hand)
        with explained("path", Path(path), KEPT):
            write_arrays(Path(path), arrays)

    def _step(self, n_steps: int) -> None:
        for runner in self._runners:
            end = runner.iteration + n_steps
            while runner.iteration < end:
                runner.advance(end - runner.iteration)

    def _positions(self) -> list[np.ndarray]:
        return [runner.position() for runner in self._runners]

    def _modes(self) -> dict[str, np.ndarray]:
        return modes(self._runners)

    def _params(self) -> Mapping[str, tf.Tensor]:
        """Return the user's parameters after a step, as the chains themselves gave them."""
        params = [runner.params for runner in self._runners]
        if self._sampler.options.n_chains is None:
            return params[0]
        return {
            name: tf.stack([params_of_chain[name] for params_of_chain in params])
            for name in params[0]
        }


def restored(sampler: StepwiseSampler, path: Path) -> Session:
    """Return the session saved in a file."""
    inner = sampler._sampler
    try:
        arrays = read_arrays(path)
        about = json.loads(str(arrays["about"]))
        if about["format"] != _FORMAT:
            raise ValueError(
                f"its format is {about['format']}, this version's is {_FORMAT}"
            )
        saved = about["fingerprint"]
    except OSError:
        raise
    except Exception as error:
        raise ValueError(
            f"`restore`: {str(path)!r} is not a file that Session.save wrote, or is incomplete: "
            f"{error}"
        ) from error
    if inner.request.seed is None:
        inner = sampler._sampler = with_seed(inner, saved["seed"])
    mismatch = difference(saved, fingerprint(inner))
    if mismatch is not None:
        raise ValueError(f"`restore`: {str(path)!r} is of another sampler: {mismatch}.")
    session = Session(inner, list(arrays["positions"]), arrays)
    sampler._show_modes(session._modes())
    session.by_hand = int(arrays.get("by_hand", 0))
    for number, runner in enumerate(session._runners):
        prefix = f"{number}/"
        runner.restore(
            {
                name.removeprefix(prefix): value
                for name, value in arrays.items()
                if name.startswith(prefix)
            }
        )
    sampler._show(sampler._split(inner, session._positions()))
    return session


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
