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
#include <deque>
#include <optional>
#include <strings.h>
#include <sys/stat.h>
#include <unordered_set>

namespace serve {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using stream_socket = asio::generic::stream_protocol::socket;
using error_code = boost::system::error_code;
using std::chrono::seconds;

struct http_server::state {
    state(http_limits l, http_handlers h) : limits(l), handlers(std::move(h)) {}
    http_limits limits;
    http_handlers handlers;
    std::unordered_set<http_connection*> connections;  // outlives io, whose handlers own the connections
    asio::io_context io{1};
    std::optional<asio::ip::tcp::acceptor> tcp;
#ifdef BOOST_ASIO_HAS_LOCAL_SOCKETS
    std::optional<asio::local::stream_protocol::acceptor> local;
#endif
    asio::steady_timer retry{io};
    std::string address, unix_path;
    std::atomic<bool> is_draining{false};
    bool is_local = false, is_stopped = false;
    int n_active = 0, n_signals = 0;

    template <class acceptor_type> void accept(acceptor_type& acceptor);
    void make_room();
};

// A connection and the request that it is at. Its functions run on the thread of the connections; post_ functions may
// be called by any. All of it is this file's own.
class http_connection : public std::enable_shared_from_this<http_connection> {
  public:
    http_connection(http_server::state& server, stream_socket socket)
        : server_(server), socket_(std::move(socket)), timer_(server.io), keep_alive_timer_(server.io) {
        server_.connections.insert(this);
    }
    ~http_connection() { server_.connections.erase(this); }

    bool is_waiting() const { return phase_ == kIdle || phase_ == kHead || phase_ == kBody || phase_ == kLingers; }
    bool is_idle() const { return phase_ == kIdle; }
    auto since() const { return since_; }

    template <class work_fn> void post(work_fn work) {
        asio::post(server_.io, [self = shared_from_this(), work = std::move(work)]() mutable { work(*self); });
    }

    enum phase { kIdle, kHead, kBody, kAnswers, kLingers, kClosed };
    using parser_type = http::request_parser<http::string_body>;

    http_server::state& server_;
    stream_socket socket_;
    asio::steady_timer timer_, keep_alive_timer_;
    boost::beast::flat_buffer buffer_{128u << 10};
    std::optional<parser_type> parser_;
    http_request request_;
    phase phase_ = kIdle;
    std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
    uint64_t timer_serial_ = 0, exchange_serial_ = 0;
    bool timed_out_ = false, is_http10_ = false;
    bool keeps_connection_ = false, is_last_ = false, closes_ = false, is_writing_ = false, is_stream_ = false;
    size_t n_lingered_ = 0;
    std::string writing_, pending_, stream_head_, keep_alive_text_;
    size_t n_written_ = 0;
    std::chrono::steady_clock::time_point last_write_;
    std::function<void()> gone_;
    std::array<char, 16384> discard_;

    // ---- time limits ----

    void enter(phase next, int n_seconds) {
        if (phase_ == kClosed) return;
        const bool was_active = phase_ == kAnswers;
        phase_ = next;
        if (was_active != (next == kAnswers)) server_.n_active += was_active ? -1 : 1;
        since_ = std::chrono::steady_clock::now();
        const uint64_t serial = ++timer_serial_;
        if (n_seconds <= 0) {
            timer_.cancel();
            return;
        }
        timer_.expires_after(seconds(n_seconds));
        timer_.async_wait([self = shared_from_this(), serial](error_code ec) {
            if (!ec && serial == self->timer_serial_) self->on_timeout();
        });
    }

    void on_timeout() {
        if (phase_ == kHead || phase_ == kBody) {
            timed_out_ = true;
            error_code none;
            socket_.cancel(none);  // the read ends and refuses
        } else close();
    }

    void close() {
        if (phase_ == kClosed) return;
        if (phase_ == kAnswers) lose();
        enter(kClosed, 0);
        keep_alive_timer_.cancel();
        error_code none;
        socket_.close(none);
    }

    // ---- reading ----

    void read_next() {
        if (server_.is_draining) return close();
        parser_.reset();
        request_ = {};
        timed_out_ = false;
        enter(kIdle, server_.limits.idle_seconds);
        if (buffer_.size() > 0) return read_head();
        socket_.async_wait(stream_socket::wait_read, [self = shared_from_this()](error_code ec) {
            if (ec || self->phase_ != kIdle) return self->phase_ == kIdle ? self->close() : void();
            self->read_head();
        });
    }

