"""Layers that people's models use, and the formulas that replace others, as compiled C."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the models are exported from PyTorch")

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.export.checks.subjects import StreamSubject
from edgefold.export.native.generator import refusal
from edgefold.runtime import Stream
from edgefold.train.contract import State, StreamingModel
from tests.native_builds import Native, stays_with_onnxruntime

LENGTH = 12


class Windowed(StreamingModel):
    """Predicts from a window of the last points, (B, 3, LENGTH), by any features of it, (B, D)."""

    n_inputs, n_outputs = 2, 1

    def __init__(self, features: nn.Module | Callable[[Tensor], Tensor]):
        super().__init__()
        torch.manual_seed(0)
        self.features = features
        with torch.no_grad():
            width = features(torch.zeros(2, 3, LENGTH)).shape[1]
        self.head = nn.Linear(width + self.n_inputs, 2)

    def initial_state(self, n_streams: int = 1) -> State:
        return {"past": torch.zeros(n_streams, 3, LENGTH)}

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        row = torch.cat([x, y], -1)[..., None]
        return {"past": torch.cat([state["past"][..., 1:], row], -1)}

    def refresh(self, state: State) -> State:
        return {"features": self.features(state["past"])}

    def query(self, cache: State, x: Tensor) -> State:
        features = cache["features"][:, None].expand(-1, x.shape[1], -1)
        mean, spread = self.head(torch.cat([features, x], -1)).chunk(2, -1)
        return {"mean": mean, "std": F.softplus(spread) + 1e-3}


class Recurrent(nn.Module):
    """A GRU in both directions, an RNN and an LSTM in both, one behind the other."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(3, 5, 2, batch_first=True, bidirectional=True)
        self.rnn = nn.RNN(10, 6, batch_first=True, nonlinearity="relu")
        self.lstm = nn.LSTM(6, 4, batch_first=True, bidirectional=True)

    def forward(self, past: Tensor) -> Tensor:
        rows, last = self.gru(past.transpose(1, 2))
        rows, _ = self.rnn(rows)
        rows, (_, cell) = self.lstm(rows)
        return torch.cat([rows[:, -1], last[0], cell[1]], -1)


def convolutional() -> nn.Sequential:
    """Convolutions with every kind of normalisation, pooling and activation."""
    net = nn.Sequential(
        *(nn.Conv1d(3, 8, 3, padding=1), nn.BatchNorm1d(8), nn.LeakyReLU(0.1)),
        *(nn.MaxPool1d(3, 2, padding=1), nn.GroupNorm(2, 8), nn.Hardswish()),
        *(nn.Conv1d(8, 6, 3, padding=1), nn.InstanceNorm1d(6, affine=True), nn.PReLU(6)),
        *(nn.AvgPool1d(3, 2, padding=1, count_include_pad=False), nn.SELU(), nn.ELU(0.5)),
        *(nn.Conv1d(6, 4, 1), nn.Hardsigmoid(), nn.CELU(0.7), nn.Mish()),
        *(nn.AvgPool1d(2, ceil_mode=True), nn.Flatten()),
    )
    with torch.no_grad():
        for _ in range(3):
            net(torch.randn(16, 3, LENGTH) * 2 + 1)  # statistics of the batch norm that are not 0
    return net


KINDS: dict[str, Callable[[], nn.Module]] = {"recurrent": Recurrent, "convolutional": convolutional}


def exported(features: nn.Module | Callable[[Tensor], Tensor], bundle: Path) -> Windowed:
    model = Windowed(features).eval()
    config = ExportConfig(chunk=4, targets=2, streams=1, parity_steps=64)
    export_bundle(model, {"name": "untrained"}, bundle, config)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_layers_replay_the_golden_stream_as_c_and_stay_with_onnxruntime(
    kind: str, tmp_path: Path, native: Native
) -> None:
    torch.manual_seed(1)
    bundle = tmp_path / "bundle"
    model = exported(KINDS[kind](), bundle)
    assert refusal(bundle) == ()
    about = model.ordered, model.input_range
    with (
        Stream.open(bundle, "native", engine=native(bundle)) as compiled,  # it passed the replay
        Stream.open(bundle, "onnxruntime") as stream,
    ):
        stays_with_onnxruntime(StreamSubject(compiled, *about), StreamSubject(stream, *about), 300)


def places(x: Tensor) -> Tensor:
    return (x > 0).long() + 2 * (x > 1).long()


MASK = torch.ones(3, 3).tril() > 0
ADVICE: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "Acosh": (
        lambda x: torch.acosh(x.abs() + 1.5),
        lambda x: torch.log(x.abs() + 1.5 + torch.sqrt((x.abs() + 1.5) * (x.abs() + 1.5) - 1)),
    ),
    "Asinh": (
        torch.asinh,
        lambda x: x.sign() * torch.log(x.abs() + torch.sqrt(x * x + 1)),
    ),
    "Atanh": (
        lambda x: torch.atanh(0.5 * torch.tanh(x)),
        lambda x: 0.5 * torch.log((1 + 0.5 * torch.tanh(x)) / (1 - 0.5 * torch.tanh(x))),
    ),
    "AveragePool": (lambda x: F.avg_pool1d(x, 4, 2), lambda x: x.unfold(-1, 4, 2).mean(-1)),
    "Cosh": (torch.cosh, lambda x: (torch.exp(x) + torch.exp(-x)) / 2),
    "Einsum": (
        lambda x: torch.einsum("bct,bdt->bcd", x, x),
        lambda x: torch.matmul(x, x.transpose(1, 2)),
    ),
    "MaxPool": (lambda x: F.max_pool1d(x, 4, 2), lambda x: x.unfold(-1, 4, 2).amax(-1)),
    "Resize": (
        lambda x: F.interpolate(x, scale_factor=2),
        lambda x: x[..., None].expand(*x.shape, 2).flatten(-2),
    ),
    "ScatterElements": (
        lambda x: torch.zeros(*x.shape[:2], 4).scatter_add(-1, places(x), x),
        lambda x: (x[..., None] * F.one_hot(places(x), 4)).sum(-2),
    ),
    "Sinh": (torch.sinh, lambda x: (torch.exp(x) - torch.exp(-x)) / 2),
    "Tan": (torch.tan, lambda x: torch.sin(x) / torch.cos(x)),
    "Trilu": (
        lambda x: torch.tril(x @ x.transpose(1, 2)),
        lambda x: torch.where(MASK, x @ x.transpose(1, 2), 0.0),
    ),
}
"""By operator: what is not covered, and what is advised instead."""


@pytest.mark.parametrize("operator", ADVICE)
def test_advised_formulas_compute_the_same(operator: str) -> None:
    original, advised = ADVICE[operator]
    x = torch.randn(2, 3, LENGTH, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(advised(x), original(x), rtol=1e-4, atol=1e-5)  # tan near its poles


def test_all_advised_formulas_become_c(tmp_path: Path) -> None:
    def features(x: Tensor) -> Tensor:
        all_of_them = [advised(x).flatten(1) for _, advised in ADVICE.values()]
        return torch.tanh(torch.cat(all_of_them, -1))

    exported(features, tmp_path / "bundle")
    assert refusal(tmp_path / "bundle") == ()
