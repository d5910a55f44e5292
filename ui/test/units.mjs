// Tests the arithmetic of the timeline without a browser: steps from segment to segment, counters, and
// the use of processors.
import { build } from "esbuild";
import { fileURLToPath } from "node:url";
import { judge, same } from "./checks.mjs";

const { outputFiles } = await build({
  absWorkingDir: fileURLToPath(new URL("..", import.meta.url)),
  stdin: {
    contents: ["classes", "facts", "steps", "use"].map((name) => `export * from "./src/timeline/${name}";`).join(""),
    resolveDir: fileURLToPath(new URL("..", import.meta.url)),
  },
  bundle: true,
  format: "esm",
  write: false,
});
const source = Buffer.from(outputFiles[0].text).toString("base64");
const { ClassIndex, combinations, factOf, neighbour, Steps, useOf } = await import(`data:text/javascript;base64,${source}`);

/** Presses a key `n` times; each step selects the middle of an interval. */
function walk(starts, ends, t, by, n) {
  const out = [];
  for (let [k, at, chosen] = [0, t, -1]; k < n; k += 1) {
    const i = neighbour(Float64Array.from(starts), (j) => ends[j], chosen, at, by);
    out.push(i);
    if (i >= 0) [chosen, at] = [i, starts[i] + (ends[i] - starts[i]) / 2];
  }
  return out;
}

const segments = [[0, 10, 10, 10, 30], [10, 10, 10, 30, 40]];
same(walk(...segments, 5, 1, 3), [3, 4, 4], "forward, empty segments are skipped");
same(walk(...segments, 35, -1, 3), [3, 0, 0], "backward, empty segments are skipped");
same(walk(...segments, 90, -1, 2), [4, 3], "the last segment is before a time after the end");
same(walk(...segments, 90, 1, 1), [-1], "no segment is after the end");
const calls = [[10, 30, 30, 50], [20, 30, 40, 60]];
same(walk(...calls, 25, 1, 2), [2, 3], "forward from a gap");
same(walk(...calls, 45, -1, 2), [2, 0], "backward from a gap");
same(walk(...calls, 5, 1, 1), [0], "forward from before the first");
same(walk(...calls, 5, -1, 1), [-1], "nothing is before the first");
same(walk([10, 12], [20, 14], 25, -1, 2), [1, 0], "the selected call counts, not the one at its middle");
same(walk([], [], 5, 1, 1), [-1], "an empty lane");

const steps = new Steps(Float64Array.of(0, 10), Float64Array.of(4, 8), 20);
same(steps.extent(0, 20), { mean: 6, min: 4, max: 8 }, "a counter");
same(steps.extent(10, 40), { mean: 8, min: 8, max: 8 }, "its mean does not include time after its end");
same(steps.extent(20, 40), null, "it has no value after its end");

const core = { index: new ClassIndex(Float64Array.of(0, 4), Uint8Array.of(0, 2), 20, 3) };
const trace = (level, processors) => ({ cores: [core, core], threads: [], processors, evidence: { level }, elapsed: 20 });
const use = (level, processors) => {
  const { processors: n, whole } = useOf(trace(level, processors));
  return [n, whole];
};
same(use("switch", 8), [8, false], "processors without a thread of this program count");
same(use("switch", null), [2, false], "an unknown number of processors");
same(use("kernel", 8), [2, true], "kernel events: every processor has a lane");
const row = { kind: "use", run: { trace: trace("kernel", 2) }, use: useOf(trace("kernel", 2)) };
same(factOf(row, 20, 2), null, "no facts after the end of a run");
same(factOf(row, 19.5, 2).lines, ["this program: 0.00 processors", "others: 0.00 processors", "idle: 2.00 processors"], "the last pixel of a run");

// Level 0: on-cpu and unknown, both with unknown positions (classes from 11 on).
const sums = { role: "main", segments: new ClassIndex(Float64Array.of(0, 5), Uint8Array.of(11, 21), 20, 22) };
const placed = (role) => ({ role, segments: new ClassIndex(Float64Array.of(0, 10), Uint8Array.of(0, 10), 20, 11) });
const threads = [sums, placed("main"), placed("kernel-worker"), placed("tool")];
const account = { cores: [], channels: [], threads, processors: 2, evidence: { level: "account" }, elapsed: 20 };
const means = new Float64Array(3);
useOf(account).range(0, 20, means);
same([...means], [15, 0, 0], "processor time includes sums and excludes kernel workers and the tool");
const busy = combinations({ ...account, threads: [sums, placed("kernel-worker")], channels: [{ requests: { issue: [0], end: [20] } }] });
same([...busy.starts], [0, 5, 20], "only the program counts as busy");

// Events after 8 were dropped.
const cut = { ...trace("kernel", 2), evidence: { level: "kernel", complete_until_ns: 8 } };
const cutRow = { kind: "use", run: { trace: cut }, use: useOf(cut) };
same(factOf(cutRow, 12, 2).lines, ["not recorded after 8 ns: the limit of stored events was reached"], "no idle processors after dropped events");
same(factOf(cutRow, 6, 2).lines.length, 3, "use before dropped events");
const lost = "not recorded after 8 ns: the limit of stored events was reached";
const both = { kind: "both", run: { trace: cut }, index: new ClassIndex(Float64Array.of(0), Uint8Array.of(3), 8, 4) };
same(factOf(both, 12, 2).lines, [lost], "no combination after dropped events");
same(factOf(both, 6, 2).head, "neither", "a combination before dropped events");
const requests = { issue: [2], end: [4], depth: new Steps(Float64Array.of(0), Float64Array.of(0), 20) };
const channel = { kind: "channel", run: { trace: cut }, channel: { device: "sda", write: false, requests } };
same(factOf(channel, 12, 2).head, `sda read: ${lost}`, "no requests after dropped events");
same(factOf(channel, 6, 2).head.includes(": 0 in flight at "), true, "no requests before dropped events");

judge();
console.log("the arithmetic of the timeline passes");
