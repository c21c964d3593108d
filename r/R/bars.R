# Bars of a formula: effects of groups, as lme4 writes them.

isCallOf <- function(term, names) is.call(term) && is.symbol(term[[1]]) && as.character(term[[1]]) %in% names

isBar <- function(term) {
    while (isCallOf(term, "(")) {
        term <- term[[2]]
    }
    isCallOf(term, c("|", "||"))
}

# Operators of formulas: within the calls of other functions, | is R's own.
formulaOperators <- c("+", "-", "*", "/", ":", "^", "%in%", "(")

holdsBars <- function(term) {
    isBar(term) || (isCallOf(term, formulaOperators) && any(vapply(as.list(term)[-1], holdsBars, NA)))
}

# The bars of a formula: the terms left of each, the factor right of it, and whether the effects
# are correlated. (1 | a/b) is (1 | a) + (1 | a:b), and (x || g) is (1 | g) + (0 + x | g).
barsOf <- function(formula) {
    unlist(lapply(barsIn(formula[[3]]), oneByOne, environment(formula)), recursive = FALSE)
}

barsIn <- function(term) {
    if (isBar(term)) {
        while (isCallOf(term, "(")) {
            term <- term[[2]]
        }
        return(list(term))
    }
    if (!holdsBars(term)) {
        return(list())
    }
    if (isCallOf(term, "-") && holdsBars(term[[length(term)]]) || !isCallOf(term, c("+", "-", "("))) {
        stop("`formula`: bars must be added to the other terms, as in y ~ x + (1 | g)", call. = FALSE)
    }
    unlist(lapply(as.list(term)[-1], barsIn), recursive = FALSE)
}

oneByOne <- function(bar, environment) {
    lefts <- list(bar[[2]])
    if (isCallOf(bar, "||")) {
        described <- terms(stats::as.formula(call("~", bar[[2]]), environment))
        alone <- lapply(attr(described, "term.labels"), function(label) call("+", 0, str2lang(label)))
        lefts <- c(if (attr(described, "intercept") == 1) list(1), alone)
    }
    unlist(lapply(factorsOf(bar[[3]]), function(by) {
        lapply(lefts, function(left) list(terms = left, by = by))
    }), recursive = FALSE)
}

# The factors of a nested one, outermost first.
factorsOf <- function(by) {
    while (isCallOf(by, "(")) {
        by <- by[[2]]
    }
    if (isCallOf(by, "/")) {
        outer <- factorsOf(by[[2]])
        inner <- factorsOf(by[[3]])
        return(c(outer, lapply(inner, function(each) call(":", outer[[length(outer)]], each))))
    }
    if (isCallOf(by, c("+", "*", "-", "^", "%in%", "|", "||")) || is.numeric(by)) {
        stop(
            "`formula`: right of a bar is one factor, such as g, a:b or a/b, and not ", codeOf(by),
            "; for several write (1 | a) + (1 | b)",
            call. = FALSE
        )
    }
    list(by)
}

# The variables whose combinations are the groups of a factor.
variablesOf <- function(by) {
    while (isCallOf(by, "(")) {
        by <- by[[2]]
    }
    if (isCallOf(by, ":")) c(variablesOf(by[[2]]), variablesOf(by[[3]])) else list(by)
}

# A formula without its bars.
withoutBars <- function(formula) {
    drop <- function(term) {
        if (isBar(term)) {
            return(NULL)
        }
        if (!holdsBars(term)) {
            return(term)
        }
        parts <- Filter(Negate(is.null), lapply(as.list(term)[-1], drop))
        unary <- isCallOf(term, c("+", "(")) && length(parts) < 2
        if (length(parts) == 0) NULL else if (unary) parts[[1]] else as.call(c(term[[1]], parts))
    }
    rest <- drop(formula[[3]])
    formula[[3]] <- if (is.null(rest)) 1 else rest
    formula
}

# How a variable is called in a model frame.
codeOf <- function(variable) {
    paste(deparse(variable, width.cutoff = 500L, backtick = !is.symbol(variable)), collapse = " ")
}
