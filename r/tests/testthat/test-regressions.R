# Regressions by formula beside R's own estimates: with much data and wide priors the posterior
# mean is near the maximum, within a fraction of the standard error.

fitOf <- function(...) {
    needsPython()
    sgmcmcGlm(..., seed = 1, verbose = FALSE, ess = 200)
}

near <- function(fit, reference) {
    expect_named(coef(fit), names(stats::coef(reference)))
    errors <- sqrt(diag(stats::vcov(reference)))
    expect_lt(max(abs(coef(fit) - stats::coef(reference)) / errors), 0.4)
    expect_lt(max(abs(sqrt(diag(vcov(fit))) / errors - 1)), 0.25)
}

test_that("R's formulas, contrasts, offsets and families agree with glm", {
    set.seed(1)
    n <- 400
    data <- data.frame(x = rnorm(n), f = factor(sample(c("a", "b", "c"), n, TRUE)), t = runif(n, 1, 3))
    data$y <- rpois(n, data$t * exp(0.3 * data$x + 0.5 * (data$f == "b")))
    formula <- y ~ x * f + I(x^2) + offset(log(t))
    fit <- fitOf(formula, data, poisson())
    reference <- stats::glm(formula, poisson(), data)
    near(fit, reference)
    expect_equal(nobs(fit), n)
    expect_equal(formula(fit), formula)
    expect_equal(fitted(fit), unname(stats::fitted(reference)), tolerance = 0.05)
    expect_equal(residuals(fit), data$y - fitted(fit), ignore_attr = TRUE)
    few <- data[c(5, 2), ]
    expect_equal(predict(fit, few), predict(fit)[c(5, 2)], tolerance = 1e-5)
    expect_equal(
        predict(fit, few, type = "response"), unname(predict(reference, few, type = "response")),
        tolerance = 0.1
    )
    expect_equal(dim(predict(fit, few, type = "response", quantiles = c(0.1, 0.9))), c(2, 2))
    expect_equal(ncol(predict(fit, few, type = "predictive")), 2)
    expect_equal(rownames(confint(fit, "x", level = 0.9)), "x")
    expect_lt(loo(fit)$elpd, 0)
    expect_output(print(fit), "Family: poisson.*fb.*Priors:")
    expect_error(predict(fit, transform(few, f = "z")), "new level")
    expect_error(ranef(fit), "no effects of groups")
    file <- tempfile(fileext = ".pdf")
    grDevices::pdf(file)
    expect_invisible(plot(fit))
    grDevices::dev.off()
    skip_if_not_installed("posterior")
    expect_equal(posterior::variables(posterior::as_draws(fit)), names(coef(fit)))
})

test_that("binomial responses are those of glm", {
    set.seed(2)
    n <- 150
    data <- data.frame(x = rnorm(n), n = 5)
    data$s <- rbinom(n, 5, stats::plogis(0.5 + data$x))
    reference <- stats::glm(cbind(s, n - s) ~ x, binomial(), data)
    fit <- fitOf(cbind(s, n - s) ~ x, data, binomial())
    near(fit, reference)
    expect_equal(residuals(fit), data$s / 5 - fitted(fit), ignore_attr = TRUE)
    near(fitOf(s / n ~ x, data, binomial("probit"), weights = n),
        stats::glm(s / n ~ x, binomial("probit"), data, weights = n))
    data$won <- factor(ifelse(data$s > 2, "yes", "no"))
    data$x[3] <- NA
    fit <- fitOf(won ~ x, data)
    expect_equal(nobs(fit), n - 1)
    near(fit, stats::glm(won ~ x, binomial(), data))
})

test_that("bars are effects of groups", {
    set.seed(3)
    data <- data.frame(g = rep(letters[1:20], each = 20), x = rnorm(400))
    b <- rnorm(20)
    slopes <- rnorm(20, sd = 0.5)
    group <- match(data$g, letters)
    data$y <- 1 + 2 * data$x + b[group] + slopes[group] * data$x + rnorm(400, sd = 0.5)
    fit <- fitOf(y ~ x + (1 + x | g), data, gaussian())
    expect_named(fixef(fit), c("(Intercept)", "x"))
    effects <- ranef(fit)$g
    expect_equal(rownames(effects), letters[1:20])
    expect_named(effects, c("(Intercept)", "x"))
    expect_gt(cor(effects[["(Intercept)"]], b), 0.95)
    expect_gt(cor(effects$x, slopes), 0.9)
    expect_equal(
        rownames(VarCorr(fit)), c("sd(g: (Intercept))", "sd(g: x)", "cor(g: (Intercept), x)")
    )
    expect_equal(VarCorr(fit)["sd(g: x)", "estimate"], 0.5, tolerance = 0.4)
    expect_equal(
        predict(fit, data.frame(x = 0, g = c("a", "b"))),
        fixef(fit)[[1]] + effects[1:2, 1], tolerance = 0.05
    )
    expect_length(predict(fit, data.frame(x = 0, g = c("a", "new"))), 2)
    expect_equal(byOf(designOfBar(barsOf(y ~ (1 | a / b))[[2]], data, environment())), "a:b")
})

test_that("what cannot be is said before anything runs", {
    expect_error(sgmcmcGlm(y ~ x, data.frame(x = 1), quasipoisson()), "quasipoisson")
    expect_error(sgmcmcGlm(~x, data.frame(x = 1)), "response")
    expect_error(sgmcmcGlm(y ~ x, data.frame(x = 1, y = 1), Gamma()), "Gamma(\"log\")", fixed = TRUE)
    expect_error(sgmcmcGlm(y ~ x * (1 | g), data.frame(x = 1, y = 1, g = 1)), "must be added")
    needsPython()
    expect_error(fitOf(y ~ x, data.frame(x = 1:9, y = -1), poisson()), "integers, 0 or more")
    expect_error(fitOf(y ~ x + I(2 * x), data.frame(x = 1:9, y = 1:9), poisson()), "'I(2 * x)'", fixed = TRUE)
})
