"""The exceptions that sgmcmc raises besides ``ValueError`` and ``TypeError``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgmcmc.results.samples import Samples


class DivergenceError(ArithmeticError):
    """A chain became NaN or infinite, so it was stopped.

    The message says in which iterations it happened, which parameter was the first to diverge, and
    what to do about it: nearly always, to use a smaller stepsize.

    Args:
        message: Message for a person.
        iterations: First and last iteration, counted from 1 with burn-in included, between which
            the chain left the finite numbers.
        parameter: Parameter that was found non-finite first.
        samples: Finite draws before that, or ``None`` if the mode-finding diverged.

    Example:
        >>> import sgmcmc, tensorflow as tf
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> try:
        ...     sgmcmc.sgld(log_lik, {"x": [0.0, 1.0] * 50}, {"theta": 0.0}, 100.0,
        ...                 minibatch_size=10, n_iters=1000, verbose=False, seed=1)
        ... except sgmcmc.DivergenceError as error:
        ...     print(error.parameter, len(error.samples["theta"]) < 1000)
        theta True
    """

    def __init__(
        self,
        message: str,
        *,
        iterations: tuple[int, int],
        parameter: str,
        samples: Samples | None = None,
    ) -> None:
        super().__init__(message)
        self.iterations = iterations
        self.parameter = parameter
        self.samples = samples

    def __reduce__(self) -> tuple[Any, ...]:
        # So that the error comes back whole from another process.
        return _restore, (str(self), self.iterations, self.parameter, self.samples)


def _restore(
    message: str, iterations: tuple[int, int], parameter: str, samples: Samples | None
) -> DivergenceError:
    return DivergenceError(
        message, iterations=iterations, parameter=parameter, samples=samples
    )
