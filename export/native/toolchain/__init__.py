"""Find compilers, and describe targets and machines for which generated C is built."""
