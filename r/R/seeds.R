# R's generator gives the seed of a call that is given none, so that set.seed() makes it
# reproducible. A store that is there already has its seed.
seedOf <- function(seed, store) {
    if (!is.null(seed) || (is.character(store) && file.exists(path.expand(store)))) {
        return(seed)
    }
    sample.int(.Machine$integer.max, 1)
}
