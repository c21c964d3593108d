"""Ratings of items by users, as a user hands them over: checked and converted once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgmcmc.words import describe

COLUMNS = ("user", "item", "rating")


class Ratings(NamedTuple):
    """Ratings, one a row.

    Attributes:
        user: number of the user, from 0, int32 (N,).
        item: number of the item, from 0, int32 (N,).
        rating: what the user gave it, float64 (N,).
    """

    user: NDArray[np.int32]
    item: NDArray[np.int32]
    rating: NDArray[np.float64]

    @classmethod
    def read(cls, ratings: Any, sizes: Mapping[str, int | None] | None = None) -> Ratings:
        """Return ratings from a mapping, or a table, with the columns user, item and rating.

        Args:
            ratings: the user's.
            sizes: how many users and items there are, where that is known.

        Raises:
            TypeError: they have no columns, or these hold no numbers.
            ValueError: a column is missing or not a vector, lengths differ, there are none, a
                number of a user or an item is not whole, negative or too large, or a rating is
                not finite.

        Example:
            >>> Ratings.read({"user": [0, 1], "item": [0, 0], "rating": [4, 2]}).rating.tolist()
            [4.0, 2.0]
        """
        if not hasattr(ratings, "keys") or not hasattr(ratings, "__getitem__"):
            raise TypeError(
                "`ratings` must be a dict or a table with the columns 'user', 'item' and 'rating'; "
                f"it is {describe(ratings)}."
            )
        missing = [name for name in COLUMNS if name not in set(ratings.keys())]
        if missing:
            raise ValueError(f"`ratings` lacks the column {missing[0]!r}.")
        user, item, rating = (_vector(name, ratings[name]) for name in COLUMNS)
        if not len(user) == len(item) == len(rating):
            raise ValueError(
                "`ratings`: the columns 'user', 'item' and 'rating' must have equal lengths; they "
                f"have {len(user)}, {len(item)} and {len(rating)}."
            )
        if not len(rating):
            raise ValueError("`ratings` holds no ratings.")
        if not np.isfinite(rating).all():
            row = int(np.flatnonzero(~np.isfinite(rating))[0])
            raise ValueError(f"`ratings['rating']` must be finite; row {row} is {rating[row]}.")
        sizes = sizes or {}
        return cls(
            _numbers("user", user, sizes.get("user")),
            _numbers("item", item, sizes.get("item")),
            rating.astype(np.float64),
        )


def _vector(name: str, values: Any) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"`ratings[{name!r}]` must hold numbers; it is {describe(values)}.")
    if array.ndim != 1:
        raise ValueError(
            f"`ratings[{name!r}]` must be a vector, an entry for each rating; its shape is "
            f"{array.shape}."
        )
    return array


def _numbers(name: str, array: np.ndarray, size: int | None) -> NDArray[np.int32]:
    """Return numbers of users or items, known to be in range."""
    label = f"`ratings[{name!r}]`"
    fine = np.isfinite(array) & (array == np.floor(array)) & (array >= 0)
    if not fine.all():
        row = int(np.flatnonzero(~fine)[0])
        raise ValueError(
            f"{label} must number {name}s from 0 in whole numbers; row {row} is {array[row]}."
        )
    most = 2**24 if size is None else size
    if array.max() >= most:
        row = int(array.argmax())
        known = f"there are {most} {name}s" if size is not None else f"{most} is too many"
        raise ValueError(f"{label}: row {row} is {array[row]}, but {known}, numbered from 0.")
    return array.astype(np.int32)
