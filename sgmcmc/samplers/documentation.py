"""Signatures and docstrings of the functions that users call, completed by the table.

The source of a function shows its summary and the arguments in R's order. The text that all
functions share, or all of one sampler, is in `samplers/table.py` and inserted here.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

from sgmcmc.inputs.options import ARGUMENTS, DEFAULTS, OF_A_RUN
from sgmcmc.samplers.table import DESCRIPTIONS, SAMPLERS, SamplerEntry

Function = TypeVar("Function", bound=Callable[..., Any])

_CENTERED = """
The gradient is estimated with control variates: the mode θ̂ is found by ``n_iters_opt`` steps of
stochastic gradient ascent with stepsize ``opt_stepsize``, the gradient G there is computed over the
whole dataset, and then
ĝ(θ) = G + [∇log p(θ) − ∇log p(θ̂)] + (N/n) Σ_{i∈S} [∇log p(x_i|θ) − ∇log p(x_i|θ̂)].
The chain starts at θ̂. Far fewer observations per step then give the same accuracy, as long as the
posterior is concentrated around θ̂.
"""

_CENTERED_SOURCE = (
    "Baker, Fearnhead, Fox & Nemeth, Statistics and Computing 29, 2019, eq. 9"
)

_STEPWISE = """
:func:`sgmcmc.init_sess` starts a session and :func:`sgmcmc.sgmcmc_step` continues it; n steps of a
fresh session give the draws that :func:`sgmcmc.{function}` gives with the same seed.
"""

_RETURNS = """
Returns:
    :class:`sgmcmc.Samples`: a mapping from parameter names to arrays of shape
    ``(draws, *param_shape)``, or ``(n_chains, draws, *param_shape)``.

Raises:
    ValueError, TypeError: An argument is wrong; the message names it.
    DivergenceError: The chain became NaN or infinite.
    MemoryError: The chain, or the table of its gradient estimator, does not fit.
"""

_RETURNS_STEPWISE = """
Returns:
    :class:`sgmcmc.StepwiseSampler`: a sampler from which ``init_sess`` starts a session.

Raises:
    ValueError, TypeError: An argument is wrong; the message names it.
    MemoryError: The table of the gradient estimator does not fit.
"""


def documented(function: Function) -> Function:
    """Complete the signature and the docstring of a function by its entry in the table.

    In a docstring with a place for them, ``{arguments}`` becomes the list of all arguments, the
    return value, and the errors, and ``{chosen}`` the paragraph on the choice of constants.
    A docstring of one line is followed by equation, arguments, example and source.
    """
    name = function.__name__
    stepwise = name.endswith("setup")
    entry = SAMPLERS[name.removesuffix("_setup").removesuffix("cv")]
    _complete_signature(function, entry, stepwise)
    arguments = _arguments_section(function, entry)
    returns = _RETURNS_STEPWISE if stepwise else _RETURNS
    text = inspect.cleandoc(function.__doc__ or "")
    if "{arguments}" in text:
        text = text.replace("{arguments}", arguments + "\n" + returns.rstrip())
        function.__doc__ = text.replace("{chosen}", entry.choices.strip())
        return function
    centered = "opt_stepsize" in inspect.signature(function).parameters
    of_run = name.removesuffix("_setup")
    source = f"{entry.source}; {_CENTERED_SOURCE}" if centered else entry.source
    stepsizes = entry.stepsize + (", 1e-4" if centered else "")
    call = entry.example.call.format(stepsize=stepsizes)
    use = entry.example.steps if stepwise else entry.example.run
    use = use.strip().format(function=name, call=call)
    example = f"{entry.example.model.strip()}\n{use}"
    sections = [
        text,
        entry.equation.strip(),
        _CENTERED.strip() if centered else "",
        _STEPWISE.strip().format(function=of_run) if stepwise else "",
        arguments,
        returns.strip(),
        "Example:\n" + textwrap.indent(example, "    "),
        "Source:\n" + textwrap.indent(textwrap.fill(f"{source}.", 92), "    "),
    ]
    function.__doc__ = "\n\n".join(section for section in sections if section)
    return function


def _complete_signature(
    function: Callable[..., Any], entry: SamplerEntry, stepwise: bool
) -> None:
    """List the keyword arguments one by one in a signature that ends in ``**keywords``."""
    signature = inspect.signature(function)
    explicit = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    names = {parameter.name for parameter in explicit}
    if stepwise:
        names.update(OF_A_RUN)
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in DEFAULTS.items()
        if name in entry.keywords.__annotations__ and name not in names
    ]
    complete = signature.replace(parameters=explicit + keywords)
    function.__signature__ = complete  # type: ignore[attr-defined]
    ARGUMENTS[function.__name__] = list(complete.parameters)


def _arguments_section(function: Callable[..., Any], entry: SamplerEntry) -> str:
    descriptions = {**DESCRIPTIONS, **entry.arguments}
    lines = ["Args:"]
    for name in inspect.signature(function).parameters:
        description = textwrap.dedent(descriptions[name]).strip().replace("\n", " ")
        lines.append(
            textwrap.fill(
                f"{name}: {description}",
                width=92,
                initial_indent="    ",
                subsequent_indent="        ",
                break_long_words=False,
            )
        )
    return "\n".join(lines)
