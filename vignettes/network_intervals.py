# %% [markdown]
# # A Keras network with intervals that hold
#
# For people who train networks in Keras and need more than a point. A map of forests has gaps in
# its elevation. Slope, aspect, distances to water, roads and fires, light and soil are known at
# every patch, and a network predicts the elevation from them. A prediction alone is of no use:
# patches whose elevation is too uncertain will be measured on foot, and the others not. So the
# question is which intervals can be believed.
#
# The data are covertype: 581 012 patches of Colorado. The network learns from 20 000 of them.
#
# Run it with `python vignettes/network_intervals.py`, which takes some minutes. The tests run
# `--short`, with simulated patches.

# %%
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from matplotlib.figure import Figure

import sgmcmc
import sgmcmc.keras

from _figures import figure, look

LEVELS = np.array([0.5, 0.8, 0.9, 0.95, 0.99])
LOWEST, RANGE = 1859.0, 1999.0
"""Elevation of the lowest patch, and of the highest above it, in meters."""


class Patches(NamedTuple):
    """Features and elevations, in units of 250 m around 2750 m."""

    X: np.ndarray
    y: np.ndarray


CENTER, UNIT = 2750.0, 250.0

# %% [markdown]
# ## From the file to a table
#
# `get_dataset` has all features between 0 and 1; the first is the elevation, from 1859 to 3858 m.
# Targets of a network should be near 0 and 1 in size, so meters are rescaled.


# %%
def patches(size: int) -> tuple[Patches, Patches]:
    """Return patches to learn from, and 10 000 others."""
    rows = sgmcmc.get_dataset("covertype")[:, 1:]
    chosen = np.random.default_rng(1).permutation(len(rows))[: size + 10_000]
    elevation = (LOWEST + RANGE * rows[chosen, 0] - CENTER) / UNIT
    X, y = rows[chosen, 1:], elevation[:, np.newaxis]
    return Patches(X[:size], y[:size]), Patches(X[size:], y[size:])


def simulated(size: int) -> tuple[Patches, Patches]:
    """Return patches whose elevation has much noise where the second feature is large."""
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(2 * size, 6)).astype(np.float32)
    y = np.sin(6 * X[:, 0]) + (0.1 + 0.4 * X[:, 1]) * rng.normal(size=2 * size)
    y = y.astype(np.float32)[:, np.newaxis]
    return Patches(X[:size], y[:size]), Patches(X[size:], y[size:])


# %% [markdown]
# ## The network
#
# It has two outputs, mean and scale of a normal. `normal` makes the distribution of a row from
# them; its log density is the likelihood. A network with dropout is refused, because its likelihood
# would be random, and so is a regularizer, which the prior replaces. The errors say so.


# %%
def make_network(features: int, width: int, dropout: bool = False) -> Any:
    layers = [keras.Input((features,)), keras.layers.Dense(width, "silu")]
    layers += [keras.layers.Dropout(0.2)] if dropout else []
    layers += [keras.layers.Dense(width, "silu"), keras.layers.Dense(2)]
    keras.utils.set_random_seed(1)
    return keras.Sequential(layers)


def normal(outputs):
    scale = 1e-3 + tf.nn.softplus(outputs[:, 1:])
    return tfp.distributions.Normal(outputs[:, :1], scale)


def refusal(train: Patches) -> str:
    """Return the error that a network with dropout gives."""
    try:
        sgmcmc.keras.sample_network(
            make_network(train.X.shape[1], 4, dropout=True), train, normal
        )
    except ValueError as error:
        return str(error)
    raise AssertionError("A network with dropout was sampled.")


# %% [markdown]
# ## Trained once, and sampled
#
# The first model is the network as Keras trains it, for a hundred epochs by the log density. The
# second is `sample_network`: four members are trained, each starts a chain, and
# predictions are averaged over all draws. The outputs of all draws at the test patches are kept.


# %%
class Length(NamedTuple):
    width: int = 64
    epochs: int = 100
    n_iters: int = 2000
    draws: int = 25


def train_once(train: Patches, test: Patches, length: Length) -> np.ndarray:
    """Return the outputs of one trained network."""
    network = make_network(train.X.shape[1], length.width)
    network.compile("adam", lambda y, outputs: -normal(outputs).log_prob(y))
    network.fit(
        train.X, train.y, batch_size=256, epochs=length.epochs, shuffle=True, verbose=0
    )
    return network.predict(test.X, batch_size=5000, verbose=0)[np.newaxis]


def sample(
    train: Patches, test: Patches, length: Length
) -> sgmcmc.keras.SampledNetwork:
    return sgmcmc.keras.sample_network(
        make_network(train.X.shape[1], length.width),
        train,
        normal,
        epochs=length.epochs,
        n_iters=length.n_iters,
        draws=length.draws,
        predict_at=test.X,
        seed=1,
        verbose=False,
    )


# %% [markdown]
# ## Do the intervals hold?
#
# A prediction is a mixture of the normals of all draws. Its quantiles are those of elevations drawn
# from it, a hundred or more for each patch. Of intervals of 90 %, nine in ten should hold the
# elevation that was measured.


