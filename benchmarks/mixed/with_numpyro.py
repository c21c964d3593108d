"""Reference draws by NumPyro's NUTS over all parameters, effects included.

It runs in an environment of its own: `python with_numpyro.py DESIGN.npz DRAWS.npz`, with the arrays
of a design, and the priors of `models`.
"""

from __future__ import annotations

import sys

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import numpy as jnp
from numpyro.infer import MCMC, NUTS

CHAINS, WARM_UP, DRAWS = 4, 1500, 5000


def model(family, y, trials, X, codes, Zs, centered, priors):
    b = numpyro.sample(
        "b", dist.Normal(0.0, priors[0]).expand([X.shape[1]]).to_event(1)
    )
    eta = X @ b
    for k, (g, Z) in enumerate(zip(codes, Zs, strict=True)):
        q, levels = Z.shape[1], int(g.max()) + 1
        sd = numpyro.sample(f"sd{k}", dist.Exponential(1.0).expand([q]).to_event(1))
        root = jnp.eye(q)
        if q > 1:
            root = numpyro.sample(f"L{k}", dist.LKJCholesky(q, priors[2]))
        scale = sd[:, None] * root
        z = numpyro.sample(
            f"z{k}", dist.Normal(0, 1).expand([levels, q - centered[k]]).to_event(2)
        )
        if centered[k]:
            first = numpyro.sample(
                f"first{k}", dist.Normal(0, sd[0]).expand([levels]).to_event(1)
            )
            z = jnp.concatenate([first[:, None] / sd[0], z], 1)
        u = numpyro.deterministic(f"u{k}", z @ scale.T)
        eta = eta + (Z * u[g]).sum(-1)
    if family == "normal":
        sigma = numpyro.sample("sigma", dist.Exponential(1.0))
        numpyro.sample("y", dist.Normal(eta, sigma), obs=y)
    elif family == "binomial":
        numpyro.sample("y", dist.Binomial(trials.astype(int), logits=eta), obs=y)
    elif family == "poisson":
        numpyro.sample("y", dist.Poisson(jnp.exp(eta)), obs=y)
    else:
        shape = numpyro.sample("shape", dist.Exponential(priors[1]))
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(eta), shape), obs=y)


def main(source: str, target: str) -> None:
    numpyro.enable_x64()
    given = dict(np.load(source))
    factors = range(sum(name.startswith("g") for name in given))
    arguments = (
        str(given["family"]), given["y"], given["trials"], given["X"],
        [given[f"g{k}"] for k in factors], [given[f"Z{k}"] for k in factors],
        given["centered"].astype(int).tolist(), given["priors"],
    )  # fmt: skip
    kernel = NUTS(model, target_accept_prob=0.9)
    mcmc = MCMC(
        kernel, num_warmup=WARM_UP, num_samples=DRAWS, num_chains=CHAINS,
        chain_method="sequential", progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.key(1), *arguments)
    draws = mcmc.get_samples(group_by_chain=True)
    np.savez(target, **{n: np.asarray(a) for n, a in draws.items() if n[0] not in "zf"})


if __name__ == "__main__":
    main(*sys.argv[1:])
