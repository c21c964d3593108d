"""Draws in the forms of other libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sgmcmc.results.frames import to_dataframe
from sgmcmc.results.inference_data import to_inference_data
from sgmcmc.results.predictions import Predictions


class Conversions(Predictions):
    """Draws of parameters that can be handed to pandas and ArviZ."""

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

    def to_arviz(
        self,
        *,
        dims: Mapping[str, Sequence[str]] | None = None,
        coords: Mapping[str, Sequence[Any]] | None = None,
        observed_data: Mapping[str, Any] | None = None,
        log_likelihood: Mapping[str, Any] | np.ndarray | bool | None = None,
        log_likelihood_draws: int | None = None,
    ) -> Any:
        """Return the draws as an ArviZ ``InferenceData``.

        Its group ``posterior`` has the draws with dimensions ``chain`` and ``draw`` in front;
        ``sample_stats`` the log posterior estimates ``lp``, which are fewer than the draws and
        have the dimension ``lp_iteration``; ``test_functions`` the test functions.

        Args:
            dims: names of the further dimensions, by parameter.
            coords: labels along dimensions, by dimension.
            observed_data: arrays for the group ``observed_data``; the dataset is not kept with
                the draws.
            log_likelihood: the dataset whose terms of the log-likelihood, as of :meth:`log_lik`,
                are to be the group ``log_likelihood``; ``True`` takes the chain's own data; or an
                array of such terms. Then ``az.loo``, ``az.waic`` and ``az.compare`` work.
            log_likelihood_draws: at how many draws, of all chains together, evenly spaced; all
                groups hold only these, since ArviZ takes them for the same. ``None`` takes all of
                them, or, with a warning, as many as make 256 MB; ArviZ takes several times that.

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
            self, dims, coords, observed_data, log_likelihood, log_likelihood_draws
        )
