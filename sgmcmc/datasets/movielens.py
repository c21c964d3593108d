"""Ratings of films: lines ``user item rating timestamp`` between tabs, numbered from 1."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sgmcmc.datasets import fetch

_HOME = "https://files.grouplens.org/datasets/movielens/"
Ratings = dict[str, NDArray[np.int32]]


@dataclass(frozen=True)
class MovieLensSpec:
    """Expected content of the files.

    Attributes:
        sources: Files, the whole first, then a split of it.
        rows: Number of ratings in each.
        users: Largest number of a user.
        items: Largest number of a film.
    """

    sources: dict[str, fetch.Source]
    rows: dict[str, int]
    users: int
    items: int


def _source(name: str, sha256: str | None = None) -> fetch.Source:
    return fetch.Source(f"ml-100k/{name}", (f"{_HOME}ml-100k/{name}",), sha256)


SPEC = MovieLensSpec(
    {
        "all": _source(
            "u.data", "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490"
        ),
        # Together they are a split of the first, which is checked.
        "train": _source("u1.base"),
        "test": _source("u1.test"),
    },
    {"all": 100_000, "train": 80_000, "test": 20_000},
    users=943,
    items=1682,
)


def load(verbose: bool = True) -> dict[str, Ratings]:
    """Load ``all``, ``train`` and ``test``; see `sgmcmc.datasets.get_dataset`."""
    ratings = {}
    for split_name, source in SPEC.sources.items():
        read = partial(
            parse, rows=SPEC.rows[split_name], spec=SPEC, sha256=source.sha256
        )
        ratings[split_name] = fetch.load(source, read, verbose)
    split = np.concatenate([ratings["train"], ratings["test"]])
    if not np.array_equal(_sorted(split), _sorted(ratings["all"])):
        names = ", ".join(source.filename for source in SPEC.sources.values())
        raise fetch.DamagedFileError(
            f"{names} do not belong together: the last two are not a split of the first"
        )
    return {split_name: _columns(rows) for split_name, rows in ratings.items()}


def parse(
    path: Path, rows: int, spec: MovieLensSpec, sha256: str | None = None
) -> NDArray[np.int64]:
    """Return checked ratings of a file that may be compressed.

    They are int64 (rows, 4): user, item, rating and timestamp, as in the file.
    """
    with fetch.open_decompressed(path) as file:
        content = file.read()
    lines = content.splitlines()
    if len(lines) != rows:
        raise ValueError(f"{len(lines)} lines instead of {rows}")
    fetch.need_sum(content, sha256)
    fields = [line.split() for line in lines]
    if any(len(line) != 4 for line in fields):
        raise ValueError("a line is not 'user item rating timestamp'")
    data = fetch.whole_numbers(fields)
    for column, name, upper in (
        (0, "user", spec.users),
        (1, "item", spec.items),
        (2, "rating", 5),
    ):
        fetch.need_range(name, data[:, column], upper)
    return data


def _sorted(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return rows[np.lexsort(rows.T)]


def _columns(rows: NDArray[np.int64]) -> Ratings:
    user, item, rating, _ = rows.T.astype(np.int32)
    return {"user": user - 1, "item": item - 1, "rating": rating.copy()}