    void read_head() {
        parser_.emplace();
        parser_->header_limit(server_.limits.max_header_bytes);
        parser_->body_limit(UINT64_MAX);  // the limit comes when the head was checked
        enter(kHead, server_.limits.header_seconds);
        http::async_read_header(socket_, buffer_, *parser_,
                                [self = shared_from_this()](error_code ec, size_t) { self->on_head(ec); });
    }

    // The rules of framing that the parser leaves open. Returns "", or what is wrong.
    std::string check_framing() const {
        const auto& head = parser_->get();
        const auto count = [&](http::field name) {
            const auto range = head.equal_range(name);
            return std::distance(range.first, range.second);
        };
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
        if (request_.path.empty() || request_.path[0] != '/') return "want a path as target";
        return "";
    }

    // A path, or "http://NAME/path", as proxies send it: there the name counts, whatever Host says.
    void read_target(std::string_view target) {
        constexpr std::string_view kScheme = "http://";
        if (target.size() >= kScheme.size() && ::strncasecmp(target.data(), kScheme.data(), kScheme.size()) == 0) {
            target.remove_prefix(kScheme.size());
            const size_t n_name = std::min(target.find_first_of("/?"), target.size());
            request_.host = target.substr(0, n_name);
            target.remove_prefix(n_name);
            if (target.empty() || target[0] == '?') target = "/";
        }
        request_.path = target.substr(0, target.find('?'));
    }

    void on_head(error_code ec) {
        if (phase_ == kClosed) return;
        if (ec) return refuse_framing(ec);
        const auto& head = parser_->get();
        is_http10_ = head.version() == 10;
        keeps_connection_ = head.keep_alive();
        const auto text = [&](auto name) {
            const auto value = head[name];
            return std::string(value.data(), value.size());
        };
        request_.method = std::string(head.method_string());
        request_.host = text(http::field::host);
        read_target(std::string_view(head.target().data(), head.target().size()));
        request_.origin = text(http::field::origin);
        request_.authorization = text(http::field::authorization);
        request_.api_key = text("x-api-key");
        request_.content_type = text(http::field::content_type);
        request_.content_encoding = text(http::field::content_encoding);
        request_.request_id = text("x-request-id");
        if (const std::string wrong = check_framing(); !wrong.empty()) return refuse(400, wrong);
        request_.declared_bytes = parser_->content_length().value_or(0);
        request_.has_body = parser_->chunked() || request_.declared_bytes > 0;
        const http_refusal refusal = server_.handlers.check(request_, 0, "");
        if (refusal.status) return refuse(refusal, request_.has_body);
        const uint64_t limit = server_.limits.max_body_bytes;
        if (request_.declared_bytes > limit)
            return refuse(413, "the body has " + std::to_string(request_.declared_bytes) + " bytes, the limit is " +
                                   std::to_string(limit));
        parser_->body_limit(limit);
        enter(kBody, server_.limits.body_seconds);
        if (request_.has_body && boost::beast::iequals(head[http::field::expect], "100-continue")) {
            static const std::string kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
            asio::async_write(socket_, asio::buffer(kContinue),
                              [self = shared_from_this()](error_code write_ec, size_t) {
                                  return write_ec ? self->close() : self->read_body();
                              });
            return;
        }
        read_body();
    }

    void read_body() {
        if (phase_ == kClosed) return;
        http::async_read(socket_, buffer_, *parser_,
                         [self = shared_from_this()](error_code ec, size_t) { self->on_request(ec); });
    }

    void on_request(error_code ec) {
        if (phase_ == kClosed) return;
        if (ec) return refuse_framing(ec);
        request_.body = std::move(parser_->get().body());
        begin_answer();
        watch();
        server_.handlers.handle(std::make_shared<http_exchange>(shared_from_this(), std::move(request_)));
    }

    void begin_answer() {
        is_last_ = closes_ = is_stream_ = false;
        stream_head_.clear();
        writing_.clear();
        pending_.clear();
        exchange_serial_++;
        enter(kAnswers, 0);
    }

