# What lm, glm and lmer have in a fit, and what a posterior has not.

#' Parts of regressions
#'
#' R's functions for what is in a fit. `sigma` is the posterior mean of the standard deviation of residuals, and 1
#' for families without one. `deviance` is that of `glm` at [fitted()], and `df.residual` the number of rows minus that
#' of parameters, as for `glm`; of regressions with effects of groups `df.residual` counts as lme4 does. `weights` are
#' those of `glm`, with numbers of trials. `model.matrix` is that of the fixed terms. `update` makes the call again with
#' other arguments. `ngrps` of lme4 has the numbers of groups.
#'
#' A posterior has no maximized likelihood: `logLik`, and with it `AIC` and `BIC`, `anova` and `extractAIC`, which `step`
#' and `drop1` call, are refused. Compare regressions by [loo()].
#'
#' @param object,formula,x Regression, see [sgmcmcGlm()].
#' @param type Type: of weights as for `glm`, of which there are the `"prior"` ones; of a model matrix `"fixed"`.
#' @param full Whether to include rows with weight 0.
#' @param ... No further arguments: what a method does not know is an error.
#' @return As for `lm` and `glm`.
#' @name sgmcmcGlm-parts
#' @examples
#' \dontrun{
#' sigma(fit)
#' update(fit, . ~ . + z)
#' head(model.matrix(fit))
#' }
NULL

#' @rdname sgmcmcGlm-parts
#' @importFrom stats sigma
#' @export
sigma.sgmcmcGlm <- function(object, ...) {
    needNoMore("sigma() of a regression", ...)
    if (object$familyName %in% c("ordinal", "categorical", "beta", "weibull", "exponential")) {
        stop(
            "sigma(): family ", object$familyName, " has no standard deviation of residuals; ",
            "summary() has its parameters",
            call. = FALSE
        )
    }
    scaleOf(object)
}

scaleOf <- function(object) {
    switch(object$familyName,
        gaussian = , student = mean(object$draws[["sigma"]]), gamma = mean(1 / sqrt(object$draws[["shape"]])), 1
    )
}

#' @rdname sgmcmcGlm-parts
#' @importFrom stats deviance
#' @export
deviance.sgmcmcGlm <- function(object, ...) {
    needNoMore("deviance() of a regression", ...)
    if (length(object$bars$groups) > 0) {
        stop("deviance() of a regression with effects of groups: ", noLikelihood, call. = FALSE)
    }
    family <- familyAt(object, "deviance()")
    mu <- as.numeric(predicted(object, NULL, "response", "mean"))
    sum(family$dev.resids(object$y, mu, priorWeights(object)))
}

#' @rdname sgmcmcGlm-parts
#' @importFrom stats df.residual
#' @export
df.residual.sgmcmcGlm <- function(object, ...) {
    needNoMore("df.residual() of a regression", ...)
    # As glm() and lmer() count: the latter has the standard deviation of residuals among its parameters.
    ofGroups <- sum(object$roles %in% c("sd", "cor"))
    scale <- ofGroups > 0 && object$familyName %in% c("gaussian", "student", "gamma")
    nobs.sgmcmcGlm(object) - sum(object$roles %in% c("fixed", "cutpoint")) - ofGroups - scale
}

#' @importFrom stats nobs
#' @export
nobs.sgmcmcGlm <- function(object, use.fallback = FALSE, ...) {
    needNoMore("nobs() of a regression", ...)
    sum(priorWeights(object) != 0)
}

#' @rdname sgmcmcGlm-parts
#' @importFrom stats weights
#' @export
weights.sgmcmcGlm <- function(object, type = c("prior", "working"), ...) {
    needNoMore("weights() of a regression", ...)
    if (match.arg(type) == "working") {
        stop("weights(): a posterior has no working weights, only type = \"prior\"", call. = FALSE)
    }
    stats::naresid(object$na.action, stats::setNames(priorWeights(object), row.names(object$model)))
}

#' @importFrom stats formula
#' @export
formula.sgmcmcGlm <- function(x, ...) x$formula

#' @importFrom stats family
#' @export
family.sgmcmcGlm <- function(object, ...) {
    needNoMore("family() of a regression", ...)
    object$family
}

#' @rdname sgmcmcGlm-parts
#' @importFrom stats terms
#' @export
terms.sgmcmcGlm <- function(x, ...) {
    needNoMore("terms() of a regression", ..., instead = c(fixed.only = "they are those of the fixed terms"))
    x$terms
}

