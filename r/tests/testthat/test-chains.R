# Draws that tell where they come from: the number 1000 * draw + 100 * chain + place, where the
# place is the component's in R's order.
made <- function(nChains = 3, n = 8) {
    one <- function(first, shape) {
        places <- first + seq_len(prod(shape)) - 1
        values <- outer(outer(100 * seq_len(nChains), 1000 * seq_len(n), "+"), places, "+")
        array(values, c(nChains, n, shape))
    }
    settings <- list(method = "sgld", n_chains = nChains, burn_in = 50L, thin = 5L)
    draws <- list(scale = one(1, 1), one = one(2, 1), beta = one(3, c(2, 3)))
    asChains(list(
        draws = draws, scalars = "scale", settings = settings,
        gradients = draws, testFunctions = list(f = draws$scale)
    ))
}

single <- function(n = 8) {
    chains <- made(1, n)
    attr(chains, "settings")$n_chains <- NULL
    for (name in names(chains)) {
        chains[[name]] <- array(chains[[name]], dim(chains[[name]])[-1])
    }
    attr(chains, "gradients") <- NULL
    attr(chains, "testFunctions") <- NULL
    chains
}

names_ <- c("scale", "one[1]", "beta[1,1]", "beta[2,1]", "beta[1,2]", "beta[2,2]", "beta[1,3]", "beta[2,3]")

test_that("as.array has iterations, chains and components", {
    values <- as.array(made())
    expect_equal(dim(values), c(8, 3, 8))
    expect_equal(dimnames(values)[[3]], names_)
    for (place in 1:8) {
        expect_equal(unname(values[5, 2, place]), 5200 + place)
    }
    expect_equal(values[5, 2, "beta[1,3]"], made()$beta[2, 5, 1, 3], ignore_attr = TRUE)
    expect_equal(dim(as.array(single())), c(8, 1, 8))
    expect_equal(unname(as.array(single())[5, 1, 4]), 5104)
})

test_that("as.matrix and as.data.frame have a row for each draw, chain by chain", {
    frame <- as.data.frame(made())
    expect_named(frame, c(names_, ".chain", ".iteration", ".draw"))
    expect_equal(frame$scale, 1000 * frame$.iteration + 100 * frame$.chain + 1)
    expect_equal(frame$.draw, 1:24)
    expect_equal(as.matrix(made())[, "beta[2,1]"], frame[["beta[2,1]"]])
    expect_equal(nrow(as.data.frame(single())), 8)
})

test_that("brackets take draws and parameters, counted from 1", {
    part <- made()[3:4, "beta"]
    expect_s3_class(part, "sgmcmcChains")
    expect_named(part, "beta")
    expect_equal(part$beta, made()$beta[, 3:4, , ])
    expect_named(attr(part, "gradients"), "beta")
    expect_equal(attr(part, "gradients")$beta, part$beta)
    expect_equal(dim(attr(part, "testFunctions")$f), c(3, 2, 1))
    expect_equal(dim(made()[8, ]$scale), c(3, 1, 1))
    expect_equal(single()[-(1:6), ]$beta, single()$beta[7:8, , ])
    expect_equal(made()[c(TRUE, FALSE), ]$one, made()$one[, c(1, 3, 5, 7), , drop = FALSE])
    expect_named(made()["one"], "one")
    expect_named(made()[-1], c("one", "beta"))
    expect_identical(made()[, ], made())
    expect_identical(made()[], made())
    expect_error(made()[9, ], "draws 1 to 8")
    expect_error(made()[integer(), ], "none is chosen")
    expect_error(made()["betta"], "no draws of `betta`; there are those of scale, one, beta")
})

test_that("what is left of the draws is remembered, also of parts of parts", {
    place <- function(chain) attr(chain, "settings")$slice
    expect_equal(place(made()[3:7, ]), c(3, 7, 1))
    expect_equal(place(made()[c(2, 4, 6), ][2:3, ]), c(4, 6, 2))
    expect_equal(place(made()[2:8, ][c(1, 4, 7), ]), c(2, 8, 3))
    expect_true(attr(made()[c(1, 2, 5), ], "irregular"))
    expect_true(attr(made()[c(1, 2, 5), ][1:2, ], "irregular"))
    expect_null(attr(made()[3:7, ], "irregular"))
})

