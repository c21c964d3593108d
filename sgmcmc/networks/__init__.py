"""Networks: trained, sampled as chains, and judged by rows that were held out."""
