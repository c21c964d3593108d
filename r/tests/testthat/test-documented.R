# The parts of samplers that the R package of 2019 documented, as things that a session runs.
minibatch <- function() observations()[1:50, ]

estimate <- function(theta, x = minibatch()) {
    sum(-0.05 * theta^2) - 0.5 * 200 / nrow(x) * sum((x - rep(theta, each = nrow(x)))^2)
}

gradient <- function(theta, x = minibatch()) {
    -0.1 * theta + 200 / nrow(x) * colSums(x - rep(theta, each = nrow(x)))
}

fed <- function(sampler, x = minibatch()) {
    feeds <- dict()
    feeds[[sampler$placeholders$x]] <- x
    feeds
}

test_that("the estimate of the log posterior is a function and a tensor", {
    sampler <- setUpSampler("sgldcv")
    expect_named(sampler$placeholders, "x")
    expect_equal(dim(sampler$placeholders$x), c(50, 2))
    twice <- 2 * sampler$estLogPost
    difference <- sampler$estLogPost - sampler$estLogPostOpt
    sess <- initSess(sampler, verbose = FALSE)
    sgmcmcStep(sampler, sess, 3)
    theta <- getParams(sampler, sess)$theta
    best <- sess$run(sampler$paramsOpt)$theta
    run <- function(tensor) sess$run(tensor, feed_dict = fed(sampler))
    expect_equal(run(sampler$estLogPost), estimate(theta), tolerance = 1e-5)
    expect_equal(run(sampler$estLogPostOpt), estimate(best), tolerance = 1e-5)
    expect_equal(run(twice), 2 * estimate(theta), tolerance = 1e-5)
    expect_equal(run(list(a = twice, b = sampler$params))$b$theta, theta, tolerance = 1e-6)
    expect_equal(run(difference), estimate(theta) - estimate(best), tolerance = 1e-3)
    expect_equal(as.numeric(sampler$estLogPost(list(x = minibatch()))), estimate(theta), tolerance = 1e-5)
    expect_equal(as.numeric(sampler$estLogPostOpt(list(x = minibatch()))), estimate(best), tolerance = 1e-5)
    expect_output(print(sampler$estLogPost), "log posterior")
    expect_equal(c(sampler$params$theta$eval(session = sess)), c(theta))
    expect_equal(c(sampler$params$theta$eval(sess)), c(theta))
    expect_equal(twice$eval(fed(sampler), sess), 2 * estimate(theta), tolerance = 1e-5)
    tf$reset_default_graph()
})

test_that("a step on a minibatch that is fed is one of the chain", {
    # With a stepsize that leaves the noise far below the drift.
    sampler <- setUpSampler("sgld", stepsize = list(theta = c(1e-7, 2e-7)), params = list(theta = c(50, 50)))
    sess <- initSess(sampler)
    theta <- c(50, 50)
    for (run in 1:3) {
        switch(run,
            sess$run(sampler$dynamics, feed_dict = fed(sampler)),
            sess$run(sampler$dynamics$theta, feed_dict = fed(sampler)),
            for (step in sampler$dynamics) sess$run(step, feed_dict = fed(sampler))
        )
        drift <- c(1e-7, 2e-7) / 2 * gradient(theta)
        moved <- getParams(sampler, sess)$theta - theta
        expect_true(all(abs(moved - drift) < 5 * sqrt(c(1e-7, 2e-7))))
        expect_true(all(moved != 0))
        theta <- c(getParams(sampler, sess)$theta)
    }
    expect_equal(sess$iteration(), 0)
    sess$run(sampler$dynamics)
    expect_equal(sess$iteration(), 1)
    expect_error(sess$run(sampler$dynamics$theta), "sampler\\$placeholders\\$x")
    expect_output(print(sampler$dynamics), "steps of theta")
    tf$reset_default_graph()
})

test_that("the optimizer goes up the gradient", {
    sampler <- setUpSampler("sgldcv", optStepsize = 1e-3, params = list(theta = c(0, 0)))
    expect_true(inherits(sampler, "sgmcmc"))
    theta <- c(0, 0)
    sess <- initSess(sampler, verbose = FALSE)
    center <- sess$run(sampler$paramsOpt)$theta
    expect_equal(c(sess$run(sampler$logPostOptGrad)$theta), gradient(c(center), observations()), tolerance = 1e-3)
    sess$run(list(sampler$optimizer, sampler$paramsOpt), feed_dict = fed(sampler))
    expect_equal(
        c(sess$run(sampler$paramsOpt)$theta), c(center) + 1e-3 * gradient(c(center)),
        tolerance = 1e-5
    )
    tf$reset_default_graph()
})

test_that("a session can be closed", {
    sampler <- setUpSampler("sgld")
    sess <- initSess(sampler)
    expect_silent(sess$close())
    expect_error(sess$run(sampler$params), "closed")
    expect_error(sgmcmcStep(sampler, sess), "closed")
})

test_that("stepsizes may be vectors within a list", {
    chain <- run("sgld", stepsize = list(theta = c(1e-12, 1e-3)), nIters = 5)
    expect_equal(chain$theta[5, 1], 1, tolerance = 1e-3)
    expect_gt(abs(chain$theta[5, 2] + 2), 1e-3)
    expect_error(run("sgld", stepsize = list(theta = c(1e-3, 1e-3, 1e-3))), "stepsize")
})
