# The user's functions, on their way to Python: what goes wrong in them is said in terms of
# what to write.

# A function whose lists tell which of their names were asked for in vain, and whose errors
# say what helps. Entries of these names are codes of `factors`. Everything else is as it was.
guarded <- function(f, factors = NULL) {
    if (!is.function(f) || inherits(f, "python.builtin.object") || inherits(f, "sgmcmcGuarded")) {
        return(f)
    }
    labels <- setdiff(names(formals(args(f))), "...")
    warned <- FALSE
    result <- function(...) {
        missed <- new.env(parent = emptyenv())
        given <- list(...)
        for (place in seq_along(given)) {
            if (is.list(given[[place]]) && !is.null(names(given[[place]]))) {
                label <- if (place <= length(labels)) labels[[place]] else "the list"
                given[[place]] <- watched(markFactors(given[[place]], factors, label), label, missed)
            }
        }
        value <- tryCatch(
            do.call(f, given),
            error = function(problem) stop(withHelp(problem, missed), call. = FALSE)
        )
        misspelt <- unlist(mget(ls(missed), missed))
        if (!warned && any(grepl("Did you mean", misspelt, fixed = TRUE))) {
            warned <<- TRUE
            warning(paste(misspelt, collapse = " "), call. = FALSE)
        }
        if (inherits(value, "sgmcmcNamed")) unwatched(value) else value
    }
    structure(result, class = c("sgmcmcGuarded", "function"))
}

guardedAll <- function(functions) if (is.list(functions)) lapply(functions, guarded) else functions

watched <- function(values, label, missed) {
    structure(values, class = "sgmcmcNamed", label = label, missed = missed)
}

unwatched <- function(values) structure(values, class = NULL, label = NULL, missed = NULL)

#' @export
`$.sgmcmcNamed` <- function(x, name) {
    values <- unwatched(x)
    value <- do.call("$", list(values, name))
    if (is.null(value)) {
        note(x, name)
    }
    value
}

#' @export
`[[.sgmcmcNamed` <- function(x, i, ...) {
    value <- unwatched(x)[[i, ...]]
    if (is.null(value) && is.character(i)) {
        note(x, i)
    }
    value
}

#' @export
`[.sgmcmcNamed` <- function(x, i) unwatched(x)[i]

#' @export
print.sgmcmcNamed <- function(x, ...) print(unwatched(x), ...)

note <- function(x, name) {
    present <- names(x)
    distance <- c(utils::adist(name, present, ignore.case = TRUE))
    near <- present[distance <= max(1, nchar(name) %/% 2) & distance < nchar(name)]
    label <- attr(x, "label")
    text <- paste0(
        "`", label, "$", name, "` is not there: `", label, "` has ",
        paste0("`", present, "`", collapse = ", "), ".",
        if (length(near) > 0) paste0(" Did you mean `", label, "$", near[[1]], "`?")
    )
    assign(paste0(label, "$", name), text, attr(x, "missed"))
}

# The message of an error with what helps against it.
withHelp <- function(problem, missed) {
    message <- conditionMessage(problem)
    help <- c(unlist(mget(ls(missed), missed)), adviceOn(problem))
    paste(c(message, help), collapse = " ")
}

adviceOn <- function(problem) {
    call <- conditionCall(problem)
    name <- if (is.call(call) && is.symbol(call[[1]])) as.character(call[[1]]) else ""
    name <- sub("\\.default$", "", name)
    message <- conditionMessage(problem)
    if (name %in% names(instead)) {
        return(paste0("If that was a tensor, write ", instead[[name]], "."))
    }
    if (grepl("^[dpq][a-z]+$", name) && substring(name, 2) %in% names(laws)) {
        method <- switch(substr(name, 1, 1), d = "log_prob(x)", p = "cdf(x)", q = "quantile(p)")
        return(paste0(
            "If that was a tensor, write tf$distributions$", laws[[substring(name, 2)]], "$", method,
            if (startsWith(name, "d")) ", which is the log of the density", "."
        ))
    }
    if (any(vapply(aboutTensors, grepl, NA, message))) {
        return(paste0(
            "R", if (nzchar(name)) paste0("'s `", name, "`"), " does not take tensors; TensorFlow has ",
            "functions that do, see ?tensors and ?tf."
        ))
    }
    NULL
}

