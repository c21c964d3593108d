"""Folders of a test's own in place of the user's, and a local server."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from sgmcmc.datasets import fetch
from tests.datasets.sources import Server


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder in place of the user's, and no folder of one's own."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(fetch, "user_folder", lambda: folder)
    monkeypatch.delenv(fetch.VARIABLE, raising=False)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    return folder


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder chosen by the environment variable."""
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.setenv(fetch.VARIABLE, str(folder))
    return folder


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def closed(request):
    """Closes folders, and opens them again at the end, for pytest to clean up."""
    if os.name != "posix":
        pytest.skip("needs permission bits")
    done: list[Path] = []

    def close(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        folder.chmod(0o555)
        done.append(folder)

    yield close
    for folder in done:
        folder.chmod(0o755)
