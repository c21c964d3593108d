# From a formula and data to the columns of a model, by R's own way: one model frame, its
# offset, its weights and its response, and a model matrix of the fixed terms and of each bar.

# The model frame of a formula with its bars. `call` is the user's, in whose arguments R's own
# function finds the rows, the weights and the offset.
frameOf <- function(formula, bars, data, call, caller) {
    whole <- formula
    for (bar in bars) {
        whole[[3]] <- call("+", call("+", whole[[3]], bar$terms), bar$by)
    }
    given <- match(c("subset", "weights", "na.action", "offset"), names(call), 0L)
    others <- unlist(lapply(as.list(call)[given], all.vars))
    plain <- plainVariables(
        data, c(all.vars(whole), others), environment(formula), onlyLabels(formula, bars)
    )
    environment(whole) <- plain$environment
    made <- call[c(1L, given)]
    made[[1]] <- quote(stats::model.frame)
    place <- new.env(parent = caller)
    made$formula <- whole
    if (!is.null(plain$data)) {
        made$data <- as.name(".data")
        place$.data <- plain$data
    }
    made$drop.unused.levels <- TRUE
    frame <- plainFrame(tryCatch(eval(made, place), error = function(problem) {
        stop(conditionMessage(problem), call. = FALSE)
    }))
    attr(attr(frame, "terms"), "predvars") <- ofNewRows(attr(frame, "terms"), bars, plain)
    frame
}

# A model frame whose columns are of R's basic types.
plainFrame <- function(frame) {
    described <- attr(frame, "terms")
    frame[] <- Map(plainVector, frame, names(frame))
    attr(described, "dataClasses") <- vapply(frame, stats::.MFclass, "")
    attr(frame, "terms") <- described
    frame
}

# The dot of a formula is all columns of the data that are neither the response nor groups.
withoutDot <- function(formula, bars, data) {
    if (!"." %in% all.vars(formula[[3]])) {
        return(formula)
    }
    groups <- unlist(lapply(bars, function(bar) all.vars(bar$by)))
    if (is.list(data)) {
        data <- as.data.frame(data, optional = TRUE)[setdiff(names(data), groups)]
    }
    expanded <- stats::formula(terms(formula, data = data))
    environment(expanded) <- environment(formula)
    expanded
}

# The terms of a part of a formula, with what the frame of the whole has learned about its
# variables: makepredictcall()'s calls, which keep the bases of poly(), ns() and scale().
partOf <- function(formula, frame) {
    found <- terms(formula)
    whole <- attr(frame, "terms")
    names <- vapply(as.list(attr(found, "variables"))[-1], codeOf, "")
    known <- vapply(as.list(attr(whole, "variables"))[-1], codeOf, "")
    attr(found, "predvars") <- attr(whole, "predvars")[c(1, 1 + match(names, known))]
    attr(found, "dataClasses") <- attr(whole, "dataClasses")[names]
    found
}

# A model matrix, and what makes it from new rows.
designOf <- function(described, frame, contrasts = NULL) {
    names <- rownames(attr(described, "factors"))
    needLevels(frame[intersect(names, names(frame))])
    matrix <- if (stats::is.empty.model(described)) {
        matrix(0, nrow(frame), 0)
    } else {
        model.matrix(described, frame, contrasts)
    }
    finite <- apply(matrix, 2, function(values) all(is.finite(values)))
    if (!all(finite)) {
        stop("`formula`: NA, NaN or Inf in ", colnames(matrix)[!finite][[1]], call. = FALSE)
    }
    list(
        terms = stats::delete.response(described), matrix = matrix, names = colnames(matrix),
        levels = stats::.getXlevels(described, frame), contrasts = attr(matrix, "contrasts"),
        units = unitsOf(frame[intersect(names, names(frame))]),
        times = Filter(Negate(is.null), lapply(frame[intersect(names, names(frame))], timeOf))
    )
}

# A factor with one level is refused by name.
needLevels <- function(columns) {
    single <- vapply(columns, function(values) {
        (is.factor(values) || is.character(values)) && length(unique(values)) < 2
    }, NA)
    if (any(single)) {
        stop("`formula`: ", names(columns)[single][[1]], " has one level: a factor needs two or more", call. = FALSE)
    }
}

# The units of differences of times, by variable.
unitsOf <- function(columns) lapply(Filter(function(values) inherits(values, "difftime"), columns), units)

# Dates count days and times seconds, which R's own check of classes does not tell apart.
timeOf <- function(values) Find(function(kind) inherits(values, kind), c("Date", "POSIXt", "difftime"))

