#' Methods for regressions
#'
#' Methods for the results of [sgmcmcGlm()], with the names of lme4. Estimates are posterior
#' means, errors are posterior standard deviations, and intervals are central posterior
#' intervals.
#'
#' `coef` and `fixef` are the coefficients of the fixed terms; `ranef` has a data frame of
#' effects for each factor, with their standard deviations in the attribute `sd`. `VarCorr` has
#' the standard deviations and correlations of effects of groups, one row each. `residuals` are
#' the response minus `fitted`. `vcov` and `confint` are about the fixed terms.
#' `summary(fit, robust = TRUE)` has a column of standard deviations that hold if the model is
#' wrong, by the sandwich of information and scores at the mode, clustered by groups that are
#' integrated out. emmeans has methods for marginal means. `loo` is the leave-one-out cross-validation by Pareto-smoothed importance sampling; of more than 1000
#' rows, 1000 are used.
#'
#' @aliases fixef ranef VarCorr
#' @param object,x Regression, see [sgmcmcGlm()].
#' @param newdata Data frame; `NULL` for the rows of the regression. Effects of new groups are
#'   drawn from their distribution.
#' @param type Type of prediction: `"link"`, the linear predictor; `"response"`, the expected
#'   response, a proportion for binomial responses; `"predictive"`, draws of the response, a row
#'   for each.
#' @param quantiles Probabilities, for quantiles over draws instead of means, a row for each.
#' @param seed Seed of the draws of responses, or of the choice of rows.
#' @param trials Numbers of trials of the rows of `newdata`, for draws of binomial responses; `NULL` for
#'   those of the response, or of the weights of proportions, evaluated in `newdata`.
#' @param parm Names or indices of terms.
#' @param level,prob Probability of the intervals.
#' @param robust Whether to add a column of robust standard deviations.
#' @param digits Number of significant digits.
#' @param sigma,rdig,... Ignored.
#' @return For `summary` a data frame, a row for each term and each standard deviation of effects; for
#'   `as_draws` draws as of the package posterior; for `loo` a list of `elpd` and `se`.
#' @name sgmcmcGlm-methods
#' @examples
#' \dontrun{
#' summary(fit)
#' confint(fit, "wt", level = 0.9)
#' predict(fit, newdata, type = "response", quantiles = c(0.05, 0.95))
#' loo(fit)
#' posterior::summarise_draws(posterior::as_draws(fit))
#' }
NULL

#' @rdname sgmcmcGlm-methods
#' @export
print.sgmcmcGlm <- function(x, digits = 3, ...) {
    cat("Family: ", x$familyName, " (link ", x$link, ")\n", sep = "")
    cat("Formula: ", paste(deparse(x$formula), collapse = " "), "\n", sep = "")
    cat("Rows: ", nobs(x), if (length(x$na.action) > 0) paste0(" (", length(x$na.action), " with missing values left out)"), "\n\n", sep = "")
    table <- as.data.frame(summary(x))
    print(signif(table, digits + 1), digits = digits)
    cat("\nPriors:\n")
    for (name in names(x$priors)) {
        cat("  ", name, " ~ ", x$priors[[name]], "\n", sep = "")
    }
    printWarnings(x$warnings)
    invisible(x)
}

#' @rdname sgmcmcGlm-methods
#' @export
summary.sgmcmcGlm <- function(object, prob = 0.95, robust = FALSE, ...) {
    ends <- c((1 - prob) / 2, (1 + prob) / 2)
    rows <- lapply(object$draws, function(draws) {
        c(mean(draws), stats::sd(draws), stats::quantile(draws, ends, names = FALSE))
    })
    table <- as.data.frame(do.call(rbind, rows))
    names(table) <- c("estimate", "error", paste0(format(100 * ends, trim = TRUE), "%"))
    if (robust) {
        if (object$halves && length(object$bars$groups) == 0) {
            stop("`robust`: numbers of trials that are not whole have no score of a row", call. = FALSE)
        }
        sds <- as.numeric(callPython("glm_robust", inPython(object)))
        table <- cbind(table[1:2], robust = sds, table[-(1:2)])
    }
    judged <- callPython("glm_judged", object$draws)
    table$ess_bulk <- as.numeric(judged$ess_bulk)
    table$rhat <- as.numeric(judged$rhat)
    table
}

# The regression in Python, which files do not have.
inPython <- function(object) {
    if (reticulate::py_is_null_xptr(object$python)) {
        stop(
            "the regression was read from a file, which has draws and no data: coef, vcov, confint, ",
            "summary and as_draws work; for this, make the call again",
            call. = FALSE
        )
    }
    object$python
}

fixedDraws <- function(object) {
    values <- vapply(object$draws[object$fixed], as.numeric, numeric(length(object$draws[[1]])))
    colnames(values) <- names(object$fixed)
    values
}

#' @rdname sgmcmcGlm-methods
#' @importFrom nlme fixef
#' @export fixef
#' @export
fixef.sgmcmcGlm <- function(object, ...) colMeans(fixedDraws(object))

#' @rdname sgmcmcGlm-methods
#' @importFrom stats coef
#' @export
coef.sgmcmcGlm <- function(object, ...) fixef.sgmcmcGlm(object)

