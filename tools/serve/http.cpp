// tools/serve/http.cpp: HTTP/1.1 over Boost.Asio, with Boost.Beast as the parser.
// Main path: serve.cpp -> [http.cpp] -> routes.cpp
#include "http.h"

#include "../os.h"

#include <utility>  // Boost.Asio of 1.74 lacks it

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <strings.h>
#include <sys/stat.h>
#include <unordered_set>

namespace serve {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using stream_protocol = asio::generic::stream_protocol;
using stream_socket = stream_protocol::socket;
using error_code = boost::system::error_code;
using steady = std::chrono::steady_clock;
using std::chrono::seconds;

// A large body keeps a thread busy for seconds. Such bodies have a thread of their own, so that others do not wait.
constexpr size_t kLargeBody = 256 << 10;
constexpr uint32_t kMaxHeader = 32 << 10;
constexpr size_t kMaxUnsent = 1 << 20;  // of a stream whose client does not read
constexpr int kMaxConnections = 2048;
constexpr int kHeadSeconds = 10, kBodySeconds = 30, kIdleSeconds = 75, kWriteSeconds = 30, kKeepAliveSeconds = 10;

struct http_server::state : http_place {
    state(uint64_t n, http_handlers h) : max_body_bytes(n), handlers(std::move(h)) {}
    const uint64_t max_body_bytes;
    http_handlers handlers;
    std::unordered_set<http_connection*> connections;  // outlives io, whose handlers own the connections
    asio::io_context io{1};
    asio::thread_pool threads{2}, large{1}, aside{1};  // for requests with a body, and with a large one; for run_aside
    asio::basic_socket_acceptor<stream_protocol> acceptor{io};
    asio::steady_timer retry{io}, tick{io};
    std::atomic<bool> is_draining{false};
    bool is_ticking = false;
    int n_signals = 0;

    template <class work_fn> void each(work_fn work);  // of the connections
    std::string open(const stream_protocol::endpoint& endpoint, const std::string& name);
    void accept();
    void make_room(bool is_full);
    void watch_times();
};

// A connection and the request that it is at. Its functions run on the thread of the connections; post_ functions may
// be called by any. All of it is this file's own.
class http_connection : public std::enable_shared_from_this<http_connection> {
  public:
    http_connection(http_server::state& server, stream_socket socket) : server_(server), socket_(std::move(socket)) {
        server_.connections.insert(this);
    }
    ~http_connection() { server_.connections.erase(this); }

    template <class work_fn> void post(work_fn work) {
        asio::post(server_.io, [self = shared_from_this(), work = std::move(work)]() mutable { work(*self); });
    }

    enum phase { kIdle, kHead, kBody, kAnswers, kLingers, kClosed };
    using parser_type = http::request_parser<http::string_body>;

    http_server::state& server_;
    stream_socket socket_;
    boost::beast::flat_buffer buffer_{128u << 10};
    std::optional<parser_type> parser_;
    phase phase_ = kIdle;
    std::atomic<bool> is_closed_{false};  // for work on other threads
    steady::time_point since_ = steady::now(), deadline_ = steady::time_point::max(), last_write_;
    uint64_t exchange_serial_ = 0;
    bool timed_out_ = false, is_http10_ = false;
    bool keeps_connection_ = false, is_last_ = false, is_writing_ = false, is_stream_ = false;
    size_t n_lingered_ = 0, n_written_ = 0;
    uint64_t body_limit_ = 0;  // of the request's method
    std::string writing_, pending_, stream_head_, keep_alive_text_;
    std::function<void()> gone_;
    std::array<char, 16384> discard_;

    // ---- time limits ----

    // n_seconds: how long it may last, 0 for ever
    void enter(phase next, int n_seconds) {
        if (phase_ == kClosed) return;
        const auto is_active = [](phase p) { return p == kBody || p == kAnswers; };
        server_.n_active += is_active(next) - is_active(std::exchange(phase_, next));
        since_ = steady::now();
        deadline_ = n_seconds > 0 ? since_ + seconds(n_seconds) : steady::time_point::max();
    }

