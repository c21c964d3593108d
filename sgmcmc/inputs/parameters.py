"""The parameters of a call: starting values, spaces, latent variables and preconditioner."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import describe, is_number, known_keys
from sgmcmc.data.dataset import Data, digest
from sgmcmc.data.entries import as_numbers, refuse_overflow
from sgmcmc.data.reading import read_dataset
from sgmcmc.dynamics import Dynamics
from sgmcmc.dynamics.riemannian import SimplexDynamics
from sgmcmc.gradients.latents import Gibbs, Latents
from sgmcmc.graphs.user_functions import first_lines
from sgmcmc.inputs.options import Options
from sgmcmc.interrupts import pass_on
from sgmcmc.manifolds import Manifold
from sgmcmc.model.geometry import Bijected, Geometry, Preconditioner, Space
from sgmcmc.model.geometry.bijectors import fitting
from sgmcmc.model.geometry.gamma import OnHalfLine, OnSimplex


def read_columns(dataset: Any, options: Options) -> Data:
    """Return the dataset of the chains, with the user's executors for passes over it."""
    data = read_dataset(dataset, options.dtype, options.integers, options.storage)
    known_keys(
        "integers", options.integers, data.columns, "the columns of `dataset` are"
    )
    return data.on(options.executor)


def read_params(
    params: Any, n_chains: int | None, dtype: tf.DType
) -> list[dict[str, np.ndarray]]:
    """Return the starting values, a dict for each start."""
    if isinstance(params, Mapping):
        return [read_start("params", params, dtype)]
    if not isinstance(params, list | tuple):
        raise TypeError(
            f"`params` must be a dict of starting values, or a list of such dicts, one for each "
            f"chain; it is {describe(params)}."
        )
    if not params:
        raise ValueError(
            "`params` is an empty list: it must hold a dict for each chain."
        )
    if n_chains is None or len(params) != n_chains:
        raise ValueError(
            f"`params` is a list of {len(params)} starts, so `n_chains` must be {len(params)}; "
            f"it is {n_chains}."
        )
    for number, start in enumerate(params):
        if not isinstance(start, Mapping):
            raise TypeError(
                f"`params[{number}]` must be a dict; it is {describe(start)}."
            )
    starts = [
        read_start(f"params[{i}]", start, dtype) for i, start in enumerate(params)
    ]
    shapes = [{name: value.shape for name, value in start.items()} for start in starts]
    for number, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ValueError(
                f"`params`: every start must have the same names and shapes; params[0] has "
                f"{shapes[0]}, params[{number}] has {shape}."
            )
    return [{name: start[name] for name in starts[0]} for start in starts]


