// Opens timelines of synthetic traces from disk in headless Chromium and checks them as a reader would
// see them: the shares equal those of the Rust arithmetic for several ranges, everything works with
// the keyboard alone, losses and unmeasured states are shown, two runs share an axis, filters,
// tooltips, colours. With SHOTS=DIR, it keeps screenshots of the pages.
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { check, judge, launch, makePages, needBrowser, open, same } from "./browser.mjs";

const frame = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

/** Types a range in whole nanoseconds. */
async function type(page, from, to) {
  await page.fill('.tl-range input[data-edge="from"]', `${from} ns`);
  await page.fill('.tl-range input[data-edge="to"]', `${to} ns`);
  await page.keyboard.press("Enter");
  await frame(page);
}

const range = (page) => page.evaluate(() => {
  const { from, to } = document.querySelector(".tl-root").timeline.viewer.range;
  return [from, to];
});

/** Returns shares by largest remainder, as an independent implementation. */
function tenths(values) {
  const total = values.reduce((a, b) => a + b, 0);
  if (total === 0) return values.map(() => "0.0\u00a0%");
  const exact = values.map((v) => (v * 1000) / total);
  const out = exact.map(Math.floor);
  const order = exact.map((v, i) => [v % 1, i]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  for (let k = 0, missing = 1000 - out.reduce((a, b) => a + b, 0); k < missing; k += 1) out[order[k][1]] += 1;
  return out.map((v) => `${Math.floor(v / 10)}.${v % 10}\u00a0%`);
}

/** Compares the numbers of the legend with those of Rust, for every range. */
async function numbers(page, wanted, name) {
  for (let i = 0; i < wanted[0].ranges.length; i += 1) {
    const { from, to } = wanted[0].ranges[i];
    await type(page, from, to);
    same(await range(page), [from, to], `${name}: the range that was typed`);
    for (const [r, run] of wanted.entries()) {
      // Ranges are those of run A; B is only compared for the ranges that Rust computed.
      const row = run.ranges.find((x) => x.from === from && x.to === to);
      if (!row) continue;
      const shown = await page.$$eval(`.tl-legend td[data-run="${"AB"[r]}"]`, (cells) =>
        cells.map((c) => [c.dataset.share, c.dataset.ns, c.textContent]),
      );
      const names = Object.keys(row.ns);
      same(shown.map((s) => s[0]).sort(), [...names].sort(), `${name}: every state is in the legend`);
      const texts = tenths(shown.map(([state]) => row.ns[state]));
      for (const [k, [state, ns, text]] of shown.entries()) {
        const what = `${name} ${from}..${to} ${state}`;
        if (text === "not measured") {
          same(row.ns[state], 0, `${what} has no time when it is not measured`);
        } else {
          same(Number(ns), row.ns[state], what);
          same(text, texts[k], `${what}, written`);
        }
      }
      const sum = shown.reduce((a, [, ns]) => a + Number(ns), 0);
      check(sum > 0 || to > run.elapsed_ns, `${name}: some time in ${from}..${to}`);
    }
  }
}

/** Returns the current lane, the selection and its text. */
const state = (page) => page.evaluate(() => {
  const { viewer } = document.querySelector(".tl-root").timeline;
  return {
    lane: viewer.marked.lane,
    selected: viewer.marked.selected,
    wake: viewer.marked.wake,
    words: document.querySelector(".tl-detail").textContent,
    focus: document.activeElement?.className ?? "",
  };
});

/** Uses only the keyboard: focus the lanes, zoom, move, select lanes and segments, follow a wake-up. */
async function keyboard(page) {
  let steps = 0;
  while (!(await state(page)).focus.includes("tl-scroll") && steps < 40) {
    await page.keyboard.press("Tab");
    steps += 1;
  }
  check((await state(page)).focus.includes("tl-scroll"), "Tab reaches the lanes");
  const outline = await page.$eval(".tl-scroll", (e) => getComputedStyle(e).outlineStyle);
  check(outline !== "none", "the focus on the lanes is visible");
  const [, end] = await range(page);
  await page.keyboard.press("+");
  await page.keyboard.press("+");
  const zoomed = await range(page);
  check(zoomed[1] - zoomed[0] < end / 2, "plus zooms in");
  await page.keyboard.press("ArrowRight");
  const moved = await range(page);
  check(moved[0] > zoomed[0] && moved[1] - moved[0] === zoomed[1] - zoomed[0], "an arrow key moves without zooming");
  await page.keyboard.press("Shift+ArrowLeft");
  check((await range(page))[0] < moved[0], "Shift moves further, in the other direction");
  await page.keyboard.press("-");
  check((await range(page))[1] - (await range(page))[0] > zoomed[1] - zoomed[0], "minus zooms out");
  await page.keyboard.press("Home");
  same(await range(page), [0, end], "Home shows the whole run");
  for (let i = 0; i < 60 && (await state(page)).lane !== "A:t4102"; i += 1) {
    await page.keyboard.press("]");
  }
  same((await state(page)).lane, "A:t4102", "] goes to the next lane");
  await page.keyboard.press("[");
  check((await state(page)).lane !== "A:t4102", "[ goes back");
  await page.keyboard.press("]");
  await page.keyboard.press("Enter");
  const first = await state(page);
  check(first.selected !== null && first.words.includes("source:"), "Enter selects a segment and shows its source");
  await page.keyboard.press(".");
  check((await state(page)).selected.from >= first.selected.to, "a period goes to the next segment");
  await page.keyboard.press(",");
  same((await state(page)).selected, first.selected, "a comma goes back");
  // Go to a wait that another thread of the run ended, and to that thread.
  let now = await state(page);
  for (let i = 0; i < 80 && !(now.words.startsWith("sync") && now.wake?.fromId); i += 1) {
    await page.keyboard.press(".");
    now = await state(page);
  }
  check(/woken by worker-\d \(41\d\d\) at [\d.]+ ms/.test(now.words), `the waker is named with its time: ${now.words}`);
  await page.keyboard.press("z");
  const close = await range(page);
  check(close[1] - close[0] < 2 * (now.selected.to - now.selected.from), "z zooms to the selection");
  await page.keyboard.press("w");
  same((await state(page)).lane, now.wake.fromId, "w goes to the lane of the waker");
  await page.keyboard.press("Escape");
  same((await state(page)).selected, null, "Escape clears the selection");
  const end_of = await page.evaluate(() => {
    const { viewer } = document.querySelector(".tl-root").timeline;
    const { thread } = viewer.row("A:t4102");
    viewer.goTo("A:t4102");
    viewer.marked.cursor = thread.end + 1;
    return thread.end;
  });
  await page.keyboard.press(",");
  same((await state(page)).selected?.to, end_of, "after the end of a thread, a comma goes to its last segment");
  await page.keyboard.press("Escape");
  await page.keyboard.press("?");
  check(await page.isVisible(".tl-keys"), "the question mark lists the keys");
  await page.keyboard.press("?");
  await page.keyboard.press("Home");
}

/** Hides and shows states, roles and calls with buttons that keys reach as well. */
async function filters(page) {
  const rows = () => page.evaluate(() => document.querySelector(".tl-root").timeline.viewer.rows.map((r) => r.id));
  const all = await rows();
  await page.focus('.tl-roles button[data-role="reader"]');
  await page.keyboard.press("Enter");
  await frame(page);
  check(!(await rows()).some((id) => id === "B:t4201"), "a role is hidden");
  const without = await page.getAttribute('.tl-legend td[data-run="B"][data-share="sync"]', "data-ns");
  await page.keyboard.press("Enter");
  await frame(page);
  same(await rows(), all, "and back");
  const whole = await page.getAttribute('.tl-legend td[data-run="B"][data-share="sync"]', "data-ns");
  check(Number(whole) > Number(without), "shares are those of the visible roles");
  await page.click('.tl-state[data-state="io"]');
  same(await page.getAttribute('.tl-state[data-state="io"]', "aria-pressed"), "false", "a state is hidden");
  await page.click('.tl-state[data-state="io"]');
  await page.click('button[aria-label="show or hide the calls under each thread"]');
  check(!(await rows()).some((id) => id.endsWith(":spans")), "calls fold away");
  await page.click('button[aria-label="show or hide the calls under each thread"]');
  check((await rows()).some((id) => id.startsWith("A:")) && (await rows()).some((id) => id.startsWith("B:")), "both runs have lanes");
  await page.selectOption('.tl-choice select[data-run="B"]', "-1");
  await page.waitForFunction(() => document.querySelector(".tl-root").timeline.viewer.runs.length === 1);
  check(!(await rows()).some((id) => id.startsWith("B:")), "one run only");
  await page.selectOption('.tl-choice select[data-run="B"]', "2");
  await page.waitForFunction(() => document.querySelector(".tl-root").timeline.viewer.runs.length === 2);
  check(await page.isVisible('[data-finding="page-fault-stalls"]'), "the finding of the selected run is above the lanes");
  await shot(page, "pair-finding");
  await page.selectOption('.tl-choice select[data-run="B"]', "1");
  await page.waitForFunction(() => document.querySelector(".tl-root").timeline.viewer.runs[1]?.trace.title.startsWith("Overlapped"));
  check(!(await page.isVisible('[data-finding="page-fault-stalls"]')), "findings of other runs are hidden");
}

/** A run that cannot be decoded leaves the choice of runs and the static drawings. */
async function choices(page) {
  const seen = await page.evaluate(async () => {
    const root = document.querySelector(".tl-root");
    const choose = (value) => {
      const select = root.querySelector('.tl-choice select[data-run="B"]');
      select.value = value;
      select.dispatchEvent(new Event("change"));
    };
    const wait = () => new Promise((done) => setTimeout(done, 500));
    const visible = (selector) => (root.querySelector(selector)?.getClientRects().length ?? 0) > 0;
    const [, second, third] = root.querySelectorAll("script.tl-trace");
    third.textContent = "!";
    choose("2");
    await wait();
    const failed = [visible(".tl-failed"), visible(".tl-choice"), visible(".tl-still")];
    choose("1");
    await wait();
    const again = [visible(".tl-failed"), visible(".tl-canvas"), visible(".tl-still")];
    return { failed, again, title: root.timeline.viewer.runs[1].trace.title === second.dataset.title };
  });
  same(seen, { failed: [true, true, true], again: [false, true, false], title: true }, "a run that cannot be decoded");
}

/** Of two choices, the later one is shown, even if the earlier one is decoded later. */
async function race(page) {
  const [title, wanted] = await page.evaluate(async () => {
    const root = document.querySelector(".tl-root");
    const select = root.querySelector('.tl-choice select[data-run="B"]');
    for (const value of ["2", "1"]) {
      select.value = value;
      select.dispatchEvent(new Event("change"));
    }
    await new Promise((done) => setTimeout(done, 500));
    return [root.timeline.viewer.runs[1].trace.title, root.querySelectorAll("script.tl-trace")[1].dataset.title];
  });
  same(title, wanted, "the later choice is shown");
}

/** In a range after the end of the shorter run, its devices and processors have no values. */
async function beyond(page) {
  const words = await page.evaluate(async () => {
    const { viewer } = document.querySelector(".tl-root").timeline;
    const [a, b] = viewer.runs.map((run) => run.trace.elapsed);
    const settled = new Promise((done) => viewer.root.addEventListener("timeline-settled", done, { once: true }));
    viewer.range.set(Math.min(a, b), Math.max(a, b));
    viewer.changed();
    await settled;
    const list = document.querySelectorAll(".tl-machine dl")[a < b ? 0 : 1];
    return a === b ? [] : Array.from(list.querySelectorAll("dd"), (d) => d.textContent);
  });
  check(words.length > 2, `the shorter run has only ${words.length} lines`);
  same([...new Set(words)], ["not in this range"], "a range after the end of a run");
}

/** The strip of the whole run shows the threads of the legend, without those of the kernel. */
async function strip(page) {
  const [without, alone, all] = await page.evaluate(() => {
    const { viewer } = document.querySelector(".tl-root").timeline;
    const { trace } = viewer.runs[0];
    const pixels = () => {
      viewer.recolour();
      viewer.drawNow();
      return document.querySelector(".tl-overview").toDataURL();
    };
    const { threads } = trace;
    const roles = threads.map((t) => t.role);
    const all = pixels();
    for (const t of threads) t.role = t.tid === 4101 ? t.role : "kernel-worker";
    const without = pixels();
    trace.threads = threads.filter((t) => t.tid === 4101);
    const alone = pixels();
    trace.threads = threads;
    threads.forEach((t, i) => (t.role = roles[i]));
    return [without, alone, all];
  });
  check(alone !== all, "the strip shows several threads");
  check(without === alone, "the strip leaves out the threads that the legend leaves out");
}

/** Thousands of roles have at most 64 buttons and bars. */
async function roles(page) {
  const counts = await page.evaluate(async () => {
    const root = document.querySelector(".tl-root");
    const { trace } = root.timeline.viewer.runs[0];
    const [first] = trace.threads;
    trace.threads = Array.from({ length: 2000 }, (_, i) => ({ ...first, tid: i + 1, role: `role-${i}` }));
    const ready = new Promise((done) => root.addEventListener("timeline-ready", done, { once: true }));
    const select = root.querySelector('.tl-choice select[data-run="B"]');
    select.value = "-1";
    select.dispatchEvent(new Event("change"));
    await ready;
    const bars = root.querySelector(".tl-rows:not(.tl-threads)");
    const note = (box) => box.querySelector(".tl-quiet")?.textContent;
    const box = root.querySelector(".tl-roles");
    return [box.querySelectorAll("button").length, note(box), bars.querySelectorAll(".tl-row").length, note(bars)];
  });
  same(counts, [64, "1936 more roles have no button.", 64, "1936 more roles are in the lanes above."], "2000 roles");
}

/** Mouse: wheel, drag, tooltip, a click on a segment. */
async function mouse(page) {
  const box = await page.locator(".tl-canvas").boundingBox();
  const row = await page.evaluate(() => {
    const { viewer } = document.querySelector(".tl-root").timeline;
    viewer.range.whole();
    viewer.changed();
    const found = viewer.rows.find((r) => r.id === "A:t4101");
    return found.y + found.height / 2 - viewer.scroll.scrollTop;
  });
  await page.mouse.move(box.x + box.width / 2, box.y + row);
  await frame(page);
  const words = await page.textContent(".tl-tip");
  check(await page.isVisible(".tl-tip"), "a lane has a tooltip");
  for (const part of ["worker-0, tid 4101, role worker", "in: ", "file: set/", "source: "]) {
    check(words.includes(part), `the words have "${part}": ${words}`);
  }
  const before = await range(page);
  await page.mouse.wheel(0, -400);
  await frame(page);
  const zoomed = await range(page);
  check(zoomed[1] - zoomed[0] < before[1] - before[0], "the wheel zooms");
  await page.mouse.down();
  await page.mouse.move(box.x + box.width / 2 + 120, box.y + row, { steps: 4 });
  await page.mouse.up();
  await frame(page);
  check((await range(page))[0] < zoomed[0], "dragging moves");
  await page.mouse.click(box.x + box.width / 2, box.y + row);
  check((await state(page)).selected !== null, "a click selects");
}

/** Checks that every state differs from the background and from the others in both themes and schemes. */
async function colours(page, what) {
  for (const set of ["", "cv"]) {
    await page.selectOption('select[aria-label="colour scheme"]', set);
    const fills = await page.$$eval(".tl-row .tl-bar", (bars) => Array.from(bars[0].children, (i) => getComputedStyle(i).backgroundColor));
    same(new Set(fills).size, fills.length, `${what}, ${set}: states have colours of their own`);
  }
  await page.selectOption('select[aria-label="colour scheme"]', "");
}

/** Checks that the canvas is not empty and has more than one colour. */
async function drawn(page, what) {
  const colours = await page.$eval(".tl-canvas", (canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const seen = new Set();
    for (let i = 0; i < data.length; i += 44) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
    return seen.size;
  });
  check(colours > 12, `${what}: the lanes have only ${colours} colours`);
}

async function shot(page, name) {
  if (process.env.SHOTS) {
    await page.screenshot({ path: join(process.env.SHOTS, `${name}.png`), fullPage: true });
  }
}

async function widths(page, what) {
  const [wide, room] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  check(wide <= room, `${what}: the page is ${wide} wide in ${room}`);
}

needBrowser();
const dir = makePages();
const wanted = JSON.parse(readFileSync(join(dir, "expected.json"), "utf8"));
const browser = await launch();
try {
  for (const name of ["one", "account", "pair"]) {
    for (const [scheme, width] of [["light", 1366], ["dark", 1366], ["light", 390]]) {
      const { page, seen, close } = await open(browser, join(dir, `${name}.html`), { scheme, width });
      await frame(page);
      await drawn(page, `${name} ${scheme}`);
      await widths(page, `${name} at ${width}`);
      await shot(page, `${name}-${scheme}-${width}`);
      if (width === 1366) await colours(page, `${name} ${scheme}`);
      if (width === 1366 && scheme === "light") await numbers(page, wanted[name], name);
      same(seen.errors, [], `${name}: console`);
      same(seen.requests, [], `${name}: requests`);
      await close();
    }
  }
  const one = await open(browser, join(dir, "one.html"));
  await keyboard(one.page);
  await strip(one.page);
  await mouse(one.page);
  await shot(one.page, "one-selected");
  same(one.seen.errors, [], "console after use");
  await one.close();
  const pair = await open(browser, join(dir, "pair.html"));
  await beyond(pair.page);
  await race(pair.page);
  await filters(pair.page);
  await roles(pair.page);
  same(pair.seen.errors, [], "console after filters");
  await pair.close();
  const broken = await open(browser, join(dir, "pair.html"));
  await choices(broken.page);
  same(broken.seen.errors, [], "console after a failed choice");
  await broken.close();
  const account = await open(browser, join(dir, "account.html"));
  const text = await account.page.textContent(".tl-legend");
  check(text.includes("not measured: needs switch events: sysctl kernel.perf_event_paranoid=2"), "an unmeasured state has its reason");
  check(text.includes("includes preempted"), "the state that includes its time names it");
  const head = await account.page.textContent(".tl-words");
  check(/Events were lost: spans lost 34 of 285 records/.test(head), "lost events are in the header");
  await account.close();
  const still = await open(browser, join(dir, "pair.html"), { script: false });
  same(await still.page.locator(".tl-still svg.tls").count(), 2, "without scripts, two drawings are shown");
  await shot(still.page, "pair-without-script");
  await still.close();
} finally {
  await browser.close();
  rmSync(dir, { recursive: true, force: true });
}
judge();
console.log("the timelines pass in a browser");
