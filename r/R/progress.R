# Progress, as R's own messages: suppressMessages() silences them and knitr collects them.
# They have the class "sgmcmcProgress".

# What is shown at the moment.
shown <- new.env(parent = emptyenv())

# Called from Python: at most ten times a second, and in the thread that R runs in.
tellProgress <- function(label, done, total, seconds, note, unit, ended) {
    text <- if (redraws()) {
        progressBar(label, done, total, seconds, note, unit, ended)
    } else {
        progressLine(label, done, total, seconds, note, unit, ended)
    }
    if (!is.null(text)) {
        passOn(structure(
            class = c("sgmcmcProgress", "message", "condition"), list(message = text, call = NULL)
        ))
    }
    invisible(NULL)
}

# A handler may fail, or leave the call, as in tryCatch(..., message = ). Out of the middle of
# Python it does not get far: Python takes it for an error. So callPython() gives the message again.
passOn <- function(condition) {
    shown$pending <- condition
    message(condition)
    shown$pending <- NULL
}

# Once Python has returned.
giveAgain <- function() {
    pending <- shown$pending
    shown$pending <- NULL
    if (!is.null(pending)) {
        message(pending)
    }
}

# Whether a line can be drawn over: not in reports, files and pipes.
redraws <- function() {
    !isTRUE(getOption("knitr.in.progress")) && (interactive() || isatty(stderr()))
}

progressBar <- function(label, done, total, seconds, note, unit, ended) {
    part <- if (total > 0) done / total else 0
    full <- round(20 * part)
    left <- if (ended || part == 0) "" else duration(seconds * (1 - part) / part, " left")
    text <- paste0(
        label, " [", strrep("=", full), strrep(" ", 20 - full), "] ", round(100 * part), "% ",
        if (ended) duration(seconds, ""), left, if (nzchar(note)) ", ", note
    )
    width <- getOption("width") - 1
    text <- substr(text, 1, width)
    paste0("\r", text, strrep(" ", width - nchar(text)), if (ended) "\n")
}

# A line, at most one each second and for each tenth of the way, or one in ten seconds.
progressLine <- function(label, done, total, seconds, note, unit, ended) {
    if (!identical(shown$label, label) || seconds < shown$seconds) {
        shown$label <- label
        shown$seconds <- 0
        shown$done <- 0
    }
    since <- seconds - shown$seconds
    further <- done - shown$done
    if (!ended && (done >= total || since < 1 || further < total / 10) && (done >= total || since < 10)) {
        return(NULL)
    }
    shown$seconds <- seconds
    shown$done <- done
    unit <- if (unit == "it") if (total == 1) NULL else " iterations" else paste0(" ", unit)
    amount <- if (is.null(unit)) {
        if (ended) "done" else "..."
    } else {
        paste0(if (ended && done >= total) count(done) else paste(count(done), "of", count(total)), unit)
    }
    paste0(
        label, ": ", amount, " in ", duration(seconds, ""),
        if (nzchar(note)) ", ", note, "\n"
    )
}

count <- function(number) format(number, big.mark = ",", scientific = FALSE)

duration <- function(seconds, what) {
    text <- if (seconds < 99.5) {
        paste(signif(seconds, 2), "s")
    } else if (seconds < 5970) {
        paste(round(seconds / 60), "min")
    } else {
        paste(signif(seconds / 3600, 2), "h")
    }
    paste0(text, what)
}
