#' Regressions in one line
#'
#' Samples the posterior of a generalized linear model, or of one with effects of groups, by
#' [sgmcmcSample()], without constants. Formula and data are read as by [stats::lm()] and
#' [stats::glm()]; effects of groups are written as in lme4: `(1 + x | g)`, `(x || g)`, `(1 | a/b)`.
#'
#' [stats::model.frame()] evaluates the formula, with its bars, and `subset`, `weights` and `offset` in
#' `data` and the environment of the formula. [stats::model.matrix()] makes the design; coefficients
#' are those of its columns. New rows of `predict` have the bases that `poly()`, `scale()` and the
#' like had in `data`. The default priors are wide, and scaled by the data; `print` shows them.
#' Effects of one factor are integrated out by quadrature; those of others are coordinates of the
#' chain.
#'
#' Groups are known by their values: rows of `newdata` belong to the group 100000 whether that is an
#' integer, a number, or the level of a factor. Integers of 64 bits (of bit64), and labeled values
#' (of haven) are the numbers that they stand for.
#'
#' @param formula Formula. The response is a number; for `binomial()` also a logical, a factor,
#'   whose first level is a failure, a matrix `cbind(successes, failures)`, or a proportion with
#'   `weights` for the numbers of trials, as in [stats::glm()]; for `"ordinal"` a factor with levels
#'   from low to high. A dot is all columns of `data` but the response and the groups of bars.
#' @param data Data frame, list or environment; without it variables are those of the formula's
#'   environment.
#' @param family One of R's families: `gaussian()`, `binomial()` with link `"logit"`, `"probit"` or
#'   `"cloglog"`, `poisson()`, `Gamma("log")`, `MASS::negative.binomial()`, whose shape is
#'   estimated in any case; or the name of a family: in addition to these `"student"`, `"beta"`,
#'   `"negative_binomial"`, `"exponential"`, `"weibull"`, `"zero_inflated_poisson"`, `"ordinal"`
#'   and `"categorical"`.
#' @param priors Named list by term: `c(mean, sd)` of a normal for a coefficient, the rate of an
#'   exponential for `"sigma"`, `"shape"`, `"phi"`, `"nu"`, and `"sd"`, of effects of groups. That of
#'   `"(Intercept)"` is for the intercept at the means of all columns. The coefficient of a column
#'   that is called `sigma` is `` "`sigma`" ``.
#' @param weights Weight of each row's log-likelihood, a number of repeated rows; not a precision, as
#'   that of [stats::lm()] is, of which a message reminds. Of proportions, the numbers of trials; one that is not whole makes the
#'   row a success and a failure with weights.
#' @param na.action Function for missing values, such as [stats::na.omit()], [stats::na.exclude()] or
#'   [stats::na.fail()]; by default `getOption("na.action")`, as in [stats::lm()]. `print` has the
#'   number of rows that were left out.
#' @param subset Rows to use, an expression in the columns of `data`.
#' @param offset Known part of the linear predictor, in addition to any `offset()` in `formula`.
#' @param contrasts List of contrasts of the fixed terms by factor, as in [stats::lm()].
#' @param seed Integer seed; `NULL` draws one from R's generator.
#' @param verbose Whether to show progress.
#' @param ... Further arguments of [sgmcmcSample()], such as `ess`, `nChains` and `maxSeconds`; others
#'   are refused.
#' @return An object of class `sgmcmcGlm`; see [sgmcmcGlm-methods]. Its entries have the names of those
#'   of `glm`: `call`, `formula`, `family`, `model` (the model frame), `terms`, `xlevels`, `contrasts`, `x`
#'   (the model matrix), `y`, `offset`, `weights`, `na.action`. `draws` has an array of chains and draws
#'   for each coefficient, standard deviation and auxiliary parameter, `roles` says which each is
#'   (`"fixed"`, `"sd"`, `"cor"`, `"auxiliary"`, `"cutpoint"`), and `warnings` are reasons not to trust them,
#'   which are also signaled. `chain` has the draws of the chain, for [report()].
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
#' fit <- sgmcmcGlm(weight ~ Time + (1 + Time | Chick), ChickWeight)
#' VarCorr(fit)
#' ranef(fit)$Chick
#' }
sgmcmcGlm <- function(formula, data, family = stats::gaussian(), priors = NULL, weights, na.action,
                      seed = NULL, verbose = TRUE, ..., subset, offset, contrasts = NULL) {
    call <- match.call()
    # In a function that passes its dots on, match.call() has ..1 in place of what the user wrote.
    for (name in setdiff(intersect(names(formals()), names(call)), "...")) {
        call[[name]] <- eval(call("substitute", as.name(name)))
    }
    needKnown(names(sys.call()), names(match.call(expand.dots = FALSE)$...))
    priors <- tryCatch(priors, error = function(problem) {
        stop("`priors`, ", hintOnPriors, ", cannot be evaluated: ", conditionMessage(problem), call. = FALSE)
    })
    if (!missing(data) && (inherits(data, "family") || is.function(data))) {
        stop("`data` is a family: the arguments are sgmcmcGlm(formula, data, family)", call. = FALSE)
    }
    made <- regressionOf(formula, if (missing(data)) NULL else data, family, contrasts, call, parent.frame())
    arguments <- pythonArguments(
        list(seed = seed, verbose = verbose), c(list(priors = priorsOf(priors, made)), list(...))
    )
    tellOfWeights(made)
    sampled(made, arguments[!vapply(arguments, is.null, NA)])
}

