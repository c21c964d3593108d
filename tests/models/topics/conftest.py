"""What the tests of the topic model share."""

from __future__ import annotations

import pytest

from tests import seams


@pytest.fixture
def undivided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sweeps run over all documents to the end: with thousands of them XLA takes a second less.

    That they go on with half as many changes nothing: see the transcription.
    """
    monkeypatch.setattr(seams.LEAST_WIDTH, 10**6)
