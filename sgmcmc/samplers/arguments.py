"""What is said of the arguments of the sampler functions, once for all of them."""

DESCRIPTIONS = {
    "log_lik": """
        function of two dicts of tensors, the parameters and a minibatch of the dataset,
        that returns the log-likelihood summed over the observations it was handed, a scalar
        tensor, or its terms, one for each observation, a tensor of shape (n,).""",
    "dataset": """
        dict of arrays that share their first axis, of length N: NumPy arrays, memmaps, lists,
        pandas columns and frames, HDF5, Zarr, Dask, Arrow, Parquet files by name, Hugging Face
        datasets, SciPy's sparse matrices; or a table, each of whose columns is an entry. Numbers
        become ``dtype``; a ``tf.Tensor`` keeps its own, and categories stay whole numbers.""",
    "params": """
        dict of starting values, of any shapes. With ``n_chains`` it may be a list of such
        dicts, a start for each chain.""",
    "stepsize": """
        ε, in units of squared parameter: a number, a schedule (:func:`sgmcmc.polynomial_decay`, or
        a function of the iteration, from 1), or an array with one for each coordinate; or a dict
        with such an entry for each parameter; or any of these over the size of each parameter's
        gradients, :func:`sgmcmc.gradient_scaled`. ``"auto"`` takes the largest at which the
        predicted error of every posterior sd is at most 5 %.""",
    "opt_stepsize": """
        stepsize of the stochastic gradient ascent that finds the mode, given like
        ``stepsize``. ``"auto"`` finds it by Newton steps on the whole dataset instead.""",
    "log_prior": """
        function of the dict of parameters that returns their log prior density, a scalar
        tensor; ``None`` is a flat prior.""",
    "minibatch_size": """
        n: a proportion of N if between 0 and 1, else a whole number from 1 to N. With n = N
        every gradient is exact.""",
    "n_iters": """
        iterations after ``burn_in``; ``n_iters // thin`` draws are kept.""",
    "n_iters_opt": """
        iterations of mode-finding; 0 centres the control variate at ``params``.""",
    "verbose": """
        show progress bars with the log posterior estimate; ``False`` prints nothing.""",
    "seed": """
        whole number; the same call with the same seed on the same machine gives the same
        bits. ``None`` draws one; ``settings["seed"]`` of the result has it.""",
    "n_chains": """
        independent chains, on all cores; every output array gains a leading chain axis.""",
    "burn_in": """
        iterations run and dropped first.""",
    "thin": """
        keep every thin-th iteration.""",
    "store_gradients": """
        keep with each draw the gradient estimate at that very draw, of every stored
        parameter.""",
    "test_functions": """
        dict of functions of the parameters, evaluated at each kept draw inside the compiled
        chain.""",
    "store_params": """
        ``False`` keeps only test functions and reductions, a list only those parameters.""",
    "reductions": """
        dict of running reductions over the kept draws, such as :func:`sgmcmc.running_mean`
        gives, or pairs ``(init, update)``: see :class:`sgmcmc.Reduction`.""",
    "store": """
        path of a folder that draws are written to as they are made. Killed at any instant, the
        same call resumes there and ends with the same bits; :meth:`sgmcmc.Samples.open`
        reads it without loading it.""",
    "bijectors": """
        dict of TFP bijectors: such a parameter moves in the unconstrained space with the
        log-Jacobian in the target, and is shown only constrained.""",
    "manifolds": """
        dict of manifolds, such as :class:`sgmcmc.manifolds.Sphere`, for parameters that have to
        stay on them. Densities of such a parameter are with respect to the Hausdorff measure, of a
        point of the simplex to Lebesgue's. Other parameters move in ℝᵈ.""",
    "replace": """
        draw minibatches with replacement.""",
    "minibatches": """
        how rows are drawn: ``"uniform"``, without replacement; ``"replacement"``;
        ``"leverage"``, in proportion to how much each row bends the log posterior;
        ``"reshuffled"`` and ``"symmetric"``, in an order that is new in each epoch; or an object,
        such as :class:`sgmcmc.minibatches.Weighted`. ``None`` leaves it to ``replace``.""",
    "preconditioner": """
        M, near the posterior covariance of the p unconstrained coordinates: p variances, a p × p
        matrix, or a dict of these by parameter. The chain moves in ζ, θ = θ₀ + Cζ with CCᵀ = M, and
        stepsizes belong to ζ. ``"dense"`` (or ``"auto"``) takes the inverse of the information at
        the mode, ``"diagonal"`` its diagonal; ``None`` or ``"none"`` is none.""",
    "updates": """
        ``"joint"``: all parameters move at once; ``"in_turn"``: one after the other, in the order
        of ``params``, each with a gradient taken afresh where the others are then, on the same
        minibatch.""",
    "dtype": """
        ``tf.float32`` or ``tf.float64``.""",
    "integers": """
        list of names of columns of ``dataset`` that stay whole numbers, int32, such as ``log_lik``
        wants for the index of a ``tf.gather``.""",
    "jit_compile": """
        compile the chain with XLA; ``None`` tries it and falls back to a plain graph, with a
        warning that names the op.""",
    "gibbs": """
        function of parameters, minibatch and seed (two int32, for ``tf.random.stateless_*``)
        that draws latent variables and returns the minibatch with them added, as ``log_lik``
        then sees it; called before each gradient, inside the compiled chain.""",
    "latents": """
        dict of arrays of length N: starting values of latent variables that are kept for each
        observation, handed to ``gibbs`` with the minibatch and written back after it.""",
    "groups": """
        :class:`sgmcmc.Groups`, or a list of them: effects of groups of observations, which are
        integrated out. ``log_lik`` then returns one term for each row, and sees an effect of each
        row's group under its name in ``params``.""",
    "executor": """
        where chains and passes over the whole dataset run: a ``concurrent.futures.Executor``
        (processes that are not forked, Dask's ``client.get_executor()``, mpi4py's
        ``MPIPoolExecutor``), or a function without arguments that makes one; ``None`` is this
        process. The draws do not depend on it.""",
}

