"""Libraries that take as long to import as TensorFlow does, and are loaded when first needed.

A process that only starts, reads draws or runs chains by stochastic gradients needs neither.
"""

from __future__ import annotations

import functools
import warnings
from importlib import metadata
from types import ModuleType

import tensorflow as tf


@functools.cache
def arviz() -> ModuleType:
    """Return ArviZ."""
    with warnings.catch_warnings():
        # ArviZ announces its next major version once a day, wherever it is imported.
        warnings.simplefilter("ignore")
        import arviz
    return arviz


@functools.cache
def tensorflow_probability() -> ModuleType:
    """Return TensorFlow Probability."""
    # A graph may be traced just now, in which nothing may land that is made by the import.
    with tf.init_scope(), warnings.catch_warnings():
        # What it has to say of its own dependencies is no news to the user.
        warnings.simplefilter("ignore")
        import tensorflow_probability
    return tensorflow_probability


@functools.cache
def probability_version() -> str:
    """Return the version of TensorFlow Probability, which need not be loaded for that."""
    try:
        return metadata.version("tensorflow-probability")
    except metadata.PackageNotFoundError:  # a nightly build, which has another name
        return str(tensorflow_probability().__version__)
