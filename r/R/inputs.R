# R values in the form that the Python package takes.

# The arguments of a call, by their Python names: logPrior is log_prior.
pythonArguments <- function(arguments, further) {
    for (name in names(arguments)) {
        if (identical(arguments[[name]], quote(expr = ))) {
            stop("argument \"", name, "\" is missing, with no default", call. = FALSE)
        }
    }
    if (length(further) > 0 && (is.null(names(further)) || any(names(further) == ""))) {
        stop("further arguments must be named, as in `replace = TRUE`", call. = FALSE)
    }
    further <- underNewNames(further)
    arguments <- c(arguments[setdiff(names(arguments), names(further))], further)
    arguments$integers <- integersIn(arguments)
    converted <- lapply(names(arguments), pythonArgument, arguments)
    names(converted) <- snakeCase(names(arguments))
    converted
}

# Arguments that changed their names: the old ones work until version 1.0.
newNames <- c(storeUnnormalised = "storeUnnormalized")

underNewNames <- function(arguments) {
    for (old in intersect(names(arguments), names(newNames))) {
        warning(
            "`", old, "` is called `", newNames[[old]], "` now; the old name works until version 1.0",
            call. = FALSE
        )
        names(arguments)[names(arguments) == old] <- newNames[[old]]
    }
    arguments
}

# Columns of the dataset that stay integers: factors, and those that the user names.
integersIn <- function(arguments) {
    known <- knownOf(arguments[["dataset"]], arguments)
    found <- unique(c(as.character(unlist(arguments[["integers"]])), names(known$levels)))
    if (length(found) > 0) as.list(found)
}

# What is known of a dataset when others are read later, from it and further arguments of the call:
# `groups`, names of the entries whose groups have effects; `levels` of the other factors; `integers`,
# names of entries that stay integers; and whether the chain is in `double` precision.
knownOf <- function(dataset, further) {
    groups <- factorsOfGroups(further$groups)
    factors <- if (is.list(dataset)) names(dataset)[vapply(dataset, is.factor, NA)]
    factors <- setdiff(factors, groups)
    list(
        groups = groups, levels = lapply(stats::setNames(factors, factors), function(name) levels(dataset[[name]])),
        integers = as.character(unlist(further$integers)), double = isDouble(further$dtype)
    )
}

# Names of the entries of a dataset that a model has as codes of factors.
factorsIn <- function(known, dataset = NULL) {
    c(names(known$levels), if (is.list(dataset)) names(dataset)[vapply(dataset, is.factor, NA)])
}

pythonArgument <- function(name, arguments) {
    value <- arguments[[name]]
    known <- knownOf(arguments[["dataset"]], arguments)
    switch(name,
        logLik = ,
        logPrior = ,
        gibbs = guarded(value, factorsIn(known)),
        curvatureBound = if (inherits(value, "python.builtin.object")) value else guarded(value, factorsIn(known)),
        priorBound = startingValues(value),
        testFunctions = guardedAll(value),
        dataset = columns(value, known),
        latents = columns(value, argument = "latents"),
        params = ,
        alpha = ,
        theta0 = startingValues(value),
        groups = pythonGroups(value),
        seed = seedOf(value, arguments[["store"]]),
        preconditioner = if (is.list(value)) lapply(value, asArray) else asArray(value),
        stepsize = schedules(value, if ("nIters" %in% names(arguments)) {
            arguments[["burnIn"]] + arguments[["nIters"]]
        }),
        optStepsize = schedules(value, arguments[["nItersOpt"]]),
        store = if (is.character(value)) path.expand(value) else value,
        storeParams = if (is.character(value)) as.list(value) else value,
        reductions = if (is.list(value)) lapply(value, asTuple) else value,
        value
    )
}

snakeCase <- function(names) {
    ifelse(names == "L", names, gsub("([A-Z])", "_\\L\\1", names, perl = TRUE))
}

# Names of the entries of the dataset whose groups have effects.
factorsOfGroups <- function(groups) {
    groups <- if (inherits(groups, "sgmcmcGroups")) list(groups) else groups
    unlist(lapply(groups, function(each) if (inherits(each, "sgmcmcGroups")) each$by))
}

# Arrays that share their first dimension. A factor is its codes, from 1, by the levels that are
# known, or if it is one of groups with effects the labels of these. `new` rows are read after a
# chain, which knows the levels of its factors unless it is from a file.
columns <- function(dataset, known = NULL, new = FALSE, argument = "dataset") {
    if (!is.list(dataset)) {
        return(dataset)
    }
    dataset <- as.list(dataset)
    for (name in names(dataset)) {
        label <- paste0(argument, "$", name)
        values <- dataset[[name]]
        if (is.null(values)) {
            next
        }
        dataset[[name]] <- if (name %in% known$groups) {
            labelsOfGroups(values, label)
        } else if (is.factor(values) || name %in% names(known$levels)) {
            codesOfFactor(values, known, name, label, new)
        } else {
            numbersOfEntry(values, label, !isTRUE(known$double) && !name %in% known$integers)
        }
    }
    dataset
}

labelsOfGroups <- function(values, label) {
    values <- plainVector(values, label)
    if (anyNA(values)) {
        stop("`", label, "` is NA in row ", which(is.na(values))[[1]], ": groups cannot be missing", call. = FALSE)
    }
    if (is.numeric(values) && is.null(attr(values, "class"))) {
        return(asArray(values))
    }
    values <- as.character(values)
    if (length(values) == 1) list(values) else values
}

