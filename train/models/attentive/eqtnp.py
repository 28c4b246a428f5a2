"""EQTNP: the transformer neural process with efficient queries.

Feng et al. 2023 (LBANP), section 3.1 and appendix A.1: query layer k attends to the k-th encoding
of the context, the first of which is the embedded points. So 6 query layers go with 5 encoder
layers, as in the authors' code; the paper's size has 492,354 parameters for one input and output.
"""

from __future__ import annotations

from typing import ClassVar

from edgefold.train.models.attentive.context_encoder import ContextEncoder, ContextEncoderConfig
from edgefold.train.published import Published, as_published


class Eqtnp(ContextEncoder):
    """`n_layers` query layers and one encoder layer less."""

    name = "eqtnp"
    published: ClassVar[Published] = as_published({"EQTNP": (1.32, 0.92)})

    def __init__(self, config: ContextEncoderConfig):
        super().__init__(config, config.n_layers - 1, config.n_layers, own_context_norm=True)
