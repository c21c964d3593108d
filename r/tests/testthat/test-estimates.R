# What R's functions for fitted models say of draws, and names that starting values have.

named <- function() {
    values <- array(stats::rnorm(2 * 50 * 2), c(2, 50, 2))
    draws <- list(beta = values, scale = array(stats::rnorm(100), c(2, 50, 1)))
    settings <- list(method = "sgld", n_chains = 2L, burn_in = 0L, thin = 1L, N = 20L)
    labels <- givenNames(list(beta = c(age = 0, bmi = 0), scale = 1))
    asChains(list(draws = draws, scalars = "scale", settings = settings, labels = labels))
}

test_that("names of starting values are those of components", {
    set.seed(1)
    chain <- named()
    names_ <- c("beta[age]", "beta[bmi]", "scale")
    expect_equal(colnames(as.matrix(chain)), names_)
    expect_named(coef(chain), names_)
    expect_named(coef(chain[1:10, "beta"]), names_[1:2])
    two <- matrix(0, 2, 2, dimnames = list(c("a", "b"), NULL))
    expect_equal(givenNames(list(list(w = two), list(w = two))), list(w = list(c("a", "b"), NULL)))
    expect_null(givenNames(list(beta = c(0, 0))))
})

test_that("estimates are those of the draws of all chains", {
    set.seed(2)
    chain <- named()
    values <- as.matrix(chain)
    expect_equal(coef(chain), colMeans(values))
    expect_equal(mean(chain), coef(chain))
    expect_equal(vcov(chain), stats::cov(values))
    expect_equal(confint(chain, "scale", level = 0.5)[1, ], stats::quantile(values[, 3], c(0.25, 0.75)))
    expect_equal(dim(quantile(chain, c(0.1, 0.5, 0.9))), c(3, 3))
    expect_equal(median(chain)[["scale"]], stats::median(values[, 3]))
    expect_equal(nobs(chain), 20L)
    expect_error(confint(chain, "gamma"), "no gamma")
    expect_error(fitted(chain), "predict(chain, f)", fixed = TRUE)
    expect_error(residuals(chain), "predict(chain, f)", fixed = TRUE)
})

test_that("a bitmap holds all components, and further arguments replace those of plots", {
    set.seed(3)
    file <- tempfile(fileext = ".png")
    grDevices::png(file, width = 600, height = 900)
    expect_gte(rowsOfPage(), 10)
    plot(named(), type = "p", main = "draws")
    grDevices::dev.off()
    expect_gt(file.size(file), 1000)
    unlink(file)
})

test_that("the citation has the article and a year", {
    found <- utils::citation("sgmcmc")
    expect_equal(found[[1]]$doi, "10.18637/jss.v091.i03")
    expect_true(all(vapply(unclass(found), function(entry) nzchar(entry$year), NA)))
})

test_that("names, factors and R-hat of a single chain, through a sampler", {
    needsPython()
    set.seed(4)
    group <- factor(sample(c("a", "b", "c"), 200, TRUE))
    x <- c(1, -1, 2)[group] + rnorm(200)
    byGroup <- function(params, dataset) sum(dnorm(dataset$x, params$mu[dataset$g], 1, log = TRUE))
    chain <- sgmcmcSample(
        byGroup, list(x = x, g = group), list(mu = c(a = 0, b = 0, c = 0)),
        seed = 1, verbose = FALSE, ess = 100
    )
    expect_lt(max(abs(coef(chain) - tapply(x, group, mean))), 0.1)
    table <- summary(chain)
    expect_equal(row.names(table), c("mu[a]", "mu[b]", "mu[c]"))
    single <- run("sgld", nIters = 200)
    hats <- summary(single)$rhat
    expect_true(all(is.finite(hats)))
    skip_if_not_installed("posterior")
    theirs <- as.numeric(posterior::summarise_draws(posterior::as_draws(single))$rhat)
    expect_equal(hats, theirs, tolerance = 1e-4)
    expect_equal(posterior::variables(posterior::as_draws(chain)), row.names(table))
})

test_that("hints speak R", {
    needsPython()
    file <- tempfile()
    file.create(file)
    expect_error(openSamples(file), "readSamples")
    gathers <- function(params, dataset) sum(tf$gather(params$theta, dataset$g))
    expect_error(
        sgld(gathers, list(g = c(0, 1, 1)), list(theta = c(1, 2)), 1e-3, minibatchSize = 2, verbose = FALSE),
        "integers = 'g'", fixed = TRUE
    )
})
