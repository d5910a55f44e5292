// Tooltips for chart marks. The text is the mark's <title>. It is removed from the drawing to keep
// the browser from showing it twice, and kept in an attribute. A mark has no role and a drawing is one
// image, so it cannot have a label of its own.
const GAP = 14;

/** Returns the words of a mark. */
export function wordsOf(mark: Element): string {
  const title = Array.from(mark.children).find((c) => c.localName === "title");
  if (title) {
    mark.setAttribute("data-words", title.textContent ?? "");
    title.remove();
  }
  return mark.getAttribute("data-words") ?? "";
}

export function showTips(): void {
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "tooltip");
  document.body.append(tip);
  // The title of the drawing would appear between its marks.
  for (const title of document.querySelectorAll("svg.chart > title")) {
    title.remove();
  }
  const place = (x: number, y: number): void => {
    const box = tip.getBoundingClientRect();
    const left = Math.min(Math.max(12, x + GAP), window.innerWidth - box.width - 12);
    const above = y - box.height - GAP;
    tip.style.left = `${Math.max(12, left)}px`;
    tip.style.top = `${above > 8 ? above : y + GAP}px`;
  };
  const show = (mark: Element, x: number, y: number): void => {
    const words = wordsOf(mark);
    if (words === "") {
      return;
    }
    tip.textContent = words;
    tip.hidden = false;
    place(x, y);
  };
  const hide = (): void => {
    tip.hidden = true;
  };
  const markOf = (event: Event): Element | null =>
    event.target instanceof Element ? event.target.closest(".pt") : null;
  const follow = (event: PointerEvent): void => {
    const mark = markOf(event);
    if (mark) {
      show(mark, event.clientX, event.clientY);
    } else {
      hide();
    }
  };
  document.addEventListener("pointermove", follow);
  // A tap does not move the pointer.
  document.addEventListener("pointerdown", follow);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      hide();
    }
  });
  document.addEventListener("scroll", hide, { passive: true });
}
