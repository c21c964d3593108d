"""Draws the figures of pages, by running their code: `python docs/figures.py [PAGE ...]`.

After a block of code, a PNG is the last plot, and an SVG is what the block printed.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import matplotlib.pyplot as plt

HERE = Path(__file__).parent
PAGES = ("tutorial", "reports")
BLOCK = re.compile(
    r"^```python\n(.*?)^```\n+(?:!\[[^]]*\]\(([\w/]+\.(?:png|svg))\))?", re.M | re.S
)

SIZE, LINE, MARGIN = 13, 17, 12
"""Size of letters, distance of lines and margin in pictures of text, in pixels."""

NO_BREAK = "\N{NO-BREAK SPACE}"
"""Space that browsers do not collapse."""

WIDEST = 100
"""Letters of a line in pictures of text; longer lines are wrapped."""


def main() -> None:
    for page in sys.argv[1:] or PAGES:
        namespace: dict[str, Any] = {}
        text = (HERE / f"{page}.md").read_text(encoding="utf-8")
        os.chdir(tempfile.mkdtemp())  # where a page saves its draws
        for code, figure in BLOCK.findall(text):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, f"{page}.md", "exec"), namespace)
            if figure.endswith(".svg"):
                (HERE / figure).parent.mkdir(exist_ok=True)
                (HERE / figure).write_text(
                    picture(printed.getvalue()), encoding="utf-8"
                )
            elif figure:
                plt.gcf().savefig(HERE / figure, dpi=100)
            plt.close("all")


def picture(text: str) -> str:
    """Return printed text as a picture in SVG."""
    parts = [part for line in text.rstrip().split("\n") for part in wrapped(line)]
    lines = [part.replace(" ", NO_BREAK) for part in parts]
    width = 2 * MARGIN + round(0.61 * SIZE * max(map(len, lines)))
    height = 2 * MARGIN + LINE * len(lines)
    rows = "\n".join(
        f'<text x="{MARGIN}" y="{MARGIN + LINE * place - 4}">{escape(line)}</text>'
        for place, line in enumerate(lines, 1)
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">
<rect width="100%" height="100%" fill="#f7f7f7"/>
<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{SIZE}" fill="#222"
   xml:space="preserve" style="white-space: pre">
{rows}
</g>
</svg>
"""


def wrapped(line: str) -> list[str]:
    """Return a line in parts that fit into a picture."""
    return textwrap.wrap(
        line, WIDEST, subsequent_indent="    ", drop_whitespace=True
    ) or [""]


if __name__ == "__main__":
    main()
