"""TensorFlow under its names of version 2 and of version 1, as R code writes them.

A name is looked up in version 2, and in version 1 if that has none. Where both have a function,
the arguments decide: one that only version 1 knows (``keep_dims``, ``reduction_indices``,
``dim``) calls that of version 1.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import tensorflow as tf

from sgmcmc_r import distributions, graphs

_ELSEWHERE = {
    "contrib.distributions": "distributions",
    "contrib.bijectors": "distributions.bijectors",
    "contrib.distributions.bijectors": "distributions.bijectors",
}
_OURS: dict[str, Any] = {
    "placeholder": graphs.placeholder,
    "reset_default_graph": graphs.reset,
}
_WHOLE = ("keras", "compat")
"""Modules that are handed over as they are."""

_SUCCESSORS = {
    "Session": "initSess(sampler)",
    "InteractiveSession": "initSess(sampler)",
    "sub": "tf$subtract",
    "mul": "tf$multiply",
    "neg": "tf$negative",
    "inv": "tf$math$reciprocal",
    "pack": "tf$stack",
    "unpack": "tf$unstack",
    "select": "tf$where",
    "batch_matmul": "tf$matmul",
    "batch_cholesky": "tf$cholesky",
    "batch_matrix_inverse": "tf$matrix_inverse",
    "batch_matrix_diag": "tf$matrix_diag",
    "batch_matrix_determinant": "tf$matrix_determinant",
    "initialize_all_variables": "tf$global_variables_initializer; initSess needs none",
    "complex_abs": "tf$abs",
    "listdiff": "tf$setdiff1d",
    "random_gaussian": "tf$random_normal",
    "nn.dropout": "tf$nn$dropout(x, rate = )",
    "contrib.layers": "tf$keras$layers",
    "contrib.rnn": "tf$keras$layers",
    "contrib.keras": "tf$keras",
    "contrib.learn": "tf$keras",
    "contrib.opt": "tf$keras$optimizers",
    "contrib.metrics": "tf$keras$metrics",
    "contrib.losses": "tf$losses",
    "contrib.eager": "tf: tensors have their values at once",
    "contrib.data": "tf$data",
    "contrib.seq2seq": "tf$keras$layers",
    "contrib.linalg": "tf$linalg",
    "contrib.lookup": "tf$lookup",
    "contrib.image": "tf$image",
    "contrib.signal": "tf$signal",
    "contrib.summary": "tf$summary",
    "contrib.framework": "tf",
    "contrib.bayesflow": 'reticulate::import("tensorflow_probability")$mcmc',
    "contrib.integrate": 'reticulate::import("tensorflow_probability")$math$ode',
}


class Place:
    """A module, whose names are looked up in it.

    Args:
        path: where it is below TensorFlow, with dots.
    """

    def __init__(self, path: str) -> None:
        self.path = path


def look_up(path: str, name: str) -> Any:
    """Return what a name stands for.

    Args:
        path: the module it is in, "" for TensorFlow itself.
        name: the name.

    Raises:
        AttributeError: there is none; the message names its successor.
    """
    whole = f"{path}.{name}" if path else name
    whole = _ELSEWHERE.get(whole, whole)
    if whole in ("contrib", "distributions", "distributions.bijectors"):
        return Place(whole)
    if whole in _OURS:
        return _OURS[whole]
    if whole == "Variable" and graphs.is_open():
        return graphs.variable
    if whole in ("Session", "InteractiveSession"):
        raise AttributeError(_missing(path, name))
    if path in ("distributions", "distributions.bijectors"):
        found = distributions.member(path, name)
    else:
        found = _member(path, name)
    if found is None:
        raise AttributeError(_missing(path, name))
    if isinstance(found, ModuleType) and whole.split(".")[0] not in _WHOLE:
        return Place(whole)
    return found


def listed(path: str) -> list[str]:
    """Return the names in a module, sorted."""
    if path == "contrib":
        return ["bijectors", "distributions"]
    if path in ("distributions", "distributions.bijectors"):
        return distributions.listed(path)
    modules = [_inside(module, path) for module in (tf, tf.compat.v1)]
    names = {
        name for module in modules for name in dir(module) if not name.startswith("_")
    }
    return sorted(
        names | ({*_OURS, "contrib", "distributions"} if path == "" else set())
    )


def _inside(module: Any, path: str) -> Any:
    for part in filter(None, path.split(".")):
        module = getattr(module, part, None)
    return module


def _member(path: str, name: str) -> Any:
    new, old = (
        getattr(_inside(module, path), name, None) for module in (tf, tf.compat.v1)
    )
    if new is None:
        return old
    if (
        old is None
        or old is new
        or not (inspect.isroutine(new) and inspect.isroutine(old))
    ):
        return new
    return _either(f"{path}.{name}".lstrip("."), new, old)


@functools.cache
def _either(
    whole: str, new: Callable[..., Any], old: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that takes the arguments of either version."""
    try:
        of_new, of_old = (
            inspect.signature(function).parameters for function in (new, old)
        )
    except (TypeError, ValueError):
        return new
    if any(p.kind is p.VAR_KEYWORD for p in of_new.values()):
        return new

    @functools.wraps(new)
    def function(*arguments: Any, **named: Any) -> Any:
        if whole == "nn.dropout" and len(arguments) > 1:
            raise TypeError(
                "the second argument of tf$nn$dropout was the share to keep, and is now the share "
                "to drop: write keep_prob = or rate =."
            )
        if not named.keys() <= of_new.keys() and named.keys() <= of_old.keys():
            return old(*arguments, **named)
        return new(*arguments, **named)

    return function


def _missing(path: str, name: str) -> str:
    whole = f"{path}.{name}" if path else name
    inside = "".join(f"${part}" for part in path.split(".") if part)
    said = f"tf{inside} has no `{name}`"
    if path.startswith("distributions"):
        successor = distributions.SUCCESSORS.get(name)
    else:
        said += ", neither in version 2 nor in version 1 of TensorFlow"
        successor = _SUCCESSORS.get(whole)
    if successor is not None:
        return f"{said}. Write {successor}."
    near = _near(name, listed(path))
    if near:
        return f"{said}. Did you mean {' or '.join(f'tf{inside}${found}' for found in near)}?"
    elsewhere = [place for place in _PLACES_TO_LOOK if name in listed(place)]
    if elsewhere:
        return f"{said}. Write {_written(elsewhere[0], name)}."
    return f"{said}."


_PLACES_TO_LOOK = ("", "nn", "math", "linalg", "random", "train", "distributions")


def _near(name: str, names: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(
        name, [n for n in names if not n.startswith("_")], 2, 0.75
    )


def _written(path: str, name: str) -> str:
    return "$".join(["tf", *filter(None, path.split(".")), name])
