#' Samplers for parameters on the simplex
#'
#' The parameters are points of the simplex along their last dimension, with Dirichlet priors of
#' concentration `alpha`; those that `alpha` does not name are unconstrained and move as in
#' [sgld()]. With \eqn{\hat c}{c} the expected category counts from the minibatch, \eqn{\hat a =
#' \alpha + \hat c}{a = alpha + c}, and the point \eqn{\omega = \theta / \sum \theta}{omega =
#' theta / sum(theta)}:
#'
#' `scir`, stochastic Cox-Ingersoll-Ross, draws the next state exactly,
#' \deqn{\theta' = \frac{1 - e^{-h}}{2} W, \quad W \sim \chi^2\left(2 \hat a,
#' \frac{2 \theta e^{-h}}{1 - e^{-h}}\right),}{
#' theta' = (1 - exp(-h)) / 2 W, with W non-central chi-squared with 2 a degrees of freedom
#' and non-centrality 2 theta exp(-h) / (1 - exp(-h)),}
#' so that there is no error from the stepsize.
#'
#' `sgrld`, stochastic gradient Riemannian Langevin dynamics, moves by
#' \deqn{\theta' = \left|\theta + (h / 2) [\alpha - \theta + \hat c - \omega \sum \hat c]
#' + \sqrt{h \theta}\,\eta\right|.}{
#' theta' = |theta + (h / 2) (alpha - theta + c - omega sum(c)) + sqrt(h theta) eta|.}
#'
#' @inheritParams sgld
#' @param logLik Function of the parameters and a minibatch, as in [sgld()]; a sum of logs of
#'   polynomials in the points of the simplex, with nonnegative coefficients.
#' @param stepsize Stepsize h: a number, a named list, or a schedule.
#' @param alpha The Dirichlet concentration: a number, an array, or a named list of them.
#' @param theta0 Named list of unnormalized starting states; `NULL` for the default.
#' @param storeUnnormalized Whether to keep the unnormalized state with each draw.
#' @param gibbs Function of the parameters, the minibatch and a seed that returns the
#'   minibatch with latent variables added to it.
#' @param latents Named list of latent values for each observation, which `gibbs` receives with
#'   the minibatch; the values that it returns are stored.
#' @inherit sgld return
#' @inheritSection sgld Errors
#'
#' @references Baker, Fearnhead, Fox and Nemeth (2018), Large-scale stochastic sampling
#'   from the probability simplex, NeurIPS. Patterson and Teh (2013), Stochastic gradient
#'   Riemannian Langevin dynamics on the probability simplex, NIPS, equation 10.
#' @export
#' @examples
#' \dontrun{
#' counts <- t(rmultinom(1000, 1, c(0.8, 0.1, 0.1)))
#' logLik <- function(params, dataset) {
#'     tf$reduce_sum(dataset$x * log(params$omega))
#' }
#' params <- list(omega = rep(1 / 3, 3))
#' chain <- scir(logLik, list(x = counts), params, 0.1, minibatchSize = 100, alpha = 0.1)
#' colMeans(chain$omega)
#' }
scir <- function(logLik, dataset, params, stepsize, logPrior = NULL, minibatchSize = 0.01,
                 nIters = 10^4L, verbose = TRUE, seed = NULL, alpha, nChains = NULL,
                 burnIn = 0, thin = 1, store = NULL, testFunctions = NULL, theta0 = NULL,
                 storeUnnormalized = FALSE, gibbs = NULL, latents = NULL,
                 updates = "in_turn", ...) {
    runSampler("scir", as.list(environment()), ...)
}

#' @rdname scir
#' @export
sgrld <- function(logLik, dataset, params, stepsize, logPrior = NULL,
                  minibatchSize = 0.01, nIters = 10^4L, verbose = TRUE, seed = NULL,
                  alpha, nChains = NULL, burnIn = 0, thin = 1, store = NULL,
                  testFunctions = NULL, theta0 = NULL, storeUnnormalized = FALSE,
                  gibbs = NULL, latents = NULL, updates = "in_turn", ...) {
    runSampler("sgrld", as.list(environment()), ...)
}

#' @rdname sgldSetup
#' @export
scirSetup <- function(logLik, dataset, params, stepsize, logPrior = NULL,
                      minibatchSize = 0.01, seed = NULL, alpha, nChains = NULL,
                      theta0 = NULL, gibbs = NULL, latents = NULL,
                      updates = "in_turn", ...) {
    setUp("scir", as.list(environment()), ...)
}

#' @rdname sgldSetup
#' @export
sgrldSetup <- function(logLik, dataset, params, stepsize, logPrior = NULL,
                       minibatchSize = 0.01, seed = NULL, alpha, nChains = NULL,
                       theta0 = NULL, gibbs = NULL, latents = NULL,
                       updates = "in_turn", ...) {
    setUp("sgrld", as.list(environment()), ...)
}
