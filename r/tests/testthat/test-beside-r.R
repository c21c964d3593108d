# Lines of lm, glm, lmer and polr as their users write them, beside those functions. What is sent
# to Python is compared, to the bit, and so no chain is run.

sent <- function(formula, data, family = stats::gaussian(), priors = NULL, weights, na.action, subset, offset,
                 contrasts = NULL) {
    call <- match.call()
    regressionOf(formula, if (missing(data)) NULL else data, family, contrasts, call, parent.frame())
}

# A line of lm() or glm(), and the same of ours: matrix, response, offset, weights, and the matrix
# of new rows.
beside <- function(call, new = NULL, frame = parent.frame()) {
    call <- substitute(call)
    reference <- suppressWarnings(eval(call, frame))
    ours <- match.call(eval(call[[1]], frame), call)
    ours[[1]] <- sent
    found <- suppressWarnings(eval(ours, frame))
    label <- deparse1(call)
    expect_identical(found$x, stats::model.matrix(reference), label = label)
    expect_identical(found$na.action, reference$na.action, label = label)
    expect_identical(found$xlevels, reference$xlevels, label = label)
    expect_identical(found$offset, if (!is.null(reference$offset)) as.numeric(reference$offset), label = label)
    y <- if (inherits(reference, "glm")) reference$y else stats::model.response(reference$model)
    expect_identical(as.numeric(found$y), as.numeric(y), label = label)
    weights <- if (inherits(reference, "glm")) reference$prior.weights else stats::weights(reference)
    trials <- if (is.null(found$trials) || identical(found$trials, found$weights)) 1 else found$trials
    ours <- trials * (if (is.null(found$weights)) 1 else found$weights)
    expect_equal(as.numeric(rep_len(ours, length(y))), as.numeric(if (is.null(weights)) rep(1, length(y)) else weights))
    if (!is.null(new)) {
        described <- stats::delete.response(stats::terms(reference))
        matrix <- stats::model.matrix(
            described, stats::model.frame(described, new, xlev = reference$xlevels),
            contrasts.arg = reference$contrasts
        )
        rows <- newRows(found, new)$sent$matrices[[1]]
        kept <- colnames(matrix) != "(Intercept)"
        expect_identical(rows$values, array(as.numeric(matrix[, kept]), c(nrow(new), sum(kept))), label = label)
    }
    invisible(found)
}

set.seed(20)
rows <- 60
d <- data.frame(
    x = rnorm(rows), z = runif(rows, 1, 3), n = sample(2:9, rows, TRUE), f = factor(sample(c("u", "v", "w"), rows, TRUE)),
    s = sample(c("one", "two"), rows, TRUE), l = sample(c(TRUE, FALSE), rows, TRUE),
    o = factor(sample(1:4, rows, TRUE), ordered = TRUE), g = sample(1:6, rows, TRUE), h = sample(letters[1:5], rows, TRUE),
    day = as.Date("2026-01-01") + 1:rows, age = as.difftime(runif(rows, 1, 9), units = "days")
)
d$y <- d$x + rnorm(rows)
d$k <- rpois(rows, 2)
d$won <- rbinom(rows, d$n, 0.4)
d$w <- runif(rows, 0.5, 2)
d$`my var` <- rnorm(rows)
d$Intercept <- rnorm(rows)
d$sigma <- rnorm(rows)
d$x_3_ <- rnorm(rows)
holes <- d
holes$x[c(2, 17)] <- NA
holes$f[30] <- NA
holes$y[44] <- NA
few <- d[c(5, 9, 40), ]

