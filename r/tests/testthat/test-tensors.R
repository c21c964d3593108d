x <- NULL
y <- NULL
X <- matrix(c(1.5, -2, 3, 4, 5.5, -6), 2)

tensors <- function() {
    needsPython()
    list(x = tf$constant(c(0.5, 2, 3), dtype = tf$float32), X = tf$constant(X, dtype = tf$float32))
}

test_that("operators are R's", {
    x <- tensors()$x
    r <- c(0.5, 2, 3)
    value <- function(tensor) c(as.array(tensor))
    for (operator in c("+", "-", "*", "/", "^", "%%", "%/%", "==", "!=", "<", ">", "<=", ">=")) {
        f <- get(operator)
        expect_equal(value(f(x, 2)), f(r, 2), tolerance = 1e-6, label = operator)
        expect_equal(value(f(2, x)), f(2, r), tolerance = 1e-6, label = operator)
        expect_equal(value(f(x, x)), f(r, r), tolerance = 1e-6, label = operator)
        expect_equal(value(f(x, c(3, 1, 2))), f(r, c(3, 1, 2)), tolerance = 1e-6, label = operator)
    }
    expect_equal(value(-x), -r)
    expect_equal(value(+x), r)
    expect_equal(value(!(x > 1 & x < 3 | x == 3)), c(TRUE, FALSE, FALSE))
    expect_equal(value(tf$constant(3L) - 1), 2)
    expect_error(x + "a")
})

test_that("mathematical functions are R's", {
    x <- tensors()$x
    r <- c(0.5, 2, 3)
    for (name in c(
        "abs", "sign", "sqrt", "floor", "ceiling", "round", "trunc", "exp", "log", "log2",
        "log10", "log1p", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh", "atan",
        "lgamma", "digamma", "trigamma", "gamma", "cumsum", "cumprod", "signif", "cospi", "sinpi"
    )) {
        f <- get(name)
        expect_equal(c(as.array(f(x))), f(r), tolerance = 1e-5, label = name)
    }
    expect_equal(c(as.array(log(x, 3))), log(r, 3), tolerance = 1e-6)
    expect_error(cummax(x), "tf$scan", fixed = TRUE)
    expect_error(cumsum(tensors()$X), "axis = 0L", fixed = TRUE)
    expect_equal(c(as.array(gamma(tf$constant(c(-0.5, -1.5, 2))))), gamma(c(-0.5, -1.5, 2)), tolerance = 1e-5)
    values <- c(-1.2345, 12.355, 1234.5)
    several <- tf$constant(values)
    for (digits in c(-2, 0, 1, 2)) {
        expect_equal(c(as.array(round(several, digits))), round(values, digits), tolerance = 1e-6)
    }
    for (digits in 1:4) {
        expect_equal(c(as.array(signif(several, digits))), signif(values, digits), tolerance = 1e-6)
    }
    expect_equal(c(as.array(sqrt(tf$constant(c(4L, 9L))))), c(2, 3))
})

test_that("summaries, shapes and products are R's", {
    X_ <- tensors()$X
    x_ <- tensors()$x
    expect_equal(dim(X_), dim(X))
    expect_equal(length(X_), 6)
    expect_equal(length(x_), 3)
    expect_equal(length(tf$constant(1)), 1)
    expect_null(dim(tf$constant(1)))
    for (name in c("sum", "mean", "min", "max", "prod", "range")) {
        f <- get(name)
        expect_equal(c(as.array(f(X_))), f(X), label = name)
    }
    expect_true(as.array(any(X_ > 5)))
    expect_false(as.array(all(X_ > 5)))
    expect_equal(as.matrix(t(X_)), t(X))
    r <- c(0.5, 2, 3)
    expect_equal(c(as.array(X_ %*% x_)), c(X %*% r))
    expect_equal(c(as.array(X %*% x_)), c(X %*% r))
    expect_equal(as.array(X_ %*% t(X)), X %*% t(X))
    expect_equal(c(as.array(x_ %*% x_)), sum(r^2))
    expect_equal(X %*% r, base::`%*%`(X, r))
})

test_that("indices count from 1", {
    X_ <- tensors()$X
    x_ <- tensors()$x
    expect_equal(as.numeric(x_[2]), 2)
    expect_equal(c(as.array(x_[c(3, 1)])), c(3, 0.5))
    expect_equal(c(as.array(x_[-1])), c(2, 3))
    expect_equal(c(as.array(x_[c(TRUE, FALSE, TRUE)])), c(0.5, 3))
    expect_equal(c(as.array(X_[2, ])), X[2, ])
    expect_equal(as.array(X_[, 2:3]), X[, 2:3])
    expect_equal(as.array(X_[, 2, drop = FALSE]), X[, 2, drop = FALSE])
    expect_equal(as.numeric(X_[1, 3]), X[1, 3])
    expect_equal(as.array(X_[, ]), X)
    i <- 2
    expect_equal(c(as.array(X_[i, ])), X[2, ])
    expect_error(x_[4], "out of bounds")
    expect_error(x_[0], "out of bounds")
    expect_error(X_[1], "2 dimensions")
    expect_error(x_["a"], "no names")
    expect_equal(c(as.array(x_[])), c(0.5, 2, 3))
    expect_equal(c(as.array(x_[x_ > 1])), c(2, 3))
    expect_equal(as.numeric(x_[[2]]), 2)
    expect_equal(as.numeric(X_[[2, 3]]), X[2, 3])
    expect_equal(x_[["shape"]]$rank, 1)
    expect_equal(as.numeric(tf$constant(7)[1]), 7)
    expect_equal(c(as.array(x_[tf$constant(c(3, 1))])), c(3, 0.5))
    expect_error(x_[1] <- 2, "tf$where", fixed = TRUE)
    expect_error(dim(x_) <- c(3, 1), "tf$reshape", fixed = TRUE)
})

test_that("TensorFlow's old names are there", {
    needsPython()
    expect_equal(as.numeric(tf$log(tf$constant(1))), 0)
    expect_equal(as.numeric(tf$rsqrt(tf$constant(4))), 0.5)
    expect_equal(as.numeric(tf$to_int32(tf$constant(2.7))), 2)
    expect_error(tf$no_such_thing, "neither in version 2 nor in version 1")
    expect_true("xw_plus_b" %in% names(tf$nn))
    expect_true("reduce_sum" %in% names(tf))
    distributions <- tf$contrib$distributions
    expect_equal(as.numeric(distributions$Normal(0, 2)$log_prob(1)), dnorm(1, 0, 2, log = TRUE),
        tolerance = 1e-6
    )
    scale <- matrix(c(2, 0.5, 0.5, 1), 2)
    at <- tf$constant(diag(2), dtype = tf$float32)
    density <- tf$distributions$WishartFull(3, tf$constant(scale, dtype = tf$float32))$log_prob(at)
    # The density of the Wishart distribution with 3 degrees of freedom in two dimensions.
    multigamma <- 0.5 * log(pi) + lgamma(1.5) + lgamma(1)
    byHand <- -0.5 * sum(diag(solve(scale))) - 3 * log(2) - 1.5 * log(det(scale)) - multigamma
    expect_equal(as.numeric(density), byHand, tolerance = 1e-5)
})
