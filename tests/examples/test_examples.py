"""Every example against another form of the same model, in PyTorch or numpy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from edgefold.runtime.errors import ModelError
from edgefold.runtime.series.features import scaling, series_points
from edgefold.runtime.series.forecasters import LeastSquares
from edgefold.runtime.series.series_file import read_series
from edgefold.runtime.series.spec import SeriesSpec
from edgefold.train.contract import State, StreamingModel, advance
from edgefold.train.load import parse_settings
from edgefold.train.models.registry import create_model

ROOT = Path(__file__).parents[2]
N = 150  # points: more than the receptive field and the rings of the tests


def example(name: str, *settings: str) -> Any:
    torch.manual_seed(0)
    file, _, model = name.partition(":")
    return create_model(f"{ROOT}/examples/{file}.py:{model}", parse_settings(settings))


def draw(model: StreamingModel, n: int = N) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, n, model.n_inputs, generator=generator)
    return x, torch.randn(2, n, model.n_outputs, generator=generator)


def fold(model: StreamingModel, x: Tensor, y: Tensor) -> State:
    with torch.inference_mode():
        return model.condition(model.initial_state(len(x)), x, y)


@pytest.mark.parametrize("name", ["gru:Gru", "lstm:Lstm", "tcn:Tcn"])
def test_updates_equal_pytorchs_own_layers_over_the_whole_sequence(name: str) -> None:
    model = example(name)
    x, y = draw(model)
    targets = torch.linspace(-2, 2, 5).reshape(1, 5, 1).expand(2, 5, 1)
    with torch.inference_mode():
        whole = model(x, y, targets)
        folded = model.query(fold(model, x, y), targets)
    for tensor in ("mean", "std"):  # sums of 64 to 192 products in another order
        torch.testing.assert_close(folded[tensor], whole[tensor], rtol=0, atol=1e-6)


def test_the_tcn_sees_63_points_and_no_more() -> None:
    model = example("tcn:Tcn")
    x, y = draw(model)
    last = fold(model, x, y)["last"]
    y[:, N - 64] += 1
    assert torch.equal(fold(model, x, y)["last"], last)
    y[:, N - 63] += 1
    assert not torch.equal(fold(model, x, y)["last"], last)


@pytest.mark.long
def test_the_state_space_model_equals_a_sum_over_the_past_in_complex_numbers() -> None:
    """Orvieto et al., equation 4: modes_t = sum over j of lambda^(t - j) gamma B u_j."""
    model = example("ssm:Ssm").double()
    x, y = (t.double() for t in draw(model))
    with torch.inference_mode():
        hidden = model.embed(torch.cat([x, y], -1))  # (B, N, D)
        elapsed = torch.arange(N)[:, None] - torch.arange(N)  # t - j
        for k in range(len(model.norms)):
            decay = torch.exp(-torch.exp(model.log_decay[k]))
            power = torch.polar(decay, torch.exp(model.log_angle[k])) ** elapsed.clamp(0)[..., None]
            power = power * (elapsed >= 0)[..., None]  # (N, N, modes)
            read = model.norms[k](hidden)
            real, imaginary = (read @ model.into[k]).chunk(2, -1)
            driven = torch.complex(real, imaginary) * torch.sqrt(1 - decay**2)
            modes = torch.einsum("tjn,bjn->btn", power, driven)
            out_real, out_imaginary = model.out[k].chunk(2, 0)
            seen = modes.real @ out_real + modes.imag @ out_imaginary + read * model.skip[k]
            hidden = hidden + F.glu(model.gates[k](F.gelu(seen)), -1)
        folded = fold(model, x, y)
    torch.testing.assert_close(folded["last"], hidden[:, -1], rtol=0, atol=1e-12)
    torch.testing.assert_close(folded["modes"][:, -1, 0], modes.real[:, -1], rtol=0, atol=1e-12)


def rotated(vectors: Tensor, turns: Tensor, period: int) -> Tensor:
    """Rotary positions as complex numbers: vectors (B, H, N, E), turns (E / 2) a period."""
    half = vectors.shape[-1] // 2
    angle = torch.arange(vectors.shape[2]).double()[:, None] * turns * 2 * math.pi / period
    turned = torch.complex(vectors[..., :half], vectors[..., half:]) * torch.polar(
        torch.ones_like(angle), angle
    )
    return torch.cat([turned.real, turned.imag], -1)


def test_the_transformer_equals_causal_attention_within_a_window() -> None:
    ring = 32
    model = example("transformer:Transformer", f"ring={ring}").double()
    x, y = (t.double() for t in draw(model))
    period = len(model.cosines)
    turns = torch.acos(model.cosines[1, : model.cosines.shape[1] // 2].double())
    turns = (turns * period / (2 * math.pi)).round()
    behind = torch.arange(N)[:, None] - torch.arange(N)
    visible = (behind >= 0) & (behind <= ring)
    with torch.inference_mode():
        hidden = model.embed(torch.cat([x, y], -1))
        for k in range(2):
            projected = model.reads[k](model.norms[2 * k](hidden))
            query, key, value = (
                t.unflatten(-1, (model.n_heads, -1)).transpose(1, 2) for t in projected.chunk(3, -1)
            )
            attended = F.scaled_dot_product_attention(
                rotated(query, turns, period), rotated(key, turns, period), value, visible
            )
            hidden = hidden + model.outs[k](attended.transpose(1, 2).flatten(2))
            hidden = hidden + model.feeds[k](model.norms[2 * k + 1](hidden))
    # The model's tables are float32.
    torch.testing.assert_close(fold(model, x, y)["last"], hidden[:, -1], rtol=0, atol=1e-6)


def test_the_transformers_positions_are_exact_after_years() -> None:
    """100 points a second for 300 years: float32 positions would be off by thousands of turns."""
    model = example("transformer:Transformer", "ring=16")
    x, y = draw(model, 40)
    start = model.initial_state(2)
    late = {**start, "n_points": start["n_points"] + len(model.cosines) * (1 << 33)}
    with torch.inference_mode():
        for row in range(40):
            start = advance(model, start, model.update(start, x[:, row], y[:, row]))
            late = advance(model, late, model.update(late, x[:, row], y[:, row]))
    # Only the mask differs: late, the empty ring counts as seen. After 16 points it is full.
    torch.testing.assert_close(late["keys_0"], start["keys_0"], rtol=0, atol=0)
    with torch.inference_mode():
        for row in range(40):
            start = advance(model, start, model.update(start, x[:, row], y[:, row]))
            late = advance(model, late, model.update(late, x[:, row], y[:, row]))
    assert torch.equal(late["last"], start["last"])


@pytest.mark.parametrize("n_inputs", [0, 2])
def test_the_kalman_filter_equals_the_textbook_in_float64(n_inputs: int) -> None:
    model = example("kalman:Kalman", f"n_inputs={n_inputs}", "weight_std=0.02")
    x, y = draw(model, 400)
    state, n_hidden = model.initial_state(2), 2 + n_inputs
    mean, covariance = np.zeros(n_hidden), np.eye(n_hidden)
    transition = np.eye(n_hidden)
    transition[0, 1] = 1
    drift = np.diag([0.1, 0.003, *[0.02] * n_inputs]) ** 2
    for row in range(400):
        h = np.array([1, 0, *x[0, row].tolist()])
        variance = h @ covariance @ h + 0.1**2
        with torch.inference_mode():
            told = model.query(state, x[:, row : row + 1])
            state = model.update(state, x[:, row], y[:, row])
        # float32: under the wide prior the first points are small differences of large variances;
        # later the filter forgets rounding errors as it forgets points.
        error = 3e-5 if row < 30 else 3e-6
        assert told["mean"][0, 0, 0].item() == pytest.approx(h @ mean, abs=error)
        assert told["std"][0, 0, 0].item() == pytest.approx(math.sqrt(variance), abs=error)
        gain = covariance @ h / variance
        mean = transition @ (mean + gain * (y[0, row, 0].item() - h @ mean))
        covariance = transition @ (covariance - np.outer(gain, h @ covariance)) @ transition.T
        covariance = covariance + drift


def co2_points() -> tuple[np.ndarray, np.ndarray]:
    """Scaled features and targets of the weekly series, (n, X) and (n, 1), float32."""
    series = read_series(ROOT / "data/co2_weekly.csv")
    spec = SeriesSpec.of_series(series.times, series.values, series.clock)
    points = series_points(spec, series.times, series.values)
    told = scaling(points.x, points.y)
    x = (points.x - np.array(told["x_shift"])) / np.array(told["x_scale"])
    y = (points.y - np.array(told["y_shift"])) / np.array(told["y_scale"])
    return x.astype(np.float32), y.astype(np.float32)


def test_recursive_least_squares_gives_the_baselines_forecasts() -> None:
    x, y = co2_points()
    model = example("rls:Rls", f"n_inputs={x.shape[1]}")
    baseline = LeastSquares(x.shape[1])
    state = model.initial_state()
    worst = 0.0
    with torch.inference_mode():
        for row in range(len(x)):
            here = torch.from_numpy(x[row : row + 1])
            told = model.query(state, here[None])
            mean, std = baseline.predict(x[row].astype(float))
            worst = max(worst, abs(told["mean"].item() - mean), abs(told["std"].item() - std))
            state = model.update(state, here, torch.from_numpy(y[row : row + 1]))
            baseline.update(x[row].astype(float), float(y[row, 0]))
    assert worst < 1e-5


def test_recursive_least_squares_stays_bounded_where_nothing_excites_it() -> None:
    """The textbook's P grows as forget^-n: 1e43 after these updates."""
    model = example("rls:Rls", "n_inputs=3", "forget=0.95", "floor=1e-4")
    x = torch.tensor([[1.0, 0.0, 0.5]])
    state = model.initial_state()
    with torch.inference_mode():
        for _ in range(2000):
            state = model.update(state, x, torch.tensor([[2.0]]))
        told = model.query(state, x[None])
        unseen = model.query(state, torch.tensor([[[0.0, 1.0, 0.0]]]))
    covariance = state["root"] @ state["root"].mT
    assert torch.linalg.matrix_norm(covariance, 2).item() < 1.1 / 1e-4
    assert told["mean"].item() == pytest.approx(2.0, abs=1e-4)
    assert torch.isfinite(unseen["std"]).all()


