"""Make C99 of rules: scalar code of fixed memory that is written once, as typed Python."""
