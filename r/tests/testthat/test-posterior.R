# Every gradient is exact, so the posterior is left but for the discretisation: with
# k = stepsize * precision the stationary variance is 1 / (1 - k / 4) times the exact one
# for SGLD, 1 - a / 2 times for SGNHT up to the thermostat's fluctuation, and 1 times up to
# k^2 for SGHMC.
exact <- posterior()
k <- 0.04
settings <- list(
    sgld = list(inflation = 1 / (1 - k / 4), tuning = list()),
    sghmc = list(inflation = 1, tuning = list(alpha = 0.1, L = 5)),
    sgnht = list(inflation = 1 - 0.02 / 2, tuning = list(a = 0.02))
)

for (method in methods) {
    test_that(paste(method, "has the mean and the variance of the posterior"), {
        setting <- settings[[sub("cv$", "", method)]]
        chain <- do.call(run, c(
            list(method,
                stepsize = k / exact$precision, minibatchSize = 200, nChains = 20,
                burnIn = 1000, nIters = if (grepl("sghmc", method)) 2000 else 10000
            ),
            setting$tuning
        ))
        deviations <- sweep(chain$theta, 3, exact$mean)
        # Chains are independent, so their own spread gives the standard errors.
        means <- apply(deviations, c(1, 3), mean)
        variances <- apply(deviations^2, c(1, 3), mean) * exact$precision
        errors <- function(values) apply(values, 2, sd) / sqrt(nrow(values))
        expect_lt(max(abs(colMeans(means)) / errors(means)), 5)
        expect_lt(max(abs(colMeans(variances) - setting$inflation) / errors(variances)), 5)
    })
}
