// tools/serve/http.h: HTTP/1.1 on sockets. One thread serves all connections; any thread may answer a request.
// Owns: framing, limits, time limits, slow and lost clients, draining. Must not know: routes, keys, what is served.
// Main path: serve.cpp -> [http.h] -> routes.cpp
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace serve {

// What arrived before the body, and then the body.
struct http_request {
    std::string method, path;  // the path as it was sent, without the query
    std::string host, origin, authorization, api_key, content_type, content_encoding, request_id;
    bool has_body = false;
    uint64_t declared_bytes = 0;  // Content-Length, 0 for a chunked body
    std::string body;
};

class http_connection;
using http_headers = std::vector<std::pair<std::string, std::string>>;

// A request and its answer. Any thread may call it, one at a time. Every exchange is answered: one that is dropped
// without an answer closes its connection.
class http_exchange {
  public:
    http_exchange(std::shared_ptr<http_connection> connection, http_request request);
    ~http_exchange();
    http_exchange(const http_exchange&) = delete;
    http_exchange& operator=(const http_exchange&) = delete;

    http_request request;
    http_headers headers;    // further headers of the answer
    std::string log_fields;  // what the log tells about the answer, as JSON members
    std::chrono::steady_clock::time_point arrived = std::chrono::steady_clock::now();

    // Answers in one piece.
    void answer(int status, std::string body, const char* content_type = "application/json");
    // Answers piece by piece: start, any number of writes, finish. A stream that stays silent gets keep_alive_text
    // every 10 s, from the time that expects_stream was called.
    void expects_stream(const char* content_type, const std::string& keep_alive_text);
    void write(const std::string& piece);
    void finish();
    // Called once, on the thread of the connections, when the client has left before its answer was complete.
    void on_gone(std::function<void()> callback);
    int status() const { return status_; }
    // Called by the destructor, or when the answer is complete.
    std::function<void(http_exchange&)> on_end;

  private:
    void end_once();
    void post_piece(std::string bytes, bool is_last);
    std::string chunk(const std::string& text) const;
    std::shared_ptr<http_connection> connection_;
    bool is_over_ = false;
    int status_ = 0;
};
using exchange_ptr = std::shared_ptr<http_exchange>;

// What the server asks before it reads a body. status 0: read it.
struct http_refusal {
    int status = 0;
    std::string body;
    http_headers headers;
};

struct http_limits {
    uint64_t max_body_bytes = 16u << 20;
    uint32_t max_header_bytes = 32u << 10;
    int max_connections = 2048;
    size_t max_unsent_bytes = 1u << 20;  // of a stream whose client does not read
    int header_seconds = 10, body_seconds = 30, idle_seconds = 75, write_seconds = 30, keep_alive_seconds = 10;
};

struct http_handlers {
    // Looks at the head of a request; with a status: words what the framing refuses, of a request as far as it was
    // read. Called on the thread of the connections.
    std::function<http_refusal(http_request&, int status, const std::string& message)> check;
    // Gets a whole request. Called on the thread of the connections.
    std::function<void(exchange_ptr)> handle;
};

class http_server {
  public:
    http_server(http_limits limits, http_handlers handlers);
    ~http_server();
    // Opens the listening socket. host: an address, a name, or unix:/path. Returns "", or why it failed.
    std::string listen(const std::string& host, int port);
    // The address that was bound, "127.0.0.1:8080" or "unix:/path"; whether only this machine reaches it.
    const std::string& address() const;
    bool is_local() const;
    bool is_unix() const;
    void forget_path();  // removes the file of a unix socket
    // Serves until stop(). on_signal gets the signals INT and TERM, on this thread.
    void run(std::function<void(int n_signals)> on_signal);
    // From now on idle connections are closed and no connection is kept. Thread: any.
    void drain();
    void stop();
    // Runs a function on the thread of the connections, after a time. Thread: any.
    void after(std::chrono::milliseconds time, std::function<void()> work);
    // Requests that are not answered to their end. Thread: that of the connections.
    int n_active() const;

    struct state;

  private:
    std::unique_ptr<state> state_;
};

}  // namespace serve
