"""Define the six classical neural processes, a grid of encoders and samplings.

                 none                  latent              bootstrap
    pooling      CNP    215,682        NP    232,194       BNP    248,450
    attentive    CANP   331,906        ANP   348,418       BANP   364,674

`neural_process` explains the grid. The numbers count parameters at the size of the 1-D task. CNP:
Garnelo et al. 2018a; NP: Garnelo et al. 2018b; CANP, ANP: Kim et al. 2019; BNP, BANP: Lee et al.
2020. All are as the later papers compare them; `published` begins with log-likelihoods under RBF
and Matern 5/2, table 4 of Feng et al. 2024.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgefold.train.models.neural_processes.attentive import AttentiveProcess, SampledConfig
from edgefold.train.models.neural_processes.attentive_layers import CanpConfig
from edgefold.train.models.neural_processes.banp import BanpConfig, BanpProcess
from edgefold.train.models.neural_processes.pooling import CnpConfig, NpConfig, PoolingProcess
from edgefold.train.models.neural_processes.two_stages import BnpConfig, TwoStageProcess
from edgefold.train.published import as_published

PUBLISHED_ATTENTION = {"first_relu": False, "scores_by": "width"}
"""Settings by which the attention of CANP, ANP and BANP is that of the published code."""

PUBLISHED_START = {"start": "published"}
"""Setting by which CNP, NP and BNP start as the published code does."""


def _presets(
    config: type[Any], published: Mapping[str, Any], n_samples: int | None = None
) -> Mapping[str, Any]:
    """Return two presets: "paper", the published model, and "small", which trains in minutes.

    Two cores suffice for "small".

    Args:
        config: Class of the settings.
        published: Settings by which a model is the published one.
        n_samples: Number of samples of "small", where the model has samples.
    """
    samples = {} if n_samples is None else {"n_samples": n_samples}
    return {"small": config(width=64, **samples), "paper": config(**published)}


class Cnp(PoolingProcess):
    """Predicts as the conditional neural process (CNP)."""

    name = "cnp"
    sampling = "none"
    presets = _presets(CnpConfig, PUBLISHED_START)
    published = as_published({"CNP": (0.26, 0.04)}, {"CNP": (2.15, 2.43, 2.55, 0.73, 0.49)})


class Np(PoolingProcess):
    """Predicts as the latent neural process (NP)."""

    name = "np"
    sampling = "latent"
    presets = _presets(NpConfig, PUBLISHED_START, 16)
    published = as_published({"NP": (0.27, 0.07)}, {"NP": (2.48, 2.60, 2.67, 0.79, 0.59)})


class Bnp(PoolingProcess):
    """Predicts as the bootstrapping neural process (BNP), in a state of constant size.

    With `stages=2` among the settings a call of the class builds a `TwoStageBnp` instead.
    """

    name = "bnp"
    sampling = "bootstrap"
    presets = _presets(BnpConfig, {"stages": 2, "counts": "drawn"} | PUBLISHED_START, 16)
    published = as_published({"BNP": (0.38, 0.18)}, {"BNP": (2.76, 2.97, None, 0.88, 0.73)})

    def __new__(cls, config: BnpConfig | None = None) -> Any:
        # A copy is made without settings.
        if cls is Bnp and config is not None and config.stages == 2:
            return TwoStageBnp(config)
        return super().__new__(cls)


class TwoStageBnp(TwoStageProcess):
    """Predicts as the published BNP: it resamples points, then residuals, and keeps the points."""

    name = Bnp.name
    presets = Bnp.presets
    training_defaults = Bnp.training_defaults
    published = Bnp.published


class Canp(AttentiveProcess):
    """Predicts as the attentive neural process without a latent (CANP)."""

    name = "canp"
    sampling = "none"
    presets = _presets(CanpConfig, PUBLISHED_ATTENTION)
    published = as_published({"CANP": (0.79, 0.62)}, {"CANP": (2.66, 3.15, None, 0.94, 0.82)})


class Anp(AttentiveProcess):
    """Predicts as the attentive neural process (ANP), with a latent for the whole function."""

    name = "anp"
    sampling = "latent"
    presets = _presets(SampledConfig, PUBLISHED_ATTENTION, 16)
    published = as_published({"ANP": (0.81, 0.63)}, {"ANP": (2.90, None, None, 0.98, 0.89)})


class Banp(BanpProcess):
    """Predicts as the bootstrapping attentive NP (BANP): it resamples points, then residuals."""

    name = "banp"
    sampling = "bootstrap"
    presets = _presets(BanpConfig, {"counts": "drawn"} | PUBLISHED_ATTENTION, 8)
    published = as_published({"BANP": (0.82, 0.66)}, {"BANP": (3.09, None, None, 1.01, 0.94)})