#' @rdname sgmcmcGlm-methods
#' @importFrom nlme ranef
#' @export ranef
#' @export
ranef.sgmcmcGlm <- function(object, ...) {
    factors <- needGroups(object)
    known <- namesInR(object$design, object$bars)
    found <- lapply(seq_along(factors), function(number) {
        parts <- callPython("glm_effects", inPython(object), codesOfGroups(length(factors))[[number]])
        places <- order(as.integer(unlist(parts$groups)))
        framed <- function(values) {
            values <- matrix(values, length(parts$groups))[places, , drop = FALSE]
            frame <- as.data.frame(values, row.names = object$bars$groups[[number]]$labels)
            stats::setNames(frame, known[as.character(unlist(parts$terms))])
        }
        structure(framed(parts$estimate), sd = framed(parts$error))
    })
    stats::setNames(found, factors)
}

needGroups <- function(object) {
    factors <- names(object$bars$groups)
    if (length(factors) == 0) {
        stop("the formula has no effects of groups, as (1 | g) is", call. = FALSE)
    }
    factors
}

#' @rdname sgmcmcGlm-methods
#' @importFrom nlme VarCorr
#' @export VarCorr
#' @export
VarCorr.sgmcmcGlm <- function(x, sigma = 1, rdig = 3, ...) {
    needGroups(x)
    summary(x)[x$roles %in% c("sd", "cor"), ]
}

#' @rdname sgmcmcGlm-methods
#' @export
predict.sgmcmcGlm <- function(object, newdata = NULL, type = c("link", "response", "predictive"),
                              quantiles = NULL, seed = 1, trials = NULL, ...) {
    type <- match.arg(type)
    needTrials <- type == "predictive"
    rows <- if (!is.null(newdata)) newRows(object, newdata, trials, needTrials) else ownRows(object, needTrials)
    found <- callPython(
        "glm_predict", inPython(object), rows$sent, type,
        if (!is.null(quantiles)) as.list(quantiles), whole(seed)
    )
    found <- allRows(found, rows$complete, if (is.null(quantiles) && type != "predictive") 1L else 2L)
    if (length(rows$none) > 0) {
        found[, rows$none] <- 0
    }
    if (length(dim(found)) == 1) as.vector(found) else found
}

#' @rdname sgmcmcGlm-methods
#' @importFrom stats fitted
#' @export
fitted.sgmcmcGlm <- function(object, ...) predict.sgmcmcGlm(object, type = "response")

#' @rdname sgmcmcGlm-methods
#' @importFrom stats residuals
#' @export
residuals.sgmcmcGlm <- function(object, ...) {
    if (!is.null(object$levels)) {
        stop("responses of family ", object$familyName, " are levels, without residuals", call. = FALSE)
    }
    object$y - as.numeric(fitted(object))
}

#' @importFrom stats nobs
#' @export
nobs.sgmcmcGlm <- function(object, ...) nrow(object$model)

#' @importFrom stats formula
#' @export
formula.sgmcmcGlm <- function(x, ...) x$formula

#' @importFrom stats family
#' @export
family.sgmcmcGlm <- function(object, ...) object$family

#' @rdname sgmcmcGlm-methods
#' @importFrom stats vcov
#' @export
vcov.sgmcmcGlm <- function(object, ...) stats::cov(fixedDraws(object))

#' @rdname sgmcmcGlm-methods
#' @importFrom stats confint
#' @export
confint.sgmcmcGlm <- function(object, parm, level = 0.95, ...) {
    intervalsOf(fixedDraws(object), parm, level)
}

#' @rdname sgmcmcGlm-methods
#' @export
loo <- function(x, ...) UseMethod("loo")

#' @rdname sgmcmcGlm-methods
#' @export
#' @rawNamespace S3method(loo::loo, sgmcmcGlm)
loo.sgmcmcGlm <- function(x, seed = 1, ...) {
    if (x$halves) {
        stop("loo: numbers of trials that are not whole have no density of a row", call. = FALSE)
    }
    structure(callPython("glm_loo", inPython(x), whole(seed)), class = "sgmcmcLoo")
}

#' @export
print.sgmcmcLoo <- function(x, ...) {
    cat(x$page, "\n", sep = "")
    invisible(x)
}

#' @rdname sgmcmcGlm-methods
#' @exportS3Method posterior::as_draws
as_draws.sgmcmcGlm <- function(x, ...) {
    values <- vapply(x$draws, function(draws) t(draws), matrix(0, ncol(x$draws[[1]]), nrow(x$draws[[1]])))
    dimnames(values) <- list(NULL, NULL, names(x$draws))
    posterior::as_draws_array(values)
}

#' @export
plot.sgmcmcGlm <- function(x, prob = 0.95, ...) {
    terms <- setdiff(names(x$fixed), "(Intercept)")
    ends <- confint.sgmcmcGlm(x, terms, prob)
    places <- rev(seq_along(terms))
    before <- graphics::par(mar = c(4, max(4, 0.6 * max(nchar(terms))), 1, 1))
    on.exit(graphics::par(before))
    graphics::plot(
        coef(x)[terms], places,
        xlim = range(0, ends), yaxt = "n", ylab = "", pch = 19,
        xlab = paste0("coefficient, ", 100 * prob, "% interval"), ...
    )
    graphics::axis(2, places, terms, las = 1)
    graphics::segments(ends[, 1], places, ends[, 2], places)
    graphics::abline(v = 0, col = "grey")
    invisible(x)
}
