"""The gradient estimators, as the tests know them: what of a gradient is known, what is sampled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from sgmcmc.gradients import ControlVariate, FullGradient, Gradient, MinibatchGradient
from tests.ladder.problems import Array


class Estimator(ABC):
    """ĝ = ∇log p(θ) + known + (N/n) Σ over the minibatch of the noisy terms.

    Attributes:
        name: what the test is called.
        centered: whether a mode is found first that the estimate is centered at.
    """

    name: str
    centered: bool

    @abstractmethod
    def noisy(self, here: Array, at_center: Array) -> Array:
        """Return the terms that are sampled, of the observations' gradients here and there."""

    @abstractmethod
    def known(self, at_center: Array) -> Array:
        """Return what is known of the sum, of the observations' gradients at the center, (N, d)."""

    @abstractmethod
    def gradient(self, **constants: Any) -> Gradient:
        """Return the package's estimator."""

    @abstractmethod
    def arguments(self, constants: Mapping[str, Any]) -> dict[str, Any]:
        """Return which of these constants a public function takes."""


class Plain(Estimator):
    """The gradients themselves."""

    name, centered = "minibatch", False

    def noisy(self, here: Array, at_center: Array) -> Array:
        """Return the gradients here."""
        return here

    def known(self, at_center: Array) -> Array:
        """Return nothing."""
        return 0.0 * at_center.sum(0)

    def gradient(self, **constants: Any) -> Gradient:
        """Return the package's estimator."""
        return MinibatchGradient()

    def arguments(self, constants: Mapping[str, Any]) -> dict[str, Any]:
        """Return none of them."""
        return {}


class Centered(Estimator):
    """Differences to the gradients at a center, which are summed once."""

    name, centered = "control variate", True

    def noisy(self, here: Array, at_center: Array) -> Array:
        """Return the differences."""
        return here - at_center

    def known(self, at_center: Array) -> Array:
        """Return the sum at the center."""
        return at_center.sum(0)

    def gradient(self, **constants: Any) -> Gradient:
        """Return the package's estimator."""
        return ControlVariate(**constants)

    def arguments(self, constants: Mapping[str, Any]) -> dict[str, Any]:
        """Return all of them."""
        return dict(constants)


class Full(Plain):
    """The gradients of all observations, of which nothing is sampled."""

    name = "full"

    def gradient(self, **constants: Any) -> Gradient:
        """Return the package's estimator."""
        return FullGradient()


PLAIN, CENTERED, FULL = Plain(), Centered(), Full()
