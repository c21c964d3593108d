# R's distributions of tensors, for log-likelihoods written as in R. What is no tensor goes to stats.

#' Distributions of tensors
#'
#' The logistic function and R's densities, of tensors: `sum(dbinom(dataset$y, 1, plogis(eta), log = TRUE))`
#' is a log-likelihood. If no argument is a
#' tensor, the function of stats is called, or that of a package attached before this one. What is outside of
#' the support has density 0, as in R, and a count is an integer there. On the scale of logarithms they are exact far in the tails;
#' `dbinom` of `plogis(eta)` is not, for `plogis(eta)` rounds to 0 and 1 from eta = 17 on in single
#' precision: `-tf$nn$sigmoid_cross_entropy_with_logits(y, eta)` is.
#'
#' @param x,q,p Values: tensors, or numbers.
#' @param mean,sd,rate,shape,scale,shape1,shape2,size,prob,lambda,df Parameters: tensors, or numbers.
#' @param location,log,lower.tail,log.p,mu As in R.
#' @param ncp As in R, of numbers only.
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

# A log density where there is one, and -Inf elsewhere.
within <- function(inside, value) tensorflow()$where(inside, value, like(-Inf, value))

# Values where they are inside, else one that is: what is computed there is thrown away, but has a gradient.
placed <- function(inside, x, instead) tensorflow()$where(inside, x, like(instead, x))

# A log probability of counts, which R has for integers that are not negative.
ofCounts <- function(x, probability, most = NULL) {
    math <- tensorflow()$math
    inside <- x >= 0 & math$abs(x - math$round(x)) <= 1e-7 * pmax(math$abs(x), 1)
    if (!is.null(most)) inside <- inside & x <= most
    within(inside, probability(placed(inside, x, 0)))
}

needNoCenter <- function(law, missing) {
    if (!missing) {
        stop(law, " of tensors has no `ncp`", call. = FALSE)
    }
}

#' @rdname distributions
#' @export
plogis <- function(q, location = 0, scale = 1, lower.tail = TRUE, log.p = FALSE) {
    if (!anyTensor(q, location, scale)) {
        return(withoutPackage("plogis", q, location, scale)(q, location, scale, lower.tail, log.p))
    }
    z <- floating((q - location) / scale)
    if (!lower.tail) z <- -z
    if (log.p) tensorflow()$math$log_sigmoid(z) else tensorflow()$sigmoid(z)
}

#' @rdname distributions
#' @export
qlogis <- function(p, location = 0, scale = 1, lower.tail = TRUE, log.p = FALSE) {
    if (!anyTensor(p, location, scale)) {
        return(withoutPackage("qlogis", p, location, scale)(p, location, scale, lower.tail, log.p))
    }
    of <- asFloats(p, location, scale)
    p <- of[[1]]
    z <- if (log.p) p - logOf(-tensorflow()$math$expm1(p)) else logOf(p) - log1p(-p)
    of[[2]] + of[[3]] * if (lower.tail) z else -z
}

#' @rdname distributions
#' @export
pnorm <- function(q, mean = 0, sd = 1, lower.tail = TRUE, log.p = FALSE) {
    if (!anyTensor(q, mean, sd)) {
        return(withoutPackage("pnorm", q, mean, sd)(q, mean, sd, lower.tail, log.p))
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
        return(withoutPackage("dnorm", x, mean, sd)(x, mean, sd, log))
    }
    of <- asFloats(x, mean, sd)
    z <- (of[[1]] - of[[2]]) / of[[3]]
    onScale(-0.5 * z^2 - logOf(of[[3]]) - 0.5 * base::log(2 * pi), log)
}

#' @rdname distributions
#' @export
dt <- function(x, df, ncp, log = FALSE) {
    if (!anyTensor(x, df, if (!missing(ncp)) ncp)) {
        found <- withoutPackage("dt", x, df)
        return(if (missing(ncp)) found(x, df, log = log) else found(x, df, ncp, log))
    }
    needNoCenter("dt()", missing(ncp))
    of <- asFloats(x, df)
    nu <- of[[2]]
    constant <- lgamma((nu + 1) / 2) - lgamma(nu / 2) - 0.5 * logOf(nu * pi)
    onScale(constant - 0.5 * (nu + 1) * log1p(of[[1]]^2 / nu), log)
}

