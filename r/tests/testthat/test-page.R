# The R code of docs/from-r.md, in order, on a small dataset and with few iterations.
page <- Sys.getenv("SGMCMC_PAGE")

blocks <- function(lines) {
    starts <- which(lines == "```r")
    vapply(starts, function(start) {
        end <- start + which(lines[-seq_len(start)] == "```")[[1]]
        paste(lines[(start + 1):(end - 1)], collapse = "\n")
    }, "")
}

test_that("the code of the page runs", {
    skip_if(page == "", "not run from the repository")
    needsPython()
    code <- blocks(readLines(page))
    expect_length(code, 4)
    code <- sub('getDataset("covertype")', "covertype", code, fixed = TRUE)
    code <- sub("minibatchSize = 500", "minibatchSize = 50", code, fixed = TRUE)
    code <- gsub("nIters = 11000", "nIters = 200, nItersOpt = 200, verbose = FALSE", code)
    set.seed(1)
    X <- matrix(runif(2000 * 4), 2000)
    surroundings <- list2env(list(covertype = cbind(rbinom(2000, 1, 0.5), X)), parent = globalenv())
    suppressMessages(for (block in code) eval(parse(text = block), surroundings))
    expect_equal(dim(surroundings$chain$beta), c(200, 4, 1))
    expect_equal(dim(attr(surroundings$chains, "testFunctions")$length), c(2, 500, 1))
    loss <- surroundings$sess$run(surroundings$logLoss, feed_dict = surroundings$feedDict)
    expect_gt(loss, 0)
    # The page leaves its graph open.
    tf$reset_default_graph()
})
