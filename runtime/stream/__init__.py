"""The stream: points go in, predictions come out, and one state is kept in fixed buffers."""
