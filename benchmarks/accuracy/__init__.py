"""How long it takes until posterior sds are right: this package and others on two regressions."""
