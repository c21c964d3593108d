"""The distributions and bijectors that TensorFlow 1 had, by TensorFlow Probability.

Most are there under the same names. What follows is the rest.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

_new = tfp.distributions
_bijectors = tfp.bijectors

SUCCESSORS = {
    "VectorDiffeomixture": "tf$distributions$MixtureSameFamily",
    "VectorStudentT": "tf$distributions$MultivariateStudentTLinearOperator",
    "ConditionalDistribution": "tf$distributions$Distribution",
    "ConditionalTransformedDistribution": "tf$distributions$TransformedDistribution",
    "ConditionalBijector": "tf$distributions$bijectors$Bijector",
    "estimator_head_distribution_regression": "a logLik with tf$distributions instead: "
    "TensorFlow's estimators are no more",
}
"""What to write in place of those that are gone."""


def member(path: str, name: str) -> Any:
    """Return a distribution or a bijector, or ``None`` if there is none of that name."""
    ours, theirs = _PLACES[path]
    return ours.get(name, getattr(theirs, name, None))


def listed(path: str) -> list[str]:
    """Return their names, sorted."""
    ours, theirs = _PLACES[path]
    names = {name for name in dir(theirs) if not name.startswith("_")}
    return sorted(
        names | set(ours) | ({"bijectors"} if path == "distributions" else set())
    )


def _wishart(df: Any, scale: Any = None, scale_tril: Any = None, **further: Any) -> Any:
    """Return a Wishart distribution by its scale matrix or by the Cholesky root of that."""
    if (scale is None) == (scale_tril is None):
        raise ValueError("Wishart takes either `scale` or `scale_tril`.")
    if scale_tril is None:
        scale_tril = tf.linalg.cholesky(tf.convert_to_tensor(scale, _common(df, scale)))
    scale_tril = tf.convert_to_tensor(scale_tril, _common(df, scale_tril))
    return _new.WishartTriL(df, scale_tril=scale_tril, **further)


def _wishart_full(df: Any, scale: Any, **further: Any) -> Any:
    return _wishart(df, scale, **further)


def _wishart_cholesky(df: Any, scale: Any, **further: Any) -> Any:
    return _wishart(df, scale_tril=scale, **further)


def _common(*values: Any) -> tf.DType:
    return next((value.dtype for value in values if tf.is_tensor(value)), tf.float32)


def _softplus(distribution: Any, *positive: str) -> Callable[..., Any]:
    """Return a distribution some of whose parameters are put through softplus first."""
    order = list(inspect.signature(distribution).parameters)

    def with_softplus(*values: Any, **named: Any) -> Any:
        named = {**dict(zip(order, values, strict=False)), **named}
        for name in positive:
            named[name] = tf.nn.softplus(named[name])
        return distribution(**named)

    return with_softplus


def _abs_df(distribution: Any, *positive: str) -> Callable[..., Any]:
    inner = _softplus(distribution, *positive)

    def with_abs_df(df: Any, *values: Any, **named: Any) -> Any:
        return inner(
            tf.floor(tf.abs(tf.convert_to_tensor(df, _common(df)))), *values, **named
        )

    return with_abs_df


def _inverse_gamma(
    concentration: Any, scale: Any = None, rate: Any = None, **further: Any
) -> Any:
    """Return an inverse gamma distribution, whose second parameter used to be called ``rate``."""
    return _new.InverseGamma(concentration, rate if scale is None else scale, **further)


def _normal_diag(
    loc: Any = None,
    scale_diag: Any = None,
    scale_identity_multiplier: Any = None,
    **further: Any,
) -> Any:
    if scale_identity_multiplier is not None:
        scale_diag = _diagonal(loc, scale_diag, scale_identity_multiplier)
    return _new.MultivariateNormalDiag(loc, scale_diag, **further)


def _normal_diag_softplus(loc: Any, scale_diag: Any, **further: Any) -> Any:
    return _new.MultivariateNormalDiag(loc, tf.nn.softplus(scale_diag), **further)


def _vector(distribution: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return the vector of independent coordinates loc + scale * standard one."""

    def of_vectors(
        loc: Any = None,
        scale_diag: Any = None,
        scale_identity_multiplier: Any = None,
        **more: Any,
    ) -> Any:
        scale = _diagonal(loc, scale_diag, scale_identity_multiplier)
        loc = (
            tf.zeros_like(scale)
            if loc is None
            else tf.convert_to_tensor(loc, scale.dtype)
        )
        return _new.Independent(distribution(loc, scale, **more), 1)

    return of_vectors


def _diagonal(loc: Any, scale_diag: Any, multiplier: Any) -> tf.Tensor:
    """Return the diagonal diag(scale_diag) + multiplier I, which is I if neither is given."""
    dtype = _common(loc, scale_diag, multiplier)
    parts = [
        tf.convert_to_tensor(v, dtype)
        for v in (scale_diag, multiplier)
        if v is not None
    ]
    total = (
        tf.add_n([part + tf.zeros_like(parts[0]) for part in parts])
        if parts
        else tf.ones([], dtype)
    )
    return (
        total
        if loc is None
        else total + tf.zeros_like(tf.convert_to_tensor(loc, dtype))
    )


def _shifted_exponential(loc: Any, scale: Any) -> Any:
    return _bijectors.Shift(loc)(_new.Exponential(1 / scale))


def _matrix_diag_transform(
    matrix: Any, transform: Any = None, name: Any = None
) -> tf.Tensor:
    if transform is None:
        return matrix
    return tf.linalg.set_diag(matrix, transform(tf.linalg.diag_part(matrix)))


def _tridiag(
    below: Any = None, diag: Any = None, above: Any = None, name: Any = None
) -> tf.Tensor:
    parts = [
        tf.linalg.diag(part, k=k)
        for part, k in ((below, -1), (diag, 0), (above, 1))
        if part is not None
    ]
    return tf.add_n(parts)


