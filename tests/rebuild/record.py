"""Records the draws of the engine that is installed: ``python tests/rebuild/record.py``."""

from pathlib import Path

import numpy as np
from cases import CASES

HERE = Path(__file__).parent

if __name__ == "__main__":
    found = {}
    for name, run in CASES.items():
        found |= {f"{name}|{key}": value for key, value in run().items()}
    np.savez_compressed(HERE / "draws.npz", **found)
