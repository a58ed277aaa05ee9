"""The servers that tests ask: one with a model whose answers are known, started once; others as tests need them."""
import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import time

import openai
import pytest
import requests

SERVE = os.environ.get("DUET_SERVE", "bin/serve")
KNOWN = os.environ.get("DUET_KNOWN", "build/release/tests/known_model")
DEMO = "models/demo.gguf"


class Server:
    def __init__(self, model, *flags, env=None):
        command = [SERVE, "-m", model, "--port", "0", "-t", "1", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **(env or {})})
        ready, _, _ = select.select([self.process.stdout], [], [], 30)
        self.line = self.process.stdout.readline() if ready else ""
        found = re.search(r"http://([^ ]*):(\d+)", self.line)
        self.host, self.port = (found[1], int(found[2])) if found else ("", 0)
        self.url = f"http://{self.host}:{self.port}"

    def post(self, path, body, **kwargs):
        return requests.post(self.url + path, json=body, timeout=60, **kwargs)

    def get(self, path, **kwargs):
        return requests.get(self.url + path, timeout=60, **kwargs)

    def client(self, key="none"):
        return openai.OpenAI(base_url=self.url + "/v1", api_key=key, max_retries=0, timeout=60)

    def connect(self):
        peer = socket.create_connection((self.host.strip("[]"), self.port), timeout=40)
        return peer

    def raw(self, data, wait=40):
        """Sends bytes as they are; gives back all that comes until the server closes."""
        with self.connect() as peer:
            peer.settimeout(wait)
            with contextlib.suppress(ConnectionError):
                peer.sendall(data)
            return read_all(peer)

    def metric(self, name):
        for line in self.get("/metrics").text.splitlines():
            if line.split(" ")[0] == name:
                return float(line.split(" ")[1])
        return None

    def wait_for(self, name, value, seconds=5.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.metric(name) == value:
                return True
            time.sleep(0.01)
        return False

    def end(self, sign=signal.SIGTERM, wait=40):
        if self.process.poll() is None:
            self.process.send_signal(sign)
        try:
            return self.process.wait(wait)
        finally:
            self.process.kill()
            self.process.stdout.close()
            self.process.stderr.close()


def read_all(peer):
    data = b""
    with contextlib.suppress(ConnectionError, socket.timeout):
        while piece := peer.recv(65536):
            data += piece
    return data


@pytest.fixture(scope="session")
def known_file(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("model") / "known.gguf")
    subprocess.run([KNOWN, path], check=True)
    return path


@pytest.fixture(scope="session")
def known(known_file):
    server = Server(known_file, "--alias", "known,second", "--embeddings")
    assert server.port, server.process.stderr.read()
    yield server
    assert server.end() == 0


@pytest.fixture(scope="session")
def demo():
    server = Server(DEMO)
    yield server
    assert server.end() == 0


@pytest.fixture
def start():
    """Starts servers that end with the test."""
    servers = []

    def begin(*args, **kwargs):
        servers.append(Server(*args, **kwargs))
        return servers[-1]

    yield begin
    for server in servers:
        server.end(signal.SIGKILL)


def ask(script, **more):
    """A conversation that is answered by a script of the known model."""
    return {"model": "known", "messages": [{"role": "user", "content": "hi"}], "temperature": 0,
            "chat_template_kwargs": {"script": script}, **more}
