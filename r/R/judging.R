# How good draws are.

# Draws in the form that the Python half takes.
forPython <- function(chain, argument = "chain") {
    if (!inherits(chain, "sgmcmcChains")) {
        stop("`", argument, "` must be what a sampler returned", call. = FALSE)
    }
    parts <- attributes(chain)[c(
        "settings", "gradients", "testFunctions", "unnormalized", "mode", "modeGradient", "logPost"
    )]
    parts$draws <- unclass(chain)
    attributes(parts$draws) <- list(names = names(chain))
    parts$scalars <- as.list(attr(chain, "scalars"))
    parts$settings$slice <- as.list(parts$settings$slice)
    if (length(parts$settings$slice) == 0) {
        parts$settings["slice"] <- list(NULL)
    }
    parts$origin <- originOf(chain)
    parts[!vapply(parts, is.null, NA)]
}

# The sampler in Python; none where the draws come from a file.
originOf <- function(chain) {
    origin <- attr(chain, "origin")
    if (is.null(origin) || reticulate::py_is_null_xptr(origin)) NULL else origin
}

needRegular <- function(chain, what) {
    if (isTRUE(attr(chain, "irregular"))) {
        stop("`chain`: ", what, " of draws that are evenly spaced along the chain only", call. = FALSE)
    }
}

#' Report on draws
#'
#' The report has the chosen constants; the error of the standard deviations, predicted from
#' curvature and gradient noise, which are measured at the draws; the distances of center and
#' mean from the mode; effective sample sizes and R-hat; and reasons not to trust the draws. It
#' is made at the first call, which may take a while.
#'
#' @param chain Draws, see [sgmcmcChains], or a regression, see [sgmcmcGlm()].
#' @param x Report.
#' @param ... Ignored.
#' @return A list of facts by topic, which prints as a page, with `warnings`, sentences that
#'   each give a reason not to trust the draws. `NULL` if the draws cannot be judged: draws from
#'   a file, or fewer than four.
#' @seealso [summary.sgmcmcChains()]
#' @export
#' @examples
#' \dontrun{
#' chain <- sgmcmcSample(logLik, dataset, params, logPrior)
#' report(chain)
#' report(chain)$warnings
#' }
report <- function(chain) {
    if (inherits(chain, "sgmcmcGlm")) {
        return(reportOfFit(chain))
    }
    parts <- forPython(chain)
    needRegular(chain, "a report is")
    found <- attr(chain, "report")
    if (is.null(found)) {
        found <- callPython("report", parts)
    }
    asReport(found)
}

# The same with the names of the formula.
reportOfFit <- function(fit) {
    known <- namesInR(fit$design, fit$bars)
    fixed <- names(fit$roles)[fit$roles == "fixed"]
    words <- function(text) {
        for (place in seq_along(fixed)) {
            text <- gsub(paste0("b[", place, "]"), fixed[[place]], text, fixed = TRUE)
        }
        translated(text, known, codeOf(fit$formula[[2]]))
    }
    found <- report(fit$chain)
    attr(found, "page") <- words(attr(found, "page"))
    found$warnings <- words(as.character(unlist(found$warnings)))
    found
}

asReport <- function(found) {
    if (is.null(found)) {
        return(NULL)
    }
    structure(
        found$facts,
        class = "sgmcmcReport",
        page = inWordsOfR(found$page)
    )
}

#' @rdname report
#' @export
print.sgmcmcReport <- function(x, ...) {
    cat(attr(x, "page"), "\n", sep = "")
    invisible(x)
}

#' @export
`$.sgmcmcReport` <- function(x, name) {
    if (name == "warnings") inWordsOfR(as.character(unlist(unclass(x)$warnings))) else unclass(x)[[name]]
}

# Warnings about draws, if they can be computed in about a second.
quickWarnings <- function(chain) {
    if (isTRUE(attr(chain, "irregular")) || length(chain) == 0) {
        return(character())
    }
    known <- attr(chain, "report")
    found <- if (!is.null(known)) {
        known$warnings
    } else if (!is.null(originOf(chain))) {
        callPython("quick_warnings", forPython(chain))
    }
    inWordsOfR(as.character(unlist(found)))
}

