# Processes that are forked, limits of time, and what files cannot hold.

test_that("a process forked after a chain is told so at once", {
    skip_on_os("windows")
    run("sgld")
    forked <- function(f) suppressWarnings(parallel::mclapply(1:2, f, mc.cores = 2))
    for (found in list(forked(function(i) run("sgld")), forked(function(i) tf$constant(1) + 1))) {
        expect_s3_class(found[[1]], "try-error")
        expect_match(found[[1]], "was forked.*makeCluster.*multisession")
    }
    chain <- run("sgld")
    expect_equal(forked(function(i) coef(chain))[[2]], coef(chain))
})

test_that("setTimeLimit ends a chain with R's error, and the draws are kept", {
    limited <- function(...) {
        setTimeLimit(elapsed = 2, transient = TRUE)
        on.exit(setTimeLimit())
        run("sgld", nIters = 1e9, thin = 1e5, ...)
    }
    run("sgld")
    interruptedDraws(forget = TRUE)
    before <- Sys.getenv("R_USER_DATA_DIR")
    Sys.setenv(R_USER_DATA_DIR = tempfile())
    on.exit(Sys.setenv(R_USER_DATA_DIR = before))
    suppressMessages(expect_error(limited(), "^reached elapsed time limit"))
    # On a busy machine the time may be over before the first draw.
    draws <- interruptedDraws(forget = TRUE)
    expect_true(is.null(draws) || inherits(draws, "sgmcmcChains"))
    expect_equal(dim(run("sgld")$theta), c(20, 2))
})

test_that("a sampler and a session from a file say what to do", {
    sampler <- setUpSampler("sgld")
    session <- initSess(sampler)
    file <- tempfile()
    saveRDS(list(sampler = sampler, session = session, moments = runningMoments(function(params) params$theta)), file)
    again <- readRDS(file)
    expect_error(sgmcmcStep(again$sampler, session), "`sgmcmc`: .*set it up again")
    expect_error(initSess(again$sampler), "set it up again")
    expect_error(print(again$sampler), "set it up again")
    expect_error(getParams(sampler, again$session), "restore = path")
    expect_error(again$session$run(sampler$params), "restore = path")
    expect_error(again$session$iteration(), "restore = path")
    expect_error(run("sgld", reductions = list(m = again$moments)), "comes from a file.*make it again")
    expect_error(as.array(again$sampler$params$theta), "comes from a file.*make it again")
})
