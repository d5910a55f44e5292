// Lane pixels. A column shows the exact shares of its interval as a stack, so nothing is lost at
// any zoom; if one class fills a column, the lane looks like a bar.
import type { ClassIndex } from "./classes";
import type { Tile } from "./colours";
import type { Steps } from "./steps";

/** The image of the visible lanes, in device pixels. */
export class Raster {
  readonly image: ImageData;
  readonly pixels: Uint32Array;
  /** Log2 of the enlargement of patterns, so that they stay readable on dense screens. */
  private readonly grow: number;

  constructor(
    readonly width: number,
    readonly height: number,
    readonly scale: number,
  ) {
    this.image = new ImageData(Math.max(1, width), Math.max(1, height));
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.grow = scale >= 1.75 ? 1 : 0;
  }

  fill(colour: number): void {
    this.pixels.fill(colour);
  }

  /** Fills a rectangle with one colour, clipped to the image. */
  rect(x: number, y: number, width: number, height: number, colour: number): void {
    const right = Math.min(this.width, x + width);
    for (let row = Math.max(0, y); row < Math.min(this.height, y + height); row += 1) {
      this.pixels.fill(colour, row * this.width + Math.max(0, x), row * this.width + Math.max(0, right));
    }
  }

  private column(x: number, from: number, to: number, tile: Tile): void {
    const { grow, width, pixels } = this;
    const tx = (x >> grow) & 7;
    for (let y = Math.max(0, from); y < Math.min(this.height, to); y += 1) {
      pixels[y * width + x] = tile[((y >> grow) & 7) * 8 + tx]!;
    }
  }

  /** Stacks `parts[x * count + class]` of `whole` from `bottom` upwards, with `height` pixels for `whole`. */
  stacks(parts: Float64Array, count: number, n: number, whole: number, bottom: number, height: number, tiles: readonly Tile[]): void {
    for (let x = 0; x < n; x += 1) {
      const base = x * count;
      let sum = 0;
      let below = 0;
      for (let c = 0; c < count; c += 1) {
        const part = parts[base + c]!;
        if (part <= 0) {
          continue;
        }
        sum += part;
        const above = Math.round((sum / whole) * height);
        if (above > below) {
          this.column(x, bottom - above, bottom - below, tiles[c]!);
          below = above;
        }
      }
    }
  }

  /** Draws a counter: its mean as an area, its extremes as a lighter band. */
  area(steps: Steps, from: number, to: number, n: number, bottom: number, height: number, fill: number, band: number): void {
    const most = Math.max(steps.max, 1e-9);
    const step = (to - from) / n;
    // The small step keeps a constant value from flickering between two pixels.
    const level = (v: number): number => bottom - Math.round((Math.max(0, v) / most) * height + 1e-6);
    for (let x = 0; x < n; x += 1) {
      const left = from + x * step;
      const e = steps.extent(left, left + step);
      if (e === null) {
        break;
      }
      const [mean, top] = [level(e.mean), level(e.max)];
      this.rect(x, top, 1, mean - top, band);
      const shown = Math.min(mean, bottom - (e.mean > 0 ? 1 : 0));
      this.rect(x, shown, 1, bottom - shown, fill);
    }
  }
}

/** Returns runs of columns that one class fills, in which a letter or a word fits. */
export function pureRuns(
  parts: Float64Array,
  count: number,
  n: number,
  least: number,
  each: (from: number, to: number, c: number) => void,
): void {
  let from = 0;
  let current = -1;
  for (let x = 0; x <= n; x += 1) {
    let only = -1;
    if (x < n) {
      let classes = 0;
      for (let c = 0; c < count; c += 1) {
        if (parts[x * count + c]! > 0) {
          classes += 1;
          only = c;
        }
      }
      only = classes === 1 ? only : -1;
    }
    if (only !== current) {
      if (current >= 0 && x - from >= least) {
        each(from, x, current);
      }
      from = x;
      current = only;
    }
  }
}

/** A buffer for the columns of one lane, reused between redraws. */
export class Scratch {
  private values = new Float64Array(0);

  columns(index: ClassIndex, from: number, to: number, n: number): Float64Array {
    if (this.values.length < n * index.count) {
      this.values = new Float64Array(n * index.count);
    }
    index.columns(from, to, n, this.values);
    return this.values;
  }
}
