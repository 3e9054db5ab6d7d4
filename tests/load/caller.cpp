// Puts load on a local HTTP service at so little cost that the cores are left to the service.
#include <arpa/inet.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr int kLost = 0;              // in place of a status: no answer came
constexpr size_t kPiece = 1 << 18;    // sent before looking whether an answer is there already
constexpr double kLongestWait = 0.2;  // seconds between two looks for callers out of patience

// As it stands in the file of replies; caller.py reads the same fields.
struct Reply {
  int32_t request;
  int32_t status;
  double start;
  double seconds;
  int32_t retry_after;
  int32_t size;  // of the answer in the file of answers
};
static_assert(sizeof(Reply) == 32);

struct Options {
  int port = 0;
  int callers = 0;
  double rate = 0;
  int most = 1000;
  double seconds = 0;
  double patience = 60;
  const char* requests = nullptr;
  const char* replies = nullptr;
  const char* answers = nullptr;
};

[[noreturn]] void fail(const char* what) {
  perror(what);
  exit(1);
}

double clock_seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

// One answer while it comes in.
class Answer {
 public:
  void clear() {
    std::string room = std::move(text_);
    room.clear();
    *this = Answer();
    text_ = std::move(room);
  }

  void add(const char* data, size_t size) {
    text_.append(data, size);
    while (!whole_ && read_on()) {
    }
  }

  // The connection has ended, which is what marks the end of some answers.
  void end() {
    whole_ = body_ == Body::kUntilEnd;
    closes_ = true;
  }

  bool whole() const { return whole_; }
  int status() const { return whole_ ? status_ : kLost; }
  bool closes() const { return closes_; }
  bool retry_after() const { return retry_after_; }
  const std::string& text() const { return text_; }

 private:
  enum class Body { kNotYet, kLength, kChunks, kUntilEnd };

  // Whether there is more to be done with what has come.
  bool read_on() {
    if (body_ == Body::kNotYet) return read_head();
    if (body_ == Body::kChunks) return read_chunk();
    whole_ = body_ == Body::kLength && text_.size() >= at_;
    return false;
  }

  bool read_head() {
    const size_t end = text_.find("\r\n\r\n");
    if (end == std::string::npos) return false;
    const std::string_view head(text_.data(), end + 2);
    if (head.size() < 12 || head.substr(0, 5) != "HTTP/") return give_up();
    status_ = atoi(head.data() + 9);
    if (status_ / 100 == 1) {  // only announces the answer
      text_.erase(0, end + 4);
      return true;
    }
    closes_ = head.substr(0, 8) == "HTTP/1.0";
    at_ = end + 4;
    body_ = status_ == 204 || status_ == 304 ? Body::kLength : Body::kUntilEnd;
    for (size_t line = head.find("\r\n") + 2; line < head.size();) {
      const size_t next = head.find("\r\n", line);
      read_header(head.substr(line, next - line));
      line = next + 2;
    }
    return true;
  }

  void read_header(std::string_view line) {
    const size_t colon = std::min(line.find(':'), line.size() - 1);
    const size_t first = std::min(line.find_first_not_of(" \t", colon + 1), line.size());
    const std::string_view name = line.substr(0, colon), value = line.substr(first);
    if (same(name, "content-length")) {
      body_ = Body::kLength;
      at_ += strtoul(value.data(), nullptr, 10);
    } else if (same(name, "transfer-encoding")) {
      body_ = Body::kChunks;
    } else if (same(name, "connection")) {
      closes_ = same(value, "close");
    } else if (same(name, "retry-after")) {
      retry_after_ = true;
    }
  }

  bool read_chunk() {
    const size_t line = text_.find("\r\n", at_);
    if (line == std::string::npos) return false;
    if (!isxdigit(uint8_t(text_[at_]))) return give_up();
    const size_t size = strtoul(text_.c_str() + at_, nullptr, 16);
    if (size == 0) {
      whole_ = text_.find("\r\n\r\n", line) != std::string::npos;  // after the trailers, if any
      return false;
    }
    if (text_.size() < line + size + 4) return false;
    at_ = line + size + 4;
    return true;
  }

  bool give_up() {
    status_ = kLost;
    whole_ = closes_ = true;
    return false;
  }

  static bool same(std::string_view one, std::string_view other) {
    return one.size() == other.size() && strncasecmp(one.data(), other.data(), one.size()) == 0;
  }

