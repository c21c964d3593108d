#' Functions of parameters and data at all draws
#'
#' `predict` evaluates a function of parameters and data at all draws, compiled and in pieces over rows
#' and draws, so that memory is bounded. What it gives for a row must depend on that row alone; it may
#' draw random numbers by `tf$random`, and then these are draws of the posterior predictive.
#'
#' `pointwiseLogLik` has the terms of the log-likelihood, one for each observation, as the package
#' loo takes them.
#'
#' @param object,chain draws, see [sgmcmcChains].
#' @param f function of `params`, a list of tensors, and `dataset`, some rows of it, that
#'   returns a tensor with an entry, a number or an array, for each row.
#' @param dataset named list of arrays, of which `f` may use any; `NULL` takes the chain's own.
#' @param reduce `"mean"` over all draws of all chains; `"quantiles"`; or `"none"`.
#' @param quantiles which, between 0 and 1.
#' @param logLik the log-likelihood; `NULL` takes the chain's own. Draws from a file have none.
#' @param ... ignored.
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
    reduce <- match.arg(reduce)
    callPython(
        "predict", forPython(object, "object"), guarded(f), if (!is.null(dataset)) columns(dataset),
        if (reduce != "none") reduce, as.list(quantiles)
    )
}

#' @rdname predictions
#' @export
pointwiseLogLik <- function(chain, dataset = NULL, logLik = NULL) {
    callPython("terms", forPython(chain), if (!is.null(dataset)) columns(dataset), guarded(logLik))
}

#' Run chains on
#'
#' The same chains go on from where they ended. The draws are those of one call with as many
#' iterations in all, bit for bit; a search for a mode is not made again.
#'
#' @param chain draws, see [sgmcmcChains], all of them, made in this session. Draws in a store go on by
#'   the same call with a larger `nIters` in any session.
#' @param nIters how many more iterations.
#' @param verbose whether to show progress.
#' @return All draws, old and new; `chain` stays what it is.
#' @export
#' @examples
#' \dontrun{
#' chain <- extend(chain, 10000)
#' }
extend <- function(chain, nIters, verbose = TRUE) {
    needRegular(chain, "chains go on after all")
    asChains(callPython("extend", forPython(chain), nIters, verbose))
}

#' Kernel Stein discrepancy
#'
#' How far draws are from their posterior, judged by the gradients at them, with the inverse
#' multiquadric kernel in whitened coordinates. It shows bias, which effective sample sizes do not.
#'
#' @param chain draws with their gradients, from a sampler with `storeGradients = TRUE`.
#' @param gradients named list of gradients of the log posterior at the draws, in the unconstrained
#'   space; `NULL` takes those that are kept with the draws.
#' @param maxDraws of how many draws of each chain it is taken at most, evenly along the chain.
#' @param ... further arguments by name: `c`, the length scale of the kernel, `beta`, its exponent,
#'   `covariance`, by which draws are whitened, and `bijectors`, for draws from a file.
#' @return A list: `ksd`, the discrepancy, one for each chain; `expected`, what as many independent
#'   draws from the posterior would have; `ratio`, of the two, about 1 for good draws, the root of
#'   their autocorrelation time for right ones that are correlated, and more where there is bias;
#'   `draws`, how many it was taken of.
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

#' Reductions that run along with the chain
#'
#' For the argument `reductions` of a sampler: mean, mean and variance, or mean and standard error, by
#' the means of batches, of a function of the parameters over the draws of a chain, taken inside
#' the compiled chain, so that no draw need be kept.
#'
#' @param f function of the list of parameters that returns a tensor.
#' @param batchSize number of draws of a batch.
#' @return An entry of the list `reductions`. What it comes to is in `attr(chain, "reductions")`.
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

#' Draws in files that Python reads too
#'
#' `writeSamples` writes draws, and everything that came with them, to a file in NumPy's npz format;
#' `readSamples` reads it, and what `samples.save(path)` wrote in Python. For R alone [saveRDS()] does.
#'
#' @param chain draws, see [sgmcmcChains].
#' @param path the file.
#' @return `writeSamples` nothing, `readSamples` the draws.
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
