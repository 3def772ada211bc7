#!/bin/sh
# Runs a program on a TPU VM so that it outlives the SSH connection that started it. run_tpu.sh copies this file there,
# into ~/.run_tpu, and calls it:
#
#   on_vm.sh start RUN COMMAND…      unpack ~/run_tpu.tar.gz, if it exists, and start COMMAND as the run RUN; fail if
#                                    another run is active, and say whether it is of the same COMMAND
#   on_vm.sh log RUN LINES SECONDS   wait for news, at most SECONDS; print the log of RUN after its first LINES lines, and
#                                    the state of RUN
#   on_vm.sh stop RUN LINES SECONDS  send SIGTERM to the program, wait SECONDS for its end, and do the same as log
#
# Each may be repeated after a broken connection: gcloud does so by itself.
#
# The program runs in a session of its own (setsid), with its output in a file: it does not depend on the connection,
# and no hangup reaches it. A unit of systemd would need root, or a user whose units outlive the login.
set -eu
cd "$(dirname -- "$0")/.."
self=$PWD/run_tpu/on_vm.sh action=$1 run=$2
shift 2

this_boot() { cat /proc/sys/kernel/random/boot_id; }

# Sets $seconds to the whole seconds since the boot: the time of day may jump, which would end the wait for a save.
clock() {
  read -r seconds _ </proc/uptime
  seconds=${seconds%%.*}
}

# Sets $state to running, to ended and an exit code, or to gone: killed, or lost when the machine was restarted.
ask() {
  state=gone
  if [ -s "$1/code" ]; then
    state="ended $(cat "$1/code")"
  elif [ -f "$1/supervisor" ]; then
    # A crash of the machine may leave the file empty or half-written.
    read -r pid boot <"$1/supervisor" || boot=
    if [ "$boot" = "$(this_boot)" ] && kill -s 0 "$pid" 2>/dev/null; then state=running; fi
  fi
}

start() {
  if [ -f current ]; then
    other=$(cat current)
    ask "$other"
    if [ "$state" = running ] && [ "$other" != "$run" ]; then
      what='another command on this TPU VM: wait for its end'
      if [ "$(cat "$other/command")" = "$(printf '%s\n' "$@")" ]; then what='the program on this TPU VM'; fi
      echo "on_vm.sh: another start ($other) is running $what" >&2
      exit 3
    fi
  fi
  # If the folder exists, an earlier attempt of the same start succeeded.
  mkdir "$run" 2>/dev/null || return 0
  for old in run_tpu.sh-*; do
    if [ "$old" != "$run" ]; then rm -rf "$old"; fi
  done
  printf '%s\n' "$@" >"$run/command"
  printf '%s\n' "$run" >current
  if [ -f ../run_tpu.tar.gz ]; then
    tar -xzf ../run_tpu.tar.gz
    rm -f ../run_tpu.tar.gz
  fi
  setsid sh "$self" supervise "$run" "$@" </dev/null >"$run/log" 2>&1 &
  printf '%s %s\n' "$!" "$(this_boot)" >"$run/supervisor"
}

# Runs the program and keeps its exit code.
supervise() {
  trap : TERM
  "$@" &
  program=$!
  printf '%s\n' "$program" >"$run/program"
  while :; do
    code=0
    wait "$program" || code=$?
    if ! kill -s 0 "$program" 2>/dev/null; then break; fi
  done
  # Only whole lines are sent.
  if [ -n "$(tail -c 1 "$run/log")" ]; then echo; fi
  printf '%s\n' "$code" >"$run/code.new"
  mv "$run/code.new" "$run/code"
}

# Waits for news that is worth the cost of a connection: the end of the program, or at least 10 seconds of new output.
await_news() {
  clock
  begin=$seconds
  while ask "$run" && [ "$state" = running ] && clock && [ "$seconds" -lt "$((begin + $2))" ]; do
    if [ "$seconds" -ge "$((begin + 10))" ] && [ "$(wc -l <"$run/log")" -gt "$1" ]; then break; fi
    sleep 0.2
  done
}

await_end() {
  clock
  until_second=$((seconds + $1))
  while ask "$run" && [ "$state" = running ] && clock && [ "$seconds" -lt "$until_second" ]; do sleep 0.2; done
}

# Prints a header, the log after the first lines, and a last line with the number of lines and the state. If a connection
# broke within a line, the header begins a new one. The last line ends with a period, so that a truncated one is not
# taken for the state. The exit code is 0 only if the program has succeeded.
report() {
  ask "$run"
  total=0
  if [ -f "$run/log" ]; then total=$(wc -l <"$run/log"); fi
  printf '\n%s log\n' "$run"
  if [ "$total" -gt "$1" ]; then tail -n "+$(($1 + 1))" "$run/log" | head -n "$((total - $1))"; fi
  echo "$run end $((total)) $state."
  [ "$state" = 'ended 0' ]
}

case $action in
  start) start "$@" ;;
  supervise) supervise "$@" ;;
  log)
    await_news "$1" "$2"
    report "$1"
    ;;
  stop)
    # A second SIGTERM would end the program before it has saved.
    if mkdir "$run/stopped" 2>/dev/null; then
      while ask "$run" && [ "$state" = running ] && [ ! -s "$run/program" ]; do sleep 0.2; done
      if [ "$state" = running ]; then kill -s TERM "$(cat "$run/program")" || true; fi
    fi
    await_end "$2"
    report "$1"
    ;;
esac
