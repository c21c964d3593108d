#' Zero-variance control variates
#'
#' Corrects draws by control variates from their gradients, so that the variance of their means
#' is smaller. With \eqn{z = -\hat g(\theta) / 2}{z = -g(theta) / 2} and P a polynomial,
#' \eqn{-\Delta P(\theta) / 2 + \nabla P(\theta) \cdot z}{-(1/2) Laplacian P(theta) + grad
#' P(theta) . z} has mean zero under the posterior; these are regressed out, for all P up to a
#' degree.
#'
#' @param chain Draws with their gradients, from a sampler with `storeGradients = TRUE`.
#' @param degree Degree of the polynomials, 1 or 2.
#' @param testFunctions Functions to correct instead of the parameters: names among the chain's
#'   test functions, or a named list of functions of the parameters.
#' @param fit Draws to which coefficients are fitted: `"pooled"`, all draws together; `"own"`,
#'   each chain by itself; `"others"`, for each chain all others, and with a single chain for
#'   each half the other.
#' @param batches Number of batches of each chain, to whose means the coefficients are fitted
#'   instead of to draws: better if minibatches make the gradients noisy.
#' @param keepDraws Whether to return the corrected draws; `FALSE` returns only means,
#'   coefficients and ratios.
#' @param bijectors Bijectors of the chain, for degree 2.
#'
#' @return The corrected draws, a list like `chain`, with the attributes `mean`, `coefficients`
#'   and `varianceRatio`, the variance of the draws divided by that of the corrected ones.
#' @references Baker, Fearnhead, Fox and Nemeth (2019), Control variates for stochastic
#'   gradient MCMC, *Statistics and Computing* 29. Mira, Solgi and Imparato (2013), Zero
#'   variance Markov chain Monte Carlo for Bayesian estimators, *Statistics and Computing*
#'   23.
#' @export
#' @examples
#' \dontrun{
#' chain <- sgldcv(logLik, dataset, params, 1e-4, 1e-4, storeGradients = TRUE)
#' attr(zeroVariance(chain), "mean")
#' }
zeroVariance <- function(chain, degree = 1, testFunctions = NULL, fit = "pooled",
                         batches = NULL, keepDraws = TRUE, bijectors = NULL) {
    if (!inherits(chain, "sgmcmcChains")) {
        stop("`chain` must be what a sampler returned", call. = FALSE)
    }
    gradients <- attr(chain, "gradients")
    for (name in intersect(names(gradients), names(chain))) {
        if (!identical(dim(gradients[[name]]), dim(chain[[name]]))) {
            stop(
                "`chain`: the draws of ", name, " are not those that its gradients belong to; ",
                "drop draws by `burnIn` and `thin`, not afterward",
                call. = FALSE
            )
        }
    }
    parts <- c(
        list(draws = unclass(chain)),
        attributes(chain)[c("scalars", "settings")],
        list(gradients = gradients, testFunctions = attr(chain, "testFunctions"))
    )
    attributes(parts$draws) <- list(names = names(chain))
    if (is.character(testFunctions)) {
        testFunctions <- as.list(testFunctions)
    }
    asChains(callPython(
        "zero_variance", parts, degree, testFunctions, fit, batches, keepDraws, bijectors
    ))
}
