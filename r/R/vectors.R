# What R does with vectors and matrices, for tensors.

#' @export
c.sgmcmcTensor <- function(...) {
    parts <- unname(list(...))
    tensor <- Find(function(part) isTensor(part) && !isBoolean(part), parts, nomatch = NULL)
    if (is.null(tensor)) {
        tensor <- Find(isTensor, parts)
    }
    tensorflow()$concat(lapply(parts, function(part) flat(like(counted(part, tensor), tensor))), 0L)
}

# A matrix column by column, as R has it.
flat <- function(x) {
    if (length(dim(x)) > 1) {
        x <- tensorflow()$transpose(x)
    }
    tensorflow()$reshape(x, list(-1L))
}

#' @export
as.vector.sgmcmcTensor <- function(x, mode = "any") {
    if (mode == "list") as.list(x) else if (mode == "any") flat(x) else as.vector(as.array(x), mode)
}

#' @export
as.list.sgmcmcTensor <- function(x, ...) {
    if (length(dim(x)) == 0) {
        return(list(x))
    }
    if (is.na(dim(x)[[1]])) {
        stop(
            "the size of the first dimension is not known: write tf$map_fn(f, x) in place of a loop",
            call. = FALSE
        )
    }
    tensorflow()$unstack(x)
}

#' @export
cbind.sgmcmcTensor <- function(..., deparse.level = 1) bound(list(...), 1L)

#' @export
rbind.sgmcmcTensor <- function(..., deparse.level = 1) bound(list(...), 0L)

# Vectors are columns, or rows; a number is repeated.
bound <- function(parts, axis) {
    tf <- tensorflow()
    parts <- unname(Filter(Negate(is.null), parts))
    tensor <- Find(function(part) isTensor(part) && !isBoolean(part), parts)
    if (is.null(tensor)) {
        tensor <- Find(isTensor, parts)
    }
    parts <- lapply(parts, function(part) like(counted(part, tensor), tensor))
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
rep.sgmcmcTensor <- function(x, times = 1, each = 1, ...) {
    tf <- tensorflow()
    if (...length() > 0 || length(times) != 1) {
        stop("rep() of a tensor takes `times` or `each`; else write tf$gather(x, indices)", call. = FALSE)
    }
    x <- flat(x)
    if (each != 1) {
        x <- tf$`repeat`(x, as.integer(each))
    }
    tf$tile(x, list(as.integer(times)))
}

#' @export
sort.sgmcmcTensor <- function(x, decreasing = FALSE, ...) {
    if (length(dim(x)) > 1) {
        stop("sort() takes a vector; along a dimension: tf$sort(x, axis = 0L)", call. = FALSE)
    }
    tensorflow()$sort(x, direction = if (decreasing) "DESCENDING" else "ASCENDING")
}

#' @export
diff.sgmcmcTensor <- function(x, ...) {
    if (...length() > 0 || length(dim(x)) != 1) {
        stop("diff() of a tensor takes a vector alone; else write tf$experimental$numpy$diff", call. = FALSE)
    }
    tensorflow()$subtract(
        tensorflow()$slice(x, list(1L), list(-1L)),
        tensorflow()$slice(x, list(0L), tensorflow()$shape(x) - 1L)
    )
}

#' @export
xtfrm.sgmcmcTensor <- function(x) {
    stop("order() and rank() of a tensor: write tf$argsort(x), which counts from 0", call. = FALSE)
}

#' @importFrom stats median
#' @export
median.sgmcmcTensor <- function(x, na.rm = FALSE, ...) quantile(x, 0.5)[1]

#' @importFrom stats quantile
#' @export
quantile.sgmcmcTensor <- function(x, probs = seq(0, 1, 0.25), ...) {
    callPython("look_up", "distributions", "percentile")(
        floating(x), as.list(100 * probs),
        interpolation = "linear"
    )
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

#' @export
is.na.sgmcmcTensor <- function(x) {
    tf <- tensorflow()
    if (ofKind(x, "floating")) tf$math$is_nan(x) else tf$zeros_like(x, dtype = tf$bool)
}

#' @export
is.nan.sgmcmcTensor <- function(x) is.na(x)

#' @export
is.finite.sgmcmcTensor <- function(x) {
    tf <- tensorflow()
    if (ofKind(x, "floating")) tf$math$is_finite(x) else tf$ones_like(x, dtype = tf$bool)
}

#' @export
is.infinite.sgmcmcTensor <- function(x) !is.finite(x) & !is.na(x)

#' @export
as.integer.sgmcmcTensor <- function(x, ...) as.integer(as.array(x))

#' @export
as.logical.sgmcmcTensor <- function(x, ...) as.logical(as.array(x))

#' @export
as.character.sgmcmcTensor <- function(x, ...) as.character(as.array(x))

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
    tensor <- Find(function(part) isTensor(part) && !isBoolean(part), parts)
    if (is.null(tensor)) {
        tensor <- counted(Find(isTensor, parts), Find(is.double, parts))
    }
    pair <- function(x, y) {
        needNoColumn(x, y)
        attribute(tensorflow()$math, name)(x, y)
    }
    Reduce(pair, lapply(parts, function(part) like(counted(part, tensor), tensor)))
}

#' @rdname tensors
#' @param test,yes,no where `test` holds the entries of `yes`, elsewhere those of `no`.
#' @export
ifelse <- function(test, yes, no) {
    if (!isTensor(test)) {
        return(base::ifelse(test, yes, no))
    }
    tensor <- Find(isTensor, list(yes, no))
    if (is.null(tensor)) {
        tensor <- tensorflow()$constant(0, dtype = tensorflow()$float32)
    }
    tensorflow()$where(logical(test), like(yes, tensor), like(no, tensor))
}
