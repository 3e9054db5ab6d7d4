// A pasted or loaded graph, as far as the page needs to understand it; the service checks the rest.

export interface Sketch {
  numNodes: number;
  edges: Uint32Array; // [E * 2]
  positions: Float32Array | null; // [N * 2], when the graph brings its own
}

interface Request {
  graph?: Partial<Graph>;
}

interface Graph {
  num_nodes: number;
  edges: [number, number][];
  features: unknown;
  positions: number[][];
}

/** The request body to send; a bare graph is wrapped, a model inside is replaced by the chosen one. */
export function asRequest(text: string, model: string): { body: string; graph: Partial<Graph> } {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    throw new Error(`This is not valid JSON: ${(error as Error).message}`);
  }
  if (typeof parsed !== "object" || parsed === null) throw new Error("A graph is a JSON object.");
  const given = parsed as Request & Partial<Graph>;
  const request = given.graph ? { ...given, model } : { model, graph: given };
  return { body: JSON.stringify(request), graph: request.graph as Partial<Graph> };
}

/** null when there is nothing drawable: then the service says what is wrong. */
export function sketch(graph: Partial<Graph>): Sketch | null {
  const numNodes = graph.num_nodes;
  if (!Number.isInteger(numNodes) || numNodes! < 1 || !Array.isArray(graph.edges)) return null;
  const flat = graph.edges.flat();
  if (flat.length !== 2 * graph.edges.length) return null;
  if (!flat.every((i) => Number.isInteger(i) && i >= 0 && i < numNodes!)) return null;
  const places = graph.positions;
  const placed = Array.isArray(places) && places.length === numNodes && places.every((row) => row.length >= 2);
  return {
    numNodes: numNodes!,
    edges: Uint32Array.from(flat),
    positions: placed ? Float32Array.from(places.flatMap((row) => [row[0]!, row[1]!])) : null,
  };
}
