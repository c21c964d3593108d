# The names of TensorFlow 1, and what has become of them.
value <- function(tensor) c(as.array(tensor))

test_that("arguments of TensorFlow 1 are understood", {
    needsPython()
    X <- matrix(c(1, 4, 2, 5, 3, 6), 2)
    X_ <- tf$constant(X, dtype = tf$float32)
    expect_equal(as.array(tf$reduce_sum(X_, reduction_indices = 1L, keep_dims = TRUE)), cbind(rowSums(X)))
    expect_equal(as.array(tf$reduce_mean(X_, 0L, keep_dims = TRUE)), rbind(colMeans(X)))
    expect_equal(value(tf$reduce_max(X_, axis = 1L)), c(3, 6))
    softmax <- exp(X) / rowSums(exp(X))
    expect_equal(as.array(tf$nn$softmax(X_, dim = 1L)), softmax, tolerance = 1e-6)
    expect_equal(value(tf$argmax(X_, dimension = 1L)), c(2, 2))
    expect_equal(dim(tf$expand_dims(X_, dim = 0L)), c(1, 2, 3))
    expect_equal(dim(tf$squeeze(tf$expand_dims(X_, 0L), squeeze_dims = 0L)), c(2, 3))
    expect_equal(as.numeric(tf$norm(X_, keep_dims = FALSE)), sqrt(sum(X^2)), tolerance = 1e-6)
    beta <- matrix(1:3, 3)
    affine <- tf$nn$xw_plus_b(X_, tf$constant(beta, dtype = tf$float32), tf$ones(1L))
    expect_equal(as.array(affine), X %*% beta + 1)
    expect_error(tf$nn$dropout(X_, 0.5), "keep_prob")
})

test_that("shape, tuple and dict are there", {
    expect_equal(dim(tf$zeros(shape(2, 3))), c(2, 3))
    expect_equal(dim(tf$ones(shape(4))), 4)
    x <- tf$placeholder(tf$float32, shape(NULL, 2))
    expect_equal(dim(x), c(NA, 2))
    tf$reset_default_graph()
    expect_s3_class(tuple(1L, 2L), "python.builtin.tuple")
    expect_length(dict(), 0)
})

test_that("optimizers of TensorFlow 1 move variables", {
    needsPython()
    for (make in c("GradientDescentOptimizer", "AdamOptimizer", "MomentumOptimizer", "RMSPropOptimizer")) {
        given <- if (make == "MomentumOptimizer") list(0.1, 0.5) else list(0.1)
        optimizer <- do.call(tf$train[[make]], given)
        center <- tf$Variable(5)
        for (i in 1:3) optimizer$minimize(function() (center - 2)^2)
        expect_lt(as.numeric(center), 5)
        # And in a graph, as it was written then.
        sampler <- setUpSampler("sgld")
        x <- tf$placeholder(tf$float32, shape(7, 2))
        center <- tf$Variable(c(0, 0))
        train <- optimizer$minimize(-logLik(list(theta = center), list(x = x)))
        sess <- initSess(sampler)
        before <- sess$run(center)
        sess$run(train, feed_dict = dict(x = observations()[1:7, ]))
        expect_true(all(sess$run(center) != before), label = make)
        tf$reset_default_graph()
    }
})

