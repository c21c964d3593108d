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
#' @param ... Ignored.
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
coef.sgmcmcChains <- function(object, ...) base::colMeans(as.matrix(object))

#' @rdname estimates
#' @export
mean.sgmcmcChains <- function(x, ...) coef.sgmcmcChains(x)

#' @rdname estimates
#' @export
vcov.sgmcmcChains <- function(object, ...) stats::cov(as.matrix(object))

#' @rdname estimates
#' @export
confint.sgmcmcChains <- function(object, parm, level = 0.95, ...) {
    intervalsOf(as.matrix(object), parm, level)
}

# Central intervals of draws, a row for each column.
intervalsOf <- function(draws, parm, level) {
    if (!missing(parm)) {
        unknown <- setdiff(if (is.character(parm)) parm, colnames(draws))
        if (length(unknown) > 0) {
            stop("`parm`: no ", unknown[[1]], "; there are ", paste(colnames(draws), collapse = ", "), call. = FALSE)
        }
        draws <- draws[, parm, drop = FALSE]
    }
    t(apply(draws, 2, stats::quantile, c((1 - level) / 2, (1 + level) / 2)))
}

#' @rdname estimates
#' @export
quantile.sgmcmcChains <- function(x, probs = seq(0, 1, 0.25), ...) {
    draws <- as.matrix(x)
    found <- vapply(seq_len(ncol(draws)), function(k) stats::quantile(draws[, k], probs), numeric(length(probs)))
    matrix(
        found, ncol(draws),
        byrow = TRUE, dimnames = list(colnames(draws), names(stats::quantile(0, probs)))
    )
}

#' @importFrom stats median
#' @export
median.sgmcmcChains <- function(x, na.rm = FALSE, ...) apply(as.matrix(x), 2, stats::median)

#' @rdname estimates
#' @export
nobs.sgmcmcChains <- function(object, ...) attr(object, "settings")$N

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
