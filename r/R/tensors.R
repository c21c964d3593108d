#' R's operators on tensors
#'
#' Arithmetic, comparisons, logic and R's mathematical functions work on tensors and
#' variables as on arrays; the other operand may be an R number, vector or array, and
#' takes the type of the tensor. `TRUE` counts as 1. Shapes are matched as TensorFlow does
#' it (broadcasting, from the last dimension), not recycled; a column of shape (n, 1) with
#' a vector of n is refused, because that would make n by n of them.
#'
#' Also understood: `sum`, `prod`, `mean`, `min`, `max`, `range`, `any`, `all`, of several
#' arguments, the first of which is a tensor; `median`, `quantile`; `rowSums`, `colSums`,
#' `rowMeans`, `colMeans`, `pmin`, `pmax`, `ifelse`, which this package has for tensors and
#' hands on to R's for the rest; `dim`, `length`, with `NA` for what is not known before the
#' chain runs; `t`, `%*%`, `solve`, `det`, `chol`; `c`, `cbind`, `rbind`, `rep`, `rev`, `sort`,
#' `diff`; `[`, counted from 1 as everywhere in R; `as.list`, and so `lapply`, over the
#' first dimension; `is.na`, `is.finite`; and `as.numeric`, `as.array`, `as.matrix` for a
#' tensor that has a value.
#'
#' The product of a matrix and a vector is a vector. `if`, `while`, `&&` and `for` cannot
#' look at a tensor: write `ifelse` or `tf$where`. Within `logLik` and the other functions of
#' a model an error of R about a tensor says what to write in its place.
#'
#' @param x,y,e1,e2 tensors, or numbers.
#' @param ... further arguments; for `[` the indices.
#' @param drop whether to drop a dimension where a single number indexes it.
#' @param na.rm whether to leave out NaN.
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
    dtype <- tensor$dtype
    if (is.logical(x) && !ofKind(tensor, "bool")) {
        storage.mode(x) <- "double"
    }
    if (is.double(x) && ofKind(tensor, "integer")) {
        if (any(x != round(x))) {
            stop(
                "a tensor of whole numbers meets ", format(x[x != round(x)][1]),
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

# Whole numbers and booleans as floats.
floating <- function(x) {
    if (ofKind(x, "integer") || ofKind(x, "bool")) tensorflow()$cast(x, tensorflow()$float32) else x
}

logical <- function(x, tensor) {
    if (!isTensor(x)) {
        return(tensorflow()$constant(asArrayUnlessScalar(as.logical(x))))
    }
    if (isBoolean(x)) x else tensorflow()$not_equal(x, like(0, x))
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
        return(switch(.Generic,
            "-" = math$negative(counted(e1)),
            "!" = math$logical_not(logical(e1)),
            counted(e1)
        ))
    }
    if (.Generic %in% c("&", "|")) {
        e1 <- logical(e1)
        e2 <- logical(e2)
    } else if (!(.Generic %in% c("==", "!=") && isBoolean(e1) && isBoolean(e2))) {
        first <- counted(e1, e2)
        e2 <- counted(e2, e1)
        e1 <- first
    }
    needNoColumn(e1, e2)
    tensor <- if (isTensor(e1)) e1 else e2
    attribute(math, operators[[.Generic]])(like(e1, tensor), like(e2, tensor))
}

# TensorFlow makes a matrix of a column and a vector, where R pairs their entries.
needNoColumn <- function(x, y) {
    if (!isTensor(x) || !isTensor(y)) {
        return(invisible(NULL))
    }
    shapes <- list(dim(x), dim(y))
    ranks <- lengths(shapes)
    if (setequal(ranks, 1:2)) {
        column <- shapes[[which(ranks == 2)]]
        size <- shapes[[which(ranks == 1)]]
        if (isTRUE(column[[2]] == 1 && column[[1]] == size && size > 1)) {
            stop(
                "a column of shape (", size, ", 1) meets a vector of ", size, ", of which TensorFlow ",
                "makes a matrix of shape (", size, ", ", size, "). For the entries one by one write ",
                "tf$squeeze(column, 1L); for all pairs tf$expand_dims(vector, 0L)",
                call. = FALSE
            )
        }
    }
}

#' @rdname tensors
#' @export
Math.sgmcmcTensor <- function(x, ...) {
    math <- tensorflow()$math
    generic <- .Generic
    if (startsWith(generic, "cum")) {
        return(cumulative(generic, counted(x)))
    }
    if (generic %in% c("abs", "sign", "floor", "ceiling", "round", "trunc", "signif")) {
        x <- counted(x)
        if (ofKind(x, "integer") && !generic %in% c("abs", "sign", "round", "signif")) {
            return(x)
        }
    } else {
        x <- floating(x)
    }
    switch(generic,
        ceiling = math$ceil(x),
        round = rounded(x, ...),
        signif = significant(x, ...),
        trunc = math$sign(x) * math$floor(math$abs(x)),
        log = naturalOrOther(x, ...),
        log2 = naturalOrOther(x, 2),
        log10 = naturalOrOther(x, 10),
        gamma = gammaFunction(x),
        trigamma = math$polygamma(like(1, x), x),
        cospi = math$cos(pi * x),
        sinpi = math$sin(pi * x),
        tanpi = math$tan(pi * x),
        attribute(math, generic)(x)
    )
}

cumulative <- function(generic, x) {
    rank <- rankOf(x)
    if (!generic %in% c("cumsum", "cumprod")) {
        stop(
            "`", generic, "` of a tensor: write tf$scan(tf$",
            if (generic == "cummax") "maximum" else "minimum", ", x)",
            call. = FALSE
        )
    }
    if (is.null(rank) || rank > 1) {
        stop(
            "`", generic, "` takes a vector; along a dimension of a tensor: tf$", generic,
            "(x, axis = 0L)",
            call. = FALSE
        )
    }
    attribute(tensorflow()$math, generic)(if (rank == 0) tensorflow()$reshape(x, list(1L)) else x)
}

rounded <- function(x, digits = 0) {
    math <- tensorflow()$math
    if (digits == 0) math$round(x) else math$round(floating(x) * 10^digits) / 10^digits
}

significant <- function(x, digits = 6) {
    math <- tensorflow()$math
    x <- floating(x)
    safe <- tensorflow()$where(math$equal(x, like(0, x)), tensorflow()$ones_like(x), math$abs(x))
    # As 10 to a whole power in the type of the tensor, so that the powers are exact.
    scale <- like(10, x)^(max(digits, 1) - 1 - math$floor(naturalOrOther(safe, 10)))
    math$round(x * scale) / scale
}

naturalOrOther <- function(x, base = NULL) {
    natural <- tensorflow()$math$log(x)
    if (is.null(base)) natural else natural / log(base)
}

# lgamma is that of the absolute value.
gammaFunction <- function(x) {
    math <- tensorflow()$math
    sign <- 1 - 2 * math$floormod(math$floor(x), like(2, x))
    size <- math$exp(math$lgamma(x))
    tensorflow()$where(math$greater(x, like(0, x)), size, sign * size)
}

#' @rdname tensors
#' @export
Summary.sgmcmcTensor <- function(x, ..., na.rm = FALSE) {
    tf <- tensorflow()
    parts <- list(x, ...)
    if (.Generic %in% c("any", "all")) {
        reduce <- attribute(tf$math, paste0("reduce_", .Generic))
        return(reduce(tf$stack(lapply(parts, function(part) reduce(logical(part))))))
    }
    tensor <- Find(function(part) isTensor(part) && !isBoolean(part), parts)
    if (is.null(tensor)) {
        whole <- all(vapply(parts, function(part) isTensor(part) || !is.double(part), NA))
        tensor <- tf$cast(x, if (whole) tf$int32 else tf$float32)
    }
    parts <- lapply(parts, function(part) like(counted(part, tensor), tensor))
    of <- function(generic) {
        values <- lapply(parts, reduced, generic, na.rm)
        if (length(values) == 1) values[[1]] else reduced(tf$stack(values), generic, FALSE)
    }
    if (.Generic == "range") tf$stack(list(of("min"), of("max"))) else of(.Generic)
}

reduced <- function(x, generic, without) {
    if (without && ofKind(x, "floating")) {
        nothing <- c(sum = 0, prod = 1, min = Inf, max = -Inf)[[generic]]
        x <- tensorflow()$where(tensorflow()$math$is_nan(x), like(nothing, x), x)
    }
    attribute(tensorflow()$math, paste0("reduce_", generic))(x)
}

#' @rdname tensors
#' @export
mean.sgmcmcTensor <- function(x, ..., na.rm = FALSE) {
    if (...length() > 0) {
        stop(
            "mean() takes a tensor alone. Along a dimension, counted from 0: ",
            "tf$reduce_mean(x, 1L)",
            call. = FALSE
        )
    }
    x <- floating(x)
    if (!na.rm) {
        return(tensorflow()$math$reduce_mean(x))
    }
    reduced(x, "sum", TRUE) / sum(tensorflow()$cast(!is.na(x), x$dtype))
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
    if (isTensor(x) || isTensor(y)) matrixOps.sgmcmcTensor(x, y) else base::`%*%`(x, y)
}

#' @rawNamespace if (getRversion() >= "4.3.0") S3method(matrixOps, sgmcmcTensor)
matrixOps.sgmcmcTensor <- function(x, y) {
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

#' @rdname tensors
#' @export
as.array.sgmcmcTensor <- function(x, ...) callPython("value", x)

#' @rdname tensors
#' @export
as.double.sgmcmcTensor <- function(x, ...) as.double(as.array(x))

#' @rdname tensors
#' @export
as.matrix.sgmcmcTensor <- function(x, ...) as.matrix(as.array(x))
