// The lanes, their order and their positions.
import type { Channel, Core, Series, Thread, Trace } from "./payload";
import { combinations, useOf, type Use } from "./use";
import type { ClassIndex } from "./classes";

/** One run as shown: A or B. */
export interface Run {
  letter: "A" | "B";
  trace: Trace;
  use: Use | null;
  both: ClassIndex | null;
  byTid: Map<number, Thread>;
}

export type Lane =
  | { kind: "run"; run: Run }
  | { kind: "marks"; run: Run }
  | { kind: "use"; run: Run; use: Use }
  | { kind: "both"; run: Run; index: ClassIndex }
  | { kind: "channel"; run: Run; channel: Channel }
  | { kind: "series"; run: Run; series: Series }
  | { kind: "group"; run: Run; name: string; words: string; folded: boolean }
  | { kind: "thread"; run: Run; thread: Thread; folded: boolean }
  | { kind: "spans"; run: Run; thread: Thread }
  | { kind: "core"; run: Run; core: Core };

export type Row = Lane & { id: string; y: number; height: number };

const HEIGHTS: Record<Lane["kind"], number> = {
  run: 30,
  marks: 18,
  use: 34,
  both: 18,
  channel: 32,
  series: 34,
  group: 26,
  thread: 24,
  spans: 15,
  core: 20,
};

/** What is folded, hidden and selected. */
export interface Choice {
  folded: ReadonlySet<string>;
  rolesOff: ReadonlySet<string>;
  spans: boolean;
}

export function runOf(letter: "A" | "B", trace: Trace): Run {
  const byTid = new Map(trace.threads.map((t) => [t.tid, t]));
  return { letter, trace, use: useOf(trace), both: combinations(trace), byTid };
}

/** Returns the name of a thread for a narrow column, without the name of the program. */
export function shortName(thread: Thread): string {
  return (thread.name || thread.role).replace(/^ioloom-(?=.)/, "");
}

/** Returns the roles in the order of their first thread. */
export function rolesOf(runs: readonly Run[]): string[] {
  return [...new Set(runs.flatMap((r) => r.trace.threads.map((t) => t.role)))];
}

/** Returns the threads of each role, in the order of their first thread. */
export function byRole(run: Run): Map<string, Thread[]> {
  const roles = new Map<string, Thread[]>();
  for (const thread of run.trace.threads) {
    const known = roles.get(thread.role);
    if (known) {
      known.push(thread);
    } else {
      roles.set(thread.role, [thread]);
    }
  }
  return roles;
}

export function threadId(run: Run, thread: Thread): string {
  return `${run.letter}:t${thread.tid}`;
}

function lanesOf(run: Run, choice: Choice, several: boolean): [string, Lane][] {
  const out: [string, Lane][] = [];
  const { trace, letter } = run;
  if (several) {
    out.push([`${letter}:run`, { kind: "run", run }]);
  }
  if (trace.marks.length > 0) {
    out.push([`${letter}:marks`, { kind: "marks", run }]);
  }
  const group = (name: string, words: string, fill: () => void): void => {
    const id = `${letter}:g:${name}`;
    const folded = choice.folded.has(id);
    out.push([id, { kind: "group", run, name, words, folded }]);
    if (!folded) {
      fill();
    }
  };
  if (run.use || run.both || trace.channels.length > 0 || trace.series.length > 0) {
    group("machine", "use and queues", () => {
      if (run.use) {
        out.push([`${letter}:use`, { kind: "use", run, use: run.use }]);
      }
      if (run.both) {
        out.push([`${letter}:both`, { kind: "both", run, index: run.both }]);
      }
      trace.channels.forEach((channel, i) => out.push([`${letter}:d${i}`, { kind: "channel", run, channel }]));
      trace.series.forEach((series, i) => out.push([`${letter}:s${i}`, { kind: "series", run, series }]));
    });
  }
  for (const [role, threads] of byRole(run)) {
    if (choice.rolesOff.has(role)) {
      continue;
    }
    group(role, threads.length === 1 ? "1 thread" : `${threads.length} threads`, () => {
      for (const thread of threads) {
        const id = threadId(run, thread);
        const folded = !choice.spans || choice.folded.has(id);
        out.push([id, { kind: "thread", run, thread, folded }]);
        if (!folded && thread.spans.start.length > 0) {
          out.push([`${id}:spans`, { kind: "spans", run, thread }]);
        }
      }
    });
  }
  if (trace.cores.length > 0) {
    group("cores", "running threads", () => {
      for (const core of trace.cores) {
        out.push([`${letter}:c${core.cpu}`, { kind: "core", run, core }]);
      }
    });
  }
  return out;
}

/** Returns all rows from top to bottom. */
export function layout(runs: readonly Run[], choice: Choice): { rows: Row[]; height: number } {
  let y = 0;
  const rows: Row[] = [];
  for (const run of runs) {
    for (const [id, lane] of lanesOf(run, choice, runs.length > 1)) {
      const height = HEIGHTS[lane.kind];
      rows.push({ ...lane, id, y, height });
      y += height;
    }
  }
  return { rows, height: y };
}

/** Returns the first row whose lower edge is below `y`. */
export function rowAt(rows: readonly Row[], y: number): number {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    const row = rows[middle]!;
    if (row.y + row.height <= y) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/** Returns the label of a lane: its name and a short description. */
export function labelOf(row: Row): [string, string] {
  switch (row.kind) {
    case "run":
      return [`${row.run.letter}`, ""];
    case "marks":
      return ["phases", ""];
    case "use":
      return ["processors", row.use.whole ? `${row.use.processors}: this program, others, idle` : "this program; others not measured"];
    case "both":
      return ["overlap", "with devices"];
    case "channel":
      return [`${row.channel.device} ${row.channel.write ? "write" : "read"}`, `in flight, max ${row.channel.requests.depth.max}`];
    case "series":
      return [row.series.name, ""];
    case "group":
      return [row.name, row.words];
    case "thread":
      return [shortName(row.thread), String(row.thread.tid)];
    case "spans":
      return ["", "calls"];
    case "core":
      return [`cpu ${row.core.cpu}`, ""];
  }
}
