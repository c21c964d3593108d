test_that("an R error in a function arrives with its message", {
    expect_error(
        run("sgld", logLik = function(params, dataset) stop("no such luck")),
        "`logLik` failed.*R says: no such luck"
    )
    expect_error(
        run("sgldcv", logPrior = function(params) undefined + 1),
        "`logPrior` failed.*object 'undefined' not found"
    )
    expect_error(
        run("sgld", testFunctions = list(f = function(params) stop("not this"))),
        "R says: not this"
    )
    expect_error(run("sgld", logLik = function(params) 1), "unused argument")
})

test_that("wrong arguments are named, in R's words", {
    expect_error(run("sgld", stepsize = -1), "`stepsize` must be positive")
    expect_error(run("sgld", stepsize = list(tehta = 1)), "tehta.*Did you mean 'theta'")
    expect_error(run("sgld", minibatchSize = 1000), "`minibatchSize`.*200")
    expect_error(run("sgld", nIters = 2.5), "`nIters` must be an integer")
    expect_error(run("sgld", nIters = "many"), "`nIters` must be an integer")
    expect_error(run("sgldcv", optStepsize = "small"), "`optStepsize`")
    expect_error(run("sgld", store = 1), "`store` must be the path of a folder")
    expect_error(run("sgld", dataset = list(x = c(1, NA))), "`dataset\\$x` holds NaN")
    expect_error(run("sgld", dataset = list(x = c(1L, NA))), "`dataset\\$x` holds NaN")
    expect_error(run("sgld", dataset = list(x = c("a", "b"))), "`dataset\\$x`.*numbers")
    expect_error(run("sgld", dataset = list(x = 1:3, y = 1:4)), "same length")
    expect_error(run("sgld", logLik = 1), "`logLik` must be a function")
    expect_error(run("sgld", params = list(theta = "one")), "`params\\$theta`")
    expect_error(run("sgld", reticulated = 1), "no argument `reticulated`")
    expect_error(sgld(logLik, list(x = 1), list(theta = 0)), "\"stepsize\" is missing")
    expect_error(
        run("sgld", logLik = function(params, dataset) dataset$x * params$theta),
        "must return a scalar.*tf\\$reduce_sum"
    )
    expect_error(
        run("sgld", logLik = function(params, dataset) tf$reduce_sum(dataset$x), logPrior = NULL),
        "does not depend on the parameter 'theta'"
    )
    expect_error(
        run("sgld", logLik = function(params, dataset) {
            tf$reduce_sum(params$theta * tf$constant(1, dtype = tf$float64))
        }),
        "mixes dtypes.*tf\\$constant"
    )
    expect_error(getDataset("minst"), "Did you mean 'mnist'")
    expect_error(polynomialDecay(-1, 1, 1), "`h` must be positive")
})

test_that("a divergence brings the finite draws along", {
    condition <- tryCatch(
        run("sgld", stepsize = 10, nIters = 1000),
        sgmcmcDivergence = function(condition) condition
    )
    expect_match(conditionMessage(condition), "Try a smaller `stepsize`")
    expect_match(conditionMessage(condition), "condition's `samples`", fixed = TRUE)
    expect_equal(condition$parameter, "theta")
    expect_true(all(is.finite(condition$samples$theta)))
    expect_lt(nrow(condition$samples$theta), 1000)
})

test_that("a model that XLA cannot compile runs, with a warning", {
    uncompilable <- function(params, dataset) {
        text <- tf$strings$as_string(dataset$x)
        tf$reduce_sum(-0.5 * (tf$strings$to_number(text) - params$theta)^2)
    }
    expect_warning(chain <- run("sgld", logLik = uncompilable), "XLA cannot compile.*`jitCompile = FALSE`")
    expect_equal(dim(chain$theta), c(20, 2))
    expect_silent(run("sgld", logLik = uncompilable, jitCompile = FALSE))
})

test_that("verbose shows progress and FALSE nothing", {
    expect_silent(run("sgldcv"))
})
