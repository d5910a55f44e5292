// The tables below the lanes: shares of the visible range by state, by role and by thread, devices,
// and CPU usage. All numbers are for the visible range and the roles that are not hidden.
import type { ClassIndex } from "./classes";
import { swatch, type Palette, type Tile } from "./colours";
import { notRecorded } from "./facts";
import { count, shares, size, tenths, time } from "./format";
import { byRole, shortName, threadId, type Run } from "./layout";
import { UNPLACED_FROM, type StateTime, type Thread } from "./payload";
import { FAMILY_NAMES, FAMILY_WORDS, STATES } from "./states";
import type { Steps } from "./steps";
import { BOTH, USE, type Use } from "./use";

export interface Range {
  from: number;
  to: number;
}
export interface Hooks {
  toggleState(state: number): void;
  showThread(id: string): void;
}

/** The maximum number of roles with a button, and with a bar in each run. */
export const ROLES_SHOWN = 64;
const THREADS_SHOWN = 200;
const OUTSIDE = "not in this range";

export function element<K extends keyof HTMLElementTagNameMap>(
  name: K,
  className = "",
  text = "",
): HTMLElementTagNameMap[K] {
  const made = document.createElement(name);
  if (className !== "") {
    made.className = className;
  }
  if (text !== "") {
    made.textContent = text;
  }
  return made;
}

/** Returns the time per state of one thread in a range, including states of unknown position. */
export function statesIn(thread: Thread, range: Range, out: Float64Array, scratch: Float64Array): void {
  thread.segments.between(range.from, range.to, scratch);
  for (let s = 0; s < STATES.length; s += 1) {
    out[s]! += scratch[s]! + (thread.segments.count > UNPLACED_FROM ? scratch[s + UNPLACED_FROM]! : 0);
  }
}

/** Returns the sum over threads. */
export function statesOf(threads: readonly Thread[], range: Range): Float64Array {
  const out = new Float64Array(STATES.length);
  const scratch = new Float64Array(2 * UNPLACED_FROM);
  for (const thread of threads) {
    statesIn(thread, range, out, scratch);
  }
  return out;
}

/** Returns why a state has no number; `null` if it has one. */
export function whyNot(threads: readonly Thread[], state: string): string | null {
  const said = threads.map((t): StateTime | undefined => t.states[state]);
  if (threads.length === 0 || said.some((s) => s !== undefined && s.ns !== null)) {
    return null;
  }
  return said.find((s) => s?.why)?.why ?? "no source distinguishes it";
}

function notes(threads: readonly Thread[], state: string): string {
  const said = threads.flatMap((t) => t.states[state] ?? []);
  const measured = said.filter((s) => s.ns !== null);
  const out: string[] = [];
  const includes = [...new Set(measured.flatMap((s) => s.includes ?? []))];
  if (includes.length > 0) {
    out.push(`includes ${includes.join(", ")}`);
  }
  if (measured.length > 0 && measured.length < threads.length) {
    out.push(`measured in ${measured.length} of ${threads.length} threads`);
  }
  const qualities = [...new Set(measured.flatMap((s) => s.quality ?? []))];
  const inexact = qualities.filter((q) => q !== "exact");
  if (inexact.length > 0) {
    out.push(inexact.join(", ") + (inexact.length < qualities.length ? " in part" : ""));
  }
  return out.join("; ");
}

/** The legend: pattern, letter and name of a state, its share of each run, and notes. */
export class Legend {
  readonly root = element("table", "tl-legend");
  private readonly cells: HTMLElement[][] = [];
  private readonly notes: { row: HTMLElement; noted: HTMLElement; note: HTMLElement }[] = [];
  private readonly buttons: HTMLButtonElement[] = [];

  constructor(
    private readonly runs: readonly Run[],
    colours: Palette,
    hooks: Hooks,
  ) {
    const head = this.root.createTHead().insertRow();
    head.append(element("th", "", "state"));
    for (const run of runs) {
      const name = runs.length > 1 ? `${run.letter}: share` : "share";
      head.append(element("th", "r", name), element("th", "r", "time"));
    }
    const body = this.root.createTBody();
    STATES.forEach((state, s) => {
      const row = body.insertRow();
      const button = element("button", "tl-state");
      button.type = "button";
      button.dataset["state"] = state.name;
      button.setAttribute("aria-pressed", "true");
      button.title = `${state.meaning}; click to show or hide its colour`;
      button.append(swatch(colours.states[s]!, 26, 16), element("kbd", "", state.letter), state.name);
      button.addEventListener("click", () => hooks.toggleState(s));
      this.buttons.push(button);
      row.insertCell().append(button);
      const mine: HTMLElement[] = [];
      for (const run of runs) {
        const [share, ns] = [row.insertCell(), row.insertCell()];
        share.className = "r share";
        ns.className = "r";
        share.dataset["share"] = state.name;
        share.dataset["run"] = run.letter;
        mine.push(share, ns);
      }
      // A note may be a sentence; below its state, it has the full table width.
      const noted = body.insertRow();
      const note = noted.insertCell();
      noted.className = "tl-noted";
      noted.hidden = true;
      note.className = "note";
      note.colSpan = 1 + 2 * runs.length;
      this.notes.push({ row, noted, note });
      this.cells.push(mine);
    });
  }

