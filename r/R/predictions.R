# Predictions of regressions, by R's own functions and by those of lme4 and rstantools.

#' Predictions of regressions
#'
#' `predict` has the arguments of those of `lm`, `glm` and lme4. `simulate` and
#' `rstantools::posterior_predict()` draw responses, `rstantools::posterior_epred()` and
#' `rstantools::posterior_linpred()` have draws of expected responses and of linear predictors, and
#' `rstantools::log_lik()` those of the log density of each row of the regression, for `loo::loo()`.
#' They use at most 1000 of the draws, evenly spaced.
#'
#' `fitted` are posterior means of the expected response. Residuals are those of `glm`, at `fitted`:
#' `"response"`, the response minus `fitted`; `"pearson"`, `"deviance"` and `"working"` for the families
#' that R has. With [stats::na.exclude()] they have an `NA` for each row that was left out, and so do
#' `predict` and `simulate` of the rows of the regression.
#'
#' @param object Regression, see [sgmcmcGlm()].
#' @param newdata Data frame; `NULL` for the rows of the regression. Effects of new groups are
#'   drawn from their distribution.
#' @param type Type of prediction: `"link"`, the linear predictor; `"response"`, the expected
#'   response, a proportion for binomial responses; `"predictive"`, draws of the response, a row
#'   for each. For residuals see below.
#' @param se.fit Whether to return a list of `fit`, and `se.fit`, posterior standard deviations.
#' @param interval `"confidence"` for columns `lwr` and `upr` with the central interval of what is
#'   predicted; `"prediction"` for that of a new response.
#' @param level Probability of the interval.
#' @param re.form Effects of groups that are used: all for `NULL`; none, as of a group at the mean of all, for `NA` or
#'   `~0`; those of some of the factors for a formula of their bars, such as `~ (1 + x | site)`.
#' @param quantiles Probabilities, for quantiles over draws instead of means, a row for each, named by
#'   the percentage or by their own names.
#' @param seed Integer seed of draws of responses and of effects of new groups; for `simulate`, `NULL` draws one from R's
#'   generator.
#' @param trials Numbers of trials of the rows of `newdata`, for draws of binomial responses; `NULL` for
#'   those of the response, or of the weights of proportions, evaluated in `newdata`.
#' @param nsim Number of simulated responses.
#' @param draws Number of draws; `NULL` for all of them.
#' @param transform Whether to return expected responses.
#' @param ... No further arguments: what a method does not know is an error.
#' @return For `predict` a vector with the names of the rows; with `interval` a matrix, with `se.fit` a list, with `quantiles` a matrix with
#'   a row for each. For families of levels the expected response is a matrix with the probability
#'   of each level. For `simulate` a data frame with a column for each simulation.
#' @name sgmcmcGlm-predictions
#' @examples
#' \dontrun{
#' predict(fit, newdata, type = "response", interval = "confidence")
#' predict(fit, newdata, re.form = NA, se.fit = TRUE)
#' residuals(fit, type = "pearson")
#' rstantools::posterior_predict(fit, newdata, draws = 100)
#' loo::loo(rstantools::log_lik(fit))
#' }
NULL

#' @rdname sgmcmcGlm-predictions
#' @importFrom stats predict
#' @export
predict.sgmcmcGlm <- function(object, newdata = NULL, type = c("link", "response", "predictive"), se.fit = FALSE,
                              interval = c("none", "confidence", "prediction"), level = 0.95, re.form = NULL,
                              quantiles = NULL, seed = 1, trials = NULL, ...) {
    needNoMore("predict() of a regression", ..., instead = c(
        allow.new.levels = "effects of new groups are drawn, or left out by `re.form = NA`",
        re_formula = "write `re.form`", ReForm = "write `re.form`", REform = "write `re.form`",
        random.only = "see ranef()", terms = "there is no type \"terms\"", probs = "write `quantiles`",
        offset = "write it into `formula`, by offset(), and into `newdata`", ndraws = "see posterior_epred()",
        n.trees = "this is a regression", summary = "see posterior_epred()"
    ))
    type <- match.arg(type)
    interval <- match.arg(interval)
    needFlag(se.fit, "se.fit")
    if (!is.null(quantiles)) {
        needProbabilities(quantiles, "quantiles")
    }
    if ((interval != "none" || se.fit) && (!is.null(quantiles) || type == "predictive")) {
        stop("`interval` and `se.fit` are of means, and not of `quantiles` or type \"predictive\"", call. = FALSE)
    }
    ask <- function(kind, statistic, quantiles = NULL) {
        padded(object, newdata, predicted(object, newdata, kind, statistic, quantiles, re.form, seed, trials), statistic)
    }
    if (type == "predictive" || !is.null(quantiles)) {
        found <- ask(type, if (is.null(quantiles)) "draws" else "quantiles", quantiles)
        return(if (is.null(quantiles)) found else namedQuantiles(found, quantiles))
    }
    fit <- ask(type, "mean")
    if (interval != "none") {
        needIntervals(object, type, interval)
        kind <- if (interval == "prediction") "predictive" else type
        ends <- ask(kind, "quantiles", endsOf(level, "level"))
        fit <- cbind(fit = fit, lwr = ends[1, ], upr = ends[2, ])
    }
    if (se.fit) list(fit = fit, se.fit = ask(type, "sd"), residual.scale = scaleOf(object)) else fit
}

