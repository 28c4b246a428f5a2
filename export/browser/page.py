"""Write the page that forecasts a table: one file of HTML that needs no server and no network.

    page.html <── page.css, page.js and its modules, worker.js with the reader of tables, the module

Scripts and styles run by the hashes in the page's policy, which allows no connection at all.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from edgefold.export.browser.scripts import joined

FOLDER = Path(__file__).parent / "page"


def page_of(module: bytes) -> str:
    """Return the page with the module of WebAssembly of the engine of sensors in it."""
    style = (FOLDER / "page.css").read_text(encoding="utf-8")
    script = f"'use strict';\n{joined(FOLDER / 'page.js')}"
    parts = {
        "page.css": style,
        "page.js": script,
        "worker.js": f"'use strict';\n{joined(FOLDER / 'worker.js')}",
        "wasm": base64.b64encode(module).decode(),
        "policy": policy_of(script, style),
    }
    page = (FOLDER / "page.html").read_text(encoding="utf-8")
    for name, text in parts.items():
        assert "</script" not in text and "</style" not in text, f"{name} would end its element"
        page = page.replace(f"@{name}@", text)
    return page


def policy_of(script: str, style: str) -> str:
    """Return the policy of the page: its own script and style, its worker, and no connection.

    The worker is made of a text in the page, and takes over the page's policy.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)} 'wasm-unsafe-eval'",
            f"style-src {_hash(style)}",
            "worker-src blob:",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
