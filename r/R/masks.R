# Functions of R that look for no methods, so that they are this package's. What is no
# tensor they hand on to the function that would be there without this package.

# That function: the next one on the search path or, of an object of S4, one that the package of
# its class knows.
withoutPackage <- function(name, ...) {
    place <- match("package:sgmcmc", search())
    # The namespace of stats sees those of stats and of base.
    found <- get(name, envir = if (is.na(place)) asNamespace("stats") else as.environment(place + 1), mode = "function")
    if (!methods::is(found, "genericFunction")) {
        for (value in Filter(isS4, list(...))) {
            home <- attr(class(value), "package")
            if (!is.null(home) && isNamespaceLoaded(home)) {
                return(get(name, envir = asNamespace(home), mode = "function"))
            }
        }
    }
    found
}

alongDimension <- function(x, name, axis, na.rm = FALSE, dims = 1, ...) {
    if (...length() > 0 || !isFALSE(na.rm) || dims != 1 || length(dim(x)) != 2) {
        stop(
            "`", name, "` takes a matrix alone; of other tensors tf$reduce_",
            if (grepl("Sums", name)) "sum" else "mean", "(x, axis), counted from 0",
            call. = FALSE
        )
    }
    if (grepl("Sums", name)) {
        tensorflow()$reduce_sum(counted(x), axis)
    } else {
        tensorflow()$reduce_mean(floating(x), axis)
    }
}

#' @rdname tensors
#' @export
rowSums <- function(x, ...) {
    if (isTensor(x)) alongDimension(x, "rowSums", 1L, ...) else withoutPackage("rowSums", x)(x, ...)
}

#' @rdname tensors
#' @export
colSums <- function(x, ...) {
    if (isTensor(x)) alongDimension(x, "colSums", 0L, ...) else withoutPackage("colSums", x)(x, ...)
}

#' @rdname tensors
#' @export
rowMeans <- function(x, ...) {
    if (isTensor(x)) alongDimension(x, "rowMeans", 1L, ...) else withoutPackage("rowMeans", x)(x, ...)
}

#' @rdname tensors
#' @export
colMeans <- function(x, ...) {
    if (isTensor(x)) alongDimension(x, "colMeans", 0L, ...) else withoutPackage("colMeans", x)(x, ...)
}

#' @rdname tensors
#' @export
pmin <- function(..., na.rm = FALSE) {
    if (anyTensor(...)) entrywise("minimum", na.rm, ...) else withoutPackage("pmin", ...)(..., na.rm = na.rm)
}

#' @rdname tensors
#' @export
pmax <- function(..., na.rm = FALSE) {
    if (anyTensor(...)) entrywise("maximum", na.rm, ...) else withoutPackage("pmax", ...)(..., na.rm = na.rm)
}

anyTensor <- function(...) any(vapply(list(...), isTensor, NA))

entrywise <- function(name, na.rm, ...) {
    if (!isFALSE(na.rm)) {
        stop("pmin() and pmax() of tensors have no `na.rm`: write ifelse(is.na(x), y, pmin(x, y))", call. = FALSE)
    }
    parts <- list(...)
    tensor <- firstOfNumbers(parts)
    if (is.null(tensor)) {
        tensor <- counted(Find(isTensor, parts), Find(is.double, parts))
    }
    pair <- function(x, y) {
        needNoColumn(x, y)
        attribute(tensorflow()$math, name)(x, y)
    }
    Reduce(pair, alike(parts, tensor))
}

#' @rdname tensors
#' @param test,yes,no Condition, and the entries where it is true and where it is false.
#' @export
ifelse <- function(test, yes, no) {
    if (!isTensor(test)) {
        return(withoutPackage("ifelse", test)(test, yes, no))
    }
    tensor <- Find(isTensor, list(yes, no))
    if (is.null(tensor)) {
        tensor <- tensorflow()$constant(0, dtype = tensorflow()$float32)
    }
    tensorflow()$where(asBoolean(test), like(yes, tensor), like(no, tensor))
}

