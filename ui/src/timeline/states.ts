// The states of a thread and the kinds of its spans: name, letter, pattern. Colours are CSS
// variables (--tl-…), so theme and colour scheme are switched in one place; pattern and letter
// identify a state without colour.
export interface State {
  /** The name, as in all texts of ioloom. */
  name: string;
  /** One letter for lanes and for the terminal. */
  letter: string;
  /** What the state means. */
  meaning: string;
  /** Eight rows of eight bits; a set bit is drawn lighter. */
  pattern: readonly number[];
}

const PLAIN = [0, 0, 0, 0, 0, 0, 0, 0];
const RISING = [0x80, 0x40, 0x20, 0x10, 0x08, 0x04, 0x02, 0x01];
const FALLING = [0x11, 0x88, 0x44, 0x22, 0x11, 0x88, 0x44, 0x22];
const DOTS = [0x00, 0x44, 0x00, 0x00, 0x00, 0x11, 0x00, 0x00];
const SPARSE = [0x00, 0x40, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00];
const LEVEL = [0x00, 0x00, 0x00, 0xff, 0x00, 0x00, 0x00, 0xff];
const CROSS = [0x81, 0x42, 0x24, 0x18, 0x18, 0x24, 0x42, 0x81];
const GRID = [0xff, 0x88, 0x88, 0x88, 0xff, 0x88, 0x88, 0x88];
const UPRIGHT = [0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22];
const DASHES = [0x00, 0x00, 0xe0, 0x00, 0x00, 0x00, 0x0e, 0x00];
const CHECKS = [0xcc, 0xcc, 0x33, 0x33, 0xcc, 0xcc, 0x33, 0x33];
/** Drawn over states that are known only as a sum. */
export const UNPLACED = [0xc0, 0x60, 0x30, 0x18, 0x0c, 0x06, 0x03, 0x81];

export const STATES: readonly State[] = [
  { name: "on-cpu", letter: "C", meaning: "running on a processor", pattern: PLAIN },
  { name: "ready", letter: "R", meaning: "woken, waiting for a processor", pattern: RISING },
  { name: "preempted", letter: "P", meaning: "preempted, ready to run", pattern: FALLING },
  { name: "io", letter: "I", meaning: "blocked on a file", pattern: DOTS },
  { name: "async-io", letter: "A", meaning: "blocked until an asynchronous request completes", pattern: SPARSE },
  { name: "paging", letter: "F", meaning: "blocked on a page fault", pattern: LEVEL },
  { name: "sync", letter: "S", meaning: "blocked on another thread", pattern: CROSS },
  { name: "lock", letter: "L", meaning: "blocked on a lock inside the kernel", pattern: GRID },
  { name: "event", letter: "E", meaning: "blocked until an event or a path of the list", pattern: UPRIGHT },
  { name: "sleep", letter: "Z", meaning: "sleeping voluntarily", pattern: DASHES },
  { name: "unknown", letter: "?", meaning: "without evidence", pattern: CHECKS },
];

export const ON_CPU = 0;
export const READY = 1;
export const PREEMPTED = 2;

/** Families of span kinds that share a colour; the kind is written on the span. */
const FAMILIES: readonly (readonly [string, readonly string[]])[] = [
  ["name", ["open", "stat", "close", "list"]],
  ["read", ["read call"]],
  ["done", ["completion", "ring wait"]],
  ["compute", ["compute"]],
  ["map", ["map", "unmap", "fault"]],
  ["wait", ["hand-over", "memory", "wait", "event", "sleep", "input"]],
  ["write", ["write", "flush"]],
];
export const FAMILY_NAMES = [...FAMILIES.map(([name]) => name), "other"] as const;

/** Names of families in the legend. */
export const FAMILY_WORDS: Readonly<Record<string, string>> = {
  name: "open, stat, close, list",
  read: "read call",
  done: "completion",
  compute: "compute",
  map: "map, unmap, fault",
  wait: "hand-over and other waits",
  write: "write, flush",
};

/** Returns the index of the family of a span kind. */
export function familyOf(kind: string): number {
  const found = FAMILIES.findIndex(([, kinds]) => kinds.includes(kind));
  return found < 0 ? FAMILIES.length : found;
}