  recolour(colours: Palette): void {
    this.buttons.forEach((b, s) => b.querySelector("canvas")?.replaceWith(swatch(colours.states[s]!, 26, 16)));
  }

  press(off: ReadonlySet<number>): void {
    this.buttons.forEach((b, s) => b.setAttribute("aria-pressed", off.has(s) ? "false" : "true"));
  }

  update(threads: readonly (readonly Thread[])[], range: Range): void {
    const noted: string[][] = STATES.map(() => []);
    this.runs.forEach((run, r) => {
      const mine = threads[r]!;
      const times = statesOf(mine, range);
      const parts = shares(times);
      STATES.forEach((state, s) => {
        const [share, ns] = [this.cells[s]![2 * r]!, this.cells[s]![2 * r + 1]!];
        const why = whyNot(mine, state.name);
        const nothing = why !== null && times[s] === 0;
        share.textContent = nothing ? "not measured" : tenths(parts[s]!);
        share.classList.toggle("none", nothing || parts[s] === 0);
        share.dataset["ns"] = nothing ? "" : String(Math.round(times[s]!));
        ns.textContent = nothing || times[s] === 0 ? "" : time(times[s]!);
        const words = nothing ? `not measured: ${why}` : notes(mine, state.name);
        if (words !== "") {
          noted[s]!.push(this.runs.length > 1 ? `${run.letter}: ${words}` : words);
        }
      });
    });
    STATES.forEach((_, s) => {
      const { row, noted: line, note } = this.notes[s]!;
      const text = noted[s]!;
      const same = text.length > 1 && text.every((t) => t.slice(3) === text[0]!.slice(3));
      note.textContent = same ? text[0]!.slice(3) : text.join("; ");
      line.hidden = text.length === 0;
      row.classList.toggle("noted", text.length > 0);
    });
  }
}

function bar(): { root: HTMLElement; parts: HTMLElement[] } {
  const root = element("span", "tl-bar");
  const parts = STATES.map((state) => {
    const part = element("i", `tl-fill-${state.name}`);
    root.append(part);
    return part;
  });
  return { root, parts };
}

function paint(parts: readonly HTMLElement[], values: readonly number[]): void {
  parts.forEach((part, s) => {
    part.style.width = `${values[s]! / 10}%`;
  });
}

function words(parts: readonly number[]): string {
  return parts
    .map((share, s) => [share, s] as const)
    .filter(([share]) => share > 0)
    .sort((a, b) => b[0] - a[0])
    .map(([share, s]) => `${STATES[s]!.name} ${tenths(share)}`)
    .join(" · ");
}

/** Bars by role and by thread. */
export class Bars {
  readonly roles = element("div", "tl-rows");
  readonly threads = element("div", "tl-rows tl-threads");
  private readonly lines: { threads: Thread[]; parts: HTMLElement[]; text: HTMLElement; root: HTMLElement; role: string; run: Run }[] = [];

  constructor(runs: readonly Run[], hooks: Hooks) {
    let [shown, left] = [0, 0];
    for (const run of runs) {
      const letter = runs.length > 1 ? `${run.letter} ` : "";
      const roles = byRole(run);
      left += Math.max(0, roles.size - ROLES_SHOWN);
      [...roles].forEach(([role, threads], i) => {
        if (i < ROLES_SHOWN) {
          this.line(this.roles, run, role, threads, `${letter}${role}`, `${threads.length}`, null);
        }
        for (const thread of threads) {
          if (shown < THREADS_SHOWN) {
            const jump = (): void => hooks.showThread(threadId(run, thread));
            this.line(this.threads, run, role, [thread], `${letter}${shortName(thread)}`, String(thread.tid), jump);
          }
          shown += 1;
        }
      });
    }
    if (left > 0) {
      this.roles.append(element("p", "tl-quiet", `${left} more roles are in the lanes above.`));
    }
    if (shown > THREADS_SHOWN) {
      this.threads.append(element("p", "tl-quiet", `${shown - THREADS_SHOWN} more threads are in the lanes above.`));
    }
  }

  private line(into: HTMLElement, run: Run, role: string, threads: Thread[], name: string, sub: string, jump: (() => void) | null): void {
    const root = element("div", "tl-row");
    const label = element(jump ? "button" : "span", "tl-name", name);
    if (jump) {
      label.setAttribute("type", "button");
      label.addEventListener("click", jump);
    }
    label.append(" ", element("span", "tl-sub", sub));
    const { root: strip, parts } = bar();
    const text = element("span", "tl-words");
    root.append(label, strip, text);
    into.append(root);
    this.lines.push({ threads, parts, text, root, role, run });
  }

