import { context, SpanKind, SpanStatusCode, trace, type Attributes, type Context, type Link, type Span, type SpanContext, type TracerProvider } from "@opentelemetry/api";
import { LapseError } from "./errors.js";
import type { Traced, Tracer } from "./tracer.js";
import type { Event } from "./types.js";

/**
 * Names of OpenTelemetry's semantic conventions 1.43 for databases (stable) and messaging (in
 * development). Ids of documents are no attributes: they may be secrets, as those of sessions.
 */
const names = {
  scope: "@lapsedb/lapse",
  system: "db.system.name",
  namespace: "db.namespace",
  collection: "db.collection.name",
  operation: "db.operation.name",
  status: "db.response.status_code",
  messaging: "messaging.system",
  destination: "messaging.destination.name",
  messagingOperation: "messaging.operation.name",
  messagingType: "messaging.operation.type",
  message: "messaging.message.id",
  error: "error.type",
} as const;

/** A span, and the context with it. */
class SpanOf implements Traced {
  readonly context: Context;

  constructor(
    readonly span: Span,
    readonly headers: Record<string, string> = {},
  ) {
    this.context = trace.setSpan(context.active(), span);
  }

  run<R>(body: () => R): R {
    return context.with(this.context, body);
  }
}

const contexts = new WeakMap<object, Context>();

/** Returns the context of the loop body that handles an event, for `context.with`. */
export function contextOf(event: Event<unknown>): Context {
  return contexts.get(event) ?? context.active();
}

/**
 * Returns a Tracer for `new Lapse(nc, { tracer: otel() })`: it makes a span of each request, whose
 * context stands on the events that it makes, and of the handling of each event, which links to
 * the write that the event is about. That of an expiry may be weeks old: as a child it would
 * belong to a trace that is long sampled and stored. The default provider is the global one.
 */
export function otel(provider?: TracerProvider): Tracer {
  const start = (name: string, kind: SpanKind, attributes: Attributes, links: Link[] = []) =>
    (provider ?? trace.getTracerProvider()).getTracer(names.scope).startSpan(name, { kind, attributes, links }, context.active());
  return {
    call({ database, operation, collection }) {
      const about = collection === undefined ? {} : { [names.collection]: collection };
      const span = start([operation, collection].filter(Boolean).join(" "), SpanKind.CLIENT, { [names.system]: "lapse", [names.namespace]: database, [names.operation]: operation, ...about });
      return new SpanOf(span, headersOf(span.spanContext()));
    },
    handle(event, database, write) {
      const destination = `lapse.${database}.events.${event.collection}.${event.type}`;
      const attributes = { [names.messaging]: "nats", [names.destination]: destination, [names.messagingOperation]: "process", [names.messagingType]: "process", [names.message]: String(event.seq) };
      const traced = new SpanOf(start(`process ${destination}`, SpanKind.CONSUMER, attributes, linkTo(write)));
      contexts.set(event, traced.context);
      return traced;
    },
    end(traced, error) {
      const { span } = traced as SpanOf;
      if (error instanceof LapseError) { // whose message may name a document
        span.setAttributes({ [names.error]: error.error, [names.status]: String(error.code) });
        span.setStatus({ code: SpanStatusCode.ERROR, message: error.error });
      } else if (error !== undefined) {
        span.setAttribute(names.error, error instanceof Error ? error.name : typeof error);
        span.setStatus({ code: SpanStatusCode.ERROR, message: error instanceof Error ? error.message : String(error) });
      }
      span.end();
    },
  };
}

/** Returns the W3C headers of a span. OpenTelemetry's API has no propagator of its own. */
function headersOf(span: SpanContext): Record<string, string> {
  if (!trace.isSpanContextValid(span)) {
    return {};
  }
  const state = span.traceState?.serialize();
  return { traceparent: `00-${span.traceId}-${span.spanId}-${span.traceFlags.toString(16).padStart(2, "0")}`, ...(state && { tracestate: state }) };
}

function linkTo(traceparent = ""): Link[] {
  const [, traceId = "", spanId = "", flags = ""] = /^[\da-f]{2}-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})/.exec(traceparent) ?? [];
  return traceId ? [{ context: { traceId, spanId, traceFlags: parseInt(flags, 16), isRemote: true } }] : [];
}
