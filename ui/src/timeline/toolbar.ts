// The controls above the lanes: range, zoom, roles, calls, colours, keys.
import { parseTime } from "./format";
import { rolesOf } from "./layout";
import { element, ROLES_SHOWN } from "./panels";
import type { Viewer } from "./viewer";

const KEYS: readonly (readonly [string, string])[] = [
  ["← →", "move in time; with Shift by half a screen"],
  ["+ −", "zoom at the cursor, or at the centre"],
  ["Home", "the whole run"],
  ["[ ] ↑ ↓", "previous and next lane"],
  ["Enter", "select the segment; fold or unfold a group"],
  [", .", "previous and next segment of the lane"],
  ["w", "go to the waker"],
  ["z", "zoom to the selection"],
  ["Esc", "clear the selection"],
  ["wheel", "zoom at the pointer; with Shift move"],
  ["drag", "move; with Shift zoom to the marked range"],
];

function button(text: string, label: string, act: () => void): HTMLButtonElement {
  const made = element("button", "", text);
  made.type = "button";
  made.setAttribute("aria-label", label);
  made.title = label;
  made.addEventListener("click", act);
  return made;
}

/** Input fields for the start and the end of the range. */
function rangeFields(viewer: Viewer): HTMLElement {
  const box = element("span", "tl-range");
  const fields = (["from", "to"] as const).map((name) => {
    const field = element("input");
    field.type = "text";
    field.size = 12;
    field.spellcheck = false;
    field.setAttribute("aria-label", `visible range, ${name}`);
    field.dataset["edge"] = name;
    field.addEventListener("change", () => {
      const [from, to] = fields.map((f) => parseTime(f.value));
      // An end before the start may be the first of two edits, so wait for the second one.
      const fine = typeof from === "number" && typeof to === "number" && to > from;
      fields.forEach((f) => f.setAttribute("aria-invalid", String(!fine)));
      if (fine) {
        viewer.range.set(from, to);
        viewer.changed();
      }
    });
    return field;
  });
  viewer.onRange = () => {
    const { from, to } = viewer.range;
    const wide = `${(to / 1e6).toFixed(6)} ms`.length;
    fields.forEach((f, i) => {
      f.removeAttribute("aria-invalid");
      f.value = `${((i === 0 ? from : to) / 1e6).toFixed(6)} ms`;
      f.size = Math.max(9, wide - 1);
    });
  };
  box.append(fields[0]!, "to", fields[1]!);
  return box;
}

function roleButtons(viewer: Viewer): HTMLElement {
  const box = element("span", "tl-roles");
  const roles = rolesOf(viewer.runs);
  for (const role of roles.slice(0, ROLES_SHOWN)) {
    const made = button(role, `show or hide the role ${role}`, () => {
      viewer.toggleRole(role);
      made.setAttribute("aria-pressed", viewer.rolesOff.has(role) ? "false" : "true");
    });
    made.dataset["role"] = role;
    made.setAttribute("aria-pressed", "true");
    box.append(made);
  }
  if (roles.length > ROLES_SHOWN) {
    box.append(element("span", "tl-quiet", `${roles.length - ROLES_SHOWN} more roles have no button.`));
  }
  return box;
}

function colourChoice(viewer: Viewer): HTMLElement {
  const choice = element("select");
  choice.setAttribute("aria-label", "colour scheme");
  for (const [value, text] of [["", "colours: accessible"], ["cv", "colours: Concurrency Visualizer"]] as const) {
    const option = element("option", "", text);
    option.value = value;
    choice.append(option);
  }
  choice.addEventListener("change", () => {
    viewer.root.dataset["colours"] = choice.value;
    viewer.recolour();
  });
  return choice;
}

export interface Toolbar {
  root: HTMLElement;
  help: () => void;
}

export function toolbar(viewer: Viewer): Toolbar {
  const root = element("div", "tl-toolbar");
  root.setAttribute("role", "toolbar");
  root.setAttribute("aria-label", "Timeline");
  const zoom = element("span", "tl-zoom");
  const centre = (): number => (viewer.range.from + viewer.range.to) / 2;
  const apply = (act: () => void) => (): void => {
    act();
    viewer.changed();
  };
  zoom.append(
    button("−", "zoom out", apply(() => viewer.range.zoom(1.5, centre()))),
    button("+", "zoom in", apply(() => viewer.range.zoom(1 / 1.5, centre()))),
    button("whole run", "show the whole run", apply(() => viewer.range.whole())),
  );
  const calls = button("calls", "show or hide the calls under each thread", () => {
    viewer.spans = !viewer.spans;
    calls.setAttribute("aria-pressed", String(viewer.spans));
    viewer.arrange();
  });
  calls.setAttribute("aria-pressed", "true");
  const keys = element("dl", "tl-keys");
  keys.hidden = true;
  for (const [key, meaning] of KEYS) {
    keys.append(element("dt", "", key), element("dd", "", meaning));
  }
  const asked = button("keys", "list all keys", () => help());
  asked.setAttribute("aria-expanded", "false");
  const help = (): void => {
    keys.hidden = !keys.hidden;
    asked.setAttribute("aria-expanded", String(!keys.hidden));
  };
  root.append(rangeFields(viewer), zoom, roleButtons(viewer), calls, colourChoice(viewer), asked);
  const frame = element("div", "tl-controls");
  frame.append(root, keys);
  return { root: frame, help };
}
