# The R code of the pages for users of R, in order, on small datasets and with few iterations.
docs <- Sys.getenv("SGMCMC_DOCS")

blocks <- function(page) {
    lines <- readLines(file.path(docs, page))
    starts <- which(lines == "```r")
    code <- vapply(starts, function(start) {
        end <- start + which(lines[-seq_len(start)] == "```")[[1]]
        paste(lines[(start + 1):(end - 1)], collapse = "\n")
    }, "")
    code <- sub('getDataset("covertype")', "covertype", code, fixed = TRUE)
    code <- sub("minibatchSize = 500", "minibatchSize = 50", code, fixed = TRUE)
    gsub("nIters = 11000", "nIters = 200, nItersOpt = 200, verbose = FALSE", code)
}

test_that("the code of the pages runs", {
    skip_if(docs == "", "not run from the repository")
    skip_if_not_installed("lme4")
    needsPython()
    regressions <- blocks("in-r.md")
    scripts <- blocks("old-scripts.md")
    expect_length(regressions, 5)
    expect_length(scripts, 2)
    few <- 'VerbAgg <- subset(lme4::VerbAgg, as.integer(id) <= 40)'
    regressions <- sub('data(VerbAgg, package = "lme4")', few, regressions, fixed = TRUE)
    set.seed(1)
    X <- matrix(runif(2000 * 4), 2000)
    surroundings <- list2env(list(covertype = cbind(rbinom(2000, 1, 0.5), X)), parent = globalenv())
    suppressMessages(suppressWarnings(utils::capture.output(
        for (block in c(regressions, scripts)) eval(parse(text = block), surroundings)
    )))
    expect_s3_class(surroundings$fit, "sgmcmcGlm")
    expect_equal(dim(surroundings$chain$beta), c(200, 4, 1))
    expect_equal(dim(attr(surroundings$chains, "testFunctions")$length), c(2, 500, 1))
    loss <- surroundings$sess$run(surroundings$logLoss, feed_dict = surroundings$feedDict)
    expect_gt(loss, 0)
    # The page leaves its graph open.
    tf$reset_default_graph()
})
