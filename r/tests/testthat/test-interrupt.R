# Ctrl-C reaches a script of its own, once it says that it is running.
script <- '
suppressMessages(library(sgmcmc))
logLik <- function(params, dataset) tf$reduce_sum(-0.5 * (dataset$x - params$theta)^2)
dataset <- list(x = rnorm(100))
args <- commandArgs(trailingOnly = TRUE)
tell <- function(...) cat(..., "\\n", file = args[1], append = TRUE)
run <- sgld(logLik, dataset, list(theta = 0), 1e-4, nIters = 10, verbose = FALSE)
withCallingHandlers(
    for (method in list(sgld, sgldcv)) {
        tell("running", Sys.getpid())
        given <- list(logLik, dataset, list(theta = 0), 1e-4, nIters = 1e9, thin = 1e4,
            verbose = TRUE)
        if (identical(method, sgldcv)) given <- c(given, list(optStepsize = 1e-6, nItersOpt = 2e9))
        chain <- tryCatch(do.call(method, given), interrupt = function(condition) "prompt")
        tell("back", if (is.list(chain)) nrow(chain$theta) else chain)
    },
    warning = function(w) tell("warning", conditionMessage(w))
)
tell("goes on")
'

lines <- function(file) if (file.exists(file)) readLines(file, warn = FALSE) else character()

waitFor <- function(file, pattern, count, seconds = 120) {
    end <- Sys.time() + seconds
    while (sum(grepl(pattern, lines(file))) < count && Sys.time() < end) Sys.sleep(0.2)
    sum(grepl(pattern, lines(file))) >= count
}

test_that("Ctrl-C returns the draws so far, or gives the prompt back", {
    needsPython()
    skip_on_os("windows")
    file <- tempfile()
    progress <- tempfile()
    program <- tempfile(fileext = ".R")
    writeLines(script, program)
    libraries <- Sys.getenv("R_LIBS")
    Sys.setenv(R_LIBS = paste(.libPaths(), collapse = .Platform$path.sep))
    on.exit(Sys.setenv(R_LIBS = libraries))
    system2(file.path(R.home("bin"), "Rscript"), c(program, file),
        wait = FALSE, stdout = FALSE, stderr = progress
    )
    for (number in 1:2) {
        expect_true(waitFor(file, "^running", number))
        # Where there is an estimate there is a draw.
        bar <- c("sgld:.*estimate", "sgldcv, mode-finding:.*estimate")[[number]]
        expect_true(waitFor(progress, bar, 1))
        pid <- as.integer(sub("running ", "", grep("^running", lines(file), value = TRUE)[[1]]))
        tools::pskill(pid, tools::SIGINT)
        expect_true(waitFor(file, "^back", number, 30))
    }
    expect_true(waitFor(file, "^goes on", 1, 10))
    said <- lines(file)
    expect_match(said, "warning Interrupted: the \\d+ draws so far are returned", all = FALSE, perl = TRUE)
    draws <- as.numeric(sub("back ", "", grep("^back \\d", said, value = TRUE)))
    expect_gt(draws, 0)
    expect_lt(draws, 1e5)
    expect_match(said, "back prompt", all = FALSE)
})
