// The viewer: manages the visible range and the selection, redraws at most once per frame, and
// draws only the visible lanes. Input is in input.ts.
import { neighbour } from "./classes";
import { palette, type Palette } from "./colours";
import { drawAxis, Painter, spanAt, type Marked } from "./draw";
import { factOf, wakeOf, type Fact } from "./facts";
import { time } from "./format";
import { labelOf, layout, rowAt, runOf, threadId, type Row, type Run } from "./layout";
import { Overview } from "./overview";
import { Bars, element, Key, Legend, Machine } from "./panels";
import { isProgramThread, type Thread, type Trace } from "./payload";
import { TimeRange } from "./range";

const TABLES_AFTER_MS = 60;

export class Viewer {
  readonly scroll = element("div", "tl-scroll");
  readonly canvas = element("canvas", "tl-canvas");
  readonly range: TimeRange;
  readonly runs: readonly Run[];
  readonly folded: Set<string> = new Set();
  readonly rolesOff = new Set<string>();
  readonly marked: Marked & { statesOff: Set<number> } = { lane: null, cursor: null, selected: null, wake: null, statesOff: new Set() };
  rows: Row[] = [];
  spans = true;
  /** Called after the range has changed. */
  onRange: () => void = () => undefined;
  private readonly inner = element("div", "tl-inner");
  private readonly sticky = element("div", "tl-view");
  private readonly labels = element("div", "tl-labels");
  private readonly axis = element("canvas", "tl-axis");
  private readonly detail = element("div", "tl-detail");
  private readonly painter: Painter;
  private readonly overview: Overview;
  private readonly legend: Legend;
  private readonly bars: Bars;
  private readonly machine: Machine;
  private readonly key: Key;
  private colours: Palette;
  private asked = false;
  private tables = 0;
  private version = 0;
  /** The index of the selected segment or call in its lane. */
  private place: { id: string; index: number } | null = null;

  constructor(
    readonly root: HTMLElement,
    traces: readonly Trace[],
  ) {
    this.runs = traces.map((t, i) => runOf(i === 0 ? "A" : "B", t));
    if (this.runs.length > 1) {
      // Comparing two runs requires both to be visible at the same time.
      this.folded = new Set(this.runs.flatMap((r) => [`${r.letter}:g:tool`, `${r.letter}:g:cores`]));
    }
    this.range = new TimeRange(Math.max(1, ...traces.map((t) => t.elapsed)));
    this.colours = palette(root);
    this.painter = new Painter(this.canvas);
    this.overview = new Overview((part) => {
      const centre = part * this.range.end;
      this.range.set(centre - this.range.span / 2, centre + this.range.span / 2);
      this.changed();
    });
    const hooks = { toggleState: (s: number) => this.toggleState(s), showThread: (id: string) => this.goTo(id) };
    this.legend = new Legend(this.runs, this.colours, hooks);
    this.bars = new Bars(this.runs, hooks);
    this.machine = new Machine(this.runs);
    this.key = new Key(this.colours);
    this.build();
    this.arrange();
    new ResizeObserver(() => this.redraw()).observe(this.scroll);
  }

  private build(): void {
    this.canvas.setAttribute("aria-hidden", "true");
    this.axis.setAttribute("aria-hidden", "true");
    this.detail.setAttribute("aria-live", "polite");
    this.scroll.tabIndex = 0;
    this.scroll.setAttribute("role", "group");
    this.scroll.setAttribute("aria-label", "Lanes. Arrow keys move, plus and minus zoom, brackets change the lane, Enter selects, question mark lists all keys.");
    this.sticky.append(this.labels, this.canvas);
    this.inner.append(this.sticky);
    this.scroll.append(this.inner);
    const head = element("div", "tl-head");
    const spacer = element("div", "tl-spacer");
    spacer.append(element("span", "", "whole run"), element("span", "", "time"));
    const strips = element("div", "tl-strips");
    strips.append(this.overview.canvas, this.axis);
    head.append(spacer, strips);
    const panels = element("div", "tl-panels");
    const left = element("div", "tl-panel");
    left.append(element("h3", "", "States in the visible range"), this.legend.root, this.key.root);
    const right = element("div", "tl-panel");
    right.append(element("h3", "", "By role"), this.bars.roles, element("h3", "", "By thread"), this.bars.threads, element("h3", "", "Machine in the visible range"), this.machine.root);
    panels.append(left, right);
    this.root.append(head, this.scroll, this.detail, panels);
    this.say(null);
    this.scroll.addEventListener("scroll", () => this.redraw(), { passive: true });
  }

