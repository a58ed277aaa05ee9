#!/usr/bin/env python3
"""Measures bin/serve, and llama-server beside it in alternating turns: same file, machine, threads and requests.

Requests are streams with random token ids as prompts (of random words where chat is asked), answers go on to their limit. Each
repetition asks one program, then the other; figures are medians over the repetitions.

    python3 benchmarks/server.py --synthetic 1b:q4_0 --llama-server PROGRAM -t 2 -r 3
    python3 benchmarks/server.py -m model.gguf --only speed,gap

What --only names:
  speed   new tokens a second and time to the first token for some clients at once; processor time for a token after the first
  alone   one client beside the same work in process (bin/bench): what HTTP, JSON and choosing a token cost
  gap     the longest silence of a running stream while a long prompt is read
  prefix  the first token of a prompt asked again, after other conversations, and by eight clients at once
  limits  speed with a schema and with tools beside without; the first token with a schema that is new and one seen before
  memory  resident size after eight clients, beside file and planned cache; processor use when idle
  leave   how soon the place of a client that left is free, in each phase (Duet alone: its gauges tell)
  many    64 clients at once; 500 idle connections; /health a second, and what a running stream notices of it
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TICKS = os.sysconf("SC_CLK_TCK")
median = statistics.median


class Server:
    """A program that serves the file, at a free port."""

    def __init__(self, name, args, n_ctx):
        self.name, self.n_slots = name, args.slots
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        common = ["-m", args.model, "-t", str(args.threads), "--port", str(self.port), "--host", "127.0.0.1",
                  "--chat-template", "chatml"]
        if name == "Duet":
            command = [args.serve, *common, "--slots", str(args.slots), "-c", str(n_ctx)]
        else:  # its -c is divided by the slots
            command = [args.llama_server, *common, "-np", str(args.slots), "-c", str(n_ctx * args.slots), "-tb",
                       str(args.threads), "--no-webui"]
        self.log = tempfile.TemporaryFile("w+")
        try:
            self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        except OSError as error:
            sys.exit(f"{name} did not start: {error}")
        end = time.monotonic() + 120
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                if self.ask("GET", "/health")[0] == 200:
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"{name} did not start: {' '.join(command)}\n{self.text()[-2000:]}")

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def seconds(self):
        """Processor time so far."""
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident(self, key="VmRSS"):
        with open(f"/proc/{self.process.pid}/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key + ":"))

    def connect(self):
        peer = socket.create_connection(("127.0.0.1", self.port), timeout=600)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return peer

    def send(self, peer, method, path, body=None):
        data = b"" if body is None else json.dumps(body).encode()
        peer.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost:{self.port}\r\nContent-Type: application/json\r\n"
                     f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)

    def ask(self, method, path, body=None):
        with self.connect() as peer:
            self.send(peer, method, path, body)
            data = b""
            while piece := peer.recv(65536):
                data += piece
        return int(data.split(b" ", 2)[1]), data

    def stream(self, body, path="/v1/completions", on_event=None):
        """Times of the events, and how many tokens the server counted."""
        with self.connect() as peer:
            start, times, data = time.perf_counter(), [], b""
            self.send(peer, "POST", path, {**body, "stream": True, "stream_options": {"include_usage": True}})
            while piece := peer.recv(65536):
                now = time.perf_counter()
                data += piece
                # a first delta that only has the role comes before the prompt is read
                n = data.count(b"\ndata: {") - data.count(b'"role":"assistant"')
                while len(times) < n:
                    times.append(now)
                    if on_event:
                        on_event(len(times))
        found = re.findall(rb'"completion_tokens": ?(\d+)', data)
        if not found or b"[DONE]" not in data:
            raise RuntimeError(f"{self.name}: {data[-300:]!r}")
        return result(start, times, int(found[-1]))


class result:
    def __init__(self, start, times, n_tok):
        self.start, self.times, self.n_tok = start, times, n_tok

    @property
    def first(self):
        return self.times[0] - self.start

    @property
    def rest(self):
        """Tokens a second after the first."""
        return (self.n_tok - 1) / (self.times[-1] - self.times[0])


def together(calls):
    """Runs the calls at once; gives back what they gave."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return [f.result() for f in [pool.submit(call) for call in calls]]


