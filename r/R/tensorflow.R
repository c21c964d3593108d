#' TensorFlow, under its old and new names
#'
#' `tf$name` is TensorFlow 2's `tf.name` if there is one, and otherwise that of TensorFlow 1:
#' `tf$log`, `tf$rsqrt`, `tf$to_int32`, `tf$random_normal`, `tf$nn$xw_plus_b`,
#' `tf$train$AdamOptimizer`. If both have a function, arguments that only the old one has, such
#' as `keep_dims`, `reduction_indices` and `dim`, call the old one. So functions written for the
#' R package of 2019 run without changes. A name that is gone gives an error with its successor.
#'
#' `tf$distributions` and `tf$contrib$distributions` are those of TensorFlow Probability, and
#' those that only TensorFlow 1 had: `Wishart`, with `scale` or `scale_tril`, `WishartFull` and
#' `WishartCholesky`, those `WithSoftplusScale` and the like, `VectorLaplaceDiag`; its bijectors
#' are `tf$distributions$bijectors`. `tf$placeholder` is described under [placeholders].
#'
#' Write integers as integers if TensorFlow needs them, for example for an axis:
#' `tf$reduce_sum(x, 1L)`, where axes are counted from 0.
#'
#' If the package tensorflow is attached after this one, its `tf` masks this one; write
#' `sgmcmc::tf`.
#'
#' @format An object whose parts are TensorFlow's functions.
#' @seealso [tensors]
#' @export
#' @examples
#' \dontrun{
#' tf$reduce_sum(tf$log(tf$constant(c(1, 2))))
#' }
tf <- structure(list(), class = "sgmcmcTensorflow", path = "")

#' @export
`$.sgmcmcTensorflow` <- function(x, name) {
    path <- attr(x, "path")
    if (path == "" && name %in% c("placeholder", "reset_default_graph")) {
        return(switch(name, placeholder = placeholder, resetGraph))
    }
    whole <- paste(path, name)
    if (!is.null(namesFound[[whole]])) {
        return(namesFound[[whole]])
    }
    found <- callPython("look_up", path, name)
    if (inherits(found, "sgmcmc_r.names.Place")) {
        found <- structure(list(), class = "sgmcmcTensorflow", path = found$path)
    }
    found <- mindingCodes(found, path, name)
    # A variable is another while a graph is open.
    if (whole != " Variable") {
        namesFound[[whole]] <- found
    }
    found
}

namesFound <- new.env(parent = emptyenv())

#' @export
`[[.sgmcmcTensorflow` <- function(x, i, ...) {
    `$.sgmcmcTensorflow`(x, i)
}

#' @export
names.sgmcmcTensorflow <- function(x) {
    as.character(callPython("listed", attr(x, "path")))
}

#' @importFrom utils .DollarNames
#' @export
.DollarNames.sgmcmcTensorflow <- function(x, pattern = "") {
    grep(pattern, names(x), value = TRUE)
}

#' @export
print.sgmcmcTensorflow <- function(x, ...) {
    cat(
        if (attr(x, "path") == "") "" else paste0("tf$", gsub(".", "$", attr(x, "path"), fixed = TRUE), " of "),
        "TensorFlow ", tensorflow()$version$VERSION, ", with the names of TensorFlow 1\n",
        sep = ""
    )
    invisible(x)
}

# TensorFlow itself; through the bridge, so that a Python without it is told of.
tensorflow <- function() {
    bridge()
    reticulate::import("tensorflow")
}

# `module$name` for a name that is known only when the code runs.
attribute <- function(module, name) {
    do.call("$", list(module, name))
}

placeholder <- function(dtype, shape = NULL, name = NULL) {
    bridge()$placeholder(dtype, if (is.null(shape)) NULL else as.list(shape), name)
}

resetGraph <- function() {
    callPython("reset")
    invisible(NULL)
}
