# Makefile: all builds of Duet. Needs a C++20 compiler (g++ 12, clang 15, or newer), make, and nothing else.
#
# `make help` prints the targets and variables, which stand in the lines below that begin with "##".
#
## make                      builds ./run and bin/* (every tools/X.cpp is a program)
## make test                 builds and runs all tests; with -jN in N processes
## make test-server          asks bin/serve with the clients of tests/server/requirements.txt, in build/venv
## make test-more            asks it with more clients, and through the programs of deploy/, in build/venv-more
## make quick                runs the tests that a minute of two cores suffices for
## make check                checks the format of the sources and the includes between folders
## make format               formats the sources (clang-format 19)
## make lib                  builds build/release/libduet.a
## make config=shared shared builds build/shared/libduet.so, which exports the functions of runtime.h and nothing else
## make python               builds the wheel and the sdist of bindings/python, to build/python/dist (docs/python.md)
## make test-python          installs the package in a venv and tests it; PYTHON=python3.9
## make desktop              builds the window of examples/desktop (Qt 6), to build/release/desktop
## make all-in-one           writes build/duet.cpp, the library as one source file for embedders, and compiles it
## make install PREFIX=/usr  installs header, static library, pkg-config file, and the tools as duet-X
## make gpu                  compiles the GPU code for GPU_TARGETS, to build/gpu/
## make release             builds all files that people install, to build/release-files (docs/packages.md)
## make fuzz config=fuzz     builds the fuzzers (CXX=clang++-15)
## make clean                removes what was built
##
## config=C         release (default), debug, sanitize (address + undefined), tsan (threads), coverage, fuzz, shared
## CXX=...          compiler: g++ 12, clang++ 15, or newer; "ccache g++"; aarch64-linux-gnu-g++ with BUILD=build/aarch64
##                  LDFLAGS=-static (tests/arm.sh); x86_64-w64-mingw32-g++-posix for Windows (docs/windows.md)
## CXXFLAGS=...     optimization, -O3 by default; CPPFLAGS, LDFLAGS, LDLIBS are added. What is built already is not built again
##                  for another compiler or other flags: make clean, or another BUILD
## BUILD=...        folder of the objects, build/<config> by default, build/windows for Windows; only build/release puts programs at ./run and bin/
## GPU_TARGETS=...  native (default), none, all, or a list as "sm_90 gfx1100"
## DESTDIR=...      is put before PREFIX by install; LIBDIR=lib/x86_64-linux-gnu: where the library goes under PREFIX
## DUET_TEST_DATA=  folder of large test data, ../shared/data by default; without it some tests say what they skip
## ALONE=1          compiles each file by itself: all take up to twice the time, a change of one less
## V=1              shows the commands

config ?= release
V      ?= 0
ALONE  ?= 0
PREFIX ?= /usr/local
LIBDIR ?= lib
windows = $(findstring mingw,$(CXX))
BUILD  ?= $(if $(windows),build/windows,build/$(config))

# The numeric contract needs IEEE arithmetic as written: no contraction to fma, no fast-math. Code for an instruction
# set stands between target pragmas in its file, so no file needs flags of its own. -O3, because g++ keeps the kernels'
# small arrays of vectors in memory at -O2 (prompt speed: a third).
CXXFLAGS ?= -O3
flags     = -std=c++20 $(CXXFLAGS) -ffp-contract=off -fno-fast-math -fvisibility=hidden -pthread -Wall -Wextra -I.
c_flags   = -x c -std=c99 -pedantic-errors -Wall -Wextra -I.
ldlibs    = -pthread $(if $(windows),,$(if $(filter Linux,$(shell uname)),-ldl)) $(LDLIBS)
# g++ 12 warns about its own std::string at -O3 (GCC bug 105651), takes a source in a group for a header, and looks for
# garbage in its memory for 5 to 10 % of its time unless it may have 300 MB. The c++ of macOS and of some Linux is clang.
flags    += $(if $(findstring clang,$(CXX) $(shell $(CXX) --version 2>/dev/null)),,-Wno-restrict -Wno-subobject-linkage --param ggc-min-heapsize=300000)

# For Windows, by the tools of the compiler's own triple. Its stack is aligned to 16 bytes only, and g++ may spill
# vectors of 32 bytes with moves that want 32 (GCC bug 54412): the assembler writes each as the move that wants nothing.
# Microsoft's printf does not know %zu. Programs are static, so that they need no library of the compiler's.
ifneq ($(windows),)
  exe      = .exe
  triple  := $(filter %mingw32,$(subst -g++, ,$(CXX)))
  flags   += -Wa,-muse-unaligned-vector-move -D__USE_MINGW_ANSI_STDIO=1
  c_flags += -D__USE_MINGW_ANSI_STDIO=1
  ldflags  = -static -Wl,--no-insert-timestamp
  ifeq ($(origin AR),default)
    AR := $(triple)-ar
  endif
endif

ifeq ($(CI),true)
  flags   += -Werror
  c_flags += -Werror
endif

