"""The shards of a dataset, sampled apart, on any workers."""

from __future__ import annotations

import inspect
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy
import tensorflow as tf

from sgmcmc import bars, checks, samplers
from sgmcmc.data.dataset import Data, DenseColumn
from sgmcmc.data.reading import read_dataset
from sgmcmc.data.sparse import SparseColumn
from sgmcmc.data.transfer import read_machines
from sgmcmc.dynamics import Underdamped
from sgmcmc.inputs.options import DEFAULTS, KEYWORDS
from sgmcmc.inputs.parameters import Constraints, read_geometries, read_params
from sgmcmc.interrupts import passed_on
from sgmcmc.machines.calls import Machines
from sgmcmc.model.geometry import Geometry
from sgmcmc.model.target import LogLik, LogPrior
from sgmcmc.results.arrays import by_chain
from sgmcmc.results.diagnostics import diagnose
from sgmcmc.results.report import Fact, Report, Section
from sgmcmc.results.samples import Samples
from sgmcmc.run.request import brief
from sgmcmc.shards.combination import METHODS, aligned, combined_draws

SAMPLERS = (
    "sample",
    "hmc",
    "mala",
    "nuts",
    "sgld",
    "sgldcv",
    "sghmc",
    "sghmccv",
    "sgnht",
    "sgnhtcv",
)
"""Functions that sample a shard, by name."""

# Samplers and dynamics of simplexes and manifolds
_CONSTRAINED = ("scir", "sgrld", "sggmc", "gsgnht")

# Keywords of samplers that do not apply to shards, and why
_REFUSED = {
    "groups": "rows of a group may be in different shards",
    "gibbs": "latent variables are kept in the shard of their rows",
    "latents": "latent variables are kept in the shard of their rows",
    "start": "the posterior of a shard is another. Give `params`",
    "manifolds": "combined draws would not lie on the manifold",
    "store": "draws of shards are not kept. Save the result by samples.save(path)",
    "store_gradients": "gradients in a shard are not those of the posterior",
    "store_params": "all parameters are combined",
    "test_functions": "values in a shard are not combined. Evaluate them at the combined draws",
    "reductions": "values in a shard are not combined. Evaluate them at the combined draws",
}


@dataclass(frozen=True)
class _Settings:
    smallest_seconds: float = 1.0  # that each shard has, if they are limited
    largest_kernel_size: int = 20  # coordinates for kernel densities, at most
    smallest_draws: int = 4  # that have an effective sample size
    sd_inflation: float = 0.05  # of SDs above which there is a warning
    spread: float = 3.0  # of shards' means, in their SDs, above which there is one
    smallest_ess: float = 100.0  # of a shard below which there is one


_SETTINGS = _Settings()


