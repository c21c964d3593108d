"""The driver of a whole run: finds modes, runs the chains, and gives back what they kept."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.assembly import Modes, chain_tracks, mode_tracks, records
from sgmcmc.errors import DivergenceError
from sgmcmc.gradients import full_gradients
from sgmcmc.identity import identify
from sgmcmc.model import Model
from sgmcmc.outline import Outline
from sgmcmc.sampler import Sampler
from sgmcmc.samples import Samples
from sgmcmc.schedules import Stepsizes
from sgmcmc.store import CHAIN, MODE, Checkpoints, Store, read_store
from sgmcmc.track import Diverged, Track
from sgmcmc.workers import advance_all


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
    with contextlib.ExitStack() as stack:
        store = None
        if sampler.options.store is not None:
            store = stack.enter_context(Store(sampler.options.store))
            if not sampler.seed_given and store.seed is not None:
                sampler = with_seed(sampler, store.seed)
        return _Run(sampler, n_iters, n_iters_opt, store).finish(verbose)


def with_seed(sampler: Sampler, seed: int) -> Sampler:
    """Return the same sampler with another seed."""
    return dataclasses.replace(sampler, seed=seed, settings={**sampler.settings, "seed": seed})


class _Run:
    """A run from beginning to end, in memory or on disk."""

    def __init__(
        self, sampler: Sampler, n_iters: int, n_iters_opt: int, store: Store | None
    ) -> None:
        self.sampler = sampler
        self.store = store
        self.n_iters_opt = n_iters_opt
        self.total = sampler.options.burn_in + n_iters
        self.checkpoints = Checkpoints(None if store is None else store.path, CHAIN)
        self.outline = Outline.of(sampler)
        arrays = records(sampler, n_iters // sampler.options.thin, self.total)
        chains = range(len(sampler.starts))
        if store is None:
            self.arrays = {name: np.empty(*record) for name, record in arrays.items()}
            self.rows: list[dict[str, Any]] = [
                {name: array[number] for name, array in self.arrays.items()} for number in chains
            ]
        else:
            lengths = {"n_iters": n_iters}
            if sampler.opt_stepsizes is not None:
                lengths["n_iters_opt"] = n_iters_opt
            store.prepare({**identify(sampler), **lengths}, self.outline, arrays)
            self.rows = [store.rows(number) for number in chains]

    def finish(self, verbose: bool) -> Samples:
        """Run to the end and return what was kept."""
        sampler, modes = self.sampler, None
        if sampler.opt_stepsizes is not None:
            modes = self._modes(sampler.opt_stepsizes, verbose)
        tracks = chain_tracks(sampler, modes, self.total, self.rows, self.checkpoints.save)
        self.checkpoints.resume(tracks)
        try:
            finished = advance_all(tracks, sampler.method, verbose)
        except Diverged as diverged:
            kept = self._collect(tracks, modes)
            raise divergence(diverged, "stepsize", kept) from None
        if not finished:
            draws = min(track.draws for track in tracks)
            if draws == 0:
                raise KeyboardInterrupt
            warnings.warn(f"Interrupted: the {draws} draws so far are returned.", stacklevel=4)
        return self._collect(tracks, modes)

    def _modes(self, stepsizes: Stepsizes, verbose: bool) -> Modes:
        sampler, store = self.sampler, self.store
        if store is None:
            return find_modes(sampler, stepsizes, self.n_iters_opt, verbose)
        found = store.modes()
        if found is None:
            modes = find_modes(sampler, stepsizes, self.n_iters_opt, verbose, store.path)
            positions, gradients = (np.stack(part) for part in modes)
            seen = flat_seen(sampler.model, modes.positions)
            store.save_modes({"positions": positions, "gradients": gradients, "seen": seen})
            return modes
        return Modes(list(found["positions"]), list(found["gradients"]))

    def _collect(self, tracks: list[Track], modes: Modes | None) -> Samples:
        """Return what all chains have kept so far."""
        if self.store is not None:
            self.checkpoints.save_now(tracks)
            return read_store(self.store.path)
        return self.outline.samples(
            self.arrays,
            min(track.draws for track in tracks),
            min(track.blocks for track in tracks),
            None
            if modes is None
            else (flat_seen(self.sampler.model, modes.positions), np.stack(modes.gradients)),
            [track.reductions() for track in tracks],
        )


def find_modes(
    sampler: Sampler,
    stepsizes: Stepsizes,
    n_iters: int,
    verbose: bool,
    folder: Path | None = None,
) -> Modes:
    """Find each chain's mode by stochastic gradient ascent, and the full gradient there.

    Args:
        sampler: the sampler.
        stepsizes: of the ascent.
        n_iters: its iterations; with none the starting values are the modes.
        verbose: show progress.
        folder: of the store, where progress is saved; ``None`` saves none.
    """
    positions = sampler.starts
    if n_iters > 0:
        checkpoints = Checkpoints(folder, MODE)
        tracks = mode_tracks(sampler, stepsizes, n_iters, checkpoints.save)
        checkpoints.resume(tracks)
        try:
            if not advance_all(tracks, f"{sampler.method}, mode-finding", verbose):
                checkpoints.save_now(tracks)
                raise KeyboardInterrupt
        except Diverged as diverged:
            raise divergence(diverged, "opt_stepsize", None) from None
        positions = [track.position() for track in tracks]
    return Modes(
        positions,
        full_gradients(sampler.model, sampler.data, positions, sampler.latents, sampler.seed),
    )


def flat_seen(model: Model, positions: Sequence[np.ndarray]) -> np.ndarray:
    """Return flat unconstrained positions in the user's space, flat, a row for each chain."""
    if model.free:
        return np.stack(positions)
    return np.stack([model.flat_user(tf.constant(at)) for at in positions])


def divergence(diverged: Diverged, argument: str, samples: Samples | None) -> DivergenceError:
    """Return the error that tells of a divergence, and what to do."""
    first, last = diverged.iterations
    where = "Mode-finding" if argument == "opt_stepsize" else "The chain"
    advice = diverged.advice or (
        f"Try a smaller `{argument}` for it, or start nearer to where the posterior is."
    )
    kept = "" if samples is None else " The finite draws before that are in `.samples`."
    return DivergenceError(
        f"{where} became NaN or infinite between iterations {first} and {last}, first in the "
        f"parameter {diverged.parameter!r}. {advice}{kept}",
        iterations=diverged.iterations,
        parameter=diverged.parameter,
        samples=samples,
    )
