// Talking to the service: requests with progress, problems told as the service tells them, models.

export type Timings = Partial<Record<"decode" | "queue" | "run" | "carry" | "encode", number>>;

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
  include?: string[]; // what an answer may hold beside itself
  refine?: boolean; // whether it can spend more time on a better answer
  default?: boolean;
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

export async function post<T extends Answer>(asked: Post): Promise<Received<T>> {
  const { body, milliseconds, status, header } = await send(asked, "application/json, application/problem+json");
  return { answer: read<T>(status, new TextDecoder().decode(body), header), milliseconds };
}

/** The arrays of an answer as they are, by name; large ones need no parsing. */
export interface Arrays extends Answer {
  arrays: Record<string, Int32Array | Float32Array>;
  names: Record<string, string[]>; // of the rows or values of an array
}

export async function postForArrays(asked: Post): Promise<Received<Arrays>> {
  const { body, milliseconds, status, header } = await send(asked, "application/octet-stream");
  if (status < 200 || status >= 300) read(status, new TextDecoder().decode(body), header); // throws
  const arrays: Arrays["arrays"] = {};
  const names: Arrays["names"] = {};
  let offset = 0;
  const entries = JSON.parse(header("X-Arrays")) as { name: string; dtype: string; shape: number[]; names?: string[] }[];
  for (const { name, dtype, shape, names: own } of entries) {
    const size = shape.reduce((a, b) => a * b, 1);
    arrays[name] = dtype === "<f4" ? new Float32Array(body, offset, size) : new Int32Array(body, offset, size);
    if (own) names[name] = own;
    offset += 4 * size;
  }
  const timings_ms: Timings = {};
  for (const [, stage, spent] of header("Server-Timing").matchAll(/(\w+);dur=([\d.]+)/g)) {
    timings_ms[stage as keyof Timings] = Number(spent);
  }
  const warning = header("X-Warning");
  return { answer: { arrays, names, timings_ms, ...(warning ? { warning } : {}) }, milliseconds };
}

interface Sent {
  body: ArrayBuffer;
  milliseconds: number;
  status: number;
  header: (name: string) => string;
}

/** XMLHttpRequest, because fetch cannot say how much of a body has been sent. */
function send({ path, body, type, signal, progress }: Post, accept: string): Promise<Sent> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const started = performance.now();
    const fraction = (event: ProgressEvent): number | null =>
      event.lengthComputable ? event.loaded / event.total : null;
    request.open("POST", path);
    request.responseType = "arraybuffer";
    request.setRequestHeader("Content-Type", type);
    request.setRequestHeader("Accept", accept);
    if (apiKey()) request.setRequestHeader("Authorization", `Bearer ${apiKey()}`);
    request.upload.onprogress = (event) => progress?.("sending", fraction(event));
    request.upload.onload = () => progress?.("running", null);
    request.onprogress = (event) => progress?.("receiving", fraction(event));
    request.onerror = () => reject(unreachable());
    request.onabort = () => reject(new DOMException("superseded", "AbortError"));
    request.onload = () => {
      const header = (name: string): string => request.getResponseHeader(name) ?? "";
      const milliseconds = performance.now() - started;
      resolve({ body: request.response as ArrayBuffer, milliseconds, status: request.status, header });
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
