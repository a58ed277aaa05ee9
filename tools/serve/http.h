// tools/serve/http.h: HTTP/1.1 on sockets. One thread serves all connections; any thread may answer a request.
// Owns: framing, limits, time limits, slow and lost clients, draining, threads that answer. Must not know: routes,
// keys, what is served. Main path: serve.cpp -> [http.h] -> routes.cpp
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace serve {

// What a client sent.
struct http_request {
    std::string method, path;  // the path as it was sent, without the query
    std::string host, origin, authorization, api_key, content_type, content_encoding, request_id, body;
};

class http_connection;
using http_headers = std::vector<std::pair<std::string, std::string>>;

// A request and its answer. Any thread may call it, one at a time. Every exchange is answered: one that is dropped
// without an answer closes its connection.
class http_exchange {
  public:
    explicit http_exchange(std::shared_ptr<http_connection> connection);
    ~http_exchange();
    http_exchange(const http_exchange&) = delete;
    http_exchange& operator=(const http_exchange&) = delete;

    http_request request;
    http_headers headers;    // further headers of the answer
    std::string log_fields;  // what the log tells about the answer, as JSON members
    const std::chrono::steady_clock::time_point arrived = std::chrono::steady_clock::now();

    // Answers in one piece.
    void answer(int status, std::string body, const char* content_type = "application/json");
    // Answers piece by piece: start, any number of writes, finish. A stream that stays silent gets keep_alive_text
    // every 10 s, from the time that expects_stream was called.
    void expects_stream(const char* content_type, const std::string& keep_alive_text);
    void write(const std::string& piece);
    void finish();
    // Runs work that takes long on a thread that does nothing else.
    void run_aside(std::function<void()> work);
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

// Where a server listens, and what it is at.
struct http_place {
    std::string address, unix_path;  // "127.0.0.1:8080" or "unix:/path"; the file of a unix socket, or ""
    bool is_local = false;           // only this machine reaches it
    int n_active = 0;                // requests that are not answered to their end, for the thread of the connections
};

struct http_handlers {
    // Looks at the head of a request before its body is read, and may answer it. With a status it has to: that is what
    // is wrong with the framing of a request as far as it was read. Called on the thread of the connections.
    std::function<void(const http_place&, const exchange_ptr&, int status, const std::string& message)> check;
    // Gets a whole request: on the thread of the connections if it has no body, else on another one.
    std::function<void(const exchange_ptr&)> handle;
};

class http_server {
  public:
    http_server(uint64_t max_body_bytes, http_handlers handlers);
    ~http_server();
    // Opens the listening socket. host: an address, a name, or unix:/path. Returns "", or why it failed.
    std::string listen(const std::string& host, int port);
    const http_place& place() const;
    void forget_path();  // removes the file of a unix socket
    // Serves until stop(), and waits for what is being answered on other threads. on_signal gets the signals INT and
    // TERM, on this thread.
    void run(std::function<void(int n_signals)> on_signal);
    // From now on idle connections are closed and no connection is kept. Thread: that of the connections.
    void drain();
    // Ends run(). Thread: any.
    void stop();
    // Runs a function after a time. Thread: that of the connections.
    void after(std::chrono::milliseconds time, std::function<void()> work);

    struct state;

  private:
    std::unique_ptr<state> state_;
};

}  // namespace serve
