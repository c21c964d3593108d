"""Hamiltonian Monte Carlo without constants from the user: mode, coordinates, stepsize, length."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sgmcmc import checks
from sgmcmc.data.dataset import digest
from sgmcmc.dynamics import HMC, NUTS
from sgmcmc.dynamics.hamiltonian import STEPS, Hamiltonian
from sgmcmc.gradients import FullGradient
from sgmcmc.inputs import parts
from sgmcmc.inputs.options import Options, read_length
from sgmcmc.inputs.turns import JOINT, need_steps
from sgmcmc.results.diagnostics import diagnose
from sgmcmc.results.differences import difference
from sgmcmc.results.samples import Samples
from sgmcmc.results.store import Store
from sgmcmc.run.brief import brief
from sgmcmc.run.choices import is_open
from sgmcmc.run.driver import run, run_lengths
from sgmcmc.run.exact.adaptation import WarmedUp, WarmUp, first_stepsize
from sgmcmc.run.exact.reporting import Told, report_on
from sgmcmc.run.exact.start import Ground, Start, find_start, start_at_params
from sgmcmc.run.lengths import UntilEffective, Wishes
from sgmcmc.run.on_machines import on_machines
from sgmcmc.run.origin import origin_of
from sgmcmc.run.sampler import Request, make_sampler, with_groups
from sgmcmc.target.geometry import Preconditioner

_BURN_IN, _COLD_BURN_IN = 20, 100
"""Iterations dropped after a warm-up, and where there was none."""

_TRIAL = 1000
"""Iterations after which a chain that has only so many seconds is looked at, at the latest."""

_IN_WARM_UP = 0.5
"""What part of the seconds that there are the warm-up may take."""


@dataclass(frozen=True)
class _Quick:
    """A chain whose draws are nearly independent, for what decides its length."""

    autocorrelation: float = 1.0


def is_hamiltonian(dynamics: Any) -> bool:
    """Tell whether a user means dynamics that are run here."""
    return isinstance(dynamics, Hamiltonian) or dynamics in (HMC.name, NUTS.name)


def _whole(request: Request) -> Request:
    """Return the request with dynamics that are known, and the whole dataset for every gradient."""
    dynamics, keywords = parts.read_dynamics(request.dynamics), dict(request.keywords)
    if not is_open(request.gradient):
        parts.read_gradient(request.gradient, dynamics)
    need_steps(keywords.get("updates", JOINT), dynamics)
    minibatches = keywords.pop("minibatches", None)
    if not (is_open(minibatches) or minibatches == "uniform"):
        raise ValueError("`minibatches`: every move takes the whole dataset; leave it out.")
    if not is_open(request.minibatch_size):
        raise ValueError("`minibatch_size`: every move takes the whole dataset; leave it out.")
    return replace(
        request, dynamics=dynamics, gradient=FullGradient(), minibatch_size=None, keywords=keywords
    )


@brief
@on_machines
def run_exactly(
    request: Request, wishes: Wishes, verbose: Any, reason: str = "", doubts: Sequence[str] = ()
) -> Samples:
    """Choose what the request leaves open, run the chains, and return draws with their report.

    Args:
        request: what the user asks for, with a :class:`Hamiltonian` for its dynamics, ``None`` or
            "auto" where a constant is open, and the whole dataset for its gradient.
        wishes: what the user wants of the draws.
        verbose: show progress.
        reason: why the dynamics were chosen, if not by the user.
        doubts: what else the report is to warn of.
    """
    told = Told(time.monotonic(), reason, warnings=list(doubts))
    verbose, wishes = checks.flag("verbose", verbose), wishes.checked()
    request = _whole(with_groups(request))
    request = replace(
        request,
        seed=checks.seed_number("seed", request.seed) if request.seed is not None else None,
        keywords={**request.keywords, "n_chains": wishes.n_chains},
    )
    ground = Ground.of(request)
    _need_fixed_length(ground.options, wishes)
    request = replace(request, data=ground.data, dynamics=_dynamics(request))
    open_ = is_open(request.stepsize) or _coordinates_are_open(
        request.keywords.get("preconditioner")
    )
    burn_in = wishes.burn_in
    if burn_in is None:
        burn_in = _BURN_IN if open_ else _COLD_BURN_IN
    wishes = replace(wishes, burn_in=burn_in)
    if ground.options.store is None:
        request = replace(request, seed=ground.seed)
        request = _tuned(request, ground, wishes, told, verbose) if open_ else request
        thin, d = ground.options.thin, ground.target.size
        trial = _fitting(wishes, told)
        lengths = UntilEffective(wishes, _Quick(), d, thin, told.began, trial)
        return _reported(run_lengths(request, lengths, verbose), wishes, told)
    request = _tuned_once(request, ground, wishes, told, verbose) if open_ else request
    request = replace(request, keywords={**request.keywords, "burn_in": burn_in})
    return _reported(run(request, wishes.n_iters, verbose), wishes, told)


def _need_fixed_length(options: Options, wishes: Wishes) -> None:
    """Raise an error where the length is to be decided on the way, and cannot be."""
    if options.store is not None and wishes.n_iters is None:
        raise ValueError("`store`: a chain on disk has a fixed length. Give `n_iters`.")
    if options.store_params is not True:
        raise ValueError(
            "`store_params`: all parameters are kept, for the draws are judged by looking at them."
        )
    if wishes.n_iters is not None:
        read_length(wishes.n_iters, options.thin)


def _fitting(wishes: Wishes, told: Told) -> int:
    """Return how many iterations half the time that is left is enough for, by the warm-up's."""
    if wishes.max_seconds is None or told.warmed_up is None:
        return _TRIAL
    left = told.began + wishes.max_seconds - time.monotonic()
    each = told.warmed_up.seconds / max(1, told.warmed_up.iterations)
    return int(max(1, min(_TRIAL, 0.5 * left / max(each, 1e-6))))