    void refuse_framing(error_code ec) {
        if (timed_out_) return refuse(408, phase_ == kBody ? "the body took too long" : "the header took too long");
        if (ec == http::error::end_of_stream || ec == http::error::partial_message || ec == asio::error::eof ||
            ec.category() == asio::error::get_system_category())
            return close();
        const http_limits& limits = server_.limits;
        if (ec == http::error::header_limit || ec == http::error::buffer_overflow)
            return refuse(431, "the header is larger than " + std::to_string(limits.max_header_bytes) + " bytes");
        if (ec == http::error::body_limit)
            return refuse(413, "the body is larger than " + std::to_string(limits.max_body_bytes) + " bytes");
        refuse(400, "not HTTP/1.1: " + ec.message());
    }

    void refuse(int status, const std::string& message) {
        refuse(server_.handlers.check(request_, status, message), true);
    }

    void refuse(const http_refusal& r, bool closes) {
        if (phase_ == kClosed) return;
        std::string bytes = head(r.status, r.headers, "application/json", (int64_t)r.body.size(), closes);
        const bool is_head = parser_ && parser_->is_header_done() && parser_->get().method() == http::verb::head;
        if (!is_head) bytes += r.body;
        begin_answer();
        send(std::move(bytes), true, closes);
    }

    // ---- the client while its answer is made ----

    // Waits for the end of the connection. What a client sends ahead stays for the next request; after 64 KiB of it
    // nobody looks any more.
    void watch() {
        socket_.async_wait(stream_socket::wait_read,
                           [self = shared_from_this(), serial = exchange_serial_](error_code ec) {
                               if (serial != self->exchange_serial_ || self->phase_ != kAnswers || self->closes_)
                                   return;
                               if (ec) return self->close();
                               if (self->buffer_.size() >= (64u << 10)) return;
                               const size_t n = self->socket_.read_some(self->buffer_.prepare(16384), ec);
                               if (ec && ec != asio::error::would_block && ec != asio::error::interrupted)
                                   return self->close();
                               self->buffer_.commit(n);
                               self->watch();
                           });
    }

    void lose() {
        if (auto callback = std::exchange(gone_, nullptr)) callback();
    }

    // ---- writing ----

    void send(std::string bytes, bool is_last, bool closes) {
        if (phase_ != kAnswers || is_last_) return;
        if (pending_.empty()) pending_ = std::move(bytes);  // a large answer is not copied here: others would wait
        else pending_ += bytes;
        is_last_ = is_last;
        closes_ = closes_ || closes;
        last_write_ = std::chrono::steady_clock::now();
        if (is_stream_ && pending_.size() > server_.limits.max_unsent_bytes) return close();
        if (!is_writing_) write_some();
    }

    void write_some() {
        if (n_written_ == writing_.size()) {
            writing_.clear();
            std::swap(writing_, pending_);
            n_written_ = 0;
            if (writing_.empty()) return on_written();
        }
        is_writing_ = true;
        enter(phase_, server_.limits.write_seconds);
        socket_.async_write_some(asio::buffer(writing_.data() + n_written_, writing_.size() - n_written_),
                                 [self = shared_from_this()](error_code ec, size_t n) {
                                     self->is_writing_ = false;
                                     if (self->phase_ == kClosed) return;
                                     if (ec) return self->close();
                                     self->n_written_ += n;
                                     self->write_some();
                                 });
    }

    void on_written() {
        if (!is_last_) return enter(phase_, 0);
        gone_ = nullptr;
        std::string().swap(writing_);  // an idle connection keeps no large answer
        n_written_ = 0;
        keep_alive_timer_.cancel();
        exchange_serial_++;
        if (closes_ || is_http10_ || !keeps_connection_ || server_.is_draining) return linger();
        read_next();
    }

    // Ends the connection without losing the answer: a socket that is closed with unread bytes would be reset, and the
    // client might not see what was sent.
    void linger() {
        error_code none;
        socket_.shutdown(stream_socket::shutdown_send, none);
        if (phase_ != kLingers) {
            n_lingered_ = 0;
            enter(kLingers, 5);
        }
        socket_.async_read_some(asio::buffer(discard_), [self = shared_from_this()](error_code ec, size_t n) {
            self->n_lingered_ += n;
            if (ec || self->phase_ == kClosed || self->n_lingered_ > (64u << 20)) return self->close();
            self->linger();
        });
    }

