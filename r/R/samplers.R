# Every sampler function hands over its own arguments, by name; the checks are made in
# Python.
runSampler <- function(method, arguments, ...) {
    found <- withWarnings(
        callPython("sample", method, pythonArguments(arguments, list(...))), function(found) found$report$warnings
    )
    asChains(c(found, list(
        labels = givenNames(arguments$params), known = knownOf(arguments$dataset, list(...))
    )))
}

#' Stochastic gradient Langevin dynamics
#'
#' `sgld` moves by \deqn{\theta' = \theta + (\epsilon / 2) \hat g(\theta) +
#' \sqrt{\epsilon}\,\eta,}{ theta' = theta + (epsilon / 2) g(theta) + sqrt(epsilon) eta,} with
#' \eqn{\eta}{eta} standard normal and \eqn{\hat g}{g} the gradient of `logPrior(params) + (N /
#' n) * logLik(params, minibatch)`, where n of the N observations are drawn again at each
#' iteration.
#'
#' `sgldcv` estimates the gradient with control variates: the mode is found first, by
#' `nItersOpt` steps of stochastic gradient ascent with stepsize `optStepsize`, the gradient
#' there is computed over the whole dataset, and a minibatch estimates only the difference. The
#' chain starts at the mode.
#'
#' @param logLik Function of two named lists of tensors, the parameters and a minibatch of the
#'   dataset, that returns the log-likelihood summed over the observations in the minibatch, a
#'   scalar tensor. See [tf] and [tensors].
#' @param dataset Named list of arrays that share their first dimension, of length N:
#'   vectors, matrices, arrays, or a data frame. A factor is its codes, from 1, for `params$mu[dataset$g]`;
#'   TensorFlow's functions of indices, which count from 0, refuse them. Dates are days since 1970.
#' @param params Named list of starting values: numbers, vectors, matrices, arrays. A
#'   number is a scalar parameter. With `nChains` it may be a list of such lists, a start
#'   for each chain.
#' @param stepsize Stepsize: a number, a named list with one for each parameter, or a schedule:
#'   a function of the iteration, or the result of [polynomialDecay()].
#' @param optStepsize Stepsize of the stochastic gradient ascent that finds the mode, in the
#'   form of `stepsize`; `"auto"` centers at the mode, found without minibatches.
#' @param logPrior Function of the list of parameters that returns their log prior
#'   density, a scalar tensor; `NULL` is a flat prior.
#' @param minibatchSize Minibatch size: a proportion of N if between 0 and 1, else a number of
#'   observations, from 1 to N. With N every gradient is exact.
#' @param nIters Number of iterations after `burnIn`.
#' @param nItersOpt Number of iterations of mode-finding.
#' @param verbose Whether to show progress.
#' @param seed Integer seed; the same call with the same seed on the same machine gives the same
#'   draws, and those of Python. `NULL` draws one from R's generator, which [set.seed()] sets.
#' @param nChains Number of independent chains; every array of the result then gains a
#'   first dimension for them. `NULL` is one chain without that dimension.
#' @param burnIn Number of iterations run and dropped first.
#' @param thin Thinning interval: every thin-th iteration is kept, `nIters %/% thin` draws.
#' @param store Path of a folder to which the draws are written as they are made. If the call is
#'   killed, the same call resumes it; [openSamples()] reads the folder.
#' @param storeGradients Whether to keep the gradient estimate at each draw, as
#'   [zeroVariance()] needs it.
#' @param testFunctions Named list of functions of the parameters, evaluated at each kept
#'   draw inside the compiled chain.
#' @param updates Order of updates: with `"in_turn"` the parameters move one after the other, in
#'   the order of `params`, each with a gradient at the latest values of the others, on the same
#'   minibatch, as in the R package of 2019; with `"joint"` all move at once, with one gradient,
#'   which takes less time and is Python's default. With a single parameter the two are the
#'   same.
#' @param ... Further arguments, by name: `storeParams` (`FALSE` keeps only the test functions,
#'   a vector of names only those parameters), `reductions` (a named list of `list(init,
#'   update)`, running reductions over the draws), `bijectors` (a named list of bijectors for
#'   constrained parameters, such as `tf$distributions$bijectors$Exp()`), `replace` (draw
#'   minibatches with replacement), `dtype` (`tf$float32`, or `tf$float64`), `jitCompile`
#'   (`TRUE` or `FALSE`; `NULL` compiles with XLA if possible).
#'
#' @return A list with an array for each parameter, of dimensions
#'   `(nIters, dim(parameter))`, or `(nIters, 1)` for a scalar; see [sgmcmcChains].
#'
#' @section Errors:
#' A wrong argument is refused before anything runs. A chain that becomes NaN or infinite
#' stops with a condition of class `sgmcmcDivergence`, whose `samples` are the finite
#' draws before. Ctrl-C ends the call, and [interruptedDraws()] has the draws so far.
#'
#' @references Welling and Teh (2011), Bayesian learning via stochastic gradient Langevin
#'   dynamics, ICML, equation 4. Baker, Fearnhead, Fox and Nemeth (2019), Control variates
#'   for stochastic gradient MCMC, *Statistics and Computing* 29, equation 9.
#' @export
#' @examples
#' \dontrun{
#' dataset <- list(x = rnorm(1000, mean = 3))
#' params <- list(theta = 3)
#' logLik <- function(params, dataset) {
#'     tf$reduce_sum(-0.5 * (dataset$x - params$theta)^2)
#' }
#' chain <- sgld(logLik, dataset, params, 1e-4, minibatchSize = 100, seed = 1)
#' mean(chain$theta)
#' chain <- sgldcv(logLik, dataset, params, 1e-4, 1e-4, minibatchSize = 100, seed = 1)
#' attr(chain, "mode")$theta
#' }
sgld <- function(logLik, dataset, params, stepsize, logPrior = NULL, minibatchSize = 0.01,
                 nIters = 10^4L, verbose = TRUE, seed = NULL, nChains = NULL, burnIn = 0,
                 thin = 1, store = NULL, storeGradients = FALSE, testFunctions = NULL,
                 updates = "in_turn", ...) {
    runSampler("sgld", as.list(environment()), ...)
}

