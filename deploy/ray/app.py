"""Ray Serve with replicas that each start one server and pass requests through, streams too.

python3 deploy/ray/app.py [--port 8080] [--replicas 1] -- -m FILE [flags of serve]
SERVE names the server (default: bin/serve of this tree).
"""
import argparse
import os
import re
import signal
import subprocess
import sys

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when ray is imported: nobody is told of the use

import aiohttp
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

# These belong to one connection, not to the request or answer (RFC 9110, 7.6.1). X-Request-Id Ray sets itself.
OF_A_CONNECTION = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "proxy-connection"}


@serve.deployment(max_ongoing_requests=264, health_check_period_s=2, graceful_shutdown_timeout_s=40)
class Duet:
    def __init__(self, program, flags):
        self.process = subprocess.Popen([program, *flags, "--port", "0"], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        if not found:
            raise RuntimeError(f"{program} did not start: exit code {self.process.wait()}")
        self.url = found[0]
        self.session = None

    async def check_health(self):
        async with self.client().get(self.url + "/livez", timeout=aiohttp.ClientTimeout(total=5)) as answer:
            answer.raise_for_status()

    def client(self):
        if self.session is None:
            self.session = aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None),
                                                 connector=aiohttp.TCPConnector(limit=0))
        return self.session

    async def __call__(self, request: Request):
        headers = [(k, v) for k, v in request.headers.items() if k not in OF_A_CONNECTION and k != "content-length"]
        path = request.url.path + ("?" + request.url.query if request.url.query else "")
        try:
            answer = await self.client().request(request.method, self.url + path, headers=headers,
                                                 data=await request.body(), allow_redirects=False)
        except aiohttp.ClientError:
            return Response('{"error": {"message": "the server of this replica is gone", "type": "server_error", '
                            '"param": null, "code": null}}', 503, media_type="application/json")
        headers = {k: v for k, v in answer.headers.items() if k.lower() not in (*OF_A_CONNECTION, "x-request-id")}

        async def pieces():
            try:
                async for piece in answer.content.iter_any():
                    yield piece
            finally:  # also when the client leaves: the server then frees its slot
                answer.close()

        return StreamingResponse(pieces(), answer.status, headers)

    def __del__(self):
        # SIGTERM: running answers finish
        self.process.terminate()
        self.process.wait()


def main():
    own, flags = sys.argv[1:], []
    if "--" in own:
        own, flags = own[:own.index("--")], own[own.index("--") + 1:]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--replicas", type=int, default=1)
    args = parser.parse_args(own)
    # replicas start in another directory
    flags = [os.path.abspath(f) if i and flags[i - 1] in ("-m", "--model") else f for i, f in enumerate(flags)]
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    program = os.path.abspath(os.environ.get("SERVE", os.path.join(root, "bin", "serve")))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ray.init(include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": args.host, "port": args.port})
    serve.run(Duet.options(num_replicas=args.replicas).bind(program, flags))
    print(f"app.py: Ray Serve answers at http://{args.host}:{args.port}", flush=True)
    try:
        while True:
            signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main()