test_that("formulas are lm's", {
    beside(lm(y ~ x, d), few)
    beside(lm(y ~ 1, d))
    beside(lm(y ~ 0 + x, d), few)
    beside(lm(y ~ x - 1, d), few)
    beside(lm(y ~ f, d), few)
    beside(lm(y ~ 0 + f, d), few)
    beside(lm(y ~ s + l + o, d), few)
    beside(lm(y ~ x * f, d), few)
    beside(lm(y ~ x:f, d), few)
    beside(lm(y ~ f:o, d), few)
    beside(lm(y ~ f / x, d), few)
    beside(lm(y ~ (x + z + f)^2, d), few)
    beside(lm(y ~ x * f - x, d), few)
    beside(lm(y ~ z %in% f, d))
    beside(lm(y ~ . - k - won, d), few)
    beside(lm(y ~ ., d[c("y", "x", "f")]), few)
    beside(lm(log(z) ~ x, d), few)
    beside(lm(I(y^2) ~ I(x^2) + I(x > 0 | z > 2), d), few)
    beside(lm(y ~ factor(n) + as.character(g), d))
    beside(lm(y ~ relevel(f, "w"), d), few)
    beside(lm(y ~ cut(z, c(0, 2, 3)), d), few)
    beside(lm(y ~ `my var` + Intercept + sigma + x_3_, d), few)
    beside(lm(y ~ day + age, d), few)
    beside(lm(scale(y) ~ x, d), few)
    beside(lm(y ~ x + offset(2 * z), d), few)
    beside(lm(y ~ offset(z) + x, d, offset = w), few)
    beside(lm(y ~ x, d, contrasts = NULL), few)
    beside(lm(y ~ f + o, d, contrasts = list(f = "contr.sum", o = contr.helmert)), few)
    beside(lm(y ~ C(f, contr.sum), d))
    beside(lm("y ~ x + f", d), few)
    beside(lm(y ~ I(x) + I(z), as.list(d)))
    beside(lm(y ~ x, list2env(d)))
    beside(lm(y ~ cbind(x, z), d), few)
    beside(lm(y ~ . - x, d[c("y", "x", "f", "o", "l")]), few)
    beside(lm(y ~ .^2, d[c("y", "x", "f", "z")]), few)
    beside(lm(y ~ . + I(x^2), d[c("y", "x", "f", "z")]), few)
    beside(lm(log(y^2) ~ ., d[c("y", "x", "f", "z")]), few)
    beside(lm(y ~ .:x, d[c("y", "x", "z")]), few)
    beside(lm(y ~ f:x - 1, d), few)
    beside(lm(y ~ f * o, d), few)
    beside(lm(y ~ (x + z)^2 - x:z, d), few)
    beside(lm(y ~ x + x + (z), d), few)
    beside(lm(y ~ ordered(n) + as.factor(g), d))
    beside(lm(y ~ interaction(f, s), d), few)
    beside(lm(y ~ ifelse(x > 0, z, 0) + pmax(x, 0) + findInterval(z, c(1.5, 2)), d), few)
    beside(lm(y ~ l + !l, d), few)
    beside(lm(y ~ x > 0, d), few)
    beside(lm(y ~ sin(2 * pi * x) + I(f == "u") + base::log(z), d), few)
    beside(lm(y ~ x + offset(z) + offset(w), d), few)
    beside(lm(y ~ weekdays(day) + I(as.numeric(day) / 365), d))
    beside(lm(as.numeric(day) ~ x, d), few)
    beside(lm(d$y ~ d$x))
    beside(lm(reformulate("x", "y"), d), few)
    beside(lm(update(y ~ x + f, log(z) ~ . - f), d), few)
    beside(lm(y ~ factor(s, levels = c("two", "one")) * x, d), few)
})

test_that("factors are lm's, with levels that are unused, missing or have contrasts", {
    data <- transform(d, f = factor(f, c("w", "v", "u", "unused")))
    beside(lm(y ~ f, data), few)
    beside(lm(y ~ f * x, data, subset = f != "u"), few[few$f != "u", ])
    data <- transform(d, f = addNA(factor(ifelse(f == "u", NA, as.character(f)))))
    beside(lm(y ~ f, data), data[1:5, ])
    beside(lm(y ~ addNA(f), holes))
    data <- d
    contrasts(data$f) <- stats::contr.sum(3)
    beside(lm(y ~ f * x, data))
    beside(lm(y ~ f * x, data, contrasts = list(f = stats::contr.helmert)), few)
    before <- options(contrasts = c("contr.sum", "contr.poly"))
    on.exit(options(before))
    beside(lm(y ~ f * o, d), few)
})

test_that("data are tables, lists and matrices of columns", {
    beside(lm(y ~ X, list(y = d$y, X = cbind(a = d$x, b = d$z))))
    data <- d
    data$X <- cbind(a = d$x, b = d$z)
    beside(lm(y ~ X, data), data[1:3, ])
    beside(lm(y ~ X[, "a"], data), data[1:3, ])
    data$y <- base::matrix(d$y)
    beside(lm(y ~ x, data), few)
    beside(lm(y ~ x, transform(d, x = array(x))), few)
    beside(lm(y ~ x, data.frame(d, row.names = paste0("row", seq_len(rows)))))
    skip_if_not_installed("tibble")
    table <- tibble::as_tibble(d)
    beside(lm(y ~ x + f + s, table, weights = w), table[1:3, ])
    beside(glm(cbind(won, n - won) ~ f, binomial, table), table[1:3, ])
})

test_that("bases of new rows are those of the data", {
    beside(lm(y ~ poly(x, 3), d), few)
    beside(lm(y ~ poly(x, z, degree = 2), d), few)
    beside(lm(y ~ scale(x) + scale(z, scale = FALSE), d), few)
    beside(lm(y ~ splines::ns(x, df = 3), d), few)
    beside(lm(y ~ splines::bs(z, df = 4), d), few)
    beside(lm(y ~ poly(x, 2, raw = TRUE):f, d), few)
    beside(lm(y ~ poly(x, 2) * f + splines::ns(log(z), knots = 0.5), d), few)
    beside(lm(y ~ log(z) * scale(x), d), few)
    # lm() divides the range of new rows into three.
    for (formula in list(
        y ~ cut(x, 3), y ~ cut(x, stats::quantile(x), include.lowest = TRUE), y ~ base::cut(z, 3, labels = FALSE),
        y ~ cut(x, breaks = 2, labels = c("low", "high"), ordered_result = TRUE), y ~ 0 + x + (cut(x, 3) | g)
    )) {
        found <- sent(formula, d)
        matrices <- lapply(found$sent$matrices, function(part) part$values[c(5, 9, 40), , drop = FALSE])
        expect_identical(lapply(newRows(found, few)$sent$matrices, function(part) part$values), matrices)
    }
    expect_error(newRows(sent(y ~ cut(x, 3), d), transform(few, x = 1e6)), NA)
    expect_identical(newRows(sent(y ~ cut(x, 3), d), transform(few, x = c(0, 1e6, 0)))$complete, c(TRUE, FALSE, TRUE))
})