#' @rdname sgld
#' @export
sgldcv <- function(logLik, dataset, params, stepsize, optStepsize, logPrior = NULL,
                   minibatchSize = 0.01, nIters = 10^4L, nItersOpt = 10^4L,
                   verbose = TRUE, seed = NULL, nChains = NULL, burnIn = 0, thin = 1,
                   store = NULL, storeGradients = FALSE, testFunctions = NULL,
                   updates = "in_turn", ...) {
    runSampler("sgldcv", as.list(environment()), ...)
}

#' Stochastic gradient Hamiltonian Monte Carlo
#'
#' One iteration draws a momentum \eqn{\nu \sim N(0, \epsilon)}{nu ~ N(0, epsilon)} and makes
#' `L` steps of a symmetric splitting: half a kick by the gradient, \eqn{\nu \leftarrow \nu +
#' (\epsilon / 2) \hat g(\theta)}{nu <- nu + (epsilon / 2) g(theta)}, half a drift, \eqn{\theta
#' \leftarrow \theta + \nu / 2}{theta <- theta + nu / 2}, friction and noise, \eqn{\nu
#' \leftarrow c \nu + \sqrt{\epsilon (1 - c^2)}\,\zeta}{ nu <- c nu + sqrt(epsilon (1 - c^2))
#' zeta} with \eqn{c = e^{-\alpha}}{c = exp(-alpha)}, then half a drift and half a kick again.
#' Each step needs one new minibatch.
#'
#' `integrator = "euler"`, as a further argument, is the published update instead: \eqn{\nu
#' \leftarrow (1 - \alpha) \nu + \epsilon \hat g(\theta) + \sqrt{2 \alpha \epsilon}\,\zeta}{nu
#' <- (1 - alpha) nu + epsilon g(theta) + sqrt(2 alpha epsilon) zeta}, \eqn{\theta \leftarrow
#' \theta + \nu}{theta <- theta + nu}. Its stationary variance is wrong by a factor of about L /
#' (L + 1) however small the stepsize is. The R package of 2019 also drew the momentum with half
#' that variance.
#'
#' `sghmccv` estimates the gradient with control variates, as [sgldcv()] does.
#'
#' @inheritParams sgld
#' @param alpha Friction, a number or a named list with one for each parameter.
#' @param L Number of steps in an iteration.
#' @inherit sgld return
#' @inheritSection sgld Errors
#'
#' @references Chen, Fox and Guestrin (2014), Stochastic gradient Hamiltonian Monte Carlo,
#'   ICML. Baker, Fearnhead, Fox and Nemeth (2019), Control variates for stochastic
#'   gradient MCMC, *Statistics and Computing* 29, equation 9.
#' @export
#' @examples
#' \dontrun{
#' dataset <- list(x = rnorm(1000, mean = 3))
#' logLik <- function(params, dataset) {
#'     tf$reduce_sum(-0.5 * (dataset$x - params$theta)^2)
#' }
#' chain <- sghmc(logLik, dataset, list(theta = 3), 1e-5, minibatchSize = 100, seed = 1)
#' }
sghmc <- function(logLik, dataset, params, stepsize, logPrior = NULL,
                  minibatchSize = 0.01, alpha = 0.01, L = 5L, nIters = 10^4L,
                  verbose = TRUE, seed = NULL, nChains = NULL, burnIn = 0, thin = 1,
                  store = NULL, storeGradients = FALSE, testFunctions = NULL,
                  updates = "in_turn", ...) {
    runSampler("sghmc", as.list(environment()), ...)
}