  std::string text_;
  Body body_ = Body::kNotYet;
  size_t at_ = 0;  // the end of the body, or the next chunk
  int status_ = kLost;
  bool whole_ = false;
  bool closes_ = false;
  bool retry_after_ = false;
};

struct Connection {
  int file = -1;
  bool busy = false;
  size_t next = 0;  // what a caller asks in its next turn
  size_t request = 0;
  size_t sent = 0;
  double begun = 0;
  Answer answer;
};

class Load {
 public:
  Load(const Options& options, std::vector<std::string> requests)
      : options_(options), requests_(std::move(requests)), poll_(epoll_create1(0)) {
    if (poll_ < 0) fail("epoll_create1");
    for (int caller = 0; caller < options_.callers; ++caller) {
      idle_.push_back(&connections_.emplace_back());
      idle_.back()->next = caller * requests_.size() / options_.callers;
    }
  }

  void run() {
    started_ = clock_seconds();
    for (;;) {
      const double now = elapsed();
      const bool over = now >= options_.seconds && asked_ >= size_t(options_.callers);
      if (over && busy_ == 0) break;
      if (!over && options_.callers > 0) ask_again(now);
      if (!over && options_.callers == 0) arrive(now);
      listen(over);
      lose_patience();
    }
    printf("%.9f %zu\n", elapsed(), asked_);
  }

  void write() const {
    store(options_.replies, replies_.data(), replies_.size() * sizeof(Reply));
    if (options_.answers) store(options_.answers, answers_.data(), answers_.size());
  }

 private:
  double elapsed() const { return clock_seconds() - started_; }

  void ask_again(double now) {
    std::vector<Connection*> callers;
    callers.swap(idle_);  // whoever fails at once has its next turn after the others
    for (Connection* caller : callers) ask(*caller, caller->next++, now);
  }

  void arrive(double now) {
    while (double(asked_) < now * options_.rate && busy_ < options_.most) {
      if (idle_.empty()) idle_.push_back(&connections_.emplace_back());
      Connection* const last = idle_.back();
      idle_.pop_back();
      ask(*last, asked_, now);
    }
  }

  void ask(Connection& each, size_t number, double now) {
    ++asked_;
    ++busy_;
    each.busy = true;
    each.request = number % requests_.size();
    each.sent = 0;
    each.begun = now;
    each.answer.clear();
    if (each.file >= 0 && !still_open(each)) hang_up(each);
    if (each.file < 0 && !connect(each)) return finish(each, kLost);
    if (send_piece(each)) go_on(each);
  }

