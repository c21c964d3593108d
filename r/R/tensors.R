#' R's operators on tensors
#'
#' Arithmetic, comparisons, logic and R's mathematical functions work on tensors and
#' variables as on arrays; the other operand may be an R number, vector or array, and
#' takes the type of the tensor. Shapes are matched as TensorFlow does it (broadcasting,
#' from the last dimension), not recycled.
#'
#' Also understood: `sum`, `prod`, `mean`, `min`, `max`, `any`, `all`; `dim`, `length`, with
#' `NA` for what is not known before the chain runs; `t`, `%*%`; `[`, counted from 1 as
#' everywhere in R; and `as.numeric`, `as.array`, `as.matrix` for a tensor that has a value.
#'
#' @param x,y,e1,e2 tensors, or numbers.
#' @param ... further arguments; for `[` the indices.
#' @param drop whether to drop a dimension where a single number indexes it.
#' @param na.rm ignored.
#' @return A tensor.
#' @name tensors
#' @aliases Ops.sgmcmcTensor
#' @examples
#' \dontrun{
#' x <- tf$constant(matrix(1:6, 2), dtype = tf$float32)
#' 1 / (1 + exp(-x[, 1]))
#' sum(x^2)
#' }
NULL

# Called by reticulate for each Python object that reaches R.
markTensors <- function(classes) {
    if ("tensorflow.python.types.core.Tensor" %in% classes) {
        classes <- c("sgmcmcTensor", classes)
    }
    classes
}

isTensor <- function(x) inherits(x, "sgmcmcTensor")

# A number, vector or array as a tensor of the type of another one.
like <- function(x, tensor) {
    if (isTensor(x)) {
        return(x)
    }
    if (is.double(x) && tensor$dtype$is_integer && all(x == round(x))) {
        storage.mode(x) <- "integer"
    }
    tensorflow()$convert_to_tensor(asArrayUnlessScalar(x), dtype = tensor$dtype)
}

operators <- c(
    "+" = "add", "-" = "subtract", "*" = "multiply", "/" = "truediv", "^" = "pow",
    "%%" = "floormod", "%/%" = "floordiv", "==" = "equal", "!=" = "not_equal",
    "<" = "less", ">" = "greater", "<=" = "less_equal", ">=" = "greater_equal",
    "&" = "logical_and", "|" = "logical_or"
)

#' @rdname tensors
#' @export
Ops.sgmcmcTensor <- function(e1, e2) {
    math <- tensorflow()$math
    if (missing(e2)) {
        return(switch(.Generic, "-" = math$negative(e1), "!" = math$logical_not(e1), e1))
    }
    tensor <- if (isTensor(e1)) e1 else e2
    attribute(math, operators[[.Generic]])(like(e1, tensor), like(e2, tensor))
}

#' @rdname tensors
#' @export
Math.sgmcmcTensor <- function(x, ...) {
    math <- tensorflow()$math
    switch(.Generic,
        ceiling = math$ceil(x),
        gamma = math$exp(math$lgamma(x)),
        trunc = math$sign(x) * math$floor(math$abs(x)),
        log = naturalOrOther(x, ...),
        log2 = naturalOrOther(x, 2),
        log10 = naturalOrOther(x, 10),
        mathematical(.Generic)(x)
    )
}

mathematical <- function(name) {
    math <- tensorflow()$math
    if (!reticulate::py_has_attr(math, name)) {
        stop("`", name, "` of a tensor is not known; see `tf$math`", call. = FALSE)
    }
    attribute(math, name)
}

naturalOrOther <- function(x, base = exp(1)) {
    natural <- tensorflow()$math$log(x)
    if (base == exp(1)) natural else natural / log(base)
}

#' @rdname tensors
#' @export
Summary.sgmcmcTensor <- function(x, ..., na.rm = FALSE) {
    math <- tensorflow()$math
    switch(.Generic,
        range = tensorflow()$stack(list(math$reduce_min(x), math$reduce_max(x))),
        attribute(math, paste0("reduce_", .Generic))(x)
    )
}

#' @rdname tensors
#' @export
mean.sgmcmcTensor <- function(x, ...) tensorflow()$math$reduce_mean(x)

#' @rdname tensors
#' @export
dim.sgmcmcTensor <- function(x) {
    if (is.null(x$shape$rank)) {
        return(NULL)
    }
    sizes <- x$shape$as_list()
    if (length(sizes) == 0) {
        return(NULL)
    }
    vapply(sizes, function(size) if (is.null(size)) NA_integer_ else as.integer(size), 0L)
}

#' @rdname tensors
#' @export
length.sgmcmcTensor <- function(x) {
    if (is.null(x$shape$rank)) NA_integer_ else as.integer(prod(dim(x)))
}

#' @rdname tensors
#' @export
t.sgmcmcTensor <- function(x) tensorflow()$transpose(x)

# R before 4.3 finds no method for it, so there it is a function of this package.
#' @rdname tensors
#' @rawNamespace if (getRversion() < "4.3.0") export("%*%")
`%*%` <- function(x, y) {
    if (isTensor(x) || isTensor(y)) matrixOps.sgmcmcTensor(x, y) else base::`%*%`(x, y)
}

#' @rawNamespace if (getRversion() >= "4.3.0") S3method(matrixOps, sgmcmcTensor)
matrixOps.sgmcmcTensor <- function(x, y) {
    tensor <- if (isTensor(x)) x else y
    x <- like(x, tensor)
    y <- like(y, tensor)
    if (length(dim(x)) > 1 && length(dim(y)) > 1) {
        return(tensorflow()$matmul(x, y))
    }
    # A vector is a row or a column, whichever fits.
    tensorflow()$tensordot(x, y, 1L)
}

#' @rdname tensors
#' @export
`[.sgmcmcTensor` <- function(x, ..., drop = TRUE) {
    indices <- eval(substitute(alist(...)))
    shape <- dim(x)
    if (length(indices) != length(shape)) {
        stop(
            "a tensor with ", length(shape), " dimensions is indexed by ", length(indices),
            call. = FALSE
        )
    }
    axis <- 0L
    for (place in seq_along(indices)) {
        if (identical(indices[[place]], quote(expr = ))) {
            axis <- axis + 1L
            next
        }
        index <- positions(eval(indices[[place]], parent.frame()), shape[[place]])
        if (isTensor(index) || length(index) != 1 || !drop) {
            x <- tensorflow()$gather(x, index, axis = axis)
            axis <- axis + 1L
        } else {
            x <- tensorflow()$gather(x, index[[1]], axis = axis)
        }
    }
    x
}

# Positions from 0, of indices as R has them.
positions <- function(index, size) {
    if (isTensor(index)) {
        return(index - 1)
    }
    if (is.logical(index) || any(index < 0)) {
        if (is.na(size)) {
            stop("the size of this dimension is not known, so count from 1", call. = FALSE)
        }
        index <- seq_len(size)[index]
    }
    if (anyNA(index) || any(index < 1) || isTRUE(any(index > size))) {
        stop("index out of bounds: the dimension has size ", size, call. = FALSE)
    }
    as.list(as.integer(index) - 1L)
}

#' @rdname tensors
#' @export
as.array.sgmcmcTensor <- function(x, ...) {
    if (!reticulate::py_has_attr(x, "numpy")) {
        stop("this tensor has no value before it is run", call. = FALSE)
    }
    x$numpy()
}

#' @rdname tensors
#' @export
as.double.sgmcmcTensor <- function(x, ...) as.double(as.array(x))

#' @rdname tensors
#' @export
as.matrix.sgmcmcTensor <- function(x, ...) as.matrix(as.array(x))
