"""NUTS of a regression, written in NumPyro; runs in its environment, without the package.

python nuts.py CASE.npz OUT.json
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpyro  # noqa: E402
import numpyro.distributions as dist  # noqa: E402
from jax.scipy.special import gammaln, ndtr, ndtri  # noqa: E402
from numpyro.diagnostics import summary  # noqa: E402

CHAINS, WARM_UP, DRAWS = 4, 1000, 5000


RATES, DISPERSION = 100.0, 10.0


def probability(link: str, eta: Any) -> Any:
    """Return the probability of a success."""
    p = ndtr(eta) if link == "probit" else -jnp.expm1(-jnp.exp(eta))
    return jnp.clip(p, 1e-14, 1 - 1e-14)


def model(case: dict[str, Any]) -> None:
    """The regression, with the default priors of `sgmcmc.glm` as its page has them."""
    X, y, family, link = case["X"], case["y"], str(case["family"]), str(case["link"])
    n, p = X.shape
    middle, spread = X.mean(0), X.std(0)
    scale = y.std() if family in ("gaussian", "student") else 1.0
    wide = 2.5 * scale / spread
    if family == "categorical":
        levels = int(y.max())
        shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(levels + 1)))
        a = jnp.log(shares[1:]) - jnp.log(shares[0])
        b = numpyro.sample("b", dist.Normal(0, wide).expand([levels, p]).to_event(2))
        eta = jnp.concatenate([jnp.zeros((n, 1)), a + (X - middle) @ b.T], 1)
        numpyro.deterministic("Intercept", a - b @ middle)
        numpyro.sample("y", dist.Categorical(logits=eta), obs=y.astype(int))
        return
    b = numpyro.sample("b", dist.Normal(0, wide).to_event(1))
    eta = (X - middle) @ b
    if family == "ordinal":
        parts = numpyro.sample("parts", dist.Dirichlet(jnp.ones(int(y.max()) + 1)))
        below = jnp.cumsum(parts)[:-1]
        cut = jnp.log(below) - jnp.log1p(-below)
        numpyro.deterministic("cut", cut + middle @ b)
        numpyro.sample("y", dist.OrderedLogistic(eta, cut), obs=y.astype(int))
        return
    a = intercept(case, family, link, scale)
    numpyro.deterministic("Intercept", a - middle @ b)
    eta = eta + a + effects(case, scale)
    response(case, family, link, scale, eta)


def intercept(case: dict[str, Any], family: str, link: str, scale: float) -> Any:
    """Return the intercept at the means of all columns."""
    y = case["y"]
    if family in ("bernoulli", "binomial"):
        p = numpyro.sample("p", dist.Uniform(0, 1))
        if link == "logit":
            return jnp.log(p) - jnp.log1p(-p)
        return ndtri(p) if link == "probit" else jnp.log(-jnp.log1p(-p))
    if family in ("exponential", "weibull"):
        rate = numpyro.sample("rate", dist.Exponential(1 / RATES))
        return np.log(y.sum() / ((1 - case["censored"]).sum() + 0.5)) - jnp.log(rate)
    if family in ("poisson", "negative_binomial", "zero_inflated_poisson"):
        rate = numpyro.sample("rate", dist.Exponential(1 / RATES))
        return np.log((y.sum() + 0.5) / len(y)) + jnp.log(rate)
    mean = y.mean()
    if family == "gamma":
        mean = np.log(mean)
    elif family == "beta":
        mean = np.log(mean / (1 - mean))
    return numpyro.sample("a", dist.Normal(mean, 2.5 * scale))


def effects(case: dict[str, Any], scale: float) -> Any:
    """Return the effect of each row's group; the priors are those of effects at the mean slope."""
    if "group" not in case:
        return 0.0
    codes = np.unique(case["group"], return_inverse=True)[1]
    slope = case.get("slope", np.zeros(len(codes)))
    columns, spreads = [np.ones(len(codes))], [1.0]
    if "slope" in case:
        columns.append(slope - slope.mean())
        spreads.append(slope.std())
    q, groups = len(columns), codes.max() + 1
    rates = jnp.array(spreads) / scale
    centered = numpyro.sample("centered", dist.Exponential(rates).to_event(1))
    root = centered[:, None] * jnp.eye(q)
    if q > 1:
        half = numpyro.sample("half", dist.LKJCholesky(q, 1.0))
        root = centered[:, None] * half
    at_zero = jnp.eye(q).at[0, 1:].set(-slope.mean()) @ root
    sds = numpyro.deterministic("sds", jnp.sqrt((at_zero**2).sum(1)))
    if q > 1:
        numpyro.deterministic("cor", (at_zero @ at_zero.T)[0, 1] / (sds[0] * sds[1]))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([groups, q]).to_event(2))
    return (jnp.stack(columns, 1) * (z @ root.T)[codes]).sum(1)


def dispersion(name: str) -> Any:
    """Return a parameter whose inverse is exponential."""
    inverse = numpyro.sample(f"1/{name}", dist.Exponential(1 / DISPERSION))
    return numpyro.deterministic(name, 1 / inverse)


