// Facts about a point in the drawing: text for tooltips and the selection, and wake-ups.
import { lastAtOrBefore } from "./classes";
import { lowerBound, spanAt } from "./draw";
import { count, moment, quantity, shares, size, tenths, time, unitFor } from "./format";
import type { Row, Run } from "./layout";
import { completeOf, UNPLACED_FROM, type Channel, type Thread } from "./payload";
import { PREEMPTED, ON_CPU, READY, STATES } from "./states";
import { BOTH, USE } from "./use";

/** The facts about a point; `from..to` is the range that a selection marks. */
export interface Fact {
  head: string;
  lines: string[];
  from: number;
  to: number;
}

/** A wake-up as drawn. */
export interface Woken {
  at: number;
  by: number;
  /** The waker, if it is a thread of this run. */
  waker: Thread | null;
  words: string;
}

const LOOK_BACK = 64;
const REQUESTS = 5;
const SCANNED = 2048;

/** Formats a time of the run to the microsecond or finer. */
function at(ns: number, length: number): string {
  return moment(ns, Math.max(1, Math.min(1e3, length / 100)), unitFor(Math.max(ns, 1)));
}

function nameOf(run: Run, tid: number): string {
  const thread = run.byTid.get(tid);
  return thread ? `${thread.name || thread.role} (${tid})` : `thread ${tid}, not of this run`;
}

/** Returns the wake-up of segment `i` of a lane; `null` if none was recorded. */
export function wakeOf(run: Run, thread: Thread, i: number): Woken | null {
  const { segments, wakes } = thread;
  let k = i;
  for (let steps = 0; k > 0 && steps < LOOK_BACK; steps += 1) {
    const state = segments.classes[k]! % UNPLACED_FROM;
    if (state !== ON_CPU && state !== PREEMPTED && state !== READY) {
      break;
    }
    k -= 1;
  }
  const [from, to] = [segments.starts[k]!, segments.endOf(k)];
  const w = lastAtOrBefore(wakes.at, Math.max(to, k === i ? to : segments.starts[i]!));
  if (w < 0 || wakes.at[w]! < from) {
    return null;
  }
  const by = wakes.by[w]!;
  const waker = run.byTid.get(by) ?? null;
  const who = by === 0 ? "an interrupt or an unknown thread" : nameOf(run, by);
  return { at: wakes.at[w]!, by, waker, words: `woken by ${who} at ${at(wakes.at[w]!, 1e5)}` };
}

function spanWords(run: Run, thread: Thread, i: number): string[] {
  const { spans } = thread;
  const kind = run.trace.kinds[spans.kind[i]!] ?? "call";
  const length = spans.end[i]! - spans.start[i]!;
  const out = [`in: ${kind}, ${time(length)} from ${at(spans.start[i]!, length)}`];
  const file = spans.file?.[i] ?? 0;
  if (file > 0) {
    const path = run.trace.files[file - 1] ?? `file ${file} (name not recorded)`;
    const bytes = run.trace.fileBytes[file - 1];
    out.push(bytes === undefined ? `file: ${path}` : `file: ${path}, ${size(bytes)}`);
  }
  return out;
}

/** Returns the requests in flight during a range, those of the thread first. */
function requestWords(run: Run, thread: Thread, from: number, to: number): string[] {
  const found: [boolean, string][] = [];
  for (const channel of run.trace.channels) {
    const r = channel.requests;
    const last = lowerBound(r.issue, to);
    for (let i = last - 1; i >= 0 && i > last - SCANNED; i -= 1) {
      if (r.end[i]! <= from) {
        continue;
      }
      found.push([r.tid[i] === thread.tid, requestLine(channel, i)]);
    }
  }
  found.sort((a, b) => Number(b[0]) - Number(a[0]));
  const shown = found.slice(0, REQUESTS).map(([own, words]) => (own ? `${words}, issued by this thread` : words));
  if (found.length > REQUESTS) {
    shown.push(`and ${found.length - REQUESTS} more requests in flight`);
  }
  return shown;
}

function requestLine(channel: Channel, i: number): string {
  const r = channel.requests;
  const end = r.seen[i] ? `took ${time(r.end[i]! - r.issue[i]!)}` : "completion not seen";
  return `${channel.device} ${channel.write ? "write" : "read"} of ${size(r.bytes[i]!)} at sector ${count(r.sector[i]!)}, ${end}`;
}

