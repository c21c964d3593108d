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
