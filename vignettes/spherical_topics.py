# %% [markdown]
# # Topics on the sphere
#
# The spherical admixture model (Reisinger et al., ICML 2010) is sampled by the methods for
# manifolds of Liu, Zhu & Song (NeurIPS 2016, section 5.3 and figure 5), and compared with
# variational inference. A document is a unit vector of words weighted by tf-idf. A topic is also a
# unit vector, so that it can describe the absence of words. A document is distributed around the
# direction of its mixture of topics.
#
# The data are the 3430 blog posts of UCI's KOS in a vocabulary of 6906 words, and 226 articles of
# Wikipedia in one of 7702 (`--wikipedia FILE.npz`): the paper's own two, 20 newsgroups and 150 000
# articles, are not available. As in the paper there are 20 topics, and 50 documents per step. The
# vignette compares the log-perplexity of held-out documents, minus the mean of log p(v | data),
# against time. The log-perplexity of the uniform distribution is subtracted, so values below 0 mean
# that something was learned.
#
# Run it with `python vignettes/spherical_topics.py`. The tests run `--short`, on simulated
# documents.

# %%
from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

from _figures import figure, look
from topic_model import Corpus, load, simulate

import sgmcmc
from sgmcmc.models import HeldOut, SphericalTopicModel, sam, top_words
from sgmcmc.models.spherical_likelihood import document_cosines
from sgmcmc.models.spherical_likelihood import log_normalizer

# %% [markdown]
# ## The scores
#
# The paper averages p(v | β, θ) over θ drawn from its prior. Documents are so close to their
# mixture that almost none of these draws contribute, and the logarithm of the mean is too low. So
# the same mean is estimated by annealed importance sampling (`n_particles`, `n_temperatures` of
# `model.held_out`), and the paper's estimate, from 10 000 draws, is printed next to it at the end.
# Time is the CPU time of the method, without compiling and scoring.


# %%
@dataclass(frozen=True)
class Curve:
    """Log-perplexity along a run, and the topics at its end."""

    seconds: np.ndarray
    log_perplexity: np.ndarray
    topics: np.ndarray
    steps: int


def checkpoints(n_steps: int, first: int) -> list[int]:
    """Return the numbers of steps after which there is a score; each is half as much again."""
    found = [first]
    while found[-1] < n_steps:
        found.append(min(n_steps, max(found[-1] + 1, round(1.5 * found[-1]))))
    return found


class Score:
    """The log-perplexity of held-out documents, minus that of the uniform distribution."""

    def __init__(self, model: SphericalTopicModel, task: HeldOut) -> None:
        self._estimate = tf.function(task.log_likelihood, jit_compile=True)
        self._uniform = float(log_normalizer(1e-9, model.n_words))
        self._count = 0

    def log_likelihood(self, topics: np.ndarray) -> np.ndarray:
        """Return log p(v | β) of each document, minus that of the uniform distribution."""
        self._count += 1
        found = self._estimate(
            tf.constant(topics, tf.float32), tf.constant([7, self._count])
        )
        return found.numpy() - self._uniform

    def of_draws(self, logs: list[np.ndarray]) -> float:
        """Return the log-perplexity of the mean likelihood over several draws."""
        return float(-np.mean(np.logaddexp.reduce(logs, axis=0) - np.log(len(logs))))


# %% [markdown]
# ## The samplers
#
# `sam` makes the model for a sampler: unit vectors, `log_lik`, `log_prior`, and `gibbs`, which
# draws the proportions of the topics in the documents of a minibatch. The likelihood of a document
# is averaged over the draws of the second half of the scores so far.


# %%
@dataclass(frozen=True)
class Run:
    """A sampler with its constants; the stepsize is h K/(κN), K/(κN) the scale of a topic."""

    method: str
    h: float
    constants: dict[str, float]

    @property
    def label(self) -> str:
        constants = "".join(
            f", {name} {value:g}" for name, value in self.constants.items()
        )
        return f"{self.method}, h {self.h:g}{constants}"

    def stepsize(self, model: SphericalTopicModel) -> float:
        """Return h K/(κN)."""
        return self.h * model.n_topics / (model.kappa * size(model))


