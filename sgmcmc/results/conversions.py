"""Draws in a file, and in the forms of other libraries."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sgmcmc import checks
from sgmcmc.atomic_files import (
    KEPT,
    arrays_in,
    explained,
    refuse_saved_model,
    write_arrays,
)
from sgmcmc.results.arrays import (
    LogPost,
    Results,
    by_chain,
    coordinate_names,
    draw_numbers,
)
from sgmcmc.results.evaluation import OfRows, Span
from sgmcmc.results.inference_data import to_inference_data, write_zarr
from sgmcmc.results.predictions import Predictions
from sgmcmc.results.serving import Served, write_saved_model

_FORMAT = 2
_GROUPS = {
    "draws", "gradients", "test_functions", "mode", "mode_gradient", "reductions", "unnormalized",
    "weights",
}  # fmt: skip


def write_archive(
    path: Path,
    groups: Mapping[str, Mapping[str, np.ndarray]],
    log_post: LogPost,
    settings: Mapping[str, Any],
    report: Mapping[str, Any] | None,
) -> None:
    """Write samples to a file, which appears under its name only once it is complete.

    Args:
        path: File.
        groups: Arrays of each group, by the names of the arguments of ``Samples``; reductions flat.
        log_post: Log posterior estimates.
        settings: Settings.
        report: Report, or ``None``.
    """
    for group, arrays in groups.items():
        for name, array in arrays.items():
            if array.dtype.hasobject:
                raise TypeError(
                    f"{group}: {name!r} holds Python objects; only numbers can be saved."
                )
    about = {
        "format": _FORMAT,
        "settings": settings,
        "report": None if report is None else dict(report),
        "names": {group: list(arrays) for group, arrays in groups.items()},
    }
    contents: dict[str, Any] = {
        f"{group}/{number}": array
        for group, arrays in groups.items()
        for number, array in enumerate(arrays.values())
    }
    contents["log_post/iterations"], contents["log_post/values"] = log_post
    contents["about"] = np.array(json.dumps(about))
    with explained("path", path, KEPT):
        write_arrays(path, contents)


def read_archive(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of a file by ``write_archive``, as arguments of ``Samples``.

    Raises:
        ValueError: The file is not one that ``write_archive`` wrote, or is incomplete.
        OSError: The file cannot be opened.
    """
    refuse_saved_model("path", Path(path))
    if os.path.isdir(path):
        raise ValueError(
            f"`path`: {os.fspath(path)!r} is a folder; Samples.open reads a store."
        )
    with open(path, "rb") as file:
        try:
            return _read(file)
        except Exception as error:
            raise ValueError(
                f"`path`: {os.fspath(path)!r} is not a file that Samples.save wrote, or is "
                f"incomplete: {error}"
            ) from error


def _read(file: BinaryIO) -> dict[str, Any]:
    arrays = arrays_in(file)
    if "about" not in arrays:
        raise ValueError("it does not say what it holds")
    about = json.loads(str(arrays["about"]))
    if about["format"] != _FORMAT:
        raise ValueError(
            f"its format is {about['format']}, this version's is {_FORMAT}"
        )
    settings, report = about["settings"], about["report"]
    if not isinstance(settings, dict) or not isinstance(report, dict | None):
        raise ValueError("its settings or its report are none")
    if (
        "draws" not in about["names"]
        or not checks.up_to_date(about["names"]).keys() <= _GROUPS
    ):
        raise ValueError(f"it holds {', '.join(about['names']) or 'nothing'}")
    if not all(
        isinstance(name, str) for names in about["names"].values() for name in names
    ):
        raise ValueError("names of parameters are none")
    groups: dict[str, Any] = {
        group: {name: arrays[f"{group}/{i}"] for i, name in enumerate(names)}
        for group, names in about["names"].items()
    }
    log_post = LogPost(arrays["log_post/iterations"], arrays["log_post/values"])
    if "weights" in groups:
        groups["weights"] = groups["weights"]["weights"]
    if "reductions" in groups:
        groups["reductions"] = Results.nested(groups["reductions"])
    return {
        **checks.up_to_date(groups),
        "log_post": log_post,
        "settings": checks.up_to_date(settings),
        "report": report,
    }


