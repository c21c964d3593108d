# Methods of regressions beside those of lm, glm and lmer, on two fits.

countRows <- local({
    set.seed(1)
    rows <- data.frame(x = rnorm(60), t = runif(60, 1, 3), w = rep(c(1, 2, 0), 20))
    rows$y <- rpois(60, rows$t * exp(0.5 + 0.3 * rows$x))
    rows$x[4] <- NA
    rows
})

counted <- function() {
    once("counted", shortFit(
        y ~ x + offset(log(t)), countRows, poisson(), weights = w, na.action = stats::na.exclude
    ))
}

test_that("a fit has a report, with the names of its formula", {
    found <- report(counted())
    expect_s3_class(found, "sgmcmcReport")
    expect_type(found$warnings, "character")
    expect_output(print(found), "Sampling report: .*Draws")
    expect_match(paste(found$warnings, collapse = " "), "of x|\\((\\(Intercept\\)|x)\\)")
})

test_that("what is in a fit is what glm has there", {
    fit <- counted()
    reference <- stats::glm(
        y ~ x + offset(log(t)), poisson(), countRows,
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
        expect_named(found, names(residuals(reference, type)))
        expect_equal(which(is.na(found)), c("4" = 4))
        expect_lt(max(abs(found - residuals(reference, type)), na.rm = TRUE), 0.6)
    }
    expect_equal(which(is.na(fitted(fit))), c("4" = 4))
    expect_named(fitted(fit), row.names(countRows))
    expect_named(weights(fit), row.names(countRows))
    expect_equal(residuals(fit)[-4], countRows$y[-4] - fitted(fit)[-4])
    few <- countRows[c(7, 4, 9), ]
    for (given in list(few, data.frame(few, row.names = c("a", "b", "c")))) {
        theirs <- stats::predict(reference, given, se.fit = TRUE)
        expect_equal(lapply(predict(fit, given, se.fit = TRUE), names), lapply(theirs, names))
    }
    expect_named(predict(fit), names(stats::predict(reference)))
    expect_equal(rownames(predict(fit, few, interval = "confidence")), c("7", "4", "9"))
    expect_equal(dimnames(predict(fit, few, quantiles = c(0.1, 0.9))), list(c("10%", "90%"), c("7", "4", "9")))
    expect_equal(colnames(predict(fit, few, type = "predictive")), c("7", "4", "9"))
    simulated <- stats::simulate(fit, 2, seed = 1)
    expect_equal(row.names(simulated), row.names(countRows))
    expect_equal(which(is.na(simulated$sim_2)), 4)
    expect_equal(nrow(stats::simulate(fit, newdata = countRows[1:3, ], seed = 1)), 3)
    expect_equal(rownames(coef(summary(fit))), c("(Intercept)", "x"))
    expect_equal(coef(summary(fit))[, "estimate"], coef(fit))
    expect_equal(names(getCall(fit))[2:4], c("formula", "data", "family"))
    expect_equal(labels(fit), labels(stats::terms(reference)))
    for (name in c("coefficients", "fitted.values", "residuals", "linear.predictors", "prior.weights")) {
        theirs <- reference[[name]]
        expect_named(do.call(`$`, list(fit, name)), names(if (name == "coefficients") theirs else stats::naresid(reference$na.action, theirs)))
    }
    expect_equal(fit$coef, coef(fit))
    expect_equal(fit$residuals, residuals(fit, "working"))
    expect_equal(fit$df.residual, reference$df.residual)
    expect_equal(fit$rank, reference$rank)
    expect_equal(fit$family, reference$family)
    expect_null(fit$nothing)
    expect_error(fit$aic, "no maximized likelihood")
    expect_equal(summary(fit)$coefficients, coef(summary(fit)))
    expect_error(summary(fit)$r.squared, "no `r.squared`")
})

