"""Send traces and metrics to OpenTelemetry, by OTLP over HTTP. The packages are loaded with the first traced run."""

from __future__ import annotations

import atexit
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any
from weakref import WeakMethod

from ..core.errors import ConfigError
from ..core.events import Delta, Event
from ..core.install import install_command
from ..core.tracing import parse_traceparent
from ..kernel.bases import SinkBase
from .spans import Span, Spans

_SOON = 200  # milliseconds after which spans are sent
_PATIENCE = 3  # seconds for a receiver that does not answer: a program that ends waits for it
_EVERY = 10_000  # milliseconds between two reports of the metrics


class OpenTelemetry(SinkBase):
    """A sink that sends spans and metrics to an OTLP receiver.

    Args:
        endpoint: The address of the receiver, such as http://localhost:4318. By default the standard environment variables
            apply.
        content: True to send messages, arguments and results.
        headers: HTTP headers for the receiver.
        service: The name of the service.
        metrics: False to send spans only.
    """

    wants = ("children", "trace")

    def __init__(
        self,
        endpoint: str = "",
        *,
        content: bool = False,
        headers: Mapping[str, str] | None = None,
        service: str = "kaname",
        metrics: bool = True,
    ) -> None:
        if endpoint and not endpoint.startswith(("http://", "https://")):
            raise ConfigError.of("trace.endpoint", "the endpoint must start with http:// or https://, not {it!r}", it=endpoint)
        self._endpoint, self._headers, self._service = endpoint.rstrip("/"), dict(headers or {}), service
        self._spans, self._metrics = Spans(content), metrics
        self._sending: Any = None
        self._measuring: Any = None

    def recall(self, facts: Sequence[Event]) -> None:
        self._spans.recall(facts)

    def __call__(self, event: Event) -> None:
        if type(event.body) is Delta:
            return
        if self._sending is None:
            self._start_exporting()
        for span in self._spans.take(event):
            self._sending.on_end(self._readable(span))
            if self._measuring is not None:
                self._measure(span)

    def flush(self) -> None:
        """Send everything collected so far: a server that a signal ends has no other chance."""
        for one in (self._sending, self._measuring and self._measuring.provider):
            if one is not None:
                one.force_flush(_PATIENCE * 1_000)

    def close(self) -> None:
        """Send the rest and stop."""
        for one in (self._sending, self._measuring and self._measuring.provider):
            if one is not None:
                one.shutdown()
        self._sending = self._measuring = None

    def measure(self, name: str, value: float, **attributes: str) -> None:
        """Set a gauge, such as how many runs wait in the queue."""
        if self._sending is None:
            self._start_exporting()
        if self._measuring is not None:
            self._measuring.gauge(name).set(value, attributes)

    def _start_exporting(self) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            raise ConfigError.of(
                "trace.packages", "OpenTelemetry is not installed. Install it with: {command}", command=install_command("otel")
            ) from None
        self._resource = Resource.create({"service.name": self._service})
        place = f"{self._endpoint}/v1/traces" if self._endpoint else None
        exporter = OTLPSpanExporter(endpoint=place, headers=self._headers or None, timeout=_PATIENCE)
        self._sending = BatchSpanProcessor(exporter, schedule_delay_millis=_SOON)
        if self._metrics:
            place = f"{self._endpoint}/v1/metrics" if self._endpoint else None
            self._measuring = _Metrics(place, self._headers, self._resource)
        atexit.register(_close, WeakMethod(self.close))

    def _readable(self, span: Span) -> Any:
        from opentelemetry.sdk.trace import Event as Happening
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import Link, SpanKind, Status, StatusCode

        links = [_context(*found) for link in span.links if (found := parse_traceparent(link)) is not None]
        return ReadableSpan(
            span.name,
            _context(span.trace_id, span.span_id),
            parent=_context(span.trace_id, span.parent_id) if span.parent_id else None,
            resource=self._resource,
            attributes=span.attributes,
            events=[Happening(one.name, one.attributes, _nanoseconds(one.time)) for one in span.moments],
            links=[Link(context) for context in links],
            kind=SpanKind.CLIENT if span.kind == "client" else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(span.end),
            instrumentation_scope=InstrumentationScope("kaname"),
        )

    def _measure(self, span: Span) -> None:
        told, metrics = span.attributes, self._measuring
        named = {name: told[name] for name in _NAMED if name in told}
        metrics.duration.record(span.end - span.start, named)
        if "gen_ai.response.model" in told:  # a model's reply: a call that failed has none
            for kind in ("input", "output"):
                metrics.tokens.record(told[f"gen_ai.usage.{kind}_tokens"], {**named, "gen_ai.token.type": kind})
            if "kaname.usage.cost" in told:
                metrics.cost.add(told["kaname.usage.cost"], named)


_NAMED = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.agent.name", "gen_ai.tool.name",
          "error.type")  # fmt: skip


class _Metrics:
    def __init__(self, endpoint: str | None, headers: Mapping[str, str], resource: Any) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        exporter = OTLPMetricExporter(endpoint=endpoint, headers=dict(headers) or None, timeout=_PATIENCE)
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=_EVERY)
        self.provider = MeterProvider(resource=resource, metric_readers=[reader], shutdown_on_exit=False)
        meter = self.provider.get_meter("kaname")
        self.duration = meter.create_histogram("gen_ai.client.operation.duration", "s")
        self.tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}")
        self.cost = meter.create_counter("kaname.client.cost", "USD")
        self.gauge = cache(meter.create_gauge)


def _context(trace_id: str, span_id: str) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(1))


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def _close(close: WeakMethod[Any]) -> None:
    if (still := close()) is not None:
        still()
