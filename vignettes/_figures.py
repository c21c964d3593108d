"""Style of the figures of the vignettes: one color and one dash for each sampler, everywhere.

The colors are those of Okabe and Ito, which the color-blind can tell apart; the dashes tell lines
apart in black and white. Importing this module sets the rest for all figures of the process.
"""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.figure import Figure

_BLUE, _ORANGE, _GREEN, _PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
_SKY, _YELLOW, _GREY = "#56B4E9", "#E69F00", "#7F7F7F"
_DOTTED, _LONG = (0, (1, 1.5)), (0, (6, 2))

LOOKS: dict[str, tuple[str, Any]] = {
    "sgld": (_BLUE, "-"),
    "sgldcv": (_BLUE, "--"),
    "sghmc": (_ORANGE, "-"),
    "sghmccv": (_ORANGE, "--"),
    "sgnht": (_GREEN, "-"),
    "sgnhtcv": (_GREEN, "--"),
    "saga": (_SKY, _DOTTED),
    "svrg": (_SKY, _LONG),
    "scir": (_PURPLE, "-"),
    "sgrld": (_YELLOW, "-"),
    "sggmc": (_ORANGE, _LONG),
    "gsgnht": (_GREEN, _LONG),
    "sample": ("black", "-"),
    "nuts": (_GREY, "-"),
    "gibbs": (_GREY, _LONG),
    "variational": (_GREY, _DOTTED),
    "hybrid": (_GREEN, _DOTTED),
}
"""Color and dash of each sampler."""

matplotlib.rcParams.update(
    {
        "font.size": 10,
        "axes.titlesize": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": matplotlib.cycler(
            color=[_BLUE, _ORANGE, _GREEN, _PURPLE, _SKY, _YELLOW, _GREY]
        ),
        "legend.frameon": False,
        "savefig.dpi": 120,
    }
)


def look(sampler: str) -> dict[str, Any]:
    """Return color and dash of a sampler, as Matplotlib takes them."""
    color, dash = LOOKS[sampler]
    return {"color": color, "linestyle": dash}


def figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches, whose parts do not overlap."""
    return Figure(figsize=(width, height), layout="constrained")
