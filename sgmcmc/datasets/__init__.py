"""Data sets of the examples and benchmarks, fetched from where they were published."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sgmcmc.checks import did_you_mean
from sgmcmc.datasets import covertype, kos, mnist, movielens, msweb
from sgmcmc.datasets.fetch import DamagedFileError, DownloadError

__all__ = ["DamagedFileError", "DownloadError", "get_dataset"]

# A new data set is one module with a `load(verbose)` and one row here.
_LOADERS: dict[str, Callable[[bool], Any]] = {
    "covertype": covertype.load,
    "mnist": mnist.load,
    "movielens": movielens.load,
    "msweb": msweb.load,
    "kos": kos.load,
}


def get_dataset(name: str, *, verbose: bool = True) -> Any:
    """Load a data set, downloading it at the first use.

    Files are looked for in the folder the environment variable ``SGMCMC_DATA`` names, then in the
    user's cache folder, and downloaded when neither has them. The download goes to the first of
    the two that can be written. A file that is already in ``SGMCMC_DATA`` is used as it is and
    never changed, so that folder can be filled by hand if there is no network.

    Args:
        name: Name of the dataset: ``"covertype"``, ``"mnist"``, ``"movielens"``, ``"msweb"`` or
            ``"kos"``.
        verbose: Whether to show a progress bar on standard error while downloading. There is none
            if standard error is a file or a pipe.

    Returns:
        New arrays at each call, free to be modified.

        - ``"covertype"``: float32 array (581012, 55). Column 0 is the label, 1 for lodgepole pine
          and 0 for any other cover type; the others are the features, scaled to [0, 1].
        - ``"mnist"``: ``{"train": {"images", "labels"}, "test": {"images", "labels"}}``. Images
          are float32 (N, 784) in [0, 1], labels one-hot float32 (N, 10), with N = 55000 for
          training (the first 5000 of the 60000 training images are set aside, as in the R
          package) and N = 10000 for the test.
        - ``"movielens"``: ``{"all", "train", "test"}`` of MovieLens 100k, each ``{"user", "item",
          "rating"}`` of int32 (N,): users 0 to 942, films 0 to 1681, ratings 1 to 5, and
          N = 100000. ``"train"`` (80000) and ``"test"`` (20000) are the published split u1. The
          timestamps are left out: as float32 they would be rounded.
        - ``"msweb"``: ``{"train": {"visits"}, "test": {"visits"}, "titles", "paths"}``. Visits are
          uint8 (N, 294), 1 if a user visited an area of the web site, with N = 32711 and
          5000; titles and paths name the areas, in the order of their numbers.
        - ``"kos"``: ``{"counts", "vocab"}``. The counts are an `sgmcmc.counts.Counts`, 3430 blog
          posts × 6906 words, sparse; the vocabulary is an array of strings (6906,).

    Raises:
        ValueError: There is no data set of that name.
        DownloadError: A file is not there and could not be downloaded; the message says how to
            put it there by hand.
        DamagedFileError: A file in ``SGMCMC_DATA`` is not what it should be.

    Example:
        >>> from sgmcmc.datasets import get_dataset
        >>> get_dataset("minst")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ValueError: name: no data set 'minst'. Did you mean 'mnist'? Available: ...
        >>> get_dataset("covertype").shape  # doctest: +SKIP
        (581012, 55)

    Source:
        Covertype: J. A. Blackard and D. J. Dean (1999), UCI machine learning repository, in the
        binary form of LIBSVM data. MNIST: Y. LeCun, C. Cortes and C. J. C. Burges (1998).
        MovieLens 100k: F. M. Harper and J. A. Konstan, ACM TiiS 5 (2015), for research, not to be
        passed on. Anonymous Microsoft web data: J. Breese, D. Heckerman and C. Kadie (1998), UCI.
        KOS: D. Newman (2008), bag of words, UCI.
    """
    if isinstance(name, str) and name in _LOADERS:
        return _LOADERS[name](verbose)
    hint = did_you_mean(str(name).strip().lower(), _LOADERS)
    available = ", ".join(map(repr, _LOADERS))
    raise ValueError(f"name: no data set {name!r}.{hint} Available: {available}")
