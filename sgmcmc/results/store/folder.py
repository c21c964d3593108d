"""The folder of a store: made, locked, compared, written to and read.

It holds ``about.json`` (what made it), one npy file for each record (draws, gradients, test
functions, log posterior estimates), and for each chain a small file that says where it is and how
much of the arrays counts. Rows are written first and that file is replaced after, so at whatever
instant a process is killed, what the file says is there is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from sgmcmc.atomic_files import read_arrays, write_arrays, write_json
from sgmcmc.results.differences import difference
from sgmcmc.results.schema import Schema
from sgmcmc.results.store.files import (
    ABOUT,
    CHAIN,
    FileRows,
    Record,
    checkpoint,
    create_array,
    explained,
    saved_results,
)
from sgmcmc.results.store.growth import grow, remove_others

FORMAT = 2
_LOCK, _HANDOVER, _WARM_UP = "lock", "handover.npz", "warm-up.npz"


class Store:
    """A store that this process alone writes to, while the ``with`` block lasts.

    Args:
        path: the folder; it is made if it is not there.

    Raises:
        ValueError: the folder holds something else, or another process writes to it.
        OSError: it cannot be written to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.about = _read_about(path)
        with explained(path):
            path.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(path / _LOCK, timeout=0)
        self._rows: list[FileRows] = []

    def __enter__(self) -> Store:
        with explained(self.path):
            try:
                self._lock.acquire()
            except Timeout:
                raise ValueError(
                    f"`store`: another process is writing to {str(self.path)!r}. Wait for it, or "
                    "use another path."
                ) from None
        # The one before may have made it in the meantime.
        self.about = _read_about(self.path)
        return self

    def __exit__(self, *_: object) -> None:
        for rows in self._rows:
            rows.close()
        self._lock.release()

    @property
    def seed(self) -> int | None:
        """The seed of the chain that is there, if there is one."""
        return None if self.about is None else self.about["fingerprint"]["seed"]

    @property
    def n_iters(self) -> int | None:
        """How many iterations after burn-in there is room for, if there is a chain."""
        return None if self.about is None else self.about["fingerprint"]["n_iters"]

    def prepare(
        self,
        fingerprint: dict[str, Any],
        schema: Schema,
        records: Mapping[str, Record],
    ) -> None:
        """Make the files, or see that those there belong to the same chain, and are large enough.

        Args:
            fingerprint: what made the chain, ``n_iters`` included, which may have grown.
            schema: what its arrays are.
            records: shape, chains first, and dtype of each array.

        Raises:
            ValueError: the chain there was made otherwise; nothing was changed.
        """
        if self.about is not None:
            before = self.about["fingerprint"]
            found = difference({**before, "n_iters": None}, {**fingerprint, "n_iters": None})
            if found is not None:
                raise ValueError(
                    f"`store`: {str(self.path)!r} holds another chain: {found}. Use another path, "
                    "or the arguments it was made with. Nothing was changed."
                )
            if fingerprint["n_iters"] < before["n_iters"]:
                raise ValueError(
                    f"`store`: {str(self.path)!r} holds a longer chain: `n_iters` was "
                    f"{before['n_iters']} and is {fingerprint['n_iters']}. A chain may go on, but "
                    "is never cut; take a slice of its draws. Nothing was changed."
                )
            with explained(self.path):
                if fingerprint["n_iters"] > before["n_iters"]:
                    self.about = grow(self.path, self.about, fingerprint["n_iters"], records)
                remove_others(self.path, self.about["arrays"].values())
            return
        files = {name: f"array-{number}.npy" for number, name in enumerate(records)}
        about = {
            "format": FORMAT,
            "fingerprint": fingerprint,
            "schema": schema.to_json(),
            "arrays": files,
        }
        with explained(self.path):
            for name, (shape, dtype) in records.items():
                create_array(self.path / files[name], shape, dtype)
            write_json(self.path / ABOUT, about)
        self.about = json.loads(json.dumps(about))

    def rows(self, chain: int) -> dict[str, FileRows]:
        """Return where a chain's records are written to."""
        assert self.about is not None
        rows = {name: FileRows(self.path / f, chain) for name, f in self.about["arrays"].items()}
        self._rows += rows.values()
        return rows

    def handover(self) -> dict[str, np.ndarray] | None:
        """Return what the phases before the chain have found, if they are done."""
        path = self.path / _HANDOVER
        return read_arrays(path) if path.exists() else None

    def warm_up(self) -> dict[str, np.ndarray] | None:
        """Return what was chosen before the chain was made, if that is done."""
        path = self.path / _WARM_UP
        return read_arrays(path) if path.exists() else None

    def save_warm_up(self, found: Mapping[str, np.ndarray]) -> None:
        """Write down what was chosen before the chain was made."""
        with explained(self.path):
            write_arrays(self.path / _WARM_UP, found)

    def save_handover(self, found: Mapping[str, np.ndarray], kinds: Iterable[str]) -> None:
        """Write down what the phases before the chain have found.

        Args:
            found: ``positions`` of the chains, flat; and where they are modes, ``gradients`` there
                and the ``modes`` as the user sees them.
            kinds: of the phases, whose own checkpoints are of no use any more.
        """
        with explained(self.path):
            write_arrays(self.path / _HANDOVER, found)
            for kind in kinds:
                for path in self.path.glob(checkpoint(self.path, kind, "*").name):
                    path.unlink()


