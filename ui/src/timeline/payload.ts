// Reads the payload that ioloom-trace writes (its module `viewer` describes the format): a JSON
// header, then columns in byte planes. All data stays in typed arrays.
import { ClassIndex, withGaps } from "./classes";
import { STATES, familyOf, FAMILY_NAMES } from "./states";
import { Steps, depthOf } from "./steps";

export interface StateTime {
  ns: number | null;
  source: string;
  quality: string | null;
  includes?: string[];
  why?: string;
}
export type StateTable = Record<string, StateTime>;

export interface SourceReport {
  name: string;
  records: number;
  lost: number;
  ns_per_event: number | null;
  privilege: string;
}
export interface Evidence {
  level: string;
  sources: SourceReport[];
  checks: Record<string, number | null>;
  overhead_pct: number;
  notes?: string[];
  complete_until_ns?: number;
}
export interface Finding {
  id: string;
  title: string;
  sentence: string;
  evidence: [string, string][];
  try: string;
}

export interface Spans {
  start: Float64Array;
  end: Float64Array;
  kind: Uint8Array;
  file: Float64Array | null;
  index: ClassIndex;
}
export interface Wakes {
  at: Float64Array;
  by: Float64Array;
}
export interface Thread {
  tid: number;
  name: string;
  role: string;
  start: number;
  end: number;
  states: StateTable;
  /** Classes: the code of a state, plus the number of states if its position is unknown. */
  segments: ClassIndex;
  cpu: Float64Array | null;
  by: Float64Array | null;
  /** Whether any position is unknown. */
  summed: boolean;
  spans: Spans;
  wakes: Wakes;
}
export interface Requests {
  issue: Float64Array;
  end: Float64Array;
  seen: Uint8Array;
  bytes: Float64Array;
  sector: Float64Array;
  tid: Float64Array;
  depth: Steps;
}
export interface Channel {
  device: string;
  write: boolean;
  requests: Requests;
}
export interface Core {
  cpu: number;
  start: Float64Array;
  end: Float64Array;
  tid: Float64Array;
  ours: Uint8Array;
  /** Classes: this program, others, idle. */
  index: ClassIndex;
}
export interface Series {
  name: string;
  unit: string;
  steps: Steps;
}
export interface Trace {
  title: string;
  started_unix_ms: number;
  elapsed: number;
  processors: number | null;
  kinds: string[];
  families: Uint8Array;
  threads: Thread[];
  channels: Channel[];
  cores: Core[];
  series: Series[];
  marks: { at: number; name: string }[];
  files: string[];
  fileBytes: number[];
  evidence: Evidence;
  findings: Finding[];
}

interface Column {
  at: number;
  n: number;
  p?: number;
  f64?: boolean;
}
type Columns = Record<string, Column | null> & { n: number };
type Header = Record<string, any>;

const MAGIC = "IOLMVIEW";
export const UNPLACED_FROM = STATES.length;
/** Kernel workers and the drain thread of the tracer have lanes, but are not part of the program. */
const NOT_OURS = new Set(["kernel-worker", "tool"]);

/** Returns whether a thread belongs to the program rather than to the kernel or the tool. */
export function isProgramThread(thread: Thread): boolean {
  return !NOT_OURS.has(thread.role);
}

/** Returns the time until which all events were recorded. */
export function completeOf(trace: { elapsed: number; evidence: Evidence }): number {
  return Math.min(trace.elapsed, trace.evidence.complete_until_ns ?? trace.elapsed);
}

/** Decodes base64. */
function fromBase64(text: string): Uint8Array {
  // Newer browsers have a built-in function, which saves a pass over megabytes.
  const native = (Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array }).fromBase64;
  if (native) {
    return native(text);
  }
  const raw = atob(text.trim());
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) {
    out[i] = raw.charCodeAt(i);
  }
  return out;
}

