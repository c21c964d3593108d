"""Where parameters live that are not anywhere in ℝᵈ: bijectors and manifolds, by name."""

from __future__ import annotations

from typing import Any

from sgmcmc import libraries
from sgmcmc.checks import by_name
from sgmcmc.manifolds import Manifold
from sgmcmc.words import describe


def read_bijectors(value: Any) -> dict[str, Any]:
    """Return the bijectors, checked."""
    bijectors = by_name("bijectors", value, "of TFP bijectors")
    for name, entry in bijectors.items():
        if not isinstance(entry, libraries.tensorflow_probability().bijectors.Bijector):
            raise TypeError(
                f"`bijectors[{name!r}]` must be a tfp.bijectors.Bijector, such as "
                f"tfp.bijectors.Exp(); it is {describe(entry)}."
            )
    return bijectors


def read_manifolds(value: Any) -> dict[str, Manifold]:
    """Return the manifolds, checked."""
    manifolds = by_name("manifolds", value, "of manifolds")
    for name, entry in manifolds.items():
        if not isinstance(entry, Manifold):
            hint = f" Did you mean {entry.__name__}()?" if isinstance(entry, type) else ""
            raise TypeError(
                f"`manifolds[{name!r}]` must be an object of sgmcmc.manifolds, such as "
                f"sgmcmc.manifolds.Sphere(); it is {describe(entry)}.{hint}"
            )
    return manifolds
