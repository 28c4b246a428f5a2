"""Write models as bundles, compared with what they were made from: needs the train extra."""

from typing import TYPE_CHECKING

from edgefold.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from edgefold.export.bundle import ExportConfig as ExportConfig
    from edgefold.export.bundle import ExportReport as ExportReport
    from edgefold.export.bundle import export_bundle as export_bundle
    from edgefold.export.contract_checks import Verdict as Verdict
    from edgefold.export.imported_bundle import import_bundle as import_bundle
    from edgefold.export.lowering.graphs import Sizes as Sizes
    from edgefold.export.onnx_interface import ImportConfig as ImportConfig
    from edgefold.export.parity import ParityRow as ParityRow
    from edgefold.export.verification import VerifyReport as VerifyReport
    from edgefold.export.verification import verify as verify
else:
    __all__, __getattr__ = lazy_names(
        __name__,
        {
            "bundle": "ExportConfig ExportReport export_bundle",
            "contract_checks": "Verdict",
            "imported_bundle": "import_bundle",
            "lowering.graphs": "Sizes",
            "onnx_interface": "ImportConfig",
            "parity": "ParityRow",
            "verification": "VerifyReport verify",
        },
    )
