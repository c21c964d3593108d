# sgmcmcGlm, lmer and glmer, on every dataset of lme4 with its own example, or a simpler one.
# `make bench-glmer`, or Rscript benchmarks/from_r/mixed.R [NAME ...]; writes rows of the table in
# docs/in-r.md.

suppressMessages({
    library(lme4)
    library(sgmcmc)
})

cases <- list(
    Arabidopsis = list(total.fruits ~ nutrient + amd + status + (1 | popu) + (1 | gen), poisson()),
    cake = list(angle ~ recipe + temp + (1 | recipe:replicate), gaussian()),
    cbpp = list(cbind(incidence, size - incidence) ~ period + (1 | herd), binomial()),
    Dyestuff = list(Yield ~ 1 + (1 | Batch), gaussian()),
    Dyestuff2 = list(Yield ~ 1 + (1 | Batch), gaussian()),
    grouseticks = list(TICKS ~ YEAR + cHEIGHT + (1 | BROOD) + (1 | LOCATION), poisson()),
    InstEval = list(y ~ service + (1 | s) + (1 | d), gaussian()),
    Pastes = list(strength ~ 1 + (1 | batch / cask), gaussian()),
    Penicillin = list(diameter ~ 1 + (1 | plate) + (1 | sample), gaussian()),
    sleepstudy = list(Reaction ~ Days + (Days | Subject), gaussian()),
    VerbAgg = list(r2 ~ Anger + Gender + btype + situ + (1 | id) + (1 | item), binomial())
)

# Standard deviations and correlations of lme4, by the names that this package has.
variances <- function(fit) {
    table <- as.data.frame(VarCorr(fit))
    table <- table[table$grp != "Residual", ]
    names <- ifelse(
        is.na(table$var2), sprintf("sd(%s: %s)", table$grp, table$var1),
        sprintf("cor(%s: %s, %s)", table$grp, table$var1, table$var2)
    )
    stats::setNames(table$sdcor, names)
}

# (1 | a / b) is b:a to lme4 and a:b here.
turned <- function(names) sub("\\(([^:]+):([^:]+): ", "(\\2:\\1: ", names)

row <- function(name) {
    case <- cases[[name]]
    data <- get(data(list = name, package = "lme4", envir = environment()), envir = environment())
    gaussian <- case[[2]]$family == "gaussian"
    theirSeconds <- system.time(
        reference <- suppressMessages(
            if (gaussian) lmer(case[[1]], data) else glmer(case[[1]], data, case[[2]])
        )
    )[["elapsed"]]
    environment(case[[1]]) <- environment()
    seconds <- system.time(
        fit <- sgmcmcGlm(case[[1]], data, case[[2]], seed = 1, verbose = FALSE, maxSeconds = 900)
    )[["elapsed"]]
    errors <- sqrt(base::diag(as.matrix(stats::vcov(reference))))
    off <- max(abs(fixef(fit) - lme4::fixef(reference)) / errors)
    ratio <- sqrt(base::diag(as.matrix(vcov(fit)))) / errors
    theirs <- variances(reference)
    ours <- VarCorr(fit)
    place <- ifelse(names(theirs) %in% row.names(ours), names(theirs), turned(names(theirs)))
    shown <- sprintf("%.3g ± %.2g / %.3g", ours[place, "estimate"], ours[place, "error"], theirs)
    message(
        name, ": ", round(seconds, 1), " s, lme4 ", round(theirSeconds, 1), " s, warnings: ",
        paste(fit$warnings, collapse = " ")
    )
    sprintf(
        "| %s | `%s` | %d | %.2f | %.2f to %.2f | %s | %s |", name,
        gsub("|", "\\|", paste(deparse(case[[1]], 200), collapse = " "), fixed = TRUE), nobs(fit),
        off, min(ratio), max(ratio), paste(shown, collapse = ", "), length(fit$warnings)
    )
}

head <- c(
    "| data | formula | rows | fixed terms off by, SEs | SE ratios | SDs and correlations, posterior / lme4 | warnings |",
    "| --- | --- | ---: | ---: | --- | --- | ---: |"
)

# Puts rows into the table of the page; rows of other datasets stay.
publish <- function(rows) {
    page <- readLines("docs/in-r.md")
    begin <- which(page == "<!-- glmer: begin -->")
    end <- which(page == "<!-- glmer: end -->")
    there <- page[seq_len(end - begin - 1) + begin]
    known <- stats::setNames(rep("", length(cases)), names(cases))
    for (name in names(cases)) {
        mine <- c(rows[names(rows) == name], there[startsWith(there, paste0("| ", name, " |"))])
        known[[name]] <- if (length(mine) > 0) mine[[1]] else ""
    }
    table <- c(head, known[known != ""])
    writeLines(c(page[seq_len(begin)], "", table, "", page[end:length(page)]), "docs/in-r.md")
}

chosen <- commandArgs(TRUE)
for (name in if (length(chosen) > 0) chosen else names(cases)) {
    publish(stats::setNames(row(name), name))
}
