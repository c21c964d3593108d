# %% [markdown]
# # SGLD, SGLD-CV and SAGA as the data grow
#
# Figures 3.5.1 and A.3.1 of Baker, *Large-Scale Bayesian Computation Using Stochastic Gradient
# MCMC*, Lancaster 2018: a logistic regression on covertype, with three quarters of the rows for
# training, of which a hundredth, a tenth and all are used. The figures show the log predictive
# density of the held-out rows along chains with plain minibatch gradients, with control variates,
# and with SAGA. In the first figure stepsizes are fixed; in the second those of SGLD decrease.
#
# Run it with `python vignettes/variance_reduction.py`, which takes about three minutes. The tests
# run `--short`, on a few thousand simulated rows.

# %%
from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

import sgmcmc
import tensorflow as tf

from _figures import figure, look
from demo import load, log_lik, log_prior, simulate

# %% [markdown]
# ## The settings
#
# As published: minibatches of 500, 20 000 iterations, stepsizes for each size of the data, and
# a search for the mode of 1000 steps before the chain with control variates. Those that
# decrease are h (1 + k/1000)^(−0.33).
#
# Chains start at standard normal draws. The published code does not say how SAGA's table of
# gradients is initialized; here one pass over the data fills it.


# %%
class Stepsizes(NamedTuple):
    """Published constants for a fraction of the training data."""

    sgld: float
    cv: float
    opt: float
    saga: float


PUBLISHED = {
    0.01: Stepsizes(5e-4, 5e-4, 7e-5, 1e-3),
    0.1: Stepsizes(5e-5, 5e-5, 5e-5, 1e-4),
    1.0: Stepsizes(5e-6, 5e-6, 5e-6, 1e-5),
}
METHODS = {"SGLD": "minibatch", "SGLD-CV": "cv", "SAGA": "saga"}
LOOKS = {
    "SGLD": {**look("sgld"), "alpha": 0.35},
    "SGLD-CV": look("sgldcv"),
    "SAGA": look("saga"),
}
EVERY = 10
Dataset = dict[str, Any]


class Path(NamedTuple):
    """Log predictive density along a chain, against passes through the data."""

    passes: np.ndarray
    density: np.ndarray


def density_on(test: Dataset):
    """Return the function of the parameters that is the mean log density of held-out rows."""
    X, y = tf.constant(test["X"]), tf.constant(test["y"])

    def density(params):
        return tf.reduce_mean(log_lik(params, {"X": X, "y": y}))

    return density


