# A mixed model whose scales are known, so that the posterior is that of algebra.

sites <- 40
siteOf <- factor(rep(sprintf("site %02d", seq_len(sites)), each = 5))

simulated <- local({
    found <- NULL
    function() {
        if (is.null(found)) {
            set.seed(1)
            found <<- 0.5 + rnorm(sites)[siteOf] + rnorm(5 * sites)
        }
        found
    }
})

ofRows <- function(params, dataset) -0.5 * (dataset$y - params$a - params$z)^2
ofSites <- function(effects, params) -0.5 * effects$z^2

fitted <- local({
    found <- NULL
    function() {
        if (is.null(found)) {
            found <<- sgmcmcSample(ofRows, list(y = simulated(), site = siteOf), list(a = 0),
                groups = sgmcmcGroups("site", list(z = 0), ofSites), seed = 1, verbose = FALSE
            )
        }
        found
    }
})

test_that("effects of groups are integrated out", {
    needsPython()
    variance <- 1.2 / sites
    # ESS of 400 and more: four standard errors, beyond the tolerance of standard deviations.
    expect_lt(abs(mean(fitted()$a) - mean(simulated())), 4 * sqrt(variance / 400))
    expect_lt(abs(sd(fitted()$a) / sqrt(variance) - 1), 0.05 + 4 / sqrt(800))
    expect_equal(report(fitted())$Groups$`levels of 'site'`, sites)
})

test_that("effects are drawn given each draw, with their labels", {
    needsPython()
    effects <- groupEffects(fitted(), "site")
    expect_equal(dim(effects$z), c(dim(fitted()$a)[1:2], sites))
    expect_equal(dimnames(effects$z)[[3]], levels(siteOf))
    means <- tapply(simulated(), siteOf, mean)
    exact <- (means - mean(simulated())) * 5 / 6
    # The variance of an effect: 1/6 given a, and 25/36 of that of a.
    error <- sqrt((1 / 6 + 25 / 36 * 1.2 / sites) / 400)
    expect_lt(max(abs(apply(effects$z, 3, mean) - exact)) / error, 5)
    some <- groupEffects(fitted(), "site", c("site 07", "site 03"))
    expect_equal(dimnames(some$z)[[3]], c("site 07", "site 03"))
    expect_error(groupEffects(fitted(), "school"), "must be a factor")
    expect_error(groupEffects(fitted(), "site", "site 99"), "has no group")
})

test_that("predictions know the groups of their rows", {
    needsPython()
    mean1 <- function(params, dataset) params$a + params$z + 0 * dataset$y
    found <- predict(fitted(), mean1, list(y = c(0, 0), site = c("site 01", "elsewhere")))
    expect_length(found, 2)
})

test_that("what are no groups is refused", {
    needsPython()
    call <- function(...) {
        sgmcmcSample(ofRows, list(y = simulated(), site = siteOf), list(a = 0), verbose = FALSE, ...)
    }
    expect_error(call(groups = "site"), "must be what sgmcmcGroups")
    expect_error(call(groups = sgmcmcGroups("school", list(z = 0), ofSites)), "school")
    total <- function(effects, params) tf$reduce_sum(-0.5 * effects$z^2)
    expect_error(call(groups = sgmcmcGroups("site", list(z = 0), total)), "of each group")
})