def prompt_of(n):
    return [random.randrange(300, prompt_of.n_vocab) for _ in range(n)]  # no control tokens, no bytes


def completion(prompt, n_gen, **more):
    return {"prompt": prompt, "max_tokens": n_gen, "temperature": 0, "ignore_eos": True, **more}


def in_turns(servers, n_reps, measure):
    """measure(server) gives a dict; the medians of each server's."""
    all_of = {s.name: [] for s in servers}
    for _ in range(n_reps):
        for s in servers:
            all_of[s.name].append(measure(s))
    return {name: {key: median(d[key] for d in dicts) for key in dicts[0]} for name, dicts in all_of.items()}


def table(title, head, rows):
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|---|{'---:|' * (len(head) - 1)}")
    for row in rows:
        print("| " + " | ".join(f"{x:.4g}" if isinstance(x, float) else str(x) for x in row) + " |")
    sys.stdout.flush()


@contextlib.contextmanager
def running(args, n_ctx):
    names = ["Duet"] + (["llama-server"] if args.llama_server else [])
    servers = []
    try:
        for name in names:
            servers.append(Server(name, args, n_ctx))
            found = re.search(rb'"n_vocab": ?(\d+)', servers[-1].ask("GET", "/v1/models")[1])
            prompt_of.n_vocab = min(args.vocab, int(found[1]) if found else args.vocab)
            if prompt_of.n_vocab <= 300:
                sys.exit(f"want a model of more than 300 ids, got {prompt_of.n_vocab}")
            for _ in range(2):
                servers[-1].stream(completion(prompt_of(args.prompt), 8))
        yield servers
    finally:
        for s in servers:
            s.end()


def measure_speed(args):
    rows, work = [], {}
    with running(args, 1024) as servers:
        for n in args.clients:
            def measure(s):
                prompts = [prompt_of(args.prompt) for _ in range(n)]
                used, start = s.seconds(), time.perf_counter()
                answers = together([lambda p=p: s.stream(completion(p, args.gen)) for p in prompts])
                wall, used = time.perf_counter() - start, s.seconds() - used
                # other prompts of that length and one token: what a token after the first costs is the difference
                prompts = [prompt_of(args.prompt) for _ in range(n)]
                only = s.seconds()
                together([lambda p=p: s.stream(completion(p, 1)) for p in prompts])
                only = s.seconds() - only
                return {"speed": sum(a.n_tok for a in answers) / wall, "first": 1000 * median(a.first for a in answers),
                        "work": 1000 * (used - only) / (sum(a.n_tok for a in answers) - n)}

            got = in_turns(servers, args.reps, measure)
            duet, peer = got["Duet"], got.get("llama-server")
            work[n] = duet["work"], peer["work"] if peer else 0.0
            rows.append([n, duet["speed"], duet["first"], duet["work"]] +
                        ([peer["speed"], peer["first"], peer["work"], duet["speed"] / peer["speed"]] if peer else []))
    head = ["clients", "Duet, new tok/s", "first token, ms", "processor ms a token"]
    if args.llama_server:
        head += ["llama-server, new tok/s", "first token, ms", "processor ms a token", "ratio of speed"]
    table(f"Prompts of {args.prompt}, answers of {args.gen} tokens, {args.slots} slots", head, rows)
    if 1 in work and 8 in work:
        print(f"\nProcessor time a token at 8 clients, of that at one: Duet {work[8][0] / work[1][0]:.2f}" +
              (f", llama-server {work[8][1] / work[1][1]:.2f}" if args.llama_server else ""))