    void on_tick(steady::time_point now) {
        const bool is_silent = now - last_write_ >= seconds(kKeepAliveSeconds);
        if (now >= deadline_ && (phase_ == kHead || phase_ == kBody)) {
            timed_out_ = true;
            error_code none;
            socket_.cancel(none);  // the read ends and refuses
        } else if (now >= deadline_) close();
        else if (phase_ == kAnswers && is_stream_ && is_silent) send_piece(keep_alive_text_, false);
    }

    void close() {
        if (phase_ == kClosed) return;
        if (phase_ == kAnswers)
            if (auto callback = std::exchange(gone_, nullptr)) callback();
        enter(kClosed, 0);
        is_closed_ = true;
        server_.connections.erase(this);  // Work that waits for a thread keeps the connection, but not its place.
        error_code none;
        socket_.close(none);
    }

    // ---- reading ----

    void read_next() {
        parser_.reset();
        timed_out_ = false;
        enter(kIdle, kIdleSeconds);
        if (buffer_.size() > 0) return read_head();
        socket_.async_wait(stream_socket::wait_read, [self = shared_from_this()](error_code ec) {
            if (ec || self->phase_ != kIdle) return self->phase_ == kIdle ? self->close() : void();
            self->read_head();
        });
    }

    void read_head() {
        parser_.emplace();
        parser_->header_limit(kMaxHeader);
        parser_->body_limit(UINT64_MAX);  // the limit comes when the head was checked
        enter(kHead, kHeadSeconds);
        http::async_read_header(socket_, buffer_, *parser_,
                                [self = shared_from_this()](error_code ec, size_t) { self->on_head(ec); });
    }

    // The rules of framing that the parser leaves open. Returns "", or what is wrong.
    std::string check_framing(const http_request& request) const {
        const auto& head = parser_->get();
        const auto count = [&](http::field name) { return head.count(name); };
        if (head.version() != 10 && head.version() != 11) return "want HTTP/1.0 or HTTP/1.1";
        if (count(http::field::host) > 1) return "want one Host header";
        if (head.version() == 11 && count(http::field::host) == 0) return "want a Host header";
        const auto n_codings = count(http::field::transfer_encoding);
        if (n_codings > 0) {
            if (head.version() == 10) return "HTTP/1.0 has no Transfer-Encoding";
            if (count(http::field::content_length) > 0) return "want Content-Length or Transfer-Encoding, not both";
            if (n_codings > 1 || !boost::beast::iequals(head[http::field::transfer_encoding], "chunked"))
                return "Transfer-Encoding: want chunked";
        }
        const auto length = head[http::field::content_length];
        if (count(http::field::content_length) > 1 || length.find(',') != length.npos) return "want one Content-Length";
        return request.path.empty() || request.path[0] != '/' ? "want a path as target" : "";
    }

    // A path, or "http://NAME/path", as proxies send it: there the name counts, whatever Host says.
    static void read_target(std::string_view target, http_request* request) {
        constexpr std::string_view kScheme = "http://";
        if (target.size() > kScheme.size() && ::strncasecmp(target.data(), kScheme.data(), kScheme.size()) == 0) {
            target.remove_prefix(kScheme.size());
            const size_t n_name = std::min(target.find_first_of("/?"), target.size());
            if (n_name == 0) return;  // without a path it is refused
            request->host = target.substr(0, n_name);
            target.remove_prefix(n_name);
            if (target.empty() || target[0] == '?') target = "/";
        }
        request->path = target.substr(0, target.find('?'));
    }

