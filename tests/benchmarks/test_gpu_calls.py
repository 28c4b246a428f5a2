"""What the benchmark of calls counts on the tiny bundle."""

from __future__ import annotations

from pathlib import Path

from benchmarks.speed.gpu_calls import count, table


def test_contexts_follow_graphs_and_copies_the_kind_of_gpu(tiny_bundle: Path) -> None:
    discrete, integrated = (count(tiny_bundle, kind, True) for kind in ("discrete", "integrated"))
    for found in (discrete, integrated):
        assert found["open: contexts"] == 6  # one for each graph but merge
        assert found["open: CUDA graphs"] == 14
        assert found["update: calls of the driver"] == found["query: calls of the driver"] == 2
    assert discrete["update: copies"] == discrete["query: copies"] == 2
    assert integrated["update: copies"] == integrated["query: copies"] == 0
    saved = "open: bytes of device memory, scratch left out"
    assert integrated[saved] < discrete[saved]


def test_without_cuda_graphs_the_addresses_are_set_at_each_step(tiny_bundle: Path) -> None:
    found = count(tiny_bundle, "integrated", False)
    assert found["open: CUDA graphs"] == 0
    # Two tensors of the state, read on one side and written on the other; run and wait.
    assert found["update: calls of the driver"] == 2 * 2 + 2
    assert "| open: contexts " in table(tiny_bundle).markdown()
