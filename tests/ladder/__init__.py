"""What all rungs of the correctness ladder share."""

from tests.ladder.comparisons import FALSE_ALARM, bound, check, compare
from tests.ladder.estimators import CENTRED, PLAIN, Estimator
from tests.ladder.laws import Law
from tests.ladder.problems import (
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
from tests.ladder.table import (
    BY_NAME,
    DISTINCT,
    EXACT,
    IN_TURN,
    LADDER,
    LINEAR,
    POINTS,
    QUICK,
    TABLE,
    THERMOSTATS,
    Case,
    every,
    firsts,
)
from tests.ladder.transcriptions import Inputs, Noise, Recorded

__all__ = [
    "Array",
    "BY_NAME",
    "CENTRED",
    "Case",
    "DISTINCT",
    "EXACT",
    "Estimator",
    "FALSE_ALARM",
    "IN_TURN",
    "Inputs",
    "LADDER",
    "LINEAR",
    "Law",
    "LinearProblem",
    "Noise",
    "PLAIN",
    "POINTS",
    "Problem",
    "QUICK",
    "Recorded",
    "SHAPES",
    "Shapes",
    "TABLE",
    "THERMOSTATS",
    "bound",
    "check",
    "compare",
    "every",
    "firsts",
    "flat",
    "gaussian",
    "logistic",
    "regression",
]