# Where weights are others than those of lm(), glm() and lmer(), the call says so.
tellOfWeights <- function(object) {
    if (object$familyName %in% c("gaussian", "student", "gamma") && !all(object$weights %in% 0:1)) {
        message(
            "`weights` are numbers of repeated rows: a row of weight 2 is two rows. In lm(), glm() and lmer() the ",
            "variance of such a row is divided by 2 instead, and so standard errors differ."
        )
    }
}

# A regression before it is sampled: frame, designs and response, and what is sent to Python.
regressionOf <- function(formula, data, family, contrasts, call, caller) {
    formula <- formulaOf(formula, caller)
    chosen <- familyOf(family)
    bars <- barsOf(formula)
    fixed <- withoutDot(withoutBars(formula), bars, data)
    frame <- frameOf(fixed, bars, data, call, caller)
    if (nrow(frame) == 0) {
        stop("`data` has no rows without missing values", call. = FALSE)
    }
    described <- partOf(fixed, frame)
    design <- designOf(described, frame, contrasts)
    effects <- list(designs = effectsOf(bars, frame, environment(formula)), groups = list())
    for (bar in bars) {
        effects$groups[[nameOf(bar$by)]] <- groupsOf(bar$by, frame)
    }
    needDistinct(effects$designs)
    weights <- numbersOf(stats::model.weights(frame), "weights", frame)
    offset <- numbersOf(model.offset(frame), "offset", frame)
    if (any(weights < 0)) {
        stop("`weights` must not be negative", call. = FALSE)
    }
    response <- responseOf(model.response(frame), chosen$name, weights, codeOf(formula[[2]]))
    design$terms <- NULL
    object <- list(
        call = call, formula = formula, family = chosen$family, familyName = response$family,
        model = frame, terms = described, xlevels = design$levels, contrasts = design$contrasts,
        design = design, bars = effects, x = design$matrix, y = response$value, offset = offset,
        weights = weights, trials = response$trials, halves = isTRUE(response$halves),
        labels = onlyLabels(fixed, bars), levels = response$levels, na.action = attr(frame, "na.action"),
        link = chosen$link
    )
    object$sent <- sentOf(object, response)
    object
}

formulaOf <- function(formula, caller) {
    if (is.character(formula) && length(formula) == 1) {
        formula <- stats::as.formula(formula, caller)
    }
    if (!inherits(formula, "formula") || length(formula) != 3) {
        stop("`formula` must be a formula with a response, such as y ~ x", call. = FALSE)
    }
    stats::formula(formula)
}

# Numbers of the model frame, one for each row, such as weights.
numbersOf <- function(values, name, frame) {
    if (is.null(values)) {
        return(NULL)
    }
    if (!is.numeric(values) || length(values) != nrow(frame) || !all(is.finite(values))) {
        stop("`", name, "` must be a finite number for each row of `data`", call. = FALSE)
    }
    as.numeric(values)
}

needDistinct <- function(designs) {
    effects <- unlist(lapply(designs, function(one) paste0(one$names, "` of `", one$by)))
    if (anyDuplicated(effects) > 0) {
        stop("`formula`: two bars have the effect `", effects[duplicated(effects)][[1]], "`", call. = FALSE)
    }
}