def _affine(
    shift: Any = None,
    scale_identity_multiplier: Any = None,
    scale_diag: Any = None,
    scale_tril: Any = None,
    scale_perturb_factor: Any = None,
    scale_perturb_diag: Any = None,
    adjoint: bool = False,
    **further: Any,
) -> Any:
    """Return y = (c I + diag(d) + L + U diag(v) Uᵀ) x + shift."""
    given = (
        shift,
        scale_identity_multiplier,
        scale_diag,
        scale_tril,
        scale_perturb_factor,
    )
    dtype = _common(*given)
    shift, c, d, tril, u = (
        None if value is None else tf.convert_to_tensor(value, dtype) for value in given
    )
    if tril is None and d is None and u is None:
        # Of no particular size.
        scale: Any = _bijectors.Scale(tf.ones([], dtype) if c is None else c)
    else:
        sizes = [part.shape[-2] for part in (tril, u) if part is not None]
        eye = tf.eye(sizes[0] if d is None else d.shape[-1], dtype=dtype)
        if tril is not None:
            matrix = tf.linalg.band_part(tril, -1, 0)
        else:
            matrix = 0 * eye if c is not None or d is not None else eye
        if c is not None:
            matrix += c[..., tf.newaxis, tf.newaxis] * eye
        if d is not None:
            matrix += tf.linalg.diag(d)
        if u is not None:
            v = tf.ones([], dtype)
            if scale_perturb_diag is not None:
                v = tf.convert_to_tensor(scale_perturb_diag, dtype)[..., tf.newaxis, :]
            matrix += tf.matmul(u * v, u, transpose_b=True)
        operator = tf.linalg.LinearOperatorFullMatrix
        if u is None:
            operator = tf.linalg.LinearOperatorLowerTriangular
        scale = _bijectors.ScaleMatvecLinearOperator(operator(matrix), adjoint=adjoint)
    return scale if shift is None else _bijectors.Shift(shift)(scale)


def _affine_operator(
    shift: Any = None, scale: Any = None, adjoint: bool = False, **more: Any
) -> Any:
    if scale is None:
        return _bijectors.Identity() if shift is None else _bijectors.Shift(shift)
    bijector = _bijectors.ScaleMatvecLinearOperator(scale, adjoint=adjoint)
    return bijector if shift is None else _bijectors.Shift(shift)(bijector)


def _affine_scalar(
    shift: Any = None, scale: Any = None, log_scale: Any = None, **more: Any
) -> Any:
    if scale is None and log_scale is None:
        return _affine_operator(shift)
    bijector = _bijectors.Scale(scale=scale, log_scale=log_scale)
    return bijector if shift is None else _bijectors.Shift(shift)(bijector)


_DISTRIBUTIONS: dict[str, Any] = {
    "Wishart": _wishart,
    "WishartFull": _wishart_full,
    "WishartCholesky": _wishart_cholesky,
    "BetaWithSoftplusConcentration": _softplus(
        _new.Beta, "concentration1", "concentration0"
    ),
    "Chi2WithAbsDf": _abs_df(_new.Chi2),
    "ExponentialWithSoftplusRate": _softplus(_new.Exponential, "rate"),
    "GammaWithSoftplusConcentrationRate": _softplus(
        _new.Gamma, "concentration", "rate"
    ),
    "InverseGammaWithSoftplusConcentrationRate": _softplus(
        _new.InverseGamma, "concentration", "scale"
    ),
    "LaplaceWithSoftplusScale": _softplus(_new.Laplace, "scale"),
    "NormalWithSoftplusScale": _softplus(_new.Normal, "scale"),
    "StudentTWithAbsDfSoftplusScale": _abs_df(_new.StudentT, "scale"),
    "InverseGamma": _inverse_gamma,
    "MultivariateNormalDiag": _normal_diag,
    "MultivariateNormalDiagWithSoftplusScale": _normal_diag_softplus,
    "VectorExponentialDiag": _vector(_shifted_exponential),
    "VectorLaplaceDiag": _vector(_new.Laplace),
    "VectorSinhArcsinhDiag": _vector(_new.SinhArcsinh),
    "fill_triangular": tfp.math.fill_triangular,
    "fill_triangular_inverse": tfp.math.fill_triangular_inverse,
    "softplus_inverse": tfp.math.softplus_inverse,
    "reduce_weighted_logsumexp": tfp.math.reduce_weighted_logsumexp,
    "percentile": tfp.stats.percentile,
    "auto_correlation": tfp.stats.auto_correlation,
    "assign_log_moving_mean_exp": tfp.stats.assign_log_moving_mean_exp,
    "assign_moving_mean_variance": tfp.stats.assign_moving_mean_variance,
    "moving_mean_variance": tfp.stats.moving_mean_variance_zero_debiased,
    "matrix_diag_transform": _matrix_diag_transform,
    "tridiag": _tridiag,
}
_BIJECTORS: dict[str, Any] = {
    "Affine": _affine,
    "AffineLinearOperator": _affine_operator,
    "AffineScalar": _affine_scalar,
    "Gumbel": _bijectors.GumbelCDF,
    "Kumaraswamy": lambda *given, **named: _bijectors.Invert(
        _bijectors.KumaraswamyCDF(*given, **named)
    ),
    "Ordered": lambda *given, **named: _bijectors.Invert(_bijectors.Ascending()),
    "ScaleTriL": _bijectors.FillScaleTriL,
    "Weibull": _bijectors.WeibullCDF,
}
_PLACES = {
    "distributions": (_DISTRIBUTIONS, _new),
    "distributions.bijectors": (_BIJECTORS, _bijectors),
}
