"""TensorFlow 1's placeholders and sessions, for code that evaluates tensors along a chain.

The first placeholder opens a graph, in which everything that follows is written down, as it was
in TensorFlow 1, for any number of samplers. ``reset`` closes it. Variables are captured by
reference, so what is run later sees their values of that moment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from sgmcmc_r.draws import plain


class _Graph:
    """A graph, and the functions that were cut out of it."""

    most_functions = 100

    def __init__(self) -> None:
        self._whole = tf.compat.v1.wrap_function(lambda: None, [])
        self._whole.graph.sgmcmc_owner = self
        self._functions: dict[tuple[Any, ...], Any] = {}
        self._open: Any = None

    def enter(self) -> None:
        """Have TensorFlow write down, not compute."""
        self._open = self._whole.graph.as_default()
        self._open.__enter__()

    def leave(self) -> bool:
        """Have TensorFlow compute again, and tell whether it did not before."""
        if self._open is None:
            return False
        self._open.__exit__(None, None, None)
        self._open = None
        return True

    def run(
        self, fetches: list[Any], feeds: Sequence[tuple[tf.Tensor, tf.Tensor]]
    ) -> Any:
        """Return the values of tensors, and ``None`` for operations."""
        placeholders = [placeholder for placeholder, _ in feeds]
        # The tensors are part of the entry, so that no other can come to have their ids.
        key = tuple(map(id, fetches)), tuple(map(id, placeholders))
        if key not in self._functions:
            while len(self._functions) >= self.most_functions:
                del self._functions[next(iter(self._functions))]
            pruned = self._whole.prune(placeholders, fetches)
            self._functions[key] = pruned, fetches, placeholders
        return self._functions[key][0](*[value for _, value in feeds])


_present: list[_Graph] = []
"""The graph that is open, if any."""


@contextlib.contextmanager
def left() -> Iterator[None]:
    """Leave the open graph for a while, if there is one and nobody closes it meanwhile."""
    # Not by tf.init_scope, under which no gradient can be taken.
    here = [graph for graph in _present if graph.leave()]
    try:
        yield
    finally:
        for graph in here:
            if graph in _present:
                graph.enter()


@contextlib.contextmanager
def entered() -> Iterator[None]:
    """Enter the graph, which is opened if there is none, for a while."""
    if not _present:
        _present.append(_Graph())
        _present[0].enter()
    if _present[0]._open is not None:
        yield
        return
    _present[0].enter()
    try:
        yield
    finally:
        _present[0].leave()


def present() -> Any:
    """Return the graph that tensors are written into, if there is one."""
    return _present[0] if _present else None


def is_open() -> bool:
    """Tell whether there is a graph that tensors are written into."""
    return bool(_present)


def variable(*arguments: Any, **named: Any) -> tf.Variable:
    """Return a variable that TensorFlow 1's optimizers find in the open graph."""
    made = tf.Variable(*arguments, **named)
    if made.trainable:
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES, made)
    return made


def reset() -> None:
    """Close the open graph, if there is one, and forget it."""
    for graph in _present:
        graph.leave()
    _present.clear()


def evaluated(value: Any) -> Any:
    """Return a value with tensors that were only written down replaced by what they come to.

    Args:
        value: anything; dicts and lists are looked into.

    Raises:
        ValueError: a tensor depends on a placeholder, or is part of a running chain.
    """
    if isinstance(value, dict):
        return {name: evaluated(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(map(evaluated, value))
    if (
        not tf.is_tensor(value)
        or isinstance(value, tf.Variable)
        or hasattr(value, "numpy")
    ):
        return value
    owner = _owner(value)
    if owner is None:
        raise ValueError(
            "this tensor has no value while the model is being written down. Write TensorFlow's "
            "functions in place of those of R that need numbers, such as tf.cast(x, tf.float32) "
            "for as.numeric(x)."
        )
    with left():
        return owner.run([value], [])[0]


def placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> tf.Tensor:
    """Return a placeholder, and open a graph for it unless one is open.

    Args:
        dtype: its dtype.
        shape: its shape; ``None`` may be any.
        name: its name.
    """
    if isinstance(shape, int | float):
        shape = [shape]
    if shape is not None:
        shape = [None if size is None else int(size) for size in shape]
    with entered():
        return tf.compat.v1.placeholder(dtype, shape, name)


def feed(key: Any, value: Any) -> tf.Tensor:
    """Return a value in the form that is fed for a placeholder.

    Raises:
        TypeError: the key is not a placeholder.
        ValueError: the value has another shape.
    """
    if not tf.is_tensor(key) or isinstance(key, tf.Variable) or _owner(key) is None:
        raise TypeError(
            "the key of a feed must be a tensor that tf.placeholder returned."
        )
    tensor = (
        tf.cast(value, key.dtype)
        if tf.is_tensor(value)
        else tf.constant(value, key.dtype)
    )
    if not key.shape.is_compatible_with(tensor.shape):
        raise ValueError(
            f"the placeholder has shape {key.shape}, what is fed {tensor.shape}."
        )
    return tensor


def run(fetches: Any, feeds: Sequence[tuple[tf.Tensor, tf.Tensor]]) -> Any:
    """Return the present values of tensors and variables, in the structure they came in.

    Raises:
        TypeError, ValueError: one of them has no value that changes, or no value at all.
    """
    leaves = tf.nest.flatten(fetches)
    values = [
        plain(leaf.numpy()) if isinstance(leaf, tf.Variable) else None
        for leaf in leaves
    ]
    wanted = [i for i, leaf in enumerate(leaves) if not isinstance(leaf, tf.Variable)]
    if wanted:
        owner = _common_owner([leaves[i] for i in wanted])
        for i, value in zip(
            wanted, owner.run([leaves[i] for i in wanted], feeds), strict=True
        ):
            values[i] = None if value is None else plain(value.numpy())
    return tf.nest.pack_sequence_as(fetches, values)


def _owner(tensor: Any) -> _Graph | None:
    # A tensor that has its value has no graph.
    if hasattr(tensor, "numpy"):
        return None
    return getattr(getattr(tensor, "graph", None), "sgmcmc_owner", None)


def _common_owner(tensors: list[Any]) -> _Graph:
    owners = set()
    for tensor in tensors:
        if not tf.is_tensor(tensor) and not isinstance(tensor, tf.Operation):
            raise TypeError(
                f"`fetches` must be tensors; {tensor!r} is none. Before the first tf.placeholder "
                "there are no operations either: what was called has been done."
                if tensor is None
                else f"`fetches` must be tensors; {tensor!r} is none."
            )
        owner = _owner(tensor)
        if owner is None:
            raise ValueError(
                "`fetches` holds a tensor that was computed when it was written, so it does not "
                "follow the chain. Write it after a tf.placeholder, in terms of that, or compute "
                "it anew in the loop: logLik(sampler$params, testset)."
            )
        owners.add(owner)
    if len(owners) > 1:
        raise ValueError(
            "`fetches` belong to different graphs, one of which tf.reset_default_graph() ended: "
            "run them one after the other."
        )
    return owners.pop()
