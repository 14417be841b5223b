---@meta luapulse
-- SPDX-License-Identifier: MIT
-- Types of the module for editors that read LuaCATS annotations. Nothing here runs.

---@class luapulse
---@field version string
local pulse = {}

---@alias luapulse.engine
---| "walk"   # cpu and wall clock: the stack is read out of memory in the tick's signal handler
---| "hook"   # cpu clock on PUC Lua, by the interface: the tick arms a hook that fires once
---| "luajit" # cpu clock on LuaJIT, by the interface: its own profiler, driven by our ticks
---| "count"  # instructions clock
---| "trace"  # tracing: hooks on every call and return
---| "none"   # no cpu profile: the heap alone

---Options of `pulse.start`.
---@class luapulse.options
---@field cpu? "sampling"|"tracing"|false CPU profile: some moments, or every call; sampling by default, off when heap is given
---@field heap? "sampling"|"tracing"|false heap profile: some allocations, or every one; off by default
---@field cpu_clock? "cpu"|"wall"|"instructions" default "cpu"
---@field cpu_hz? integer samples per second of CPU time (wall clock: of time), 1 to 10000; default 100
---@field cpu_engine? "auto"|"walk"|"interface" how stacks are read; default "auto"
---@field layout? string a file made by `luapulse layout`, for a Lua that is not known
---@field cpu_sample_mean_instr? integer instructions clock: mean gap between samples; default 20000
---@field cpu_max_samples_per_sec? integer instructions clock: at most so many, 0 is no limit; default 200
---@field heap_sample_mean_bytes? integer heap sampling: mean bytes between samples, 1: every block, 0: none; default 524288
---@field gc? boolean|"completed" heap: in use is what a full collection by stop and snapshot leaves (true), what is there now (false), what was there when the last one completed; default false
---@field max_memory_bytes? integer tables of this VM, at least 262144; default 32 MiB
---@field max_process_memory_bytes? integer tables of all VMs of the process; default 64 MiB
---@field trace_events? integer tracing: keep the newest so many calls as a timeline; default 0
---@field trace_filter? string|string[] tracing: only calls of functions whose name or file fits go into the timeline
---@field seed? integer of the random gaps; taken from the system by default

---@class luapulse.status
---@field running boolean the fields below are there only while it is true
---@field paused? boolean
---@field engine? luapulse.engine
---@field source? "perf"|"timer"|"tsc"|"vdso"|"" what ticks: a high-resolution event, the kernel's tick; tracing's clock: the processor's time-stamp counter, CLOCK_MONOTONIC; nothing
---@field rate? integer ticks a second that the source can give
---@field cost_ns? integer CPU time a tick takes, a moving average
---@field note? string why the walker does not serve; "" when it does
---@field rejects? table<string, integer> samples whose stack could not be told, by reason
---@field samples? integer taken so far
---@field overflow? integer
---@field truncated? integer
---@field unattributed? integer
---@field dropped? integer
---@field rate_limited? integer
---@field memory_bytes? integer in use by the tables of this VM

---Starts profiling this VM. Fails when it is being profiled already.
---@param options? luapulse.options
function pulse.start(options) end

---Of `pulse.stop` and `pulse.snapshot`, when the heap is profiled.
---@class luapulse.moment
---@field gc? boolean|"completed" as for `pulse.start`, in its place

---Ends profiling.
---@param options? luapulse.moment
---@return luapulse.profile
function pulse.stop(options) end

---A copy of what was collected so far; profiling goes on.
---@param options? luapulse.moment
---@return luapulse.profile
function pulse.snapshot(options) end

---What runs until `resume` is not counted.
function pulse.pause() end

function pulse.resume() end

---From now on one sample of the heap in so many bytes, on average; fails when the heap is not being sampled.
---@param bytes integer 1: every block, 0: none until it is changed again
function pulse.heap_rate(bytes) end

---@return luapulse.status
function pulse.status() end

---Labels on the samples of this coroutine, from now until changed; nothing takes them off.
---@param labels? table<string|number|boolean, string|number|boolean> at most 32
function pulse.labels(labels) end

