"""The page in a browser: Debian's chromium with chromium-driver. Without them the tests say so and are skipped, except
those that need no browser. Screenshots go to build/screenshots."""
import json
import os
import pathlib
import re
import shutil
import signal
import time

import pytest

from conftest import DEMO, ask

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
PAGE = pathlib.Path("tools/serve/page.html")
PICTURES = pathlib.Path("build/screenshots")
HOSTILE, RICH, ENDLESS, CALL = 7, 8, 4, 3
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]

needs_browser = pytest.mark.skipif(not CHROMIUM or not DRIVER, reason="no chromium and chromium-driver")


# ---- without a browser ----

def test_the_file_is_small_and_has_no_handlers_in_it():
    text = PAGE.read_text()
    assert len(text.replace("@NONCE@", "x" * 24).encode()) <= 60000
    assert not re.search(r"\son[a-z]+\s*=\s*[\"']|\sstyle=[\"']", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
    for url in re.findall(r"https?://[^\s\"'<>\\)]+", text):
        assert url.startswith("http://www.w3.org/2000/svg"), url  # the name of a format, not an address that is loaded


def test_headers(known):
    answers = [known.get("/") for _ in range(2)]
    nonces = []
    for answer in answers:
        assert answer.status_code == 200 and answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'" and policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert "unsafe" not in answer.headers["content-security-policy"]
        nonce = re.fullmatch(r"'nonce-([\w-]{20,})'", policy["script-src"])[1]
        assert policy["style-src"] == f"'nonce-{nonce}'"
        tags = re.findall(r"<(?:script|style)[^>]*>", answer.text)
        assert tags == [f'<style nonce="{nonce}">', f'<script nonce="{nonce}">']
        assert answer.text == PAGE.read_text().replace("@NONCE@", nonce)
        nonces.append(nonce)
    assert nonces[0] != nonces[1]
    head = known.raw(b"HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200") and head.endswith(b"\r\n\r\n")
    assert known.post("/", {}).status_code == 405


def test_no_page_and_no_key(start, known_file):
    assert start(known_file, "--no-page").get("/").status_code == 404
    locked = start(known_file, "--api-key", "secret")
    assert locked.get("/").status_code == 200 and locked.get("/props").status_code == 401
    assert locked.get("/", headers={"Host": "evil.example"}).status_code == 403
    assert start(known_file, "--no-page", "--api-key", "secret").get("/").status_code == 401


# ---- the browser ----

class Page:
    """A tab; every test ends with a look at what it asked for and what its console says."""

    def __init__(self, folder):
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "no-first-run",
                     "disable-background-networking", "disable-component-update", "disable-sync", "lang=en-US",
                     "window-size=1200,800", "force-color-profile=srgb", f"user-data-dir={folder}/profile"):
            options.add_argument("--" + flag)
        options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
        self.downloads = pathlib.Path(folder) / "downloads"
        options.add_experimental_option("prefs", {"download.default_directory": str(self.downloads)})
        self.driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        self.cdp("Page.addScriptToEvaluateOnNewDocument", source="""
            window.violations = [];
            addEventListener('securitypolicyviolation', e =>
              violations.push(e.violatedDirective + ' ' + e.blockedURI));""")
        self.js = self.driver.execute_script
        self.server = None

    def cdp(self, name, **params):
        return self.driver.execute_cdp_cmd(name, params)

    def open(self, server, ready=True):
        self.server = server
        self.driver.get(server.url + "/")
        self.js("localStorage.clear(); sessionStorage.clear()")
        self.driver.refresh()
        if ready:
            self.wait(lambda: "Connecting" not in self.text("#model"))

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def one(self, selector, words=""):
        """The last element that is shown there, with these words, as soon as there is one."""
        from selenium.common.exceptions import StaleElementReferenceException

        def shown():
            try:
                return [e for e in self.all(selector) if e.is_displayed() and words in e.text]
            except StaleElementReferenceException:
                return None  # painted anew meanwhile

        return self.wait(shown)[-1]

    def text(self, selector):
        return self.js("return document.querySelector(arguments[0]).innerText", selector)

    def wait(self, what, seconds=20):
        end = time.monotonic() + seconds
        while not (found := what()):
            assert time.monotonic() < end, "waited in vain: " + self.driver.find_element("css selector", "body").text
            time.sleep(0.03)
        return found

    def fields(self, **more):
        """Sets further fields of requests as a user does."""
        self.one("#settings").click()
        area = self.one("#set-more")
        area.clear()
        area.send_keys(json.dumps(more))
        self.one("dialog button.main").click()
        self.wait(lambda: not self.all("dialog[open]"))

    def script(self, number, **more):
        self.fields(temperature=0, chat_template_kwargs={"script": number}, **more)

    def send(self, text, wait=True):
        from selenium.webdriver.common.keys import Keys
        self.one("#prompt").send_keys(text, Keys.ENTER)
        if wait:
            self.wait_answer()

    def is_idle(self):
        return self.js("return !document.querySelector('.busy') && document.getElementById('stop').hidden")

    def wait_answer(self, seconds=20):
        self.wait(self.is_idle, seconds)

    def answers(self):
        return self.js("return [...document.querySelectorAll('.answer .body')].map(e => e.textContent)")

    def picture(self, name):
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(PICTURES / (name + ".png")))

    def size(self, width, height):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name):
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def urls(self):
        """What was asked for since the last look."""
        out = []
        for row in self.driver.get_log("performance"):
            message = json.loads(row["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                out.append(message["params"]["request"]["url"])
            if message["method"] == "Network.webSocketCreated":
                out.append(message["params"]["url"])
        return out

    def violations(self):
        return self.js("return window.violations") + [
            row["message"] for row in self.driver.get_log("browser") if "Content Security Policy" in row["message"]
            or "Uncaught" in row["message"]]


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    page = Page(tmp_path_factory.mktemp("browser"))
    yield page
    page.driver.quit()


@pytest.fixture
def page(tab):
    tab.size(1200, 800)
    tab.scheme("light")
    tab.urls(), tab.driver.get_log("browser")
    yield tab
    asked = tab.urls()
    assert any(url.startswith("http:") for url in asked)
    for url in asked:
        assert url.startswith((tab.server.url + "/", "data:", "blob:" + tab.server.url)), url
    assert tab.violations() == []


@needs_browser
def test_the_looks_that_follow_see_what_they_look_for(tab, known):
    tab.open(known)
    tab.urls(), tab.driver.get_log("browser")
    tab.js("const i = new Image(); i.src = 'http://elsewhere.example/x.png'; document.body.append(i)")
    tab.wait(lambda: any("img-src" in v for v in tab.violations()))
    with pytest.raises(Exception, match="TrustedHTML"):
        tab.js("document.body.innerHTML = '<p>'")
    tab.js("fetch('health')")
    tab.wait(lambda: known.url + "/health" in tab.urls())


@needs_browser
def test_a_chat(page, known):
    page.open(known)
    assert "known" in page.text("#model")
    page.picture("empty")
    page.send("hi there")
    assert page.answers() == ["Hello world!"]
    assert page.text(".user .say") == "hi there"
    page.wait(lambda: re.search(r"5 tokens · .* tokens/s · first after .* read", page.text(".answer .acts")))
    assert re.fullmatch(r"\d+ / 4,096", page.text("#used")) and not page.text("#used").startswith("0 ")
    assert page.text("#title") == page.text("#chats .here .pick") == "hi there"
    page.send("and more")
    assert page.answers() == ["Hello world!"] * 2
    assert "known" in page.all(".answer .acts")[1].text  # tokens of the cache
    page.driver.refresh()  # it is still there
    page.wait(lambda: "Connecting" not in page.text("#model"))
    assert page.answers() == ["Hello world!"] * 2 and page.text("#title") == "hi there"
    page.send("a third")
    assert len(page.answers()) == 3


@needs_browser
def test_edit_and_regenerate_lose_nothing(page, known):
    from selenium.webdriver.common.keys import Keys
    page.open(known)
    page.send("first")
    page.script(1)
    page.one(".answer button", "Regenerate").click()
    page.wait(lambda: page.answers() == ["abcSTOPdef"] and page.is_idle())
    assert "2/2" in page.text(".answer .acts")
    page.one("[data-name=older]").click()
    assert page.answers() == ["Hello world!"]
    page.one(".user button", "Edit").click()
    area = page.one(".user textarea")
    assert page.js("return document.activeElement === arguments[0]", area) and area.get_attribute("value") == "first"
    area.send_keys(Keys.CONTROL, "a")
    area.send_keys("changed", Keys.ENTER)
    page.wait(lambda: page.answers() == ["abcSTOPdef"] and page.is_idle())
    assert page.text(".user .say") == "changed" and "2/2" in page.text(".user .acts")
    page.one(".user [data-name=older]").click()
    assert page.text(".user .say") == "first" and page.answers() == ["abcSTOPdef"]  # the newest answer to it
    page.one(".user button", "Edit").click()
    page.one(".user textarea").send_keys("x", Keys.ESCAPE)
    assert page.text(".user .say") == "first" and page.is_idle()


@needs_browser
def test_stop(page, start, known_file):
    from selenium.webdriver.common.keys import Keys
    server = start(known_file, "-c", "100000", "--cache-bytes", "0")
    page.open(server)
    page.script(ENDLESS)
    page.send("go", wait=False)
    page.wait(lambda: len((page.answers() or [""])[0]) > 20)
    one = len(page.answers()[0])
    page.wait(lambda: len(page.answers()[0]) > one)  # it streams
    assert page.js("return document.querySelector('.answer').getAttribute('aria-busy')") == "true"
    page.picture("streaming")
    page.one("#stop").click()
    page.wait_answer()
    assert server.wait_for("duet_requests_running", 0) and server.metric("duet_cancelled_total") == 1
    kept = page.answers()[0]
    assert re.fullmatch("x+", kept) and "stopped" in page.text(".answer .acts")
    time.sleep(0.3)
    assert page.answers() == [kept]
    page.one(".answer button", "Regenerate").click()
    page.wait(lambda: len(page.answers()[0]) > 5)
    page.one("#prompt").send_keys(Keys.ESCAPE)
    page.wait_answer()
    assert server.wait_for("duet_requests_running", 0)
    page.one(".answer button", "Regenerate").click()
    page.wait(lambda: len(page.answers()[0]) > 5)
    page.driver.refresh()  # while it streams: what came is kept
    page.wait(lambda: "Connecting" not in page.text("#model"))
    assert page.is_idle() and re.fullmatch("x+", page.answers()[0]) and "3/3" in page.text(".answer .acts")
    assert "stopped" in page.text(".answer .acts") and not page.all(".answer .box.bad")
    assert server.wait_for("duet_requests_running", 0)


@needs_browser
def test_an_answer_without_a_word_is_sent_as_one(page, known):
    # Templates that want roles to alternate refuse two questions that follow each other.
    page.open(known)
    page.fields(temperature=0)
    page.js("""const node = (role, text, parent) => ({role, text, parent, calls: [], info: {}});
        chat.nodes.push(node('user', 'first', -1), node('assistant', '', 0));
        window.sent = request(chat, [0, 1]);""")
    assert page.js("return window.sent.messages") == [{"role": "user", "content": "first"},
                                                      {"role": "assistant", "content": ""}]
    page.js("chat.nodes.length = 0")


@needs_browser
def test_hostile_answers_are_text(page, known):
    expected = known.post("/v1/chat/completions", ask(HOSTILE)).json()["choices"][0]["message"]["content"]
    assert "window.harm=11" in expected
    page.open(known)
    page.script(HOSTILE)
    page.send("<img src=x onerror=window.harm=12> <script>window.harm=13</script>")
    assert "last words" in page.answers()[0]
    page.fields(temperature=0, chat_template_kwargs={"script": 0})
    page.send("[me](javascript:window.harm=14)")
    for _ in range(2):
        assert page.js("return window.harm === undefined")
        assert not page.all("#log :is(img, script, svg, style, iframe, object, b)")
        links = page.js("return [...document.querySelectorAll('#log a')].map(a => [a.protocol, a.rel, a.target])")
        assert len(links) == 3
        assert all(p in ("http:", "https:") and "noopener" in r and t == "_blank" for p, r, t in links)
        shown = page.js("return document.querySelector('#log .body').textContent")
        for piece in ("<img src=x onerror=window.harm=1>", "<script>window.harm=2</script>", "javascript:window.harm=3",
                      "<javascript:window.harm=6>", "<svg/onload=window.harm=7>", "<style>*{display:none}</style>",
                      "</code></pre><script>window.harm=11</script>", "<iframe src=http://elsewhere.example></iframe>"):
            assert piece in shown, piece
        page.picture("hostile")
        page.driver.refresh()  # and what is kept is text as well
        page.wait(lambda: "Connecting" not in page.text("#model"))
    page.wait(lambda: page.answers()[1] == "Hello world!")


@needs_browser
def test_markdown(page, known):
    page.open(known)
    page.script(RICH)
    page.send("show me")
    for selector in ("h4", "p strong", "p em", "p code", "p a", "ol > li:nth-child(2) ul > li:nth-child(2)",
                     ".code pre code", ".table td.end", "blockquote p br", "ul > li"):
        assert page.all(".answer .body " + selector), selector
    assert len(page.all(".answer .body em")) == 1
    code = "def twice(x):\n    return 2 * x  # <b>not bold</b>"
    assert page.js("return document.querySelector('.code code').textContent") == code
    body = page.answers()[0]
    assert "2 * 3 * 4, snake_case_name, a * b." in body and "☑ done" in body
    page.cdp("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    page.one(".code button", "Copy").click()
    page.wait(lambda: page.text(".code button") == "Copied")
    assert page.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])") == code
    page.picture("markdown-light")
    page.scheme("dark")
    page.picture("markdown-dark")


# Text and the nodes that it becomes. A part in "\n" is a line.
MARKDOWN = [
    ("a *b* c", "<p>a <em>b</em> c</p>"),
    ("**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"),
    ("***a***", "<p><strong><em>a</em></strong></p>"),
    ("**a *b***", "<p><strong>a <em>b</em></strong></p>"),
    ("**`a**b`**", "<p><strong><code>a**b</code></strong></p>"),
    ("a_b_c __d__ ~~e~~ *f", "<p>a_b_c <strong>d</strong> <del>e</del> *f</p>"),
    ("`` a`b `` `c", "<p><code>a`b</code> `c</p>"),
    ("<b>x</b> &lt;", "<p>&lt;b&gt;x&lt;/b&gt; &amp;lt;</p>"),
    ("- a\n- b\n\n  c", "<ul><li><p>a</p></li><li><p>b</p><p>c</p></li></ul>"),
    ("3. a\n   ```\n   x\n   ```\n4. b", '<ol start="3"><li><p>a</p>[x]</li><li><p>b</p></li></ol>'),
    ("- a\n  - b\n    - c\n- d",
     "<ul><li><p>a</p><ul><li><p>b</p><ul><li><p>c</p></li></ul></li></ul></li><li><p>d</p></li></ul>"),
    ("* a\n* b\n\ntext", "<ul><li><p>a</p></li><li><p>b</p></li></ul><p>text</p>"),
    ("text\n- a", "<p>text</p><ul><li><p>a</p></li></ul>"),
    ("# a #\n## b", "<h3>a</h3><h4>b</h4>"),
    ("> a\n> > b", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>"),
    ("a\n---\nb", "<p>a</p><hr><p>b</p>"),
    ("```\nopen\n\n# no", "[open\n\n# no]"),
    ("````\n```\n````", "[```]"),
    ("```\n\ta\tb\n```", "[\ta\tb]"),
    ("1. a\n  - b\n  - c\n2. d", "<ol><li><p>a</p><ul><li><p>b</p></li><li><p>c</p></li></ul></li><li><p>d</p></li></ol>"),
    ("- a\n\t- b", "<ul><li><p>a</p><ul><li><p>b</p></li></ul></li></ul>"),
    ("1. a\n\n```\nx\n```\n\n2. b", '<ol><li><p>a</p></li></ol>[x]<ol start="2"><li><p>b</p></li></ol>'),
    ("* **a:** b\n* [c](https://x.example/d_e_f)", '<ul><li><p><strong>a:</strong> b</p></li><li><p>'
     '<a href="https://x.example/d_e_f" target="_blank" rel="noopener noreferrer">c</a></p></li></ul>'),
    ("(https://x.example/a_(b)). See", '<p>(<a href="https://x.example/a_(b)" target="_blank" '
     'rel="noopener noreferrer">https://x.example/a_(b)</a>). See</p>'),
    ("[**https://a.example**](https://b.example/)", '<p><a href="https://b.example/" target="_blank" '
     'rel="noopener noreferrer"><strong>https://a.example</strong></a></p>'),
    ("line\nnext", "<p>line<br>next</p>"),
    ("a | b", "<p>a | b</p>"),
    ("[a](b) [c]", "<p>[a](b) [c]</p>"),
    ("\\*a\\*", "<p>*a*</p>"),
]


@needs_browser
@pytest.mark.parametrize("text, nodes", MARKDOWN)
def test_markdown_to_the_letter(tab, known, text, nodes):
    if not tab.server or tab.server is not known or not tab.driver.current_url.startswith(known.url):
        tab.open(known)
    made = tab.js("""const e = document.createElement('div'); showText(e, arguments[0]);
        for (const f of e.querySelectorAll('figure')) f.replaceWith('[' + f.querySelector('code').textContent + ']');
        return e.innerHTML""", text)
    assert made == nodes
    # written piece by piece it becomes the same
    assert tab.js("""const whole = document.createElement('div'), e = document.createElement('div');
        showText(whole, arguments[0]);
        for (let i = 1; i <= arguments[0].length; i++) showText(e, arguments[0].slice(0, i));
        return e.innerHTML === whole.innerHTML""", text)


@needs_browser
@pytest.mark.parametrize("piece", ["*a ", "**", "[", "[a](", "`a ``", "> ", "- ", "  - a\n", "![", "|a|\n|-|\n",
                                   "_a*b_ ", "#", "<http://", "~~x", "(http://a(", "\\", "1. 2. "])
def test_long_text_takes_no_long_time(tab, known, piece):
    if tab.server is not known or not tab.driver.current_url.startswith(known.url):
        tab.open(known)
    ms = tab.js("""const text = arguments[0].repeat(60000 / arguments[0].length), start = performance.now();
        showText(document.createElement('div'), text); return performance.now() - start""", piece)
    assert ms < 2000, ms


@needs_browser
def test_thinking_and_calls(page, known):
    page.open(known)
    page.fields(temperature=0, chat_template_kwargs={"enable_thinking": True})
    page.send("think")
    assert page.answers() == ["fine"]
    box = page.one(".answer details")
    assert box.get_attribute("open") is None  # folded
    page.one(".answer summary").click()
    assert page.one(".answer details .md").text == "hm, well"
    page.one("#settings").click()
    page.one("#set-tools").send_keys(json.dumps(TOOLS))
    page.one("#set-more").clear()
    page.one("#set-more").send_keys(json.dumps({"temperature": 0, "chat_template_kwargs": {"script": CALL}}))
    page.one("dialog button.main").click()
    page.send("look around")
    assert "Calls look" in page.text(".answer:last-child")
    assert '"at": "here"' in page.text(".answer:last-child .call code")
    page.one(".call textarea").send_keys("a tree")
    page.picture("call")
    page.fields(temperature=0, chat_template_kwargs={"script": 0})
    page.one(".answer button", "Send the result").click()
    page.wait(lambda: page.answers()[-1] == "Hello world!" and page.is_idle())
    saved = page.js("return messages(chat, path(chat))")
    assert [m["role"] for m in saved] == ["user", "assistant", "user", "assistant", "tool", "assistant"]
    assert saved[1]["reasoning_content"] == "hm, well" and saved[4]["content"] == "a tree"
    assert saved[4]["tool_call_id"] == saved[3]["tool_calls"][0]["id"] and saved[3]["content"] is None
    assert json.loads(saved[3]["tool_calls"][0]["function"]["arguments"]) == {"at": "here"}


@needs_browser
def test_settings(page, known):
    page.open(known)
    page.one("#settings").click()
    assert page.one("#set-temperature").get_attribute("placeholder") == "0.8"  # of the server
    page.one("#set-temperature").send_keys("7")
    page.one("dialog button.main").click()
    assert "Temperature: a number from 0 to 2" in page.text("dialog .wrong")
    page.one("#set-temperature").clear()
    page.one("#set-temperature").send_keys("0.72")
    page.one("#set-limit").send_keys("2")
    page.one("#set-system").send_keys("Be brief.")
    page.one("#set-tools").send_keys("{")
    page.one("dialog button.main").click()
    assert "Tools: a JSON list" in page.text("dialog .wrong")
    page.one("#set-tools").clear()
    page.picture("settings")
    page.one("dialog button.main").click()
    page.send("hi")
    assert page.answers() == ["Hello"] and "limit of 2 tokens" in page.text(".answer .box")
    sent = [json.loads(m["params"]["request"]["postData"]) for m in
            (json.loads(row["message"])["message"] for row in page.driver.get_log("performance"))
            if m["method"] == "Network.requestWillBeSent" and m["params"]["request"].get("postData")][-1]
    assert sent["temperature"] == 0.72 and sent["max_tokens"] == 2 and sent["stream"] is True
    assert sent["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    page.js("fetch('health')")
    page.fields(temperature=[1])
    page.send("again")
    assert "temperature" in page.text(".answer:last-child .box.bad")
    page.fields(n=2)
    page.one(".answer button", "Send again").click()
    page.wait(lambda: page.is_idle() and page.answers()[-1] == "Hello")


@needs_browser
def test_an_imported_conversation_without_counts_is_shown(page, known, tmp_path):
    page.open(known)
    file = tmp_path / "given.json"
    file.write_text(json.dumps({"title": "given", "nodes": [
        {"role": "user", "text": "a"}, {"role": "assistant", "text": "b", "parent": 0, "info": {"finish": "length"}}]}))
    page.js("document.getElementById('file').hidden = false")
    page.one("#file").send_keys(str(file))
    page.wait(lambda: page.answers() == ["b"])
    page.driver.refresh()
    page.wait(lambda: [e.text for e in page.all("#chats .pick")] == ["given"])


def test_conversations_are_kept_exported_and_deleted(page, known):
    page.open(known)
    page.send("one")
    page.one("#new").click()
    assert page.answers() == [] and page.text("#title") == "New conversation"
    page.send("two")
    assert [e.text for e in page.all("#chats .pick")] == ["two", "one"]
    page.one("#chats .pick", "one").click()
    assert page.text(".user .say") == "one"
    page.one("#chats button", "Rename").click()
    page.one("#name").send_keys(" more")
    page.one("dialog button.main").click()
    page.wait(lambda: page.text("#title") == "one more")
    page.one("#chats button", "Export").click()
    file = page.downloads / "one-more.json"
    page.wait(file.exists)
    data = json.loads(file.read_text())
    assert data["messages"] == [{"role": "user", "content": "one"}, {"role": "assistant", "content": "Hello world!"}]
    page.one("#chats button", "Delete").click()
    page.one("dialog button", "Cancel").click()
    assert len(page.all("#chats .pick")) == 2
    page.one("#chats button", "Delete").click()
    page.picture("delete")
    page.one("dialog button.main").click()
    page.wait(lambda: len(page.all("#chats .pick")) == 1)
    assert page.js("return Object.keys(localStorage).filter(k => k.startsWith('duet.chat.')).length") == 1
    page.driver.find_element("css selector", "#file").send_keys(str(file))
    page.wait(lambda: len(page.all("#chats .pick")) == 2)
    assert page.text("#title") == "one more" and page.answers() == ["Hello world!"]


@needs_browser
def test_hostile_files_are_text(page, known, tmp_path):
    bad, number = "<img src=x onerror=window.harm=1><script>window.harm=2</script>", "9</script>"
    node = {"text": bad, "thinking": bad, "calls": [{"id": bad, "name": bad, "arguments": bad}], "callId": bad,
            "error": {"message": bad, "code": bad},
            "info": {name: number for name in ("tokens", "speed", "first", "prompt", "ctx", "finish")}}
    nodes = [{**node, "role": role, "parent": parent} for role, parent in
             (("user", -1), ("assistant", 0), ("tool", 1), ("assistant", 2), ("nobody", "x"), (bad, 3))]
    file = tmp_path / "bad.json"
    settings = {"system": {}, "fields": bad, "tools": bad, "more": [bad]}
    chats = [{"title": bad, "nodes": nodes, "leaf": 5, "settings": settings},
             {"nodes": [{"parent": 0, "role": {}, "text": 5, "calls": 3, "info": 7}, None], "leaf": bad},
             {"nodes": 5}, None]
    file.write_text(json.dumps(chats))
    page.open(known)
    before = page.js("return document.querySelectorAll('img, script, iframe').length")
    page.driver.find_element("css selector", "#file").send_keys(str(file))
    page.wait(lambda: len(page.all("#chats .pick")) == 2)
    for _ in range(2):
        page.one("#chats .pick", "<img").click()
        assert bad in page.text("#title") and page.text("#log").count("window.harm=1") >= 6
        assert page.js("return document.querySelectorAll('img, script, iframe').length") == before
        page.one("#settings").click()
        page.one("dialog button", "Cancel").click()
        page.driver.refresh()
        page.wait(lambda: "Connecting" not in page.text("#model"))
    assert page.js("return window.harm === undefined")
    for wrong in ("[]", "{", "5"):
        file.write_text(wrong)
        page.driver.find_element("css selector", "#file").send_keys(str(file))
        page.wait(lambda: "no exported conversations" in page.text("#notice"))
        page.one("#notice button", "Close").click()
        assert not page.driver.find_element("css selector", "#notice").is_displayed()
    assert len(page.all("#chats .pick")) == 2


@needs_browser
def test_two_conversations_answer_at_once(page, start, known_file):
    page.open(start(known_file, "-c", "100000", "--cache-bytes", "0"))
    page.script(ENDLESS)
    page.send("long", wait=False)
    page.wait(lambda: len(page.answers()[0]) > 5)
    page.one("#new").click()
    page.fields(temperature=0)
    page.send("short")
    assert page.answers() == ["Hello world!"] and page.text("#title") == "short"
    page.one("#chats .busy-dot", "long").click()
    length = len(page.answers()[0])
    page.wait(lambda: len(page.answers()[0]) > length)
    page.one("#stop").click()
    page.wait_answer()
    page.wait(lambda: page.server.metric("duet_cancelled_total") == 1)


@needs_browser
def test_a_dialog_keeps_what_another_tab_wrote(page, known):
    page.open(known)
    page.fields(temperature=0)
    page.send("one")
    page.one("#settings").click()
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    page.driver.get(known.url + "/")
    page.wait(lambda: "Connecting" not in page.text("#model"))
    page.one("#chats .pick", "one").click()
    page.send("two")
    page.driver.close()
    page.driver.switch_to.window(first)
    page.one("dialog button.main").click()
    page.wait(lambda: not page.all("dialog[open]"))
    assert len(page.answers()) == 2
    assert page.js("return JSON.parse(localStorage['duet.chat.' + chat.id]).nodes.length") == 4


@needs_browser
def test_a_full_context(page, start, known_file):
    server = start(known_file, "-c", "280", "--cache-bytes", "0")
    page.open(server)
    for i in range(3):
        page.send(f"{i} " + "word " * 8)
        assert page.answers() == ["Hello world!"] * (i + 1)
    page.wait(lambda: "nearly full" in page.text("#used"))
    page.send("last " * 8)
    box = page.text(".answer:last-child .box")
    assert "no longer fits" in box and "280" in box and re.search(r"too long: \d+ tokens", box)
    page.picture("full")
    page.one(".box button", "Leave out the oldest turns").click()
    page.wait(lambda: page.is_idle() and page.answers()[-1] == "Hello world!")
    n_left = page.js("return document.querySelectorAll('#log .user.left').length")
    assert 0 < n_left < 4 and "not sent any more" in page.text("#log .line")
    sent = page.js("return messages(chat, path(chat)).filter(m => m.role === 'user').map(m => m.content.trim())")
    assert len(sent) == 4 - n_left and sent[-1] == ("last " * 8).strip()
    page.one("#log .line button").click()
    assert not page.all("#log .left")
    page.one("#new").click()
    page.send("long " * 80)
    page.one(".box button", "Leave out").click()
    page.wait(lambda: "alone does not fit" in page.text(".box"))
    page.one("#new").click()
    page.script(ENDLESS)
    page.send("go on")
    assert "context is full (280 tokens)" in page.text(".box")
    page.one(".box button", "Leave out").click()
    page.wait(lambda: not page.all(".box") and len(page.all("#log .left")) == 2)
    page.one("#log .line button").click()
    page.one(".answer button", "Regenerate").click()
    page.one(".box button", "New conversation").click()
    assert page.text("#title") == "New conversation"


@needs_browser
def test_the_key_is_asked_for_and_not_kept(page, start, known_file):
    page.open(start(known_file, "--api-key", "secret"), ready=False)
    page.wait(lambda: page.all("#key"))
    assert page.js("return document.activeElement.id") == "key"
    page.picture("key")
    page.one("#key").send_keys("wrong")
    page.one("dialog button.main").click()
    page.wait(lambda: "does not accept" in (page.text("#small-box") or ""))
    page.one("#key").send_keys("secret")
    page.one("dialog button.main").click()
    page.wait(lambda: "known" in page.text("#model"))
    page.send("hi")
    assert page.answers() == ["Hello world!"]
    assert "secret" not in page.js("return JSON.stringify(localStorage)")
    page.driver.refresh()
    page.wait(lambda: "known" in page.text("#model"))
    page.js("key = ''; keyStore.clear()")  # as in a new tab
    page.send("more", wait=False)
    page.wait(lambda: page.all("#key"))
    page.one("#key").send_keys("secret")
    page.one("dialog button.main").click()
    page.wait(lambda: page.answers() == ["Hello world!"] * 2 and page.is_idle())


@needs_browser
def test_the_server_goes_and_comes_back(page, start, known_file):
    server = start(known_file, "-c", "100000", "--cache-bytes", "0")
    page.open(server)
    page.send("before")
    page.script(ENDLESS)
    page.send("long", wait=False)
    page.wait(lambda: len(page.answers()[-1]) > 5)
    server.end(signal.SIGKILL)
    page.wait_answer()
    assert "broke off" in page.text(".answer:last-child .box") and len(page.answers()[-1]) > 5
    page.wait(lambda: "server is gone" in page.text("#notice"))
    page.picture("gone")
    page.send("while it is gone")
    assert "cannot be reached" in page.text(".answer:last-child .box")
    back = start(known_file, "--port", str(server.port), "--alias", "other")
    assert back.port == server.port
    page.wait(lambda: "other" in page.text("#model"))
    page.wait(lambda: not page.driver.find_element("css selector", "#notice").is_displayed())
    page.fields(temperature=0)
    page.one(".answer button", "Send again").click()
    page.wait(lambda: page.is_idle() and page.answers()[-1] == "Hello world!")


@needs_browser
def test_other_failures_in_clear_words(page, known):
    """Answers that this server gives seldom, or a proxy before it: made up in the tab."""
    page.open(known)
    page.js("""window.made = null; const real = fetch;
        window.fetch = (url, options) =>
          options.body && made ? Promise.resolve(new Response(...made)) : real(url, options);""")
    event = 'data: {"choices":[{"delta":{"content":"half"}}]}\n\n'
    for body, status, words, text in [
            (event, 200, "broke off", "half"),
            (event + 'data: {"error":{"message":"odd"}}\n\n', 200, "odd", "half"),
            (event + "data: {", 200, "broke off", "half"),
            ("<html>", 502, "status 502", ""),
            ('{"error":{"message":"full"}}', 429, "Too many requests", ""),
            ('{"error":{"message":"ending"}}', 503, "starting or ending", ""),
            ('{"error":{"message":"a bug"}}', 500, "a bug", "")]:
        page.js("made = [arguments[0], {status: arguments[1]}]", body, status)
        page.one("#new").click()
        page.send("hi")
        assert words in page.text(".box.bad") and page.answers() == [text]
        page.js("made = null")
        page.one(".box button", "Send again").click()
        page.wait(lambda: page.is_idle() and page.answers() == ["Hello world!"])


@needs_browser
def test_a_file_without_a_template_continues_text(page, demo):
    page.open(demo)
    assert "no chat template" in page.text("#hint-text")
    page.fields(temperature=0, max_tokens=24, seed=1)
    page.send("Once upon a time")
    whole = demo.post("/v1/completions", {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 24}).json()
    assert page.js("return chat.nodes[1].text") == whole["choices"][0]["text"]
    page.picture("story")
    page.one(".box button", "Continue").click()
    page.wait(lambda: len(page.answers()) == 2 and page.is_idle())
    longer = demo.post("/v1/completions", {"prompt": "Once upon a time" + whole["choices"][0]["text"], "temperature": 0,
                                           "max_tokens": 24}).json()
    assert page.js("return chat.nodes[2].text") == longer["choices"][0]["text"]


WIDTHS = [320, 375, 768, 1024, 1600]


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_widths(page, known, scheme):
    page.open(known)
    page.scheme(scheme)
    page.script(RICH)
    page.send("a " * 30 + "w" * 200)
    for width in WIDTHS:
        page.size(width, 640)
        time.sleep(0.1)
        wide = page.js("""
            const w = innerWidth, scroll = document.getElementById('scroll');
            const scrolls = e => e.id !== 'scroll' && /auto|scroll|hidden/.test(getComputedStyle(e).overflowX);
            const isInside = e => { for (let p = e.parentElement; p !== document.body; p = p.parentElement)
              if (scrolls(p)) return true; };
            const isWide = e => {
              const r = e.getBoundingClientRect();
              return r.width && r.right > w + 1 && !isInside(e);
            };
            return [document.documentElement.scrollWidth, scroll.scrollWidth - scroll.clientWidth,
              [...document.querySelectorAll('main *')].filter(isWide).map(e => e.outerHTML.slice(0, 80))]""")
        assert wide == [width, 0, []], width
        page.picture(f"{scheme}-{width}")
    page.size(320, 640)
    page.one("#menu").click()
    assert page.js("return document.activeElement.id") == "new"
    page.picture(f"{scheme}-320-menu")
    page.one("#settings").click()
    assert page.js("return document.querySelector('dialog').scrollWidth") <= 320
    assert page.js("return document.documentElement.scrollWidth") == 320
    page.picture(f"{scheme}-320-settings")
    page.one("dialog button", "Cancel").click()
    page.one("#close").click()
    assert page.js("return document.activeElement.id") == "menu"


CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const rgba = c => {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = c;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const light = c => c.slice(0, 3).map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
const behind = e => {
  for (; e; e = e.parentElement) {
    const c = rgba(getComputedStyle(e).backgroundColor);
    if (c[3] > 250) return c;
  }
  return [255, 255, 255];
};
const worst = [];
for (const e of document.querySelectorAll('body *')) {
  if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
  if (!e.checkVisibility() || e.closest('.left, script, style') || e.disabled) continue;
  const a = light(rgba(getComputedStyle(e).color)), b = light(behind(e));
  const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (ratio < 4.5) worst.push([ratio.toFixed(2), e.outerHTML.slice(0, 100)]);
}
return worst;"""


@needs_browser
def test_contrast_names_and_keyboard(page, known):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys
    page.open(known)
    page.script(RICH)
    page.send("show")
    page.fields(temperature=[1])
    page.send("wrong")
    backgrounds = set()
    for scheme in ("light", "dark"):
        page.scheme(scheme)
        assert page.js(CONTRAST) == []
        backgrounds.add(page.js("return getComputedStyle(document.body).backgroundColor"))
        page.one("#settings").click()
        assert page.js(CONTRAST) == []
        nameless = page.js("""return [...document.querySelectorAll(
              'button, input, textarea, select, a[href], [role=region], [role=meter]')]
            .filter(e => !(e.getAttribute('aria-label') || '').trim() && !(e.labels?.length) && !e.textContent.trim())
            .map(e => e.outerHTML.slice(0, 80))""")
        assert nameless == []
        ActionChains(page.driver).send_keys(Keys.ESCAPE).perform()
        page.wait(lambda: page.js("return document.activeElement.id") == "settings")
    assert len(backgrounds) == 2
    ids = page.js("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    page.driver.refresh()
    page.wait(lambda: "Connecting" not in page.text("#model"))
    page.js("document.activeElement.blur()")
    seen = []
    for _ in range(60):
        ActionChains(page.driver).send_keys(Keys.TAB).perform()
        at = page.js("""const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
            return [e.id || e.dataset.name || e.className || e.tagName, e === document.body ||
              (r.width > 0 && r.height > 0 && (s.outlineStyle !== 'none' ||
                getComputedStyle(e.parentElement).boxShadow !== 'none'))]""")
        assert at[1], at
        seen.append(at[0])
    seen = seen[seen.index("skip unseen"):]  # the browser went on from where the focus had been
    order = [seen.index(x) for x in ("skip unseen", "new", "settings", "edit", "again", "prompt", "send")]
    assert order == sorted(order), seen
    status = page.driver.find_element("css selector", "#status")
    assert status.get_attribute("role") == "status"
    page.fields(temperature=0)
    page.send("hi")
    page.wait(lambda: "Answer complete. Hello world!" in status.get_attribute("textContent"))
