"""Write models as bundles, and compare each bundle with its model. Needs the train extra."""

from typing import TYPE_CHECKING

from edgefold.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from edgefold.export.bundle import ExportConfig as ExportConfig
    from edgefold.export.bundle import ExportReport as ExportReport
    from edgefold.export.bundle import export_bundle as export_bundle
    from edgefold.export.checks.laws import Verdict as Verdict
    from edgefold.export.checks.parity import ParityRow as ParityRow
    from edgefold.export.checks.verification import VerifyReport as VerifyReport
    from edgefold.export.checks.verification import verify as verify
    from edgefold.export.graphs.step_graphs import Sizes as Sizes
    from edgefold.export.importing.imported_bundle import import_bundle as import_bundle
    from edgefold.export.importing.onnx_interface import ImportConfig as ImportConfig
else:
    __all__, __getattr__ = lazy_names(
        __name__,
        {
            "bundle": "ExportConfig ExportReport export_bundle",
            "checks.laws": "Verdict",
            "importing.imported_bundle": "import_bundle",
            "graphs.step_graphs": "Sizes",
            "importing.onnx_interface": "ImportConfig",
            "checks.parity": "ParityRow",
            "checks.verification": "VerifyReport verify",
        },
    )
