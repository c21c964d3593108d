"""The site's pages: everything public is in the reference, every page in the menu."""

from __future__ import annotations

import re
from pathlib import Path

import sgmcmc

DOCS = Path(__file__).parents[2] / "docs"


def test_everything_public_is_in_the_reference() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    named = set(re.findall(r"auto(?:function|class|exception):: sgmcmc\.(\w+)$", text, re.M))
    assert named == set(sgmcmc.__all__) - set(sgmcmc.models.__all__)
    modules = set(re.findall(r"automodule:: sgmcmc\.(\w+)$", text, re.M))
    assert modules == {"dynamics", "estimators", "gradients", "manifolds", "minibatches", "models"}


def test_every_page_is_in_the_menu() -> None:
    menu = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = set(
        re.findall(r"^([\w/-]+)$", "\n".join(re.findall(r"```{toctree}(.*?)```", menu, re.S)), re.M)
    )
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.glob("*.md")}
    pages |= {f"reference/{path.stem}" for path in (DOCS / "reference").glob("*.md")}
    assert listed == pages - {"index"}