#' @rdname sghmc
#' @export
sghmccv <- function(logLik, dataset, params, stepsize, optStepsize, logPrior = NULL,
                    minibatchSize = 0.01, alpha = 0.01, L = 5L, nIters = 10^4L,
                    nItersOpt = 10^4L, verbose = TRUE, seed = NULL, nChains = NULL,
                    burnIn = 0, thin = 1, store = NULL, storeGradients = FALSE,
                    testFunctions = NULL, updates = "in_turn", ...) {
    runSampler("sghmccv", as.list(environment()), ...)
}

#' Stochastic gradient Nose-Hoover thermostat
#'
#' With \eqn{\nu \sim N(0, \epsilon)}{nu ~ N(0, epsilon)} and
#' \eqn{\xi = a}{xi = a} at the start, one iteration is
#' \eqn{\nu \leftarrow (1 - \xi) \nu + \epsilon \hat g(\theta) +
#' \sqrt{2 a \epsilon}\,\zeta}{nu <- (1 - xi) nu + epsilon g(theta) +
#' sqrt(2 a epsilon) zeta},
#' \eqn{\theta \leftarrow \theta + \nu}{theta <- theta + nu},
#' \eqn{\xi \leftarrow \xi + \nu^T \nu / p - \epsilon}{xi <- xi + nu'nu / p - epsilon}, with
#' a thermostat \eqn{\xi}{xi} for each named parameter and p its size: the friction adapts
#' to the noise of the minibatches.
#'
#' `sgnhtcv` estimates the gradient with control variates, as [sgldcv()] does.
#'
#' @inheritParams sgld
#' @param a Diffusion factor, a number or a named list with one for each parameter.
#' @inherit sgld return
#' @inheritSection sgld Errors
#'
#' @references Ding, Fang, Babbush, Chen, Skeel and Neven (2014), Bayesian sampling using
#'   stochastic gradient thermostats, NIPS. Baker, Fearnhead, Fox and Nemeth (2019),
#'   Control variates for stochastic gradient MCMC, *Statistics and Computing* 29,
#'   equation 9.
#' @export
#' @examples
#' \dontrun{
#' dataset <- list(x = rnorm(1000, mean = 3))
#' logLik <- function(params, dataset) {
#'     tf$reduce_sum(-0.5 * (dataset$x - params$theta)^2)
#' }
#' chain <- sgnht(logLik, dataset, list(theta = 3), 1e-5, minibatchSize = 100, seed = 1)
#' }
sgnht <- function(logLik, dataset, params, stepsize, logPrior = NULL,
                  minibatchSize = 0.01, a = 0.01, nIters = 10^4L, verbose = TRUE,
                  seed = NULL, nChains = NULL, burnIn = 0, thin = 1, store = NULL,
                  storeGradients = FALSE, testFunctions = NULL,
                  updates = "in_turn", ...) {
    runSampler("sgnht", as.list(environment()), ...)
}

#' @rdname sgnht
#' @export
sgnhtcv <- function(logLik, dataset, params, stepsize, optStepsize, logPrior = NULL,
                    minibatchSize = 0.01, a = 0.01, nIters = 10^4L, nItersOpt = 10^4L,
                    verbose = TRUE, seed = NULL, nChains = NULL, burnIn = 0, thin = 1,
                    store = NULL, storeGradients = FALSE, testFunctions = NULL,
                    updates = "in_turn", ...) {
    runSampler("sgnhtcv", as.list(environment()), ...)
}