  update(range: Range, rolesOff: ReadonlySet<string>): void {
    for (const line of this.lines) {
      line.root.hidden = rolesOff.has(line.role);
      const values = shares(statesOf(line.threads, range));
      paint(line.parts, values);
      const said = words(values);
      line.text.textContent = said === "" ? OUTSIDE : said;
    }
  }
}

/** The legend of the other colours. */
export class Key {
  readonly root = element("div", "tl-key");

  constructor(colours: Palette) {
    this.recolour(colours);
  }

  recolour(colours: Palette): void {
    const line = (head: string, names: readonly string[], tiles: readonly Tile[]): HTMLElement => {
      const box = element("p");
      box.append(element("b", "", head));
      names.forEach((name, i) => {
        const item = element("span");
        item.append(swatch(tiles[i]!, 16, 11), name);
        box.append(item);
      });
      return box;
    };
    const calls = FAMILY_NAMES.map((name) => FAMILY_WORDS[name] ?? name);
    this.root.replaceChildren(
      line("calls", calls, colours.families),
      line("processors", USE, colours.use),
      line("overlap", BOTH, colours.both),
      line("hatched", ["known as a sum, position inside the call unknown"], [colours.states[UNPLACED_FROM]!]),
    );
  }
}

/** Devices and processors in the visible range. */
export class Machine {
  readonly root = element("div", "tl-machine");

  constructor(private readonly runs: readonly Run[]) {}

  update(range: Range): void {
    this.root.replaceChildren();
    for (const run of this.runs) {
      const { trace } = run;
      const list = element("dl");
      // The other run can be longer.
      const outside = range.from >= trace.elapsed;
      const part = { from: range.from, to: Math.min(range.to, trace.elapsed) };
      const add = (name: string, words: () => string): void => {
        list.append(element("dt", "", this.runs.length > 1 ? `${run.letter} ${name}` : name), element("dd", "", outside ? OUTSIDE : words()));
      };
      const { use, both } = run;
      if (use) {
        add("processors", () => useWords(use, part));
      }
      if (both) {
        add("overlap", () => bothWords(both, part));
      }
      for (const { device, write, requests } of trace.channels) {
        add(`${device} ${write ? "write" : "read"}`, () => channelWords(requests, part));
      }
      for (const { name, unit, steps } of trace.series) {
        add(name, () => seriesWords(steps, unit, part));
      }
      this.root.append(list);
    }
  }
}

function useWords(use: Use, range: Range): string {
  if (range.to > use.complete) {
    return notRecorded(use.complete);
  }
  const out = new Float64Array(USE.length);
  use.range(range.from, range.to, out);
  const [ours, others, idle] = Array.from(out, (v) => (v / (range.to - range.from)).toFixed(2));
  return use.whole ? `of ${use.processors}: this program ${ours}, others ${others}, idle ${idle}` : `this program ${ours} of ${use.processors}; others and idle not measured`;
}

function bothWords(both: ClassIndex, range: Range): string {
  if (range.to > both.end) {
    return notRecorded(both.end);
  }
  const out = new Float64Array(BOTH.length);
  both.between(range.from, range.to, out);
  const parts = shares(out);
  return BOTH.map((name, i) => `${name} ${tenths(parts[i]!)}`).join(" · ");
}

function seriesWords(steps: Steps, name: string, range: Range): string {
  const e = steps.extent(range.from, range.to);
  const unit = name === "bytes" ? size : (v: number): string => `${v.toFixed(1)} ${name}`;
  return e === null ? OUTSIDE : `mean ${unit(e.mean)}, ${unit(e.min)} to ${unit(e.max)}`;
}

function channelWords(r: Run["trace"]["channels"][number]["requests"], range: Range): string {
  const delays: number[] = [];
  let [bytes, unseen] = [0, 0];
  for (let i = 0; i < r.issue.length; i += 1) {
    if (r.issue[i]! >= range.from && r.issue[i]! < range.to) {
      bytes += r.bytes[i]!;
      if (r.seen[i]) {
        delays.push(r.end[i]! - r.issue[i]!);
      } else {
        unseen += 1;
      }
    }
  }
  const sorted = Float64Array.from(delays).sort();
  const at = (q: number): string => time(sorted[Math.min(sorted.length - 1, Math.ceil(q * sorted.length) - 1)]!);
  const e = r.depth.extent(range.from, range.to);
  const depth = e === null ? "" : `, in flight mean ${e.mean.toFixed(1)}, max ${e.max}`;
  const latency = sorted.length > 0 ? `, latency p50 ${at(0.5)}, p99 ${at(0.99)}, max ${at(1)}` : "";
  const lost = unseen > 0 ? `; ${unseen} without a seen completion` : "";
  return `${count(delays.length + unseen)} requests, ${size(bytes)}${depth}${latency}${lost}`;
}
