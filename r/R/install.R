#' Install the Python package
#'
#' Installs the Python package sgmcmc, and with it TensorFlow, into the Python
#' environment that the reticulate package uses, by pip. Start R anew afterwards.
#'
#' Versions of reticulate before 1.38 cannot work with NumPy 2; with them an older
#' NumPy is installed.
#'
#' @param package what pip installs: a name, a path to a clone of the repository, or
#'   an address that pip understands.
#' @param envname name or path of the environment; `NULL` is the one in use, or else
#'   `"r-reticulate"`.
#' @param method `"auto"`, `"virtualenv"` or `"conda"`, as in [reticulate::py_install()].
#' @param ... further arguments of [reticulate::py_install()].
#'
#' @return Nothing.
#' @export
#'
#' @examples
#' \dontrun{
#' installTF()
#' installTF("path/to/the/clone")
#' }
installTF <- function(package = "sgmcmc", envname = NULL, method = "auto", ...) {
    if (dir.exists(package)) {
        package <- normalizePath(package)
    }
    numpy <- if (utils::packageVersion("reticulate") < "1.38") "numpy<2" else NULL
    reticulate::py_install(c(package, numpy), envname, method, pip = TRUE, ...)
    invisible(NULL)
}
