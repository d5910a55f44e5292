// Formats numbers and parses typed times.
const UNITS: readonly (readonly [string, number])[] = [
  ["s", 1e9],
  ["ms", 1e6],
  ["µs", 1e3],
  ["ns", 1],
];

/** Formats a duration with three or four digits and its unit. */
export function time(ns: number): string {
  const size = Math.abs(ns);
  const [unit, factor] = UNITS.find(([, f]) => size >= f) ?? ["ns", 1];
  const value = ns / factor;
  const digits = factor === 1 ? 0 : Math.abs(value) >= 100 ? 1 : Math.abs(value) >= 10 ? 2 : 3;
  return `${value.toFixed(digits)} ${unit}`;
}

/** Formats a point in time with enough digits to distinguish steps of `step` nanoseconds. */
export function moment(ns: number, step: number, unit = unitFor(Math.max(ns, step))): string {
  const [name, factor] = unit;
  const digits = Math.max(0, Math.min(9, Math.ceil(Math.log10(factor / Math.max(step, 1)) - 1e-9)));
  return `${(ns / factor).toFixed(digits)} ${name}`;
}

export function unitFor(ns: number): readonly [string, number] {
  return UNITS.find(([, f]) => ns >= f) ?? ["ns", 1];
}

/** Parses a time: a number and an optional unit (default: milliseconds). Returns `null` if it is invalid. */
export function parseTime(text: string): number | null {
  const match = /^\s*(\d+(?:[.,]\d+)?)\s*(ns|us|µs|μs|ms|s)?\s*$/u.exec(text);
  if (!match) {
    return null;
  }
  const factor = { ns: 1, us: 1e3, "µs": 1e3, "μs": 1e3, ms: 1e6, s: 1e9 }[match[2] ?? "ms"] ?? 1e6;
  return Math.round(Number(match[1]!.replace(",", ".")) * factor);
}

export function size(bytes: number): string {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let [value, i] = [bytes, 0];
  while (value >= 1024 && i + 1 < names.length) {
    value /= 1024;
    i += 1;
  }
  return `${i === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(value >= 10 ? 1 : 2)} ${names[i]}`;
}

export function count(n: number): string {
  return Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** Formats a value in the unit of its series. */
export function quantity(value: number, unit: string): string {
  if (unit === "bytes") {
    return size(value);
  }
  const digits = Number.isInteger(value) || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${unit}`;
}

/** Formats a share given in tenths of a percent. */
export function tenths(value: number): string {
  return `${Math.floor(value / 10)}.${value % 10}\u00a0%`;
}

/** Returns tenths of a percent of each part, adding up to 1000 by largest remainder; zeros without any time. */
export function shares(parts: ArrayLike<number>): number[] {
  const values = Array.from(parts);
  const total = values.reduce((a, b) => a + b, 0);
  if (total <= 0) {
    return values.map(() => 0);
  }
  const exact = values.map((v) => (v / total) * 1000);
  const out = exact.map(Math.floor);
  const order = exact.map((v, i) => [v - Math.floor(v), i] as const).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  const missing = 1000 - out.reduce((a, b) => a + b, 0);
  for (let k = 0; k < missing; k += 1) {
    out[order[k % order.length]![1]]! += 1;
  }
  return out;
}

/** Returns a round distance for about `n` ticks: 1, 2 or 5 times a power of ten. */
export function tickStep(span: number, n: number): number {
  const raw = Math.max(1, span / Math.max(1, n));
  const power = 10 ** Math.floor(Math.log10(raw));
  const m = raw / power;
  return (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10) * power;
}
