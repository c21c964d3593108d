for (method in methods) {
    test_that(paste(method, "step by step is the one call"), {
        sampler <- setUpSampler(method)
        withModes <- grepl("cv$", method)
        expect_s3_class(
            sampler, c(sub("cv$", "", method), if (withModes) "sgmcmccv", "sgmcmc"),
            exact = TRUE
        )
        expect_output(print(sampler), paste0(method, "Setup: N = 200, n = 50; theta"))
        sess <- initSess(sampler, verbose = FALSE)
        draws <- matrix(NA, 20, 2)
        for (i in 1:10) {
            sgmcmcStep(sampler, sess)
            draws[i, ] <- getParams(sampler, sess)$theta
        }
        sgmcmcStep(sampler, sess, nSteps = 10)
        draws[20, ] <- sess$run(sampler$params)$theta
        chain <- run(method)
        kept <- c(1:10, 20)
        expect_equal(draws[kept, ], chain$theta[kept, ], tolerance = 1e-5)
        expect_equal(sess$iteration(), 20)
        if (withModes) {
            expect_equal(sess$run(sampler$paramsOpt), attr(chain, "mode"), tolerance = 1e-5)
            expect_equal(
                sess$run(sampler$logPostOptGrad), attr(chain, "modeGradient"),
                tolerance = 1e-4
            )
        }
    })
}

test_that("tensors on placeholders follow the chain", {
    sampler <- setUpSampler("sgld")
    testset <- list(x = observations()[1:7, ])
    x <- tf$placeholder(tf$float32, dim(testset$x))
    anyShape <- tf$placeholder(tf$float32, NULL)
    logLoss <- -logLik(sampler$params, list(x = x)) / 7
    total <- tf$reduce_sum(anyShape) + sampler$params$theta[1]
    sess <- initSess(sampler)
    feeds <- dict()
    feeds[[x]] <- testset$x
    feeds[[anyShape]] <- c(1, 2, 3)
    for (i in 1:3) {
        sgmcmcStep(sampler, sess)
        theta <- getParams(sampler, sess)$theta
        byHand <- sum((testset$x - rep(theta, each = 7))^2) / 14
        expect_equal(sess$run(logLoss, feed_dict = feeds), byHand, tolerance = 1e-5)
        expect_equal(sess$run(logLoss, feed_dict = dict(x = testset$x)), byHand, tolerance = 1e-5)
        several <- sess$run(list(total = total, params = sampler$params), feed_dict = feeds)
        expect_equal(several$total, 6 + theta[1], tolerance = 1e-5)
        expect_equal(several$params$theta, theta)
        # And at once, without a session.
        now <- -logLik(sampler$params, list(x = tf$constant(testset$x, dtype = tf$float32))) / 7
        expect_equal(as.numeric(now), byHand, tolerance = 1e-5)
    }
    feeds[[x]] <- testset$x + 1
    expect_equal(
        sess$run(logLoss, feed_dict = feeds), sum((testset$x + 1 - rep(theta, each = 7))^2) / 14,
        tolerance = 1e-5
    )
    tf$reset_default_graph()
})

test_that("samplers run while a graph is open", {
    x <- tf$placeholder(tf$float32, 3L)
    chain <- run("sgldcv")
    doubled <- 2 * x
    sess <- initSess(setUpSampler("sgld"))
    expect_equal(c(sess$run(doubled, feed_dict = dict(x = c(1, 2, 3)))), c(2, 4, 6))
    expect_identical(chain$theta, run("sgldcv")$theta)
    tf$reset_default_graph()
})

test_that("placeholders serve several samplers", {
    testset <- list(x = observations()[1:7, ])
    loss <- function(sampler) -logLik(sampler$params, list(x = x)) / 7
    byHand <- function(theta) sum((testset$x - rep(theta, each = 7))^2) / 14
    x <- tf$placeholder(tf$float32, dim(testset$x))
    early <- setUpSampler("sghmc")
    for (method in c("sgld", "sgldcv")) {
        sampler <- setUpSampler(method)
        logLoss <- loss(sampler)
        sess <- initSess(sampler, verbose = FALSE)
        sgmcmcStep(sampler, sess, nSteps = 5)
        expect_equal(
            sess$run(logLoss, feed_dict = dict(x = testset$x)), byHand(getParams(sampler, sess)$theta),
            tolerance = 1e-5
        )
    }
    # Set up before the others were run, written down after, and even after its initSess.
    sess <- initSess(early)
    logLoss <- loss(early)
    sgmcmcStep(early, sess, nSteps = 5)
    expect_equal(
        sess$run(logLoss, feed_dict = dict(x = testset$x)), byHand(getParams(early, sess)$theta),
        tolerance = 1e-5
    )
    # What depends on no placeholder has its value, here too, and goes into a model.
    expect_equal(as.numeric(2 * tf$constant(3)), 6)
    expect_equal(c(early$params$theta$numpy()), c(getParams(early, sess)$theta))
    expect_error(as.numeric(2 * x), "placeholder")
    expect_identical(
        run("sgld", dataset = list(x = tf$constant(observations(), dtype = tf$float32)))$theta,
        run("sgld")$theta
    )
    tf$reset_default_graph()
    expect_true("numpy" %in% names(tf$constant(1)))
})

test_that("what cannot follow the chain is refused", {
    sampler <- setUpSampler("sgld")
    x <- tf$placeholder(tf$float32, 3L)
    tensor <- 2 * x
    sess <- initSess(sampler)
    expect_equal(sess$run(tf$constant(1)), 1)
    expect_error(sess$run(tensor, feed_dict = dict(x = 1:2)), "shape")
    expect_error(sess$run(tensor, feed_dict = list(x = 1:3)), "sgmcmc::dict")
    expect_error(sess$run(tensor), "placeholder", ignore.case = TRUE)
    expect_error(getParams(sampler, initSess(setUpSampler("sgld"))), "another sampler")
    expect_error(sgmcmcStep(sess, sampler), "setup function")
    tf$reset_default_graph()
    expect_error(sess$run(tf$constant(1)), "does not follow the chain")
    expect_error(sess$run(list(tensor, 2 * tf$placeholder(tf$float32, 3L))), "different graphs")
    tf$reset_default_graph()
})

test_that("a session goes on from a file", {
    file <- tempfile()
    sampler <- setUpSampler("sgnht")
    sess <- initSess(sampler)
    sgmcmcStep(sampler, sess, 7)
    sess$save(file)
    sgmcmcStep(sampler, sess, 5)
    again <- setUpSampler("sgnht")
    restored <- initSess(again, restore = file)
    expect_equal(restored$iteration(), 7)
    sgmcmcStep(again, restored, 5)
    expect_identical(getParams(again, restored), getParams(sampler, sess))
})
