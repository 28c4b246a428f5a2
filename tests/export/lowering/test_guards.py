"""What models may and may not do: refused with its line, or the same numbers as in PyTorch."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.export.graphs.step_graphs import Sizes
from edgefold.export.lowering.steps import lower
from edgefold.runtime.errors import ExportError
from edgefold.runtime.predictions import Raw
from edgefold.train.contract import State, StreamingModel
from tests.export.lowering.small_models import run_step

SIZES = Sizes(chunk=8, targets=4, streams=1)
N_GLOBAL = [0]

Answer = Any
"""A prediction, which is the next `hidden`, too; or what was written, and a prediction."""


class Probe(StreamingModel):
    """A filter with everything that authors try: its step is a function (self, state, x)."""

    n_inputs, n_outputs = 4, 0
    prediction = Raw({"out": (4,)})

    def __init__(self, compute: Callable[[Any, State, Tensor], Answer]):
        super().__init__()
        self.compute = compute
        self.linear, self.rnn = nn.Linear(4, 4), nn.GRU(4, 4, batch_first=True)
        self.register_buffer("memory", torch.zeros(1, 4))
        self.plain = torch.zeros(1, 4)
        self.position, self.history = 0, list[Tensor]()

    def initial_state(self, n_streams: int = 1) -> State:
        past = torch.linspace(-1, 1, 32).reshape(1, 4, 8).repeat(n_streams, 1, 1)
        hidden = torch.zeros(n_streams, 4)
        return {"past": past, "hidden": hidden, "n": torch.full((n_streams,), 3)}

    def step(self, state: State, x: Tensor) -> tuple[State, State]:
        answer = self.compute(self, state, x)
        written, out = answer if isinstance(answer, tuple) else ({"hidden": answer}, answer)
        return written, {"out": out}


# What an export would get wrong without a word ---------------------------------------------------


def copies_into_a_buffer(model: Any, state: State, x: Tensor) -> Answer:
    model.memory.copy_(torch.tanh(model.linear(x) + model.memory))  # here
    return model.memory * 1.0


def assigns_a_buffer(model: Any, state: State, x: Tensor) -> Answer:
    model.memory = torch.tanh(model.linear(x) + model.memory)  # here
    return model.memory * 1.0


def assigns_a_tensor(model: Any, state: State, x: Tensor) -> Answer:
    model.plain = model.plain + x  # here
    return model.plain * 1.0


def adds_to_a_tensor(model: Any, state: State, x: Tensor) -> Answer:
    model.plain.add_(x)  # here
    return model.plain * 1.0


def writes_a_parameter(model: Any, state: State, x: Tensor) -> Answer:
    model.linear.bias.data += 1  # here
    return model.linear(x)


def counts_in_python(model: Any, state: State, x: Tensor) -> Answer:
    model.position += 1  # here
    return x * model.position


def keeps_a_list(model: Any, state: State, x: Tensor) -> Answer:
    model.history.append(x)
    return x * 1.0


def counts_in_a_global(model: Any, state: State, x: Tensor) -> Answer:
    N_GLOBAL[0] += 1
    return x * N_GLOBAL[0]


def writes_the_state(model: Any, state: State, x: Tensor) -> Answer:
    state["past"][:, :, state["n"]] = x[..., None]  # here
    return state["past"].sum(2)


def writes_the_state_under_another_name(model: Any, state: State, x: Tensor) -> Answer:
    state["hidden"].add_(x)  # here
    return {"past": state["past"] + 1}, x * 2


def writes_its_input(model: Any, state: State, x: Tensor) -> Answer:
    x[:, 0] = 1  # here
    return x * 2


def draws_like(model: Any, state: State, x: Tensor) -> Answer:
    return x + torch.randn_like(x)  # here


def draws_with_a_generator(model: Any, state: State, x: Tensor) -> Answer:
    return x + torch.rand(1, 4, generator=torch.Generator().manual_seed(0))  # here


def samples(model: Any, state: State, x: Tensor) -> Answer:
    return x + torch.distributions.Categorical(logits=x).sample()[..., None]  # type: ignore[no-untyped-call]  # here


def drops_always(model: Any, state: State, x: Tensor) -> Answer:
    return F.dropout(x, 0.5, training=True)  # here


def draws_in_python(model: Any, state: State, x: Tensor) -> Answer:
    return x + random.random()


def draws_in_numpy(model: Any, state: State, x: Tensor) -> Answer:
    return x + float(np.random.default_rng().normal())


# What torch refuses ------------------------------------------------------------------------------


def branches_on_a_tensor(model: Any, state: State, x: Tensor) -> Answer:
    if state["n"][0] < 5:  # here
        return x + 1
    return x - 1


def indexes_with_a_number(model: Any, state: State, x: Tensor) -> Answer:
    slot = int(state["n"][0]) % 8  # here
    return state["past"][:, :, slot] + x


def indexes_with_a_scalar(model: Any, state: State, x: Tensor) -> Answer:
    past = state["past"].clone()
    past[:, :, state["n"][0]] = x  # here
    return {"past": past}, x * 2


def leaves_torch(model: Any, state: State, x: Tensor) -> Answer:
    return x + torch.from_numpy(x.numpy() * 2)  # here


def factors(model: Any, state: State, x: Tensor) -> Answer:
    square = state["past"] @ state["past"].mT + torch.eye(4)
    return x + torch.linalg.cholesky(square)[:, 0]  # here


def solves(model: Any, state: State, x: Tensor) -> Answer:
    lower = torch.eye(4) + state["past"][:, :, :4].tril(-1)
    return torch.linalg.solve_triangular(lower, x[..., None], upper=False)[..., 0]  # here


def takes_lgamma(model: Any, state: State, x: Tensor) -> Answer:
    return torch.lgamma(x.abs() + 1)  # here


def searches(model: Any, state: State, x: Tensor) -> Answer:
    return x + torch.searchsorted(torch.arange(8.0)[None], x)  # here


def takes_distances(model: Any, state: State, x: Tensor) -> Answer:
    return x + torch.cdist(state["past"], state["past"])[:, 0]  # here


def turns(model: Any, state: State, x: Tensor) -> Answer:
    turned = torch.polar(x, x) * torch.polar(x, x)  # here
    return turned[:, :4].real


SILENT = (
    *(copies_into_a_buffer, assigns_a_buffer, assigns_a_tensor, adds_to_a_tensor),
    *(writes_a_parameter, counts_in_python, writes_the_state, writes_its_input),
    *(writes_the_state_under_another_name, draws_like, draws_with_a_generator, samples),
    drops_always,
)
CHANGING = (counts_in_a_global, draws_in_python, draws_in_numpy)
REFUSED = {
    branches_on_a_tensor: "torch.where",
    indexes_with_a_number: "shape",
    indexes_with_a_scalar: "shape",
    leaves_torch: "torch functions",
    factors: "__init__",
    solves: "__init__",
    takes_lgamma: "ONNX",
    searches: "bucketize",
    takes_distances: "square",
    turns: "imaginary",
}


def line_of(compute: Callable[..., Any]) -> str:
    """The place in this file that a comment marks, within a function."""
    code = compute.__code__
    with open(__file__) as file:
        lines = file.read().splitlines()
    first = code.co_firstlineno
    marked = next(n for n in range(first, first + 6) if lines[n - 1].endswith("# here"))
    return f"{__file__}:{marked}"


@pytest.mark.parametrize("compute", SILENT, ids=lambda f: f.__name__)
def test_what_a_graph_would_lose_is_refused_with_its_line(compute: Any) -> None:
    with pytest.raises(ExportError) as refused:
        lower(Probe(compute), SIZES)
    assert line_of(compute) in str(refused.value)


def test_a_list_that_grows_is_refused() -> None:
    with pytest.raises(ExportError, match="history") as refused:
        lower(Probe(keeps_a_list), SIZES)
    assert f"{__file__}:{Probe.step.__code__.co_firstlineno}" in str(refused.value)


@pytest.mark.parametrize("compute", CHANGING, ids=lambda f: f.__name__)
def test_what_changes_from_call_to_call_is_refused(compute: Any) -> None:
    with pytest.raises(ExportError, match="same arguments"):
        lower(Probe(compute), SIZES)


@pytest.mark.one_case
@pytest.mark.parametrize("compute", REFUSED, ids=lambda f: f.__name__)
def test_what_torch_refuses_comes_with_its_line_and_what_to_write_instead(compute: Any) -> None:
    with pytest.raises(ExportError, match=REFUSED[compute]) as refused:
        lower(Probe(compute), SIZES)
    assert line_of(compute) in str(refused.value)
    assert "step()" in str(refused.value)


# What exports ------------------------------------------------------------------------------------


def writes_a_copy(model: Any, state: State, x: Tensor) -> Answer:
    past = state["past"].clone()
    past[:, :, state["n"]] = x[..., None]
    return {"past": past}, x * 2


def writes_and_returns(model: Any, state: State, x: Tensor) -> Answer:
    past = state["past"]
    past[:, :, state["n"]] = x[..., None]
    return {"past": past}, x * 2


def rolls(model: Any, state: State, x: Tensor) -> Answer:
    past = torch.roll(state["past"], -1, 2)
    past[:, :, -1] = x
    return {"past": past}, x * 2


def chooses(model: Any, state: State, x: Tensor) -> Answer:
    return torch.cond(state["n"][0] < 5, lambda x: x + 1, lambda x: x - 1, (x,))


def scans(model: Any, state: State, x: Tensor) -> Answer:
    from torch._higher_order_ops.scan import scan

    def one(carry: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        carried = torch.tanh(model.linear(value) + carry)
        return carried, carried.clone()

    return scan(one, state["hidden"], x[:, None].repeat(1, 3, 1), dim=1)[0]


def runs_a_gru(model: Any, state: State, x: Tensor) -> Answer:
    return model.rnn(x[:, None].repeat(1, 5, 1), state["hidden"][None])[1][0]


def attends(model: Any, state: State, x: Tensor) -> Answer:
    past = state["past"][:, None]
    return x + F.scaled_dot_product_attention(past, past, past, is_causal=True)[:, 0, :, 0]


def drops_in_training(model: Any, state: State, x: Tensor) -> Answer:
    return F.dropout(x, 0.5, model.training) + 1


def picks_the_largest(model: Any, state: State, x: Tensor) -> Answer:
    return x + torch.topk(x, 2)[0][:, :1] + state["past"].cumsum(-1)[..., -1]


def puts_into_buckets(model: Any, state: State, x: Tensor) -> Answer:
    return x + torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0]))


def normalises(model: Any, state: State, x: Tensor) -> Answer:
    return F.rms_norm(x, (4,)) + torch.einsum("bij,bkj->bi", state["past"], state["past"])


def works_in_double(model: Any, state: State, x: Tensor) -> Answer:
    return (x.double() * 2 / 3).float()


EXPORTED = (
    *(writes_a_copy, writes_and_returns, rolls, chooses, scans, runs_a_gru, attends),
    *(drops_in_training, picks_the_largest, puts_into_buckets, normalises, works_in_double),
)


@pytest.mark.one_case
@pytest.mark.parametrize("compute", EXPORTED, ids=lambda f: f.__name__)
def test_what_exports_computes_what_pytorch_computes(compute: Any) -> None:
    torch.manual_seed(0)
    model = Probe(compute).eval()
    made = lower(model, SIZES)
    x = torch.tensor([[0.3, -1.2, 0.9, 2.0]])
    found = run_step(made, "step", made.state, x=x.numpy())
    with torch.no_grad():
        written, predicted = model.step(model.initial_state(), x)
    # float32 in another order: 5e-7 was the largest of all operators tried
    for key, expected in (("prediction", predicted), ("state", written)):
        for name, tensor in expected.items():
            assert np.allclose(found[key, name].reshape(tensor.shape), tensor, rtol=0, atol=2e-6)
