// A small graph out of JSON text or arrays in one go: numbers read and checked, edges put in order.
//
// Called by ops/smallgraph.py. As in json.cpp nothing here explains: what is not a sound graph in
// the plainest form is left to those who can say what is wrong with it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "json.h"

using namespace splinecnn::json;

namespace {

// Numbers in rows of one length, kept from one text to the next for their memory.
template <typename T>
struct Rows {
  std::vector<T> number;
  int64_t rows = 0, width = 0;

  // `[[n, …], …]`; what is behind it, or null.
  const char* take(const char* at, const char* end) {
    rows = width = 0;
    const size_t most = size_t(end - at) / 2 + 1;  // a number, and what parts it from the next
    if (number.size() < most) number.resize(most);
    if (at == end || *at != '[') return nullptr;
    at = skip(at + 1, end);
    if (at < end && *at == ']') return at + 1;
    while (true) {
      int64_t got;
      const int64_t used = rows * width;
      at = read_row(at, end, number.data() + used, int64_t(number.size()) - used, got);
      if (!at || got == 0 || (rows > 0 && got != width)) return nullptr;
      width = got;
      ++rows;
      at = skip(at, end);
      if (at == end) return nullptr;
      if (*at == ']') return at + 1;
      if (*at != ',') return nullptr;
      at = skip(at + 1, end);
    }
  }
};

// `"letters"` of plain ASCII; what is behind it, or null.
const char* read_word(const char* at, const char* end, std::string_view& word) {
  if (at == end || *at != '"') return nullptr;
  const char* const first = ++at;
  for (; at < end && *at != '"'; ++at)
    if (*at == '\\' || static_cast<signed char>(*at) < ' ') return nullptr;
  if (at == end) return nullptr;
  word = {first, size_t(at - first)};
  return at + 1;
}

const char* read_flag(const char* at, const char* end, bool& flag) {
  const std::string_view text(at, size_t(end - at));
  flag = text.substr(0, 4) == "true";
  if (flag) return at + 4;
  return text.substr(0, 5) == "false" ? at + 5 : nullptr;
}

// `{"name": value, …}`, each value read by f(name, at); what is behind it, or null.
template <typename F>
const char* read_object(const char* at, const char* end, const F& f) {
  at = skip(at, end);
  if (at == end || *at != '{') return nullptr;
  do {
    std::string_view name;
    at = read_word(skip(at + 1, end), end, name);
    if (!at) return nullptr;
    at = skip(at, end);
    if (at == end || *at != ':') return nullptr;
    at = f(name, skip(at + 1, end));
    if (!at) return nullptr;
    at = skip(at, end);
    if (at == end) return nullptr;
  } while (*at == ',');
  return *at == '}' ? at + 1 : nullptr;
}

struct Pair {
  int32_t source, target;
};

// Where the nodes of edges are: `step` numbers further on are those of the next edge.
struct Pairs {
  const int64_t *source, *target;
  int64_t step, count;

  bool within(int64_t nodes) const {
    bool outside = false;
    for (int64_t e = 0; e < count * step; e += step)
      outside |= uint64_t(source[e]) >= uint64_t(nodes) || uint64_t(target[e]) >= uint64_t(nodes);
    return !outside;
  }
};

// Edges by target, then source, each once and no loops: counted out twice, last key first.
class Edges {
 public:
  void order(const Pairs& given, bool undirected, int64_t nodes) {
    const int64_t count = given.count;
    const int64_t all = undirected ? 2 * count : count;
    first_.resize(size_t(all));
    sorted_.resize(size_t(all));
    for (int64_t e = 0; e < count; ++e) {
      const Pair pair{int32_t(given.source[e * given.step]), int32_t(given.target[e * given.step])};
      first_[e] = pair;
      if (undirected) first_[count + e] = {pair.target, pair.source};
    }
    scatter(first_, sorted_, nodes, [](const Pair& pair) { return pair.source; });
    scatter(sorted_, first_, nodes, [](const Pair& pair) { return pair.target; });
    kept_ = 0;
    Pair last{-1, -1};
    for (const Pair pair : first_) {
      sorted_[size_t(kept_)] = pair;
      kept_ +=
          pair.source != pair.target && (pair.source != last.source || pair.target != last.target);
      last = pair;
    }
  }

  int64_t count() const { return kept_; }

  void write(int64_t* out) const {
    for (int64_t e = 0; e < kept_; ++e) {
      out[e] = sorted_[size_t(e)].source;
      out[kept_ + e] = sorted_[size_t(e)].target;
    }
  }

 private:
  template <typename Key>
  void scatter(const std::vector<Pair>& from, std::vector<Pair>& to, int64_t nodes,
               const Key& key) {
    next_.assign(size_t(nodes) + 1, 0);
    for (const Pair& pair : from) ++next_[size_t(key(pair)) + 1];
    for (int64_t n = 0; n < nodes; ++n) next_[size_t(n) + 1] += next_[size_t(n)];
    for (const Pair& pair : from) to[size_t(next_[size_t(key(pair))]++)] = pair;
  }

  std::vector<Pair> first_, sorted_;
  std::vector<int32_t> next_;
  int64_t kept_ = 0;
};

// The arrays of a graph: features [nodes, width] and positions [nodes, 2].
struct Given {
  int64_t nodes, width;
  const float *features, *positions;
  Pairs pairs;
  bool undirected;
};

}  // namespace

