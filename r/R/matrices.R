# Matrices: products, systems of equations, and putting them together.

#' @rdname tensors
#' @export
t.sgmcmcTensor <- function(x) {
    tf <- tensorflow()
    rank <- rankOf(x)
    if (is.null(rank) || rank == 2) {
        return(tf$transpose(x))
    }
    if (rank > 2) {
        stop("t() takes a matrix; of more dimensions: tf$transpose(x, perm)", call. = FALSE)
    }
    tf$reshape(x, list(1L, -1L))
}

# R before 4.3 finds no method for it, so there it is a function of this package.
#' @rdname tensors
#' @rawNamespace if (getRversion() < "4.3.0") export("%*%")
`%*%` <- function(x, y) {
    if (isTensor(x) || isTensor(y)) product(x, y) else withoutPackage("%*%", x, y)(x, y)
}

#' @rawNamespace if (getRversion() >= "4.3.0") S3method(matrixOps, sgmcmcTensor)
matrixOps.sgmcmcTensor <- function(x, y) {
    # From R 4.4 on the products of base look for this method too.
    switch(.Generic,
        crossprod = crossprod(x, if (!missing(y)) y),
        tcrossprod = tcrossprod(x, if (!missing(y)) y),
        product(x, y)
    )
}

product <- function(x, y) {
    tf <- tensorflow()
    first <- counted(x, y)
    y <- counted(y, x)
    tensor <- if (isTensor(first)) first else y
    x <- like(first, tensor)
    y <- like(y, tensor)
    if (length(dim(x)) > 1 && length(dim(y)) > 1) {
        return(tf$matmul(x, y))
    }
    # A vector is a row or a column, whichever fits.
    if (length(dim(x)) == 1 && length(dim(y)) == 2) {
        if (isTRUE(dim(y)[[1]] == 1 && dim(x) != 1)) {
            return(tf$matmul(tf$expand_dims(x, 1L), y))
        }
    }
    if (length(dim(x)) == 2 && length(dim(y)) == 1) {
        if (isTRUE(dim(x)[[2]] == 1 && dim(y) != 1)) {
            return(tf$matmul(x, tf$expand_dims(y, 0L)))
        }
    }
    if (length(dim(x)) == 0 || length(dim(y)) == 0) {
        stop("%*% of a number: write *", call. = FALSE)
    }
    tf$tensordot(x, y, 1L)
}

#' @export
cbind.sgmcmcTensor <- function(..., deparse.level = 1) bound(list(...), 1L)

#' @export
rbind.sgmcmcTensor <- function(..., deparse.level = 1) bound(list(...), 0L)

# Vectors are columns, or rows; a number is repeated.
bound <- function(parts, axis) {
    tf <- tensorflow()
    parts <- alike(unname(Filter(Negate(is.null), parts)))
    matrices <- Filter(function(part) length(dim(part)) == 2, parts)
    vectors <- Filter(function(part) length(dim(part)) == 1, parts)
    size <- if (length(matrices) > 0) {
        tf$shape(matrices[[1]])[2L - axis]
    } else if (length(vectors) > 0) {
        tf$size(vectors[[1]])
    } else {
        1L
    }
    across <- 1L - axis
    tf$concat(lapply(parts, function(part) {
        if (length(dim(part)) == 0) {
            part <- tf$fill(list(size), part)
        }
        if (length(dim(part)) == 1) tf$expand_dims(part, axis) else part
    }), axis)
}

#' @export
solve.sgmcmcTensor <- function(a, b, ...) {
    tf <- tensorflow()
    if (missing(b)) {
        return(tf$linalg$inv(a))
    }
    b <- like(b, a)
    if (length(dim(b)) == 1) {
        return(tf$squeeze(tf$linalg$solve(a, tf$expand_dims(b, 1L)), 1L))
    }
    tf$linalg$solve(a, b)
}

#' @export
determinant.sgmcmcTensor <- function(x, logarithm = TRUE, ...) {
    parts <- tensorflow()$linalg$slogdet(x)
    structure(
        list(
            modulus = if (logarithm) parts$log_abs_determinant else exp(parts$log_abs_determinant),
            sign = parts$sign
        ),
        class = "det"
    )
}

#' @export
chol.sgmcmcTensor <- function(x, ...) tensorflow()$linalg$adjoint(tensorflow()$linalg$cholesky(x))