def measure_alone(args):
    bench = [args.bench, "-m", args.model, "-t", str(args.threads), "-p", str(args.prompt), "-r", "1", "--json"]

    def in_process():
        done = subprocess.run(bench + ["-n", str(args.gen)], check=True, capture_output=True, text=True)
        tests = json.loads(done.stdout)["tests"]
        speed = {("prompt" if t.get("n_prompt") else "gen"): t["tok_per_s"] for t in tests}
        return speed["prompt"], speed["gen"]

    with running(args, 1024) as servers:
        rows = []
        for _ in range(args.reps):
            prompt, gen = in_process()
            answer = servers[0].stream(completion(prompt_of(args.prompt), args.gen))
            rows.append((gen, answer.rest, 1000 * args.prompt / prompt, 1000 * answer.first))
    gen, rest, first_in, first = (median(column) for column in zip(*rows))
    table("One client beside the same work in process", ["what", "in process", "server", "ratio"],
          [["new tok/s", gen, rest, rest / gen], ["first token, ms", first_in, first, first_in / first]])
    print(f"\nCost of a token over HTTP: {1000 / rest - 1000 / gen:.2f} ms")


def measure_gap(args):
    with running(args, 4096) as servers:
        def measure(s):
            started = threading.Event()
            long_prompt = {}

            def read_prompt():
                started.wait()
                long_prompt["first"] = s.stream(completion(prompt_of(3000), 1)).times[0]

            reader = threading.Thread(target=read_prompt)
            reader.start()
            # Letters only: random weights like parts of characters, which send no event until the character is whole.
            answer = s.stream(completion(prompt_of(32), 600, grammar="root ::= [a-z ]*"),
                              on_event=lambda n: n == 20 and started.set())
            reader.join()
            begin = answer.times[19]
            at = [t for t in answer.times if begin <= t <= long_prompt["first"]]
            gaps = [1000 * (b - a) for a, b in zip(at, at[1:])] or [1000 * (answer.times[-1] - begin)]
            return {"longest": max(gaps), "median": median(gaps), "first": long_prompt["first"] - begin}

        got = in_turns(servers, args.reps, measure)
    table("A running stream while a prompt of 3,000 tokens is read",
          ["program", "longest gap, ms", "median gap, ms", "prompt's first token, s"],
          [[name, d["longest"], d["median"], d["first"]] for name, d in got.items()])


def measure_prefix(args):
    with running(args, 4096) as servers:
        def measure(s):
            prefix = prompt_of(1000)
            fresh = s.stream(completion(prefix + prompt_of(4), 1)).first
            again = s.stream(completion(prefix + prompt_of(4), 1)).first
            for _ in range(12):
                s.stream(completion(prompt_of(300), 1))
            after = s.stream(completion(prefix + prompt_of(4), 1)).first
            shared = prompt_of(1000)
            start = time.perf_counter()
            answers = together([lambda: s.stream(completion(shared + prompt_of(4), 1)) for _ in range(8)])
            eight = max(a.times[0] for a in answers) - start
            return {"fresh": 1000 * fresh, "again": fresh / again, "after": fresh / after, "eight": eight / fresh}

        got = in_turns(servers, args.reps, measure)
    table("The same 1,000 tokens again", ["program", "new, ms to the first token", "again, times sooner",
                                          "after 12 other conversations, times sooner", "eight at once, of the time of one"],
          [[name, d["fresh"], d["again"], d["after"], d["eight"]] for name, d in got.items()])


def schema_of(n):
    """One of its own for each n; no answer keeps to it before its limit of tokens."""
    item = {"type": "object", "additionalProperties": False, "required": ["a", f"b{n}"],
            "properties": {"a": {"type": "string"}, f"b{n}": {"type": "integer"}}}
    return {"type": "json_schema", "json_schema": {"name": f"s{n}", "strict": True, "schema": {
        "type": "array", "minItems": 1000, "items": item}}}


PARAMETERS = {"type": "object", "properties": {"x": {"type": "string"}, "y": {"type": "integer"}}, "required": ["x"]}
TOOLS = [{"type": "function", "function": {"name": f"tool_{i}", "description": "does a thing", "parameters": PARAMETERS}}
         for i in range(4)]


