# One run of two chains for all of the questions that can be asked afterwards.
chains <- local({
    found <- NULL
    function() {
        if (is.null(found)) {
            found <<- run("sgld",
                nChains = 2, nIters = 400, burnIn = 20, minibatchSize = 200, storeGradients = TRUE,
                stepsize = 1e-3
            )
        }
        found
    }
})

test_that("a summary has means, sds and effective sample sizes by R's names", {
    table <- summary(chains())
    expect_s3_class(table, "data.frame")
    expect_equal(rownames(table), c("theta[1]", "theta[2]"))
    expect_equal(table$mean, apply(chains()$theta, 3, mean), tolerance = 1e-5)
    expect_equal(table$sd, apply(chains()$theta, 3, sd), tolerance = 1e-2)
    expect_named(summary(chains(), quantiles = 0.25), c(
        "mean", "sd", "q25", "mcse_mean", "mcse_sd", "ess_bulk", "ess_tail", "rhat"
    ))
    expect_equal(
        summary(chains(), "theta", quantiles = 0.25)$q25, apply(chains()$theta, 3, quantile, 0.25),
        tolerance = 1e-5
    )
    expect_error(summary(chains(), "tehta"), "no draws of `tehta`")
    expect_output(print(table), "rhat")
})

test_that("effective sample sizes are those of the package posterior", {
    skip_if_not_installed("posterior")
    table <- summary(chains())
    found <- posterior::summarise_draws(chains(), "rhat", "ess_bulk", "ess_tail")
    expect_equal(table$rhat, as.numeric(found$rhat), tolerance = 1e-3)
    expect_equal(table$ess_bulk, as.numeric(found$ess_bulk), tolerance = 0.02)
})

test_that("components come in R's order, with matrices by column", {
    chain <- run("sgld",
        params = list(beta = matrix(0, 2, 3), s = 0), nIters = 10,
        logLik = function(params, dataset) tf$reduce_sum(-0.5 * (dataset$x[, 1] - params$s)^2),
        logPrior = function(params) {
            place <- tf$constant(matrix(1:6, 2), dtype = tf$float32)
            -0.5 * tf$reduce_sum((params$beta - 100 * place)^2) * 1e6
        },
        stepsize = 1e-6, burnIn = 50
    )
    table <- summary(chain)
    expect_equal(rownames(table)[2:3], c("beta[2,1]", "beta[1,2]"))
    expect_equal(round(table$mean[1:6]), 100 * (1:6))
})

test_that("a report says what speaks against the draws", {
    page <- report(chains())
    expect_s3_class(page, "sgmcmcReport")
    expect_output(print(page), "Sampling report: sgld.*R-hat")
    expect_type(page$warnings, "character")
    expect_equal(page$Chain$`minibatch size`, "200 of 200")
    few <- run("sgld", nIters = 30, params = list(theta = c(30, 30)), stepsize = 1e-5)
    expect_gt(length(report(few)$warnings), 0)
    expect_output(print(few), "! ", fixed = TRUE)
    expect_output(print(summary(few)), "! ", fixed = TRUE)
    expect_error(report(chains()[c(1, 3, 4), ]), "evenly spaced")
    expect_error(report(1), "must be what a sampler returned")
})

test_that("functions of parameters and data are evaluated at all draws", {
    chain <- chains()
    x <- observations()
    inR <- function(i) x[i, 1] * chain$theta[, , 2]
    f <- function(params, dataset) dataset$x[, 1] * params$theta[2]
    means <- predict(chain, f)
    expect_length(means, 200)
    expect_equal(means[[7]], mean(inR(7)), tolerance = 1e-5)
    test <- list(x = x[1:3, ])
    expect_equal(
        predict(chain, f, test, reduce = "quantiles", quantiles = c(0.1, 0.9))[, 2],
        quantile(inR(2), c(0.1, 0.9)), ignore_attr = TRUE, tolerance = 1e-4
    )
    values <- predict(chain[11:20, ], f, test, reduce = "none")
    expect_equal(values[, , 3], inR(3)[, 11:20], tolerance = 1e-5)
    expect_error(predict(chain, function(params, dataset) params$theta[1]), "entry for each")
})

test_that("terms of the log-likelihood are draws, chains, observations", {
    chain <- chains()[c(1, 100), ]
    x <- observations()
    terms <- pointwiseLogLik(chain)
    expect_equal(dim(terms), c(2, 2, 200))
    expect_equal(terms[2, 1, 5], -0.5 * sum((x[5, ] - chain$theta[1, 2, ])^2), tolerance = 1e-4)
})

test_that("chains go on as if they had never ended", {
    longer <- extend(chains(), 100, verbose = FALSE)
    whole <- run("sgld",
        nChains = 2, nIters = 500, burnIn = 20, minibatchSize = 200, storeGradients = TRUE,
        stepsize = 1e-3
    )
    expect_identical(longer$theta, whole$theta)
    expect_identical(attr(longer, "gradients"), attr(whole, "gradients"))
    expect_error(extend(chains()[1:10, ], 10), "slice")
})

test_that("the discrepancy comes with what it is to be compared with", {
    found <- ksd(chains(), maxDraws = 200)
    expect_equal(found$ratio, found$ksd / found$expected)
    expect_length(found$ksd, 2)
    expect_error(ksd(run("sgld")), "storeGradients = TRUE", fixed = TRUE)
})

test_that("files hold the draws, for R and for Python", {
    chain <- chains()
    file <- tempfile()
    writeSamples(chain, file)
    found <- readSamples(file)
    expect_identical(found$theta, chain$theta)
    expect_identical(attr(found, "gradients"), attr(chain, "gradients"))
    expect_equal(attr(found, "logPost"), attr(chain, "logPost"))
    expect_error(extend(found, 10), "not in the process")
    saveRDS(chain, file)
    again <- readRDS(file)
    expect_identical(again$theta, chain$theta)
    expect_output(print(again), "Draws of sgld, 2 chains")
    expect_equal(summary(again)$mean, summary(chain)$mean)
    expect_error(predict(again, function(params, dataset) dataset$x), "`dataset` must be given")
})

test_that("reductions run along", {
    chain <- run("sgld",
        nIters = 200, storeParams = TRUE,
        reductions = list(
            mean = runningMean(function(params) params$theta),
            moments = runningMoments(function(params) params$theta),
            batches = runningBatchMeans(function(params) params$theta, 20)
        )
    )
    found <- attr(chain, "reductions")
    expect_equal(c(found$mean), colMeans(chain$theta), tolerance = 1e-5)
    expect_equal(c(found$moments$variance), apply(chain$theta, 2, var) * 199 / 200, tolerance = 1e-3)
    batches <- apply(array(chain$theta, c(20, 10, 2)), 2:3, mean)
    expect_equal(c(found$batches$standard_error), apply(batches, 2, sd) / sqrt(10), tolerance = 1e-3)
})