#' Summarize draws
#'
#' Means, standard deviations, quantiles, Monte Carlo standard errors, bulk and tail effective
#' sample sizes and R-hat, as the packages posterior and ArviZ define them. They measure how
#' well the *chain's* stationary distribution is known, not how far that is from the posterior.
#' For the latter see [report()], whose warnings are printed below the table.
#'
#' @param object,x Draws, see [sgmcmcChains]; a summary.
#' @param parameters Names of the parameters to show; `NULL` shows all.
#' @param quantiles Probabilities of the quantiles to show; their names, if they have some, are those of
#'   the columns.
#' @param digits Number of significant digits.
#' @param ... For `print`, further arguments of [print.data.frame()].
#' @return A data frame, a row for each component, with the attribute `warnings`.
#' @references Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021), Rank-normalization, folding,
#'   and localization, *Bayesian Analysis* 16.
#' @export
#' @examples
#' \dontrun{
#' summary(chain)
#' summary(chain, "theta")["theta[1]", "mean"]
#' }
summary.sgmcmcChains <- function(object, parameters = NULL, quantiles = c(0.05, 0.5, 0.95), ...) {
    needNoMore("summary() of draws", ...)
    needProbabilities(quantiles, "quantiles")
    if (!is.null(parameters)) {
        object <- ofParameters(object, parameters)
    }
    found <- callPython("summary", withoutOrigin(object), NULL, as.list(unname(quantiles)))
    table <- as.data.frame(found$columns, optional = TRUE)
    own <- nzchar(names(quantiles))
    names(table)[match(sprintf("q%g", 100 * quantiles), names(table))[own]] <- names(quantiles)[own]
    row.names(table) <- positionsFrom1(found$labels)
    table <- table[allLabels(object, own = FALSE), , drop = FALSE]
    row.names(table) <- allLabels(object)
    structure(
        table,
        class = c("summary.sgmcmcChains", "data.frame"), warnings = quickWarnings(object)
    )
}

withoutOrigin <- function(chain) {
    parts <- forPython(chain)
    parts[setdiff(names(parts), "origin")]
}

#' @rdname summary.sgmcmcChains
#' @export
print.summary.sgmcmcChains <- function(x, digits = 3, ...) {
    table <- x
    class(table) <- "data.frame"
    print(signif(table, digits + 1), digits = digits, ...)
    printWarnings(attr(x, "warnings"))
    invisible(x)
}

printWarnings <- function(warnings) {
    for (warning in warnings) {
        cat(strwrap(warning, initial = "  ! ", prefix = "    "), sep = "\n")
    }
}

#' Plot draws
#'
#' For each component, plots the draws along the chain and their density, with chains in
#' different colors.
#'
#' @param x Draws, see [sgmcmcChains].
#' @param parameters Names of parameters, or of components such as `"beta[1,2]"`; `NULL` for the
#'   first 20 components.
#' @param perPage Number of components per page; `NULL` is 4, and on a bitmap, such as that of
#'   `png()`, as many as it has room for. Further pages of `png("x.png")` replace the first one;
#'   `png("x%02d.png")` keeps all of them.
#' @param ask Whether to wait before a new page.
#' @param ... Further arguments of [graphics::matplot()] for the draws.
#' @return `x`, invisibly.
#' @export
#' @examples
#' \dontrun{
#' plot(chain)
#' plot(chain, "theta")
#' }
plot.sgmcmcChains <- function(x, parameters = NULL, perPage = NULL, ask = NULL, ...) {
    values <- as.array(x)
    labels <- chosenLabels(x, parameters)
    rows <- min(if (is.null(perPage)) rowsOfPage() else perPage, length(labels))
    if (is.null(ask)) {
        ask <- length(labels) > rows && grDevices::dev.interactive()
    }
    before <- graphics::par(mfrow = c(rows, 2), mar = c(2.5, 2.5, 2, 1), ask = ask)
    on.exit(graphics::par(before))
    for (label in labels) {
        plotComponent(matrix(values[, , label], ncol = dim(values)[[2]]), iterationsOf(x), label, ...)
    }
    invisible(x)
}

# How many components a page has. A bitmap is one page: as many as its height has room for.
rowsOfPage <- function() {
    if (!names(grDevices::dev.cur()) %in% c("png", "jpeg", "bmp", "tiff")) {
        return(4)
    }
    max(4, floor(grDevices::dev.size("in")[[2]] / 0.9))
}

plotComponent <- function(draws, numbers, label, ...) {
    colors <- seq_len(ncol(draws))
    iterations <- numbers[[1]] + numbers[[2]] * (seq_len(nrow(draws)) - 1)
    usual <- list(type = "l", lty = 1, col = colors, main = label, xlab = "", ylab = "")
    do.call(graphics::matplot, utils::modifyList(c(list(iterations, draws), usual), list(...)))
    densities <- apply(draws, 2, stats::density, simplify = FALSE)
    x <- vapply(densities, function(density) density$x, numeric(512))
    y <- vapply(densities, function(density) density$y, numeric(512))
    graphics::matplot(x, y, type = "l", lty = 1, col = colors, main = label, xlab = "", ylab = "")
}

chosenLabels <- function(x, parameters, most = 20) {
    labels <- allLabels(x)
    if (is.null(parameters)) {
        if (length(labels) > most) {
            message(most, " of ", length(labels), " components are plotted; `parameters` chooses others.")
        }
        return(labels[seq_len(min(most, length(labels)))])
    }
    unlist(lapply(parameters, function(name) {
        if (name %in% labels) {
            name
        } else {
            unlist(lapply(names(ofParameters(x, name)), labelsOf, x = x))
        }
    }))
}
