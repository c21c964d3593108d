#' Start a run of a sampler that was set up
#'
#' With control variates, finds the mode and computes the full gradient there.
#'
#' @param sgmcmc Sampler from a setup function, such as [sgldSetup()].
#' @param verbose Whether to show the progress of mode-finding.
#' @param restore Path of a file that the `save` function of a session wrote, to continue from
#'   there bit for bit.
#'
#' @return A session: an object with the functions `run(fetches, feed_dict = NULL)`, which
#'   returns the current values of tensors and variables and runs the steps of
#'   `sampler$dynamics`; `save(path)`; `iteration()`, the number of iterations run so far; and
#'   `close()`, which ends the session.
#' @seealso [sgmcmcStep()], [getParams()]
#' @export
#' @examples
#' \dontrun{
#' sess <- initSess(sampler)
#' sgmcmcStep(sampler, sess)
#' sess$run(sampler$params)
#' }
initSess <- function(sgmcmc, verbose = TRUE, restore = NULL) {
    if (!is.null(restore)) {
        restore <- path.expand(restore)
    }
    session <- callPython("init_sess", pythonSampler(sgmcmc), verbose, restore)
    callPython("found", sgmcmc$documented)
    closed <- FALSE
    open <- function() {
        if (closed) {
            stop("this session is closed: start another by initSess(sampler)", call. = FALSE)
        }
        needLive(session, paste0(
            "this session comes from a file or from an R session that has ended, and lived in its Python. What ",
            "sess$save(path) writes can be continued, by initSess(sampler, restore = path)"
        ))
    }
    structure(
        list(
            run = function(fetches, feed_dict = NULL) {
                session <- open()
                runFetches(fetches, feeds(feed_dict), session)
            },
            save = function(path) invisible(callPython("save", open(), path.expand(path))),
            iteration = function() open()$iteration,
            close = function() {
                closed <<- TRUE
                invisible(NULL)
            },
            open = open
        ),
        class = "sgmcmcSession"
    )
}

#' @export
print.sgmcmcSession <- function(x, ...) {
    cat("Session after", x$iteration(), "iterations\n")
    invisible(x)
}

#' Run more iterations of a chain
#'
#' Afterward `sgmcmc$params` has the new state. A single step costs far more than an iteration
#' within one call of [sgld()], because R and Python are in the loop; a hundred steps in one
#' call cost hardly more than a hundred iterations.
#'
#' @inheritParams initSess
#' @param sess The session that [initSess()] returned.
#' @param nSteps Number of iterations to run.
#'
#' @return Nothing.
#' @export
#' @examples
#' \dontrun{
#' sgmcmcStep(sampler, sess)
#' sgmcmcStep(sampler, sess, nSteps = 100)
#' }
sgmcmcStep <- function(sgmcmc, sess, nSteps = 1) {
    callPython("sgmcmc_step", pythonSampler(sgmcmc), pythonSession(sess), nSteps)
    invisible(NULL)
}

#' Get the current state of a chain
#'
#' @inheritParams sgmcmcStep
#'
#' @return A named list of numbers and arrays, of the dimensions of the parameters.
#' @export
#' @examples
#' \dontrun{
#' getParams(sampler, sess)$theta
#' }
getParams <- function(sgmcmc, sess) {
    callPython("get_params", pythonSampler(sgmcmc), pythonSession(sess))
}

pythonSampler <- function(sgmcmc) {
    if (!inherits(sgmcmc, "sgmcmc")) {
        stop("`sgmcmc` must be what a setup function, such as sgldSetup, returned", call. = FALSE)
    }
    needLive(
        sgmcmc$python,
        "`sgmcmc`: this sampler comes from a file or from a session that has ended, and lived in its Python; set it up again"
    )
}

pythonSession <- function(sess) {
    if (!inherits(sess, "sgmcmcSession")) {
        stop("`sess` must be what initSess returned", call. = FALSE)
    }
    sess$open()
}
