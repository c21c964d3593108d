# Samplers that look at parts of the data: shards sampled apart, and a few rows in each move.

#' Divide and conquer
#'
#' The rows are permuted and divided into shards. The posterior of each shard, with the prior to the
#' power 1 / `shards`, is sampled separately, and the draws are combined.
#'
#' Methods of combination: `"consensus"`, weighted means of the draws, with the inverse covariances as
#' weights; `"consensus_scalar"`, with inverse variances; `"gaussian"`, draws of the product of normals;
#' `"kernel_density"`, draws of the product of kernel density estimates; `"weierstrass"`, pairwise
#' rejection. For normal posteriors of the shards the first and the third are exact.
#'
#' @inheritParams sgmcmcSample
#' @param shards Number of shards.
#' @param method Method of combination.
#' @param sampler Sampler of a shard, by name, such as `"sample"`, `"hmc"` or `"sgldcv"`; `NULL` is `"sample"`.
#' @param ... Further arguments of the sampler, by name, such as `nIters` and `stepsize`.
#' @return Draws, see [sgmcmcChains]. [report()] has diagnostics of the shards and the combination.
#' @references Scott et al. (2016), Bayes and big data: the consensus Monte Carlo algorithm. Neiswanger,
#'   Wang and Xing (2014), Asymptotically exact, embarrassingly parallel MCMC. Wang and Dunson (2013),
#'   Parallelizing MCMC via Weierstrass sampler.
#' @export
#' @examples
#' \dontrun{
#' dataset <- list(x = rnorm(10000, mean = 3))
#' logLik <- function(params, dataset) {
#'     tf$reduce_sum(-0.5 * (dataset$x - params$theta)^2)
#' }
#' chain <- divide(logLik, dataset, list(theta = 0), shards = 10, sampler = "hmc", seed = 1)
#' summary(chain)
#' }
divide <- function(logLik, dataset, params, logPrior = NULL, shards = 20, method = "consensus",
                   sampler = NULL, seed = NULL, verbose = TRUE, ...) {
    runSampler("divide", as.list(environment()), ...)
}

#' Exact samplers with a few rows per move
#'
#' `zigzag` is the zig-zag process with control variates at the mode, `mhss` Metropolis-Hastings with
#' scalable subsampling. The posterior is their exact stationary distribution, and the number of
#' rows per move does not grow with the dataset. They need a bound on the
#' second derivatives of the term of each row. `predictorBound` makes one for models of a linear
#' predictor, such as logistic regression. If the bound does not hold, the chain ends with an error.
#'
#' @inheritParams hmc
#' @param curvatureBound Result of [predictorBound()], or a function of the parameters and some rows
#'   of the dataset that returns a named list with an array for each parameter, rows first: the second
#'   derivatives of the term of row j must be c r_j r_j' with c between -1 and 1, r_j the array's row.
#' @param priorBound Named list with a number or an array for each parameter, a diagonal matrix that
#'   bounds the second derivatives of the log prior; `NULL` uses those at the mode, which are right for
#'   normal and flat priors.
#' @param preconditioner Coordinates: `"dense"`, whitened at the mode, or `"diagonal"`, scaled there;
#'   `NULL` is `"dense"`.
#' @param stepsize Time between draws for `zigzag`, stepsize of the random walk for `mhss`, both in
#'   units of posterior standard deviations; `NULL` to choose.
#' @param gamma Tuning constant: larger values use more rows, for a less noisy acceptance ratio.
#' @param columns Named list, or vector, of the column of the dataset that multiplies each parameter;
#'   `NULL` or `NA` for one that is added, such as an intercept.
#' @param most Bound on the second derivative of a term by its predictor: 1/4 for logistic regression.
#' @param ... Further arguments, by name: `thin`, `store`, `testFunctions`, `dtype`, `jitCompile`.
#' @return Draws, see [sgmcmcChains]; of `predictorBound` a bound for `curvatureBound`.
#' @references Bierkens, Fearnhead and Roberts (2019), The zig-zag process and super-efficient sampling for
#'   Bayesian analysis of big data, *Annals of Statistics* 47. Prado, Nemeth and Sherlock (2024),
#'   Metropolis-Hastings with scalable subsampling.
#' @export
#' @examples
#' \dontrun{
#' X <- matrix(rnorm(5000), 1000)
#' y <- rbinom(1000, 1, plogis(X %*% c(1, -1, 0, 0.5, 0)))
#' logLik <- function(params, dataset) {
#'     logits <- tf$linalg$matvec(dataset$X, params$beta)
#'     -tf$reduce_sum(tf$nn$sigmoid_cross_entropy_with_logits(dataset$y, logits))
#' }
#' bound <- predictorBound(list(beta = "X"))
#' chain <- zigzag(logLik, list(X = X, y = y), list(beta = rep(0, 5)), curvatureBound = bound)
#' summary(chain)
#' }
zigzag <- function(logLik, dataset, params, logPrior = NULL, curvatureBound, priorBound = NULL,
                   preconditioner = NULL, stepsize = NULL, ess = 400, nChains = 4, nIters = NULL,
                   burnIn = NULL, maxSeconds = NULL, seed = NULL, verbose = TRUE, ...) {
    runSampler("zigzag", as.list(environment()), ...)
}

#' @rdname zigzag
#' @export
mhss <- function(logLik, dataset, params, logPrior = NULL, curvatureBound, priorBound = NULL,
                 gamma = 0.5, preconditioner = NULL, stepsize = NULL, ess = 400, nChains = 4,
                 nIters = NULL, burnIn = NULL, maxSeconds = NULL, seed = NULL, verbose = TRUE, ...) {
    runSampler("mhss", as.list(environment()), ...)
}

#' @rdname zigzag
#' @export
predictorBound <- function(columns, most = 0.25) {
    columns <- lapply(as.list(columns), function(name) if (is.null(name) || is.na(name)) NULL else name)
    callPython("predictor_bound", columns, most)
}
