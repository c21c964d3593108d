# Methods of regressions beside those of lm, glm and lmer, on two fits.

fits <- new.env()

# A few draws: what is compared is computed from the same ones.
shortFit <- function(...) {
    needsPython()
    suppressWarnings(sgmcmcGlm(..., seed = 1, verbose = FALSE, nIters = 300, burnIn = 100, nChains = 2))
}

counted <- function() {
    if (is.null(fits$counts)) {
        set.seed(1)
        fits$rows <- data.frame(x = rnorm(60), t = runif(60, 1, 3), w = rep(c(1, 2, 0), 20))
        fits$rows$y <- rpois(60, fits$rows$t * exp(0.5 + 0.3 * fits$rows$x))
        fits$rows$x[4] <- NA
        fits$counts <- shortFit(
            y ~ x + offset(log(t)), fits$rows, poisson(), weights = w, na.action = stats::na.exclude
        )
    }
    fits$counts
}

mixed <- function() {
    if (is.null(fits$mixed)) {
        set.seed(2)
        data <- data.frame(g = rep(c(10, 2, 1, 100), each = 10), x = rnorm(40))
        data$y <- 1 + 2 * data$x + rnorm(4)[match(data$g, unique(data$g))] + rnorm(40, sd = 0.5)
        fits$mixed <- shortFit(y ~ x + (1 | g), data)
    }
    fits$mixed
}

test_that("what is in a fit is what glm has there", {
    fit <- counted()
    reference <- stats::glm(
        y ~ x + offset(log(t)), poisson(), fits$rows,
        weights = w, na.action = stats::na.exclude
    )
    for (f in c(nobs, df.residual, weights, variable.names, case.names, stats::model.matrix, stats::model.frame)) {
        expect_equal(f(fit), f(reference), ignore_attr = TRUE)
    }
    expect_equal(case.names(fit, full = TRUE), case.names(reference, full = TRUE))
    expect_equal(stats::formula(stats::terms(fit)), stats::formula(stats::terms(reference)), ignore_attr = TRUE)
    expect_equal(deviance(fit), deviance(reference), tolerance = 0.05)
    expect_equal(sigma(fit), 1)
    for (type in c("response", "pearson", "deviance", "working")) {
        found <- residuals(fit, type)
        expect_equal(which(is.na(found)), 4)
        expect_lt(max(abs(found - residuals(reference, type)), na.rm = TRUE), 0.6)
    }
    expect_equal(which(is.na(fitted(fit))), 4)
    expect_equal(residuals(fit)[-4], fits$rows$y[-4] - fitted(fit)[-4])
    simulated <- stats::simulate(fit, 2, seed = 1)
    expect_equal(row.names(simulated), row.names(fits$rows))
    expect_equal(which(is.na(simulated$sim_2)), 4)
    expect_equal(nrow(stats::simulate(fit, newdata = fits$rows[1:3, ], seed = 1)), 3)
    expect_equal(rownames(coef(summary(fit))), c("(Intercept)", "x"))
    expect_equal(coef(summary(fit))[, "estimate"], coef(fit))
    expect_equal(names(getCall(fit))[2:4], c("formula", "data", "family"))
})

test_that("predict has intervals and errors of its draws", {
    fit <- counted()
    few <- data.frame(x = c(-1, NA, 1), t = c(1, 1, 2))
    link <- predict(fit, few, se.fit = TRUE)
    draws <- as.matrix(fit)[, "(Intercept)"] + as.matrix(fit)[, "x"] + log(2)
    expect_equal(link$fit[[3]], mean(draws), tolerance = 1e-4)
    expect_equal(link$se.fit[[3]], stats::sd(draws), tolerance = 0.01)
    expect_equal(which(is.na(link$fit)), 2)
    response <- predict(fit, few, type = "response", interval = "confidence", level = 0.8)
    expect_equal(colnames(response), c("fit", "lwr", "upr"))
    expect_equal(response[3, 2:3], stats::quantile(exp(draws), c(0.1, 0.9)), tolerance = 1e-3, ignore_attr = TRUE)
    wide <- predict(fit, few[3, ], type = "response", interval = "prediction")
    expect_lt(wide[1, 2], response[3, 2])
    expect_gt(wide[1, 3], response[3, 3])
    expect_equal(rownames(predict(fit, few, quantiles = c(low = 0.1, 0.9))), c("low", "90%"))
    expect_error(predict(fit, few, interval = "prediction"), "type = \"response\"")
    expect_error(predict(fit, few, interval = "confidence", level = 95), "`level` must be a number between 0 and 1")
    expect_error(predict(fit, few, quantiles = 5), "`quantiles` must be probabilities")
    expect_error(predict(fit, few, type = "terms"), "should be one of")
})

