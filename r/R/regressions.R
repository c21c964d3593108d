#' Regressions in one line
#'
#' Samples the posterior of a generalized linear model, or of one with effects of groups, by
#' [sgmcmcSample()], without constants. The formula is R's, with R's contrasts, `offset()`, `I()` and
#' functions such as `poly()`; effects of groups are written as in lme4: `(1 + x | g)`, `(x || g)`,
#' `(1 | a/b)`.
#'
#' [stats::model.matrix()] makes the design; coefficients are those of its columns. The default
#' priors are wide, and scaled by the data; `print` shows them. Effects of one factor
#' are integrated out by quadrature; those of others are coordinates of the chain.
#'
#' @param formula Formula. The response is a number, for `binomial()` also a logical, a factor,
#'   whose first level is a failure, a matrix `cbind(successes, failures)`, or a proportion with
#'   `weights` for the numbers of trials, as in [stats::glm()].
#' @param data Data frame.
#' @param family One of R's families: `gaussian()`, `binomial()` with link `"logit"`, `"probit"` or
#'   `"cloglog"`, `poisson()`, `Gamma("log")`, `MASS::negative.binomial()`, whose shape is
#'   estimated in any case; or the name of a family: in addition to these `"student"`, `"beta"`,
#'   `"negative_binomial"`, `"exponential"`, `"weibull"`, `"zero_inflated_poisson"`, `"ordinal"`
#'   and `"categorical"`.
#' @param priors Named list by term: `c(mean, sd)` of a normal for a coefficient, the rate of an
#'   exponential for `"sigma"`, `"shape"`, `"phi"`, `"nu"`, and `"sd"`, of effects of groups. That of
#'   `"(Intercept)"` is for the intercept at the means of all columns.
#' @param weights Weight of each row's log-likelihood, evaluated in `data`; of proportions, the
#'   numbers of trials.
#' @param na.action Function for missing values, such as [stats::na.omit()] or
#'   [stats::na.fail()]. `print` has the number of rows that were left out.
#' @param seed Integer seed; `NULL` draws one from R's generator.
#' @param verbose Whether to show progress.
#' @param ... For `sgmcmcGlm`, further arguments of [sgmcmcSample()], such as `ess`, `nChains` and
#'   `maxSeconds`; for others ignored.
#' @return An object of class `sgmcmcGlm`. Its methods, in addition to those of this page, are
#'   `formula`, `nobs`, `family`, `fixef`, `plot`; `chain` is its entry with the draws of the
#'   chain, for [report()].
#' @references Gelman, Hill and Vehtari (2020), *Regression and Other Stories*, section 9.5, for
#'   default priors. Pinheiro and Bates (1995), Approximations to the log-likelihood function in the
#'   nonlinear mixed-effects model, *Journal of Computational and Graphical Statistics* 4.
#' @seealso [sgmcmcGlm-methods]
#' @importFrom stats model.frame model.matrix model.response model.offset terms
#' @export
#' @examples
#' \dontrun{
#' fit <- sgmcmcGlm(am ~ wt + factor(gear), mtcars, family = binomial(), seed = 1)
#' fit
#' coef(fit)
#' predict(fit, data.frame(wt = 3, gear = 4), type = "response")
#' fit <- sgmcmcGlm(weight ~ Time + (1 + Time | Chick), ChickWeight, family = gaussian())
#' VarCorr(fit)
#' ranef(fit)$Chick
#' }
sgmcmcGlm <- function(formula, data, family = stats::binomial(), priors = NULL, weights = NULL,
                      na.action = stats::na.omit, seed = NULL, verbose = TRUE, ...) {
    if (!inherits(formula, "formula") || length(formula) != 3) {
        stop("`formula` must be a formula with a response, such as y ~ x", call. = FALSE)
    }
    if (!is.data.frame(data)) {
        stop("`data` must be a data frame", call. = FALSE)
    }
    weights <- eval(substitute(weights), data, parent.frame())
    if (!is.null(weights) && (!is.numeric(weights) || length(weights) != nrow(data))) {
        stop("`weights` must be a number for each row of `data`", call. = FALSE)
    }
    chosen <- familyOf(family)
    bars <- barsOf(formula)
    fixed <- withoutBars(formula)
    groups <- unique(unlist(lapply(bars, function(bar) all.vars(bar$by))))
    fixed <- stats::formula(terms(fixed, data = data[setdiff(names(data), groups)]))
    environment(fixed) <- environment(formula)
    whole <- Reduce(function(left, bar) plus(left, bar), bars, fixed)
    left <- attr(model.frame(whole, data, na.action = na.action), "na.action")
    if (length(left) > 0) {
        data <- data[-left, , drop = FALSE]
        weights <- weights[-left]
    }
    frame <- model.frame(fixed, data, drop.unused.levels = TRUE)
    design <- c(list(fixed = designOf(frame)), lapply(bars, designOfBar, data, environment(formula)))
    response <- responseOf(model.response(frame), chosen$family, weights)
    columns <- c(response$columns, columnsOf(design, data, frame))
    known <- namesOf(design)
    keywords <- pythonArguments(
        list(seed = seed, verbose = verbose),
        c(list(priors = priorsOf(priors, known), weights = response$weights), list(...))
    )
    found <- inNamesOf(known, callPython(
        "glm", textOf(design, response, "offset_" %in% names(columns)), columns,
        response$levels, response$family, chosen$link, keywords[!vapply(keywords, is.null, NA)]
    ), deparse(formula[[2]]))
    names(found$draws) <- termsInR(names(found$draws), known)
    names(found$priors) <- termsInR(names(found$priors), known)
    structure(
        list(
            call = match.call(), formula = formula, family = family, familyName = response$family,
            link = found$link, draws = found$draws, priors = found$priors, design = design,
            response = response$value, frame = frame, dropped = length(left),
            levels = response$levels, warnings = termsInR(as.character(unlist(found$warnings)), known),
            chain = asChains(found$chain), python = found$fit
        ),
        class = "sgmcmcGlm"
    )
}

