"""Turn a bundle into plain C: one source file, one header and one file of constants."""
