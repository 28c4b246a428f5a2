"""Step graphs and the tools that read, fold and rewrite them."""
