"""Sphinx configuration of the site: `make docs`.

Pages are Markdown, read by MyST. The scripts in `vignettes/` become notebooks, which are run in
their short forms. What the pages say of files outside this folder leads to their pages on the site.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

from docutils import nodes  # noqa: E402
from notebooks import write_notebooks  # noqa: E402

import sgmcmc  # noqa: E402

project = "sgmcmc"
author = copyright = "the sgmcmc developers"
release = version = sgmcmc.__version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
suppress_warnings = ["myst.header"]  # a page that is included begins where it begins

html_theme = "furo"
html_title = "sgmcmc"
html_favicon = "_static/icon.svg"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_show_sphinx = False

# Formulas are text: they need no script, and a dollar is a dollar.
myst_enable_extensions = ["colon_fence", "fieldlist"]
myst_heading_anchors = 4

# `make docs NOTEBOOKS=off` leaves the vignettes unexecuted.
nb_execution_mode = os.environ.get("SGMCMC_NOTEBOOKS", "cache")
nb_execution_timeout = 900
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_output_stderr = "remove"

autodoc_member_order = "bysource"
autodoc_typehints = (
    "none"  # the types stand in the signature of the source, the meaning under Args
)
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Source"]
napoleon_use_rtype = False
napoleon_use_ivar = True

# Every reference leads somewhere; only names of other packages, and lists of attributes, do not.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(numpy|tensorflow|tf|collections|keras|sgmcmc\.results\.report)\..*"),
    (r"py:class", r"formula|family|ranks"),
    (r"py:exc", r"BrokenExecutor"),
]

# The vignettes import their neighbours, and a kernel is a process of its own.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT / "vignettes"), *filter(None, [os.environ.get("PYTHONPATH")])]
)

MOVED = {
    "choosing": "samplers#choosing-a-sampler",
    "citing": "project#citing",
    "constrained": "automatic#constrained-parameters",
    "diagnosing": "reports#constants-that-you-gave",
    "differences-from-r": "old-scripts#what-has-changed",
    "dirichlet-process": "models#dirichlet-process-mixtures",
    "estimators": "networks#regressions-for-scikit-learn",
    "latents": "automatic#latent-variables",
    "from-r": "in-r",
    "laws": "posteriors#stationary-variances-predicted-and-simulated",
    "licences": "project#licenses",
    "manifolds": "simplex#unit-vectors-frames-and-other-manifolds",
    "many-machines": "long-chains#many-machines",
    "matrix-factorisation": "models#matrix-factorization",
    "matrix-factorization": "models#matrix-factorization",
    "moving": "samplers#in-other-packages",
    "named-samplers": "samplers",
    "neighbours": "automatic#a-joint-distribution-of-tensorflow-probability",
    "reference/data": "reference/models#example-data",
    "releasing": "project#releasing",
    "sampler-sghmc": "samplers#sghmc",
    "sampler-sgld": "samplers#sgld",
    "sampler-sgnht": "samplers#sgnht",
    "sampler-underdamped": "samplers#underdamped-langevin",
    "speed": "benchmarks#how-it-is-fast",
    "testing": "project#testing",
    "topic-models": "models#topic-models",
    "vignettes/bike_rentals": "vignettes/network_intervals",
    "vignettes/quickstart": "vignettes/own_likelihood",
}
"""New places of pages, to which their old addresses lead."""

PAGES = {"changes": "CHANGELOG.md", "security": "SECURITY.md"}
ELSEWHERE = {
    "README.md": "index.md",
    "CITATION.cff": "project.md#citing",
    **{file: f"{page}.md" for page, file in PAGES.items()},
}


def lead_to_pages(app: Any, name: str, source: list[str]) -> None:
    """Let links to files outside this folder lead to their pages, from those files too."""
    if name in PAGES:
        source[0] = (
            (ROOT / PAGES[name]).read_text(encoding="utf-8").replace("](docs/", "](")
        )
    up = "../" * name.count("/")
    text = re.sub(
        r"\]\((?:\.\./)*vignettes/(\w+)\.py", rf"]({up}vignettes/\1.ipynb", source[0]
    )
    for file, page in ELSEWHERE.items():
        text = re.sub(rf"\]\((?:\.\./)*{re.escape(file)}", f"]({up}{page}", text)
    source[0] = text


def as_it_is_meant(
    app: Any, what: str, name: str, of: Any, options: Any, lines: list[str]
) -> None:
    """Keep |θ| and z_d in docstrings from being read as markup."""
    in_example = False
    for place, line in enumerate(lines):
        in_example = line.lstrip().startswith(">>>") or (
            in_example and bool(line.strip())
        )
        if not in_example:
            parts = re.split(r"(``.+?``)", line)
            parts[::2] = [
                re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", part.replace("|", r"\|"))
                for part in parts[::2]
            ]
            lines[place] = "".join(parts)


def keep_numbers_whole(app: Any, doctree: nodes.document, name: str) -> None:
    """Let no line end within 581 012. The names of sections, to which links lead, stay."""
    for text in list(doctree.findall(nodes.Text)):
        if isinstance(text.parent, nodes.literal | nodes.literal_block | nodes.raw):
            continue
        whole = re.sub(r"(?<=\d) (?=\d{3}(?!\d))", "\N{NO-BREAK SPACE}", text)
        if whole != text:
            text.parent.replace(text, nodes.Text(whole))


def lead_on(app: Any, error: Exception | None) -> None:
    """Write a page at each old address that leads to the new one."""
    if error is None and app.builder.format == "html":
        for old, new in MOVED.items():
            page, _, section = new.partition("#")
            address = app.builder.get_relative_uri(old, page) + (
                section and f"#{section}"
            )
            Path(app.outdir, f"{old}.html").write_text(
                f'<meta http-equiv="refresh" content="0; url={address}">'
                f'<a href="{address}">This page has moved.</a>',
                encoding="utf-8",
            )


def setup(app: Any) -> None:
    """Write the notebooks, and mend text as it is read."""
    write_notebooks(ROOT / "vignettes", HERE / "vignettes")
    app.connect("source-read", lead_to_pages)
    app.connect("autodoc-process-docstring", as_it_is_meant)
    app.connect("doctree-resolved", keep_numbers_whole)
    app.connect("build-finished", lead_on)
