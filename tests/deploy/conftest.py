"""Starts what deploy/start.sh starts, at free ports, and ends it."""
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest
import requests

SERVE = os.path.abspath(os.environ.get("DUET_SERVE", "bin/serve"))
KNOWN = os.environ.get("DUET_KNOWN", "build/release/tests/known_model")
TOOLS = os.path.abspath(os.environ.get("DUET_TOOLS", "build/venv-more/bin"))
PROGRAMS = {"nginx": "nginx", "haproxy": "haproxy", "envoy": "envoy", "litellm": "litellm",
            "sglang-router": "sglang-router", "vllm-router": "vllm-router", "ray": "ray"}
KEY = "sk-only-for-this-test"
SCRIPT_PATH = f"{TOOLS}:{os.environ['PATH']}:/usr/sbin"


def free_ports(n):
    """The first of n ports in a row that nobody listens at."""
    while True:
        base = random.randrange(20000, 30000)
        try:
            for port in range(base, base + n):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
            return base
        except OSError:
            continue


class Deployment:
    """A program of deploy/ and the servers behind it."""

    def __init__(self, name, *flags, env=None):
        self.name, self.flags = name, flags
        self.port = free_ports(5)
        self.url = f"http://127.0.0.1:{self.port}"
        self.headers = {"Authorization": f"Bearer {KEY}"}
        self.log = open(os.path.join(os.environ.get("TMPDIR", "/tmp"), f"deploy-{name}-{self.port}.log"), "w+")
        self.process = subprocess.Popen(
            ["deploy/start.sh", name, *flags], stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, "PORT": str(self.port), "SERVE": SERVE, "TOOLS": TOOLS, "LITELLM_MASTER_KEY": KEY,
                 **(env or {})})
        self.started = {}
        self.wait_until_ready()

    def text(self):
        with open(self.log.name) as file:
            return file.read()

    def wait_until_ready(self):
        end = time.monotonic() + 90
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if self.get("/v1/models").status_code == 200 and self.ask().status_code == 200:
                    return
            except requests.RequestException:
                pass
            time.sleep(0.1)
        pytest.fail(f"{self.name} did not start:\n{self.text()}")

    def servers(self):
        """Process and address of each server."""
        if self.name == "ray":  # the replica has started it, at a port of its choice
            return listening(SERVE, self.flags)
        found = re.findall(r"server \d: pid (\d+), port (\d+)", self.text())
        return [(int(pid), f"http://127.0.0.1:{port}") for pid, port in found]

    def get(self, path, **kwargs):
        return requests.get(self.url + path, headers=self.headers, timeout=30, **kwargs)

    def post(self, path, body, headers=None):
        def send():
            return requests.post(self.url + path, json=body, headers={**self.headers, **(headers or {})}, timeout=60)

        try:
            return send()
        except requests.ConnectionError:
            if self.name != "litellm":
                raise
            # LiteLLM has closed a connection without an answer in one run of twelve; its clients try again, as this does
            return send()

    def ask(self, text="hi", headers=None, **more):
        return self.post("/v1/chat/completions",
                         {"model": "duet", "temperature": 0, "messages": [{"role": "user", "content": text}], **more},
                         headers)

    def counts(self):
        """How many answers each server has given."""
        return [sum(value for name, value in metrics(url) if name.startswith("duet_request_generation_tokens_count"))
                for _, url in self.servers()]

    def running(self):
        return sum(value for _, url in self.servers() for name, value in metrics(url)
                   if name in ("duet_requests_running", "duet_requests_waiting"))

    def end(self):
        """Ends all by the signal of a Ctrl-C; gives back whether they ended by themselves."""
        pids = [pid for pid, _ in self.servers()]
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
            return not any(is_alive(pid) for pid in pids)
        except subprocess.TimeoutExpired:
            return False
        finally:
            for pid in pids:
                if is_alive(pid):
                    os.kill(pid, signal.SIGKILL)
            self.process.kill()
            self.log.close()
            os.unlink(self.log.name)


def listening(program, flags):
    """Processes that run a program with these flags, and where they listen, as /proc has it."""
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file][1:]
    ports = {row[9]: int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A"}
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                if file.read().split("\0")[:1 + len(flags)] != [program, *flags]:
                    continue
            links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            found += [(int(pid), f"http://127.0.0.1:{ports[link[8:-1]]}") for link in links if link[8:-1] in ports]
        except OSError:
            continue
    return found


def metrics(url):
    lines = requests.get(url + "/metrics", timeout=10).text.splitlines()
    return [(line.split(" ")[0], float(line.split(" ")[1])) for line in lines if not line.startswith("#")]


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="session")
def known_file(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("model") / "known.gguf")
    subprocess.run([KNOWN, path], check=True)
    return path


def want(program):
    found = shutil.which(program, path=SCRIPT_PATH)
    if not found:
        pytest.skip(f"not run: no {program}")
    return found


@pytest.fixture(scope="module")
def deployments(known_file):
    """Starts a deployment once for the tests of a file; a second name ends the first."""
    current = []

    def begin(name):
        want(PROGRAMS[name])
        if not current or current[0].name != name or current[0].process.poll() is not None:
            if current:
                assert current.pop().end(), f"{name}: something stays"
            current.append(Deployment(name, "-m", known_file, "--alias", "duet", "-t", "1", "-c", "60000",
                                      "--cache-bytes", "64M"))
        return current[0]

    yield begin
    if current:
        assert current.pop().end()
