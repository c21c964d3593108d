# Variables of a formula in new rows: what R keeps of poly(), scale() and the like, the break points of cut(),
# and a refusal where the group of a row would depend on other rows.

# The `predvars` of a model frame. `plain` has the data and the environment that it was made from.
ofNewRows <- function(described, bars, plain) {
    found <- attr(described, "predvars")
    variables <- attr(described, "variables")
    groups <- unlist(lapply(bars, function(bar) vapply(variablesOf(bar$by), codeOf, "")))
    for (place in seq_along(variables)[-1]) {
        variable <- variables[[place]]
        if (is.symbol(variable)) {
            next
        }
        if (identical(found[[place]], variable)) {
            found[[place]] <- withBreaks(variable, plain)
        }
        if (codeOf(variable) %in% groups && !ofRowAlone(found[[place]], plain)) {
            found[[place]] <- call("stop", paste0(
                "`", codeOf(variable), "` of a row depends on other rows: for predictions of new rows make it a column ",
                "of `data`, and of `newdata`"
            ), call. = FALSE)
        }
    }
    found
}

predvarOf <- function(variable, described) {
    names <- vapply(as.list(attr(described, "variables"))[-1], codeOf, "")
    attr(described, "predvars")[[1 + match(codeOf(variable), names)]]
}

valueIn <- function(expression, plain) eval(expression, plain$data, plain$environment)

# A call of cut() with the break points and the labels that it has in the data.
withBreaks <- function(variable, plain) {
    if (!codeOf(variable[[1]]) %in% c("cut", "base::cut", "cut.default")) {
        return(variable)
    }
    matched <- match.call(base::cut.default, variable)
    values <- valueIn(matched$x, plain)
    if (!is.numeric(values) || inherits(values, "difftime")) {
        return(variable)
    }
    breaks <- as.double(valueIn(matched$breaks, plain))
    whole <- valueIn(variable, plain)
    if (length(breaks) == 1) {
        ends <- range(values, na.rm = TRUE)
        wide <- diff(ends)
        margin <- (if (wide > 0) wide else if (ends[[1]] != 0) abs(ends[[1]]) else 1) / 1000
        outer <- ends + c(-margin, margin)
        breaks <- seq(if (wide > 0) ends[[1]] else outer[[1]], if (wide > 0) ends[[2]] else outer[[2]], length.out = breaks + 1)
        breaks[c(1, length(breaks))] <- outer
    }
    matched$breaks <- sort(breaks)
    matched$labels <- if (is.factor(whole)) levels(whole) else FALSE
    matched
}

# Whether a variable of a row is a function of that row, as it is in some rows with different values.
ofRowAlone <- function(variable, plain) {
    whole <- as.character(valueIn(variable, plain))
    columns <- list()
    for (name in all.vars(variable)) {
        column <- valueIn(as.name(name), plain)
        if (NROW(column) == length(whole)) columns[[name]] <- column
    }
    first <- utils::head(whole, 10000)
    rows <- utils::head(which(!is.na(first) & !duplicated(first)), 5)
    all(vapply(rows, function(row) {
        of <- lapply(columns, function(column) if (is.null(dim(column))) column[row] else column[row, , drop = FALSE])
        alone <- tryCatch(as.character(eval(variable, of, plain$environment)), error = function(problem) NULL)
        identical(alone, whole[[row]])
    }, NA))
}
