// Draws the visible rows: pixels first (raster.ts), then lines, letters and text.
import { lastAtOrBefore } from "./classes";
import type { Palette, Tile } from "./colours";
import { moment, quantity, tickStep, time, unitFor } from "./format";
import type { Row, Run } from "./layout";
import { UNPLACED_FROM, type Thread } from "./payload";
import { Raster, Scratch, pureRuns } from "./raster";
import { FAMILY_NAMES, STATES } from "./states";
import { BOTH, USE } from "./use";

/** The visible part of the drawing. */
export interface View {
  from: number;
  to: number;
  top: number;
  width: number;
  height: number;
  scale: number;
}

/** The marks. */
export interface Marked {
  lane: string | null;
  cursor: number | null;
  selected: { id: string; from: number; to: number } | null;
  wake: { fromId: string | null; toId: string; at: number; words: string } | null;
  statesOff: ReadonlySet<number>;
}

const FONT = '11px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",Arial,sans-serif';
const SMALL = FONT.replace("11px", "10px");

export class Painter {
  private readonly context: CanvasRenderingContext2D;
  private readonly scratch = new Scratch();
  private use = new Float64Array(0);
  private raster: Raster | null = null;

  constructor(private readonly canvas: HTMLCanvasElement) {
    this.context = canvas.getContext("2d", { alpha: false })!;
  }

  /** Draws `rows` (those in view) and the marks. */
  draw(rows: readonly Row[], all: readonly Row[], view: View, colours: Palette, marked: Marked): void {
    const [w, h] = [Math.round(view.width * view.scale), Math.round(view.height * view.scale)];
    if (this.canvas.width !== w || this.canvas.height !== h) {
      [this.canvas.width, this.canvas.height] = [w, h];
    }
    if (!this.raster || this.raster.width !== w || this.raster.height !== h) {
      this.raster = new Raster(w, h, view.scale);
    }
    const raster = this.raster;
    raster.fill(colours.paper);
    const words: (() => void)[] = [];
    for (const row of rows) {
      this.pixels(raster, row, view, colours, marked, words);
    }
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.context.putImageData(raster.image, 0, 0);
    this.context.setTransform(view.scale, 0, 0, view.scale, 0, 0);
    this.lines(rows, view, colours);
    for (const write of words) {
      write();
    }
    this.phases(rows, view, colours);
    this.marks(rows, all, view, colours, marked);
  }

  private pixels(raster: Raster, row: Row, view: View, colours: Palette, marked: Marked, words: (() => void)[]): void {
    const y = (row.y - view.top) * view.scale;
    const px = (css: number): number => Math.round(css * view.scale);
    const bottom = Math.round(y) + px(row.height - 3);
    const n = raster.width;
    switch (row.kind) {
      case "thread": {
        const parts = this.scratch.columns(row.thread.segments, view.from, view.to, n);
        const tiles = tilesOf(colours, marked.statesOff);
        const whole = (view.to - view.from) / n;
        raster.stacks(parts, row.thread.segments.count, n, whole, bottom, px(row.height - 5), tiles);
        this.letters(parts, row.thread, row, view, colours, marked, words);
        break;
      }
      case "spans": {
        const { index } = row.thread.spans;
        const parts = this.scratch.columns(index, view.from, view.to, n);
        raster.stacks(parts, index.count, n, (view.to - view.from) / n, bottom, px(row.height - 4), colours.families);
        this.names(parts, row, view, colours, words);
        break;
      }
      case "core": {
        const parts = this.scratch.columns(row.core.index, view.from, view.to, n);
        raster.stacks(parts, row.core.index.count, n, (view.to - view.from) / n, bottom, px(row.height - 5), row.run.trace.evidence.level === "kernel" ? colours.use : colours.useOpen);
        words.push(() => this.holders(row, view, colours));
        break;
      }
      case "both": {
        const parts = this.scratch.columns(row.index, view.from, view.to, n);
        raster.stacks(parts, BOTH.length, n, (view.to - view.from) / n, bottom, px(row.height - 5), colours.both);
        break;
      }
      case "use": {
        if (this.use.length < n * USE.length) {
          this.use = new Float64Array(n * USE.length);
        }
        row.use.columns(view.from, view.to, n, this.use);
        const whole = ((view.to - view.from) / n) * row.use.processors;
        raster.stacks(this.use, USE.length, n, whole, bottom, px(row.height - 6), row.use.whole ? colours.use : colours.useOpen);
        break;
      }
      case "channel": {
        const colour = row.channel.write ? colours.write : colours.read;
        raster.area(row.channel.requests.depth, view.from, view.to, n, bottom, px(row.height - 6), colour, colours.panel);
        break;
      }
      case "series":
        raster.area(row.series.steps, view.from, view.to, n, bottom, px(row.height - 6), colours.series, colours.seriesBand);
        break;
      case "run":
        raster.rect(0, Math.round(y), n, px(row.height), colours.panel);
        words.push(() => this.title(row, view, colours));
        break;
      case "group":
        raster.rect(0, Math.round(y), n, px(row.height - 2), colours.panel);
        break;
      case "marks":
        break;
    }
  }