def read_store(path: Path) -> dict[str, Any]:
    """Return what a store holds so far, by memory mapping, as the arguments of ``Samples``.

    Raises:
        ValueError: it is not a store, or holds no draw yet.
        OSError: it cannot be read.
    """
    about, arrays = _open(path)
    chains = next(iter(arrays.values())).shape[0]
    states = [checkpoint(path, CHAIN, number) for number in range(chains)]
    if not all(state.exists() for state in states):
        raise ValueError(f"`path`: {str(path)!r} holds no draws yet.")
    found = [read_arrays(state) for state in states]
    handover = read_arrays(path / _HANDOVER) if (path / _HANDOVER).exists() else {}
    return Schema.from_json(about["schema"]).fields(
        arrays,
        min(int(state["draws"]) for state in found),
        min(int(state["blocks"]) for state in found),
        (handover["modes"], handover["gradients"]) if "modes" in handover else None,
        [saved_results(state) for state in found],
    )


def _open(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return what is said of a store and its arrays, mapped."""
    while True:
        about = _read_about(path)
        if about is None:
            raise ValueError(f"`path`: {str(path)!r} is not a folder that `store` made.")
        try:
            return about, {n: np.load(path / f, mmap_mode="r") for n, f in about["arrays"].items()}
        except FileNotFoundError:
            # The store may have grown in the meantime, and its arrays lie in other files.
            if _read_about(path) == about:
                raise


def _read_about(path: Path) -> dict[str, Any] | None:
    """Return what is said of a store, or ``None`` where there is none yet."""
    if not path.exists():
        return None
    if not path.is_dir():
        raise ValueError(f"`store`: {str(path)!r} is a file; a store is a folder.")
    try:
        about = json.loads((path / ABOUT).read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise ValueError(
                f"`store`: {str(path)!r} has the format {about['format']}, this version's is "
                f"{FORMAT}."
            )
        return about
    except FileNotFoundError:
        pass
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"`store`: {str(path / ABOUT)!r} is damaged: {error}.") from error
    # A process killed while it made the store leaves these.
    ours = [*path.glob("array-*.npy"), *path.glob("*.part"), path / _LOCK, path / _WARM_UP]
    others = sorted({entry.name for entry in path.iterdir()} - {entry.name for entry in ours})
    if others:
        raise ValueError(
            f"`store`: the folder {str(path)!r} holds other things ({others[0]!r}, ...); give an "
            "empty or a new one. Nothing was changed."
        )
    return None