codesOfFactor <- function(values, known, name, label, new) {
    if (!is.factor(values) && !is.character(values)) {
        return(numbersOfEntry(values, label, FALSE))
    }
    if (new && is.null(known)) {
        stop(
            "`", label, "` is a factor, and draws from a file have no levels: write ",
            "as.integer(factor(", name, ", levels = ...)), with the levels that the model was fitted with",
            call. = FALSE
        )
    }
    levels <- known$levels[[name]]
    codes <- match(as.character(values), if (is.null(levels)) levels(values) else levels)
    if (anyNA(codes)) {
        first <- which(is.na(codes))[[1]]
        stop(
            "`", label, "` has ", if (is.na(values[[first]])) "NA" else paste("the level", values[[first]]),
            " in row ", first, if (!is.null(levels)) paste0("; its levels are ", paste(utils::head(levels, 6), collapse = ", ")),
            call. = FALSE
        )
    }
    asArray(codes)
}

# Numbers of an entry of a dataset, which single precision must not round if they are whole.
numbersOfEntry <- function(values, label, single) {
    if (inherits(values, "POSIXt")) {
        stop(
            "`", label, "` is a time, in seconds since 1970, which single precision rounds: write ",
            "as.numeric(difftime(x, x[1], units = \"days\"))",
            call. = FALSE
        )
    }
    if (is.data.frame(values)) {
        values <- matrixOfColumns(values, label)
    }
    if (is.object(values) && !isS4(values) && !inherits(values, "python.builtin.object")) {
        values <- plainVector(values, label)
        if (inherits(values, c("Date", "difftime"))) {
            values <- as.numeric(values)
        }
    } else if (is.list(values) || is.complex(values) || is.raw(values) || is.character(values)) {
        if (is.character(values)) {
            stop("`", label, "` is text, and a model takes numbers: make it a factor, whose codes count from 1", call. = FALSE)
        }
        values <- plainVector(values, label)
    }
    if (single && is.double(values) && length(values) > 0) {
        needExact(values, label)
    }
    asArray(values)
}

matrixOfColumns <- function(values, label) {
    for (name in names(values)) {
        values[[name]] <- plainVector(values[[name]], paste0(label, "$", name))
        if (!is.numeric(values[[name]]) && !is.logical(values[[name]])) {
            stop(
                "`", label, "$", name, "` is ", class(values[[name]])[[1]], ", and other columns are numbers: ",
                "make it an entry of its own",
                call. = FALSE
            )
        }
    }
    as.matrix(values)
}

# Integers, also as doubles, beyond the precision of a chain are labels, times or counts, and refused as
# integers of these sizes are.
needExact <- function(values, label) {
    largest <- max(abs(values), 0, na.rm = TRUE)
    if (largest > 2^24 && is.finite(largest) && all(values == round(values), na.rm = TRUE)) {
        stop(
            "`", label, "` holds integers as large as ", format(largest, digits = 15, scientific = FALSE),
            ", which single precision rounds: subtract an origin, give `dtype = tf$float64`, or if rounding ",
            "does no harm divide by a unit, such as 1e6",
            call. = FALSE
        )
    }
}

isDouble <- function(dtype) !is.null(dtype) && grepl("64", paste(as.character(dtype), collapse = ""))

# Starting values: a number without dimensions is a scalar parameter. A list of lists
# holds a start for each chain.
startingValues <- function(params) {
    if (inherits(params, "integer64")) {
        params <- plainVector(params, "params")
    }
    if (!is.list(params)) {
        return(if (length(params) == 1) params else asArray(params))
    }
    lapply(params, startingValues)
}

# Reticulate makes a Python list of a vector, number by number, and views an array.
asArray <- function(values) {
    if (is.data.frame(values)) {
        values <- as.matrix(values)
    }
    if (inherits(values, c("integer64", "haven_labelled"))) {
        values <- plainVector(values, "the argument")
    }
    if (is.factor(values)) {
        stop(
            "a factor is its codes, as.integer(g), by the levels of the model's: factor(x, levels = levels(g))",
            call. = FALSE
        )
    }
    if (!is.numeric(values) && !is.logical(values)) {
        return(values)
    }
    if (!is.double(values) && anyNA(values)) {
        # Python has no missing integers; as doubles they are NaN, and refused as such.
        storage.mode(values) <- "double"
    }
    if (is.null(dim(values))) {
        dim(values) <- length(values)
    }
    values
}

asTuple <- function(parts) {
    if (is.list(parts)) {
        parts[[1]] <- startingValues(parts[[1]])
        parts[-1] <- lapply(parts[-1], guarded)
        return(do.call(reticulate::tuple, c(unname(parts), convert = TRUE)))
    }
    parts
}

# Stepsizes. A function of the iteration is evaluated beforehand: the chain asks for
# its stepsizes on threads where R must not be called.
schedules <- function(stepsize, iterations) {
    if (is.list(stepsize)) {
        return(lapply(stepsize, schedules, iterations))
    }
    # Python objects that can be called are functions to R too.
    if (!is.function(stepsize) || inherits(stepsize, "python.builtin.object")) {
        return(if (is.numeric(stepsize) && length(stepsize) > 1) asArray(stepsize) else stepsize)
    }
    if (length(iterations) == 0) {
        stop(
            "an R function as the stepsize is evaluated beforehand, and so takes `nIters` and ",
            "`burnIn`; a sampler that runs step by step takes what polynomialDecay() returns",
            call. = FALSE
        )
    }
    values <- vapply(seq_len(iterations), function(m) as.numeric(stepsize(m)), 0)
    bridge()$Table(array(values))
}

# An integer as Python's int, and anything else as it is.
whole <- function(number) {
    if (is.numeric(number) && length(number) == 1 && isTRUE(number == round(number)) &&
        abs(number) <= .Machine$integer.max) {
        as.integer(number)
    } else {
        number
    }
}
