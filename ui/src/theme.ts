// Light, dark, or the system setting. The choice is stored if the browser allows it. A page opened
// from disk may have no storage; then the choice lasts until the page is closed.
type Theme = "auto" | "light" | "dark";

const KEY = "ioloom-theme";
const ORDER: readonly Theme[] = ["auto", "light", "dark"];
const WORDS: Record<Theme, readonly [string, string]> = {
  auto: ["Auto", "Auto: colours of the system"],
  light: ["Light", "Light colours"],
  dark: ["Dark", "Dark colours"],
};

function stored(): Theme {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "auto";
  } catch {
    return "auto";
  }
}

function store(theme: Theme): void {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // Without storage, the choice applies only to this page.
  }
}

export function switchTheme(): void {
  const button = document.getElementById("theme");
  let theme = stored();
  const apply = (): void => {
    if (theme === "auto") {
      delete document.documentElement.dataset["theme"];
    } else {
      document.documentElement.dataset["theme"] = theme;
    }
    if (button) {
      const [word, label] = WORDS[theme];
      button.textContent = word;
      button.setAttribute("aria-label", label);
    }
  };
  apply();
  button?.addEventListener("click", () => {
    theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length] ?? "auto";
    store(theme);
    apply();
  });
}