needFlag <- function(value, argument) {
    if (!isTRUE(value) && !isFALSE(value)) {
        stop("`", argument, "` must be TRUE or FALSE", call. = FALSE)
    }
}

needIntervals <- function(object, type, interval) {
    if (!is.null(object$levels)) {
        stop("`interval`: responses of family ", object$familyName, " are levels; write `quantiles`", call. = FALSE)
    }
    if (interval == "prediction" && type == "link" && object$link != "identity") {
        stop("`interval`: predictions are of the response: write type = \"response\"", call. = FALSE)
    }
    if (interval == "prediction" && !is.null(object$trials)) {
        stop(
            "`interval`: the response is a proportion, and draws are numbers of successes: write ",
            "type = \"predictive\", quantiles = c(0.025, 0.975)",
            call. = FALSE
        )
    }
}

# What Python predicts of complete rows, as that of all rows, with the names of levels.
predicted <- function(object, newdata, kind, statistic, quantiles = NULL, re.form = NULL, seed = 1, trials = NULL) {
    kept <- factorsKept(object, re.form)
    needTrials <- kind == "predictive"
    of <- if (length(kept) == 0 && !is.null(kept)) withoutGroups(object) else object
    rows <- if (is.null(newdata)) ownRows(object, needTrials) else newRows(of, newdata, trials, needTrials)
    if (!any(rows$complete)) {
        return(ofNoRows(object, length(rows$complete), statistic, length(quantiles)))
    }
    known <- namesInR(object$design, object$bars)
    found <- inNamesOf(known, codeOf(object$formula[[2]]), callPython("glm_predict", inPython(object), rows$sent, list(
        kind = kind, statistic = statistic, quantiles = as.list(unname(quantiles)),
        factors = if (!is.null(kept)) as.list(kept), seed = whole(seed)
    )))
    along <- if (statistic %in% c("mean", "sd")) 1L else 2L
    found <- allRows(found, rows$complete, along)
    if (length(rows$none) > 0) { # rows without trials
        if (along == 1) found[rows$none] <- 0 else found[, rows$none] <- 0
    }
    if (length(dim(found)) == along + 1) {
        names <- rep(list(NULL), along)
        levels <- object$levels[if (kind == "link") -1 else TRUE]
        dimnames(found) <- c(names, list(levels))
    }
    if (length(dim(found)) == 1) as.vector(found) else found
}

# Predictions where each row has missing values.
ofNoRows <- function(object, count, statistic, quantiles) {
    if (!is.null(object$levels) || statistic == "draws") {
        stop("`newdata` has no rows without missing values", call. = FALSE)
    }
    if (statistic == "quantiles") array(NA_real_, c(quantiles, count)) else rep(NA_real_, count)
}

# The factors whose effects a formula of lme4's `re.form` keeps, by their names in Python; NULL
# for all.
factorsKept <- function(object, re.form) {
    if (is.null(re.form)) {
        return(NULL)
    }
    formula <- inherits(re.form, "formula")
    if (!formula && !(length(re.form) == 1 && is.na(re.form))) {
        stop("`re.form` must be NULL, NA, ~0 or a formula of bars, such as ~ (1 | g)", call. = FALSE)
    }
    if (!formula || identical(re.form[[length(re.form)]], 0)) {
        return(character())
    }
    bars <- barsOf(stats::as.formula(call("~", 1, re.form[[length(re.form)]]), environment(re.form)))
    present <- effectsNamed(object$bars$designs)
    by <- unique(vapply(bars, function(bar) nameOf(bar$by), ""))
    unknown <- setdiff(by, names(present))
    if (length(bars) == 0 || length(unknown) > 0) {
        stop(
            "`re.form` must have bars of the formula's own factors",
            if (length(present) > 0) paste0(", ", paste(unique(names(present)), collapse = ", ")),
            call. = FALSE
        )
    }
    wanted <- effectsNamed(effectsOf(bars, object$model, environment(object$formula)))
    for (factor in by) {
        if (!setequal(wanted[names(wanted) == factor], present[names(present) == factor])) {
            stop(
                "`re.form`: effects of a factor are used together: those of ", factor, " are ",
                paste(present[names(present) == factor], collapse = ", "),
                call. = FALSE
            )
        }
    }
    codesOfGroups(length(object$bars$groups))[match(by, names(object$bars$groups))]
}