test_that("missing values are treated as lm does, after the formula is evaluated", {
    beside(lm(y ~ c(NA, head(x, -1)), d))
    beside(lm(y ~ scale(z) + x, holes), few)
    beside(lm(y ~ cumsum(z) + x, holes))
    beside(lm(y ~ c(0, diff(z)) + x, holes))
    beside(lm(y ~ poly(z, 2) + f, holes), few)
    beside(lm(y ~ splines::ns(z, 3) + x, holes), few)
    beside(lm(y ~ x + f, holes, na.action = na.exclude), few)
    beside(lm(y ~ x, holes, na.action = "na.omit"), few)
    beside(lm(y ~ z, d, na.action = na.pass), few)
    beside(lm(y ~ x + rank(z), holes, subset = z > 1.5))
    outside <- rnorm(rows)
    beside(lm(y ~ x + outside, holes))
    expect_error(sent(y ~ x, holes, na.action = na.fail), "missing values in object")
    expect_error(sent(y ~ x, transform(d, x = ifelse(x > 1, NA, x)), na.action = na.pass), "NA, NaN or Inf in x")
    expect_error(sent(y ~ x, transform(d, x = x / 0)), "NA, NaN or Inf in x")
    expect_error(sent(y ~ x, transform(d, y = y / 0)), "NA, NaN or Inf in y")
    before <- options(na.action = "na.exclude")
    on.exit(options(before))
    beside(lm(y ~ x, holes))
})

test_that("subset, weights and offsets are evaluated as lm does", {
    beside(lm(y ~ x + f, d, subset = f != "w"), few[few$f != "w", ])
    beside(lm(y ~ x, d, subset = 1:20, weights = w), few)
    beside(lm(y ~ x, d, subset = -(1:5), offset = log(z)), few)
    beside(lm(y ~ x, d, weights = 1 / z^2))
    beside(lm(y ~ x, holes, weights = w))
    beside(lm(y ~ x, holes, weights = ifelse(is.na(x), NA, 1)))
    beside(lm(y ~ x, d, weights = as.numeric(l)))
    beside(lm(y ~ x, d, weights = NULL, subset = ifelse(x > 0, TRUE, NA)))
    beside(lm(y ~ x, d, subset = c(1, 1, 2, 3, 4)))
    beside(lm(y ~ x, d, subset = rownames(d) %in% c("1", "2", "3", "9")))
    beside(lm(y ~ x, d, weights = n, offset = z, subset = x > 0))
    here <- function() {
        own <- rev(d$w)
        beside(lm(y ~ x, d, weights = own))
        beside(lm(y ~ x + own, d, subset = own > 1))
    }
    here()
    inside <- function(formula, ...) sgmcmcGlm(formula, ..., verbose = FALSE, chains = 2)
    expect_error(inside(y ~ x, d, weights = w), "`chains`: here it is `nChains`", fixed = TRUE)
    for (weighted in list(sent(y ~ x, d, weights = w), sent(y ~ x + (1 | g), d, weights = n), sent(z ~ x, d, Gamma("log"), weights = n))) {
        expect_message(tellOfWeights(weighted), "row of weight 2 is two rows. In lm\\(\\), glm\\(\\) and lmer\\(\\)")
    }
    for (alike in list(sent(y ~ x, d), sent(y ~ x, d, weights = as.numeric(l)), sent(k ~ x, d, poisson(), weights = w))) {
        expect_silent(tellOfWeights(alike))
    }
    expect_error(sent(y ~ x, d, weights = w[1:3]), "variable lengths differ")
    expect_error(sent(y ~ x, d, weights = -w), "`weights` must not be negative")
    expect_error(sent(y ~ x, d, weights = s), "`weights` must be a finite number")
    expect_error(sent(y ~ x, d, offset = s), "offset")
    expect_error(sent(y ~ nosuch, d), "object 'nosuch' not found")
    expect_error(sent(y ~ x, d, subset = x > 100), "no rows")
})