# The library is compiled for size, which halves it and the time it takes to compile, but for what computes, which is
# cpu/, and where a prompt or a mask takes its time (-O2 is 8 to 38 % slower there, -Os twice). -O2 is enough for
# quantize, whose inner loops are unrolled by pragmas, for the order of ops (1.003 times the instructions of -O3, with a
# model of 3 MB), for the sampler (0.96 to 1.02) and for the compiler of grammars: half a million parts take it 0.08 s,
# with -Os 0.11, and 0.1 is promised. What nothing calls is left out of programs. An application's library has no
# emulator, which is for tests.
fast_files    = cpu/% $(addprefix models/,grammar_mask% pretokenizer% tokenizer% unicode%) %_fast.cpp
medium_files  = cpu/ops% quant/% models/grammar_build% models/sampler% gpu/driver_emu%

# Tests ask the library, and tools are thin: they are compiled with little optimization, and tests with the asserts of
# doctest that compile faster. All tests together take 40 % of the time at -O3 and run as fast. The emulator of GPUs,
# which serves tests alone, runs 1.25 times as fast at -O2 as with -Os.
ifneq ($(filter release shared,$(config)),)
  light_flags   = $(if $(filter tools/% tests/%,$(1)),-O1) $(if $(filter tools/serve/%,$(1)),-Os -ffunction-sections)
  size_flags    = $(if $(filter -O3,$(CXXFLAGS)),$(if $(filter tests/% tools/%,$(1)),,-ffunction-sections -fdata-sections \
                  $(if $(filter $(fast_files),$(filter-out cpu/ops%,$(1))),,$(if $(filter $(medium_files),$(filter-out quant/gunzip%,$(1))),-O2,-Os))))
  ldflags      += $(if $(windows)$(findstring macos,$(CXX)),,$(if $(filter Linux,$(shell uname)),-Wl$(comma)--gc-sections))
endif
comma := ,
test_flags   = -DDOCTEST_CONFIG_SUPER_FAST_ASSERTS
# kernel_checks: flags for kernels, and the emulator of GPUs' kernels, with the address sanitizer (.ci/run).
flags_of     = $(light_flags) $(if $(filter tests/%,$(1)),$(test_flags)) $(if $(filter tests/main.cpp tests/test_% tests/group_% tests/fake_%,$(1)),-O0) \
               $(if $(filter sanitize,$(config)),$(if $(filter cpu/kernels% gpu/driver_emu%,$(1)),$(kernel_checks)))

# A recipe begins with the folder of its target and a short line, such as "CC models/llama.cpp"; with V=1 it shows its
# commands instead.
begin = @mkdir -p $(@D) && $(if $(filter 1,$(V)),:,printf '%-4s %s\n')
Q     = $(if $(filter 1,$(V)),,@)

# What each configuration adds to the flags, and what its programs are linked with instead. Boost.Asio has fences, which
# g++'s sanitizer of threads does not follow. Older clang lacks the macro by which tests know the address sanitizer.
sanitizers       = -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer $(if $(findstring clang,$(CXX)),-D__SANITIZE_ADDRESS__=1)
flags_release    =
flags_shared     = -fPIC -DDUET_NO_EMULATOR
flags_debug      = -O0 -g -D_GLIBCXX_ASSERTIONS
flags_sanitize   = -O1 -g1 -D_GLIBCXX_ASSERTIONS $(sanitizers)
flags_tsan       = -O1 -g1 -fsanitize=thread $(if $(findstring clang,$(CXX)),,-Wno-tsan)
flags_coverage   = -O0 -g --coverage
flags_fuzz       = -O1 -g -fsanitize=fuzzer-no-link $(sanitizers)
ldflags_sanitize = $(sanitizers)
ldflags_tsan     = -fsanitize=thread
ldflags_coverage = --coverage
ldflags_fuzz     = $(sanitizers)
ifeq ($(origin flags_$(config)),undefined)
  $(error config=$(config): want release, debug, sanitize, tsan, coverage, fuzz or shared)
endif
flags   := $(flags) $(flags_$(config))
ldflags := $(or $(ldflags_$(config)),$(ldflags))

