#!/usr/bin/env bash
# run.sh IOLOOM CLIENT: runs the client (main.go) against every model; prints its last line, the exit code of the
# server, and the final stocks.
for model in iterative thread pool request-pool select poll epoll epoll-et reuseport io-threads uring \
    uring-multishot uring-per-core tokio; do
    dir=$(mktemp -d)
    printf '1 100000 10\n' > "$dir/stock.txt"
    "$1" serve --stock "$dir/stock.txt" --listen 127.0.0.1:0 --model "$model" 2> "$dir/log" &
    for _ in $(seq 200); do
        address=$(sed -n 's/.*listening on //p' "$dir/log" 2>/dev/null)
        [ -n "$address" ] && break
        sleep 0.05
    done
    said=$(timeout 60 "$2" "$address" 2>&1 | tail -1)
    kill $!
    wait $!
    echo "$model: $said, exit code $?, $(cat "$dir/stock.txt")"
    rm -r "$dir"
done
