# Inputs that gave other numbers than lm, glm and lmer, with chains: what cannot be seen in what is
# sent.

test_that("columns have any names, and the mean may be large", {
    set.seed(31)
    n <- 120
    data <- data.frame(sigma = rnorm(n), Intercept = rnorm(n), x_3_ = rnorm(n), `my var` = rnorm(n), check.names = FALSE)
    data$f <- factor(sample(c("Intercept", "b"), n, TRUE), c("b", "Intercept"))
    data$y <- 1e8 + data$sigma + data$x_3_ + rnorm(n)
    formula <- y ~ sigma + Intercept + x_3_ + `my var` + f
    fit <- expect_silent(fitOf(formula, data))
    reference <- stats::lm(formula, data)
    near(fit, reference)
    expect_equal(names(fit$draws), c("(Intercept)", "`sigma`", "Intercept", "x_3_", "`my var`", "fIntercept", "sigma"))
    expect_equal(unname(fit$roles), c(rep("fixed", 6), "auxiliary"))
    expect_equal(mean(fit$draws$sigma), stats::sigma(reference), tolerance = 0.1)
    expect_equal(rownames(confint(fit)), names(stats::coef(reference)))
    expect_equal(dimnames(vcov(fit))[[1]], names(stats::coef(reference)))
    expect_output(print(fit), "`sigma` ~ normal.*\n  sigma ~ exponential")
    expect_equal(predict(fit, data[1:3, ]) - 1e8, stats::predict(reference, data[1:3, ]) - 1e8, tolerance = 0.3)
    skip_if_not_installed("posterior")
    expect_equal(posterior::variables(posterior::as_draws(fit)), names(fit$draws))
})

test_that("proportions with weights are glm's, and draws of new rows have their trials", {
    set.seed(32)
    n <- 150
    data <- data.frame(x = rnorm(n), size = sample(1:20, n, TRUE), w = runif(n, 0.2, 3))
    data$s <- rbinom(n, data$size, stats::plogis(-1 + data$x))
    expect_warning(fit <- fitOf(s / size ~ x, data, binomial(), weights = w), "not whole")
    near(fit, suppressWarnings(stats::glm(s / size ~ x, binomial(), data, weights = w)))
    expect_length(fitted(fit), n)
    expect_error(predict(fit, type = "predictive"), "not whole have no draws")
    expect_error(loo(fit), "not whole have no density")
    data$size[1:5] <- data$s[1:5] <- 0
    fit <- fitOf(cbind(s, size - s) ~ x, data, binomial())
    near(fit, stats::glm(cbind(s, size - s) ~ x, binomial(), data))
    draws <- predict(fit, data.frame(x = 0, s = 0, size = c(0, 40)), type = "predictive")
    expect_equal(range(draws[, 1]), c(0, 0))
    expect_equal(mean(draws[, 2]), 40 * predict(fit, data.frame(x = 0), type = "response")[[1]], tolerance = 0.05)
    expect_equal(range(predict(fit, type = "predictive")[, 1:5]), c(0, 0))
    expect_equal(mean(predict(fit, data.frame(x = 0), trials = 40, type = "predictive")), mean(draws[, 2]), tolerance = 0.05)
})

test_that("rows of a group are its rows in any type, and rows with missing values have no prediction", {
    fit <- mixed()
    groups <- ofGroups$groups
    new <- data.frame(x = 0, id = as.numeric(groups$id))
    found <- predict(fit, new)
    expect_lt(max(abs(found - 1 - groups$level)), 0.6)
    expect_equal(predict(fit, transform(new, id = factor(id))), found)
    expect_equal(unname(is.na(predict(fit, transform(new, x = replace(x, c(1, 12), NA))))), 1:12 %in% c(1, 12))
    expect_error(predict(fit, transform(new, id = NA)), "`id` is NA in row 1")
})

test_that("warnings of a regression are R's", {
    set.seed(34)
    data <- data.frame(x = rnorm(40))
    data$y <- as.integer(data$x > 0)
    expect_warning(fit <- fitOf(y ~ x, data, binomial()), "'x' is held by its prior")
    expect_match(fit$warnings, "'x' is held by its prior")
})