test_that("responses are those of glm", {
    beside(glm(k ~ x + f, poisson(), d), few)
    beside(glm(k ~ x + offset(log(z)), poisson, d, offset = w), few)
    beside(glm(k ~ x, family = "poisson", data = d), few)
    beside(glm(l ~ x, binomial(), d), few)
    beside(glm(I(f != "u") ~ x, binomial("probit"), d), few)
    beside(glm(f ~ x, binomial(), d), few)
    beside(glm(relevel(f, "v") ~ x, binomial("cloglog"), d), few)
    beside(glm(as.numeric(won > 2) ~ x, binomial(), d, weights = n), few)
    beside(glm(cbind(won, n - won) ~ x, binomial(), d), few)
    beside(glm(cbind(won, n - won) ~ x, binomial(), d, weights = w), few)
    beside(glm(won / n ~ x, binomial(), d, weights = n), few)
    beside(glm(won / n ~ x, binomial(), d, weights = n, subset = n > 3), few)
    beside(glm(y ~ x, data = d), few)
    beside(glm(k ~ x, poisson(), d, weights = as.numeric(l)), few)
    beside(glm(l ~ x, binomial(), d, weights = rep(2, rows)), few)
    beside(glm(won / n ~ x, binomial(), transform(d, n = ifelse(l, n, 0), won = ifelse(l, won, 0)), weights = n))
    beside(glm(factor(k > 1, labels = c("no", "yes")) ~ x, binomial, d), few)
    beside(glm(l ~ 0 + f, "binomial", d), few)
    beside(glm(k ~ ., poisson, d[c("k", "x", "f")]), few)
    beside(glm(z ~ x, Gamma("log"), d), few)
    counted <- as.matrix(cbind(d$won, d$n - d$won))
    beside(glm(counted ~ x, binomial(), d))
    expect_error(sent(s ~ x, d, binomial()), "the response s is text: make it a factor, factor(s, levels", fixed = TRUE)
    expect_error(sent(k ~ x, d, binomial()), "between 0 and 1, a factor, or cbind")
    expect_error(sent(s ~ x, d, poisson()), "the response s of family poisson must be numbers; it is character")
    expect_error(sent(f ~ x, d), "the response f of family gaussian must be numbers; it is a factor")
    expect_error(sent(cbind(y, x) ~ z, d), "is a matrix")
    expect_error(sent(~x, d), "response")
})

test_that("numbers of trials may be fractions, as in glm", {
    expect_warning(found <- sent(won / n ~ x, d, binomial(), weights = w), "not whole")
    expect_equal(found$sent$weights, array(c(d$w * d$won / d$n, d$w * (1 - d$won / d$n))))
    expect_equal(c(found$sent$y), rep(c(1, 0), each = rows))
    expect_equal(found$sent$rows, 2 * rows)
    expect_equal(ownRows(found, FALSE)$sent$rows, rows)
    expect_warning(sent(won / n ~ x, d, binomial()), "not whole")
    expect_warning(sent(cbind(won + 0.5, n) ~ x, d, binomial()), "counts in cbind\\(won \\+ 0.5, n\\) are not whole")
    none <- sent(cbind(won, n - won) ~ x, transform(d, won = 0, n = 0), binomial())
    expect_equal(none$y, rep(0, rows))
    some <- sent(cbind(won, n - won) ~ x, transform(d, won = won * (x > 0), n = n * (x > 0)), binomial())
    expect_equal(c(some$sent$weights), as.numeric(d$x > 0))
    expect_true(all(some$sent$trials > 0))
    expect_identical(ownRows(some, TRUE)$none, which(d$x <= 0))
})

test_that("orders of levels are polr's", {
    skip_if_not_installed("MASS")
    for (formula in list(o ~ x + f, f ~ x, factor(n) ~ z)) {
        found <- sent(formula, d, "ordinal")
        reference <- suppressWarnings(MASS::polr(formula, d))
        expect_identical(found$levels, reference$lev)
        expect_identical(found$x[, -1, drop = FALSE], model.matrix(reference)[, -1, drop = FALSE], ignore_attr = TRUE)
        expect_identical(c(found$sent$y), as.integer(stats::model.response(reference$model)))
    }
    expect_error(sent(s ~ x, d, "ordinal"), "s is text, which has no order: make it a factor")
    expect_identical(sent(n ~ x, d, "ordinal")$levels, as.character(2:9))
    expect_error(sent(y ~ x, d, "ordinal"), "looks like a measurement")
    expect_identical(sent(s ~ x, d, "categorical")$levels, c("one", "two"))
})

# The effects of lme4 as the covariance of rows of one unit each, which knows no order of groups.
covariances <- function(found) {
    lapply(seq_along(found$bars$designs), function(place) {
        one <- found$bars$designs[[place]]
        codes <- codesOf(found$bars$groups[[one$by]], inFrame, found$model)
        tcrossprod(one$matrix) * outer(codes, codes, `==`)
    })
}

