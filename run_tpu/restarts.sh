# shellcheck shell=sh
# Restarts of a failed program, on a new TPU if the old one is lost.

# Sets $checkpoint, unless gcloud fails, and returns whether it has changed.
there_is_a_new_checkpoint() {
  before=$checkpoint
  # The other lines of the file change at every start of the program.
  if quietly gcloud storage cat "$MODEL_DIR/checkpoint"; then
    checkpoint=$(sed -n 's/^model_checkpoint_path: //p' "$output")
  fi
  [ "$checkpoint" != "$before" ]
}

# Waits, and creates a new TPU if the TPU was created here and is lost.
get_tpu_back() {
  lost='' renewals=0
  while :; do
    step sleep "$RESTART_SECONDS"
    ask_for "$tpu"
    if is_lost; then lost=1; fi
    say "$TPU_NAME is ${state:-in an unknown state}"
    case $state in
      UNKNOWN)
        cat "$errors" >&2
        if is_lasting; then fail "$TPU_NAME: $cause"; fi
        ;;
      '' | NOT_FOUND) ;;
      *)
        must_be_ours
        check_type_and_version
        ;;
    esac
    if [ -z "$made" ] || [ -z "$lost" ]; then return; fi
    if delete_it; then
      if create_tpu; then return; fi
      if [ -n "$sure" ] && [ -z "$seen" ] && [ "$state" = NOT_FOUND ]; then
        fail "$TPU_NAME was created, but cannot be used"
      fi
      # The quota sufficed before.
      if is_lasting && ! said quota; then fail "$TPU_NAME could not be created: $cause"; fi
    fi
    renewals=$((renewals + 1))
    if [ "$renewals" -ge "$MAX_RENEWALS" ]; then
      say "stopped: no new $noun in $renewals attempts; the same command resumes from the last checkpoint"
      return 1
    fi
  done
}

# Runs the program on the TPU, and again after every failure that a restart may mend.
train_until_done() {
  code=0 restarts=0 checkpoint=''
  train "$@" || code=$?
  while [ "$code" -ne 0 ]; do
    case $code in
      2)
        say 'fix this error first; the same command then resumes from the last checkpoint'
        exit "$code"
        ;;
      75) say 'the program was ended by SIGTERM, and has saved its last step' ;;
      129 | 130)
        say 'the program was interrupted; the same command resumes from the last checkpoint'
        exit "$code"
        ;;
    esac
    if there_is_a_new_checkpoint; then restarts=0; fi
    if [ "$restarts" -ge "$MAX_RESTARTS" ]; then
      say "stopped after $restarts restarts without a new checkpoint; the same command resumes from the last one"
      exit "$code"
    fi
    restarts=$((restarts + 1))
    get_tpu_back || exit "$code"
    say "restart $restarts of at most $MAX_RESTARTS without a new checkpoint"
    code=0
    train "$@" || code=$?
  done
}

train() {
  if [ "$tpu" = vm ]; then
    train_on_vm "$@"
  else
    # The program of a TPU node runs here.
    step "$here/run" --tf=1.15 python -m inception_v3.main "$@"
  fi
}