test_that("distributions are those that TensorFlow 1 had", {
    needsPython()
    d <- tf$distributions
    log_prob <- function(distribution, x) as.numeric(distribution$log_prob(tf$constant(x, dtype = tf$float32)))
    expect_density <- function(distribution, x, density) {
        expect_equal(log_prob(distribution, x), log(density), tolerance = 1e-5)
    }
    softplus <- function(x) log1p(exp(x))
    expect_density(d$Normal(1, 2), 0.5, dnorm(0.5, 1, 2))
    expect_density(d$NormalWithSoftplusScale(1, 0.3), 0.5, dnorm(0.5, 1, softplus(0.3)))
    expect_density(d$ExponentialWithSoftplusRate(0.3), 0.5, dexp(0.5, softplus(0.3)))
    expect_density(d$GammaWithSoftplusConcentrationRate(0.3, 1), 0.5, dgamma(0.5, softplus(0.3), softplus(1)))
    expect_density(d$BetaWithSoftplusConcentration(0.3, 1), 0.5, dbeta(0.5, softplus(0.3), softplus(1)))
    expect_density(d$Chi2WithAbsDf(-3.7), 0.5, dchisq(0.5, 3))
    expect_density(d$StudentTWithAbsDfSoftplusScale(-3.7, 1, 0.3), 0.5, dt(-0.5 / softplus(0.3), 3) / softplus(0.3))
    expect_density(d$LaplaceWithSoftplusScale(1, 0.3), 0.5, exp(-0.5 / softplus(0.3)) / 2 / softplus(0.3))
    expect_density(d$InverseGamma(2, rate = 3), 0.5, dgamma(2, 2, 3) * 4)
    expect_density(
        d$InverseGammaWithSoftplusConcentrationRate(0.3, 1), 0.5, dgamma(2, softplus(0.3), softplus(1)) * 4
    )
    expect_density(
        d$MultivariateNormalDiag(c(0, 1), c(1, 2), scale_identity_multiplier = 0.5), c(1, 1),
        dnorm(1, 0, 1.5) * dnorm(1, 1, 2.5)
    )
    expect_density(
        d$MultivariateNormalDiagWithSoftplusScale(c(0, 1), c(1, 2)), c(1, 1),
        dnorm(1, 0, softplus(1)) * dnorm(1, 1, softplus(2))
    )
    expect_density(d$VectorLaplaceDiag(c(0, 1), c(1, 2)), c(1, 1), exp(-1) / 2 / 4)
    expect_density(d$VectorExponentialDiag(c(0, 1), c(1, 2)), c(1, 2), dexp(1) * dexp(1, 0.5))
    expect_density(d$VectorSinhArcsinhDiag(c(0, 1), c(1, 2)), c(1, 1), dnorm(1) * dnorm(1, 1, 2))
    # The density of the Wishart distribution with 3 degrees of freedom in two dimensions, at I.
    scale <- matrix(c(2, 0.5, 0.5, 1), 2)
    wishart <- exp(
        -0.5 * sum(diag(solve(scale))) - 3 * log(2) - 1.5 * log(det(scale)) - 0.5 * log(pi) -
            lgamma(1.5) - lgamma(1)
    )
    root <- t(chol(scale))
    expect_density(d$Wishart(3, scale), diag(2), wishart)
    expect_density(d$Wishart(3, scale_tril = root), diag(2), wishart)
    expect_density(d$WishartCholesky(3, root), diag(2), wishart)
    expect_density(tf$contrib$distributions$WishartFull(3, scale), diag(2), wishart)
    expect_equal(value(d$percentile(c(1, 2, 3), 50)), 2)
    expect_equal(value(d$fill_triangular(c(1, 2, 3))), c(3, 2, 0, 1))
    expect_equal(value(d$tridiag(c(1, 2), c(3, 4, 5), c(6, 7)))[c(2, 4, 5)], c(1, 6, 4))
    expect_equal(
        value(d$matrix_diag_transform(tf$constant(diag(c(1, 2))), tf$exp)), c(diag(exp(1:2))),
        tolerance = 1e-6
    )
})

test_that("bijectors are those that TensorFlow 1 had", {
    needsPython()
    b <- tf$distributions$bijectors
    at <- c(0.3, 0.6)
    expect_forward <- function(bijector, expected, x = at) {
        x <- tf$constant(x, dtype = tf$float32)
        expect_equal(value(bijector$forward(x)), expected, tolerance = 1e-5)
        expect_equal(value(bijector$inverse(bijector$forward(x))), value(x), tolerance = 1e-5)
    }
    expect_forward(b$Affine(c(1, 2)), at + 1:2)
    expect_forward(b$Affine(c(1, 2), scale_identity_multiplier = 3), 3 * at + 1:2)
    expect_forward(b$Affine(scale_diag = c(2, 3), scale_identity_multiplier = 1), at * c(3, 4))
    L <- matrix(c(2, 1, 0, 3), 2)
    expect_forward(b$Affine(c(1, 2), scale_tril = L), c(L %*% at) + 1:2)
    u <- cbind(c(1, 2))
    expect_forward(
        b$Affine(scale_diag = c(2, 3), scale_perturb_factor = u), c((diag(c(2, 3)) + u %*% t(u)) %*% at)
    )
    expect_forward(
        b$AffineLinearOperator(c(1, 2), tf$linalg$LinearOperatorLowerTriangular(tf$constant(L, dtype = tf$float32))),
        c(L %*% at) + 1:2
    )
    expect_forward(b$AffineScalar(1, 2), 2 * at + 1)
    expect_forward(b$Gumbel(0.5, 2), exp(-exp(-(at - 0.5) / 2)))
    expect_forward(b$Weibull(2, 3), 1 - exp(-(at / 2)^3))
    expect_forward(b$Kumaraswamy(2, 3), (1 - (1 - at)^(1 / 3))^(1 / 2))
    expect_forward(b$Ordered(), c(1, log(2), log(3)), c(1, 3, 6))
    expect_equal(dim(b$ScaleTriL()$forward(c(1, 2, 3))), c(2, 2))
})

test_that("what is gone answers with its successor", {
    needsPython()
    expect_error(tf$Session(), "initSess\\(sampler\\)")
    expect_error(tf$sub, "Write tf$subtract", fixed = TRUE)
    expect_error(tf$contrib$layers, "Write tf$keras$layers", fixed = TRUE)
    expect_error(tf$distributions$VectorDiffeomixture, "MixtureSameFamily")
    expect_error(tf$distributions$Wishrat, "Did you mean tf$distributions$Wishart?", fixed = TRUE)
    expect_error(tf$softmax, "Write tf$nn$softmax", fixed = TRUE)
    expect_error(tf$nn$relo, "Did you mean tf$nn$relu", fixed = TRUE)
    expect_error(tf$train$AdmaOptimizer, "AdamOptimizer")
    expect_output(print(tf$nn), "tf$nn of TensorFlow", fixed = TRUE)
})
