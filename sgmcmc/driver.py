"""The driver: runs the chains of a sampler block by block, on the cores that there are.

It feeds blocks in and takes draws out. Chains take turns, a block at a time, on as many threads
as there are cores; with a core to spare the next block is prepared ahead. The main thread only
shows progress and waits, so Ctrl-C reaches it at once, and what has been drawn is returned.
"""

from __future__ import annotations

import os
import queue
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.block import block_length
from sgmcmc.buffers import Pool
from sgmcmc.chain import Chain
from sgmcmc.dynamics import SGD, Dynamics
from sgmcmc.errors import DivergenceError
from sgmcmc.feed import Feed
from sgmcmc.gradients import ControlVariateGradient, MinibatchGradient, full_gradients
from sgmcmc.progress import Progress
from sgmcmc.recorder import DRAWS, GRADIENTS, Recorder
from sgmcmc.sampler import Sampler
from sgmcmc.samples import LogPost, Samples
from sgmcmc.schedules import Stepsizes
from sgmcmc.streams import Phase
from sgmcmc.track import Diverged, Track


class Modes(NamedTuple):
    """The modes that control variates are centred at, one for each chain.

    Attributes:
        positions: θ̂, flat and unconstrained.
        gradients: the gradient of the log posterior there over the whole dataset, flat.
    """

    positions: list[np.ndarray]
    gradients: list[np.ndarray]


