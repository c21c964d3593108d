# Functions of R that look for no methods, so that they are this package's. What is no
# tensor they hand on.

alongDimension <- function(x, name, axis, ...) {
    if (...length() > 0 || length(dim(x)) != 2) {
        stop(
            "`", name, "` takes a matrix alone; of other tensors tf$reduce_",
            if (grepl("Sums", name)) "sum" else "mean", "(x, axis), counted from 0",
            call. = FALSE
        )
    }
    if (grepl("Sums", name)) {
        tensorflow()$reduce_sum(counted(x), axis)
    } else {
        tensorflow()$reduce_mean(floating(x), axis)
    }
}

#' @rdname tensors
#' @export
rowSums <- function(x, ...) {
    if (isTensor(x)) alongDimension(x, "rowSums", 1L, ...) else base::rowSums(x, ...)
}

#' @rdname tensors
#' @export
colSums <- function(x, ...) {
    if (isTensor(x)) alongDimension(x, "colSums", 0L, ...) else base::colSums(x, ...)
}

#' @rdname tensors
#' @export
rowMeans <- function(x, ...) {
    if (isTensor(x)) alongDimension(x, "rowMeans", 1L, ...) else base::rowMeans(x, ...)
}

#' @rdname tensors
#' @export
colMeans <- function(x, ...) {
    if (isTensor(x)) alongDimension(x, "colMeans", 0L, ...) else base::colMeans(x, ...)
}

#' @rdname tensors
#' @export
pmin <- function(..., na.rm = FALSE) {
    if (anyTensor(...)) entrywise("minimum", ...) else base::pmin(..., na.rm = na.rm)
}

#' @rdname tensors
#' @export
pmax <- function(..., na.rm = FALSE) {
    if (anyTensor(...)) entrywise("maximum", ...) else base::pmax(..., na.rm = na.rm)
}

anyTensor <- function(...) any(vapply(list(...), isTensor, NA))

entrywise <- function(name, ...) {
    parts <- list(...)
    tensor <- firstOfNumbers(parts)
    if (is.null(tensor)) {
        tensor <- counted(Find(isTensor, parts), Find(is.double, parts))
    }
    pair <- function(x, y) {
        needNoColumn(x, y)
        attribute(tensorflow()$math, name)(x, y)
    }
    Reduce(pair, alike(parts, tensor))
}

#' @rdname tensors
#' @param test,yes,no Condition, and the entries where it is true and where it is false.
#' @export
ifelse <- function(test, yes, no) {
    if (!isTensor(test)) {
        return(base::ifelse(test, yes, no))
    }
    tensor <- Find(isTensor, list(yes, no))
    if (is.null(tensor)) {
        tensor <- tensorflow()$constant(0, dtype = tensorflow()$float32)
    }
    tensorflow()$where(asBoolean(test), like(yes, tensor), like(no, tensor))
}

#' @rdname tensors
#' @export
crossprod <- function(x, y = NULL) {
    if (!isTensor(x) && !isTensor(y)) base::crossprod(x, y) else t(x) %*% (if (is.null(y)) x else y)
}

#' @rdname tensors
#' @export
tcrossprod <- function(x, y = NULL) {
    if (!isTensor(x) && !isTensor(y)) base::tcrossprod(x, y) else x %*% t(if (is.null(y)) x else y)
}

#' @rdname tensors
#' @param nrow,ncol,names,data,byrow,dimnames As in R; tensors have no names.
#' @export
diag <- function(x = 1, nrow, ncol, names = TRUE) {
    if (isTensor(x)) {
        linalg <- tensorflow()$linalg
        return(if (length(dim(x)) == 2) linalg$diag_part(x) else linalg$diag(x))
    }
    given <- list(x) # with one argument, diag(3) is an identity
    if (!missing(names)) given$names <- names
    if (!missing(nrow)) given$nrow <- nrow
    if (!missing(ncol)) given$ncol <- ncol
    do.call(base::diag, given)
}

#' @rdname tensors
#' @export
matrix <- function(data = NA, nrow = 1, ncol = 1, byrow = FALSE, dimnames = NULL) {
    if (isTensor(data)) {
        rows <- if (missing(nrow)) -1L else as.integer(nrow)
        columns <- if (missing(ncol)) (if (rows < 0) 1L else -1L) else as.integer(ncol)
        tf <- tensorflow()
        # R fills column by column, TensorFlow row by row.
        return(if (byrow) tf$reshape(data, list(rows, columns)) else t(tf$reshape(data, list(columns, rows))))
    }
    given <- list(data = data, byrow = byrow)
    if (!missing(nrow)) given$nrow <- nrow
    if (!missing(ncol)) given$ncol <- ncol
    do.call(base::matrix, c(given, list(dimnames = dimnames)))
}