test_that("re.form chooses effects of groups", {
    fit <- mixed()
    new <- data.frame(x = c(0, 1), g = c(2, 5))
    expect_equal(predict(fit, new["x"], re.form = NA), as.vector(cbind(1, 0:1) %*% fixef(fit)), tolerance = 1e-5)
    expect_equal(predict(fit, new, re.form = ~0), predict(fit, new, re.form = NA))
    expect_equal(predict(fit, new, re.form = ~ (1 | g)), predict(fit, new))
    expect_equal(
        predict(fit, new)[[1]], fixef(fit)[[1]] + ranef(fit)$g["2", 1],
        tolerance = 0.05
    )
    expect_equal(predict(fit, re.form = NA), as.vector(model.matrix(fit) %*% fixef(fit)), tolerance = 1e-5)
    expect_gt(predict(fit, new, se.fit = TRUE)$se.fit[[2]], predict(fit, new, re.form = NA, se.fit = TRUE)$se.fit[[2]])
    expect_error(predict(fit, new, re.form = ~ (1 | other)), "own factors, g")
    expect_error(predict(fit, new, re.form = ~ (1 + x | g)), "those of g are \\(Intercept\\)")
    expect_error(predict(fit, new, re.form = 3), "`re.form` must be")
})

test_that("lme4's functions find their parts", {
    fit <- mixed()
    expect_equal(rownames(ranef(fit)$g), c("1", "2", "10", "100"))
    expect_equal(sigma(fit), mean(as.matrix(fit)[, "sigma"]))
    expect_equal(df.residual(fit), 40 - 4)
    expect_error(deviance(fit), "loo\\(fit\\)")
    skip_if_not_installed("lme4")
    expect_equal(lme4::ngrps(fit), c(g = 4))
})

test_that("simulate has the form of the response, by R's seed", {
    fit <- mixed()
    set.seed(1)
    one <- simulate(fit, 2)
    set.seed(1)
    expect_identical(simulate(fit, 2), one)
    expect_named(one, c("sim_1", "sim_2"))
    expect_equal(nrow(one), 40)
    expect_equal(attr(simulate(fit, seed = 7), "seed"), 7)
    expect_lt(mean((one$sim_1 - fitted(fit))^2), 3 * sigma(fit)^2)
    counts <- cbind(won = 1:2, lost = 3:2)
    object <- list(model = stats::model.frame(counts ~ 1), trials = c(4, 4))
    expect_equal(asResponse(object, c(3, 0), NULL, NULL), cbind(won = c(3, 0), lost = c(1, 4)))
    won <- factor(c("no", "yes"))
    object <- list(model = stats::model.frame(won ~ 1))
    expect_equal(asResponse(object, c(1, 0), NULL, NULL), factor(c("yes", "no")))
})

test_that("rstantools, coda and posterior have their forms", {
    fit <- mixed()
    expect_equal(dim(as.matrix(fit)), c(600, 4))
    expect_named(as.data.frame(fit), names(fit$draws))
    expect_equal(as.array(fit)[5, 2, "x"], fit$draws$x[2, 5], ignore_attr = TRUE)
    if (requireNamespace("coda", quietly = TRUE)) {
        expect_equal(dim(coda::as.mcmc.list(fit)[[1]]), c(300, 4))
        expect_error(coda::as.mcmc(fit), "use as.mcmc.list")
    }
    skip_if_not_installed("rstantools")
    new <- data.frame(x = 0:1, g = 1)
    expect_equal(dim(rstantools::posterior_predict(fit, new, draws = 10)), c(10, 2))
    expect_equal(
        base::colMeans(rstantools::posterior_epred(fit, new, re.form = NA)), predict(fit, new, re.form = NA)
    )
    expect_equal(rstantools::posterior_linpred(fit), rstantools::posterior_epred(fit))
    expect_equal(dim(rstantools::log_lik(fit)), c(600, 40))
    expect_equal(rownames(rstantools::posterior_interval(fit, pars = "x")), "x")
    skip_if_not_installed("loo")
    theirs <- loo::loo(rstantools::log_lik(fit))
    expect_s3_class(loo(rstantools::log_lik(fit)), "loo")
    expect_equal(loo(fit)$elpd, theirs$estimates["elpd_loo", "Estimate"], tolerance = 0.02)
})

test_that("arguments that a method does not know, and what a posterior has not, are refused", {
    fit <- counted()
    for (f in list(
        coef, vcov, summary, fitted, residuals, sigma, deviance, weights, nobs, ranef, VarCorr, predict, simulate,
        as.matrix, loo, family, terms, stats::model.frame, stats::model.matrix, df.residual, confint
    )) {
        expect_error(f(fit, whatever = 1), "no argument `whatever`")
    }
    expect_error(predict(fit, allow.new.levels = TRUE), "`re.form = NA`")
    expect_error(ranef(mixed(), condVar = TRUE), "attribute `sd`")
    for (f in list(stats::logLik, stats::AIC, stats::BIC, stats::anova, stats::extractAIC, stats::drop1)) {
        expect_error(f(fit), "no maximized likelihood.*loo\\(fit\\)")
    }
})

test_that("marginaleffects has draws of predictions", {
    fit <- counted()
    rows <- data.frame(x = c(0, 1), t = 1, rowid = 3:4)
    found <- get_predict.sgmcmcGlm(fit, rows, "link")
    expect_equal(found$rowid, 3:4)
    expect_equal(found$estimate, predict(fit, rows), tolerance = 1e-6)
    expect_equal(dim(attr(found, "posterior_draws")), c(2, 600))
    before <- options(marginaleffects_model_classes = "other")
    on.exit(options(before))
    tellMarginaleffects()
    expect_equal(getOption("marginaleffects_model_classes"), c("other", "sgmcmcGlm"))
})
