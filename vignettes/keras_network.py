# %% [markdown]
# # A convolutional network of Keras: posterior, ensemble, calibration
#
# A classifier should be calibrated: of the digits to which it gives a probability of 70 %, 70 %
# should be right. Networks that were fitted once tend to be overconfident. Two remedies average the
# predicted probabilities over several sets of weights: a *deep ensemble*, the same network fitted
# from several random starts, and the *posterior*, whose chains start at the members of an ensemble.
#
# The network is a small convolutional one in Keras. `sgmcmc.keras.sample_network` trains its
# members, samples them, and judges their predictions of images that were held out.
#
# Run it with `python vignettes/keras_network.py`, which takes a quarter of an hour on two cores.
# The tests run `--short`, on a few hundred simulated images.

# %%
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure
from scipy import ndimage

import sgmcmc
import sgmcmc.keras

from _figures import figure

Dataset = dict[str, np.ndarray]
SIDE, CLASSES = 28, 10
BINS, BATCH = 15, 256

# %% [markdown]
# ## The network
#
# The network has two convolutions, each of which halves the image, and a layer of ten logits: 7 858
# weights. An image is a row of 784 pixels, as `get_dataset` returns it. Batch normalization and
# dropout are left out, because the likelihood of an image must not depend on other images or on
# random numbers; `sample_network` refuses them.


# %%
def make_network(seed: int) -> Any:
    """Return the network with weights drawn at random."""
    keras.utils.set_random_seed(seed)
    convolution = keras.layers.Conv2D
    return keras.Sequential(
        [
            keras.Input((SIDE * SIDE,)),
            keras.layers.Reshape((SIDE, SIDE, 1)),
            convolution(
                6, 5, strides=2, padding="same", activation="relu", name="first"
            ),
            convolution(
                12, 5, strides=2, padding="same", activation="relu", name="second"
            ),
            keras.layers.Flatten(),
            keras.layers.Dense(CLASSES, name="logits"),
        ]
    )


LOSS = keras.losses.CategoricalCrossentropy(from_logits=True)

# %% [markdown]
# ## The data
#
# The data are MNIST, and the same test images rotated by 40°, an angle that does not occur in
# training. The networks will be wrong more often, and the question is whether their probabilities
# show it.


# %%
def load() -> tuple[Dataset, Dataset]:
    """Return training and test set of MNIST."""
    mnist = sgmcmc.get_dataset("mnist")
    train, test = (
        {"X": part["images"], "y": part["labels"]}
        for part in (mnist["train"], mnist["test"])
    )
    return train, test


def simulate(n_train: int, n_test: int) -> tuple[Dataset, Dataset]:
    """Return images that are ten patterns under noise."""
    rng = np.random.default_rng(1)
    patterns = rng.random((CLASSES, SIDE * SIDE)) < 0.2
    sets = []
    for size in (n_train, n_test):
        digits = rng.integers(CLASSES, size=size)
        X = 0.5 * patterns[digits] + 0.5 * rng.random((size, SIDE * SIDE))
        sets.append(
            {"X": X.astype(np.float32), "y": np.eye(CLASSES, dtype=np.float32)[digits]}
        )
    return sets[0], sets[1]


def turned(dataset: Dataset, degrees: float = 40.0) -> Dataset:
    """Return the same images, rotated."""
    images = dataset["X"].reshape(-1, SIDE, SIDE)
    images = ndimage.rotate(images, degrees, axes=(1, 2), reshape=False, order=1)
    return {"X": images.reshape(-1, SIDE * SIDE), "y": dataset["y"]}


# %% [markdown]
# ## The posterior
#
# Four networks are trained by Adam, for twenty epochs, and each starts a chain. Kernels have the
# prior N(0, 16 / inputs). A tenth of the images is held out until the chains of the report have
# ended, and belongs to the data of the last ones.
#
# No chain leaves the neighborhood of its start, so these draws serve to average predictions, which
# are judged on test images, and not for inference on single weights.


# %%
def sample(train: Dataset, run: Settings) -> Any:
    """Return the posterior of the network."""
    return sgmcmc.keras.sample_network(
        make_network(0),
        train,
        LOSS,
        members=run.members,
        epochs=run.epochs,
        n_iters=run.n_iters,
        draws=run.draws,
        seed=1,
        verbose=False,
    )


# %% [markdown]
# ## The ensemble
#
# As many networks from other random starts, fitted by Keras to all training images, with a learning
# rate that falls to zero along a cosine. They get as many epochs as fit into the seconds that the
# posterior took.


