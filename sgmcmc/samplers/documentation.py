"""Completes the signatures and docstrings of the sampler functions.

Source shows a summary and the arguments in R's order; what all functions have in common, and what
all functions of one dynamics or one gradient estimator have in common, is written once and inserted
here.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sgmcmc.inputs.options import ARGUMENTS, DEFAULTS, OF_A_RUN, OF_GEODESICS
from sgmcmc.samplers import examples
from sgmcmc.samplers.arguments import CHOSEN, DESCRIPTIONS, OF_EXACT, OF_PARTS

Function = TypeVar("Function", bound=Callable[..., Any])

_CENTRED = """
The gradient is estimated with control variates: the mode θ̂ is found by ``n_iters_opt`` steps of
stochastic gradient ascent with stepsize ``opt_stepsize``, the gradient G there is taken over the
whole dataset, and then
ĝ(θ) = G + [∇log p(θ) − ∇log p(θ̂)] + (N/n) Σ_{i∈S} [∇log p(x_i|θ) − ∇log p(x_i|θ̂)].
The chain starts at θ̂. Far fewer observations a step then give the same accuracy, as long as the
posterior is concentrated around θ̂.
"""

_STEPWISE = """
:func:`sgmcmc.init_sess` starts a session and :func:`sgmcmc.sgmcmc_step` takes it further; n steps
of a fresh session give the draws that :func:`sgmcmc.{method}` gives with the same seed.
"""

_RETURNS = """
Returns:
    :class:`sgmcmc.Samples`: a mapping from parameter names to arrays of shape
    ``(draws, *param_shape)``, or ``(n_chains, draws, *param_shape)``.

Raises:
    ValueError, TypeError: an argument is wrong; the message names it.
    DivergenceError: the chain became NaN or infinite.
    MemoryError: the chain, or the table of its gradient estimator, does not fit.
"""

_RETURNS_STEPWISE = """
Returns:
    :class:`sgmcmc.StepwiseSampler`: what ``init_sess`` starts a session of.

Raises:
    ValueError, TypeError: an argument is wrong; the message names it.
    MemoryError: the table of the gradient estimator does not fit.
"""

_CENTRED_SOURCE = "Baker, Fearnhead, Fox & Nemeth, Statistics and Computing 29, 2019, eq. 9"


@dataclass(frozen=True)
class Prose:
    """What is said of all functions of one dynamics.

    Attributes:
        equation: the update equation, and what to know of it.
        source: where it comes from, with equation numbers.
        stepsize: one that suits the example.
        arguments: what to say of arguments that only these functions have, or have otherwise.
        model: the example's model, as doctest lines; by default the mean of a normal.
        call: the arguments of the example's call.
        one_call: the example of the function that runs the whole chain.
        steps: the example step by step.
    """

    equation: str
    source: str
    stepsize: str = "1e-4"
    arguments: Mapping[str, str] = field(default_factory=dict)
    model: str = examples.NORMAL
    call: str = examples.NORMAL_CALL
    one_call: str = examples.NORMAL_MEAN
    steps: str = examples.NORMAL_STEPS

    def documented(
        self,
        method: str,
        *,
        centred: bool = False,
        stepwise: bool = False,
        on_manifolds: bool = False,
    ) -> Callable[[Function], Function]:
        """Return the decorator of one of these functions.

        Args:
            method: the function that runs the whole chain.
            centred: whether the gradient is estimated with control variates.
            stepwise: whether the function sets up a sampler to be run step by step.
            on_manifolds: whether it moves parameters on manifolds.
        """
        without = (() if on_manifolds else OF_GEODESICS) + (OF_A_RUN if stepwise else ())

        def complete(function: Function) -> Function:
            complete_signature(function, without)
            summary = inspect.cleandoc(function.__doc__ or "")
            parts = [
                summary,
                self.equation.strip(),
                _CENTRED.strip() if centred else "",
                _STEPWISE.strip().format(method=method) if stepwise else "",
                arguments_section(function, {**DESCRIPTIONS, **self.arguments}),
                (_RETURNS_STEPWISE if stepwise else _RETURNS).strip(),
                "Example:\n" + textwrap.indent(self._example(function, centred, stepwise), "    "),
                "Source:\n" + textwrap.indent(self._source(centred), "    "),
            ]
            function.__doc__ = "\n\n".join(part for part in parts if part)
            return function

        return complete

    def _source(self, centred: bool) -> str:
        text = f"{self.source}; {_CENTRED_SOURCE}." if centred else f"{self.source}."
        return textwrap.fill(text, 92)

    def _example(self, function: Callable[..., Any], centred: bool, stepwise: bool) -> str:
        opt = ", 1e-4" if centred else ""
        call = self.call.format(stepsize=self.stepsize + opt)
        after = (self.steps if stepwise else self.one_call).strip()
        return f"{self.model.strip()}\n{after.format(function=function.__name__, call=call)}"


def complete_signature(function: Callable[..., Any], without: tuple[str, ...] = ()) -> None:
    """Show the keyword-only arguments that every sampler has one by one in a signature.

    Args:
        function: a function that ends in ``**keywords``.
        without: keywords that it does not have.
    """
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    names = [parameter.name for parameter in own]
    own += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in DEFAULTS.items()
        if name not in without and name not in names
    ]
    function.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    ARGUMENTS[function.__name__] = [parameter.name for parameter in own]


def arguments_section(function: Callable[..., Any], said: Mapping[str, str]) -> str:
    """Return the docstring's list of a function's arguments."""
    lines = ["Args:"]
    for name in inspect.signature(function).parameters:
        text = textwrap.dedent(said[name]).strip().replace("\n", " ")
        lines.append(
            textwrap.fill(
                f"{name}: {text}",
                width=92,
                initial_indent="    ",
                subsequent_indent="        ",
                break_long_words=False,
            )
        )
    return "\n".join(lines)


def documented_parts(*, stepwise: bool = False) -> Callable[[Function], Function]:
    """Return the decorator of the functions that take any parts.

    ``{arguments}`` in the docstring becomes the list of all arguments, what comes back, and the
    errors.
    """

    def complete(function: Function) -> Function:
        complete_signature(function, ("replace", *(OF_A_RUN if stepwise else ())))
        said = {**DESCRIPTIONS, **OF_PARTS}
        text = arguments_section(function, said) + "\n"
        text += (_RETURNS_STEPWISE if stepwise else _RETURNS).rstrip()
        function.__doc__ = inspect.cleandoc(function.__doc__ or "").replace("{arguments}", text)
        return function

    return complete


_NOT_OF_EXACT = ("replace", "minibatches", "updates", "gibbs", "latents")


def documented_exact() -> Callable[[Function], Function]:
    """Return the decorator of the functions that take the whole dataset at every step.

    ``{arguments}`` in the docstring becomes the list of all arguments, what comes back, and the
    errors; ``{chosen}`` what is chosen.
    """

    def complete(function: Function) -> Function:
        complete_signature(function, (*OF_GEODESICS, *_NOT_OF_EXACT))
        text = arguments_section(function, {**DESCRIPTIONS, **OF_PARTS, **OF_EXACT}) + "\n"
        text += _RETURNS.rstrip()
        text = inspect.cleandoc(function.__doc__ or "").replace("{arguments}", text)
        function.__doc__ = text.replace("{chosen}", CHOSEN.strip())
        return function

    return complete