# Most of the time that a file takes goes into the same headers, but for kernels. So files are compiled in groups, by the
# letter they begin with: a source in $(BUILD) includes those of its group, which takes half the time. Kernels stand
# alone, and files with flags of their own; others that are compiled for speed are in the groups whose names end in
# _fast. CMake compiles each file of the library by itself, and `.ci/run whole` each of all: so they see that it
# includes what it needs.
groups      = $(lib_groups) $(test_groups) $(serve_groups)
test_units  = $(wildcard tests/test_*.cpp)
serve_units = $(filter-out tools/serve/http.cpp,$(wildcard tools/serve/*.cpp))
lib_sources = $(wildcard *.cpp runtime/*.cpp models/*.cpp quant/*.cpp cpu/*.cpp gpu/*.cpp)
ifeq ($(ALONE),0)
  lib_units     = $(filter-out runtime.cpp runtime/commit.cpp cpu/kernels% gpu/code.cpp $(medium_files),$(lib_sources))
  lib_groups    = $(patsubst %,%.cpp,$(addprefix models/group_,a-f g-r s t-z a-z_fast) runtime/group_a-f runtime/group_g-z gpu/group_a-z cpu/group_a-z_fast)
  serve_groups  = $(patsubst %,tools/serve/group_%.cpp,a-l m-z)
  test_groups   = $(patsubst %,tests/group_%.cpp,a-c d-g h-q r-z)
endif
named_like    = $(wildcard $(subst group_,$(if $(filter tests/%,$(1)),test_)[,$(1)]*.cpp))
group_units   = $(filter $(test_units) $(serve_units) $(lib_units),$(call $(if $(findstring _fast,$(1)),filter,filter-out),$(fast_files),$(named_like)))

tool_names   = $(basename $(notdir $(wildcard tools/*.cpp)))
test_sources = tests/main.cpp tests/amx_emulated.cpp tests/vnni_emulated.cpp $(or $(test_groups),$(test_units))
# Programs of one source: faults lets every allocation of every exported function fail once; schema_sample makes values for
# tests/schema_check.py; chat_model writes the model that tests/test_cli_chat.py talks to; gpu_ ones are for GPU code.
small_tests  = test_abi faults schema_sample chat_model gpu_trace gpu_first_hour
fuzz_names   = $(basename $(notdir $(wildcard tests/fuzz_*.cpp)))

lib_objects  = $(patsubst %.cpp,$(BUILD)/%.o,$(filter-out $(lib_units),$(lib_sources)) $(lib_groups))
test_objects = $(test_sources:%.cpp=$(BUILD)/%.o)
library      = $(BUILD)/libduet.a

ifeq ($(BUILD),build/release)
  bin_dir   = bin
  run_path  = run$(exe)
else
  bin_dir   = $(BUILD)/bin
  run_path  = $(BUILD)/bin/run$(exe)
endif
programs     = $(if $(filter run,$(tool_names)),$(run_path)) $(patsubst %,$(bin_dir)/%$(exe),$(filter-out run,$(tool_names)))
version     := $(shell sed -n 's/^.define DUET_VERSION_[A-Z]* *\([0-9]*\)$$/\1/p' runtime.h | paste -sd. -)

.PHONY: all lib tools serve shared dll test test-server test-more test-threads quick check format help fuzz desktop python \
        test-python all-in-one install release clean
.DELETE_ON_ERROR .SECONDARY:

all: tools
tools: $(programs)
lib: $(library)

# --version tells the commit, which is in one object.
commit := $(shell sh packaging/commit.sh 2>/dev/null)
$(BUILD)/commit: FORCE
	@mkdir -p $(@D)
	@echo '$(commit)' | cmp -s - $@ || echo '$(commit)' > $@
$(BUILD)/runtime/commit.o: $(BUILD)/commit
$(BUILD)/runtime/commit.o: flags += $(if $(commit),-DDUET_COMMIT='"$(commit)"')

define compile
	$(begin) CC $(<:$(BUILD)/%=%)
	$(Q)$(CXX) $(flags) $(call size_flags,$*.cpp) $(call flags_of,$*.cpp) $(CPPFLAGS) -MMD -MP -c -o $@ $<
endef
$(BUILD)/%.o: %.cpp
	$(compile)
$(groups:%.cpp=$(BUILD)/%.o): $(BUILD)/%.o: $(BUILD)/%.cpp
	$(compile)
$(groups:%=$(BUILD)/%): $(BUILD)/%.cpp: FORCE
	@mkdir -p $(@D)
	@printf '#include "%s"\n' $(call group_units,$*) > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

# The old archive is removed first, because ar would keep the object of a source that is gone. Objects are appended (q):
# `ar r` replaces one by another of the same name, and two folders may have files of one name. That of macOS lists the
# table of symbols, too.
$(library): $(lib_objects)
	$(begin) AR $@
	@rm -f $@
	$(Q)$(AR) qcs $@ $^
	@test "$$($(AR) t $@ | grep -c '\.o$$')" -eq $(words $^) || { echo "$@: want $(words $^) objects, got fewer"; rm -f $@; exit 1; }

# Nothing but the functions of runtime.h leaves the library, and it brings its C++ library along: a program that opens it
# may have another one (tests/host_dlopen.c). Code and constants share pages, which takes up to 8 KB less.
own_cxx = $(if $(findstring zig,$(CXX)),,-Wl$(comma)-z$(comma)noseparate-code -static-libstdc++ -shared-libgcc -Wl$(comma)--defsym$(comma)_ZN9__gnu_cxx27__verbose_terminate_handlerEv=_ZN4duet11end_processEv)
soname = libduet.so$(if $(filter %.so,$@),,.$(firstword $(subst ., ,$(version))))
$(BUILD)/libduet.so $(BUILD)/libduet.so.$(version): $(lib_objects)
	@test $(config) = shared || { echo "$@: want config=shared"; exit 1; }
	$(begin) LD $@
	@echo '{ global: duet_*; local: *; };' > $(BUILD)/exports.map
	$(Q)$(CXX) $(ldflags) $(LDFLAGS) -shared -Wl,-soname,$(soname) -Wl,--version-script=$(BUILD)/exports.map $(own_cxx) -o $@ $^ $(ldlibs)
shared: $(BUILD)/libduet.so

# All programs, of the tools and the tests, are linked by one recipe. Further rules say of what each is made.
linked = $(programs) $(bin_dir)/serve$(exe) $(patsubst %,$(BUILD)/tests/%$(exe),all threads known_model $(small_tests))
$(linked):
	$(begin) LD $@
	$(Q)$(CXX) $(ldflags) $(LDFLAGS) -o $@ $^ $(ldlibs)
$(run_path): $(BUILD)/tools/run.o $(library)
$(filter-out $(run_path),$(programs)): $(bin_dir)/%$(exe): $(BUILD)/tools/%.o $(library)

# The server needs headers of two libraries; without them it is left out, with a line that says so. For Windows they are
# those of Debian's packages, in a folder of their own, because its compiler must not see the other headers of Linux.
serve_objects = $(patsubst %.cpp,$(BUILD)/%.o,tools/serve/http.cpp $(or $(serve_groups),$(serve_units)))
has_serve    := $(shell printf '\043include <boost/beast/core.hpp>\n\043include <nlohmann/json.hpp>\n' | \
                  $(CXX) $(CPPFLAGS) -std=c++20 -M -x c++ - >/dev/null 2>&1 && echo yes)
ifneq ($(windows),)
  has_serve   := $(if $(and $(wildcard /usr/include/boost/beast.hpp),$(wildcard /usr/include/nlohmann/json.hpp)),yes)
  $(serve_objects): flags += -isystem $(BUILD)/include -D_WIN32_WINNT=0x0A00 -Wa,-mbig-obj
  $(serve_objects): | $(BUILD)/include/boost $(BUILD)/include/nlohmann
  serve_ldlibs = -lws2_32 -lmswsock
endif
$(BUILD)/include/%:
	@mkdir -p $(@D)
	$(Q)ln -s /usr/include/$* $@
$(bin_dir)/serve$(exe): $(serve_objects) $(library)
$(bin_dir)/serve$(exe): ldlibs += $(serve_ldlibs)
# The page for browsers becomes a raw string of C++.
$(BUILD)/tools/serve/page.inc: tools/serve/page.html
	@mkdir -p $(@D)
	@{ printf 'R"page('; cat $<; printf ')page"\n'; } > $@
$(serve_objects): | $(BUILD)/tools/serve/page.inc
$(serve_objects): flags += -I$(BUILD)/tools/serve
ifeq ($(has_serve),yes)
tools: $(bin_dir)/serve$(exe)
serve: $(bin_dir)/serve$(exe)
else
tools: serve
serve:
	@echo "serve: not built: want the headers of Boost and nlohmann-json: sh setup.sh, or apt-get install libboost-dev nlohmann-json3-dev"
endif

help:
	@sed -n 's/^## \{0,1\}//p' Makefile

# ---- tests: one program of all tests/test_*.cpp, a plain C99 program, and a script that runs every tool --------------

stand_ins = $(addprefix $(BUILD)/tests/,$(if $(windows),nvcuda.dll amdhip64_6.dll amdhip64.dll,libcuda.so.1 libamdhip64.so.6 libamdhip64.so.5))

# The library's objects come first: the linker keeps the first copy of an inline function, and theirs is optimized.
$(BUILD)/tests/all$(exe): $(lib_objects) $(test_objects) | $(stand_ins)

# Stand-ins for the drivers' libraries, opened by tests/test_drivers.cpp.
$(BUILD)/tests/libcuda.so.1 $(BUILD)/tests/nvcuda.dll: fake = tests/fake_cuda.cpp
$(BUILD)/tests/libamdhip64.so.6 $(BUILD)/tests/amdhip64_6.dll: fake = tests/fake_hip.cpp
$(BUILD)/tests/libamdhip64.so.5 $(BUILD)/tests/amdhip64.dll: fake = tests/fake_hip.cpp -DDUET_FAKE_OLD_HIP
$(stand_ins): $(wildcard tests/fake_*) $(wildcard gpu/*.h gpu/*.def)
	$(begin) LD $@
	$(Q)$(CXX) $(flags) $(call flags_of,$(firstword $(fake))) $(ldflags) -fPIC -shared -o $@ $(fake) $(LDFLAGS)

$(BUILD)/tests/test_abi.o: tests/test_abi.c runtime.h
	$(begin) CC $<
	$(Q)$(CXX) $(c_flags) $(if $(filter sanitize,$(config)),$(sanitizers)) -c -o $@ $<

# A program with C++ symbols of its own opens the shared library: build/shared/tests/host_dlopen build/shared/libduet.so MODEL
$(BUILD)/tests/host_dlopen: tests/host_dlopen.c runtime.h
	$(begin) CC $<
	$(Q)$(CC) -std=gnu99 -Wall -Wextra -rdynamic -o $@ $< -ldl

# As many processes as make has: -j4 gives 4.
test_jobs = --jobs=$(or $(patsubst -j%,%,$(filter -j%,$(MAKEFLAGS))),1)

$(small_tests:%=$(BUILD)/tests/%$(exe)): %$(exe): %.o $(library)

# The server asked by real clients (tests/server/README.md): needs python3 with venv and PyPI, so it is not part of test.
$(BUILD)/tests/known_model$(exe): $(BUILD)/tests/server/known_model.o $(library)

test-server: $(bin_dir)/serve $(BUILD)/tests/known_model
	test -d build/venv || python3 -m venv build/venv
	build/venv/bin/pip install -q -r tests/server/requirements.txt
	DUET_SERVE=$(bin_dir)/serve DUET_KNOWN=$(BUILD)/tests/known_model build/venv/bin/python -m pytest -q -rs tests/server

# Further clients, and the programs of deploy/ before real servers (tests/deploy/README.md). PyPI; nginx and haproxy by apt.
test-more: $(bin_dir)/serve $(BUILD)/tests/known_model
	test -d build/venv-more || python3 -m venv build/venv-more
	build/venv-more/bin/pip install -q -r tests/deploy/requirements.txt -r tests/server/requirements_more.txt
	DUET_SERVE=$(bin_dir)/serve DUET_KNOWN=$(BUILD)/tests/known_model build/venv-more/bin/python -m pytest -q -rs \
	    tests/server/test_more_clients.py
	DUET_SERVE=$(bin_dir)/serve DUET_KNOWN=$(BUILD)/tests/known_model build/venv-more/bin/python -m pytest -q -rs tests/deploy

# What the thread sanitizer has to see: .ci/run builds nothing else with it.
test-threads: $(BUILD)/tests/threads $(BUILD)/examples/two_models_cpp
	$(BUILD)/tests/threads -tc="contract: threads*"
	$(two_models)
$(BUILD)/tests/threads$(exe): $(patsubst %,$(BUILD)/tests/%.o,main test_contract test_data) $(library)

# Each example is a program over runtime.h, in C99 or C++.
examples = $(patsubst %.c,$(BUILD)/%,$(wildcard examples/*.c)) $(patsubst %.cpp,$(BUILD)/%_cpp,$(wildcard examples/*.cpp))
$(BUILD)/examples/%: examples/%.c runtime.h $(library)
	$(begin) CC $<
	$(Q)$(CXX) $(c_flags) $(if $(filter sanitize,$(config)),$(sanitizers)) -c -o $@.o $<
	$(Q)$(CXX) $(ldflags) $(LDFLAGS) -o $@ $@.o $(library) $(ldlibs)
$(BUILD)/examples/%_cpp: examples/%.cpp runtime.h $(library)
	$(begin) CC $<
	$(Q)$(CXX) $(flags) $(ldflags) $(LDFLAGS) -o $@ $< $(library) $(ldlibs)

# One model opened twice tells the same story twice.
two_models = $(BUILD)/examples/two_models_cpp models/demo.gguf models/demo.gguf "Once upon a time" | \
	    awk 'BEGIN { RS = "\n----\n" } { text[NR] = $$0 } END { exit !(text[1] == text[2] && length(text[1]) > 50) }'

# The window of examples/desktop: apt-get install qt6-base-dev. tests/desktop.sh drives it.
desktop: $(BUILD)/desktop
$(BUILD)/desktop: examples/desktop/desktop.cpp runtime.h $(library)
	$(begin) CC $<
	$(Q)$(CXX) $(flags) -fPIC $$(pkg-config --cflags Qt6Widgets | sed 's/-I/-isystem /g') $(ldflags) $(LDFLAGS) -o $@ $< $(library) \
	    $$(pkg-config --libs Qt6Widgets) $(ldlibs)

test: $(BUILD)/tests/all $(BUILD)/tests/test_abi $(BUILD)/tests/chat_model $(stand_ins) $(programs) $(examples)
	$(BUILD)/tests/all $(test_jobs)
	$(BUILD)/tests/test_abi
	RUN=./$(run_path) BIN=$(bin_dir) EXAMPLES=$(BUILD)/examples sh tests/test_cli.sh
	if command -v python3 >/dev/null; then python3 tests/test_cli_chat.py ./$(run_path) $(bin_dir) $(BUILD)/tests/chat_model; \
	    else echo "skipped: tests/test_cli_chat.py: no python3"; fi
	sh tests/smoke.sh $(bin_dir) ./$(run_path)
	$(BUILD)/examples/complete models/demo.gguf "Once upon a time" | grep -q .
	$(BUILD)/examples/retrieve_cpp models/demo.gguf examples "a program" | grep -q '^[01]\.[0-9]* examples'
	for chat in chat chat_cpp; do $(BUILD)/tests/chat_model $(BUILD)/chat.gguf && \
	    printf 'hello\nwide\n' | $(BUILD)/examples/$$chat $(BUILD)/chat.gguf | tr -d '> \n' | grep -qx 'Helloworld.漢字😀café' || exit 1; done
	$(two_models)

quick: $(BUILD)/tests/all $(BUILD)/tests/test_abi $(stand_ins)
	$(BUILD)/tests/all --jobs=2 -tce="gpu: *,place: *,drivers: *,self test*,tokenizer: long*"
	$(BUILD)/tests/test_abi

# Tables (.def) keep their columns; doctest and the Unicode table are not written here.
formatted     = $(shell git ls-files '*.h' '*.cpp' '*.c' '*.inc' '*.cuh' '*.cu' | grep -vE 'doctest\.h|unicode_data')
CLANG_FORMAT ?= clang-format-19
format:
	$(begin) FMT $(words $(formatted)) files
	$(Q)$(CLANG_FORMAT) -i $(formatted)

check:
	$(begin) CHECK "the format of the sources"
	$(Q)$(CLANG_FORMAT) --dry-run -Werror $(formatted)
	$(Q)for script in $(sort $(wildcard tests/check_*.py)); do python3 $$script || exit 1; done

fuzz: $(patsubst %,$(BUILD)/tests/%,$(fuzz_names))
$(BUILD)/tests/fuzz_%: $(BUILD)/tests/fuzz_%.o $(library)
	$(begin) LD $@
	$(Q)$(CXX) -fsanitize=fuzzer $(ldflags) $(LDFLAGS) -o $@ $^ $(ldlibs)

# ---- GPU code --------------------------------------------------------------------------------------------------------
#
#   GPU_TARGETS=native        the default: code for the cards in this machine is built in; none; all: every row of
#                             gpu/targets.def; or a list: GPU_TARGETS="sm_90 gfx1100". CUDA code needs nvcc of a CUDA
#                             Toolkit, HIP code clang 19 or newer with lld (no ROCm), or hipcc. Neither to run it.
#   make gpu GPU_TARGETS=...  only these, to build/gpu/
#   make test-amdgpu TARGETS="gfx1100"      every kernel as AMD machine code on the CPU, by the tool in AMDGPU_TOOL, and a
#                                           model whole (TRACE_MODEL); SAMPLE=1: some formats only
#   make test-ptx TARGETS="sm_75 sm_80"     the same as NVIDIA's intermediate code, by the tool in PTX_TOOL
#   make gpu-report TARGETS="gfx1100 sm_90" registers, spills and occupancy of every kernel; fails when one spills
#                                           COUNTS=1: also what is counted of each in benchmarks/gpu_counts.json
#   make gpu-counts TARGETS="gfx1100 sm_90" counts again what kernels do (instructions, bytes, waits), by both tools
#   make gpu-guards TARGETS=...             fails when machine code is worse than tests/gpu_guards.txt says; WRITE=--write
#                                           writes what is better. sm_90 wants nvdisasm: NVDISASM=...

GPU_TARGETS ?= native
TARGETS     ?= gfx1100
HIPCC       ?= $(shell for c in clang-22 clang-21 clang-20 clang-19 clang hipcc /opt/rocm/bin/hipcc; do \
                 v=$$($$c -dumpversion 2>/dev/null) && [ "$${v%%.*}" -ge 19 ] && \
                 { [ "$${c%hipcc}" != "$$c" ] || command -v "$$($$c -print-prog-name=ld.lld)" >/dev/null; } && echo $$c && break; done)
NVCC        ?= $(shell for c in nvcc /usr/local/cuda/bin/nvcc /opt/cuda/bin/nvcc; do command -v $$c && break; done)
AMDGPU_TOOL ?= ../shared/tools/amdgpu
PTX_TOOL    ?= ../shared/tools/ptx
# The chips of the table that the compilers know (all, where there is no compiler).
known_cuda   = $(if $(NVCC),$(shell $(NVCC) --list-gpu-code),sm_%)
known_hip    = $(if $(findstring clang,$(HIPCC)),$(subst -,_,$(shell $(HIPCC) --target=amdgcn --print-supported-cpus 2>&1)),gfx%)
all_chips    = $(filter $(known_cuda) $(known_hip),$(shell grep '^GPU_TARGET' gpu/targets.def | grep -oE 'sm_[0-9]+|gfx[0-9a-z_]+'))
# CUDA's intermediate code, a module for each format: a driver translates only what a model needs.
part_types   = $(shell sed -nE 's/^(FLOAT|QUANT)_TYPE.([a-zA-Z0-9_]+), .*/\2/p' quant/types.def)
text_parts   = $(foreach c,$(if $(NVCC),$(patsubst sm_%,%,$(filter sm_75 sm_80 sm_120,$(known_cuda))),75 80 120),$(foreach p,common $(part_types),compute_$c_$p))
# 9.0 is sm_90, 90010 gfx90a
native_chips = $(sort $(shell { nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sed 's/^ */sm_/'; \
                 cat /sys/class/kfd/kfd/topology/nodes/*/properties | awk '/^gfx_target_version/ && $$2 \
                 { printf "gfx%d%x%x\n", $$2 / 10000, $$2 / 100 % 100, $$2 % 100 }'; } 2>/dev/null | grep -xE 'sm_[0-9]+|gfx[0-9a-f]+'))
have         = $(if $(2),$(1),$(if $(1),$(warning no code for $(1) is built in: $(3))))
ifeq ($(GPU_TARGETS),native)
  gpu_chips := $(native_chips)
  no_row    := $(filter-out $(all_chips) $(filter-out sm_5% sm_6% sm_70 sm_72,$(filter sm_%,$(known_cuda))),$(gpu_chips))
  gpu_chips := $(filter-out $(no_row),$(gpu_chips))$(if $(no_row),$(warning no code for $(no_row) is built in: no row in gpu/targets.def or too old a compiler))
  gpu_chips := $(call have,$(filter sm_%,$(gpu_chips)),$(NVCC),no nvcc) $(call have,$(filter gfx%,$(gpu_chips)),$(HIPCC),no clang 19)
else ifeq ($(GPU_TARGETS),all)
  gpu_chips := $(all_chips) $(text_parts)
else
  gpu_chips := $(filter-out none,$(GPU_TARGETS))
endif
gpu_objects  = $(gpu_chips:%=build/gpu/%.co)

TRACE_MODEL ?= $(firstword $(wildcard $(or $(DUET_TEST_DATA),../shared/data)/golden/q-Q4_K_M/model.gguf))

.PHONY: gpu test-amdgpu test-ptx gpu-report gpu-guards gpu-counts FORCE
gpu: $(gpu_objects)

hip = $(or $(HIPCC),$(error $(@F): want clang 19 or newer, or hipcc: name it with HIPCC=...)) -x hip --cuda-device-only --no-gpu-bundle-output \
      -nogpulib -nogpuinc -O3 -std=c++20 -ffp-contract=off -Wall -Wextra -I. -MMD -MP -MF $@.d \
      -mcode-object-version=$(if $(findstring generic,$@),6,5)
sampled = $(if $(findstring sample,$*),-DDUET_SAMPLE)
# The version is byte 8 of the ELF header, two less.
object_version = $(Q)test $$(od -An -tu1 -j8 -N1 $@) -eq $(if $(findstring generic,$@),4,3) || { echo "$@: a code object of another version than asked for"; exit 1; }
# Chips' names, and for tests of the sampled formats gfx1100-sample, sm_80-sample.
build/gpu/gfx%.co: gpu/kernels.cu
	$(begin) HIP $@
	$(Q)$(hip) --offload-arch=$(subst _,-,gfx$(*:-sample=)) $(sampled) $< -o $@
	$(object_version)

nvcc = $(or $(NVCC),$(error $(@F): want nvcc of a CUDA Toolkit: name it with NVCC=...)) -O3 -std=c++20 -fmad=false --expt-relaxed-constexpr -I. -MMD -MP -MF $@.d -x cu
build/gpu/sm_%.co: gpu/kernels.cu
	$(begin) NVCC $@
	$(Q)$(nvcc) -arch=sm_$(*:-sample=) -cubin $(sampled) $< -o $@
# compute_80_common has the kernels without a format, compute_80_q4_K those of one, whose row of the table is $@.def.
build/gpu/compute_%_common.co: gpu/kernels.cu
	$(begin) NVCC $@
	$(Q)$(nvcc) -arch=compute_$* -DDUET_PART=0 -DDUET_PART_COMMON -ptx $< -o $@
arch = $(firstword $(subst _, ,$*))
build/gpu/compute_%.co: gpu/kernels.cu quant/types.def
	$(begin) NVCC $@
	@{ grep -E '^(FLOAT|QUANT)_TYPE\($(*:$(arch)_%=%),' quant/types.def && printf '#undef FLOAT_TYPE\n#undef QUANT_TYPE\n'; } > $@.def
	$(Q)$(nvcc) -arch=compute_$(arch) -DDUET_PART=$$(sed -nE '1s/[^,]*,[^,]*, *([0-9]+),.*/\1/p' $@.def) -DDUET_PART_TYPE='"$@.def"' -ptx $< -o $@
# For the test: one file of one chip.
build/gpu/sm_%.ptx: gpu/kernels.cu
	$(begin) NVCC $@
	$(Q)$(nvcc) -arch=compute_$(*:-sample=) $(sampled) -ptx $< -o $@

# Packed: all chips take a third of their size, which the library undoes (gpu/code.cpp).
build/gpu/%.co.gz: build/gpu/%.co
	$(Q)gzip -9 -n -c $< > $@

# What is built in changes with the list of chips. Not through ccache, which does not see what .incbin reads.
build/gpu/chips: FORCE
	@mkdir -p $(@D)
	@echo '$(gpu_chips)' | cmp -s - $@ || echo '$(gpu_chips)' > $@
cuda_version = $(if $(filter sm_% compute_%,$(gpu_chips)),$(shell $(NVCC) --version | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p' | { read -r a b; echo $$((a * 1000 + b * 10)); }))
$(BUILD)/gpu/code.o: gpu/code.cpp gpu/driver.h $(gpu_objects:=.gz) build/gpu/chips
	$(begin) CC gpu/code.cpp
	$(Q)$(filter-out ccache,$(CXX)) $(flags) $(CPPFLAGS) -DDUET_GPU_CODE='$(foreach c,$(gpu_chips),GPU_CODE($c))' -DDUET_GPU_FOLDER='"build/gpu/"' \
	    -DDUET_CUDA_VERSION=$(or $(cuda_version),0) -c -o $@ $<

trace_cases = $< $(word 1,$(subst -, ,$(basename $(@F)))) $@ $(if $(findstring sample,$*),sample)
build/gpu/cases%.trace: $(BUILD)/tests/gpu_trace
	$(trace_cases)
build/gpu/fast%.trace: $(BUILD)/tests/gpu_trace
	$(trace_cases)

build/gpu/model.trace build/gpu/walk.trace: $(BUILD)/tests/gpu_trace $(TRACE_MODEL)
	$< $(TRACE_MODEL) $@ 6 $(filter walk,$(basename $(@F)))

sample = $(if $(SAMPLE),-sample,-all)
traces = build/gpu/cases$(sample).trace build/gpu/fast$(sample).trace $(if $(wildcard $(TRACE_MODEL)),build/gpu/model.trace build/gpu/walk.trace)
# Mode fast is only where the chip has float tiles (has_float_tiles of gpu/simt.h).
traces_of = $(if $(shell grep -E ' $*,.*(mma_m16|mfma_k|wmma)' gpu/targets.def),$(traces),$(filter-out build/gpu/fast%,$(traces)))
test-amdgpu: $(patsubst %,test-amdgpu/%,$(TARGETS))
test-ptx: $(patsubst %,test-ptx/%,$(TARGETS))
test-amdgpu test-ptx:
	@$(if $(wildcard $(TRACE_MODEL)),:,echo "skipped: a model whole (TRACE_MODEL=...)")
test-amdgpu/%: build/gpu/%$(sample:-all=).co $(traces)
	python3 tests/gpu_replay.py $(AMDGPU_TOOL) $< $(traces_of)
test-ptx/%: build/gpu/%$(sample:-all=).ptx $(traces)
	python3 tests/gpu_replay.py $(PTX_TOOL) $< $(traces_of)

gpu-report: $(patsubst %,build/gpu/%$(sample:-all=).co,$(TARGETS))
	python3 tests/gpu_report.py $^
	$(if $(COUNTS),$(Q)for chip in $(TARGETS); do python3 benchmarks/gpu_counts.py --print benchmarks/gpu_counts.json $$chip || exit; done)

# Counts for the model of a card: minutes of one core for a chip, so they are kept in a file.
gpu-counts: $(BUILD)/tests/gpu_trace $(foreach t,$(TARGETS),gpu-counts/$t)
gpu-counts/gfx%: $(BUILD)/tests/gpu_trace build/gpu/gfx%-sample.co
	python3 benchmarks/gpu_counts.py benchmarks/gpu_counts.json $< $(AMDGPU_TOOL) build/gpu/gfx$*-sample.co
gpu-counts/sm_%: $(BUILD)/tests/gpu_trace build/gpu/sm_%-sample.ptx build/gpu/sm_%-sample.co
	python3 benchmarks/gpu_counts.py benchmarks/gpu_counts.json $< $(PTX_TOOL) build/gpu/sm_$*-sample.ptx
	python3 benchmarks/gpu_counts.py --registers benchmarks/gpu_counts.json build/gpu/sm_$*-sample.co

gpu-guards: $(patsubst %,build/gpu/%$(sample:-all=).co,$(TARGETS))
	python3 tests/gpu_guards.py $(WRITE) tests/gpu_guards.txt $^

# ---- for embedders ---------------------------------------------------------------------------------------------------

build/duet.cpp: amalgamate.awk $(filter-out build/%,$(wildcard *.cpp *.h */*.cpp */*.h */*.def */*.inc */*/*.inc))
	$(begin) AWK $@
	$(Q)awk -f amalgamate.awk $(lib_sources) > $@

all-in-one: build/duet.cpp
	$(begin) CC $<
	$(Q)$(CXX) -std=c++20 -O2 -c -o build/duet.o $<

# ---- Python (docs/python.md): needs python3 with venv, and PyPI ---------------------------------------------------------

python:
	sh bindings/python/build.sh
test-python: $(BUILD)/tests/chat_model
	DUET_CHAT_MODEL=$(CURDIR)/$< CXX="$(CXX)" CXXFLAGS="$(CXXFLAGS)" sh bindings/python/test.sh

# For Windows: the library as a DLL with the list of its functions and an import library. Only runtime.cpp exports.
dll_objects = $(filter-out $(BUILD)/runtime.o,$(lib_objects)) $(BUILD)/dll/runtime.o
dll: $(BUILD)/duet.dll
$(BUILD)/dll/runtime.o: flags += -DDUET_SHARED -DDUET_BUILD
$(BUILD)/dll/%.o: %.cpp
	$(compile)
$(BUILD)/duet.dll: $(dll_objects)
	$(begin) LD $@
	$(Q)$(CXX) $(ldflags) $(LDFLAGS) -shared -Wl,--out-implib,$(BUILD)/libduet.dll.a,--output-def,$(BUILD)/duet.def -o $@ $^ $(ldlibs)
$(BUILD)/examples/%_dll.exe: examples/%.c runtime.h $(BUILD)/duet.dll
	$(begin) CC $<
	$(Q)$(CXX) $(c_flags) -DDUET_SHARED -c -o $@.o $<
	$(Q)$(CXX) -static -o $@ $@.o $(BUILD)/libduet.dll.a

install: $(library) $(programs) $(if $(has_serve),$(bin_dir)/serve)
	install -d $(DESTDIR)$(PREFIX)/include/duet $(DESTDIR)$(PREFIX)/$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/bin
	install -m 644 runtime.h $(DESTDIR)$(PREFIX)/include/duet/
	install -m 644 $(library) $(DESTDIR)$(PREFIX)/$(LIBDIR)/
	sed -e 's|@CMAKE_INSTALL_PREFIX@|$(PREFIX)|;s|@CMAKE_INSTALL_LIBDIR@|$(LIBDIR)|;s|@CMAKE_INSTALL_INCLUDEDIR@|include|;s|@PROJECT_VERSION@|$(version)|' \
	    -e 's|@DUET_LIBS@|$(if $(filter Darwin,$(shell uname)),-lc++,-lstdc++ -lm -ldl -pthread)|' duet.pc.in > $(DESTDIR)$(PREFIX)/$(LIBDIR)/pkgconfig/duet.pc
	for t in $(programs) $(if $(has_serve),$(bin_dir)/serve); do install -m 755 $$t $(DESTDIR)$(PREFIX)/bin/duet-$$(basename $$t) || exit 1; done

# Files people install (docs/packages.md), to build/release-files.
release:
	sh packaging/release.sh

clean:
	rm -rf build bin run

-include $(lib_objects:.o=.d) $(test_objects:.o=.d) $(patsubst %,$(BUILD)/tools/%.d,$(tool_names)) $(serve_objects:.o=.d) \
         $(patsubst %,$(BUILD)/tests/%.d,$(fuzz_names) gpu_trace faults schema_sample chat_model) $(BUILD)/dll/runtime.d $(wildcard build/gpu/*.d)
