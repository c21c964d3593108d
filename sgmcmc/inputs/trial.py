"""Tries the user's model once, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data import Data
from sgmcmc.inputs.calls import as_tensor, call, first_lines
from sgmcmc.inputs.numbers import describe
from sgmcmc.latents import Latents
from sgmcmc.layout import Layout
from sgmcmc.model import LogLik, LogPrior, Model, Tensors
from sgmcmc.simplex import WHAT_LOG_LIK_MUST_BE, usable_counts
from sgmcmc.tracing import trace


def make_model(
    log_lik: LogLik,
    log_prior: LogPrior | None,
    starts: list[dict[str, np.ndarray]],
    bijectors: Mapping[str, Any],
    dtype: tf.DType,
    alpha: Mapping[str, np.ndarray] | None,
) -> Model:
    """Return the model, once the bijectors have been found to fit the starting values."""
    for number, start in enumerate(starts):
        label = "params" if len(starts) == 1 else f"params[{number}]"
        for name, bijector in bijectors.items():
            if name in (alpha or {}):
                raise ValueError(
                    f"`bijectors` names {name!r}, which `alpha` says is a point of the simplex; "
                    "such a parameter needs no bijector."
                )
            _try_bijector(f"{label}[{name!r}]", name, bijector, start[name], dtype)
    shapes = {name: value.shape for name, value in starts[0].items()}
    return Model(log_lik, log_prior, shapes, bijectors, dtype, alpha)


def _try_bijector(start: str, name: str, bijector: Any, value: np.ndarray, dtype: tf.DType) -> None:
    try:
        rank = len(bijector.inverse_event_shape(tf.TensorShape(value.shape)).as_list())
        free = bijector.inverse(tf.constant(value, dtype))
        back = bijector.forward(tf.identity(free)).numpy()
        bijector.forward_log_det_jacobian(tf.identity(free), event_ndims=rank)
    except Exception as error:
        raise ValueError(
            f"`bijectors[{name!r}]` cannot be applied to `{start}`, of shape {value.shape} and "
            f"dtype {dtype.name}. {first_lines(error)}"
        ) from error
    good = np.isfinite(free.numpy()).all() and back.shape == value.shape
    if not (good and np.allclose(back, value, rtol=1e-2, atol=1e-4)):
        raise ValueError(
            f"`{start}` must start inside the range of its bijector {bijector.name!r}; "
            f"{value.tolist()!r} is not."
        )


def try_model(
    model: Model, data: Data, rows: int, starts: list[np.ndarray], latents: Latents | None
) -> dict[str, float]:
    """Evaluate the model and its gradient once at every start, on the first rows of the data.

    Returns:
        What the functions gave at the first start: log-likelihood, log-prior, and the length of
        the gradient.

    Raises:
        TypeError, ValueError: what a function of the user's does wrong, in words.
    """
    minibatch = {name: tf.convert_to_tensor(a) for name, a in data.rows(np.arange(rows)).items()}
    scale = data.size / rows
    functions = "`log_lik` or `log_prior`"
    if latents is not None:
        functions = "`gibbs`, " + functions

    def trial(position: tf.Tensor, minibatch: Tensors) -> dict[str, tf.Tensor]:
        if latents is not None:
            minibatch = _try_gibbs(model, latents, model.constrain(position), minibatch)
        terms = _try_terms(model, model.constrain(position), minibatch)
        missing = model.layout.names
        if any(tf.is_tensor(term) for term in terms.values()):
            missing = tuple(model.missing_gradients(position, minibatch))
        _need_free_prior(model, position)
        if missing:
            raise ValueError(
                f"`log_lik` does not depend on the parameter {missing[0]!r}, and neither does "
                "`log_prior` (the gradient is None). Use it, or take it out of `params`."
            )
        return {
            **{name: tf.convert_to_tensor(term, model.dtype) for name, term in terms.items()},
            "log_post": model.log_post(position, minibatch, scale),
            "gradient": model.gradient(position, minibatch, scale),
        }

    tried = trace(trial, tf.constant(starts[0]), minibatch)
    found: list[dict[str, np.ndarray]] = []
    for number, start in enumerate(starts):
        label = "params" if len(starts) == 1 else f"params[{number}]"
        try:
            values = tried(tf.constant(start), minibatch)
        except tf.errors.OpError as error:
            raise ValueError(f"{functions} failed when it was run. {first_lines(error)}") from error
        found.append({name: value.numpy() for name, value in values.items()})
        _need_finite(label, model.layout, found[-1])
        _need_counts(model, found[-1]["gradient"])
    gradient = found[0].pop("gradient")
    terms = {name: float(value) for name, value in found[0].items()}
    return {**terms, "the length of the gradient": float(np.linalg.norm(gradient))}


def _try_terms(model: Model, params: Tensors, minibatch: Tensors) -> dict[str, Any]:
    """Return what the user's log-likelihood and log-prior give."""
    shapes = ", ".join(f"{k!r} {shape}" for k, shape in model.user_layout.shapes.items())
    given = f"params {shapes}"
    rows = ", ".join(f"{k!r} {tuple(v.shape)}" for k, v in minibatch.items())
    terms = {
        "log_lik": call(
            "log_lik",
            model,
            model.log_lik,
            f"{given}; dataset {rows}",
            params=params,
            dataset=minibatch,
        )
    }
    if model.log_prior is not None:
        terms["log_prior"] = call("log_prior", model, model.log_prior, given, params=params)
    for argument, returned in terms.items():
        tensor = as_tensor(argument, returned, "a scalar tensor")
        if tensor.shape != ():
            raise ValueError(
                f"`{argument}` must return a scalar; it returned a tensor of shape "
                f"{tensor.shape}. Sum it with tf.reduce_sum. It was called with {given}"
                + (f"; dataset {rows}." if argument == "log_lik" else ".")
            )
        if getattr(returned, "dtype", model.dtype) != model.dtype:
            raise TypeError(
                f"`{argument}` returned {tensor.dtype.name}, but the chain runs in "
                f"{model.dtype.name}. Declare constants with tf.constant(..., dtype=tf."
                f"{model.dtype.name}), or choose the `dtype` of the sampler."
            )
    return terms


