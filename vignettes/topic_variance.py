# %% [markdown]
# # SGLD and SGLD-CV on a topic model
#
# This is figure 3.5.5 of Baker, *Large-Scale Bayesian Computation Using Stochastic Gradient MCMC*,
# Lancaster 2018: latent Dirichlet allocation by Langevin dynamics that do not use the geometry of
# the simplex. The figure shows the perplexity of hidden words along chains with plain minibatch
# gradients and with control variates, as the number of documents grows.
#
# In the thesis the data were 81 538 articles of Wikipedia. Here they are the posts of UCI's KOS: a
# tenth, six tenths and all of the 3001 training documents, in their 1000 most frequent words.
#
# Run it with `python vignettes/topic_variance.py`. The tests run `--short`, on simulated documents.

# %%
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

import sgmcmc
from sgmcmc.counts import Counts
from sgmcmc.models import lda

import topic_model
from _figures import figure, look

# %% [markdown]
# ## The model
#
# The *expanded natural* parameterization (Patterson & Teh, NeurIPS 2013): a topic is
# ω_k ∝ exp(u_k), and exp(u_kw) ~ Gamma(β, 1), so that ω_k ~ Dir(β). u is free, so all samplers
# apply. `lda` has the rest: `gibbs` draws the topics of the words of a minibatch, `log_lik` is the
# likelihood given these. Both concentrations are 1, and there are 20 topics.
#
# With control variates the Gibbs sweeps are run twice for each minibatch, given the present u and
# given that at the center. For the gradient over all documents they are run a hundred times.

# %%
BETA, N_TOPICS, MINIBATCH, EVERY = 1.0, 20, 50, 10