# The name of a family in Python, and its link, if there is one.
familyOf <- function(family) {
    if (is.function(family)) {
        family <- family()
    }
    if (is.character(family) && length(family) == 1) {
        return(list(family = if (family == "Gamma") "gamma" else family, link = NULL))
    }
    if (!inherits(family, "family")) {
        stop("`family` must be a family, such as binomial(), or the name of one", call. = FALSE)
    }
    name <- if (startsWith(family$family, "Negative Binomial")) "negative_binomial" else tolower(family$family)
    if (!name %in% c("gaussian", "binomial", "poisson", "gamma", "negative_binomial")) {
        stop(
            "`family`: ", family$family, " has no posterior here; there are gaussian(), binomial(), ",
            "poisson(), Gamma(\"log\"), MASS::negative.binomial(), and others by name, see ?sgmcmcGlm",
            call. = FALSE
        )
    }
    if (name == "gamma" && family$link != "log") {
        stop("`family`: write Gamma(\"log\"); there is no link ", family$link, call. = FALSE)
    }
    list(family = name, link = family$link)
}

isBar <- function(term) is.call(term) && as.character(term[[1]])[[1]] %in% c("|", "||")

# The bars of a formula: the terms left of each, the factor right of it, and whether the
# effects are correlated. (1 | a/b) is (1 | a) + (1 | a:b).
barsOf <- function(formula) {
    found <- list()
    look <- function(term) {
        if (is.call(term) && identical(term[[1]], quote(`(`)) && isBar(term[[2]])) {
            term <- term[[2]]
        }
        if (isBar(term)) {
            correlated <- identical(term[[1]], quote(`|`))
            for (by in factorsOf(term[[3]])) {
                found[[length(found) + 1]] <<- list(terms = term[[2]], by = by, correlated = correlated)
            }
        } else if (is.call(term)) {
            lapply(as.list(term)[-1], look)
        }
    }
    look(formula[[3]])
    found
}

factorsOf <- function(by) {
    if (is.call(by) && identical(by[[1]], quote(`(`))) {
        return(factorsOf(by[[2]]))
    }
    if (!is.call(by) || !identical(by[[1]], quote(`/`))) {
        return(list(by))
    }
    outer <- factorsOf(by[[2]])
    c(outer, list(call(":", outer[[length(outer)]], by[[3]])))
}