besideLmer <- function(formula, data = d, ...) {
    skip_if_not_installed("lme4")
    call <- match.call()
    if (is.null(call$data)) {
        call$data <- quote(d)
    }
    theirs <- ours <- call
    theirs[[1]] <- quote(lme4::lFormula)
    theirs$control <- lme4::lmerControl(
        check.nobs.vs.nRE = "ignore", check.nobs.vs.nlev = "ignore", check.nobs.vs.rankZ = "ignore",
        check.nlev.gtr.1 = "ignore"
    )
    ours[[1]] <- sent
    reference <- eval(theirs, parent.frame())
    found <- eval(ours, parent.frame())
    label <- deparse1(formula)
    expect_equal(found$x, reference$X, ignore_attr = TRUE, tolerance = 0, label = label)
    expect_identical(colnames(found$x), colnames(reference$X), label = label)
    theirs <- lapply(reference$reTrms$Ztlist, function(part) as.array(as.matrix(Matrix::crossprod(part))))
    theirs <- unname(lapply(theirs, function(values) structure(values, dimnames = NULL)))
    ours <- lapply(covariances(found), function(values) structure(values, dimnames = NULL))
    traces <- function(parts) order(vapply(parts, function(part) sum(part * seq_along(part)), 0))
    expect_equal(ours[traces(ours)], theirs[traces(theirs)], label = label)
    counts <- vapply(found$bars$groups, function(groups) length(groups$labels), 1L)
    expect_identical(sort(unname(counts)), sort(unname(lengths(lapply(reference$reTrms$flist, levels)))), label = label)
    invisible(found)
}

test_that("bars are lmer's", {
    besideLmer(y ~ x + (1 | g))
    besideLmer(y ~ 1 + (x | g))
    besideLmer(y ~ x + (1 + x | h))
    besideLmer(y ~ x + (0 + x | h))
    besideLmer(y ~ x + (x || g))
    besideLmer(y ~ f + (f || h))
    besideLmer(y ~ x + (1 | g) + (1 | h))
    besideLmer(y ~ x + (1 | g / h))
    besideLmer(y ~ x + (1 | g:h))
    besideLmer(y ~ x + (1 | f / s / l))
    besideLmer(y ~ (1 | g) + x * f)
    besideLmer(y ~ poly(x, 2) + (poly(x, 2) | h))
    besideLmer(y ~ x + (scale(x) | g))
    besideLmer(y ~ x + (x | g), holes)
    besideLmer(y ~ z + (x | f), holes)
    besideLmer(y ~ x + (1 | h), subset = g > 2)
    besideLmer(y ~ f + (f | g), contrasts = list(f = "contr.sum"))
    besideLmer(y ~ (1 | g))
    besideLmer(y ~ x + ((1 | g)) + (1 | (h)))
    besideLmer(y ~ x + (1 + x * z | g) + offset(z))
    besideLmer(y ~ x + (0 + f | g))
    besideLmer(y ~ x + (x - 1 | g) + (1 | g))
    besideLmer(y ~ splines::ns(x, 2) + (splines::ns(x, 2) | g))
    besideLmer(log(z) ~ x + (x | g / h))
    besideLmer(y ~ x * f + (1 | o), subset = x > 0)
    besideLmer(y ~ x + (x > 0 | l) - 1, weights = w)
    besideLmer(y ~ 0 + x + (I(x^2) || day))
    besideLmer(y ~ f + (f + o || g))
    besideLmer(y ~ x + (0 + x:z | g))
    skip_if_not_installed("lme4")
    expect_identical(names(sent(y ~ x + (1 | g / h), d)$bars$groups), c("g", "g:h"))
    expect_identical(colnames(sent(y ~ . + (1 | g), d[c("y", "x", "g")])$x), c("(Intercept)", "x"))
    expect_error(sent(y ~ x * (1 | g), d), "bars must be added")
    expect_error(sent(y ~ x - (1 | g), d), "bars must be added")
    expect_error(sent(y ~ x + (1 | g + h), d), "one factor.*not g \\+ h")
    expect_error(sent(y ~ x + (1 | 1), d), "one factor")
    expect_error(sent(y ~ (x | g) + (0 + x | g), d), "two bars have the effect `x` of `g`")
    expect_identical(length(sent(y ~ x + I(x > 0 | z > 2), d)$bars$designs), 0L)
})

test_that("groups that are not in the data are those of the formula's environment", {
    site <- c(1, 1, 2, 2)
    inFunction <- function() {
        site <- rep(1:10, 6)
        sent(y ~ x + (1 | site), d[c("y", "x")])
    }
    found <- inFunction()
    expect_identical(found$bars$groups$site$labels, as.character(1:10))
    expect_identical(c(found$sent$groups$g_1_), rep(1:10, 6))
})

codesOfNew <- function(found, ...) c(newRows(found, data.frame(x = 0, ...))$sent$groups$g_1_)