def sample(sampler: Sampler, n_iters: int, n_iters_opt: int, verbose: bool) -> Samples:
    """Run a sampler and return its draws.

    Args:
        sampler: the sampler.
        n_iters: iterations after burn-in.
        n_iters_opt: iterations of mode-finding, for the control variate methods.
        verbose: show progress.

    Raises:
        DivergenceError: a chain became NaN or infinite.
    """
    modes = None
    if sampler.opt_stepsizes is not None:
        modes = find_modes(sampler, sampler.opt_stepsizes, n_iters_opt, verbose)
    kept = _room(sampler, n_iters // sampler.options.thin)
    tracks = _chain_tracks(sampler, modes, n_iters, kept)
    try:
        finished = _advance_all(tracks, sampler.method, verbose)
    except Diverged as diverged:
        raise _divergence(diverged, "stepsize", _collect(sampler, tracks, modes, kept)) from None
    if not finished:
        draws = min(track.draws for track in tracks)
        if draws == 0:
            raise KeyboardInterrupt
        warnings.warn(f"Interrupted: the {draws} draws so far are returned.", stacklevel=3)
    return _collect(sampler, tracks, modes, kept)


def find_modes(sampler: Sampler, stepsizes: Stepsizes, n_iters: int, verbose: bool) -> Modes:
    """Find each chain's mode by stochastic gradient ascent, and the full gradient there."""
    positions = sampler.starts
    if n_iters > 0:
        estimator = MinibatchGradient(sampler.model, _scale(sampler))
        chain = _make_chain(sampler, SGD(), estimator, Recorder(sampler.model))
        pool = Pool(chain, stepsizes)
        feeds = [
            Feed(
                chain, pool, stepsizes, sampler.seed, number, Phase.MODE, estimator.init(), n_iters
            )
            for number in range(len(positions))
        ]
        tracks = [
            Track(chain, feed, start, {}) for feed, start in zip(feeds, positions, strict=True)
        ]
        try:
            if not _advance_all(tracks, f"{sampler.method}, mode-finding", verbose):
                raise KeyboardInterrupt
        except Diverged as diverged:
            raise _divergence(diverged, "opt_stepsize", None) from None
        positions = [track.position() for track in tracks]
    return Modes(positions, full_gradients(sampler.model, sampler.data, positions))


def _chain_tracks(
    sampler: Sampler, modes: Modes | None, n_iters: int, kept: dict[str, np.ndarray]
) -> list[Track]:
    if modes is None:
        plain = MinibatchGradient(sampler.model, _scale(sampler))
        chain = _make_chain(sampler, sampler.dynamics, plain, sampler.recorder)
        positions: list[np.ndarray] = sampler.starts
        states: list[Any] = [plain.init() for _ in positions]
    else:
        cv = ControlVariateGradient(sampler.model, _scale(sampler))
        chain = _make_chain(sampler, sampler.dynamics, cv, sampler.recorder)
        positions = modes.positions
        states = [cv.init(*map(tf.constant, mode)) for mode in zip(*modes, strict=True)]
    total = sampler.options.burn_in + n_iters
    pool = Pool(chain, sampler.stepsizes)
    tracks = []
    for number, (start, state) in enumerate(zip(positions, states, strict=True)):
        stepsizes, seed = sampler.stepsizes, sampler.seed
        feed = Feed(chain, pool, stepsizes, seed, number, Phase.CHAIN, state, total)
        room = {name: array[number] for name, array in kept.items()}
        tracks.append(Track(chain, feed, start, room))
    return tracks


def _make_chain(sampler: Sampler, dynamics: Dynamics, estimator: Any, recorder: Recorder) -> Chain:
    layout = sampler.model.layout
    length = block_length(sampler.minibatches, dynamics, layout, sampler.model.dtype.size)
    return Chain(
        dynamics,
        estimator,
        sampler.minibatches,
        recorder,
        layout,
        length,
        sampler.compiler,
        length * dynamics.steps // 2
        if estimator.looks_ahead and _core_to_spare(len(sampler.starts))
        else 0,
    )


def _cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _core_to_spare(chains: int) -> bool:
    """Tell whether there are more cores than chains, so that one can prepare blocks ahead."""
    return chains < _cores()


def _scale(sampler: Sampler) -> float:
    return sampler.data.size / sampler.minibatches.size


def _room(sampler: Sampler, draws: int) -> dict[str, np.ndarray]:
    """Return uninitialised arrays for what is kept, chains first, then draws."""
    chains = len(sampler.starts)
    return {
        name: np.empty((chains, draws, *shape), dtype.as_numpy_dtype)
        for name, (shape, dtype) in sampler.recorder.specs().items()
    }


def _advance_all(tracks: list[Track], label: str, verbose: bool) -> bool:
    """Run all tracks to their ends; return ``False`` if Ctrl-C came first."""
    workers = min(len(tracks), _cores())
    spare = _core_to_spare(len(tracks))
    turns: queue.SimpleQueue[Track] = queue.SimpleQueue()
    for track in tracks:
        turns.put(track)
    reports: queue.SimpleQueue[tuple[int, float] | BaseException | None] = queue.SimpleQueue()
    halt = threading.Event()

    def work() -> None:
        try:
            while not halt.is_set():
                try:
                    track = turns.get_nowait()
                except queue.Empty:
                    break
                done = track.advance()
                if not track.finished:
                    turns.put(track)
                reports.put((done, track.log_post[-1][1]))
        except BaseException as error:
            reports.put(error)
        reports.put(None)

    total = sum(track.total for track in tracks)
    with (
        ThreadPoolExecutor(workers, "sgmcmc-chain") as chains,
        ThreadPoolExecutor(workers, "sgmcmc-feed") as ahead,
        Progress(label, total, verbose) as progress,
    ):
        for track in tracks:
            track.prepare_on(ahead if spare else None)
        for _ in range(workers):
            chains.submit(work)
        try:
            return _wait(reports, workers, progress)
        finally:
            halt.set()


def _wait(
    reports: queue.SimpleQueue[tuple[int, float] | BaseException | None],
    workers: int,
    progress: Progress,
) -> bool:
    """Show progress until every worker has ended, and raise the first error that one met."""
    working = workers
    try:
        while working:
            try:
                # Some systems let Ctrl-C through only between waits.
                report = reports.get(timeout=0.5)
            except queue.Empty:
                continue
            if report is None:
                working -= 1
            elif isinstance(report, BaseException):
                raise report
            else:
                progress.advance(*report)
    except KeyboardInterrupt:
        return False
    return True


def _divergence(diverged: Diverged, argument: str, samples: Samples | None) -> DivergenceError:
    first, last = diverged.iterations
    where = "Mode-finding" if samples is None else "The chain"
    kept = "" if samples is None else " The finite draws before that are in `.samples`."
    return DivergenceError(
        f"{where} became NaN or infinite between iterations {first} and {last}, first in the "
        f"parameter {diverged.parameter!r}. Try a smaller `{argument}` for it, or start nearer to "
        f"where the posterior is.{kept}",
        iterations=diverged.iterations,
        parameter=diverged.parameter,
        samples=samples,
    )


def _collect(
    sampler: Sampler, tracks: list[Track], modes: Modes | None, kept: dict[str, np.ndarray]
) -> Samples:
    """Return what all chains have kept so far."""
    single = sampler.options.n_chains is None
    recorder, model = sampler.recorder, sampler.model

    def per_chain(array: np.ndarray) -> np.ndarray:
        return array[0] if single else array

    draws = min(track.draws for track in tracks)
    arrays = {name: per_chain(array[:, :draws]) for name, array in kept.items()}
    length = min(len(track.log_post) for track in tracks)
    log_post = np.array([track.log_post[:length] for track in tracks]).reshape(
        len(tracks), length, 2
    )
    about_mode = {}
    if modes is not None:
        constrained = np.stack([model.flat_user(tf.constant(at)) for at in modes.positions])
        about_mode = {
            "mode": model.user_layout.split(per_chain(constrained)),
            "mode_gradient": model.layout.split(per_chain(np.stack(modes.gradients))),
        }
    return Samples(
        recorder.draw_layout.split(arrays[DRAWS]) if DRAWS in arrays else {},
        log_post=LogPost(log_post[0, :, 0].astype(int), per_chain(log_post[:, :, 1])),
        settings=sampler.settings,
        gradients=(
            recorder.gradient_layout.split(arrays[GRADIENTS]) if GRADIENTS in arrays else None
        ),
        test_functions=(
            {name: arrays["test/" + name] for name in recorder.test_functions}
            if recorder.test_functions
            else None
        ),
        **about_mode,
    )