  /** Lays out the rows again, after folding, hiding or another selection. */
  arrange(): void {
    const made = layout(this.runs, this);
    this.rows = made.rows;
    this.inner.style.height = `${made.height}px`;
    this.version += 1;
    this.changed();
  }

  /** Handles a change of the range or of the threads: numbers are updated shortly after the drawing. */
  changed(): void {
    this.redraw();
    this.onRange();
    window.clearTimeout(this.tables);
    this.tables = window.setTimeout(() => this.updateTables(), TABLES_AFTER_MS);
  }

  private updateTables(): void {
    this.bars.update(this.range, this.rolesOff);
    this.machine.update(this.range);
    this.root.dispatchEvent(new CustomEvent("timeline-settled"));
  }

  redraw(): void {
    if (!this.asked) {
      this.asked = true;
      requestAnimationFrame(() => {
        this.asked = false;
        this.drawNow();
      });
    }
  }

  /** Returns the threads of a run whose time is summed: those of the program with visible roles. */
  shown(run: Run): Thread[] {
    return run.trace.threads.filter((t) => !this.rolesOff.has(t.role) && isProgramThread(t));
  }

  /** Draws the visible lanes and the legend; the benchmark measures this. */
  drawNow(): void {
    const scale = Math.min(3, window.devicePixelRatio || 1);
    const [width, height] = [this.canvas.clientWidth, this.scroll.clientHeight];
    if (width < 2 || height < 2) {
      return;
    }
    const top = this.scroll.scrollTop;
    const view = { from: this.range.from, to: this.range.to, top, width, height, scale };
    const first = rowAt(this.rows, top);
    const visible: Row[] = [];
    for (let i = first; i < this.rows.length && this.rows[i]!.y < top + height; i += 1) {
      visible.push(this.rows[i]!);
    }
    this.canvas.style.height = this.labels.style.height = `${height}px`;
    this.painter.draw(visible, this.rows, view, this.colours, this.marked);
    drawAxis(this.axis, view, this.colours);
    const shown = this.runs.map((r) => this.shown(r));
    this.overview.draw(shown, this.range.end, this.range, width, scale, this.colours, this.version);
    this.writeLabels(visible, top);
    this.legend.update(shown, this.range);
  }

  private writeLabels(visible: readonly Row[], top: number): void {
    this.labels.replaceChildren(
      ...visible.map((row) => {
        const [name, sub] = labelOf(row);
        const label = element("div", `tl-label tl-l-${row.kind}${row.id === this.marked.lane ? " here" : ""}`);
        label.style.top = `${row.y - top}px`;
        label.style.height = `${row.height}px`;
        label.dataset["row"] = row.id;
        const folds = row.kind === "group" || (row.kind === "thread" && row.thread.spans.start.length > 0);
        if (folds) {
          label.append(element("span", "tl-fold", "folded" in row && row.folded ? "▸" : "▾"));
        }
        label.append(element("span", "tl-lname", name), element("span", "tl-lsub", sub));
        label.title = `${name} ${sub}`.trim();
        return label;
      }),
    );
  }

  /** Updates the colours after a change of the theme or the colour scheme. */
  recolour(): void {
    this.colours = palette(this.root);
    this.legend.recolour(this.colours);
    this.key.recolour(this.colours);
    this.version += 1;
    this.redraw();
  }

  toggleState(s: number): void {
    if (!this.marked.statesOff.delete(s)) {
      this.marked.statesOff.add(s);
    }
    this.legend.press(this.marked.statesOff);
    this.redraw();
  }

  toggleRole(role: string): void {
    if (!this.rolesOff.delete(role)) {
      this.rolesOff.add(role);
    }
    this.arrange();
  }

  fold(row: Row): void {
    const id = row.id;
    if (row.kind === "group" || row.kind === "thread") {
      if (!this.folded.delete(id)) {
        this.folded.add(id);
      }
      this.arrange();
    }
  }

  row(id: string | null): Row | undefined {
    return this.rows.find((r) => r.id === id);
  }