# The names of effects, by those of their factors.
effectsNamed <- function(designs) {
    found <- lapply(designs, function(one) stats::setNames(one$names, rep(one$by, length(one$names))))
    unlist(unname(found))
}

withoutGroups <- function(object) {
    object$bars <- list(designs = list(), groups = list())
    object
}

# Predictions with the names of rows. Those of the regression's own rows have NA for what na.exclude() left out.
padded <- function(object, newdata, values, statistic) {
    left <- object$na.action
    along <- if (statistic %in% c("mean", "sd")) 1L else 2L
    if (is.null(newdata) && inherits(left, "exclude")) {
        complete <- !seq_len(nrow(object$model) + length(left)) %in% left
        values <- allRows(values, complete, along)
    }
    namedRows(values, namesOfRows(object, newdata), along)
}

# The names of new rows, or of the regression's own with those that na.exclude() left out.
namesOfRows <- function(object, newdata) {
    if (!is.null(newdata)) {
        return(row.names(as.data.frame(newdata, optional = TRUE)))
    }
    left <- object$na.action
    names <- row.names(object$model)
    if (!inherits(left, "exclude")) {
        return(names)
    }
    found <- replace(character(length(names) + length(left)), left, names(left))
    replace(found, -left, names)
}

namedRows <- function(values, names, along) {
    if (length(dim(values)) < 2) {
        return(stats::setNames(as.vector(values), names))
    }
    namedAlong(values, names, along)
}

#' @rdname sgmcmcGlm-predictions
#' @importFrom stats fitted
#' @export
fitted.sgmcmcGlm <- function(object, ...) {
    needNoMore("fitted() of a regression", ...)
    predict.sgmcmcGlm(object, type = "response")
}

#' @rdname sgmcmcGlm-predictions
#' @importFrom stats residuals
#' @export
residuals.sgmcmcGlm <- function(object, type = c("response", "pearson", "deviance", "working"), ...) {
    needNoMore("residuals() of a regression", ...)
    type <- match.arg(type)
    if (!is.null(object$levels)) {
        stop("responses of family ", object$familyName, " are levels, without residuals", call. = FALSE)
    }
    y <- object$y
    mu <- as.numeric(predicted(object, NULL, "response", "mean"))
    found <- if (type == "response") {
        y - mu
    } else {
        family <- familyAt(object, paste0("residuals of type \"", type, "\""))
        weights <- priorWeights(object)
        switch(type,
            pearson = (y - mu) * sqrt(weights / family$variance(mu)),
            deviance = sign(y - mu) * sqrt(pmax(family$dev.resids(y, mu, weights), 0)),
            working = (y - mu) / family$mu.eta(family$linkfun(mu))
        )
    }
    padded(object, NULL, as.numeric(found), "mean")
}

# R's family, for a negative binomial response with the posterior mean of its shape.
familyAt <- function(object, what) {
    if (!inherits(object$family, "family")) {
        stop(what, ": R has no family ", object$familyName, call. = FALSE)
    }
    if (object$familyName != "negative_binomial") {
        return(object$family)
    }
    if (!requireNamespace("MASS", quietly = TRUE)) {
        stop(what, " of negative binomial responses need the package MASS", call. = FALSE)
    }
    MASS::negative.binomial(mean(object$draws[["shape"]]), object$link)
}

# The weights of glm(): numbers of trials count.
priorWeights <- function(object) {
    weights <- if (is.null(object$weights)) rep(1, nrow(object$model)) else object$weights
    proportions <- !is.null(object$trials) && !is.matrix(stats::model.response(object$model))
    if (is.null(object$trials)) weights else if (proportions) object$trials else object$trials * weights
}

