// The tabs: arrow keys, Home and End move among them; the address keeps the one that is open.

export type Opened = (tab: string) => void;

export function startTabs(opened: Opened): void {
  const tabs = [...document.querySelectorAll<HTMLButtonElement>('[role="tab"]')];

  const open = (tab: HTMLButtonElement, focus: boolean): void => {
    for (const other of tabs) {
      const chosen = other === tab;
      other.setAttribute("aria-selected", String(chosen));
      other.tabIndex = chosen ? 0 : -1;
      document.getElementById(other.getAttribute("aria-controls")!)!.hidden = !chosen;
    }
    if (focus) tab.focus();
    const name = tab.dataset["tab"]!;
    history.replaceState(null, "", `#${name}`);
    opened(name);
  };

  tabs.forEach((tab, at) => {
    tab.addEventListener("click", () => open(tab, false));
    tab.addEventListener("keydown", (event) => {
      const last = tabs.length - 1;
      const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      open(tabs[(next + tabs.length) % tabs.length]!, true);
    });
  });

  const fromAddress = (): HTMLButtonElement =>
    tabs.find((tab) => `#${tab.dataset["tab"]}` === location.hash) ?? tabs[0]!;
  addEventListener("hashchange", () => open(fromAddress(), false));
  open(fromAddress(), false);
}
