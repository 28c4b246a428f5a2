"""The six classical neural processes, a grid of encoders and samplings (see `neural_process`).

                 none                  latent              bootstrap
    pooling      CNP    215,682        NP    232,194       BNP    248,450
    attentive    CANP   331,906        ANP   348,418       BANP   364,674

The numbers are parameters at the size of the 1-D task. CNP: Garnelo et al. 2018a; NP: Garnelo et
al. 2018b; CANP, ANP: Kim et al. 2019; BNP, BANP: Lee et al. 2020. All are as the later papers
compare them; `published` begins with log-likelihoods under RBF and Matern 5/2, table 4 of Feng et
al. 2024.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgefold.train.models.neural_processes.attentive import (
    AttentiveProcess,
    CanpConfig,
    SampledConfig,
)
from edgefold.train.models.neural_processes.banp import BootstrappedProcess
from edgefold.train.models.neural_processes.pooling import CnpConfig, NpConfig, PoolingProcess
from edgefold.train.published import as_published


def _presets(config: type[Any], **samples: int) -> Mapping[str, Any]:
    """Return the published size, and one that trains on two cores in minutes."""
    return {"small": config(width=64, **samples), "paper": config()}


class Cnp(PoolingProcess):
    """The conditional neural process."""

    name = "cnp"
    sampling = "none"
    presets = _presets(CnpConfig)
    published = as_published({"CNP": (0.26, 0.04)}, {"CNP": (2.15, 2.43, 2.55, 0.73, 0.49)})


class Np(PoolingProcess):
    """The latent neural process."""

    name = "np"
    sampling = "latent"
    presets = _presets(NpConfig, n_samples=16)
    published = as_published({"NP": (0.27, 0.07)}, {"NP": (2.48, 2.60, 2.67, 0.79, 0.59)})


class Bnp(PoolingProcess):
    """The bootstrapping neural process, in a state of constant size."""

    name = "bnp"
    sampling = "bootstrap"
    presets = _presets(NpConfig, n_samples=16)
    published = as_published({"BNP": (0.38, 0.18)}, {"BNP": (2.76, 2.97, None, 0.88, 0.73)})


class Canp(AttentiveProcess):
    """The attentive neural process without a latent."""

    name = "canp"
    sampling = "none"
    presets = _presets(CanpConfig)
    published = as_published({"CANP": (0.79, 0.62)}, {"CANP": (2.66, 3.15, None, 0.94, 0.82)})


class Anp(AttentiveProcess):
    """The attentive neural process, with a latent for the whole function."""

    name = "anp"
    sampling = "latent"
    presets = _presets(SampledConfig, n_samples=16)
    published = as_published({"ANP": (0.81, 0.63)}, {"ANP": (2.90, None, None, 0.98, 0.89)})


class Banp(BootstrappedProcess):
    """The bootstrapping attentive neural process, with both stages of the paper."""

    name = "banp"
    sampling = "bootstrap"
    presets = _presets(SampledConfig, n_samples=8)
    published = as_published({"BANP": (0.82, 0.66)}, {"BANP": (3.09, None, None, 1.01, 0.94)})
