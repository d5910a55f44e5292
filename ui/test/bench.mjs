// Measures the viewer on a generated trace of a million segments in sixteen threads and writes the
// results to results/timeline-viewer/. Run `npm run bench`; this is not a test, and no test asserts a
// time. The argument is a name for the machine: `npm run bench -- two-core-vm`.
import { mkdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { launch, makePages, needBrowser, open } from "./browser.mjs";

const LOADS = 7;
const DRAWS = 15;
const ZOOMS = [1, 0.5, 0.1, 0.01, 1e-3, 1e-4];

const median = (values) => {
  const v = [...values].sort((a, b) => a - b);
  return v.length % 2 ? v[v.length >> 1] : (v[(v.length >> 1) - 1] + v[v.length >> 1]) / 2;
};
const round = (v) => Math.round(v * 10) / 10;
const summary = (values) => ({ median: round(median(values)), min: round(Math.min(...values)), max: round(Math.max(...values)), n: values.length });

/** Redraws everything (lanes, axis, overview, legend) at one zoom and different positions. */
function draws(page, zoom, lanes) {
  return page.evaluate(
    ([part, count, wanted]) => {
      const { viewer } = document.querySelector(".tl-root").timeline;
      viewer.spans = false;
      viewer.folded.add("A:g:machine");
      viewer.arrange();
      viewer.scroll.style.maxHeight = "none";
      const end = viewer.range.end;
      const out = [];
      for (let i = 0; i < count; i += 1) {
        const from = (end * (1 - part) * (i + 0.5)) / count;
        viewer.range.set(from, from + end * part);
        const start = performance.now();
        viewer.drawNow();
        out.push(performance.now() - start);
      }
      const threads = viewer.rows.filter((r) => r.kind === "thread").length;
      if (threads !== wanted) throw new Error(`${threads} lanes instead of ${wanted}`);
      return { out, width: viewer.canvas.clientWidth, segments: viewer.runs[0].trace.threads.reduce((a, t) => a + t.segments.length, 0) };
    },
    [zoom, DRAWS, lanes],
  );
}

needBrowser();
const machine = process.argv[2] ?? "unnamed-machine";
const dir = makePages(["million"]);
const browser = await launch();
const result = { machine, browser: `Chromium ${browser.version()}, headless, software drawing`, page_bytes: 0, segments: 0, lanes: 16, canvas_px: 0, load_ms: null, redraw_ms: [] };
try {
  const path = join(dir, "million.html");
  result.page_bytes = statSync(path).size;
  const loads = [];
  for (let i = 0; i < LOADS; i += 1) {
    const { page, close } = await open(browser, path, { width: 1800, height: 1000 });
    loads.push(await page.evaluate(() => document.querySelector(".tl-root").timeline.loadMs));
    if (i === LOADS - 1) {
      for (const zoom of ZOOMS) {
        const { out, width, segments } = await draws(page, zoom, result.lanes);
        result.canvas_px = width;
        result.segments = segments;
        result.redraw_ms.push({ zoom, ...summary(out), raw: out.map(round) });
      }
    }
    await close();
  }
  result.load_ms = { ...summary(loads), raw: loads.map(round) };
} finally {
  await browser.close();
  rmSync(dir, { recursive: true, force: true });
}
const target = fileURLToPath(new URL(`../../results/timeline-viewer/${machine}/`, import.meta.url));
mkdirSync(target, { recursive: true });
writeFileSync(join(target, "figures.json"), `${JSON.stringify(result, null, 1)}\n`);
const rows = result.redraw_ms.map((r) => `| ${r.zoom} | ${r.median} | ${r.min} | ${r.max} | ${r.n} |`);
writeFileSync(
  join(target, "README.md"),
  `# The viewer with ${result.segments} segments

Made by \`npm run bench -- ${machine}\` in \`ui/\`: a generated trace, ${result.lanes} lanes, ${result.canvas_px} pixels wide,
page of ${(result.page_bytes / 1e6).toFixed(1)} MB, ${result.browser}. Other work ran on the machine at times, so the smallest
values say most about the viewer. Raw values: [figures.json](figures.json).

Load (decode, decompress, index, first picture): median ${result.load_ms.median} ms, min ${result.load_ms.min}, max ${result.load_ms.max}, n = ${result.load_ms.n}.

Redraw of everything, ms:

| visible part | median | min | max | n |
|---|---|---|---|---|
${rows.join("\n")}
`,
);
console.log(`kept in ${target}`);
