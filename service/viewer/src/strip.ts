// The strip under each tab: how far a request is, what went wrong, how long it took, the same as curl.

import { apiKey, isAbort, Problem, setApiKey, type Answer, type Phase, type Received, type Timings } from "./call";
import { make, milliseconds } from "./dom";

const WORDS: Record<Phase, string> = {
  opening: "Reading the file",
  sending: "Sending",
  running: "The model is running",
  receiving: "Receiving",
};
const PARTS: [keyof Timings, string][] = [
  ["decode", "reading the request"],
  ["queue", "waiting for a turn"],
  ["run", "running the model"],
  ["carry", "carrying landmarks and places over"],
  ["encode", "writing the answer"],
];

const MOST_FIELDS = 20;

export class Strip {
  private readonly state = make("span", { class: "strip-state", role: "status" });
  private readonly bar = make("progress", { max: 1, "aria-label": "Progress", hidden: true });
  private readonly times = make("div", { class: "times" });
  private readonly problem = make("div", { class: "problem", role: "alert", hidden: true });
  private readonly code = make("code", {});
  private readonly copy = make("button", { type: "button", class: "quiet" }, "Copy");
  private readonly curl = make(
    "details",
    { class: "curl" },
    make("summary", {}, "curl"),
    make("div", { class: "curl-box" }, make("pre", {}, this.code), this.copy),
  );
  /** Called when the reader has entered a key after a 401. */
  onKey: () => void = () => {};

  constructor(private readonly root: HTMLElement) {
    root.append(this.problem, make("div", { class: "strip-row" }, this.state, this.bar, this.times, this.curl));
    this.copy.addEventListener("click", () => void this.copyCurl());
    this.idle("");
  }

  idle(words: string): void {
    this.root.dataset["state"] = "idle";
    this.state.textContent = words;
    this.bar.hidden = true;
    this.problem.hidden = true;
  }

  progress(phase: Phase, fraction: number | null): void {
    this.root.dataset["state"] = "busy";
    this.problem.hidden = true;
    this.bar.hidden = false;
    this.times.replaceChildren();
    const known = fraction !== null && fraction < 1;
    this.state.textContent = known ? `${WORDS[phase]}, ${Math.round(100 * fraction)} %` : WORDS[phase];
    if (known) this.bar.value = fraction;
    else this.bar.removeAttribute("value");
  }

  done({ answer, milliseconds: total }: Received<Answer>): void {
    this.root.dataset["state"] = "done";
    this.bar.hidden = true;
    this.problem.hidden = true;
    this.state.textContent = `Answered in ${milliseconds(total)}`;
    const timings = answer.timings_ms ?? {};
    const inside = PARTS.reduce((sum, [part]) => sum + (timings[part] ?? 0), 0);
    const track = make("div", { class: "track", "aria-hidden": "true" });
    const list = make("dl", {});
    const add = (part: string, value: number, words: string): void => {
      const piece = make("span", { class: `part ${part}`, title: `${words}: ${milliseconds(value)}` });
      piece.style.flexGrow = String(Math.max(value, total / 200));
      track.append(piece);
      const pair = make("div", { class: part, title: words }, make("dt", {}, part), make("dd", {}, milliseconds(value)));
      list.append(pair);
    };
    for (const [part, words] of PARTS) {
      if (timings[part] !== undefined) add(part, timings[part]!, words);
    }
    add("transfer", Math.max(0, total - inside), "the way there and back, and the browser");
    this.times.replaceChildren(track, list);
    if (answer.warning) this.show("Not sure", answer.warning, "note");
  }

  fail(error: unknown): void {
    if (isAbort(error)) return;
    this.root.dataset["state"] = "failed";
    this.bar.hidden = true;
    this.times.replaceChildren();
    this.state.textContent = "";
    if (!(error instanceof Problem)) {
      this.show("Not sent", error instanceof Error ? error.message : String(error), "error");
      return;
    }
    // A lone bad field is usually the whole detail: it is not said twice.
    const fields = error.errors.slice(0, MOST_FIELDS);
    const said = fields.length === 1 && error.detail.endsWith(fields[0]!.message);
    this.show(error.status ? `${error.status} · ${error.title}` : error.title, said ? "" : error.detail, "error");
    if (fields.length > 0) {
      const rows = fields.map(({ path, message }) => make("li", {}, make("code", {}, path || "body"), ` ${message}`));
      this.problem.append(make("ul", {}, ...rows));
    }
    if (error.retryAfter) this.problem.append(make("p", {}, `Try again in ${error.retryAfter} s.`));
    if (error.requestId) this.problem.append(make("p", { class: "faint" }, `request ${error.requestId}`));
    if (error.status === 401 || error.status === 403) this.problem.append(this.keyForm());
  }

  setCurl(lines: string): void {
    this.code.textContent = lines;
  }

  private show(title: string, detail: string, kind: "error" | "note"): void {
    this.problem.hidden = false;
    this.problem.dataset["kind"] = kind;
    this.problem.replaceChildren(make("strong", {}, title));
    if (detail) this.problem.append(make("p", {}, detail));
  }

  private keyForm(): HTMLElement {
    const input = make("input", { type: "password", "aria-label": "API key", autocomplete: "off" });
    input.value = apiKey();
    const form = make("form", { class: "key" }, input, make("button", { class: "quiet" }, "Use this key"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      setApiKey(input.value.trim());
      this.onKey();
    });
    return form;
  }

  private async copyCurl(): Promise<void> {
    try {
      await navigator.clipboard.writeText(this.code.textContent ?? "");
      this.copy.textContent = "Copied";
    } catch {
      getSelection()?.selectAllChildren(this.code); // no clipboard without https: leave it selected
      this.copy.textContent = "Selected";
    }
    setTimeout(() => (this.copy.textContent = "Copy"), 1600);
  }
}

/** A header line for curl when this page uses a key; the key itself is not put on screen. */
export function curlKey(): string {
  return apiKey() ? ` \\\n  -H "Authorization: Bearer $SPLINECNN_API_KEY"` : "";
}

export function origin(): string {
  return location.origin + location.pathname.replace(/\/[^/]*$/, "");
}

export function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
