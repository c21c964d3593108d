# The way into Python: every call of the Python package goes through callPython(),
# which turns its errors and warnings into R's.

python <- new.env(parent = emptyenv())

# The Python half of this package, in inst/python; the first call starts Python.
bridge <- function() {
    needNoFork()
    if (is.null(python$bridge)) {
        python$bridge <- tryCatch(
            reticulate::import_from_path(
                "sgmcmc_r", system.file("python", package = "sgmcmc")
            ),
            error = function(problem) {
                stop(
                    "The Python package sgmcmc cannot be loaded. Run installTF(), or point ",
                    "RETICULATE_PYTHON at a Python that has it, and start R again. ",
                    "Python says: ", conditionMessage(problem),
                    call. = FALSE
                )
            }
        )
        python$bridge$progress$is_shown_by(tellProgress)
        python$bridge$progress$limits_are_checked_by(checkLimits)
        python$process <- Sys.getpid()
    }
    python$bridge
}

# A process forked from this one has TensorFlow without its threads, for which it would wait for ever.
needNoFork <- function() {
    if (!is.null(python$process) && python$process != Sys.getpid()) {
        stop(
            "this process was forked, as by parallel::mclapply(), from one in which TensorFlow had started, and ",
            "TensorFlow does not survive that. Use processes of their own, parallel::parLapply(parallel::makeCluster(2), ",
            "...) or future::plan(\"multisession\"), or fork before the first call of sgmcmc",
            call. = FALSE
        )
    }
}

# Objects of Python are not written to files: what comes from one is a pointer to nothing.
needLive <- function(object, what) {
    if (inherits(object, "python.builtin.object") && reticulate::py_is_null_xptr(object)) {
        stop(what, call. = FALSE)
    }
    object
}

anyLost <- function(x) {
    if (inherits(x, "python.builtin.object")) {
        return(reticulate::py_is_null_xptr(x))
    }
    is.list(x) && any(vapply(unclass(x), anyLost, NA))
}

# Call a function of the bridge module and return what it returned.
callPython <- function(name, ...) {
    given <- list(...) # What goes wrong in making it is no error of Python's.
    outcome <- tryCatch(bridge()$call(name, ...), error = function(problem) {
        if (anyLost(given)) {
            stop(
                "what is handed over comes from a file, or from an R session that has ended, and lived in its ",
                "Python: make it again in this session",
                call. = FALSE
            )
        }
        stop(problem)
    })
    limit <- shown$limit
    shown$limit <- NULL
    giveAgain()
    tellWarnings(inWordsOfR(as.character(unlist(outcome$warnings))))
    if (!is.null(limit)) {
        overLimit(limit, if (!is.null(outcome$value)) asChains(outcome$value))
    }
    if (outcome$interrupted) {
        interrupt(if (!is.null(outcome$value)) asChains(outcome$value))
    }
    if (!is.null(outcome$error)) {
        stop(pythonError(outcome$error))
    }
    outcome$value
}

tellWarnings <- function(texts) {
    for (text in unique(texts)) {
        warning(structure(class = c("sgmcmcWarning", "warning", "condition"), list(message = text, call = NULL)))
    }
}

# The value of a call of Python; its warnings, and those that `about` finds in it, are signaled once
# each, in `words`.
withWarnings <- function(value, about, words = identity) {
    told <- character()
    found <- withCallingHandlers(value, sgmcmcWarning = function(problem) {
        text <- words(conditionMessage(problem))
        tellWarnings(setdiff(text, told))
        told <<- c(told, text)
        invokeRestart("muffleWarning")
    })
    tellWarnings(setdiff(words(inWordsOfR(as.character(unlist(about(found))))), told))
    found
}

# A Python error as a condition; a divergence brings the finite draws along.
pythonError <- function(error) {
    condition <- list(message = inWordsOfR(error$message), call = NULL)
    kind <- "sgmcmcError"
    if (error$kind == "DivergenceError") {
        kind <- c("sgmcmcDivergence", kind)
        condition$iterations <- as.integer(error$iterations)
        condition$parameter <- error$parameter
        if (!is.null(error$samples)) {
            condition$samples <- asChains(error$samples)
        }
    }
    structure(class = c(kind, "error", "condition"), condition)
}

# Messages name Python's arguments and write Python's syntax; here is R's.
inWordsOfR <- function(text) {
    # What goes wrong in an R function comes out of Python as a RuntimeError.
    text <- gsub("RuntimeError: (Evaluation error: )?([A-Za-z]+Error: )", "\\2", text)
    text <- gsub("RuntimeError: (Evaluation error: )?", "R says: ", text)
    text <- gsub("(params|dataset|stepsize|opt_stepsize|alpha|theta0)\\['([^']+)'\\]", "\\1$\\2", text)
    text <- gsub("\\btf\\.([A-Za-z])", "tf$\\1", text)
    text <- gsub("(store_params|verbose|jit_compile|store_gradients|updates)=", "\\1 = ", text)
    for (name in names(wordsOfR)) {
        text <- gsub(paste0("\\b", name, "\\b"), wordsOfR[[name]], text)
    }
    text <- positionsFrom1(callsOfR(text))
    gsub("are in `.samples`", "are in the condition's `samples`", text, fixed = TRUE)
}

wordsOfR <- c(
    None = "NULL", True = "TRUE", False = "FALSE",
    "a dict" = "a named list", "dict" = "list",
    log_lik = "logLik", log_prior = "logPrior", minibatch_size = "minibatchSize",
    opt_stepsize = "optStepsize", n_iters = "nIters", n_iters_opt = "nItersOpt",
    max_seconds = "maxSeconds", n_chains = "nChains", burn_in = "burnIn", store_gradients = "storeGradients",
    test_functions = "testFunctions", store_params = "storeParams",
    store_unnormalized = "storeUnnormalized", jit_compile = "jitCompile",
    n_steps = "nSteps", keep_draws = "keepDraws",
    sgld_setup = "sgldSetup", sghmc_setup = "sghmcSetup", sgnht_setup = "sgnhtSetup",
    sgldcv_setup = "sgldcvSetup", sghmccv_setup = "sghmccvSetup",
    sgnhtcv_setup = "sgnhtcvSetup", scir_setup = "scirSetup",
    sgrld_setup = "sgrldSetup", init_sess = "initSess", sgmcmc_step = "sgmcmcStep",
    get_params = "getParams", zero_variance = "zeroVariance",
    polynomial_decay = "polynomialDecay", get_dataset = "getDataset"
)