test_that("groups are known by value, whatever the type", {
    ids <- c(100000L, 200000L, 300000L, 123456L)
    of <- function(values) sent(y ~ x + (1 | id), data.frame(y = d$y, x = d$x, id = rep(values, length.out = rows)))
    asked <- list(ids, as.numeric(ids), as.character(ids), factor(ids), c("1e+05", "2e+05", "3e+05", "123456"))
    for (values in asked) {
        expect_identical(sort(of(values)$bars$groups$id$known[[1]]$keys), sort(c("100000", "200000", "300000", "123456")))
        for (new in asked) {
            expect_identical(codesOfNew(of(values), id = new), c(of(values)$sent$groups$g_1_)[1:4])
        }
    }
    expect_identical(of(ids)$bars$groups$id$labels, c("100000", "123456", "200000", "300000"))
    expect_identical(codesOfNew(of(ids), id = c(7, 100000, 8, 7)), c(5L, 1L, 6L, 5L))
    expect_identical(codesOfNew(of(c("01", "1", "2", "10")), id = c(1, 2, 10)), c(2L, 4L, 3L))
    logicals <- list(c(TRUE, FALSE), c(1, 0), 1:0, c("TRUE", "FALSE"), factor(c("TRUE", "FALSE")), c("1", "0"))
    for (values in logicals) {
        for (new in logicals) {
            expect_identical(codesOfNew(of(values), id = new), c(2L, 1L))
        }
    }
    expect_identical(codesOfNew(of(c("1", "TRUE", "x")), id = c(TRUE, NA)[1]), 2L)
    expect_identical(codesOfNew(of(c("1", "TRUE", "x")), id = "1"), 1L)
    days <- as.Date("2026-01-01") + 0:3
    expect_identical(codesOfNew(of(days), id = rev(as.character(days))), 4:1)
    expect_identical(codesOfNew(of(days), id = factor(days[2])), 2L)
    times <- as.POSIXct("2026-01-01", tz = "UTC") + 3600 * 0:3
    elsewhere <- structure(times, tzone = "Asia/Tokyo")
    expect_identical(codesOfNew(of(times), id = elsewhere), 1:4)
    expect_identical(codesOfNew(of(c(0.1, 0.2, 0.3)), id = c(0.1 + 0.2, 0.2)), c(3L, 2L))
    expect_identical(codesOfNew(of(c(10, 100, 2, 1)), id = c(2, 10)), 2:3)
    accents <- c("\u00e9", "e", "\u00df", "u")
    expect_identical(codesOfNew(of(accents), id = iconv(accents, "UTF-8", "latin1")), c(of(accents)$sent$groups$g_1_)[1:4])
    expect_identical(of(iconv(accents, "UTF-8", "latin1"))$sent$groups, of(accents)$sent$groups)
    expect_error(codesOfNew(of(ids), id = c(NA, 1)), "`id` is NA in row 1: groups cannot be missing")
    skip_if_not_installed("bit64")
    expect_identical(codesOfNew(of(ids), id = bit64::as.integer64(ids)), c(of(ids)$sent$groups$g_1_)[1:4])
    expect_identical(codesOfNew(of(bit64::as.integer64(ids)), id = ids), c(of(ids)$sent$groups$g_1_)[1:4])
})

test_that("groups that are computed are those of the data in new rows", {
    for (by in list(
        quote(cut(x, 3)), quote(cut(z, c(0, 2, 4))), quote(g:cut(x, stats::quantile(x), include.lowest = TRUE)),
        quote(factor(g)), quote(interaction(g, h)), quote(paste(h, s)), quote(x > 0), quote(months(day)), quote(h / f),
        quote(round(z)), quote(cut(day, "week")), quote(ifelse(x > 0, h, "none"))
    )) {
        formula <- stats::as.formula(call("~", quote(y), call("+", quote(x), call("(", call("|", 1, by)))))
        found <- sent(formula, d)
        own <- lapply(found$bars$groups, function(groups) codesOf(groups, inFrame, found$model)[c(5, 9, 40)])
        expect_identical(unname(newRows(found, few)$sent$groups), unname(lapply(own, array)), label = deparse1(by))
    }
    for (by in list(quote(cut(rank(x), 3)), quote(cut(scale(x), 3)), quote(as.integer(factor(h))), quote(match(h, unique(h))))) {
        formula <- stats::as.formula(call("~", quote(y), call("+", quote(x), call("(", call("|", 1, by)))))
        found <- sent(formula, d)
        expect_error(newRows(found, few), paste0("`", deparse1(by), "` of a row depends on other rows"), fixed = TRUE)
        expect_true(all(newRows(withoutGroups(found), few)$complete))
    }
    expect_error(newRows(sent(y ~ (1 | cut(x, 3)), d), transform(few, x = 100)), "is NA in row 1: groups cannot be missing")
})

test_that("groups of two factors are pairs, whatever colons they have", {
    data <- data.frame(y = d$y, x = d$x, a = c("p", "p:q"), b = c("q:r", "r", "r"))
    found <- sent(y ~ x + (1 | a:b), data)
    expect_identical(length(found$bars$groups$`a:b`$labels), 4L)
    expect_identical(anyDuplicated(found$bars$groups$`a:b`$labels), 0L)
    pairs <- data.frame(a = c("p", "p:q", "p", "p:q"), b = factor(c("q:r", "q:r", "r", "r")))
    expect_identical(codesOfNew(found, a = pairs$a, b = pairs$b), c(1L, 3L, 2L, 4L))
    expect_identical(codesOfNew(found, a = c("p", "new"), b = c("new", "r")), 5:6)
})

