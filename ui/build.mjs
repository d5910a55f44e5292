// Bundles the two scripts that pages embed: viewer.js (every report) and timeline.js (pages with
// traces). With --check, it builds in memory and fails if a committed file differs.
import { build } from "esbuild";
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const BUNDLES = [
  ["src/main.ts", "viewer.js"],
  ["src/timeline/index.ts", "timeline.js"],
];

for (const [entry, name] of BUNDLES) {
  const target = fileURLToPath(new URL(`../crates/lab/report/assets/${name}`, import.meta.url));
  const result = await build({
    absWorkingDir: fileURLToPath(new URL(".", import.meta.url)),
    entryPoints: [entry],
    bundle: true,
    minify: true,
    format: "iife",
    target: "es2020",
    charset: "utf8",
    legalComments: "none",
    write: false,
  });
  const fresh = result.outputFiles[0].text;
  if (fresh.includes("</script")) {
    console.error(`${name} holds a closing script tag and would end its element`);
    process.exit(1);
  }
  if (process.argv.includes("--check")) {
    const kept = await readFile(target, "utf8").catch(() => "");
    if (kept !== fresh) {
      console.error(`crates/lab/report/assets/${name} is not what ui/src gives; run: npm run build`);
      process.exit(1);
    }
    console.log(`${name} is fresh, ${fresh.length} bytes`);
  } else {
    await writeFile(target, fresh);
    console.log(`wrote ${name}, ${fresh.length} bytes`);
  }
}