def _coordinates_are_open(preconditioner: Any) -> bool:
    """Tell whether the coordinates are to be chosen."""
    return preconditioner is None or isinstance(preconditioner, str) and preconditioner != "none"


def _dynamics(request: Request) -> Hamiltonian:
    """Return the dynamics, with the length of trajectories chosen if it is open."""
    dynamics: Hamiltonian = request.dynamics
    if isinstance(dynamics, HMC) and dynamics.length is None and dynamics.n_leapfrog is None:
        given = request.keywords.get("preconditioner")
        if isinstance(given, str) and given == "none":
            return replace(dynamics, n_leapfrog=STEPS)
        return replace(dynamics, length=math.pi / 2)
    return dynamics


def _reported(samples: Samples, wishes: Wishes, told: Told) -> Samples:
    """Return the draws with their report."""
    told.done("chain")
    facts = origin_of(samples).facts
    return samples.with_report(report_on(samples, told, diagnose(samples), wishes.ess, facts))


def _tuned(request: Request, ground: Ground, wishes: Wishes, told: Told, verbose: bool) -> Request:
    """Return the request with everything given that was left open."""
    preconditioner = request.keywords.get("preconditioner")
    start = Start(None, request.params, None, "none")
    if _coordinates_are_open(preconditioner):
        start = find_start(ground, preconditioner, wishes.n_chains, verbose)
        told.mode = start.mode
        told.warnings += start.warnings
        told.done("mode and information")
    found = _warmed_up(request, start, ground, wishes, told, verbose)
    if found.lost and start.mode is not None:
        # The top of a posterior may be far from where it is, as in the neck of a funnel.
        start, told.mode = start_at_params(ground, preconditioner), None
        told.warnings += start.warnings
        found = _warmed_up(request, start, ground, wishes, told, verbose)
    told.warmed_up = found
    told.done("warm-up")
    return replace(
        request,
        params=found.positions,
        stepsize=request.stepsize if found.stepsize is None else found.stepsize,
        keywords={**request.keywords, "preconditioner": found.preconditioner or "none"},
    )


