# Ctrl-C. Python gives back the draws so far; R goes back to the prompt, or ends the script.

kept <- new.env(parent = emptyenv())

# The interrupt that R itself would signal, with the draws so far. Unless somebody waits for
# it, it ends in what Ctrl-C ends in.
interrupt <- function(samples = NULL) {
    signalCondition(structure(
        class = c(if (!is.null(samples)) "sgmcmcInterrupt", "interrupt", "condition"),
        list(message = "interrupted", call = NULL, samples = samples)
    ))
    if (!is.null(samples)) {
        keep(samples)
    }
    invokeRestart("abort")
}

# The time limit of setTimeLimit(), which R looks at while it runs itself; so it does for a moment, some times
# a second. Its error must not cross Python: FALSE tells Python to end the chain, and callPython() gives it again.
checkLimits <- function() {
    tryCatch(
        {
            Sys.sleep(1e-4)
            TRUE
        },
        error = function(problem) {
            problem["call"] <- list(NULL)
            shown$limit <- problem
            FALSE
        }
    )
}

# R's own error, with the draws so far kept.
overLimit <- function(problem, samples) {
    if (!is.null(samples)) {
        keep(samples)
    }
    stop(problem)
}

keep <- function(samples) {
    kept$samples <- samples
    where <- "interruptedDraws() returns"
    if (!is.null(storeOf(samples))) {
        where <- paste0("openSamples(\"", storeOf(samples), "\") returns")
    } else if (!interactive()) {
        where <- "in any session, interruptedDraws() returns"
        tryCatch(keepInFile(samples), error = function(problem) {
            where <<- paste0("lost, because no file can be written (", conditionMessage(problem), "), are")
        })
    }
    message("Interrupted: ", where, " the ", drawsOf(samples), " draws so far.")
}

# The process is about to end, and the draws with it.
keepInFile <- function(samples) {
    attr(samples, "origin") <- NULL
    path <- fileOfInterrupted()
    dir.create(dirname(path), showWarnings = FALSE, recursive = TRUE)
    part <- tempfile("interrupted", dirname(path))
    on.exit(unlink(part))
    saveRDS(samples, part, compress = FALSE)
    if (!file.rename(part, path)) {
        stop("cannot rename ", part)
    }
}

fileOfInterrupted <- function() {
    file.path(tools::R_user_dir("sgmcmc", "data"), "interrupted.rds")
}

storeOf <- function(samples) attr(samples, "origin")$store

#' The draws of a chain that was interrupted
#'
#' Ctrl-C, or the stop button, ends a sampler within a block of iterations, and with it whatever
#' called it: a loop over chains, or a script, which `Rscript` ends with a status other than 0.
#' The draws so far are not lost. `interruptedDraws()` returns those of the last chain that was
#' interrupted in this session, or else in a script. A script writes them to a file in the
#' folder `tools::R_user_dir("sgmcmc", "data")`, which the next interrupted script replaces.
#' With `store` they are in the store, and the same call continues the chain.
#'
#' A time limit, see [setTimeLimit()], ends a sampler in the same way, with R's own error.
#'
#' A program that handles the interrupt gets the draws with it: the condition has the classes
#' `interrupt`, like R's own, and `sgmcmcInterrupt`, and its `samples` are the draws.
#'
#' @param forget Whether to delete them, file included.
#' @return The draws, see [sgmcmcChains]; `NULL` if there are none.
#' @export
#' @examples
#' interruptedDraws()
#' \dontrun{
#' chain <- tryCatch(
#'     sgld(logLik, dataset, params, 1e-4, nIters = 1e8),
#'     sgmcmcInterrupt = function(condition) condition$samples
#' )
#' }
interruptedDraws <- function(forget = FALSE) {
    samples <- kept$samples
    path <- fileOfInterrupted()
    if (is.null(samples) && file.exists(path)) {
        samples <- readRDS(path)
    }
    if (forget) {
        kept$samples <- NULL
        unlink(path)
    }
    samples
}
