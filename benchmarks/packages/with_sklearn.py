"""Online variational Bayes of scikit-learn, scored by document completion.

Runs in an environment of its own: ``python with_sklearn.py documents.npz settings.json``. Prints a
line of JSON for each setting.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import sklearn
from scipy.sparse import csr_matrix
from sklearn.decomposition import LatentDirichletAllocation


def fit(documents: Any, setting: dict[str, Any]) -> dict[str, Any]:
    """Fit topics with one setting and predict the hidden words.

    Args:
        documents: the arrays that `benchmarks.online_vb` wrote.
        setting: arguments of `LatentDirichletAllocation`, and `score`, which of the held-out
            documents are scored.
    """
    arguments = {name: value for name, value in setting.items() if name != "score"}
    scored = setting["score"]
    train, shown = (
        csr_matrix(
            tuple(
                documents[f"{part}_{name}"] for name in ("data", "indices", "indptr")
            ),
            shape=documents[f"{part}_shape"],
        )
        for part in ("train", scored)
    )
    started = time.perf_counter()
    model = LatentDirichletAllocation(learning_method="online", **arguments).fit(train)
    seconds = time.perf_counter() - started
    topics = model.components_ / model.components_.sum(axis=1, keepdims=True)
    proportions = model.transform(shown)[documents[f"{scored}_document"]]
    probabilities = (proportions * topics[:, documents[f"{scored}_word"]].T).sum(axis=1)
    perplexity = float(np.exp(-np.log(probabilities).mean()))
    return {
        **setting,
        "perplexity": perplexity,
        "seconds": seconds,
        "version": sklearn.__version__,
    }


if __name__ == "__main__":
    with np.load(sys.argv[1], allow_pickle=False) as arrays:
        loaded = dict(arrays)
    with open(sys.argv[2], encoding="utf-8") as file:
        settings = json.load(file)
    for given in settings:
        print(json.dumps(fit(loaded, given)), flush=True)
