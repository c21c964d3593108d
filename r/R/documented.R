# The parts of a sampler that the R package of 2019 documented beside its constants:
# placeholders, tensors on them, and operations, all of which sess$run takes.

addDocumented <- function(object) {
    sampler <- object$python
    known <- object$known
    parts <- callPython("documented", sampler)
    makeActiveBinding("placeholders", function() callPython("placeholders", parts), object)
    object$estLogPost <- fetch(
        function(minibatch) callPython("est_log_post", sampler, columns(minibatch, known, new = TRUE)), parts, FALSE
    )
    names <- names(object$params)
    steps <- lapply(names, function(name) operation("step", parts, name))
    names(steps) <- names
    object$dynamics <- structure(steps, class = "sgmcmcDynamics", parts = parts)
    object$documented <- parts
    if (!is.null(parts$params_opt)) {
        object$paramsOpt <- parts$params_opt
        object$logPostOptGrad <- parts$log_post_opt_grad
        object$estLogPostOpt <- fetch(
            function(minibatch) callPython("est_log_post_opt", parts, columns(minibatch, known, new = TRUE)), parts, TRUE
        )
        object$optimizer <- operation("ascend", parts)
    }
}

# A function of a minibatch that is also a tensor, on the placeholders of its sampler.
fetch <- function(f, parts, atMode) {
    structure(f, class = c("sgmcmcFetch", "sgmcmcTensor", "function"), parts = parts, atMode = atMode)
}

asTensor <- function(x) callPython("est_log_post_tensor", attr(x, "parts"), attr(x, "atMode"))

#' @importFrom reticulate r_to_py
#' @rawNamespace S3method(r_to_py, sgmcmcFetch)
r_to_py.sgmcmcFetch <- function(x, convert = FALSE) asTensor(x)

#' @export
`$.sgmcmcFetch` <- function(x, name) attribute(asTensor(x), name)

#' @export
print.sgmcmcFetch <- function(x, ...) {
    cat("Estimate of the log posterior: a function of a minibatch, and a tensor for sess$run\n")
    invisible(x)
}

operation <- function(kind, parts, parameter = NULL) {
    structure(list(kind = kind, parts = parts, parameter = parameter), class = "sgmcmcOperation")
}

#' @export
print.sgmcmcOperation <- function(x, ...) {
    cat(
        if (x$kind == "step") paste0("A step of `", x$parameter, "`") else "A step up the gradient",
        ", for sess$run\n",
        sep = ""
    )
    invisible(x)
}

#' @export
print.sgmcmcDynamics <- function(x, ...) {
    cat("An iteration of the chain, for sess$run: steps of", paste(names(x), collapse = ", "), "\n")
    invisible(x)
}

# What sess$run does: operations are carried out, tensors are looked at.
runFetches <- function(fetches, feedDict, session) {
    if (inherits(fetches, "sgmcmcOperation")) {
        carryOut(fetches, feedDict, session)
    } else if (inherits(fetches, "sgmcmcDynamics")) {
        callPython("step", attr(fetches, "parts"), session, NULL, feedDict)
        invisible(NULL)
    } else if (is.list(fetches) && anyOperation(fetches)) {
        lapply(fetches, runFetches, feedDict, session)
    } else {
        callPython("run", fetches, feedDict)
    }
}

carryOut <- function(operation, feedDict, session) {
    if (operation$kind == "ascend") {
        callPython("ascend", operation$parts, feedDict)
    } else {
        callPython("step", operation$parts, session, operation$parameter, feedDict)
    }
    invisible(NULL)
}

anyOperation <- function(fetches) {
    any(vapply(fetches, function(part) {
        inherits(part, c("sgmcmcOperation", "sgmcmcDynamics")) || (is.list(part) && anyOperation(part))
    }, NA))
}