# A formula without its bars, which must be added to the other terms.
withoutBars <- function(formula) {
    drop <- function(term) {
        if (isBar(term) || (is.call(term) && identical(term[[1]], quote(`(`)) && isBar(term[[2]]))) {
            return(NULL)
        }
        if (is.call(term) && identical(term[[1]], quote(`+`)) && length(term) == 3) {
            left <- drop(term[[2]])
            right <- drop(term[[3]])
            if (is.null(left)) return(right)
            return(if (is.null(right)) left else call("+", left, right))
        }
        if (is.call(term) && as.character(term[[1]])[[1]] == "-" && length(term) == 3) {
            left <- drop(term[[2]])
            return(as.call(c(quote(`-`), left, term[[3]])))
        }
        if (any(c("|", "||") %in% all.names(term)) && length(barsOf(call("~", 1, term))) > 0) {
            stop("`formula`: bars must be added to the other terms, as in y ~ x + (1 | g)", call. = FALSE)
        }
        term
    }
    rest <- drop(formula[[3]])
    formula[[3]] <- if (is.null(rest)) 1 else rest
    formula
}

# A formula with the variables of a bar, to find the rows with missing values.
plus <- function(formula, bar) {
    formula[[3]] <- call("+", call("+", formula[[3]], bar$terms), bar$by)
    formula
}

# A factor with one level is refused by name.
needLevels <- function(columns) {
    single <- vapply(columns, function(values) {
        (is.factor(values) || is.character(values)) && length(unique(values)) < 2
    }, NA)
    if (any(single)) {
        stop("`formula`: ", names(columns)[single][[1]], " has one level: a factor needs two or more", call. = FALSE)
    }
}

# What makes a model matrix from data: terms, levels and contrasts; and the matrix.
designOf <- function(frame) {
    described <- attr(frame, "terms")
    needLevels(frame[rownames(attr(described, "factors"))])
    matrix <- model.matrix(described, frame)
    alone <- stats::delete.response(described)
    list(
        terms = alone, levels = stats::.getXlevels(alone, frame), matrix = matrix,
        contrasts = attr(matrix, "contrasts"), names = colnames(matrix)
    )
}

designOfBar <- function(bar, data, environment) {
    described <- stats::as.formula(call("~", bar$terms), env = environment)
    c(designOf(model.frame(described, data, drop.unused.levels = TRUE)), bar["by"], bar["correlated"])
}

matrixOf <- function(design, data) {
    frame <- model.frame(design$terms, data, xlev = design$levels, na.action = stats::na.fail)
    model.matrix(design$terms, frame, contrasts.arg = design$contrasts)
}

byOf <- function(design) gsub(" ", "", paste(deparse(design$by), collapse = ""), fixed = TRUE)

# The group of each row, as text.
labelsOfGroups <- function(by, data) {
    if (is.call(by) && identical(by[[1]], quote(`:`))) {
        return(paste(labelsOfGroups(by[[2]], data), labelsOfGroups(by[[3]], data), sep = ":"))
    }
    as.character(eval(by, data))
}

# Columns in Python: x_1_, x_2_, ... of fixed terms, z_1_2_ of the effects of the first bar, and
# g_1_ of the factors.
columnsOf <- function(design, data, frame = NULL) {
    found <- list()
    for (place in seq_along(design)) {
        one <- design[[place]]
        values <- if (is.null(frame)) matrixOf(one, data) else one$matrix
        for (number in which(one$names != "(Intercept)")) {
            found[[codeOf(place, number)]] <- asArray(as.numeric(values[, number]))
        }
    }
    factors <- factorsIn(design)
    for (number in seq_along(factors)) {
        by <- design[[match(factors[[number]], c("", vapply(design[-1], byOf, "")))]]$by
        found[[paste0("g_", number, "_")]] <- as.list(labelsOfGroups(by, data))
    }
    if (is.null(frame)) {
        frame <- model.frame(design$fixed$terms, data, xlev = design$fixed$levels)
    }
    offset <- model.offset(frame)
    if (!is.null(offset)) {
        found$offset_ <- asArray(as.numeric(offset))
    }
    found
}

