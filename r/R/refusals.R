# Arguments that a function does not know, refused by name.

# For the `...` of a method, which its generic demands. `instead` names what there is, by the name of the argument.
needNoMore <- function(what, ..., instead = character()) {
    if (...length() == 0) {
        return(invisible(NULL))
    }
    names <- names(substitute(list(...)))[-1]
    name <- if (is.null(names)) "" else names[[1]]
    known <- setdiff(names(formals(sys.function(sys.parent()))), "...")
    stop(
        what, if (nzchar(name)) paste0(" has no argument `", name, "`") else " takes no further argument",
        if (name %in% names(instead)) paste0(": ", instead[[name]]),
        if (length(known) > 0) paste0("; it has ", paste0("`", known, "`", collapse = ", ")),
        call. = FALSE
    )
}
