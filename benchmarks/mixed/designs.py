"""Mixed models of data sets in R's packages lme4, nlme and MASS, as matrices that R makes of them.

The data stay in R: every design is read through `Rscript`, with its packages and jsonlite.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Design:
    """A mixed model: a response, fixed effects, and effects of groups.

    Attributes:
        package: R package that has the data.
        data: R expression of the data frame.
        family: "normal", "binomial", "poisson" or "negative_binomial".
        response: R expression of the response; of counts of successes if there are ``trials``.
        fixed: R formula of the fixed effects, without the response.
        groups: R formula of the effects of each factor, by the R expression of the factor.
        trials: R expression of the numbers of trials; ``None`` for one each.
        centered: Factors that say much about the first effect of each group, which is therefore a
            coordinate of the reference's chains as it is. Other effects are multiples of scales.
    """

    package: str
    data: str
    family: str
    response: str
    fixed: str
    groups: Mapping[str, str]
    trials: str | None = None
    centered: tuple[str, ...] = ()
    _read: dict[str, np.ndarray] = field(
        default_factory=dict, compare=False, repr=False
    )

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """Response ``y``, ``trials``, ``X``, and codes ``g0`` and matrices ``Z0`` of factors."""
        of_groups = "".join(
            f"found$g{k} <- as.integer(droplevels(factor({factor}))) - 1L\n"
            f"found$Z{k} <- model.matrix({formula}, d)\n"
            for k, (factor, formula) in enumerate(self.groups.items())
        )
        script = f"""
            suppressMessages({{library({self.package}); library(jsonlite)}})
            d <- {self.data}
            found <- list()
            with(d, {{
                found$y <- as.numeric({self.response})
                found$trials <- rep(1, nrow(d)) * ({self.trials or 1})
                found$X <- model.matrix({self.fixed}, d)
                {of_groups}
                cat(toJSON(found, digits = 15))
            }})
        """
        done = subprocess.run(
            ["Rscript", "-e", script], capture_output=True, text=True, check=True
        )
        return {
            name: np.array(values) for name, values in json.loads(done.stdout).items()
        }

    @property
    def formula(self) -> str:
        """Formula of lme4."""
        bars = " + ".join(
            f"({z[1:].strip()} | {factor})" for factor, z in self.groups.items()
        )
        left = self.response
        if self.trials is not None:
            left = f"cbind({self.response}, {self.trials} - {self.response})"
        return f"{left} {self.fixed} + {bars}"

    @property
    def sizes(self) -> list[int]:
        """Numbers in the effects of a group, of each factor."""
        return [self.arrays[f"Z{k}"].shape[1] for k in range(len(self.groups))]


DESIGNS = {
    "dyestuff": Design(
        "lme4", "Dyestuff", "normal", "scale(Yield)", "~ 1", {"Batch": "~ 1"}
    ),
    "sleepstudy": Design(
        "lme4", "sleepstudy", "normal", "scale(Reaction)", "~ scale(Days)", {"Subject": "~ 1"}
    ),
    "sleepstudy, slopes": Design(
        "lme4", "sleepstudy", "normal", "scale(Reaction)", "~ scale(Days)",
        {"Subject": "~ scale(Days)"},
    ),
    "cake": Design(
        "lme4", "cake", "normal", "scale(angle)", "~ recipe + scale(temp)",
        {"interaction(recipe, replicate)": "~ 1"},
    ),
    "orthodont": Design(
        "nlme", "as.data.frame(Orthodont)", "normal", "scale(distance)", "~ scale(age) * Sex",
        {"Subject": "~ scale(age)"},
    ),
    "oxboys, curves": Design(
        "nlme", "as.data.frame(Oxboys)", "normal", "scale(height)",
        "~ scale(age) + I(scale(age)^2)",
        {"Subject": "~ scale(age) + I(scale(age)^2)"},
    ),
    "schools": Design(
        "nlme", "merge(as.data.frame(MathAchieve), as.data.frame(MathAchSchool)[, c('School', "
        "'Sector')])", "normal", "scale(MathAch)", "~ scale(SES) * Sector",
        {"School": "~ scale(SES)"}, centered=("School",),
    ),
    "classes": Design(
        "MASS", "nlschools", "normal", "scale(lang)", "~ scale(IQ) + scale(SES) + COMB",
        {"class": "~ scale(IQ)"},
    ),
    "pastes, nested": Design(
        "lme4", "Pastes", "normal", "scale(strength)", "~ 1", {"sample": "~ 1", "batch": "~ 1"},
        centered=("sample",),
    ),
    "penicillin, crossed": Design(
        "lme4", "Penicillin", "normal", "scale(diameter)", "~ 1", {"plate": "~ 1", "sample": "~ 1"},
        centered=("sample",),
    ),
    "cbpp": Design(
        "lme4", "cbpp", "binomial", "incidence", "~ period", {"herd": "~ 1"}, trials="size"
    ),
    "bacteria": Design(
        "MASS", "bacteria", "binomial", "y == 'y'", "~ trt + I(week > 2)", {"ID": "~ 1"}
    ),
    "verbal aggression, crossed": Design(
        "lme4", "VerbAgg", "binomial", "r2 == 'Y'", "~ scale(Anger) + Gender + btype + situ",
        {"id": "~ 1", "item": "~ 1"}, centered=("id", "item"),
    ),
    "epilepsy": Design(
        "MASS", "epil", "poisson", "y", "~ lbase * trt + lage + V4", {"subject": "~ 1"}
    ),
    "epilepsy, slopes": Design(
        "MASS", "epil", "poisson", "y", "~ lbase + trt + lage + period", {"subject": "~ period"}
    ),
    "epilepsy, negative binomial": Design(
        "MASS", "epil", "negative_binomial", "y", "~ lbase * trt + lage + V4", {"subject": "~ 1"}
    ),
    "ticks": Design(
        "lme4", "grouseticks", "poisson", "TICKS", "~ YEAR + scale(HEIGHT)",
        {"BROOD": "~ 1", "LOCATION": "~ 1"},
    ),
}  # fmt: skip
"""Designs by name."""
