// A counter over time: each value is valid until the next. Means are computed from a cumulative
// integral, so they are exact at any zoom; a column's extremes are those of its points.
import { lastAtOrBefore } from "./classes";

export interface Extent {
  mean: number;
  min: number;
  max: number;
}

export class Steps {
  private readonly integral: Float64Array;
  readonly max: number;

  constructor(
    readonly times: Float64Array,
    readonly values: Float64Array,
    readonly end: number,
  ) {
    const n = times.length;
    this.integral = new Float64Array(n + 1);
    let max = 0;
    for (let i = 0; i < n; i += 1) {
      const next = i + 1 < n ? times[i + 1]! : Math.max(end, times[i]!);
      this.integral[i + 1] = this.integral[i]! + values[i]! * (next - times[i]!);
      max = Math.max(max, values[i]!);
    }
    this.max = max;
  }

  /** Returns the value at `t`; 0 before the first point. */
  at(t: number): number {
    const i = lastAtOrBefore(this.times, t);
    return i < 0 ? 0 : this.values[i]!;
  }

  private until(t: number): number {
    const i = lastAtOrBefore(this.times, t);
    if (i < 0) {
      return 0;
    }
    return this.integral[i]! + this.values[i]! * (Math.min(t, this.end) - this.times[i]!);
  }

  /** Returns the time-weighted mean and the extremes in `from..until`, or `null` after the end. */
  extent(from: number, until: number): Extent | null {
    if (from >= this.end) {
      return null;
    }
    const to = Math.min(until, this.end);
    const first = lastAtOrBefore(this.times, from);
    const last = lastAtOrBefore(this.times, to);
    let min = first < 0 ? 0 : this.values[first]!;
    let max = min;
    for (let i = first + 1; i <= last && this.times[i]! < to; i += 1) {
      min = Math.min(min, this.values[i]!);
      max = Math.max(max, this.values[i]!);
    }
    const mean = to > from ? (this.until(to) - this.until(from)) / (to - from) : min;
    return { mean, min, max };
  }
}

/** Returns the number of open intervals over time. */
export function depthOf(starts: Float64Array, ends: Float64Array, end: number): Steps {
  const up = Float64Array.from(starts).sort();
  const down = Float64Array.from(ends).sort();
  const times: number[] = [];
  const values: number[] = [];
  let [i, k, depth] = [0, 0, 0];
  while (i < up.length || k < down.length) {
    const t = Math.min(up[i] ?? Infinity, down[k] ?? Infinity);
    while (k < down.length && down[k] === t) {
      depth -= 1;
      k += 1;
    }
    while (i < up.length && up[i] === t) {
      depth += 1;
      i += 1;
    }
    times.push(t);
    values.push(depth);
  }
  return new Steps(Float64Array.from(times), Float64Array.from(values), end);
}
