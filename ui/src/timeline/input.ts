// Mouse and keyboard input on the lanes.
import { factOf } from "./facts";
import { rowAt, type Row } from "./layout";
import { element } from "./panels";
import type { Viewer } from "./viewer";

const ZOOM = 1.5;

/** A point of the drawing: row and time. */
function place(viewer: Viewer, event: MouseEvent): { row: Row | undefined; t: number } {
  const box = viewer.canvas.getBoundingClientRect();
  const part = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  const y = event.clientY - box.top + viewer.scroll.scrollTop;
  return { row: viewer.rows[rowAt(viewer.rows, y)], t: viewer.range.from + part * viewer.range.span };
}

function wheel(viewer: Viewer): void {
  viewer.canvas.addEventListener(
    "wheel",
    (event) => {
      // In a long report, the wheel scrolls the page unless the lanes have the focus.
      if (viewer.root.dataset["wheel"] === "focus" && !event.ctrlKey && document.activeElement !== viewer.scroll) {
        return;
      }
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 18 : 1;
      const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
      if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) {
        viewer.range.pan(((dx || dy) / viewer.canvas.clientWidth) * viewer.range.span);
      } else {
        viewer.range.zoom(Math.exp(Math.min(120, Math.max(-120, dy)) * 0.0035), place(viewer, event).t);
      }
      viewer.changed();
    },
    { passive: false },
  );
}

function drag(viewer: Viewer): void {
  let held: { x: number; y: number; from: number; to: number; top: number; moved: boolean; box: boolean } | null = null;
  viewer.canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) {
      return;
    }
    const { from, to } = viewer.range;
    held = { x: event.clientX, y: event.clientY, from, to, top: viewer.scroll.scrollTop, moved: false, box: event.shiftKey };
    viewer.canvas.setPointerCapture(event.pointerId);
  });
  viewer.canvas.addEventListener("pointermove", (event) => {
    if (!held) {
      return;
    }
    const dx = event.clientX - held.x;
    held.moved ||= Math.abs(dx) > 3 || Math.abs(event.clientY - held.y) > 3;
    if (held.moved && !held.box) {
      const by = (dx / viewer.canvas.clientWidth) * (held.to - held.from);
      viewer.range.set(held.from - by, held.to - by);
      viewer.scroll.scrollTop = held.top - (event.clientY - held.y);
      viewer.changed();
    }
  });
  viewer.canvas.addEventListener("pointerup", (event) => {
    const was = held;
    held = null;
    const { row, t } = place(viewer, event);
    if (was?.moved && was.box) {
      const box = viewer.canvas.getBoundingClientRect();
      const start = was.from + ((was.x - box.left) / box.width) * (was.to - was.from);
      viewer.range.set(Math.min(start, t), Math.max(start, t));
      viewer.changed();
    } else if (was && !was.moved && row) {
      viewer.scroll.focus({ preventScroll: true });
      if (row.kind === "group") {
        viewer.fold(row);
      } else {
        viewer.select(row, t);
      }
    }
  });
  viewer.canvas.addEventListener("pointercancel", () => {
    held = null;
  });
}

function tooltip(viewer: Viewer): void {
  const tip = element("div", "tl-tip");
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  viewer.root.append(tip);
  const hide = (): void => {
    tip.hidden = true;
  };
  viewer.canvas.addEventListener("pointermove", (event) => {
    const { row, t } = place(viewer, event);
    const fact = event.buttons === 0 && row ? factOf(row, t, viewer.range.span / viewer.canvas.clientWidth) : null;
    if (!fact) {
      hide();
      return;
    }
    tip.replaceChildren(element("b", "", fact.head), ...fact.lines.map((line) => element("div", "", line)));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = event.clientX + 16 + box.width > window.innerWidth ? event.clientX - box.width - 12 : event.clientX + 16;
    const below = event.clientY + 18 + box.height > window.innerHeight;
    tip.style.left = `${Math.max(6, left)}px`;
    tip.style.top = `${Math.max(6, below ? event.clientY - box.height - 12 : event.clientY + 18)}px`;
  });
  viewer.canvas.addEventListener("pointerleave", hide);
  viewer.canvas.addEventListener("pointerdown", hide);
  viewer.scroll.addEventListener("keydown", hide);
}

function labels(viewer: Viewer): void {
  viewer.scroll.addEventListener("click", (event) => {
    const label = event.target instanceof Element ? event.target.closest<HTMLElement>(".tl-label") : null;
    const row = viewer.row(label?.dataset["row"] ?? null);
    if (!row) {
      return;
    }
    if (row.kind === "group" || (event.target as Element).closest(".tl-fold")) {
      viewer.fold(row);
    } else {
      viewer.goTo(row.id);
    }
  });
}

/** Selects the next lane above or below. */
function lane(viewer: Viewer, by: number): void {
  const here = viewer.rows.findIndex((r) => r.id === viewer.marked.lane);
  const next = here < 0 ? 0 : Math.min(viewer.rows.length - 1, Math.max(0, here + by));
  const row = viewer.rows[next];
  if (row) {
    viewer.goTo(row.id);
    viewer.marked.cursor ??= (viewer.range.from + viewer.range.to) / 2;
  }
}

function enter(viewer: Viewer): void {
  const row = viewer.row(viewer.marked.lane);
  if (row?.kind === "group") {
    viewer.fold(row);
  } else if (row) {
    const { from, to } = viewer.range;
    const cursor = viewer.marked.cursor ?? (from + to) / 2;
    viewer.select(row, cursor >= from && cursor < to ? cursor : (from + to) / 2);
  }
}

/** Handles a key; returns `true` if it was handled. */
function press(viewer: Viewer, key: string, shift: boolean, help: () => void): boolean {
  const { range, marked } = viewer;
  const centre = marked.cursor !== null && marked.cursor >= range.from && marked.cursor <= range.to ? marked.cursor : (range.from + range.to) / 2;
  const far = range.span * (shift ? 0.5 : 0.1);
  const move = (act: () => void): true => {
    act();
    viewer.changed();
    return true;
  };
  const act = (what: () => void): true => {
    what();
    return true;
  };
  switch (key) {
    case "ArrowLeft":
      return move(() => range.pan(-far));
    case "ArrowRight":
      return move(() => range.pan(far));
    case "+":
    case "=":
      return move(() => range.zoom(1 / ZOOM, centre));
    case "-":
    case "_":
      return move(() => range.zoom(ZOOM, centre));
    case "Home":
      return move(() => range.whole());
    case "[":
    case "ArrowUp":
      return act(() => lane(viewer, -1));
    case "]":
    case "ArrowDown":
      return act(() => lane(viewer, 1));
    case "Enter":
      return act(() => enter(viewer));
    case ",":
      return act(() => viewer.step(-1));
    case ".":
      return act(() => viewer.step(1));
    case "w":
      return act(() => viewer.followWake());
    case "z":
      return act(() => viewer.zoomToSelection());
    case "Escape":
      return act(() => viewer.clear());
    case "?":
      return act(help);
    default:
      return false;
  }
}

export function listen(viewer: Viewer, help: () => void): void {
  wheel(viewer);
  drag(viewer);
  tooltip(viewer);
  labels(viewer);
  viewer.scroll.addEventListener("keydown", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.altKey && press(viewer, event.key, event.shiftKey, help)) {
      event.preventDefault();
      viewer.redraw();
    }
  });
}
