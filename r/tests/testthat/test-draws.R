test_that("draws are a list of arrays, the iteration first", {
    params <- list(scalar = 0, vector = c(1, 2), one = array(1, 1), matrix = matrix(1:6 / 6, 2))
    sum <- function(params, dataset) tf$reduce_sum(dataset$x)
    squares <- function(params) -Reduce(`+`, lapply(params, function(param) tf$reduce_sum(param^2)))
    chain <- run("sgld", logLik = sum, params = params, logPrior = squares)
    expect_type(chain, "list")
    expect_named(chain, names(params))
    expect_equal(dim(chain$scalar), c(20, 1))
    expect_equal(dim(chain$vector), c(20, 2))
    expect_equal(dim(chain$one), c(20, 1))
    expect_equal(dim(chain$matrix), c(20, 2, 3))
    chains <- run("sgld", logLik = sum, params = params, logPrior = squares, nChains = 3)
    expect_equal(dim(chains$scalar), c(3, 20, 1))
    expect_equal(dim(chains$matrix), c(3, 20, 2, 3))
})

test_that("burnIn and thin drop iterations", {
    all <- run("sghmc", nIters = 30)$theta
    expect_equal(run("sghmc", nIters = 20, burnIn = 10, thin = 5)$theta, all[seq(15, 30, 5), ],
        tolerance = 1e-5
    )
})

test_that("chains may have a start each, and settings for each parameter", {
    starts <- list(list(theta = c(0, 0)), list(theta = c(3, 3)))
    chain <- run("sgnht",
        params = starts, nChains = 2, stepsize = list(theta = 1e-9), a = list(theta = 0.02)
    )
    expect_equal(chain$theta[, 1, ], rbind(c(0, 0), c(3, 3)), tolerance = 1e-3)
})

test_that("what else a chain brings is in its attributes", {
    chain <- run("sgldcv",
        storeGradients = TRUE, storeParams = "theta", dtype = tf$float64,
        testFunctions = list(norm = function(params) tf$norm(params$theta)),
        reductions = list(total = list(c(0, 0), function(state, params) state + params$theta))
    )
    expect_equal(dim(attr(chain, "gradients")$theta), c(20, 2))
    norms <- attr(chain, "testFunctions")$norm
    expect_equal(norms[, 1], sqrt(rowSums(chain$theta^2)))
    expect_equal(c(attr(chain, "reductions")$total), colSums(chain$theta))
    expect_equal(attr(chain, "settings")$method, "sgldcv")
    expect_length(attr(chain, "mode")$theta, 2)
    expect_output(print(chain), "theta  20 x 2")
})

test_that("dataset may be vectors, data frames and tensors, and stays what it is", {
    x <- observations()
    frame <- data.frame(a = x[, 1], b = x[, 2])
    before <- frame
    columns <- function(params, dataset) {
        tf$reduce_sum(-0.5 * (dataset$a - params$theta[1])^2 - 0.5 * (dataset$b - params$theta[2])^2)
    }
    inFrame <- run("sgld", logLik = columns, dataset = frame)
    asMatrix <- run("sgld")
    expect_equal(inFrame$theta, asMatrix$theta, tolerance = 1e-5)
    expect_identical(frame, before)
    asTensor <- run("sgld", dataset = list(x = tf$constant(x, dtype = tf$float32)))
    expect_equal(asTensor$theta, asMatrix$theta)
})

test_that("integers index what is gathered, counted from 0", {
    groups <- rep(1:4, 5)
    gathered <- function(params, dataset) {
        tf$reduce_sum(-0.5 * (dataset$x - tf$gather(params$u, tf$to_int32(dataset$group - 1)))^2)
    }
    chain <- run("sgld",
        logLik = gathered, logPrior = NULL, params = list(u = 1:4), minibatchSize = 20,
        dataset = list(x = groups + 0, group = groups), stepsize = 1e-9
    )
    expect_equal(chain$u[20, ], 1:4, tolerance = 1e-3)
})

test_that("a stepsize may be a schedule", {
    decay <- polynomialDecay(1e-4, 10, 0.5)
    byFormula <- function(m) 1e-4 * (1 + m / 10)^-0.5
    expect_equal(decay(10), byFormula(10))
    expect_equal(
        run("sgldcv", stepsize = decay, optStepsize = decay, burnIn = 5)$theta,
        run("sgldcv", stepsize = byFormula, optStepsize = byFormula, burnIn = 5)$theta
    )
    expect_error(setUpSampler("sgld", stepsize = byFormula), "polynomialDecay")
})

test_that("bijectors keep a parameter in its range", {
    chain <- run("sgld",
        logLik = function(params, dataset) {
            scale <- params$scale
            tf$reduce_sum(-log(scale) - 0.5 * (dataset$x[, 1] / scale)^2)
        },
        logPrior = NULL, params = list(scale = 1), nIters = 200,
        bijectors = list(scale = tf$distributions$bijectors$Exp())
    )
    expect_gt(min(chain$scale), 0)
})

test_that("zeroVariance makes the mean of a Gaussian exact", {
    chain <- run("sgld",
        minibatchSize = 200, storeGradients = TRUE, nIters = 500, stepsize = 1e-3,
        testFunctions = list(twice = function(params) 2 * params$theta)
    )
    corrected <- zeroVariance(chain)
    batched <- zeroVariance(chain, batches = 10)
    expect_identical(dim(batched$theta), dim(corrected$theta))
    expect_equal(c(attr(corrected, "mean")$theta), posterior()$mean, tolerance = 1e-5)
    expect_gt(min(attr(corrected, "varianceRatio")$theta), 100)
    stored <- zeroVariance(chain, testFunctions = "twice")
    evaluated <- zeroVariance(chain, testFunctions = list(twice = function(params) 2 * params$theta))
    expect_equal(attr(stored, "mean"), attr(evaluated, "mean"), tolerance = 1e-5)
    chain$theta <- chain$theta[-(1:10), ]
    expect_error(zeroVariance(chain), "burnIn")
    expect_error(zeroVariance(run("sgld")), "storeGradients = TRUE", fixed = TRUE)
})