def measure_limits(args):
    numbers = iter(range(1000, 10000))
    with running(args, 4096) as servers:
        def measure(s):
            def ask(text=None, **more):
                text = text or " ".join(f"t{i}" for i in prompt_of(8))
                body = {"messages": [{"role": "user", "content": text}], "max_tokens": args.gen, "temperature": 0,
                        "ignore_eos": True}
                return s.stream({**body, **more}, "/v1/chat/completions")

            n = next(numbers)
            text = " ".join(f"t{i}" for i in prompt_of(8))
            ask(text)
            plain = ask(text)
            new, seen = ask(text, response_format=schema_of(n)), ask(text, response_format=schema_of(n))
            ask(text, tools=TOOLS)
            tools = ask(text, tools=TOOLS)
            return {"schema": seen.rest / plain.rest, "tools": tools.rest / plain.rest, "plain": plain.rest,
                    "new": 1000 * (new.first - plain.first), "seen": 1000 * (seen.first - plain.first)}

        got = in_turns(servers, args.reps, measure)
    table("With a schema, with tools", ["program", "tok/s without", "with a schema, ratio", "with tools, ratio",
                                        "a new schema before the first token, ms", "one seen before, ms"],
          [[name, d["plain"], d["schema"], d["tools"], d["new"], d["seen"]] for name, d in got.items()])


def measure_memory(args):
    rows, size = [], os.path.getsize(args.model)
    with running(args, 1024) as servers:
        for s in servers:
            together([lambda: s.stream(completion(prompt_of(args.prompt), args.gen)) for _ in range(8)])
            planned = re.search(r"cache ([\d.]+) \(", s.text()) if s.name == "Duet" else None
            used = s.seconds()
            time.sleep(5)
            idle = (s.seconds() - used) / 5
            over = (s.resident() - size) / 1e6 - float(planned[1]) if planned else "-"
            rows.append([s.name, s.resident() / 1e6, s.resident("RssAnon") / 1e6, over, f"{100 * idle:.1f} %"])
    table(f"Memory after 8 clients, {args.slots} slots of 1,024 tokens; the file has {size / 1e6:.0f} MB",
          ["program", "resident, MB", "of it not the file, MB", "over file and planned cache, MB", "idle processor use"],
          rows)


def measure_leave(args):
    with running(args, 4096) as servers:
        server = servers[0]

        def gauge(name):
            return float(re.search(rf"^{name} (\S+)$", server.ask("GET", "/metrics")[1].decode(), re.M)[1])

        def begin(body, name="duet_requests_running"):
            peer, n_before = server.connect(), gauge(name)
            server.send(peer, "POST", "/v1/completions", body)
            while gauge(name) == n_before:
                time.sleep(0.005)
            return peer

        def leave(body, name="duet_requests_running"):
            peer, n_others = begin(body, name), gauge(name) - 1
            time.sleep(0.3)
            start = time.perf_counter()
            peer.close()
            while gauge(name) > n_others:
                time.sleep(0.001)
            return 1000 * (time.perf_counter() - start)

        def endless(**more):
            return {**completion(prompt_of(16), 4000), **more}

        times = []
        for _ in range(args.reps):
            alone = [leave(completion(prompt_of(4000), 1)), leave(endless(stream=True)), leave(endless())]
            others = [begin(endless(stream=True)) for _ in range(args.slots - 1)]
            beside = [leave(completion(prompt_of(3900), 1)), leave(endless(stream=True))]
            others.append(begin(endless(stream=True)))
            times.append(alone + beside + [leave(endless(), "duet_requests_waiting")])
            for peer in others:
                peer.close()
            while gauge("duet_requests_running"):
                time.sleep(0.01)
    phases = ["its prompt is read", "written to", "waiting for the whole answer", "its prompt is read beside others",
              "written to beside others", "queued"]
    table("A client leaves: its place is free after", ["phase", "median, ms", "longest, ms"],
          [[phase, median(column), max(column)] for phase, column in zip(phases, zip(*times))])


