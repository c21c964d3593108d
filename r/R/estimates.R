#' Estimates from draws
#'
#' R's functions for fitted models, of draws: `coef` and `mean` are posterior means by
#' component, `vcov` is the posterior covariance, `confint` and `quantile` have intervals and
#' quantiles of the draws of all chains, `nobs` is the number of observations. [summary()][summary.sgmcmcChains]
#' has effective sample sizes and R-hat too. `fitted` and `residuals` need a function of the
#' parameters: [predict()][predict.sgmcmcChains].
#'
#' @param object,x Draws, see [sgmcmcChains].
#' @param parm Names or numbers of components; all if it is missing.
#' @param level Probability of the central interval.
#' @param probs Probabilities.
#' @param type,names,na.rm,complete As for R's own functions; draws have no missing values.
#' @param ... No further arguments: what a method does not know is an error.
#' @return For `coef` and `mean` a named vector, for `vcov` a matrix, for `confint` and `quantile` a
#'   matrix with a row for each component, for `nobs` a number.
#' @name estimates
#' @examples
#' \dontrun{
#' chain <- sgmcmcSample(logLik, dataset, list(beta = c(age = 0, bmi = 0)))
#' coef(chain)
#' confint(chain, "beta[age]")
#' }
NULL

#' @rdname estimates
#' @export
coef.sgmcmcChains <- function(object, ...) {
    needNoMore("coef() of draws", ...)
    base::colMeans(as.matrix(object))
}

#' @rdname estimates
#' @export
mean.sgmcmcChains <- function(x, na.rm = FALSE, ...) {
    needNoMore("mean() of draws", ...)
    coef.sgmcmcChains(x)
}

#' @rdname estimates
#' @export
vcov.sgmcmcChains <- function(object, complete = TRUE, ...) {
    needNoMore("vcov() of draws", ...)
    stats::cov(as.matrix(object))
}

#' @rdname estimates
#' @export
confint.sgmcmcChains <- function(object, parm, level = 0.95, ...) {
    needNoMore("confint() of draws", ...)
    intervalsOf(as.matrix(object), parm, level)
}

# Central intervals of draws, a row for each column.
intervalsOf <- function(draws, parm, level) {
    ends <- endsOf(level, "level")
    if (!missing(parm)) {
        unknown <- setdiff(parm, if (is.character(parm)) colnames(draws) else c(seq_len(ncol(draws)), -seq_len(ncol(draws))))
        if (length(unknown) > 0 && !is.logical(parm)) {
            stop("`parm`: no ", unknown[[1]], "; there are ", paste(colnames(draws), collapse = ", "), call. = FALSE)
        }
        draws <- draws[, parm, drop = FALSE]
    }
    t(apply(draws, 2, stats::quantile, ends))
}

# The probabilities below and above which a central interval leaves as much.
endsOf <- function(level, argument) {
    if (!is.numeric(level) || length(level) != 1 || is.na(level) || level <= 0 || level >= 1) {
        stop("`", argument, "` must be a number between 0 and 1, such as 0.95", call. = FALSE)
    }
    c((1 - level) / 2, (1 + level) / 2)
}

# The labels of quantiles: their own names, or percentages.
labelsOfQuantiles <- function(probs) {
    percent <- names(stats::quantile(0, probs))
    own <- names(probs)
    if (is.null(own)) percent else ifelse(nzchar(own), own, percent)
}

needProbabilities <- function(probs, argument) {
    if (!is.numeric(probs) || length(probs) == 0 || anyNA(probs) || any(probs < 0 | probs > 1)) {
        stop("`", argument, "` must be probabilities, numbers from 0 to 1", call. = FALSE)
    }
}

#' @rdname estimates
#' @export
quantile.sgmcmcChains <- function(x, probs = seq(0, 1, 0.25), na.rm = FALSE, names = TRUE, type = 7, ...) {
    needNoMore("quantile() of draws", ...)
    needProbabilities(probs, "probs")
    draws <- as.matrix(x)
    found <- vapply(
        seq_len(ncol(draws)), function(k) stats::quantile(draws[, k], probs, type = type),
        numeric(length(probs))
    )
    labels <- list(colnames(draws), labelsOfQuantiles(probs))
    matrix(found, ncol(draws), byrow = TRUE, dimnames = if (names) labels)
}

#' @importFrom stats median
#' @export
median.sgmcmcChains <- function(x, na.rm = FALSE, ...) {
    needNoMore("median() of draws", ...)
    apply(as.matrix(x), 2, stats::median)
}

#' @rdname estimates
#' @export
nobs.sgmcmcChains <- function(object, ...) {
    needNoMore("nobs() of draws", ...)
    attr(object, "settings")$N
}

#' @export
fitted.sgmcmcChains <- function(object, ...) needsFunction("fitted values are")

#' @export
residuals.sgmcmcChains <- function(object, ...) needsFunction("residuals are")

needsFunction <- function(what) {
    stop(
        what, " those of a function of parameters and data, which draws do not know: ",
        "predict(chain, f), see ?predictions",
        call. = FALSE
    )
}
