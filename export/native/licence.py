"""State the licence of generated C, and which version of Edgefold wrote it."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping

LICENCE = """\
/* SPDX-License-Identifier: Apache-2.0
 *
 * The licence is that of Edgefold's part of this text. The model and its weights belong to their
 * owner, and no licence of them is given here.
 */
"""
WEIGHTS_LICENCE = """\
/* SPDX-License-Identifier: Apache-2.0 AND LicenseRef-weights-of-the-model
 *
 * These numbers are the weights of a model. They belong to the model's owner, and Edgefold gives no
 * licence of them. Edgefold's part, the lines around them, is under Apache-2.0.
 */
"""


def licensed(files: Mapping[str, str]) -> dict[str, str]:
    """Return files of C by name, each begun with the licence of what Edgefold wrote in it."""
    return {name: LICENCE + text for name, text in files.items()}


def version_words() -> dict[str, object]:
    """Return the version of the installed Edgefold, by the header template's word for each part."""
    version = importlib.metadata.version("edgefold")
    parts = [*re.findall(r"\d+", version), "0", "0"][:3]
    return {"version": version, **dict(zip(("major", "minor", "patch"), parts, strict=True))}
