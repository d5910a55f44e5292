// A strip above the lanes that shows the whole run and the visible range; dragging moves the range.
import type { Palette } from "./colours";
import { UNPLACED_FROM, type Thread } from "./payload";
import { Raster } from "./raster";
import { STATES } from "./states";

const EACH = 24;
const GAP = 2;

export class Overview {
  readonly canvas = document.createElement("canvas");
  private drawn: HTMLCanvasElement | null = null;
  private key = "";

  constructor(move: (centre: number) => void) {
    this.canvas.className = "tl-overview";
    this.canvas.setAttribute("aria-hidden", "true");
    const to = (event: PointerEvent): void => {
      const box = this.canvas.getBoundingClientRect();
      move(Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      to(event);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (event.buttons & 1) {
        to(event);
      }
    });
  }

  /** Draws the shares of the shown threads of each run over the whole run; cached until the input changes. */
  draw(runs: readonly (readonly Thread[])[], end: number, range: { from: number; to: number }, width: number, scale: number, colours: Palette, version: number): void {
    const height = runs.length * EACH + (runs.length - 1) * GAP;
    this.canvas.style.height = `${height}px`;
    const key = `${width} ${scale} ${version}`;
    if (this.key !== key || !this.drawn) {
      this.key = key;
      this.drawn = whole(runs, end, Math.round(width * scale), Math.round(EACH * scale), Math.round(height * scale), scale, colours);
    }
    [this.canvas.width, this.canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
    const c = this.canvas.getContext("2d")!;
    c.drawImage(this.drawn, 0, 0);
    c.setTransform(scale, 0, 0, scale, 0, 0);
    const [left, right] = [(range.from / end) * width, (range.to / end) * width];
    if (right - left < width - 0.5) {
      c.fillStyle = colours.paperText;
      c.globalAlpha = 0.62;
      c.fillRect(0, 0, left, height);
      c.fillRect(right, 0, width - right, height);
      c.globalAlpha = 1;
    }
    c.strokeStyle = colours.accent;
    c.lineWidth = 2;
    c.strokeRect(Math.min(left + 1, width - 4), 1, Math.max(3, right - left - 2), height - 2);
  }
}

function whole(runs: readonly (readonly Thread[])[], end: number, n: number, each: number, height: number, scale: number, colours: Palette): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [n, height];
  const raster = new Raster(n, height, scale);
  raster.fill(colours.panel);
  runs.forEach((threads, r) => {
    const sum = new Float64Array(n * STATES.length);
    const scratch = new Float64Array(n * 2 * UNPLACED_FROM);
    for (const { segments } of threads) {
      segments.columns(0, end, n, scratch);
      for (let x = 0; x < n; x += 1) {
        for (let c = 0; c < segments.count; c += 1) {
          sum[x * STATES.length + (c % UNPLACED_FROM)]! += scratch[x * segments.count + c]!;
        }
      }
    }
    const bottom = r === 0 ? each : height;
    raster.stacks(sum, STATES.length, n, (end / n) * Math.max(1, threads.length), bottom, each, colours.states);
  });
  canvas.getContext("2d")!.putImageData(raster.image, 0, 0);
  return canvas;
}
