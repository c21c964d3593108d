#' A stepsize that decreases
#'
#' The schedule \eqn{h (1 + m / \tau)^{-\kappa}}{h (1 + m / tau)^(-kappa)} at iteration m,
#' counted from 1 with `burnIn` included.
#'
#' @param h The stepsize at the start.
#' @param tau Number of iterations after which the decay begins.
#' @param kappa The rate of decay.
#'
#' @return A stepsize for any sampler; also a function of the iteration.
#' @export
#' @examples
#' \dontrun{
#' chain <- sgld(logLik, dataset, params, polynomialDecay(1e-4, 1000, 0.33))
#' }
polynomialDecay <- function(h, tau, kappa) {
    callPython("polynomial_decay", h, tau, kappa)
}
