// Opens a sample report from disk in headless Chromium and checks it as a reader would see it: no
// error, no request, theme switch, sorting, filters, tooltips, widths, and that the numbers on the page
// equal the embedded data.
import { rmSync } from "node:fs";
import { join } from "node:path";
import { accessible, check, emptyDir, judge, launch, make, needBrowser, open, same } from "./browser.mjs";

needBrowser();
const dir = emptyDir();
const [page_path, compare_path] = [join(dir, "sample.html"), join(dir, "compare.html")];

const opened = (browser, path, width, scheme = "light") =>
  open(browser, path, { width, scheme, lanes: false });

// The number at the start of a text such as "1.24 ms", "5.19× [4.28, 6.15]", "97 %" or "4 000".
const NUMBERS = () => {
  const units = {
    ns: 1, "µs": 1e3, ms: 1e6, s: 1e9, min: 60e9, h: 3600e9,
    B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4,
  };
  const { studies } = JSON.parse(document.getElementById("report-data").textContent);
  const rows = new Map();
  const groups = studies.flatMap((study) => study.groups);
  for (const group of groups) {
    for (const arm of group.arms) rows.set(arm.id, arm);
  }
  for (const ratio of studies.flatMap((study) => study.ratios)) rows.set(ratio.id, ratio);
  for (const claim of studies.flatMap((study) => study.claims)) rows.set(claim.ref, claim);
  const median = (values) => {
    const v = [...values].sort((a, b) => a - b);
    const half = v.length >> 1;
    return v.length % 2 ? v[half] : (v[half - 1] + v[half]) / 2;
  };
  const wrong = [];
  let count = 0;
  for (const group of groups) {
    for (const arm of group.arms) {
      if (arm.median === null) continue;
      // Medians are recomputed from the raw values, independently of the report.
      if (Math.abs(arm.median - median(arm.values)) > 1e-9 * Math.abs(arm.median)) {
        wrong.push(`${arm.id}: median ${arm.median} of ${arm.values}`);
      }
      if (arm.n !== arm.values.length || arm.low > arm.median || arm.high < arm.median) {
        wrong.push(`${arm.id}: n ${arm.n}, interval ${arm.low} to ${arm.high}`);
      }
    }
  }
  for (const element of document.querySelectorAll("[data-ref]")) {
    const row = rows.get(element.dataset.ref);
    const wanted = row?.[element.dataset.field];
    const text = element.textContent.trim();
    const match = /^(-?\d[\d \u202f]*(?:\.\d+)?)\s*(%|×|[A-Za-zµ]+)?/u.exec(text);
    if (wanted === undefined || wanted === null || !match) {
      wrong.push(`${element.dataset.ref}.${element.dataset.field}: "${text}" has no number`);
      continue;
    }
    const number = Number(match[1].replace(/[ \u202f]/g, ""));
    const unit = match[2] ?? "";
    const value = number * (unit === "%" ? 0.01 : (units[unit] ?? 1));
    // Half a unit of the last printed digit.
    const digits = (match[1].split(".")[1] ?? "").length;
    const step = 0.5 * 10 ** -digits * (unit === "%" ? 0.01 : (units[unit] ?? 1));
    if (Math.abs(value - wanted) > step * 1.0001) {
      wrong.push(`${element.dataset.ref}.${element.dataset.field}: "${text}" is not ${wanted}`);
    }
    count += 1;
  }
  return { wrong, count };
};

async function noOverflow(page, what) {
  const widths = await page.evaluate(() => {
    for (const d of document.querySelectorAll("details")) d.open = true;
    return [document.documentElement.scrollWidth, document.documentElement.clientWidth];
  });
  check(widths[0] <= widths[1], `${what}: the page is ${widths[0]} wide in ${widths[1]}`);
}

// Texts of a drawing must not overlap or leave it.
const OVERLAPS = () => {
  const bad = [];
  for (const svg of document.querySelectorAll("svg.chart")) {
    const frame = svg.getBoundingClientRect();
    if (frame.width === 0) continue;
    const name = svg.getAttribute("aria-label");
    const boxes = Array.from(svg.querySelectorAll("text"))
      .map((t) => ({ text: t.textContent, box: t.getBoundingClientRect() }))
      .filter((t) => t.box.width > 0);
    boxes.forEach((a, i) => {
      if (a.box.left < frame.left - 2 || a.box.right > frame.right + 2) {
        bad.push(`${name}: "${a.text}" leaves the drawing`);
      }
      for (const b of boxes.slice(i + 1)) {
        const wide = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
        const high = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
        if (wide > 1.5 && high > 4) bad.push(`${name}: "${a.text}" overlaps "${b.text}"`);
      }
    });
  }
  return bad;
};