test_that("predict has intervals and errors of its draws", {
    fit <- counted()
    few <- data.frame(x = c(-1, NA, 1), t = c(1, 1, 2))
    link <- predict(fit, few, se.fit = TRUE)
    draws <- as.matrix(fit)[, "(Intercept)"] + as.matrix(fit)[, "x"] + log(2)
    expect_equal(link$fit[[3]], mean(draws), tolerance = 1e-4)
    expect_equal(link$se.fit[[3]], stats::sd(draws), tolerance = 0.01)
    expect_equal(which(is.na(link$fit)), c("2" = 2))
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
    new <- data.frame(x = c(0, 1), id = c(2, 5))
    expect_equal(
        predict(fit, new["x"], re.form = NA), as.vector(cbind(1, 0:1) %*% fixef(fit)),
        tolerance = 1e-5, ignore_attr = TRUE
    )
    expect_equal(predict(fit, new, re.form = ~0), predict(fit, new, re.form = NA))
    with <- predict(fit, new, se.fit = TRUE)
    expect_equal(predict(fit, new, re.form = ~ (x | id)), with$fit)
    expect_equal(with$fit[[1]], fixef(fit)[[1]] + ranef(fit)$id["2", 1], tolerance = 0.05)
    expect_equal(predict(fit, re.form = NA), (model.matrix(fit) %*% fixef(fit))[, 1], tolerance = 1e-5)
    expect_gt(with$se.fit[[2]], predict(fit, new, re.form = NA, se.fit = TRUE)$se.fit[[2]])
    expect_error(predict(fit, new, re.form = ~ (1 | other)), "own factors, id")
    expect_error(predict(fit, new, re.form = ~ (1 | id)), "those of id are \\(Intercept\\), x")
    expect_error(predict(fit, new, re.form = 3), "`re.form` must be")
})

test_that("lme4's functions find their parts", {
    fit <- mixed()
    expect_equal(sigma(fit), mean(as.matrix(fit)[, "sigma"]))
    expect_error(deviance(fit), "loo\\(fit\\)")
    effects <- ranef(fit)
    expect_output(print(effects), "\\$id.*100000")
    skip_if_not_installed("lme4")
    reference <- lme4::lmer(y ~ x + (1 + x | id), ofGroups$rows, REML = FALSE)
    expect_equal(df.residual(fit), df.residual(reference))
    expect_equal(lme4::ngrps(fit), lme4::ngrps(reference))
    expect_named(fitted(fit), names(fitted(reference)))
    found <- coef(fit)$id
    expect_equal(dimnames(found), dimnames(stats::coef(reference)$id))
    expect_lt(max(abs(found - stats::coef(reference)$id)), 0.2)
    expect_equal(fixef(fit) + colSums(effects$id["7", ]), unlist(found["7", ]), tolerance = 1e-6)
    parts <- VarCorr(fit)
    variances <- lme4::VarCorr(reference)
    for (order in c("cov.last", "lower.tri")) {
        found <- as.data.frame(parts, order = order)
        theirs <- as.data.frame(variances, order = order)
        expect_equal(found[1:3], theirs[1:3])
        expect_equal(found$sdcor, theirs$sdcor, tolerance = 0.2)
        single <- is.na(found$var2)
        expect_equal(found$vcov[single], found$sdcor[single]^2)
        expect_equal(found$vcov[!single], found$sdcor[!single] * prod(found$sdcor[single & found$grp == "id"]))
    }
    expect_equal(attr(parts$id, "stddev"), attr(variances$id, "stddev"), tolerance = 0.3)
    expect_equal(dimnames(parts[["id"]]), dimnames(variances$id))
    expect_equal(attr(parts, "sc"), sigma(fit))
    expect_equal(parts$estimate, summary(fit)$estimate[3:5])
    ours <- as.data.frame(effects)
    theirs <- as.data.frame(lme4::ranef(reference))
    expect_equal(lapply(ours[1:3], as.character), lapply(theirs[1:3], as.character))
    expect_lt(max(abs(ours$condval - theirs$condval)), 0.2)
})

test_that("several bars are those of lme4, in its order", {
    skip_if_not_installed("lme4")
    data <- data.frame(y = rnorm(40), x = rnorm(40), g = rep(1:4, 10), h = rep(1:8, each = 5))
    formula <- y ~ 1 + (x || g) + (1 + x | h)
    frame <- stats::model.frame(y ~ x + g + h, data)
    bars <- barsOf(formula)
    groups <- lapply(stats::setNames(nm = c("g", "h")), function(name) groupsOf(as.name(name), frame))
    object <- list(bars = list(designs = effectsOf(bars, frame, environment()), groups = groups))
    rows <- c("sd(g: (Intercept))", "sd(g: x)", "sd(h: (Intercept))", "sd(h: x)", "cor(h: (Intercept), x)")
    table <- data.frame(estimate = c(1:4, 0.5), row.names = rows)
    found <- structure(table, class = c("VarCorr.sgmcmcGlm", "data.frame"), matrices = covariancesOf(object, table), sc = 5)
    reference <- suppressMessages(lme4::lmer(formula, data))
    expect_equal(as.data.frame(found)[1:3], as.data.frame(lme4::VarCorr(reference))[1:3])
    expect_equal(as.data.frame(found)$sdcor, c(3, 4, 0.5, 2, 1, 5))
    expect_equal(as.data.frame(found)$vcov, c(9, 16, 6, 4, 1, 25))
    effects <- list(g = data.frame("(Intercept)" = 1:2, x = 3:4, row.names = c("u", "v"), check.names = FALSE))
    expect_equal(
        coefficientsOf(c("(Intercept)" = 10), effects)$g,
        data.frame(x = c(3, 4), "(Intercept)" = c(11, 12), row.names = c("u", "v"), check.names = FALSE)
    )
})

