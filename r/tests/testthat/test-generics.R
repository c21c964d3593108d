# What R has for arrays, on tensors, beside R's own answer.
x <- c(0.5, -2, 3)
y <- c(4, 1, 2)
Y <- matrix(c(1.5, -2, 3, 4, 5.5, -6), 2)

tensor <- function(values) {
    needsPython()
    tf$constant(values, dtype = tf$float32)
}

expect_same <- function(expression, tolerance = 1e-6) {
    code <- substitute(expression)
    with_tensors <- lapply(list(x = x, y = y, Y = Y), tensor)
    ours <- eval(code, with_tensors, parent.frame())
    theirs <- eval(code, list(x = x, y = y, Y = Y), parent.frame())
    expect_true(inherits(ours, "sgmcmcTensor"), label = deparse(code))
    expect_equal(c(as.array(ours)), unname(c(theirs)), tolerance = tolerance, label = deparse(code))
}

test_that("summaries look at all of their arguments", {
    expect_same(sum(x, y))
    expect_same(sum(x, y, 10, c(1, 2)))
    expect_same(sum(x, TRUE))
    expect_same(prod(x, y))
    expect_same(max(x, 5))
    expect_same(max(x, y, 1))
    expect_same(min(x, -5))
    expect_same(min(x, Y))
    expect_same(range(x, 10))
    expect_same(range(x, Y))
    expect_same(any(x > 5, y > 3))
    expect_same(any(x > 5, FALSE))
    expect_same(all(x > -5, y > 3))
    expect_error(max(5, tensor(x)))
    expect_error(sum(tensor(x), NULL), "NULL; is a name misspelt?")
})

test_that("NaN is left out if that is wanted", {
    holed <- tensor(c(1, NaN, 3))
    for (name in c("sum", "prod", "max", "min", "mean")) {
        f <- get(name)
        expect_true(is.nan(as.numeric(f(holed))) || name %in% c("max", "min"), label = name)
        expect_equal(as.numeric(f(holed, na.rm = TRUE)), f(c(1, NaN, 3), na.rm = TRUE), label = name)
    }
    expect_equal(c(as.array(is.na(holed))), c(FALSE, TRUE, FALSE))
    expect_equal(c(as.array(is.finite(holed))), c(TRUE, FALSE, TRUE))
    expect_equal(c(as.array(is.infinite(tensor(c(1, Inf))))), c(FALSE, TRUE))
})

test_that("TRUE counts as 1", {
    expect_same((x > 0) * y)
    expect_same(y + (x > 0))
    expect_same(2.5 * (x > 0))
    expect_same(sum(x > 0))
    expect_same(mean(x > 0))
    expect_same(-(x > 0))
    expect_same((x > 0) & (y > 1))
    expect_same(!(x > 0) | FALSE)
    expect_same(xor(x > 0, y > 1))
    expect_same((x > 0) == (y > 1))
    expect_equal(as.numeric(mean(tf$constant(c(1L, 2L)))), 1.5)
    expect_error(tf$constant(3L) + 0.5, "tf$cast", fixed = TRUE)
})

test_that("rows, columns and pairs are R's", {
    expect_same(rowSums(Y))
    expect_same(colSums(Y))
    expect_same(rowMeans(Y))
    expect_same(colMeans(Y))
    expect_same(rowSums(Y > 0))
    expect_same(pmin(x, y))
    expect_same(pmax(1, x))
    expect_same(pmax(x, y, c(3, 3, 3)))
    expect_same(ifelse(x > 0, x, y))
    expect_same(ifelse(x > 0, 1, 0))
    expect_same(cbind(1, Y))
    expect_same(cbind(x, y))
    expect_same(rbind(x, y, 7))
    expect_same(c(x, 1, y))
    expect_same(c(Y, x))
    expect_same(as.vector(Y))
    expect_same(rep(x, 2))
    expect_same(rep(x, each = 2))
    expect_same(rev(x))
    expect_same(sort(x))
    expect_same(sort(x, decreasing = TRUE))
    expect_same(diff(x))
    expect_same(median(x))
    expect_same(median(y[1:2]))
    expect_same(quantile(x, c(0.1, 0.9)))
    expect_same(quantile(y))
    expect_same(t(x))
    expect_same(t(x) %*% y)
    expect_same(x %*% t(y))
    expect_same(Y %*% x)
    expect_same(Y %*% t(Y))
    expect_same((Y > 0) %*% x)
    expect_same(det(Y[, 1:2]), tolerance = 1e-5)
    expect_same(solve(Y[, 1:2]), tolerance = 1e-5)
    expect_same(solve(Y[, 1:2], x[1:2]), tolerance = 1e-5)
    expect_same(chol(Y %*% t(Y)), tolerance = 1e-5)
    expect_equal(dim(t(tensor(x))), c(1, 3))
    expect_equal(sapply(as.list(tensor(x)), as.numeric), x)
    expect_equal(as.numeric(Reduce(`+`, lapply(tensor(x), exp))), sum(exp(x)), tolerance = 1e-6)
    expect_equal(rowSums(Y), base::rowSums(Y))
    expect_equal(pmin(x, y), base::pmin(x, y))
    expect_equal(ifelse(x > 0, "a", "b"), base::ifelse(x > 0, "a", "b"))
    expect_error(mean(tensor(Y), 1), "tf$reduce_mean(x, 1L)", fixed = TRUE)
    expect_error(t(tf$zeros(c(2L, 2L, 2L))), "tf$transpose", fixed = TRUE)
})

