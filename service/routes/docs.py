"""GET /docs: the OpenAPI document as a page that needs nothing from elsewhere and can send."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

router = APIRouter(include_in_schema=False)

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>SplineCNN service: API</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
summary { cursor: pointer; padding: .4rem 0 }
summary code { font-weight: 600 } summary b { display: inline-block; width: 4rem }
details > div { padding: 0 0 1rem 4.4rem }
textarea { box-sizing: border-box; width: 100%; height: 10rem }
textarea, pre, code { font-family: ui-monospace, monospace; font-size: .9rem }
pre { max-height: 20rem; overflow: auto; border: 1px solid #8888; padding: .6rem }
label { display: block; margin: .3rem 0 } button { padding: .3rem 1.2rem }
</style></head>
<body><h1>SplineCNN service</h1>
<p>Every route, from <a href="openapi.json">openapi.json</a>. The examples work as they stand.
Larger ones: <code>GET /v1/models/{name}/sample</code>.</p>
<label>API key, if the service wants one <input id="key" type="password" autocomplete="off"></label>
<main id="routes">Reading openapi.json…</main>
<script src="docs/page.js"></script></body></html>
"""

_SCRIPT = """"use strict";
const make = (tag, text, parent) => {
  const element = document.createElement(tag);
  element.textContent = text;
  parent.append(element);
  return element;
};

const field = (parent, name, hint, example) => {
  const label = make("label", `${name} `, parent);
  const input = make("input", "", label);
  input.placeholder = hint || "";
  input.value = example || "";
  input.size = 40;
  return input;
};

async function send(method, path, inputs, body, file, output) {
  const headers = {};
  const query = new URLSearchParams();
  for (const [parameter, input] of inputs) {
    if (!input.value) continue;
    const value = encodeURIComponent(input.value);
    if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, value);
    else if (parameter.in === "query") query.set(parameter.name, input.value);
    else headers[parameter.name] = input.value;
  }
  const key = document.getElementById("key").value;
  if (key) headers["X-API-Key"] = key;
  const chosen = file && file.input.files[0];
  if (body) headers["Content-Type"] = chosen ? file.type.value : "application/json";
  const url = path.slice(1) + (query.size ? `?${query}` : "");
  output.textContent = "…";
  try {
    const content = chosen || (body ? body.value : undefined);
    const response = await fetch(url, { method, headers, body: content });
    const text = await response.text();
    let shown = text;
    try { shown = JSON.stringify(JSON.parse(text)); } catch { /* not JSON: as it came */ }
    output.textContent = `${response.status} ${response.statusText}\\n${shown.slice(0, 20000)}`;
  } catch (error) {
    output.textContent = String(error);
  }
}

function show(path, method, operation, parent) {
  const details = make("details", "", parent);
  const summary = make("summary", "", details);
  make("b", method.toUpperCase(), summary);
  make("code", path, summary);
  summary.append(` ${operation.summary || ""}`);
  const inside = make("div", "", details);
  const inputs = (operation.parameters || []).map((parameter) => [
    parameter, field(inside, parameter.name, parameter.description, parameter.example)]);
  const content = operation.requestBody && operation.requestBody.content;
  let body = null;
  let file = null;
  if (content) {
    make("p", `Body: ${Object.keys(content).join(", ")}`, inside);
    const json = content["application/json"];
    body = make("textarea", json && json.example ? JSON.stringify(json.example) : "", inside);
    body.setAttribute("aria-label", "body");
    const types = Object.keys(content).filter((type) => type !== "application/json");
    if (types.length) {
      file = { input: field(inside, "or a file"), type: make("select", "", inside) };
      file.input.type = "file";
      file.type.setAttribute("aria-label", "type of the file");
      for (const type of types) make("option", type, file.type);
    }
  } else if (method === "post" && path.endsWith("/infer")) {
    body = make("textarea", "", inside);
    body.setAttribute("aria-label", "body");
  }
  const button = make("button", "Send", inside);
  const output = make("pre", "", inside);
  button.onclick = () => send(method.toUpperCase(), path, inputs, body, file, output);
}

fetch("openapi.json").then((response) => response.json()).then((tree) => {
  const main = document.getElementById("routes");
  main.textContent = "";
  const groups = new Map();
  for (const [path, operations] of Object.entries(tree.paths))
    for (const [method, operation] of Object.entries(operations)) {
      const tag = (operation.tags || ["other"])[0];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push([path, method, operation]);
    }
  for (const [tag, routes] of groups) {
    make("h2", tag, main);
    for (const [path, method, operation] of routes) show(path, method, operation, main);
  }
});
"""


@router.get("/docs", response_model=None)
async def docs(request: Request) -> Response:
    return HTMLResponse(_PAGE)


@router.get("/docs/page.js", response_model=None)
async def script(request: Request) -> Response:
    return Response(_SCRIPT, media_type="text/javascript")