test_that("simulate has the form of the response, by R's seed", {
    fit <- ofCounts()
    set.seed(1)
    one <- simulate(fit, 2)
    set.seed(1)
    expect_identical(simulate(fit, 2), one)
    expect_named(one, c("sim_1", "sim_2"))
    expect_equal(row.names(one), row.names(counts))
    expect_equal(attr(simulate(fit, seed = 7), "seed"), 7)
    drawn <- simulate(mixed(), seed = 1)
    expect_equal(row.names(drawn), row.names(ofGroups$rows))
    expect_lt(mean((drawn$sim_1 - fitted(mixed()))^2), 3 * sigma(mixed())^2)
    trials <- cbind(won = 1:2, lost = 3:2)
    object <- list(model = stats::model.frame(trials ~ 1), trials = c(4, 4))
    expect_equal(asResponse(object, c(3, 0), NULL, NULL), cbind(won = c(3, 0), lost = c(1, 4)))
    won <- factor(c("no", "yes"))
    object <- list(model = stats::model.frame(won ~ 1))
    expect_equal(asResponse(object, c(1, 0), NULL, NULL), factor(c("yes", "no")))
})

test_that("rstantools, coda and posterior have their forms", {
    fit <- mixed()
    expect_equal(dim(as.matrix(fit)), c(300, 6))
    expect_named(as.data.frame(fit), names(fit$draws))
    expect_equal(as.array(fit)[5, 2, "x"], fit$draws$x[2, 5], ignore_attr = TRUE)
    if (requireNamespace("coda", quietly = TRUE)) {
        expect_equal(dim(coda::as.mcmc.list(fit)[[1]]), c(150, 6))
        expect_error(coda::as.mcmc(fit), "use as.mcmc.list")
    }
    skip_if_not_installed("rstantools")
    new <- data.frame(x = 0:1, id = 1)
    expect_equal(dim(rstantools::posterior_predict(fit, new, draws = 10)), c(10, 2))
    expect_equal(
        base::colMeans(rstantools::posterior_epred(fit, new, re.form = NA)), predict(fit, new, re.form = NA)
    )
    expect_equal(
        rstantools::posterior_linpred(fit, newdata = new, re.form = NA), rstantools::posterior_epred(fit, new, re.form = NA)
    )
    expect_equal(rstantools::posterior_linpred(fit), rstantools::posterior_epred(fit))
    expect_equal(dim(rstantools::log_lik(fit)), c(300, 240))
    expect_equal(rownames(rstantools::posterior_interval(fit, pars = "x")), "x")
    skip_if_not_installed("loo")
    fit <- ofCounts()
    terms <- rstantools::log_lik(fit)
    relative <- loo::relative_eff(exp(terms), chain_id = rep(1:4, each = nrow(terms) / 4))
    theirs <- loo::loo(terms, r_eff = relative)
    expect_equal(loo(terms, r_eff = relative), theirs)
    ours <- loo(fit)
    expect_equal(ours$elpd, theirs$estimates["elpd_loo", "Estimate"], tolerance = 0.02)
    expect_equal(ours$elpd, ours$estimates["elpd_loo", "Estimate"])
    expect_equal(ours$se, ours$estimates["elpd_loo", "SE"])
    expect_equal(ours$estimates, theirs$estimates, tolerance = 0.1)
    expect_equal(dimnames(ours$pointwise), dimnames(theirs$pointwise))
    expect_output(print(ours), "p_loo")
    difference <- loo::loo_compare(ours, theirs)[2, ]
    expect_lt(abs(difference[["elpd_diff"]]), 0.01 * abs(ours$elpd))
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
    expect_equal(found$estimate, unname(predict(fit, rows)), tolerance = 1e-6)
    expect_equal(dim(attr(found, "posterior_draws")), c(2, 300))
    before <- options(marginaleffects_model_classes = "other")
    on.exit(options(before))
    tellMarginaleffects()
    expect_equal(getOption("marginaleffects_model_classes"), c("other", "sgmcmcGlm"))
})
