# Draws as R's own functions, and those of other packages, take them.

# How many dimensions come before those of the parameter: draws, or chains and draws.
leading <- function(x) if (is.null(attr(x, "settings")$n_chains)) 1 else 2

sizes <- function(values) if (is.null(dim(values))) length(values) else dim(values)

drawsOf <- function(x) {
    counts <- unique(vapply(unclass(x), function(values) sizes(values)[[leading(x)]], 1L))
    if (length(counts) == 0) {
        functions <- attr(x, "testFunctions")
        return(if (length(functions) == 0) 0L else sizes(functions[[1]])[[leading(x)]])
    }
    if (length(counts) > 1) {
        stop("the parameters have different numbers of draws; take draws by `chain[i, ]`", call. = FALSE)
    }
    counts
}

chainsOf <- function(x) {
    if (leading(x) == 1 || length(x) == 0) {
        return(1L)
    }
    sizes(unclass(x)[[1]])[[1]]
}

# The names of the components of a parameter, such as beta[1,2], the first index running
# fastest, as in the package posterior and in R's arrays; beta[age] if the starting values had
# names, unless these are not wanted.
labelsOf <- function(x, name, own = TRUE) {
    shape <- sizes(unclass(x)[[name]])[-seq_len(leading(x))]
    if (name %in% attr(x, "scalars") || length(shape) == 0) {
        return(name)
    }
    given <- if (own) attr(x, "labels")[[name]]
    places <- do.call(expand.grid, lapply(seq_along(shape), function(axis) {
        if (is.null(given[[axis]])) seq_len(shape[[axis]]) else given[[axis]]
    }))
    paste0(name, "[", do.call(paste, c(places, sep = ",")), "]")
}

allLabels <- function(x, own = TRUE) {
    unlist(lapply(names(x), function(name) labelsOf(x, name, own)))
}

# The names that the entries of starting values have, along each dimension, by parameter.
givenNames <- function(params) {
    if (is.list(params) && is.null(names(params)) && length(params) > 0) {
        params <- params[[1]] # a start for each chain
    }
    if (!is.list(params)) {
        return(NULL)
    }
    found <- lapply(params, function(values) {
        if (is.null(dim(values))) list(names(values)) else dimnames(values)
    })
    found <- found[vapply(found, function(each) !all(vapply(each, is.null, NA)), NA)]
    if (length(found) > 0) found
}

#' Draws in other forms
#'
#' `as.array` returns an array of iterations, chains and components, in the order and with the
#' names of the packages posterior and bayesplot: `theta`, `beta[1,2]`, or `beta[age]` if the
#' starting values have names, as in `params = list(beta = c(age = 0, bmi = 0))`. `as.matrix` and
#' `as.data.frame` have a row for each draw, the chains one below the other; the last columns of
#' the data frame are `.chain`, `.iteration` and `.draw`.
#'
#' If the packages are installed, there are methods for `coda::as.mcmc()`, of a single chain,
#' `coda::as.mcmc.list()`, and `posterior::as_draws()` with all of its forms, such as
#' `posterior::as_draws_df()`. The functions of bayesplot accept `as.array(chain)`, those of loo
#' `pointwiseLogLik(chain)`.
#'
#' @param x Draws, see [sgmcmcChains].
#' @param row.names,optional,stringsAsFactors As for every [as.data.frame()].
#' @param ... No further arguments: what a method does not know is an error.
#' @return An array, a matrix, a data frame, or an object of the other package.
#' @name conversions
#' @examples
#' \dontrun{
#' chain <- sgld(logLik, dataset, params, 1e-4, nChains = 4)
#' bayesplot::mcmc_trace(as.array(chain))
#' posterior::summarise_draws(posterior::as_draws(chain))
#' coda::effectiveSize(coda::as.mcmc.list(chain))
#' }
NULL

#' @rdname conversions
#' @export
as.array.sgmcmcChains <- function(x, ...) {
    needNoMore("as.array() of draws", ...)
    if (length(x) == 0) {
        stop("there are no draws of parameters", call. = FALSE)
    }
    n <- drawsOf(x)
    chains <- chainsOf(x)
    several <- leading(x) == 2
    blocks <- lapply(unclass(x), function(values) {
        if (several) {
            values <- aperm(values, c(2, 1, seq_along(dim(values))[-(1:2)]))
        }
        matrix(values, n * chains)
    })
    array(
        do.call(cbind, unname(blocks)), c(n, chains, length(allLabels(x))),
        dimnames = list(iteration = NULL, chain = paste0("chain:", seq_len(chains)), parameter = allLabels(x))
    )
}

#' @rdname conversions
#' @export
as.matrix.sgmcmcChains <- function(x, ...) {
    needNoMore("as.matrix() of draws", ...)
    values <- as.array(x)
    matrix(values, ncol = dim(values)[[3]], dimnames = list(NULL, dimnames(values)[[3]]))
}

#' @rdname conversions
#' @export
as.data.frame.sgmcmcChains <- function(x, row.names = NULL, optional = FALSE, ..., stringsAsFactors = FALSE) {
    needNoMore("as.data.frame() of draws", ...)
    values <- as.matrix(x)
    n <- drawsOf(x)
    frame <- as.data.frame(values, row.names = row.names, optional = optional)
    frame$.chain <- rep(seq_len(chainsOf(x)), each = n)
    frame$.iteration <- rep(seq_len(n), chainsOf(x))
    frame$.draw <- seq_len(nrow(values))
    frame
}

#' @rdname conversions
#' @exportS3Method coda::as.mcmc
as.mcmc.sgmcmcChains <- function(x, ...) {
    needNoMore("as.mcmc() of draws", ...)
    if (chainsOf(x) > 1) {
        stop("there are ", chainsOf(x), " chains: use as.mcmc.list()", call. = FALSE)
    }
    as.mcmc.list.sgmcmcChains(x)[[1]]
}

