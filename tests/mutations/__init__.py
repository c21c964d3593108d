"""Small changes of the package that the tests must notice."""
