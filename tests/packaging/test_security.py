"""What SECURITY.md promises of the code, read off its syntax."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import sgmcmc
from sgmcmc.datasets import covertype, fetch, kos, mnist, movielens, msweb

ROOT = Path(sgmcmc.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

RUNS_CODE = {"eval", "exec", "compile", "__import__", "breakpoint", "input"}
SHELLS = {
    "system",
    "popen",
    "spawnl",
    "spawnv",
    "execv",
    "execve",
    "execl",
    "fork",
    "posix_spawn",
}
UNWANTED = {
    "subprocess", "pty", "marshal", "shelve", "dill", "joblib", "yaml", "ctypes", "code", "runpy",
}  # fmt: skip
ONLY_IN = {
    # Between the user's own processes, for `executor`.
    "pickle": "machines", "cloudpickle": "machines",
    # The name of the machine, for messages.
    "socket": "machines",
    # Downloads of the example data.
    "pooch": "datasets", "requests": "datasets", "urllib": "datasets", "http": "datasets",
    "ftplib": "datasets", "ssl": "datasets",
}  # fmt: skip
"""Modules that one folder alone may import."""


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0]


def calls(tree: ast.AST) -> Iterator[tuple[str, str, ast.Call]]:
    """Yield each call with the object and the name of what is called; no object: a plain name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield "", node.func.id, node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield ast.unparse(node.func.value), node.func.attr, node


def faults(source: str, folder: str) -> list[str]:
    """Return what a module does that it must not do."""
    tree, found = ast.parse(source), []
    for name in imported(tree):
        if name in UNWANTED or ONLY_IN.get(name, folder) != folder:
            found.append(f"imports {name}")
    for owner, name, call in calls(tree):
        keywords = {word.arg: ast.unparse(word.value) for word in call.keywords}
        if owner in ("", "builtins") and name in RUNS_CODE:
            found.append(f"calls {name}")
        if owner == "os" and name in SHELLS:
            found.append(f"calls os.{name}")
        if keywords.get("shell", "False") != "False":
            found.append("uses a shell")
        if owner == "np" and name == "load" and keywords.get("allow_pickle") != "False":
            found.append("np.load without allow_pickle=False")
        if keywords.get("allow_pickle", "False") != "False":
            found.append("allows pickles")
    return found


def test_nothing_runs_what_it_reads() -> None:
    found = {}
    for path in FILES:
        folder = path.relative_to(ROOT).parts[0]
        if wrong := faults(path.read_text(encoding="utf-8"), folder):
            found[str(path.relative_to(ROOT))] = wrong
    assert len(FILES) > 150
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        "eval('1')",
        "import os\nos.system('ls')",
        "from subprocess import run",
        "import pickle",
        "def f():\n    import requests",
        "import numpy as np\nnp.load('x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "run('ls', shell=True)",
    ],
)
def test_what_must_not_be_there_is_found(source: str) -> None:
    assert faults(source, "results")


def sources() -> list[fetch.Source]:
    pairs = [file for pair in mnist.SOURCES.values() for file in pair]
    visits = [spec.source for spec in msweb.SPECS.values()]
    ratings = list(movielens.SPEC.sources.values())
    return [
        covertype.SPEC.source,
        kos.SPEC.counts,
        kos.SPEC.vocab,
        *pairs,
        *visits,
        *ratings,
    ]


def test_downloads_are_encrypted() -> None:
    urls = [url for source in sources() for url in source.urls]
    assert len(urls) >= 12
    assert not [url for url in urls if not url.startswith("https://")]
