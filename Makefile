# LuaPulse: builds into build/. V=1 shows the commands; SANITIZE=address,undefined builds with sanitizers (own folder).
#   make            the command and a module for every Lua found      make demo    see it work
#   make check      the quick tests       make test   all of them     make bench   the overhead table
#   make install    PREFIX=/usr/local DESTDIR=                        make help    this and more
VERSION := 0.1.0

PREFIX  ?= /usr/local
DESTDIR ?=
CC      ?= cc
V       ?= 0
SANITIZE ?=

comma := ,
hash := \#
MACHINE := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
B := build$(if $(SANITIZE),/sanitize-$(subst $(comma),-,$(SANITIZE)))
Q := $(if $(filter 0,$(V)),@)
say = $(if $(filter 0,$(V)),@printf '  %-8s %s\n' '$(1)' '$(2)')

WARN   := -Wall -Wextra -Wshadow -Wconversion -Wvla -Wmissing-prototypes -Wstrict-prototypes
# Sanitizers are for the tests: code that is compiled in half the time, and told of by lines, will do. It warns of texts that are cut on purpose.
CFLAGS ?= $(if $(SANITIZE),-O1 -g1 -Wno-format-truncation,-O2 -g)
ALL_CFLAGS = -std=gnu11 -D_GNU_SOURCE -DLUAPULSE_VERSION='"$(VERSION)"' $(WARN) $(CFLAGS) -fPIC -fvisibility=hidden \
  -fno-omit-frame-pointer -Iinclude -Isrc -I$(B)/gen -MMD -MP $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all)
ALL_LDFLAGS = $(LDFLAGS) $(if $(SANITIZE),-fsanitize=$(SANITIZE))

# pkg-config, which knows last of what scripts/newer has unpacked for the tests. Who compiles for another machine says all of it.
PKG := $(if $(PKG_CONFIG_LIBDIR),,PKG_CONFIG_PATH='$(PKG_CONFIG_PATH):$(shell pkg-config --variable pc_path pkg-config 2>/dev/null):$(CURDIR)/build/newer/$(MACHINE)/pkgconfig') pkg-config
known = $(if $(shell $(PKG) --exists $(1) 2>/dev/null && echo y),$(1))

# Lua versions that it knows; LUA_INCDIR=… adds the version whose headers are there.
LUA_INCDIR ?=
LUA_FOUND := $(foreach v,5.1 5.2 5.3 5.4 5.5,$(if $(call known,lua$(v)),$(v)))
LUA_GIVEN := $(if $(LUA_INCDIR),$(shell scripts/lua-version '$(LUA_INCDIR)'))
$(if $(LUA_INCDIR),$(if $(LUA_GIVEN),,$(error LUA_INCDIR=$(LUA_INCDIR): there is no lua.h that compiles; name the folder it is in)))
LUAS := $(sort $(LUA_FOUND) $(LUA_GIVEN))
lua_cflags = $(if $(filter $(1),$(LUA_GIVEN)),-I$(LUA_INCDIR),$(shell $(PKG) --cflags lua$(1)))

