# The way into Python: every call of the Python package goes through callPython(),
# which turns its errors and warnings into R's.

python <- new.env(parent = emptyenv())

# The Python half of this package, in inst/python; the first call starts Python.
bridge <- function() {
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
    }
    python$bridge
}

# Call a function of the bridge module and return what it returned.
callPython <- function(name, ...) {
    outcome <- bridge()$call(name, ...)
    giveAgain()
    for (text in outcome$warnings) {
        warning(inWordsOfR(text), call. = FALSE)
    }
    if (outcome$interrupted) {
        interrupt(if (!is.null(outcome$value)) asChains(outcome$value))
    }
    if (!is.null(outcome$error)) {
        stop(pythonError(outcome$error))
    }
    outcome$value
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
    n_chains = "nChains", burn_in = "burnIn", store_gradients = "storeGradients",
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
