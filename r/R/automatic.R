#' Sample a posterior without tuning constants, or by any parts
#'
#' What is not given is chosen: the mode is found by Newton steps on the whole dataset, the chain moves
#' in coordinates whitened by the observed information there, rows are drawn in proportion to their
#' leverage, gradients are control variates centered at the mode (or exact, for up to 2000
#' observations), the stepsize is the largest at which the predicted error of every posterior standard
#' deviation is at most `tolerance`, and four chains run from over-dispersed starts until every coordinate
#' has the effective sample size `ess` and an R-hat of at most 1.01. [report()] says what was chosen and
#' what was reached.
#'
#' All parts are independent, and every combination that has a meaning runs. `sgmcmcSetup` sets the same up
#' to be run step by step; see [sgldSetup()] and [initSess()].
#'
#' @inheritParams sgld
#' @param params named list of starting values: numbers, vectors, matrices, arrays.
#' @param dynamics how the state moves: `"sgld"`, `"sghmc"`, `"sgnht"`, `"underdamped"`, or on the whole
#'   dataset `"hmc"`, `"mala"` and `"nuts"`; or an object of [sgmcmcParts]`$dynamics`. `NULL` is `"underdamped"`.
#' @param gradient how the gradient is estimated: `"minibatch"`, `"control_variate"`, `"svrg"`, `"saga"`,
#'   `"full"`, or an object of [sgmcmcParts]`$gradients`. `NULL` is `"control_variate"`, or `"full"` for up to
#'   2000 observations.
#' @param minibatches how rows are drawn: `"uniform"`, without replacement; `"replacement"`; `"leverage"`, in
#'   proportion to how much each row bends the log posterior; or an object of [sgmcmcParts]`$minibatches`, such
#'   as `sgmcmcParts$minibatches$Weighted(p)`. `NULL` is `"leverage"`.
#' @param minibatchSize a proportion of N if between 0 and 1, else a number of observations, from 1
#'   to N; `NULL` to choose.
#' @param preconditioner `"none"`; a matrix near the posterior covariance of the p unconstrained
#'   coordinates, p variances, or a named list of these by parameter; `"dense"`, the inverse of the
#'   information at the mode, or `"diagonal"`, its diagonal. `NULL` is `"dense"`.
#' @param stepsize as in [sgld()], in the preconditioned coordinates; `NULL` to choose.
#' @param tolerance the largest relative error of a posterior standard deviation that is accepted, where
#'   the stepsize is chosen.
#' @param ess effective sample size, bulk and tail, that every coordinate is to have, where the length is
#'   chosen.
#' @param nChains number of independent chains.
#' @param nIters number of iterations after `burnIn`; `NULL` for as many as `ess` takes.
#' @param burnIn number of iterations run and dropped first; `NULL` to choose.
#' @param maxSeconds after which no more iterations are added, where the length is chosen; `NULL` for no
#'   limit.
#' @param ... further arguments, by name: those of the dynamics (`alpha`, `L`, `a`, `integrator`), and of
#'   every sampler: `thin`, `store`, `storeGradients`, `testFunctions`, `storeParams`, `reductions`,
#'   `bijectors`, `dtype`, `jitCompile`, `gibbs`, `latents`; see [sgld()] and [scir()].
#' @return For `sgmcmcSample` draws, see [sgmcmcChains]; for `sgmcmcSetup` a sampler, see [sgldSetup()].
#' @inheritSection sgld Errors
#' @references J. Baker (2018), *Large-scale Bayesian computation using stochastic gradient MCMC*,
#'   Lancaster, chapters 3 and 4, for dynamics and gradients as separate parts, and lemma 3.3.3 for the
#'   best probabilities of rows.
#' @export
#' @examples
#' \dontrun{
#' dataset <- list(x = rnorm(1000, mean = 3))
#' logLik <- function(params, dataset) {
#'     tf$reduce_sum(-0.5 * (dataset$x - params$theta)^2)
#' }
#' chain <- sgmcmcSample(logLik, dataset, list(theta = 0))
#' summary(chain)
#' report(chain)
#' chain <- sgmcmcSample(logLik, dataset, list(theta = 3),
#'     dynamics = "underdamped", gradient = "svrg", minibatches = "uniform", minibatchSize = 50,
#'     preconditioner = list(theta = 1e-3), stepsize = 0.1, nIters = 2000, burnIn = 200
#' )
#' }
sgmcmcSample <- function(logLik, dataset, params, logPrior = NULL, dynamics = NULL, gradient = NULL,
                         minibatches = NULL, minibatchSize = NULL, preconditioner = NULL,
                         stepsize = NULL, tolerance = 0.05, ess = 400, nChains = 4,
                         nIters = NULL, burnIn = NULL, maxSeconds = NULL, seed = NULL,
                         verbose = TRUE, ...) {
    runSampler("sample", as.list(environment()), ...)
}

#' @rdname sgmcmcSample
#' @export
sgmcmcSetup <- function(logLik, dataset, params, logPrior = NULL, dynamics = NULL, gradient = NULL,
                        minibatches = NULL, minibatchSize = NULL, preconditioner = NULL,
                        stepsize = NULL, nChains = 4, seed = NULL, verbose = TRUE, ...) {
    setUp("sample", as.list(environment()), ...)
}

