"""The side of the measuring process: starts a worker, asks it, waits for its answer."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.environments import HERE
from benchmarks.packages import Package
from benchmarks.workloads import Workload

TIMEOUT = 900  # seconds that one request may take

# All on the CPU, whatever else the machine has.
CPU_ONLY = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}


def output_of(
    python: Path | str,
    *arguments: str,
    request: Any = None,
    variables: Mapping[str, str] = MappingProxyType({}),
    timeout: float | None = None,
) -> str:
    """Return the last line that a process on the CPU prints.

    If it does not end by itself, it is ended with all processes that it has begun.

    Args:
        python: Interpreter.
        arguments: Of the interpreter.
        request: Anything that JSON can hold; the process reads it.
        variables: Of its environment, besides ours.
        timeout: Seconds that it may take.

    Raises:
        WorkerError: It failed; "memory" if it was killed.
        subprocess.TimeoutExpired: It took longer.
    """
    process = subprocess.Popen(
        [str(python), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, cwd=HERE.parent, start_new_session=True,
        env={**os.environ, **CPU_ONLY, **variables},
    )  # fmt: skip
    try:
        said, errors = process.communicate(json.dumps(request), timeout)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode:
        killed = process.returncode == -signal.SIGKILL
        raise WorkerError("memory" if killed else _last_words(errors))
    return (said.strip().splitlines() or [""])[-1]


def _last_words(said: str) -> str:
    return "\n".join(said.strip().splitlines()[-5:])


class WorkerError(Exception):
    """A worker failed; the message has the end of what it said."""


class UnsupportedWorkloadError(Exception):
    """The package has no such sampler."""


class Worker:
    """A package in a process of its own, which idles, blocked on its input, between requests."""

    def __init__(self, python: Path, package: Package) -> None:
        self._errors = tempfile.TemporaryFile(mode="w+")
        self._process = subprocess.Popen(
            [str(python), "-m", "benchmarks.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=HERE.parent,
            env={**os.environ, **CPU_ONLY, **package.variables},
        )

    def prepare(self, name: str, workload: Workload, data: Path) -> dict[str, Any]:
        """Let it import the package and load the data."""
        described = dataclasses.asdict(workload)
        return self.ask("prepare", package=name, workload=described, data=str(data))

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and return the answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        timer = threading.Timer(TIMEOUT, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            raise WorkerError(_last_words(self._errors.read()))
        answer = json.loads(line)
        if "unsupported" in answer:
            raise UnsupportedWorkloadError(answer["unsupported"])
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                pass
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()
