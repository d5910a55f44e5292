// The visible time range: integer nanoseconds within the run, at least 100 ns.
const LEAST = 100;

export class TimeRange {
  from = 0;
  to: number;

  constructor(readonly end: number) {
    this.to = end;
  }

  get span(): number {
    return this.to - this.from;
  }

  /** Shows `from..to`, moved and limited to the run. */
  set(from: number, to: number): void {
    const span = Math.min(this.end, Math.max(Math.min(LEAST, this.end), Math.round(to - from)));
    const start = Math.min(Math.max(0, Math.round(from)), this.end - span);
    this.from = start;
    this.to = start + span;
  }

  /** Zooms with a fixed position of `at`. */
  zoom(factor: number, at: number): void {
    const span = Math.min(this.end, Math.max(LEAST, this.span * factor));
    const part = (at - this.from) / this.span;
    this.set(at - part * span, at + (1 - part) * span);
  }

  pan(by: number): void {
    this.set(this.from + by, this.to + by);
  }

  whole(): void {
    this.set(0, this.end);
  }
}
