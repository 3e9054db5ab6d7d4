// Small graphs on their way to a network and back, on threads that never need the interpreter.
//
// A thread of Python runs a script that takes a batch, runs it, gives its answers and takes the
// next; meanwhile the event loop puts graphs in and collects what is answered (ops/express.py).
#include <fcntl.h>
#include <torch/csrc/stable/library.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <tuple>
#include <utility>
#include <vector>

#include "json.h"
#include "tensors.h"

namespace splinecnn::cpu {
namespace {

constexpr int SCAN = 256;  // how far behind the oldest graph to look for others that fit

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Waiting {
  int64_t ticket, nodes, edges, width;
  double since;
  std::unique_ptr<char[]> block;

  int64_t cost() const { return nodes + edges; }
  const int64_t* pairs() const { return reinterpret_cast<int64_t*>(block.get()); }  // [2, E]
  const float* features() const { return reinterpret_cast<const float*>(pairs() + 2 * edges); }
  const float* positions() const { return features() + nodes * width; }
};

struct Ticket {
  int64_t number;
  double waited;
};

// What ran together, and the answers, [graphs, classes]; none of them if the run failed.
struct Run {
  int64_t number = 0;  // of all runs of all lanes; 0 for none
  std::vector<Ticket> tickets;
  std::vector<float> answers;
  int64_t nodes = 0, edges = 0;
  double began = 0, seconds = 0;
};

// What was chosen by this thread and has no answers yet.
thread_local Run running;

int64_t next_run() {
  static std::atomic<int64_t> last{0};
  return ++last;
}

using Batch = std::tuple<Tensor, Tensor, Tensor, Tensor>;  // features, positions, edge_index, ptr

// The graphs as one, block by block; ptr [graphs + 1] has the node offsets.
Batch side_by_side(const std::vector<Waiting>& graphs, int64_t nodes, int64_t edges) {
  const auto count = int64_t(graphs.size()), width = graphs.empty() ? 1 : graphs[0].width;
  const Tensor features = make<float>({nodes, width}), positions = make<float>({nodes, 2}),
               edge_index = make<int64_t>({2, edges}), ptr = make<int64_t>({count + 1});
  float *feature = writable<float>(features), *position = writable<float>(positions);
  int64_t *source = writable<int64_t>(edge_index), *target = source + edges,
          *start = writable<int64_t>(ptr);
  *start++ = 0;
  int64_t before = 0;
  const auto shift = [&](int64_t node) { return node + before; };
  for (const Waiting& each : graphs) {
    feature = std::copy_n(each.features(), each.nodes * each.width, feature);
    position = std::copy_n(each.positions(), each.nodes * 2, position);
    const int64_t* const pairs = each.pairs();
    source = std::transform(pairs, pairs + each.edges, source, shift);
    target = std::transform(pairs + each.edges, pairs + 2 * each.edges, target, shift);
    *start++ = before += each.nodes;
  }
  return {features, positions, edge_index, ptr};
}

// The most one run may hold, how much waiting work is worth another thread, and after how many
// seconds of a run all of it is.
struct Limits {
  int64_t nodes, edges, graphs, threads, share;
  double patience;
};

// The graphs that wait for one network; safe to use from any thread.
class Lane {
 public:
  // With a copy of `wake`: whoever gave it may close it while a run still goes on.
  Lane(int wake, const Limits& limits)
      : wake_(wake < 0 ? -1 : fcntl(wake, F_DUPFD_CLOEXEC, 0)), limits_(limits) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane() {
    if (wake_ >= 0) close(wake_);
  }

  void put(Waiting graph) {
    const std::lock_guard<std::mutex> hold(mutex_);
    const int64_t cost = graph.cost();
    waiting_.push_back(std::move(graph));
    cost_ += cost;
    // a thread that is not needed yet has to hear of the first, to know how long it may wait
    if (waiting_.size() == 1 || has_turn()) changed_.notify_one();
  }

  // Whether it was still waiting.
  bool drop(int64_t ticket) {
    const std::lock_guard<std::mutex> hold(mutex_);
    const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const Waiting& each) { return each.ticket == ticket; });
    if (found == waiting_.end()) return false;
    cost_ -= found->cost();
    waiting_.erase(found);
    tell_if_over();
    return true;
  }

