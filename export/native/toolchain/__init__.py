"""Compilers and machines that generated C is built for."""
