"""Send each alarm to a webhook: an HTTP POST with the alarm as a JSON object."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgefold.runtime.loop.alarm import Alarm

LIMIT_S = 10.0
"""Seconds that the server may take for an answer."""
WAITS_S = (1.0, 4.0, 16.0)
"""Seconds between the attempts for one alarm."""


class AlarmWebhook:
    """Posts alarms to one address.

    Args:
        url: The address, which begins with http:// or https://.

    Attributes:
        name: The address without a user's name, a password and a query, for messages.
        noun: What is done for an alarm, for the summary.
    """

    noun = "post"

    def __init__(self, url: str):
        self._url = url
        scheme, _, rest = url.partition("://")
        self.name = f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"

    def deliver(self, alarm: Alarm, stops: threading.Event) -> str:
        """Post an alarm, at most four times; return why it failed, or "".

        A server that refuses it (a status of 400 to 499) is not asked again, unless it says that it
        is busy (429) or slow (408). The header Idempotency-Key is the same for each attempt.

        Args:
            alarm: The alarm.
            stops: Event that ends the waits between attempts.
        """
        key = f"{alarm.series} {alarm.time} {alarm.event}".encode("ascii", "replace").decode()
        request = urllib.request.Request(
            self._url,
            json.dumps(alarm.to_json()).encode(),
            {"Content-Type": "application/json", "Idempotency-Key": key.replace("\n", " ")},
        )
        reason = ""
        for wait_s in (*WAITS_S, 0.0):
            reason, may_help = _post(request)
            if not (reason and may_help) or stops.wait(wait_s):
                break
        return reason


def _post(request: urllib.request.Request) -> tuple[str, bool]:
    """Send a request once; return why it failed, or "", and whether trying again may help."""
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S):
            return "", False
    except urllib.error.HTTPError as error:
        error.close()
        is_final = 400 <= error.code < 500 and error.code not in (408, 429)
        return f"answered {error.code} {error.reason}", not is_final
    except urllib.error.URLError as error:
        return f"is not reached: {error.reason}", True
    except (OSError, HTTPException, ValueError) as error:
        return f"is not reached: {error or type(error).__name__}", True
