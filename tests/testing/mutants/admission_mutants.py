"""Our admission policies, each with one mistake."""

from __future__ import annotations

from turnout.core.interfaces.admission import Load, Refusal
from turnout.core.types.request import RequestView
from turnout.plugins.admissions.none import NoAdmission
from turnout.plugins.admissions.queue_time import QueueTime


class LooksThoughItDoesNot(NoAdmission):
    """Declares that it does not watch the load, by which it answers."""

    def admit(self, request: RequestView, load: Load) -> Refusal | None:
        return Refusal("too many") if load.waiting > 100 else None


class Wordless(QueueTime):
    """Refuses without a word."""

    def admit(self, request: RequestView, load: Load) -> Refusal | None:
        return None if super().admit(request, load) is None else Refusal("")


class ForEver(QueueTime):
    """Tells clients to come back in a thousand years."""

    def admit(self, request: RequestView, load: Load) -> Refusal | None:
        answer = super().admit(request, load)
        return None if answer is None else answer._replace(retry_after=3e10)


class Counts(QueueTime):
    """Refuses every tenth request, of an idle engine too."""

    asked = 0

    def admit(self, request: RequestView, load: Load) -> Refusal | None:
        type(self).asked += 1
        return Refusal("the tenth") if self.asked % 10 == 0 else super().admit(request, load)


class NotesEveryRequest(NoAdmission):
    """Remembers all that it was asked about."""

    def admit(self, request: RequestView, load: Load) -> Refusal | None:
        self.asked = [*getattr(self, "asked", ()), request]
        return None


ADMISSIONS = [LooksThoughItDoesNot, Wordless, ForEver, Counts, NotesEveryRequest]