    void on_head(error_code ec) {
        if (phase_ == kClosed) return;
        // An empty line before a request is ignored (RFC 9112, 2.2): some clients end a body with one.
        const std::string_view sent((const char*)buffer_.data().data(), buffer_.size());
        if (ec == http::error::bad_method && sent.starts_with("\r\n")) return buffer_.consume(2), read_next();
        const auto exchange = std::make_shared<http_exchange>(shared_from_this());
        if (ec) return refuse_framing(exchange, ec);
        const auto& head = parser_->get();
        // clang-format off
        constexpr std::pair<std::string http_request::*, const char*> kFields[] = {
            {&http_request::host, "host"}, {&http_request::origin, "origin"}, {&http_request::authorization, "authorization"}, {&http_request::api_key, "x-api-key"},
            {&http_request::content_type, "content-type"}, {&http_request::content_encoding, "content-encoding"}, {&http_request::request_id, "x-request-id"}};
        // clang-format on
        http_request& r = exchange->request;
        is_http10_ = head.version() == 10;
        r.method = std::string(head.method_string());
        for (const auto& [member, name] : kFields) r.*member = std::string(head[name]);
        read_target(std::string_view(head.target().data(), head.target().size()), &r);
        if (const std::string wrong = check_framing(r); !wrong.empty()) return refuse(exchange, 400, wrong);
        const uint64_t n_declared = parser_->content_length().value_or(0);
        body_limit_ = r.method == "POST" ? server_.max_body_bytes : 0;
        const bool has_body = parser_->chunked() || n_declared > 0;
        keeps_connection_ = head.keep_alive() && !has_body;  // a body that is not read would be the next request
        server_.handlers.check(server_, exchange, 0, "");
        if (exchange->status()) return begin_answer();
        keeps_connection_ = head.keep_alive();
        if (n_declared > body_limit_) return refuse_framing(exchange, http::error::body_limit);
        parser_->body_limit(body_limit_);
        enter(kBody, kBodySeconds);
        const bool waits = has_body && !is_http10_ && boost::beast::iequals(head[http::field::expect], "100-continue");
        if (!waits) return read_body(exchange);
        static const std::string kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
        asio::async_write(socket_, asio::buffer(kContinue), [exchange, this](error_code write_ec, size_t) {
            return write_ec ? close() : read_body(exchange);
        });
    }

    void read_body(const exchange_ptr& e) {
        if (phase_ == kClosed) return;
        http::async_read(socket_, buffer_, *parser_, [e, this](error_code ec, size_t) { on_request(e, ec); });
    }

    void on_request(const exchange_ptr& exchange, error_code ec) {
        if (phase_ == kClosed) return;
        if (ec) return refuse_framing(exchange, ec);
        exchange->request.body = std::move(parser_->get().body());
        begin_answer();
        watch();
        const auto work = [exchange, this] { return is_closed_ ? void() : server_.handlers.handle(exchange); };
        const size_t n = exchange->request.body.size();
        if (n == 0) work();
        else asio::post(n > kLargeBody ? server_.large : server_.threads, work);
    }

    void begin_answer() {
        is_last_ = is_stream_ = false;
        stream_head_ = writing_ = pending_ = "";
        exchange_serial_++;
        enter(kAnswers, 0);
    }

    void refuse_framing(const exchange_ptr& e, error_code ec) {
        if (timed_out_) return refuse(e, 408, phase_ == kBody ? "the body took too long" : "the header took too long");
        if (ec == http::error::end_of_stream || ec == http::error::partial_message || ec == asio::error::eof ||
            ec.category() == asio::error::get_system_category())
            return close();
        if (ec == http::error::header_limit || ec == http::error::buffer_overflow)
            return refuse(e, 431, "the header is larger than " + std::to_string(kMaxHeader) + " bytes");
        if (ec == http::error::body_limit)
            return refuse(e, 413, "the body is larger than " + std::to_string(body_limit_) + " bytes");
        refuse(e, 400, "not HTTP/1.1: " + ec.message());
    }

    // Nobody knows where a next request would begin.
    void refuse(const exchange_ptr& exchange, int status, const std::string& message) {
        keeps_connection_ = false;
        server_.handlers.check(server_, exchange, status, message);
        begin_answer();
    }

    // ---- the client while its answer is made ----

    // Waits for the end of the connection. What a client sends ahead stays for the next request; with 64 KiB of it the
    // connection is closed: its end could not be seen behind more.
    void watch() {
        socket_.async_wait(stream_socket::wait_read, [self = shared_from_this(), id = exchange_serial_](error_code ec) {
            if (id != self->exchange_serial_ || self->phase_ != kAnswers) return;
            if (ec || self->buffer_.size() >= (64u << 10)) return self->close();
            const size_t n = self->socket_.read_some(self->buffer_.prepare(16384), ec);
            if (ec && ec != asio::error::would_block && ec != asio::error::interrupted) return self->close();
            self->buffer_.commit(n);
            self->watch();
        });
    }

    // ---- writing ----

