# A Gaussian model whose posterior is known: x_i ~ N(theta, I), theta ~ N(0, 10 I), in two
# dimensions, with a short call of each sampler.

methods <- c("sgld", "sghmc", "sgnht", "sgldcv", "sghmccv", "sgnhtcv")

# Whoever names a Python wants these tests to run.
needsPython <- function() {
    if (Sys.getenv("RETICULATE_PYTHON") == "" && !reticulate::py_module_available("sgmcmc")) {
        skip("Python has no package sgmcmc; see installTF()")
    }
}

observations <- function() {
    set.seed(1)
    cbind(rnorm(200, mean = 1), rnorm(200, mean = -2))
}

logLik <- function(params, dataset) {
    tf$reduce_sum(-0.5 * (dataset$x - params$theta)^2)
}

logPrior <- function(params) {
    tf$reduce_sum(-0.05 * params$theta^2)
}

posterior <- function(x = observations()) {
    precision <- nrow(x) + 0.1
    list(mean = colSums(x) / precision, precision = precision)
}

# The arguments of a call of any sampler; all can be overridden.
arguments <- function(method, ...) {
    given <- list(
        logLik = logLik, dataset = list(x = observations()), params = list(theta = c(1, -2)),
        stepsize = 1e-4, logPrior = logPrior, minibatchSize = 50, nIters = 20,
        verbose = FALSE, seed = 1
    )
    if (grepl("cv$", method)) {
        given <- c(given, list(optStepsize = 1e-3, nItersOpt = 10))
    }
    others <- list(...)
    c(given[setdiff(names(given), names(others))], others)
}

run <- function(method, ...) {
    needsPython()
    do.call(method, arguments(method, ...))
}

setUpSampler <- function(method, ...) {
    needsPython()
    given <- arguments(method, ...)
    given$nIters <- NULL
    if (!grepl("cv$", method)) {
        given$verbose <- NULL
    }
    do.call(paste0(method, "Setup"), given)
}

# Regressions by formula beside R's own.
fitOf <- function(...) {
    needsPython()
    sgmcmcGlm(..., seed = 1, verbose = FALSE, ess = 200)
}

# Fits that several tests, also of several files, look at: each is made once in a process.
shared <- new.env()

once <- function(name, fit) {
    if (is.null(shared[[name]])) {
        needsPython()
        shared[[name]] <- fit
    }
    shared[[name]]
}

# A few draws: what is compared is computed from the same ones.
shortFit <- function(...) {
    needsPython()
    suppressWarnings(sgmcmcGlm(..., seed = 1, verbose = FALSE, ess = 100, nIters = 150, burnIn = 50, nChains = 2))
}

# Twelve groups with levels and slopes, whose numbers are of all sizes.
ofGroups <- local({
    set.seed(3)
    groups <- data.frame(id = c(100000L, 200000L, 300000L, 7L, 70L, 700L, 10L, 2L, 1L, 100L, 11L, 12L))
    groups$level <- rnorm(12)
    groups$slope <- rnorm(12, sd = 0.5)
    rows <- data.frame(id = rep(groups$id, each = 20), x = rnorm(240))
    own <- groups[match(rows$id, groups$id), ]
    rows$y <- 1 + 2 * rows$x + own$level + own$slope * rows$x + rnorm(240, sd = 0.5)
    list(groups = groups, rows = rows)
})

mixed <- function() once("mixed", shortFit(y ~ x + (1 + x | id), ofGroups$rows))

# Counts, whose coefficients are compared with those of glm().
counts <- local({
    set.seed(1)
    rows <- data.frame(x = rnorm(400), f = factor(sample(c("a", "b", "c"), 400, TRUE)), t = runif(400, 1, 3))
    rows$y <- rpois(400, rows$t * exp(0.3 * rows$x + 0.5 * (rows$f == "b")))
    rows
})

ofCounts <- function() once("counts", fitOf(y ~ x * f + I(x^2) + offset(log(t)), counts, poisson()))

# Coefficients within a part of a standard error: posterior means of 200 effective draws and wide priors.
near <- function(fit, reference, most = 0.5) {
    expect_named(coef(fit), names(stats::coef(reference)))
    errors <- sqrt(diag(stats::vcov(reference)))
    expect_lt(max(abs(coef(fit) - stats::coef(reference)) / errors), most)
}

nearWithErrors <- function(fit, reference) {
    near(fit, reference, 0.4)
    errors <- sqrt(diag(stats::vcov(reference)))
    expect_lt(max(abs(sqrt(diag(vcov(fit))) / errors - 1)), 0.25)
}
