#!/usr/bin/env bash
# scale.sh IOLOOM [SECONDS [ROUNDS]]: operations per CPU-second with 1, 2 and 4 servers before one PostgreSQL
# database, behind haproxy, all on this machine. Prints one line per run, in an order that changes by round.
set -eu
ioloom=$1 seconds=${2:-6} rounds=${3:-3}
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
dir=$(mktemp -d)
chmod 755 "$dir"
started=()
trap 'kill "${started[@]}" 2>/dev/null; wait; rm -rf "$dir"' EXIT
as() { if [ "$(id -u)" = 0 ]; then setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; else "$@"; fi; }
mkdir -m 777 "$dir/pg"
as "$bin/initdb" -D "$dir/pg/data" -U tester -A trust --locale=C >/dev/null
as "$bin/postgres" -D "$dir/pg/data" -k "$dir/pg" -c listen_addresses= -c max_connections=100 2>"$dir/pg/log" &
postgres=$!
started+=($postgres)
until "$bin/psql" -h "$dir/pg" -U tester -d postgres -qc 'CREATE DATABASE stocks' 2>/dev/null; do sleep 0.1; done
postgres=$(head -1 "$dir/pg/data/postmaster.pid")

# CPU seconds of processes and their children that have ended, in ticks.
ticks() { local sum=0 pid; for pid in "$@"; do
    set -- $(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null) && sum=$((sum + ${12} + ${13} + ${14} + ${15})); done; echo $sum; }
backends() { pgrep -P "$postgres"; echo "$postgres"; }
hertz=$(getconf CLK_TCK)

run() {
    local servers=$1 level=$2 pids=() ports=() at port
    rm -f "$dir"/log-*
    for at in $(seq "$servers"); do
        for stock in 1 2 3 4 5 6 7 8 9 10; do echo "$stock 100000000 10"; done >"$dir/stock-$at.txt"
        "$ioloom" serve --stock "$dir/stock-$at.txt" --listen 127.0.0.1:0 --durability "$level" --store postgres \
            --database "host=$dir/pg user=tester dbname=stocks" 2>"$dir/log-$at" &
        pids+=($!)
        until [ -s "$dir/log-$at" ]; do sleep 0.05; done
        until port=$(sed -n 's/^ioloom: listening on .*://p' "$dir/log-$at") && [ -n "$port" ]; do sleep 0.05; done
        ports+=("$port")
    done
    {
        echo "defaults"; echo " mode tcp"; echo " timeout connect 2s"; echo " timeout client 60s"
        echo " timeout server 60s"; echo "listen stocks"; echo " bind 127.0.0.1:17004"
        for port in "${ports[@]}"; do echo " server s$port 127.0.0.1:$port"; done
    } >"$dir/haproxy.cfg"
    haproxy -q -f "$dir/haproxy.cfg" &
    local proxy=$!
    started+=("${pids[@]}" $proxy)
    until (: </dev/tcp/127.0.0.1/17004) 2>/dev/null; do sleep 0.1; done
    local before_s before_p before_d after_s after_p after_d out
    before_s=$(ticks "${pids[@]}") before_p=$(ticks $proxy) before_d=$(ticks $(backends))
    out=$("$ioloom" load 127.0.0.1:17004 --protocol v2 --connections 32 --duration "${seconds}s" --anyway --json)
    after_s=$(ticks "${pids[@]}") after_p=$(ticks $proxy) after_d=$(ticks $(backends))
    echo "$out" | python3 -c "
import json, sys
run = json.load(sys.stdin)
rate = run['runs'][0]['answered_per_s']
cpu = [($after_s - $before_s) / $hertz, ($after_d - $before_d) / $hertz, ($after_p - $before_p) / $hertz]
done = rate * $seconds
print('$level', $servers, round(rate), *[round(c, 2) for c in cpu], round(done / sum(cpu)), sep='\t')"
    kill $proxy "${pids[@]}"
    wait $proxy "${pids[@]}" || true
}

printf 'level\tservers\trate\tservers_cpu_s\tdatabase_cpu_s\tproxy_cpu_s\toperations_per_cpu_s\n'
for round in $(seq "$rounds"); do
    for level in group os; do
        for servers in $(if [ $((round % 2)) = 1 ]; then echo 1 2 4; else echo 4 2 1; fi); do run "$servers" "$level"; done
    done
done