def test_least_squares_of_parts_give_the_ridge_regression_of_all_points() -> None:
    model = example("rls_information:InformationRls", "n_outputs=2", "n_inputs=4", "ridge=0.5")
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2, 2000, 4, generator=generator)
    y = x @ torch.randn(4, 2, generator=generator) + 0.1 * torch.randn(2, 2000, 2)
    empty, parts = model.initial_state(2), []
    for rows in (slice(100), slice(100, 2000)):
        parts.append(advance(model, empty, fold(model, x[:, rows], y[:, rows])))
    with torch.inference_mode():
        told = model.query(model.refresh(model.merge(*parts)), x[:, :7])
    features = F.pad(x[0], (0, 1), value=1.0).double().numpy()
    answers = y[0].double().numpy()
    gram = features.T @ features + 0.5 * np.eye(5)
    weights = np.linalg.solve(gram, features.T @ answers)
    ridge = 0.5 * (weights**2).sum(0)
    variance = (((answers - features @ weights) ** 2).sum(0) + ridge + 1) / 2001
    widened = 1 + np.einsum("ms,st,mt->m", features[:7], np.linalg.inv(gram), features[:7])
    np.testing.assert_allclose(told["mean"][0], features[:7] @ weights, rtol=0, atol=1e-5)
    # Squared residuals are the small difference of sums that are 200 times as large.
    expected = np.sqrt(widened[:, None] * variance)
    np.testing.assert_allclose(told["std"][0], expected, rtol=1e-4)


