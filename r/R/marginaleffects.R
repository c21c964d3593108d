# Methods for marginaleffects: predictions, comparisons and slopes of regressions, over the
# posterior's draws.

#' @exportS3Method marginaleffects::get_predict
get_predict.sgmcmcGlm <- function(model, newdata, type = "response", re.form = NULL, re_formula = re.form, ...) {
    draws <- predicted(model, newdata, match.arg(type, c("response", "link")), "draws", re.form = re_formula)
    rows <- if ("rowid" %in% names(newdata)) newdata$rowid else seq_len(ncol(draws))
    found <- data.frame(rowid = rows)
    if (length(dim(draws)) == 3) {
        levels <- dimnames(draws)[[3]]
        found <- data.frame(rowid = rep(rows, length(levels)), group = rep(levels, each = length(rows)))
    }
    draws <- t(matrix(draws, nrow(draws)))
    found$estimate <- base::rowMeans(draws)
    attr(found, "posterior_draws") <- draws
    found
}

#' @exportS3Method marginaleffects::get_coef
get_coef.sgmcmcGlm <- function(model, ...) fixef.sgmcmcGlm(model)

# Intervals are those of the draws.
#' @exportS3Method marginaleffects::get_vcov
get_vcov.sgmcmcGlm <- function(model, ...) NULL

# marginaleffects asks for the classes that other packages support.
tellMarginaleffects <- function(...) {
    options(marginaleffects_model_classes = union(getOption("marginaleffects_model_classes"), "sgmcmcGlm"))
}

watchForMarginaleffects <- function() {
    if (isNamespaceLoaded("marginaleffects")) {
        tellMarginaleffects()
    }
    setHook(packageEvent("marginaleffects", "onLoad"), tellMarginaleffects)
}
