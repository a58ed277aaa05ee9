#!/usr/bin/env python3
"""tests/test_cli_chat.py: `run` with a chat model, constraints and a prompt cache, in scripts and on a terminal.

  python3 tests/test_cli_chat.py RUN BIN_FOLDER CHAT_MODEL_PROGRAM

CHAT_MODEL_PROGRAM writes the model (tests/chat_model.cpp): the first word of a message chooses the answer. One line per
failed case; exit code 0 when there is none. WINDOWS=1: RUN is a program of Windows, under Wine (tests/windows.sh).
"""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

run_path, bin_path, writer = sys.argv[1:4]
folder = tempfile.TemporaryDirectory()
n_cases = n_failed = 0
told = ""  # the last program's stderr


def path(name, text=None):
    full = os.path.join(folder.name, name)
    if text is not None:
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)
    return full


def check(name, is_good, shown=""):
    global n_cases, n_failed
    n_cases += 1
    if not is_good:
        n_failed += 1
        print(f"FAILED: {name}: {str(shown)[-600:]!r}")


def run(name, *args, code=0, out=None, err="", stdin="", model=True, program=None):
    """Runs it; out is the whole stdout, err a text in stderr. Returns stdout."""
    global told
    command = [program or run_path, *(["-m", chat] if model else []), *args]
    try:
        done = subprocess.run(command, input=stdin.encode(), capture_output=True, timeout=120)
    except subprocess.TimeoutExpired as late:
        check(name + ": ends", False, late)
        return ""
    got, told = done.stdout.decode(), done.stderr.decode()
    if os.environ.get("WINDOWS"):  # where one of Wine's own processes may crash as it starts, and tells it here
        told = re.sub(r"^wine: .*\n", "", told, flags=re.M)
    check(f"{name}: exit code {code}", done.returncode == code, (done.returncode, told))
    check(f"{name}: stderr has {err!r}", err in told, told)
    if out is not None:
        check(f"{name}: stdout", got == out, got)
    if code:
        check(f"{name}: one line of error", told.count("\n") == 1 and not got.replace("\n", ""), told)
    return got


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


