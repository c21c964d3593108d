test_that("sgmcmcSample needs no constants, and says what it chose", {
    needsPython()
    chain <- sgmcmcSample(logLik, list(x = observations()), list(theta = c(0, 0)), logPrior,
        ess = 200, verbose = FALSE, seed = 1
    )
    exact <- posterior()
    table <- summary(chain)
    expect_lt(max(abs(table$mean - exact$mean) / table$mcse_mean), 5)
    expect_lt(max(abs(table$sd * sqrt(exact$precision) - 1)), 0.05 + 5 / sqrt(2 * 200))
    expect_gte(min(table$ess_bulk), 200)
    expect_equal(dim(chain$theta)[1], 4)
    expect_length(report(chain)$warnings, 0)
    # The report comes along in files.
    file <- tempfile()
    saveRDS(chain, file)
    expect_output(print(report(readRDS(file))), "Sampling report: underdamped")
})

test_that("warnings of a call and of its report are told once", {
    texts <- function(code) {
        found <- character()
        withCallingHandlers(code, warning = function(problem) {
            found <<- c(found, conditionMessage(problem))
            invokeRestart("muffleWarning")
        })
        found
    }
    call <- function() {
        tellWarnings(c("of the call", "of the call"))
        warning("of the user's function")
        list(report = list(warnings = list("of the call", "of the report in log_lik")))
    }
    about <- function(found) found$report$warnings
    expect_equal(texts(withWarnings(call(), about)), c("of the call", "of the user's function", "of the report in logLik"))
    expect_equal(texts(withWarnings(call(), about, toupper))[c(1, 3)], c("OF THE CALL", "OF THE REPORT IN LOGLIK"))
    needsPython()
    expect_silent(run("sgld"))
    told <- texts(chain <- sgmcmcSample(logLik, list(x = observations()), list(theta = c(1, -2)), logPrior,
        ess = 4000, nIters = 100, burnIn = 10, nChains = 2, verbose = FALSE, seed = 1
    ))
    expect_gt(length(told), 0)
    expect_equal(told, report(chain)$warnings)
    expect_equal(texts(extend(chain, 10, verbose = FALSE)), character())
})

test_that("sgmcmcSample with all parts given is the named function, and runs step by step", {
    needsPython()
    given <- list(logLik, list(x = observations()), list(theta = c(1, -2)), logPrior,
        dynamics = "sgld", gradient = "minibatch", minibatches = "uniform", minibatchSize = 50,
        preconditioner = "none", stepsize = 1e-4, nChains = NULL, seed = 1, verbose = FALSE
    )
    named <- run("sgld", updates = "joint")
    expect_identical(
        do.call(sgmcmcSample, c(given, list(nIters = 20, burnIn = 0)))$theta, named$theta
    )
    sampler <- do.call(sgmcmcSetup, given)
    expect_s3_class(sampler, "sgmcmc")
    sess <- initSess(sampler)
    sgmcmcStep(sampler, sess, 20)
    expect_equal(getParams(sampler, sess)$theta, named$theta[20, ], tolerance = 1e-5, ignore_attr = TRUE)
})

test_that("parts are objects, and preconditioners arrays or lists", {
    needsPython()
    given <- list(logLik, list(x = observations()), list(theta = c(1, -2)), logPrior,
        dynamics = sgmcmcParts$dynamics$Underdamped(), gradient = sgmcmcParts$gradients$SAGA(),
        minibatches = sgmcmcParts$minibatches$Weighted(rep(c(1, 2), 100)), minibatchSize = 20,
        stepsize = 0.2, nIters = 50, burnIn = 10, nChains = 2, seed = 1, verbose = FALSE
    )
    draws <- lapply(
        list(c(1, 1) / 200, diag(2) / 200, list(theta = c(1, 1) / 200)),
        function(preconditioner) {
            do.call(sgmcmcSample, c(given, list(preconditioner = preconditioner)))$theta
        }
    )
    expect_equal(dim(draws[[1]]), c(2, 50, 2))
    expect_equal(draws[[2]], draws[[1]], tolerance = 1e-4)
    expect_equal(draws[[3]], draws[[1]], tolerance = 1e-4)
    expect_error(sgmcmcParts$dynamic, "dynamics, gradients, minibatches, models")
    expect_output(print(sgmcmcParts), "$gradients", fixed = TRUE)
})

for (method in c("hmc", "mala", "nuts")) {
    test_that(paste(method, "has the mean and the variance of the posterior"), {
        needsPython()
        chain <- do.call(method, list(logLik, list(x = observations()), list(theta = c(0, 0)), logPrior,
            nChains = 2, nIters = 500, verbose = FALSE, seed = 1
        ))
        exact <- posterior()
        table <- summary(chain)
        expect_lt(max(abs(table$mean - exact$mean) / table$mcse_mean), 5)
        expect_lt(max(abs(table$sd - 1 / sqrt(exact$precision)) / table$mcse_sd), 5)
        expect_match(paste(names(report(chain)), collapse = " "), "Draws")
    })
}

test_that("what is wrong is said in R's words", {
    needsPython()
    expect_error(
        sgmcmcSample(logLik, list(x = observations()), list(theta = c(0, 0)), tolernace = 1),
        "no argument `tolernace`"
    )
    expect_error(
        nuts(logLik, list(x = observations()), list(theta = c(0, 0)), nChains = 1), "nChains"
    )
    expect_error(
        sgmcmcSample(logLik, list(x = observations()), list(theta = 0), stepsize = function(m) 1),
        "takes `nIters`"
    )
})

test_that("signatures are those of the Python package, in R's names", {
    needsPython()
    reticulate::py_run_string("
import inspect, sgmcmc
def names_of(method):
    return list(inspect.signature(getattr(sgmcmc, method)).parameters)
")
    ours <- c(
        sample = "sgmcmcSample", setup = "sgmcmcSetup", hmc = "hmc", mala = "mala", nuts = "nuts",
        divide = "divide", zigzag = "zigzag", mhss = "mhss"
    )
    for (name in names(ours)) {
        given <- setdiff(names(formals(ours[[name]])), "...")
        python <- reticulate::py$names_of(name)
        expect_equal(snakeCase(given), intersect(python, snakeCase(given)), label = name)
    }
})
