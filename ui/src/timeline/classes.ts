// Exact time per class along one lane. A lane is a sequence of adjacent segments, each of one
// class. Cumulative sums are stored for every 64th segment, so the time per class of any range
// takes two binary searches and a scan of at most 128 segments, at any zoom level. Nothing is
// sampled: every pixel column shows the sum over its interval. Times are integer nanoseconds below
// 2^53, so sums in doubles are exact.
const BLOCK = 64;
const NEAR = 96;

export class ClassIndex {
  private readonly sums: Float64Array;
  private readonly low: Float64Array;
  private readonly high: Float64Array;

  constructor(
    readonly starts: Float64Array,
    readonly classes: Uint8Array,
    readonly end: number,
    readonly count: number,
  ) {
    this.low = new Float64Array(count);
    this.high = new Float64Array(count);
    const blocks = Math.ceil(starts.length / BLOCK) + 1;
    const sums = new Float64Array(blocks * count);
    const run = new Float64Array(count);
    for (let i = 0; i < starts.length; i += 1) {
      if (i % BLOCK === 0) {
        sums.set(run, (i / BLOCK) * count);
      }
      const next = i + 1 < starts.length ? starts[i + 1]! : end;
      run[classes[i]!]! += next - starts[i]!;
    }
    this.sums = sums;
  }

  get length(): number {
    return this.starts.length;
  }

  /** Returns the start of the lane; its end if it is empty. */
  get start(): number {
    return this.starts.length > 0 ? this.starts[0]! : this.end;
  }

  /** Returns the end of segment `i`. */
  endOf(i: number): number {
    return i + 1 < this.starts.length ? this.starts[i + 1]! : this.end;
  }

  /** Returns the segment at `t`, or -1 outside of the lane. Empty segments are never found. */
  at(t: number): number {
    const i = lastAtOrBefore(this.starts, t);
    return i >= 0 && t < this.endOf(i) ? i : -1;
  }

  /** Writes the time per class before `t` to `out`. */
  private until(t: number, out: Float64Array): void {
    const last = lastAtOrBefore(this.starts, t);
    if (last < 0) {
      out.fill(0);
      return;
    }
    const block = Math.floor(last / BLOCK);
    for (let c = 0; c < this.count; c += 1) {
      out[c] = this.sums[block * this.count + c]!;
    }
    const { starts, classes } = this;
    for (let i = block * BLOCK; i < last; i += 1) {
      out[classes[i]!]! += starts[i + 1]! - starts[i]!;
    }
    out[classes[last]!]! += Math.min(t, this.endOf(last)) - starts[last]!;
  }

  /** Writes the time per class in `from..to` to `out`; time outside of the lane does not count. */
  between(from: number, to: number, out: Float64Array, offset = 0): void {
    this.until(from, this.low);
    this.until(to, this.high);
    for (let c = 0; c < this.count; c += 1) {
      out[offset + c] = to > from ? this.high[c]! - this.low[c]! : 0;
    }
  }

  /** Does the same for each of `n` equal columns of `from..to`: `out[column * count + class]`. */
  columns(from: number, to: number, n: number, out: Float64Array): void {
    const { starts, classes, count } = this;
    const step = (to - from) / n;
    out.fill(0, 0, n * count);
    if (starts.length === 0) {
      return;
    }
    let i = Math.max(0, lastAtOrBefore(starts, from));
    for (let x = 0; x < n; x += 1) {
      const left = from + x * step;
      const right = x + 1 === n ? to : from + (x + 1) * step;
      if (right <= this.start || left >= this.end) {
        continue;
      }
      const far = i + NEAR;
      if (far < starts.length && starts[far]! < right) {
        this.between(left, right, out, x * count);
        i = lastAtOrBefore(starts, right);
        continue;
      }
      const base = x * count;
      while (i < starts.length && starts[i]! < right) {
        const stop = this.endOf(i);
        const length = Math.min(stop, right) - Math.max(starts[i]!, left);
        if (length > 0) {
          out[base + classes[i]!]! += length;
        }
        if (stop > right) {
          break;
        }
        i += 1;
      }
      i = Math.min(i, starts.length - 1);
    }
  }
}

/** Returns the index of the last value that is not above `t`, or -1. `values` are ascending. */
export function lastAtOrBefore(values: Float64Array, t: number): number {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! <= t) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - 1;
}

/**
 * Returns the interval after (`by` 1) or before (`by` -1) interval `chosen`, or after or before `t` if
 * none is chosen (-1). Empty intervals are skipped. At the end of the lane, it returns `chosen` or the
 * interval at `t`, or -1 without either.
 */
export function neighbour(starts: Float64Array, endOf: (i: number) => number, chosen: number, t: number, by: 1 | -1): number {
  const last = lastAtOrBefore(starts, t);
  const here = chosen >= 0 ? chosen : last >= 0 && t < endOf(last) ? last : -1;
  // After the end of `last`, that interval is the previous one.
  let i = here >= 0 ? here + by : by > 0 ? last + 1 : last;
  while (i >= 0 && i < starts.length && endOf(i) <= starts[i]!) {
    i += by;
  }
  return i >= 0 && i < starts.length ? i : here;
}

/** Returns intervals with gaps as one lane; gaps and both ends have the class `gap`. */
export function withGaps(
  starts: ArrayLike<number>,
  ends: ArrayLike<number>,
  classOf: (i: number) => number,
  gap: number,
  from: number,
  to: number,
): ClassIndex {
  const n = starts.length;
  const times = new Float64Array(2 * n + 1);
  const classes = new Uint8Array(2 * n + 1);
  let k = 0;
  let at = from;
  for (let i = 0; i < n; i += 1) {
    const start = Math.max(starts[i]!, at);
    const end = Math.min(ends[i]!, to);
    if (end <= start) {
      continue;
    }
    if (start > at) {
      times[k] = at;
      classes[k] = gap;
      k += 1;
    }
    times[k] = start;
    classes[k] = classOf(i);
    k += 1;
    at = end;
  }
  if (at < to) {
    times[k] = at;
    classes[k] = gap;
    k += 1;
  }
  return new ClassIndex(times.slice(0, k), classes.slice(0, k), to, gap + 1);
}
