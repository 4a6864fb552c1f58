"""What each request is about, and since when: the record of requests while an engine is watched."""

from __future__ import annotations

from collections.abc import Iterable

from turnout.core.types.live.news import Breadth, LiveRequest, Phase, Progress, SpanNews
from turnout.core.types.request import Request

__all__ = ["Tracks"]


class _Track:
    """A request's phase, and what was told of it."""

    __slots__ = ("open_told", "phase", "since", "told")

    def __init__(self, phase: Phase, since: float) -> None:
        self.phase, self.since = phase, since
        self.told: Progress | None = None
        """None: the request was not told of."""
        self.open_told = False
        """The present span was told of."""


class Tracks:
    """The live requests. Takes times on the engine's clock, and tells them in seconds since the epoch."""

    def __init__(self, epoch: float) -> None:
        """epoch: what to add to the engine's clock."""
        self._epoch = epoch
        self._tracks: dict[Request, _Track] = {}
        self._filling: dict[Request, None] = {}
        """Those in prefill."""
        self._ended: list[LiveRequest] = []
        self._spans: list[SpanNews] = []
        self._broad: dict[Request, int] = {}
        """Those that may have several sequences, and how many they have."""
        self._breadths: list[Breadth] = []

    def begin(self, held: Iterable[Request], waiting: Iterable[Request]) -> None:
        """Takes up requests that were there before the record."""
        for request in held:
            timing = request.timing
            decodes = request.decode_ready and timing.first_token is not None
            since = timing.first_token if decodes else timing.scheduled
            self._add(request, "decode" if decodes else "prefill", since or timing.arrival)
        for request in waiting:
            self.arrive(request)

    def arrive(self, request: Request) -> None:
        preempted = request.timing.preempted
        waits: Phase = "preempted" if preempted and request.spec.resume is None else "waiting"
        self._add(request, waits, preempted[-1] if preempted else request.timing.arrival)

    def admit(self, request: Request, now: float) -> bool:
        """Notes that a request computes more than its next token; returns whether it had waited until now."""
        track = self._tracks.get(request)
        if track is None or track.phase in ("prefill", "decode"):
            return False
        self._filling[request] = None
        self._turn(request, track, "prefill", now)
        return True

    def preempt(self, request: Request, now: float, *, swapped: bool) -> None:
        if (track := self._tracks.get(request)) is not None:
            self._filling.pop(request, None)
            self._turn(request, track, "swapped" if swapped else "preempted", now)

    def note_decoding(self, now: float) -> None:
        """Notes which requests have their prompts behind them, and how many sequences, after a step."""
        if self._broad:
            self._note_breadths(now)
        if not self._filling:
            return
        for request in [request for request in self._filling if request.decode_ready]:
            del self._filling[request]
            self._turn(request, self._tracks[request], "decode", now)

    def end(self, request: Request, reason: str, now: float) -> None:
        track = self._tracks.pop(request, None)
        if track is None:
            return
        self._filling.pop(request, None)
        self._broad.pop(request, None)
        self._spans.append((request.id, track.phase, self._epoch + track.since, self._epoch + now))
        self._ended.append(self._told(request, "ended", reason))

    # -------------------------------------------------------------- what is told

    def take_spans(self) -> list[SpanNews]:
        """Returns the spans that began or ended since the last call."""
        spans, self._spans = self._spans, []
        for request, track in self._tracks.items():
            if not track.open_told:
                track.open_told = True
                spans.append((request.id, track.phase, self._epoch + track.since, None))
        return spans

    def take_breadths(self) -> list[Breadth]:
        """Returns how many sequences requests have since when, where that has changed since the last call."""
        breadths, self._breadths = self._breadths, []
        return breadths

    def take_requests(self) -> tuple[list[LiveRequest], list[Progress]]:
        """Returns the requests that came or ended since the last call, and the progress of the others."""
        requests, self._ended = self._ended, []
        progress: list[Progress] = []
        for request, track in self._tracks.items():
            phase, told = track.phase, track.told
            live, preempted = request.live, len(request.timing.preempted)
            computed = live[0].computed if len(live) == 1 else _computed(request)
            now = request.spec.id, phase, computed, request.output_tokens, preempted
            if told is None:
                requests.append(self._told(request, phase))
            elif told != now:
                progress.append(now)
            else:
                continue
            track.told = now
        return requests, progress

    def _add(self, request: Request, phase: Phase, since: float) -> None:
        self._tracks[request] = _Track(phase, since)
        if phase == "prefill":
            self._filling[request] = None
        if request.params.n > 1 or request.params.use_beam_search:
            self._broad[request] = 1

    def _note_breadths(self, now: float) -> None:
        for request, before in self._broad.items():
            if (several := len(request.live)) != before:
                self._broad[request] = several
                self._breadths.append((request.id, self._epoch + now, several))

    def _turn(self, request: Request, track: _Track, phase: Phase, now: float) -> None:
        """Ends a request's span, and begins the next."""
        self._spans.append((request.id, track.phase, self._epoch + track.since, self._epoch + now))
        track.phase, track.since, track.open_told = phase, now, False

    def _told(self, request: Request, state: Phase, reason: str = "") -> LiveRequest:
        spec, choices = request.spec, request.params.n
        return LiveRequest(
            id=spec.id,
            client=spec.client,
            priority=spec.priority,
            prompt_tokens=len(spec.prompt),
            max_tokens=request.limit - len(spec.prompt),
            n=choices if choices > 1 else 0,
            arrival=self._epoch + request.timing.arrival,
            state=state,
            computed=_computed(request),
            cached_tokens=request.cached_tokens,
            output_tokens=request.output_tokens,
            preemptions=len(request.timing.preempted),
            finish_reason=reason,
            resumed=spec.resume is not None,
        )


def _computed(request: Request) -> int:
    return sum([sequence.computed for sequence in request.live])