def test_least_squares_in_information_form_needs_a_ridge() -> None:
    with pytest.raises(ModelError, match="ridge is 0"):
        example("rls_information:InformationRls", "ridge=0")


def test_the_keyword_spotter_equals_convolutions_and_a_gru_over_the_whole_sequence() -> None:
    model = example("keyword_spotter:KeywordSpotter")
    x, _ = draw(model)
    state, scores = model.initial_state(2), []
    with torch.inference_mode():
        for row in range(N):
            written, told = model.step(state, x[:, row])
            state = advance(model, state, written)
            scores.append(told["scores"])
        # The mean after point t weighs point j by (1 - 1/memory)^(t - j) / memory.
        behind = (torch.arange(N)[:, None] - torch.arange(N)).double()
        weights = torch.where(behind >= 0, (1 - 1 / model.memory) ** behind, 0.0) / model.memory
        hidden = model.embed(x - (weights @ x.double()).float())
        for kernel, mix in zip(model.kernels, model.mixes, strict=True):
            padded = F.pad(hidden.mT, (model.kernel - 1, 0))
            seen = F.conv1d(padded, kernel.mT[:, None], groups=kernel.shape[1]).mT
            hidden = hidden + torch.relu(mix(seen))
        gru = torch.nn.GRU(hidden.shape[-1], hidden.shape[-1], batch_first=True)
        gru.load_state_dict({f"{n}_l0": t for n, t in model.cell.state_dict().items()})
        expected = model.scores(gru(hidden)[0])
    # float32 in another order, through 150 steps of the GRU
    torch.testing.assert_close(torch.stack(scores, 1), expected, rtol=0, atol=2e-6)
