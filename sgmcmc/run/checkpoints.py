"""Checkpoints of the runners of a phase, and the comparison of samplers with a stored one."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.atomic_files import read_arrays, write_arrays
from sgmcmc.checks import from_outside
from sgmcmc.data.dataset import digest
from sgmcmc.data.random_numbers import RunPhase
from sgmcmc.engine.kernel import block_length
from sgmcmc.engine.runner import Runner, Snapshot
from sgmcmc.gradients import WholeData
from sgmcmc.minibatches.base import drawn
from sgmcmc.model.geometry import Space
from sgmcmc.results.arrays import Results
from sgmcmc.results.schema import LOG_POST, Schema, most_estimates
from sgmcmc.results.store import CHAIN, REDUCTION, Store, blamed, checkpoint, explained
from sgmcmc.run.builder import chosen_stream, make_kernel
from sgmcmc.run.chain_executors import group_size
from sgmcmc.run.sampler import Sampler

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

# Settings that have no bearing on the draws, or that others determine
_NOT_COMPARED = ("paths", "weights")

SAVE_EVERY = 0.25  # seconds of a chain that a kill may cost

# Size from which on arrays, such as tables with a row for each observation, have files of their
# own, which are written less often.
LARGE_BYTES = 2**20
_LARGE_SHARE = 0.05  # of a chain's time for writing such files, at most

_SLOT = "large"


def fingerprint(sampler: Sampler) -> dict[str, Any]:
    """Return the facts that must be equal, as JSON returns them.

    Functions cannot be compared, but what they return at the starting values can.
    """
    starts = sampler.target.space.layout.split(np.stack(sampler.starts))
    latents = {} if sampler.latents is None else sampler.latents.starts
    settings = {n: v for n, v in sampler.settings.items() if n not in _NOT_COMPARED}
    if settings["groups"] is None:
        del settings["groups"]  # stores without groups need not say so
    facts = {
        **settings,
        "dataset": {
            name: column.digest() for name, column in sampler.data.columns.items()
        },
        "params": {name: _or_digest(array) for name, array in starts.items()},
        "latents": {name: _or_digest(array) for name, array in latents.items()},
        "model": sampler.dry_run,
    }
    # In a group, chains are computed in another order, so that the last digits differ.
    sizes = [group_size(sampler, phase) for phase in sampler.phases]
    if max(sizes) > 1:
        facts["chains_in_a_group"] = sizes
    if from_outside(sampler.draws):
        facts["minibatches_drawn"] = _digests_of_minibatches(sampler)
    for phase in sampler.phases:
        if not phase.stepsizes.constant:
            values = phase.stepsizes.at(1, 3).tolist()
            facts[phase.argument] = [facts[phase.argument], values]
    return json.loads(_ADDRESS.sub("", json.dumps(facts)))


def _digests_of_minibatches(sampler: Sampler) -> dict[str, str]:
    """Return digests of a user's own minibatches: of their arrays, and of the rows they draw.

    What ``to_json`` says of labels or strata may be the same of others.
    """
    draws = sampler.draws
    attributes = {
        **_attributes(sampler.options.minibatches),
        **_attributes(draws),
        "weights": draws.weights,
    }
    digests = {}
    for name, value in attributes.items():
        array = None if value is None or callable(value) else _as_array(value)
        if array is not None and array.dtype.kind in "biufSU":
            digests[name] = digest(array)
    if not draws.every_row:
        rng = np.random.default_rng(0)
        minibatches = max(1, 10_000 // draws.size)  # that they are known by
        rows = drawn(draws, sampler.data.size, rng, minibatches)
        digests["rows"] = digest(rows.astype(np.int64))
    return digests


def _attributes(value: object) -> dict[str, Any]:
    return dict(getattr(value, "__dict__", {}))


def _as_array(value: Any) -> np.ndarray | None:
    try:
        return np.asarray(value)
    except (TypeError, ValueError):  # lists of unequal lengths, and what is no array
        return None


def _or_digest(array: np.ndarray) -> Any:
    """Return a small array as it is, and the digest of a large one."""
    return array.tolist() if array.size <= 64 else digest(array)


class Checkpoints:
    """A small file for each runner, which is replaced whole again and again.

    Large arrays go to one of two other files in turn, and the small file says which: at whatever
    instant a process is killed, the one that it names is whole.

    Args:
        store: Store; ``None`` writes nothing.
        kind: Kind of the phase.
    """

    def __init__(self, store: Store | None, kind: RunPhase) -> None:
        self._store = store
        self._folder = None if store is None else store.path
        self._kind = kind.name.lower()
        self._next: dict[int, float] = {}
        self._slots: dict[int, int] = {}

    def resume(self, runners: Sequence[Runner]) -> None:
        """Set runners to the state in which they were last saved."""
        if self._folder is None:
            return
        for number, runner in enumerate(runners):
            path = checkpoint(self._folder, self._kind, number)
            if path.exists():
                with blamed("store"):
                    state = read_arrays(path)
                    if _SLOT in state:
                        self._slots[number] = slot = int(state[_SLOT])
                        state |= read_arrays(self._large(self._folder, number, slot))
                runner.restore(state)

    def save(self, number: int, runner: Runner) -> None:
        """Save the state of a runner, unless that was done a moment ago."""
        if self._folder is None:
            return
        now = time.monotonic()
        if runner.finished or now >= self._next.setdefault(number, now):
            self._write(self._folder, number, runner)

    def save_now(self, runners: Sequence[Runner]) -> None:
        """Save the states of all runners."""
        if self._folder is None:
            return
        for number, runner in enumerate(runners):
            self._write(self._folder, number, runner)

    def _write(self, folder: Path, number: int, runner: Runner) -> None:
        start = time.monotonic()
        results = Results(runner.reductions()).flat()
        state = runner.snapshot() | {
            REDUCTION + name: value for name, value in results.items()
        }
        # Results of reductions are read from the small file, by those who open the store.
        large = {
            name: array
            for name, array in state.items()
            if array.nbytes >= LARGE_BYTES and not name.startswith(REDUCTION)
        }
        small: Mapping[str, np.ndarray] = {
            n: a for n, a in state.items() if n not in large
        }
        if self._store is not None and self._kind == CHAIN:
            small = {**small, **self._store.checksums(number, state)}
        with explained(folder):
            if large:
                slot = 1 - self._slots.get(number, 0)
                write_arrays(self._large(folder, number, slot), large)
                small = {**small, _SLOT: np.array(slot)}
                self._slots[number] = slot
            write_arrays(checkpoint(folder, self._kind, number), small)
        now = time.monotonic()
        pause = (now - start) / _LARGE_SHARE if large else 0.0
        self._next[number] = now + max(SAVE_EVERY, pause)

    def _large(self, folder: Path, number: int, slot: int) -> Path:
        return checkpoint(folder, self._kind, f"{number}-{_SLOT}-{slot}")


@dataclass(frozen=True)
class Ending:
    """The end of the chains of a run in memory.

    Attributes:
        starts: Position of each chain after the phases before it, flat.
        modes: Positions at which gradient estimates stay centered, and the gradients there, for
            each chain that has one.
        states: States of the chains.
        arrays: Draws kept so far, by record, chains first.
    """

    starts: list[np.ndarray]
    modes: list[tuple[np.ndarray, np.ndarray]]
    states: list[Snapshot]
    arrays: Mapping[str, np.ndarray]

    @classmethod
    def of(
        cls,
        starts: Sequence[np.ndarray],
        runners: Sequence[Runner],
        arrays: Mapping[str, np.ndarray],
    ) -> Ending:
        """Return the present states of these runners."""
        modes = [
            (np.asarray(position), np.asarray(gradient))
            for position, gradient in (r.mode for r in runners if r.mode is not None)
        ]
        return cls(
            list(starts), modes, [runner.snapshot() for runner in runners], dict(arrays)
        )

    def remind(self, whole: Sequence[WholeData]) -> None:
        """Keep the gradients over the whole dataset that were computed before."""
        if self.modes:
            for whole_of_chain, mode in zip(whole, self.modes, strict=True):
                whole_of_chain.remember(*mode)

    def copy_to(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy the draws to larger arrays."""
        draws = max(int(state["draws"]) for state in self.states)
        for name, old in self.arrays.items():
            if name != LOG_POST:
                arrays[name][:, :draws] = old[:, :draws]

    def resume(
        self, runners: Sequence[Runner], arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Set runners, and the arrays they write to, to the state of the chains."""
        self.copy_to(arrays)
        for runner, state, old, new in zip(
            runners, self.states, self.arrays[LOG_POST], arrays[LOG_POST], strict=True
        ):
            runner.restore(state)
            # Estimates at ends that a longer run would not have had.
            rows_kept = [
                row for row in old[: runner.blocks] if runner.stops_at(int(row[0]))
            ]
            new[: len(rows_kept)] = np.reshape(rows_kept, (-1, 2))
            runner.blocks = len(rows_kept)


def modes(runners: Sequence[Runner]) -> dict[str, np.ndarray]:
    """Return the chains' modes as the user sees them, and the gradients there, if they have any.

    The ``gradients`` are those with respect to the unconstrained parameters, the ``slopes`` what
    the gradient estimate adds to in the coordinates of the chain.
    """
    chain_modes = [runner.mode for runner in runners if runner.mode is not None]
    if not chain_modes:
        return {}
    space = runners[0].recorder.target.space
    return {
        "modes": constrained(space, [position for position, _ in chain_modes]),
        "gradients": np.stack([np.asarray(space.score(*pair)) for pair in chain_modes]),
        "slopes": np.stack([np.asarray(gradient) for _, gradient in chain_modes]),
    }


def constrained(space: Space, positions: Sequence[Any]) -> np.ndarray:
    """Return flat positions as the user sees them, flat, a row for each chain."""
    return np.stack([space.flat_user(tf.constant(position)) for position in positions])


def schema_of(sampler: Sampler) -> Schema:
    """Return the schema of the arrays of a sampler's runs."""
    recorder, space = sampler.chain.recorder, sampler.target.space
    assert recorder is not None
    stream = chosen_stream(sampler, sampler.chain)
    size = group_size(sampler, sampler.chain)
    length = block_length(stream, sampler.chain.dynamics, sampler.target)
    every = sampler.chain.gradient.refresh_every(sampler.whole())
    chains = "one by one" if size == 1 else f"in groups of {size}"
    paths = {**sampler.settings["paths"], "minibatches": stream.path, "chains": chains}
    return Schema(
        {**sampler.settings, "paths": paths},
        sampler.options.n_chains is not None,
        dict(space.user_layout.shapes),
        dict(space.score_layout.shapes),
        recorder.stored,
        recorder.with_gradients,
        tuple(recorder.test_functions),
        recorder.unnormalized,
        (length,) if every is None else (length, every),
    )


def record_specs(
    sampler: Sampler, draws: int, total: int, stops: int = 0
) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Return shape, chains first, and dtype of each array that the chains write to.

    Args:
        sampler: Sampler.
        draws: Number of draws that each chain keeps.
        total: Number of iterations of each chain.
        stops: Number of times that the chains may be stopped on the way, and then be made longer.
    """
    kernel = make_kernel(sampler, sampler.chain)
    chains = len(sampler.starts)
    every = sampler.chain.gradient.refresh_every(sampler.whole()) or total
    blocks = -(-total // kernel.length) + total // every + most_estimates(total) + stops
    return {
        **{
            name: ((chains, draws, *shape), np.dtype(dtype.as_numpy_dtype))
            for name, (shape, dtype) in kernel.recorder.stored_specs().items()
        },
        LOG_POST: ((chains, blocks, 2), np.dtype(np.float64)),
    }


def allocate(
    records: Mapping[str, tuple[tuple[int, ...], Any]],
) -> dict[str, np.ndarray]:
    """Return the arrays that draws are written to.

    Args:
        records: Shape and dtype of each record.

    Raises:
        MemoryError: They need more than the machine has.
    """
    bytes_needed = sum(
        math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in records.values()
    )
    bytes_available: int | None = None
    with contextlib.suppress(AttributeError, ValueError, OSError):
        bytes_available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        if bytes_available is not None and bytes_needed > bytes_available:
            raise MemoryError
        return {name: np.empty(*record) for name, record in records.items()}
    except (MemoryError, ValueError):  # NumPy has no arrays beyond the address space
        available = (
            ""
            if bytes_available is None
            else f", and this machine has {bytes_available / 1e9:.3g}"
        )
        raise MemoryError(
            f"`n_iters`: the draws need {bytes_needed / 1e9:.3g} GB of memory{available}. "
            "Keep fewer with `thin`, write them to disk with `store`, or keep only `reductions` of "
            "them, with `store_params=False`."
        ) from None
