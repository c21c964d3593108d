"""The driver of a whole run, phase after phase, which returns the draws."""

from __future__ import annotations

import contextlib
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from sgmcmc.checks import outside
from sgmcmc.engine.runner import Diverged, Runner
from sgmcmc.engine.scheduler import advance_all
from sgmcmc.errors import DivergenceError
from sgmcmc.gradients import WholeData
from sgmcmc.inputs.options import read_length
from sgmcmc.inputs.support import infinite_value_warnings
from sgmcmc.interrupts import TimeUpError, limited
from sgmcmc.libraries import need_no_fork
from sgmcmc.results.samples import Samples
from sgmcmc.results.schema import LOG_POST
from sgmcmc.results.store import Store, read_store
from sgmcmc.run.builder import PhaseRun, RunOutput, make_runners
from sgmcmc.run.chain_executors import executor_of
from sgmcmc.run.checkpoints import (
    Checkpoints,
    Ending,
    allocate,
    fingerprint,
    modes,
    record_specs,
    schema_of,
)
from sgmcmc.run.request import Request
from sgmcmc.run.sampler import Sampler, make_sampler
from sgmcmc.run.sampler_origin import GoOn, SamplerOrigin


class StoppingRule(Protocol):
    """When chains stop, decided while they run.

    Attributes:
        burn_in: Number of iterations dropped first.
        cap: Largest number of iterations after burn-in.
        until: Time at which the chains should end, by the monotonic clock.
        least_seconds: Seconds that chains have, once they are compiled, even if time is up by then.
    """

    burn_in: int | None
    cap: int

    @property
    @abstractmethod
    def until(self) -> float:
        """Time at which the chains should end, by the monotonic clock."""

    @property
    @abstractmethod
    def least_seconds(self) -> float:
        """Seconds that chains have, once they are compiled, even if time is up by then."""

    @abstractmethod
    def goals(self) -> Iterator[int]:
        """Yield the numbers of iterations after burn-in at which to stop."""

    @abstractmethod
    def see(self, samples: Samples) -> None:
        """Check the draws when a goal has been reached, before the next one."""

    @abstractmethod
    def announce(self, seconds: float) -> None:
        """Warn, once, that many more seconds are predicted."""


def run_tuned(request: Request, n_iters: Any, verbose: bool) -> Samples:
    """Run the sampler of a request in which nothing is open, and return its draws."""
    sampler = make_sampler(request)
    n_iters = read_length(n_iters, sampler.options.thin)
    with contextlib.ExitStack() as stack:
        store = None
        if sampler.options.store is not None:
            store = stack.enter_context(Store(sampler.options.store))
            if request.seed is None and store.seed is not None:
                sampler = with_seed(sampler, store.seed)
        return _Run(sampler, n_iters, store).finish(verbose)


def with_seed(sampler: Sampler, seed: int) -> Sampler:
    """Return the same sampler with another seed."""
    return replace(sampler, seed=seed, settings={**sampler.settings, "seed": seed})


def run_until(request: Request, rule: StoppingRule, verbose: bool) -> Samples:
    """Make the requested sampler, run it to the end, and return its draws.

    Raises:
        TimeoutError: Time was up before there were draws to judge.
    """
    sampler = make_sampler(request.tuned(burn_in=rule.burn_in))
    max_stops = 64  # of a chain whose length is decided during the run
    return _Run(sampler, rule.cap, None, max_stops).reach(rule, verbose)


