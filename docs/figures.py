"""Draws the figures of the tutorial, by running its code: `python docs/figures.py`."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

HERE = Path(__file__).parent
BLOCK = re.compile(r"^```python\n(.*?)^```\n+(?:!\[[^]]*\]\((\w+\.png)\))?", re.M | re.S)


def main() -> None:
    namespace: dict[str, Any] = {}
    text = (HERE / "tutorial.md").read_text(encoding="utf-8")
    os.chdir(tempfile.mkdtemp())  # where the tutorial saves its draws
    for code, figure in BLOCK.findall(text):
        exec(compile(code, "tutorial.md", "exec"), namespace)
        if figure:
            plt.gcf().savefig(HERE / figure, dpi=100)
            plt.close("all")


if __name__ == "__main__":
    main()
