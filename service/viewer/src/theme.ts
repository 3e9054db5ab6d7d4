// Light or dark: the system's wish until the reader says otherwise.

import { byId } from "./dom";

const KEY = "splinecnn-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

function current(): "light" | "dark" {
  const chosen = localStorage.getItem(KEY);
  return chosen === "light" || chosen === "dark" ? chosen : dark.matches ? "dark" : "light";
}

function apply(): void {
  const theme = current();
  document.documentElement.dataset["theme"] = theme;
  const button = byId<HTMLButtonElement>("theme");
  const other = theme === "dark" ? "light" : "dark";
  button.setAttribute("aria-label", `Switch to ${other} theme`);
  button.title = `Switch to ${other} theme`;
  document.dispatchEvent(new Event("themechange"));
}

export function startTheme(): void {
  byId("theme").addEventListener("click", () => {
    localStorage.setItem(KEY, current() === "dark" ? "light" : "dark");
    apply();
  });
  dark.addEventListener("change", apply);
  apply();
}

export function onTheme(redraw: () => void): void {
  document.addEventListener("themechange", redraw);
}
