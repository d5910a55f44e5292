// Counted checks.
let failures = 0;

export function check(fine, what) {
  if (!fine) {
    failures += 1;
    console.error(`FAILED: ${what}`);
  }
}

export function same(found, wanted, what) {
  const [a, b] = [JSON.stringify(found), JSON.stringify(wanted)];
  check(a === b, `${what}: found ${a}, wanted ${b}`);
}

/** Exits with an error if a check has failed. */
export function judge() {
  if (failures > 0) {
    console.error(`${failures} checks failed`);
    process.exit(1);
  }
}
