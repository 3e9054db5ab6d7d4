// The same question from a shell: the file as it is, by its media type.

import { curlKey, origin, quote } from "../strip";

const TYPES: Record<string, string> = {
  ply: "model/ply",
  obj: "model/obj",
  stl: "model/stl",
  off: "model/off",
  glb: "model/gltf-binary",
  json: "application/json",
};

/** For a file, or for the model's sample when there is none. */
export function curl(model: string, file: string | null): string {
  const key = curlKey();
  if (file === null) {
    const send = `-H 'Content-Type: application/json' --data-binary @-`;
    return `curl -s${key} ${origin()}/v1/models/${model}/sample |\n  curl -s${key} ${origin()}/v1/correspondence \\\n    ${send}`;
  }
  const type = TYPES[file.toLowerCase().split(".").pop() ?? ""] ?? "application/json";
  const url = quote(`${origin()}/v1/correspondence?model=${encodeURIComponent(model)}`);
  return `curl -s ${url}${key} \\\n  -H 'Content-Type: ${type}' \\\n  --data-binary @${quote(file)}`;
}
