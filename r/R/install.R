#' Install the Python package
#'
#' Installs the Python package sgmcmc, and with it TensorFlow, into the Python environment that
#' the reticulate package uses, by pip. Restart R afterward.
#'
#' Versions of reticulate before 1.38 cannot work with NumPy 2; with them an older
#' NumPy is installed.
#'
#' @param package Package for pip: a name, a path to a clone of the repository, or an address
#'   that pip understands. `NULL` is the Python package that came with this one: in its tarball,
#'   or in the clone of the repository that it was installed from; or else the released one.
#' @param envname Name or path of the environment; `NULL` is the one in use, or else
#'   `"r-reticulate"`.
#' @param method `"auto"`, `"virtualenv"` or `"conda"`, as in [reticulate::py_install()].
#' @param ... Further arguments of [reticulate::py_install()].
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
    packages <- toInstall(package)
    withoutLibrariesOfR(reticulate::py_install(packages, envname, method, pip = TRUE, ...))
    invisible(NULL)
}

# R starts programs with the folders of its own libraries before all others, where a Python from
# elsewhere finds the libpython of the system in place of its own, and then cannot load ssl.
withoutLibrariesOfR <- function(code) {
    before <- Sys.getenv("LD_LIBRARY_PATH", NA)
    if (!is.na(before)) {
        on.exit(Sys.setenv(LD_LIBRARY_PATH = before))
        Sys.setenv(LD_LIBRARY_PATH = withoutThose(before, librariesOfR()))
    }
    code
}

withoutThose <- function(path, folders) {
    split <- function(text) strsplit(text, ":", fixed = TRUE)[[1]]
    paste(setdiff(split(path), split(folders)), collapse = ":")
}

# What the script that starts R puts there.
librariesOfR <- function() {
    script <- file.path(R.home("etc"), "ldpaths")
    if (!file.exists(script)) {
        return("")
    }
    paste(system2(
        "sh", c("-c", shQuote(". \"$0\"; printf %s \"$R_LD_LIBRARY_PATH\""), shQuote(script)),
        stdout = TRUE, env = paste0("R_HOME=", shQuote(R.home()))
    ), collapse = "")
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