RUNS = (Run("sggmc", 0.1, {"alpha": 1.0}), Run("gsgnht", 0.1, {"a": 1.0}))
GRID = (
    *(Run("sggmc", h, {"alpha": 1.0}) for h in (0.03, 0.1, 0.3)),
    *(Run("gsgnht", h, {"a": 1.0}) for h in (0.03, 0.1, 0.3)),
)
RATES = (0.1, 0.3, 1.0)
RATE = 0.3


def sample(
    run: Run, model: SphericalTopicModel, score: Score, steps: list[int]
) -> Curve:
    """Run a chain step by step, with a score after some numbers of steps."""
    sampler = getattr(sgmcmc, f"{run.method}_setup")(
        model.log_lik,
        model.dataset,
        model.start(seed=1),
        run.stepsize(model),
        model.log_prior,
        manifolds={"topics": sgmcmc.manifolds.Sphere()},
        gibbs=model.gibbs,
        latents=model.latents,
        minibatch_size=batch_size(model),
        seed=1,
        **run.constants,
    )
    session = sgmcmc.init_sess(sampler, verbose=False)
    sgmcmc.sgmcmc_step(sampler, session)  # compiles
    seconds, times, logs, scores = 0.0, [], [], []
    for before, now in zip([0, *steps], steps, strict=False):
        started = time.process_time()
        sgmcmc.sgmcmc_step(sampler, session, n_steps=now - before)
        topics = sgmcmc.get_params(sampler, session)["topics"]
        seconds += time.process_time() - started
        times.append(seconds)
        logs.append(score.log_likelihood(topics))
        scores.append(score.of_draws(logs[len(logs) // 2 :]))
    return Curve(np.array(times), np.array(scores), topics, steps[-1])


def noise_variance(model: SphericalTopicModel, topics: np.ndarray) -> float:
    """Return the variance of the minibatch gradient in a coordinate, on average over these.

    N²/n times that of κ θ_k (v − cos(v, r) r/‖r‖)/‖r‖ over the documents; its mean is left out, as
    small compared with it.
    """
    params = {"topics": tf.constant(topics, tf.float32)}
    drawn = model.gibbs(
        params, {**model.dataset, **model.latents}, tf.constant([1, 2])
    )["drawn"]
    gram = topics @ topics.T
    theta = drawn[:, -1].numpy()
    lengths = np.sqrt(np.sum(theta @ gram * theta, axis=1))
    cosines = document_cosines(params["topics"], model.dataset).numpy()
    cosine = np.sum(theta * cosines, axis=1) / lengths
    squares = np.sum((model.kappa * theta / lengths[:, np.newaxis]) ** 2, axis=1) * (
        1 - cosine**2
    )
    return float(size(model) ** 2 / batch_size(model) * squares.mean() / topics.size)


def batch_size(model: SphericalTopicModel) -> int:
    """Return 50, or half of the documents."""
    return min(50, size(model) // 2)


def size(model: SphericalTopicModel) -> int:
    """Return the number of documents."""
    return int(next(iter(model.dataset.values())).shape[0])


# %% [markdown]
# ## Variational inference
#
# The mean field of Reisinger et al.: q(β_k) = vMF(b_k, ξ), q(θ_d) = Dir(a_d), and the best q(μ)
# given these. With ρ = A(ξ), the mean cosine, their bound is, up to constants,
#
# Σ_d [κ v'ρb ā_d / √E‖βθ_d‖² − KL(Dir(a_d) ‖ Dir(α))] − log c(‖κ₀m + σΣρb_k‖) + K H(vMF(ξ)),
#
# in which E(v'βθ/‖βθ‖) is approximated by moments, as in their paper. For each minibatch the a_d
# are optimized first; then b moves along its gradient and is scaled to length 1, and log ξ along
# its gradient, with decreasing stepsizes (Hoffman et al., JMLR 14, 2013). The batch form uses all
# documents at once.


# %%
class VariationalInference:
    """Mean-field variational inference for the model, by minibatches or on all documents."""

    def __init__(
        self, model: SphericalTopicModel, n: int, rate: float, decay: float
    ) -> None:
        self.model, self.n, self.rate, self.decay = model, n, rate, decay
        self._step = tf.function(self._take_step, jit_compile=True)

    def run(self, score: Score, steps: list[int]) -> Curve:
        """Take steps from the start of the samplers, with scores on the way."""
        N, rng = size(self.model), np.random.default_rng(1)
        topics = tf.constant(self.model.start(seed=1)["topics"], tf.float32)
        log_xi = tf.constant(
            np.log(N * self.model.kappa / self.model.n_topics), tf.float32
        )
        logits = np.zeros((N, self.model.n_topics), np.float32)
        seconds, times, scores = 0.0, [], []
        self._step(
            topics, log_xi, *self._batch(logits, np.arange(self.n)), tf.constant(0.0)
        )
        for t in range(steps[-1]):
            started = time.process_time()
            rows = rng.choice(N, self.n, replace=False) if self.n < N else np.arange(N)
            rate = tf.constant(self.rate * (1 + t / 10) ** -self.decay, tf.float32)
            topics, log_xi, new = self._step(
                topics, log_xi, *self._batch(logits, rows), rate
            )
            logits[rows] = new.numpy()
            seconds += time.process_time() - started
            if t + 1 in steps:
                times.append(seconds)
                scores.append(score.of_draws([score.log_likelihood(topics.numpy())]))
        return Curve(np.array(times), np.array(scores), topics.numpy(), steps[-1])

    def _batch(
        self, logits: np.ndarray, rows: np.ndarray
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        documents = {
            name: tf.gather(part, rows) for name, part in self.model.dataset.items()
        }
        return documents, tf.constant(logits[rows])

    def _take_step(
        self,
        topics: tf.Tensor,
        log_xi: tf.Tensor,
        documents: dict[str, tf.Tensor],
        logits: tf.Tensor,
        rate: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        model, scale = self.model, size(self.model) / self.n
        logits = self._climb(topics, log_xi, documents, logits)
        with tf.GradientTape() as tape:
            tape.watch([topics, log_xi])
            cosines, gram = (
                document_cosines(topics, documents),
                topics @ tf.transpose(topics),
            )
            rho, entropy = _mean_and_entropy(log_xi, model.n_words)
            bound = scale * tf.reduce_sum(self._local(logits, cosines, gram, rho))
            bound += (
                model.log_prior({"topics": rho * topics}) + model.n_topics * entropy
            )
        slope, slope_xi = tape.gradient(bound, [topics, log_xi])
        slope -= topics * tf.reduce_sum(slope * topics, axis=1, keepdims=True)
        # The curvature of a topic is about its concentration, that of log ξ about K W / 2.
        topics = tf.math.l2_normalize(topics + rate * slope / tf.exp(log_xi), axis=1)
        step = rate * slope_xi / (0.5 * model.n_topics * model.n_words)
        return topics, log_xi + tf.clip_by_value(step, -0.5, 0.5), logits

    def _climb(
        self,
        topics: tf.Tensor,
        log_xi: tf.Tensor,
        documents: dict[str, tf.Tensor],
        logits: tf.Tensor,
    ) -> tf.Tensor:
        """Return log a_d after forty steps of Adam."""
        cosines, gram = (
            document_cosines(topics, documents),
            topics @ tf.transpose(topics),
        )
        rho, _ = _mean_and_entropy(log_xi, self.model.n_words)

        def step(
            i: tf.Tensor, x: tf.Tensor, m: tf.Tensor, v: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
            with tf.GradientTape() as tape:
                tape.watch(x)
                bound = tf.reduce_sum(self._local(x, cosines, gram, rho))
            g, k = tape.gradient(bound, x), tf.cast(i + 1, x.dtype)
            m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
            move = m / (1 - 0.9**k) / (tf.sqrt(v / (1 - 0.99**k)) + 1e-8)
            return i + 1, tf.clip_by_value(x + 0.2 * move, -7.0, 7.0), m, v

        start = (tf.constant(0), logits, tf.zeros_like(logits), tf.zeros_like(logits))
        return tf.while_loop(lambda i, *_: i < 40, step, start, maximum_iterations=40)[
            1
        ]

    def _local(
        self, logits: tf.Tensor, cosines: tf.Tensor, gram: tf.Tensor, rho: tf.Tensor
    ) -> tf.Tensor:
        """Return the term of the bound for each document, (n,)."""
        a, alpha, K = tf.exp(logits), self.model.alpha, self.model.n_topics
        total = tf.reduce_sum(a, axis=1, keepdims=True)
        mean = a / total
        inner = rho**2 * gram + (1 - rho**2) * tf.eye(K)
        squares = tf.reduce_sum((a @ inner) * a, axis=1) + tf.reduce_sum(a, axis=1)
        squares /= (total * (total + 1))[:, 0]
        cosine = rho * tf.reduce_sum(mean * cosines, axis=1) / tf.sqrt(squares)
        divergence = tf.math.lgamma(total[:, 0]) - tf.reduce_sum(
            tf.math.lgamma(a), axis=1
        )
        shift = tf.math.digamma(a) - tf.math.digamma(total)
        return (
            self.model.kappa * cosine
            - divergence
            - tf.reduce_sum((a - alpha) * shift, axis=1)
        )


def _mean_and_entropy(log_xi: tf.Tensor, n_words: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return A(ξ) = −∂ log c(ξ)/∂ξ and the entropy −log c(ξ) − ξA(ξ), whose slope is −ξA'(ξ)."""
    xi = tf.exp(tf.cast(log_xi, tf.float64))
    # A(ξ) to 1e-6 for many words, by the bound of Amos (Mathematics of Computation 28, 1974).
    mean = xi / (0.5 * n_words - 0.5 + tf.sqrt((0.5 * n_words + 0.5) ** 2 + xi * xi))
    entropy = -log_normalizer(xi, n_words) - xi * mean
    return tf.cast(mean, tf.float32), tf.cast(entropy, tf.float32)


# %% [markdown]
# ## Results


# %%
def where_time_goes(model: SphericalTopicModel, curve: Curve) -> str:
    """Return steps per second and core of a sampler, and the CPU time of its parts alone."""
    n = batch_size(model)
    params = {"topics": tf.constant(curve.topics, tf.float32)}
    kept = {**model.dataset, **model.latents}
    minibatch = {name: part[:n] for name, part in kept.items()}
    drawn = model.gibbs(params, minibatch, tf.constant([1, 2]))

    def gradient(
        function: Callable[[dict[str, tf.Tensor]], tf.Tensor],
    ) -> Callable[[], tf.Tensor]:
        def slope() -> tf.Tensor:
            with tf.GradientTape() as tape:
                tape.watch(params["topics"])
                value = tf.reduce_sum(function(params))
            return tape.gradient(value, params["topics"])

        return slope

    parts = {
        "Gibbs sweeps": lambda: model.gibbs(params, minibatch, tf.constant([1, 2]))[
            "drawn"
        ],
        "log_lik and its gradient": gradient(
            lambda params: model.log_lik(params, drawn)
        ),
        "log_prior and its gradient": gradient(model.log_prior),
    }
    whole = 1e3 * curve.seconds[-1] / curve.steps
    lines = [
        f"a step {whole:.2f} ms of CPU, {1e3 / whole:.0f} a second and core; by themselves"
    ]
    for name, function in parts.items():
        compiled, spent = tf.function(function, jit_compile=True), []
        for _ in range(31):
            started = time.process_time()
            compiled()
            spent.append(time.process_time() - started)
        lines.append(f"  {name} {1e3 * float(np.median(spent)):.2f} ms")
    return "\n".join(lines)


LOOKS = {
    "sggmc": look("sggmc"),
    "gsgnht": look("gsgnht"),
    "sggmc with V": {**look("sggmc"), "linestyle": "-"},
    "minibatch VI": look("variational"),
    "VI": {**look("variational"), "linestyle": "-"},
}


def plot(results: dict[str, dict[str, Curve]]) -> Figure:
    """Log-perplexity against time, a panel for each data set."""
    picture = figure(6 * len(results), 4.5)
    panels = picture.subplots(1, len(results), squeeze=False)[0]
    for panel, (name, curves) in zip(panels, results.items(), strict=True):
        for method, curve in curves.items():
            panel.plot(
                curve.seconds, curve.log_perplexity, **LOOKS[method], label=method
            )
        panel.set(title=name, xlabel="seconds of CPU time", xscale="log")
        panel.set_ylabel("log-perplexity minus that of the uniform distribution")
        panel.legend()
    return picture


@dataclass(frozen=True)
class Length:
    """Numbers of steps of the samplers and of both forms of variational inference."""

    sampler: int = 8000
    stochastic: int = 4000
    batch: int = 60
    first: int = 40


def tune(
    corpus: Corpus, n_topics: int, kappa: float, sigma: float, length: Length
) -> None:
    """Print the score of each stepsize on the documents for tuning."""
    model = sam(corpus.train, n_topics, kappa=kappa, sigma=sigma)
    score = Score(
        model, model.held_out(corpus.tuning, n_particles=4, n_temperatures=50)
    )
    steps = checkpoints(length.sampler // 4, length.first)
    for run in GRID:
        found = sample(run, model, score, steps)
        print(
            f"{run.label}: {found.log_perplexity.round(1)}, {found.seconds[-1]:.0f} s",
            flush=True,
        )
    for rate in RATES:
        inference = VariationalInference(model, batch_size(model), rate, 0.6)
        found = inference.run(score, checkpoints(length.stochastic // 4, length.first))
        print(
            f"rate {rate:g}: {found.log_perplexity.round(1)}, {found.seconds[-1]:.0f} s",
            flush=True,
        )


def compare(
    corpus: Corpus, n_topics: int, kappa: float, sigma: float, length: Length
) -> dict[str, Curve]:
    """Run all methods on one set of documents, and print the results."""
    model = sam(corpus.train, n_topics, kappa=kappa, sigma=sigma)
    score = Score(model, model.held_out(corpus.test, n_particles=4, n_temperatures=50))
    curves = {}
    steps = checkpoints(length.sampler, length.first)
    for run in RUNS:
        curves[run.method] = sample(run, model, score, steps)
        print(f"{run.label}: {where_time_goes(model, curves[run.method])}", flush=True)
    V = noise_variance(model, curves["sggmc"].topics)
    corrected = Run("sggmc", 0.3, {"alpha": 1.0, "noise_variance": V})
    print(f"and {corrected.label}", flush=True)
    curves["sggmc with V"] = sample(corrected, model, score, steps)
    for name, n, rate, decay, n_steps in (
        ("minibatch VI", batch_size(model), RATE, 0.6, length.stochastic),
        ("VI", size(model), 0.5, 0.0, length.batch),
    ):
        inference = VariationalInference(model, n, rate, decay)
        first = max(1, length.first * n_steps // 4000)
        curves[name] = inference.run(score, checkpoints(n_steps, first))
    plain = Score(
        model, model.held_out(corpus.test, n_particles=10_000, n_temperatures=1)
    )
    print(
        "method            steps     CPU s   score at the end   by draws from the prior"
    )
    for name, curve in curves.items():
        by_prior = plain.of_draws([plain.log_likelihood(curve.topics)])
        print(f"{name:16}{curve.steps:7}{curve.seconds[-1]:10.1f}{curve.log_perplexity[-1]:19.1f}"
              f"{by_prior:26.1f}", flush=True)  # fmt: skip
    words = top_words(curves["gsgnht"].topics, corpus.vocab, n=8)
    print("Topics of gsgnht:\n" + "\n".join(" ".join(row) for row in words[:6]) + "\n")
    return curves


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The spherical admixture model.")
    parser.add_argument(
        "--short", action="store_true", help="few simulated documents and steps"
    )
    parser.add_argument(
        "--tune", action="store_true", help="try the stepsizes on KOS, and end"
    )
    parser.add_argument(
        "--wikipedia", metavar="FILE.npz", help="counts, in addition to KOS"
    )
    parser.add_argument(
        "--output", default="spherical_topics.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)

    if options.tune:
        tune(load(), 20, KAPPA, SIGMA, Length())
        return
    results: dict[str, dict[str, Curve]] = {}
    if options.short:
        results["simulated"] = compare(
            simulate(), 5, 200.0, 10.0, Length(200, 60, 5, 10)
        )
    else:
        results["KOS"] = compare(load(), 20, KAPPA, SIGMA, Length())
        if options.wikipedia is not None:
            print("Wikipedia")
            results["Wikipedia"] = compare(
                load(options.wikipedia), 20, KAPPA, SIGMA, Length(2000, 1000, 60)
            )
    plot(results).savefig(options.output)
    print(f"Log-perplexity against time: {os.path.abspath(options.output)}")


KAPPA, SIGMA = 2000.0, 2000.0

if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
