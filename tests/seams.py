"""Places inside the package where tests put something else, such as a small limit.

A rebuild of the inside moves them here: `monkeypatch.setattr(seams.LONGEST_BLOCK, 3)`.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any


def changed(settings: str, **constants: Any) -> Any:
    """Return the settings of a mechanism, one of the places below, with other constants."""
    module, name = settings.rsplit(".", 1)
    return replace(getattr(importlib.import_module(module), name), **constants)


DRAWS_PIECE_BYTES = "sgmcmc.after.control_variates.PIECE_BYTES"
STEIN = "sgmcmc.after.stein._SETTINGS"

ESTIMATORS_SAMPLE = "sgmcmc.samplers.sample"

DATASET_PIECE_BYTES = "sgmcmc.data.dataset.PIECE_BYTES"
NAMED_VERSIONS = "sgmcmc.data.named._VERSIONS"
NATIVE_ROWS = "sgmcmc.data.native._rows"
COPY_MINIBATCH = "sgmcmc.data.native.copy_minibatch"
PASSES_LARGE = "sgmcmc.data.passes.LARGE"
PASSES_PIECE_BYTES = "sgmcmc.data.passes.PIECE_BYTES"
PASS_RUN = "sgmcmc.data.passes.Pass.run"
PASSES_SETTINGS = "sgmcmc.data.passes._SETTINGS"
OPEN_NAMED = "sgmcmc.data.reading.open_named"
STORED_PIECE_BYTES = "sgmcmc.data.stored.PIECE_BYTES"
SLAB_BYTES = "sgmcmc.data.stored.SLAB_BYTES"
STORED_COLUMN_READ = "sgmcmc.data.stored.StoredColumn._read"
HAS_ROOM = "sgmcmc.data.stored._has_room"
STREAMS_PIECE_BYTES = "sgmcmc.data.tables.PIECE_BYTES"
TABLES_SETTINGS = "sgmcmc.data.tables._SETTINGS"

LIBRARIES = "sgmcmc.libraries._SETTINGS"

LAST_BANDWIDTH = "sgmcmc.shards.combination._last_bandwidth"
SHARDS_TIME = "sgmcmc.shards.subposteriors.time"

SCIR = "sgmcmc.dynamics.scir._SETTINGS"

BLOCK_BYTES = "sgmcmc.engine.kernel.BLOCK_BYTES"
LONGEST_BLOCK = "sgmcmc.engine.kernel.LONGEST_BLOCK"
LONGEST_EXACT = "sgmcmc.engine.kernel.LONGEST_EXACT"
KERNEL_COMPILE = "sgmcmc.engine.kernel.Kernel.compile"
AVAILABLE_CORES = "sgmcmc.engine.prefetcher.available_cores"
RUNNER_KEEP = "sgmcmc.engine.runner.Runner._keep"
RUNNER_ADVANCE = "sgmcmc.engine.runner.Runner.advance"
RUNNER_SAVE = "sgmcmc.engine.runner.Runner.save"
TAKE_OVER = "sgmcmc.engine.runner.Runner.take_over"
NEED_TIME = "sgmcmc.engine.scheduler.need_time"
GROUP_ADVANCE = "sgmcmc.engine.vectorized.Group.advance"
GROUP_KERNEL_COMPILE = "sgmcmc.engine.vectorized.GroupKernel.compile"
FOR_EACH = "sgmcmc.engine.vectorized._for_each"

AVAILABLE_BYTES = "sgmcmc.gradients.saga.available_bytes"

FLAT_GRAPH_CALL = "sgmcmc.graphs.compiler.FlatGraph.__call__"
BY_XLA = "sgmcmc.graphs.compiler._by_xla"
COMPILER_KNOWN = "sgmcmc.graphs.compiler._KNOWN"
PRODUCTS_SETTINGS = "sgmcmc.graphs.rewriting._SETTINGS"
TRACING_MODELS = "sgmcmc.graphs.tracing._models"

GROUPS_STRUCTURE = "sgmcmc.groups.structure._SETTINGS"
IS_QUADRATIC = "sgmcmc.groups.structure.is_quadratic"
PACKS_PIECE_BYTES = "sgmcmc.groups.packs.PIECE_BYTES"
GROUPS_PREDICTORS = "sgmcmc.groups.predictors._SETTINGS"

SILENT_MISTAKES_TRIAL = "sgmcmc.inputs.silent_mistakes.Trial"

ARVIZ_IS_NEW = "sgmcmc.libraries.arviz_is_new"

EXECUTORS_POOLS = "sgmcmc.machines.executors._pools"
AT_HAND = "sgmcmc.machines.worker.at_hand"

STREAM_SETTINGS = "sgmcmc.minibatches.streams._SETTINGS"
UNIFORM_SETTINGS = "sgmcmc.minibatches.uniform._SETTINGS"

LEAST_WIDTH = "sgmcmc.models.topics._LEAST_WIDTH"

JOINT_MODEL_CHECK = "sgmcmc.bridges.joint.JointModel._check"

INTERPOLATED = "sgmcmc.reduce.interpolated._SETTINGS"

REGRESSION_FEW_ROWS = "sgmcmc.regression.few_rows._SETTINGS"
REDUCED = "sgmcmc.regression.reduced._SETTINGS"
REGRESSION_COLUMNS = "sgmcmc.regression.columns._SETTINGS"
REGRESSION_DESIGN = "sgmcmc.regression.design._SETTINGS"
OF_COLUMNS = "sgmcmc.regression.expressions._OF_COLUMNS"
REGRESSION_FIT = "sgmcmc.regression.fit._SETTINGS"
REGRESSION_FRAMES = "sgmcmc.regression.frames._SETTINGS"
LINEAR_PREDICTOR = "sgmcmc.regression.linear_predictor._SETTINGS"
REGRESSION_MODEL = "sgmcmc.regression.model._SETTINGS"
REGRESSION_SAMPLED = "sgmcmc.regression.fit.sampled"
REGRESSION_SAMPLE = "sgmcmc.regression.sampling.sample"
REGRESSION_PREDICTIONS = "sgmcmc.regression.marginal_effects._SETTINGS"

EVALUATION = "sgmcmc.results.evaluation._SETTINGS"
FILE_VALUES_WRITE = "sgmcmc.results.evaluation._FileValues.write"
CONVERSIONS = "sgmcmc.results.conversions._SETTINGS"
FILE_ROWS_SETITEM = "sgmcmc.results.store.FileRows.__setitem__"
SAVE_WARM_UP = "sgmcmc.results.store.Store.save_warm_up"

ANCHORED_ERROR = "sgmcmc.plan.fixed_nodes._ERROR"
ANCHORED_PART = "sgmcmc.plan.fixed_nodes._PART"
UNTIL_FAR_REACHED = "sgmcmc.plan.methods.around_mode.UntilFar.reached"
FULL_DATA = "sgmcmc.plan.methods.full_data._SETTINGS"
LARGE_LOOK = "sgmcmc.plan.methods.local_minibatches._look"
LARGE_ASCEND = "sgmcmc.plan.methods.local_minibatches.ascend"
CHOOSE_LOCALLY = "sgmcmc.plan.methods.local_minibatches.choose_locally"
METHODS_AFFORDABLE = "sgmcmc.plan.cost._AFFORDABLE"
COST = "sgmcmc.plan.cost._SETTINGS"
POSTERIOR_DENSE_UP_TO = "sgmcmc.plan.methods.call.DENSE_UP_TO"
FAR_GRADIENTS = "sgmcmc.plan.methods.around_mode._FAR_GRADIENTS"
POSTERIOR_PREDICTED = "sgmcmc.plan.methods.around_mode.AroundMode._predicted"
POSTERIOR_CHOOSE = "sgmcmc.plan.methods.call.choose"
COST_OF_NUTS = "sgmcmc.plan.methods.around_mode.cost_of_nuts"
NUTS_IS_AFFORDABLE = "sgmcmc.plan.methods.around_mode.nuts_is_affordable"
POSTERIOR_NEEDS_MODE = "sgmcmc.plan.methods.call.needs_mode"
RUN_ON_ALL_ROWS = "sgmcmc.plan.methods.around_mode.run_on_all_rows"
WITH_MORE_NODES = "sgmcmc.plan.methods.around_mode.with_more_nodes"
WARM_UP_LONGEST = "sgmcmc.plan.ascent._LONGEST"
WARM_UP_SHORTEST = "sgmcmc.plan.ascent._SHORTEST"
WATCHED_LONGEST = "sgmcmc.plan.stopping._LONGEST"
WATCHED_MOST_BYTES = "sgmcmc.plan.stopping._MOST_BYTES"
MAKE_KERNEL = "sgmcmc.run.builder.make_kernel"
MAKE_STREAM = "sgmcmc.run.builder.make_stream"
EXECUTOR_SETTINGS = "sgmcmc.run.chain_executors._SETTINGS"
LARGE_BYTES = "sgmcmc.run.checkpoints.LARGE_BYTES"
SAVE_EVERY = "sgmcmc.run.checkpoints.SAVE_EVERY"
LARGE_SHARE = "sgmcmc.run.checkpoints._LARGE_SHARE"
CHOICES_DENSE_UP_TO = "sgmcmc.plan.choices.DENSE_UP_TO"
MAKE_PLAN = "sgmcmc.plan.choices.make_plan"
DRIVER_RUN = "sgmcmc.run.driver._Run"
WARM_UP_RUN = "sgmcmc.plan.warm_up.WarmUp.run"
MOST_GRADIENTS = "sgmcmc.plan.methods.hmc._MOST_GRADIENTS"
FIND_START = "sgmcmc.plan.methods.hmc.find_start"
QUADRATURE_ERROR = "sgmcmc.plan.methods.hmc.quadrature_error"
REPORT_ON_MOVES = "sgmcmc.plan.methods.hmc.report_on_moves"
START_NARROW = "sgmcmc.plan.start._NARROW"
SUBSAMPLED_BOUNDS = "sgmcmc.plan.subsampled._bounds"
LENGTHS_FIRST = "sgmcmc.plan.stopping._FIRST"

WHOLE_POSTERIOR_SETTINGS = "sgmcmc.model.whole_posterior._SETTINGS"

CHAINS_SETTINGS = "sgmcmc.networks.chains._SETTINGS"
SHORT_CHAINS = "sgmcmc.networks.chains.EnsembleChains._short_chains"

ARROWS_FEW = "sgmcmc.plan.curvature._FEW"
ONE_BY_ONE = "sgmcmc.plan.curvature._ONE_BY_ONE"
DEFINITE_INVERSE = "sgmcmc.plan.curvature._definite_inverse"
LEVERAGE_PIECE_NUMBERS = "sgmcmc.plan.leverage._PIECE_NUMBERS"
CLIMBER_CLIMB = "sgmcmc.plan.modes.WhitenedPosterior.climb"
OBJECTIVE_LARGE = "sgmcmc.plan.objective.LARGE"
FACTORED_FROM = "sgmcmc.plan.objective._FACTORED_FROM"
OBJECTIVE_PIECE_NUMBERS = "sgmcmc.plan.objective._PIECE_NUMBERS"
LARGEST_STEPSIZE = "sgmcmc.plan.plan.largest_stepsize"
METHODS = "sgmcmc.plan.solve.METHODS"
