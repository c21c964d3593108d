#' Placeholders and fed values
#'
#' Code written for TensorFlow 1 builds a tensor once, on placeholders, and evaluates it along
#' the chain: `sess$run(tensor, feed_dict = feeds)`. `tf$placeholder(dtype, shape)` and `dict()`
#' serve it. The first placeholder opens a graph, to which every later tensor is added, for any
#' number of samplers, before `initSess` and after. `as.numeric` of a tensor in the graph that
#' depends on no placeholder is its current value. `tf$reset_default_graph()` closes the graph:
#' tensors then have their values at once, as before. Call it before you call Python code
#' directly rather than through this package.
#'
#' `dict()` makes an empty list of fed values, to which `feeds[[placeholder]] <- value` adds
#' one. An argument `name = value` feeds `value` for the placeholder that is called `name` in
#' the calling environment.
#'
#' New code does not need placeholders: `logLik(sampler$params, testset)`, with `testset` a list
#' of tensors, has its value at once, and another one after the next step.
#'
#' @param ... Values, by the names of placeholders.
#' @param x Result of `dict`.
#' @param i Placeholder.
#' @param value The array to feed for it.
#'
#' @return A value for the argument `feed_dict` of `sess$run`.
#' @name placeholders
#' @export
#' @examples
#' \dontrun{
#' sampler <- sgldSetup(logLik, dataset, params, 1e-4)
#' x <- tf$placeholder(tf$float32, length(testset$x))
#' logLoss <- -logLik(sampler$params, list(x = x)) / length(testset$x)
#' sess <- initSess(sampler)
#' feeds <- dict()
#' feeds[[x]] <- testset$x
#' for (i in 1:1000) {
#'     sgmcmcStep(sampler, sess)
#'     if (i %% 100 == 0) message(sess$run(logLoss, feed_dict = feeds))
#' }
#' }
dict <- function(...) {
    entries <- structure(list(), class = "sgmcmcFeeds")
    values <- list(...)
    if (length(values) > 0 && (is.null(names(values)) || any(names(values) == ""))) {
        stop("dict() takes values by the names of placeholders, as in dict(x = 1)", call. = FALSE)
    }
    for (name in names(values)) {
        entries[[get(name, envir = parent.frame())]] <- values[[name]]
    }
    entries
}

#' @rdname placeholders
#' @export
`[[<-.sgmcmcFeeds` <- function(x, i, value) {
    entries <- unclass(x)
    known <- vapply(entries, function(entry) identical(entry[[1]]$name, i$name), NA)
    entry <- list(i, callPython("feed", i, asArrayUnlessScalar(value)))
    place <- if (any(known)) which(known) else length(entries) + 1
    entries[[place]] <- entry
    structure(entries, class = "sgmcmcFeeds")
}

asArrayUnlessScalar <- function(values) {
    if (is.null(dim(values)) && length(values) == 1) values else asArray(values)
}

feeds <- function(feedDict) {
    if (is.null(feedDict)) {
        return(list())
    }
    if (!inherits(feedDict, "sgmcmcFeeds")) {
        stop("`feed_dict` must be made by the dict() of this package: sgmcmc::dict()", call. = FALSE)
    }
    unclass(feedDict)
}

#' Shapes and tuples
#'
#' As in TensorFlow code for R: `shape(500, 10)`, where `NULL` or `NA` is an unknown size, and
#' Python's `tuple(1L, 2L)`.
#'
#' @param ... Sizes, or entries of the tuple.
#' @return A list of integers, which TensorFlow accepts as a shape; a tuple.
#' @export
#' @examples
#' \dontrun{
#' tf$zeros(shape(2, 3))
#' x <- tf$placeholder(tf$float32, shape(NULL, 10))
#' }
shape <- function(...) {
    sizes <- list(...)
    if (length(sizes) == 1 && is.list(sizes[[1]])) {
        sizes <- sizes[[1]]
    }
    sizes <- lapply(sizes, function(size) {
        if (is.null(size) || (length(size) == 1 && is.na(size))) list(NULL) else as.list(as.integer(size))
    })
    do.call(c, c(list(list()), sizes))
}

#' @rdname shape
#' @export
tuple <- function(...) reticulate::tuple(...)