  private title(row: Row & { kind: "run" }, view: View, colours: Palette): void {
    const { trace } = row.run;
    this.context.font = `600 ${FONT.replace("11px", "13px")}`;
    this.context.textAlign = "left";
    this.context.fillStyle = colours.ink;
    const text = `${trace.title} · ${time(trace.elapsed)}`;
    this.context.fillText(this.fit(text, view.width - 16), 8, row.y - view.top + 19);
  }

  /** Writes the letter of a state if its bar is wide enough. */
  private letters(parts: Float64Array, thread: Thread, row: Row, view: View, colours: Palette, marked: Marked, words: (() => void)[]): void {
    const runs: [number, number][] = [];
    pureRuns(parts, thread.segments.count, Math.round(view.width * view.scale), 15 * view.scale, (from, to, c) => {
      const state = c % UNPLACED_FROM;
      if (!marked.statesOff.has(state)) {
        runs.push([(from + to) / 2 / view.scale, state]);
      }
    });
    const y = row.y - view.top + row.height / 2 + 3.5;
    words.push(() => {
      this.context.font = `600 ${FONT}`;
      this.context.textAlign = "center";
      for (const [x, state] of runs) {
        this.context.fillStyle = colours.stateText[state]!;
        this.context.fillText(STATES[state]!.letter, x, y);
      }
    });
  }

  /** Writes the kinds of spans that are wide enough. */
  private names(parts: Float64Array, row: Row & { kind: "spans" }, view: View, colours: Palette, words: (() => void)[]): void {
    const { spans } = row.thread;
    const { trace } = row.run;
    const found: [number, number, string, number][] = [];
    pureRuns(parts, spans.index.count, Math.round(view.width * view.scale), 30 * view.scale, (from, to, family) => {
      if (family >= FAMILY_NAMES.length) {
        return;
      }
      const middle = view.from + ((from + to) / 2 / view.scale / view.width) * (view.to - view.from);
      const i = spanAt(row.thread, middle);
      if (i < 0) {
        return;
      }
      const name = trace.kinds[spans.kind[i]!] ?? "";
      const file = spans.file?.[i] ?? 0;
      const path = file > 0 ? trace.files[file - 1] : undefined;
      const room = (to - from) / view.scale - 8;
      const full = path === undefined ? name : `${name} · ${path}`;
      found.push([from / view.scale + 4, family, full, room]);
    });
    const y = row.y - view.top + row.height - 5.5;
    words.push(() => {
      this.context.font = SMALL;
      this.context.textAlign = "left";
      for (const [x, family, full, room] of found) {
        const text = this.fit(full, room);
        this.context.fillStyle = colours.familyText[family]!;
        this.context.fillText(text, x, y);
      }
    });
  }

  /** Writes the thread on the processor if the run is wide enough. */
  private holders(row: Row & { kind: "core" }, view: View, colours: Palette): void {
    const { core, run } = row;
    const perPixel = (view.to - view.from) / view.width;
    const first = Math.max(0, lowerBound(core.end, view.from));
    const inView = lowerBound(core.start, view.to) - first;
    if (inView > 4 * view.width) {
      return;
    }
    this.context.font = SMALL;
    this.context.textAlign = "left";
    for (let i = first; i < first + inView; i += 1) {
      const [from, to] = [Math.max(core.start[i]!, view.from), Math.min(core.end[i]!, view.to)];
      const wide = (to - from) / perPixel;
      if (wide < 26) {
        continue;
      }
      const thread = run.byTid.get(core.tid[i]!);
      const text = this.fit(thread ? thread.name || thread.role : `tid ${core.tid[i]}`, wide - 6);
      this.context.fillStyle = core.ours[i] ? colours.stateText[0]! : colours.ink;
      this.context.fillText(text, (from - view.from) / perPixel + 4, row.y - view.top + row.height - 7);
    }
  }

