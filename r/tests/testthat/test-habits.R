said <- function(...) {
    texts <- character()
    value <- withCallingHandlers(run(..., verbose = TRUE), message = function(condition) {
        expect_s3_class(condition, "sgmcmcProgress")
        texts <<- c(texts, conditionMessage(condition))
        invokeRestart("muffleMessage")
    })
    list(texts = texts, value = value)
}

test_that("progress is messages", {
    found <- said("sgldcv")
    expect_match(found$texts, "sgldcv, mode-finding: .*estimate -?\\d", all = FALSE)
    expect_match(found$texts, "sgldcv: 20 iterations in .* s, log posterior estimate -?\\d", all = FALSE)
    expect_silent(suppressMessages(run("sgld", verbose = TRUE)))
    expect_message(initSess(setUpSampler("sgldcv", verbose = TRUE)), "mode-finding")
})

test_that("a handler of messages may leave the sampler, or stop it", {
    needsPython()
    left <- tryCatch(run("sgld", verbose = TRUE), message = function(condition) "left")
    expect_equal(left, "left")
    stopped <- tryCatch(
        withCallingHandlers(run("sgld", verbose = TRUE), message = function(condition) stop("enough")),
        error = conditionMessage
    )
    expect_equal(stopped, "enough")
    expect_equal(dim(run("sgld")$theta), c(20, 2))
})

test_that("a report made by knitr has progress in its lines, and none where messages are off", {
    needsPython()
    skip_if_not_installed("knitr")
    surroundings <- list2env(as.list(globalenv()), parent = environment())
    knit <- function(options) {
        text <- c(paste0("```{r, ", options, "}"), "chain <- run('sgld', verbose = TRUE)", "```")
        knitr::knit(text = text, quiet = TRUE, envir = surroundings)
    }
    expect_match(knit("message=TRUE"), "## sgld: 20 iterations in")
    expect_no_match(knit("message=FALSE"), "iterations in")
})

test_that("lines and bars say how far it is", {
    bar <- progressBar("sgld", 250, 1000, 3, "estimate -1.5", "it", FALSE)
    expect_match(bar, "^\rsgld \\[=====               \\] 25% 9 s left, estimate -1.5 +$")
    expect_match(progressBar("sgld", 10, 10, 200, "", "it", TRUE), "100% 3 min.*\n$")
    expect_lte(nchar(bar), getOption("width"))
    shown$label <- NULL
    line <- function(...) progressLine("sgld", ..., note = "", unit = "it")
    # One by one, because expectations may evaluate what they are given twice.
    lines <- list(
        line(0, 1e6, 0, ended = FALSE), line(5e5, 1e6, 0.9, ended = FALSE),
        line(6e5, 1e6, 2, ended = FALSE), line(6.5e5, 1e6, 11, ended = FALSE),
        line(6.6e5, 1e6, 12.1, ended = FALSE), line(1e6, 1e6, 7200, ended = TRUE)
    )
    expect_equal(lines, list(
        NULL, NULL, "sgld: 600,000 of 1,000,000 iterations in 2 s\n", NULL,
        "sgld: 660,000 of 1,000,000 iterations in 12 s\n", "sgld: 1,000,000 iterations in 2 h\n"
    ))
})

test_that("set.seed() governs calls without a seed, and only those", {
    given <- arguments("sgld")
    draw <- function(seed = NULL) {
        given["seed"] <- list(seed)
        do.call("sgld", given)$theta
    }
    needsPython()
    set.seed(3)
    first <- draw()
    second <- draw()
    set.seed(3)
    expect_identical(draw(), first)
    expect_false(identical(first, second))
    # A seed leaves R's generator alone, and is not moved by it.
    set.seed(3)
    seeded <- draw(7)
    number <- runif(1)
    expect_identical(draw(7), seeded)
    set.seed(3)
    expect_identical(runif(1), number)
})

test_that("a store goes on with its own seed", {
    folder <- tempfile()
    first <- run("sgld", seed = NULL, store = folder)
    expect_identical(run("sgld", seed = NULL, store = folder)$theta, first$theta)
    expect_identical(run("sgld", seed = NULL, store = folder, nIters = 40)$theta[1:20, ], first$theta)
})

test_that("positions are counted from 1", {
    expect_equal(positionsFrom1("theta[0]"), "theta[1]")
    expect_equal(positionsFrom1("beta[0, 12] and b[3]"), "beta[1,13] and b[4]")
    expect_equal(positionsFrom1("first at index (5, 2). Drop"), "first at index (6, 3). Drop")
    expect_equal(positionsFrom1("at index (0,)."), "at index (1).")
    expect_equal(positionsFrom1("`params[1]['b']`, params[0]"), "`params[[2]]$b`, params[[1]]")
    expect_equal(positionsFrom1("or more; row 0 has -1"), "or more; row 1 has -1")
    same <- c("shape (3, 4)", "2 rows for 3 terms", "shape [200, 2]", "indices[0] = 5 is not in [0, 5)", "nothing")
    expect_equal(positionsFrom1(same), same)
    x <- observations()
    x[17, 2] <- NA
    expect_error(run("sgld", dataset = list(x = x)), "`dataset\\$x` holds NaN, first at index \\(17, 2\\)")
    expect_error(
        run("sgld", params = list(list(theta = c(0, 0)), list(theta = 1)), nChains = 2),
        "params\\[\\[2\\]\\]"
    )
})

test_that("installTF() installs the Python package that came with this one", {
    found <- toInstall()
    expect_true(endsWith(found[[1]], "sgmcmc.tar.gz") || isClone(found[[1]]) || found[[1]] == "sgmcmc")
    if (endsWith(found[[1]], "gz")) {
        files <- utils::untar(found[[1]], list = TRUE)
        expect_true(all(c("pyproject.toml", "sgmcmc/__init__.py") %in% files))
    }
    expect_equal(toInstall("other")[[1]], "other")
    expect_equal(toInstall(".")[[1]], normalizePath("."))
    old <- utils::packageVersion("reticulate") < "1.38"
    expect_equal(length(found), if (old) 2 else 1)
})

test_that("installTF() runs programs without the libraries of R, and only then", {
    skip_on_os("windows")
    before <- Sys.getenv("LD_LIBRARY_PATH", NA)
    on.exit(if (is.na(before)) Sys.unsetenv("LD_LIBRARY_PATH") else Sys.setenv(LD_LIBRARY_PATH = before))
    all <- paste(c("/opt/ours", librariesOfR()), collapse = ":")
    Sys.setenv(LD_LIBRARY_PATH = all)
    expect_equal(withoutLibrariesOfR(Sys.getenv("LD_LIBRARY_PATH")), "/opt/ours")
    expect_error(withoutLibrariesOfR(stop("no network")), "no network")
    expect_equal(Sys.getenv("LD_LIBRARY_PATH"), all)
    expect_equal(withoutThose("/a:/b:/c:/b", "/b:/d"), "/a:/c")
    expect_equal(withoutThose("", "/b"), "")
})

test_that("the version is above the original's", {
    expect_true(utils::packageVersion("sgmcmc") > "0.2.4")
})
