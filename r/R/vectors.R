# What R does with vectors, for tensors.

#' @export
c.sgmcmcTensor <- function(...) {
    tensorflow()$concat(lapply(alike(unname(list(...))), flat), 0L)
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
rep.sgmcmcTensor <- function(x, times = 1, each = 1, ...) {
    tf <- tensorflow()
    if (...length() > 0 || length(times) != 1) {
        stop(
            "rep() of a tensor takes `times` or `each`; else write tf$gather(x, indices), and for ",
            "array() tf$reshape(x, shape)",
            call. = FALSE
        )
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