#' @rdname sgmcmcGlm-predictions
#' @importFrom stats simulate
#' @export
simulate.sgmcmcGlm <- function(object, nsim = 1, seed = NULL, newdata = NULL, re.form = NULL, trials = NULL, ...) {
    needNoMore("simulate() of a regression", ..., instead = c(use.u = "effects of groups are used; see `re.form`"))
    if (!is.numeric(nsim) || length(nsim) != 1 || is.na(nsim) || nsim < 1 || nsim != round(nsim)) {
        stop("`nsim` must be a positive integer", call. = FALSE)
    }
    seed <- if (is.null(seed)) sample.int(.Machine$integer.max, 1) else seed
    made <- list()
    while (sum(vapply(made, nrow, 1L)) < nsim) {
        again <- if (length(made) == 0) seed else seed %% 1e6 + 1e6 * length(made)
        drawn <- predicted(object, newdata, "predictive", "draws", NULL, re.form, again, trials)
        made <- c(made, list(evenly(drawn, nsim - sum(vapply(made, nrow, 1L)))))
    }
    drawn <- do.call(rbind, made)
    columns <- lapply(seq_len(nsim), function(number) asResponse(object, drawn[number, ], newdata, trials))
    names <- namesOfRows(object, newdata)
    found <- structure(columns, class = "data.frame", names = paste0("sim_", seq_len(nsim)), row.names = seq_len(ncol(drawn)))
    if (length(names) > nrow(found)) {
        order <- seq_along(names)
        found <- found[match(order, order[-object$na.action]), , drop = FALSE]
    }
    structure(found, row.names = names, seed = seed)
}

# At most so many rows of a matrix of draws, evenly spaced.
evenly <- function(draws, count) {
    count <- min(count, dim(draws)[[1]])
    places <- round(seq(1, dim(draws)[[1]], length.out = count))
    atDraws(draws, places, 1)
}

# Drawn numbers in the form of the response.
asResponse <- function(object, drawn, newdata, trials) {
    y <- stats::model.response(object$model)
    if (!is.null(object$levels)) {
        return(factor(drawn, object$levels, ordered = is.ordered(y)))
    }
    if (is.factor(y)) {
        failures <- if (nlevels(y) == 2) levels(y) else c(levels(y)[[1]], paste0("not ", levels(y)[[1]]))
        return(factor(failures[drawn + 1], failures))
    }
    if (is.null(object$trials)) {
        return(if (is.logical(y)) drawn == 1 else drawn)
    }
    trials <- if (is.null(newdata)) object$trials else trialsOf(object, newdata, trials)
    if (!is.matrix(y)) {
        return(drawn / trials)
    }
    base::matrix(c(drawn, trials - drawn), ncol = 2, dimnames = list(NULL, colnames(y)))
}

#' @rdname sgmcmcGlm-predictions
#' @exportS3Method rstantools::posterior_predict
posterior_predict.sgmcmcGlm <- function(object, newdata = NULL, draws = NULL, re.form = NULL, seed = NULL,
                                        trials = NULL, ...) {
    needNoMore("posterior_predict() of a regression", ..., instead = notInDraws)
    drawsOfRows(object, newdata, "predictive", draws, re.form, seed, trials)
}

#' @rdname sgmcmcGlm-predictions
#' @exportS3Method rstantools::posterior_epred
posterior_epred.sgmcmcGlm <- function(object, newdata = NULL, draws = NULL, re.form = NULL, seed = 1, ...) {
    needNoMore("posterior_epred() of a regression", ..., instead = notInDraws)
    drawsOfRows(object, newdata, "response", draws, re.form, seed)
}

#' @rdname sgmcmcGlm-predictions
#' @exportS3Method rstantools::posterior_linpred
posterior_linpred.sgmcmcGlm <- function(object, transform = FALSE, newdata = NULL, draws = NULL, re.form = NULL,
                                        seed = 1, ...) {
    needNoMore("posterior_linpred() of a regression", ..., instead = notInDraws)
    needFlag(transform, "transform")
    drawsOfRows(object, newdata, if (transform) "response" else "link", draws, re.form, seed)
}

notInDraws <- c(
    ndraws = "write `draws`", nsamples = "write `draws`", re_formula = "write `re.form`",
    fun = "apply it to the result", offset = "write it into `newdata`"
)

drawsOfRows <- function(object, newdata, kind, draws, re.form, seed, trials = NULL) {
    seed <- if (is.null(seed)) sample.int(.Machine$integer.max, 1) else seed
    found <- predicted(object, newdata, kind, "draws", NULL, re.form, seed, trials)
    names <- if (is.null(newdata)) row.names(object$model) else namesOfRows(object, newdata)
    found <- namedRows(found, names, 2L)
    if (is.null(draws)) {
        return(found)
    }
    if (!is.numeric(draws) || length(draws) != 1 || is.na(draws) || draws < 1 || draws > dim(found)[[1]]) {
        stop("`draws` must be at most ", dim(found)[[1]], ", the number of draws used for predictions", call. = FALSE)
    }
    evenly(found, draws)
}

#' @rdname sgmcmcGlm-predictions
#' @exportS3Method rstantools::log_lik
log_lik.sgmcmcGlm <- function(object, ...) {
    needNoMore("log_lik() of a regression", ..., instead = c(newdata = "it is of the rows of the regression"))
    if (object$halves) {
        stop("log_lik(): numbers of trials that are not whole have no density of a row", call. = FALSE)
    }
    callPython("glm_terms", inPython(object))
}
