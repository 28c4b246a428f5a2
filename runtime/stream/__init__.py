"""Run a bundle as a stream: take points, give predictions, and keep the state in fixed buffers."""
