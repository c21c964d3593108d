# More of Python's words in R's: calls, and positions.

# What Python writes as attributes and methods of samples are functions here.
callsOfR <- function(text) {
    for (name in names(calls)) {
        text <- gsub(name, calls[[name]], text, fixed = TRUE)
    }
    gsub("\\b([A-Za-z]+)=(?=[0-9A-Za-z'\"])", "\\1 = ", text, perl = TRUE)
}

calls <- c(
    "print(samples.report)" = "report(chain)", "samples.report" = "report(chain)",
    "samples.predict" = "predict", "samples.logLik()" = "pointwiseLogLik(chain)",
    "`samples[...]`" = "`chain[i, ]`", "`samples`" = "`chain`",
    "Samples.load reads files" = "readSamples(path) reads files",
    "Samples.open reads a store" = "openSamples(path) reads a store",
    "integers=['g']" = "integers = 'g'", "tf.constant(g, tf.int32)" = "a factor",
    "sample()" = "sgmcmcSample()", "setup()" = "sgmcmcSetup()"
)

# Positions counted from 0, as in theta[0, 1], params[2] and "at index (3, 0)", counted from 1.
positionsFrom1 <- function(text) {
    text <- fromOne(text, "(?<![A-Za-z0-9_.])[A-Za-z_.][A-Za-z0-9_.]*\\[[0-9]+(, ?[0-9]+)*\\]", ",", "(?<=\\[|,)[0-9]+")
    text <- gsub("\\bparams\\[([0-9]+)\\](\\['([A-Za-z0-9_.]+)'\\])", "params[[\\1]]$\\3", text)
    text <- gsub("\\bparams\\[([0-9]+)\\]", "params[[\\1]]", text)
    text <- fromOne(text, "(?<=\\brow )[0-9]+\\b", "", "[0-9]+")
    fromOne(text, "(?<=index )\\([0-9]+(, [0-9]+)*,?\\)", ", ", "[0-9]+")
}

# Within each match of a pattern, add 1 to the numbers.
fromOne <- function(text, pattern, separator, number) {
    places <- gregexpr(pattern, text, perl = TRUE)
    regmatches(text, places) <- lapply(regmatches(text, places), function(found) {
        vapply(found, function(one) {
            if (startsWith(one, "indices[")) {
                return(one) # TensorFlow's own words
            }
            one <- sub(",)", ")", gsub(", ", separator, one, fixed = TRUE), fixed = TRUE)
            within <- gregexpr(number, one, perl = TRUE)
            regmatches(one, within) <- lapply(regmatches(one, within), function(digits) {
                format(as.numeric(digits) + 1, scientific = FALSE, trim = TRUE)
            })
            one
        }, "", USE.NAMES = FALSE)
    })
    text
}