# What R says of an object that is no vector.
aboutTensors <- c(
    "type 'environment'", "to vector of type", "[Nn]on-numeric argument", "must be numeric",
    "'type' \\(environment\\)", "environments cannot be coerced", "requires numeric",
    "must be an array", "applies only to vectors", "requires vector arguments"
)

condition <- paste(
    "ifelse(condition, a, b) or tf$where(condition, a, b): while the model is written down the",
    "condition has no value that R could look at"
)

instead <- list(
    "if" = condition, "while" = paste0("tf$while_loop(condition, body, start), or ", condition),
    "&&" = "& in place of &&", "||" = "| in place of ||",
    "for" = paste(
        "`for (i in seq_len(nrow(x)))` with x[i, ], or `for (row in as.list(x))`, where the size is",
        "known, else tf$map_fn(f, x)"
    ),
    "switch" = "tf$switch_case(index, functions)",
    max = "the tensor first, as in max(x, 5)", min = "the tensor first, as in min(x, 5)",
    sum = "the tensor first, as in sum(x, 5)", prod = "the tensor first, as in prod(x, 5)",
    range = "the tensor first, as in range(x, 5)",
    ":" = "seq_len(nrow(x)), where the size is known, or tf$range",
    array = "tf$reshape(x, c(2L, 3L)), which fills row by row",
    as.vector = "tf$reshape(x, shape), which fills row by row, or as.list(x)",
    outer = "tf$expand_dims(x, 1L) * y", kronecker = "tf$linalg$LinearOperatorKronecker",
    var = "tf$math$reduce_variance(x), which divides by n",
    sd = "tf$math$reduce_std(x), which divides by n",
    norm = "tf$norm(x)", svd = "tf$linalg$svd(x)", eigen = "tf$linalg$eigh(x)", qr = "tf$linalg$qr(x)",
    chol2inv = "tf$linalg$inv(x)", backsolve = "tf$linalg$triangular_solve(r, x, lower = FALSE)",
    forwardsolve = "tf$linalg$triangular_solve(l, x)",
    which = "tf$where(x)", which.max = "tf$argmax(x), which counts from 0",
    which.min = "tf$argmin(x), which counts from 0",
    order = "tf$argsort(x), which counts from 0", rank = "tf$argsort(x), which counts from 0",
    atan2 = "tf$atan2(y, x)", choose = "exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1))",
    lchoose = "lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)",
    beta = "exp(lgamma(a) + lgamma(b) - lgamma(a + b))", lbeta = "lgamma(a) + lgamma(b) - lgamma(a + b)",
    besselI = "tf$math$special$bessel_i0(x) or bessel_i1(x)",
    aperm = "tf$transpose(x, perm)", apply = "tf$map_fn(f, x), or as.list(x) and lapply",
    sweep = "x - y, which goes along the last dimension", scale = "(x - mean(x)) / tf$math$reduce_std(x)",
    tabulate = "tf$math$bincount(x)", unique = "tf$unique(x)", match = "tf$equal",
    convolve = "tf$nn$convolution", fft = "tf$signal$fft(x)",
    rnorm = "tf$random$normal(shape), but a model must not draw: see `gibbs` of ?scir"
)

laws <- c(
    norm = "Normal(mean, sd)", gamma = "Gamma(shape, rate)", beta = "Beta(shape1, shape2)",
    exp = "Exponential(rate)", unif = "Uniform(min, max)", t = "StudentT(df, 0, 1)",
    pois = "Poisson(rate)", binom = "Binomial(size, probs = prob)", cauchy = "Cauchy(location, scale)",
    logis = "Logistic(location, scale)", lnorm = "LogNormal(meanlog, sdlog)", chisq = "Chi2(df)",
    geom = "Geometric(probs = prob)", nbinom = "NegativeBinomial(size, probs = 1 - prob)",
    weibull = "Weibull(shape, scale)", multinom = "Multinomial(size, probs = prob)"
)