def follow(
    name: str,
    train: Dataset,
    test: Dataset,
    stepsizes: Stepsizes,
    n_iters: int,
    n_iters_opt: int,
    decreasing: bool = False,
) -> Path:
    """Run a chain, and return the log predictive density along it."""
    rng = np.random.default_rng(1)
    rows, features = train["X"].shape
    n = min(500, rows // 8)
    h = {"SGLD": stepsizes.sgld, "SGLD-CV": stepsizes.cv, "SAGA": stepsizes.saga}[name]
    gradient: Any = METHODS[name]
    if name == "SGLD-CV":
        gradient = sgmcmc.gradients.ControlVariate(stepsizes.opt, n_iters_opt)
    samples = sgmcmc.sample(
        log_lik,
        train,
        {"bias": rng.normal(), "beta": rng.normal(size=features)},
        log_prior,
        dynamics="sgld",
        gradient=gradient,
        minibatches="uniform",
        minibatch_size=n,
        preconditioner="none",
        stepsize=sgmcmc.polynomial_decay(h, tau=1000, kappa=0.33) if decreasing else h,
        n_chains=None,
        n_iters=n_iters,
        burn_in=0,
        thin=EVERY,
        store_params=False,
        test_functions={"density": density_on(test)},
        verbose=False,
        seed=1,
    )
    iterations = EVERY * np.arange(1, n_iters // EVERY + 1)
    # Gradients of rows: two for each row with control variates, after the search for the mode and
    # a pass for the gradient there; SAGA begins with a pass to fill its table.
    gone = {
        "SGLD": n * iterations / rows,
        "SGLD-CV": 1 + (n * n_iters_opt + 2 * n * iterations) / rows,
        "SAGA": 1 + n * iterations / rows,
    }[name]
    return Path(gone, samples.test_functions["density"])


# %% [markdown]
# ## Results
#
# The table has mean and standard deviation of the log predictive density over the second half of
# each chain. On the whole data the chain with control variates has the least spread. The published
# search for the mode, 1000 steps, ends before the mode, and the chain moves the rest of the way.


# %%
def compare(
    train: Dataset,
    test: Dataset,
    fractions: Sequence[float],
    n_iters: int,
    n_iters_opt: int,
) -> dict[tuple[bool, float], dict[str, Path]]:
    """Run everything: fixed and decreasing stepsizes, fractions of the data, methods."""
    found = {}
    for decreasing in (False, True):
        for fraction in fractions:
            # The rows of covertype are not in a random order.
            order = np.random.default_rng(1).permutation(len(train["y"]))
            rows = order[: round(fraction * len(order))]
            part = {name: array[rows] for name, array in train.items()}
            steps = PUBLISHED[fraction]
            # Published for 435 759 rows; stepsizes are proportional to one over the number of rows.
            steps = Stepsizes(*(h * 435_759 / len(train["y"]) for h in steps))
            found[decreasing, fraction] = {
                name: follow(
                    name,
                    part,
                    test,
                    steps,
                    n_iters,
                    n_iters_opt,
                    decreasing and name == "SGLD",
                )
                for name in METHODS
            }
    return found


def format_table(found: Mapping[tuple[bool, float], Mapping[str, Path]]) -> str:
    """Return the log predictive density over the second half of each chain."""
    lines = [f"{'stepsize':12}{'fraction':>9}  {'':8}{'mean':>9}{'sd':>10}"]
    for (decreasing, fraction), paths in found.items():
        for name, path in paths.items():
            late = path.density[len(path.density) // 2 :].astype(np.float64)
            kind = "decreasing" if decreasing and name == "SGLD" else "fixed"
            lines.append(
                f"{kind:12}{fraction:9g}  {name:8}{late.mean():9.4f}{late.std():10.5f}"
            )
    return "\n".join(lines)


def plot(found: Mapping[tuple[bool, float], Mapping[str, Path]]) -> Figure:
    """Log predictive density against passes, a column for each fraction of the data."""
    fractions = sorted({fraction for _, fraction in found})
    picture = figure(10, 6)
    panels = picture.subplots(2, len(fractions), squeeze=False, sharey="col")
    for (decreasing, fraction), paths in found.items():
        panel = panels[int(decreasing), fractions.index(fraction)]
        late = np.concatenate(
            [p.density[len(p.density) // 2 :] for p in paths.values()]
        )
        low, high = np.quantile(late, [0.01, 1.0])
        for name, path in paths.items():
            panel.plot(
                path.passes, path.density, linewidth=0.8, label=name, **LOOKS[name]
            )
        panel.set_ylim(low - 2 * (high - low), high + 0.2 * (high - low))
        panel.set_xlabel("passes through the data")
        panel.set_title(
            f"{fraction:.0%} of the rows, {'decreasing' if decreasing else 'fixed'}"
        )
    for row in panels:
        row[0].set_ylabel("log predictive density")
    panels[0, -1].legend(loc="lower right")
    return picture


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="SGLD, SGLD-CV and SAGA as the data grow."
    )
    parser.add_argument(
        "--short", action="store_true", help="small simulated data, short chains"
    )
    parser.add_argument(
        "--simulate", action="store_true", help="simulated data, no download"
    )
    parser.add_argument(
        "--output", default="variance_reduction.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)

    data = simulate(4000)[0] if options.short else load(options.simulate)
    train, test = data.split(len(data.rows) // 4, seed=1)
    fractions = (1.0,) if options.short else tuple(PUBLISHED)
    n_iters, n_iters_opt = (300, 100) if options.short else (20_000, 1000)
    print(f"{len(train['y'])} training rows, {len(test['y'])} held out.\n")
    found = compare(train, test, fractions, n_iters, n_iters_opt)
    print(format_table(found))
    plot(found).savefig(options.output, dpi=120)
    print(f"\nLog predictive density along the chains: {options.output}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