#' @rdname conversions
#' @exportS3Method coda::as.mcmc.list
as.mcmc.list.sgmcmcChains <- function(x, ...) {
    needNoMore("as.mcmc.list() of draws", ...)
    values <- as.array(x)
    numbers <- iterationsOf(x)
    coda::mcmc.list(lapply(seq_len(dim(values)[[2]]), function(chain) {
        draws <- matrix(
            values[, chain, ],
            ncol = dim(values)[[3]], dimnames = list(NULL, dimnames(values)[[3]])
        )
        coda::mcmc(draws, start = numbers[[1]], thin = numbers[[2]])
    }))
}

# The iteration of the first draw, and how many there are from draw to draw.
iterationsOf <- function(x) {
    settings <- attr(x, "settings")
    if (isTRUE(attr(x, "irregular")) || is.null(settings$burn_in) || is.null(settings$thin)) {
        return(c(1, 1))
    }
    place <- if (is.null(settings$slice)) c(1, NA, 1) else unlist(settings$slice)
    c(settings$burn_in + settings$thin * place[[1]], settings$thin * place[[3]])
}

#' @rdname conversions
#' @exportS3Method posterior::as_draws
as_draws.sgmcmcChains <- function(x, ...) {
    needNoMore("as_draws() of draws", ...)
    posterior::as_draws_array(forPosterior(x))
}

#' @rdname conversions
#' @exportS3Method posterior::as_draws_array
as_draws_array.sgmcmcChains <- function(x, ...) as_draws.sgmcmcChains(x, ...)

forPosterior <- function(x) {
    values <- as.array(x)
    dimnames(values) <- list(NULL, NULL, dimnames(values)[[3]])
    values
}

#' Parts of draws
#'
#' `chain[i, ]` has the draws i, counted from 1, of all chains, with everything that is stored
#' with each draw, such as gradients and test functions. `chain[, "theta"]`, or `chain["theta"]`
#' as for any list, has all draws of some parameters, and `chain[i, "theta"]` some draws of some
#' parameters. The result is like that of a sampler, but without report and reductions, which
#' are about all draws.
#'
#' @param x Draws, see [sgmcmcChains].
#' @param i Indices of draws, or `TRUE` and `FALSE` for each; a single index selects parameters.
#' @param j Names or indices of parameters.
#' @return Draws.
#' @name parts
#' @examples
#' \dontrun{
#' later <- chain[-(1:1000), ]
#' every10th <- chain[seq(10, 10000, 10), "theta"]
#' }
#' @export
`[.sgmcmcChains` <- function(x, i, j) {
    if (nargs() < 3) {
        return(if (missing(i)) x else ofParameters(x, i))
    }
    if (!missing(j)) {
        x <- ofParameters(x, j)
    }
    if (missing(i)) x else ofDraws(x, i)
}

ofParameters <- function(x, chosen) {
    if (is.character(chosen) && !all(chosen %in% names(x))) {
        stop(
            "no draws of `", setdiff(chosen, names(x))[[1]], "`; there are those of ",
            paste(names(x), collapse = ", "),
            call. = FALSE
        )
    }
    parts <- attributes(x)
    draws <- unclass(x)
    attributes(draws) <- list(names = names(x))
    chosen <- names(draws[chosen])
    if (anyNA(chosen)) {
        stop("there are ", length(x), " parameters", call. = FALSE)
    }
    for (group in intersect(c("gradients", "mode", "modeGradient", "unnormalized"), names(parts))) {
        parts[[group]] <- parts[[group]][intersect(chosen, names(parts[[group]]))]
    }
    parts$scalars <- intersect(chosen, unlist(parts$scalars))
    asChains(c(list(draws = draws[chosen]), parts[setdiff(names(parts), c("names", "class"))]))
}

ofDraws <- function(x, chosen) {
    n <- drawsOf(x)
    kept <- seq_len(n)[chosen]
    if (anyNA(kept) || length(kept) == 0) {
        stop("each chain has draws 1 to ", n, if (length(kept) == 0) "; none is chosen", call. = FALSE)
    }
    parts <- attributes(x)
    draws <- unclass(x)
    attributes(draws) <- list(names = names(x))
    taken <- function(group) lapply(group, atDraws, kept, leading(x))
    for (group in intersect(c("gradients", "testFunctions", "unnormalized"), names(parts))) {
        parts[[group]] <- taken(parts[[group]])
    }
    asChains(c(
        list(draws = taken(draws)), whichDraws(parts, kept, n),
        parts[setdiff(names(parts), c("names", "class", "settings", "report", "reductions", "irregular"))]
    ))
}

# The settings of some of the draws, and whether they are no longer evenly spaced.
whichDraws <- function(parts, kept, n) {
    settings <- parts$settings
    place <- if (is.null(settings$slice)) c(1, n, 1) else unlist(settings$slice)
    steps <- unique(diff(kept))
    irregular <- isTRUE(parts$irregular) || length(steps) > 1 || any(steps < 1)
    numbers <- place[[1]] + (kept - 1) * place[[3]]
    by <- if (length(steps) == 1) steps * place[[3]] else 1
    settings$slice <- as.integer(
        if (irregular) c(1, length(kept), 1) else c(numbers[[1]], numbers[[length(numbers)]], by)
    )
    list(settings = settings, irregular = if (irregular) TRUE)
}

atDraws <- function(values, kept, axis) {
    if (is.null(dim(values))) {
        return(values[kept])
    }
    index <- rep(list(TRUE), length(dim(values)))
    index[[axis]] <- kept
    do.call(`[`, c(list(values), index, list(drop = FALSE)))
}