// Contrast of text with the background: 7 for running text, 4.5 for the rest (WCAG).
async function readable(page, theme) {
  const found = await page.evaluate(() => {
    const light = (c) => {
      const parts = c.match(/[\d.]+/g).slice(0, 3).map((v) => Number(v) / 255);
      const [r, g, b] = parts.map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const paper = light(getComputedStyle(document.body).backgroundColor);
    const contrast = (element) => {
      const style = getComputedStyle(element);
      const ink = light(element instanceof SVGElement ? style.fill : style.color);
      return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    };
    const all = (s) => Array.from(document.querySelectorAll(s), contrast);
    const quiet = "p, .iv, .where, dt, dd, .dname, .vd, figcaption, nav a, svg .lb, svg .t, svg .ax";
    return { main: Math.min(...all(".answer")), quiet: Math.min(...all(quiet)) };
  });
  check(found.main >= 7, `${theme}: the answer has a contrast of ${found.main}`);
  check(found.quiet >= 4.5, `${theme}: some text has a contrast of ${found.quiet}`);
}

async function colours(page) {
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const auto = await paper();
  await page.click("#theme");
  same(await page.textContent("#theme"), "Light", "first click");
  same(await paper(), auto, "the system setting is light");
  await readable(page, "light");
  await page.click("#theme");
  same(await page.textContent("#theme"), "Dark", "second click");
  check((await paper()) !== auto, "dark changes the background");
  await readable(page, "dark");
  await page.click("#theme");
  same(await page.textContent("#theme"), "Auto", "third click");
}

async function sorting(page) {
  const medians = () =>
    page.$$eval("table.comparisons tbody tr", (rows) =>
      rows.map((r) => Number(r.cells[4].dataset.sort)),
    );
  const before = await medians();
  const rising = [...before].sort((a, b) => a - b);
  await page.click("table.comparisons th:nth-child(5) button");
  same(await medians(), rising, "one click sorts ascending");
  await page.click("table.comparisons th:nth-child(5) button");
  same(await medians(), rising.reverse(), "another click sorts descending");
  const state = await page.getAttribute("table.comparisons th:nth-child(5)", "aria-sort");
  same(state, "descending", "aria-sort has the direction");
}

async function filters(page) {
  const shown = () => page.locator("table.claims tbody tr:visible").count();
  const all = await shown();
  await page.click('#claim-filter button[data-verdict="confirmed"]');
  same(await shown(), all - 1, "a verdict is hidden");
  await page.click('#claim-filter button[data-verdict="confirmed"]');
  await page.fill("#claim-search", "hybrids COLLAPSE");
  same(await shown(), 1, "the search filters claims");
  await page.fill("#claim-search", "");
  same(await shown(), all, "all claims are visible again");
}

async function tips(page) {
  // Scrolling hides the tooltip, and a busy machine can report it late: hover again until it shows.
  for (let i = 0; i < 20 && !(await page.isVisible("#tip")); i += 1) {
    await page.locator("svg.wide .pt .mk").first().hover({ force: true, position: { x: 2 + (i % 3), y: 3 } });
    await page.waitForTimeout(100);
  }
  const words = await page.textContent("#tip");
  check(await page.isVisible("#tip"), "a mark has a tooltip");
  check(/over .*\d blocks/s.test(words), `the words say the count: ${words}`);
  await page.keyboard.press("Escape");
  check(!(await page.isVisible("#tip")), "Escape hides it");
  // A tap does not move the pointer.
  const tap = { bubbles: true, pointerType: "touch", clientX: 40, clientY: 40 };
  await page.locator("svg.wide .pt .mk").first().dispatchEvent("pointerdown", tap);
  check(await page.isVisible("#tip"), "a tap on a mark shows its tooltip");
  await page.locator("h1").first().dispatchEvent("pointerdown", tap);
  check(!(await page.isVisible("#tip")), "a tap elsewhere hides it");
}

// The answer is at most one screen and the page at most twelve before unfolding; a link opens its chapter,
// and everything is printed.
async function folded(browser) {
  const { page, seen, close } = await open(browser, page_path, { height: 768, lanes: false, unfold: false });
  const screens = await page.evaluate(() => document.documentElement.scrollHeight / 768);
  check(screens <= 12, `the folded page has ${screens} screens`);
  const open_ones = () => page.locator("details.fold[open]").count();
  same(await open_ones(), 0, "every chapter is folded");
  await page.click("nav a[href$='claims']");
  same(await page.locator("#claims details.fold[open]").count(), 1, "a link opens its chapter");
  check(await page.isVisible("table.claims"), "and shows it");
  await page.evaluate(() => window.dispatchEvent(new Event("beforeprint")));
  same(await open_ones(), await page.locator("details.fold").count(), "everything is printed");
  await page.evaluate(() => window.dispatchEvent(new Event("afterprint")));
  same(await open_ones(), 1, "and folded again");
  await page.evaluate(() => new Promise((done) => {
    window.addEventListener("hashchange", () => setTimeout(done), { once: true });
    location.hash = "#50%";
  }));
  same(seen.errors, [], "a link with a percent sign");
  await close();
}

// From a phone to a laptop, light, dark and printed.
async function readers(browser) {
  for (const [path, width, scheme, media] of [
    [page_path, 360, "light", "screen"],
    [page_path, 768, "dark", "screen"],
    [page_path, 1440, "light", "screen"],
    [page_path, 1366, "light", "print"],
    [compare_path, 360, "dark", "screen"],
  ]) {
    const { page, close } = await opened(browser, path, width, scheme);
    await page.emulateMedia({ media });
    // A control that is off, and charts whose data was saved, must be accessible too.
    await page.evaluate(() => {
      HTMLAnchorElement.prototype.click = () => undefined;
      document.querySelector("#claim-filter button")?.click();
      document.querySelectorAll("figure > .data button").forEach((button) => button.click());
    });
    await accessible(page, `${path} at ${width}, ${scheme}, ${media}`);
    await close();
  }
}

// Every chart offers its data, and each row of a comparison has its metric, unit, condition and block.
async function data(page) {
  const [charts, offers] = await page.evaluate(() => [
    Array.from(document.querySelectorAll("figure")).filter((f) => f.querySelector("svg.chart")).length,
    document.querySelectorAll("figure > .data").length,
  ]);
  check(charts > 10, `only ${charts} charts`);
  same(offers, charts, "charts with data");
  const saved = await page.evaluate(() => {
    const found = [];
    HTMLAnchorElement.prototype.click = function () {
      found.push([this.download, decodeURIComponent(this.href.split(",").slice(1).join(","))]);
    };
    document.querySelectorAll("figure > .data button").forEach((button) => button.click());
    const { studies } = JSON.parse(document.getElementById("report-data").textContent);
    const first = document.querySelector(".group figure");
    const group = studies.flatMap((s) => s.groups).find((g) => g.id === first.closest(".group").id);
    found.push([...document.querySelectorAll("figure > .data")].indexOf(first.querySelector(".data")));
    found.push(group.arms.flatMap((arm) => arm.values ?? []));
    const names = ["experiment", "metric", "unit", "medium", "condition", "compute"];
    const of = (arm) => (arm.values ?? []).map((_, i) => [...names.map((n) => group[n]), arm.blocks[i], arm.confidence]);
    found.push(group.arms.flatMap(of));
    return found;
  });
  const [at, values, facts] = saved.splice(-3);
  const empty = saved.filter(([name, text]) =>
    name.endsWith(".csv") ? text.trim().split("\r\n").length < 2 : JSON.parse(text).length === 0,
  );
  same(empty.map(([name]) => name), [], "charts without data");
  const column = (text) => {
    const [head, ...lines] = text.trim().split("\r\n");
    return lines.map((line) => Number(line.match(/("[^"]*"|[^,]*)(,|$)/g)[head.split(",").indexOf("value")].replace(",", "")));
  };
  const curves = saved.filter(([name]) => name.startsWith("reads-in-flight-") && name.endsWith(".csv"));
  same([...new Set(curves.map(([, text]) => text.split("\r\n")[0]))], ["time_us,max_reads_in_flight"], "the columns of reads in flight");
  same(column(saved[2 * at][1]), values, "the CSV of a comparison");
  const rows = JSON.parse(saved[2 * at + 1][1]);
  same(rows.map((row) => row.value), values, "its JSON");
  const names = ["experiment", "metric", "unit", "medium", "condition", "compute", "block", "confidence"];
  same(rows.map((row) => names.map((name) => row[name])), facts, "the facts of its rows");
  same(facts[0].slice(1, 3), ["elapsed_ns", "ns"], "metric and unit");
  const head = saved[2 * at][1].split("\r\n")[0].split(",");
  same(names.filter((name) => !head.includes(name)), [], "columns that its CSV lacks");
}

make("sample", [page_path, compare_path]);
const browser = await launch();
try {
  for (const path of [page_path, compare_path]) {
    for (const width of [1366, 390]) {
      const { page, seen, close } = await opened(browser, path, width);
      await noOverflow(page, `${path} at ${width}`);
      same(await page.evaluate(OVERLAPS), [], `labels at ${width}`);
      if (path === page_path) {
        const { wrong, count } = await page.evaluate(NUMBERS);
        same(wrong, [], "numbers and data");
        check(count > 100, `only ${count} numbers lead back to the data`);
      }
      same(seen.errors, [], "console");
      same(seen.requests, [], "requests");
      await close();
    }
  }
  await folded(browser);
  await readers(browser);
  const { page, seen, close } = await opened(browser, page_path, 1366);
  await colours(page);
  await sorting(page);
  await filters(page);
  await tips(page);
  await data(page);
  same(seen.errors, [], "console after use");
  same(seen.requests, [], "requests after use");
  await close();
} finally {
  await browser.close();
  rmSync(dir, { recursive: true, force: true });
}
judge();
console.log("the sample report passes in a browser");
