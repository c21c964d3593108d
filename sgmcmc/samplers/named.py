"""The named functions: signatures, docstrings, and the requests that they make.

The source shows a summary and the arguments in R's order. Text that all functions share, or all
functions of one dynamics or gradient estimator, is written once and inserted here. The function
that sets up a sampler to run step by step is derived from the one that runs it.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sgmcmc.dynamics import Dynamics
from sgmcmc.gradients import ControlVariate, Gradient, MinibatchGradient
from sgmcmc.inputs.options import ARGUMENTS, DEFAULTS, KEYWORDS, OF_A_RUN, OF_GEODESICS
from sgmcmc.plan.reports import CurvatureReporter
from sgmcmc.run.request import Request

Function = TypeVar("Function", bound=Callable[..., Any])

DESCRIPTIONS: dict[str, str] = {
    "log_lik": """
        Function of two dicts of tensors, the parameters and a minibatch of the dataset, that
        returns the log-likelihood summed over the observations in the minibatch, a scalar tensor,
        or its terms, one for each observation, a tensor of shape (n,).""",
    "dataset": """
        Dict of arrays that share their first axis, of length N: NumPy arrays, memmaps, lists,
        pandas columns and frames, HDF5, Zarr, Dask, Arrow, Parquet files by name, Hugging Face
        datasets, SciPy's sparse matrices; or a table, each of whose columns is an entry. Numbers
        are converted to ``dtype``; a ``tf.Tensor`` keeps its own, and categories stay integers.""",
    "params": """
        Dict of starting values, of any shapes. With ``n_chains`` it may be a list of such dicts,
        one for each chain.""",
    "stepsize": """
        Stepsize ε, in units of squared parameter: a number, a schedule
        (:func:`sgmcmc.polynomial_decay`, or a function of the iteration, from 1), or an array with
        one for each coordinate; or a dict with such an entry for each parameter; or any of these
        divided by the size of each parameter's gradients, :func:`sgmcmc.gradient_scaled`.
        ``"auto"`` chooses the largest at which the predicted error of every posterior SD is at most
        5 %.""",
    "opt_stepsize": """
        Stepsize of the stochastic gradient ascent that finds the mode, in the form of ``stepsize``.
        ``"auto"`` finds it by Newton steps on the whole dataset instead.""",
    "log_prior": """
        Function of the dict of parameters that returns their log prior density, a scalar tensor;
        ``None`` is a flat prior.""",
    "minibatch_size": """
        Minibatch size n: a proportion of N if between 0 and 1, else an integer from 1 to N. With n
        = N every gradient is exact.""",
    "n_iters": """
        Number of iterations after ``burn_in``; ``n_iters // thin`` draws are kept.""",
    "n_iters_opt": """
        Number of iterations of mode-finding; 0 centers the control variate at ``params``.""",
    "verbose": """
        Whether to show progress bars with the log posterior estimate; ``False`` prints nothing.""",
    "seed": """
        Integer seed; the same call with the same seed on the same machine gives the same draws, bit
        for bit. ``None`` draws one; ``settings["seed"]`` of the result has it.""",
    **{name: keyword["text"] for name, keyword in KEYWORDS.items()},
}
"""Description of each argument, unless a sampler has its own."""

_CENTERED = """
The gradient is estimated with control variates: the mode θ̂ is found by ``n_iters_opt`` steps of
stochastic gradient ascent with stepsize ``opt_stepsize``, the gradient G there is computed over the
whole dataset, and then
ĝ(θ) = G + [∇log p(θ) − ∇log p(θ̂)] + (N/n) Σ_{i∈S} [∇log p(x_i|θ) − ∇log p(x_i|θ̂)].
The chain starts at θ̂. Far fewer observations per step then give the same accuracy, as long as the
posterior is concentrated around θ̂.
"""

_STEPWISE = """
:func:`sgmcmc.init_sess` starts a session and :func:`sgmcmc.sgmcmc_step` continues it; n steps of a
fresh session give the draws that :func:`sgmcmc.{method}` gives with the same seed.
"""