@brief
def divide(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    log_prior: LogPrior | None = None,
    *,
    shards: int = 20,
    method: str = "consensus",
    sampler: str | Callable[..., Samples] | None = None,
    executor: Any = None,
    seed: int | None = None,
    verbose: bool = True,
    bijectors: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Samples:
    """Sample shards of the dataset separately, and combine their draws.

    The rows are permuted and divided into S shards B_s. The posterior is the product of the
    subposteriors p_s(θ) ∝ p(θ)^(1/S) Π_{i∈B_s} p(x_i | θ), in the unconstrained space if there are
    ``bijectors``. Each p_s is sampled separately, on any worker. With μ_s and Σ_s the mean and the
    covariance of the draws θ_si of shard s, ``method`` combines them by

    - ``"consensus"``: θ_i = (Σ_s W_s)⁻¹ Σ_s W_s θ_si, W_s = Σ_s⁻¹;
    - ``"consensus_scalar"``: the same with W_s = diag(Σ_s)⁻¹;
    - ``"gaussian"``: θ_i ~ N(Λ⁻¹ Σ_s Σ_s⁻¹ μ_s, Λ⁻¹), Λ = Σ_s Σ_s⁻¹;
    - ``"kernel_density"``: the product of kernel density estimates, each the mixture of the normals
      N(θ_si, h²Σ̄) over i, with Σ̄ the mean of the Σ_s. Components (i_1, ..., i_S) of that product
      are drawn by Metropolis within Gibbs from uniform proposals. The bandwidth h is annealed from
      1 to T^(−1/(4+p)) for T draws of a shard and p coordinates, and then kept;
    - ``"weierstrass"``: shards are merged in pairs. Of two random draws a and b a pair is accepted
      with probability exp(−(a − b)ᵀ(Σ_a + Σ_b)⁻¹(a − b) / 2h²), and replaced by the mean of a and b
      with weights Σ_a⁻¹ and Σ_b⁻¹. h is such that 10 % of the pairs are accepted.

    For normal subposteriors all methods are exact, except ``"consensus_scalar"``, which is too wide
    if correlations differ between shards, and ``"kernel_density"``, whose SDs the report predicts.
    For other subposteriors only the last two methods approach the posterior, as h → 0 with more
    draws. ``"consensus"`` merges several modes into one, and every method is poor if subposteriors
    hardly overlap.

    Args:
        log_lik: Function of two dicts of tensors, the parameters and rows of the dataset, that
            returns the log-likelihood, a scalar tensor, or its terms, (n,).
        dataset: Dict of arrays that share their first axis, of length N, or a table, in any form
            that :func:`sgmcmc.sample` reads.
        params: Dict of starting values, of any shapes; or a list of such dicts, one for each chain.
        log_prior: Function of the dict of parameters that returns their log prior density, a scalar
            tensor; ``None`` is a flat prior. Subposteriors must be proper.
        shards: Number of shards S, from 2 to N.
        method: Method of combination: ``"consensus"``, ``"consensus_scalar"``, ``"gaussian"``,
            ``"kernel_density"`` or ``"weierstrass"``.
        sampler: Sampler of a shard: ``"sample"``, ``"hmc"``, ``"mala"``, ``"nuts"``, ``"sgld"``,
            ``"sgldcv"``, ``"sghmc"``, ``"sghmccv"``, ``"sgnht"``, ``"sgnhtcv"``, or a function with
            the arguments ``log_lik, dataset, params, log_prior=, seed=, verbose=`` and
            ``keywords`` that returns :class:`sgmcmc.Samples`; ``None`` is ``"sample"``.
        executor: Executor whose workers sample the shards, as for :func:`sgmcmc.sample`; ``None``
            samples one after the other in this process. The draws do not depend on it. A shard
            whose worker dies is run again.
        seed: Integer seed of all random numbers; ``None`` draws one, which ``settings`` has.
        verbose: Whether to show the number of shards done in a progress bar.
        bijectors: Dict of TFP bijectors of constrained parameters. Draws are combined in the
            unconstrained space.
        keywords: Keyword arguments of the sampler, such as ``n_iters``, ``stepsize``, ``dtype``.
            ``max_seconds`` is the limit of all shards together.

    Returns:
        :class:`sgmcmc.Samples` with a leading chain axis. ``settings`` has ``method``, ``shards``,
        ``sampler`` and ``shard_ess``, the smallest effective sample size in each shard; ``report``
        has diagnostics of the shards and the combination.

    Raises:
        ValueError, TypeError: An argument is wrong; the message names it.
        DivergenceError: The chain of a shard became NaN or infinite.
        BrokenExecutor: Workers die repeatedly.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * (dataset["x"] - params["theta"]) ** 2
        >>> samples = sgmcmc.divide(
        ...     log_lik, {"x": x}, {"theta": 0.0}, shards=2, sampler="hmc", n_iters=500,
        ...     seed=1, verbose=False)
        >>> samples["theta"].shape, bool(abs(samples["theta"].mean() - x.mean()) < 0.01)
        ((4, 500), True)

    Source:
        Consensus: Scott et al., *Bayes and Big Data: The Consensus Monte Carlo Algorithm*, 2016,
        section 3. Gaussian and kernel density product: Neiswanger, Wang & Xing, *Asymptotically
        Exact, Embarrassingly Parallel MCMC*, 2014, section 3 and algorithm 1. Weierstrass rejection
        sampler, pairwise: Wang & Dunson, *Parallelizing MCMC via Weierstrass Sampler*, 2013.
        Baker, *Large-Scale Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster 2018,
        section 2.4.2, compares them.
    """
    checks.choice("method", method, METHODS)
    shown = checks.flag("verbose", verbose)
    name, function = _read_sampler(sampler, keywords)
    checks.function("log_lik", log_lik, "of `params` and `dataset`")
    if log_prior is not None:
        checks.function("log_prior", log_prior, "of `params`")
    coordinates = _read_coordinates(function, params, bijectors, keywords)
    largest = _SETTINGS.largest_kernel_size
    if method == "kernel_density" and coordinates.size > largest:
        raise ValueError(
            f"`method`: kernel densities are refused beyond {largest} coordinates, and "
            f"there are {coordinates.size}: their bandwidth is as wide as the posterior. Use "
            '"consensus" or "weierstrass".'
        )
    dtype = coordinates.dtype
    data = read_dataset(dataset, dtype, keywords.get("integers") or ())
    count = checks.whole_number("shards", shards, 2)
    if count > data.size:
        raise ValueError(
            f"`shards` must be at most the number of rows, {data.size}, so that none is empty; it "
            f"is {count}."
        )
    number, start = checks.seed_number("seed", seed), time.monotonic()
    shard = _ShardSampler(
        function, (log_lik, log_prior), coordinates, keywords, 1.0 / count
    )
    until = math.inf
    if keywords.get("max_seconds") is not None:
        until = start + checks.positive_number("max_seconds", keywords["max_seconds"])
    results: list[_ShardResult] = []
    with read_machines(executor) as machines, passed_on():
        shares = _Shares(until, count, machines)
        calls = _calls(data, count, number, dtype, shares)
        with bars.make_bar(total=count, desc="shards", disable=not shown) as bar:
            for one in machines.map(shard, "run", calls):
                results.append(one)
                bar.update(1)
    sampled = time.monotonic()
    settings = {
        "method": method,
        "sampler": name,
        "shards": count,
        "shard_ess": [one.ess for one in results],
        "N": data.size,
        "n": None,
        "seed": number,
        "n_chains": len(results[0].draws),
        "bijectors": {
            key: bijector.name for key, bijector in (bijectors or {}).items()
        },
        "dtype": dtype.name,
        "levels": {name: levels.to_json() for name, levels in data.levels.items()},
        "versions": results[0].versions,
    }
    x = aligned([one.draws for one in results])
    rng = np.random.default_rng(np.random.SeedSequence(number, spawn_key=(1,)))
    combined, facts = combined_draws(method, x, rng)
    samples = Samples(coordinates.params_of(combined), settings=settings)
    seconds = {"shards": sampled - start, "combination": time.monotonic() - sampled}
    return samples.with_report(_report(samples, results, x, facts, seconds))


def _read_sampler(
    sampler: Any, keywords: Mapping[str, Any]
) -> tuple[str, Callable[..., Any]]:
    """Return name and function of the sampler of a shard, which these keywords suit."""
    name = "sample" if sampler is None else sampler
    if callable(name):
        name = getattr(sampler, "__name__", type(sampler).__name__)
    elif name not in _CONSTRAINED:
        checks.choice("sampler", name, SAMPLERS)
    dynamics = keywords.get("dynamics")
    for label, value in (
        ("sampler", name),
        ("dynamics", getattr(dynamics, "name", dynamics)),
    ):
        if isinstance(value, str) and value in _CONSTRAINED:
            raise ValueError(
                f"`{label}`: {value} moves parameters of a simplex, a half-line or a manifold, and "
                "combined draws would leave it. Use unconstrained parameters with `bijectors`."
            )
    for key, reason in _REFUSED.items():
        if key in keywords and keywords[key] is not DEFAULTS.get(key):
            raise ValueError(f"`{key}` does not apply to divide(): {reason}.")
    return name, sampler if callable(sampler) else getattr(samplers, name)


def _read_coordinates(
    sampler: Callable[..., Any],
    params: Any,
    bijectors: Any,
    keywords: Mapping[str, Any],
) -> _Coordinates:
    signature = inspect.signature(sampler).parameters

    def chosen(name: str) -> Any:
        default = signature[name].default if name in signature else DEFAULTS[name]
        return keywords.get(name, default)

    dtype = checks.floating_dtype("dtype", chosen("dtype"))
    starts = read_params(params, chosen("n_chains"), dtype)
    bijectors = KEYWORDS["bijectors"]["reader"]("bijectors", bijectors)
    checks.known_keys("bijectors", bijectors, starts[0], "the parameters are")
    constraints = Constraints(bijectors)
    geometries = read_geometries(constraints, Underdamped(), starts, dtype)
    spaces = {name: geometries.get(name, Geometry()) for name in starts[0]}
    unconstrained = [
        {name: spaces[name].start(value, dtype) for name, value in start.items()}
        for start in starts
    ]
    return _Coordinates(spaces, unconstrained, dtype)


@dataclass(frozen=True)
class _Coordinates:
    """Unconstrained coordinates u of the parameters θ = f(u).

    Attributes:
        spaces: Geometry of each parameter.
        starts: Starting values of u, for each chain.
        dtype: Dtype.
    """

    spaces: Mapping[str, Geometry]
    starts: list[dict[str, np.ndarray]]
    dtype: tf.DType

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return sum(value.size for value in self.starts[0].values())

    @property
    def are_constrained(self) -> bool:
        """Whether a parameter has a bijector."""
        return any(not space.in_place for space in self.spaces.values())

    def constrain(self, params: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return θ of u."""
        return {
            name: space.constrain(params[name]) for name, space in self.spaces.items()
        }

    def params_of(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """Return θ of draws of u, (chains, draws, p), by parameter."""
        params, begin = {}, 0
        numpy_dtype = self.dtype.as_numpy_dtype
        for name, start in self.starts[0].items():
            end = begin + start.size
            u = draws[..., begin:end].reshape(-1, *start.shape).astype(numpy_dtype)
            theta = np.asarray(self.spaces[name].constrain(tf.constant(u)))
            params[name] = theta.reshape(*draws.shape[:2], *theta.shape[1:])
            begin = end
        return params


class _Shares:
    """Seconds of each shard of a limited time; infinite if it is not limited.

    One after the other here, each has an equal part of what is left. Workers get shards before
    those ahead have run: each has an equal part of the whole.

    Args:
        until: Time at which all shards should be done, by the monotonic clock.
        count: Number of shards.
        machines: Machines that sample them.
    """

    def __init__(self, until: float, count: int, machines: Machines) -> None:
        self._until, self._count, self._in_process = until, count, machines.is_local
        rounds = math.ceil(count / machines.width)
        self._seconds_each = (until - time.monotonic()) / rounds

    def of(self, number: int) -> float:
        """Return the seconds of a shard that begins now."""
        seconds = self._seconds_each
        if self._in_process:
            seconds = (self._until - time.monotonic()) / (self._count - number)
        return max(seconds, _SETTINGS.smallest_seconds)


def _calls(
    data: Data, count: int, seed: int, dtype: tf.DType, shares: _Shares
) -> Iterator[tuple[dict[str, Any], int, str, float]]:
    """Yield rows, seed, label and seconds of each shard."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    seeds = np.random.SeedSequence(seed).generate_state(count) >> 1
    for number, rows in enumerate(np.array_split(rng.permutation(data.size), count)):
        rows = np.sort(rows)
        columns = {
            name: _rows(column, rows, dtype) for name, column in data.columns.items()
        }
        yield columns, int(seeds[number]), f"{number + 1} of {count}", shares.of(number)


def _rows(column: Any, rows: np.ndarray, dtype: tf.DType) -> Any:
    """Return rows of a column, in a form that a sampler reads as it reads the whole column."""
    if isinstance(column, SparseColumn):
        entries_of_rows = column.tensor_at(rows)
        coordinates = np.asarray(entries_of_rows.indices).T
        entries = np.asarray(entries_of_rows.values), (coordinates[0], coordinates[1])
        return scipy.sparse.csr_array(entries, (len(rows), *column.row_shape))
    assert isinstance(column, DenseColumn)
    out = np.empty((len(rows), *column.row_shape), column.dtype)
    column.take(rows, out)
    # Arrays become numbers of the chain's dtype; tensors keep their own.
    return out if out.dtype == dtype.as_numpy_dtype else tf.constant(out)


class _ShardResult(NamedTuple):
    """Result of a shard: draws (chains, draws, p), smallest ESS, warnings, versions."""

    draws: np.ndarray
    ess: float
    warnings: list[str]
    versions: Any


@dataclass(frozen=True, eq=False)
class _ShardSampler:
    """Samples a shard, in this process or in a worker, in unconstrained coordinates u.

    The target is Σ_i log p(x_i | θ) + (log p(θ) + log |dθ/du|) ``share``, with θ = f(u).

    Attributes:
        sampler: Function that samples a shard.
        densities: Log-likelihood and log prior of the user.
        coordinates: Coordinates u.
        keywords: Keyword arguments of the sampler.
        share: 1/S, the share of a shard in the prior.
    """

    sampler: Callable[..., Any]
    densities: tuple[LogLik, LogPrior | None]
    coordinates: _Coordinates
    keywords: dict[str, Any]
    share: float

    def run(
        self, dataset: Mapping[str, Any], seed: int, label: str, seconds: float
    ) -> _ShardResult:
        """Return the draws of a shard with these rows, within some seconds if they are limited."""
        limit = {} if math.isinf(seconds) else {"max_seconds": seconds}
        starts = self.coordinates.starts
        has_prior = self.coordinates.are_constrained or self.densities[1] is not None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            samples = self.sampler(
                self.log_lik,
                dataset,
                starts[0] if len(starts) == 1 else starts,
                log_prior=self.log_prior if has_prior else None,
                seed=seed,
                verbose=False,
                **{**self.keywords, **limit},
            )
            if not isinstance(samples, Samples):
                raise TypeError(
                    f"`sampler` must return sgmcmc.Samples; it returned {checks.describe(samples)}."
                )
            of_report = [
                text for text in samples.quick_warnings() if "Not checked" not in text
            ]
        messages = [str(w.message) for w in caught if w.category is UserWarning]
        if any(text.startswith("Interrupted:") for text in messages):
            raise KeyboardInterrupt
        arrays = by_chain(samples.settings, {name: samples[name] for name in starts[0]})
        flat = [np.reshape(a, (*a.shape[:2], -1)) for a in arrays.values()]
        draws = np.concatenate(flat, axis=2).astype(np.float64)
        smallest = _SETTINGS.smallest_draws
        if draws.shape[1] < smallest:
            raise ValueError(
                f"`sampler` must return {smallest} or more draws of a chain; of shard {label} it "
                f"returned {draws.shape[1]}."
            )
        if not np.isfinite(draws).all():
            raise ValueError(
                f"`sampler` returned draws of shard {label} that are not finite."
            )
        ess = diagnose({"draws": draws}).smallest
        versions = samples.settings.get("versions")
        return _ShardResult(draws, ess, [*messages, *of_report], versions)

    def log_lik(self, params: Any, dataset: Any) -> tf.Tensor:
        """Return the user's log-likelihood of u."""
        return self.densities[0](self.coordinates.constrain(params), dataset)

    def log_prior(self, params: Any) -> tf.Tensor:
        """Return the log prior density of u, times 1/S."""
        log_prior = self.densities[1]
        total = tf.zeros([], self.coordinates.dtype)
        if log_prior is not None:
            total += log_prior(self.coordinates.constrain(params))
        for name, space in self.coordinates.spaces.items():
            jacobian = space.log_jacobian(params[name])
            total += 0.0 if jacobian is None else jacobian
        return self.share * total


def _report(
    samples: Samples,
    results: list[_ShardResult],
    x: np.ndarray,
    facts: Mapping[str, Any],
    seconds: Mapping[str, float],
) -> Report:
    settings, count = samples.settings, len(results)
    means, variances = x.mean((1, 2)), x.var((1, 2))
    center = (means / variances).sum(0) / (1 / variances).sum(0)
    squares = ((means - center) ** 2 / variances).sum(0)
    spread = float(np.sqrt(squares.max() / (count - 1)))
    remarks = []
    warned = [number for number, one in enumerate(results, 1) if one.warnings]
    if warned:
        remarks.append(
            f"{len(warned)} of {count} shards have warnings. Shard {warned[0]}: "
            f"{results[warned[0] - 1].warnings[0]}"
        )
    if spread > _SETTINGS.spread:
        remarks.append(
            f"The means of the shards are {spread:.1f} of their SDs apart: subposteriors hardly "
            "overlap, and no combination of their draws is reliable. Use fewer shards."
        )
    wider = facts.get(Fact.TOO_WIDE, 0.0)
    if wider > _SETTINGS.sd_inflation:
        remarks.append(
            f"SDs are about {wider:.0%} too wide because of the kernels' bandwidth. Use more "
            "draws, or another `method`."
        )
    diagnostics = diagnose(samples)
    remarks += diagnostics.warnings(_SETTINGS.smallest_ess)
    return Report(
        {
            "method": f"divide and conquer, {settings['method']}",
            Section.SHARDS: {
                "number": count,
                "observations": settings["N"],
                "sampler": settings["sampler"],
                "smallest ESS of a shard (over shards)": settings["shard_ess"],
                "spread of their means, in their SDs": spread,
            },
            Section.COMBINATION: {"method": settings["method"], **facts},
            Section.DRAWS: {
                Fact.CHAINS: settings["n_chains"],
                Fact.DRAWS_PER_CHAIN: diagnostics.draws,
                **diagnostics.facts,
            },
            Section.SECONDS: dict(seconds),
            Section.WARNINGS: remarks,
        }
    )