test_that("a column does not meet a vector unnoticed", {
    column <- tensor(matrix(x, 3))
    expect_error(column - tensor(y), "tf$squeeze(column, 1L)", fixed = TRUE)
    expect_error(pmax(tensor(y), column), "tf$squeeze(column, 1L)", fixed = TRUE)
    expect_equal(dim(column - tf$expand_dims(tensor(y), 0L)), c(3, 3))
    expect_equal(dim(column - tensor(c(1, 2))), c(3, 2))
})

test_that("what R cannot do with a tensor in a model says what to write", {
    in_model <- function(f) run("sgld", logLik = function(params, dataset) f(params$theta, dataset$x))
    expect_error(in_model(function(theta, x) if (sum(theta) > 0) 1), "tf\\$where\\(condition")
    expect_error(in_model(function(theta, x) while (sum(theta) > 0) 1), "tf\\$while_loop")
    expect_error(in_model(function(theta, x) for (i in x) i), "as.list\\(x\\)")
    expect_error(in_model(function(theta, x) theta[1] > 0 && TRUE), "& in place of &&")
    expect_error(in_model(function(theta, x) max(5, theta)), "tensor first")
    expect_error(in_model(function(theta, x) sum(dcauchy(x, log = TRUE))), "tf\\$distributions\\$Cauchy")
    expect_error(in_model(function(theta, x) atan2(theta, 1)), "tf\\$atan2")
    expect_error(in_model(function(theta, x) array(theta, 1)), "tf\\$reshape")
    expect_error(in_model(function(theta, x) as.numeric(theta)), "tf\\$cast\\(x, tf\\$float32\\)")
    expect_error(in_model(function(theta, x) lbeta(theta, 1)), "lgamma\\(a\\)")
    expect_error(in_model(function(theta, x) polyroot(theta)), "see \\?tensors")
})

test_that("a misspelt name is told", {
    expect_error(
        run("sgld", logLik = function(params, dataset) tf$reduce_sum((dataset$X - params$theta)^2)),
        "`dataset\\$X` is not there: `dataset` has `x`. Did you mean `dataset\\$x`"
    )
    expect_error(
        run("sgld", logLik = function(params, dataset) -sum((dataset$x - params$tehta)^2)),
        "Did you mean `params\\$theta`"
    )
    expect_error(
        run("sgld", logPrior = function(params) -sum(params[["mu"]]^2) * params$theta[3]),
        "`params\\$mu` is not there"
    )
    expect_warning(
        run("sgld", logLik = function(params, dataset) {
            -sum((dataset$x - params$theta)^2) + length(dataset$xx)
        }),
        "Did you mean `dataset\\$x`"
    )
    # What is optional may be asked for.
    expect_silent(run("sgld", logLik = function(params, dataset) {
        if (!is.null(dataset$weights)) stop("there are none")
        -0.5 * sum((dataset$x - params$theta)^2)
    }))
})