# The designs of bars, and the groups of their factors.
effectsOf <- function(bars, frame, environment) {
    lapply(bars, function(bar) {
        described <- partOf(stats::as.formula(call("~", bar$terms), environment), frame)
        c(designOf(described, frame), list(by = nameOf(bar$by)))
    })
}

nameOf <- function(by) paste(vapply(variablesOf(by), codeOf, ""), collapse = ":")

# The model matrix of new rows; rows with missing values have them there too.
matrixOf <- function(design, data) {
    frame <- plainFrame(model.frame(
        design$terms, data,
        xlev = design$levels, na.action = stats::na.pass
    ))
    if (nrow(frame) != nrow(data)) {
        stop(
            "`newdata` has ", nrow(data), " rows, and ", names(frame)[[1]], " ", nrow(frame),
            " entries: it must be made of columns of `newdata`",
            call. = FALSE
        )
    }
    stats::.checkMFClasses(attr(design$terms, "dataClasses"), frame)
    for (name in names(design$times)) {
        if (!inherits(frame[[name]], design$times[[name]])) {
            stop(
                "`", name, "` was fitted as ", design$times[[name]], ", and in `newdata` it is of class ",
                class(frame[[name]])[[1]],
                call. = FALSE
            )
        }
    }
    for (name in names(design$units)) {
        if (inherits(frame[[name]], "difftime")) units(frame[[name]]) <- design$units[[name]]
    }
    if (stats::is.empty.model(design$terms)) {
        return(matrix(0, nrow(data), 0))
    }
    model.matrix(design$terms, frame, contrasts.arg = design$contrasts)
}

# The offset of new rows: that of the formula, and that of the call.
offsetOf <- function(object, data) {
    described <- stats::delete.response(object$terms)
    places <- attr(described, "offset")
    terms <- as.list(attr(described, "variables"))[-1][places]
    found <- lapply(c(terms, object$call$offset), function(term) {
        values <- as.numeric(plainVector(eval(term, data, environment(object$terms)), codeOf(term)))
        if (length(values) != nrow(data)) {
            stop(
                "`newdata` has ", nrow(data), " rows, and the offset ", codeOf(term), " ", length(values),
                " entries: it must be made of columns of `newdata`",
                call. = FALSE
            )
        }
        values
    })
    if (length(found) > 0) Reduce(`+`, found)
}

# New rows in the form that the Python half takes: `sent`, and which rows are `complete`; the
# others have missing values.
newRows <- function(object, newdata, trials = NULL, needTrials = FALSE) {
    if (!is.list(newdata) && !is.matrix(newdata)) {
        stop("`newdata` must be a data frame: it is of class ", class(newdata)[[1]], call. = FALSE)
    }
    if (!is.data.frame(newdata)) {
        newdata <- as.data.frame(newdata, optional = TRUE)
    }
    read <- unlist(lapply(list(attr(object$model, "terms"), object$call$offset, object$call$weights), all.vars))
    plain <- plainVariables(newdata, read, environment(object$terms), object$labels)
    newdata <- plain$data
    environment <- environment(object$terms) <- plain$environment
    fixed <- object$design
    fixed$terms <- stats::delete.response(object$terms)
    matrices <- lapply(c(list(fixed), object$bars$designs), function(one) {
        environment(one$terms) <- environment
        matrixOf(one, newdata)
    })
    codes <- lapply(object$bars$groups, function(groups) {
        groups$variables <- groups$ofNewRows
        codesOf(groups, valuesOf, newdata, environment)
    })
    offset <- offsetOf(object, newdata)
    missing <- Reduce(`|`, lapply(matrices, function(values) rowSums(is.na(values)) > 0))
    if (!is.null(offset)) {
        missing <- missing | is.na(offset)
    }
    trials <- if (needTrials && !is.null(object$trials)) trialsOf(object, newdata, trials)
    missing <- missing | is.na(if (is.null(trials)) 0 else trials)
    sent <- sentColumns(
        lapply(matrices, function(values) values[!missing, , drop = FALSE]),
        lapply(codes, function(values) values[!missing]), offset[!missing]
    )
    sent$trials <- if (!is.null(trials)) asArray(pmax(trials[!missing], 1))
    list(sent = sent, complete = !unname(missing), none = which(trials == 0))
}

# The rows of a regression; none where Python has these.
ownRows <- function(object, needTrials) {
    if (!object$halves) {
        return(list(sent = NULL, complete = TRUE, none = if (needTrials) which(object$trials == 0)))
    }
    if (needTrials) {
        trialsOf(object)
    }
    matrices <- lapply(c(list(object$design), object$bars$designs), function(one) one$matrix)
    codes <- lapply(object$bars$groups, codesOf, inFrame, object$model)
    list(sent = sentColumns(matrices, codes, object$offset), complete = TRUE)
}