def broadcast(label: str, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array in the shape of its parameter.

    Raises:
        ValueError: It does not fit; ``label`` is what the user calls it.
    """
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(
            f"`{label}` has shape {array.shape}, which does not fit the parameter's {shape}."
        ) from None


def read_start(
    label: str, params: Mapping[Any, Any], dtype: tf.DType
) -> dict[str, np.ndarray]:
    """Return one dict of starting values."""
    if not params:
        raise ValueError(f"`{label}` is empty: it must name at least one parameter.")
    start = {}
    for name, value in params.items():
        if not isinstance(name, str):
            raise TypeError(f"`{label}`: its keys must be strings; {name!r} is not.")
        array = as_numbers(f"{label}[{name!r}]", value)
        if array.size == 0:
            raise ValueError(
                f"`{label}[{name!r}]` has shape {array.shape}: nothing to sample."
            )
        if array.dtype.kind == "f":
            refuse_overflow(f"{label}[{name!r}]", array, dtype)
        # A copy, so that the chain cannot change the user's array, or the reverse.
        start[name] = np.array(array, dtype=dtype.as_numpy_dtype, order="C")
        if not np.isfinite(start[name]).all():
            raise ValueError(
                f"`{label}[{name!r}]`: starting values must be finite; {value!r} is not."
            )
    _need_names(label, start)
    return start


# Axes of draws in ArviZ, which parameters cannot share their names with.
_AXES = ("chain", "draw")


def _need_names(label: str, start: Mapping[str, np.ndarray]) -> None:
    """Refuse names under which two coordinates would be one in summaries and reports."""
    for name in start:
        if not name.strip():
            raise ValueError(
                f"`{label}`: {name!r} is no name. Give the parameter another one."
            )
        if name in _AXES:
            raise ValueError(
                f"`{label}`: {name!r} is the name of an axis of the draws. Give the parameter "
                "another one."
            )
        match = re.fullmatch(r"(.+)\[(\d+(?:, \d+)*)\]", name, re.DOTALL)
        indices = tuple(map(int, match[2].split(", "))) if match else ()
        shape = start[match[1]].shape if match and match[1] in start else ()
        inside = all(index < size for index, size in zip(indices, shape, strict=False))
        if match and shape and len(indices) == len(shape) and inside:
            raise ValueError(
                f"`{label}`: {name!r} is also the name of a coordinate of {match[1]!r}. Give one "
                "of them another name."
            )
        axis = re.fullmatch(r"(.+)_dim_(\d+)", name, re.DOTALL)
        if axis and axis[1] in start and int(axis[2]) < start[axis[1]].ndim:
            raise ValueError(
                f"`{label}`: {name!r} is also the name of an axis of {axis[1]!r}. Give one of them "
                "another name."
            )


def read_latents(
    gibbs: Gibbs | None, latents: Mapping[str, Any], data: Data, dtype: tf.DType
) -> Latents | None:
    """Return the function that draws latent variables, or ``None`` if there are none.

    Kept values that are integers stay integers, because they are mostly labels; others become
    ``dtype``. A tensor keeps its own. A function may have an attribute ``advice`` for the user of a
    chain that became NaN.
    """
    if gibbs is None:
        return None
    starts = {}
    for name, values in latents.items():
        label = f"latents[{name!r}]"
        if name in data.columns:
            raise ValueError(f"`{label}`: `dataset` has a column of that name.")
        array = as_numbers(label, values)
        if array.ndim == 0 or array.shape[0] != data.size:
            raise ValueError(
                f"`{label}` must hold a value for each of the {data.size} observations; it is "
                f"{describe(array)}."
            )
        if array.dtype.kind == "f":
            if not np.isfinite(array).all():
                raise ValueError(f"`{label}`: starting values must be finite.")
            if not tf.is_tensor(values):
                array = array.astype(dtype.as_numpy_dtype)
        starts[name] = np.array(array, order="C")
    return Latents(gibbs, starts, getattr(gibbs, "advice", None))


def gamma_parameters(
    gamma: Any, start: Mapping[str, np.ndarray]
) -> dict[str, OnHalfLine]:
    """Return the geometries of the parameters with gamma priors.

    Args:
        gamma: User's dict of (shape, rate) or (shape, rate, power); ``None`` for none.
        start: Starting values, for names and shapes.
    """
    if gamma is None:
        return {}
    if not isinstance(gamma, Mapping):
        raise TypeError(
            "`gamma` must be a dict that names parameters and their gamma priors, "
            f"{{'rate': (shape, rate)}}; it is {describe(gamma)}."
        )
    if not gamma:
        raise ValueError("`gamma` is an empty dict: it must name the gamma parameters.")
    known_keys("gamma", gamma, start, "the parameters are")
    return {
        name: _read_gamma_prior(f"gamma[{name!r}]", prior, start[name])
        for name, prior in gamma.items()
    }


def _read_gamma_prior(label: str, prior: Any, start: np.ndarray) -> OnHalfLine:
    if not isinstance(prior, list | tuple) or len(prior) not in (2, 3):
        raise TypeError(
            f"`{label}` must be a pair (shape, rate), or with a power (shape, rate, power); it is "
            f"{describe(prior)}."
        )
    arrays = []
    for number, value in enumerate(prior[:2]):
        place = f"{label}[{number}]"
        array = as_numbers(place, value).astype(np.float64)
        if not np.isfinite(array).all():
            raise ValueError(f"`{place}` must be finite; it is {describe(value)}.")
        arrays.append(broadcast(place, array, start.shape))
    shape, rate = arrays
    if not (shape > 0).all():
        raise ValueError(
            f"`{label}[0]`: shapes must be positive; it is {describe(prior[0])}."
        )
    if not (rate >= 0).all():
        raise ValueError(
            f"`{label}[1]`: rates must be positive, or 0 if `log_prior` has them; it is "
            f"{describe(prior[1])}."
        )
    power = prior[2] if len(prior) == 3 else 1.0
    if not (is_number(power) and np.isfinite(power) and power != 0):
        raise ValueError(
            f"`{label}[2]`: the power must be a number, and not 0; it is {describe(power)}."
        )
    return OnHalfLine(shape, rate, float(power))


@dataclass(frozen=True)
class Constraints:
    """The constraints of a call.

    Attributes:
        bijectors: Bijectors of TFP, by parameter.
        manifolds: Manifolds, by parameter.
        temperature: Temperature of the priors that come with a space.
    """

    bijectors: Mapping[str, Any] = field(default_factory=dict)
    manifolds: Mapping[str, Manifold] = field(default_factory=dict)
    temperature: float = 1.0


def read_geometries(
    constraints: Constraints,
    dynamics: Dynamics,
    starts: list[dict[str, np.ndarray]],
    dtype: tf.DType,
) -> dict[str, Geometry]:
    """Return the geometry of each parameter with constraints; starting values fit it then."""
    manifolds = constraints.manifolds
    geometries: dict[str, Geometry] = {}
    if isinstance(dynamics, SimplexDynamics):
        gamma = getattr(dynamics, "gamma", None)
        from_dynamics: dict[str, Any] = {**gamma_parameters(gamma, starts[0])}
        from_dynamics |= points_of_simplex(dynamics, starts[0], from_dynamics, dtype)
        for name, geometry in from_dynamics.items():
            geometries[name] = _at(name, geometry, constraints.temperature)
    geometries |= manifolds
    for name, bijector in constraints.bijectors.items():
        if name in manifolds:
            raise ValueError(
                f"`bijectors` names {name!r}, which `manifolds` names too; a parameter on a "
                "manifold needs no bijector."
            )
        if name in geometries:
            raise ValueError(
                f"`bijectors` names {name!r}, which `alpha` says is a point of the simplex; "
                "such a parameter needs no bijector."
                if isinstance(geometries[name], OnSimplex)
                else f"`bijectors` names {name!r}, which has a gamma prior by `gamma`; such a "
                "parameter needs no bijector."
            )
        for number, start in enumerate(starts):
            label = _label(starts, number, name)
            bijector = _fitting_bijector(label, name, bijector, start[name], dtype)
        geometries[name] = Bijected(bijector, starts[0][name].shape)
    for number, start in enumerate(starts):
        for name, geometry in geometries.items():
            geometry.check(_label(starts, number, name), start[name], dtype)
    return geometries


def _at(name: str, geometry: Any, temperature: float) -> Geometry:
    """Return the geometry with the prior that it has at a temperature."""
    if temperature == 1.0:
        return geometry
    tempered = geometry.at_temperature(temperature)
    if tempered is None:
        raise ValueError(
            f"`temperature`: at {temperature:g} the prior of {name!r} is improper: a concentration "
            "α (or the shape of a gamma prior) becomes (α − 1)/T + 1, which must be positive."
        )
    return tempered


def _label(starts: list[dict[str, np.ndarray]], number: int, name: str) -> str:
    """Return the label of a starting value in messages."""
    return f"params[{name!r}]" if len(starts) == 1 else f"params[{number}][{name!r}]"


def _fitting_bijector(
    start: str, name: str, bijector: Any, value: np.ndarray, dtype: tf.DType
) -> Any:
    """Return a bijector that maps values of the chain's dtype, tried at a start."""
    try:
        bijector = fitting(bijector, value, dtype)
    except Exception as error:
        pass_on(error)
        raise ValueError(
            f"`bijectors[{name!r}]` cannot be applied to `{start}`, of shape {value.shape} and "
            f"dtype {dtype.name}. {first_lines(error)}"
        ) from error
    free = bijector.inverse(tf.constant(value, dtype))
    back = bijector.forward(tf.identity(free)).numpy()
    good = np.isfinite(free.numpy()).all() and back.shape == value.shape
    if not (good and np.allclose(back, value, rtol=1e-2, atol=1e-4)):
        raise ValueError(
            f"`{start}` must start inside the range of its bijector {bijector.name!r}; "
            f"{value.tolist()!r} is not."
        )
    return bijector


def read_preconditioner(
    value: Any, space: Space, start: np.ndarray
) -> Preconditioner | None:
    """Return the preconditioner M = CCᵀ, or ``None`` for none.

    Args:
        value: User's preconditioner: "none" or ``None``, p or p × p numbers, or a dict of such by
            parameter.
        space: Space of the parameters, without a preconditioner.
        start: Start of the chain, which becomes the origin.
    """
    if value is None or (isinstance(value, str) and value == "none"):
        return None
    if isinstance(value, Preconditioner):
        return value
    if isinstance(value, str):
        raise ValueError(
            "`preconditioner` must be 'none', 'dense', 'diagonal', an array of p or p × p numbers "
            f"(p = {space.layout.size}), or a dict of arrays by parameter; it is {value!r}."
        )
    if isinstance(value, Mapping):
        matrix = _by_parameter(value, space)
    else:
        matrix = _one_array("preconditioner", value, space.layout.size, ())
    for name in value if isinstance(value, Mapping) else space.layout.names:
        if not space.geometries[name].affine:
            raise ValueError(
                f"`preconditioner`: {name!r} moves in special coordinates, which cannot be "
                "preconditioned. Give a dict that names the other parameters."
            )
    return Preconditioner(_root(matrix), _origin(value, space, start))


def _by_parameter(value: Mapping[str, Any], space: Space) -> np.ndarray:
    """Return the numbers of all coordinates: the identity for a parameter that is not named."""
    layout = space.layout
    known_keys("preconditioner", value, layout.names, "the parameters are")
    blocks = {
        name: _one_array(
            f"preconditioner[{name!r}]", entry, layout.sizes[name], layout.shapes[name]
        )
        for name, entry in value.items()
    }
    diagonal = np.ones(layout.size)
    if all(block.ndim == 1 for block in blocks.values()):
        for name, block in blocks.items():
            diagonal[layout.slices[name]] = block
        return diagonal
    matrix = np.diag(diagonal)
    for name, block in blocks.items():
        block_slice = layout.slices[name]
        matrix[block_slice, block_slice] = block if block.ndim == 2 else np.diag(block)
    return matrix


def _one_array(label: str, value: Any, size: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return one entry as a vector or a matrix in float64, known to be positive."""
    array = as_numbers(label, value).astype(np.float64)
    if array.shape == shape:
        array = array.reshape(-1)
    if array.shape not in ((size,), (size, size)):
        raise ValueError(
            f"`{label}` must hold {size} or {size} × {size} numbers; it is {describe(array)}."
        )
    if not np.isfinite(array).all():
        raise ValueError(f"`{label}` must hold finite numbers.")
    if array.ndim == 1:
        if not (array > 0).all():
            raise ValueError(
                f"`{label}` must hold positive numbers, variances; its smallest is "
                f"{float(array.min()):g}."
            )
        return array
    rounding = 1e-6 * np.abs(array).max()
    if np.abs(array - array.T).max() > rounding:
        raise ValueError(f"`{label}` must be a symmetric matrix, a covariance.")
    if np.linalg.eigvalsh(array)[0] <= 0:
        raise ValueError(
            f"`{label}` must be positive definite; its smallest eigenvalue is "
            f"{float(np.linalg.eigvalsh(array)[0]):g}."
        )
    return (array + array.T) / 2


def _origin(value: Any, space: Space, start: np.ndarray) -> np.ndarray:
    """Return û: the start, but zero for a parameter that is not named, whose coordinates stay."""
    origin = np.array(start)
    if isinstance(value, Mapping):
        for name in set(space.layout.names) - set(value):
            origin[space.layout.slices[name]] = 0.0
    return origin


def _root(matrix: np.ndarray) -> np.ndarray:
    return np.sqrt(matrix) if matrix.ndim == 1 else np.linalg.cholesky(matrix)


def preconditioner_setting(preconditioner: Preconditioner | None) -> Any:
    """Return variances or covariance, if small, else a digest."""
    if preconditioner is None:
        return "none"
    root = preconditioner.root
    is_large = len(root) > 2000  # no covariance is made of it
    if preconditioner.kind not in ("dense", "diagonal") or is_large:
        arrays = preconditioner.arrays().values()
        return digest(
            np.concatenate([array.ravel().astype(np.float64) for array in arrays])
        )
    covariance = root @ root.T if preconditioner.dense else root**2
    return covariance.tolist() if root.size <= 64 else digest(covariance)


def points_of_simplex(
    dynamics: SimplexDynamics,
    start: Mapping[str, np.ndarray],
    taken_names: Container[str],
    dtype: tf.DType,
) -> dict[str, OnSimplex]:
    """Return the geometries of the parameters that are points of the simplex for the dynamics.

    Args:
        dynamics: Dynamics, with the user's settings for such points.
        start: Starting values, for names and shapes.
        taken_names: Parameters that have another space.
        dtype: Dtype of the chain.
    """
    alpha = _read_alpha(dynamics.alpha, start, taken_names)
    theta0 = _read_theta0(dynamics.theta0, alpha, dtype)
    return {name: OnSimplex(value, theta0.get(name)) for name, value in alpha.items()}


def _read_alpha(
    alpha: Any, start: Mapping[str, np.ndarray], taken_names: Container[str]
) -> dict[str, np.ndarray]:
    """Return the concentrations of each parameter that is a point of the simplex.

    Args:
        alpha: Concentrations: a number or an array, for all parameters, or a dict.
        start: Starting values, for names and shapes.
        taken_names: Parameters that have another space.
    """
    if alpha is None:
        if not any(name in taken_names for name in start):
            raise ValueError(
                "`alpha` must be given, the Dirichlet concentrations of points of the simplex, or "
                "`gamma`, the priors of gamma parameters."
            )
        return {}
    if isinstance(alpha, Mapping):
        if not alpha:
            raise ValueError(
                "`alpha` is an empty dict: it must name the points of the simplex."
            )
        known_keys("alpha", alpha, start, "the parameters are")
        for name in alpha:
            if name in taken_names:
                raise ValueError(
                    f"`alpha` names {name!r}, which has a gamma prior by `gamma`."
                )
        return {
            name: _read_points(f"alpha[{name!r}]", value, start[name])
            for name, value in alpha.items()
        }
    return {
        name: _read_points("alpha", alpha, value)
        for name, value in start.items()
        if name not in taken_names
    }


def _read_points(label: str, alpha: Any, start: np.ndarray) -> np.ndarray:
    array = as_numbers(label, alpha).astype(np.float64)
    if not (np.isfinite(array).all() and (array > 0).all()):
        raise ValueError(
            f"`{label}`: Dirichlet concentrations must be positive and finite; it is "
            f"{describe(alpha)}."
        )
    return broadcast(label, array, start.shape)


def _read_theta0(
    theta0: Any, alpha: Mapping[str, np.ndarray], dtype: tf.DType
) -> dict[str, np.ndarray]:
    """Return the starts of the unnormalized θ of some parameters."""
    if theta0 is None:
        return {}
    if not isinstance(theta0, Mapping):
        raise TypeError(
            f"`theta0` must be a dict of the unnormalized starts of points of the simplex; it is "
            f"{describe(theta0)}."
        )
    known_keys("theta0", theta0, alpha, "`alpha` names")
    start = read_start("theta0", theta0, dtype)
    for name, value in start.items():
        if value.shape != alpha[name].shape:
            raise ValueError(
                f"`theta0[{name!r}]` has shape {value.shape}; the parameter has "
                f"{alpha[name].shape}."
            )
        if not (value > 0).all():
            raise ValueError(
                f"`theta0[{name!r}]` must be positive; its smallest component is "
                f"{float(value.min()):g}."
            )
    return start
