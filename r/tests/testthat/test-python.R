# The same model in Python.
inPython <- "
import tensorflow as tf
import sgmcmc

def log_lik(params, dataset):
    return tf.reduce_sum(-0.5 * (dataset['x'] - params['theta']) ** 2)

def log_prior(params):
    return tf.reduce_sum(-0.05 * params['theta'] ** 2)

def draws(method, x, further):
    further = {name: int(value) if name != 'opt_stepsize' else value for name, value in further.items()}
    return sgmcmc.__dict__[method](
        log_lik, {'x': x}, {'theta': [1.0, -2.0]}, 1e-4, log_prior=log_prior,
        minibatch_size=50, verbose=False, seed=1, **further
    )['theta']
"

for (method in methods) {
    test_that(paste(method, "draws what it draws in Python"), {
        needsPython()
        draws <- reticulate::py_run_string(inPython)$draws
        further <- list(n_iters = 500)
        if (grepl("cv$", method)) {
            further <- c(further, list(opt_stepsize = 1e-3, n_iters_opt = 10))
        }
        expect_identical(
            run(method, nIters = 500)$theta,
            draws(method, observations(), further)
        )
    })
}

test_that("several parameters move in turn unless told", {
    needsPython()
    logLik <- function(params, dataset) {
        tf$reduce_sum(-0.5 * (dataset$x - params$a - params$b)^2)
    }
    dataset <- list(x = observations())
    draws <- function(...) {
        sgld(logLik, dataset, list(a = 1, b = -1), 1e-4, minibatchSize = 50, nIters = 50,
             verbose = FALSE, seed = 1, ...)
    }
    python <- reticulate::py_run_string("
import sgmcmc
import tensorflow as tf

def two_parameters(x, updates):
    def log_lik(params, dataset):
        return tf.reduce_sum(-0.5 * (dataset['x'] - params['a'] - params['b']) ** 2)
    chain = sgmcmc.sgld(log_lik, {'x': x}, {'a': 1.0, 'b': -1.0}, 1e-4, minibatch_size=50,
                        n_iters=50, verbose=False, seed=1, updates=updates)
    return chain['b']
")$two_parameters
    inTurn <- draws()
    expect_equal(attr(inTurn, "settings")$updates, "in_turn")
    expect_identical(as.vector(inTurn$b), as.vector(python(observations(), "in_turn")))
    together <- draws(updates = "joint")
    expect_identical(as.vector(together$b), as.vector(python(observations(), "joint")))
    expect_true(all(inTurn$b != together$b))
    expect_error(draws(updates = "each"), "`updates`")
})

test_that("signatures are those of the Python package, in R's names", {
    needsPython()
    reticulate::py_run_string("
import inspect, sgmcmc
def argument_names(method):
    return list(inspect.signature(getattr(sgmcmc, method)).parameters)
")
    renamed <- function(names) ifelse(names == "L", "L", gsub("([A-Z])", "_\\L\\1", names, perl = TRUE))
    samplers <- c(methods, "scir", "sgrld")
    for (method in c(samplers, paste0(samplers, "Setup"))) {
        python <- reticulate::py$argument_names(renamed(method))
        ours <- renamed(setdiff(names(formals(method)), "..."))
        expect_equal(intersect(ours, python), ours, label = method)
        # Those that Python wants by name come after those that R has always had.
        positional <- setdiff(ours, c(
            if (!grepl("sghmc", method)) "alpha", "n_chains", "burn_in", "thin", "store", "store_gradients", "test_functions",
            "theta0", "store_unnormalized", "gibbs", "latents", "updates"
        ))
        expect_equal(positional, python[seq_along(positional)], label = method)
    }
})