def _try_gibbs(model: Model, latents: Latents, params: Tensors, minibatch: Tensors) -> Tensors:
    """Return the minibatch that ``gibbs`` completed."""
    rows = next(iter(minibatch.values())).shape[0]
    kept = {name: tf.constant(values[:rows]) for name, values in latents.starts.items()}
    given = {**minibatch, **kept}
    shapes = ", ".join(f"{k!r} {tuple(v.shape)}" for k, v in given.items())
    returned = call(
        "gibbs",
        model,
        latents.gibbs,
        f"params {list(params)}; dataset {shapes}",
        params=params,
        dataset=given,
        seed=tf.constant([0, 1]),
    )
    if not isinstance(returned, Mapping):
        raise TypeError(
            "`gibbs` must return the minibatch, a dict of tensors, with the latent variables added "
            f"to it; it returned {describe(returned)}."
        )
    completed = {
        **given,
        **{k: as_tensor("gibbs", v, "a dict of tensors") for k, v in returned.items()},
    }
    for name, value in kept.items():
        after = completed[name]
        if after.shape != value.shape:
            raise ValueError(
                f"`gibbs` must return {name!r}, which `latents` keeps, in the shape "
                f"{tuple(value.shape)}; it returned {tuple(after.shape)}."
            )
        if after.dtype.is_floating and not value.dtype.is_floating:
            raise TypeError(
                f"`latents[{name!r}]` holds whole numbers, and `gibbs` returned "
                f"{after.dtype.name} for it. Start it with floats, or return whole numbers."
            )
    return completed


def _need_free_prior(model: Model, position: tf.Tensor) -> None:
    """Raise an error where the user's prior has a say on points of the simplex."""
    if model.simplex.empty or model.log_prior is None:
        return
    params = model.constrain(position)
    points = {name: params[name] for name in model.simplex.names}
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(list(points.values()))
        value = model.log_prior(dict(params))
    gradients = tape.gradient(value, list(points.values())) if tf.is_tensor(value) else []
    for name, gradient in zip(points, gradients, strict=False):
        if gradient is not None:
            raise ValueError(
                f"`log_prior` depends on {name!r}, whose prior is Dirichlet with concentration "
                "`alpha`. Leave it out of `log_prior`."
            )


def _need_counts(model: Model, gradient: np.ndarray) -> None:
    """Raise an error where expected counts are negative beyond rounding."""
    for name, counts in model.layout.split(gradient).items():
        if name in model.simplex and np.isnan(usable_counts(tf.constant(counts))).any():
            raise ValueError(
                f"`log_lik`: the expected counts ω ∂log_lik/∂ω of {name!r} came out negative "
                f"({float(counts.min()):g}). {WHAT_LOG_LIK_MUST_BE}"
            )


def _need_finite(label: str, layout: Layout, values: Mapping[str, np.ndarray]) -> None:
    for argument in ("log_lik", "log_prior", "log_post"):
        value = values.get(argument, np.float32(0.0))
        what = "the log posterior" if argument == "log_post" else f"`{argument}`"
        if not np.isfinite(value):
            raise ValueError(
                f"{what} is {value} at the starting values in `{label}`; start where it is finite."
            )
    gradient = values["gradient"]
    bad = np.flatnonzero(~np.isfinite(gradient))
    if bad.size:
        name = layout.parameter_at(int(bad[0]))
        raise ValueError(
            f"`{label}`: the gradient of the log posterior with respect to {name!r} is "
            f"{gradient[bad[0]]} at the starting values; start where it is finite."
        )