  // The next batch, as soon as there is one; an empty one when the lane is closed and empty.
  Batch take() {
    std::vector<Waiting> chosen;
    {
      std::unique_lock<std::mutex> hold(mutex_);
      while (!has_turn() && !(closed_ && waiting_.empty())) {
        if (waiting_.empty())
          changed_.wait(hold);
        else  // behind a run, which may turn out to be a long one
          changed_.wait_for(hold, std::chrono::duration<double>(limits_.patience));
      }
      chosen = choose();
      running = Run();
      running.began = now();
      for (const Waiting& each : chosen) {
        running.tickets.push_back({each.ticket, running.began - each.since});
        running.nodes += each.nodes;
        running.edges += each.edges;
      }
      if (!chosen.empty()) {
        running.number = next_run();
        busy_[running.number] = running.began;
      }
      if (has_turn()) changed_.notify_one();
      tell_if_over();
    }
    return side_by_side(chosen, running.nodes, running.edges);
  }

  void give(const Tensor& answers) {
    const auto graphs = int64_t(running.tickets.size());
    SPLINECNN_REQUIRE(is_running(), "nothing was taken from this lane that has no answers yet");
    check_dtype(answers, "answers", ScalarType::Float);
    SPLINECNN_REQUIRE(answers.dim() == 2 && answers.size(0) == graphs, "answers must be [", graphs,
                      ", classes], got ", shape_of(answers));
    const Tensor rows = flat(answers);
    const float* const first = data<float>(rows);
    running.answers.assign(first, first + rows.numel());
    const bool finite = std::all_of(running.answers.begin(), running.answers.end(),
                                    [](float value) { return std::isfinite(value); });
    if (!finite) running.answers.clear();  // others know how to say whose fault it is
    finish();
  }

  // The run of the calling thread failed.
  void lose() {
    if (!is_running()) return;
    running.answers.clear();
    finish();
  }

  // The oldest run that has not been collected; it is kept until the next is asked for.
  const Run* collect() {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (finished_.empty()) return nullptr;
    collected_ = std::move(finished_.front());
    finished_.pop_front();
    return &collected_;
  }

  int64_t waiting() {
    const std::lock_guard<std::mutex> hold(mutex_);
    return int64_t(waiting_.size());
  }

  void end() {
    const std::lock_guard<std::mutex> hold(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  // When the longest run began, or 0 if there is none.
  double busy_since() {
    const std::lock_guard<std::mutex> hold(mutex_);
    return longest();
  }

 private:
  double longest() const { return busy_.empty() ? 0.0 : busy_.begin()->second; }

  // Whether what waits should be run by a thread that does nothing else.
  bool has_turn() const {
    if (waiting_.empty()) return false;
    return busy_.empty() || cost_ >= limits_.share || now() - longest() >= limits_.patience;
  }

  // Threads that wait for the end of the lane are woken by the last graph that leaves it.
  void tell_if_over() {
    if (closed_ && waiting_.empty()) changed_.notify_all();
  }

  // Whether the calling thread has a run of this lane.
  bool is_running() {
    const std::lock_guard<std::mutex> hold(mutex_);
    return busy_.count(running.number) > 0;
  }

  // The oldest, and others that still fit; no more than a fair share of what several threads do.
  std::vector<Waiting> choose() {
    std::vector<Waiting> chosen;
    const int64_t fair = std::max(limits_.share, cost_ / limits_.threads);
    int64_t nodes = 0, edges = 0, passed = 0;
    auto kept = waiting_.begin();
    auto each = kept;
    for (; each != waiting_.end() && passed < SCAN; ++each) {
      const bool full = int64_t(chosen.size()) >= limits_.graphs || nodes + edges >= fair;
      if (full) break;
      const bool fits = chosen.empty() ||
                        (nodes + each->nodes <= limits_.nodes &&
                         edges + each->edges <= limits_.edges && each->width == chosen[0].width);
      if (fits) {
        nodes += each->nodes;
        edges += each->edges;
        chosen.push_back(std::move(*each));
      } else {
        ++passed;
        if (kept != each) *kept = std::move(*each);
        ++kept;
      }
    }
    waiting_.erase(kept, each);
    cost_ -= nodes + edges;
    return chosen;
  }

  void finish() {
    const std::lock_guard<std::mutex> hold(mutex_);
    busy_.erase(running.number);
    running.seconds = now() - running.began;
    finished_.push_back(std::move(running));
    running = Run();
    if (finished_.size() > 1) return;  // woken already
    const uint64_t one = 1;
    if (write(wake_, &one, sizeof one) < 0) return;  // no one is to be woken, or the count is full
  }

  const int wake_;
  const Limits limits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  std::deque<Run> finished_;
  std::map<int64_t, double> busy_;  // when each run began, the oldest first
  Run collected_;
  int64_t cost_ = 0;  // of what waits
  bool closed_ = false;
};

// Lanes by number: whoever has a wrong one gets an error. Never freed, for threads may outlive it.
struct Lanes {
  std::mutex mutex;
  std::map<int64_t, std::shared_ptr<Lane>> open;
  int64_t last = 0;
};

Lanes& lanes() {
  static Lanes* const all = new Lanes;
  return *all;
}

std::shared_ptr<Lane> find(int64_t number) {
  const std::lock_guard<std::mutex> hold(lanes().mutex);
  const auto found = lanes().open.find(number);
  return found == lanes().open.end() ? nullptr : found->second;
}

std::shared_ptr<Lane> lane_of(const Tensor& number) {
  check_dtype(number, "lane", ScalarType::Long);
  SPLINECNN_REQUIRE(number.numel() == 1, "lane must be one number, got ", shape_of(number));
  const int64_t told = data<int64_t>(number)[0];
  std::shared_ptr<Lane> lane = find(told);
  SPLINECNN_REQUIRE(lane, "there is no lane ", told);
  return lane;
}

Batch take(const Tensor& lane) { return lane_of(lane)->take(); }

void give(const Tensor& lane, const Tensor& answers) { lane_of(lane)->give(answers); }

}  // namespace
}  // namespace splinecnn::cpu

