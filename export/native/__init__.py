"""From a bundle to plain C: one source file, one header and one file of constants."""
