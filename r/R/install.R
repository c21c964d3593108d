#' Install the Python package
#'
#' Installs the Python package sgmcmc, and with it TensorFlow, into the Python
#' environment that the reticulate package uses, by pip. Start R anew afterwards.
#'
#' Versions of reticulate before 1.38 cannot work with NumPy 2; with them an older
#' NumPy is installed.
#'
#' @param package what pip installs: a name, a path to a clone of the repository, or
#'   an address that pip understands. `NULL` is the Python package that came with this one:
#'   in its tarball, or in the clone of the repository that it was installed from; and if none
#'   did the released one.
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
installTF <- function(package = NULL, envname = NULL, method = "auto", ...) {
    reticulate::py_install(toInstall(package), envname, method, pip = TRUE, ...)
    invisible(NULL)
}

toInstall <- function(package = NULL) {
    if (is.null(package)) {
        package <- system.file("dist", "sgmcmc.tar.gz", package = "sgmcmc")
        if (package == "") {
            package <- if (is.null(clone) || !isClone(clone)) "sgmcmc" else clone
        }
    } else if (dir.exists(package)) {
        package <- normalizePath(package)
    }
    c(package, if (utils::packageVersion("reticulate") < "1.38") "numpy<2")
}

isClone <- function(folder) {
    all(file.exists(file.path(folder, c("pyproject.toml", "sgmcmc/__init__.py", "r/DESCRIPTION"))))
}

# Where the package is being installed from, if that is a clone of the repository.
clone <- if (isClone("..")) normalizePath("..")
