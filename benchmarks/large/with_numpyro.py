"""NumPyro's NUTS on large posteriors: `python with_numpyro.py REQUEST.npz`.

It runs in an environment of its own. The densities are those of `hierarchical` and `others`, with
scales as their logarithms. Two chains in parallel run until every watched scalar has the effective
sample size that is asked for, or the processor seconds are used up.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import numpyro
from jax import numpy as jnp
from numpyro.diagnostics import effective_sample_size
from numpyro.distributions import ImproperUniform, constraints
from numpyro.infer import MCMC, NUTS

CHAINS, WARM_UP, BLOCK = 2, 500, 100
Arrays = Mapping[str, Any]


def normal(x: Any, scale: Any = 1.0) -> Any:
    return -0.5 * jnp.sum((x / scale) ** 2)


def rows(family: str, y: Any, eta: Any, sigma: Any = 1.0) -> Any:
    if family == "logistic":
        return jnp.sum(y * eta - jax.nn.softplus(eta))
    if family == "Poisson":
        return jnp.sum(y * eta - jnp.exp(eta))
    return jnp.sum(-0.5 * ((y - eta) / sigma) ** 2 - jnp.log(sigma))


def nested(p: Arrays, data: Arrays, family: str, centered: bool) -> Any:
    tau, sigma = p["tau"], p.get("sigma", 1.0)
    effects = p["z"] if centered else tau * p["z"]
    value = rows(
        family, data["y"], data["X"] @ p["beta"] + effects[data["group"]], sigma
    )
    value += normal(p["beta"], 2.0) - tau - (sigma if "sigma" in p else 0.0)
    if not centered:
        return value + normal(p["z"])
    return value + normal(p["z"] / tau) - p["z"].size * jnp.log(tau)


def insteval(p: Arrays, data: Arrays, centered: bool) -> Any:
    eta, value = p["mu"], normal(p["mu"] - 3.0, 10.0) - p["sigma"]
    for name in "sd":
        tau = p[f"tau_{name}"]
        eta += (p[name] if centered else tau * p[name])[data[name]]
        value += normal(p[name] / tau if centered else p[name]) - tau
        value -= p[name].size * jnp.log(tau) if centered else 0.0
    return value + rows("normal", data["y"], eta, p["sigma"])


def crossed(p: Arrays, data: Arrays) -> Any:
    eta, value = p["mu"], normal(p["mu"], 3.0)
    for name in "ab":
        eta += p[f"tau_{name}"] * p[name][data[name]]
        value += normal(p[name]) - p[f"tau_{name}"]
    return value + rows("logistic", data["y"], eta)


def schools(p: Arrays, data: Arrays) -> Any:
    eta = p["mu"] + p["slope"] * data["x"] + p["tau_class"] * p["class"][data["class"]]
    eta += p["tau_school"] * p["school"][data["school"]]
    value = normal(p["mu"], 2.0) + normal(p["slope"], 2.0) + normal(p["class"])
    value += normal(p["school"]) - p["tau_class"] - p["tau_school"]
    return value + rows("logistic", data["y"], eta)


def slopes(p: Arrays, data: Arrays) -> Any:
    own = p["beta"] + p["tau"] * p["z"][data["group"]]
    value = rows("Poisson", data["y"], own[:, 0] + own[:, 1] * data["x"])
    return value + normal(p["beta"], 2.0) + normal(p["z"]) - jnp.sum(p["tau"])


def wide(p: Arrays, data: Arrays, family: str) -> Any:
    return rows(family, data["y"], data["X"] @ p["beta"]) + normal(p["beta"])


def sparse(p: Arrays, data: Arrays, family: str) -> Any:
    return rows(family, data["y"], p["beta"][data["places"]].sum(1)) + normal(p["beta"])


def softmax(p: Arrays, data: Arrays) -> Any:
    scores = data["images"] @ p["W"] + p["b"]
    value = jnp.sum(scores * data["labels"]) - jnp.sum(jax.nn.logsumexp(scores, 1))
    return value + normal(p["W"]) + normal(p["b"])


def horseshoe(p: Arrays, data: Arrays) -> Any:
    scale = p["tau"] * p["local"]
    beta = p["z"] * scale / jnp.sqrt(1.0 + (scale / 2.0) ** 2)
    value = (
        rows("normal", data["y"], data["X"] @ beta, p["sigma"])
        + normal(p["z"])
        - p["sigma"]
    )
    return (
        value - jnp.sum(jnp.log1p(p["local"] ** 2)) - jnp.log1p((p["tau"] / 0.01) ** 2)
    )


def random_walk(p: Arrays, data: Arrays) -> Any:
    level, tau = p["level"], p["tau"]
    value = normal(jnp.diff(level) / tau) - (level.size - 1) * jnp.log(tau)
    value += normal(level[0], 3.0) - 10.0 * tau
    return value + rows("Poisson", data["y"], level[data["time"]])


def network(p: Arrays, data: Arrays) -> Any:
    fitted = jnp.tanh(data["X"] @ p["W"] + p["b"]) @ p["v"]
    value = rows("normal", data["y"], fitted, 0.3) + normal(p["W"]) + normal(p["b"])
    return value + normal(p["v"], 0.3)


def robust(p: Arrays, data: Arrays) -> Any:
    away, nu = (data["y"] - data["X"] @ p["beta"]) / p["scale"], p["nu"]
    each = jax.lax.lgamma((nu + 1) / 2) - jax.lax.lgamma(nu / 2) - jnp.log(nu) / 2
    each = each - (nu + 1) / 2 * jnp.log1p(away**2 / nu) - jnp.log(p["scale"])
    return jnp.sum(each) + normal(p["beta"], 2.0) - p["scale"] - nu / 10


OTHERS = {
    "crossed-logistic": crossed, "classes-in-schools": schools, "slopes-poisson": slopes,
    "softmax-mnist": softmax, "horseshoe": horseshoe, "random-walk": random_walk,
    "network": network, "robust-million": robust,
}  # fmt: skip


def log_density(name: str, p: Arrays, data: Arrays) -> Any:
    """Return the log density of a posterior by its name."""
    words = name.split("-")
    if words[0] == "nested":
        family = {"poisson": "Poisson"}.get(words[1], words[1])
        return nested(p, data, family, words[-1] == "centered")
    if words[0] == "insteval":
        return insteval(p, data, words[-1] == "centered")
    if words[0] in ("wide", "rare", "sparse"):
        family = {"poisson": "Poisson"}.get(words[1], words[1])
        return (sparse if words[0] == "sparse" else wide)(p, data, family)
    return OTHERS[name](p, data)


def main(source: str) -> None:
    with np.load(source) as given:  # one by one: they may be most of the memory
        about = json.loads(str(given["about"]))
        data = {
            name[5:]: jnp.asarray(given[name]) for name in given if name[:5] == "data:"
        }
        start = {name[6:]: given[name] for name in given if name[:6] == "start:"}
    positive = about["positive"]
    start = {n: np.log(a) if n in positive else a for n, a in start.items()}

    def model(data: Arrays) -> None:
        u = {n: numpyro.sample(n, ImproperUniform(constraints.real, (), np.shape(a)))
             for n, a in start.items()}  # fmt: skip
        p = {n: jnp.exp(x) if n in positive else x for n, x in u.items()}
        change = sum(jnp.sum(u[n]) for n in positive)
        numpyro.factor("log density", log_density(about["name"], p, data) + change)

    numpyro.set_host_device_count(CHAINS)
    rng = np.random.default_rng(1)
    first = {n: jnp.asarray(a + 0.1 * rng.normal(size=(CHAINS, *a.shape)), jnp.float32)
             for n, a in start.items()}  # fmt: skip
    mcmc = MCMC(
        NUTS(model), num_warmup=WARM_UP, num_samples=BLOCK, num_chains=CHAINS,
        chain_method="parallel", progress_bar=False,
    )  # fmt: skip
    began, kept = time.perf_counter(), []
    watched = [n for n, a in start.items() if a.size == 1] or list(start)
    mcmc.warmup(jax.random.key(1), data, init_params=first)
    while True:
        mcmc.run(mcmc.post_warmup_state.rng_key if not kept else mcmc.last_state.rng_key,
                 data, init_params=first)  # fmt: skip
        mcmc.post_warmup_state = mcmc.last_state
        drawn = mcmc.get_samples(group_by_chain=True)
        kept.append(
            {n: np.asarray(drawn[n]).reshape(CHAINS, BLOCK, -1) for n in watched}
        )
        draws = {n: np.concatenate([block[n] for block in kept], 1) for n in watched}
        draws = {n: a[:, :, :: max(1, a.shape[2] // 200)] for n, a in draws.items()}
        ess = min(float(np.min(effective_sample_size(a))) for a in draws.values())
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu = used.ru_utime + used.ru_stime
        if ess >= about["ess"] or cpu > about["most"]:
            break
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "cpu": cpu, "ess": ess}))


if __name__ == "__main__":
    numpyro.set_host_device_count(CHAINS)
    main(*sys.argv[1:])
