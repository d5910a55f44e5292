// Shared by the tests and the benchmark of the pages: a browser without network, and pages with
// synthetic numbers made by cargo.
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "playwright-core";
import { same } from "./checks.mjs";

export { check, judge, same } from "./checks.mjs";

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

/** Prints SKIPPED and exits with 0 if there is no browser. */
export function needBrowser() {
  if (!existsSync(CHROMIUM)) {
    console.log(`SKIPPED: ${CHROMIUM} is not installed; set CHROMIUM to a browser`);
    process.exit(0);
  }
}

/**
 * Makes pages with an example of the crate `ioloom-report`, or exits. It is built with the whole
 * workspace, which reuses the artifacts of the tests; a build of that crate alone would rebuild its
 * dependencies with fewer features.
 */
export function make(example, args) {
  const cargo = ["build", "--locked", "--workspace", "--example", example];
  const messages = ["--quiet", "--message-format", "json-render-diagnostics"];
  const stdio = ["ignore", "pipe", "inherit"];
  const built = spawnSync("cargo", [...cargo, ...messages], { cwd: root, stdio, encoding: "utf8", maxBuffer: 1 << 28 });
  const artifacts = (built.stdout ?? "").split("\n").filter((line) => line.startsWith("{")).map((line) => JSON.parse(line));
  const program = artifacts.find((a) => a.executable && a.target.name === example)?.executable;
  if (built.status !== 0 || program === undefined) {
    console.error(`the program that makes pages could not be built: cargo ${cargo.join(" ")}`);
    process.exit(1);
  }
  const made = spawnSync(program, args, { cwd: root, stdio: "inherit" });
  if (made.status !== 0) {
    console.error(`the pages could not be made: ${program} ${args.join(" ")}`);
    process.exit(1);
  }
}

/** Creates an empty directory; the caller removes it. */
export function emptyDir() {
  return mkdtempSync(join(tmpdir(), "ioloom-page-"));
}

/** Creates a directory with timeline pages; the caller removes it. */
export function makePages(more = []) {
  const dir = emptyDir();
  make("timeline", [dir, ...more]);
  return dir;
}

/** Checks a page with axe-core, with everything unfolded. */
export async function accessible(page, what) {
  await page.evaluate(() => document.querySelectorAll("details").forEach((d) => (d.open = true)));
  await page.evaluate(readFileSync(fileURLToPath(import.meta.resolve("axe-core/axe.min.js")), "utf8"));
  const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  const words = violations.map((v) => `${v.id} (${v.nodes.length}): ${v.nodes[0]?.html.slice(0, 160)}`);
  same(words, [], `axe-core, ${what}`);
}

export function launch() {
  return chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
}

/** Opens a page from disk, unfolds its chapters unless asked not to, and waits for its lanes if it has any. */
export async function open(
  browser,
  path,
  { width = 1366, height = 900, scheme = "light", script = true, lanes = true, unfold = true } = {},
) {
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
  page.on("dialog", (d) => {
    seen.errors.push(`dialog ${d.message()}`);
    void d.dismiss();
  });
  const url = pathToFileURL(path).href;
  page.on("request", (r) => {
    if (r.url() !== url && !r.url().startsWith("data:")) {
      seen.requests.push(r.url());
    }
  });
  await page.goto(url);
  if (unfold) {
    await page.evaluate(() => document.querySelectorAll("details.fold").forEach((d) => (d.open = true)));
  }
  if (script && lanes) {
    await page.waitForFunction(() => document.querySelector(".tl-root")?.timeline !== undefined);
  }
  return { page, seen, close: () => context.close() };
}
