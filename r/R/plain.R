# Vectors of the classes that R's users have, as the basic types that they stand for.

# A vector without a class that R's own arithmetic does not know; refused by name if there is no
# such vector.
plainVector <- function(values, name) {
    if (inherits(values, "integer64")) {
        return(fromInteger64(values, name))
    }
    if (inherits(values, "haven_labelled")) {
        return(withoutLabels(values))
    }
    if (is.list(values) && !is.data.frame(values) || is.raw(values) || is.complex(values)) {
        stop(
            "`", name, "` must hold numbers, strings, or levels of a factor: it is ",
            if (is.list(values)) "a list" else paste("of type", typeof(values)),
            call. = FALSE
        )
    }
    values
}

# Integers of 64 bits, whose bits bit64 keeps in doubles, as the doubles that they are equal to; with
# `labels` as text if there are no such doubles.
fromInteger64 <- function(values, name, labels = FALSE) {
    bits <- readBin(
        writeBin(as.vector(unclass(values)), raw()), "integer", 2 * length(values), 4
    )
    halves <- matrix(as.numeric(bits), 2)
    if (.Platform$endian == "big") {
        halves <- halves[2:1, , drop = FALSE]
    }
    halves[is.na(halves)] <- -2^31
    low <- halves[1, ] + ifelse(halves[1, ] < 0, 2^32, 0)
    found <- halves[2, ] * 2^32 + low
    found[found == -2^63] <- NA
    high <- halves[2, ]
    large <- which(!is.na(found) & (high < -2^21 | high > 2^21 | (high == 2^21 & low > 0)))
    if (length(large) > 0) {
        if (labels && requireNamespace("bit64", quietly = TRUE)) {
            return(as.character(values))
        }
        stop(
            "`", name, "` has integers beyond 2^53, as in row ", large[[1]], ", which R's numbers cannot ",
            "hold: as.character(", name, ") keeps them, as labels of groups",
            call. = FALSE
        )
    }
    dim(found) <- dim(values)
    dimnames(found) <- dimnames(values)
    found
}

# Labeled values of haven are the values; those that the user declared missing are NA.
withoutLabels <- function(values) {
    values <- withDeclaredMissing(values)
    structure(
        as.vector(unclass(values)),
        dim = dim(values), names = names(values)
    )
}

withDeclaredMissing <- function(values) {
    bare <- as.vector(unclass(values))
    missing <- bare %in% attr(values, "na_values")
    range <- attr(values, "na_range")
    if (length(range) == 2) {
        missing <- missing | (!is.na(bare) & bare >= range[[1]] & bare <= range[[2]])
    }
    bare[missing] <- NA
    attributes(bare) <- attributes(values)
    bare
}

# Data, and an environment, whose variables of these names have been converted where a formula
# would go wrong: in its functions an integer of 64 bits is a double with its bits. Those in
# `labels` are groups and nothing else.
plainVariables <- function(data, names, environment, labels = character()) {
    convert <- function(values, name) {
        if (inherits(values, "integer64")) {
            fromInteger64(values, name, name %in% labels)
        } else {
            withDeclaredMissing(values)
        }
    }
    needed <- function(values) inherits(values, c("integer64", "haven_labelled_spss"))
    overlaid <- function(environment, names) {
        made <- new.env(parent = environment)
        for (name in names) {
            values <- get0(name, environment, mode = "numeric")
            if (needed(values)) assign(name, convert(values, name), made)
        }
        if (length(ls(made)) > 0) made else environment
    }
    if (is.environment(data)) {
        data <- overlaid(data, names)
    } else if (is.list(data)) {
        for (name in intersect(names, names(data))) {
            if (needed(data[[name]])) data[[name]] <- convert(data[[name]], name)
        }
    }
    list(data = data, environment = overlaid(environment, setdiff(names, names(data))))
}

# Names of the variables of a formula that are groups of its bars and nothing else.
onlyLabels <- function(formula, bars) {
    groups <- lapply(unlist(lapply(bars, function(bar) variablesOf(bar$by))), function(variable) {
        if (is.symbol(variable)) as.character(variable)
    })
    others <- c(all.vars(formula), unlist(lapply(bars, function(bar) all.vars(bar$terms))))
    setdiff(unlist(groups), others)
}

# On the way into TensorFlow's functions, as in tf$constant(x).
#' @importFrom reticulate r_to_py
#' @export
r_to_py.integer64 <- function(x, convert = FALSE) {
    values <- fromInteger64(x, "x")
    if (is.null(dim(values)) && length(values) == 1 && !is.na(values)) {
        return(reticulate::import_builtins(convert = FALSE)$int(values))
    }
    if (anyNA(values)) reticulate::r_to_py(asArray(values)) else reticulate::np_array(asArray(values), "int64")
}