/** Returns the facts of a thread lane at `t`: one segment, or the mix of a column with several. */
export function threadFact(run: Run, thread: Thread, t: number, pixel: number, deep: boolean): Fact | null {
  const i = thread.segments.at(t);
  if (i < 0) {
    return null;
  }
  const [from, to] = [thread.segments.starts[i]!, thread.segments.endOf(i)];
  if (!deep && to - from < pixel) {
    return mixFact(thread, t, pixel);
  }
  const cls = thread.segments.classes[i]!;
  const state = STATES[cls % UNPLACED_FROM]!;
  const lines = [`${thread.name || thread.role}, tid ${thread.tid}, role ${thread.role}`, `${at(from, to - from)} to ${at(to, to - from)}`];
  if (cls >= UNPLACED_FROM) {
    lines.push("known as a sum; the position inside the call is unknown");
  }
  const span = spanAt(thread, Math.max(from, t));
  lines.push(...(span < 0 ? [] : spanWords(run, thread, span)));
  const cpu = thread.cpu?.[i] ?? 0;
  if (cpu > 0) {
    lines.push(`on processor ${cpu - 1}`);
  }
  lines.push(...causes(run, thread, i, deep));
  const said = thread.states[state.name];
  if (said && said.source !== "") {
    lines.push(`source: ${said.source}${said.quality ? `, ${said.quality}` : ""}`);
  }
  if (said?.includes && said.includes.length > 0) {
    lines.push(`includes ${said.includes.join(", ")}: not distinguished here`);
  }
  return { head: `${state.name}, ${time(to - from)}: ${state.meaning}`, lines, from, to };
}

function causes(run: Run, thread: Thread, i: number, deep: boolean): string[] {
  const state = thread.segments.classes[i]! % UNPLACED_FROM;
  const [from, to] = [thread.segments.starts[i]!, thread.segments.endOf(i)];
  const out: string[] = [];
  const by = thread.by?.[i] ?? 0;
  if (state === PREEMPTED && by > 0) {
    out.push(`cause: ${nameOf(run, by)} ran instead`);
  }
  const wake = wakeOf(run, thread, i);
  if (wake) {
    out.push(state === ON_CPU || state === PREEMPTED ? `before that ${wake.words}` : wake.words);
  } else if (deep && state !== ON_CPU && state !== PREEMPTED && run.trace.evidence.level !== "kernel") {
    out.push("waker: not measured at this level");
  }
  if (deep && state !== ON_CPU) {
    out.push(...requestWords(run, thread, from, to));
  }
  return out;
}

function mixFact(thread: Thread, t: number, pixel: number): Fact {
  const { segments } = thread;
  const out = new Float64Array(segments.count);
  const [from, to] = [t - pixel / 2, t + pixel / 2];
  segments.between(from, to, out);
  const parts = STATES.map((_, s) => out[s]! + (out[s + UNPLACED_FROM] ?? 0));
  const here = lowerBound(segments.starts, to) - lowerBound(segments.starts, from);
  const lines = shares(parts)
    .map((share, s) => [share, s] as const)
    .filter(([share]) => share > 0)
    .sort((a, b) => b[0] - a[0])
    .map(([share, s]) => `${STATES[s]!.name} ${tenths(share)}`);
  return { head: `${thread.name || thread.role}: ${here} segments in this pixel (${time(pixel)})`, lines, from, to };
}

/** Returns the facts of a call at `t`. */
export function spanFact(run: Run, thread: Thread, t: number): Fact | null {
  const i = spanAt(thread, t);
  if (i < 0) {
    return null;
  }
  const [from, to] = [thread.spans.start[i]!, thread.spans.end[i]!];
  const [first, ...rest] = spanWords(run, thread, i);
  const parts = new Float64Array(thread.segments.count);
  thread.segments.between(from, to, parts);
  const states = STATES.map((_, s) => parts[s]! + (parts[s + UNPLACED_FROM] ?? 0));
  const mix = shares(states).flatMap((share, s) => (share > 0 ? [`${STATES[s]!.name} ${tenths(share)}`] : []));
  const lines = [`${thread.name || thread.role}, tid ${thread.tid}`, ...rest, mix.join(" · ")];
  return { head: first!.replace(/^in: /, ""), lines, from, to };
}