using namespace splinecnn::cpu;

// `wake` is an eventfd, written to when there is something to collect; ops/express.py mirrors this.
EXPORTED int64_t splinecnn_express_open(int32_t wake, int64_t nodes, int64_t edges, int64_t graphs,
                                        int64_t threads, int64_t share, double patience) {
  const Limits limits{nodes, edges, graphs, threads, share, patience};
  const std::lock_guard<std::mutex> hold(lanes().mutex);
  lanes().open[++lanes().last] = std::make_shared<Lane>(wake, limits);
  return lanes().last;
}

// `block` is laid out as that of splinecnn_json_graph. 0 if there is no such lane, or no memory.
EXPORTED int32_t splinecnn_express_put(int64_t lane, int64_t ticket, int64_t nodes, int64_t edges,
                                       int64_t width, const char* block) {
  const std::shared_ptr<Lane> found = find(lane);
  if (!found) return 0;
  const size_t size = size_t(16 * edges + 4 * nodes * (width + 2));
  try {
    Waiting graph{ticket, nodes, edges, width, now(), std::unique_ptr<char[]>(new char[size])};
    std::memcpy(graph.block.get(), block, size);
    found->put(std::move(graph));
  } catch (const std::bad_alloc&) {
    return 0;
  }
  return 1;
}

EXPORTED int32_t splinecnn_express_drop(int64_t lane, int64_t ticket) {
  const std::shared_ptr<Lane> found = find(lane);
  return found && found->drop(ticket);
}

struct SplinecnnRun {
  int64_t graphs, nodes, edges, classes;
  double seconds;
  const Ticket* tickets;
  const float* answers;  // [graphs, classes]; null if the run failed
};

// The next run that was finished, valid until the next call; 0 if there is none.
EXPORTED int32_t splinecnn_express_collect(int64_t lane, SplinecnnRun* out) {
  const std::shared_ptr<Lane> found = find(lane);
  const Run* const run = found ? found->collect() : nullptr;
  if (!run) return 0;
  const auto graphs = int64_t(run->tickets.size());
  const bool failed = run->answers.empty();
  *out = {graphs,
          run->nodes,
          run->edges,
          failed ? 0 : int64_t(run->answers.size()) / graphs,
          run->seconds,
          run->tickets.data(),
          failed ? nullptr : run->answers.data()};
  return 1;
}

EXPORTED void splinecnn_express_lose(int64_t lane) {
  if (const std::shared_ptr<Lane> found = find(lane)) found->lose();
}

EXPORTED int64_t splinecnn_express_waiting(int64_t lane) {
  const std::shared_ptr<Lane> found = find(lane);
  return found ? found->waiting() : 0;
}

EXPORTED double splinecnn_express_busy_since(int64_t lane) {
  const std::shared_ptr<Lane> found = find(lane);
  return found ? found->busy_since() : 0.0;
}

EXPORTED void splinecnn_express_close(int64_t lane) {
  if (const std::shared_ptr<Lane> found = find(lane)) found->end();
}

EXPORTED void splinecnn_express_forget(int64_t lane) {
  const std::lock_guard<std::mutex> hold(lanes().mutex);
  lanes().open.erase(lane);
}

// A number in a tensor, and one that is written to: else calls could be merged or left out.
STABLE_TORCH_LIBRARY(splinecnn_express, library) {
  library.def(
      "take(Tensor(a!) lane) -> (Tensor features, Tensor positions, Tensor edge_index, Tensor "
      "ptr)");
  library.def("give(Tensor(a!) lane, Tensor answers) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(splinecnn_express, CPU, library) {
  library.impl("take", TORCH_BOX(&take));
  library.impl("give", TORCH_BOX(&give));
}