class _Run:
    """A run from beginning to end, in memory or on disk."""

    def __init__(
        self,
        sampler: Sampler,
        n_iters: int,
        store: Store | None,
        stops: int = 0,
        ending: Ending | None = None,
    ) -> None:
        need_no_fork()
        self.sampler = sampler
        self.store = store
        self.checkpoints = Checkpoints(store, sampler.chain.kind)
        self.ending = ending
        self.total = sampler.options.burn_in + n_iters
        self.phase_run = PhaseRun(sampler, sampler.chain, self.total)
        self.executor = executor_of(self.phase_run)
        self.schema = schema_of(sampler)
        arrays = record_specs(
            sampler, n_iters // sampler.options.thin, self.total, stops
        )
        chains = range(len(sampler.starts))
        if store is None:
            self.arrays = allocate(arrays)
            self.rows: list[dict[str, Any]] = [
                {name: array[number] for name, array in self.arrays.items()}
                for number in chains
            ]
        else:
            store.prepare(
                {**fingerprint(sampler), "n_iters": n_iters}, self.schema, arrays
            )
            self.rows = [store.rows(number) for number in chains]

    def reach(self, rule: StoppingRule, verbose: bool) -> Samples:
        """Run from goal to goal and return the kept draws."""
        runners = self._runners(verbose)
        until = max(rule.until, time.monotonic() + rule.least_seconds)
        for goal in rule.goals():
            for runner in runners:
                runner.total = self.sampler.options.burn_in + goal
            with limited(until):
                samples = self._advance(runners, verbose, rule.announce)
            rule.see(samples)
            if not all(runner.finished for runner in runners):
                break  # Ctrl-C, or the end of the time
        return samples

    def finish(self, verbose: bool) -> Samples:
        """Run to the end and return the kept draws."""
        samples = self._advance(self._runners(verbose), verbose)
        start = self.sampler.request.read.params[0]
        for text in infinite_value_warnings(samples, self.sampler.target, start):
            warnings.warn(text, stacklevel=outside())
        return samples

    def finish_at(self, iteration: int, verbose: bool) -> Samples:
        """Run up to an iteration, and return the kept draws."""
        runners = self._runners(verbose)
        for runner in runners:
            runner.total = max(iteration, runner.iteration)
        return self._advance(runners, verbose)

    def _runners(self, verbose: bool) -> list[Runner]:
        """Run the phases before the chain, and return the chain's runners."""
        sampler = self.sampler
        handover = None if self.store is None else self.store.handover()
        whole = whole_by_chain(sampler, handover)
        if self.ending is not None:
            self.ending.remind(whole)
            starts = self.ending.starts
        else:
            starts = (
                list(handover["positions"])
                if handover
                else search(sampler, verbose, self.store)
            )

        def resume(runners: Sequence[Runner]) -> None:
            if self.ending is not None:
                self.ending.resume(runners, self.arrays)
            self.checkpoints.resume(runners)
            both = zip(runners, self.rows, strict=True)
            if any(
                [runner.go_on(rows[LOG_POST][: runner.blocks]) for runner, rows in both]
            ):
                self.checkpoints.save_now(runners)

        output = RunOutput(self.rows, resume, self.checkpoints.save)
        runners = make_runners(self.phase_run, starts, whole, output, self.executor)
        self.starts = starts
        if self.store is not None and handover is None and len(sampler.phases) > 1:
            kinds = [before.kind.name.lower() for before in sampler.phases[:-1]]
            self.store.save_handover(
                {"positions": np.stack(starts)} | modes(runners), kinds
            )
        return runners

    def _advance(
        self,
        runners: list[Runner],
        verbose: bool,
        announce: Callable[[float], None] | None = None,
    ) -> Samples:
        phase = self.sampler.chain
        in_time = True
        try:
            advance_to = self.executor.advance_to
            finished = advance_all(runners, phase.label, verbose, advance_to, announce)
        except TimeUpError:
            finished = in_time = False
        except Diverged as diverged:
            samples = self._collect(runners, at_end=False)
            raise divergence(diverged, phase.argument, samples) from None
        if not finished:
            draws = min(runner.draws for runner in runners)
            if in_time and draws == 0:
                raise KeyboardInterrupt
            min_draws = 4  # for which there are diagnostics
            if draws < min_draws and not in_time:
                raise TimeoutError(
                    f"`max_seconds`: time was up when the shortest chain had {draws} draws, too "
                    "few to judge them. Give more seconds, or a model whose gradients are cheaper."
                )
            if in_time:
                text = f"Interrupted: the {draws} draws so far are returned."
                warnings.warn(text, stacklevel=outside())
        return self._collect(runners)

    def _collect(self, runners: list[Runner], at_end: bool = True) -> Samples:
        """Return the kept draws of all chains so far; those ``at_end`` can continue."""
        go_on = self._go_on(runners) if at_end else None
        facts = tuple(runner.facts() for runner in runners)
        origin = SamplerOrigin(self.sampler, facts, go_on, run_tuned)
        if self.store is not None:
            self.checkpoints.save_now(runners)
            return Samples(**read_store(self.store.path)).made_by(origin)
        mode_arrays = modes(runners)
        fields = self.schema.fields(
            self.arrays,
            min(runner.draws for runner in runners),
            min(runner.blocks for runner in runners),
            (mode_arrays["modes"], mode_arrays["gradients"]) if mode_arrays else None,
            [runner.reductions() for runner in runners],
        )
        return Samples(**fields).made_by(origin)

    def _go_on(self, runners: list[Runner]) -> GoOn:
        sampler, burn_in = self.sampler, self.sampler.options.burn_in
        ending = None if self.store else Ending.of(self.starts, runners, self.arrays)
        first, last = (f(runner.iteration for runner in runners) for f in (min, max))

        def go_on(n_iters: int, verbose: bool) -> Samples:
            total = max(first + n_iters, last)
            with sampler.options.executor.again as machines:
                same_sampler = replace(
                    sampler, options=replace(sampler.options, executor=machines)
                )
                if ending is not None:
                    return _Run(
                        same_sampler, total - burn_in, None, ending=ending
                    ).finish(verbose)
                assert sampler.options.store is not None
                with Store(sampler.options.store) as store:
                    longest = max(total - burn_in, store.n_iters or 0)
                    return _Run(same_sampler, longest, store).finish_at(total, verbose)

        return go_on


