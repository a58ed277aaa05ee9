#!/bin/sh
# tests/packages.sh: the files people install (docs/packages.md). It says what it skips.
#   tests/packages.sh           a minute, for .ci/run: packs what is built already, twice, and looks into it: the same bytes (also of
#                               objects compiled in two folders), the commit, flags in man pages and completion (typed into bash and
#                               zsh), checksums, the list of parts
#   tests/packages.sh twice     builds the sources in two folders and packs both: the same bytes (needs half an hour of one core)
#   tests/packages.sh roots     installs the files of FILES on clean systems (debootstrap), uses them and removes them; as root
# BUILD, SHARED_BUILD: objects to pack (build/release, build/python/own); FILES (build/release-files); PARTS, CXX, CXXFLAGS for twice
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build/release} shared=${SHARED_BUILD:-build/python/own} files=${FILES:-build/release-files}
work=$(mktemp -d)
roots=
clean() {
    for root in $roots; do
        umount "$root/proc" 2>/dev/null || true
        rm -rf --one-file-system "$root"
    done
    rm -rf "$work"
}
trap clean EXIT
step() { printf '== %s\n' "$*"; }
fail() { printf 'tests/packages.sh: %s\n' "$*"; exit 1; }
same_bytes() {
    (cd "$1" && find . -type f | LC_ALL=C sort) >"$work/names"
    [ "$(grep -cE '\.(deb|gz|whl|zip)$' "$work/names")" -ge "$3" ] || fail "want $3 packages or more in $1, got: $(cat "$work/names")"
    diff -r "$1" "$2" || fail "two builds differ"
    echo "$(wc -l <"$work/names") files, the same bytes"
}