    void keep_alive() {
        keep_alive_timer_.expires_after(seconds(server_.limits.keep_alive_seconds));
        keep_alive_timer_.async_wait([self = shared_from_this(), serial = exchange_serial_](error_code ec) {
            if (ec || serial != self->exchange_serial_ || self->phase_ != kAnswers || self->is_last_) return;
            const auto silent = std::chrono::steady_clock::now() - self->last_write_;
            if (silent >= seconds(self->server_.limits.keep_alive_seconds - 1)) {
                self->send(std::exchange(self->stream_head_, "") + self->keep_alive_text_, false, false);
            }
            self->keep_alive();
        });
    }

    // n_bytes -1: pieces, -2: no body
    std::string head(int status, const http_headers& headers, const char* content_type, int64_t n_bytes, bool closes) {
        const std::string reason(status == 200 ? "OK" : http::obsolete_reason((http::status)status));
        std::string text = "HTTP/1.1 " + std::to_string(status) + " " + reason + "\r\n";
        if (*content_type) text += std::string("Content-Type: ") + content_type + "\r\n";
        if (n_bytes >= 0) text += "Content-Length: " + std::to_string(n_bytes) + "\r\n";
        else if (n_bytes == -1)
            text += is_http10_ ? "Cache-Control: no-store\r\n"
                               : "Cache-Control: no-store\r\nTransfer-Encoding: chunked\r\n";
        text += "X-Content-Type-Options: nosniff\r\n";
        for (const auto& [name, value] : headers) text += name + ": " + value + "\r\n";
        if (closes || is_http10_ || !keeps_connection_ || server_.is_draining) text += "Connection: close\r\n";
        return text + "\r\n";
    }
};

// ---- an exchange ----

http_exchange::http_exchange(std::shared_ptr<http_connection> connection, http_request r)
    : request(std::move(r)), connection_(std::move(connection)) {}

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
    const bool is_empty = status == 204;
    std::string bytes =
        connection_->head(status, headers, is_empty ? "" : content_type, is_empty ? -2 : (int64_t)body.size(), false);
    if (request.method != "HEAD" && !is_empty) bytes += body;
    end_once();  // who has the answer finds it counted
    connection_->post([bytes = std::move(bytes)](http_connection& c) mutable {
        c.is_stream_ = false;
        c.send(std::move(bytes), true, false);
    });
}

// A piece of a body whose length is not known before.
std::string http_exchange::chunk(const std::string& text) const {
    if (connection_->is_http10_ || text.empty()) return text;
    char size[24];
    std::snprintf(size, sizeof size, "%zx\r\n", text.size());
    return size + text + "\r\n";
}

void http_exchange::expects_stream(const char* content_type, const std::string& keep_alive_text) {
    status_ = 200;
    connection_->post([head = connection_->head(200, headers, content_type, -1, false),
                       text = chunk(keep_alive_text)](http_connection& c) {
        if (c.phase_ != http_connection::kAnswers) return;
        c.is_stream_ = true;
        c.stream_head_ = head;
        c.keep_alive_text_ = text;
        c.last_write_ = std::chrono::steady_clock::now();
        c.keep_alive();
    });
}

