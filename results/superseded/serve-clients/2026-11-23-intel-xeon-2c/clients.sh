#!/usr/bin/env bash
# clients.sh IOLOOM: runs real clients against every model and prints a table. A cell is "ok" if the client
# exited with 0, printed what it should, and the stocks add up afterwards.
# PYTHON names a Python with the package redis; COURSE is a directory with the program `multiclient` of the
# original assignment (HOST PORT CLIENTS). Missing programs are printed as "-".
set -u
ioloom=$1
python=${PYTHON:-python3}
course=${COURSE:-/nonexistent}
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$dir"' EXIT
models="iterative thread pool request-pool select poll epoll epoll-et reuseport io-threads uring
uring-multishot uring-per-core tokio"
names=("redis-cli" "redis-cli -3" "redis-cli --pipe" "redis-benchmark" "redis-benchmark -3 -P 16" "redis-py"
    "curl" "multiclient, 10" "multiclient, 40")
has() { command -v "$1" >/dev/null; }
limited() { timeout 60 "$@" 2>&1; }

left() { curl -s "http://127.0.0.1:$port/show" | awk '$1 == '"$1"' { print $2 }'; }

client() {
    local before after
    before=$(left 1)
    case $1 in
    0) has redis-cli || return 2
        [ "$(limited redis-cli -p "$port" BUY 1 2)" = $((before - 2)) ] ;;
    1) has redis-cli || return 2
        [ "$(limited redis-cli -3 -p "$port" BUY 1 2)" = $((before - 2)) ] ;;
    2) has redis-cli || return 2
        for _ in $(seq 100); do printf 'BUY 1 1\r\n'; done | limited redis-cli -p "$port" --pipe |
            grep -q 'errors: 0, replies: 100' && [ "$(left 1)" = $((before - 100)) ] ;;
    3) has redis-benchmark || return 2
        limited redis-benchmark -p "$port" -c 8 -n 800 -q BUY 1 1 | grep -q 'requests per second' &&
            [ "$(left 1)" = $((before - 800)) ] && limited redis-benchmark -p "$port" -n 500 -q -t ping |
            grep -q 'PING_INLINE.*requests per second' ;;
    4) has redis-benchmark || return 2
        limited redis-benchmark -3 -p "$port" -c 8 -n 1600 -P 16 -q BUY 1 1 | grep -q 'requests per second' &&
            [ "$(left 1)" = $((before - 1600)) ] ;;
    5) "$python" -c 'import redis' 2>/dev/null || return 2
        limited "$python" -c "
import redis
client = redis.Redis(port=$port)
assert client.ping()
assert int(client.execute_command('BUY', 1, 3)) == $before - 3
pipe = client.pipeline(transaction=False)
for _ in range(50): pipe.execute_command('SELL', 1, 1)
assert len(pipe.execute()) == 50" && [ "$(left 1)" = $((before + 47)) ] ;;
    6) [ "$(limited curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/readyz")" = 200 ] ;;
    7 | 8) [ -x "$course/multiclient" ] || return 2
        local clients=10
        [ "$1" = 8 ] && clients=40
        # Ten orders per client, each answered.
        after=$(limited "$course/multiclient" 127.0.0.1 "$port" $clients | tr -d '\0' |
            grep -c -e success -e 'Not enough' -e '^1 [0-9]* 10')
        [ "$after" = $((clients * 10)) ] ;;
    esac
}

printf '| client |'
for model in $models; do printf ' %s |' "$model"; done
printf '\n|---|'
for model in $models; do printf -- '---|'; done
echo
declare -A table
for model in $models; do
    printf '1 1000000 10\n2 1000000 20\n3 1000000 30\n4 1000000 40\n5 1000000 50\n' >"$dir/stock.txt"
    "$ioloom" serve --stock "$dir/stock.txt" --durability none --model "$model" --listen 127.0.0.1:0 \
        2>"$dir/log" &
    server=$!
    until port=$(sed -n 's/^ioloom: listening on .*://p' "$dir/log") && [ -n "$port" ]; do sleep 0.05; done
    for at in "${!names[@]}"; do
        client "$at" >/dev/null
        case $? in 0) table[$at,$model]=ok ;; 2) table[$at,$model]=- ;; *) table[$at,$model]=FAILED ;; esac
    done
    kill $server
    wait $server || echo "model $model: the server failed" >&2
done
for at in "${!names[@]}"; do
    printf '| %s |' "${names[$at]}"
    for model in $models; do printf ' %s |' "${table[$at,$model]}"; done
    echo
done
