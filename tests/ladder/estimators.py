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
        centred: whether a mode is found first that the estimate is centred at.
    """

    name: str
    centred: bool

    @abstractmethod
    def noisy(self, here: Array, at_centre: Array) -> Array:
        """Return the terms that are sampled, of the observations' gradients here and there."""

    @abstractmethod
    def known(self, at_centre: Array) -> Array:
        """Return what is known of the sum, of the observations' gradients at the centre, (N, d)."""

    @abstractmethod
    def gradient(self, **constants: Any) -> Gradient:
        """Return the package's estimator."""

    @abstractmethod
    def arguments(self, constants: Mapping[str, Any]) -> dict[str, Any]:
        """Return which of these constants a public function takes."""


class Plain(Estimator):
    """The gradients themselves."""

    name, centred = "minibatch", False

    def noisy(self, here: Array, at_centre: Array) -> Array:
        """Return the gradients here."""
        return here

    def known(self, at_centre: Array) -> Array:
        """Return nothing."""
        return 0.0 * at_centre.sum(0)

    def gradient(self, **constants: Any) -> Gradient:
        """Return the package's estimator."""
        return MinibatchGradient()

    def arguments(self, constants: Mapping[str, Any]) -> dict[str, Any]:
        """Return none of them."""
        return {}


class Centred(Estimator):
    """Differences to the gradients at a centre, which are summed once."""

    name, centred = "control variate", True

    def noisy(self, here: Array, at_centre: Array) -> Array:
        """Return the differences."""
        return here - at_centre

    def known(self, at_centre: Array) -> Array:
        """Return the sum at the centre."""
        return at_centre.sum(0)

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


PLAIN, CENTRED, FULL = Plain(), Centred(), Full()
