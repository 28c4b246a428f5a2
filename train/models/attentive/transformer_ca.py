"""Transformer + Cross Attention: an encoder of the context, and one layer that reads it.

The model that Feng et al. 2024 (Tree Cross Attention) compare ReTreever with. Its cross attention
normalises targets and context by one layer norm, as ReTreever's does. The paper's size has 325,186
parameters for one input and output.
"""

from __future__ import annotations

from typing import ClassVar

from edgefold.train.models.attentive.context_encoder import ContextEncoder, ContextEncoderConfig
from edgefold.train.published import Published, as_published


class TransformerCa(ContextEncoder):
    """`n_layers` encoder layers and one query layer."""

    name = "transformer-ca"
    published: ClassVar[Published] = as_published({"Transformer + CA": (1.35, 0.91)})

    def __init__(self, config: ContextEncoderConfig):
        super().__init__(config, config.n_layers, 1, own_context_norm=False)
