"""A session: one run of a sampler, which can be saved and resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.atomic_files import KEPT, explained, read_arrays, write_arrays
from sgmcmc.engine.prefetcher import core_to_spare
from sgmcmc.engine.runner import Runner
from sgmcmc.results.schema import difference
from sgmcmc.run.builder import make_runners
from sgmcmc.run.checkpoints import fingerprint, modes
from sgmcmc.run.crews import Threads
from sgmcmc.run.driver import whole_by_chain, with_seed
from sgmcmc.run.sampler import Sampler
from sgmcmc.run.stepwise.sampler import StepwiseSampler

_FORMAT = 3
_MOST_ITERATIONS = 2**31 - 1


class Session:
    """A run of a :class:`StepwiseSampler`, made by :func:`init_sess`.

    Args:
        sampler: Sampler that the session runs.
        starts: Starting positions of its chains, flat.
        found: Full gradients that an earlier session computed, with their ``positions``.

    Attributes:
        iteration: Number of iterations run so far.
        by_hand: Number of iterations on minibatches that were handed over, counted apart.
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
        nothing: list[dict[str, Any]] = [{} for _ in starts]
        self._runners = make_runners(
            sampler, sampler.chain, starts, whole_by_chain(sampler, found), _MOST_ITERATIONS,
            nothing, lambda runners: None, lambda number, runner: None, Threads(sampler.compiler),
        )  # fmt: skip
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
            arrays |= {f"{number}/{name}": value for name, value in runner.snapshot().items()}
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
        return {name: tf.stack([each[name] for each in params]) for name in params[0]}


def restored(sampler: StepwiseSampler, path: Path) -> Session:
    """Return the session saved in a file."""
    inner = sampler._sampler
    try:
        arrays = read_arrays(path)
        about = json.loads(str(arrays["about"]))
        if about["format"] != _FORMAT:
            raise ValueError(f"its format is {about['format']}, this version's is {_FORMAT}")
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
    different = difference(saved, fingerprint(inner))
    if different is not None:
        raise ValueError(f"`restore`: {str(path)!r} is of another sampler: {different}.")
    session = Session(inner, list(arrays["positions"]), arrays)
    sampler._show_modes(session._modes())
    session.by_hand = int(arrays.get("by_hand", 0))
    for number, runner in enumerate(session._runners):
        _restore_runner(runner, arrays, f"{number}/")
    sampler._show(sampler._split(inner, session._positions()))
    return session


def _restore_runner(runner: Runner, arrays: Mapping[str, np.ndarray], start: str) -> None:
    runner.restore(
        {name[len(start) :]: value for name, value in arrays.items() if name.startswith(start)}
    )
