# Effects of groups in the forms of lme4.

# A covariance matrix for each bar, with standard deviations and correlations, as lme4 calls and orders them: factors of
# more groups first, several bars of a factor g as g and g.1. Estimates of the table are those of their entries.
covariancesOf <- function(object, table) {
    designs <- object$bars$designs
    counts <- vapply(designs, function(one) length(object$bars$groups[[one$by]]$labels), 1L)
    if (any(diff(counts) > 0)) {
        designs <- designs[rev(order(counts))]
    }
    at <- function(role, by, names) table[paste0(role, "(", by, ": ", paste(names, collapse = ", "), ")"), "estimate"]
    found <- lapply(designs, function(one) {
        sds <- vapply(one$names, function(name) at("sd", one$by, name), 0)
        correlation <- base::diag(length(sds))
        dimnames(correlation) <- list(one$names, one$names)
        for (i in seq_along(sds)) {
            for (j in seq_len(i - 1)) {
                correlation[i, j] <- correlation[j, i] <- at("cor", one$by, one$names[c(j, i)])
            }
        }
        structure(correlation * outer(sds, sds), stddev = sds, correlation = correlation)
    })
    stats::setNames(found, make.unique(vapply(designs, function(one) one$by, "")))
}

# Coefficients of each group: those of the fixed terms, 0 where there is none, and its effects.
coefficientsOf <- function(fixed, effects) {
    others <- setdiff(unlist(lapply(effects, names)), names(fixed))
    fixed <- c(stats::setNames(numeric(length(others)), others), fixed)
    lapply(effects, function(each) {
        table <- base::matrix(fixed, nrow(each), length(fixed), TRUE, list(row.names(each), names(fixed)))
        table[, names(each)] <- table[, names(each)] + as.matrix(each)
        as.data.frame(table)
    })
}

#' @export
`$.VarCorr.sgmcmcGlm` <- function(x, name) x[[name]]

#' @export
`[[.VarCorr.sgmcmcGlm` <- function(x, i, ...) {
    matrices <- attr(x, "matrices")
    if (is.character(i) && length(i) == 1 && ...length() == 0 && i %in% names(matrices)) matrices[[i]] else NextMethod()
}

#' @rdname sgmcmcGlm-methods
#' @export
as.data.frame.VarCorr.sgmcmcGlm <- function(x, row.names = NULL, optional = FALSE, order = c("cov.last", "lower.tri"),
                                            ...) {
    matrices <- attr(x, "matrices")
    if (is.null(matrices)) { # some of the rows
        return(NextMethod())
    }
    needNoMore("as.data.frame() of standard deviations", ...)
    order <- match.arg(order)
    found <- Map(function(matrix, name) {
        places <- which(lower.tri(matrix, diag = TRUE), arr.ind = TRUE)
        if (order == "cov.last") {
            places <- places[base::order(places[, 1] != places[, 2]), , drop = FALSE]
        }
        single <- places[, 1] == places[, 2]
        terms <- rownames(matrix)
        data.frame(
            grp = name, var1 = terms[places[, 2]], var2 = ifelse(single, NA, terms[places[, 1]]), vcov = matrix[places],
            sdcor = ifelse(single, attr(matrix, "stddev")[places[, 1]], attr(matrix, "correlation")[places])
        )
    }, matrices, names(matrices))
    scale <- attr(x, "sc")
    if (!is.null(scale)) {
        found <- c(found, list(data.frame(grp = "Residual", var1 = NA, var2 = NA, vcov = scale^2, sdcor = scale)))
    }
    found <- do.call(rbind, unname(found))
    row.names(found) <- row.names
    found
}

#' @export
print.ranef.sgmcmcGlm <- function(x, ...) {
    print(lapply(unclass(x), function(table) structure(table, sd = NULL)), ...)
    invisible(x)
}

#' @rdname sgmcmcGlm-methods
#' @export
as.data.frame.ranef.sgmcmcGlm <- function(x, row.names = NULL, optional = FALSE, ...) {
    needNoMore("as.data.frame() of effects", ...)
    found <- Map(function(table, name) {
        groups <- row.names(table)
        data.frame(
            grpvar = name, term = factor(rep(names(table), each = length(groups)), names(table)),
            grp = factor(rep(groups, length(table)), groups), condval = unlist(table, use.names = FALSE),
            condsd = unlist(attr(table, "sd"), use.names = FALSE)
        )
    }, unclass(x), names(x))
    found <- do.call(rbind, unname(found))
    row.names(found) <- row.names
    found
}
