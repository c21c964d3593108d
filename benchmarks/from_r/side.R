# The side of R: answers each line "METHOD UPDATES ITERATIONS" with seconds on the clock and
# seconds on all cores. Arguments: the library that has the package, and the folder of the data.
given <- commandArgs(TRUE)
library(sgmcmc, lib.loc = given[[1]])

numpy <- reticulate::import("numpy")
dataset <- list(
    X = numpy$load(file.path(given[[2]], "X.npy")), y = numpy$load(file.path(given[[2]], "y.npy"))
)
params <- list(bias = 0, beta = matrix(0, ncol(dataset$X), 1))

logLik <- function(params, dataset) {
    logits <- tf$squeeze(params$bias + tf$matmul(dataset$X, params$beta), 1L)
    tf$reduce_sum(dataset$y * logits - tf$nn$softplus(logits))
}

logPrior <- function(params) {
    -(tf$reduce_sum(tf$abs(params$beta)) + tf$reduce_sum(tf$abs(params$bias)))
}

arguments <- list(
    logLik, dataset, params,
    stepsize = 1e-5, logPrior = logPrior, minibatchSize = 500, verbose = FALSE, seed = 1
)

input <- file("stdin", "r")
while (length(line <- readLines(input, 1)) > 0) {
    asked <- strsplit(line, " ", fixed = TRUE)[[1]]
    further <- list(updates = asked[[2]], nIters = as.numeric(asked[[3]]))
    if (endsWith(asked[[1]], "cv")) {
        further <- c(further, optStepsize = 1e-5, nItersOpt = 100)
    }
    before <- proc.time()
    chain <- do.call(asked[[1]], c(arguments, further))
    seconds <- proc.time() - before
    stopifnot(dim(chain$beta)[[1]] == further$nIters)
    cat(seconds[["elapsed"]], seconds[["user.self"]] + seconds[["sys.self"]], "\n")
}
