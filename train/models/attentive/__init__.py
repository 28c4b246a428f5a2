"""Hold transformers that keep points or latents: TNP, LBANP, EQTNP, Perceiver IO, ReTreever."""
