"""Points of the simplex, as squares of unit vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from sgmcmc.manifolds.sphere import UnitVectors

_ROUNDING = 1e-4
"""How far the sum of a point of the simplex may be from one."""


@dataclass(frozen=True)
class Simplex(UnitVectors):
    """Points ω of the simplex along the last axis, as ω = v² with v on the sphere.

    The chain moves v along great circles. Densities are with respect to Lebesgue's measure on the
    simplex, as that of a Dirichlet law is, so that no prior is Dirichlet(1, ..., 1); the area of
    the sphere is Dirichlet(1/2, ..., 1/2) on the simplex, so that Σ log |v_i| is added. The
    integrator has trouble near a component that is zero, unless its density behaves there as
    1/√ω: stepsizes have to be small, or use :func:`sgmcmc.scir`, whose law is exact.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> z = np.repeat(np.eye(3), [70, 20, 10], axis=0)
        >>> def log_lik(params, dataset):
        ...     return tf.linalg.matvec(dataset["z"], tf.math.log(params["omega"]))
        >>> chain = sgmcmc.sggmc(
        ...     log_lik, {"z": z}, {"omega": np.ones(3) / 3}, 1e-3, minibatch_size=100,
        ...     manifolds={"omega": sgmcmc.manifolds.Simplex()}, n_iters=5000,
        ...     verbose=False, seed=1)
        >>> np.round(chain["omega"].mean(0, dtype=float), 1).tolist()
        [0.7, 0.2, 0.1]

    Source:
        Byrne & Girolami, Scandinavian Journal of Statistics 40, 2013, section 4.2; Lan, Zhou &
        Shahbaba, ICML 2014.
    """

    what = "points of the simplex"
    in_place = False
    coordinates = "square roots of points of the simplex"

    def check(self, label: str, start: np.ndarray, dtype: tf.DType) -> None:
        """Raise an error if a starting value is not inside the simplex."""
        self.check_shape(label, start.shape)
        gap = float(np.abs(start.sum(-1, dtype=np.float64) - 1.0).max())
        if not (start > 0).all() or not gap < _ROUNDING:
            raise ValueError(
                f"`{label}` must start inside the simplex, along its last axis: positive "
                f"components with sum 1; the smallest is {float(start.min()):g}, and the sum is "
                f"off by up to {gap:.2g}."
            )

    def held(self, u: tf.Tensor, slope: tf.Tensor, stepsize: tf.Tensor) -> tf.Tensor:
        """Return g / √(1 + (εg/v)⁴), g the slope.

        With counts c in a component, g is (2c + 1)/v, and near the edge a kick εg is larger than
        v itself. It would throw v anywhere. Elsewhere what is taken away is of order ε⁴.
        """
        return slope / tf.sqrt(1.0 + tf.math.divide_no_nan(stepsize * slope, u) ** 4)

    def start(self, value: np.ndarray, dtype: tf.DType) -> np.ndarray:
        """Return v = √ω."""
        return self._nearest(np.sqrt(np.asarray(value, np.float64)))

    def constrain(self, u: tf.Tensor) -> tf.Tensor:
        """Return ω = v²."""
        return tf.maximum(u * u, _least(u.dtype))

    def of_point(self, point: tf.Tensor) -> tf.Tensor:
        """Return ω; gradients are taken with respect to v."""
        return self.constrain(point)

    def log_jacobian(self, u: tf.Tensor) -> tf.Tensor:
        """Return Σ log |v_i|, up to a constant."""
        return 0.5 * tf.reduce_sum(tf.math.log(self.constrain(u)))


def _least(dtype: tf.DType) -> tf.Tensor:
    """Return the smallest ω that is shown; its root and its logarithm have room beside it."""
    return tf.constant(np.finfo(dtype.as_numpy_dtype).tiny * 2.0**26, dtype)
