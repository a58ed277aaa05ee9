#!/bin/sh
# packaging/commit.sh: tells which commit the tree is: 12 digits of its hash, with -dirty where a tracked file has been changed.
#   packaging/commit.sh           prints "0123456789ab", "0123456789ab-dirty" or "unknown"
#   packaging/commit.sh --date    prints when it was committed, in seconds since 1970: the time of every file in a package
# Asked in this order: DUET_COMMIT and SOURCE_DATE_EPOCH, git, and what `git archive` wrote into this file (.gitattributes).
set -eu
cd "$(dirname "$0")/.."
# shellcheck disable=SC2016  # git archive replaces them
archived='$Format:%H$' archived_date='$Format:%ct$'
# a tree without git may lie in somebody else's repository
is_git() { [ "$(git rev-parse --show-prefix 2>/dev/null || echo none)" = "" ] && git rev-parse -q --verify HEAD >/dev/null; }

if [ "${1:-}" = --date ]; then
    date=${SOURCE_DATE_EPOCH:-}
    if [ -z "$date" ] && is_git; then date=$(git log -1 --format=%ct); fi
    case ${date:-$archived_date} in
        *[!0-9]*) echo 1577836800 ;;  # 2020-01-01, as bindings/python has it
        *) echo "${date:-$archived_date}" ;;
    esac
    exit
fi
commit=${DUET_COMMIT:-}
if [ -z "$commit" ] && is_git; then commit=$(git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || true); fi
if [ -z "$commit" ]; then commit=$(printf '%.12s' "$archived"); fi
case ${commit%-dirty} in
    '' | *[!0-9a-f]*) echo unknown ;;
    *) echo "$commit" ;;
esac