factorsIn <- function(design) unique(vapply(design[-1], byOf, ""))

codeOf <- function(place, number) {
    if (place == 1) paste0("x_", number, "_") else paste0("z_", place - 1, "_", number, "_")
}

# The formula in Python of these columns.
textOf <- function(design, response, offset) {
    ofTerms <- function(place) {
        names <- design[[place]]$names
        others <- vapply(which(names != "(Intercept)"), function(number) codeOf(place, number), "")
        paste(c(if ("(Intercept)" %in% names) "1" else "0", others), collapse = " + ")
    }
    factors <- factorsIn(design)
    bars <- vapply(seq_along(design)[-1], function(place) {
        number <- match(byOf(design[[place]]), factors)
        paste0("(", ofTerms(place), if (design[[place]]$correlated) " | " else " || ", "g_", number, "_)")
    }, "")
    left <- if (is.null(response$columns$trials_)) "y" else "y | trials(trials_)"
    paste(left, "~", paste(c(ofTerms(1), bars, if (offset) "offset(offset_)"), collapse = " + "))
}

# Names of R's by those in Python.
namesOf <- function(design) {
    found <- character()
    for (place in seq_along(design)) {
        names <- design[[place]]$names
        codes <- vapply(seq_along(names), function(number) codeOf(place, number), "")
        found[codes[names != "(Intercept)"]] <- names[names != "(Intercept)"]
    }
    factors <- factorsIn(design)
    found[if (length(factors) > 0) paste0("g_", seq_along(factors), "_")] <- factors
    found
}

termsInR <- function(text, known) {
    for (code in names(known)) {
        text <- gsub(paste0("\\b", code), gsub("\\", "\\\\", known[[code]], fixed = TRUE), text)
    }
    gsub("\\bIntercept\\b", "(Intercept)", text)
}

# What Python says of columns, in R's names.
inNamesOf <- function(known, value, response = "y") {
    tryCatch(value, sgmcmcError = function(problem) {
        message <- sub("data['y']", response, problem$message, fixed = TRUE)
        problem$message <- termsInR(message, known)
        stop(problem)
    })
}

priorsOf <- function(priors, known) {
    if (is.null(priors)) {
        return(NULL)
    }
    given <- names(priors)
    codes <- names(known)[match(given, known)]
    names(priors) <- ifelse(given == "(Intercept)", "Intercept", ifelse(is.na(codes), given, codes))
    lapply(priors, function(prior) if (is.numeric(prior) && length(prior) == 2) as.list(prior) else prior)
}

# The response as numbers, or as levels; binomial responses with the numbers of trials.
responseOf <- function(y, family, weights) {
    trials <- NULL
    levels <- NULL
    if (family %in% c("binomial", "bernoulli")) {
        if (is.matrix(y) && ncol(y) == 2) {
            trials <- rowSums(y)
            y <- y[, 1]
        } else if (is.factor(y) || is.character(y)) {
            y <- as.numeric(as.integer(factor(y)) != 1)
        } else if (is.logical(y)) {
            y <- as.numeric(y)
        } else if (!is.null(weights) && any(y > 0 & y < 1)) {
            trials <- weights
            weights <- NULL
            y <- round(y * trials)
        }
        family <- if (is.null(trials)) "bernoulli" else "binomial"
    } else if (family %in% c("ordinal", "categorical")) {
        y <- factor(y)
        levels <- as.list(levels(y))
        y <- as.character(y)
    }
    if (is.matrix(y)) {
        stop("`formula`: the response is a matrix, which only binomial() takes", call. = FALSE)
    }
    columns <- list(y = if (is.character(y)) as.list(y) else asArray(as.vector(y)))
    if (!is.null(trials)) {
        columns$trials_ <- asArray(as.numeric(trials))
    }
    list(
        columns = columns, levels = levels, family = family,
        weights = if (!is.null(weights)) asArray(as.numeric(weights)),
        value = if (is.null(trials)) y else y / trials
    )
}
