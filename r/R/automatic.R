#' Sample a posterior without tuning constants, or by any parts
#'
#' Arguments that are not given are chosen. Newton steps on the whole dataset find the mode. The
#' chain moves in coordinates that are whitened by the observed information there. Rows are
#' drawn in proportion to their leverage, and gradients are control variates centered at the
#' mode (or exact, for up to 2000 observations). The stepsize is the largest at which the
#' predicted error of every posterior standard deviation is at most `tolerance`. Four chains run
#' from over-dispersed starts until every coordinate has the effective sample size `ess` and an
#' R-hat of at most 1.01. [report()] has the choices and the results.
#'
#' The parts are independent, and every meaningful combination runs. `sgmcmcSetup` sets up the
#' same sampler to be run step by step; see [sgldSetup()] and [initSess()].
#'
#' @inheritParams sgld
#' @param params Named list of starting values: numbers, vectors, matrices, arrays.
#' @param dynamics Dynamics of the state: `"sgld"`, `"sghmc"`, `"sgnht"`, `"underdamped"`, or on
#'   the whole dataset `"hmc"`, `"mala"` and `"nuts"`; or an object of [sgmcmcParts]`$dynamics`.
#'   `NULL` is `"underdamped"`.
#' @param gradient Gradient estimator: `"minibatch"`, `"control_variate"`, `"svrg"`, `"saga"`,
#'   `"full"`, or an object of [sgmcmcParts]`$gradients`. `NULL` is `"control_variate"`, or
#'   `"full"` for up to 2000 observations.
#' @param minibatches Way of drawing rows: `"uniform"`, without replacement; `"replacement"`;
#'   `"leverage"`, in proportion to each row's contribution to the curvature of the log
#'   posterior; or an object of [sgmcmcParts]`$minibatches`, such as
#'   `sgmcmcParts$minibatches$Weighted(p)`. `NULL` is `"leverage"`.
#' @param minibatchSize Minibatch size: a proportion of N if between 0 and 1, else a number of
#'   observations, from 1 to N; `NULL` to choose.
#' @param preconditioner Preconditioner: `"none"`; a matrix near the posterior covariance of the
#'   p unconstrained coordinates, p variances, or a named list of these by parameter; `"dense"`,
#'   the inverse of the information at the mode, or `"diagonal"`, its diagonal. `NULL` is
#'   `"dense"`.
#' @param stepsize Stepsize as in [sgld()], in the preconditioned coordinates; `NULL` to choose.
#' @param tolerance Maximum relative error of a posterior standard deviation, if the stepsize is
#'   chosen.
#' @param ess Effective sample size, bulk and tail, that every coordinate should reach, if the
#'   length is chosen.
#' @param nChains Number of independent chains.
#' @param nIters Number of iterations after `burnIn`; `NULL` for as many as `ess` needs.
#' @param burnIn Number of iterations run and dropped first; `NULL` to choose.
#' @param maxSeconds Time limit in seconds, after which no more iterations are added, if the
#'   length is chosen; `NULL` for no limit.
#' @param ... Further arguments, by name: those of the dynamics (`alpha`, `L`, `a`, `integrator`), and of
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
#' These samplers are exact, need no constants, and suit small datasets and references for the
#' other samplers. The log posterior is summed in pieces, in double precision. Arguments that
#' are not given are chosen: the mode is found, and chains start around it and move in
#' coordinates whitened by the observed information there. A warm-up tunes the stepsize to an
#' acceptance rate of 0.85 and changes the coordinates if necessary. Both are frozen before the
#' first draw is kept. Chains run until every coordinate has the effective sample size `ess` and
#' an R-hat of at most 1.01. [report()] has acceptance rates and divergences.
#'
#' `hmc` has trajectories of a fixed length, with the stepsize varied by 20 %. `nuts` doubles
#' trajectories until they turn back, which suits posteriors that are far from normal, as those
#' of hierarchical models. `mala` makes one leapfrog step, with an acceptance rate of 0.574.
#'
#' @inheritParams sgmcmcSample
#' @param nLeapfrog Number of leapfrog steps of a trajectory; `NULL` for a length of pi / 2.
#' @param maxTreeDepth Tree depth: a trajectory has at most `2^maxTreeDepth - 1` leapfrog steps.
#' @param stepsize Stepsize of a leapfrog step, in the preconditioned coordinates: a number, an
#'   array with one for each coordinate, or a named list; `NULL` to choose.
#' @param nChains Number of independent chains, 2 or more.
#' @param maxSeconds Time limit in seconds, after which no more iterations are added; the
#'   warm-up uses at most half of it. `NULL` for no limit.
#' @param ... Further arguments, by name: `thin`, `store`, `storeGradients`, `testFunctions`, `storeParams`,
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
#' `sgmcmcParts$models`, predefined models. Their arguments have Python's names.
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
