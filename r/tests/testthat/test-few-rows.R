test_that("divide has the posterior of a normal mean", {
    needsPython()
    chain <- divide(logLik, list(x = observations()), list(theta = c(0, 0)), logPrior,
        shards = 4, sampler = "hmc", nIters = 500, seed = 1, verbose = FALSE
    )
    exact <- posterior()
    table <- summary(chain)
    expect_lt(max(abs(table$mean - exact$mean) / table$mcse_mean), 5)
    expect_lt(max(abs(table$sd * sqrt(exact$precision) - 1)), 0.15)
    expect_equal(attr(chain, "settings")$shards, 4)
    expect_error(divide(logLik, list(x = observations()), list(theta = c(0, 0)), method = "mean"), "`method`")
})

logistic <- function(params, dataset) {
    logits <- tf$linalg$matvec(dataset$X, params$beta) + params$bias
    -tf$reduce_sum(tf$nn$sigmoid_cross_entropy_with_logits(dataset$y, logits))
}

test_that("zigzag and mhss agree with hmc, with either form of the bound", {
    needsPython()
    set.seed(2)
    X <- matrix(rnorm(600), 300)
    y <- rbinom(300, 1, plogis(X %*% c(1, -0.5)))
    model <- list(logistic, list(X = X, y = as.numeric(y)), list(beta = c(0, 0), bias = 0))
    given <- list(nChains = 2, seed = 1, verbose = FALSE)
    exact <- summary(do.call(hmc, c(model, given)))
    own <- function(params, dataset) {
        list(beta = dataset$X / 2, bias = tf$zeros_like(dataset$y) + 0.5)
    }
    runs <- list(
        do.call(zigzag, c(model, given, list(curvatureBound = predictorBound(list(beta = "X", bias = NULL))))),
        do.call(mhss, c(model, given, list(curvatureBound = own)))
    )
    for (chain in runs) {
        table <- summary(chain)
        error <- sqrt(table$mcse_mean^2 + exact$mcse_mean^2)
        expect_lt(max(abs(table$mean - exact$mean) / error), 5)
        expect_length(report(chain)$warnings, 0)
    }
    expect_error(do.call(zigzag, c(model, given)), "curvatureBound")
})
