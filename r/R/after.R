#' Functions of parameters and data at all draws
#'
#' `predict` evaluates a function of parameters and data at all draws, compiled and in pieces
#' over rows and draws, so that memory is bounded. Its value for a row must depend only on that
#' row. It may draw random numbers by `tf$random`; the values are then draws from the posterior
#' predictive distribution.
#'
#' `pointwiseLogLik` returns the terms of the log-likelihood, one for each observation, as the
#' package loo expects them.
#'
#' @param object,chain Draws, see [sgmcmcChains].
#' @param f Function of `params`, a list of tensors, and `dataset`, some rows of it, that
#'   returns a tensor with an entry, a number or an array, for each row.
#' @param dataset Named list of arrays, which `f` may use; `NULL` for the chain's own.
#' @param reduce Reduction: `"mean"` over all draws of all chains, `"quantiles"`, or `"none"`.
#' @param quantiles Probabilities of the quantiles; their names, if they have some, are those of the result.
#' @param logLik Log-likelihood; `NULL` for the chain's own. Draws from a file have none.
#' @param ... No further arguments: what a method does not know is an error.
#' @return For `predict` an array with an entry for each row, `c(N, ...)`; for quantiles
#'   `c(length(quantiles), N, ...)`; without reduction `c(chains, draws, N, ...)`. For
#'   `pointwiseLogLik` an array of draws, chains and observations.
#' @name predictions
#' @examples
#' \dontrun{
#' probability <- function(params, dataset) {
#'     tf$sigmoid(params$bias + (dataset$X %*% params$beta)[, 1])
#' }
#' predict(chain, probability, testset)
#' predict(chain, probability, testset, reduce = "quantiles")
#' loo::loo(pointwiseLogLik(chain[seq(1, 1000, 10), ]))
#' }
NULL

#' @rdname predictions
#' @importFrom stats predict
#' @export
predict.sgmcmcChains <- function(object, f, dataset = NULL, reduce = c("mean", "quantiles", "none"),
                                 quantiles = c(0.05, 0.5, 0.95), ...) {
    needNoMore("predict() of draws", ..., instead = c(newdata = "write `dataset`"))
    needProbabilities(quantiles, "quantiles")
    reduce <- match.arg(reduce)
    known <- attr(object, "known")
    found <- callPython(
        "predict", forPython(object, "object"), guarded(f, factorsIn(known, dataset)),
        if (!is.null(dataset)) columns(dataset, known, new = TRUE),
        if (reduce != "none") reduce, as.list(unname(quantiles))
    )
    if (reduce == "quantiles") namedQuantiles(found, quantiles) else found
}

# An array whose first dimension is that of quantiles.
namedQuantiles <- function(values, quantiles) namedAlong(values, labelsOfQuantiles(quantiles), 1L)

# An array with names along one dimension, and what names it has along others.
namedAlong <- function(values, names, along) {
    labels <- dimnames(values)
    if (is.null(labels)) {
        labels <- vector("list", length(dim(values)))
    }
    labels[[along]] <- names
    dimnames(values) <- labels
    values
}

#' @rdname predictions
#' @export
pointwiseLogLik <- function(chain, dataset = NULL, logLik = NULL) {
    known <- attr(chain, "known")
    callPython(
        "terms", forPython(chain), if (!is.null(dataset)) columns(dataset, known, new = TRUE),
        guarded(logLik, factorsIn(known, dataset))
    )
}

#' Continue chains
#'
#' Continues the same chains from where they ended. The draws are those of one call with as many
#' iterations in all, bit for bit. A search for a mode is not repeated.
#'
#' @param chain Draws, see [sgmcmcChains]: all of them, made in this session. Draws in a store
#'   are continued by the same call with a larger `nIters`, in any session.
#' @param nIters Number of further iterations.
#' @param verbose Whether to show progress.
#' @return All draws, old and new; `chain` is unchanged.
#' @export
#' @examples
#' \dontrun{
#' chain <- extend(chain, 10000)
#' }
extend <- function(chain, nIters, verbose = TRUE) {
    needRegular(chain, "chains go on after all")
    found <- withWarnings(
        callPython("extend", forPython(chain), nIters, verbose), function(found) found$report$warnings
    )
    asChains(c(found, list(labels = attr(chain, "labels"), known = attr(chain, "known"))))
}

