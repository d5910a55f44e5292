// Opens a page of two studies with timelines from disk in headless Chromium and checks that each viewer
// starts once, works, and does not affect the other, that no table overflows at any width, and that
// axe-core finds no violation. With SHOTS=DIR, it keeps screenshots of the page.
import { rmSync } from "node:fs";
import { join } from "node:path";
import { accessible, check, emptyDir, judge, launch, make, needBrowser, open, same } from "./browser.mjs";

needBrowser();
const dir = emptyDir();
const path = join(dir, "chapters.html");
make("sample", [join(dir, "sample.html"), join(dir, "compare.html"), path]);

const frame = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
const ready = (page) => page.waitForFunction(() => Array.from(document.querySelectorAll(".tl-root"), (r) => r.timeline !== undefined).every(Boolean));

/** Returns the state of each viewer: range, lanes, hidden roles, current lane, shares, and a hash of its canvas. */
const all = (page) => page.evaluate(() => Array.from(document.querySelectorAll(".tl-root"), (root) => {
  const { viewer } = root.timeline;
  const canvas = root.querySelector(".tl-canvas");
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  const seen = new Set();
  let [mark, white] = [7, 0];
  for (let i = 0; i < data.length; i += 44) {
    const colour = (data[i] << 16) | (data[i + 1] << 8) | data[i + 2];
    seen.add(colour);
    white += colour === 0xffffff ? 1 : 0;
    mark = (Math.imul(mark, 31) + colour) | 0;
  }
  return {
    colours: seen.size,
    white: white / (data.length / 44),
    shown: {
      runs: viewer.runs.map((r) => r.trace.title),
      range: [viewer.range.from, viewer.range.to],
      rows: viewer.rows.map((r) => r.id),
      lane: viewer.marked.lane,
      legend: root.querySelector(".tl-legend").textContent,
      words: root.querySelector(".tl-detail").textContent,
      mark,
    },
  };
}));

/** Checks that each root has one viewer in place of its drawing, with the runs of its chapter. */
async function started(page) {
  const roots = await page.$$eval(".tl-root", (all) => all.map((root) => ({
    lives: root.querySelectorAll(".tl-live").length,
    bars: root.querySelectorAll(".tl-toolbar").length,
    stills: root.querySelectorAll(".tl-still:not([hidden])").length,
    titles: Array.from(root.querySelectorAll("script.tl-trace"), (s) => s.dataset.title),
  })));
  same(roots.map((r) => [r.lives, r.bars, r.stills]), [[1, 1, 0], [1, 1, 0]], "each viewer starts once");
  for (const [i, { shown, colours }] of (await all(page)).entries()) {
    same(shown.runs, roots[i].titles, `the runs of viewer ${i}`);
    check(colours > 12, `viewer ${i} draws only ${colours} colours`);
  }
  const scripts = await page.$$eval("script:not([type])", (all) => all.filter((s) => s.textContent.includes("timeline-ready")).length);
  same(scripts, 1, "the page contains the script once");
}

/** Uses all functions of one viewer and checks that the other does not change. */
async function apart(page, mine, other) {
  const root = page.locator(".tl-root").nth(mine);
  const act = async (what, how) => {
    const before = await all(page);
    await how();
    await frame(page);
    const after = await all(page);
    check(JSON.stringify(after[mine].shown) !== JSON.stringify(before[mine].shown), `viewer ${mine}: ${what} does nothing`);
    same(after[other].shown, before[other].shown, `viewer ${other} after ${what} in ${mine}`);
  };
  await act("a typed range", async () => {
    await root.locator('.tl-range input[data-edge="to"]').fill("9000000 ns");
    await root.locator('.tl-range input[data-edge="from"]').fill("4000000 ns");
    await page.keyboard.press("Enter");
  });
  await root.locator(".tl-scroll").focus();
  await act("a key", () => page.keyboard.press("+"));
  await act("another lane", () => page.keyboard.press("]"));
  await act("a hidden role", () => root.locator(".tl-roles button").first().click());
  await act("the role again", () => root.locator(".tl-roles button").first().click());
  await act("a hidden state", () => root.locator('.tl-state[data-state="on-cpu"]').click());
  await act("one run only", async () => {
    await root.locator('.tl-choice select[data-run="B"]').selectOption("-1");
    await page.waitForFunction((i) => document.querySelectorAll(".tl-root")[i].timeline.viewer.runs.length === 1, mine);
  });
  await act("both runs", async () => {
    await root.locator('.tl-choice select[data-run="B"]').selectOption("1");
    await page.waitForFunction((i) => document.querySelectorAll(".tl-root")[i].timeline.viewer.runs.length === 2, mine);
  });
}

