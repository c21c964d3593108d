# One run of lm, glm or lme4 on a CSV file; prints what it found as JSON.
arguments <- commandArgs(trailingOnly = TRUE)
formula <- as.formula(arguments[2])
rows <- if (requireNamespace("data.table", quietly = TRUE)) {
  as.data.frame(data.table::fread(arguments[1]))
} else {
  read.csv(arguments[1])
}
suppressMessages(library(lme4))
begin <- proc.time()
fit <- if (arguments[3] == "bernoulli") {
  glm(formula, binomial(), rows)
} else if (grepl("|", arguments[2], fixed = TRUE)) {
  lmer(formula, rows)
} else {
  lm(formula, rows)
}
found <- coef(summary(fit))[arguments[4], 1:2]
used <- proc.time() - begin
cat(sprintf(
  '{"seconds": %.2f, "cpu": %.2f, "MB": %.0f, "estimate": %.9g, "error": %.9g}\n',
  used[["elapsed"]], used[["user.self"]] + used[["sys.self"]], sum(gc()[, 6]),
  found[[1]], found[[2]]
))