test_that("densities and matrices are R's", {
    p <- c(0.2, 0.9, 0.5)
    k <- c(0, 3, 2)
    expect_same(plogis(x))
    expect_same(plogis(x, lower.tail = FALSE, log.p = TRUE))
    expect_same(qlogis(plogis(x)), 1e-5)
    expect_same(pnorm(x, 0.5, 2), 1e-5)
    expect_same(pnorm(x, log.p = TRUE), 1e-5)
    for (log in c(TRUE, FALSE)) {
        expect_same(dnorm(x, 1, 2, log = log), 1e-5)
        expect_same(dnorm(1.5, x, 2, log = log), 1e-5)
        expect_same(dt(x, 4, log = log), 1e-5)
        expect_same(dbinom(k, 3, plogis(x), log = log), 1e-5)
        expect_same(dbinom(k, 3, plogis(x) * 0 + 1, log = FALSE), 1e-5)
        expect_same(dpois(k, y, log = log), 1e-5)
        expect_same(dnbinom(k, y, 0.3, log = log), 1e-5)
        expect_same(dnbinom(k, 2, mu = y, log = log), 1e-5)
        expect_same(dexp(y, 0.5, log = log), 1e-5)
        expect_same(dgamma(y, 2, 0.5, log = log), 1e-5)
        expect_same(dgamma(y, 2, scale = 3, log = log), 1e-5)
        expect_same(dbeta(plogis(x), 2, 3, log = log), 1e-4)
    }
    expect_same(crossprod(Y))
    expect_same(crossprod(Y, Y + 1))
    expect_same(tcrossprod(Y))
    expect_same(diag(crossprod(Y)))
    expect_same(diag(x))
    expect_same(matrix(c(Y), 3))
    expect_same(matrix(x))
    expect_same(matrix(c(Y), ncol = 2, byrow = TRUE))
    # What is no tensor is as it was, with the same random numbers.
    expect_equal(sgmcmc::matrix(1:6, 2, dimnames = list(c("a", "b"), NULL)), base::matrix(1:6, 2, dimnames = list(c("a", "b"), NULL)))
    expect_equal(sgmcmc::matrix(nrow = 2, ncol = 2), base::matrix(nrow = 2, ncol = 2))
    expect_equal(sgmcmc::diag(3), base::diag(3))
    expect_equal(sgmcmc::dbinom(1, 2, p), stats::dbinom(1, 2, p))
    expect_equal(sgmcmc::dt(1, 3), stats::dt(1, 3))
    set.seed(1)
    ours <- sgmcmc::matrix(rnorm(4), 2)
    set.seed(1)
    expect_equal(ours, base::matrix(rnorm(4), 2))
})

test_that("densities are those of R outside of the support, and refuse what R refuses", {
    for (log in c(TRUE, FALSE)) {
        expect_same(dexp(x, 2, log = log))
        expect_same(dgamma(c(-1, 0, 2) + 0 * x, 1, 2, log = log))
        expect_same(dgamma(x, 2, scale = 2, log = log))
        expect_same(dbeta(c(-1, 0, 1) + 0 * x, 1, 2, log = log))
        expect_same(dbinom(c(-1, 3, 4) + 0 * x, 3, 0.2, log = log))
        expect_same(dpois(c(-1, 0, 3) + 0 * x, 2, log = log), 1e-5)
        expect_same(dnbinom(c(-1, 0, 3) + 0 * x, 2, mu = 0.3, log = log), 1e-5)
        expect_same(suppressWarnings(dpois(c(1.5, 0, 3) + 0 * x, 2, log = log)), 1e-5)
    }
    expect_same(qlogis(c(0.1, 0.5, 0.9) + 0 * x, 1, 2, lower.tail = FALSE), 1e-5)
    expect_same(qlogis(c(-0.1, -0.5, -2) + 0 * x, log.p = TRUE), 1e-5)
    for (one in list(1, tensor(1))) {
        expect_error(dgamma(one, 2, rate = 2, scale = 3), "specify 'rate' or 'scale' but not both")
        expect_error(dnbinom(one, 2, 0.5, mu = 1), "'prob' and 'mu' both specified")
        expect_error(dnbinom(one, 2), "\"prob\" is missing")
        expect_error(qlogis(one, wrong = 1), "unused argument")
    }
    expect_error(dt(tensor(1), 3, ncp = 1), "no `ncp`")
    expect_error(dbeta(tensor(0.5), 2, 2, ncp = 1), "no `ncp`")
    expect_warning(expect_equal(sgmcmc::dgamma(1, 2, 2, 0.5), stats::dgamma(1, 2, 2)), "but not both")
    # The gradient is finite where a value is outside.
    tape <- reticulate::import("tensorflow")$GradientTape()
    shape <- tf$constant(2)
    tape$`__enter__`()
    tape$watch(shape)
    total <- sum(exp(dgamma(tensor(c(-1, 1, 2)), shape, 2, log = TRUE)))
    tape$`__exit__`(NULL, NULL, NULL)
    expect_true(is.finite(as.numeric(tape$gradient(total, shape))))
})