/** Checks that no table or panel overflows or overlaps another. */
async function fits(page, what) {
  const wrong = await page.evaluate(() => {
    const bad = [];
    for (const panels of document.querySelectorAll(".tl-panels")) {
      const boxes = Array.from(panels.children, (p) => p.getBoundingClientRect());
      Array.from(panels.children).forEach((panel, i) => {
        for (const part of panel.querySelectorAll("table, td, .tl-row, .tl-bar, dl")) {
          const box = part.getBoundingClientRect();
          if (box.width > 0 && box.right > boxes[i].right + 1) {
            bad.push(`${part.tagName}.${part.className} ends at ${box.right}, its panel at ${boxes[i].right}`);
          }
        }
      });
      for (const note of panels.querySelectorAll("td.note")) {
        const { width } = note.getBoundingClientRect();
        if (width > 0 && width < 240) bad.push(`a note is ${width} wide`);
      }
    }
    const { scrollWidth, clientWidth } = document.documentElement;
    if (scrollWidth > clientWidth) bad.push(`the page is ${scrollWidth} wide in ${clientWidth}`);
    return bad;
  });
  same(wrong, [], what);
}

async function shot(page, name) {
  if (process.env.SHOTS) {
    await page.screenshot({ path: join(process.env.SHOTS, `${name}.png`), fullPage: true });
  }
}

const browser = await launch();
try {
  for (const width of [1366, 1200, 900, 390]) {
    for (const scheme of ["light", "dark"]) {
      const { page, seen, close } = await open(browser, path, { width, scheme });
      await ready(page);
      await frame(page);
      await started(page);
      await fits(page, `${scheme} at ${width}`);
      await shot(page, `chapters-${scheme}-${width}`);
      if (width === 1200) {
        await page.evaluate(() => document.querySelector(".tl-state")?.click());
        await accessible(page, `timelines, ${scheme}`);
      }
      same(seen.errors, [], `console at ${width}`);
      same(seen.requests, [], `requests at ${width}`);
      await close();
    }
  }
  const { page, seen, close } = await open(browser, path);
  await ready(page);
  await apart(page, 0, 1);
  await apart(page, 1, 0);
  const light = await all(page);
  await page.click("#theme");
  await page.click("#theme");
  same(await page.textContent("#theme"), "Dark", "the theme switch");
  await frame(page);
  for (const [i, { shown }] of (await all(page)).entries()) {
    check(shown.mark !== light[i].shown.mark, `viewer ${i} follows the switch of colours`);
  }
  // Print is white, whatever the theme.
  await page.emulateMedia({ media: "print" });
  await frame(page);
  for (const [i, { white }] of (await all(page)).entries()) {
    check(white > 0.05, `viewer ${i} prints ${white} of its picture white`);
  }
  await fits(page, "printed");
  same(seen.errors, [], "console after use");
  await close();
  const still = await open(browser, path, { script: false });
  same(await still.page.locator(".tl-still:visible").count(), 2, "without scripts, each chapter has its drawings");
  same(await still.page.locator(".tl-still svg.tls:visible").count(), 4, "two drawings in each");
  await still.close();
} finally {
  await browser.close();
  rmSync(dir, { recursive: true, force: true });
}
judge();
console.log("two chapters with timelines pass in a browser");