#' @rdname tensors
#' @export
crossprod <- function(x, y = NULL, ...) {
    if (!isTensor(x) && !isTensor(y)) {
        found <- withoutPackage("crossprod", x, y)
        return(if (is.null(y)) found(x, ...) else found(x, y, ...))
    }
    needNoMore("crossprod", ...)
    product(t(x), if (is.null(y)) x else y)
}

#' @rdname tensors
#' @export
tcrossprod <- function(x, y = NULL, ...) {
    if (!isTensor(x) && !isTensor(y)) {
        found <- withoutPackage("tcrossprod", x, y)
        return(if (is.null(y)) found(x, ...) else found(x, y, ...))
    }
    needNoMore("tcrossprod", ...)
    product(x, t(if (is.null(y)) x else y))
}

#' @rdname tensors
#' @param nrow,ncol,names,data,byrow,dimnames As in R; tensors have no names.
#' @export
diag <- function(x = 1, nrow, ncol, names = TRUE) {
    if (isTensor(x)) {
        if (!missing(nrow) || !missing(ncol)) {
            stop("diag() of a tensor has no `nrow` and `ncol`: write tf$linalg$diag(x, num_rows = 3L)", call. = FALSE)
        }
        linalg <- tensorflow()$linalg
        return(if (length(dim(x)) == 2) linalg$diag_part(x) else linalg$diag(x))
    }
    given <- list(x) # with one argument, diag(3) is an identity
    if (!missing(names)) given$names <- names
    if (!missing(nrow)) given$nrow <- nrow
    if (!missing(ncol)) given$ncol <- ncol
    do.call(withoutPackage("diag", x), given, quote = TRUE)
}

#' @rdname tensors
#' @export
matrix <- function(data = NA, nrow = 1, ncol = 1, byrow = FALSE, dimnames = NULL) {
    if (isTensor(data)) {
        rows <- if (missing(nrow)) -1L else as.integer(nrow)
        columns <- if (missing(ncol)) (if (rows < 0) 1L else -1L) else as.integer(ncol)
        tf <- tensorflow()
        # R fills column by column, TensorFlow row by row.
        return(if (byrow) tf$reshape(data, list(rows, columns)) else t(tf$reshape(data, list(columns, rows))))
    }
    given <- list(data = data, byrow = byrow)
    if (!missing(nrow)) given$nrow <- nrow
    if (!missing(ncol)) given$ncol <- ncol
    do.call(withoutPackage("matrix", data), c(given, list(dimnames = dimnames)), quote = TRUE)
}

# Packages with generics of S4 under these names. If one is attached after this package its
# functions are found, so that they need methods for tensors.
withGenerics <- c("Matrix", "BiocGenerics", "MatrixGenerics")

# The methods are kept here, for the namespace is locked when the other package comes.
forTensors <- new.env()

addMethods <- function(package) {
    for (name in c("rowSums", "colSums", "rowMeans", "colMeans", "crossprod", "tcrossprod", "diag")) {
        generic <- get(name, envir = asNamespace(package), mode = "function")
        if (methods::is(generic, "standardGeneric")) {
            addMethod(generic, name)
        }
    }
}

# A method has the arguments of its generic, and hands those that are given to this package's function.
addMethod <- function(generic, name) {
    arguments <- setdiff(names(formals(generic)), "...")
    body <- bquote({
        given <- list()
        for (argument in .(arguments)) {
            if (!eval(call("missing", as.name(argument)))) given[[argument]] <- get(argument)
        }
        do.call(.(name), c(given, .(if ("..." %in% names(formals(generic))) quote(list(...)))), quote = TRUE)
    })
    method <- as.function(c(formals(generic), body), environment(addMethod))
    for (places in if (endsWith(name, "crossprod")) list(1, 2, 1:2) else list(1)) {
        classes <- ifelse(seq_len(max(places)) %in% places, "sgmcmcTensor", "ANY")
        methods::setMethod(generic, classes, method, where = forTensors)
    }
}

watchForGenerics <- function() {
    methods::setOldClass("sgmcmcTensor", where = forTensors)
    for (package in withGenerics) {
        if (isNamespaceLoaded(package)) {
            addMethods(package)
        }
        setHook(packageEvent(package, "onLoad"), function(package, ...) addMethods(package))
    }
}
