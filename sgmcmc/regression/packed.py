"""Columns of a frame as arrays that a file holds without pickle, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Arrays = dict[str, np.ndarray]  # arrays by name

# Types of levels of a factor that has several.
_SINGLE = {"int": int, "float": float, "bool": bool, "str": str}


def packed(frame: pd.DataFrame) -> tuple[Arrays, list[dict[str, Any]]]:
    """Return the columns of a frame as arrays, and their descriptions, of types that JSON has.

    Raises:
        ValueError: A column holds what cannot be written; the message names it.
    """
    import pandas as pd

    arrays: Arrays = {}
    columns = []
    for number, name in enumerate(frame.columns):
        values = frame[name]
        about: dict[str, Any] = {"name": str(name)}
        if isinstance(values.dtype, pd.CategoricalDtype):
            levels = _packed_values(
                name, values.cat.categories, f"levels/{number}", arrays
            )
            about |= {
                "kind": "category",
                "ordered": bool(values.cat.ordered),
                "levels": levels,
            }
            arrays[f"column/{number}"] = values.cat.codes.to_numpy()
        elif values.dtype.kind == "O" or isinstance(values.dtype, pd.StringDtype):
            codes, levels = pd.factorize(values)
            about |= {"kind": "objects"}
            about["levels"] = _packed_values(
                name, pd.Index(levels), f"levels/{number}", arrays
            )
            arrays[f"column/{number}"] = codes.astype(np.int32)
        else:
            about |= _packed_values(name, pd.Index(values), f"column/{number}", arrays)
        columns.append(about)
    return arrays, columns


def unpacked(
    arrays: Mapping[str, np.ndarray], columns: list[dict[str, Any]]
) -> pd.DataFrame:
    """Return the frame that :func:`packed` took apart."""
    import pandas as pd

    columns_by_name: dict[str, Any] = {}
    for number, about in enumerate(columns):
        values: Any = arrays.get(f"column/{number}")
        kind = about["kind"]
        if kind in ("category", "objects"):
            # Format 1 has no descriptions of levels.
            level_kind = about.get("levels", {"kind": "array"})
            levels = _unpacked_values(level_kind, f"levels/{number}", arrays)
            if kind == "category":
                values = pd.Categorical.from_codes(
                    values, levels, ordered=about["ordered"]
                )
            else:
                values = np.array([*levels, None], object)[values]
        else:
            values = _unpacked_values(about, f"column/{number}", arrays)
        columns_by_name[about["name"]] = values
    return pd.DataFrame(columns_by_name)


def _packed_values(
    name: Any, values: pd.Index, key: str, arrays: Arrays
) -> dict[str, Any]:
    """Return the description of values, whose arrays are added."""
    import pandas as pd

    if isinstance(values.dtype, pd.IntervalDtype):
        ends = {
            end: _packed_values(name, getattr(values, end), f"{key}/{end}", arrays)
            for end in ("left", "right")
        }
        return {"kind": "interval", "closed": values.closed, **ends}
    if isinstance(values.dtype, pd.DatetimeTZDtype):
        arrays[key] = values.tz_convert("UTC").tz_localize(None).to_numpy()
        return {"kind": "zone", "zone": str(values.dtype.tz)}
    array = values.to_numpy()
    if array.dtype.kind not in "OUT":
        arrays[key] = array
        return {"kind": "array"}
    kinds = {type(value).__name__ for value in array}
    if kinds <= {"str"}:
        text = array.astype(str)
        if (text == array).all():  # NumPy drops zero bytes at the end
            arrays[key] = text
            return {"kind": "array"}
    single = [
        value.item() if isinstance(value, np.generic) else value for value in array
    ]
    if not all(type(value) in _SINGLE.values() for value in single):
        raise ValueError(
            f"`data[{name!r}]` holds {', '.join(sorted(kinds))}, which cannot be written."
        )
    typed = [[type(value).__name__, value] for value in single]
    arrays[key] = np.array(json.dumps(typed))
    return {"kind": "several"}


def _unpacked_values(
    about: Mapping[str, Any], key: str, arrays: Mapping[str, np.ndarray]
) -> Any:
    import pandas as pd

    kind = about["kind"]
    if kind == "interval":
        left, right = (
            _unpacked_values(about[end], f"{key}/{end}", arrays)
            for end in ("left", "right")
        )
        return pd.IntervalIndex.from_arrays(left, right, closed=about["closed"])
    values = arrays[key]
    if kind == "zone":
        return pd.DatetimeIndex(values).tz_localize("UTC").tz_convert(about["zone"])
    if kind == "several":
        typed = json.loads(str(values))
        levels = np.empty(len(typed), object)
        levels[:] = [_SINGLE[kind_of_value](value) for kind_of_value, value in typed]
        return levels
    return values.astype(object) if values.dtype.kind == "U" else values
