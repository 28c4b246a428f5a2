"""Run a bundle's steps as C code that `edgefold build` compiled for this processor."""