# %%
def elevations(outputs: np.ndarray, test: Patches) -> np.ndarray:
    """Return draws of the elevation of each patch, from outputs (draws, patches, 2)."""
    rng = np.random.default_rng(1)
    chosen = outputs[rng.integers(len(outputs), size=400)]
    scale = 1e-3 + np.logaddexp(0.0, chosen[..., 1])
    return chosen[..., 0] + scale * rng.normal(size=scale.shape)


def bounds(drawn: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Return ends of the central intervals, in meters."""
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return CENTER + UNIT * low, CENTER + UNIT * high


def coverage(drawn: np.ndarray, test: Patches) -> np.ndarray:
    """Return the share of the patches whose elevation is in the interval, for each level."""
    truth = CENTER + UNIT * test.y[:, 0]
    ends = [bounds(drawn, level) for level in LEVELS]
    return np.array([np.mean((low <= truth) & (truth <= high)) for low, high in ends])


# %% [markdown]
# ## The decision
#
# A patch stays as predicted if its 90 % interval is shorter than 400 m; the others are measured.
# The rule is only as good as the intervals, so the last row counts the patches that stay and are
# outside of them: at most a tenth should be.


# %%
LONGEST = 400.0


def decide(drawn: np.ndarray, test: Patches) -> str:
    low, high = bounds(drawn, 0.9)
    truth = CENTER + UNIT * test.y[:, 0]
    stays = high - low < LONGEST
    if not stays.any():
        return f"All {len(stays)} patches are measured."
    outside = np.mean((truth < low)[stays] | (truth > high)[stays])
    return (
        f"{stays.sum()} of {len(stays)} patches stay as predicted, the others are measured. "
        f"Of those that stay {outside:.1%} are outside of their interval."
    )


# %% [markdown]
# ## Results
#
# Of 10 000 patches that the networks have not seen:
#
# | | 50 % | 80 % | 90 % | 95 % | 99 % | stay | of these outside |
# | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
# | trained once | 44.5 % | 77.6 % | 89.4 % | 95.3 % | 98.6 % | 5996 | 11.1 % |
# | sampled | 45.7 % | 78.8 % | 90.3 % | 95.3 % | 98.6 % | 6873 | 10.2 % |
#
# Intervals of 90 % and more hold, and 877 more patches need no visit, because those of the
# posterior are shorter. Intervals of 50 % hold 46 %: the elevations around a prediction are not
# normal, which more draws do not mend. The report has it as the calibration error of the held-out
# rows, 0.034. It also says that sampling added nothing that the held-out rows could show: −0.15 to
# 0.03 a row. "Sampled" is four members, "trained once" is one network: how much of the difference
# comes from averaging members is not separated here.


# %%
def plot(found: dict[str, np.ndarray], drawn: np.ndarray, test: Patches) -> Figure:
    """Coverage of each model, and intervals of some patches in order of their median."""
    picture = figure(10, 4)
    left, right = picture.subplots(1, 2)
    left.plot([0.5, 1], [0.5, 1], color="0.6", linewidth=0.8)
    for name, held in found.items():
        kind = look("sample") if name == "sampled" else {"color": "C1"}
        left.plot(LEVELS, held, "o", label=name, **kind)
    left.set(xlabel="level of the interval", ylabel="share of patches inside")
    left.legend()
    some = np.arange(0, len(test.y), max(1, len(test.y) // 80))
    low, high = bounds(drawn[:, some], 0.9)
    order = np.argsort(low + high)
    right.vlines(np.arange(len(some)), low[order], high[order], color="C0", alpha=0.5)
    truth = CENTER + UNIT * test.y[some, 0]
    right.plot(truth[order], ".", color="0.2", markersize=4, label="measured")
    right.set(xlabel="patches by prediction", ylabel="elevation, m", xticks=[])
    right.legend(title="90 % intervals")
    return picture


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Elevations by a Keras network.")
    parser.add_argument("--short", action="store_true", help="simulated patches")
    parser.add_argument(
        "--output", default="network_intervals.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)

    length = Length(8, 40, 200, 10) if options.short else Length()
    train, test = simulated(600) if options.short else patches(20_000)
    print(f"With dropout: {refusal(train)}\n")
    fit = sample(train, test, length)
    print(fit.report)
    outputs = np.asarray(fit.predictions)
    models = {
        "trained once": train_once(train, test, length),
        "sampled": outputs.reshape(-1, *outputs.shape[2:]),
    }
    drawn = {name: elevations(each, test) for name, each in models.items()}
    found = {name: coverage(each, test) for name, each in drawn.items()}
    print("\nShare of the elevations in intervals of")
    print(f"{'':14}" + "".join(f"{level:8.0%}" for level in LEVELS))
    for name, held in found.items():
        print(f"{name:14}" + "".join(f"{share:8.1%}" for share in held))
    for name, each in drawn.items():
        print(f"\n{name}: {decide(each, test)}")
    plot(found, drawn["sampled"], test).savefig(options.output)
    print(f"\nCoverage and intervals: {options.output}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
