#!/bin/sh
# Counts to a number, one per tick, and knows nothing of Penstock's library. It follows the contract that every
# program can follow: on SIGTERM save into $PENSTOCK_CHECKPOINT_DIR and leave; on start look there.
#
# Usage: shell_counter.sh [COUNT] [SECONDS_PER_TICK]

set -eu

count=${1:-60}
tick_s=${2:-1}
saved="${PENSTOCK_CHECKPOINT_DIR:-.}/counter"

save() {
    # Under another name first: a kill in the middle must leave the old number whole.
    echo "$n" >"$saved.new"
    mv "$saved.new" "$saved"
}

leave() {
    kill "$sleeper" 2>/dev/null || true
    save
    echo "stopped at $n"
    exit 143
}

n=0
if [ -f "$saved" ]; then
    n=$(cat "$saved")
fi
echo "counting from $n to $count"

sleeper=
trap leave TERM
while [ "$n" -lt "$count" ]; do
    # In the background, because a shell runs its trap only when the command in the foreground has ended.
    sleep "$tick_s" &
    sleeper=$!
    wait "$sleeper"
    n=$((n + 1))
    if [ $((n % 10)) -eq 0 ]; then
        save
    fi
done
save
echo "counted to $n"
