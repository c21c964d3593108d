"""The user's functions, called for the first time: errors in them are explained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from sgmcmc.checks import describe
from sgmcmc.data.dataset import Data, Minibatch, Tensors
from sgmcmc.gradients.latents import Latents
from sgmcmc.graphs.user_functions import as_tensor, call, first_lines
from sgmcmc.interrupts import pass_on
from sgmcmc.model.target import Target


@dataclass(frozen=True)
class UserModel:
    """The user's functions and data, as they are tried before a chain runs.

    Attributes:
        target: Log posterior.
        data: Dataset.
        rows: Number of rows in a minibatch, n.
        latents: Function that draws latent variables; ``None`` if there are none.
    """

    target: Target
    data: Data
    rows: int
    latents: Latents | None = None

    @property
    def weight(self) -> float:
        """Number of rows that each row of a minibatch stands for, N/n."""
        return self.data.size / self.rows

    @property
    def functions(self) -> tuple[Any, ...]:
        """The user's functions."""
        gibbs = None if self.latents is None else self.latents.gibbs
        return self.target.log_lik, self.target.log_prior, gibbs

    def evaluated(
        self, with_terms: bool, position: tf.Tensor, columns: Tensors
    ) -> dict[str, tf.Tensor]:
        """Return the model's values and its gradient at a position, in a graph.

        Args:
            with_terms: Whether to return the terms of single observations, too.
            position: Position, flat.
            columns: Some rows.
        """
        target = self.target
        params = target.space.constrain(position)
        if self.latents is not None:
            columns = self.completed(params, columns)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(list(params.values()))
            values = self._values(params, columns)
        tensors = [value for value in values.values() if tf.is_tensor(value)]
        slopes = tape.gradient(tensors, params) if tensors else {}
        missing = [name for name in params if slopes.get(name) is None]
        if target.log_prior is not None:
            for name, geometry in target.space.geometries.items():
                if geometry.prior_included:
                    geometry.check_prior(name, params, target.log_prior)
        if missing:
            raise ValueError(
                f"`log_lik` does not depend on the parameter {missing[0]!r}, and neither does "
                "`log_prior` (the gradient is None). Use it, or remove it from `params`."
            )
        minibatch = Minibatch(columns, self.weight)
        returned = {
            name: tf.convert_to_tensor(value, target.dtype)
            for name, value in values.items()
        }
        value = self.weight * returned["log_lik"] + returned.get("log_prior", 0.0)
        returned["log_post"] = target.with_geometry(value, position)
        returned["gradient"] = target.shared.gradient(position, minibatch)
        points = target.space.differentiated(position)[1]
        if target.space.limits(points) is not None:
            returned["nearer"] = target.nearer().gradient(position, minibatch)
        if with_terms:
            returned["terms"] = self._terms(params, columns)
        return returned

    def _values(self, params: Tensors, columns: Tensors) -> dict[str, Any]:
        """Return the values of the user's log-likelihood and log-prior."""
        target = self.target
        of_params = f"params {shapes_in_words(target.space.user_layout.shapes)}"
        of_rows = f"dataset {_shapes_of(columns)}"
        returned = {
            "log_lik": call(
                "log_lik",
                target.dtype,
                target.log_lik,
                f"{of_params}; {of_rows}",
                params=params,
                dataset=columns,
            )
        }
        if target.log_prior is not None:
            returned["log_prior"] = call(
                "log_prior", target.dtype, target.log_prior, of_params, params=params
            )
        size = row_count(columns)
        for argument, value in returned.items():
            is_likelihood = argument == "log_lik"
            tensor = as_tensor(argument, value, "a scalar tensor")
            is_terms = is_likelihood and tensor.shape == (size,)
            if tensor.shape != () and not is_terms:
                or_terms = f", or one term for each of the {size} observations"
                raise ValueError(
                    f"`{argument}` must return a scalar{or_terms if is_likelihood else ''}; it "
                    f"returned a tensor of shape {tensor.shape}. Sum it with tf.reduce_sum. It was "
                    f"called with {of_params}{f'; {of_rows}' if is_likelihood else ''}."
                )
            if getattr(value, "dtype", target.dtype) != target.dtype:
                raise TypeError(
                    f"`{argument}` returned {tensor.dtype.name}, but the chain runs in "
                    f"{target.dtype.name}. Declare constants with tf.constant(..., dtype=tf."
                    f"{target.dtype.name}), or choose the `dtype` of the sampler."
                )
        if tf.is_tensor(returned["log_lik"]):
            returned["log_lik"] = tf.reduce_sum(returned["log_lik"])
        return returned

    def _terms(self, params: Tensors, columns: Tensors) -> tf.Tensor:
        try:
            return self.target.terms(params, columns)
        except Exception as error:
            pass_on(error)
            raise ValueError(
                "`log_lik` was asked for the terms of single observations, by being called with "
                "one at a time, and failed. Let it return them: a tensor of shape (n,) in place of "
                f"its sum. {first_lines(error)}"
            ) from error

    def completed(self, params: Tensors, columns: Tensors) -> Tensors:
        """Return the rows with the latent variables that ``gibbs`` adds to them."""
        latents = self.latents
        assert latents is not None
        rows = row_count(columns)
        latent_values = {
            name: tf.constant(values[:rows]) for name, values in latents.starts.items()
        }
        minibatch = {**columns, **latent_values}
        returned = call(
            "gibbs",
            self.target.dtype,
            latents.gibbs,
            f"params {list(params)}; dataset {_shapes_of(minibatch)}",
            params=params,
            dataset=minibatch,
            seed=tf.constant([0, 1]),
        )
        if not isinstance(returned, Mapping):
            raise TypeError(
                "`gibbs` must return the minibatch, a dict of tensors, with the latent variables "
                f"added to it; it returned {describe(returned)}."
            )
        completed = dict(minibatch)
        for name, value in returned.items():
            is_sparse = isinstance(value, tf.SparseTensor)
            completed[name] = (
                value if is_sparse else as_tensor("gibbs", value, "a dict of tensors")
            )
        for name, value in latent_values.items():
            after = completed[name]
            if after.shape != value.shape:
                raise ValueError(
                    f"`gibbs` must return {name!r}, which `latents` keeps, in the shape "
                    f"{tuple(value.shape)}; it returned {tuple(after.shape)}."
                )
            if after.dtype.is_floating and not value.dtype.is_floating:
                raise TypeError(
                    f"`latents[{name!r}]` holds integers, and `gibbs` returned {after.dtype.name} "
                    "for it. Start it with floats, or return integers."
                )
        return completed


def row_count(columns: Tensors) -> int:
    """Return the number of rows of some columns."""
    count: int = next(iter(columns.values())).shape[0]
    return count


def _shapes_of(columns: Tensors) -> str:
    return shapes_in_words(
        {name: tuple(column.shape) for name, column in columns.items()}
    )


def shapes_in_words(shapes: Mapping[str, Any]) -> str:
    """Return names and shapes, for messages."""
    return ", ".join(f"{name!r} {shape}" for name, shape in shapes.items())
