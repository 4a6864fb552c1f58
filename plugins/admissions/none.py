"""No admission policy of its own: the bound of ``--max-waiting`` stays."""

from __future__ import annotations

from turnout.core.interfaces.admission import AdmissionPolicy, Load, Refusal
from turnout.core.types.request import RequestView

__all__ = ["NoAdmission"]


class NoAdmission(AdmissionPolicy):
    """Takes all requests on, up to ``--max-waiting``."""

    watches = False

    def admit(self, request: RequestView, load: Load) -> Refusal | None:
        return None