quick() {
    export GPU_TARGETS="${GPU_TARGETS:-native}" # as the objects were built
    if ! command -v zsh >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends zsh mandoc man-db >/dev/null 2>&1 || true
    fi
    step "the commit: of a tree with git, of an archive of it, of a tree with neither"
    commit=$(packaging/commit.sh)
    mkdir "$work/archive" "$work/other"
    git archive HEAD packaging/commit.sh | tar -x -C "$work/archive"
    [ "$("$work/archive/packaging/commit.sh")" = "$(git rev-parse HEAD | cut -c1-12)" ] || fail "the archive tells another commit"
    [ "$("$work/archive/packaging/commit.sh" --date)" = "$(git log -1 --format=%ct)" ] || fail "the archive tells another date"
    # somebody else's repository around it is not asked
    git -C "$work/other" init -q && git -C "$work/other" -c user.name=a -c user.email=a@b commit -q --allow-empty -m a
    mkdir -p "$work/other/duet/packaging" && cp packaging/commit.sh "$work/other/duet/packaging/"
    [ "$("$work/other/duet/packaging/commit.sh")" = unknown ] || fail "a tree without git took the commit of the one around it"
    echo "$commit"

    step "objects compiled in two folders (all of them: tests/packages.sh twice)"
    objects="quant/formats.o models/gguf.o runtime/commit.o tools/tokenize.o"
    other=$work/another-folder-with-a-longer-name/duet
    mkdir -p "$other"
    git ls-files -z | xargs -0 cp --parents -t "$other"
    for folder in . "$other"; do
        # shellcheck disable=SC2046  # words
        DUET_COMMIT=$commit make -s -C "$folder" CXXFLAGS=-O1 BUILD=build/packages/twice $(printf 'build/packages/twice/%s ' $objects)
    done
    for object in $objects; do cmp "build/packages/twice/$object" "$other/build/packages/twice/$object" || fail "$object differs"; done
    rm -r build/packages/twice
    echo "$objects: the same bytes"

    step "packed twice"
    for i in 1 2; do
        DIRTY=1 HOST=1 PARTS="deb linux source" BUILD=$build SHARED_BUILD=$shared OUT="$work/$i" packaging/release.sh >"$work/log" || { cat "$work/log"; exit 1; }
    done
    same_bytes "$work/1" "$work/2" 6
    (cd "$work/1" && sha256sum --quiet -c SHA256SUMS) || fail "the checksums are wrong"

    step "what is in them"
    mkdir "$work/tree" "$work/deb"
    tar -xzf "$work"/1/duet-*-linux-*[0-9].tar.gz -C "$work/tree" --strip-components=1
    for deb in "$work"/1/*.deb; do dpkg-deb -x "$deb" "$work/deb"; done
    for tree in "$work/tree" "$work/deb/usr"; do
        zsh=$tree/share/zsh/site-functions
        [ -d "$zsh" ] || zsh=$tree/share/zsh/vendor-completions
        n=0
        for program in "$tree"/bin/*; do
            name=${program##*/} n=$((n + 1))
            "$program" --version | grep -q "^commit $commit;" || fail "$name --version: want commit $commit, got $("$program" --version)"
            page=$tree/share/man/man1/$name.1
            [ -e "$page" ] || { gzip -dk "$page.gz"; }
            if command -v mandoc >/dev/null; then mandoc -T lint -W warning "$page" || fail "$name.1"; fi
            if command -v man >/dev/null; then
                LC_ALL=C MANWIDTH=500 man --warnings -l "$page" >"$work/page" 2>"$work/warnings"
                [ ! -s "$work/warnings" ] || { cat "$work/warnings"; fail "$name.1"; }
            else sed 's/\\f.//g; s/\\-/-/g' "$page" >"$work/page"; fi
            # each flag of the help is in the page and in both completions
            flags=$("$program" -h | grep -oE '^  -[^ ]+(, -[^ ]+)*' | tr ', ' '\n\n' | grep .)
            [ "$(echo "$flags" | wc -l)" -ge 5 ] || fail "$name -h: found few flags: $flags"
            for flag in $flags; do
                grep -qE -e "^ +.*$flag( |,|\$)" "$work/page" || fail "$name.1: no $flag"
                grep -qE -e "[' |]${flag}[' |)]" "$tree/share/bash-completion/completions/$name" || fail "$name for bash: no $flag"
                grep -qE -e "[)*]$flag=?\\[" "$zsh/_$name" || fail "$name for zsh: no $flag"
            done
        done
        [ "$n" -ge 8 ] || fail "want 8 programs or more in $tree/bin, got $n"
        echo "$n programs with man page and completion"
    done
    command -v mandoc >/dev/null || echo "skipped: man pages by mandoc: not installed"
    command -v man >/dev/null || echo "skipped: man pages by man: not installed"
    libs=$(dirname "$(find "$work/deb/usr/lib" -name libduet.a)")
    for lib in "$libs" "$work/tree/lib"; do
        objdump -p "$lib/libduet.so" | grep -q 'SONAME *libduet\.so\.[0-9]*$' || fail "$lib/libduet.so: want a name with a version"
        objdump -T "$lib/libduet.so" | grep -w duet_version | grep -q 'DF \.text' || fail "$lib/libduet.so: exports no duet_version"
        n=$(stat -L -c %s "$lib/libduet.so")
        echo "the shared library: $n bytes"
        grep -q '[a-z]' build/gpu/chips || [ "$n" -le 3000000 ] || fail "$lib/libduet.so: want at most 3,000,000 bytes, got $n"
    done
    mkdir "$work/static"
    tar -xzf "$work"/1/duet-*-static.tar.gz -C "$work/static" --strip-components=1
    packaging/symbols.sh none "$work/static/bin/duet-run"
    "$work/static/bin/duet-run" -m models/demo.gguf -p "Once upon a time" -n 20 --seed 1 >"$work/static.txt" 2>/dev/null
    "$work/tree/bin/duet-run" -m models/demo.gguf -p "Once upon a time" -n 20 --seed 1 >"$work/tree.txt" 2>/dev/null
    [ -s "$work/tree.txt" ] && cmp "$work/static.txt" "$work/tree.txt"
    if ! command -v lintian >/dev/null; then echo "skipped: lintian: not installed"
    else lintian --fail-on error --allow-root "$work"/1/*.deb; fi
    # the check of symbol versions finds what is too new: these programs need this machine's glibc
    if packaging/symbols.sh 2.4 "$work/tree/bin/duet-run" >"$work/log"; then fail "symbols.sh took a program for glibc 2.4"; fi
    grep -q "want glibc 2.4 or older" "$work/log"

    step "completion, typed into shells"
    tests/completion.py "$work/tree/share"

    step "the list of parts (SBOM)"
    if ! { python3 -m venv "$work/venv" && "$work/venv/bin/pip" install -q "cyclonedx-python-lib[json-validation]==11.5.0"; } 2>"$work/log"; then
        echo "skipped: the package cyclonedx-python-lib cannot be installed"
    else
        "$work/venv/bin/python" - "$work"/1/*.cdx.json <<'P'
import sys
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation import make_schemabased_validator
text = open(sys.argv[1]).read()
check = make_schemabased_validator(OutputFormat.JSON, SchemaVersion.V1_6)
if error := check.validate_str(text):
    sys.exit(f"{sys.argv[1]}: {error}")
if not check.validate_str(text.replace('"bomFormat": "CycloneDX"', '"bomFormat": "another"')):
    sys.exit("the check takes a wrong list")
print("valid CycloneDX 1.6")
P
    fi
}

twice() {
    step "built in two folders: ${PARTS:-deb linux source}"
    for i in a another-folder-with-a-longer-name; do
        git clone -q . "$work/$i/duet"
        (cd "$work/$i/duet" && git checkout -q "$(git -C "$OLDPWD" rev-parse HEAD)" && PARTS=${PARTS:-deb linux source} packaging/release.sh) >"$work/log" 2>&1 ||
            { tail -n 30 "$work/log"; exit 1; }
    done
    same_bytes "$work/a/duet/build/release-files" "$work/another-folder-with-a-longer-name/duet/build/release-files" 5
}

# new_root SUITE [MIRROR]: a clean system at $root
new_root() {
    root=$(mktemp -d /tmp/root-XXXXXX)
    roots="$roots $root"
    chmod 755 "$root"
    debootstrap --variant=minbase ${3:+"$3"} "$1" "$root" ${2:+"$2"} >"$work/log" 2>&1 || { tail -n 5 "$work/log"; return 1; }
    mount -t proc proc "$root/proc" 2>/dev/null || true
    cp models/demo.gguf examples/complete.c "$root/tmp/"
}
inside() { chroot "$root" env LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin sh -ec "$1"; }
story='-m /tmp/demo.gguf -p "Once upon a time" -n 40 --seed 1 2>/dev/null'
answers='duet-serve -m /tmp/demo.gguf --port 8765 >/dev/null 2>&1 & pid=$!; i=0
    until (exec 3<>/dev/tcp/127.0.0.1/8765) 2>/dev/null || [ $i = 50 ]; do sleep 0.2; i=$((i + 1)); done
    exec 3<>/dev/tcp/127.0.0.1/8765; printf "GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n" >&3; head -1 <&3; kill $pid; wait $pid || true'

roots() {
    [ "$(id -u)" = 0 ] || { echo "skipped: clean systems: want root"; exit 0; }
    command -v debootstrap >/dev/null || { echo "skipped: clean systems: no debootstrap"; exit 0; }
    files=$(cd "$files" && pwd)

    step "Debian 12, a clean system: the packages"
    new_root bookworm || { echo "skipped: debootstrap cannot reach its mirror"; exit 0; }
    cp "$files"/*.deb "$root/tmp/"
    # indexes, caches and logs of apt and dpkg are no part of a package
    listed() { (cd "$root" && find . -xdev \( -path ./proc -o -path ./tmp -o -path ./var/lib/apt -o -path ./var/cache -o -path ./var/log -o -path ./var/lib/dpkg \) -prune -o -print | LC_ALL=C sort); }
    inside "apt-get update -qq; apt-get install -y -qq --no-install-recommends libc6 libstdc++6 >/dev/null 2>&1"
    listed >"$work/before"
    inside "dpkg -i /tmp/duet_*.deb" >"$work/log" 2>&1 || { cat "$work/log"; fail "duet wants more than libc6 and libstdc++6"; }
    inside "duet-run --version; duet-run $story" | tee "$work/deb.txt"
    [ "$(sed 1,2d "$work/deb.txt" | wc -c)" -ge 60 ] || fail "no story"
    inside "bash -c '$answers'" | tee "$work/health"
    grep -q "200 OK" "$work/health" || fail "duet-serve does not answer"
    inside "dpkg -i /tmp/libduet0_*.deb /tmp/libduet-dev_*.deb" >"$work/log" 2>&1 || { cat "$work/log"; fail "the library does not install"; }
    inside "dpkg -r libduet-dev libduet0 duet" >"$work/log"
    listed >"$work/after"
    diff "$work/before" "$work/after" || fail "removed packages leave something behind"
    inside "test -z \"\$(dpkg -l | grep duet | grep -v '^rc')\""
    echo "installed and removed; nothing is left"

    step "a C program with the library of the packages"
    inside "apt-get install -y -qq --no-install-recommends gcc libc6-dev pkg-config >/dev/null 2>&1; dpkg -i /tmp/libduet*.deb >/dev/null
            cc -std=c99 -o /tmp/shared /tmp/complete.c \$(pkg-config --cflags --libs duet)
            cc -std=c99 -o /tmp/static /tmp/complete.c \$(pkg-config --cflags --libs --static duet | sed 's/-lduet/-l:libduet.a/; s/-lstdc++/-l:libstdc++.so.6/')
            objdump -p /tmp/shared | grep -q 'NEEDED *libduet.so.0'
            /tmp/shared /tmp/demo.gguf 'Once upon a time' >/tmp/1; /tmp/static /tmp/demo.gguf 'Once upon a time' >/tmp/2
            cmp /tmp/1 /tmp/2; wc -c </tmp/1" || fail "a C program"

    step "duet-run alone, where there is nothing else"
    root=$(mktemp -d /tmp/root-XXXXXX)
    roots="$roots $root"
    mkdir "$root/tmp"
    tar -xzf "$files"/duet-*-static.tar.gz -C "$root" --strip-components=1
    cp models/demo.gguf "$root/tmp/"
    chroot "$root" /bin/duet-run -m /tmp/demo.gguf -p "Once upon a time" -n 40 --seed 1 2>/dev/null | tee "$work/static.txt"
    [ "$(cat "$work/static.txt")" = "$(sed 1,2d "$work/deb.txt")" ] || fail "another story than in the package"

    step "the archive for every Linux"
    older=
    for place in "buster http://archive.debian.org/debian --no-check-gpg" "bullseye"; do
        # shellcheck disable=SC2086  # words
        if new_root $place; then older=${place%% *}; break; else echo "cannot be had: ${place%% *}"; fi
    done
    if [ -z "$older" ]; then echo "skipped: an older system: none can be had; the symbol versions are what says so"
    else
        mkdir -p "$root/usr/local" && tar -xzf "$files"/duet-*-linux-*[0-9].tar.gz -C "$root/usr/local" --strip-components=1
        inside "/lib/*/libc.so.6 | head -1; duet-run --version; duet-run $story" | tee "$work/tar.txt"
        [ "$(sed 1,3d "$work/tar.txt")" = "$(sed 1,2d "$work/deb.txt")" ] || fail "another story than in the package"
        inside "bash -c '$answers'" | grep "200 OK" || fail "duet-serve does not answer"
    fi
}

case ${1:-quick} in
    quick | twice | roots) "${1:-quick}" ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
echo "tests/packages.sh: passed"
