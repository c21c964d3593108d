# What a sampler brought back, as R users know it: a list with an array for each
# parameter, the draw being the first dimension. Everything else is in attributes.
asChains <- function(parts) {
    if (is.null(parts$draws)) {
        parts$draws <- list()
    }
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
#' Everything else about a chain is in the attributes of the list, to be read with
#' [attr()]:
#'
#' | attribute | what it is |
#' | --- | --- |
#' | `gradients` | with `storeGradients = TRUE`, the gradient estimates at the draws |
#' | `testFunctions` | the values of the test functions at the draws |
#' | `logPost` | a list of `iterations` and `values`: log posterior estimates along the chain |
#' | `settings` | method, tuning constants, numbers of observations, seed, versions |
#' | `mode`, `modeGradient` | for the control variate methods, the mode and the gradient there |
#' | `reductions` | what running reductions have come to |
#' | `unnormalised` | with `storeUnnormalised = TRUE`, the unnormalised states of [scir()] and [sgrld()] |
#'
#' @param x the draws.
#' @param ... ignored.
#' @return `x`, invisibly.
#' @name sgmcmcChains
#' @aliases print.sgmcmcChains
#' @export
print.sgmcmcChains <- function(x, ...) {
    cat("Draws of ", attr(x, "settings")$method, "\n", sep = "")
    for (group in c("draws", "gradients", "testFunctions")) {
        arrays <- if (group == "draws") unclass(x) else attr(x, group)
        for (name in names(arrays)) {
            where <- if (group == "draws") "$" else paste0(group, "$")
            shape <- dim(arrays[[name]])
            if (is.null(shape)) {
                shape <- length(arrays[[name]])
            }
            cat("  ", where, name, "  ", paste(shape, collapse = " x "), "\n", sep = "")
        }
    }
    invisible(x)
}

#' Open the draws in a store
#'
#' Reads what a sampler with `store = path` has written so far. The chain may still be
#' running.
#'
#' @param path the folder.
#' @return The draws, as from the call that made the store; see [sgmcmcChains].
#' @export
#' @examples
#' \dontrun{
#' chain <- openSamples("folder")
#' }
openSamples <- function(path) {
    asChains(callPython("open", path.expand(path)))
}
