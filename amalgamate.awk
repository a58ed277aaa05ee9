# amalgamate.awk: writes all sources as one: awk -f amalgamate.awk FILE... > duet.cpp. It expands #include "..." in place:
# headers once, tables (.def) and kernel bodies (.inc) each time. Used by `make all-in-one`. The head of duet.cpp keeps the
# compiler to IEEE arithmetic as written, as the Makefile's flags do: where it may contract to fma, g++ gives other bits.
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
BEGIN {
    print "// duet.cpp: Duet as one source file, made by amalgamate.awk. Compile it beside runtime.h:"
    print "//     g++ -std=c++20 -O2 -c duet.cpp        (or clang++ 15 or newer; link with -pthread -ldl)"
    print "// It keeps to IEEE arithmetic as written, without -ffast-math; -ffp-contract=off is set here."
    print "#ifdef __FAST_MATH__"
    print "#error \"duet.cpp: want IEEE arithmetic as written, got -ffast-math (or -Ofast)\""
    print "#endif"
    print "#ifdef __clang__"
    print "#pragma clang fp contract(off)"
    print "#elif defined(__OPTIMIZE__) && !defined(__OPTIMIZE_SIZE__)  // one level for all: g++ inlines nothing into another"
    print "#pragma GCC optimize(\"fp-contract=off\", \"O3\")"
    print "#else"
    print "#pragma GCC optimize(\"fp-contract=off\")"
    print "#endif"
    for (i = 1; i < ARGC; i++) expand(ARGV[i])
}
