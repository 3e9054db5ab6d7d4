// Talking to the service: requests with progress, problems told as the service tells them, models.

export interface Timings {
  decode?: number;
  queue?: number;
  run?: number;
  encode?: number;
}

export interface Answer {
  model?: { name: string; version: string };
  request_id?: string;
  timings_ms?: Timings;
  warning?: string;
}

export interface Model {
  name: string;
  version: string;
  task: string;
  labels?: string[] | null;
  image?: string | null; // how pictures become graphs, where the model takes pictures
  description?: string;
  scores?: Record<string, unknown>;
}

export interface Received<T> {
  answer: T;
  milliseconds: number; // from the first byte sent to the last received
}

export type Phase = "opening" | "sending" | "running" | "receiving";
export type Progress = (phase: Phase, fraction: number | null) => void;

/** RFC 9457, or what stands in for it when the service itself could not be heard. */
export class Problem extends Error {
  constructor(
    readonly title: string,
    readonly detail: string,
    readonly status = 0,
    readonly errors: { path: string; message: string }[] = [],
    readonly requestId = "",
    readonly retryAfter = "",
  ) {
    super(detail);
  }
}

const KEY = "splinecnn-api-key"; // kept for this tab only, never on disk

export function apiKey(): string {
  return sessionStorage.getItem(KEY) ?? "";
}

export function setApiKey(key: string): void {
  sessionStorage.setItem(KEY, key);
}

export interface Post {
  path: string;
  body: Blob;
  type: string;
  signal?: AbortSignal;
  progress?: Progress;
}

/** XMLHttpRequest, because fetch cannot say how much of a body has been sent. */
export function post<T extends Answer>({ path, body, type, signal, progress }: Post): Promise<Received<T>> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const started = performance.now();
    const fraction = (event: ProgressEvent): number | null =>
      event.lengthComputable ? event.loaded / event.total : null;
    request.open("POST", path);
    request.responseType = "text";
    request.setRequestHeader("Content-Type", type);
    request.setRequestHeader("Accept", "application/json, application/problem+json");
    if (apiKey()) request.setRequestHeader("Authorization", `Bearer ${apiKey()}`);
    request.upload.onprogress = (event) => progress?.("sending", fraction(event));
    request.upload.onload = () => progress?.("running", null);
    request.onprogress = (event) => progress?.("receiving", fraction(event));
    request.onerror = () => reject(unreachable());
    request.onabort = () => reject(new DOMException("superseded", "AbortError"));
    request.onload = () => {
      const header = (name: string): string => request.getResponseHeader(name) ?? "";
      try {
        const answer = read<T>(request.status, request.responseText, header);
        resolve({ answer, milliseconds: performance.now() - started });
      } catch (error) {
        reject(error as Error);
      }
    };
    signal?.addEventListener("abort", () => request.abort());
    request.send(body);
  });
}

export async function get(path: string, accept: string): Promise<Response> {
  const headers: Record<string, string> = { Accept: accept };
  if (apiKey()) headers["Authorization"] = `Bearer ${apiKey()}`;
  let response: Response;
  try {
    response = await fetch(path, { headers });
  } catch {
    throw unreachable();
  }
  if (!response.ok) {
    read(response.status, await response.text(), (name) => response.headers.get(name) ?? "");
  }
  return response;
}

export async function listModels(): Promise<Model[]> {
  const body = (await (await get("v1/models", "application/json")).json()) as { models: Model[] };
  return body.models;
}

/** What a model is, and how often it was right when it was tested. */
export function aboutModel({ description, scores }: Model): string {
  const share = scores?.["exact"] ?? scores?.["accuracy"];
  const words = scores?.["exact"] === undefined ? "right" : "of the vertices exact";
  const measured = typeof share === "number" ? `${(100 * share).toFixed(2)} % ${words} on its test data.` : "";
  return [description ? description.replace(/\.?$/, ".") : "", measured].filter(Boolean).join(" ");
}

function read<T>(status: number, text: string, header: (name: string) => string): T {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    throw new Problem(`Status ${status}`, text.slice(0, 300) || "The answer is empty.", status);
  }
  if (status >= 200 && status < 300) return body as T;
  const problem = body as Partial<{
    title: string;
    detail: string;
    errors: { path: string; message: string }[];
    request_id: string;
  }>;
  throw new Problem(
    problem.title ?? `Status ${status}`,
    problem.detail ?? "",
    status,
    problem.errors ?? [],
    problem.request_id ?? header("X-Request-ID"),
    header("Retry-After"),
  );
}

function unreachable(): Problem {
  return new Problem("No answer", "The service cannot be reached. Is it still running?");
}

export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}