  private fit(text: string, room: number): string {
    if (this.context.measureText(text).width <= room) {
      return text;
    }
    let short = text;
    while (short.length > 1 && this.context.measureText(`${short}…`).width > room) {
      short = short.slice(0, -1);
    }
    return short.length > 1 ? `${short}…` : "";
  }

  /** Draws vertical lines of the axis and thin lines under lanes. */
  private lines(rows: readonly Row[], view: View, colours: Palette): void {
    const c = this.context;
    c.lineWidth = 1;
    c.globalAlpha = 0.55;
    c.strokeStyle = colours.grid;
    c.beginPath();
    for (const t of ticks(view)) {
      const x = Math.round(((t - view.from) / (view.to - view.from)) * view.width) + 0.5;
      c.moveTo(x, 0);
      c.lineTo(x, view.height);
    }
    c.stroke();
    c.globalAlpha = 1;
    c.strokeStyle = colours.rule;
    c.beginPath();
    for (const row of rows) {
      if (row.kind === "spans" || row.kind === "run" || row.kind === "group") {
        continue;
      }
      const y = Math.round(row.y + row.height - view.top) - 2.5;
      c.moveTo(0, y);
      c.lineTo(view.width, y);
    }
    c.stroke();
    c.font = SMALL;
    c.textAlign = "right";
    for (const row of rows) {
      if (row.kind === "series") {
        halo(c, quantity(row.series.steps.max, row.series.unit), view.width - 4, row.y - view.top + 12, colours);
      }
    }
  }

  /** Draws marks of phases: a line through the lanes of their run, and a label. */
  private phases(rows: readonly Row[], view: View, colours: Palette): void {
    const c = this.context;
    const runs = new Set<Run>(rows.map((r) => r.run));
    for (const run of runs) {
      const mine = rows.filter((r) => r.run === run);
      const [top, bottom] = [mine[0]!.y - view.top, mine[mine.length - 1]!.y + mine[mine.length - 1]!.height - view.top];
      const band = mine.find((r) => r.kind === "marks");
      let free = -Infinity;
      for (const mark of run.trace.marks) {
        const x = ((mark.at - view.from) / (view.to - view.from)) * view.width;
        if (x < -1 || x > view.width) {
          continue;
        }
        c.strokeStyle = colours.soft;
        c.setLineDash([3, 3]);
        c.beginPath();
        c.moveTo(Math.round(x) + 0.5, band ? band.y - view.top + 2 : top);
        c.lineTo(Math.round(x) + 0.5, bottom);
        c.stroke();
        c.setLineDash([]);
        if (band) {
          c.font = SMALL;
          const wide = c.measureText(mark.name).width;
          // Near the right edge, the text is to the left of its line.
          const left = x + 4 + wide > view.width ? x - 4 - wide : x + 4;
          if (left >= free) {
            c.textAlign = "left";
            c.fillStyle = colours.soft;
            c.fillText(mark.name, left, band.y - view.top + 12);
            free = left + wide + 10;
          }
        }
      }
    }
  }

  private marks(rows: readonly Row[], all: readonly Row[], view: View, colours: Palette, marked: Marked): void {
    const c = this.context;
    const x = (t: number): number => ((t - view.from) / (view.to - view.from)) * view.width;
    const current = rows.find((r) => r.id === marked.lane);
    if (current) {
      c.fillStyle = colours.accent;
      c.fillRect(0, current.y - view.top, 3, current.height - 2);
      if (marked.cursor !== null) {
        c.strokeStyle = colours.accent;
        c.lineWidth = 1;
        c.beginPath();
        c.moveTo(Math.round(x(marked.cursor)) + 0.5, current.y - view.top - 2);
        c.lineTo(Math.round(x(marked.cursor)) + 0.5, current.y - view.top + current.height);
        c.stroke();
      }
    }
    const chosen = rows.find((r) => r.id === marked.selected?.id);
    if (chosen && marked.selected) {
      const [left, right] = [Math.max(-2, x(marked.selected.from)), Math.min(view.width + 2, x(marked.selected.to))];
      c.strokeStyle = colours.ink;
      c.lineWidth = 2;
      c.strokeRect(left, chosen.y - view.top + 1, Math.max(2, right - left), chosen.height - 3);
    }
    if (marked.wake) {
      this.arrow(all, view, colours, marked.wake, x(marked.wake.at));
    }
  }

