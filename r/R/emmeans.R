# Methods for emmeans: marginal means and contrasts of regressions, over the posterior's draws.

#' @exportS3Method emmeans::recover_data
recover_data.sgmcmcGlm <- function(object, ...) {
    emmeans::recover_data(object$call, stats::delete.response(object$terms), NULL, frame = object$model, ...)
}

#' @exportS3Method emmeans::emm_basis
emm_basis.sgmcmcGlm <- function(object, trms, xlev, grid, ...) {
    if (!is.null(object$levels)) {
        stop("emmeans: responses of family ", object$familyName, " are levels", call. = FALSE)
    }
    frame <- stats::model.frame(trms, grid, na.action = stats::na.pass, xlev = xlev)
    draws <- fixedDraws(object)
    attr(draws, "n.chains") <- nrow(object$draws[[1]])
    list(
        X = model.matrix(trms, frame, contrasts.arg = object$contrasts),
        bhat = base::colMeans(draws), nbasis = matrix(NA), V = stats::cov(draws),
        dffun = function(k, dfargs) Inf, dfargs = list(), misc = emmeansLink(object), post.beta = draws
    )
}

# How emmeans undoes the link.
emmeansLink <- function(object) {
    if (object$link %in% c("identity", "")) {
        return(list())
    }
    link <- stats::make.link(object$link)
    list(tran = link, inv.lbl = if (object$link == "log") "rate" else "prob")
}
