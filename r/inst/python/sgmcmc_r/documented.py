"""The parts of a sampler that the R package of 2019 documented, as things that a session runs.

A sampler there was a list of placeholders for a minibatch and of tensors and operations on them.
Here a sampler needs no placeholders; these are made when they are first asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import sgmcmc
from sgmcmc.data.random_numbers import RunPhase
from sgmcmc.run.checkpoints import constrained
from sgmcmc_r import graphs
from sgmcmc_r.feeds import ascended, step_on

Feeds = Sequence[tuple[tf.Tensor, tf.Tensor]]


class Documented:
    """The documented parts of a sampler.

    Args:
        sampler: what a ``*_setup`` function returned.

    Attributes:
        params_opt: with control variates, variables that hold the mode; before it is found, the
            starting values.
        log_post_opt_grad: likewise the gradient there over the whole dataset; zeros before.
    """

    def __init__(self, sampler: sgmcmc.StepwiseSampler) -> None:
        self._sampler = sampler
        self._inner = sampler._sampler
        self._placeholders: dict[str, tf.Tensor] = {}
        self._owner: Any = None
        self._positions = [np.array(start) for start in self._inner.starts]
        self._ascents = 0
        self.params_opt: dict[str, tf.Variable] | None = None
        self.log_post_opt_grad: dict[str, tf.Variable] | None = None
        if self._inner.phases[0].kind is RunPhase.MODE:
            starts = {name: value.numpy() for name, value in sampler.params.items()}
            self.params_opt = _variables(starts)
            space = self._inner.target.space
            zeros = np.zeros((len(self._positions), space.layout.size))
            self.log_post_opt_grad = _variables(sampler._user(space.layout, zeros))

    def found(self) -> None:
        """Show the mode that a session was started with."""
        sampler = self._sampler
        if self.params_opt is None or sampler.params_opt is None:
            return
        assert self.log_post_opt_grad is not None
        _assign(self.params_opt, sampler.params_opt)
        assert sampler.log_post_opt_grad is not None
        _assign(self.log_post_opt_grad, sampler.log_post_opt_grad)
        space = self._inner.target.space
        shapes = {name: np.shape(value) for name, value in sampler.params_opt.items()}
        each = [sampler.params_opt]
        if self._inner.options.n_chains is not None:
            count = next(iter(shapes.values()))[0]
            each = [
                {k: v[i] for k, v in sampler.params_opt.items()} for i in range(count)
            ]
        self._positions = [
            space.start(values, self._inner.target.dtype) for values in each
        ]

    def placeholders(self) -> dict[str, tf.Tensor]:
        """Return a placeholder for a minibatch of each array of the dataset."""
        if not self._placeholders or self._owner is not graphs.present():
            columns, n = self._inner.data.columns, self._sampler.n
            self._placeholders = {
                name: graphs.placeholder(
                    columns[name].dtype, [n, *columns[name].row_shape]
                )
                for name in columns
            }
            self._owner = graphs.present()
        return dict(self._placeholders)

    def est_log_post(self, at_mode: bool) -> tf.Tensor:
        """Return the estimate of the log posterior as a tensor on the placeholders."""
        params = self.params_opt if at_mode else None
        placeholders = self.placeholders()
        with graphs.entered():
            return self._sampler.est_log_post(placeholders, params)

    def est_log_post_opt_at(self, minibatch: Mapping[str, Any]) -> tf.Tensor:
        """Return the estimate of the log posterior at the mode from a minibatch."""
        return self._sampler.est_log_post(minibatch, self.params_opt)

    def step(
        self, session: sgmcmc.Session, parameter: str | None, feeds: Feeds
    ) -> None:
        """Take a session an iteration further, on what is fed for the placeholders if anything.

        Args:
            session: the session.
            parameter: the one that moves; ``None`` moves all.
            feeds: placeholders with their values.
        """
        if not feeds and parameter is None:
            sgmcmc.sgmcmc_step(self._sampler, session)
            return
        step_on(self._sampler, session, self._fed(feeds), parameter)

    def ascend(self, feeds: Feeds) -> None:
        """Take the mode a step up the gradient; the chain keeps the center that it has."""
        assert self.params_opt is not None
        minibatch = self._fed(feeds)
        self._ascents += 1
        self._positions = [
            ascended(self._sampler, position, minibatch, self._ascents)
            for position in self._positions
        ]
        space = self._inner.target.space
        rows = constrained(space, self._positions)
        _assign(self.params_opt, self._sampler._user(space.user_layout, rows))

    def _fed(self, feeds: Feeds) -> dict[str, tf.Tensor]:
        """Return the minibatch that is fed for the placeholders."""
        names = {id(tensor): name for name, tensor in self._placeholders.items()}
        minibatch = {names[id(key)]: value for key, value in feeds if id(key) in names}
        missing = [name for name in self._inner.data.columns if name not in minibatch]
        if missing:
            raise ValueError(
                f"`feed_dict` holds nothing for `placeholders` of {', '.join(missing)}: write "
                f"feeds[[sampler$placeholders${missing[0]}]] <- a minibatch."
            )
        return minibatch


def _variables(values: Mapping[str, Any]) -> dict[str, tf.Variable]:
    return {
        name: tf.Variable(value, trainable=False, name=name)
        for name, value in values.items()
    }


def _assign(variables: Mapping[str, tf.Variable], values: Mapping[str, Any]) -> None:
    for name, variable in variables.items():
        variable.assign(tf.cast(values[name], variable.dtype))