chat = path("chat.gguf")
subprocess.run([writer, chat], check=True)
plain = path("plain.gguf")
subprocess.run([os.path.join(bin_path, "bench"), "--synthetic", "tiny:q8_0", "--save", plain], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
greedy = ["--temp", "0"]
tools = path("tools.json", json.dumps([{"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]))

# ---- answers ----
run("an answer", "-p", "hello there", *greedy, out="Hello world.", err="--raw completes the text as it is")
run("from a file", "-f", path("q.txt", "wide\n"), *greedy, out="漢字 😀 café")
run("from stdin", "-p", "-", *greedy, stdin="hello\n", out="Hello world.")
run("stdin is not read", "-p", "hello", *greedy, stdin="wide\n", out="Hello world.")
run("stop text", "-p", "hello", *greedy, "--stop", "world", out="Hello ", err="(stop)")
run("a limit", "-p", "long", *greedy, "-n", "2", out="All work and no play", err="generated 2 ")
run("without an end", "-p", "hello", *greedy, "-n", "20", "--ignore-eos", err="generated 20 ")
run("thinking is not shown", "-p", "think", *greedy, out="Forty-two")
run("thinking is shown", "-p", "think", *greedy, "--show-thinking", out="I wonder.\nForty-two")
run("bytes are as they are in a file", "-p", "escape", *greedy, out="red\x1b[31mbeep\x07c1\x9b2J\ttab\r\nend")
run("the system message", "-p", "hello", "--system", "Be kind.", "--verbose-prompt", *greedy, out="Hello world.", err='"<|im_start|>"')
run("control tokens are text", "-p", "hello <|im_end|>", "--verbose-prompt", *greedy, out="Hello world.", err='"<0x3C>"')
check("raw", run("raw", "--raw", "-p", "hello", "-n", "5", "-s", "1", err="generated 5 ") != "Hello world.")
check("no template", run("no template", "-m", plain, "-p", "t300", "-n", "4", "-s", "1", "--ignore-eos", model=False) != "")
run("a built-in template", "-m", plain, "--chat-template", "chatml", "-p", "x", "-n", "4", "-s", "1", model=False, err="generated 4 ")
run("a template from a file", "-p", "x", "--chat-template", path("t.jinja", "{{ '<|go6|>' }}"), *greedy, out="It is sunny!")
shown = run("--show-template", "--show-template")
check("--show-template: the template", shown.startswith("{% set starts = ") and shown.endswith("{%- endif %}"), shown)
events = lines_of(run("--json", "-p", "think", "--json", *greedy))
check("--json: events", [e["event"] for e in events] == ["thinking", "thinking", "text", "text", "end"], events)
check("--json: the end", events[-1]["reason"] == "end" and events[-1]["n_generated"] == 6, events)

# ---- messages and tools ----
messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "hello"}]
run("--messages", "--messages", path("m.json", json.dumps(messages)), *greedy, out="Hello world.")
run("--messages from stdin", "--messages", "-", *greedy, stdin=json.dumps(messages), out="Hello world.")
run("--messages and -p", "--messages", path("m.json"), "-p", "wide", *greedy, out="漢字 😀 café")
run("an unfinished answer", "--messages", "-", "--verbose-prompt", "-n", "0", stdin=json.dumps(messages + [{"role": "assistant", "content": "Hel"}]), out="", err="prompt ")
call = '{"id":"call00000","name":"weather","arguments":{"city": "Paris"}}\n'
run("a call", "-p", "call", "--tools", tools, *greedy, out="Let me see.\n" + call)
events = lines_of(run("a call in JSON", "-p", "call", "--tools", tools, "--json", *greedy))
check("a call in JSON: events", [e["event"] for e in events] == ["text", "call_begin", "call_piece", "call_end", "end"], events)
got = lines_of(run("a call that must be", "-p", "hello", "--tools", tools, "--tool-choice", "required", "-n", "200", "-s", "1", "--logit-bias", "37-inf", "--think", "off"))
check("a call that must be: it is one", len(got) == 1 and got[0]["name"] == "weather", got)
run("the result of a call", "--messages", "-", "--tools", tools, *greedy, out="It is sunny!", stdin=json.dumps([
    {"role": "user", "content": "call"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "call00000", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "call00000", "content": "sunny"}]))

# ---- what is wrong is said in one line ----
run("raw and chat", "--raw", "--system", "x", "-p", "x", code=2, err="--raw completes a text, --system is for chats")
run("stdin twice", "--messages", "-", "-p", "-", code=2, err="stdin can be one thing only")
run("no question", code=2, err="no prompt")
run("a flag of completions", "-p", "x", "--no-bos", code=1, err="--no-bos is for completions: add --raw")
run("--think", "-p", "x", "--think", "maybe", code=2, err="want on or off")
run("--ctx-overflow", "-p", "x", "--ctx-overflow", "grow", code=2, err="want error or drop-turns")
run("no template, --chat", "-m", plain, "--chat", model=False, code=1, err="--chat-template NAME or FILE")
run("an unknown template", "-p", "x", "--chat-template", "nope", code=1, err="chatml, llama3")
run("a template that is not there", "-p", "x", "--chat-template", "nope.jinja", code=1, err="nope.jinja: cannot be read: No such file")
run("a broken template", "-p", "x", "--chat-template", path("b.jinja", "a\n{% if %}"), code=1, err="line 2")
run("a template that refuses", "-p", "x", "--chat-template", path("r.jinja", "{{ raise_exception('only questions') }}"), code=1, err="only questions")
run("broken messages", "--messages", path("bad.json", '[{"role": "user", "content": }]'), code=1, err="bad.json: JSON: at byte 29")
run("a message without a role", "--messages", path("bad.json", '[{"content": "x"}]'), code=1, err="message 0: want an object with a \"role\"")
run("no messages file", "--messages", path("none.json"), "-p", "x", code=1, err="none.json")
run("broken tools", "-p", "x", "--tools", path("bad.json", "[{]"), code=1, err="tools: JSON: at byte 2")
run("tools of another kind", "-p", "x", "--tools", path("bad.json", "{}"), code=1, err="tools: want a list")
run("tools, a form without calls", "-p", "x", "--tools", tools, "--chat-template", path("t.jinja"), code=1, err="calls")
run("a tool that is not there", "-p", "x", "--tools", tools, "--tool-choice", "news", code=1, err="news")
odd = '[{"name": "f", %s "parameters": {"properties": {"a": {"not": {}}}}}]'
run("a choice of no tools", "-p", "x", "--tool-choice", "auto", code=2, err="--tool-choice wants --tools FILE")
run("a schema of a tool", "-p", "x", "--tools", path("odd.json", odd % ""))
run("a schema of a strict tool", "-p", "x", "--tools", path("odd.json", odd % '"strict": true,'), code=1, err="#/properties/a/not")

# ---- grammars and schemas ----
run("a grammar", "--raw", "-p", "x", "--grammar", 'root ::= "yes" | "no"', "-s", "3", err="(end)")
for raw in (["--raw"], ["--chat-template", "chatml"]):  # a template without thinking, which would be free
    got = run("a grammar " + str(raw), *raw, "-p", "hello", "--grammar-file", path("g.gbnf", 'root ::= "yes, " [a-c]{3}'), "-s", "3", "--temp", "2")
    check(f"a grammar is kept to {raw}", re.fullmatch("yes, [a-c]{3}", got), got)
    for i, schema in enumerate(['{"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 5}}, "required": ["n"], "additionalProperties": false}', "@" + path("s.json", '{"enum": [1, "two"]}')]):
        got = run(f"a schema {raw}", *raw, "-p", "hello", "--json-schema", schema, "-s", "3", "--temp", "2")
        check(f"a schema is kept to {raw}", json.loads(got) in (1, "two") if i else 3 <= json.loads(got)["n"] <= 5, got)
    run(f"a broken grammar {raw}", *raw, "-p", "x", "--grammar", 'root ::= "a', code=1, err="line 1")
    run(f"a broken schema {raw}", *raw, "-p", "x", "--json-schema", '{"properties": {"age": {"minimum": "3"}}}', code=1, err="#/properties/age/minimum")
run("two constraints", "-p", "x", "--grammar", "root ::= \"a\"", "-j", "{}", code=2, err="one of --grammar, --grammar-file")
run("no grammar file", "-p", "x", "--grammar-file", path("none"), code=1, err="none")

# ---- the prompt cache ----
for raw in (["--raw"], []):
    cache = path("cache" + str(len(raw)))
    args = [*raw, "-p", "hello, how are you?", "-n", "8", "-s", "5", "--repeat-penalty", "1.5", "--prompt-cache", cache]
    first = run(f"a new cache {raw}", *args)
    check(f"a cache is there {raw}", os.path.getsize(cache) > 100)
    again = run(f"a cache {raw}", *args, err=" known)")
    check(f"a cache changes nothing {raw}", first == again, (first, again))
    longer = run(f"a cache and a longer prompt {raw}", *raw, "-p", "hello, how are they?", "-n", "8", "-s", "5", "--prompt-cache", cache, err=" known)")
    check(f"a longer prompt is the same {raw}", longer == run("no cache", *raw, "-p", "hello, how are they?", "-n", "8", "-s", "5"), longer)
    with open(cache, "r+b") as f:
        f.seek(200)
        f.write(b"\xff\xfe\xfd\xfc")
    check(f"a damaged cache {raw}", run(f"damaged {raw}", *args, err="the prompt is computed anew") == first)
    run(f"the damaged one was replaced {raw}", *args, err=" known)")
    run(f"of another model {raw}", "-m", plain, "-p", "t300", "-n", "2", "-s", "1", "--ignore-eos", "--prompt-cache", cache, model=False, err="the prompt is computed anew")
done = subprocess.run([run_path, "-m", chat, "-p", "hello", "--prompt-cache", path("none/cache")], capture_output=True)
check("a cache in no folder", done.returncode == 1 and b"none/cache: cannot be written" in done.stderr, done.stderr)
check("a cache in no folder: told before the answer", done.stdout == b"" and b"generated" not in done.stderr, done)
check("nothing is left beside caches", not [n for n in os.listdir(folder.name) if n.startswith("cache") and len(n) > 6], os.listdir(folder.name))

# ---- a chat without a terminal ----
run("a chat in a script", "--chat", *greedy, stdin="hello\nwide\n", out="Hello world.\n漢字 😀 café\n")
run("a chat: the mark of UTF-8 is no part of the first line", "--chat", *greedy, stdin="\ufeff/undo\n", out="", err="no question yet")
run("a chat: lines that go on", "--chat", *greedy, stdin="hello\\\nwide\n\n", out="Hello world.\n")
run("a chat that begins with -p", "--chat", "-p", "hello", *greedy, stdin="think", out="Hello world.\nForty-two\n")
run("a chat: //", "--chat", *greedy, stdin="//etc\n", out="Hello world.\n")
run("a chat: no such command", "--chat", stdin="/etc\n", out="", err="/etc is no command")
run("a chat: undo, regen, reset", "--chat", *greedy, stdin="/undo\nhello\nwide\n/undo\n/regen\n/reset\n/regen\n/quit\nhello\n",
    out="Hello world.\n漢字 😀 café\nHello world.\n", err="forgotten; 2 messages are left")
run("a chat: system", "--chat", "--system", "a", *greedy, stdin="/system b\nhello\n/system\n/undo\n/stats\n", out="Hello world.\n", err="0 messages")
run("a chat: tools", "--chat", "--tools", tools, *greedy, stdin="call\nsunny\nhello\n", out="Let me see.\n" + call + "It is sunny!\nHello world.\n")
cut = '{"id":"call00000","name":"weather","cut_off":"{\\"city\\": \\"Paris\\"}"}\n'
run("a chat: what follows a call that was cut off is no result", "--chat", "--tools", tools, "-n", "4", *greedy, stdin="call\nhello\n", out="Let me see.\n" + cut + "Hello world.\n")
saved = path("saved")
run("a chat: save", "--chat", *greedy, stdin=f"hello\n/save {saved}\n/save\n", out="Hello world.\n", err="/save wants a file")
run("a chat: save to stdout", "--chat", stdin="/save -\n", out="", err="/save wants a file")
run("a chat: save again", "--chat", *greedy, stdin=f"hello\n/save {saved}\n", out="Hello world.\n", err="saved to")
notes = path("notes.txt", "kept")
for other in (chat, notes):
    kept = open(other, "rb").read()
    run("a chat: save over another file", "--chat", stdin=f"/save {other}\n", code=1, err="want a saved conversation or a new file")
    check("a chat: the other file is as it was", open(other, "rb").read() == kept)
run("a chat: lines of Windows", "--chat", *greedy, stdin="hello\\\r\nwide\r\n/quit\r\nhello\n", out="Hello world.\n")
run("a chat: /quit with a blank", "--chat", *greedy, stdin="/quit \nhello\n", out="")
run("a chat: stats of no answer", "--chat", stdin="/stats\n", out="", err="0 messages")
check("a chat: stats of no answer tell no speed", "(error)" not in told, told)
run("a chat: load", "--chat", *greedy, stdin=f"/load {saved}\nwide\n/stats\n", out="漢字 😀 café\n", err="4 messages")
run("a chat: a loaded state is not computed again", "--chat", *greedy, stdin=f"/load {saved}\nwide\n/stats\n", err=" known)")
run("a chat: load of another model", "-m", plain, "--chat", "--chat-template", "chatml", model=False, stdin=f"/load {saved}\n", code=1, err="saved: ")
run("a chat: load of no chat", "--chat", stdin=f"/load {path('q.txt')}\n", code=1, err="q.txt: ")
events = lines_of(run("a chat in JSON", "--chat", "--json", *greedy, stdin="hello\nhello\n"))
check("a chat in JSON: two ends", [e["event"] for e in events].count("end") == 2, events)
many = "hello there\n" * 500
run("500 turns", "--chat", "-c", "160", *greedy, stdin=many, out="Hello world.\n" * 500, err="the context of 160 tokens is full: the oldest")
run("500 turns, the system message stays", "--chat", "-c", "160", "--system", "sys", "-v", *greedy, stdin=many + f"/save {path('long')}\n", out="Hello world.\n" * 500)
kept = re.findall(rb'"role": ?"(\w+)"', open(path("long"), "rb").read(2000))
check("the system message is still there, and the oldest turns are not", kept[0] == b"system" and len(kept) < 20 and kept[1] == b"user", kept)
done = subprocess.run([run_path, "-m", chat, "--chat", "-c", "160", "--ctx-overflow", "error", *greedy], input=many.encode(), capture_output=True)
check("error instead", done.returncode == 1 and b"n_ctx is 160" in done.stderr and b"dropped" not in done.stderr, done.stderr)
demo = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models", "demo.gguf")
if os.path.exists(demo):
    args = ["-m", demo, "--chat-template", "chatml", "-c", "160", "-n", "110", "-s", "1", "--ignore-eos", "-p", "Once upon a time", "--messages",
            path("two.json", json.dumps([{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi, how are you?"}]))]
    cut = run("an answer longer than the context", *args, model=False, err="(context)")
    whole = run("it goes on after a turn was dropped", *args, "--ctx-overflow", "drop-turns", model=False, err="generated 110 ")
    check("and says so", "the oldest turn is dropped" in told, told)
    check("and begins in the same way", whole.startswith(cut) and len(whole) > len(cut), (cut, whole))
else:
    print("skipped: 1 case: an answer longer than the context: no models/demo.gguf")


# ---- signals without a terminal ----
talk = subprocess.Popen([run_path, "-m", chat, "--chat", "-c", "200000", *greedy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
talk.stdin.write(b"long\n")
talk.stdin.flush()
check("a signal: an answer begins", talk.stdout.read(40).startswith(b"All work and no play"))
talk.send_signal(signal.SIGINT)
talk.stdin.write(b"/reset\nhello\n")
talk.stdin.flush()
seen = b""
while not seen.endswith(b"Hello world.\n") and len(seen) < 1 << 22:
    seen += talk.stdout.read1(65536)
check("a signal: the next line is answered", seen.endswith(b"\nHello world.\n"), seen)
late = "a signal that comes while the answer ends belongs to the answer; a later one does not"
for _ in range(10):
    talk.send_signal(signal.SIGINT)
    try:
        late = talk.wait(3)
        break
    except subprocess.TimeoutExpired:
        pass
check("a signal: with nothing to stop it ends", late == 0, late)
talk.kill()


# ---- bin/template ----
template = os.path.join(bin_path, "template")
run("template -m", "-m", chat, "--ids", model=False, program=template, stdin='[{"role": "user", "content": "hello <|im_end|>"}]')
ids = json.loads(run("template --ids", "-m", chat, "--ids", model=False, program=template, stdin='[{"role": "user", "content": "<|im_end|>"}]'))
check("template: a message's marker is text", ids.count(260) == 1, ids)
run("template -m: the text", "-m", chat, "--no-generation-prompt", model=False, program=template, stdin='{"messages": [{"role": "user", "content": "a"}]}', out="<|im_start|>user a<|im_end|>")
given = '"messages": [{"role": "user", "content": "a"}]'
run("template -m: no answer", "-m", chat, model=False, program=template, stdin='{"add_generation_prompt": false, %s}' % given, out="<|im_start|>user a<|im_end|>")
run("template -m: broken JSON", "-m", chat, model=False, program=template, stdin='{%s, "x": }' % given, code=1, err="byte")
run("template -m: a variable", "-m", chat, model=False, program=template, stdin='{"add_generation_prompt": false, %s, "enable_thinking": false}' % given, out="<|im_start|>user a<|im_end|><think></think>")
run("template -t", "-t", path("x.jinja", "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{{ add_generation_prompt }}{{ x }}"), "--bos", "B", model=False, program=template, stdin='{"x": 7, "messages": [{"content": "a"}]}', out="BaTrue7")
run("template -m: another's variables", "-m", chat, "--eos", "E", model=False, program=template, code=2, err="--bos and --eos want -t FILE")
run("template -t, a list", "-t", path("x.jinja"), "--no-generation-prompt", model=False, program=template, stdin=' [{"content": "a"}]', out="aFalse")
run("template -t, broken JSON", "-t", path("x.jinja"), model=False, program=template, stdin='{"x": 7, "messages": [}', code=1, err="byte")
run("template -t, a broken list", "-t", path("x.jinja"), model=False, program=template, stdin='\n[{"content": }]', code=1, err="at byte 14: want a value, got '}]'")
run("template --jsonl", "--jsonl", "--now", "2026-01-02T03:04:05", model=False, program=template, stdin='{"t": "{{ strftime_now(\'%Y\') }}\\u00e9\\ud83d\\ude00", "v": {}}\n')


def end_of_test():
    print(f"test_cli_chat: {n_cases} cases, {n_failed} failed")
    sys.exit(n_failed != 0)


if os.environ.get("WINDOWS"):
    print("skipped: the terminal: tests/console_windows.py, because Wine draws consoles in its own way")
    end_of_test()


# ---- a terminal ----
class Terminal:
    def __init__(self, *args, env=None, command=None):
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm", "LANG": "C", **(env or {})})
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and its children would
            command = command or [run_path, "-m", chat, *args]
            os.execv(command[0], command)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 50, 0, 0))

    def wait(self, name, pattern, seconds=30):
        """Reads until the pattern was written; what follows it stays for the next wait. Returns the text up to there."""
        end = time.time() + seconds
        while time.time() < end:
            found = re.search(pattern, self.text, re.S)
            if found:
                seen, self.text = self.text[:found.end()], self.text[found.end():]
                check(name, True)
                return seen
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    bytes_ = os.read(self.fd, 65536)
                except OSError:  # the program has ended
                    bytes_ = b""
                if not bytes_:
                    break
                self.text += bytes_.decode("utf-8", "replace")
        check(name, False, self.text)
        return ""

    def type(self, text):
        os.write(self.fd, text.encode())

    def ask(self, name, text, pattern):
        self.type(text)
        return self.wait(name, pattern)

    def end(self, name, code=0):
        end = time.time() + 30
        while time.time() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                check(name, os.waitstatus_to_exitcode(status) == code, status)
                os.close(self.fd)
                return
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    os.read(self.fd, 65536)
                except OSError:
                    pass
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        check(name + ": it ends", False)


prompt = r"\r\x1b\[J(\x1b\[1m)?> (\x1b\[0m)?\r\x1b\[2C"
t = Terminal("--chat", "-c", "200000", *greedy)
t.wait("terminal: the prompt", r"/help lists the commands.*" + prompt)
seen = t.ask("terminal: an answer", "helo\x1b[Dl\r", r"\r\n.*Hello world\.\r\n.*" + prompt)
check("terminal: the line is shown", "> \x1b[0mhello" in seen, seen)
t.ask("terminal: wide characters", "wide 漢字\x1b[D\x1b[Dx", r"> (\x1b\[0m)?wide x漢字\r\x1b\[8C")
t.ask("terminal: their answer", "\r", "漢字 😀 café\r\n.*" + prompt)
seen = t.ask("terminal: thinking is dimmed", "think\r", r"Forty-two\r\n.*" + prompt)
check("terminal: codes around it", "\x1b[2mI wonder.\r\n\x1b[22mForty-two" in seen, seen)
seen = t.ask("terminal: controls are visible", "escape\r", r"\^M\r\nend\r\n.*" + prompt)
check("terminal: no escape of the model", "red^[[31mbeep^Gc1<9b>2J\ttab^M" in seen and "\x1b[31m" not in seen, seen)
t.ask("terminal: history", "\x1b[A\x1b[A\x1b[A\x1b[A\r", r"Hello world\.\r\n.*" + prompt)
t.ask("terminal: two lines", "hello \\\rcolumns\x1b\rthree\r", r"columns.*three.*Hello world\.\r\n.*" + prompt)
t.ask("terminal: pasted", "\x1b[200~hello\rb\rc\x1b[201~", r"> (\x1b\[0m)?hello\r+\nb\r+\nc\r\x1b\[1C")
t.ask("terminal: pasted text is sent", "\r", r"Hello world\.\r\n.*" + prompt)
t.ask("terminal: an answer without end", "long\r", r"no play and no play and no play")
t.ask("terminal: Ctrl-C stops it", "\x03", r"\r\n.*" + prompt)
t.ask("terminal: and the chat goes on", "hello\r", r"Hello world\.\r\n.*" + prompt)
os.kill(t.pid, signal.SIGINT)
t.ask("terminal: a signal from outside does not end the next answer", "hello\r", r"Hello world\.\r\n.*" + prompt)
t.ask("terminal: undo of that", "/undo\r", r"forgotten; \d+ messages.*" + prompt)
t.ask("terminal: undo", "/undo\r", r"forgotten; \d+ messages.*" + prompt)
t.ask("terminal: regen", "/regen\r", r"no play and no play and no play")
t.ask("terminal: Ctrl-C stops it again", "\x03", r"\r\n.*" + prompt)
t.ask("terminal: Ctrl-C clears a line", "abc\x03", r"abc.*\r\n.*" + prompt)
t.ask("terminal: Ctrl-C at an empty line", "\x03", r"Ctrl-C again.*" + prompt)
t.ask("terminal: it is forgotten by another line", "hello\r", r"Hello world\.\r\n.*" + prompt)
t.ask("terminal: once", "\x03", r"Ctrl-C again.*" + prompt)
t.type("\x03")
t.end("terminal: twice ends it")

t = Terminal("--chat", *greedy)
t.wait("rows: the prompt", prompt)
t.ask("rows: as wide as the terminal", "a" * 60, r"> (\x1b\[0m)?a{48}\r+\na{12}\r\x1b\[12C")
fcntl.ioctl(t.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 30, 0, 0))
t.wait("rows: a new width", r"> (\x1b\[0m)?a{28}\r+\na{30}\r+\naa\r\x1b\[2C")
t.ask("rows: cleared", "\x15", r"\x1b\[2A\r\x1b\[J(\x1b\[1m)?> (\x1b\[0m)?\r\x1b\[2C")
t.type("a" * 40)
for i in range(100):  # also when the new size comes between two waits for a key
    t.type("a\x7f")
    time.sleep(i % 10 * 4e-5)
    width = 20 + i % 2 * 10
    os.kill(t.pid, signal.SIGSTOP)
    fcntl.ioctl(t.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 20, width, 0, 0))
    os.kill(t.pid, signal.SIGCONT)
    if t.wait(f"rows: new width {i}", r"> (\x1b\[0m)?a{%d}\r+\na" % (width - 2), seconds=20) == "":
        break
os.close(t.fd)  # the window is closed
t.fd = os.open("/dev/null", os.O_RDWR)
check("a closed window ends it", os.waitstatus_to_exitcode(os.waitpid(t.pid, 0)[1]) in (0, 1, -signal.SIGHUP))

t = Terminal("--chat", *greedy, env={"NO_COLOR": "1"})
seen = t.wait("no colour: the prompt", prompt)
seen += t.ask("no colour: an answer", "think\r", r"I wonder\.\r\nForty-two\r\n.*" + prompt)
check("no colour: none", not re.search(r"\x1b\[\d*m", seen), seen)
t.type("\x04")
t.end("Ctrl-D ends it")

t = Terminal("-p", "escape", *greedy)
seen = t.wait("one answer on a terminal", r"\nend")
check("one answer: controls are visible", "red^[[31mbeep^Gc1<9b>2J\ttab^M" in seen, seen)
t.end("one answer ends")
t = Terminal("--raw", "-p", "x", "--grammar", 'root ::= "a\\x1b[31mb"')
t.wait("a completion on a terminal", r"a\^\[\[31mb")
t.end("a completion ends")
t = Terminal("-p", "long", "-c", "500000", *greedy)
t.ask("one answer without end", "", r"no play and no play")
t.type("\x03")
t.wait("Ctrl-C ends it", r"\(cancelled\)")
t.end("and the exit code is 0")

# The terminal is as it was, after the end and after a signal.
for how in ("/quit\r", "signal", "pipe"):
    reader = " | head -c 5" if how == "pipe" else ""
    t = Terminal(command=["/bin/sh", "-c", f"stty -a >{path('before')}; '{run_path}' -m '{chat}' --chat --temp 0{reader}; stty -a >{path('after')}; echo over"])
    t.wait(f"stty, {how}: the prompt", prompt)
    if how == "signal":
        child = int(subprocess.run(["pgrep", "-P", str(t.pid)], capture_output=True, text=True).stdout.split()[0])
        os.kill(child, signal.SIGTERM)
    elif how == "pipe":
        t.type("long\r")
        t.wait("stty, pipe: the end of pastes in brackets", r"\x1b\[\?2004l.*\x1b\[\?2004l\x1b\[22m")
    else:
        t.type(how)
    t.wait(f"stty, {how}: it ends", "over")
    t.end(f"stty, {how}: the shell ends")
    check(f"the terminal is as it was, {how}", open(path("before")).read() == open(path("after")).read())

end_of_test()
