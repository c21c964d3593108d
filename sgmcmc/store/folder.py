"""The folder of a store: made, locked, compared, written to and read.

It holds ``about.json`` (what made it), one npy file for each record (draws, gradients, test
functions, log posterior estimates), and for each chain a small file that says where it is and how
much of the arrays counts. Rows are written first and that file is replaced after, so at whatever
instant a process is killed, what the file says is there is there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from sgmcmc.identity import difference
from sgmcmc.outline import Outline
from sgmcmc.samples import Samples
from sgmcmc.store.checkpoints import CHAIN, MODE, checkpoint, saved_results
from sgmcmc.store.files import FileRows, create_array, explained
from sgmcmc.whole_files import read_arrays, write_arrays, write_json

FORMAT = 1
_ABOUT, _LOCK, _MODES = "about.json", "lock", "modes.npz"
Record = tuple[tuple[int, ...], np.dtype]


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
        return None if self.about is None else self.about["identity"]["seed"]

    def prepare(
        self, identity: dict[str, Any], outline: Outline, records: Mapping[str, Record]
    ) -> None:
        """Make the files, or see that those there belong to the same chain.

        Args:
            identity: what made the chain.
            outline: what its arrays are.
            records: shape, chains first, and dtype of each array.

        Raises:
            ValueError: the chain there was made otherwise; nothing was changed.
        """
        if self.about is not None:
            found = difference(self.about["identity"], identity)
            if found is not None:
                raise ValueError(
                    f"`store`: {str(self.path)!r} holds another chain: {found}. Use another path, "
                    "or the arguments it was made with. Nothing was changed."
                )
            return
        files = {name: f"array-{number}.npy" for number, name in enumerate(records)}
        about = {
            "format": FORMAT,
            "identity": identity,
            "outline": outline.to_json(),
            "arrays": files,
        }
        with explained(self.path):
            for name, (shape, dtype) in records.items():
                create_array(self.path / files[name], shape, dtype)
            write_json(self.path / _ABOUT, about)
        self.about = json.loads(json.dumps(about))

    def rows(self, chain: int) -> dict[str, FileRows]:
        """Return where a chain's records are written to."""
        assert self.about is not None
        rows = {name: FileRows(self.path / f, chain) for name, f in self.about["arrays"].items()}
        self._rows += rows.values()
        return rows

    def modes(self) -> dict[str, np.ndarray] | None:
        """Return the modes, if they have been found."""
        path = self.path / _MODES
        return read_arrays(path) if path.exists() else None

    def save_modes(self, modes: Mapping[str, np.ndarray]) -> None:
        """Write down the modes, which takes the place of where mode-finding was."""
        with explained(self.path):
            write_arrays(self.path / _MODES, modes)
            for path in self.path.glob(checkpoint(self.path, MODE, "*").name):
                path.unlink()


def read_store(path: Path) -> Samples:
    """Return what a store holds so far, by memory mapping.

    Raises:
        ValueError: it is not a store, or holds no draw yet.
        OSError: it cannot be read.
    """
    about = _read_about(path)
    if about is None:
        raise ValueError(f"`path`: {str(path)!r} is not a folder that `store` made.")
    arrays = {name: np.load(path / f, mmap_mode="r") for name, f in about["arrays"].items()}
    chains = next(iter(arrays.values())).shape[0]
    states = [checkpoint(path, CHAIN, number) for number in range(chains)]
    if not all(state.exists() for state in states):
        raise ValueError(f"`path`: {str(path)!r} holds no draws yet.")
    found = [read_arrays(state) for state in states]
    modes = read_arrays(path / _MODES) if (path / _MODES).exists() else None
    return Outline.from_json(about["outline"]).samples(
        arrays,
        min(int(state["draws"]) for state in found),
        min(int(state["blocks"]) for state in found),
        None if modes is None else (modes["seen"], modes["gradients"]),
        [saved_results(state) for state in found],
    )


def _read_about(path: Path) -> dict[str, Any] | None:
    """Return what is said of a store, or ``None`` where there is none yet."""
    if not path.exists():
        return None
    if not path.is_dir():
        raise ValueError(f"`store`: {str(path)!r} is a file; a store is a folder.")
    try:
        about = json.loads((path / _ABOUT).read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise ValueError(
                f"`store`: {str(path)!r} has the format {about['format']}, this version's is "
                f"{FORMAT}."
            )
        return about
    except FileNotFoundError:
        pass
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"`store`: {str(path / _ABOUT)!r} is damaged: {error}.") from error
    # A process killed while it made the store leaves these.
    ours = [*path.glob("array-*.npy"), *path.glob("*.part"), path / _LOCK]
    others = sorted({entry.name for entry in path.iterdir()} - {entry.name for entry in ours})
    if others:
        raise ValueError(
            f"`store`: the folder {str(path)!r} holds other things ({others[0]!r}, ...); give an "
            "empty or a new one. Nothing was changed."
        )
    return None