---Calls f so that the name stands on the stack as a function of its own; returns what f returns.
---@param name string at most 200 bytes, one line; there may be 1000 names, the rest are called "other"
---@param f function
---@param ... any its arguments
---@return any ...
function pulse.region(name, f, ...) end

---@class luapulse.profile
local profile = {}

---Writes the file whole or not at all.
---@param path string
---@param format? "pprof"|"html"|"folded"|"speedscope"|"callgrind"|"chrome"|"text" by default told by the extension
function profile:write(path, format) end

---@class luapulse.row
---@field name string
---@field file string
---@field line integer of definition, 0 when unknown
---@field flat integer in the function itself, in the unit of the profile's default type: nanoseconds, instructions, bytes
---@field cum integer with all it called
---@field flat_percent number
---@field cum_percent number

---A list of rows, heaviest first; tostring() gives a table for people.
---@class luapulse.top
---@field [integer] luapulse.row
---@field text string

---@param n? integer default 10; 0 for all
---@return luapulse.top
function profile:top(n) end

---@return string stacks one line each, for flamegraph.pl and the like
function profile:folded() end

---@class luapulse.frame
---@field name string
---@field file string
---@field line integer that ran, 0 when unknown
---@field defined integer line of definition, 0 when unknown

---@class luapulse.sample
---@field stack luapulse.frame[] leaf first
---@field labels table<string, string|integer>
---@field samples? integer (sampling)
---@field calls? integer (tracing, as all that follow up to max)
---@field exclusive? integer nanoseconds in the function itself, corrected for what the profiler took
---@field inclusive? integer nanoseconds with all it called; 0 where the function stands on the path above already
---@field exclusive_raw? integer as measured
---@field inclusive_raw? integer
---@field min? integer nanoseconds of the shortest call, 0 when none has returned
---@field max? integer of the longest
---@field cpu? integer nanoseconds (cpu clock)
---@field wall? integer nanoseconds (wall clock)
---@field vm_instructions? integer (instructions clock)
---@field alloc_objects? integer blocks allocated (heap, as all that follow)
---@field alloc_space? integer bytes
---@field inuse_objects? integer blocks in use
---@field inuse_space? integer bytes
---@field peak_objects? integer blocks in use when most was (heap tracing)
---@field peak_space? integer bytes

---@return luapulse.sample[]
function profile:samples() end

---@class luapulse.stats
---@field cpu_inclusive_samples_total? integer sampling
---@field calls? integer tracing
---@field exclusive? integer tracing: nanoseconds, the sum over all paths
---@field exclusive_raw? integer
---@field cpu_inclusive_ns_total? integer cpu clock
---@field wall? integer nanoseconds, wall clock
---@field cpu_inclusive_instructions_total? integer instructions clock
---@field stacks integer
---@field functions integer
---@field duration_ns integer
---@field period integer
---@field overflow integer
---@field truncated integer
---@field unattributed integer
---@field dropped integer
---@field rate_limited integer
---@field gone integer of profiles taken from outside
---@field comments string[]
---@field alloc_objects? integer the sum over all samples (heap, as all that follow)
---@field alloc_space? integer
---@field inuse_objects? integer
---@field inuse_space? integer
---@field peak_objects? integer heap tracing
---@field peak_space? integer
---@field heap_alloc_bytes_total? integer exact, of all blocks, as the next seven
---@field heap_alloc_objects_total? integer
---@field heap_free_bytes_total? integer
---@field heap_free_objects_total? integer
---@field heap_realloc_total? integer changes of size: each is a free and an allocation
---@field heap_realloc_grow_total? integer
---@field heap_realloc_shrink_total? integer
---@field heap_realloc_move_total? integer
---@field heap_failed_total? integer allocations that the host's allocator refused
---@field heap_peak_bytes? integer most that was in use at once, of the blocks that are followed; an estimate when sampled
---@field heap_live_bytes? integer in use now, likewise
---@field heap_live_blocks? integer blocks that are followed
---@field heap_gc_cycles? integer collections completed
---@field heap_vm_bytes_start? integer collectgarbage("count") at start, in bytes
---@field heap_vm_bytes? integer and at the end
---@field heap_sample_mean_bytes? integer at start; 1 when traced

---@return luapulse.stats
function profile:stats() end

return pulse
