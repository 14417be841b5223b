# The verifier of this kernel lets the walkers pass: of each layout that differs from the others in more than numbers.
source "$(dirname "$0")/../attach/attach.sh"

test_each_kind_of_lua() {
  status "$root/$BUILD/tests/attach/verify" 5.1.3 5.2.4 5.3.3 5.4.3 5.5 "2.1 of 2026-07"
  same "$status" 0 "status: $(cat out err)"
  same "$(grep -c '^verified ' out)" 7 "layouts verified: $(cat out)"
}

attach_main "$@"