#' @rdname distributions
#' @export
dbinom <- function(x, size, prob, log = FALSE) {
    if (!anyTensor(x, size, prob)) {
        return(withoutPackage("dbinom", x, size, prob)(x, size, prob, log))
    }
    of <- asFloats(x, size, prob)
    math <- tensorflow()$math
    onScale(ofCounts(of[[1]], function(x) {
        rest <- of[[2]] - x
        ways <- lgamma(of[[2]] + 1) - lgamma(x + 1) - lgamma(rest + 1)
        ways + math$xlogy(x, of[[3]]) + math$xlog1py(rest, -of[[3]])
    }, most = of[[2]]), log)
}

#' @rdname distributions
#' @export
dpois <- function(x, lambda, log = FALSE) {
    if (!anyTensor(x, lambda)) {
        return(withoutPackage("dpois", x, lambda)(x, lambda, log))
    }
    of <- asFloats(x, lambda)
    onScale(ofCounts(of[[1]], function(x) {
        tensorflow()$math$xlogy(x, of[[2]]) - of[[2]] - lgamma(x + 1)
    }), log)
}

#' @rdname distributions
#' @export
dnbinom <- function(x, size, prob, mu, log = FALSE) {
    if (!missing(mu) && !missing(prob)) {
        stop("'prob' and 'mu' both specified", call. = FALSE)
    }
    if (missing(mu) && missing(prob)) {
        stop("argument \"prob\" is missing, with no default", call. = FALSE)
    }
    given <- list(x, size, if (missing(mu)) prob else mu)
    if (!do.call(anyTensor, given)) {
        found <- do.call(withoutPackage, c("dnbinom", given))
        return(if (missing(mu)) found(x, size, prob, log = log) else found(x, size, mu = mu, log = log))
    }
    of <- do.call(asFloats, given)
    p <- if (missing(mu)) of[[3]] else of[[2]] / (of[[2]] + of[[3]])
    onScale(ofCounts(of[[1]], function(x) {
        ways <- lgamma(x + of[[2]]) - lgamma(of[[2]]) - lgamma(x + 1)
        ways + of[[2]] * logOf(p) + tensorflow()$math$xlog1py(x, -p)
    }), log)
}

#' @rdname distributions
#' @export
dexp <- function(x, rate = 1, log = FALSE) {
    if (!anyTensor(x, rate)) {
        return(withoutPackage("dexp", x, rate)(x, rate, log))
    }
    of <- asFloats(x, rate)
    onScale(within(of[[1]] >= 0, logOf(of[[2]]) - of[[2]] * of[[1]]), log)
}

#' @rdname distributions
#' @export
dgamma <- function(x, shape, rate = 1, scale = 1 / rate, log = FALSE) {
    both <- !missing(rate) && !missing(scale)
    if (!anyTensor(x, shape, rate, scale)) {
        found <- withoutPackage("dgamma", x, shape, rate, scale)
        # stats compares a rate and a scale, if both are given.
        return(
            if (both) {
                found(x, shape, rate, scale, log)
            } else if (missing(scale)) {
                found(x, shape, rate, log = log)
            } else {
                found(x, shape, scale = scale, log = log)
            }
        )
    }
    if (both) {
        stop("specify 'rate' or 'scale' but not both", call. = FALSE)
    }
    of <- asFloats(x, shape, if (missing(scale)) rate else 1 / scale)
    inside <- of[[1]] >= 0
    x <- placed(inside, of[[1]], 1)
    value <- of[[2]] * logOf(of[[3]]) - lgamma(of[[2]]) + tensorflow()$math$xlogy(of[[2]] - 1, x) - of[[3]] * x
    onScale(within(inside, value), log)
}

#' @rdname distributions
#' @export
dbeta <- function(x, shape1, shape2, ncp = 0, log = FALSE) {
    if (!anyTensor(x, shape1, shape2, ncp)) {
        found <- withoutPackage("dbeta", x, shape1, shape2)
        return(if (missing(ncp)) found(x, shape1, shape2, log = log) else found(x, shape1, shape2, ncp, log))
    }
    needNoCenter("dbeta()", missing(ncp))
    of <- asFloats(x, shape1, shape2)
    inside <- of[[1]] >= 0 & of[[1]] <= 1
    x <- placed(inside, of[[1]], 0.5)
    value <- lgamma(of[[2]] + of[[3]]) - lgamma(of[[2]]) - lgamma(of[[3]])
    math <- tensorflow()$math
    onScale(within(inside, value + math$xlogy(of[[2]] - 1, x) + math$xlog1py(of[[3]] - 1, -x)), log)
}
