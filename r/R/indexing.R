#' @rdname tensors
#' @export
`[.sgmcmcTensor` <- function(x, ..., drop = TRUE) {
    indices <- eval(substitute(alist(...)))
    original <- x
    shape <- dim(x)
    isEmpty <- vapply(indices, identical, NA, quote(expr = ))
    if (all(isEmpty) && length(indices) < 2) {
        return(x)
    }
    surroundings <- parent.frame()
    indices[!isEmpty] <- lapply(indices[!isEmpty], eval, surroundings)
    if (length(indices) == 1 && isBoolean(indices[[1]])) {
        return(tensorflow()$boolean_mask(x, indices[[1]]))
    }
    if (is.null(shape) && identical(rankOf(x), 0L) && length(indices) == 1) {
        # A number is a vector of one to R.
        shape <- 1L
        x <- tensorflow()$reshape(x, list(1L))
    }
    if (length(indices) != length(shape)) {
        stop(
            "a tensor with ", length(shape), " dimension", if (length(shape) != 1) "s",
            " is indexed by ", length(indices), "; leave an index empty for all entries, as in x[1, ], or ",
            "write tf$gather_nd",
            call. = FALSE
        )
    }
    axis <- 0L
    for (place in seq_along(indices)) {
        if (isEmpty[[place]]) {
            axis <- axis + 1L
            next
        }
        index <- positions(indices[[place]], shape[[place]])
        if (isTensor(index) || length(index) != 1 || !drop) {
            x <- tensorflow()$gather(x, index, axis = axis)
            axis <- axis + if (isTensor(index)) length(dim(index)) else 1L
        } else {
            x <- tensorflow()$gather(x, index[[1]], axis = axis)
        }
    }
    if (isCodes(original)) markCodes(x, attr(original, "label")) else x
}

# Positions from 0, of indices as R has them.
positions <- function(index, size) {
    if (isBoolean(index)) {
        stop(
            "a tensor of TRUE and FALSE along one of several dimensions: write ",
            "tf$boolean_mask(x, mask, axis = 0L)",
            call. = FALSE
        )
    }
    if (isTensor(index)) {
        if (!ofKind(index, "integer")) {
            index <- tensorflow()$cast(index, tensorflow()$int32)
        }
        return(index - 1)
    }
    index <- plainVector(index, "the index")
    if (is.factor(index)) {
        index <- as.integer(index) # as for R's own vectors
    }
    if (is.character(index)) {
        stop("the dimensions of a tensor have no names: count from 1", call. = FALSE)
    }
    if (is.logical(index) || any(index < 0, na.rm = TRUE)) {
        if (is.na(size)) {
            stop("the size of this dimension is not known, so count from 1", call. = FALSE)
        }
        if (is.logical(index) && length(index) > size) {
            stop("index out of bounds: the dimension has size ", size, call. = FALSE)
        }
        index <- seq_len(size)[index]
    }
    if (anyNA(index) || any(index < 1) || isTRUE(any(index > size))) {
        stop("index out of bounds: the dimension has size ", size, call. = FALSE)
    }
    as.list(as.integer(index) - 1L)
}

#' @export
`[[.sgmcmcTensor` <- function(x, ...) {
    indices <- list(...)
    if (length(indices) == 1 && is.character(indices[[1]])) {
        return(attribute(x, indices[[1]]))
    }
    for (index in indices) {
        if (!isTensor(index) && (length(index) != 1 || !is.numeric(index))) {
            stop("x[[i]] of a tensor is one entry: count from 1", call. = FALSE)
        }
    }
    x[...]
}

unchangeable <- function(...) {
    stop(
        "tensors cannot be changed. Write tf$where(condition, new, x), ",
        "tf$tensor_scatter_nd_update(x, indices, values), or put the parts together by c(), ",
        "cbind() or tf$stack",
        call. = FALSE
    )
}

#' @export
`[<-.sgmcmcTensor` <- function(x, ..., value) unchangeable()

#' @export
`[[<-.sgmcmcTensor` <- function(x, ..., value) unchangeable()

#' @export
`dim<-.sgmcmcTensor` <- function(x, value) {
    stop("tensors cannot be changed. Write tf$reshape(x, shape), which fills row by row", call. = FALSE)
}

# `param$eval(session = sess)` of TensorFlow 1; and variables tell their value while a
# graph is open.
#' @export
`$.sgmcmcTensor` <- function(x, name) {
    switch(name,
        eval = function(feed_dict = NULL, session = NULL) {
            if (inherits(feed_dict, "sgmcmcSession")) feed_dict <- NULL
            callPython("run", x, feeds(feed_dict))
        },
        numpy = function() callPython("value", x),
        NextMethod()
    )
}
