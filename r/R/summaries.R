# What makes one number, or a few, of a tensor.

#' @rdname tensors
#' @export
Summary.sgmcmcTensor <- function(x, ..., na.rm = FALSE) {
    tf <- tensorflow()
    parts <- list(x, ...)
    if (.Generic %in% c("any", "all")) {
        reduce <- attribute(tf$math, paste0("reduce_", .Generic))
        return(reduce(tf$stack(lapply(parts, function(part) reduce(asBoolean(part))))))
    }
    tensor <- firstOfNumbers(parts)
    if (is.null(tensor)) {
        whole <- all(vapply(parts, function(part) isTensor(part) || !is.double(part), NA))
        tensor <- tf$cast(x, if (whole) tf$int32 else tf$float32)
    }
    parts <- alike(parts, tensor)
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
