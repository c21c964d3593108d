"""Read-only mappings of arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np


class LogPost(NamedTuple):
    """Log posterior estimates along the chain.

    Attributes:
        iterations: the iterations after which they were taken, from 1, burn-in included.
        values: the estimates, ``(len(iterations),)`` or ``(n_chains, len(iterations))``.
    """

    iterations: np.ndarray
    values: np.ndarray


class Arrays(Mapping[str, np.ndarray]):
    """A read-only mapping from names to read-only arrays."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._arrays = {name: _read_only(array) for name, array in arrays.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            return self._arrays[name]
        except KeyError:
            raise KeyError(f"no {name!r} here; there is {', '.join(self._arrays)}") from None

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        rows = [f"  {name}  {a.shape}  {a.dtype}" for name, a in self.items()]
        return "\n".join([f"{type(self).__name__}:", *rows])


class Results(Mapping[str, Any]):
    """A read-only mapping from names to arrays, or to mappings of arrays."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        self._results = {
            name: Arrays(value) if isinstance(value, Mapping) else _read_only(value)
            for name, value in results.items()
        }

    def __getitem__(self, name: str) -> Any:
        return self._results[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def flat(self) -> dict[str, np.ndarray]:
        """Return the arrays under one name each, which ``nested`` takes apart again."""
        flat: dict[str, np.ndarray] = {}
        for name, value in self.items():
            if isinstance(value, Mapping):
                flat |= {f"{name}/{key}": part for key, part in value.items()}
            else:
                flat[name] = value
        return flat

    @classmethod
    def nested(cls, flat: Mapping[str, np.ndarray]) -> Results:
        """Return the results that ``flat`` gave."""
        results: dict[str, Any] = {}
        for label, value in flat.items():
            name, slash, key = label.partition("/")
            if slash:
                results.setdefault(name, {})[key] = value
            else:
                results[name] = value
        return cls(results)


def _read_only(array: np.ndarray) -> np.ndarray:
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view
