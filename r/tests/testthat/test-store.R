test_that("a store holds the draws, and the same call opens it", {
    folder <- tempfile()
    chain <- run("sghmccv", store = folder, storeGradients = TRUE)
    opened <- openSamples(folder)
    expect_identical(opened$theta, chain$theta)
    expect_identical(attr(opened, "gradients"), attr(chain, "gradients"))
    expect_identical(run("sghmccv", store = folder, storeGradients = TRUE)$theta, chain$theta)
    expect_identical(run("sghmccv")$theta, chain$theta)
})

test_that("another call on a store is refused", {
    folder <- tempfile()
    run("sgld", store = folder)
    expect_error(run("sgld", store = folder, stepsize = 1e-5), "stepsize")
    expect_error(openSamples(tempfile()), "tmp|Rtmp|file", ignore.case = TRUE)
})
