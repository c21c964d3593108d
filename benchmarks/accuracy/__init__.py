"""How long it takes until posterior SDs are right: this package and others on two regressions."""
