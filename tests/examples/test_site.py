"""The site: everything public is in the reference, every page in the menu, and no warning."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sgmcmc
from sgmcmc.samplers.table import SAMPLERS

DOCS = Path(__file__).parents[2] / "docs"


def test_everything_public_is_in_the_reference() -> None:
    text = "".join(
        page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md")
    )
    named = set(
        re.findall(r"auto(?:function|class|exception):: sgmcmc\.(\w+)$", text, re.M)
    )
    assert named == set(sgmcmc.__all__) - set(sgmcmc.models.__all__)
    modules = set(re.findall(r"automodule:: sgmcmc\.(\w+)$", text, re.M))
    parts = {"dynamics", "gradients", "manifolds", "minibatches"}
    assert modules == parts | {"estimators", "keras", "models"}


def test_every_page_is_in_the_menu() -> None:
    menu = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = set(
        re.findall(
            r"^([\w/-]+)$",
            "\n".join(re.findall(r"```{toctree}(.*?)```", menu, re.S)),
            re.M,
        )
    )
    pages = {
        path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.glob("*.md")
    }
    pages |= {f"reference/{path.stem}" for path in (DOCS / "reference").glob("*.md")}
    vignettes = (DOCS.parent / "vignettes").glob("[a-z]*.py")
    assert listed == pages - {"index"} | {
        f"vignettes/{path.stem}" for path in vignettes
    }


def test_one_table_has_all_samplers() -> None:
    """The public functions and the dynamics, on the page that says which to choose."""
    text = (DOCS / "samplers.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]*`[^|]*", text.split("## All samplers")[1], re.M)
    named = " ".join(rows).replace('"', "").lower()
    with_variates = {f"{name}cv" for name in ("sgld", "sghmc", "sgnht")}
    functions = set(SAMPLERS) - {"sample", "setup"} | with_variates
    parts = {"Dynamics", "ExactDynamics", "EnergyTuner", "SGD"}
    classes = {name.lower() for name in set(sgmcmc.dynamics.__all__) - parts}
    assert all(f"`{name}`" in named for name in functions | classes)


needs_sphinx = pytest.mark.skipif(
    not all(
        map(
            importlib.util.find_spec,
            ("sphinx", "furo", "myst_nb", "jupytext", "sphinx_copybutton"),
        )
    ),
    reason="the site needs what sgmcmc[docs] installs",
)


@needs_sphinx
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::PendingDeprecationWarning"
)
def test_the_site_is_read_without_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """All pages, and where their references lead, without the writing of HTML."""
    from sphinx.cmd.build import build_main

    monkeypatch.setenv("SGMCMC_NOTEBOOKS", "off")
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setattr(sys, "path", [*sys.path])
    options = ["-W", "--keep-going", "-q", "-b", "dummy", "-D", "smartquotes=0"]
    folders = [str(DOCS), str(tmp_path / "site")]
    found = build_main([*options, "-d", str(tmp_path / "trees"), *folders])
    assert found == 0, capfd.readouterr().err[-5000:]
    read = {path.stem for path in (tmp_path / "trees").glob("*.doctree")}
    assert {path.stem for path in DOCS.glob("*.md")} <= read


@pytest.mark.slow
@needs_sphinx
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """As ``make docs`` builds it, but for the vignettes, which ``test_vignettes.py`` runs."""
    options = ["-W", "--keep-going", "-q", "-b", "html", "-d", str(tmp_path / "trees")]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(DOCS), str(tmp_path / "site")],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "SGMCMC_NOTEBOOKS": "off"},
    )
    assert built.returncode == 0, built.stderr[-5000:]
    pages = {path.stem for path in DOCS.glob("*.md")}
    assert pages <= {path.stem for path in (tmp_path / "site").glob("*.html")}
    script = DOCS.parent / "vignettes" / "demo.py"
    assert (tmp_path / "site" / "vignettes" / f"{script.stem}.html").exists()
