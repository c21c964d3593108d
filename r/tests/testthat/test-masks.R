# Functions that this package defines for tensors, beside packages that have generics of S4 of the same names.

sparse <- function() Matrix::sparseMatrix(1:3, c(1, 2, 2), x = c(1, 2, 3))

# In an R of its own, in which the packages are attached in this order; what it prints.
attached <- function(packages, code) {
    needsPython()
    program <- tempfile(fileext = ".R")
    before <- Sys.getenv("R_LIBS")
    Sys.setenv(R_LIBS = paste(.libPaths(), collapse = .Platform$path.sep))
    on.exit(if (nzchar(before)) Sys.setenv(R_LIBS = before) else Sys.unsetenv("R_LIBS"))
    writeLines(c(paste0("suppressMessages(library(", packages, "))"), code), program)
    system2(file.path(R.home("bin"), "Rscript"), program, stdout = TRUE, stderr = FALSE)
}

code <- '
s <- Matrix::sparseMatrix(1:3, c(1, 2, 2), x = c(1, 2, 3))
d <- as.matrix(s)
x <- tf$constant(matrix(1:6, 2), dtype = tf$float32)
f <- function(x) c(as.array(x))
m <- f(x)
m <- matrix(m, 2)
stopifnot(
    identical(rowSums(s), rowSums(d)), identical(colMeans(s), colMeans(d)),
    inherits(crossprod(s), "Matrix"), inherits(s %*% t(s), "Matrix"), identical(diag(s[1:2, ]), c(1, 2)),
    all.equal(as.matrix(tcrossprod(s, s)), tcrossprod(d)), all.equal(f(s[, 1:2] %*% x), c(d %*% m)),
    all.equal(f(rowSums(x)), rowSums(m)), all.equal(f(colMeans(x)), colMeans(m)),
    all.equal(f(crossprod(x)), c(crossprod(m))), all.equal(f(tcrossprod(m, x)), c(tcrossprod(m))),
    all.equal(f(crossprod(x, m)), c(crossprod(m))), all.equal(f(diag(x[, 1:2])), diag(m)),
    inherits(try(colSums(x, na.rm = TRUE), TRUE), "try-error"), identical(diag(2), base::diag(2))
)
cat("right")
'

test_that("matrices of the package Matrix and tensors work, whichever package comes first", {
    skip_if_not_installed("Matrix")
    expect_equal(attached(c("Matrix", "sgmcmc"), code), "right")
    second <- if (requireNamespace("lme4", quietly = TRUE)) "lme4" else "Matrix"
    expect_equal(attached(c("sgmcmc", second), code), "right")
})

test_that("functions of packages attached before are those that numbers get", {
    other <- new.env()
    other$rowSums <- function(x, ...) "another"
    other$dnorm <- function(x, ...) "another"
    attach(other, pos = match("package:sgmcmc", search()) + 1, name = "other", warn.conflicts = FALSE)
    on.exit(detach("other"))
    expect_equal(sgmcmc::rowSums(diag(2)), "another")
    expect_equal(sgmcmc::dnorm(1), "another")
    skip_if_not_installed("Matrix")
    expect_equal(sgmcmc::colSums(sparse()), c(1, 5))
})

test_that("random numbers are drawn once, and what is not needed is not evaluated", {
    set.seed(1)
    ours <- sgmcmc::rowSums(matrix(rnorm(4), 2))
    set.seed(1)
    expect_equal(ours, base::rowSums(matrix(rnorm(4), 2)))
    expect_equal(sgmcmc::ifelse(TRUE, 1, stop("evaluated")), 1)
    expect_equal(sgmcmc::diag(c(a = 1, b = 2)), base::diag(c(a = 1, b = 2)))
    expect_equal(sgmcmc::rowSums(array(1:8, c(2, 2, 2)), dims = 2), base::rowSums(array(1:8, c(2, 2, 2)), dims = 2))
})

test_that("arguments that tensors cannot have are refused", {
    needsPython()
    x <- tf$constant(base::matrix(1, 2, 2))
    expect_error(sgmcmc::rowSums(x, na.rm = TRUE), "takes a matrix alone")
    expect_error(sgmcmc::diag(x, nrow = 2), "no `nrow`")
    expect_error(sgmcmc::pmax(x, 1, na.rm = TRUE), "na.rm")
    expect_error(sgmcmc::crossprod(x, boolArith = TRUE), "no argument `boolArith`")
    expect_equal(c(as.array(sgmcmc::rowSums(x, na.rm = FALSE, dims = 1))), c(2, 2))
})