  /** Draws an arrow from the lane of the waker to the woken one. */
  private arrow(all: readonly Row[], view: View, colours: Palette, wake: NonNullable<Marked["wake"]>, x: number): void {
    const c = this.context;
    const to = all.find((r) => r.id === wake.toId);
    if (!to || x < -2 || x > view.width + 2) {
      return;
    }
    const from = all.find((r) => r.id === wake.fromId);
    const end = to.y - view.top + to.height / 2;
    const start = from ? from.y - view.top + from.height / 2 : end - 34;
    const down = end > start ? 1 : -1;
    c.strokeStyle = c.fillStyle = colours.ink;
    c.lineWidth = 1.8;
    c.beginPath();
    c.moveTo(x, start);
    c.lineTo(x, end - down * 6);
    c.stroke();
    c.beginPath();
    c.moveTo(x, end);
    c.lineTo(x - 4.5, end - down * 8);
    c.lineTo(x + 4.5, end - down * 8);
    c.fill();
    c.beginPath();
    c.arc(x, start, from ? 3.5 : 0.1, 0, 7);
    c.fill();
    c.font = `600 ${FONT}`;
    const wide = c.measureText(wake.words).width;
    const left = x + wide + 14 > view.width;
    c.textAlign = left ? "right" : "left";
    const y = Math.min(Math.max(14, start - down * 2 + (from ? 4 : 0)), view.height - 6);
    c.fillStyle = colours.paperText;
    c.globalAlpha = 0.88;
    c.fillRect(left ? x - wide - 12 : x + 6, y - 11, wide + 8, 15);
    c.globalAlpha = 1;
    c.fillStyle = colours.ink;
    c.fillText(wake.words, left ? x - 8 : x + 10, y);
  }
}

/** Returns round times of the axis. */
export function ticks(view: { from: number; to: number; width: number }): number[] {
  const step = tickStep(view.to - view.from, view.width / 110);
  const out: number[] = [];
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    out.push(t);
  }
  return out;
}

/** Draws the axis above the lanes. */
export function drawAxis(canvas: HTMLCanvasElement, view: View, colours: Palette): void {
  const c = canvas.getContext("2d")!;
  const height = 22;
  [canvas.width, canvas.height] = [Math.round(view.width * view.scale), Math.round(height * view.scale)];
  c.setTransform(view.scale, 0, 0, view.scale, 0, 0);
  c.clearRect(0, 0, view.width, height);
  c.font = FONT;
  c.fillStyle = colours.soft;
  c.strokeStyle = colours.rule;
  const all = ticks(view);
  const step = (all[1] ?? view.to) - (all[0] ?? view.from);
  const unit = unitFor(Math.max(view.to, 1));
  c.beginPath();
  for (const t of all) {
    const x = ((t - view.from) / (view.to - view.from)) * view.width;
    const text = moment(t, step, unit);
    const wide = c.measureText(text).width;
    c.textAlign = x < wide / 2 ? "left" : x > view.width - wide / 2 ? "right" : "center";
    c.fillText(text, Math.min(view.width, Math.max(0, x)), 13);
    c.moveTo(Math.round(x) + 0.5, 17);
    c.lineTo(Math.round(x) + 0.5, 22);
  }
  c.stroke();
}

/** Returns the tiles of states; hidden states have light tiles. */
function tilesOf(colours: Palette, off: ReadonlySet<number>): Tile[] {
  return colours.states.map((t, c) => (off.has(c % UNPLACED_FROM) ? colours.quiet[c]! : t));
}

/** Returns the span at `t`, or -1. */
export function spanAt(thread: Thread, t: number): number {
  const { start, end } = thread.spans;
  const i = lastAtOrBefore(start, t);
  return i >= 0 && t < end[i]! ? i : -1;
}

/** Returns the index of the first value that is at or above `t`. */
export function lowerBound(values: Float64Array, t: number): number {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! < t) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

function halo(c: CanvasRenderingContext2D, text: string, x: number, y: number, colours: Palette): void {
  c.lineWidth = 3;
  c.strokeStyle = colours.paperText;
  c.strokeText(text, x, y);
  c.lineWidth = 1;
  c.fillStyle = colours.soft;
  c.fillText(text, x, y);
}
