#!/bin/sh
# tests/desktop.sh: the window of examples/desktop driven by a keyboard and a mouse on a screen of Xvfb: a model that does not load, one that
# loads slowly, a loading that is given up, an answer, an answer that is stopped, the window closed at rest, while it loads and while it
# answers. What the window says is read from its title and from the clipboard. Pictures of each state: $BUILD/desktop_shots.
#   BUILD=build/release tests/desktop.sh      15 seconds after the build
# apt-get install qt6-base-dev xvfb xdotool xclip python3 fonts-dejavu-core (imagemagick for the pictures). It says what it misses, and skips.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build/release}
for program in Xvfb xdotool xclip python3 pkg-config; do
    command -v $program >/dev/null || { echo "skipped: the desktop example: no $program"; exit 0; }
done
pkg-config --exists Qt6Widgets || { echo "skipped: the desktop example: no qt6-base-dev"; exit 0; }
make -s BUILD="$build" desktop "$build/tests/chat_model"

dir=$(mktemp -d)
shots=$build/desktop_shots
mkdir -p "$shots" "$dir/run"
pid='' screen=''
trap 'kill $pid $screen 2>/dev/null || true; rm -rf "$dir"' EXIT
Xvfb -displayfd 3 -screen 0 900x600x24 3>"$dir/display" 2>/dev/null &
screen=$!
for i in $(seq 100); do [ -s "$dir/display" ] && break; sleep 0.05; done
DISPLAY=:$(cat "$dir/display")
export DISPLAY XDG_RUNTIME_DIR="$dir/run" QT_QPA_PLATFORM=xcb

