"""Chains that are loops in Python: room for their draws, one chain after another."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.workloads import Arrays, Workload


def one_after_another(
    workload: Workload, params: Arrays, one_chain: Callable[[int, Arrays], None]
) -> Callable[[int], Arrays]:
    """Turn one chain into a function that runs the workload's number of chains.

    Args:
        workload: says how many.
        params: the starting values, for the shapes.
        one_chain: function of the number of iterations that fills arrays of so many draws.
    """

    def chain(n_iters: int) -> Arrays:
        draws = {
            name: np.empty((workload.n_chains, n_iters, *value.shape), value.dtype)
            for name, value in params.items()
        }
        for c in range(workload.n_chains):
            one_chain(n_iters, {name: array[c] for name, array in draws.items()})
        return (
            draws
            if workload.n_chains > 1
            else {k: array[0] for k, array in draws.items()}
        )

    return chain
