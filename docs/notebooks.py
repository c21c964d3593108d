"""Turns the scripts of `vignettes/` into notebooks that the site runs."""

from __future__ import annotations

from pathlib import Path

import jupytext
import nbformat

IN_FULL = 'main([] if "ipykernel" in sys.modules else None)'
IN_SHORT = {"demo": 'main(["--simulate"])'}
SHORT = 'main(["--short"])'
NOTE = """
:::{{note}}
The output below the last cell is that of the short form, which is run when the site is built.
`python vignettes/{name}.py` runs the whole vignette.
:::
"""
SHOW = """from pathlib import Path
from IPython.display import Image, display
for figure in sorted(Path().glob("*.png")):
    display(Image(figure))"""


def notebook(script: Path) -> nbformat.NotebookNode:
    """Return a script as a notebook that runs its short form and shows the figures it wrote."""
    book = jupytext.read(script, fmt="py:percent")
    title, *rest = book.cells
    if not title.source.startswith("# ") or any(
        "title" in cell.metadata for cell in book.cells
    ):
        raise ValueError(
            f"{script.name}: headings should be on the line after `# %% [markdown]`; "
            "text on the same line is not shown"
        )
    head, _, text = title.source.partition("\n")
    title.source = f"{head}\n{NOTE.format(name=script.stem)}\n{text}"
    last = rest[-1]
    if IN_FULL not in last.source:
        raise ValueError(f"{script.name}: its last cell should run `{IN_FULL}`")
    last.source = last.source.replace(IN_FULL, IN_SHORT.get(script.stem, SHORT))
    show = nbformat.v4.new_code_cell(SHOW, metadata={"tags": ["remove-input"]})
    book.cells = [title, *rest, show]
    for place, cell in enumerate(book.cells):
        cell["id"] = (
            f"cell-{place}"  # the same each time, so that what has been run is known again
        )
    book.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python",
        "language": "python",
    }
    return book


def write_notebooks(scripts: Path, folder: Path) -> None:
    """Write a notebook for each script; one that has not changed is left as it is."""
    folder.mkdir(exist_ok=True)
    names = set()
    for script in sorted(scripts.glob("[a-z]*.py")):
        text = nbformat.writes(notebook(script))
        path = folder / f"{script.stem}.ipynb"
        names.add(path.name)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in folder.glob("*.ipynb"):
        if path.name not in names:
            path.unlink()
