"""Files of every format that was ever written are read, and hold what they held."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.contract.files import FOLDER, read


@pytest.mark.parametrize("folder", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_files_are_read(folder: Path) -> None:
    """Numbers agree but for rounding: the session takes a step, and means are computed."""
    found, known = read(folder), json.loads((folder / "expected.json").read_text())
    assert list(found) == list(known)
    for kind, numbers in known.items():
        tf.nest.map_structure(
            lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5),
            found[kind],
            numbers,
        )
