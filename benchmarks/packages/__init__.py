"""The packages compared: where each is installed, and the module that runs a workload with it.

Each module has `build(workload, data, params)`, which returns a function of the number of
iterations that runs a chain and returns its draws, NumPy arrays with as many rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field


class UnsupportedError(Exception):
    """The package has no such sampler; the message says what is missing."""


@dataclass(frozen=True)
class Package:
    """One column of the tables, or a variant that competes for one.

    Attributes:
        label: heading of the column.
        module: runs the workloads.
        distributions: whose versions are reported.
        environment: the file of requirements, without its ending; `None` is the project's own.
        variables: of the process.
        only: names of workloads, if it is not for all.
        variant_of: the package whose column shows the faster of the two.
        note: a line below the tables.
    """

    label: str
    module: str
    distributions: tuple[str, ...]
    environment: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    variant_of: str | None = None
    note: str = ""


_DEVICES = {
    "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    "BENCHMARK_CHAINS": "pmap",
}
_JAX = ("jax", "jaxlib", "numpy")

PACKAGES: dict[str, Package] = {
    "sgmcmc": Package(
        "sgmcmc",
        "benchmarks.packages.with_sgmcmc",
        ("sgmcmc", "tensorflow", "numpy"),
        note="minibatches without replacement",
    ),
    "sgmcmcjax": Package(
        "SGMCMCJax",
        "benchmarks.packages.with_sgmcmcjax",
        ("SGMCMCJax", *_JAX),
        "sgmcmcjax",
        note="minibatches with replacement (its only kind); in SGLD-CV the log-likelihood is "
        "written with `logaddexp`, because on JAX 0.4.30 the full gradient of the other form is "
        "wrong at N = 581 012; its BAOAB and BADODAB are left out: in this release "
        "they use one half of the step twice, and positions never move; chains: the faster of "
        "`vmap` and `pmap`",
    ),
    "sgmcmcjax-pmap": Package(
        "SGMCMCJax, pmap",
        "benchmarks.packages.with_sgmcmcjax",
        ("SGMCMCJax", *_JAX),
        "sgmcmcjax",
        _DEVICES,
        ("chains",),
        "sgmcmcjax",
    ),
    "blackjax": Package(
        "BlackJAX",
        "benchmarks.packages.with_blackjax",
        ("blackjax", *_JAX),
        "blackjax",
        note="the user draws the minibatches: with replacement here, which is the cheapest in JAX; "
        "SGHMC uses one minibatch for all L steps of an iteration, the others draw L; "
        "chains: the faster of `vmap` and `pmap`",
    ),
    "blackjax-pmap": Package(
        "BlackJAX, pmap",
        "benchmarks.packages.with_blackjax",
        ("blackjax", *_JAX),
        "blackjax",
        _DEVICES,
        ("chains",),
        "blackjax",
    ),
    "jax-sgmc": Package(
        "jax-sgmc",
        "benchmarks.packages.with_jax_sgmc",
        ("jax-sgmc", *_JAX),
        "jax-sgmc",
        only=("psgld",),
        note="SGLD with `rms_prop`; its stepsizes must fall, here by a tenth; each call compiles",
    ),
    "posteriors": Package(
        "posteriors",
        "benchmarks.packages.with_posteriors",
        ("posteriors", "torch", "numpy"),
        "posteriors",
        note="the user draws the minibatches (with replacement here) and writes the loop; its "
        "SGHMC never refreshes the momentum, an iteration is L of its updates; "
        "chains one after another",
    ),
    "session": Package(
        "TF 1 session",
        "benchmarks.packages.with_session",
        ("tensorflow", "numpy"),
        variables={"TF_CPP_MIN_LOG_LEVEL": "2"},
        note="the design of the R package, in Python: a minibatch (without replacement) fed at "
        "each step, and for each parameter one session call that updates it; "
        "chains one after another",
    ),
    "numpy": Package(
        "NumPy loop",
        "benchmarks.packages.with_numpy",
        ("numpy",),
        note="written by hand, gradients included; minibatches with replacement; "
        "chains one after another",
    ),
}