def topics(params: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {"topics": tf.nn.softmax(params["u"])}


def log_prior(params):
    return tf.reduce_sum(BETA * params["u"] - tf.exp(params["u"]))


# %% [markdown]
# ## The runs
#
# Minibatches have 50 documents. The stepsizes are a third of the published ones, times the ratio of
# the published number of documents to the number here: at three times these, SGLD diverges on a
# tenth of the documents after a thousand iterations. The search for the center is stochastic
# gradient ascent with its own stepsize, a chain of the dynamics `SGD`, so that its perplexity is
# shown too.


# %%
class Setting(NamedTuple):
    """Published constants for a fraction of the documents."""

    documents: int
    h: float
    search: float

    def scaled(self, documents: int) -> Setting:
        """Return the stepsizes for another number of documents."""
        factor = self.documents / documents / 3
        return Setting(documents, self.h * factor, self.search * factor)


PUBLISHED = {
    0.1: Setting(10_000, 8e-4, 7e-4),
    0.6: Setting(50_000, 8e-5, 1e-4),
    1.0: Setting(81_538, 5e-5, 1e-4),
}


class Length(NamedTuple):
    """Iterations of a chain, the part of them for the search, and seeds."""

    chain: int = 2000
    search: int = 500
    seeds: int = 3


SHORT = Length(40, 20, 1)


def most_frequent(counts: Counts, words: int) -> Counts:
    """Return the counts of the most frequent words, in the documents that have at least ten."""
    table = counts.toarray()
    table = table[:, np.sort(np.argsort(-table.sum(axis=0), kind="stable")[:words])]
    return Counts.read(table[table.sum(axis=1) >= 10])


class Chain:
    """One model with all that its chains have in common."""

    def __init__(self, train: Counts, unseen: Counts, seed: int) -> None:
        self.model = lda(train, N_TOPICS, alpha=1.0)
        held_out = self.model.completion(unseen, n_sweeps=10)
        # A gamma distribution of mean 1, with enough spread that topics differ.
        shape = (N_TOPICS, train.shape[1])
        self.start = np.log(np.random.default_rng(seed).gamma(1.0, size=shape) + 1e-3)
        self.seed = seed

        def perplexity(params):
            p = held_out.probabilities(topics(params)["topics"], tf.constant([0, 1]))
            return tf.exp(-tf.reduce_mean(tf.math.log(p)))

        self.perplexity = perplexity

    def run(
        self, u: np.ndarray, n_iters: int, stepsize: float, **parts: Any
    ) -> sgmcmc.Samples:
        """Run a chain from u; the perplexity is computed at every tenth iteration."""
        model = self.model
        return sgmcmc.sample(
            lambda params, minibatch: model.log_lik(topics(params), minibatch),
            model.dataset,
            {"u": u},
            log_prior,
            gibbs=lambda params, minibatch, seed: model.gibbs(
                topics(params), minibatch, seed
            ),
            stepsize=stepsize,
            minibatches="uniform",
            minibatch_size=min(MINIBATCH, len(model.dataset["lengths"]) // 2),
            preconditioner="none",
            n_chains=None,
            n_iters=n_iters,
            burn_in=0,
            thin=EVERY,
            test_functions={"perplexity": self.perplexity},
            jit_compile=None if n_iters > 100 else False,  # too short to compile
            seed=self.seed,
            verbose=False,
            **parts,
        )


def follow(train: Counts, unseen: Counts, setting: Setting, length: Length, seed: int):
    """Return the perplexity along both chains, by name."""
    chain = Chain(train, unseen, seed)
    _, h, h_search = setting.scaled(len(train))
    plain = chain.run(
        chain.start, length.chain, h, dynamics="sgld", gradient="minibatch"
    )
    search = chain.run(
        chain.start, length.search, h_search,
        dynamics=sgmcmc.dynamics.SGD(), gradient="minibatch",
    )  # fmt: skip
    centered = sgmcmc.gradients.ControlVariate(h_search, n_iters_opt=0)
    rest = length.chain - length.search
    after = chain.run(search["u"][-1], rest, h, dynamics="sgld", gradient=centered)
    both = [s.test_functions["perplexity"] for s in (search, after)]
    return {"sgld": plain.test_functions["perplexity"], "sgldcv": np.concatenate(both)}


# %% [markdown]
# ## Results
#
# The perplexity is that of each single draw, not of the mean over draws. The line marks the end of
# the search.


# %%
def compare(
    corpus: topic_model.Corpus, words: int, fractions: Sequence[float], length: Length
) -> dict[float, dict[str, np.ndarray]]:
    """Return the perplexities of all seeds, by fraction of the documents and by sampler."""
    both = Counts.read(np.concatenate([corpus.train.toarray(), corpus.test.toarray()]))
    chosen = most_frequent(both, words)
    unseen = len(chosen) // 15
    rng, found = np.random.default_rng(1), {}
    order = rng.permutation(len(chosen))
    for fraction in fractions:
        train = chosen[order[unseen:][: round(fraction * (len(chosen) - unseen))]]
        of_seeds = []
        for seed in range(1, length.seeds + 1):
            started, setting = time.perf_counter(), PUBLISHED[fraction]
            of_seeds.append(
                follow(train, chosen[order[:unseen]], setting, length, seed)
            )
            seconds = time.perf_counter() - started
            print(f"{len(train)} documents, seed {seed}: {seconds:.0f} s", flush=True)
        found[fraction] = {
            name: np.stack([one[name] for one in of_seeds])
            for name in ("sgld", "sgldcv")
        }
    return found


def format_table(
    found: Mapping[float, Mapping[str, np.ndarray]], length: Length
) -> str:
    """Return the perplexity before and after the search ends, and at the end."""
    at = {
        "end of the search": length.search,
        "a tenth on": length.search + length.chain // 10,
    }
    at["end"] = length.chain
    lines = [f"{'fraction':9}{'':8}" + "".join(f"{name:>19}" for name in at)]
    for fraction, paths in found.items():
        for name, values in paths.items():
            means = [values[:, i // EVERY - 1].mean() for i in at.values()]
            lines.append(
                f"{fraction:<9g}{name:8}" + "".join(f"{mean:19.1f}" for mean in means)
            )
    return "\n".join(lines)


def plot(found: Mapping[float, Mapping[str, np.ndarray]], length: Length) -> Figure:
    """Perplexity along the chains, a panel for each number of documents."""
    picture = figure(10, 3.5)
    panels = picture.subplots(1, len(found), squeeze=False, sharey=True)[0]
    for panel, (fraction, paths) in zip(panels, found.items(), strict=True):
        for name, values in paths.items():
            iterations = EVERY * np.arange(1, values.shape[1] + 1)
            for number, row in enumerate(values):
                label = name if number == 0 else None
                panel.plot(iterations, row, linewidth=0.8, label=label, **look(name))
        panel.axvline(length.search, color="C6", linewidth=0.6)
        panel.set(
            xlabel="iteration", title=f"{fraction:.0%} of the documents", yscale="log"
        )
    panels[0].set_ylabel("perplexity of hidden words")
    panels[0].legend()
    return picture


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="A topic model with and without control variates."
    )
    parser.add_argument(
        "--short", action="store_true", help="few simulated documents and steps"
    )
    parser.add_argument(
        "--output", default="topic_variance.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)

    length = SHORT if options.short else Length()
    corpus = topic_model.simulate() if options.short else topic_model.load()
    words, fractions = (30, (1.0,)) if options.short else (1000, tuple(PUBLISHED))
    found = compare(corpus, words, fractions, length)
    print("\n" + format_table(found, length))
    plot(found, length).savefig(options.output)
    print(f"\nPerplexity along the chains: {options.output}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
