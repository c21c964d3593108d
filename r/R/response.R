# Families, and responses as R's glm() and polr() take them.

rFamilies <- c("gaussian", "binomial", "poisson", "gamma", "negative_binomial")

# The name of a family in Python, its link, if there is one, and R's object, if there is one.
familyOf <- function(family) {
    if (is.function(family)) {
        family <- tryCatch(family(), error = function(problem) {
            stop("`family`: ", conditionMessage(problem), call. = FALSE)
        })
    }
    if (is.character(family) && length(family) == 1) {
        made <- switch(family,
            gaussian = stats::gaussian(), binomial = stats::binomial(), poisson = stats::poisson(),
            Gamma = , gamma = stats::Gamma("log")
        )
        return(list(name = tolower(family), link = NULL, family = if (is.null(made)) family else made))
    }
    if (!inherits(family, "family")) {
        stop("`family` must be a family, such as binomial(), or the name of one", call. = FALSE)
    }
    name <- if (startsWith(family$family, "Negative Binomial")) "negative_binomial" else tolower(family$family)
    if (!name %in% rFamilies) {
        stop(
            "`family`: ", family$family, " has no posterior here; there are gaussian(), binomial(), ",
            "poisson(), Gamma(\"log\"), MASS::negative.binomial(), and others by name, see ?sgmcmcGlm",
            call. = FALSE
        )
    }
    if (name == "gamma" && family$link != "log") {
        stop("`family`: write Gamma(\"log\"); there is no link ", family$link, call. = FALSE)
    }
    list(name = name, link = family$link, family = family)
}

# A response: `sent`, numbers or the numbers of `levels`, its `trials` and the `weights` of the
# rows in Python; `value`, the response as it is subtracted from, a proportion for binomial
# ones; and `halves`, whether each row is a success and a failure with weights.
responseOf <- function(y, family, weights, name) {
    if (is.null(y)) {
        stop("`formula` must have a response, as in y ~ x", call. = FALSE)
    }
    if (length(dim(y)) == 1 || (is.matrix(y) && ncol(y) == 1)) {
        y <- y[seq_along(y)]
    }
    found <- if (family %in% c("binomial", "bernoulli")) {
        binomialResponse(y, weights, name)
    } else if (family %in% c("ordinal", "categorical")) {
        levelResponse(y, family, name)
    } else {
        list(sent = numbersOfResponse(y, name, family), family = family, weights = weights)
    }
    if (is.null(found$value)) {
        found$value <- found$sent
    }
    found
}

numbersOfResponse <- function(y, name, family) {
    if (is.matrix(y)) {
        stop("`formula`: the response ", name, " is a matrix, which only binomial() takes", call. = FALSE)
    }
    if (!is.numeric(y) && !is.logical(y) && !inherits(y, c("Date", "POSIXct", "difftime"))) {
        stop(
            "`formula`: the response ", name, " of family ", family, " must be numbers; it is ",
            if (is.factor(y)) "a factor" else class(y)[[1]],
            call. = FALSE
        )
    }
    y <- as.numeric(y)
    if (!all(is.finite(y))) {
        stop("`formula`: NA, NaN or Inf in ", name, call. = FALSE)
    }
    y
}

levelResponse <- function(y, family, name) {
    if (is.character(y) && family == "ordinal") {
        stop(
            "`formula`: the response ", name, " is text, which has no order: make it a factor, ",
            "factor(", name, ", levels = c(\"low\", \"high\")), with its levels from low to high",
            call. = FALSE
        )
    }
    if (is.matrix(y) || !(is.factor(y) || is.character(y) || is.numeric(y) || is.logical(y))) {
        stop("`formula`: the response ", name, " of family ", family, " must be a factor", call. = FALSE)
    }
    if (is.numeric(y) && length(unique(y)) > max(20, length(y) %/% 2)) {
        stop(
            "`formula`: the response ", name, " of family ", family, " has ", length(unique(y)),
            " levels in ", length(y), " rows: it looks like a measurement",
            call. = FALSE
        )
    }
    y <- factor(y)
    if (anyNA(y)) {
        stop("`formula`: NA in ", name, call. = FALSE)
    }
    if (nlevels(y) < 2) {
        stop("`formula`: the response ", name, " has one level: it needs two or more", call. = FALSE)
    }
    list(sent = as.integer(y), value = as.character(y), levels = levels(y), family = family)
}

# Successes and failures. Numbers of trials are those of cbind(), or the weights of proportions,
# and may be fractions, as those of glm() may: then a row is a success and a failure with weights.
binomialResponse <- function(y, weights, name) {
    if (is.matrix(y) && ncol(y) == 2) {
        counts <- array(numbersOfResponse(as.vector(y), name, "binomial"), dim(y))
        if (any(counts < 0)) {
            stop("`formula`: the response ", name, " has counts below 0", call. = FALSE)
        }
        return(ofTrials(counts[, 1], rowSums(counts), weights, paste("counts in", name)))
    }
    if (is.character(y)) {
        stop(
            "`formula`: the response ", name, " is text: make it a factor, factor(", name,
            ", levels = c(\"no\", \"yes\")), whose first level is a failure",
            call. = FALSE
        )
    }
    y <- if (is.factor(y)) as.numeric(y != levels(y)[[1]]) else numbersOfResponse(y, name, "binomial")
    if (all(y %in% 0:1)) {
        return(list(sent = y, family = "bernoulli", weights = weights))
    }
    if (any(y < 0 | y > 1)) {
        stop(
            "`formula`: the response ", name, " of family binomial must be between 0 and 1, a factor, or ",
            "cbind(successes, failures); row ", which(y < 0 | y > 1)[[1]], " has ", y[y < 0 | y > 1][[1]],
            call. = FALSE
        )
    }
    trials <- if (is.null(weights)) rep(1, length(y)) else weights
    ofTrials(y * trials, trials, NULL, paste0("numbers of successes ", name, " * weights"), y)
}

ofTrials <- function(successes, trials, weights, what, value = NULL) {
    if (is.null(value)) {
        value <- ifelse(trials > 0, successes / trials, 0)
    }
    none <- trials == 0
    if (any(none)) {
        weights <- ifelse(none, 0, if (is.null(weights)) 1 else weights)
    }
    apart <- function(numbers) abs(numbers - round(numbers)) > 1e-3
    if (!any(apart(successes) | apart(trials))) {
        return(list(
            sent = round(successes), trials = round(trials), family = "binomial", weights = weights,
            value = value
        ))
    }
    warning("the ", what, " are not whole: each row counts as fractions of a success and of a failure", call. = FALSE)
    each <- if (is.null(weights)) 1 else weights
    list(
        sent = rep(c(1, 0), each = length(value)), weights = c(each * successes, each * (trials - successes)),
        family = "bernoulli", trials = trials, value = value, halves = TRUE
    )
}
