# What a sampler brought back, as R users know it: a list with an array for each
# parameter, the draw being the first dimension. Everything else is in attributes.
asChains <- function(parts) {
    if (is.null(parts$draws)) {
        parts$draws <- list()
    }
    # Its old name works until version 1.0.
    parts$unnormalized <- if (is.null(parts$unnormalized)) parts$unnormalised else parts$unnormalized
    parts$unnormalised <- parts$unnormalized
    do.call(structure, c(
        list(parts$draws, class = "sgmcmcChains"),
        parts[setdiff(names(parts)[!vapply(parts, is.null, NA)], "draws")]
    ))
}

#' Draws
#'
#' What the samplers return: a list with an array for each parameter, whose first
#' dimension is the iteration, `(nIters, 1)` for a scalar parameter. With `nChains`
#' there is a dimension for the chains before it.
#'
#' Everything else about a chain is in the attributes of the list; read them with [attr()]:
#'
#' | attribute | what it is |
#' | --- | --- |
#' | `gradients` | with `storeGradients = TRUE`, the gradient estimates at the draws |
#' | `testFunctions` | the values of the test functions at the draws |
#' | `logPost` | a list of `iterations` and `values`: log posterior estimates along the chain |
#' | `settings` | method, tuning constants, numbers of observations, seed, versions |
#' | `mode`, `modeGradient` | for the control variate methods, the mode and the gradient there |
#' | `reductions` | results of running reductions |
#' | `unnormalized` | with `storeUnnormalized = TRUE`, the unnormalized states of [scir()] and [sgrld()] |
#' | `origin` | the sampler in Python, for [report()], [predict()] and [extend()]; not in files |
#'
#' `chain[i, ]` has some of the draws, see [parts]. `print` shows the parts of the list, and the
#' warnings of [report()] if they can be computed in about a second.
#' [summary()][summary.sgmcmcChains] has means, standard deviations and effective sample sizes,
#' [plot()][plot.sgmcmcChains] shows the draws, and [conversions] has the forms of other
#' packages.
#'
#' @param x The draws.
#' @param ... Ignored.
#' @return `x`, invisibly.
#' @name sgmcmcChains
#' @aliases print.sgmcmcChains
#' @export
print.sgmcmcChains <- function(x, ...) {
    settings <- attr(x, "settings")
    chains <- if (is.null(settings$n_chains)) "" else paste0(", ", settings$n_chains, " chains")
    cat("Draws of ", settings$method, chains, "\n", sep = "")
    for (group in c("draws", "gradients", "testFunctions")) {
        arrays <- if (group == "draws") unclass(x) else attr(x, group)
        for (name in names(arrays)) {
            where <- if (group == "draws") "$" else paste0(group, "$")
            cat("  ", where, name, "  ", paste(sizes(arrays[[name]]), collapse = " x "), "\n", sep = "")
        }
    }
    printWarnings(quickWarnings(x))
    invisible(x)
}

#' Open the draws in a store
#'
#' Reads the draws that a sampler with `store = path` has written so far. The chain may still be
#' running.
#'
#' @param path The folder.
#' @return The draws, as from the call that made the store; see [sgmcmcChains].
#' @export
#' @examples
#' \dontrun{
#' chain <- openSamples("folder")
#' }
openSamples <- function(path) {
    asChains(callPython("open", path.expand(path)))
}
