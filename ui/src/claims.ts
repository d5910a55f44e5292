// The claims filter: verdict buttons and a text search.
export function filterClaims(): void {
  const filter = document.getElementById("claim-filter");
  const table = document.querySelector<HTMLTableElement>("table.claims");
  if (!filter || !table) {
    return;
  }
  const buttons = Array.from(filter.querySelectorAll<HTMLButtonElement>("button[data-verdict]"));
  const search = filter.querySelector<HTMLInputElement>("input[type=search]");
  const rows = Array.from(table.tBodies[0]?.rows ?? []);
  const apply = (): void => {
    const off = new Set(
      buttons
        .filter((b) => b.getAttribute("aria-pressed") === "false")
        .map((b) => b.dataset["verdict"]),
    );
    const words = (search?.value ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = (row.textContent ?? "").toLowerCase();
      row.hidden = off.has(row.dataset["verdict"]) || !words.every((w) => text.includes(w));
    }
  };
  for (const button of buttons) {
    button.addEventListener("click", () => {
      const pressed = button.getAttribute("aria-pressed") !== "false";
      button.setAttribute("aria-pressed", pressed ? "false" : "true");
      apply();
    });
  }
  search?.addEventListener("input", apply);
}
