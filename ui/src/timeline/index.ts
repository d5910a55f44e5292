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
  private readonly texts: HTMLElement[];
  private readonly decoded = new Map<number, Promise<Trace>>();
  private chosen: number[];

  constructor(private readonly root: HTMLElement) {
    this.texts = Array.from(root.querySelectorAll<HTMLElement>("script.tl-trace"));
    this.live = element("div", "tl-live");
    this.live.dataset["wheel"] = root.dataset["wheel"] ?? "always";
    this.chosen = this.texts.length > 1 ? [0, 1] : [0];
  }

  async start(): Promise<void> {
    if (this.texts.length === 0) {
      return;
    }
    const still = this.root.querySelector<HTMLElement>(".tl-still");
    still?.before(this.live);
    await this.show();
    if (still) {
      still.hidden = true;
    }
    this.watchTheme();
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

  private async show(): Promise<void> {
    const started = performance.now();
    const traces = await Promise.all(this.chosen.map((i) => this.trace(i)));
    this.live.replaceChildren();
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
    this.words();
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
        void this.show().catch((e: unknown) => this.fail(e));
      });
      label.append(select);
      box.append(label);
    });
    return box;
  }

  /** The page has findings and evidence of every run; shows those of the selected ones. */
  private words(): void {
    for (const part of this.root.querySelectorAll<HTMLElement>("[data-trace]")) {
      const place = this.chosen.indexOf(Number(part.dataset["trace"]));
      part.hidden = place < 0;
      const letter = part.querySelector(".tl-letter");
      if (letter) {
        letter.textContent = this.chosen.length > 1 ? "AB".charAt(place) : "";
      }
    }
  }

  fail(error: unknown): void {
    const words = error instanceof Error ? error.message : String(error);
    this.live.replaceChildren(element("p", "tl-failed", `Cannot show the lanes: ${words}.`));
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
  const timeline = new Timeline(root);
  timeline.start().catch((e: unknown) => timeline.fail(e));
}