test_that("integers of 64 bits and labelled values are numbers in formulas", {
    skip_if_not_installed("bit64")
    plain <- transform(d, n = as.numeric(n), k = as.numeric(k))
    wide <- transform(d, n = bit64::as.integer64(n), k = bit64::as.integer64(k))
    for (formula in list(k ~ n, k ~ log(n) + I(n * 2) + x, y ~ scale(n), y ~ poly(n, 2), k ~ offset(n) + x)) {
        ours <- sent(formula, wide)
        theirs <- sent(formula, plain)
        expect_identical(ours$sent, theirs$sent)
        expect_identical(ours$x, theirs$x)
        expect_identical(newRows(ours, wide[1:3, ])$sent, newRows(theirs, plain[1:3, ])$sent)
    }
    expect_identical(sent(k ~ x, wide, weights = n)$weights, plain$n)
    n <- wide$n
    expect_identical(sent(y ~ n, d["y"])$x[, 2], plain$n, ignore_attr = TRUE)
    unit <- bit64::as.integer64(100)
    found <- sent(y ~ I(x * unit) + offset(x * unit) + (0 + I(z * unit) | h), d)
    new <- newRows(found, few)$sent
    expect_equal(c(new$matrices[[1]]$values), few$x * 100)
    expect_equal(c(new$matrices[[2]]$values), few$z * 100)
    expect_equal(c(new$offset), few$x * 100)
    labelled <- transform(plain, n = structure(n, class = c("haven_labelled", "vctrs_vctr", "double"), labels = c(a = 2)))
    expect_identical(sent(y ~ n, labelled)$sent, sent(y ~ n, plain)$sent)
    declared <- transform(plain, n = structure(n, class = c("haven_labelled_spss", "haven_labelled"), na_values = 9))
    expect_identical(sent(y ~ n, declared)$sent, sent(y ~ n, plain, subset = n != 9)$sent)
    listed <- d
    listed$v <- as.list(d$x)
    expect_error(sent(y ~ v, listed), "invalid type \\(list\\) for variable 'v'")
})

test_that("new rows are those of predict.lm", {
    found <- sent(y ~ x + f + age, d)
    some <- newRows(found, transform(few, x = c(1, NA, 2)))
    expect_identical(some$complete, c(TRUE, FALSE, TRUE))
    expect_identical(some$sent$rows, 2L)
    expect_identical(allRows(array(c(1, 2)), some$complete, 1), array(c(1, NA, 2)))
    expect_identical(allRows(rbind(1:2, 3:4), some$complete, 2), rbind(c(1L, NA, 2L), c(3L, NA, 4L)))
    hours <- few
    units(hours$age) <- "hours"
    expect_equal(newRows(found, hours), newRows(found, few))
    expect_error(newRows(found, transform(few, f = "z")), "new level")
    expect_error(suppressWarnings(newRows(found, transform(few, f = 1))), "type \"numeric\" was supplied|not a factor")
    expect_error(newRows(found, few["x"]), "object '.*' not found")
    times <- transform(d, time = as.POSIXct("2026-01-01", tz = "UTC") + 3600 * seq_len(rows))
    found <- sent(y ~ day + (0 + day | g), times)
    expect_error(newRows(found, transform(few, day = as.POSIXct(day))), "`day` was fitted as Date, and in `newdata`.*POSIXct")
    found <- sent(y ~ time, times)
    expect_error(newRows(found, data.frame(time = few$day)), "`time` was fitted as POSIXt, and in `newdata`.*Date")
    expect_identical(c(newRows(found, times[3, ])$sent$matrices[[1]]$values), as.numeric(times$time[3]))
    for (wrong in list("x", 3)) {
        expect_error(newRows(found, wrong), "`newdata` must be a data frame")
    }
    outside <- d$z
    found <- sent(y ~ x, d, offset = outside)
    expect_error(newRows(found, few), "`newdata` has 3 rows, and the offset outside 60 entries")
    expect_error(newRows(sent(y ~ outside, d), few["x"]), "`newdata` has 3 rows, and outside 60 entries", fixed = TRUE)
    expect_error(newRows(sent(y ~ d$x, d), few), "`newdata` has 3 rows, and d$x 60 entries", fixed = TRUE)
    expect_identical(c(newRows(sent(y ~ 1, d), few)$sent$rows), 3L)
    found <- sent(y ~ x + (1 | g), d)
    expect_identical(predicted(found, transform(few, x = NA_real_), "link", "mean"), rep(NA_real_, 3))
    expect_identical(predicted(found, few[0, ], "link", "sd"), numeric())
    expect_identical(dim(predicted(found, transform(few, x = NA_real_), "link", "quantiles", c(0.1, 0.9))), 2:3)
    expect_error(predicted(found, few[0, ], "predictive", "draws"), "no rows without missing values")
    listed <- newRows(sent(y ~ x + `my var`, d), list(x = 1:2, `my var` = 3:4))$sent$matrices[[1]]$values
    expect_identical(listed, cbind(c(1, 2), c(3, 4)))
    found <- sent(cbind(won, n - won) ~ x, d, binomial())
    expect_identical(c(newRows(found, few, needTrials = TRUE)$sent$trials), as.numeric(few$n))
    expect_identical(c(newRows(found, few["x"], 4, TRUE)$sent$trials), rep(4, 3))
    expect_error(newRows(found, few["x"], needTrials = TRUE), "`trials`: draws of the response .*'won' not found")
    expect_error(newRows(found, few, 1.5, TRUE), "must be an integer, 0 or more")
    found <- sent(won / n ~ x, d, binomial(), weights = n)
    expect_identical(c(newRows(found, few, needTrials = TRUE)$sent$trials), as.numeric(few$n))
    n <- w <- 80
    for (count in 1:2) {
        expect_error(newRows(found, few[seq_len(count), "x", drop = FALSE], needTrials = TRUE), "n is not made of columns")
    }
    found <- sent(y ~ x, d, offset = w)
    expect_error(newRows(found, few["x"]), "`newdata` has 3 rows, and the offset w 1 entries", fixed = TRUE)
})