def _warmed_up(
    request: Request, start: Start, ground: Ground, wishes: Wishes, told: Told, verbose: bool
) -> WarmedUp:
    """Return what the warm-up finds from a start."""
    dynamics, stepsize_is_open = request.dynamics, is_open(request.stepsize)
    keywords = {k: v for k, v in request.keywords.items() if k not in _OF_THE_CHAIN}
    preconditioner = start.preconditioner or request.keywords.get("preconditioner")
    trial = replace(
        request,
        params=start.params,
        dynamics=replace(dynamics, metric=None if start.metric == "none" else start.metric),
        stepsize=first_stepsize(ground.target.size) if stepsize_is_open else request.stepsize,
        keywords={**keywords, "preconditioner": preconditioner},
    )
    left = math.inf if wishes.max_seconds is None else _IN_WARM_UP * wishes.max_seconds
    wanted = dynamics.acceptance if stepsize_is_open else None
    return WarmUp(make_sampler(trial), wanted, told.began + left).run(verbose)


_OF_THE_CHAIN = (
    "burn_in", "thin", "store", "store_gradients", "store_params", "test_functions", "reductions",
)  # fmt: skip
"""Keywords that mean nothing to a warm-up."""


def _tuned_once(
    request: Request, ground: Ground, wishes: Wishes, told: Told, verbose: bool
) -> Request:
    """Return the request with everything given, as it was chosen when the store was begun."""
    asked = _asked(request, ground)
    path = ground.options.store
    assert path is not None
    with Store(path) as store:
        known = store.warm_up()
        if known is None and store.about is not None:
            raise ValueError(
                f"`store`: {str(path)!r} holds a chain whose constants were given, not chosen. Use "
                "another path. Nothing was changed."
            )
    if known is None:
        request = replace(request, seed=ground.seed)
        tuned = _tuned(request, ground, wishes, told, verbose)
        with Store(path) as store:
            store.save_warm_up(_packed(tuned, asked))
        return tuned
    about = json.loads(str(known["about"]))
    if request.seed is None:
        asked["seed"] = about["asked"]["seed"]
    found = difference(about["asked"], asked)
    if found is not None:
        raise ValueError(
            f"`store`: {str(path)!r} holds another chain: {found}. Use another path, or the "
            "arguments it was made with. Nothing was changed."
        )
    return _unpacked(request, known, about)


def _asked(request: Request, ground: Ground) -> dict[str, Any]:
    """Return what must be the same for what was chosen to be used again."""
    preconditioner = request.keywords.get("preconditioner")
    if preconditioner is not None and not isinstance(preconditioner, str):
        preconditioner = repr(preconditioner)
    facts = {
        "seed": ground.seed if request.seed is None else request.seed,
        "dynamics": parts.described(request.dynamics),
        "stepsize": parts.json_value(request.stepsize),
        "preconditioner": preconditioner,
        "dtype": ground.options.dtype.name,
        "params": digest(np.stack(ground.starts)),
        "n_chains": ground.options.n_chains,
        "dataset": {name: column.digest() for name, column in ground.data.columns.items()},
        "model": ground.values,
    }
    return json.loads(json.dumps(facts))


def _packed(tuned: Request, asked: dict[str, Any]) -> dict[str, Any]:
    """Return what was chosen, as arrays."""
    about: dict[str, Any] = {
        "asked": asked,
        "chains": len(tuned.params),
        "stepsize": tuned.stepsize if isinstance(tuned.stepsize, float) else None,
    }
    arrays: dict[str, Any] = {}
    preconditioner = tuned.keywords["preconditioner"]
    if isinstance(preconditioner, Preconditioner):
        arrays |= {"root": preconditioner.root, "origin": preconditioner.origin}
    for number in range(about["chains"]):
        arrays |= {f"{number}/{name}": value for name, value in tuned.params[number].items()}
    return {**arrays, "about": np.array(json.dumps(about))}


def _unpacked(request: Request, known: dict[str, np.ndarray], about: dict[str, Any]) -> Request:
    """Return the request with what was chosen."""
    preconditioner: Any = "none"
    if "root" in known:
        preconditioner = Preconditioner(known["root"], known["origin"])
    return replace(
        request,
        params=[
            {name[len(f"{n}/") :]: a for name, a in known.items() if name.startswith(f"{n}/")}
            for n in range(about["chains"])
        ],
        stepsize=request.stepsize if about["stepsize"] is None else about["stepsize"],
        seed=about["asked"]["seed"],
        keywords={**request.keywords, "preconditioner": preconditioner},
    )
