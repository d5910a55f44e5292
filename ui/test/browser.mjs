// What the tests and the benchmark of the timeline share: a browser without network, and pages of
// invented traces made by cargo.
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const root = fileURLToPath(new URL("../..", import.meta.url));

/** Says so and ends well when there is no browser. */
export function needBrowser() {
  if (!existsSync(CHROMIUM)) {
    console.log(`SKIPPED: ${CHROMIUM} is not installed; set CHROMIUM to a browser`);
    process.exit(0);
  }
}

/** A directory with the pages; the caller removes it. */
export function makePages(more = []) {
  const dir = mkdtempSync(join(tmpdir(), "ioloom-timeline-"));
  const made = spawnSync(
    "cargo",
    ["run", "--quiet", "-p", "ioloom-report", "--example", "timeline", "--", dir, ...more],
    { cwd: root, stdio: "inherit" },
  );
  if (made.status !== 0) {
    console.error("the sample traces could not be made: cargo run -p ioloom-report --example timeline");
    process.exit(1);
  }
  return dir;
}

export function launch() {
  return chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
}

/** Opens a page from the disk and waits until its lanes are there. */
export async function open(browser, path, { width = 1366, height = 900, scheme = "light", script = true } = {}) {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: scheme,
    reducedMotion: "reduce",
    javaScriptEnabled: script,
  });
  const page = await context.newPage();
  const seen = { errors: [], requests: [] };
  page.on("console", (m) => {
    if (m.type() === "error" || m.type() === "warning") {
      seen.errors.push(m.text());
    }
  });
  page.on("pageerror", (e) => seen.errors.push(String(e)));
  const url = pathToFileURL(path).href;
  page.on("request", (r) => {
    if (r.url() !== url && !r.url().startsWith("data:")) {
      seen.requests.push(r.url());
    }
  });
  await page.goto(url);
  if (script) {
    await page.waitForFunction(() => document.querySelector(".tl-root")?.timeline !== undefined);
  }
  return { page, seen, close: () => context.close() };
}