    void send(std::string bytes, bool is_last) {
        if (phase_ != kAnswers || is_last_) return;
        if (pending_.empty()) pending_ = std::move(bytes);  // a large answer is not copied here: others would wait
        else pending_ += bytes;
        is_last_ = is_last;
        last_write_ = steady::now();
        if (!is_writing_) return write_some();
        // One piece may be larger than the limit, and a client that reads may be slow: since_ is when it last took
        // some.
        if (is_stream_ && pending_.size() > kMaxUnsent && last_write_ - since_ > seconds(1)) close();
    }

    // A piece of a stream; the head goes before the first.
    void send_piece(const std::string& piece, bool is_last) { send(std::exchange(stream_head_, "") + piece, is_last); }

    // Writes what the socket takes, and waits when it is full.
    void write_some() {
        error_code ec;
        while (!ec && (n_written_ < writing_.size() || !pending_.empty())) {
            if (n_written_ == writing_.size()) writing_ = std::exchange(pending_, ""), n_written_ = 0;
            n_written_ += socket_.write_some(asio::buffer(writing_) + n_written_, ec);
        }
        if (!ec) return on_written();
        if (ec != asio::error::would_block) return close();
        is_writing_ = true;
        enter(phase_, kWriteSeconds);
        socket_.async_wait(stream_socket::wait_write, [self = shared_from_this()](error_code wait_ec) {
            self->is_writing_ = false;
            if (self->phase_ != kClosed) wait_ec ? self->close() : self->write_some();
        });
    }

    void on_written() {
        if (!is_last_) return enter(phase_, 0);
        gone_ = nullptr;
        std::string().swap(writing_);  // an idle connection keeps no large answer
        n_written_ = 0;
        exchange_serial_++;
        if (is_http10_ || !keeps_connection_ || server_.is_draining) return linger();
        read_next();
    }

    // Ends the connection without losing the answer: a socket that is closed with unread bytes would be reset, and the
    // client might not see what was sent.
    void linger() {
        error_code none;
        socket_.shutdown(stream_socket::shutdown_send, none);
        if (phase_ != kLingers) n_lingered_ = 0, enter(kLingers, 5);
        socket_.async_read_some(asio::buffer(discard_), [self = shared_from_this()](error_code ec, size_t n) {
            self->n_lingered_ += n;
            if (ec || self->phase_ == kClosed || self->n_lingered_ > (64u << 20)) return self->close();
            self->linger();
        });
    }

