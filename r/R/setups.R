# A sampler that is set up, as R code expects it: its parts by `$`, and the classes
# "sgld" and "sgmcmc", with control variates "sgmcmccv" before that.
setUp <- function(method, arguments, ...) {
    sampler <- callPython("setup", method, pythonArguments(arguments, list(...)))
    object <- new.env(parent = emptyenv())
    object$python <- sampler
    object$params <- sampler$params
    object$data <- arguments$dataset
    object$known <- knownOf(arguments$dataset, list(...))
    object$N <- sampler$N
    object$n <- sampler$n
    object$logLik <- arguments$logLik
    object$logPrior <- arguments$logPrior
    addDocumented(object)
    for (name in intersect(names(arguments), c("stepsize", "optStepsize", "alpha", "L", "a"))) {
        object[[name]] <- arguments[[name]]
    }
    lockEnvironment(object, bindings = TRUE)
    controlVariates <- !is.null(object$paramsOpt)
    class(object) <- c(sub("cv$", "", method), if (controlVariates) "sgmcmccv", "sgmcmc")
    object
}

#' @export
print.sgmcmc <- function(x, ...) {
    cat(inWordsOfR(reticulate::py_repr(pythonSampler(x))), "\n", sep = "")
    invisible(x)
}

#' @export
print.sgmcmccv <- print.sgmcmc

#' Set up a sampler to run step by step
#'
#' The functions have the arguments of [sgld()], [sgldcv()], [sghmc()], [sghmccv()], [sgnht()],
#' [sgnhtcv()], [scir()] and [sgrld()], except those about the length of the chain and the
#' stored draws. [initSess()] and [sgmcmcStep()] run the result; n steps give the draws that the
#' one call gives with the same seed.
#'
#' @inheritParams sgld
#' @inheritParams sghmc
#' @inheritParams sgnht
#' @inheritParams scir
#' @param alpha For `sghmcSetup` and `sghmccvSetup` the friction, a number or a named list with
#'   one for each parameter; for `scirSetup` and `sgrldSetup` the Dirichlet concentration, a
#'   number, an array, or a named list of them.
#' @param verbose Whether to show the progress of mode-finding.
#' @param ... Further arguments, by name: `bijectors`, `replace`, `dtype`, `jitCompile`,
#'   as in [sgld()], and `integrator`, as in [sghmc()].
#'
#' @return An object of class `"sgld"`, `"sghmc"`, `"sgnht"`, `"scir"` or `"sgrld"`, with
#'   control variates also `"sgmcmccv"`, and `"sgmcmc"`. Its parts:
#'
#'   - `params`: the current state, a named list of TensorFlow variables;
#'   - `N`, `n`, `data`, `stepsize`, `logLik`, `logPrior`, and the tuning constants;
#'   - `estLogPost(minibatch)`: the estimate of the log posterior at the current state;
#'   - with control variates `paramsOpt`, the mode, and `logPostOptGrad`, the gradient there
#'     over the whole dataset, lists of variables that [initSess()] sets, and
#'     `estLogPostOpt(minibatch)`, the estimate at the mode.
#'
#'   For code that feeds minibatches itself, `sess$run` accepts:
#'
#'   - `placeholders`: one for a minibatch of each array of the dataset, see [placeholders];
#'   - `estLogPost` and `estLogPostOpt`, tensors on these as well as functions;
#'   - `dynamics`: a list with a step for each parameter; running the list is one iteration on
#'     the minibatch that is fed, or on a new one if none is; running an entry moves only that
#'     parameter;
#'   - with control variates `optimizer`, which moves `paramsOpt` a step up the gradient on the
#'     minibatch that is fed; the chain keeps the center that `initSess` found.
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
