"""What is read from the trained model itself: masses of quanta, and a checkpoint without memory."""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.sensors.sensors_forgetful import HEAD, WEIGHTS, forget
from benchmarks.sensors.sensors_mass import mass_of
from edgefold.train.checkpoints import load_tensors, save_tensors
from edgefold.train.contract import commit
from edgefold.train.models.sensors.features import N_FEATURES
from edgefold.train.models.sensors.model import Sensors, SensorsConfig


def small() -> Sensors:
    torch.manual_seed(0)
    model = Sensors(SensorsConfig(longest=48, values=192)).eval()
    with torch.no_grad():
        for weights in model.network.parameters():
            weights.add_(0.1 * torch.randn_like(weights))
    return model


def test_the_mass_around_a_value_is_that_of_its_density_and_at_most_all() -> None:
    model, generator = small(), torch.Generator().manual_seed(0)
    rows = torch.zeros(80, 1, 4)
    rows[:, :, :2] = torch.stack([torch.randn(80, 1, generator=generator), torch.ones(80, 1)], -1)
    state = model.initial_state(1)
    with torch.no_grad():
        for x in rows:
            masses = [mass_of(model, state, x, torch.tensor([[h]])) for h in (1e-2, 0.5, 1e4)]
            experts = [mass[0, 0].item() for mass in masses]
            narrow, wide, whole = (mass[0, 1].item() for mass in masses)
            written, answer = model.step(state, x)
            state = commit(model.rings, state, written)
    assert 0 < narrow < wide < whole <= 1 + 1e-5  # float32
    assert whole > 0.999
    assert 0 < experts[0] < experts[1] < experts[2] <= 1 + 1e-5
    # The narrowest components are wider than the quantum: the density is even within it.
    assert abs(narrow / 2e-2 - answer["log_density"].exp().item()) < 0.1 * narrow / 2e-2


def test_a_forgetful_checkpoint_forecasts_as_with_an_empty_memory(tmp_path: Path) -> None:
    model = small()
    network = model.network
    save_tensors(tmp_path / WEIGHTS, model.state_dict(), {})
    forget(tmp_path, tmp_path / "out")
    tensors, _ = load_tensors(tmp_path / "out" / WEIGHTS)
    assert not tensors[HEAD][:, len(tensors[HEAD]) :].any()
    width = len(tensors[HEAD])
    encoded, features = torch.randn(3, width), torch.randn(3, N_FEATURES)
    read = torch.randn(3, tensors[HEAD].shape[1] - width)
    with torch.no_grad():
        empty = network.normals(encoded, torch.zeros_like(read), features).packed()
        model.load_state_dict(tensors)
        assert torch.equal(network.normals(encoded, read, features).packed(), empty)
