#!/usr/bin/env bash
# Prints user instructions for one call, as callgrind counts them: the difference between a run with
# many calls and one with twice as many. Needs valgrind.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# valgrind hides the vDSO, which rustix looks for unless it goes through libc.
export RUSTFLAGS="--cfg=rustix_use_libc"

calls=2000
program=$(cargo bench --locked --bench costs --no-run --message-format=json \
    | grep -o '"executable":"[^"]*costs-[^"]*"' | tail -n 1 | cut -d '"' -f 4)

instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" "$2" 2>&1 >&2 \
        | sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

for call in ping get get_slice multiget_slice insert batch_mutate; do
    less=$(instructions "$call" "$calls")
    more=$(instructions "$call" "$((calls * 2))")
    printf '%-16s%14d\n' "$call" "$(((more - less) / calls))"
done
