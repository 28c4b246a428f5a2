from __future__ import annotations

from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tests neither read nor fill the developer's cache of graphs."""
    folder = tmp_path_factory.getbasetemp() / "edgefold-cache"
    monkeypatch.setenv("EDGEFOLD_CACHE", str(folder))
    return folder
