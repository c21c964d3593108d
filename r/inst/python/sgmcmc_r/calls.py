"""Calls from R: what goes wrong comes back as a value, and draws as plain dicts of arrays.

An exception that crosses from Python to R arrives as a bare message, in words that change with
the version of reticulate. So none does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import sgmcmc
from sgmcmc import bars
from sgmcmc_r import after, graphs, interrupts, predictions, regressions, tensorflow1
from sgmcmc_r.draws import parts, plain, rebuilt
from sgmcmc_r.progress import Bar

_INTERRUPTED = "Interrupted: the "


class Table:
    """A schedule that was evaluated beforehand.

    Args:
        values: the stepsizes of iterations 1, 2, ...
    """

    def __init__(self, values: np.ndarray) -> None:
        self._values = np.array(values, ndmin=1)

    def __call__(self, iteration: int) -> float:
        """Return the stepsize of an iteration, counted from 1."""
        return float(self._values[min(iteration, len(self._values)) - 1])


def call(name: str, *arguments: Any) -> dict[str, Any]:
    """Call one of the functions below.

    Args:
        name: its name.
        arguments: its arguments.

    Returns:
        Its ``value``, the ``warnings`` it gave, its ``error`` or ``None``, and whether it was
        ``interrupted`` by Ctrl-C; then the value is what there is so far, if anything.
    """
    outcome: dict[str, Any] = {"value": None, "error": None, "interrupted": False}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            with interrupts.are_pythons(), graphs.left(), bars.made_by(Bar):
                outcome["value"] = _FUNCTIONS[name](*tensorflow1.plain(name, arguments))
        except KeyboardInterrupt:
            outcome["interrupted"] = True
        except Exception as error:
            outcome["error"] = _described(error)
    texts = [
        str(one.message) for one in caught if issubclass(one.category, UserWarning)
    ]
    outcome["warnings"] = [text for text in texts if not text.startswith(_INTERRUPTED)]
    # Python hands over the draws so far and goes on; R goes back to the prompt.
    outcome["interrupted"] |= len(outcome["warnings"]) < len(texts)
    return outcome


def _described(error: Exception) -> dict[str, Any]:
    described: dict[str, Any] = {"kind": type(error).__name__, "message": str(error)}
    if isinstance(error, sgmcmc.DivergenceError):
        described["iterations"] = list(error.iterations)
        described["parameter"] = error.parameter
        described["samples"] = None if error.samples is None else parts(error.samples)
    return described


def _sample(method: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return parts(getattr(sgmcmc, method)(**_with_groups(arguments)))


def _setup(method: str, arguments: Mapping[str, Any]) -> sgmcmc.StepwiseSampler:
    name = "setup" if method == "sample" else method + "_setup"
    return getattr(sgmcmc, name)(**_with_groups(arguments))


def _with_groups(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments whose groups, which R describes by dicts, are objects of the package."""
    groups = arguments.get("groups")
    if groups is None:
        return dict(arguments)
    return {**arguments, "groups": [sgmcmc.Groups(**each) for each in groups]}


def _zero_variance(
    chains: Mapping[str, Any],
    degree: int,
    test_functions: Mapping[str, Callable[..., Any]] | Sequence[str] | None,
    fit: str,
    batches: int | None,
    keep_draws: bool,
    bijectors: Mapping[str, Any] | None,
) -> dict[str, Any]:
    corrected = sgmcmc.zero_variance(
        rebuilt(chains),
        degree,
        test_functions,
        fit=fit,
        batches=batches,
        keep_draws=keep_draws,
        bijectors=bijectors,
    )
    return {
        **parts(corrected),
        "mean": plain(corrected.mean),
        "coefficients": plain(corrected.coefficients),
        "varianceRatio": plain(corrected.variance_ratio),
    }


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sample": _sample,
    "setup": _setup,
    "init_sess": lambda sampler, verbose, restore: sgmcmc.init_sess(
        sampler, verbose, restore=restore
    ),
    "sgmcmc_step": sgmcmc.sgmcmc_step,
    "get_params": lambda sampler, session: plain(sgmcmc.get_params(sampler, session)),
    "est_log_post": lambda sampler, minibatch: sampler.est_log_post(minibatch),
    "save": lambda session, path: session.save(path),
    "attribute": lambda owner, name: plain(getattr(owner, name)),
    "open": lambda path: parts(sgmcmc.Samples.open(path)),
    "zero_variance": _zero_variance,
    "report": after.report,
    "quick_warnings": after.quick_warnings,
    "summary": after.summary,
    "predict": after.predict,
    "effects": after.effects,
    "terms": after.terms,
    "extend": after.extend,
    "ksd": after.ksd,
    "write": after.write,
    "read": after.read,
    "glm": regressions.fit,
    "glm_judged": regressions.judged,
    "glm_robust": regressions.robust,
    "glm_effects": regressions.effects,
    "glm_predict": predictions.predict,
    "glm_terms": predictions.terms,
    "glm_loo": regressions.loo,
    "reduction": lambda name, *arguments: getattr(sgmcmc, name)(*arguments),
    "polynomial_decay": sgmcmc.polynomial_decay,
    "predictor_bound": sgmcmc.predictor_bound,
    "get_dataset": lambda name, verbose: sgmcmc.get_dataset(name, verbose=verbose),
    **tensorflow1.FUNCTIONS,
}
