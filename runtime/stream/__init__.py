"""Run a bundle as a stream: points go in, predictions come out, the state has fixed buffers."""