def measure_many(args):
    rows = []
    with running(args, 1024) as servers:
        for s in servers:
            start = time.perf_counter()
            answers = together([lambda: s.stream(completion(prompt_of(16), 8)) for _ in range(64)])
            all_64 = time.perf_counter() - start
            idle = []
            with contextlib.suppress(OSError):  # some programs take no more at a point
                for _ in range(500):
                    idle.append(s.connect())
            waits, n, end = [], 0, time.perf_counter() + 5
            before = s.resident()

            def health():
                nonlocal n
                with s.connect() as peer:
                    while time.perf_counter() < end:
                        begin = time.perf_counter()
                        peer.sendall(f"GET /health HTTP/1.1\r\nHost: localhost:{s.port}\r\n\r\n".encode())
                        if not peer.recv(4096).startswith(b"HTTP/1.1 200"):
                            raise RuntimeError("/health failed")
                        waits.append(time.perf_counter() - begin)
                        n += 1

            alone = s.stream(completion(prompt_of(16), 40))
            end = time.perf_counter() + 5
            try:
                got = together([health] * 4 + [lambda: s.stream(completion(prompt_of(16), 40))])
                gap = 1000 * max(b - a for a, b in zip(got[-1].times, got[-1].times[1:]))
            except OSError as error:
                got, gap = None, str(error)
            quiet = 1000 * max(b - a for a, b in zip(alone.times, alone.times[1:]))
            waits.sort()
            most, longest = (1000 * waits[int(len(waits) * 0.99)], 1000 * waits[-1]) if waits else ("-", "-")
            rows.append([s.name, f"{len(answers)} in {all_64:.1f} s", len(idle), n / 5, most, longest, quiet, gap,
                         (s.resident() - before) / 1e6])
            for peer in idle:
                peer.close()
    table("Many clients: 64 at once; then 500 idle connections, and four clients that ask /health beside a stream",
          ["program", "64 answered", "idle connections", "/health a second", "99 % in, ms", "longest, ms",
           "stream's longest gap before, ms", "stream's longest gap beside /health, ms", "memory grown, MB"], rows)


ALL = {"speed": measure_speed, "alone": measure_alone, "gap": measure_gap, "prefix": measure_prefix,
       "limits": measure_limits, "memory": measure_memory, "leave": measure_leave, "many": measure_many}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", help="a GGUF file")
    parser.add_argument("--synthetic", metavar="SHAPE:FORMAT", help="random weights, as bin/bench")
    parser.add_argument("--serve", default=os.path.join(ROOT, "bin", "serve"))
    parser.add_argument("--bench", default=os.path.join(ROOT, "bin", "bench"))
    parser.add_argument("--llama-server", metavar="PROGRAM", help="the peer")
    parser.add_argument("--only", default=",".join(ALL), help="a list of what to measure")
    parser.add_argument("--clients", default="1,4,8,16", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("-p", "--prompt", type=int, default=128)
    parser.add_argument("-n", "--gen", type=int, default=64)
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=30000, help="ids of prompts are smaller")
    parser.add_argument("-r", "--reps", type=int, default=3)
    args = parser.parse_args()
    wanted = args.only.split(",")
    if not set(wanted) <= set(ALL):
        parser.error(f"--only: want some of {', '.join(ALL)}")
    if bool(args.model) == bool(args.synthetic):
        parser.error("want -m FILE or --synthetic SHAPE:FORMAT")
    if args.model and not os.path.exists(args.model):
        sys.exit(f"{args.model}: no such file")
    if min(args.reps, args.threads, args.slots, args.prompt, args.gen - 1, *args.clients) < 1:
        parser.error("want 2 or more of -n, and 1 or more of -p, -r, -t, --slots and --clients")
    random.seed(1)
    prompt_of.n_vocab = args.vocab
    git = ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    with open("/proc/cpuinfo") as file:
        processor = next((line.split(": ")[1].strip() for line in file if line.startswith("model name")), "?")
    command = " ".join(["benchmarks/server.py", *sys.argv[1:]])
    print(f"{time.strftime('%Y-%m-%d')}, commit {commit}, {os.cpu_count()} cores of {processor}: {command}")
    with tempfile.TemporaryDirectory() as folder:
        if args.synthetic:
            args.model = os.path.join(folder, "synthetic.gguf")
            if subprocess.run([args.bench, "--synthetic", args.synthetic, "--save", args.model]).returncode:
                sys.exit(1)  # bench said why
        for name in wanted:
            ALL[name](args)


if __name__ == "__main__":
    main()
