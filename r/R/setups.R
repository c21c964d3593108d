# A sampler that is set up, as R code expects it: its parts by `$`, and the classes
# "sgld" and "sgmcmc", or "sgmcmccv" with control variates.
setUp <- function(method, arguments, ...) {
    sampler <- callPython("setup", method, pythonArguments(arguments, list(...)))
    object <- new.env(parent = emptyenv())
    object$python <- sampler
    object$params <- sampler$params
    object$data <- arguments$dataset
    object$N <- sampler$N
    object$n <- sampler$n
    object$logLik <- arguments$logLik
    object$logPrior <- arguments$logPrior
    object$estLogPost <- function(minibatch) callPython("est_log_post", sampler, columns(minibatch))
    for (name in intersect(names(arguments), c("stepsize", "optStepsize", "alpha", "L", "a"))) {
        object[[name]] <- arguments[[name]]
    }
    controlVariates <- "optStepsize" %in% names(arguments)
    if (controlVariates) {
        addModes(object)
    }
    lockEnvironment(object, bindings = TRUE)
    class(object) <- c(sub("cv$", "", method), if (controlVariates) "sgmcmccv" else "sgmcmc")
    object
}

# What initSess finds out, and is NULL before.
addModes <- function(object) {
    sampler <- object$python
    makeActiveBinding("paramsOpt", function() {
        callPython("attribute", sampler, "params_opt")
    }, object)
    makeActiveBinding("logPostOptGrad", function() {
        callPython("attribute", sampler, "log_post_opt_grad")
    }, object)
}

#' @export
print.sgmcmc <- function(x, ...) {
    cat(inWordsOfR(reticulate::py_repr(x$python)), "\n", sep = "")
    invisible(x)
}

#' @export
print.sgmcmccv <- print.sgmcmc

#' Set up a sampler, to be run step by step
#'
#' The functions take the arguments of [sgld()], [sgldcv()], [sghmc()], [sghmccv()],
#' [sgnht()], [sgnhtcv()], [scir()] and [sgrld()] less those about the length of the chain
#' and what is kept of it. What they return is run by [initSess()] and [sgmcmcStep()]; n
#' steps give the draws that the one call gives with the same seed.
#'
#' @inheritParams sgld
#' @inheritParams sghmc
#' @inheritParams sgnht
#' @inheritParams scir
#' @param alpha for `sghmcSetup` and `sghmccvSetup` the friction, a number or a named list
#'   with one for each parameter; for `scirSetup` and `sgrldSetup` the Dirichlet
#'   concentration, a number, an array, or a named list of them.
#' @param verbose whether to show the progress of mode-finding.
#' @param ... further arguments, by name: `bijectors`, `replace`, `dtype`, `jitCompile`,
#'   as in [sgld()], and `integrator`, as in [sghmc()].
#'
#' @return An object of class `"sgld"`, `"sghmc"`, `"sgnht"`, `"scir"` or `"sgrld"`, and
#'   `"sgmcmc"` or, with control variates, `"sgmcmccv"`. Its parts:
#'
#'   - `params`: the present state, a named list of TensorFlow variables;
#'   - `N`, `n`, `data`, `stepsize`, `logLik`, `logPrior`, and the tuning constants;
#'   - `estLogPost(minibatch)`: the estimate of the log posterior at the present state;
#'   - with control variates, once [initSess()] has found them, `paramsOpt`, the mode, and
#'     `logPostOptGrad`, the gradient there over the whole dataset.
#' @export
#' @examples
#' \dontrun{
#' dataset <- list(x = rnorm(1000, mean = 3))
#' logLik <- function(params, dataset) {
#'     tf$reduce_sum(-0.5 * (dataset$x - params$theta)^2)
#' }
#' sampler <- sgldSetup(logLik, dataset, list(theta = 3), 1e-4, seed = 1)
#' sess <- initSess(sampler)
#' mean <- 0
#' for (i in 1:1000) {
#'     sgmcmcStep(sampler, sess)
#'     mean <- mean + getParams(sampler, sess)$theta / 1000
#' }
#' }
sgldSetup <- function(logLik, dataset, params, stepsize, logPrior = NULL,
                      minibatchSize = 0.01, seed = NULL, nChains = NULL,
                      updates = "in_turn", ...) {
    setUp("sgld", as.list(environment()), ...)
}

#' @rdname sgldSetup
#' @export
sgldcvSetup <- function(logLik, dataset, params, stepsize, optStepsize, logPrior = NULL,
                        minibatchSize = 0.01, nItersOpt = 10^4L, verbose = TRUE,
                        seed = NULL, nChains = NULL, updates = "in_turn", ...) {
    setUp("sgldcv", as.list(environment()), ...)
}

#' @rdname sgldSetup
#' @export
sghmcSetup <- function(logLik, dataset, params, stepsize, logPrior = NULL,
                       minibatchSize = 0.01, alpha = 0.01, L = 5L, seed = NULL,
                       nChains = NULL, updates = "in_turn", ...) {
    setUp("sghmc", as.list(environment()), ...)
}

#' @rdname sgldSetup
#' @export
sghmccvSetup <- function(logLik, dataset, params, stepsize, optStepsize, logPrior = NULL,
                         minibatchSize = 0.01, alpha = 0.01, L = 5L, nItersOpt = 10^4L,
                         verbose = TRUE, seed = NULL, nChains = NULL,
                         updates = "in_turn", ...) {
    setUp("sghmccv", as.list(environment()), ...)
}

#' @rdname sgldSetup
#' @export
sgnhtSetup <- function(logLik, dataset, params, stepsize, logPrior = NULL,
                       minibatchSize = 0.01, a = 0.01, seed = NULL, nChains = NULL,
                       updates = "in_turn", ...) {
    setUp("sgnht", as.list(environment()), ...)
}

#' @rdname sgldSetup
#' @export
sgnhtcvSetup <- function(logLik, dataset, params, stepsize, optStepsize, logPrior = NULL,
                         minibatchSize = 0.01, a = 0.01, nItersOpt = 10^4L,
                         verbose = TRUE, seed = NULL, nChains = NULL,
                         updates = "in_turn", ...) {
    setUp("sgnhtcv", as.list(environment()), ...)
}
