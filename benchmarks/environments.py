"""Installs the packages compared, each into an environment of its own under `benchmarks/.envs`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE / ".envs"


class InstallError(Exception):
    """An environment could not be made; the message is the last line of what pip said."""


def interpreter(environment: str | None) -> Path:
    """The Python of an environment, which is installed first unless it is there and up to date.

    Args:
        environment: name of a file in `requirements`, without its ending; `None` is the
            environment this runs in.
    """
    if environment is None:
        return Path(sys.executable)
    requirements = HERE / "requirements" / f"{environment}.txt"
    target = FOLDER / environment
    python = target / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    stamp = target / "stamp"
    wanted = f"{target}\nPython {sys.version}\n{requirements.read_text()}"
    if not (stamp.exists() and stamp.read_text() == wanted and python.exists()):
        print(f"Installing {environment} into its own environment.", flush=True)
        _run(sys.executable, "-m", "venv", "--clear", str(target))
        _run(
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--requirement",
            str(requirements),
        )
        stamp.write_text(wanted)
    return python


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise InstallError((done.stdout + done.stderr).strip().splitlines()[-1])
