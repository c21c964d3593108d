# Methods for regressions, about their parameters.

#' Methods for regressions
#'
#' Methods for the results of [sgmcmcGlm()], with the names of R's own functions and of lme4. Estimates are posterior
#' means, errors are posterior standard deviations, and intervals are central posterior
#' intervals. [Predictions][sgmcmcGlm-predictions], with residuals, and [parts][sgmcmcGlm-parts] of regressions have pages of their own.
#'
#' `fixef` has the coefficients of the fixed terms, and so has `coef` of a regression without effects of groups. `ranef` has a
#' data frame of effects for each factor, in the order of its levels, with their standard deviations in the attribute `sd`; with
#' effects `coef` has such data frames of the sums of coefficients and effects, as in lme4. `VarCorr` has the standard deviations
#' and correlations of effects, one row each; `VarCorr(fit)$g` is the covariance matrix of the effects of the factor `g`, and
#' `as.data.frame(VarCorr(fit))` has lme4's rows. `vcov` and `confint` are about the fixed terms.
#' `summary(fit, robust = TRUE)` has a column of standard deviations that hold if the model is
#' wrong, by the sandwich of information and scores at the mode, clustered by groups that are
#' integrated out. `coef(summary(fit))` is the table of the fixed terms.
#'
#' emmeans has methods for marginal means, and marginaleffects for predictions, comparisons and slopes. `loo` is the
#' leave-one-out cross-validation by Pareto-smoothed importance sampling; of more than 1000
#' rows, 1000 are used. Where all rows are used and have no weights, the result is one that `loo::loo_compare()` takes.
#' Of everything but a regression, `loo` is that of the package loo.
#'
#' All draws of all parameters are in `as.matrix`, `as.data.frame` and `as.array`, in the forms of the
#' package posterior, and in `coda::as.mcmc()`, of a single chain, and `coda::as.mcmc.list()`.
#'
#' @aliases fixef ranef VarCorr
#' @param object,x Regression, see [sgmcmcGlm()].
#' @param parm,pars Names or indices of terms.
#' @param level,prob Probability of the intervals.
#' @param robust Whether to add a column of robust standard deviations.
#' @param digits Number of significant digits.
#' @param seed Seed of the choice of rows.
#' @param sigma 1, as in lme4.
#' @param complete,row.names,optional,stringsAsFactors As for R's own methods.
#' @param order Order of rows, as in lme4: variances before covariances, or those of the lower triangle.
#' @param ... For `print` further arguments of [print.data.frame()], for `plot` those of [graphics::plot.default()]; for
#'   others no further arguments: what a method does not know is an error.
#' @return For `summary` a data frame, a row for each term and each standard deviation of effects; for
#'   `as_draws` draws as of the package posterior; for `loo` a list of `elpd` and `se`, and the `estimates`, `pointwise` and
#'   `diagnostics` of the package loo.
#' @name sgmcmcGlm-methods
#' @examples
#' \dontrun{
#' summary(fit)
#' confint(fit, "wt", level = 0.9)
#' loo(fit)
#' posterior::summarise_draws(posterior::as_draws(fit))
#' }
NULL

#' @rdname sgmcmcGlm-methods
#' @export
print.sgmcmcGlm <- function(x, digits = 3, ...) {
    cat("Family: ", x$familyName, " (link ", x$link, ")\n", sep = "")
    cat("Formula: ", paste(deparse(x$formula), collapse = " "), "\n", sep = "")
    left <- length(x$na.action)
    cat(
        "Rows: ", nrow(x$model), if (left > 0) paste0(" (", left, " with missing values left out)"), "\n\n",
        sep = ""
    )
    table <- as.data.frame(summary(x))
    print(signif(table, digits + 1), digits = digits, ...)
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
    needNoMore("summary() of a regression", ..., instead = c(digits = "print(summary(fit), digits = 3)"))
    ends <- endsOf(prob, "prob")
    needFlag(robust, "robust")
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
    structure(table, class = c("summary.sgmcmcGlm", "data.frame"), fixed = object$fixed)
}

#' @export
coef.summary.sgmcmcGlm <- function(object, ...) {
    needNoMore("coef() of a summary", ...)
    fixed <- attr(object, "fixed")
    table <- as.matrix(as.data.frame(object)[fixed, , drop = FALSE])
    rownames(table) <- names(fixed)
    table
}

