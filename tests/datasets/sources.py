"""A small dataset of each kind, and a server for them."""

from __future__ import annotations

import hashlib
import http.server
import os
import socket
import threading
from pathlib import Path

import numpy as np

from sgmcmc.datasets import covertype
from sgmcmc.datasets.fetch import Source

REAL = os.environ.get("SGMCMC_DATA")
TEXT = b"2 1:0.25 3:1 \n1 2:1e-3\n1\n2 1:1 2:.5 3:0.125 \n"
ARRAY = np.array(
    [[1, 0.25, 0, 1], [0, 0, 1e-3, 0], [0] * 4, [1, 1, 0.5, 0.125]], np.float32
)
NAME = "small.bz2"


def spec_of(*urls: str) -> covertype.CovertypeSpec:
    return covertype.CovertypeSpec(Source(NAME, urls), rows=4, positives=2, features=3)


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`; those in `cut` break off after half of what was announced."""

    daemon_threads = True

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut: set[str] = set()
        self.stalled: set[str] = set()
        self.asked: list[str] = []
        self.over = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        self.server.asked.append(name)
        if name not in self.server.files:
            self.send_error(404)
            return
        content = self.server.files[name]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        broken = name in self.server.cut | self.server.stalled
        self.wfile.write(content[: len(content) // 2] if broken else content)
        self.wfile.flush()
        if name in self.server.stalled:
            self.server.over.wait(10)

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def closed_url() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/x"


def idx(array: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim])
        + np.array(array.shape, ">u4").tobytes()
        + array.tobytes()
    )


IMAGES = np.random.default_rng(0).integers(0, 256, (12, 28, 28), np.uint8)
LABELS = (np.arange(12) % 10).astype(np.uint8)


def mnist_sources(*mirrors: str) -> tuple[Source, Source]:
    return tuple(
        Source(
            name,
            tuple(m + name for m in mirrors),
            hashlib.sha256(idx(array)).hexdigest(),
        )
        for name, array in (("images.gz", IMAGES), ("labels.gz", LABELS))
    )