# Everything that goes to Python but for the further arguments.
sentOf <- function(object, response) {
    rows <- seq_len(nrow(object$model))
    if (object$halves) {
        rows <- c(rows, rows)
    }
    found <- sentColumns(
        lapply(c(list(object$design), object$bars$designs), function(one) one$matrix[rows, , drop = FALSE]),
        lapply(object$bars$groups, function(groups) codesOf(groups, inFrame, object$model)[rows]),
        object$offset[rows]
    )
    trials <- if (!object$halves && !is.null(object$trials)) pmax(object$trials, 1)
    found$formula <- textOf(object$design, object$bars, !is.null(trials), !is.null(object$offset))
    found$y <- asArray(response$sent)
    found$levels <- as.list(response$levels)
    found$trials <- if (!is.null(trials)) asArray(trials)
    found$weights <- if (!is.null(response$weights)) asArray(response$weights)
    found$family <- object$familyName
    found$link <- object$link
    found
}

# The regression with its draws, whose names are R's.
sampled <- function(object, arguments) {
    known <- namesInR(object$design, object$bars)
    response <- codeOf(object$formula[[2]])
    words <- function(text) translated(text, known, response)
    found <- withWarnings(
        inNamesOf(known, response, callPython("glm", object$sent, arguments)), function(found) found$warnings, words
    )
    named <- namedEntries(found$entries, known, object$levels)
    object$sent <- NULL
    object$link <- found$link
    object$draws <- stats::setNames(lapply(found$entries, function(entry) entry$draws), named$names)
    object$roles <- stats::setNames(named$roles, named$names)
    object$fixed <- named$fixed
    object$priors <- namedPriors(found$priors, known, named)
    object$warnings <- words(inWordsOfR(as.character(unlist(found$warnings))))
    object$chain <- asChains(found$chain)
    object$python <- found$fit
    structure(object, class = "sgmcmcGlm")
}

# The names of the entries of a regression: coefficients as model.matrix() calls its columns,
# in backticks where another entry has that name; `fixed` has these by the names of coef().
namedEntries <- function(entries, known, levels) {
    roles <- vapply(entries, function(entry) entry$role, "")
    inR <- function(codes) ifelse(is.na(known[codes]), codes, known[codes])
    own <- vapply(entries, function(entry) {
        terms <- inR(as.character(unlist(entry$terms)))
        level <- if (!is.null(entry$level)) levels[[entry$level]]
        switch(entry$role,
            fixed = paste0(if (!is.null(level)) paste0(level, ": "), terms),
            sd = , cor = paste0(entry$role, "(", inR(entry$by), ": ", paste(terms, collapse = ", "), ")"),
            cutpoint = paste0(level, "|", levels[[entry$level + 1]]),
            terms
        )
    }, "")
    isFixed <- roles == "fixed"
    names <- own
    clash <- isFixed & own %in% own[!isFixed]
    names[clash] <- paste0("`", own[clash], "`")
    names <- make.unique(names)
    list(
        names = names, roles = roles, fixed = stats::setNames(names[isFixed], own[isFixed]),
        codes = vapply(entries, function(entry) entry$key, "")
    )
}

namedPriors <- function(priors, known, named) {
    keys <- vapply(priors, function(prior) prior$key, "")
    places <- match(keys, named$codes)
    names <- ifelse(is.na(places), ifelse(is.na(known[keys]), keys, known[keys]), named$names[places])
    stats::setNames(lapply(priors, function(prior) prior$text), names)
}

# Text of Python's in R's names, each code once: what a name holds is not read again.
translated <- function(text, known, response) {
    text <- gsub("data['y']", response, text, fixed = TRUE)
    pattern <- "(?:\\b|(?<=\\bsd_)|(?<=\\bcor_))(x_[0-9]+_|z_[0-9]+_[0-9]+_|g_[0-9]+_|Intercept)(?![A-Za-z0-9_])"
    places <- gregexpr(pattern, text, perl = TRUE)
    regmatches(text, places) <- lapply(regmatches(text, places), function(codes) {
        ifelse(is.na(known[codes]), codes, known[codes])
    })
    text
}

inNamesOf <- function(known, response, value) {
    tryCatch(value, sgmcmcError = function(problem) {
        problem$message <- translated(problem$message, known, response)
        stop(problem)
    })
}

hintOnPriors <- "a list with a name for each entry, by term, such as list(x = c(0, 1), sigma = 1)"

