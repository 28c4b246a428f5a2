"""Hold the models of event times and marks: Poisson, Hawkes, THP and CMHP."""
