# What R's vectors become on their way to a model: no chain is needed to compare.

entry <- function(values, ...) columns(list(v = values), ...)$v

test_that("vectors of other packages and of times are the numbers that they stand for", {
    expect_identical(entry(as.Date("1970-01-11") + 0:1), array(c(10, 11)))
    expect_identical(entry(as.difftime(c(1, 2), units = "hours")), array(c(1, 2)))
    expect_equal(entry(ts(c(0.5, 1))), array(c(0.5, 1)), ignore_attr = TRUE)
    labelled <- structure(c(1, 2), class = c("haven_labelled", "vctrs_vctr", "double"), labels = c(a = 1))
    expect_identical(entry(labelled), array(c(1, 2)))
    declared <- structure(c(1, 99, 5), class = c("haven_labelled_spss", "haven_labelled"), na_values = 99)
    expect_identical(entry(declared), array(c(1, NA, 5)))
    expect_identical(entry(data.frame(a = 1:2, b = c(0.5, 1))), cbind(a = c(1, 2), b = c(0.5, 1)))
    expect_error(entry(Sys.time() + 1:2), "`dataset$v` is a time", fixed = TRUE)
    expect_error(entry(as.POSIXlt(Sys.time() + 1:2)), "is a time")
    expect_error(entry(list(1, 2)), "`dataset\\$v` must hold numbers.* a list")
    expect_error(entry(1i), "of type complex")
    expect_error(entry(as.raw(1)), "of type raw")
    expect_error(entry(c("a", "b")), "make it a factor")
    expect_error(entry(data.frame(a = 1:2, b = c("u", "v"))), "`dataset$v$b` is character", fixed = TRUE)
})

test_that("integers of 64 bits are numbers, or refused by name", {
    skip_if_not_installed("bit64")
    values <- c(0, 5, -5, 2^31, -2^31, 2^32 + 7, 2^53, -2^53, NA)
    expect_identical(fromInteger64(bit64::as.integer64(values), "v"), values)
    expect_identical(entry(bit64::as.integer64(c(3, -4))), array(c(3, -4)))
    expect_identical(startingValues(list(a = bit64::as.integer64(7)))$a, 7)
    expect_error(entry(bit64::as.integer64("9007199254740993")), "`dataset$v` has integers beyond 2^53", fixed = TRUE)
})

test_that("doubles that are integers which single precision rounds are refused as integers are", {
    days <- c(20200101, 20200102)
    expect_error(entry(days), "`dataset\\$v` holds integers as large as 20200102.*tf\\$float64")
    expect_identical(entry(days, list(double = TRUE)), array(days))
    expect_identical(entry(days, list(integers = "v")), array(days))
    expect_identical(entry(days + 0.5), array(days + 0.5))
    expect_identical(entry(c(2^24, NaN, Inf)), array(c(2^24, NaN, Inf)))
    expect_true(isDouble("float64"))
    expect_false(isDouble(NULL))
})

test_that("factors are codes from 1, by the levels that the model was fitted with", {
    g <- factor(c("b", "c", "b"), levels = c("a", "b", "c"))
    known <- knownOf(list(g = g, y = 1:3), list(dtype = "float64"))
    expect_true(known$double)
    expect_identical(columns(list(g = g), known)$g, array(c(2L, 3L, 2L)))
    expect_identical(columns(list(g = factor(c("c", "b"))), known, new = TRUE)$g, array(c(3L, 2L)))
    expect_identical(columns(list(g = c("c", "b")), known, new = TRUE)$g, array(c(3L, 2L)))
    expect_identical(columns(list(g = 3:2), known, new = TRUE)$g, array(3:2))
    expect_error(columns(list(g = factor("z")), known, new = TRUE), "has the level z in row 1.*a, b, c")
    expect_error(columns(list(g = factor(c("a", NA))), known), "has NA in row 2")
    expect_error(columns(list(g = factor("a")), NULL, new = TRUE), "draws from a file have no levels")
    groups <- sgmcmcGroups("g", list(z = 0), function(effects, params) 0)
    known <- knownOf(list(g = g), list(groups = groups))
    expect_identical(columns(list(g = g), known)$g, c("b", "c", "b"))
    expect_identical(columns(list(g = factor("b")), known, new = TRUE)$g, list("b"))
    expect_error(columns(list(g = c("a", NA)), known), "groups cannot be missing")
    expect_error(columns(list(g = factor(c("a", NA))), known), "groups cannot be missing")
})

