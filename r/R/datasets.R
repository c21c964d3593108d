#' Get an example dataset
#'
#' Looks in the folder that the environment variable `SGMCMC_DATA` names, then in the
#' cache, and downloads the original file if neither has it.
#'
#' @param dataset Name of the dataset: `"covertype"`, a matrix of 581012 rows with the label, 0
#'   or 1, in the first column and 54 features; or `"mnist"`, a list of `train` and `test`, each
#'   with the matrices `images`, 784 columns, and `labels`, 10 columns; or another dataset of
#'   the Python package.
#' @param verbose Whether to show the progress of a download.
#'
#' @return A matrix, or a list of matrices.
#' @export
#' @examples
#' \dontrun{
#' covertype <- getDataset("covertype")
#' X <- covertype[, 2:ncol(covertype)]
#' y <- covertype[, 1]
#' }
getDataset <- function(dataset, verbose = TRUE) {
    callPython("get_dataset", dataset, verbose)
}
