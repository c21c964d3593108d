# Codes of factors in the tensors that a model gets. They count from 1, as R does, and so do the
# indices of x[i]; TensorFlow's functions of indices count from 0, and refuse them.

markCodes <- function(x, label) {
    if (isTensor(x) && !isCodes(x)) {
        class(x) <- c("sgmcmcCodes", class(x))
        attr(x, "label") <- label
    }
    x
}

isCodes <- function(x) inherits(x, "sgmcmcCodes")

# The entries of a list that are factors, marked.
markFactors <- function(values, factors, label) {
    for (name in intersect(names(values), factors)) {
        values[[name]] <- markCodes(values[[name]], paste0(label, "$", name))
    }
    values
}

# Functions whose arguments are indices from 0, and what to write in place of a call of them.
ofIndices <- c(
    one_hot = "tf$one_hot(%s - 1L, K)", gather = "params$mu[%s]", gather_nd = "params$mu[%s]",
    batch_gather = "params$mu[%s]", "nn embedding_lookup" = "params$mu[%s, ]",
    scatter_nd = "%s - 1L", tensor_scatter_nd_add = "%s - 1L", tensor_scatter_nd_update = "%s - 1L",
    segment_sum = "%s - 1L", segment_mean = "%s - 1L", segment_max = "%s - 1L", segment_min = "%s - 1L",
    segment_prod = "%s - 1L", unsorted_segment_sum = "%s - 1L", unsorted_segment_mean = "%s - 1L",
    unsorted_segment_max = "%s - 1L", unsorted_segment_min = "%s - 1L", unsorted_segment_prod = "%s - 1L",
    bincount = "%s - 1L", "nn sparse_softmax_cross_entropy_with_logits" = "%s - 1L", sequence_mask = "%s - 1L",
    "keras ops one_hot" = "tf$one_hot(%s - 1L, K)", "keras backend one_hot" = "tf$one_hot(%s - 1L, K)"
)

# Functions whose values are codes if their arguments are.
keepCodes <- c(
    "cast", "to_int32", "to_int64", "to_float", "to_double", "identity", "reshape", "squeeze", "expand_dims",
    "stop_gradient", "tile", "repeat", "reverse", "transpose", "convert_to_tensor", "boolean_mask", "slice",
    "concat", "stack", "broadcast_to", "ensure_shape"
)

# A function of TensorFlow's that minds whether its arguments are codes of factors.
mindingCodes <- function(f, path, name) {
    whole <- sub("^ ", "", paste(gsub(".", " ", path, fixed = TRUE), name))
    instead <- ofIndices[intersect(c(whole, sub("^math ", "", whole)), names(ofIndices))]
    keeps <- path == "" && name %in% keepCodes
    if (length(instead) == 0 && !keeps || !is.function(f)) {
        return(f)
    }
    function(...) {
        codes <- Find(isCodes, unlist(lapply(list(...), function(x) {
            if (is.list(x) && !isTensor(x)) x else list(x)
        }), recursive = FALSE))
        if (is.null(codes)) {
            return(f(...))
        }
        label <- attr(codes, "label")
        if (keeps) {
            return(markCodes(f(...), label))
        }
        stop(
            "`", label, "` is a factor, whose codes count from 1, and tf$", gsub(" ", "$", whole),
            " counts from 0: write ", sprintf(instead[[1]], label),
            call. = FALSE
        )
    }
}
