// Offers the data of every chart as CSV and JSON. A chart of a comparison has the values of its runs
// in the embedded document; any other chart has the words of its marks, which contain its numbers.
import { wordsOf } from "./tips";

interface Arm {
  readonly arm: string;
  readonly set: string;
  readonly plan: string;
  readonly n: number;
  readonly median: number | null;
  readonly low: number | null;
  readonly high: number | null;
  readonly confidence: number | null;
  readonly values: readonly number[] | null;
  readonly blocks: readonly number[] | null;
}

interface Group {
  readonly id: string;
  readonly experiment: string;
  readonly medium: string;
  readonly condition: string;
  readonly compute: string;
  readonly metric: string;
  readonly unit: string;
  readonly arms: readonly Arm[];
}

type Row = Readonly<Record<string, string | number | null>>;

function groups(): Map<string, Group> {
  const text = document.getElementById("report-data")?.textContent ?? "";
  const found = new Map<string, Group>();
  if (text !== "") {
    const { studies } = JSON.parse(text) as { studies: readonly { groups: readonly Group[] }[] };
    studies.flatMap((study) => study.groups).forEach((group) => found.set(group.id, group));
  }
  return found;
}

// One row per value, so that spreadsheets and statistics programs can read it without parsing. A row
// is complete: values of one block are pairs, and rows of several charts can be joined.
function rowsOfGroup(group: Group): Row[] {
  return group.arms.flatMap((arm) =>
    (arm.values ?? []).map((value, i) => ({
      experiment: group.experiment,
      metric: group.metric,
      unit: group.unit,
      set: arm.set,
      medium: group.medium,
      condition: group.condition,
      compute: group.compute,
      arm: arm.arm,
      plan: arm.plan,
      block: arm.blocks?.[i] ?? null,
      value,
      median: arm.median,
      low: arm.low,
      high: arm.high,
      confidence: arm.confidence,
    })),
  );
}

function rowsOfMarks(chart: Element): Row[] {
  const rows: Row[] = [];
  for (const mark of chart.querySelectorAll(".pt")) {
    const [label, ...lines] = wordsOf(mark).split("\n");
    rows.push({ mark: label ?? "", text: lines.join("; ") });
  }
  // The curve of reads in flight has its steps in an attribute; close steps are merged to their maximum.
  for (const curve of chart.querySelectorAll<SVGElement>("[data-steps]")) {
    for (const step of (curve.dataset["steps"] ?? "").split(" ")) {
      const [time, value] = step.split(",").map(Number);
      rows.push({ time_us: time ?? null, max_reads_in_flight: value ?? null });
    }
  }
  return rows;
}

function csv(rows: readonly Row[]): string {
  const names = Object.keys(rows[0] ?? {});
  const cell = (value: string | number | null | undefined): string => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  const lines = rows.map((row) => names.map((name) => cell(row[name])).join(","));
  return `${[names.map(cell).join(","), ...lines].join("\r\n")}\r\n`;
}

function save(name: string, type: string, text: string): void {
  const link = document.createElement("a");
  link.href = `data:${type};charset=utf-8,${encodeURIComponent(text)}`;
  link.download = name;
  link.click();
}

export function offerData(): void {
  let known: Map<string, Group> | undefined;
  for (const figure of document.querySelectorAll("figure")) {
    const chart = figure.querySelector("svg.chart");
    if (chart === null) {
      continue;
    }
    const rows = (): Row[] => {
      known ??= groups();
      const group = known.get(figure.closest(".group")?.id ?? "");
      return group ? rowsOfGroup(group) : rowsOfMarks(chart);
    };
    const title = chart.getAttribute("aria-label") ?? "chart";
    const name = title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
    const line = document.createElement("p");
    line.className = "data";
    const offer = (word: string, type: string, text: (rows: readonly Row[]) => string): void => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = word;
      button.setAttribute("aria-label", `${word} of ${title}`);
      button.addEventListener("click", () => {
        save(`${name}.${word.toLowerCase()}`, type, text(rows()));
      });
      line.append(button);
    };
    line.append("Data: ");
    offer("CSV", "text/csv", csv);
    offer("JSON", "application/json", (all) => `${JSON.stringify(all, null, 1)}\n`);
    figure.append(line);
  }
}
