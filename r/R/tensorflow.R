#' TensorFlow, under its old names and the new
#'
#' `tf$name` is TensorFlow 2's `tf.name` where there is one, and else that of
#' TensorFlow 1: `tf$log`, `tf$rsqrt`, `tf$to_int32`, `tf$random_normal`. So functions
#' written for the R package of 2019 run as they are.
#'
#' `tf$distributions` and `tf$contrib$distributions` are those of TensorFlow Probability,
#' with `WishartFull` and `WishartCholesky` under the names they had; its bijectors are
#' `tf$distributions$bijectors`. `tf$placeholder` is described under [placeholders].
#'
#' Whole numbers that TensorFlow wants as such, an axis for example, are written as such:
#' `tf$reduce_sum(x, 1L)`, where axes are counted from 0.
#'
#' If the package tensorflow is attached after this one its `tf` hides this one, which
#' then is `sgmcmc::tf`.
#'
#' @format An object whose parts are TensorFlow's functions.
#' @seealso [tensors]
#' @export
#' @examples
#' \dontrun{
#' tf$reduce_sum(tf$log(tf$constant(c(1, 2))))
#' }
tf <- structure(list(), class = "sgmcmcTensorflow")

#' @export
`$.sgmcmcTensorflow` <- function(x, name) {
    switch(name,
        placeholder = placeholder,
        distributions = distributions(),
        contrib = list(distributions = distributions()),
        oldOrNew(tensorflow(), name)
    )
}

#' @export
`[[.sgmcmcTensorflow` <- function(x, i, ...) {
    `$.sgmcmcTensorflow`(x, i)
}

#' @export
names.sgmcmcTensorflow <- function(x) {
    sort(c("placeholder", "distributions", "contrib", names(tensorflow())))
}

#' @importFrom utils .DollarNames
#' @export
.DollarNames.sgmcmcTensorflow <- function(x, pattern = "") {
    grep(pattern, names(x), value = TRUE)
}

#' @export
print.sgmcmcTensorflow <- function(x, ...) {
    cat("TensorFlow ", tensorflow()$version$VERSION, ", with the names of TensorFlow 1\n", sep = "")
    invisible(x)
}

# TensorFlow itself; through the bridge, so that a Python without it is told of.
tensorflow <- function() {
    bridge()
    reticulate::import("tensorflow")
}

oldOrNew <- function(module, name) {
    for (place in list(module, module$compat$v1)) {
        if (reticulate::py_has_attr(place, name)) {
            return(attribute(place, name))
        }
    }
    stop("TensorFlow has no `", name, "`, neither in version 2 nor in version 1", call. = FALSE)
}

# `module$name` for a name that is known only when the code runs.
attribute <- function(module, name) {
    do.call("$", list(module, name))
}

placeholder <- function(dtype, shape = NULL, name = NULL) {
    bridge()$placeholder(dtype, if (is.null(shape)) NULL else as.list(shape), name)
}

distributions <- function() {
    bridge()
    probability <- reticulate::import("tensorflow_probability")
    structure(list(python = probability), class = "sgmcmcDistributions")
}

#' @export
`$.sgmcmcDistributions` <- function(x, name) {
    probability <- unclass(x)$python
    switch(name,
        bijectors = probability$bijectors,
        WishartFull = wishartFull,
        WishartCholesky = probability$distributions$WishartTriL,
        attribute(probability$distributions, name)
    )
}

#' @export
names.sgmcmcDistributions <- function(x) {
    sort(c("bijectors", "WishartFull", "WishartCholesky", names(unclass(x)$python$distributions)))
}

# The Wishart by its scale matrix, which TensorFlow Probability has by its root only.
wishartFull <- function(df, scale, ...) {
    distributions()$WishartCholesky(df, scale_tril = tf$linalg$cholesky(scale), ...)
}