PROFILE := $(wildcard src/profile/*.c)
# What only the command needs (reading) stays out of the agent, which others must load.
READERS := $(wildcard src/format/*read*.c)
FORMAT  := $(filter-out $(READERS),$(wildcard src/format/*.c))
NAME    := $(wildcard src/name/*.c)
WALK    := $(wildcard src/walk/*.c)
AGENT   := $(wildcard src/agent/*.c)
# of it, what has no Lua in it, and is the same for all of them
LUALESS := $(patsubst %,src/agent/%.c,budget heap_filter heap_links heap_trail kernel_time loader perf_clock rate_limit rest seccomp stopwatch symbol \
  thread_state tick_event tick_signal tick_weight ticker undrained vm_index)
ATTACH  := $(wildcard src/attach/*.c) src/attach/bpf/programs.c
CLI     := $(wildcard src/cli/*.c)

obj = $(patsubst src/%.c,$(B)/obj/%.o,$(1))
CORE_OBJ := $(call obj,$(PROFILE) $(FORMAT) $(NAME) $(WALK))
CLI_OBJ  := $(CORE_OBJ) $(call obj,$(READERS) $(ATTACH) $(CLI)) $(B)/obj/gen/profile.pb-c.o
MODULES  := $(foreach v,$(LUAS),$(B)/lua/$(v)/luapulse.so)
ARCHIVES := $(foreach v,$(LUAS),$(B)/lib/libluapulse$(v).a)

# `make` without -j builds with as many processes as there are processors; -j1 and the like are obeyed.
CORES = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

export CC
.PHONY: all build tests-build install-files deps test-deps demo test check bench kernels arm64 soak fuzz walk-record install uninstall clean help lint format
all: deps
	@$(MAKE) --no-print-directory $(CORES) build
build: $(B)/luapulse $(MODULES) $(ARCHIVES)
	@:

# Installs what is missing (apt) or lists it and stops before anything is built.
deps:
	@LUA_INCDIR="$(LUA_INCDIR)" scripts/deps build
test-deps:
	@LUA_INCDIR="$(LUA_INCDIR)" scripts/deps build test
	@scripts/newer

# The command is one file that can be copied to another machine: libraries are linked statically where they are there so.
lib = $(if $(findstring /,$(shell $(CC) -print-file-name=lib$(1).a)),-l:lib$(1).a,-l$(1))
# What elfutils opens goes through src/cli/debug_open.c.
COMMAND_LIBS = -Wl,--wrap=open,--wrap=open64 $(foreach l,protobuf-c bpf dw elf lzma bz2 z ncursesw tinfo,$(call lib,$(l))) -lm -ldl -lpthread
$(B)/luapulse: $(CLI_OBJ)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_LDFLAGS) -o $@ $^ $(COMMAND_LIBS)

$(B)/obj/%.o: src/%.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -c -o $@ $<

$(B)/gen/profile.pb-c.c $(B)/gen/profile.pb-c.h &: proto/profile.proto
	$(call say,PROTOC,$@)
	$(Q)mkdir -p $(B)/gen && protoc-c --proto_path=proto --c_out=$(B)/gen $<
$(B)/obj/gen/%.o: $(B)/gen/%.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -Wno-conversion -w -c -o $@ $<
$(call obj,$(READERS)): | $(B)/gen/profile.pb-c.h

# The sampler in the kernel: src/walk compiled for BPF, and embedded in the command as a skeleton.
BPF_CC     ?= clang
BPFTOOL    ?= $(shell command -v bpftool || echo /usr/sbin/bpftool)
BPF_ARCH   := $(patsubst aarch64,arm64,$(patsubst x86_64,x86,$(MACHINE)))
KERNEL_INC := $(shell echo '$(hash)include <asm/types.h>' | $(CC) -E - | sed -n 's|^$(hash) 1 "\(.*\)/asm/types.h".*|\1|p')
BPF_CFLAGS := -O2 -g -target bpf -mcpu=v3 -std=gnu11 -ffreestanding -Wall -Wextra -Wno-unused-function -D__TARGET_ARCH_$(BPF_ARCH) \
  -Isrc -I$(KERNEL_INC)
$(B)/gen/sampler.bpf.o: src/attach/bpf/sampler.bpf.c src/attach/bpf/shared.h $(WALK) $(wildcard src/walk/*.h)
	$(call say,BPF,$@)
	$(Q)mkdir -p $(@D) && $(BPF_CC) $(BPF_CFLAGS) -c -o $@ $<
$(B)/gen/sampler.skel.h: $(B)/gen/sampler.bpf.o
	$(call say,SKELETON,$@)
	$(Q)$(BPFTOOL) gen skeleton $< name sampler >$@.new && mv $@.new $@
$(B)/obj/attach/bpf/programs.o: $(B)/gen/sampler.skel.h
$(B)/obj/format/html.o: $(wildcard web/*)
$(B)/obj/walk/layout_known.o: $(wildcard src/walk/*.layout)

AGENT_OBJ = $(patsubst src/agent/%.c,$(B)/obj/lua$(1)/%.o,$(filter-out $(LUALESS),$(AGENT))) $(call obj,$(LUALESS))
# One module per Lua version, from one source. It stays mapped for good (nodelete): hooks may point into it.
define lua_module
$(B)/obj/lua$(1)/%.o: src/agent/%.c
	$$(call say,CC,$$@)
	$$(Q)mkdir -p $$(@D) && $$(CC) $$(ALL_CFLAGS) $(call lua_cflags,$(1)) -c -o $$@ $$<
$(B)/lua/$(1)/luapulse.so: $(call AGENT_OBJ,$(1)) $(CORE_OBJ)
	$$(call say,LINK,$$@)
	$$(Q)mkdir -p $$(@D) && $$(CC) -shared $$(ALL_LDFLAGS) -Wl,-z,nodelete -Wl,-soname,luapulse$(1).so -o $$@ $$^ -lz -lm -lpthread -ldl -lrt
$(B)/lib/libluapulse$(1).a: $(call AGENT_OBJ,$(1)) $(CORE_OBJ)
	$$(call say,AR,$$@)
	$$(Q)mkdir -p $$(@D) && rm -f $$@ && $$(AR) rcs $$@ $$^
endef
$(foreach v,$(LUAS),$(eval $(call lua_module,$(v))))

# -- see it work ----------------------------------------------------------------------------------------------------

demo: deps
	@$(MAKE) --no-print-directory $(CORES) build
	@echo; echo 'Profiling examples/shop.lua on lua5.4:'; echo
	@build/luapulse run -q -o demo.html -o demo.pb.gz -- lua5.4 examples/shop.lua
	@echo; build/luapulse report --top 12 demo.pb.gz
	@echo; echo 'Written: demo.html (flame graph: open it in a browser) and demo.pb.gz (the profile). Now try:'
	@echo '  build/luapulse report --lines demo.pb.gz'
	@echo '  build/luapulse report --peek render demo.pb.gz'
	@echo '  build/luapulse run -o app.html -- lua5.4 your-app.lua'
	@echo '  go tool pprof -http=: demo.pb.gz'

bench: test-deps
	@$(MAKE) --no-print-directory $(CORES) build $(INTERPRETERS)
	@bench/accuracy
	@echo
	@$(CC) -O2 -o build/ticks bench/ticks.c && build/ticks 100 && build/ticks 1000
	@echo
	@bench/tracing
	@echo
	@bench/heap
	@echo
	@bench/attach
	@echo
	@bench/hosts
	@echo
	@bench/run $(BENCH)
	@echo
	@bench/run --hz 1000 --programs "calls json" --seconds 40
	@echo
	@bench/run --hz 1000 --programs "calls json" --seconds 40 --clock cpu-over-ticks
$(B)/hosts_native: bench/host/native.c $(filter-out $(B)/obj/cli/main.o,$(CLI_OBJ))
	$(call say,CC,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(COMMAND_LIBS)

# -- install ----------------------------------------------------------------------------------------------------------

LIBDIR ?= $(PREFIX)/lib
MANDIR ?= $(PREFIX)/share/man
install: all
	@$(MAKE) --no-print-directory install-files
install-files:
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/include' '$(DESTDIR)$(LIBDIR)/pkgconfig' '$(DESTDIR)$(MANDIR)/man1' '$(DESTDIR)$(MANDIR)/man3'
	install -m 755 $(B)/luapulse '$(DESTDIR)$(PREFIX)/bin/luapulse'
	install -m 644 include/luapulse.h '$(DESTDIR)$(PREFIX)/include/luapulse.h'
	install -m 644 man/*.1 '$(DESTDIR)$(MANDIR)/man1/'
	install -m 644 man/*.3 '$(DESTDIR)$(MANDIR)/man3/'
	for v in $(LUAS); do \
	  install -d "$(DESTDIR)$(LIBDIR)/lua/$$v" && \
	  install -m 755 $(B)/lua/$$v/luapulse.so "$(DESTDIR)$(LIBDIR)/lua/$$v/luapulse.so" && \
	  install -m 644 $(B)/lib/libluapulse$$v.a "$(DESTDIR)$(LIBDIR)/libluapulse$$v.a" && \
	  sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|; '"s|@LUA@|$$v|" luapulse.pc.in \
	    >"$(DESTDIR)$(LIBDIR)/pkgconfig/luapulse$$v.pc" || exit 1; done
	ln -sf luapulse$(lastword $(LUAS)).pc '$(DESTDIR)$(LIBDIR)/pkgconfig/luapulse.pc'
uninstall:
	rm -f '$(DESTDIR)$(PREFIX)/bin/luapulse' '$(DESTDIR)$(PREFIX)/include/luapulse.h' '$(DESTDIR)$(LIBDIR)/pkgconfig/luapulse.pc'
	rm -f $(foreach v,$(LUAS),'$(DESTDIR)$(LIBDIR)/lua/$(v)/luapulse.so' '$(DESTDIR)$(LIBDIR)/libluapulse$(v).a' '$(DESTDIR)$(LIBDIR)/pkgconfig/luapulse$(v).pc')
	rm -f $(patsubst man/%,'$(DESTDIR)$(MANDIR)/man1/%',$(wildcard man/*.1)) $(patsubst man/%,'$(DESTDIR)$(MANDIR)/man3/%',$(wildcard man/*.3))

# -- tests ------------------------------------------------------------------------------------------------------------

UNIT      := $(patsubst tests/unit/%.c,$(B)/tests/unit/%,$(wildcard tests/unit/test_*.c))
HOSTS     := $(patsubst tests/host/%.c,$(B)/tests/host/%,$(wildcard tests/host/*.c))
SUPPORT   := $(foreach v,$(LUAS),$(patsubst tests/support/%.c,$(B)/tests/lua/$(v)/%.so,$(wildcard tests/support/*.c)))
TEST_LIBS := -lcmocka -lprotobuf-c -lz -lm -lpthread -ldl -l:libbpf.a -lelf -lz
HOST_LUA  ?= 5.4
# Of the hosts those in which it matters whose VM it is, in the plain build also with others: build/tests/host-luajit/… (tests/run: host_of)
VM_HOSTS  := fallback fork heap heap_refused heap_threads host_allocator life outside threads tracing wall
HOST_VMS  := $(filter-out $(HOST_LUA),$(filter 5.1 5.5,$(LUA_FOUND))) $(call known,luajit)
OTHER_HOSTS := $(if $(SANITIZE),,$(foreach v,$(HOST_VMS),$(VM_HOSTS:%=$(B)/tests/host-$(v)/%)))
THREADED  := threads tracing heap_threads life wall host_state
# These get an interpreter of ours: LuaJIT with 32-bit references, which x86-64 alone has and which is packaged for TeX, as a library; those of a
# later Debian; and Lua 5.5 where no lua5.5 goes with its headers.
GC32      := $(if $(filter x86_64,$(MACHINE)),$(if $(call known,texluajit),luajit-gc32 luajit-gc32-static))
OWN_LUA55 := $(if $(PKG_CONFIG_LIBDIR),,$(if $(LUA_GIVEN)$(filter-out $(CURDIR)/%,$(shell $(PKG) --variable=pcfiledir lua5.5 2>/dev/null)),$(shell command -v lua5.5)))
NEWER     := $(call known,lua5.4-newer) $(call known,luajit-newer) $(call known,luajit-upstream) $(if $(OWN_LUA55),,$(call known,lua5.5))
INTERPRETERS := $(patsubst %,$(B)/tests/bin/%,$(GC32) $(NEWER))

tests-build: build $(UNIT) $(HOSTS) $(OTHER_HOSTS) $(SUPPORT) $(B)/tests/web/make_page $(B)/tests/cli/profile_fixture $(B)/tests/attach/verify $(INTERPRETERS)
	@:

$(B)/tests/unit/%: tests/unit/%.c $(call obj,$(LUALESS)) $(CORE_OBJ) $(call obj,$(READERS) $(ATTACH)) $(B)/obj/gen/profile.pb-c.o
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -MF $@.d -o $@ $(filter %.c %.o,$^) $(TEST_LIBS)
# Hosts that embed Lua, as a user's program would: our static library and Debian's liblua.
$(B)/tests/host/%: tests/host/%.c $(B)/lib/libluapulse$(HOST_LUA).a
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -MF $@.d $(call lua_cflags,$(HOST_LUA)) -o $@ $(filter %.c %.a,$^) \
	  $$($(PKG) --libs lua$(HOST_LUA)) $(TEST_LIBS)
define vm_host
$(B)/tests/host-$(1)/%: tests/host/%.c $(B)/lib/libluapulse$(2).a
	$$(call say,CC,$$@)
	$$(Q)mkdir -p $$(@D) && $$(CC) $$(ALL_CFLAGS) $$(ALL_LDFLAGS) -MF $$@.d $$$$($$(PKG) --cflags $(3)) -DONE_OF_MANY -o $$@ $$(filter %.c %.a,$$^) \
	  $$$$($$(PKG) --libs $(3)) $$(TEST_LIBS)
endef
$(foreach v,$(HOST_VMS),$(eval $(call vm_host,$(v),$(v:luajit=5.1),$(if $(filter luajit,$(v)),$(v),lua$(v)))))
# Programs that write profiles for tests to read.
$(B)/tests/web/make_page $(B)/tests/cli/profile_fixture: $(B)/tests/%: tests/%.c $(CORE_OBJ)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -MF $@.d -o $@ $(filter %.c %.o,$^) -lz -lm
$(B)/tests/attach/verify: tests/attach/verify.c $(CORE_OBJ) $(call obj,$(ATTACH))
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -Wl,--wrap=bpf_object__load_skeleton -MF $@.d -o $@ $(filter %.c %.o,$^) $(TEST_LIBS)
# Like the interpreters of packages they have no sanitizer in them. The static one of GC32 is for tests that strip and rename it.
interpreter_of = $(if $(filter luajit-gc32%,$(@F)),texluajit,$(@F))
INTERPRETER_LIBS = $$($(PKG) --libs $(interpreter_of))
$(B)/tests/bin/luajit-gc32-static: INTERPRETER_LIBS = -l:libtexluajit.a
$(INTERPRETERS): tests/runtime/interpreter.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) -std=gnu11 $(WARN) $(CFLAGS) $(LDFLAGS) $$($(PKG) --cflags $(interpreter_of)) -o $@ $< -rdynamic $(INTERPRETER_LIBS) -lm -ldl
# Records memory of real interpreters for the tests of src/walk; see tests/walk/record-all.
walk-record: $(B)/tests/walk/record
	@:
$(B)/tests/walk/record: tests/walk/record.c $(call obj,$(WALK))
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -MF $@.d -o $@ $(filter %.c %.o,$^) -lz
define support_module
$(B)/tests/lua/$(1)/%.so: tests/support/%.c
	$$(call say,CC,$$@)
	$$(Q)mkdir -p $$(@D) && $$(CC) -shared $$(ALL_CFLAGS) $$(ALL_LDFLAGS) -MF $$@.d $(call lua_cflags,$(1)) -o $$@ $$<
endef
$(foreach v,$(LUAS),$(eval $(call support_module,$(v))))

check: test-deps
	@$(MAKE) --no-print-directory $(CORES) tests-build
	@tests/run --quick $(T)
test: test-deps
	@$(MAKE) --no-print-directory $(CORES) tests-build
	@$(MAKE) --no-print-directory $(CORES) SANITIZE=address,undefined tests-build
	@$(MAKE) --no-print-directory $(CORES) SANITIZE=thread $(THREADED:%=build/sanitize-thread/tests/host/%)
	@tests/run $(T)

# Of the tests those that depend on the kernel, on others than this machine's, in virtual machines.
kernels: test-deps
	@scripts/deps kernels
	@$(MAKE) --no-print-directory $(CORES) tests-build
	@tests/machines/kernels $(T)

# Of the tests those that depend on the processor, on arm64, in a virtual machine.
arm64: test-deps
	@scripts/deps arm64
	@tests/machines/arm64 $(T)

# Long runs, not part of `make test`: minutes of fuzzing and of storms.
FUZZ_SECONDS ?= 300
fuzz: test-deps
	@scripts/fuzz $(FUZZ_SECONDS)
soak: test-deps
	@$(MAKE) --no-print-directory $(CORES) tests-build
	@$(MAKE) --no-print-directory $(CORES) SANITIZE=address,undefined tests-build
	@scripts/soak

format:
	clang-format -i src/*/*.[ch] src/attach/bpf/*.[ch] include/*.h tests/*/*.[ch] examples/*.c
lint: test-deps
	@$(MAKE) --no-print-directory $(CORES) build
	@scripts/lint

help:
	@sed -n '2,5p' Makefile | sed 's/^# *//'
	@echo 'make kernels, make arm64: on other kernels, on another processor, in virtual machines; make soak, make fuzz: long runs; make lint: clang-format, clang-tidy; make uninstall, make clean'

clean:
	rm -rf build demo.html demo.pb.gz

-include $(shell find $(B)/obj $(B)/tests -name '*.d' 2>/dev/null)
