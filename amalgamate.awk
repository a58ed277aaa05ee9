# amalgamate.awk: writes all sources as one: awk -f amalgamate.awk FILE... > duet.cpp. It expands #include "..." in place:
# headers once, tables (.def) and kernel bodies (.inc) each time. Used by `make all-in-one`.
function expand(path,    line, dir, name, once) {
    once = (path ~ /\.h$/)
    if (once && seen[path]++) return
    dir = path; if (!sub(/\/[^\/]*$/, "/", dir)) dir = ""
    while ((getline line < path) > 0) {
        if (line ~ /^#[ \t]*include[ \t]*"/) {
            name = line; sub(/^[^"]*"/, "", name); sub(/".*/, "", name)
            if ((getline line < (dir name)) >= 0) { close(dir name); name = dir name }
            while (sub(/[^\/.]+\/\.\.\//, "", name)) {}
            expand(name)
        } else if (line !~ /^#pragma once/) print line
    }
    close(path)
}
BEGIN { for (i = 1; i < ARGC; i++) expand(ARGV[i]) }
