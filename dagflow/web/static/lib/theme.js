/** Dark or light: as the system says, until the reader chooses. */
import { useEffect, useState } from "./html.js";

const KEY = "dagflow-theme";
const system = matchMedia("(prefers-color-scheme: light)");

function saved() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

const current = () => saved() ?? (system.matches ? "light" : "dark");

/** Show the page in the theme that holds now. */
export function applyTheme() {
  document.documentElement.dataset.theme = current();
}

/** The theme, and a function that switches to the other one. */
export function useTheme() {
  const [theme, setTheme] = useState(current);
  useEffect(() => {
    const update = () => {
      applyTheme();
      setTheme(current());
    };
    system.addEventListener("change", update);
    return () => system.removeEventListener("change", update);
  }, []);
  const toggle = () => {
    const next = theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem(KEY, next);
    } catch {
      // A page without storage keeps the choice until it is loaded again.
    }
    document.documentElement.dataset.theme = next;
    setTheme(next);
  };
  return { theme, toggle };
}
