#' Placeholders, and what is fed for them
#'
#' Code written for TensorFlow 1 builds a tensor once, on placeholders, and evaluates it
#' along the chain: `sess$run(tensor, feed_dict = feeds)`. `tf$placeholder(dtype, shape)`
#' and `dict()` serve it. The first placeholder opens a graph, into which every tensor
#' that follows is written, for any number of samplers, before `initSess` and after.
#' `as.numeric` of a tensor in the graph that depends on no placeholder is its value at that
#' moment. `tf$reset_default_graph()` closes the graph: tensors then have their values at
#' once, as before. Do so before Python code is called directly, not through this package.
#'
#' `dict()` makes an empty list of what to feed, which `feeds[[placeholder]] <- value`
#' fills. An argument `name = value` feeds `value` for the placeholder that is called
#' `name` where `dict` is called.
#'
#' Code that is not bound to this need not do it: `logLik(sampler$params, testset)`, with
#' `testset` a list of tensors, gives its value at once, and another one after the next
#' step.
#'
#' @param ... values, by the names of placeholders.
#' @param x what `dict` returned.
#' @param i a placeholder.
#' @param value the array to feed for it.
#'
#' @return What `sess$run` takes for `feed_dict`.
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
#' As in TensorFlow code for R: `shape(500, 10)`, where `NULL` or `NA` is a size that is not
#' known, and Python's `tuple(1L, 2L)`.
#'
#' @param ... sizes, or what the tuple is of.
#' @return A list of whole numbers, which goes wherever TensorFlow wants a shape; a tuple.
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
