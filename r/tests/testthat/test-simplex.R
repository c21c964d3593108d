counts <- c(5, 3, 0)

# Which of three categories each of eight observations fell in.
categories <- function() diag(3)[rep(1:3, counts), ]

multinomial <- function(params, dataset) {
    tf$reduce_sum(dataset$z * tf$log(params$omega))
}

simplex <- function(method, ...) {
    needsPython()
    given <- list(
        logLik = multinomial, dataset = list(z = categories()), params = list(omega = rep(1 / 3, 3)),
        stepsize = 0.5, minibatchSize = 8, nIters = 20, alpha = 0.5, verbose = FALSE, seed = 1
    )
    others <- list(...)
    do.call(method, c(given[setdiff(names(given), names(others))], others))
}

test_that("scir has the Dirichlet posterior, whatever the stepsize", {
    chain <- simplex("scir", nChains = 20, burnIn = 100, nIters = 2000)
    expect_equal(dim(chain$omega), c(20, 2000, 3))
    a <- counts + 0.5
    exact <- list(mean = a / sum(a), square = a * (a + 1) / (sum(a) * (sum(a) + 1)))
    for (power in 1:2) {
        means <- apply(chain$omega^power, c(1, 3), mean)
        errors <- apply(means, 2, sd) / sqrt(20)
        expect_lt(max(abs(colMeans(means) - exact[[power]]) / errors), 5)
    }
})

test_that("sgrld stays on the simplex, and keeps the unnormalized state", {
    chain <- simplex("sgrld", stepsize = 0.01, alpha = list(omega = c(1, 1, 1)),
        storeUnnormalized = TRUE, theta0 = list(omega = c(5, 4, 1)), minibatchSize = 2
    )
    theta <- attr(chain, "unnormalized")$omega
    expect_equal(rowSums(chain$omega), rep(1, 20), tolerance = 1e-5)
    expect_equal(chain$omega, theta / rowSums(theta), tolerance = 1e-5)
    expect_equal(theta[1, ], c(5, 4, 1), tolerance = 0.3)
})

test_that("scir and sgrld run step by step", {
    for (method in c("scir", "sgrld")) {
        sampler <- do.call(paste0(method, "Setup"), list(
            multinomial, list(z = categories()), list(omega = rep(1 / 3, 3)), 0.01,
            minibatchSize = 8, alpha = 0.5, seed = 1
        ))
        expect_s3_class(sampler, c(method, "sgmcmc"), exact = TRUE)
        sess <- initSess(sampler)
        sgmcmcStep(sampler, sess, 20)
        expect_equal(
            getParams(sampler, sess)$omega, simplex(method, stepsize = 0.01)$omega[20, ],
            tolerance = 1e-4, ignore_attr = TRUE
        )
    }
})

test_that("latent variables are drawn by an R function", {
    # Half of the observations of a Gaussian mixture, with known means -2 and 2.
    set.seed(1)
    x <- c(rnorm(75, -2), rnorm(25, 2))
    draw <- function(params, minibatch, seed) {
        logits <- log(params$omega) - 0.5 * (tf$expand_dims(minibatch$x, 1L) - c(-2, 2))^2
        minibatch$z <- tf$one_hot(
            tf$random$stateless_categorical(logits, 1L, seed, dtype = tf$int32)[, 1], 2L
        )
        minibatch
    }
    chain <- simplex("scir",
        dataset = list(x = x), params = list(omega = c(0.5, 0.5)), minibatchSize = 100,
        gibbs = draw, nIters = 500, burnIn = 50
    )
    expect_equal(mean(chain$omega[, 1]), 0.75, tolerance = 0.1)
})
