#' R's operators on tensors
#'
#' Arithmetic, comparisons, logic and R's mathematical functions work on tensors and variables
#' as on arrays; the other operand may be an R number, vector or array, and gets the type of the
#' tensor. `TRUE` counts as 1. Shapes are broadcast as in TensorFlow (from the last dimension),
#' not recycled. A column of shape (n, 1) with a vector of length n is refused, because the
#' result would be n by n.
#'
#' These functions also work: `sum`, `prod`, `mean`, `min`, `max`, `range`, `any`, `all`, of
#' several arguments, the first of which is a tensor; `median`, `quantile`; `rowSums`,
#' `colSums`, `rowMeans`, `colMeans`, `pmin`, `pmax`, `ifelse`, which this package defines for
#' tensors, and which call R's otherwise; `dim`, `length`, with `NA` for sizes that are unknown
#' before the chain runs; `t`, `%*%`, `solve`, `det`, `chol`; `c`, `cbind`, `rbind`, `rep`,
#' `rev`, `sort`, `diff`; `[`, counted from 1 as everywhere in R; `as.list`, and so `lapply`,
#' over the first dimension; `is.na`, `is.finite`; and `as.numeric`, `as.array`, `as.matrix` for
#' a tensor that has a value.
#'
#' The product of a matrix and a vector is a vector. `if`, `while`, `&&` and `for` cannot use
#' the value of a tensor: write `ifelse` or `tf$where`. In `logLik` and the other functions of a
#' model, an error of R about a tensor says what to write instead.
#'
#' @param x,y,e1,e2 Tensors, or numbers.
#' @param ... Further arguments; for `[` the indices.
#' @param drop Whether to drop a dimension with a single index.
#' @param na.rm Whether to leave out NaN.
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

# Tensors from calls of Python that convert nothing, such as a tuple's, have Python's values
# in them.
asR <- function(x) if (inherits(x, "python.builtin.object")) reticulate::py_to_r(x) else x

# Whether a tensor holds "bool", "integer" or "floating" values.
ofKind <- function(x, kind) isTRUE(asR(attribute(x$dtype, paste0("is_", kind))))

rankOf <- function(x) asR(x$shape$rank)

isBoolean <- function(x) isTensor(x) && ofKind(x, "bool")

# A number, vector or array as a tensor of the type of another one.
like <- function(x, tensor) {
    if (isTensor(x)) {
        return(x)
    }
    if (length(x) == 0) {
        stop(
            "one operand is a tensor and the other is ",
            if (is.null(x)) "NULL" else "empty", "; is a name misspelt?",
            call. = FALSE
        )
    }
    if (isS4(x)) {
        x <- as.matrix(x) # of the package Matrix, which may be sparse
    }
    dtype <- tensor$dtype
    if (is.logical(x) && !ofKind(tensor, "bool")) {
        storage.mode(x) <- "double"
    }
    if (is.double(x) && ofKind(tensor, "integer")) {
        if (any(x != round(x))) {
            stop(
                "a tensor of integers meets ", format(x[x != round(x)][1]),
                ": write tf$cast(x, tf$float32) first",
                call. = FALSE
            )
        }
        storage.mode(x) <- "integer"
    }
    tensorflow()$convert_to_tensor(asArrayUnlessScalar(x), dtype = dtype)
}

# TRUE as 1, in the type of the other operand.
counted <- function(x, other = NULL) {
    if (!isBoolean(x)) {
        return(x)
    }
    tf <- tensorflow()
    dtype <- if (isTensor(other) && !ofKind(other, "bool")) {
        other$dtype
    } else if (is.double(other)) {
        tf$float32
    } else {
        tf$int32
    }
    tf$cast(x, dtype)
}

# The first tensor that holds numbers, if any.
firstOfNumbers <- function(parts) Find(function(part) isTensor(part) && !isBoolean(part), parts)

# Tensors, numbers and arrays as tensors of one type: that of the first that holds numbers.
alike <- function(parts, tensor = firstOfNumbers(parts)) {
    if (is.null(tensor)) {
        tensor <- Find(isTensor, parts)
    }
    lapply(parts, function(part) like(counted(part, tensor), tensor))
}

# Integers and booleans as floats.
floating <- function(x) {
    if (ofKind(x, "integer") || ofKind(x, "bool")) tensorflow()$cast(x, tensorflow()$float32) else x
}

asBoolean <- function(x) {
    if (!isTensor(x)) {
        return(tensorflow()$constant(asArrayUnlessScalar(as.logical(x))))
    }
    if (isBoolean(x)) x else tensorflow()$not_equal(x, like(0, x))
}

#' @rdname tensors
#' @export
dim.sgmcmcTensor <- function(x) {
    if (is.null(rankOf(x))) {
        return(NULL)
    }
    sizes <- asR(x$shape$as_list())
    if (length(sizes) == 0) {
        return(NULL)
    }
    vapply(sizes, function(size) if (is.null(size)) NA_integer_ else as.integer(size), 0L)
}

#' @rdname tensors
#' @export
length.sgmcmcTensor <- function(x) {
    if (is.null(rankOf(x))) NA_integer_ else as.integer(prod(dim(x)))
}

#' @rdname tensors
#' @export
as.array.sgmcmcTensor <- function(x, ...) callPython("value", x)

#' @rdname tensors
#' @export
as.double.sgmcmcTensor <- function(x, ...) as.double(as.array(x))

#' @rdname tensors
#' @export
as.matrix.sgmcmcTensor <- function(x, ...) as.matrix(as.array(x))

#' @export
as.integer.sgmcmcTensor <- function(x, ...) as.integer(as.array(x))

#' @export
as.logical.sgmcmcTensor <- function(x, ...) as.logical(as.array(x))

#' @export
as.character.sgmcmcTensor <- function(x, ...) as.character(as.array(x))