OF_POINTS = {
    "stepsize": """
        h, in units of the process's own time, of which about 1 makes a draw forget the one before;
        for parameters that ``alpha`` does not name ε. A number, a schedule
        (:func:`sgmcmc.polynomial_decay`, or a function of the iteration, from 1), an array, or a
        dict with such an entry for each parameter.""",
    "log_lik": """
        function of two dicts of tensors, the parameters and a minibatch of the dataset, that
        returns the log-likelihood summed over the observations it was handed, a scalar tensor.
        For points of the simplex it must be a sum of logs of polynomials in ω whose coefficients
        are not negative, as for counts and mixtures it is.""",
    "log_prior": """
        function of the dict of parameters that returns the log prior density of those that
        ``alpha`` does not name, a scalar tensor; ``None`` is a flat prior.""",
    "params": """
        dict of starting values: points of the simplex along their last axis, and other
        parameters of any shapes. With ``n_chains`` it may be a list of such dicts.""",
    "alpha": """
        Dirichlet concentrations: a number or an array for all parameters (but those of ``gamma``),
        or a dict that names those which are points of the simplex.""",
    "gamma": """
        dict of gamma priors of parameters on (0, ∞), by name: (shape, rate), numbers or arrays; or
        (shape, rate, power) where the parameter is a gamma variable raised to that power, -1 for
        a variance. ``log_prior`` may add to them.""",
    "theta0": """
        dict of starts of the unnormalised θ > 0, in place of the ω in ``params``; without it θ
        starts at ω Σâ of the first minibatch.""",
    "parameterisation": """
        of the simplex: ``"expanded_mean"``, ``"expanded_natural"`` or ``"reduced_natural"``.""",
    "store_unnormalised": """
        keep θ with each draw, in ``samples.unnormalised``.""",
    "fresh_scale": """
        draw Σθ ~ Gamma(Σâ) afresh before each step, for models with latent variables in which the
        totals Σĉ are not always the same (topics, components of a mixture), on all data: with
        minibatches it makes points that few rows tell of wrong at every stepsize.""",
}
"""What is said of the arguments of methods for the simplex."""

OF_GEODESICS = {
    "stepsize": """
        ε, the square of the time that a step takes, in units of squared parameter: a number, a
        schedule (:func:`sgmcmc.polynomial_decay`, or a function of the iteration, from 1), or a
        dict with such an entry for each parameter. On a manifold all coordinates have the same.""",
}
"""What is said of the arguments of methods for manifolds."""

