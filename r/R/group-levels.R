# Groups, which are known by the values of their variables, whatever the type: 100000 is one
# group as an integer, as a double, and as the level of a factor that R calls "1e+05".

# The groups of a factor in a frame: the known values of each variable, the combinations that
# there are, first variable first as in R's a:b, and their labels.
groupsOf <- function(by, frame) {
    variables <- variablesOf(by)
    known <- lapply(variables, function(variable) knownValues(frame[[codeOf(variable)]], codeOf(variable)))
    numbers <- Map(function(variable, values) numbersAmong(values, frame[[codeOf(variable)]]), variables, known)
    places <- do.call(order, unname(numbers))
    table <- unique(do.call(cbind, unname(numbers))[places, , drop = FALSE])
    labels <- lapply(seq_along(known), function(part) known[[part]]$labels[table[, part]])
    list(
        variables = variables, known = known, table = table, labels = labelsOfPairs(labels),
        ofNewRows = lapply(variables, predvarOf, attr(frame, "terms"))
    )
}

# Labels of combinations, as R writes those of a:b; parts with a colon are quoted if two
# combinations had the same label.
labelsOfPairs <- function(parts) {
    found <- do.call(paste, c(parts, sep = ":"))
    if (anyDuplicated(found) > 0) {
        quoted <- lapply(parts, function(part) ifelse(grepl("[:'\"]", part), encodeString(part, quote = "'"), part))
        found <- do.call(paste, c(quoted, sep = ":"))
    }
    found
}

# The number of each row's group. New groups have the numbers after those that are known, the
# same for rows of the same new group.
codesOf <- function(groups, find, ...) {
    numbers <- Map(function(variable, known) {
        numbersAmong(known, find(variable, ...))
    }, groups$variables, groups$known)
    # A number for each combination: those of one variable are their own.
    together <- function(parts) if (length(parts) == 1) parts[[1]] else do.call(paste, parts)
    rows <- together(unname(numbers))
    known <- together(lapply(seq_len(ncol(groups$table)), function(part) groups$table[, part]))
    match(rows, c(known, setdiff(rows, known)))
}

# A variable of groups in a model frame, and in new rows.
inFrame <- function(variable, frame) frame[[codeOf(variable)]]

valuesOf <- function(variable, data, environment) {
    values <- eval(variable, data, environment)
    if (length(values) != nrow(data)) {
        stop(
            "`newdata` has ", nrow(data), " rows, and ", codeOf(variable), " ", length(values),
            " entries: it must be a column of `newdata`",
            call. = FALSE
        )
    }
    plainVector(values, codeOf(variable))
}

# The distinct values of a variable: their labels, in R's order, and their keys.
knownValues <- function(values, name) {
    found <- if (is.factor(values)) {
        factor(levels(values)[levels(values) %in% values], levels(values))
    } else if (is.character(values)) {
        sort(unique(values))
    } else {
        values <- unique(values[!is.na(values)])
        values <- values[!duplicated(keysOf(values, name))]
        values[order(values)]
    }
    text <- is.factor(values) || is.character(values)
    keys <- keysOf(found, name)
    keys[keys %in% keys[duplicated(keys)]] <- NA
    list(name = name, text = text, labels = labelsOfValues(found), keys = keys)
}

labelsOfValues <- function(values) {
    if (is.numeric(values) && !inherits(values, "difftime")) inDigits(values) else as.character(values)
}

# The number of each value among those that are known, or a number after these. Text is looked
# up as it is before it is taken for a number.
numbersAmong <- function(known, values) {
    if (!is.factor(values) && anyDuplicated(values) > 0 && !anyNA(values)) {
        distinct <- unique(values)
        return(numbersAmong(known, distinct)[match(values, distinct)])
    }
    if (anyNA(values)) {
        stop("`", known$name, "` is NA in row ", which(is.na(values))[[1]], ": groups cannot be missing", call. = FALSE)
    }
    keys <- keysOf(values, known$name)
    found <- rep(NA_integer_, length(values))
    if (known$text && (is.factor(values) || is.character(values) || is.logical(values))) {
        found <- match(as.character(values), known$labels)
        keys[is.na(found)] <- keysOf(as.character(values[is.na(found)]), known$name)
    }
    found[is.na(found)] <- match(keys[is.na(found)], known$keys, incomparables = NA)
    if (!known$text) {
        found[is.na(found)] <- match(as.character(values[is.na(found)]), known$labels)
    }
    new <- is.na(found)
    found[new] <- length(known$labels) + match(keys[new], unique(keys[new]))
    found
}

# Text that is equal for equal values.
keysOf <- function(values, name) {
    if (is.factor(values)) {
        return(keysOf(levels(values), name)[as.integer(values)])
    }
    if (inherits(values, "POSIXt")) {
        return(paste("time", inDigits(as.numeric(values))))
    }
    if (inherits(values, "difftime")) {
        return(paste("seconds", inDigits(as.numeric(values, units = "secs"))))
    }
    if (inherits(values, "Date")) {
        return(as.character(values))
    }
    if (is.numeric(values) || is.logical(values)) {
        return(inDigits(values))
    }
    if (!is.character(values)) {
        stop("`", name, "` must be a factor, numbers or strings: it is of class ", class(values)[[1]], call. = FALSE)
    }
    values <- enc2utf8(values)
    # What R writes for a number, or for TRUE and FALSE, is that number.
    values[values == "TRUE"] <- "1"
    values[values == "FALSE"] <- "0"
    numbers <- suppressWarnings(as.numeric(values))
    same <- !is.na(numbers) & as.character(numbers) == values
    values[same] <- inDigits(numbers[same])
    values
}

# Numbers as text: whole ones with all of their digits, others as R writes them.
inDigits <- function(values) {
    values <- as.numeric(values) + 0
    whole <- is.finite(values) & values == round(values) & abs(values) < 2^53
    found <- as.character(values)
    found[whole] <- sprintf("%.0f", values[whole])
    found
}
