"""Areas of a web site that its visitors looked at, in UCI's format.

A line for each area, ``A,1277,1,"title","/path"``, then for each user a line ``C,"10001",10001``
followed by a line ``V,1000,1`` for each area visited. Other lines describe the file.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgmcmc.datasets import fetch

_HOME = "https://archive.ics.uci.edu/ml/machine-learning-databases/anonymous/"


@dataclass(frozen=True)
class MswebSpec:
    """Expected content of a file: no official sum of its content is known.

    Attributes:
        source: File.
        users: Number of users.
        visits: Number of pairs of a user and an area.
        areas: Number of areas.
    """

    source: fetch.Source
    users: int
    visits: int
    areas: int = 294


def _spec(name: str, users: int, visits: int) -> MswebSpec:
    return MswebSpec(fetch.Source(name, (_HOME + name,)), users, visits)


SPECS = {
    "train": _spec("anonymous-msweb.data", 32_711, 98_654),
    "test": _spec("anonymous-msweb.test", 5000, 15_191),
}


class AreaVisits(NamedTuple):
    """Content of a file.

    Attributes:
        visits: Visits, uint8 (users, areas), 1 if the user visited the area.
        titles: Title of each area.
        paths: Path of each area on the site.
    """

    visits: NDArray[np.uint8]
    titles: NDArray[np.str_]
    paths: NDArray[np.str_]


def load(
    verbose: bool = True,
) -> dict[str, dict[str, NDArray[np.uint8]] | NDArray[np.str_]]:
    """Load ``train``, ``test``, ``titles`` and ``paths``; see `sgmcmc.datasets.get_dataset`."""
    train, test = (
        fetch.load(SPECS[split].source, partial(parse, spec=SPECS[split]), verbose)
        for split in ("train", "test")
    )
    if not np.array_equal(train.paths, test.paths):
        raise fetch.DamagedFileError(
            f"{SPECS['train'].source.filename} and {SPECS['test'].source.filename} do not belong "
            "together: they name different areas"
        )
    return {
        "train": {"visits": train.visits},
        "test": {"visits": test.visits},
        "titles": train.titles,
        "paths": train.paths,
    }


def parse(path: Path, spec: MswebSpec) -> AreaVisits:
    """Return checked visits and areas, in the order of the areas' numbers."""
    with fetch.open_decompressed(path) as file:
        lines = list(csv.reader(io.StringIO(file.read().decode("latin-1"))))
    area_lines = [line for line in lines if line[:1] == ["A"]]
    if any(len(line) != 5 for line in area_lines):
        raise ValueError("a line A does not have 5 fields")
    areas = sorted((_number(line), line[3], line[4]) for line in area_lines)
    columns = {number: column for column, (number, _, _) in enumerate(areas)}
    if not len(areas) == len(columns) == spec.areas:
        raise ValueError(f"{len(columns)} areas instead of {spec.areas}")
    visits = np.zeros((spec.users, spec.areas), np.uint8)
    user = -1
    for line in lines:
        if line[:1] == ["C"]:
            user += 1
        elif line[:1] == ["V"]:
            if not 0 <= user < spec.users or _number(line) not in columns:
                raise ValueError(
                    f"a visit of a user or an area that is not there: {line}"
                )
            visits[user, columns[_number(line)]] = 1
    n_visits = int(visits.sum(dtype=np.int64))
    if (user + 1, n_visits) != (spec.users, spec.visits):
        raise ValueError(
            f"{user + 1} users with {n_visits} visits instead of {spec.users} with {spec.visits}"
        )
    _, titles, paths = zip(*areas, strict=True)
    return AreaVisits(visits, np.array(titles), np.array(paths))


def _number(line: list[str]) -> int:
    if len(line) < 2 or not line[1].isdecimal():
        raise ValueError(f"a number is missing: {line}")
    return int(line[1])