# %%
def train_network(seed: int, train: Dataset, epochs: int) -> Any:
    """Return a network that Keras has trained from a random start."""
    network = make_network(seed)
    steps = epochs * -(-len(train["y"]) // BATCH)
    rate = keras.optimizers.schedules.CosineDecay(0.01, steps)
    network.compile(keras.optimizers.Adam(rate), LOSS)
    network.fit(train["X"], train["y"], batch_size=BATCH, epochs=epochs, verbose=0)
    return network


def make_ensemble(train: Dataset, members: int, seconds: float) -> list[Any]:
    """Return networks that were trained one after another, all in about so many seconds."""
    began = time.perf_counter()
    train_network(0, train, 1)
    epochs = max(1, int(seconds / members / (time.perf_counter() - began)))
    print(f"Ensemble: {epochs} epochs.")
    return [train_network(1 + member, train, epochs) for member in range(members)]


def of_network(network: Any, images: np.ndarray) -> np.ndarray:
    """Return the probabilities that one network predicts."""
    return tf.nn.softmax(network.predict(images, batch_size=1000, verbose=0)).numpy()


# %% [markdown]
# ## Scores
#
# *Calibration error* is the mean difference between the probability of the most probable digit and
# the frequency with which it is right, over bins of that probability.


# %%
@dataclass(frozen=True)
class Reliability:
    """The probability of the most probable digit, in bins, and how often that digit is right."""

    claimed: np.ndarray
    right: np.ndarray
    share: np.ndarray

    @property
    def error(self) -> float:
        """The expected calibration error."""
        return float(self.share @ np.abs(self.claimed - self.right))


def reliability(predicted: np.ndarray, y: np.ndarray) -> Reliability:
    """Return predicted probabilities and frequencies of the right digit, in bins of equal width."""
    claimed, right = predicted.max(1), predicted.argmax(1) == y.argmax(1)
    place = np.minimum((BINS * claimed).astype(int), BINS - 1)
    filled = np.unique(place)
    means = [[values[place == b].mean() for b in filled] for values in (claimed, right)]
    shares = [np.mean(place == b) for b in filled]
    return Reliability(np.array(means[0]), np.array(means[1]), np.array(shares))


def scores(predicted: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return accuracy, log loss and expected calibration error."""
    chosen = np.maximum((predicted * y).sum(1), np.finfo(np.float32).tiny)
    accuracy = np.mean(predicted.argmax(1) == y.argmax(1))
    return np.array([accuracy, -np.log(chosen).mean(), reliability(predicted, y).error])


@dataclass(frozen=True)
class Settings:
    """Lengths of all runs."""

    members: int = 4
    epochs: int = 20
    n_iters: int = 2000
    draws: int = 50


SHORT = Settings(members=2, epochs=2, n_iters=20, draws=5)

# %% [markdown]
# ## Results
#
# Scores of a single network are means over the four of the ensemble, which had 39 epochs each.
#
# | test images | accuracy | log loss | calibration error |
# | --- | --- | --- | --- |
# | single | 98.52 % | 0.1017 | 0.0118 |
# | ensemble | 99.02 % | 0.0393 | 0.0053 |
# | posterior | 99.20 % | 0.0240 | 0.0040 |
#
# | rotated by 40° | accuracy | log loss | calibration error |
# | --- | --- | --- | --- |
# | single | 64.44 % | 4.9415 | 0.3122 |
# | ensemble | 68.14 % | 2.5589 | 0.1383 |
# | posterior | 68.26 % | 1.1823 | 0.1197 |
#
# The networks of the ensemble are overfitted: 39 epochs are too many without a prior. Members of
# the posterior are trained with it, and that is most of the difference: by the report, chains of
# this length leave the predictions as they were, and held-out rows lose 0.0005 by sampling. On
# rotated images all are overconfident, and averages over different networks less than a single one.


# %%
def compare(networks: list[Any], posterior: Any, test: Dataset) -> Any:
    """Return predictions and scores by method; the scores of single networks are means."""
    X, y = test["X"], test["y"]
    single = [of_network(network, X) for network in networks]
    together = {"single": single[0], "ensemble": np.mean(single, 0)}
    together["posterior"] = posterior.predict(X, "softmax")
    found = {name: scores(predicted, y) for name, predicted in together.items()}
    found["single"] = np.mean([scores(predicted, y) for predicted in single], 0)
    return together, found


def format_table(found: dict[str, np.ndarray]) -> str:
    lines = [f"{'':10}  accuracy  log loss  calibration error"]
    for name, (accuracy, log_loss, error) in found.items():
        lines.append(f"{name:10}  {accuracy:8.2%}  {log_loss:8.4f}  {error:17.4f}")
    return "\n".join(lines)


def plot(panels: dict[str, tuple[dict[str, np.ndarray], np.ndarray]]) -> Figure:
    """Reliability diagrams, a panel for each test set; a calibrated network is on the diagonal.

    Bins with less than a five-hundredth of the images are left out.
    """
    picture = figure(9.5, 4.5)
    for axes, (title, (predictions, y)) in zip(
        picture.subplots(1, len(panels), sharey=True), panels.items(), strict=True
    ):
        axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        for name, predicted in predictions.items():
            found = reliability(predicted, y)
            label = f"{name}, {found.error:.3f}"
            many = found.share >= 0.002
            axes.plot(
                found.claimed[many], found.right[many], "o-", markersize=3, label=label
            )
        axes.set(
            title=title,
            xlabel="probability of the likeliest digit",
            ylabel="how often right",
        )
        axes.legend(title="calibration error")
    return picture


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="A Keras network on MNIST, and its posterior."
    )
    parser.add_argument(
        "--short", action="store_true", help="small simulated data, short chains"
    )
    parser.add_argument(
        "--output", default="keras_network.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)

    train, test = simulate(300, 60) if options.short else load()
    run = SHORT if options.short else Settings()
    began = time.perf_counter()
    posterior = sample(train, run)
    seconds = time.perf_counter() - began
    print(f"Posterior: {seconds:.0f} s.")
    networks = make_ensemble(train, run.members, seconds)
    print(posterior.report)

    panels = {}
    for title, dataset in {"test images": test, "rotated by 40°": turned(test)}.items():
        predictions, found = compare(networks, posterior, dataset)
        panels[title] = predictions, dataset["y"]
        print(f"\n{title}\n{format_table(found)}")
    plot(panels).savefig(options.output, dpi=120)
    print(f"\nReliability diagrams: {options.output}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