#' @rdname sgmcmcGlm-parts
#' @importFrom stats model.frame
#' @export
model.frame.sgmcmcGlm <- function(formula, ...) {
    needNoMore("model.frame() of a regression", ...)
    formula$model
}

#' @rdname sgmcmcGlm-parts
#' @importFrom stats model.matrix
#' @export
model.matrix.sgmcmcGlm <- function(object, type = "fixed", ...) {
    needNoMore("model.matrix() of a regression", ..., instead = c(data = "model.matrix(terms(fit), data)"))
    if (!identical(type, "fixed")) {
        stop("model.matrix(): there is type = \"fixed\" alone", call. = FALSE)
    }
    object$x
}

#' @rdname sgmcmcGlm-parts
#' @importFrom stats variable.names
#' @export
variable.names.sgmcmcGlm <- function(object, ...) {
    needNoMore("variable.names() of a regression", ...)
    colnames(object$x)
}

#' @rdname sgmcmcGlm-parts
#' @importFrom stats case.names
#' @export
case.names.sgmcmcGlm <- function(object, full = FALSE, ...) {
    needNoMore("case.names() of a regression", ...)
    weights <- weights.sgmcmcGlm(object)
    names(weights)[full | weights != 0]
}

#' @rdname sgmcmcGlm-parts
#' @exportS3Method lme4::ngrps
ngrps.sgmcmcGlm <- function(object, ...) {
    needNoMore("ngrps() of a regression", ...)
    vapply(object$bars$groups, function(groups) length(groups$labels), 1L)
}

noLikelihood <- paste(
    "a posterior has no maximized likelihood. Regressions are compared by loo(fit), and",
    "loo::loo_compare(loo(fit), loo(other))"
)

#' @rdname sgmcmcGlm-parts
#' @importFrom stats logLik
#' @export
logLik.sgmcmcGlm <- function(object, ...) stop("logLik(), AIC() and BIC(): ", noLikelihood, call. = FALSE)

#' @rdname sgmcmcGlm-parts
#' @importFrom stats anova
#' @export
anova.sgmcmcGlm <- function(object, ...) {
    stop("anova(): ", noLikelihood, ". emmeans::joint_tests(fit) has tests of terms", call. = FALSE)
}

#' @importFrom stats extractAIC
#' @export
extractAIC.sgmcmcGlm <- function(fit, scale, k = 2, ...) {
    stop("extractAIC(), and step(), add1() and drop1(), which call it: ", noLikelihood, call. = FALSE)
}

# What users of lm() and glm() take out of a fit by `$`, where it is not an entry.
partsOfLm <- list(
    coefficients = function(x) coef.sgmcmcGlm(x), fitted.values = function(x) fitted.sgmcmcGlm(x),
    residuals = function(x) residuals.sgmcmcGlm(x, if (x$familyName == "gaussian") "response" else "working"),
    linear.predictors = function(x) predict.sgmcmcGlm(x), effects = function(x) stop("fit$effects: see ranef()", call. = FALSE),
    df.residual = function(x) df.residual.sgmcmcGlm(x), deviance = function(x) deviance.sgmcmcGlm(x),
    prior.weights = function(x) weights.sgmcmcGlm(x), rank = function(x) ncol(x$x),
    aic = function(x) stop("fit$aic: ", noLikelihood, call. = FALSE)
)

#' @export
`$.sgmcmcGlm` <- function(x, name) {
    found <- unclass(x)[[name, exact = FALSE]]
    part <- pmatch(name, names(partsOfLm))
    if (!is.null(found) || is.na(part) || name %in% names(x)) found else partsOfLm[[part]](x)
}

#' @export
`$.summary.sgmcmcGlm` <- function(x, name) {
    if (name %in% c("coefficients", "coef")) {
        return(coef.summary.sgmcmcGlm(x))
    }
    if (name %in% c("sigma", "r.squared", "adj.r.squared", "fstatistic", "dispersion", "deviance", "aic", "df", "residuals")) {
        stop(
            "summary() of a regression has no `", name, "`: its columns are ", paste(names(x), collapse = ", "),
            "; see sigma(fit), residuals(fit), loo(fit)",
            call. = FALSE
        )
    }
    unclass(x)[[name, exact = FALSE]]
}

#' @rdname sgmcmcGlm-parts
#' @exportS3Method rstantools::prior_summary
prior_summary.sgmcmcGlm <- function(object, ...) {
    needNoMore("prior_summary() of a regression", ...)
    data.frame(prior = vapply(object$priors, identity, ""), row.names = names(object$priors))
}

#' @export
labels.sgmcmcGlm <- function(object, ...) attr(object$terms, "term.labels")
