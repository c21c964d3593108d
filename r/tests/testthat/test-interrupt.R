# Ctrl-C reaches a script of its own, once it says that it is running.
beginning <- '
suppressMessages(library(sgmcmc))
logLik <- function(params, dataset) tf$reduce_sum(-0.5 * (dataset$x - params$theta)^2)
dataset <- list(x = rnorm(100))
tell <- function(...) cat(..., "\\n", file = commandArgs(trailingOnly = TRUE)[1], append = TRUE)
long <- function(method, ...) {
    method(logLik, dataset, list(theta = 0), 1e-4, nIters = 1e9, thin = 1e4, ...)
}
run <- sgld(logLik, dataset, list(theta = 0), 1e-4, nIters = 10, verbose = FALSE)
tell("running", Sys.getpid())
'

lines <- function(file) if (file.exists(file)) readLines(file, warn = FALSE) else character()

waitFor <- function(file, pattern, seconds = 240) {
    end <- Sys.time() + seconds
    while (!any(grepl(pattern, lines(file))) && Sys.time() < end) Sys.sleep(0.1)
    any(grepl(pattern, lines(file)))
}

# Begin a script in a process of its own.
begun <- function(code) {
    files <- list(told = tempfile(), screen = tempfile(), status = tempfile(), home = tempfile())
    program <- tempfile(fileext = ".R")
    writeLines(c(beginning, code), program)
    before <- Sys.getenv(c("R_LIBS", "R_USER_DATA_DIR"))
    Sys.setenv(
        R_LIBS = paste(.libPaths(), collapse = .Platform$path.sep), R_USER_DATA_DIR = files$home
    )
    on.exit(do.call(Sys.setenv, as.list(before)))
    command <- paste(
        "(", shQuote(file.path(R.home("bin"), "Rscript")), program, files$told, ">", files$screen, "2>&1;",
        "echo $? >", files$status, ")"
    )
    system(command, wait = FALSE)
    files
}

interruptWhen <- function(files, shows) {
    expect_true(waitFor(files$told, "^running"))
    # Where there is an estimate there is a draw.
    expect_true(waitFor(files$screen, shows))
    tools::pskill(as.integer(sub("running ", "", lines(files$told)[[1]])), tools::SIGINT)
}

# What a script wrote to its file and to the screen, and its status.
ended <- function(files) {
    expect_true(waitFor(files$status, "[0-9]", 60))
    list(
        told = lines(files$told), screen = lines(files$screen),
        status = as.integer(lines(files$status)), home = files$home
    )
}

# The scripts start together: most of their time is that of TensorFlow.
folder <- tempfile()
scripts <- new.env()
script <- function(name) {
    needsPython()
    skip_on_os("windows")
    if (length(ls(scripts)) == 0) {
        scripts$loop <- begun('for (i in 1:3) { chain <- long(sgld); tell("next") }; tell("goes on")')
        scripts$waits <- begun(c(
            'draws <- tryCatch(long(sgld), interrupt = function(condition) condition$samples)',
            'tell("draws", nrow(draws$theta))', 'tell(class(try(stop("x"), silent = TRUE)))'
        ))
        scripts$try <- begun(
            'for (i in 1:2) try(long(sgldcv, optStepsize = 1e-6, nItersOpt = 2e9)); tell("goes on")'
        )
        scripts$store <- begun(sprintf('chain <- long(sgld, store = "%s"); tell("goes on")', folder))
    }
    scripts[[name]]
}

# One that no test came to would run for days.
endAll <- function(scripts) {
    for (files in as.list(scripts)) {
        process <- sub("running ", "", grep("^running", lines(files$told), value = TRUE))
        if (length(process) > 0 && !file.exists(files$status)) {
            tools::pskill(as.integer(process), tools::SIGKILL)
        }
    }
}
reg.finalizer(scripts, endAll, onexit = TRUE)

test_that("Ctrl-C in a loop over chains ends the script, and the draws are kept", {
    files <- script("loop")
    interruptWhen(files, "sgld:.*estimate")
    found <- ended(files)
    expect_gt(found$status, 0)
    expect_length(found$told, 1)
    expect_match(found$screen, "Interrupted: .*interruptedDraws\\(\\) returns the \\d+ draws", all = FALSE)
    before <- Sys.getenv("R_USER_DATA_DIR")
    Sys.setenv(R_USER_DATA_DIR = found$home)
    on.exit(Sys.setenv(R_USER_DATA_DIR = before))
    chain <- interruptedDraws()
    expect_gt(nrow(chain$theta), 0)
    expect_lt(nrow(chain$theta), 1e5)
    expect_true(all(is.finite(chain$theta)))
    expect_output(print(chain), "Draws of sgld")
    expect_identical(interruptedDraws(forget = TRUE)$theta, chain$theta)
    expect_null(interruptedDraws())
})

test_that("draws in a store stay there", {
    files <- script("store")
    interruptWhen(files, "sgld:.*estimate")
    found <- ended(files)
    expect_gt(found$status, 0)
    expect_length(found$told, 1)
    expect_match(found$screen, "openSamples", all = FALSE)
    expect_gt(nrow(openSamples(folder)$theta), 0)
    expect_length(list.files(found$home, recursive = TRUE), 0)
})

test_that("a program that waits for the interrupt gets the draws, and goes on", {
    files <- script("waits")
    interruptWhen(files, "sgld:.*estimate")
    found <- ended(files)
    expect_equal(found$status, 0)
    expect_match(found$told, "draws \\d+", all = FALSE)
    expect_match(found$told, "try-error", all = FALSE)
})

test_that("try() does not take Ctrl-C for an error, nor does mode-finding", {
    files <- script("try")
    interruptWhen(files, "sgldcv, mode-finding:.*estimate")
    found <- ended(files)
    expect_gt(found$status, 0)
    expect_length(found$told, 1)
})