# The regression in Python, which files do not have.
inPython <- function(object) {
    if (reticulate::py_is_null_xptr(object$python)) {
        stop(
            "the regression was read from a file, which has draws and no data: fixef, vcov, confint, ",
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
fixef.sgmcmcGlm <- function(object, ...) {
    needNoMore("fixef() of a regression", ...)
    base::colMeans(fixedDraws(object))
}

#' @rdname sgmcmcGlm-methods
#' @importFrom stats coef
#' @export
coef.sgmcmcGlm <- function(object, complete = TRUE, ...) {
    needNoMore("coef() of a regression", ...)
    fixed <- base::colMeans(fixedDraws(object))
    if (length(object$bars$groups) > 0) coefficientsOf(fixed, unclass(ranef.sgmcmcGlm(object))) else fixed
}

#' @rdname sgmcmcGlm-methods
#' @importFrom nlme ranef
#' @export ranef
#' @export
ranef.sgmcmcGlm <- function(object, ...) {
    needNoMore("ranef() of a regression", ..., instead = c(
        condVar = "standard deviations are in the attribute `sd`", postVar = "standard deviations are in the attribute `sd`"
    ))
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
    structure(found, names = factors, class = "ranef.sgmcmcGlm")
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
VarCorr.sgmcmcGlm <- function(x, sigma = 1, ...) {
    needNoMore("VarCorr() of a regression", ...)
    needGroups(x)
    if (!identical(as.numeric(sigma), 1)) {
        stop("`sigma` must be 1: standard deviations are in units of the linear predictor", call. = FALSE)
    }
    table <- summary(x)[x$roles %in% c("sd", "cor"), ]
    scale <- if (x$familyName %in% c("gaussian", "student", "gamma")) scaleOf(x)
    structure(table, class = c("VarCorr.sgmcmcGlm", "data.frame"), matrices = covariancesOf(x, table), sc = scale)
}

#' @rdname sgmcmcGlm-methods
#' @importFrom stats vcov
#' @export
vcov.sgmcmcGlm <- function(object, complete = TRUE, ...) {
    needNoMore("vcov() of a regression", ..., instead = c(correlation = "cov2cor(vcov(fit))"))
    stats::cov(fixedDraws(object))
}

#' @rdname sgmcmcGlm-methods
#' @importFrom stats confint
#' @export
confint.sgmcmcGlm <- function(object, parm, level = 0.95, ...) {
    needNoMore("confint() of a regression", ..., instead = c(method = "intervals are central ones of the posterior"))
    intervalsOf(fixedDraws(object), parm, level)
}

#' @rdname sgmcmcGlm-methods
#' @export
loo <- function(x, ...) UseMethod("loo")

#' @export
loo.default <- function(x, ...) {
    if (!requireNamespace("loo", quietly = TRUE)) {
        stop("loo() of what is no regression is that of the package loo, which is not installed", call. = FALSE)
    }
    loo::loo(x, ...)
}

#' @rdname sgmcmcGlm-methods
#' @export
#' @rawNamespace S3method(loo::loo, sgmcmcGlm)
loo.sgmcmcGlm <- function(x, seed = 1, ...) {
    needNoMore("loo() of a regression", ..., instead = c(
        cores = "it uses those of TensorFlow", k_threshold = "see loo::loo(rstantools::log_lik(fit))",
        save_psis = "see loo::loo(rstantools::log_lik(fit))"
    ))
    if (x$halves) {
        stop("loo: numbers of trials that are not whole have no density of a row", call. = FALSE)
    }
    found <- callPython("glm_loo", inPython(x), whole(seed))
    rows <- found[c("terms", "k")]
    found <- found[c("elpd", "se", "page")]
    if (length(rows$terms) < nrow(x$model) || !is.null(x$weights)) {
        return(structure(found, class = "sgmcmcLoo"))
    }
    density <- callPython("glm_terms", inPython(x))
    most <- apply(density, 2, max)
    inSample <- most + log(base::colMeans(exp(sweep(density, 2, most))))
    each <- cbind(
        elpd_loo = rows$terms, mcse_elpd_loo = NA, p_loo = inSample - rows$terms, looic = -2 * rows$terms,
        influence_pareto_k = rows$k
    )
    summed <- each[, c("elpd_loo", "p_loo", "looic")]
    found$estimates <- cbind(Estimate = base::colSums(summed), SE = sqrt(nrow(each) * apply(summed, 2, stats::var)))
    found$pointwise <- each
    found$diagnostics <- list(pareto_k = rows$k)
    structure(found, class = c("sgmcmcLoo", "psis_loo", "importance_sampling_loo", "loo"), dims = dim(density))
}

#' @export
print.sgmcmcLoo <- function(x, ...) {
    cat(x$page, "\n", sep = "")
    invisible(x)
}

#' @rdname sgmcmcGlm-methods
#' @export
as.array.sgmcmcGlm <- function(x, ...) {
    needNoMore("as.array() of a regression", ...)
    shape <- dim(x$draws[[1]])
    array(
        vapply(x$draws, t, matrix(0, shape[[2]], shape[[1]])), c(shape[[2]], shape[[1]], length(x$draws)),
        dimnames = list(
            iteration = NULL, chain = paste0("chain:", seq_len(shape[[1]])), parameter = names(x$draws)
        )
    )
}

#' @rdname sgmcmcGlm-methods
#' @export
as.matrix.sgmcmcGlm <- function(x, ...) {
    needNoMore("as.matrix() of a regression", ..., instead = c(pars = "as.matrix(fit)[, pars]"))
    values <- as.array(x)
    matrix(values, ncol = dim(values)[[3]], dimnames = list(NULL, dimnames(values)[[3]]))
}

#' @rdname sgmcmcGlm-methods
#' @export
as.data.frame.sgmcmcGlm <- function(x, row.names = NULL, optional = FALSE, ..., stringsAsFactors = FALSE) {
    needNoMore("as.data.frame() of a regression", ...)
    as.data.frame(as.matrix(x), row.names = row.names, optional = optional)
}

#' @rdname sgmcmcGlm-methods
#' @exportS3Method coda::as.mcmc
as.mcmc.sgmcmcGlm <- function(x, ...) {
    needNoMore("as.mcmc() of a regression", ...)
    if (nrow(x$draws[[1]]) > 1) {
        stop("there are ", nrow(x$draws[[1]]), " chains: use as.mcmc.list()", call. = FALSE)
    }
    as.mcmc.list.sgmcmcGlm(x)[[1]]
}

#' @rdname sgmcmcGlm-methods
#' @exportS3Method coda::as.mcmc.list
as.mcmc.list.sgmcmcGlm <- function(x, ...) {
    needNoMore("as.mcmc.list() of a regression", ...)
    values <- as.array(x)
    numbers <- iterationsOf(x$chain)
    coda::mcmc.list(lapply(seq_len(dim(values)[[2]]), function(chain) {
        draws <- matrix(values[, chain, ], ncol = dim(values)[[3]], dimnames = list(NULL, dimnames(values)[[3]]))
        coda::mcmc(draws, start = numbers[[1]], thin = numbers[[2]])
    }))
}

#' @rdname sgmcmcGlm-methods
#' @exportS3Method posterior::as_draws
as_draws.sgmcmcGlm <- function(x, ...) {
    needNoMore("as_draws() of a regression", ...)
    values <- as.array(x)
    dimnames(values) <- list(NULL, NULL, dimnames(values)[[3]])
    posterior::as_draws_array(values)
}

#' @rdname sgmcmcGlm-methods
#' @exportS3Method rstantools::posterior_interval
posterior_interval.sgmcmcGlm <- function(object, prob = 0.9, pars = NULL, ...) {
    needNoMore("posterior_interval() of a regression", ...)
    if (is.null(pars)) intervalsOf(as.matrix(object), level = prob) else intervalsOf(as.matrix(object), pars, prob)
}

#' @export
plot.sgmcmcGlm <- function(x, prob = 0.95, ...) {
    terms <- setdiff(names(x$fixed), "(Intercept)")
    ends <- confint.sgmcmcGlm(x, terms, prob)
    places <- rev(seq_along(terms))
    before <- graphics::par(mar = c(4, max(4, 0.6 * max(nchar(terms))), 1, 1))
    on.exit(graphics::par(before))
    graphics::plot(
        fixef.sgmcmcGlm(x)[terms], places,
        xlim = range(0, ends), yaxt = "n", ylab = "", pch = 19,
        xlab = paste0("coefficient, ", 100 * prob, "% interval"), ...
    )
    graphics::axis(2, places, terms, las = 1)
    graphics::segments(ends[, 1], places, ends[, 2], places)
    graphics::abline(v = 0, col = "grey")
    invisible(x)
}