test_that("arguments of other functions are refused by name, and said here", {
    refused <- function(...) tryCatch(sgmcmcGlm(y ~ x, d, ...), error = conditionMessage)
    expect_error(sgmcmcGlm(y ~ x, d, prior = normal(0, 1)), "no argument `prior`: here it is `priors`", fixed = TRUE)
    expect_match(refused(prior = normal(0, 1)), "`priors`, a list with a name.*could not find function")
    expect_match(refused(prior_intercept = 1), "`(Intercept)` = c(0, 10)", fixed = TRUE)
    expect_match(refused(iter = 2000), "`iter`: here it is `nIters`", fixed = TRUE)
    expect_match(refused(REML = FALSE), "`REML`")
    expect_match(refused(wieghts = w), "did you mean `weights`", fixed = TRUE)
    expect_match(refused(nonsense = 1), "no argument `nonsense`; see ?sgmcmcGlm", fixed = TRUE)
    expect_match(refused(priors = c(0, 1)), "`priors` must be a list with a name")
    expect_match(refused(priors = list(z = c(0, 1))), "`priors` has no term z: the terms are (Intercept), x, sigma", fixed = TRUE)
    expect_match(refused(priors = list(x = c(0, 1, 2))), "`priors$x` must be c(mean, sd)", fixed = TRUE)
    expect_error(sgmcmcGlm(y ~ x, binomial(), d), "`data` is a family")
    expect_error(sgmcmcGlm(y ~ x, d, quasipoisson()), "quasipoisson")
    expect_error(sgmcmcGlm(y ~ x, d, Gamma()), "Gamma(\"log\")", fixed = TRUE)
})

test_that("priors are found by the names of R", {
    named <- function(priors, formula = y ~ x + `my var` + sigma, ...) {
        unlist(lapply(names(priorsOf(priors, sent(formula, d, ...))), identity))
    }
    expect_identical(named(list("(Intercept)" = c(0, 1), x = c(mean = 0, sd = 1))), c("Intercept", "x_2_"))
    expect_identical(named(list("my var" = c(0, 1), "`my var`" = c(0, 1))[1]), "x_3_")
    expect_identical(named(list("`my var`" = c(0, 1))), "x_3_")
    expect_identical(named(list(sigma = 1, "`sigma`" = c(0, 1))), c("sigma", "x_4_"))
    expect_identical(named(list(sigma = c(0, 1)), k ~ sigma, family = poisson()), "x_2_")
    expect_identical(named(list(sd = 1), y ~ x + (1 | g)), "sd")
    expect_identical(unname(priorsOf(list(x = c(mean = 0, sd = 1)), sent(y ~ x, d))), list(list(0, 1)))
})

test_that("codes are replaced by names once", {
    known <- c(Intercept = "(Intercept)", x_2_ = "x_3_", x_3_ = "Intercept", g_1_ = "a\\b")
    expect_identical(
        translated("x_2_ and x_3_ of g_1_, Intercept; x_4_, ax_2_ and x_2_b", known, "y"),
        "x_3_ and Intercept of a\\b, (Intercept); x_4_, ax_2_ and x_2_b"
    )
    expect_identical(translated("266 (cor_g_1_[1]), sd_g_1_, acor_g_1_", c(g_1_ = "site"), "y"), "266 (cor_site[1]), sd_site, acor_g_1_")
    entries <- list(
        list(role = "fixed", terms = "Intercept", key = "Intercept"), list(role = "fixed", terms = "x_2_", key = "x_2_"),
        list(role = "sd", by = "g_1_", terms = "Intercept", key = "sd(g_1_: Intercept)"),
        list(role = "auxiliary", terms = "sigma", key = "sigma")
    )
    known <- c(Intercept = "(Intercept)", x_2_ = "sigma", g_1_ = "h")
    found <- namedEntries(entries, known, NULL)
    expect_identical(found$names, c("(Intercept)", "`sigma`", "sd(h: (Intercept))", "sigma"))
    expect_identical(found$fixed, c("(Intercept)" = "(Intercept)", sigma = "`sigma`"))
})
