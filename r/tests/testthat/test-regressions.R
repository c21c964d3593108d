# Regressions by formula beside R's own estimates: with much data and wide priors the posterior
# mean is near the maximum, within a fraction of the standard error.

test_that("R's formulas, contrasts, offsets and families agree with glm", {
    data <- counts
    formula <- y ~ x * f + I(x^2) + offset(log(t))
    fit <- ofCounts()
    reference <- stats::glm(formula, poisson(), data)
    nearWithErrors(fit, reference)
    expect_equal(nobs(fit), 400)
    expect_equal(formula(fit), formula, ignore_attr = TRUE)
    expect_equal(fitted(fit), stats::fitted(reference), tolerance = 0.05)
    expect_equal(residuals(fit), data$y - fitted(fit))
    few <- data[c(5, 2), ]
    expect_equal(predict(fit, few), predict(fit)[c(5, 2)], tolerance = 1e-5)
    expect_equal(
        predict(fit, few, type = "response"), predict(reference, few, type = "response"),
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
    nearWithErrors(fit, reference)
    expect_equal(residuals(fit), data$s / 5 - fitted(fit))
    nearWithErrors(fitOf(s / n ~ x, data, binomial("probit"), weights = n),
        stats::glm(s / n ~ x, binomial("probit"), data, weights = n))
    data$won <- factor(ifelse(data$s > 2, "yes", "no"))
    data$x[3] <- NA
    fit <- fitOf(won ~ x, data, binomial())
    expect_equal(nobs(fit), n - 1)
    nearWithErrors(fit, stats::glm(won ~ x, binomial(), data))
})

test_that("bars are effects of groups", {
    fit <- mixed()
    groups <- ofGroups$groups[order(ofGroups$groups$id), ]
    expect_named(fixef(fit), c("(Intercept)", "x"))
    effects <- ranef(fit)$id
    expect_equal(rownames(effects), format(groups$id, scientific = FALSE, trim = TRUE))
    expect_named(effects, c("(Intercept)", "x"))
    expect_gt(cor(effects[["(Intercept)"]], groups$level), 0.95)
    expect_gt(cor(effects$x, groups$slope), 0.9)
    expect_equal(
        rownames(VarCorr(fit)), c("sd(id: (Intercept))", "sd(id: x)", "cor(id: (Intercept), x)")
    )
    expect_equal(VarCorr(fit)["sd(id: x)", "estimate"], 0.5, tolerance = 0.4)
    expect_equal(
        predict(fit, data.frame(x = 0, id = groups$id[1:2])),
        fixef(fit)[[1]] + effects[1:2, 1],
        tolerance = 0.05, ignore_attr = TRUE
    )
    expect_length(predict(fit, data.frame(x = 0, id = c("7", "new"))), 2)
    expect_equal(nameOf(barsOf(y ~ (1 | a / b))[[2]]$by), "a:b")
})

test_that("other families and links agree with R's", {
    set.seed(4)
    n <- 500
    data <- data.frame(x = rnorm(n))
    data$b <- rbinom(n, 1, 1 - exp(-exp(0.4 * data$x - 0.3)))
    nearWithErrors(fitOf(b ~ x, data, binomial("cloglog")), stats::glm(b ~ x, binomial("cloglog"), data))
    data$g <- rgamma(n, 3, 3 / exp(1 + 0.5 * data$x))
    nearWithErrors(fitOf(g ~ x, data, Gamma("log")), stats::glm(g ~ x, Gamma("log"), data))
    skip_if_not_installed("MASS")
    data$k <- rnbinom(n, mu = exp(0.5 + 0.5 * data$x), size = 2)
    reference <- MASS::glm.nb(k ~ x, data)
    fit <- fitOf(k ~ x, data, MASS::negative.binomial(2))
    nearWithErrors(fit, reference)
    expect_equal(summary(fit)["shape", "estimate"], reference$theta, tolerance = 0.2)
    robust <- summary(fit, robust = TRUE)$robust
    expect_equal(robust[1:2], sqrt(base::diag(stats::vcov(reference))), tolerance = 0.3, ignore_attr = TRUE)
    data$o <- cut(data$x + rlogis(n), c(-Inf, -1, 1, Inf), labels = c("low", "mid", "high"), ordered_result = TRUE)
    reference <- MASS::polr(o ~ x, data, Hess = TRUE)
    table <- summary(fitOf(o ~ x, data, "ordinal"))
    expect_equal(row.names(table), c("x", "low|mid", "mid|high"))
    expect_equal(table$estimate, c(stats::coef(reference), reference$zeta), tolerance = 0.1, ignore_attr = TRUE)
})

test_that("levels without an order have coefficients each", {
    set.seed(5)
    n <- 600
    data <- data.frame(x = rnorm(n))
    u <- cbind(a = 0, b = 0.5 - data$x, c = data$x) - log(-log(array(runif(3 * n), c(n, 3))))
    data$kind <- factor(c("a", "b", "c")[max.col(u)])
    fit <- fitOf(kind ~ x, data, "categorical")
    expect_named(coef(fit), c("b: (Intercept)", "b: x", "c: (Intercept)", "c: x"))
    expect_lt(max(abs(coef(fit) - c(0.5, -1, 0, 1))), 0.6)
    expect_equal(dim(predict(fit, data[1:3, ], type = "response")), c(3, 3))
})

test_that("emmeans has marginal means over the draws", {
    skip_if_not_installed("emmeans")
    set.seed(6)
    data <- data.frame(f = factor(rep(c("u", "v"), 100)), x = rnorm(200))
    data$y <- rpois(200, exp(0.5 + 0.7 * (data$f == "v") + 0.2 * data$x))
    fit <- fitOf(y ~ f + x, data, poisson())
    reference <- as.data.frame(summary(emmeans::emmeans(stats::glm(y ~ f + x, poisson(), data), "f", type = "response")))
    found <- as.data.frame(summary(emmeans::emmeans(fit, "f", type = "response")))
    expect_equal(found$rate, reference$rate, tolerance = 0.05)
    expect_lt(max(abs(found$lower.HPD - reference$asymp.LCL)), 0.3)
})

test_that("a file has the draws, and says what it has not", {
    needsPython()
    fit <- fitOf(y ~ x, data.frame(x = 1:20, y = rnorm(20)), gaussian())
    file <- tempfile()
    saveRDS(fit, file)
    again <- readRDS(file)
    expect_equal(coef(again), coef(fit))
    expect_error(predict(again), "read from a file")
})

test_that("what cannot be is said before anything runs", {
    expect_error(sgmcmcGlm(y ~ x, data.frame(x = 1), quasipoisson()), "quasipoisson")
    expect_error(sgmcmcGlm(~x, data.frame(x = 1)), "response")
    expect_error(sgmcmcGlm(y ~ x, data.frame(x = 1, y = 1), Gamma()), "Gamma(\"log\")", fixed = TRUE)
    expect_error(sgmcmcGlm(y ~ x * (1 | g), data.frame(x = 1, y = 1, g = 1)), "must be added")
    needsPython()
    expect_error(fitOf(y ~ x, data.frame(x = 1:9, y = -1), poisson()), "`y`.* integers, 0 or more; row 1 has")
    expect_error(fitOf(y ~ x + f, data.frame(x = 1:9, y = 1, f = "a"), poisson()), "`formula`: f has one level")
    expect_error(fitOf(y ~ x + I(2 * x), data.frame(x = 1:9, y = 1:9), poisson()), "'I(2 * x)'", fixed = TRUE)
})