# The numbers of trials of new rows: those that are given, those of cbind(successes, failures),
# or the weights of proportions.
trialsOf <- function(object, data = NULL, trials = NULL) {
    if (object$halves) {
        stop("`type`: numbers of trials that are not whole have no draws of responses", call. = FALSE)
    }
    if (is.null(trials)) {
        left <- object$formula[[2]]
        counts <- isCallOf(left, "cbind") || is.matrix(stats::model.response(object$model))
        wanted <- if (counts) left else object$call$weights
        environment <- environment(object$terms)
        trials <- tryCatch(eval(wanted, data, environment), error = function(problem) {
            stop(
                "`trials`: draws of the response take the number of trials of each row, and ",
                codeOf(wanted), " cannot be evaluated in `newdata`: ", conditionMessage(problem),
                call. = FALSE
            )
        })
        trials <- if (counts) rowSums(trials) else trials
        # One number of the environment is not that of each new row.
        if (length(trials) != nrow(data) || length(trials) == 1 && !any(all.vars(wanted) %in% names(data))) {
            stop(
                "`trials`: draws of the response take the number of trials of each row, and ", codeOf(wanted),
                " is not made of columns of `newdata`",
                call. = FALSE
            )
        }
    }
    trials <- as.numeric(plainVector(trials, "trials"))
    if (!length(trials) %in% c(1L, nrow(data)) || any(trials < 0 | trials != round(trials), na.rm = TRUE)) {
        stop("`trials` must be an integer, 0 or more, for each row of `newdata`", call. = FALSE)
    }
    rep_len(trials, nrow(data))
}

# Predictions of complete rows, as those of all rows along a dimension; NA for the others.
allRows <- function(values, complete, along) {
    if (all(complete)) {
        return(values)
    }
    shape <- if (is.null(dim(values))) length(values) else dim(values)
    labels <- dimnames(values)
    if (!is.null(labels)) {
        labels[along] <- list(NULL)
    }
    shape[[along]] <- length(complete)
    found <- array(values[NA_integer_], shape)
    if (along == 1) {
        found <- array(found, c(shape[[1]], prod(shape[-1])))
        found[complete, ] <- values
    } else {
        found <- array(found, c(shape[1:2], prod(shape[-(1:2)])))
        found[, complete, ] <- values
    }
    array(found, shape, labels)
}

# The columns of a model under neutral names: those of the fixed terms, of the effects of each
# bar, the codes of groups, and the offset. Names of R's stay in R.
sentColumns <- function(matrices, codes, offset) {
    found <- list()
    for (place in seq_along(matrices)) {
        values <- matrices[[place]]
        kept <- which(colnames(values) != "(Intercept)")
        if (length(kept) > 0) {
            names <- codesOfColumns(place, kept)
            found$matrices[[length(found$matrices) + 1]] <- list(
                names = as.list(names), values = array(as.numeric(values[, kept]), c(nrow(values), length(kept)))
            )
        }
    }
    found$groups <- stats::setNames(lapply(codes, asArray), codesOfGroups(length(codes)))
    found$rows <- nrow(matrices[[1]])
    if (!is.null(offset)) {
        found$offset <- asArray(as.numeric(offset))
    }
    found
}

codesOfColumns <- function(place, numbers) {
    start <- if (place == 1) "x_" else paste0("z_", place - 1, "_")
    paste0(start, numbers, "_", recycle0 = TRUE)
}

codesOfGroups <- function(count) paste0("g_", seq_len(count), "_", recycle0 = TRUE)

# R's names of the columns and the factors, by those in Python.
namesInR <- function(design, bars) {
    found <- c(Intercept = "(Intercept)")
    designs <- c(list(design), bars$designs)
    for (place in seq_along(designs)) {
        names <- designs[[place]]$names
        kept <- which(names != "(Intercept)")
        found[codesOfColumns(place, kept)] <- names[kept]
    }
    found[codesOfGroups(length(bars$groups))] <- names(bars$groups)
    found
}

# The formula of these columns.
textOf <- function(design, bars, trials, offset) {
    ofTerms <- function(names, place) {
        others <- codesOfColumns(place, which(names != "(Intercept)"))
        paste(c(if ("(Intercept)" %in% names) "1" else "0", others), collapse = " + ")
    }
    effects <- vapply(seq_along(bars$designs), function(number) {
        one <- bars$designs[[number]]
        by <- codesOfGroups(length(bars$groups))[[match(one$by, names(bars$groups))]]
        paste0("(", ofTerms(one$names, number + 1), " | ", by, ")")
    }, "")
    terms <- c(ofTerms(design$names, 1), effects, if (offset) "offset(offset_)")
    paste(if (trials) "y | trials(trials_)" else "y", "~", paste(terms, collapse = " + "))
}