void http_exchange::post_piece(std::string bytes, bool is_last) {
    connection_->post([bytes = std::move(bytes), is_last](http_connection& c) {
        c.send(std::exchange(c.stream_head_, "") + bytes, is_last, false);
    });
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

void http_exchange::on_gone(std::function<void()> callback) {
    connection_->post([callback = std::move(callback)](http_connection& c) {
        if (c.phase_ == http_connection::kClosed) callback();
        else if (c.phase_ == http_connection::kAnswers && !c.is_last_) c.gone_ = callback;
    });
}

// ---- the server ----

http_server::http_server(http_limits limits, http_handlers handlers)
    : state_(std::make_unique<state>(limits, std::move(handlers))) {}

http_server::~http_server() { forget_path(); }

void http_server::forget_path() {
    if (!state_->unix_path.empty()) ::unlink(state_->unix_path.c_str());
}

// Closes the connection that has waited longest for its next request, when there are too many.
void http_server::state::make_room() {
    if ((int)connections.size() < limits.max_connections) return;
    http_connection* oldest = nullptr;
    for (http_connection* c : connections)
        if (c->is_waiting() && (!oldest || c->since() < oldest->since())) oldest = c;
    if (oldest) oldest->shared_from_this()->close();
}

template <class acceptor_type> void http_server::state::accept(acceptor_type& acceptor) {
    acceptor.async_accept([this, &acceptor](error_code ec, typename acceptor_type::protocol_type::socket peer) {
        if (is_stopped || ec == asio::error::operation_aborted) return;
        if (ec) {  // too many open files: what is open goes on, and a later try may succeed
            make_room();
            retry.expires_after(std::chrono::milliseconds(50));
            retry.async_wait([this, &acceptor](error_code e) { return e ? void() : accept(acceptor); });
            return;
        }
        make_room();
        if ((int)connections.size() < limits.max_connections + 64) {
            error_code none;
            peer.non_blocking(true, none);                         // reads of watch() do not wait
            peer.set_option(asio::ip::tcp::no_delay(true), none);  // of no meaning for a path's sockets
            peer.set_option(asio::socket_base::send_buffer_size(256 << 10), none);
            // The last owner may be an answer on another thread; the end comes on this one.
            const auto end = [this](http_connection* c) {
                asio::dispatch(io, [owned = std::unique_ptr<http_connection>(c)] {});
            };
            std::shared_ptr<http_connection>(new http_connection(*this, stream_socket(std::move(peer))), end)
                ->read_next();
        }
        accept(acceptor);
    });
}

// Opens a listening socket. Returns "", or why it failed.
template <class acceptor_type, class endpoint_type>
static std::string open_acceptor(std::optional<acceptor_type>& acceptor, asio::io_context& io,
                                 const endpoint_type& endpoint, const std::string& name) {
    error_code ec;
    acceptor.emplace(io);
    acceptor->open(endpoint.protocol(), ec);
    if (!ec) acceptor->set_option(asio::socket_base::reuse_address(os::kReusesAddress), ec);
    if (!ec) acceptor->bind(endpoint, ec);
    if (!ec) acceptor->listen(asio::socket_base::max_listen_connections, ec);
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
    const std::string wrong = open_acceptor(s.local, s.io, endpoint, host);
    ::umask(before);
    if (!wrong.empty()) return wrong;
    s.accept(*s.local);
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
    const std::string wrong = open_acceptor(s.tcp, s.io, endpoint, host + ":" + std::to_string(port));
    if (!wrong.empty()) return wrong;
    const auto bound = s.tcp->local_endpoint();
    s.is_local = bound.address().is_loopback();
    const std::string text = bound.address().to_string();
    s.address = (bound.address().is_v6() ? "[" + text + "]" : text) + ":" + std::to_string(bound.port());
    return "";
}

const std::string& http_server::address() const { return state_->address; }
bool http_server::is_local() const { return state_->is_local; }
bool http_server::is_unix() const { return !state_->unix_path.empty(); }
int http_server::n_active() const { return state_->n_active; }

void http_server::run(std::function<void(int)> on_signal) {
    state& s = *state_;
    asio::signal_set signals(s.io, SIGINT, SIGTERM);
    std::function<void(error_code, int)> on = [&](error_code ec, int) {
        if (ec) return;
        on_signal(++s.n_signals);
        signals.async_wait(on);
    };
    signals.async_wait(on);
    if (s.tcp) s.accept(*s.tcp);
    s.io.run();
}

void http_server::drain() {
    asio::post(state_->io, [&s = *state_] {
        s.is_draining = true;
        std::vector<std::shared_ptr<http_connection>> idle;
        for (http_connection* c : s.connections)
            if (c->is_idle()) idle.push_back(c->shared_from_this());
        for (const auto& c : idle) c->close();
    });
}

void http_server::stop() {
    asio::post(state_->io, [&s = *state_] {
        s.is_stopped = true;
        s.io.stop();
    });
}

void http_server::after(std::chrono::milliseconds time, std::function<void()> work) {
    asio::post(state_->io, [&s = *state_, time, work = std::move(work)] {
        auto timer = std::make_shared<asio::steady_timer>(s.io, time);
        timer->async_wait([timer, work](error_code ec) { return ec ? void() : work(); });
    });
}

}  // namespace serve