test_that("coda has the draws, with their iterations", {
    skip_if_not_installed("coda")
    chains <- coda::as.mcmc.list(made())
    expect_equal(coda::nchain(chains), 3)
    expect_equal(coda::varnames(chains), names_)
    expect_equal(coda::mcpar(chains[[1]]), c(55, 90, 5))
    expect_equal(unname(chains[[2]][5, ]), 5200 + 1:8)
    expect_equal(coda::mcpar(coda::as.mcmc.list(made()[c(2, 4, 6), ])[[1]]), c(60, 80, 10))
    one <- coda::as.mcmc(single())
    expect_s3_class(one, "mcmc")
    expect_equal(dim(one), c(8, 8))
    expect_error(coda::as.mcmc(made()), "use as.mcmc.list()", fixed = TRUE)
})

test_that("posterior has the draws, in its own order and names", {
    skip_if_not_installed("posterior")
    draws <- posterior::as_draws_array(made())
    expect_s3_class(draws, "draws_array")
    expect_equal(dim(draws), c(8, 3, 8))
    expect_equal(posterior::variables(draws), names_)
    expect_equal(as.numeric(draws[5, 2, "beta[1,3]"]), made()$beta[2, 5, 1, 3])
    # The shape that posterior makes of the names is that of the parameter.
    variable <- posterior::as_draws_rvars(posterior::as_draws(made()))$beta
    expect_equal(dim(variable), c(2, 3))
    expect_equal(c(posterior::draws_of(variable)[1, , ]), made()$beta[1, 1, , ], ignore_attr = TRUE)
    expect_equal(posterior::ndraws(posterior::as_draws_df(made())), 24)
    frame <- as.data.frame(made())
    expect_equal(
        posterior::as_draws_df(frame)$scale, posterior::as_draws_df(made())$scale
    )
    expect_equal(posterior::summarise_draws(made(), "mean")$variable, names_)
})

test_that("bayesplot takes the draws", {
    skip_if_not_installed("bayesplot")
    plot <- bayesplot::mcmc_trace(as.array(made()), pars = c("scale", "beta[2,3]"))
    expect_s3_class(plot, "ggplot")
    values <- plot$data
    one <- values[values$parameter == "beta[2,3]" & values$iteration == 5 & values$chain == 2, ]
    expect_equal(one$value, 5208)
})

test_that("plot draws a page for every four components", {
    file <- tempfile(fileext = ".pdf")
    grDevices::pdf(file, compress = FALSE)
    set.seed(1)
    chain <- made(n = 20)
    expect_invisible(plot(chain))
    plot(chain, "scale")
    plot(chain, c("beta[1,2]", "one"))
    grDevices::dev.off()
    pages <- grepl("/Type /Page /", readLines(file, warn = FALSE), fixed = TRUE, useBytes = TRUE)
    expect_equal(sum(pages), 4)
    expect_error(plot(chain, "sclae"), "no draws of `sclae`")
})

test_that("arguments that a method does not know are refused by name", {
    chain <- made()
    expect_error(as.matrix(chain, burnin = 3), "no argument `burnin`")
    expect_error(as.data.frame(chain, wide = TRUE), "no argument `wide`; it has `x`, `row.names`")
    expect_error(coef(chain, complete = TRUE), "coef\\(\\) of draws has no argument `complete`")
    expect_error(mean(chain, trim = 0.1), "no argument `trim`")
    expect_error(confint(chain, method = "HPD"), "no argument `method`; it has `object`, `parm`, `level`")
    expect_error(confint(chain, level = 95), "`level` must be a number between 0 and 1")
    expect_error(confint(chain, "nothing"), "no nothing; there are scale")
    expect_error(confint(chain, 99), "no 99")
    expect_error(quantile(chain, c(2, 5)), "`probs` must be probabilities")
    expect_error(summary(chain, digits = 3), "no argument `digits`")
    expect_error(predict(chain, newdata = 1), "no argument `newdata`: write `dataset`")
    expect_error(nobs(chain, TRUE), "no further argument")
    expect_equal(vcov(chain, complete = FALSE), vcov(chain))
    expect_equal(names(data.frame(chain, check.names = FALSE)), names(as.data.frame(chain)))
    expect_equal(colnames(quantile(chain, c(low = 0.1, 0.5))), c("low", "50%"))
    expect_equal(quantile(chain, 0.3, type = 1)[[1, 1]], unname(stats::quantile(as.matrix(chain)[, 1], 0.3, type = 1)))
})
