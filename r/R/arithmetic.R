# Operators and mathematical functions, entry by entry.

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
            "!" = math$logical_not(asBoolean(e1)),
            counted(e1)
        ))
    }
    if (.Generic %in% c("&", "|")) {
        e1 <- asBoolean(e1)
        e2 <- asBoolean(e2)
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
