// Opens folded chapters that a link leads to, and all of them for printing.
function targetOf(hash: string): HTMLElement | null {
  const name = hash.slice(1);
  try {
    return document.getElementById(decodeURIComponent(name));
  } catch {
    // A percent sign that encodes nothing, as in `#50%`.
    return document.getElementById(name);
  }
}

function open(hash: string): void {
  const target = targetOf(hash);
  if (target === null) {
    return;
  }
  target.querySelector<HTMLDetailsElement>(":scope > details.fold")?.setAttribute("open", "");
  for (let at: Element | null = target; at !== null; at = at.parentElement) {
    if (at instanceof HTMLDetailsElement) {
      at.open = true;
    }
  }
  target.scrollIntoView();
}

export function unfold(): void {
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest<HTMLAnchorElement>("a[href^='#']") : null;
    if (link !== null) {
      open(link.hash);
    }
  });
  window.addEventListener("hashchange", () => open(location.hash));
  const closed: HTMLDetailsElement[] = [];
  window.addEventListener("beforeprint", () => {
    closed.push(...document.querySelectorAll<HTMLDetailsElement>("details:not([open])"));
    closed.forEach((d) => (d.open = true));
  });
  window.addEventListener("afterprint", () => {
    closed.splice(0).forEach((d) => (d.open = false));
  });
  open(location.hash);
}