# Priors by the names of Python. A term may be written as it is in the table, as model.matrix()
# calls it, or without its backticks.
priorsOf <- function(priors, object) {
    if (is.null(priors)) {
        return(NULL)
    }
    if (!is.list(priors) || is.null(names(priors)) || any(names(priors) == "") || anyDuplicated(names(priors))) {
        stop("`priors` must be ", hintOnPriors, call. = FALSE)
    }
    known <- namesInR(object$design, object$bars)
    columns <- known[known %in% object$design$names & startsWith(names(known), "x_") | names(known) == "Intercept"]
    columns <- columns[!duplicated(columns)]
    own <- c("sigma", "shape", "phi", "nu", "zi", "sd")
    codes <- vapply(names(priors), function(name) {
        auxiliary <- name %in% own && !(name %in% columns && !name %in% auxiliariesOf(object))
        place <- if (!auxiliary) {
            c(match(name, columns), match(sub("^`(.*)`$", "\\1", name), columns), match(paste0("`", name, "`"), columns))
        }
        place <- place[!is.na(place)]
        if (length(place) > 0) names(columns)[[place[[1]]]] else name
    }, "")
    unknown <- codes == names(priors) & !codes %in% own
    if (any(unknown)) {
        stop(
            "`priors` has no term ", names(priors)[unknown][[1]], ": the terms are ",
            paste(c(columns, auxiliariesOf(object)), collapse = ", "),
            call. = FALSE
        )
    }
    values <- Map(function(prior, name) {
        if (!is.numeric(prior)) {
            return(prior)
        }
        if (!length(prior) %in% 1:2 || !all(is.finite(prior))) {
            stop("`priors$", name, "` must be c(mean, sd), or for ", paste(own, collapse = ", "), " a rate", call. = FALSE)
        }
        if (length(prior) == 2) as.list(as.numeric(prior)) else as.numeric(prior)
    }, priors, names(priors))
    stats::setNames(values, codes)
}

# The names of the parameters of the family, and that of the standard deviations of effects.
auxiliariesOf <- function(object) {
    family <- switch(object$familyName,
        gaussian = "sigma", student = c("sigma", "nu"), gamma = , weibull = , negative_binomial = "shape",
        beta = "phi", zero_inflated_poisson = "zi"
    )
    c(family, if (length(object$bars$designs) > 0) "sd")
}

# Arguments of other packages, and how to say it here.
elsewhere <- c(
    prior = "`priors`, a list by term such as priors = list(x = c(0, 1))",
    prior_intercept = "`priors`, as in priors = list(`(Intercept)` = c(0, 10))",
    prior_aux = "`priors`, as in priors = list(sigma = 1)", prior_covariance = "`priors`, as in priors = list(sd = 1)",
    chains = "`nChains`", iter = "`nIters`, or `ess` for an effective sample size", warmup = "`burnIn`",
    REML = "nothing: variances are sampled", link = "the family's, as in binomial(\"probit\")",
    size = "cbind(successes, failures) in `formula`", trials = "cbind(successes, failures) in `formula`",
    random = "a bar in `formula`, as in y ~ x + (1 | g)", cores = "nothing: chains run together",
    control = "arguments of sgmcmcSample()", start = "nothing: starting values are chosen",
    missing = "`na.action`", verbosity = "`verbose`", refresh = "`verbose`", nAGQ = "nothing: it is chosen",
    model = "nothing: the model frame is kept", x = "nothing: the model matrix is kept", y = "nothing: it is kept"
)

# Arguments that neither this function nor sgmcmcSample() has are refused by name.
needKnown <- function(written, further) {
    taken <- c("logLik", "dataset", "params", "logPrior")
    allowed <- c(setdiff(names(formals(sgmcmcSample)), c(taken, "...")), furtherArguments)
    foreign <- c(intersect(written, "prior"), setdiff(further, c(allowed, "")))
    if (length(foreign) == 0) {
        return(invisible())
    }
    name <- foreign[[1]]
    known <- c(names(formals(sgmcmcGlm)), allowed)
    near <- known[utils::adist(name, known, ignore.case = TRUE) <= 2]
    stop(
        "sgmcmcGlm() has no argument `", name, "`",
        if (name %in% names(elsewhere)) {
            paste0(": here it is ", elsewhere[[name]])
        } else if (length(near) > 0) {
            paste0("; did you mean `", near[[1]], "`?")
        } else {
            "; see ?sgmcmcGlm, and ?sgmcmcSample for further arguments"
        },
        call. = FALSE
    )
}

furtherArguments <- c(
    "alpha", "L", "a", "integrator", "nLeapfrog", "maxTreeDepth", "thin", "store", "storeGradients",
    "testFunctions", "storeParams", "reductions", "reduce", "dtype", "jitCompile", "updates", "replace",
    "storage", "temperature"
)
