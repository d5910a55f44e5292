// CPU and device usage over time, as lanes that can be summed like any other: how many CPUs ran
// this program, ran other programs or were idle, and whether CPUs and devices worked at the same
// time.
import { ClassIndex } from "./classes";
import { ON_CPU, STATES } from "./states";
import { completeOf, isProgramThread, UNPLACED_FROM, type Trace } from "./payload";

/** Classes of the overlap lane, in order. */
export const BOTH = ["processor and device busy", "processor only, device queue empty", "device only, this program not running", "neither"] as const;
export const USE = ["this program", "others", "idle"] as const;

export interface Use {
  /** Processor time of this program, of others and idle: mean numbers of processors over a range. */
  range(from: number, to: number, out: Float64Array): void;
  columns(from: number, to: number, n: number, out: Float64Array): void;
  processors: number;
  /** Whether others and idle were measured. */
  whole: boolean;
  /** End of the measurement. */
  complete: number;
}

/** Sum over several lanes. */
class Sum implements Use {
  private scratch = new Float64Array(0);

  constructor(
    private readonly lanes: readonly ClassIndex[],
    private readonly take: (classes: Float64Array, at: number, out: Float64Array, to: number, count: number) => void,
    readonly processors: number,
    readonly whole: boolean,
    readonly complete: number,
  ) {}

  columns(from: number, to: number, n: number, out: Float64Array): void {
    out.fill(0, 0, n * USE.length);
    for (const lane of this.lanes) {
      if (this.scratch.length < n * lane.count) {
        this.scratch = new Float64Array(n * lane.count);
      }
      lane.columns(from, to, n, this.scratch);
      for (let x = 0; x < n; x += 1) {
        this.take(this.scratch, x * lane.count, out, x * USE.length, lane.count);
      }
    }
  }

  range(from: number, to: number, out: Float64Array): void {
    this.columns(from, to, 1, out);
  }
}

export function useOf(trace: Trace): Use | null {
  if (trace.cores.length > 0) {
    const lanes = trace.cores.map((c) => c.index);
    // Without kernel events, only this program's threads are known to use cores, and a core that ran
    // none of them has no lane.
    const whole = trace.evidence.level === "kernel";
    return new Sum(
      lanes,
      (classes, at, out, to) => {
        for (let k = 0; k < 3; k += 1) {
          out[to + k]! += classes[at + k]!;
        }
      },
      whole ? lanes.length : (trace.processors ?? lanes.length),
      whole,
      completeOf(trace),
    );
  }
  const threads = trace.threads.filter(isProgramThread);
  if (threads.length === 0) {
    return null;
  }
  return new Sum(
    threads.map((t) => t.segments),
    (classes, at, out, to, count) => {
      out[to]! += classes[at + ON_CPU]! + (count > UNPLACED_FROM ? classes[at + ON_CPU + UNPLACED_FROM]! : 0);
    },
    trace.processors ?? threads.length,
    false,
    completeOf(trace),
  );
}

const [RUNS, STOPS, ISSUED, DONE] = [0, 1, 2, 3];

/** Sorted events: when a thread of this program starts or stops running, and when a request is issued
 *  or completed, as time × 4 + kind. Plain numbers sort many times faster than objects. */
function changes(trace: Trace): Float64Array {
  const keys: number[] = [];
  const push = (from: number, to: number, begins: number): void => {
    keys.push(from * 4 + begins, to * 4 + begins + 1);
  };
  for (const core of trace.cores) {
    for (let i = 0; i < core.start.length; i += 1) {
      if (core.ours[i]) {
        push(core.start[i]!, core.end[i]!, RUNS);
      }
    }
  }
  for (const thread of trace.cores.length > 0 ? [] : trace.threads.filter(isProgramThread)) {
    const { starts, classes } = thread.segments;
    for (let i = 0; i < starts.length; i += 1) {
      if (classes[i]! % STATES.length === ON_CPU) {
        push(starts[i]!, thread.segments.endOf(i), RUNS);
      }
    }
  }
  for (const { requests } of trace.channels) {
    for (let i = 0; i < requests.issue.length; i += 1) {
      push(requests.issue[i]!, requests.end[i]!, ISSUED);
    }
  }
  return Float64Array.from(keys).sort();
}

/** Whether this program runs and whether a device is busy; `null` without device requests. */
export function combinations(trace: Trace): ClassIndex | null {
  if (trace.channels.length === 0) {
    return null;
  }
  const keys = changes(trace);
  const end = completeOf(trace);
  const starts = new Float64Array(keys.length + 1);
  const classes = new Uint8Array(keys.length + 1);
  let [runs, flying, k] = [0, 0, 0];
  const put = (at: number): void => {
    const c = runs > 0 ? (flying > 0 ? 0 : 1) : flying > 0 ? 2 : 3;
    if (k > 0 && starts[k - 1] === at) {
      k -= 1;
    }
    if (k > 0 && classes[k - 1] === c) {
      return;
    }
    starts[k] = at;
    classes[k] = c;
    k += 1;
  };
  put(0);
  for (let i = 0; i < keys.length; i += 1) {
    const at = Math.floor(keys[i]! / 4);
    const what = keys[i]! % 4;
    runs += what === RUNS ? 1 : what === STOPS ? -1 : 0;
    flying += what === ISSUED ? 1 : what === DONE ? -1 : 0;
    if (i + 1 === keys.length || Math.floor(keys[i + 1]! / 4) !== at) {
      put(Math.min(at, end));
    }
  }
  return new ClassIndex(starts.slice(0, k), classes.slice(0, k), end, BOTH.length);
}