def response(
    case: dict[str, Any], family: str, link: str, scale: float, eta: Any
) -> None:
    """The distribution of the response given its linear predictor."""
    y = case["y"]
    if family == "gaussian":
        sigma = numpyro.sample("sigma", dist.Exponential(1 / scale))
        numpyro.sample("y", dist.Normal(eta, sigma), obs=y)
    elif family == "student":
        sigma = numpyro.sample("sigma", dist.Exponential(1 / scale))
        beyond = numpyro.sample("beyond", dist.Exponential(0.1))
        numpyro.factor("gamma", jnp.log1p(beyond))
        nu = numpyro.deterministic("nu", 1 + beyond)
        numpyro.sample("y", dist.StudentT(nu, eta, sigma), obs=y)
    elif family == "bernoulli":
        law = (
            dist.Bernoulli(logits=eta)
            if link == "logit"
            else dist.Bernoulli(probs=probability(link, eta))
        )
        numpyro.sample("y", law, obs=y)
    elif family == "binomial":
        numpyro.sample("y", dist.Binomial(case["trials"], logits=eta), obs=y)
    elif family == "poisson":
        numpyro.sample("y", dist.Poisson(jnp.exp(eta)), obs=y)
    elif family == "negative_binomial":
        shape = dispersion("shape")
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(eta), shape), obs=y)
    elif family == "zero_inflated_poisson":
        zi = numpyro.sample("zi", dist.Uniform(0, 1))
        numpyro.sample("y", dist.ZeroInflatedPoisson(zi, jnp.exp(eta)), obs=y)
    elif family == "gamma":
        shape = dispersion("shape")
        numpyro.sample("y", dist.Gamma(shape, shape / jnp.exp(eta)), obs=y)
    elif family == "beta":
        phi = dispersion("phi")
        mean = jnp.clip(jax.nn.sigmoid(eta), 1e-12, 1 - 1e-12)
        numpyro.sample("y", dist.Beta(mean * phi, (1 - mean) * phi), obs=y)
    else:
        k = 1.0
        if family == "weibull":
            k = dispersion("shape")
        power = k * (jnp.log(y) - eta + gammaln(1 + 1 / k))
        seen = jnp.log(k) + power - jnp.log(y)
        numpyro.factor("y", ((1 - case["censored"]) * seen - jnp.exp(power)).sum())


def named(case: dict[str, Any], draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return draws by the names that the summary of a regression has."""
    terms, found = [str(term) for term in case["terms"]], {}
    levels = [f"{level:g}" for level in np.atleast_1d(case.get("levels", []))]
    if str(case["family"]) == "categorical":
        for k, level in enumerate(levels[1:]):
            found[f"{level}: Intercept"] = draws["Intercept"][..., k]
            for j, term in enumerate(terms):
                found[f"{level}: {term}"] = draws["b"][..., k, j]
        return found
    if "Intercept" in draws:
        found["Intercept"] = draws["Intercept"]
    found |= {term: draws["b"][..., j] for j, term in enumerate(terms)}
    for k in range(len(levels) - 1 if "cut" in draws else 0):
        found[f"{levels[k]}|{levels[k + 1]}"] = draws["cut"][..., k]
    found |= {
        name: draws[name]
        for name in ("sigma", "nu", "shape", "phi", "zi")
        if name in draws
    }
    if "sds" in draws:
        by, of = str(case["by"]), ["Intercept", str(case.get("slope name", ""))]
        for k in range(draws["sds"].shape[-1]):
            found[f"sd({by}: {of[k]})"] = draws["sds"][..., k]
        if "cor" in draws:
            found[f"cor({by}: Intercept, {of[1]})"] = draws["cor"]
    return found


def main() -> None:
    """Sample a case, and write means, SDs and effective sample sizes."""
    case = dict(np.load(sys.argv[1]))
    kernel = numpyro.infer.NUTS(
        model, target_accept_prob=0.95 if "group" in case else 0.8
    )
    chains = numpyro.infer.MCMC(
        kernel, num_warmup=WARM_UP, num_samples=DRAWS, num_chains=CHAINS,
        chain_method="sequential", progress_bar=False,
    )  # fmt: skip
    start = time.monotonic()
    chains.run(jax.random.PRNGKey(1), case)
    draws = {
        k: np.asarray(v) for k, v in chains.get_samples(group_by_chain=True).items()
    }
    about = {}
    for name, values in named(case, draws).items():
        row = summary({name: values})[name]
        about[name] = {
            "mean": float(values.mean()), "sd": float(values.std()),
            "ess": float(row["n_eff"]), "r_hat": float(row["r_hat"]),
        }  # fmt: skip
    seconds = round(time.monotonic() - start, 1)
    with open(sys.argv[2], "w") as file:
        json.dump({"terms": about, "seconds": seconds}, file)


if __name__ == "__main__":
    main()