/** Reads an embedded trace: the payload as gzip in base64. */
export async function decode(text: string): Promise<Trace> {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("this browser does not support DecompressionStream; use a newer one to zoom");
  }
  const packed = new Blob([fromBase64(text) as BlobPart]).stream();
  const stream = packed.pipeThrough(new DecompressionStream("gzip"));
  return parse(await new Response(stream).arrayBuffer());
}

/** Reads a payload. */
export function parse(buffer: ArrayBuffer): Trace {
  const view = new DataView(buffer);
  const magic = String.fromCharCode(...new Uint8Array(buffer, 0, 8));
  if (magic !== MAGIC || view.getUint32(8, true) !== 1) {
    throw new Error("unsupported version of the trace in this page");
  }
  const length = view.getUint32(12, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 16, length))) as Header;
  return new Reader(buffer, 16 + length, header).trace();
}

class Reader {
  private readonly bytes: Uint8Array;
  private readonly tick: number;
  private readonly stateOf: Uint8Array;

  constructor(
    buffer: ArrayBuffer,
    private readonly body: number,
    private readonly header: Header,
  ) {
    this.bytes = new Uint8Array(buffer);
    this.tick = header["tick_ns"] as number;
    // Maps the file's codes to this viewer's codes by name; others become unknown.
    const names = header["states"] as string[];
    const unknown = STATES.length - 1;
    this.stateOf = Uint8Array.from({ length: 256 }, (_, code) => {
      const found = STATES.findIndex((s) => s.name === names[code & 15]);
      return (found < 0 ? unknown : found) + (code & 128 ? UNPLACED_FROM : 0);
    });
  }

  private column(c: Column | null | undefined, n: number): Float64Array {
    const out = new Float64Array(n);
    if (!c) {
      return out;
    }
    const at = this.body + c.at;
    if (c.f64) {
      return new Float64Array(this.bytes.slice(at, at + 8 * c.n).buffer);
    }
    let factor = 1;
    for (let plane = 0; plane < (c.p ?? 0); plane += 1) {
      const from = at + plane * c.n;
      for (let i = 0; i < c.n; i += 1) {
        out[i]! += this.bytes[from + i]! * factor;
      }
      factor *= 256;
    }
    return out;
  }

  private small(c: Column | null | undefined, n: number): Uint8Array {
    if (c && c.p === 1) {
      return this.bytes.slice(this.body + c.at, this.body + c.at + c.n);
    }
    return Uint8Array.from(this.column(c, n));
  }

  /** Returns times in nanoseconds from differences in ticks. */
  private moments(c: Column | null | undefined, n: number): Float64Array {
    const out = this.column(c, n);
    let at = 0;
    for (let i = 0; i < n; i += 1) {
      at += out[i]!;
      out[i] = at * this.tick;
    }
    return out;
  }

  private ends(start: Float64Array, c: Column | null | undefined): Float64Array {
    const out = this.column(c, start.length);
    for (let i = 0; i < out.length; i += 1) {
      out[i] = start[i]! + out[i]! * this.tick;
    }
    return out;
  }

  private round(ns: number): number {
    return Math.floor((ns + Math.floor(this.tick / 2)) / this.tick) * this.tick;
  }

  trace(): Trace {
    const h = this.header;
    const elapsed = h["elapsed_ns"] as number;
    const kinds = h["kinds"] as string[];
    const families = Uint8Array.from(kinds, familyOf);
    return {
      title: h["title"],
      started_unix_ms: h["started_unix_ms"],
      elapsed,
      processors: h["processors"] ?? null,
      kinds,
      families,
      threads: (h["threads"] as Header[]).map((t) => this.thread(t, families)),
      channels: (h["devices"] as Header[]).flatMap((d) => this.channels(d, elapsed)),
      cores: (h["cores"] as Header[]).map((c) => this.core(c, completeOf({ elapsed, evidence: h["evidence"] as Evidence }))),
      series: (h["series"] as Header[]).filter((s) => s["name"] !== "processors").map((s) => this.series(s, elapsed)),
      marks: (h["marks"] as Header[]).map((m) => ({ at: m["at_ns"], name: m["name"] })),
      files: h["files"] ?? [],
      fileBytes: h["file_bytes"] ?? [],
      evidence: h["evidence"],
      findings: h["findings"] ?? [],
    };
  }