#' Hamiltonian Monte Carlo, MALA and NUTS on the whole dataset
#'
#' Exact, without constants, for small datasets and as the reference for the rest. The log posterior is
#' added up in pieces, in double precision. What is not given is chosen: the mode is found, chains
#' start around it and move in coordinates whitened by the observed information there, and in a warm-up the
#' stepsize is driven to an acceptance rate of 0.85 and the coordinates are changed where they do not fit.
#' Both are frozen before the first draw is kept. Chains run until every coordinate has the effective
#' sample size `ess` and an R-hat of at most 1.01. [report()] has acceptance rates and divergences.
#'
#' `hmc` takes trajectories of a fixed length, with the stepsize varied by 20 %; `nuts` doubles
#' trajectories until they turn back, which holds where the posterior is far from normal, as in
#' hierarchical models; `mala` takes one leapfrog step, accepted at a rate of 0.574.
#'
#' @inheritParams sgmcmcSample
#' @param nLeapfrog leapfrog steps of a trajectory; `NULL` for as many as a length of pi / 2 takes.
#' @param maxTreeDepth a trajectory has at most `2^maxTreeDepth - 1` leapfrog steps.
#' @param stepsize of a leapfrog step, in the preconditioned coordinates: a number, an array with one for
#'   each coordinate, or a named list; `NULL` to choose.
#' @param nChains number of independent chains, 2 or more.
#' @param maxSeconds after which no more iterations are added; the warm-up takes at most half of them.
#'   `NULL` for no limit.
#' @param ... further arguments, by name: `thin`, `store`, `storeGradients`, `testFunctions`, `storeParams`,
#'   `reductions`, `bijectors`, `dtype`, `jitCompile`; see [sgld()].
#' @return Draws, see [sgmcmcChains].
#' @references Neal (2011), MCMC using Hamiltonian dynamics, in *Handbook of Markov Chain Monte Carlo*.
#'   Hoffman and Gelman (2014), The No-U-Turn sampler, *Journal of Machine Learning Research* 15.
#' @export
#' @examples
#' \dontrun{
#' dataset <- list(x = rnorm(1000, mean = 3))
#' logLik <- function(params, dataset) {
#'     tf$reduce_sum(-0.5 * (dataset$x - params$theta)^2)
#' }
#' chain <- nuts(logLik, dataset, list(theta = 0), seed = 1)
#' summary(chain)
#' }
hmc <- function(logLik, dataset, params, logPrior = NULL, nLeapfrog = NULL, preconditioner = NULL,
                stepsize = NULL, ess = 400, nChains = 4, nIters = NULL, burnIn = NULL,
                maxSeconds = NULL, seed = NULL, verbose = TRUE, ...) {
    runSampler("hmc", as.list(environment()), ...)
}

#' @rdname hmc
#' @export
mala <- function(logLik, dataset, params, logPrior = NULL, preconditioner = NULL, stepsize = NULL,
                 ess = 400, nChains = 4, nIters = NULL, burnIn = NULL, maxSeconds = NULL, seed = NULL,
                 verbose = TRUE, ...) {
    runSampler("mala", as.list(environment()), ...)
}

#' @rdname hmc
#' @export
nuts <- function(logLik, dataset, params, logPrior = NULL, maxTreeDepth = 10, preconditioner = NULL,
                 stepsize = NULL, ess = 400, nChains = 4, nIters = NULL, burnIn = NULL,
                 maxSeconds = NULL, seed = NULL, verbose = TRUE, ...) {
    runSampler("nuts", as.list(environment()), ...)
}

#' Parts for samplers
#'
#' The classes of the Python package for [sgmcmcSample()]: `sgmcmcParts$dynamics$Underdamped()`,
#' `sgmcmcParts$gradients$SVRG()`, `sgmcmcParts$minibatches$Weighted(p)`, and
#' `sgmcmcParts$models`, models that are ready-made. Their arguments have Python's names.
#'
#' @format An object whose parts are Python modules: `dynamics`, `gradients`, `minibatches`, `models`.
#' @export
#' @examples
#' \dontrun{
#' p <- abs(dataset$x) + 0.1
#' sgmcmcSample(logLik, dataset, params, minibatches = sgmcmcParts$minibatches$Weighted(p))
#' }
sgmcmcParts <- structure(list(), class = "sgmcmcParts")

#' @export
`$.sgmcmcParts` <- function(x, name) {
    if (!name %in% names(x)) {
        stop("sgmcmcParts has ", paste(names(x), collapse = ", "), call. = FALSE)
    }
    bridge()
    reticulate::import(paste0("sgmcmc.", name))
}

#' @export
names.sgmcmcParts <- function(x) c("dynamics", "gradients", "minibatches", "models")

#' @export
.DollarNames.sgmcmcParts <- function(x, pattern = "") grep(pattern, names(x), value = TRUE)

#' @export
print.sgmcmcParts <- function(x, ...) {
    cat("Parts for samplers:", paste0("$", names(x), collapse = ", "), "\n")
    invisible(x)
}