/** Says that the events after `complete` were dropped. */
export function notRecorded(complete: number): string {
  return `not recorded after ${time(complete)}: the limit of stored events was reached`;
}

/** Returns the facts of a row at `t`, or `null` after the end of its run; `pixel` is the time of one pixel. */
export function factOf(row: Row, t: number, pixel: number, deep = false): Fact | null {
  const { elapsed } = row.run.trace;
  if (t >= elapsed) {
    return null;
  }
  const [from, to] = [Math.max(0, t - pixel / 2), Math.min(elapsed, t + pixel / 2)];
  switch (row.kind) {
    case "thread":
      return threadFact(row.run, row.thread, t, pixel, deep);
    case "spans":
      return spanFact(row.run, row.thread, t);
    case "channel": {
      const { requests: r, device, write } = row.channel;
      const lines: string[] = [];
      const last = lowerBound(r.issue, t + pixel);
      for (let i = last - 1; i >= 0 && i > last - SCANNED && lines.length < REQUESTS; i -= 1) {
        if (r.end[i]! > t) {
          lines.push(`${requestLine(row.channel, i)}, from ${r.tid[i] ? nameOf(row.run, r.tid[i]!) : "an unknown thread"}`);
        }
      }
      const complete = completeOf(row.run.trace);
      if (t >= complete && lines.length === 0) {
        return { head: `${device} ${write ? "write" : "read"}: ${notRecorded(complete)}`, lines, from, to };
      }
      return { head: `${device} ${write ? "write" : "read"}: ${r.depth.at(t)} in flight at ${at(t, pixel * 100)}`, lines, from, to };
    }
    case "series": {
      const e = row.series.steps.extent(from, to);
      const words = quantity(row.series.steps.at(t), row.series.unit);
      const lines = e && e.max > e.min ? [`${quantity(e.min, row.series.unit)} to ${quantity(e.max, row.series.unit)} in this pixel`] : [];
      return { head: `${row.series.name}: ${words} at ${at(t, pixel * 100)}`, lines, from, to };
    }
    case "core": {
      const i = lastAtOrBefore(row.core.start, t);
      const held = i >= 0 && t < row.core.end[i]!;
      if (!held) {
        if (t >= completeOf(row.run.trace)) {
          return { head: `cpu ${row.core.cpu}: ${notRecorded(completeOf(row.run.trace))}`, lines: [], from, to };
        }
        const known = row.run.trace.evidence.level === "kernel";
        return { head: `cpu ${row.core.cpu}: ${known ? "idle" : "other programs or idle: not distinguished at this level"}`, lines: [], from, to };
      }
      const [a, b] = [row.core.start[i]!, row.core.end[i]!];
      const whose = row.core.ours[i] ? "of this program" : "of another program";
      return { head: `cpu ${row.core.cpu}: ${nameOf(row.run, row.core.tid[i]!)}`, lines: [`${time(b - a)} from ${at(a, b - a)}`, whose], from: a, to: b };
    }
    case "use": {
      if (to > row.use.complete) {
        return { head: `processors at ${at(t, pixel * 100)}`, lines: [notRecorded(row.use.complete)], from, to };
      }
      const out = new Float64Array(USE.length);
      row.use.range(from, to, out);
      const lines = USE.slice(0, row.use.whole ? 3 : 1).map((name, i) => `${name}: ${(out[i]! / (to - from)).toFixed(2)} processors`);
      return { head: `processors at ${at(t, pixel * 100)}`, lines: row.use.whole ? lines : [...lines, "other programs and idle: not measured at this level"], from, to };
    }
    case "both": {
      if (t >= row.index.end) {
        return { head: `processors and devices at ${at(t, pixel * 100)}`, lines: [notRecorded(row.index.end)], from, to };
      }
      const i = row.index.at(t);
      return i < 0 ? null : { head: BOTH[row.index.classes[i]!]!, lines: [time(row.index.endOf(i) - row.index.starts[i]!)], from: row.index.starts[i]!, to: row.index.endOf(i) };
    }
    default:
      return null;
  }
}
