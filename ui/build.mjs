// Bundles src/main.ts into the one script that the report embeds. With --check it builds into
// memory and fails if the committed file is not what the sources give.
import { build } from "esbuild";
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const target = fileURLToPath(new URL("../crates/report/assets/viewer.js", import.meta.url));
const result = await build({
  absWorkingDir: fileURLToPath(new URL(".", import.meta.url)),
  entryPoints: ["src/main.ts"],
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
  console.error("the bundle holds a closing script tag and would end its element");
  process.exit(1);
}
if (process.argv.includes("--check")) {
  const kept = await readFile(target, "utf8").catch(() => "");
  if (kept !== fresh) {
    console.error("crates/report/assets/viewer.js is not what ui/src gives; run: npm run build");
    process.exit(1);
  }
  console.log(`viewer.js is fresh, ${fresh.length} bytes`);
} else {
  await writeFile(target, fresh);
  console.log(`wrote viewer.js, ${fresh.length} bytes`);
}