def whole_by_chain(
    sampler: Sampler, handover: dict[str, np.ndarray] | None = None
) -> list[WholeData]:
    """Return the target with the whole dataset, for each chain.

    Args:
        sampler: Sampler.
        handover: Results of the phases before the chain in an earlier run; gradients over the whole
            dataset that were computed then are not computed again.
    """
    shared = sampler.whole()
    whole = [shared.of_chain(number) for number in range(len(sampler.starts))]
    if handover is not None and "slopes" in handover:
        for data_of_chain, position, gradient in zip(
            whole, handover["positions"], handover["slopes"], strict=True
        ):
            data_of_chain.remember(position, gradient)
    return whole


def search(
    sampler: Sampler, verbose: bool, store: Store | None = None
) -> list[np.ndarray]:
    """Run the phases before the chain and return their ends, flat.

    Args:
        sampler: Sampler.
        verbose: Whether to show progress.
        store: Store in which progress is saved; ``None`` saves none.
    """
    positions = sampler.starts
    for phase in sampler.phases[:-1]:
        if phase.n_iters == 0:
            continue
        checkpoints = Checkpoints(store, phase.kind)
        no_records: list[dict[str, Any]] = [{} for _ in positions]
        output = RunOutput(no_records, checkpoints.resume, checkpoints.save)
        run = PhaseRun(sampler, phase, phase.n_iters)
        executor, whole = executor_of(run), whole_by_chain(sampler)
        runners = make_runners(run, positions, whole, output, executor)
        try:
            if not advance_all(runners, phase.label, verbose, executor.advance_to):
                checkpoints.save_now(runners)
                raise KeyboardInterrupt
        except TimeUpError:
            pass  # what follows starts where these have come
        except Diverged as diverged:
            raise divergence(diverged, phase.argument, None) from None
        positions = [runner.position() for runner in runners]
    return positions


def divergence(
    diverged: Diverged, argument: str, samples: Samples | None
) -> DivergenceError:
    """Return the error that reports a divergence, with advice."""
    first, last = diverged.iterations
    where = "Mode-finding" if argument == "opt_stepsize" else "The chain"
    advice = diverged.advice or (
        f"Try a smaller `{argument}` for it, or start nearer to the posterior."
    )
    advice_on_samples = (
        "" if samples is None else " The finite draws before that are in `.samples`."
    )
    return DivergenceError(
        f"{where} became NaN or infinite between iterations {first} and {last}, first in the "
        f"parameter {diverged.parameter!r}. {advice}{advice_on_samples}",
        iterations=diverged.iterations,
        parameter=diverged.parameter,
        samples=samples,
    )