RETURNS = """
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

_CENTERED_SOURCE = (
    "Baker, Fearnhead, Fox & Nemeth, Statistics and Computing 29, 2019, eq. 9"
)


_NORMAL = """
>>> import numpy as np, sgmcmc, tensorflow as tf
>>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
>>> def log_lik(params, dataset):
...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
"""

_NORMAL_MEAN = """
>>> chain = sgmcmc.{function}(
...     {call}, n_iters=5000,
...     verbose=False, seed=1)
>>> abs(float(chain["theta"].mean()) - float(x.mean())) < 0.05
True
"""

_NORMAL_STEPS = """
>>> sampler = sgmcmc.{function}({call}, seed=1)
>>> sess = sgmcmc.init_sess(sampler, verbose=False)
>>> sgmcmc.sgmcmc_step(sampler, sess, n_steps=100)
>>> abs(float(sgmcmc.get_params(sampler, sess)["theta"]) - 3.0) < 0.5
True
"""

_NORMAL_CALL = 'log_lik, {{"x": x}}, {{"theta": 3.0}}, {stepsize}, minibatch_size=100'


@dataclass(frozen=True)
class Method:
    """The named functions of one dynamics: their documentation, and the parts that they run.

    Attributes:
        dynamics: Class of the dynamics, whose constants are arguments of the functions.
        equation: Update equation, and notes on it.
        source: Reference, with equation numbers.
        stepsize: Stepsize that suits the example.
        arguments: Descriptions of arguments that only these functions have, or describe
            differently.
        model: Model of the example, as doctest lines; by default the mean of a normal.
        call: Arguments of the example's call.
        one_call: Example of the function that runs the whole chain.
        steps: Example step by step.
        on_manifolds: Whether the dynamics move parameters on manifolds.
    """

    dynamics: type[Dynamics]
    equation: str
    source: str
    stepsize: str = "1e-4"
    arguments: Mapping[str, str] = field(default_factory=dict)
    model: str = _NORMAL
    call: str = _NORMAL_CALL
    one_call: str = _NORMAL_MEAN
    steps: str = _NORMAL_STEPS
    on_manifolds: bool = False

    def documented(self, function: Function) -> Function:
        """Complete signature and docstring of a function that runs the whole chain."""
        complete_signature(function, () if self.on_manifolds else OF_GEODESICS)
        self._describe(function)
        return function

    def setup_of(self, function: Callable[..., Any]) -> Callable[[Function], Function]:
        """Return the decorator of the function that sets up the sampler of ``function``.

        Args:
            function: Function that runs the whole chain.
        """

        def complete(setup: Function) -> Function:
            shown = inspect.signature(function)
            gone = {*OF_A_RUN, "n_iters", "store_unnormalized"}
            gone |= set() if _is_centered(shown.parameters) else {"verbose"}
            kept = [
                entry for name, entry in shown.parameters.items() if name not in gone
            ]
            setup.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
                kept, return_annotation="StepwiseSampler"
            )
            ARGUMENTS[setup.__name__] = [parameter.name for parameter in kept]
            self._describe(setup, of=function.__name__)
            return setup

        return complete

    def request(
        self, function: str, given: Mapping[str, Any], *, stepwise: bool = False
    ) -> Request:
        """Return the request of a call.

        Args:
            function: Name of the function that was called.
            given: Its arguments by name, ``keywords`` among them.
            stepwise: Whether the user runs the chain.
        """
        constants = inspect.signature(self.dynamics).parameters
        gradient: Gradient = MinibatchGradient()
        if _is_centered(given):
            gradient = ControlVariate(given["opt_stepsize"], given["n_iters_opt"])
        return Request(
            function,
            function.removesuffix("_setup"),
            dynamics=self.dynamics(
                **{name: given[name] for name in constants if name in given}
            ),
            gradient=gradient,
            stepwise=stepwise,
            reporter=CurvatureReporter(),
            **{name: given[name] for name in _OF_A_MODEL},
        )

    def setup_request(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        arguments: Mapping[str, Any],
    ) -> tuple[Request, bool]:
        """Return the request of a call of a :meth:`setup_of` function, and whether it is verbose.

        Args:
            function: Function that was called.
            args: Its positional arguments.
            arguments: Its other arguments; those of every sampler may be among them.
        """
        shown = inspect.signature(function).parameters
        explicit = [entry for name, entry in shown.items() if name not in DEFAULTS]
        own: dict[str, Any] = {}
        keywords: dict[str, Any] = {}
        for name, value in arguments.items():
            (keywords if name in DEFAULTS or name not in shown else own)[name] = value
        try:
            bound = inspect.Signature(explicit).bind(*args, **own)
        except TypeError as error:
            raise TypeError(f"{function.__name__}(): {error}.") from None
        bound.apply_defaults()
        given = {**bound.arguments, "keywords": keywords}
        return self.request(function.__name__, given, stepwise=True), given.get(
            "verbose", False
        )

    def _describe(self, function: Callable[..., Any], of: str | None = None) -> None:
        """Complete a docstring.

        Args:
            function: Function with a docstring of one line.
            of: Function that runs the whole chain, if this one sets it up.
        """
        centered = _is_centered(inspect.signature(function).parameters)
        parts = [
            inspect.cleandoc(function.__doc__ or ""),
            self.equation.strip(),
            _CENTERED.strip() if centered else "",
            _STEPWISE.strip().format(method=of) if of else "",
            arguments_section(function, {**DESCRIPTIONS, **self.arguments}),
            (_RETURNS_STEPWISE if of else RETURNS).strip(),
            "Example:\n"
            + textwrap.indent(self._example(function, centered, bool(of)), "    "),
            "Source:\n" + textwrap.indent(self._source(centered), "    "),
        ]
        function.__doc__ = "\n\n".join(part for part in parts if part)

    def _source(self, centered: bool) -> str:
        text = f"{self.source}; {_CENTERED_SOURCE}." if centered else f"{self.source}."
        return textwrap.fill(text, 92)

    def _example(
        self, function: Callable[..., Any], centered: bool, stepwise: bool
    ) -> str:
        opt = ", 1e-4" if centered else ""
        call = self.call.format(stepsize=self.stepsize + opt)
        after = (self.steps if stepwise else self.one_call).strip()
        return f"{self.model.strip()}\n{after.format(function=function.__name__, call=call)}"


_OF_A_MODEL = (
    "log_lik",
    "dataset",
    "params",
    "log_prior",
    "minibatch_size",
    "stepsize",
    "seed",
    "keywords",
)
"""Arguments of a call that a request has under the same name."""


def _is_centered(names: Mapping[str, Any]) -> bool:
    """Return whether a function with these arguments estimates gradients by control variates."""
    return "opt_stepsize" in names


def complete_signature(
    function: Callable[..., Any], without: tuple[str, ...] = ()
) -> None:
    """List the keyword-only arguments of every sampler one by one in a signature.

    Args:
        function: Function whose signature ends in ``**keywords``.
        without: Keywords that it does not have.
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


def with_arguments(
    without: tuple[str, ...], texts: Mapping[str, str], *, stepwise: bool = False
) -> Callable[[Function], Function]:
    """Return the decorator of a function whose docstring has a place for all arguments.

    ``{arguments}`` becomes the list of all arguments, the return value, and the errors.

    Args:
        without: Keywords of other samplers that the function does not have.
        texts: Descriptions of arguments that the function describes differently.
        stepwise: Whether the function sets up a sampler to run step by step.
    """

    def complete(function: Function) -> Function:
        complete_signature(function, (*without, *(OF_A_RUN if stepwise else ())))
        text = arguments_section(function, {**DESCRIPTIONS, **texts}) + "\n"
        text += (_RETURNS_STEPWISE if stepwise else RETURNS).rstrip()
        function.__doc__ = inspect.cleandoc(function.__doc__ or "").replace(
            "{arguments}", text
        )
        return function

    return complete
