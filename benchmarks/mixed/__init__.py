"""Mixed models of data sets in R: `groups=` against No-U-Turn chains over all parameters."""