  private thread(t: Header, families: Uint8Array): Thread {
    const [start, end] = [this.round(t["start_ns"]), this.round(t["end_ns"])];
    const s = t["segments"] as Columns;
    const codes = this.small(s["code"], s.n);
    let summed = false;
    for (let i = 0; i < codes.length; i += 1) {
      codes[i] = this.stateOf[codes[i]!]!;
      summed ||= codes[i]! >= UNPLACED_FROM;
    }
    const classes = summed ? 2 * UNPLACED_FROM : UNPLACED_FROM;
    const w = t["wakes"] as Columns;
    return {
      tid: t["tid"],
      name: t["name"],
      role: t["role"],
      start,
      end,
      states: t["states"],
      segments: new ClassIndex(this.moments(s["dt"], s.n), codes, end, classes),
      cpu: s["cpu"] ? this.column(s["cpu"], s.n) : null,
      by: s["by"] ? this.column(s["by"], s.n) : null,
      summed,
      spans: this.spans(t["spans"], families, start, end),
      wakes: { at: this.moments(w["dt"], w.n), by: this.column(w["by"], w.n) },
    };
  }

  private spans(c: Columns, families: Uint8Array, from: number, to: number): Spans {
    const start = this.moments(c["dt"], c.n);
    const end = this.ends(start, c["len"]);
    const kind = this.small(c["kind"], c.n);
    const gap = FAMILY_NAMES.length;
    const index = withGaps(start, end, (i) => families[kind[i]!] ?? gap - 1, gap, from, to);
    return { start, end, kind, file: c["file"] ? this.column(c["file"], c.n) : null, index };
  }

  private channels(d: Header, elapsed: number): Channel[] {
    const c = d["requests"] as Columns;
    const issue = this.moments(c["dt"], c.n);
    const latency = this.column(c["latency"], c.n);
    const write = this.small(c["write"], c.n);
    const [bytes, sector, tid] = ["bytes", "sector", "tid"].map((name) => this.column(c[name], c.n));
    const channel = (wanted: number): Channel | null => {
      const mine: number[] = [];
      for (let i = 0; i < c.n; i += 1) {
        if (write[i] === wanted) {
          mine.push(i);
        }
      }
      if (mine.length === 0) {
        return null;
      }
      const pick = (values: Float64Array): Float64Array => Float64Array.from(mine, (i) => values[i]!);
      const [starts, delays] = [pick(issue), pick(latency)];
      // A request without an observed completion takes no time.
      const end = starts.map((t, i) => t + Math.max(0, delays[i]! - 1) * this.tick);
      const seen = Uint8Array.from(delays, (l) => (l > 0 ? 1 : 0));
      const depth = depthOf(starts, end, elapsed);
      const requests = { issue: starts, end, seen, bytes: pick(bytes!), sector: pick(sector!), tid: pick(tid!), depth };
      return { device: d["name"], write: wanted === 1, requests };
    };
    return [channel(0), channel(1)].filter((x): x is Channel => x !== null);
  }

  private core(c: Header, complete: number): Core {
    const r = c["runs"] as Columns;
    const start = this.moments(r["dt"], r.n);
    const end = this.ends(start, r["len"]);
    const ours = this.small(r["ours"], r.n);
    const index = withGaps(start, end, (i) => (ours[i] ? 0 : 1), 2, 0, complete);
    return { cpu: c["cpu"], start, end, tid: this.column(r["tid"], r.n), ours, index };
  }

  private series(s: Header, elapsed: number): Series {
    const p = s["points"] as Columns;
    const steps = new Steps(this.moments(p["dt"], p.n), this.column(p["value"], p.n), elapsed);
    return { name: s["name"], unit: s["unit"], steps };
  }
}