// A block of edge_index [2, edges] of int64, features and positions [nodes, …] of float32, one
// behind the other; text[model, model_end) is the model's name, if one is given.
struct SplinecnnGraph {
  int64_t nodes, features, edges, model, model_end, size;
  const char* block;  // this thread's own, until it reads the next graph
};

namespace {

// False if an edge leads to a node that is not there, or if there are too many.
bool lay_out(const Given& given, int64_t most_nodes, int64_t most_edges, SplinecnnGraph& found) {
  thread_local Edges ordered;
  thread_local std::vector<char> block;
  if (given.nodes < 1 || given.nodes > most_nodes) return false;
  if (given.pairs.count > most_edges / (given.undirected ? 2 : 1)) return false;
  if (!given.pairs.within(given.nodes)) return false;
  ordered.order(given.pairs, given.undirected, given.nodes);
  const int64_t edges = ordered.count();
  const size_t edge_bytes = size_t(edges) * 16,
               feature_bytes = size_t(given.nodes * given.width) * 4,
               position_bytes = size_t(given.nodes) * 8;
  const size_t bytes = edge_bytes + feature_bytes + position_bytes;
  if (block.size() < bytes) block.resize(bytes);
  char* const out = block.data();
  ordered.write(reinterpret_cast<int64_t*>(out));
  std::memcpy(out + edge_bytes, given.features, feature_bytes);
  std::memcpy(out + edge_bytes + feature_bytes, given.positions, position_bytes);
  found = {given.nodes, given.width, edges, 0, 0, int64_t(bytes), out};
  return true;
}

}  // namespace

// `{"graph": {"num_nodes", "edges", "undirected"?, "features", "positions"}, "model"?}`. 1, or 0 if
// it is anything else.
EXPORTED int32_t splinecnn_json_graph(const char* text, int64_t size, int64_t most_nodes,
                                      int64_t most_edges, SplinecnnGraph* found) {
  thread_local Rows<float> features, positions;
  thread_local Rows<int64_t> pairs;
  const char* const end = text + size;
  enum Field : unsigned {
    GRAPH = 1,
    MODEL = 2,
    NODES = 4,
    EDGES = 8,
    UNDIRECTED = 16,
    FEATURES = 32,
    POSITIONS = 64
  };
  unsigned seen = 0;
  const auto once = [&](Field field) {
    const bool fresh = !(seen & field);
    seen |= field;
    return fresh;
  };
  int64_t nodes = 0;
  bool undirected = true;
  std::string_view model;
  const auto read_graph = [&](std::string_view name, const char* at) -> const char* {
    if (name == "num_nodes" && once(NODES)) return read(at, end, nodes);
    if (name == "edges" && once(EDGES)) return pairs.take(at, end);
    if (name == "undirected" && once(UNDIRECTED)) return read_flag(at, end, undirected);
    if (name == "features" && once(FEATURES)) return features.take(at, end);
    if (name == "positions" && once(POSITIONS)) return positions.take(at, end);
    return nullptr;
  };
  const char* at = read_object(text, end, [&](std::string_view name, const char* value) {
    if (name == "graph" && once(GRAPH)) return read_object(value, end, read_graph);
    if (name == "model" && once(MODEL)) return read_word(value, end, model);
    return static_cast<const char*>(nullptr);
  });
  if (!at || skip(at, end) != end) return 0;
  constexpr unsigned NEEDED = GRAPH | NODES | EDGES | FEATURES | POSITIONS;
  if ((seen & NEEDED) != NEEDED || (pairs.rows > 0 && pairs.width != 2)) return 0;
  if (features.rows != nodes || positions.rows != nodes || positions.width != 2) return 0;
  const int64_t* const pair = pairs.number.data();
  const Given given{nodes,
                    features.width,
                    features.number.data(),
                    positions.number.data(),
                    {pair, pair + 1, 2, pairs.rows},
                    undirected};
  if (!lay_out(given, most_nodes, most_edges, *found)) return 0;
  if (seen & MODEL) {
    found->model = model.data() - text;
    found->model_end = found->model + int64_t(model.size());
  }
  return 1;
}

// The same out of features [nodes, width], positions [nodes, 2] and edge_index [2, edges], which
// stand anywhere, as what follows the header of a request does.
EXPORTED int32_t splinecnn_array_graph(int64_t nodes, int64_t width, int64_t edges,
                                       const char* features, const char* positions,
                                       const char* edge_index, int32_t undirected,
                                       int64_t most_nodes, int64_t most_edges,
                                       SplinecnnGraph* found) {
  thread_local std::vector<float> numbers;
  thread_local std::vector<int64_t> nodes_of_edges;
  const size_t own = size_t(nodes * width), all = own + size_t(nodes) * 2;
  numbers.resize(all);
  nodes_of_edges.resize(size_t(edges) * 2);
  std::copy_n(features, own * 4, reinterpret_cast<char*>(numbers.data()));
  std::copy_n(positions, (all - own) * 4, reinterpret_cast<char*>(numbers.data() + own));
  std::copy_n(edge_index, size_t(edges) * 16, reinterpret_cast<char*>(nodes_of_edges.data()));
  const bool finite = std::all_of(numbers.begin(), numbers.end(),
                                  [](float value) { return std::abs(value) <= float(LARGEST); });
  if (!finite) return 0;
  const int64_t* const source = nodes_of_edges.data();
  const Pairs pairs{source, source + edges, 1, edges};
  const Given given{nodes, width, numbers.data(), numbers.data() + own, pairs, undirected != 0};
  return lay_out(given, most_nodes, most_edges, *found);
}
