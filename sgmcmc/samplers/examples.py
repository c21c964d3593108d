"""The examples in the docstrings of the sampler functions, as doctest lines with gaps."""

NORMAL = """
>>> import numpy as np, sgmcmc, tensorflow as tf
>>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
>>> def log_lik(params, dataset):
...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
"""

NORMAL_MEAN = """
>>> chain = sgmcmc.{function}(
...     {call}, n_iters=5000,
...     verbose=False, seed=1)
>>> abs(float(chain["theta"].mean()) - float(x.mean())) < 0.05
True
"""

NORMAL_STEPS = """
>>> sampler = sgmcmc.{function}({call}, seed=1)
>>> sess = sgmcmc.init_sess(sampler, verbose=False)
>>> sgmcmc.sgmcmc_step(sampler, sess, n_steps=100)
>>> abs(float(sgmcmc.get_params(sampler, sess)["theta"]) - 3.0) < 0.5
True
"""

NORMAL_CALL = 'log_lik, {{"x": x}}, {{"theta": 3.0}}, {stepsize}, minibatch_size=100'

CATEGORY_COUNTS = """
>>> import numpy as np, sgmcmc, tensorflow as tf
>>> z = np.repeat(np.eye(3), [70, 20, 10], axis=0)
>>> def log_lik(params, dataset):
...     return tf.reduce_sum(dataset["z"] * tf.math.log(params["omega"]))
"""

CATEGORIES = """
>>> chain = sgmcmc.{function}(
...     {call}, n_iters=5000,
...     verbose=False, seed=1)
>>> np.round(chain["omega"].mean(0, dtype=float), 1).tolist()
[0.7, 0.2, 0.1]
"""

CATEGORIES_STEPS = """
>>> sampler = sgmcmc.{function}({call}, seed=1)
>>> sess = sgmcmc.init_sess(sampler)
>>> sgmcmc.sgmcmc_step(sampler, sess, n_steps=100)
>>> bool(abs(sgmcmc.get_params(sampler, sess)["omega"].sum() - 1) < 1e-5)
True
"""

CATEGORIES_CALL = (
    'log_lik, {{"z": z}}, {{"omega": np.ones(3) / 3}}, {stepsize}, alpha=0.5, minibatch_size=100'
)

DIRECTION = """
>>> import numpy as np, sgmcmc, tensorflow as tf
>>> x = np.random.default_rng(1).normal([0.6, 0.0, 0.8], 1.0, (1000, 3))
>>> def log_lik(params, dataset):  # N(v, I), with v a unit vector
...     return -0.5 * tf.reduce_sum((dataset["x"] - params["v"]) ** 2)
"""

DIRECTION_CALL = (
    'log_lik, {{"x": x}}, {{"v": [0.0, 0.0, 1.0]}}, {stepsize}, minibatch_size=100,\n'
    '...     manifolds={{"v": sgmcmc.manifolds.Sphere()}}'
)

DIRECTION_MEAN = """
>>> chain = sgmcmc.{function}(
...     {call},
...     n_iters=5000, burn_in=500, verbose=False, seed=1)
>>> np.round(chain["v"].mean(0, dtype=float), 1).tolist()
[0.6, 0.0, 0.8]
>>> bool(np.abs(np.linalg.norm(chain["v"], axis=1) - 1).max() < 1e-6)
True
"""

DIRECTION_STEPS = """
>>> sampler = sgmcmc.{function}(
...     {call}, seed=1)
>>> sess = sgmcmc.init_sess(sampler)
>>> sgmcmc.sgmcmc_step(sampler, sess, n_steps=100)
>>> bool(abs(np.linalg.norm(sgmcmc.get_params(sampler, sess)["v"]) - 1) < 1e-6)
True
"""
