// Highlights the visible section in the table of contents.
export function followChapters(): void {
  const links = new Map<string, Element>();
  for (const link of document.querySelectorAll<HTMLAnchorElement>("nav a")) {
    links.set(link.hash.slice(1), link);
  }
  const sections = Array.from(document.querySelectorAll("main > section"));
  if (links.size === 0 || sections.length === 0) {
    return;
  }
  const mark = (): void => {
    const line = window.innerHeight * 0.3;
    const passed = sections.filter((s) => s.getBoundingClientRect().top <= line);
    const current = passed[passed.length - 1] ?? sections[0];
    for (const [id, link] of links) {
      link.classList.toggle("here", id === current?.id);
    }
  };
  document.addEventListener("scroll", mark, { passive: true });
  window.addEventListener("resize", mark);
  mark();
}
