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
    dataset <- arguments[["dataset"]]
    factors <- if (is.list(dataset)) names(dataset)[vapply(dataset, is.factor, NA)]
    factors <- setdiff(factors, factorsOfGroups(arguments[["groups"]]))
    found <- unique(c(as.character(unlist(arguments[["integers"]])), factors))
    if (length(found) > 0) as.list(found)
}

pythonArgument <- function(name, arguments) {
    value <- arguments[[name]]
    switch(name,
        logLik = ,
        logPrior = ,
        gibbs = guarded(value),
        curvatureBound = if (inherits(value, "python.builtin.object")) value else guarded(value),
        priorBound = startingValues(value),
        testFunctions = guardedAll(value),
        dataset = columns(value, factorsOfGroups(arguments[["groups"]])),
        latents = columns(value),
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

# Arrays that share their first dimension. A factor is its codes, from 1, or if it is one of
# groups with effects the labels of these.
columns <- function(dataset, groups = NULL) {
    if (!is.list(dataset)) {
        return(dataset)
    }
    dataset <- as.list(dataset)
    factors <- vapply(dataset, is.factor, NA)
    labeled <- factors & names(dataset) %in% groups
    dataset[labeled] <- lapply(dataset[labeled], as.character)
    dataset[factors & !labeled] <- lapply(dataset[factors & !labeled], as.integer)
    lapply(dataset, asArray)
}

# Starting values: a number without dimensions is a scalar parameter. A list of lists
# holds a start for each chain.
startingValues <- function(params) {
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
