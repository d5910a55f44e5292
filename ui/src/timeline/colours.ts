// Style sheet colours as pixel tables. Each lane class is an 8 × 8 tile, so a pattern costs one
// lookup per pixel.
import { FAMILY_NAMES, STATES, UNPLACED } from "./states";
import { BOTH, USE } from "./use";

export type Tile = Uint32Array;
export interface Palette {
  paper: number;
  panel: number;
  grid: string;
  rule: string;
  ink: string;
  soft: string;
  faint: string;
  accent: string;
  paperText: string;
  /** By class of a thread lane: states of known position, then the same ones hatched. */
  states: Tile[];
  /** The same for hidden states. */
  quiet: Tile[];
  families: Tile[];
  familyText: string[];
  stateText: string[];
  use: Tile[];
  useOpen: Tile[];
  both: Tile[];
  read: number;
  write: number;
  series: number;
  seriesBand: number;
}

type Rgb = readonly [number, number, number];

export const USE_NAMES = ["on-cpu", "others", "idle"] as const;
export const BOTH_NAMES = ["both", "cpu-alone", "device-alone", "neither"] as const;

function parse(text: string): Rgb {
  const long = text.trim().replace(/^#(.)(.)(.)$/, "#$1$1$2$2$3$3");
  const hex = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})$/i.exec(long);
  return hex ? [1, 2, 3].map((i) => Number.parseInt(hex[i]!, 16)) as unknown as Rgb : [128, 128, 128];
}

function pack([r, g, b]: Rgb): number {
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

function mix(a: Rgb, b: Rgb, share: number): Rgb {
  return [0, 1, 2].map((i) => Math.round(a[i]! + (b[i]! - a[i]!) * share)) as unknown as Rgb;
}

/** Returns black or white, whichever is more readable on a colour. */
function inkOn([r, g, b]: Rgb): string {
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#16181b" : "#ffffff";
}

function tile(fill: Rgb, line: Rgb, pattern: readonly number[]): Tile {
  const [a, b] = [pack(fill), pack(line)];
  const out = new Uint32Array(64);
  for (let y = 0; y < 8; y += 1) {
    for (let x = 0; x < 8; x += 1) {
      out[y * 8 + x] = pattern[y]! & (128 >> x) ? b : a;
    }
  }
  return out;
}

/** Reads the current colours. */
export function palette(element: Element): Palette {
  const style = getComputedStyle(element);
  const raw = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  const rgb = (name: string): Rgb => parse(raw(name));
  const paper = rgb("paper");
  const solid = (c: Rgb): Tile => tile(c, c, UNPLACED);
  const states = STATES.map((s) => [rgb(`tl-${s.name}`), s] as const);
  const hatched = states.map(([c]) => tile(mix(c, paper, 0.25), mix(c, paper, 0.72), UNPLACED));
  const panel = rgb("panel");
  const quiet = states.map(([c]) => solid(mix(c, panel, 0.86)));
  const families = FAMILY_NAMES.map((name) => rgb(`tl-span-${name}`));
  const idle = USE_NAMES.map((name) => rgb(`tl-${name}`));
  return {
    paper: pack(paper),
    panel: pack(panel),
    grid: raw("grid"),
    rule: raw("rule"),
    ink: raw("ink"),
    soft: raw("soft"),
    faint: raw("faint"),
    accent: raw("accent"),
    paperText: raw("paper"),
    states: [...states.map(([c, s]) => tile(c, mix(c, paper, 0.42), s.pattern)), ...hatched],
    quiet: [...quiet, ...quiet],
    families: [...families.map(solid), solid(paper)],
    familyText: families.map(inkOn),
    stateText: states.map(([c]) => inkOn(c)),
    use: idle.map((c, i) => tile(c, mix(c, paper, 0.4), i === 1 ? STATES[1]!.pattern : STATES[0]!.pattern)).slice(0, USE.length),
    useOpen: [solid(idle[0]!), solid(panel), solid(panel)],
    both: BOTH_NAMES.map((name, i) => {
      const c = rgb(`tl-${name}`);
      return tile(c, mix(c, paper, 0.42), STATES[[0, 1, 3, 9][i]!]!.pattern);
    }).slice(0, BOTH.length),
    read: pack(rgb("tl-read")),
    write: pack(rgb("tl-write")),
    series: pack(rgb("tl-series")),
    seriesBand: pack(mix(rgb("tl-series"), paper, 0.72)),
  };
}

/** Returns a swatch for a legend: the repeated tile. */
export function swatch(pattern: Tile, width: number, height: number): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d")!;
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      pixels[y * width + x] = pattern[(y & 7) * 8 + (x & 7)]!;
    }
  }
  context.putImageData(image, 0, 0);
  canvas.setAttribute("aria-hidden", "true");
  return canvas;
}