mkdir "$dir/models"
"$build/tests/chat_model" "$dir/models/chat.gguf"
cp models/demo.gguf "$dir/models/plain.gguf"  # has no chat template
head -c 100000 "$dir/models/chat.gguf" >"$dir/models/truncated.gguf"
# A slow disk: the library announces each tensor that it is about to read, and that takes 0.2 s.
cat >"$dir/slow.c" <<'C'
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
int madvise(void* at, size_t n, int advice) {
    if (advice == MADV_WILLNEED) usleep(200000);
    return (int)syscall(SYS_madvise, at, n, advice);
}
C
${CC:-cc} -shared -fPIC -o "$dir/slow.so" "$dir/slow.c"
# What a window manager sends when the cross is clicked: WM_DELETE_WINDOW.
cat >"$dir/cross.py" <<'PY'
import ctypes, sys
x = ctypes.CDLL("libX11.so.6")
x.XOpenDisplay.restype = ctypes.c_void_p
x.XInternAtom.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
x.XInternAtom.restype = ctypes.c_ulong
x.XSendEvent.argtypes = [ctypes.c_void_p, ctypes.c_ulong, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
x.XSync.argtypes = [ctypes.c_void_p, ctypes.c_int]
class message(ctypes.Structure):  # XClientMessageEvent
    _fields_ = [("type", ctypes.c_int), ("serial", ctypes.c_ulong), ("sent", ctypes.c_int), ("display", ctypes.c_void_p),
                ("window", ctypes.c_ulong), ("kind", ctypes.c_ulong), ("format", ctypes.c_int), ("data", ctypes.c_long * 5)]
class event(ctypes.Union):
    _fields_ = [("message", message), ("pad", ctypes.c_long * 24)]
screen = x.XOpenDisplay(None)
e = event()
e.message.type, e.message.window, e.message.format = 33, int(sys.argv[1]), 32
e.message.kind = x.XInternAtom(screen, b"WM_PROTOCOLS", 0)
e.message.data[0] = x.XInternAtom(screen, b"WM_DELETE_WINDOW", 0)
x.XSendEvent(screen, e.message.window, 0, 0, ctypes.byref(e))
x.XSync(screen, 0)
PY

fail() { echo "tests/desktop.sh: $*"; shot failed; exit 1; }
shot() { if command -v import >/dev/null; then import -window root "$shots/$1.png"; fi; }
title() { xdotool getwindowname "$window"; }
wait_for() {  # SECONDS TITLE
    for i in $(seq $(($1 * 20))); do [ "$(title)" = "$2" ] && return; sleep 0.05; done
    fail "want the title '$2' within $1 s, got '$(title)'"
}
keys() { xdotool key --delay 20 "$@"; }
say() { xdotool type --delay 5 "$1"; keys Return; }
click() { xdotool mousemove "$1" "$2" click 1; sleep 0.1; }
text_at() {  # X Y: all text of the field there
    printf nothing | xclip -i -selection clipboard
    click "$1" "$2"
    keys ctrl+a ctrl+c
    for i in $(seq 20); do [ "$(xclip -o -selection clipboard 2>/dev/null)" = nothing ] || break; sleep 0.05; done
    xclip -o -selection clipboard
}
talk() { text_at 400 500; }
estimate() { text_at 60 44; }
has() { printf '%s' "$1" | grep -q -- "$2" || fail "want '$2' in: $(printf '%s' "$1" | tail -c 300)"; }
choose() { click 300 20; xdotool type "$1"; keys Return; sleep 0.3; }  # a model by its first letter
begin() {
    env "$@" "$build/desktop" "$dir/models" 2>"$dir/err" &
    pid=$!
    window=$(xdotool search --sync --onlyvisible --name "^Duet:" | head -n 1)
    xdotool windowfocus "$window"
    wait_for 5 "Duet: no model"
    sleep 0.3
}
ends() {  # how it was closed: the program is gone within a second, and says that all is well
    for i in $(seq 20); do kill -0 $pid 2>/dev/null || break; sleep 0.05; done
    kill -0 $pid 2>/dev/null && fail "closed $1: still there after a second"
    code=0
    wait $pid || code=$?
    [ $code = 0 ] || { cat "$dir/err"; fail "closed $1: exit code $code"; }
    echo "closed $1: gone within a second, exit code 0"
}
cross() { python3 "$dir/cross.py" "$window"; }

begin A=b
click 600 20
sleep 0.3
shot devices
keys Escape
shot estimate
has "$(estimate)" "^Needs .* MB of memory: weights 1.3 MB, cache .* GB are free"
choose t
has "$(estimate)" "truncated.gguf"
keys alt+l
wait_for 5 "Duet: no model, truncated.gguf"
shot truncated
has "$(talk)" "Not loaded: .*truncated.gguf.*"
choose p
keys alt+l
wait_for 5 "Duet: no model, plain.gguf"
has "$(talk)" "plain.gguf has no chat template"
echo "models that cannot be loaded: told why"
choose c
keys alt+l
wait_for 5 "Duet: ready, chat.gguf"
say "hello you"
wait_for 5 "Duet: ready, chat.gguf"
shot answer
has "$(talk)" "^Hello world\.$"
click 300 540
say "think now"
wait_for 5 "Duet: ready, chat.gguf"
has "$(talk)" "^Forty-two$"
echo "an answer, and one with thinking before it"
click 300 540
say "long"
wait_for 5 "Duet: answering, chat.gguf"
keys alt+s  # at once: this model fills its context in half a second
wait_for 1 "Duet: ready, chat.gguf"
shot stopped
said=$(talk)
has "$said" "All work and no play.*\[stopped\]$"
sleep 0.3
[ "$(talk)" = "$said" ] || fail "words after the stop"
click 300 540
say "wide now"
wait_for 5 "Duet: ready, chat.gguf"
has "$(talk)" "漢字 😀 café$"
echo "a stopped answer, and the next one"
click 300 540
say "long"
wait_for 5 "Duet: answering, chat.gguf"
cross
ends "while it answers"

begin LD_PRELOAD="$dir/slow.so"
keys alt+l
wait_for 5 "Duet: loading, chat.gguf"
sleep 1
shot loading
keys alt+l
wait_for 1 "Duet: no model, chat.gguf"
has "$(talk)" "Not loaded: .*chat.gguf: loading was cancelled"
keys alt+l
wait_for 10 "Duet: ready, chat.gguf"
has "$(talk)" "Loaded chat.gguf"
echo "slow loading: given up, then waited for"
click 300 540
say "hello again"
wait_for 5 "Duet: ready, chat.gguf"
keys alt+l
wait_for 5 "Duet: loading, chat.gguf"
sleep 0.5
cross
ends "while it loads"

begin A=b
keys ctrl+q
ends "at rest"
echo "desktop: all good"
