"""Read-only mappings of arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from sgmcmc.checks import describe


class LogPost(NamedTuple):
    """Log posterior estimates along the chain.

    Attributes:
        iterations: Iterations after which the estimates were made, from 1, burn-in included.
        values: Estimates, ``(len(iterations),)`` or ``(n_chains, len(iterations))``.
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
            raise KeyError(
                f"no {name!r} here; there is {', '.join(self._arrays)}"
            ) from None

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
                flat |= {f"{name}/{key}": array for key, array in value.items()}
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


def has_chains(settings: Mapping[str, Any]) -> bool:
    """Return whether the arrays of samples with these settings have a leading chain axis."""
    return settings.get("n_chains") is not None


def by_chain(
    settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return arrays of such samples with a leading chain axis, whether or not they had one."""
    chains = has_chains(settings)
    return {
        name: array if chains else array[np.newaxis] for name, array in arrays.items()
    }


def without_chains(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return arrays with a leading chain axis with the draws of all chains one after the other."""
    return {name: np.asarray(a).reshape(-1, *a.shape[2:]) for name, a in arrays.items()}


def matrix(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return arrays of draws as one matrix in float64, a row for each draw."""
    return np.concatenate(
        [np.asarray(a, np.float64).reshape(len(a), -1) for a in arrays.values()], axis=1
    )


# The setting for the slice of a chain's kept draws: `[start, stop, step]`
SLICE = "slice"


def need_slice(index: Any) -> slice:
    """Return the index in brackets, if it is a slice."""
    if isinstance(index, slice):
        return index
    raise TypeError(
        f"`samples[...]` takes the name of a parameter, or a slice of the draws of all chains; it "
        f"was given {describe(index)}. A single draw is samples['theta'][3], or "
        "samples['theta'][:, 3] if there are chains; samples[3:4] has it of all parameters."
    )


def sliced(
    settings: Mapping[str, Any],
    groups: Mapping[str, Mapping[str, np.ndarray] | None],
    index: slice,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings and the arrays of a slice along the draws.

    Args:
        settings: Settings of the samples.
        groups: Arrays of each group that have an entry for each draw.
        index: Index of the draws.

    Raises:
        ValueError: The slice holds no draws, or runs backwards.
    """
    axis = 1 if has_chains(settings) else 0
    lengths = [
        array.shape[axis]
        for arrays in groups.values()
        for array in (arrays or {}).values()
    ]
    if not lengths:
        raise ValueError("`samples` holds no draws to slice.")
    try:
        start, stop, step = index.indices(lengths[0])
    except (TypeError, ValueError) as error:
        raise TypeError(f"`samples[...]`: {error}.") from None
    if step < 0:
        raise ValueError("`samples[...]`: a slice must run forwards, as the chain did.")
    selected = range(start, stop, step)
    if not selected:
        raise ValueError(
            f"`samples[{_text(index)}]` holds none of the {lengths[0]} draws of each chain."
        )
    numbers = draw_numbers(settings, lengths[0])[
        selected.start : selected.stop : selected.step
    ]
    selection = (slice(None),) * axis + (
        slice(selected.start, selected.stop, selected.step),
    )
    sliced_arrays = {
        group: None
        if arrays is None
        else {name: array[selection] for name, array in arrays.items()}
        for group, arrays in groups.items()
    }
    return {
        **settings,
        SLICE: [numbers.start, numbers.stop, numbers.step],
    }, sliced_arrays


def draw_numbers(settings: Mapping[str, Any], draws: int) -> range:
    """Return the numbers of these draws among all that the chain has kept."""
    bounds = settings.get(SLICE)
    return range(draws) if bounds is None else range(*bounds)


def _text(index: slice) -> str:
    ends = ["" if end is None else str(end) for end in (index.start, index.stop)]
    return ":".join(ends + ([] if index.step is None else [str(index.step)]))


def coordinate_name(name: str, shape: tuple[int, ...], index: int) -> str:
    """Return the label of a coordinate of a parameter, by its index in the flat array."""
    if not shape:
        return name
    return f"{name}[{', '.join(str(int(k)) for k in np.unravel_index(index, shape))}]"


def coordinate_names(name: str, shape: tuple[int, ...]) -> list[str]:
    """Return the labels of a parameter's coordinates, as in :func:`sgmcmc.summary`."""
    return [coordinate_name(name, shape, index) for index in range(math.prod(shape))]