OF_PARTS = {
    "tolerance": """
        the largest relative error of a posterior sd that is accepted, where the stepsize is
        chosen.""",
    "ess": """
        effective sample size, bulk and tail, that every coordinate is to have, where the length
        is chosen.""",
    "max_seconds": """
        after which no more iterations are added, where the length is chosen; ``None`` for no
        limit.""",
    "dynamics": """
        how the state moves: ``"sgld"``, ``"sghmc"``, ``"sgnht"``, ``"underdamped"``; on manifolds
        ``"sggmc"``, ``"gsgnht"``; on the whole dataset ``"hmc"`` and ``"nuts"``; or an object of
        :mod:`sgmcmc.dynamics` or of your own subclass; ``None`` is ``"underdamped"``.""",
    "gradient": """
        how the gradient is estimated: ``"minibatch"``, ``"svrg"``, ``"saga"``, ``"full"``,
        ``"control_variate"``, or an object of :mod:`sgmcmc.gradients` or of your own subclass;
        ``None`` is ``"control_variate"``, or ``"full"`` for up to 2000 observations.""",
    "minibatches": """
        how rows are drawn: ``"uniform"``, without replacement; ``"replacement"``;
        ``"leverage"``, in proportion to how much each row bends the log posterior;
        ``"reshuffled"`` and ``"symmetric"``, in an order that is new in each epoch; or an object of
        :mod:`sgmcmc.minibatches`, such as ``Weighted(p)``, or of your own subclass; ``None`` is
        ``"leverage"``.""",
    "minibatch_size": """
        n: a proportion of N if between 0 and 1, else a whole number from 1 to N; ``None`` to
        choose. Not for ``gradient="full"``, where it is N.""",
    "preconditioner": """
        ``"none"``, or M, near the posterior covariance of the p unconstrained coordinates: p
        variances, a p × p matrix, or a dict of these by parameter. The chain moves in ζ,
        θ = θ₀ + Cζ with CCᵀ = M, and stepsizes belong to ζ. ``"dense"`` is the inverse of the
        information at the mode, ``"diagonal"`` its diagonal; ``None`` is ``"dense"``.""",
}
"""What is said of the arguments of the functions that take any parts."""

CHOSEN = """
What is not given is chosen: the mode is found, the chains start around it, over-dispersed, and move
in coordinates whitened by the observed information there; in a warm-up the stepsize is driven to an
acceptance rate of 0.85, and the coordinates are changed where draws are not as wide as they should
be, or where there is no mode of use. Both are frozen before the first draw is kept. Chains run
until every coordinate has the effective sample size ``ess`` and an R-hat of at most 1.01.
``samples.report`` has the acceptance rates, divergences, and what was chosen and reached.
"""
"""What is said of the choice of constants of the samplers that take the whole dataset."""

OF_EXACT = {
    "n_leapfrog": """
        leapfrog steps of a trajectory; ``None`` for as many as a length of π/2 takes.""",
    "max_tree_depth": """
        a trajectory has at most 2^max_tree_depth − 1 leapfrog steps.""",
    "preconditioner": """
        M, near the posterior covariance of the p unconstrained coordinates. ``"dense"`` and
        ``"diagonal"`` are chosen from the observed information and the warm-up; ``None`` is
        ``"dense"`` for up to 2000 coordinates. ``"none"``, p variances, a p × p matrix, or a dict
        of these by parameter are taken as they are, and chains start at ``params``.""",
    "stepsize": """
        ε of a leapfrog step, in units of the parameter, or of ζ with a preconditioner; ``None`` to
        choose. A number, an array with one for each coordinate, or a dict with one for each
        parameter.""",
    "n_iters": """
        iterations after ``burn_in``; ``None`` for as many as ``ess`` takes.""",
    "burn_in": """
        iterations run and dropped once everything is chosen; ``None`` for 20, or 100 where nothing
        had to be.""",
    "max_seconds": """
        after which no more iterations are added; the warm-up takes at most half of them. ``None``
        for no limit.""",
    "n_chains": """
        independent chains, 2 or more, on all cores; arrays have a leading chain axis.""",
    "dtype": """
        ``tf.float64``, or ``tf.float32`` for half the time on large data: terms are computed in it,
        while sums over the observations and energies are float64 in any case.""",
}
"""What is said of arguments of the samplers that take the whole dataset."""
