# R's distributions of tensors, for log-likelihoods written as in R. What is no tensor goes to stats.

#' Distributions of tensors
#'
#' The logistic function and R's densities, of tensors: `sum(dbinom(dataset$y, 1, plogis(eta), log = TRUE))`
#' is a log-likelihood. If no argument is a
#' tensor, the function of stats is called. On the scale of logarithms they are exact far in the tails;
#' `dbinom` of `plogis(eta)` is not, for `plogis(eta)` rounds to 0 and 1 from eta = 17 on in single
#' precision: `-tf$nn$sigmoid_cross_entropy_with_logits(y, eta)` is.
#'
#' @param x,q,p Values: tensors, or numbers.
#' @param mean,sd,rate,shape,scale,shape1,shape2,size,prob,lambda,df Parameters: tensors, or numbers.
#' @param location,log,lower.tail,log.p,mu As in R.
#' @param ncp As in R, of numbers only.
#' @param ... Further arguments of the function of stats.
#' @return A tensor, or what the function of stats returns.
#' @name distributions
#' @examples
#' \dontrun{
#' logLik <- function(params, dataset) {
#'     eta <- dataset$X %*% params$beta
#'     sum(dpois(dataset$y, exp(eta), log = TRUE))
#' }
#' }
NULL

# The arguments as tensors of one type; constants take that of the tensors.
asFloats <- function(...) {
    parts <- alike(list(...))
    lapply(parts, floating)
}

onScale <- function(value, log) if (log) value else exp(value)

# `log` is an argument of densities.
logOf <- function(x) tensorflow()$math$log(x)

#' @rdname distributions
#' @export
plogis <- function(q, location = 0, scale = 1, lower.tail = TRUE, log.p = FALSE) {
    if (!anyTensor(q, location, scale)) {
        return(stats::plogis(q, location, scale, lower.tail, log.p))
    }
    z <- floating((q - location) / scale)
    if (!lower.tail) z <- -z
    if (log.p) tensorflow()$math$log_sigmoid(z) else tensorflow()$sigmoid(z)
}

#' @rdname distributions
#' @export
qlogis <- function(p, location = 0, scale = 1, ...) {
    if (!anyTensor(p, location, scale)) {
        return(stats::qlogis(p, location, scale, ...))
    }
    location + scale * (log(p) - log1p(-p))
}

#' @rdname distributions
#' @export
pnorm <- function(q, mean = 0, sd = 1, lower.tail = TRUE, log.p = FALSE) {
    if (!anyTensor(q, mean, sd)) {
        return(stats::pnorm(q, mean, sd, lower.tail, log.p))
    }
    z <- floating((q - mean) / sd)
    if (!lower.tail) z <- -z
    law <- tf$distributions$Normal(like(0, z), like(1, z))
    if (log.p) law$log_cdf(z) else law$cdf(z)
}

#' @rdname distributions
#' @export
dnorm <- function(x, mean = 0, sd = 1, log = FALSE) {
    if (!anyTensor(x, mean, sd)) {
        return(stats::dnorm(x, mean, sd, log))
    }
    of <- asFloats(x, mean, sd)
    z <- (of[[1]] - of[[2]]) / of[[3]]
    onScale(-0.5 * z^2 - logOf(of[[3]]) - 0.5 * base::log(2 * pi), log)
}

#' @rdname distributions
#' @export
dt <- function(x, df, ncp, log = FALSE) {
    if (!anyTensor(x, df)) {
        return(if (missing(ncp)) stats::dt(x, df, log = log) else stats::dt(x, df, ncp, log))
    }
    of <- asFloats(x, df)
    nu <- of[[2]]
    constant <- lgamma((nu + 1) / 2) - lgamma(nu / 2) - 0.5 * logOf(nu * pi)
    onScale(constant - 0.5 * (nu + 1) * log1p(of[[1]]^2 / nu), log)
}

#' @rdname distributions
#' @export
dbinom <- function(x, size, prob, log = FALSE) {
    if (!anyTensor(x, size, prob)) {
        return(stats::dbinom(x, size, prob, log))
    }
    of <- asFloats(x, size, prob)
    math <- tensorflow()$math
    rest <- of[[2]] - of[[1]]
    ways <- lgamma(of[[2]] + 1) - lgamma(of[[1]] + 1) - lgamma(rest + 1)
    onScale(ways + math$xlogy(of[[1]], of[[3]]) + math$xlog1py(rest, -of[[3]]), log)
}

#' @rdname distributions
#' @export
dpois <- function(x, lambda, log = FALSE) {
    if (!anyTensor(x, lambda)) {
        return(stats::dpois(x, lambda, log))
    }
    of <- asFloats(x, lambda)
    onScale(tensorflow()$math$xlogy(of[[1]], of[[2]]) - of[[2]] - lgamma(of[[1]] + 1), log)
}

#' @rdname distributions
#' @export
dnbinom <- function(x, size, prob, mu, log = FALSE) {
    given <- c(list(x, size), if (!missing(prob)) list(prob), if (!missing(mu)) list(mu))
    if (!any(vapply(given, isTensor, NA))) {
        return(if (missing(mu)) stats::dnbinom(x, size, prob, log = log) else stats::dnbinom(x, size, mu = mu, log = log))
    }
    of <- do.call(asFloats, given)
    p <- if (missing(mu)) of[[3]] else of[[2]] / (of[[2]] + of[[3]])
    ways <- lgamma(of[[1]] + of[[2]]) - lgamma(of[[2]]) - lgamma(of[[1]] + 1)
    onScale(ways + of[[2]] * logOf(p) + tensorflow()$math$xlog1py(of[[1]], -p), log)
}

#' @rdname distributions
#' @export
dexp <- function(x, rate = 1, log = FALSE) {
    if (!anyTensor(x, rate)) {
        return(stats::dexp(x, rate, log))
    }
    of <- asFloats(x, rate)
    onScale(logOf(of[[2]]) - of[[2]] * of[[1]], log)
}

#' @rdname distributions
#' @export
dgamma <- function(x, shape, rate = 1, scale = 1 / rate, log = FALSE) {
    if (!missing(scale)) {
        rate <- 1 / scale
    }
    if (!anyTensor(x, shape, rate)) {
        return(stats::dgamma(x, shape, rate, log = log))
    }
    of <- asFloats(x, shape, rate)
    value <- of[[2]] * logOf(of[[3]]) - lgamma(of[[2]])
    onScale(value + (of[[2]] - 1) * logOf(of[[1]]) - of[[3]] * of[[1]], log)
}

#' @rdname distributions
#' @export
dbeta <- function(x, shape1, shape2, ncp = 0, log = FALSE) {
    if (!anyTensor(x, shape1, shape2)) {
        return(
            if (missing(ncp)) stats::dbeta(x, shape1, shape2, log = log) else stats::dbeta(x, shape1, shape2, ncp, log)
        )
    }
    of <- asFloats(x, shape1, shape2)
    value <- lgamma(of[[2]] + of[[3]]) - lgamma(of[[2]]) - lgamma(of[[3]])
    onScale(value + (of[[2]] - 1) * logOf(of[[1]]) + (of[[3]] - 1) * log1p(-of[[1]]), log)
}
