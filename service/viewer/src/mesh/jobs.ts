// Asking the mesh worker, as promises.

import type { Job, Opened, Reference, Reply } from "./worker";

const worker = new Worker("mesh-worker.js", { type: "module" });
const waiting = new Map<number, { resolve: (done: never) => void; reject: (error: Error) => void }>();
let lastId = 0;

worker.addEventListener("message", ({ data }: MessageEvent<Reply>) => {
  const caller = waiting.get(data.id);
  waiting.delete(data.id);
  if ("error" in data) caller?.reject(new Error(data.error));
  else caller?.resolve(data.done as never);
});

function ask<T>(job: Job): Promise<T> {
  const id = ++lastId;
  return new Promise<T>((resolve, reject) => {
    waiting.set(id, { resolve, reject });
    worker.postMessage({ ...job, id }, [job.buffer]);
  });
}

export function openMesh(name: string, buffer: ArrayBuffer): Promise<Opened> {
  return ask<Opened>({ kind: "open", name, buffer });
}

export function openReference(name: string, buffer: ArrayBuffer): Promise<Reference> {
  return ask<Reference>({ kind: "reference", name, buffer });
}
