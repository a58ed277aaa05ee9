#!/bin/sh
# deploy/start.sh NAME -m FILE [flags of serve]: starts the servers that deploy/NAME wants before the program of
# deploy/NAME, which stays in the foreground. Ctrl-C ends all of them.
#   PORT=8080          where clients ask; the servers listen at the ports that follow
#   SERVE=bin/serve    the server
#   POLICY=...         how the routers choose (cache_aware)
#   TOOLS=DIR          where the programs of the wheels are (a virtual environment's bin), if not in PATH
set -eu
here=$(cd "$(dirname "$0")" && pwd)
name=${1:-}
case $name in
    nginx|haproxy|envoy|litellm) n_servers=2 ;;
    sglang-router|vllm-router) n_servers=3 ;;
    ray) n_servers=0 ;;
    *) echo "usage: deploy/start.sh nginx|haproxy|envoy|litellm|sglang-router|vllm-router|ray -m FILE [flags of serve]" >&2
       exit 2 ;;
esac
shift
port=${PORT:-8080}
serve=${SERVE:-$here/../bin/serve}
[ -z "${TOOLS:-}" ] || PATH=$TOOLS:$PATH
PATH=$PATH:/usr/sbin
work=$(mktemp -d)
chmod 711 "$work"   # of root's nginx, the worker is another user
pids='' front=''

finish() {
    trap '' INT TERM
    # the front goes first, so that it asks no server that is gone
    for pid in $front $pids; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap 'finish' EXIT
trap 'exit 0' INT TERM

i=0 urls=''
while [ $i -lt $n_servers ]; do
    i=$((i + 1))
    "$serve" "$@" --port $((port + i)) >"$work/server$i.log" 2>&1 &
    pids="$pids $!"
    urls="$urls http://127.0.0.1:$((port + i))"
done
i=0
for pid in $pids; do
    i=$((i + 1))
    until grep -q "^serve: http" "$work/server$i.log"; do
        kill -0 "$pid" 2>/dev/null || { cat "$work/server$i.log" >&2; exit 1; }
        sleep 0.05
    done
    echo "start.sh: server $i: pid $pid, port $((port + i))"
done

# the configurations are written for 8080 and the ports that follow
config() {
    sed -e "s/\b8081\b/$((port + 1))/g" -e "s/\b8082\b/$((port + 2))/g" -e "s/\b8080\b/$port/g" \
        "$here/$name/$1" >"$work/$1"
}
case $name in
    nginx)
        config nginx.conf
        nginx -e stderr -p "$work" -c "$work/nginx.conf" & ;;
    haproxy)
        config haproxy.cfg
        haproxy -q -f "$work/haproxy.cfg" & ;;
    envoy)
        config envoy.yaml
        envoy --log-level warning --use-dynamic-base-id -c "$work/envoy.yaml" & ;;
    litellm)
        config config.yaml
        : "${LITELLM_MASTER_KEY:?want the key that clients send, as sk-...}"
        export OTHER_API_BASE="${OTHER_API_BASE:-http://127.0.0.1:$((port + 2))/v1}" OTHER_API_KEY="${OTHER_API_KEY:-none}"
        export DUET_API_KEY="${DUET_API_KEY:-none}" LITELLM_MASTER_KEY
        # its list of prices is of no use here, and is not fetched
        export LITELLM_LOCAL_MODEL_COST_MAP="${LITELLM_LOCAL_MODEL_COST_MAP:-True}"
        litellm --config "$work/config.yaml" --host 127.0.0.1 --port "$port" & ;;
    sglang-router|vllm-router)
        launch=launch suffix=
        [ "$name" = sglang-router ] || { launch='' suffix=ing; }
        # No origin but its own: by default any web page may read answers. A retry goes to another server as soon as the
        # health check has seen that one is gone, so retries last longer than its interval.
        # shellcheck disable=SC2086  # the addresses are words
        "$name" $launch --host 127.0.0.1 --port "$port" --worker-urls $urls --policy "${POLICY:-cache_aware}" \
            --health-check-endpoint /readyz --health-check-interval-secs 1 --health-check-timeout-secs 2 \
            --health-failure-threshold 2 --health-success-threshold 1 --log-level warn$suffix \
            --retry-max-retries 6 --retry-initial-backoff-ms 100 --retry-backoff-multiplier 2 \
            --prometheus-host 127.0.0.1 --prometheus-port $((port + 4)) --max-payload-size 16777216 \
            --cors-allowed-origins "http://127.0.0.1:$port" "http://localhost:$port" & ;;
    ray)
        SERVE=$serve python3 "$here/ray/app.py" --port "$port" -- "$@" & ;;
esac
front=$!
wait $front
