#!/bin/sh
# packaging/symbols.sh VERSION FILE...: fails where a program or library needs a newer glibc than VERSION (none: any library at
# all), or another library than those of glibc.
set -eu
most=$1
shift
is_bad=0
for file in "$@"; do
    libraries=$(objdump -p "$file" | sed -n 's/^ *NEEDED *//p')
    newest=$(objdump -T "$file" 2>/dev/null | grep -oE 'GLIBC_[0-9.]+' | sed 's/GLIBC_//' | sort -uV | tail -1)
    if [ "$most" = none ]; then
        [ -z "$libraries$newest" ] || { echo "$file: want no libraries, found: $libraries (glibc $newest)"; is_bad=1; }
        continue
    fi
    others=$(echo "$libraries" | grep -vxE 'lib(c|m|pthread|dl|rt)\.so\.[0-9]|ld-linux[a-z0-9_-]*\.so\.[0-9]' || true)
    [ -z "$others" ] || { echo "$file: want glibc alone, found: $others"; is_bad=1; }
    [ -n "$newest" ] || { echo "$file: found no symbol versions of glibc"; is_bad=1; }
    [ "$(printf '%s\n%s\n' "$newest" "$most" | sort -V | tail -1)" = "$most" ] ||
        { echo "$file: want glibc $most or older, needs $newest: $(objdump -T "$file" | grep -F "GLIBC_$newest" | head -3)"; is_bad=1; }
done
exit $is_bad
