# A regression by rstanarm or brms with their defaults, or by lme4 (which is no posterior).
# Rscript with_r.R PACKAGE DATA.csv FORMULA OUT.json

given <- commandArgs(TRUE)
data <- read.csv(given[[2]])
formula <- as.formula(given[[3]])
grouped <- grepl("|", given[[3]], fixed = TRUE)
options(mc.cores = 2)

if (given[[1]] == "rstanarm") {
    suppressMessages(library(rstanarm))
    call <- if (grouped) stan_glmer else stan_glm
    fit <- call(formula, data = data, family = binomial(), seed = 1, refresh = 0)
    draws <- as.array(fit)
} else if (given[[1]] == "brms") {
    suppressMessages(library(brms))
    fit <- brm(formula, data = data, family = bernoulli(), seed = 1, refresh = 0, silent = 2)
    draws <- as.array(fit)
} else {
    suppressMessages(library(lme4))
    fit <- if (grouped) glmer(formula, data, binomial()) else glm(formula, binomial(), data)
    table <- coef(summary(fit))
}
if (given[[1]] != "lme4") {
    known <- dimnames(draws)[[3]]
    names_ <- known[sub("^b_", "", known) %in% c("(Intercept)", "Intercept", paste0("x", 0:19))]
    table <- t(vapply(names_, function(name) {
        values <- draws[, , name]
        c(mean(values), sd(values), posterior::ess_bulk(values))
    }, numeric(3)))
    row.names(table) <- sub("^b_", "", names_)
}
row.names(table) <- sub("(Intercept)", "Intercept", row.names(table), fixed = TRUE)
rows <- vapply(row.names(table), function(name) {
    ess <- if (given[[1]] == "lme4") "null" else table[name, 3]
    sprintf("\"%s\": {\"mean\": %.8g, \"sd\": %.8g, \"ess\": %s}", name, table[name, 1], table[name, 2], ess)
}, "")
writeLines(paste0("{", paste(rows, collapse = ", "), "}"), given[[4]])
