"""One module per engine. Each has `version()`, `TABLES` (name -> how it is made, once per data set, in an empty folder) and
functions that prepare a measurement, which `benchmarks.cases` lists. An engine's packages are imported by its module alone.
"""