#' Kernel Stein discrepancy
#'
#' Measures the distance of draws from their posterior by the gradients at the draws, with the
#' inverse multiquadric kernel in whitened coordinates. It shows bias, which effective sample
#' sizes do not.
#'
#' @param chain Draws with their gradients, from a sampler with `storeGradients = TRUE`.
#' @param gradients Named list of gradients of the log posterior at the draws, in the
#'   unconstrained space; `NULL` for those stored with the draws.
#' @param maxDraws Maximum number of draws of each chain, evenly along the chain.
#' @param ... Further arguments by name: `c`, the length scale of the kernel, `beta`, its
#'   exponent, `covariance`, which whitens the draws, and `bijectors`, for draws from a file.
#' @return A list: `ksd`, the discrepancy, one for each chain; `expected`, that of as many
#'   independent draws from the posterior; `ratio`, their ratio, about 1 for independent draws,
#'   the square root of the autocorrelation time for correlated draws, and larger if there is
#'   bias; `draws`, the number of draws used.
#' @references Gorham and Mackey (2017), Measuring sample quality with kernels, ICML.
#' @export
#' @examples
#' \dontrun{
#' chain <- sgldcv(logLik, dataset, params, 1e-4, 1e-4, storeGradients = TRUE)
#' ksd(chain)$ratio
#' }
ksd <- function(chain, gradients = NULL, maxDraws = 2000, ...) {
    options <- pythonArguments(list(gradients = gradients, maxDraws = maxDraws), list(...))
    callPython("ksd", forPython(chain), options)
}

#' Running reductions
#'
#' For the argument `reductions` of a sampler: mean, mean and variance, or mean and standard
#' error by batch means, of a function of the parameters over the draws of a chain. They are
#' computed inside the compiled chain, so that no draw need be stored.
#'
#' @param f Function of the list of parameters that returns a tensor.
#' @param batchSize Number of draws of a batch.
#' @return An entry of the list `reductions`. The results are in `attr(chain, "reductions")`.
#' @export
#' @examples
#' \dontrun{
#' chain <- sgld(logLik, dataset, params, 1e-4,
#'     storeParams = FALSE, reductions = list(moments = runningMoments(function(params) params$theta))
#' )
#' attr(chain, "reductions")$moments
#' }
runningMean <- function(f) callPython("reduction", "running_mean", guarded(f))

#' @rdname runningMean
#' @export
runningMoments <- function(f) callPython("reduction", "running_moments", guarded(f))

#' @rdname runningMean
#' @export
runningBatchMeans <- function(f, batchSize = 100) {
    callPython("reduction", "running_batch_means", guarded(f), whole(batchSize))
}

#' Files of draws for R and Python
#'
#' `writeSamples` writes draws, and everything that came with them, to a file in NumPy's npz
#' format; `readSamples` reads it, and files that `samples.save(path)` wrote in Python. For R
#' alone [saveRDS()] is enough.
#'
#' @param chain Draws, see [sgmcmcChains].
#' @param path The file.
#' @return `writeSamples` returns nothing, `readSamples` the draws.
#' @export
#' @examples
#' \dontrun{
#' writeSamples(chain, "chain.npz")
#' chain <- readSamples("chain.npz")
#' }
writeSamples <- function(chain, path) {
    invisible(callPython("write", forPython(chain), path.expand(path)))
}

#' @rdname writeSamples
#' @export
readSamples <- function(path) {
    asChains(callPython("read", path.expand(path)))
}
