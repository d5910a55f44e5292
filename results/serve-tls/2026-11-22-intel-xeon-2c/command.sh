#!/usr/bin/env bash
# command.sh PROGRAM OUT ROUNDS: a server with and without TLS in turn, held to processor 0, the load to 1
set -euo pipefail
program=$1 out=$2 rounds=$3
: > "$out"
port=7790
for round in $(seq "$rounds"); do
  for load in "1 1" "64 1" "64 16"; do
    set -- $load
    order="plain tls"; [ $((round % 2)) = 0 ] && order="tls plain"
    for how in $order; do
      dir=$(mktemp -d); printf '1 1000000000 100\n' > "$dir/stock.txt"
      serve=(); ask=()
      if [ "$how" = tls ]; then serve=(--tls-cert cert.pem --tls-key key.pem); ask=(--tls --tls-ca cert.pem); fi
      taskset -c 0 "$program" serve --durability none --stock "$dir/stock.txt" --listen 127.0.0.1:$port "${serve[@]}" > "$dir/log" 2>&1 &
      pid=$!
      until "$program" load 127.0.0.1:$port "${ask[@]}" --protocol resp --requests 1 --connections 1 --anyway > /dev/null 2>&1; do sleep 0.1; done
      "$program" load 127.0.0.1:$port "${ask[@]}" --protocol resp --mix buy=1,sell=1 --connections "$1" --pipeline "$2" \
        --duration 1s --cpus 1 --anyway --json | jq -c --arg how "$how" --argjson round "$round" --argjson c "$1" --argjson p "$2" \
        '{how: $how, round: $round, connections: $c, pipeline: $p, answered_per_s: .runs[0].answered_per_s, p50_ns: .runs[0].latency.corrected.p50_ns, p99_ns: .runs[0].latency.corrected.p99_ns, kept_up: .runs[0].generator.kept_up, wrong: .runs[0].outcomes.wrong}' >> "$out"
      kill -TERM $pid; wait $pid || true; rm -rf "$dir"
    done
  done
done
