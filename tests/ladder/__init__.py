"""What all rungs of the correctness ladder share."""

from ladder.comparisons import FALSE_ALARM, bound, check, compare
from ladder.laws import Law
from ladder.problems import (
    SHAPES,
    Array,
    LinearProblem,
    Problem,
    Shapes,
    flat,
    gaussian,
    logistic,
    regression,
)
from ladder.table import LINEAR, TABLE, THERMOSTATS, Case, every
from ladder.transcriptions import reference_chain, remade_noise, vectors_per_iteration

__all__ = [
    "Array",
    "Case",
    "FALSE_ALARM",
    "LINEAR",
    "Law",
    "LinearProblem",
    "Problem",
    "SHAPES",
    "Shapes",
    "TABLE",
    "THERMOSTATS",
    "bound",
    "check",
    "compare",
    "every",
    "flat",
    "gaussian",
    "logistic",
    "reference_chain",
    "regression",
    "remade_noise",
    "vectors_per_iteration",
]
