"""The benchmarks that need no other package run, in tiny."""

from __future__ import annotations

import importlib

import pytest

pytest.importorskip("benchmarks", reason="not in the source distribution")


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "name",
    [
        "parts",
        "long_chains",
        "cores",
        pytest.param("factors", marks=pytest.mark.slow),
        pytest.param("manifolds", marks=pytest.mark.slow),
        pytest.param("alternating", marks=pytest.mark.slow),
        pytest.param("seconds", marks=pytest.mark.slow),
        pytest.param("passes", marks=pytest.mark.slow),
        pytest.param("mixture", marks=pytest.mark.slow),
        pytest.param("topics", marks=pytest.mark.slow),
        pytest.param("networks.run", marks=pytest.mark.slow),
        pytest.param("laws.run", marks=pytest.mark.slow),
    ],
)
def test_a_benchmark_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    importlib.import_module(f"benchmarks.{name}").main(["--smoke"])
    assert "| --- |" in capsys.readouterr().out