def to_dataframe(settings: Mapping[str, Any], draws: Mapping[str, np.ndarray]) -> Any:
    """Return draws as a data frame, a row for each, a column for each component.

    Args:
        settings: Settings of the samples.
        draws: Draws, by parameter.

    Raises:
        ValueError: There are no draws.
    """
    import pandas as pd

    if not draws:
        raise ValueError("`samples` holds no draws of parameters.")
    arrays = by_chain(settings, draws)
    chains, count = next(iter(arrays.values())).shape[:2]
    columns = {}
    for name, array in arrays.items():
        flat = np.reshape(array, (chains * count, -1))
        for column, label in enumerate(coordinate_names(name, array.shape[2:])):
            columns[label] = flat[:, column]
    index = pd.MultiIndex.from_product(
        [range(chains), draw_numbers(settings, count)], names=["chain", "draw"]
    )
    return pd.DataFrame(columns, index=index)


class Conversions(Predictions):
    """Draws of parameters that can be converted for pandas and ArviZ."""

    def to_dataframe(self) -> Any:
        """Return the draws as a pandas data frame, a row for each, a column for each component.

        Returns:
            A ``pandas.DataFrame``, with columns such as ``theta`` and ``beta[0, 1]``, indexed by
            ``chain`` and ``draw``.

        Example:
            >>> import numpy as np, sgmcmc
            >>> sgmcmc.Samples({"theta": np.array([[0.0, 1.0], [2.0, 3.0]])}).to_dataframe()
                        theta[0]  theta[1]
            chain draw
            0     0          0.0       1.0
                  1          2.0       3.0
        """
        return to_dataframe(self.settings, self)

    def export(
        self,
        folder: str | os.PathLike[str],
        f: OfRows,
        dataset: Mapping[str, Any] | None = None,
        *,
        draws: int = 1000,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    ) -> Path:
        """Write a SavedModel that predicts with ``f`` over the draws, for TensorFlow alone.

        Loading it needs neither this package nor the code of ``f``:
        ``tf.saved_model.load(folder).signatures["mean"](x=...)["mean"]``. Its signatures ``mean``,
        ``quantiles`` and ``draws`` give what :meth:`predict` gives for the same draws; their inputs
        are the entries of ``dataset``, with any number of rows. Of a column of categories these are
        the levels themselves, integers (int64) or else text, which the loaded model lists in
        ``levels``; a level that the model has not seen is an error. A call holds draws × rows
        values, so pass thousands of rows at a time, not millions. If draws have
        ``weights``, means and quantiles use them, and ``draws`` gives them too, as ``weights``;
        draws of weight zero are left out.

        Args:
            folder: Path of the folder; it must not exist, or be empty. It appears only once it is
                complete.
            f: Function of ``params`` and ``dataset``, as of :meth:`predict`. It is compiled for an
                unknown number of rows.
            dataset: Some rows, of which only names, shapes and dtypes are used; only the entries
                that ``f`` needs. ``None`` uses those of the chain's own that ``f`` reads.
            draws: Largest number of draws, of all chains together, evenly spaced.
            quantiles: Probabilities of the signature ``quantiles``, each between 0 and 1.

        Returns:
            The folder.

        Raises:
            ValueError, TypeError: ``f`` does not return an entry for each row; the folder is there;
                the model has groups, whose effects a SavedModel does not have.
            OSError: The folder cannot be written.

        Example:
            >>> import numpy as np, sgmcmc, tempfile, tensorflow as tf
            >>> samples = sgmcmc.Samples({"theta": np.array([1.0, 2.0, 3.0])})
            >>> data = {"x": np.array([1.0, 10.0])}
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = samples.export(folder, lambda p, d: p["theta"] * d["x"], data)
            ...     served = tf.saved_model.load(str(path)).signatures["mean"]
            ...     served(x=tf.constant([5.0], tf.float64))["mean"].numpy()
            array([10.])
        """
        checks.function("f", f, "of `params` and `dataset`")
        for q in quantiles:
            if not (checks.is_number(q) and 0 <= q <= 1):
                raise ValueError(
                    f"`quantiles` must be between 0 and 1; there is {q!r}."
                )
        if self._origin is not None and self._origin.groups is not None:
            raise ValueError(
                "`samples` is of a model with groups, whose effects a SavedModel does not have."
            )
        arrays, weights = self._by_chain(), self.weights
        if (
            weights is not None
        ):  # draws of exploring stages do not count, and need no room
            counted = weights > 0
            arrays = {name: array[:, counted] for name, array in arrays.items()}
            weights = weights[counted]
        chains, count = next(iter(arrays.values())).shape[:2]
        limit = checks.whole_number("draws", draws, chains)
        step = -(-count // (limit // chains))
        arrays = {
            name: np.ascontiguousarray(array[:, ::step])
            for name, array in arrays.items()
        }
        served = Served(
            f, arrays, None if weights is None else weights[::step], quantiles
        )
        data = self._data(dataset)
        columns = self._evaluation("f", f, data, arrays).columns(Span(0, 1, 0))
        every = dataset is not None
        return write_saved_model(folder, served, columns, data.levels, every)

    def to_arviz(
        self,
        *,
        dims: Mapping[str, Sequence[str]] | None = None,
        coords: Mapping[str, Sequence[Any]] | None = None,
        observed_data: Mapping[str, Any] | None = None,
        log_likelihood: Mapping[str, Any] | np.ndarray | bool | None = None,
        log_likelihood_draws: int | None = None,
        effects: str | Sequence[str] | Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the draws as an ArviZ ``InferenceData``.

        Its group ``posterior`` has the draws with dimensions ``chain`` and ``draw`` in front;
        ``sample_stats`` the log posterior estimates ``lp``, which are fewer than the draws and
        have the dimension ``lp_iteration``, and the ``weight`` of each draw if there are weights:
        ArviZ's own statistics do not use them; ``test_functions`` the test functions.

        Args:
            dims: Names of the further dimensions, by parameter.
            coords: Labels along dimensions, by dimension.
            observed_data: Arrays for the group ``observed_data``; the dataset is not kept with the
                draws.
            log_likelihood: Source of the group ``log_likelihood``: the dataset whose terms of the
                log-likelihood, as of :meth:`log_lik`, it should hold; ``True`` uses the chain's own
                data; or an array of such terms. Then ``az.loo``, ``az.waic`` and ``az.compare``
                work.
            log_likelihood_draws: Number of draws for that group, of all chains together, evenly
                spaced; all groups hold only these, since ArviZ expects the same draws in all.
                ``None`` uses all of them, or, with a warning, as many as make 256 MB; ArviZ needs
                several times that.
            effects: Factors of ``groups`` whose effects, drawn as by :meth:`effects`, are in the
                group ``posterior`` too, with the factor's name as a dimension and its labels as
                coordinates: a name, several, or a dict with the labels of some groups.

        Returns:
            An ``arviz.InferenceData``, which can be written to NetCDF.

        Example:
            >>> import numpy as np, sgmcmc
            >>> samples = sgmcmc.Samples({"beta": np.zeros((100, 2))})
            >>> data = samples.to_arviz(
            ...     dims={"beta": ["feature"]}, coords={"feature": ["age", "height"]})
            >>> dict(data.posterior.sizes)
            {'chain': 1, 'draw': 100, 'feature': 2}

        Source:
            The InferenceData schema, ArviZ documentation.
        """
        return to_inference_data(
            self,
            dims,
            coords,
            observed_data,
            log_likelihood,
            log_likelihood_draws,
            effects,
        )

    def to_zarr(
        self,
        path: str | os.PathLike[str],
        *,
        dims: Mapping[str, Sequence[str]] | None = None,
        coords: Mapping[str, Sequence[Any]] | None = None,
    ) -> Path:
        """Write the draws as a Zarr store, which ``xarray.open_zarr`` opens without reading it all.

        Draws of a ``store`` that do not fit in memory are copied chunk by chunk. It needs zarr.

        Args:
            path: Path of the folder; it must not exist, or be empty. It appears only once it is
                complete.
            dims: Names of the further dimensions, by parameter.
            coords: Labels along dimensions, by dimension.

        Returns:
            The folder.

        Raises:
            ValueError: There are no draws; the folder is there.
            ImportError: zarr is not installed.
            OSError: The folder cannot be written.

        Example:
            ``xarray.open_zarr(samples.to_zarr("draws.zarr"))["beta"].mean(("chain", "draw"))``
        """
        return write_zarr(self, path, dims, coords)
