// Sorts a table when a column header is clicked. Cells sort by data-sort if present, otherwise by
// their text. The sort is stable.
type Key = number | string;

function keyOf(row: HTMLTableRowElement, column: number): Key {
  const cell = row.cells[column];
  const text = cell?.dataset["sort"] ?? cell?.textContent ?? "";
  const number = Number(text);
  return text.trim() !== "" && Number.isFinite(number) ? number : text.trim();
}

function compare(a: Key, b: Key): number {
  if (typeof a === "number" && typeof b === "number") {
    return a - b;
  }
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

function sortBy(table: HTMLTableElement, column: number, down: boolean): void {
  const body = table.tBodies[0];
  if (!body) {
    return;
  }
  const rows = Array.from(body.rows).map((row) => ({ row, key: keyOf(row, column) }));
  rows.sort((a, b) => (down ? compare(b.key, a.key) : compare(a.key, b.key)));
  body.append(...rows.map(({ row }) => row));
}

function arm(table: HTMLTableElement, head: HTMLTableCellElement, column: number): void {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = head.textContent;
  const sign = document.createElement("span");
  sign.className = "dir";
  sign.setAttribute("aria-hidden", "true");
  head.replaceChildren(button, sign);
  button.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of Array.from(table.tHead?.rows[0]?.cells ?? [])) {
      other.removeAttribute("aria-sort");
      other.querySelector(".dir")?.replaceChildren();
    }
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    sign.textContent = down ? "↓" : "↑";
    sortBy(table, column, down);
  });
}

export function sortTables(): void {
  for (const table of document.querySelectorAll<HTMLTableElement>("table.sort")) {
    const cells = Array.from(table.tHead?.rows[0]?.cells ?? []);
    cells.forEach((head, column) => arm(table, head, column));
  }
}
