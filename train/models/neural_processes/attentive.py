"""Define CANP and ANP, which keep the points of a context; targets attend to the points.

The two encoders are called path 1 and path 2 (`attentive_layers`). Points are kept, because
self-attention mixes them: the state is a buffer of fixed capacity. An update costs the same at any
N and computes only what belongs to its point. `refresh` does the rest: the self-attention of both
encoders over all points, O(N^2) in time, and its layers, O(N). A query of M targets costs O(M N),
and decodes each target once for each sample of a latent.

The form for a device does as little as possible:

    update    embeds a point three times and keeps the rows: of path 1, of path 2, of x only
    refresh   self-attention of both paths (`buffer_attention`), keys and values of targets, and
              what path 2 adds to the decoder's first layer
    query     attention of targets, decoder

The first layers of the three embeddings are one matrix. Linear layers that follow each other are
one: the last of x's embedding and those of keys and queries, and the last of path 2 and the
decoder's first. Queries, keys and values of self-attention are not kept as in training: they are
cheap compared with the attention, and a point's row of three vectors instead of seven is a smaller
state and a faster update.

Letters of shapes: B streams, N points, M targets, S samples, X inputs, Y outputs, H heads, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from edgefold.train.contract import (
    SEED,
    Cache,
    Prediction,
    State,
    StreamingModel,
)
from edgefold.train.layers.device_layers import Affine, composed, exact, linear_layers, rounded
from edgefold.train.models.device_form import DeviceForm
from edgefold.train.models.neural_processes.attentive_layers import (
    N_KEPT,
    ROWS,
    AttentiveEncoders,
    CanpConfig,
    EmbeddingsOnDevice,
    ResidualAttentionOnDevice,
    filled,
)
from edgefold.train.models.neural_processes.kept_process import KeptProcess
from edgefold.train.models.neural_processes.neural_process import Context
from edgefold.train.models.neural_processes.np_layers import (
    LatentOnDevice,
    ProcessDecoderOnDevice,
    squares,
    with_seed,
)
from edgefold.train.states.point_buffer import PointBuffer


@dataclass(frozen=True, slots=True)
class SampledConfig(CanpConfig):
    """Holds the sizes of an ANP, or of a BANP, how many points it keeps, and its samples.

    `n_samples` is the number of samples of the latent, or of bootstraps, in a prediction; the
    papers evaluate with 50. `n_train_samples` is their number in training.
    """

    n_samples: int = 50
    n_train_samples: int = 4


class AttentiveProcess(KeptProcess):
    """Predicts targets that attend to the points of the context; a base class.

    The rows of a point are 7 (`N_KEPT`). Cache: `keys`, `values` and `log_weight`, to which targets
    attend; `hidden` (B, S, D), what the pooled encodings add to the decoder's first layer.
    """

    encoders: AttentiveEncoders

    def __init__(self, config: CanpConfig):
        width = config.width
        n_pooled = 2 * width if self.sampling == "latent" else width
        super().__init__(config, AttentiveEncoders(config, n_pooled), (N_KEPT, width))

    def context_of(self, state: State) -> Context:
        return filled(state["points"], self.buffer.visible(state))

    def read(self, context: Context, second: Tensor) -> Cache:
        hidden = self.decoder.part(second, self.config.width)
        return {**self.encoders.found(*context), "hidden": hidden}

    def rows_at(self, cache: Cache, x: Tensor) -> Tensor:
        return self.decoder.part(self.encoders.at(cache, x)) + self.decoder.inputs(x)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return AttentiveOnDevice(self, n_streams)


class AttentiveOnDevice(DeviceForm):
    """Runs a CANP or an ANP on a device, for a fixed number of streams.

    State, per stream: the rows of points named in `ROWS`, each (B, slots, D), and their `count`,
    with samples also `seed`. Cache: `keys` (B, H, D/H + 1, slots) and `values` (B, H, slots, D/H);
    `hidden` (B, 1, D), or (B, 1, S, D) with a latent, what the pooled encoding of the context adds
    to the decoder's first layer.
    """

    of_latent: Tensor
    bootstrapped: Tensor
    of_found: Tensor

    @torch.no_grad()
    def __init__(self, model: AttentiveProcess, n_streams: int):
        super().__init__(model, n_streams)
        self.sampling, width = model.sampling, model.config.width
        rows = dict.fromkeys(ROWS, (width,)) | model.raw_rows()
        self.buffer = PointBuffer(model.capacity, model.when_full, rows)
        self.rings, self.n_slots = self.buffer.rings, self.capacity + self.buffer.is_reservoir
        encoders, decoder = model.encoders, model.decoder
        of_inputs, last = linear_layers(encoders.of_inputs)
        paths = encoders.cross_path, encoders.pooled_path
        self.embeddings = EmbeddingsOnDevice(paths, of_inputs, model.n_outputs)
        self.of_inputs = Affine(of_inputs)
        self.cross = ResidualAttentionOnDevice(encoders.cross, n_streams, last)
        # Self-attention encodes bootstraps as streams side by side.
        n_contexts = n_streams * (1 if decoder.bootstrapped is None else 1 + self.config.n_samples)
        layers = (ResidualAttentionOnDevice(path.attention, n_contexts) for path in paths)
        self.paths = cast("list[ResidualAttentionOnDevice]", nn.ModuleList(layers))
        first, last = linear_layers(encoders.after)
        self.after = Affine(first)
        weight, bias = exact(decoder.first)
        of_second = weight[width : 2 * width]
        if self.sampling == "latent":
            self.register_buffer("of_latent", rounded(of_second, torch.float32))
            self.latent = LatentOnDevice(last, model.noise)
        else:
            self.of_pooled = Affine(composed(last, (of_second, bias * 0)))
        if decoder.bootstrapped is not None:
            of_found, of_second = decoder.bootstrapped.weight.double().chunk(2)
            self.of_bootstrap = Affine(composed(last, (of_second, bias * 0)))
            self.register_buffer("bootstrapped", rounded(of_found, torch.float32))
        self.inputs = Affine((weight[2 * width :], bias))
        self.register_buffer("of_found", rounded(weight[:width], torch.float32))
        self.decoder = ProcessDecoderOnDevice(decoder, model.n_outputs)

    def initial_state(self, n_streams: int = 1) -> State:
        state = self.buffer.initial_state(n_streams)
        return state if self.sampling == "none" else with_seed(state, n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        points = torch.cat([x, y], -1)
        rows = {**dict(zip(ROWS, self.embeddings(points), strict=True)), "raw": points}
        rows_of_point = {name: rows[name] for name in self.buffer.rows}
        return self.buffer.written(state, rows_of_point, squares(x, y).sum(1))

    def refresh(self, state: State) -> Cache:
        slots = self.cross.kernel.slots(self.buffer.visible(state))
        of_cross, of_pooled, of_x = (slots.filled(state[name]) for name in ROWS)
        values = self.cross.kernel.values(self.paths[0].among(of_cross, slots), slots)
        keys = self.cross.kernel.keys(of_x, slots)
        pooled = self.pooled(self.paths[1].among(of_pooled, slots), slots.real)
        if self.sampling == "latent":
            hidden = self.latent(pooled, state[SEED]) @ self.of_latent
        else:
            hidden = self.of_pooled(pooled)
        return {
            "keys": keys.contiguous(),
            "values": values.contiguous(),
            "hidden": hidden[:, None],
        }

    def pooled(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Average the rows of each context and apply a linear layer with ReLU: (contexts, D).

        Args:
            rows: Rows of all points of all contexts, (contexts*slots, D).
            weight: Number of times that each row counts, as contexts*slots numbers in any shape.
        """
        weight = weight.reshape(-1, 1, self.n_slots)
        total = (weight @ rows.view(len(weight), self.n_slots, -1))[:, 0]
        return torch.relu(self.after(total / weight.sum(-1).clamp(min=1.0)))

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        rows = x.flatten(0, 1)
        attended = self.cross(torch.relu(self.of_inputs(rows)), cache["keys"], cache["values"])
        hidden = torch.addmm(self.inputs(rows), attended, self.of_found).unflatten(0, x.shape[:2])
        if self.sampling == "latent":
            hidden = hidden[:, :, None]
        return self.decoder.answer(hidden + cache["hidden"])