  bool connect(Connection& each) {
    each.file = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (each.file < 0) fail("socket");
    const int on = 1;
    setsockopt(each.file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(uint16_t(options_.port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(each.file, reinterpret_cast<sockaddr*>(&to), sizeof to) && errno != EINPROGRESS)
      return false;
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.ptr = &each;
    if (epoll_ctl(poll_, EPOLL_CTL_ADD, each.file, &event)) fail("epoll_ctl");
    return true;
  }

  // The other side may have closed a connection that it, too, found idle.
  static bool still_open(const Connection& each) {
    char byte;
    return recv(each.file, &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN;
  }

  static void hang_up(Connection& each) {
    close(each.file);
    each.file = -1;
  }

  void go_on(Connection& each) {
    do {
      if (receive(each)) return;
    } while (send_piece(each));
  }

  // Whether something was sent and something is left.
  bool send_piece(Connection& each) {
    const std::string& wire = requests_[each.request];
    if (each.sent == wire.size()) return false;
    const size_t size = std::min(kPiece, wire.size() - each.sent);
    const ssize_t done = send(each.file, wire.data() + each.sent, size, MSG_NOSIGNAL);
    if (done < 0) return false;  // full; or closed, and receive finds what was said before that
    each.sent += size_t(done);
    return each.sent < wire.size();
  }

  // Whether this request is over.
  bool receive(Connection& each) {
    for (;;) {
      const ssize_t got = recv(each.file, buffer_, sizeof buffer_, 0);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
      if (got > 0) each.answer.add(buffer_, size_t(got));
      if (got <= 0) each.answer.end();
      if (got <= 0 || each.answer.whole()) {
        finish(each, each.answer.status());
        return true;
      }
    }
  }

  void finish(Connection& each, int status) {
    const std::string& text = each.answer.text();
    const bool kept = options_.answers && status != kLost;
    if (kept) answers_ += text;
    replies_.push_back({int32_t(each.request), status, each.begun, elapsed() - each.begun,
                        each.answer.retry_after(), kept ? int32_t(text.size()) : 0});
    // what is left of a request that was answered early is never sent (RFC 9112, 9.5)
    const bool early = each.sent < requests_[each.request].size();
    if (status == kLost || early || each.answer.closes()) hang_up(each);
    each.busy = false;
    --busy_;
    idle_.push_back(&each);
  }

  void listen(bool over) {
    double wait = kLongestWait;
    if (!over && options_.callers > 0 && !idle_.empty()) wait = 0;
    if (!over && options_.callers == 0 && busy_ < options_.most)
      wait = std::min(double(asked_) / options_.rate, options_.seconds) - elapsed();
    wait = std::clamp(wait, 0.0, kLongestWait);
    epoll_event events[256];
    const int count = epoll_wait(poll_, events, 256, int(std::ceil(wait * 1000)));
    for (int at = 0; at < count; ++at) {
      Connection& each = *static_cast<Connection*>(events[at].data.ptr);
      if (each.busy) {
        go_on(each);
      } else if (each.file >= 0 && !still_open(each)) {
        hang_up(each);
      }
    }
  }

  void lose_patience() {
    const double now = elapsed();
    if (now - looked_ < kLongestWait) return;
    looked_ = now;
    for (Connection& each : connections_)
      if (each.busy && now - each.begun > options_.patience) finish(each, kLost);
  }

  static void store(const char* path, const void* data, size_t size) {
    FILE* const file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file)) fail(path);
  }

  const Options options_;
  const std::vector<std::string> requests_;
  const int poll_;
  std::deque<Connection> connections_;  // never freed: an event may still point to one
  std::vector<Connection*> idle_;
  std::vector<Reply> replies_;
  std::string answers_;
  size_t asked_ = 0;
  int busy_ = 0;
  double started_ = 0;
  double looked_ = 0;
  char buffer_[1 << 16];
};

Options read_options(int count, char** words) {
  const option names[] = {{"callers", 1, nullptr, 'c'},  {"rate", 1, nullptr, 'r'},
                          {"most", 1, nullptr, 'm'},     {"seconds", 1, nullptr, 's'},
                          {"patience", 1, nullptr, 'p'}, {"answers", 1, nullptr, 'a'},
                          {nullptr, 0, nullptr, 0}};
  Options options;
  for (int name; (name = getopt_long(count, words, "", names, nullptr)) != -1;) {
    switch (name) {
      case 'c': options.callers = atoi(optarg); break;
      case 'r': options.rate = atof(optarg); break;
      case 'm': options.most = atoi(optarg); break;
      case 's': options.seconds = atof(optarg); break;
      case 'p': options.patience = atof(optarg); break;
      case 'a': options.answers = optarg; break;
      default: exit(2);
    }
  }
  if (count - optind != 3 || (options.callers > 0) == (options.rate > 0)) {
    fprintf(stderr,
            "caller (--callers N | --rate R [--most M]) --seconds S [--patience S]\n"
            "       [--answers FILE] PORT REQUESTS REPLIES\n");
    exit(2);
  }
  options.port = atoi(words[optind]);
  options.requests = words[optind + 1];
  options.replies = words[optind + 2];
  return options;
}

// Each as its length in four bytes and then the bytes that go over the wire.
std::vector<std::string> read_requests(const char* path) {
  FILE* const file = fopen(path, "rb");
  if (!file) fail(path);
  std::vector<std::string> requests;
  for (uint32_t size; fread(&size, sizeof size, 1, file) == 1;) {
    requests.emplace_back(size, '\0');
    if (fread(requests.back().data(), 1, size, file) != size) fail(path);
  }
  fclose(file);
  if (requests.empty()) fail(path);
  return requests;
}

// Each unanswered request holds a connection, and the usual limit is about as many.
void allow_many_files() {
  rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace

int main(int count, char** words) {
  const Options options = read_options(count, words);
  allow_many_files();
  Load load(options, read_requests(options.requests));
  load.run();
  load.write();
  return 0;
}
