// Finds the timelines of a page and makes them interactive. Without this script, the page shows a
// static drawing.
import { decode, type Trace } from "./payload";
import { element } from "./panels";
import { listen } from "./input";
import { toolbar } from "./toolbar";
import { Viewer } from "./viewer";

/** The interface for tests and benchmarks. */
export interface Handle {
  viewer: Viewer;
  loadMs: number;
}

class Timeline {
  private readonly live: HTMLElement;
  private readonly still: HTMLElement | null;
  private readonly texts: HTMLElement[];
  private readonly decoded = new Map<number, Promise<Trace>>();
  private chosen: number[];

  constructor(private readonly root: HTMLElement) {
    this.texts = Array.from(root.querySelectorAll<HTMLElement>("script.tl-trace"));
    this.still = root.querySelector<HTMLElement>(".tl-still");
    this.live = element("div", "tl-live");
    this.live.dataset["wheel"] = root.dataset["wheel"] ?? "always";
    this.chosen = this.texts.length > 1 ? [0, 1] : [0];
  }

  async start(): Promise<void> {
    if (this.texts.length === 0) {
      return;
    }
    this.still?.before(this.live);
    this.watchTheme();
    await this.show();
  }

  private trace(i: number): Promise<Trace> {
    const known = this.decoded.get(i);
    if (known) {
      return known;
    }
    const made = decode(this.texts[i]!.textContent ?? "");
    this.decoded.set(i, made);
    return made;
  }

  private viewer: Viewer | null = null;

  /** Shows the selected runs, unless others are selected before their traces are decoded. */
  private async show(): Promise<void> {
    const wanted = this.chosen;
    try {
      const started = performance.now();
      const traces = await Promise.all(wanted.map((i) => this.trace(i)));
      if (wanted === this.chosen) {
        this.make(traces, started);
      }
    } catch (e: unknown) {
      if (wanted === this.chosen) {
        this.fail(e);
      }
    }
  }

  private make(traces: readonly Trace[], started: number): void {
    this.live.replaceChildren();
    this.hideStill(true);
    const viewer = new Viewer(this.live, traces);
    this.viewer = viewer;
    const bar = toolbar(viewer);
    this.live.prepend(bar.root);
    if (this.texts.length > 1) {
      this.live.prepend(this.choice());
    }
    listen(viewer, bar.help);
    viewer.arrange();
    viewer.drawNow();
    this.words(this.chosen);
    const handle: Handle = { viewer, loadMs: performance.now() - started };
    (this.root as HTMLElement & { timeline?: Handle }).timeline = handle;
    this.root.dispatchEvent(new CustomEvent("timeline-ready"));
  }

  /** The selection of runs A and B. */
  private choice(): HTMLElement {
    const box = element("div", "tl-choice");
    (["A", "B"] as const).forEach((letter, k) => {
      const label = element("label", "", letter);
      const select = element("select");
      if (k === 1) {
        const none = element("option", "", "none");
        none.value = "-1";
        select.append(none);
      }
      this.texts.forEach((text, i) => {
        const option = element("option", "", text.dataset["title"] ?? `run ${i + 1}`);
        option.value = String(i);
        select.append(option);
      });
      select.value = String(this.chosen[k] ?? -1);
      select.dataset["run"] = letter;
      select.addEventListener("change", () => {
        const [a, b] = Array.from(box.querySelectorAll("select"), (s) => Number(s.value));
        this.chosen = b === undefined || b < 0 ? [a ?? 0] : [a ?? 0, b];
        void this.show();
      });
      label.append(select);
      box.append(label);
    });
    return box;
  }

  /** The page has findings and evidence of every run; shows those of the selected ones, or all. */
  private words(chosen: readonly number[] | null): void {
    for (const part of this.root.querySelectorAll<HTMLElement>("[data-trace]")) {
      const place = chosen?.indexOf(Number(part.dataset["trace"])) ?? -1;
      part.hidden = chosen !== null && place < 0;
      const letter = part.querySelector(".tl-letter");
      if (letter) {
        letter.textContent = chosen !== null && chosen.length > 1 ? "AB".charAt(place) : "";
      }
    }
  }

  private hideStill(hidden: boolean): void {
    if (this.still) {
      this.still.hidden = hidden;
    }
  }

  /** Shows the static drawings, and the selection of runs, of which others may work. */
  private fail(error: unknown): void {
    const words = error instanceof Error ? error.message : String(error);
    this.viewer = null;
    this.live.replaceChildren(element("p", "tl-failed", `Cannot show the lanes: ${words}.`));
    if (this.texts.length > 1) {
      this.live.prepend(this.choice());
    }
    this.hideStill(false);
    this.words(null);
  }

  private watchTheme(): void {
    const again = (): void => this.viewer?.recolour();
    new MutationObserver(again).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
    // Print uses the light colours; the canvas must be redrawn before the page is laid out for it.
    window.matchMedia("print").addEventListener("change", () => {
      again();
      this.viewer?.drawNow();
    });
  }
}

// A page includes this script once, after its last timeline.
for (const root of document.querySelectorAll<HTMLElement>(".tl-root")) {
  void new Timeline(root).start();
}
