"""A session: one run of a sampler, which can be saved and gone on with."""

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

from sgmcmc import cores
from sgmcmc.assembly import Modes, chain_tracks
from sgmcmc.driver import with_seed
from sgmcmc.identity import difference, identify
from sgmcmc.sampler import Sampler
from sgmcmc.stepwise.sampler import StepwiseSampler
from sgmcmc.track import Track
from sgmcmc.whole_files import read_arrays, write_arrays

_FORMAT = 1
_MOST_ITERATIONS = 2**31 - 1


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
        self._compiled = False
        if cores.to_spare(len(self._tracks)):
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
        if not self._compiled:
            # They all run the same chain.
            self._tracks[0].compile()
            self._compiled = True
        for track in self._tracks:
            end = track.iteration + n_steps
            while track.iteration < end:
                track.advance(end - track.iteration)

    def _positions(self) -> list[np.ndarray]:
        return [track.position() for track in self._tracks]

    def _shown(self) -> Mapping[str, tf.Tensor]:
        """Return the user's parameters after a step, as the chains themselves gave them."""
        shown = [track.shown for track in self._tracks]
        if self._sampler.options.n_chains is None:
            return shown[0]
        return {name: tf.stack([each[name] for each in shown]) for name in shown[0]}


def restored(sampler: StepwiseSampler, path: Path) -> Session:
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
    sampler._show(sampler._split(inner, session._positions()))
    return session


def _restore_track(track: Track, arrays: Mapping[str, np.ndarray], start: str) -> None:
    track.restore(
        {name[len(start) :]: value for name, value in arrays.items() if name.startswith(start)}
    )
