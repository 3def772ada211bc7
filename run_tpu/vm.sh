# shellcheck shell=sh
# The run on a TPU VM: copying the program there, starting it, following its log and stopping it. on_vm.sh does the work
# there.
#
# The log is fetched piece by piece, with one short SSH connection for each. If a connection breaks, nothing is lost: the
# piece is fetched again. A stream could not be resumed exactly, because gcloud itself repeats an SSH command after a
# broken connection, up to ten times.

# The files of the program, without this machine's environments, results and caches.
files='run run_tpu setup.py pyproject.toml README.md LICENSE requirements.lock requirements-2.15.lock compat console
data inception_v3 inception_v3_tpu preprocessing tools'

# Runs on_vm.sh on the TPU VM: on_vm CALLER ARGUMENT…. CALLER is quietly, show or in_background. The first host of a
# slice drives it; the image runs a TensorFlow server on each of the others.
on_vm() {
  caller=$1
  shift
  command="$(show sh .run_tpu/run_tpu/on_vm.sh "$@")"
  # The archive exists after each copy_program.
  if [ "$1" = start ]; then
    command="mkdir -p .run_tpu && { [ ! -f run_tpu.tar.gz ] || tar -xzf run_tpu.tar.gz -C .run_tpu run_tpu; } && $command"
  fi
  manage "$caller" vm ssh --worker=0 --ssh-flag=-oServerAliveInterval=15 --command="$command"
}

copy_program() {
  # shellcheck disable=SC2086  # A list of names.
  if ! step tar -C "$here" --exclude=__pycache__ --exclude='.*' -czf "$archive" $files; then
    fail "$archive: the program could not be packed there; free some space, or set TMPDIR"
  fi
  quietly gcloud compute tpus tpu-vm scp "$archive" "$TPU_NAME:run_tpu.tar.gz" --worker=0 \
    --project="$PROJECT" --zone="$ZONE" || return 1
  rm -f "$archive"
}

# Repeats a command that connects to the TPU VM until it succeeds. A new TPU VM may need a few minutes to accept
# connections. Fails if the TPU VM is lost. If a run of this program is active there, that run is followed.
reach() {
  attempts=0
  while ! "$@"; do
    cat "$errors" >&2
    other=$(sed -n 's/.*another start (\([A-Za-z0-9._-]*\)) is running the program .*/\1/p' "$errors")
    case $other in
      '') if said 'another start .* is running'; then job='' && exit 2; fi ;;
      "$mark"-*)
        run=$other
        return
        ;;
      *)
        say "$TPU_NAME: following the run $other; Ctrl-C leaves it running"
        run=$other lines=0 job=''
        return
        ;;
    esac
    if is_lasting; then fail_because "$TPU_NAME: cannot be reached"; fi
    reason=$cause
    ask_for vm
    if is_lost; then return 1; fi
    if [ "$state" = READY ]; then must_be_ours; fi
    attempts=$((attempts + 1))
    if [ "$attempts" -ge 10 ]; then
      say "$TPU_NAME: cannot be reached in $attempts attempts${reason:+: $reason}"
      exit 1
    fi
    step sleep "$RESTART_SECONDS"
  done
}

# Runs the program on the TPU VM to its end, and returns its exit code; 1 if the TPU VM or the program is lost.
train_on_vm() {
  if [ -z "$prepared" ]; then reach copy_program || return 1; fi
  set -- ./run --tf=image python -m inception_v3.main "$@"
  # The servers of a slice own its TPUs, so the program must not open those of its own host. It finds the servers by name.
  if [ -n "$pod" ]; then set -- env TPU_LOAD_LIBRARY=0 TPU_NAME="$TPU_NAME" "$@"; fi
  runs=$((runs + 1))
  run=$mark-$runs job=1
  if ! reach on_vm quietly start "$run" "$@"; then
    job=
    return 1
  fi
  # The lines of an earlier run of this start that is still active have already been shown.
  if [ "$run" = "$mark-$runs" ]; then lines=0; fi
  prepared=1
  follow
}

# Prints the log of the program until the program ends, and returns its exit code; 1 if it or the TPU VM is lost.
follow() {
  failures=0 patience=50
  # An answer must take less than the time limit of gcloud.
  if [ "$TIMEOUT_SECONDS" -lt 100 ]; then patience=$((TIMEOUT_SECONDS / 2)); fi
  while :; do
    piece=
    # These commands would fill the screen.
    silent=$followed
    status=0
    on_vm quietly log "$run" "$lines" "$patience" || status=$?
    silent=
    print_piece
    # If the text of the answer could not be stored, its exit code remains.
    if [ "$status" -eq 0 ] && [ "$output" = /dev/null ]; then piece='ended 0'; fi
    if [ -n "$dry_run" ]; then
      job=
      return
    fi
    followed=1
    case $piece in
      running)
        failures=0
        continue
        ;;
      'ended '*)
        job=
        return "${piece#ended }"
        ;;
      gone)
        say "$TPU_NAME: the program is gone; the TPU VM was restarted, or its memory did not suffice"
        job=
        return 1
        ;;
    esac
    cat "$errors" >&2
    ask_for vm
    if is_lost; then
      job=
      return 1
    fi
    if [ "$state" = READY ]; then must_be_ours; fi
    failures=$((failures + 1))
    if [ "$failures" -ge "$MAX_RENEWALS" ]; then
      say "stopped: no connection to $TPU_NAME in $failures attempts; the same command resumes from the last checkpoint"
      exit 1
    fi
    say "no connection to $TPU_NAME, which is ${state:-in an unknown state}; the program continues there. Retrying"
    step sleep "$RESTART_SECONDS"
  done
}

# Prints the piece of the log in $output, and sets $piece to the state of the program (running, ended CODE or gone), and
# $lines to the number of lines so far. A piece without its last line is incomplete, and is not printed.
print_piece() {
  if [ -n "$dry_run" ]; then return; fi
  ended=$(sed -n "/^$run end [0-9]* .*\\.\$/{s/^$run end //;s/\\.\$//;p;q;}" "$output")
  if [ -z "$ended" ]; then return; fi
  # After a broken connection, gcloud has run the command again: each header starts anew.
  awk -v header="$run log" -v end="$run end $ended." '
    $0 == header { count = 0; next }
    $0 == end { for (i = 0; i < count; i++) print text[i]; exit }
    { text[count++] = $0 }' "$output"
  lines=${ended%% *} piece=${ended#* }
}

# shellcheck disable=SC2317  # clean_up calls it.
# Lets the program on the TPU VM save its last step, and waits until it has ended.
stop_on_vm() {
  announce "$waiting"
  job='' piece=''
  on_vm in_background stop "$run" "$lines" "$TIMEOUT_SECONDS"
  print_piece
  case $piece in 'ended '* | gone) return ;; esac
  cat "$errors" >&2
  if [ -n "$made" ]; then return; fi
  say "$TPU_NAME: the program may still run there, and could not be ended. The command is:"
  on_vm show stop "$run" "$lines" "$TIMEOUT_SECONDS" >&2
}

# shellcheck disable=SC2317  # stop_on_vm calls it.
# Runs a command during the cleanup: Ctrl-C does not wait for it.
in_background() {
  prepare_files
  show "$@" >&3
  (launch "$@") </dev/null >"$output" 2>"$errors" 3>&- 4>&- &
  wait_for_command
}
