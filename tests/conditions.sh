# What a machine may lack, for tests/allowed_skips. Not by asking luapulse: what it cannot do is what the tests are about. That a tool is
# missing which would tell is no answer: then nothing may be skipped.
no_bpf() { PATH=$PATH:/usr/sbin bpftool feature probe kernel 2>/dev/null | grep -q "program_type perf_event is NOT available"; }
no_bpf_stats() { [ ! -w /proc/sys/kernel/bpf_stats_enabled ]; } # as where a container may change no settings
not_root() { [ "$(id -u)" != 0 ]; }
# where a container has a list of processes of its own
no_kernel_threads() { [ "$(cat /proc/2/comm 2>/dev/null)" != kthreadd ]; }
no_32_bit_programs() {
  [ "$(uname -m)" != x86_64 ] || { zcat -f /proc/config.gz "/boot/config-$(uname -r)" 2>/dev/null | grep -q "CONFIG_IA32_EMULATION is not set"; }
}
yama_forbids() { [[ $(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null) == [123] ]]; }
no_perf_events() {
  local paranoid
  paranoid=$(cat /proc/sys/kernel/perf_event_paranoid 2>/dev/null) || return 0 # the kernel has none
  { [ "$paranoid" -gt 2 ] && not_root; } || grep -q '^Seccomp:.*2' /proc/self/status
}
no_flag_of_faults() { [ "$(uname -m)" = aarch64 ]; }
export -f no_bpf no_bpf_stats not_root no_kernel_threads no_32_bit_programs yama_forbids no_perf_events no_flag_of_faults
