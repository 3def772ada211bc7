# shellcheck shell=sh
# The end of the script: signals, and the cleanup that deletes the created resource.

# Sends a signal to the running command and its child processes.
signal_command() { kill -s "$1" -- "-$!" 2>/dev/null || kill -s "$1" "$!" 2>/dev/null; }

# shellcheck disable=SC2317  # clean_up calls it.
# Waits until the running command has ended. Ctrl-C, Ctrl-\ or the time limit kills it.
wait_for_command() {
  command=$!
  trap 'kill -s KILL -- "-$command" 2>/dev/null || kill -s KILL "$command"' INT QUIT
  if [ -n "$hurry" ]; then kill -s INT "$$"; fi
  # Ends soon after the command; 124 is the exit code of the time limit.
  (
    timeout "$TIMEOUT_SECONDS" tail --pid="$command" -f /dev/null
    if [ $? -eq 124 ]; then kill -s KILL -- "-$command" || kill -s KILL "$command"; fi
  ) </dev/null >/dev/null 2>&1 3>&- 4>&- &
  while :; do
    wait "$command"
    status=$?
    if ! kill -s 0 "$command" 2>/dev/null; then break; fi
  done
  trap '' INT QUIT
  return "$status"
}

# shellcheck disable=SC2317  # clean_up calls it.
# Announces a wait. From now on, Ctrl-C ends it, even before it begins.
announce() {
  hurry=
  trap 'hurry=1' INT QUIT
  say "$1"
}

waiting='waiting for the program to save its last step; Ctrl-C ends it at once'

# shellcheck disable=SC2317  # The trap calls it.
clean_up() {
  code=$?
  # No signal and no closed terminal may interrupt the cleanup.
  trap '' HUP INT QUIT ABRT PIPE ALRM TERM USR1 USR2 XCPU XFSZ VTALRM
  set +e
  # In some shells, output is still redirected as for the interrupted command.
  exec 2>&4
  case $running in
    '') ;;
    'gcloud compute tpus tpu-vm ssh '*)
      signal_command TERM
      wait_for_command
      ;;
    # A resource cannot be deleted before its creation has finished.
    'gcloud compute instances create '* | 'gcloud compute tpus create '* | 'gcloud compute tpus '*' create '*)
      announce 'waiting for gcloud to finish; Ctrl-C stops it, and then deletes what it made'
      if wait_for_command; then sure=1; else creation_failed; fi
      # A gcloud that was killed may have sent its request.
      if [ "$status" -gt 128 ]; then denied=; fi
      ;;
    "$here/run "*inception_v3.main*)
      announce "$waiting"
      kill -s TERM "$!"
      wait_for_command
      ;;
    *)
      signal_command TERM
      wait_for_command
      ;;
  esac
  running=
  if [ -n "$job" ]; then stop_on_vm; fi
  # Even after a signal: the same command cannot resume while the name is taken.
  if [ -n "$made" ] && ! delete_it; then code=2; fi
  rm -f "$archive"
  case $scratch in /dev/null) ;; *) rm -rf "$scratch" ;; esac
  exit "$code"
}

# Every end of the script but SIGKILL cleans up.
set_traps() {
  trap clean_up EXIT
  for end in HUP:129 INT:130 QUIT:131 ABRT:134 USR1:138 USR2:140 PIPE:141 ALRM:142 TERM:75 XCPU:152 XFSZ:153 VTALRM:154; do
    # shellcheck disable=SC2064  # The code is known now.
    trap "exit ${end#*:}" "${end%:*}"
  done
  # A stopped script could not delete the TPU.
  trap '' TSTP TTIN TTOU
}
