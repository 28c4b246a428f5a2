"""Run a bundle's steps as C that `edgefold build` compiled for this processor."""
