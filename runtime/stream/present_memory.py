"""What this process needs already, onnxruntime's share left out.

What onnxruntime took here is measured as it loads: bytecode that has to be compiled first, or
another version, makes it another amount than a table's.
"""

from __future__ import annotations

import sys

from edgefold.runtime.backends.needed_memory import settled_bytes

SESSIONS = "edgefold.runtime.backends.onnxruntime_session"
MOST_OF_SESSION = 2
"""Times the table's bytes of a first session that one found here may have: it holds a graph too."""


def present_bytes(import_bytes: int, session_bytes: int) -> int:
    """Bytes that this process needs without onnxruntime's share.

    Args:
        import_bytes: What importing onnxruntime takes by the table, for a program that had
            imported it before Edgefold did.
        session_bytes: What a first session takes by the table.
    """
    share = 0
    if "onnxruntime" in sys.modules:
        sessions = sys.modules.get(SESSIONS)
        measured = getattr(sessions, "import_bytes", None)
        first = (sessions.first_session_bytes() if sessions else None) or 0
        share = import_bytes if measured is None else measured
        share += min(first, MOST_OF_SESSION * session_bytes)
    return settled_bytes() - share