    // n_bytes -1: pieces
    std::string head(int status, const http_headers& headers, const char* content_type, int64_t n_bytes) {
        const std::string reason(status == 200 ? "OK" : http::obsolete_reason((http::status)status));
        std::string text = "HTTP/1.1 " + std::to_string(status) + " " + reason + "\r\n";
        if (status != 204) text += std::string("Content-Type: ") + content_type + "\r\n";
        if (status != 204 && n_bytes >= 0) text += "Content-Length: " + std::to_string(n_bytes) + "\r\n";
        if (n_bytes == -1) text += "Cache-Control: no-store\r\n";
        if (n_bytes == -1 && !is_http10_) text += "Transfer-Encoding: chunked\r\n";
        text += "X-Content-Type-Options: nosniff\r\n";
        for (const auto& [name, value] : headers) text += name + ": " + value + "\r\n";
        if (is_http10_ || !keeps_connection_ || server_.is_draining) text += "Connection: close\r\n";
        return text + "\r\n";
    }
};

// ---- an exchange ----

http_exchange::http_exchange(std::shared_ptr<http_connection> connection) : connection_(std::move(connection)) {}

http_exchange::~http_exchange() {
    if (!is_over_)
        connection_->post([](http_connection& c) {
            if (c.phase_ == http_connection::kAnswers && !c.is_last_) c.close();
        });
    end_once();
}

void http_exchange::end_once() {
    if (auto callback = std::exchange(on_end, nullptr)) callback(*this);
}

void http_exchange::answer(int status, std::string body, const char* content_type) {
    if (is_over_) return;
    is_over_ = true;
    status_ = status;
    std::string bytes = connection_->head(status, headers, content_type, (int64_t)body.size());
    if (request.method != "HEAD") bytes += body;
    end_once();  // who has the answer finds it counted
    connection_->post([bytes = std::move(bytes)](http_connection& c) mutable {
        c.is_stream_ = false;
        c.send(std::move(bytes), true);
    });
}

// A piece of a body whose length is not known before.
std::string http_exchange::chunk(const std::string& text) const {
    if (connection_->is_http10_ || text.empty()) return text;
    return boost::beast::buffers_to_string(http::make_chunk(asio::buffer(text)));
}

void http_exchange::expects_stream(const char* content_type, const std::string& keep_alive_text) {
    status_ = 200;
    connection_->post(
        [head = connection_->head(200, headers, content_type, -1), text = chunk(keep_alive_text)](http_connection& c) {
            if (c.phase_ != http_connection::kAnswers) return;
            c.is_stream_ = true;
            c.stream_head_ = head;
            c.keep_alive_text_ = text;
            c.last_write_ = steady::now();
        });
}

void http_exchange::post_piece(std::string bytes, bool is_last) {
    connection_->post([bytes = std::move(bytes), is_last](http_connection& c) { c.send_piece(bytes, is_last); });
}

void http_exchange::write(const std::string& piece) {
    if (!is_over_ && !piece.empty()) post_piece(chunk(piece), false);
}

void http_exchange::finish() {
    if (is_over_) return;
    is_over_ = true;
    end_once();
    post_piece(connection_->is_http10_ ? "" : "0\r\n\r\n", true);
}

void http_exchange::run_aside(std::function<void()> work) { asio::post(connection_->server_.aside, std::move(work)); }

void http_exchange::on_gone(std::function<void()> callback) {
    connection_->post([callback = std::move(callback)](http_connection& c) {
        if (c.phase_ == http_connection::kClosed) callback();
        else if (c.phase_ == http_connection::kAnswers && !c.is_last_) c.gone_ = callback;
    });
}

// ---- the server ----

http_server::http_server(uint64_t max_body_bytes, http_handlers handlers)
    : state_(std::make_unique<state>(max_body_bytes, std::move(handlers))) {}

http_server::~http_server() { forget_path(); }

void http_server::forget_path() {
    if (!state_->unix_path.empty()) ::unlink(state_->unix_path.c_str());
}

// Closes the connection that has waited longest for its next request, when there are too many.
void http_server::state::make_room(bool is_full) {
    if (!is_full && (int)connections.size() < kMaxConnections) return;
    http_connection* oldest = nullptr;
    for (http_connection* c : connections)
        if (c->phase_ != http_connection::kAnswers && c->phase_ != http_connection::kClosed &&
            (!oldest || c->since_ < oldest->since_))
            oldest = c;
    if (oldest) oldest->shared_from_this()->close();
}

template <class work_fn> void http_server::state::each(work_fn work) {
    std::vector<std::shared_ptr<http_connection>> all;  // some may end now
    for (http_connection* c : connections) all.push_back(c->weak_from_this().lock());
    for (const auto& c : all)
        if (c) work(*c);
}

// All time limits are looked at twice a second, while there are connections: a timer of its own for each piece that is
// written would cost as much as the piece.
void http_server::state::watch_times() {
    is_ticking = !connections.empty();
    if (!is_ticking) return;
    tick.expires_after(std::chrono::milliseconds(500));
    tick.async_wait([this](error_code ec) {
        if (ec) return;
        each([now = steady::now()](http_connection& c) { c.on_tick(now); });
        watch_times();
    });
}

void http_server::state::accept() {
    acceptor.async_accept([this](error_code ec, stream_socket peer) {
        make_room(!!ec);
        if (ec) {  // too many open files: what is open goes on, and a later try may succeed
            retry.expires_after(std::chrono::milliseconds(50));
            retry.async_wait([this](error_code e) { return e ? void() : accept(); });
            return;
        }
        if ((int)connections.size() < kMaxConnections + 64) {
            error_code none;
            peer.non_blocking(true, none);                         // reads and writes do not wait
            peer.set_option(asio::ip::tcp::no_delay(true), none);  // of no meaning for a path's sockets
            peer.set_option(asio::socket_base::send_buffer_size(256 << 10), none);
            // The last owner may be an answer on another thread; the end comes on this one.
            const auto end = [this](http_connection* c) {
                asio::dispatch(io, [owned = std::unique_ptr<http_connection>(c)] {});
            };
            std::shared_ptr<http_connection>(new http_connection(*this, std::move(peer)), end)->read_next();
            if (!is_ticking) watch_times();
        }
        accept();
    });
}

// Opens the listening socket. Returns "", or why it failed.
std::string http_server::state::open(const stream_protocol::endpoint& endpoint, const std::string& name) {
    error_code ec;
    acceptor.open(endpoint.protocol(), ec);
    if (!ec) acceptor.set_option(asio::socket_base::reuse_address(os::kReusesAddress), ec);
    if (!ec) acceptor.bind(endpoint, ec);
    if (!ec) acceptor.listen(asio::socket_base::max_listen_connections, ec);
    return ec ? "cannot listen on " + name + ": " + ec.message() : "";
}

#ifdef BOOST_ASIO_HAS_LOCAL_SOCKETS
static std::string listen_unix(http_server::state& s, const std::string& host) {
    const std::string path = host.substr(5);
    if (path.empty() || path.size() > 100) return host + ": want a path of 1 to 100 bytes";
    const asio::local::stream_protocol::endpoint endpoint(path);
    struct stat info = {};
    if (::lstat(path.c_str(), &info) == 0) {
        error_code ec;
        asio::local::stream_protocol::socket probe(s.io);
        if (!S_ISSOCK(info.st_mode)) return path + " exists and is no socket";
        if (!probe.connect(endpoint, ec)) return host + " is in use by another program";
        ::unlink(path.c_str());  // left behind by a program that is gone
    }
    const mode_t before = ::umask(0177);
    const std::string wrong = s.open(endpoint, host);
    ::umask(before);
    if (!wrong.empty()) return wrong;
    s.unix_path = path;
    s.address = host;
    s.is_local = true;
    return "";
}
#endif

std::string http_server::listen(const std::string& host, int port) {
    state& s = *state_;
#ifdef BOOST_ASIO_HAS_LOCAL_SOCKETS
    if (host.rfind("unix:", 0) == 0) return listen_unix(s, host);
#endif
    error_code ec;
    const bool has_brackets = host.size() > 2 && host[0] == '[' && host.back() == ']';
    asio::ip::tcp::resolver resolver(s.io);
    const auto found = resolver.resolve(has_brackets ? host.substr(1, host.size() - 2) : host, std::to_string(port),
                                        asio::ip::tcp::resolver::passive, ec);
    if (ec || found.empty()) return "cannot listen on " + host + ": no such address";
    const auto is_v4 = [](const auto& entry) { return entry.endpoint().address().is_v4(); };
    const auto v4 = std::find_if(found.begin(), found.end(), is_v4);
    const asio::ip::tcp::endpoint endpoint = (v4 == found.end() ? found.begin() : v4)->endpoint();
    const std::string wrong = s.open(endpoint, host + ":" + std::to_string(port));
    if (!wrong.empty()) return wrong;
    asio::ip::tcp::endpoint bound = endpoint;
    std::memcpy(bound.data(), s.acceptor.local_endpoint().data(), bound.size());
    s.is_local = bound.address().is_loopback();
    const std::string text = bound.address().to_string();
    s.address = (bound.address().is_v6() ? "[" + text + "]" : text) + ":" + std::to_string(bound.port());
    return "";
}

const http_place& http_server::place() const { return *state_; }

void http_server::run(std::function<void(int)> on_signal) {
    state& s = *state_;
    asio::signal_set signals(s.io, SIGINT, SIGTERM);
    std::function<void(error_code, int)> on = [&](error_code ec, int) {
        if (ec) return;
        on_signal(++s.n_signals);
        signals.async_wait(on);
    };
    signals.async_wait(on);
    s.accept();
    s.io.run();
    // What waits for a thread has nobody who waits for it.
    for (auto* pool : {&s.threads, &s.large, &s.aside}) pool->stop();
    for (auto* pool : {&s.threads, &s.large, &s.aside}) pool->join();
}

void http_server::drain() {
    state_->is_draining = true;
    state_->each([](http_connection& c) { return c.phase_ == http_connection::kIdle ? c.close() : void(); });
}

void http_server::stop() { state_->io.stop(); }

void http_server::after(std::chrono::milliseconds time, std::function<void()> work) {
    auto timer = std::make_shared<asio::steady_timer>(state_->io, time);
    timer->async_wait([timer, work](error_code ec) { return ec ? void() : work(); });
}

}  // namespace serve