  /** Makes a lane the current one and scrolls it into view. */
  goTo(id: string): void {
    const row = this.row(id);
    if (!row) {
      return;
    }
    this.marked.lane = id;
    const [top, bottom] = [this.scroll.scrollTop, this.scroll.scrollTop + this.scroll.clientHeight];
    if (row.y < top) {
      this.scroll.scrollTop = Math.max(0, row.y - 30);
    } else if (row.y + row.height > bottom) {
      this.scroll.scrollTop = row.y + row.height - this.scroll.clientHeight + 30;
    }
    this.redraw();
  }

  /** Selects the segment of a lane at a time. */
  select(row: Row, t: number): void {
    const fact = factOf(row, t, this.range.span / Math.max(1, this.canvas.clientWidth), true);
    this.marked.lane = row.id;
    this.marked.cursor = t;
    this.marked.selected = fact ? { id: row.id, from: fact.from, to: fact.to } : null;
    this.marked.wake = null;
    const index = row.kind === "thread" ? row.thread.segments.at(t) : row.kind === "spans" ? spanAt(row.thread, t) : -1;
    this.place = index < 0 ? null : { id: row.id, index };
    if (row.kind === "thread" && fact) {
      const woken = wakeOf(row.run, row.thread, index);
      if (woken) {
        const fromId = woken.waker ? threadId(row.run, woken.waker) : null;
        this.marked.wake = { fromId, toId: row.id, at: woken.at, words: woken.words };
      }
    }
    this.say(fact);
    this.redraw();
  }

  /** Selects the next or the previous segment or call of the current lane. */
  step(by: 1 | -1): void {
    const row = this.row(this.marked.lane);
    if (row?.kind !== "thread" && row?.kind !== "spans") {
      return;
    }
    const { segments, spans } = row.thread;
    const starts = row.kind === "thread" ? segments.starts : spans.start;
    const endOf = row.kind === "thread" ? (i: number): number => segments.endOf(i) : (i: number): number => spans.end[i]!;
    const chosen = this.place?.id === row.id ? this.place.index : -1;
    const t = this.marked.cursor ?? (this.range.from + this.range.to) / 2;
    const i = neighbour(starts, endOf, chosen, t, by);
    if (i >= 0) {
      this.select(row, middle(starts[i]!, endOf(i)));
      this.place = { id: row.id, index: i };
      this.reveal();
    }
  }

  private reveal(): void {
    const chosen = this.marked.selected;
    if (chosen && (chosen.to > this.range.to || chosen.from < this.range.from) && chosen.to - chosen.from < this.range.span) {
      const centre = middle(chosen.from, chosen.to);
      this.range.set(centre - this.range.span / 2, centre + this.range.span / 2);
      this.changed();
    }
  }

  /** Goes to the lane and the time of the waker. */
  followWake(): void {
    const wake = this.marked.wake;
    const row = wake?.fromId ? this.row(wake.fromId) : undefined;
    if (wake && row) {
      this.goTo(row.id);
      this.select(row, wake.at);
      this.reveal();
    }
  }

  zoomToSelection(): void {
    const chosen = this.marked.selected;
    if (chosen) {
      const edge = (chosen.to - chosen.from) * 0.15;
      this.range.set(chosen.from - edge, chosen.to + edge);
      this.changed();
    }
  }

  clear(): void {
    this.marked.selected = this.marked.wake = this.marked.cursor = null;
    this.place = null;
    this.say(null);
    this.redraw();
  }

  private say(fact: Fact | null): void {
    this.detail.replaceChildren();
    if (!fact) {
      this.detail.append(element("p", "tl-quiet", "Click a segment, or select a lane with [ and ] and press Enter, to see its state, cause and waker."));
      return;
    }
    this.detail.append(element("p", "tl-fact", fact.head));
    const list = element("ul");
    list.append(...fact.lines.map((line) => element("li", "", line)));
    this.detail.append(list);
    const tools = element("p", "tl-tools");
    const button = (text: string, act: () => void): void => {
      const made = element("button", "", text);
      made.type = "button";
      made.addEventListener("click", act);
      tools.append(made);
    };
    button(`zoom to ${time(fact.to - fact.from)}`, () => this.zoomToSelection());
    if (this.marked.wake?.fromId) {
      button("go to the waker", () => this.followWake());
    }
    this.detail.append(tools);
  }
}

function middle(a: number, b: number): number {
  return a + (b - a) / 2;
}
