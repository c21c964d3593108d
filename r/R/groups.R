#' Effects of groups of observations
#'
#' Effects of users, sites or schools for [sgmcmcSample()] and every other sampler, by
#' `groups = sgmcmcGroups(...)` or a list of these. Up to three numbers a group are integrated out by
#' adaptive Gauss-Hermite quadrature at each group's mode. The chain then has only the global
#' parameters, and its observations are whole groups. Of several factors the one with the
#' most levels is integrated out, and the effects of the others are parameters of the chain.
#' [report()] has the error of the quadrature. `groupEffects` draws the effects afterward, given
#' each draw of the global parameters. [predict()][predictions] uses the effects of the group of
#' each row; those of groups that are not in the data are drawn from their distribution.
#'
#' `logLik` returns one term for each row, and gets the effects of each row's group in `params`:
#' `params$z[i]` is that of row i. The argument `params` of the call has only the global parameters.
#'
#' @param by Name of the entry of `dataset` with the group of each row: a factor, integers or
#'   strings.
#' @param effects Named list of starting values of one group's effects: numbers or vectors.
#' @param logPrior Function of `effects` and `params` that returns the log density of the effects of
#'   each group, a vector with an entry for each, normalizing constants that depend on `params`
#'   included. An effect that is a number is passed as a vector, one of `k` numbers as a matrix with
#'   `k` columns.
#' @param nodes Number of nodes of the quadrature in each direction, 1 for Laplace's approximation;
#'   `NULL` to choose.
#' @param normal Whether `logLik` and `logPrior` are quadratic functions of the effects, as those of
#'   linear mixed models are: the integral then has a closed form.
#' @return For `sgmcmcGroups` an object for the argument `groups`. For `groupEffects` a named list:
#'   for each effect an array of chains, draws, groups, and the dimensions of the effect, with the
#'   labels of the groups as the names of its third dimension.
#' @references Pinheiro and Bates (1995), Approximations to the log-likelihood function in the
#'   nonlinear mixed-effects model, section 2.4, *Journal of Computational and Graphical Statistics* 4.
#' @export
#' @examples
#' \dontrun{
#' logLik <- function(params, dataset) {
#'     -0.5 * (dataset$y - params$a - params$z)^2
#' }
#' ofSites <- function(effects, params) {
#'     -0.5 * (effects$z / tf$exp(params$logSd))^2 - params$logSd
#' }
#' site <- rep(1:100, each = 5)
#' y <- 1 + rnorm(100)[site] + rnorm(500)
#' chain <- sgmcmcSample(logLik, list(y = y, site = site), list(a = 0, logSd = 0),
#'     groups = sgmcmcGroups("site", list(z = 0), ofSites)
#' )
#' effects <- groupEffects(chain, "site")
#' apply(effects$z, 3, mean)
#' }
sgmcmcGroups <- function(by, effects, logPrior, nodes = NULL, normal = FALSE) {
    structure(
        list(by = by, effects = effects, logPrior = logPrior, nodes = nodes, normal = normal),
        class = "sgmcmcGroups"
    )
}

# Groups as Python builds them.
pythonGroups <- function(groups) {
    if (is.null(groups)) {
        return(NULL)
    }
    if (inherits(groups, "sgmcmcGroups")) {
        groups <- list(groups)
    }
    known <- is.list(groups) && all(vapply(groups, inherits, NA, "sgmcmcGroups"))
    if (!known) {
        stop("`groups` must be what sgmcmcGroups() returns, or a list of these", call. = FALSE)
    }
    lapply(unname(groups), function(each) {
        list(
            by = each$by, effects = startingValues(each$effects), log_prior = guarded(each$logPrior),
            nodes = whole(each$nodes), normal = each$normal
        )
    })
}

#' @rdname sgmcmcGroups
#' @param chain Draws, see [sgmcmcChains], made in this session.
#' @param groups Labels of some groups, in the order wanted; `NULL` for all, sorted.
#' @param seed Seed of the effects.
#' @export
groupEffects <- function(chain, by, groups = NULL, seed = 0) {
    found <- callPython(
        "effects", forPython(chain), by, if (!is.null(groups)) as.list(as.character(groups)), whole(seed)
    )
    lapply(found$effects, function(draws) {
        names <- vector("list", length(dim(draws)))
        names[[3]] <- as.character(unlist(found$groups))
        dimnames(draws) <- names
        draws
    })
}