test_that("functions that count from 0 refuse codes that count from 1", {
    needsPython()
    x <- markCodes(tf$constant(c(1L, 3L)), "dataset$g")
    mu <- tf$constant(c(5, 6, 7))
    expect_equal(as.numeric(mu[x]), c(5, 7))
    expect_equal(as.numeric(mu[factor(c("u", "w"), c("u", "v", "w"))]), c(5, 7))
    expect_error(asArray(factor("a")), "a factor is its codes")
    skip_if_not_installed("bit64")
    expect_equal(as.numeric(mu[bit64::as.integer64(3)]), 7)
    expect_equal(as.numeric(tf$constant(bit64::as.integer64(c(3, -4)))), c(3, -4))
    expect_equal(as.numeric(tf$constant(bit64::as.integer64(3))), 3)
    expect_error(tf$one_hot(x, 3L), "`dataset\\$g` is a factor.*tf\\$one_hot\\(dataset\\$g - 1L, K\\)")
    expect_error(tf$gather(params = mu, indices = x), "write params$mu[dataset$g]", fixed = TRUE)
    expect_error(tf$gather(mu, tf$to_int32(x[1:2])), "counts from 0")
    expect_error(tf$one_hot(tf$reshape(x, list(2L, 1L)), 3L), "counts from 0")
    expect_error(tf$math$segment_sum(mu[1:2], x), "tf$math$segment_sum counts from 0", fixed = TRUE)
    expect_error(tf$nn$embedding_lookup(mu, x), "params$mu[dataset$g, ]", fixed = TRUE)
    expect_equal(as.numeric(tf$argmax(tf$one_hot(x - 1L, 3L), 1L)), c(0, 2))
    expect_equal(as.numeric(tf$gather(mu, tf$constant(c(0L, 2L)))), c(5, 7))
})

test_that("a model gets codes that are marked, and new factors are coded by its levels", {
    needsPython()
    set.seed(1)
    g <- factor(rep(c("a", "b", "c"), 20))
    dataset <- list(y = as.integer(g) + rnorm(60, sd = 0.1), g = g)
    ofRow <- function(params, dataset) params$mu[dataset$g]
    logLik <- function(params, dataset) -50 * (dataset$y - ofRow(params, dataset))^2
    chain <- sgld(logLik, dataset, list(mu = 1:3), 1e-6, minibatchSize = 60, nIters = 20, verbose = FALSE, seed = 1)
    expect_equal(c(predict(chain, ofRow, list(g = factor(c("c", "b"))))), c(3, 2), tolerance = 0.1)
    expect_error(predict(chain, ofRow, list(g = factor("z"))), "has the level z")
    expect_error(
        predict(chain, function(params, dataset) tf$gather(params$mu, dataset$g), list(g = factor("b"))),
        "counts from 0"
    )
    shifted <- function(params, dataset) -(dataset$y - tf$linalg$matvec(tf$one_hot(dataset$g, 3L), params$mu))^2
    expect_error(
        sgld(shifted, dataset, list(mu = 1:3), 1e-6, nIters = 5, verbose = FALSE), "write tf$one_hot(dataset$g - 1L",
        fixed = TRUE
    )
    sampler <- sgldSetup(logLik, dataset, list(mu = 1:3), 1e-6, minibatchSize = 60, seed = 1)
    expect_equal(as.numeric(sampler$estLogPost(list(y = c(3, 2), g = factor(c("c", "b"))))), 0)
})
