#!/usr/bin/env bash
# tests/new_format.sh: a number format is three files. Adds three made-up formats (tests/new_format) to a copy of the
# sources, in quant/types.def, quant/blocks.h and quant/quantize.cpp and nowhere else, and runs them on every executor.
# To be quick, the copy keeps only those real formats that runtime/self_test_cases.cpp names (their encoders stay, unused), and is
# built with -O1.
set -euo pipefail
cd "$(dirname "$0")/.."
made=tests/new_format
work=${BUILD:-build}/new_format
mkdir -p "$work"
for folder in quant cpu cpu/simd gpu models runtime tests; do
    mkdir -p "$work/$folder"
    for file in "$folder"/*.{h,cpp,inc,def,cuh,cu}; do
        case $file in quant/blocks.h | quant/quantize.cpp | quant/types.def) continue ;; esac
        # unchanged files keep their time, so that make builds only what changed
        [ ! -e "$file" ] || cmp -s "$file" "$work/$file" || cp "$file" "$work/$file"
    done
done
cp runtime.h "$work"
# what is gone from the tree goes from the copy
for file in "$work"/*/*.cpp; do [ -e "${file#"$work/"}" ] || rm -f "$file" "${file%.cpp}.o"; done

# The text in ADDED goes before the first line of FILE that begins with MARK.
insert() { # FILE MARK ADDED
    awk -v mark="$2" -v added="$3" 'index($0, mark) == 1 && !done { while ((getline line < added) > 0) print line; done = 1 }
        { print } END { exit !done }' "$1" > "$work/changed"
    cmp -s "$work/changed" "$work/$1" || cp "$work/changed" "$work/$1"
}
insert quant/blocks.h '#pragma pack(pop)' $made/blocks.h
insert quant/quantize.cpp '// ---- rows' $made/quantize.inc
awk -v added=$made/types.def '/^QUANT_TYPE/ && !/^QUANT_TYPE\((q4_0|q8_0|q4_K|q5_K|q6_K|mxfp4),/ { next }
    /^#undef/ && !done { while ((getline line < added) > 0) print line; done = 1 } { print }' quant/types.def > "$work/changed"
cmp -s "$work/changed" "$work/quant/types.def" || cp "$work/changed" "$work/quant/types.def"

cat > "$work/Makefile" <<'END'
sources = $(wildcard quant/*.cpp cpu/*.cpp gpu/*.cpp) models/layout.cpp models/os_posix.cpp models/status.cpp runtime/self_test_cases.cpp tests/amx_emulated.cpp tests/vnni_emulated.cpp main.cpp
flags   = -std=c++20 -O1 -ffp-contract=off -pthread -Wall -Wextra -Werror -Wno-restrict -Wno-unused-function -I.
run: $(sources:.cpp=.o)
	$(CXX) -o $@ $^ -pthread -ldl
%.o: %.cpp
	$(CXX) $(flags) -MMD -MP -c -o $@ $<
-include $(sources:.cpp=.d)
END
cmp -s $made/main.cpp "$work/main.cpp" || cp $made/main.cpp "$work/main.cpp"
make -s -C "$work" -j"$(nproc)" CXX="${CXX:-g++}" run
"$work/run"
