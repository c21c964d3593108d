#' sgmcmc: stochastic gradient Markov chain Monte Carlo
#'
#' The samplers are [sgld()], [sghmc()] and [sgnht()], the same with control
#' variates, [sgldcv()], [sghmccv()] and [sgnhtcv()], and for parameters on the
#' simplex [scir()] and [sgrld()]. Each has a `*Setup` function for chains that are
#' run step by step; see [sgldSetup()] and [initSess()].
#'
#' The model is a function of two lists of tensors, `params` and `dataset`, written
#' with [tf] and R's own operators; see [tensors].
#'
#' @section Installation: The samplers run in Python. [installTF()] installs them for the
#'   reticulate package. To use another Python, choose it before the first call, by the
#'   environment variable `RETICULATE_PYTHON` or by [reticulate::use_virtualenv()].
#'
#' @references J. Baker, P. Fearnhead, E. B. Fox and C. Nemeth (2019). sgmcmc: An R
#'   Package for Stochastic Gradient Markov Chain Monte Carlo. *Journal of
#'   Statistical Software* 91(3). \doi{10.18637/jss.v091.i03}
#' @keywords internal
"_PACKAGE"

.onLoad <- function(libname, pkgname) {
    reticulate::register_class_filter(markTensors)
    watchForGenerics()
    watchForMarginaleffects()
}
