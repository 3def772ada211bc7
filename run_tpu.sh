#!/bin/sh
# ./run_tpu.sh [--create] [--dry_run] [--FLAG=VALUE …]   trains Inception v3 on a Cloud TPU node.
#
#   --create    create the node, and delete it at the end: after success, an error, Ctrl-C or a lost connection
#   --dry_run   print every command, in order, and run none of them; needs no gcloud
#   --help      print this text
#
# All other flags are flags of the program; ./run python -m inception_v3.main --help lists them. The script
# first checks the node's name, the buckets, the flags and the graphs of the run, before anything costs money.
# If the program fails, the script restarts it, and it resumes from its last checkpoint. If a node made by
# --create was lost, the script creates a new one first. An error that you must fix (exit code 2 of the
# program) ends the run at once. If the program was ended by SIGTERM (exit code 75), it is restarted, too.
# A SIGTERM to this script lets the program save its last step, and ends both.
#
# The node's service account needs access to the buckets. The program connects to the node's internal
# address, so run the script in the node's network, with nohup if the terminal may close.
#
# Cloud Shell is not in that network, and ends before a long run does. There, --create makes a virtual machine
# that creates the node, does the run and deletes both, even if Cloud Shell ends. The default service account
# of Compute Engine needs permission for that (role Editor).
#
# Exit codes: 0 done; 1 failed, retrying may succeed; 2 fix something first, the message says what;
# 75 ended by SIGTERM, 129 by a lost terminal, 130 by Ctrl-C: the same command resumes.
#
# Environment variables and their defaults:
#
# The Google Cloud project; default: the one set by gcloud config set project PROJECT.
PROJECT=${PROJECT:-}
# The zone of the node; default: the one set by gcloud config set compute/zone ZONE.
ZONE=${ZONE:-}
# The bucket for data and results, in the region of the zone.
BUCKET=${BUCKET:-}
BUCKET=${BUCKET#gs://}
# The folders of the records, of checkpoints and results, and of the SavedModel (EXPORT_DIR= for no export).
DATA_DIR=${DATA_DIR:-gs://$BUCKET/imagenet}
MODEL_DIR=${MODEL_DIR:-gs://$BUCKET/inception_v3}
EXPORT_DIR=${EXPORT_DIR-$MODEL_DIR/export}
# The name of the node, its type (v2-8, or a slice such as v2-32), and its TensorFlow version.
TPU_NAME=${TPU_NAME:-inception-v3}
TPU_TYPE=${TPU_TYPE:-v2-8}
TPU_VERSION=${TPU_VERSION:-1.15}
# For --create: preemptible (true or false), the network, and a free /29 range in it; default: Google chooses.
PREEMPTIBLE=${PREEMPTIBLE:-false}
NETWORK=${NETWORK:-default}
TPU_RANGE=${TPU_RANGE:-}
# The maximum number of restarts without a new checkpoint in between, the maximum number of attempts to
# create a new node for a lost one, and the seconds to wait before each.
MAX_RESTARTS=${MAX_RESTARTS:-5}
MAX_RENEWALS=${MAX_RENEWALS:-60}
RESTART_SECONDS=${RESTART_SECONDS:-60}

set -eu

types='v2-8 v2-32 v2-128 v2-256 v2-512 v3-8 v3-32 v3-64 v3-128 v3-256 v3-512 v3-1024 v3-2048'

say() { printf 'run_tpu.sh: %s\n' "$*" >&2; }

# For an error that the user must fix.
fail() {
  say "$@"
  exit 2
}

# For a transient error: retrying may succeed.
fail_for_now() {
  say "$@"
  exit 1
}

# Prints a command with quotes, ready to paste.
show() {
  line=
  for word; do
    case $word in
      '' | *[!A-Za-z0-9_./:=@%+,-]*) word="'$(printf '%s' "$word" | sed "s/'/'\\\\''/g")'" ;;
    esac
    line="$line $word"
  done
  printf '%s\n' "${line# }"
}

# Shows a command and runs it; a dry run only shows it. The command runs in the background, so that the shell
# handles signals at once. The command itself ignores Ctrl-C and a closed terminal.
step() {
  show "$@" >&3
  if [ -n "$dry_run" ]; then return; fi
  running=$1
  (trap '' HUP INT && exec "$@") 3>&- 4>&- &
  status=0
  wait "$!" || status=$?
  running=
  return "$status"
}

# Prints the value of a gcloud setting; nothing if it is not set.
setting() {
  value=$(gcloud config get-value "$1" 2>/dev/null) || value=
  case $value in *[!a-z0-9.:-]*) value= ;; esac
  printf '%s' "$value"
}

# Sets $state to the state that gcloud prints (READY, PREEMPTED …), to NOT_FOUND, to UNKNOWN if gcloud fails, or
# to an empty string if gcloud prints nothing.
ask_for_state() {
  if step gcloud compute tpus describe "$TPU_NAME" --project="$PROJECT" --zone="$ZONE" '--format=value(state)' \
    >"$scratch/state" 2>"$scratch/errors"; then
    state=$(cat "$scratch/state")
    case $state in *[!A-Z_]*) state= ;; esac
  elif said 'not[ _]found'; then
    state=NOT_FOUND
  else
    state=UNKNOWN
  fi
}

cannot_say() {
  cat "$scratch/errors" >&2
  fail_for_now "gcloud cannot tell whether the node $TPU_NAME exists in $ZONE"
}

# Whether the error message of the last failed gcloud command matches.
said() { grep -qiE "$1" "$scratch/errors"; }

# Creates a resource (tpus or instances) with the name of the node and the given flags.
create_it() {
  # From here on the resource may exist, even if gcloud fails.
  made=$1
  shift
  set -- gcloud compute "$made" create "$TPU_NAME" --project="$PROJECT" --zone="$ZONE" --network="$NETWORK" "$@"
  if step "$@" 2>"$scratch/errors"; then
    unsure=
    return
  fi
  cat "$scratch/errors" >&2
  keep_what_existed_before
  return 1
}

# After a failed creation: a resource that existed before, or may have existed, must not be deleted.
keep_what_existed_before() {
  if [ -n "$unsure" ] || said 'already[ _]exists'; then made=; fi
}

create_node() {
  set -- --accelerator-type="$TPU_TYPE" --version="$TPU_VERSION"
  if [ -n "$TPU_RANGE" ]; then set -- "$@" --range="$TPU_RANGE"; fi
  if [ "$PREEMPTIBLE" = true ]; then set -- "$@" --preemptible; fi
  create_it tpus "$@"
}

# Deletes the resource that was created.
delete_it() {
  set -- gcloud compute "$made" delete "$TPU_NAME" --project="$PROJECT" --zone="$ZONE" --quiet
  for attempt in 1 2 3; do
    if step "$@" 2>"$scratch/errors" || said 'not[ _]found'; then
      made=
      return
    fi
    cat "$scratch/errors" >&2
    if [ "$attempt" -lt 3 ]; then sleep "$RESTART_SECONDS"; fi
  done
  say "$TPU_NAME COULD NOT BE DELETED, AND COSTS MONEY UNTIL YOU DELETE IT. The command is:"
  show "$@" >&2
  return 1
}

# shellcheck disable=SC2317  # The trap calls it.
clean_up() {
  code=$?
  # No signal and no closed terminal may interrupt the cleanup.
  trap '' HUP INT PIPE TERM
  set +e
  # In some shells, output is still redirected as for the interrupted command.
  exec 2>&4
  case $running in
    '') ;;
    # A resource cannot be deleted before its creation has finished.
    gcloud)
      say 'waiting for gcloud to finish'
      wait "$!" || keep_what_existed_before
      ;;
    *)
      # The program saves its last step.
      say 'waiting for the program to save its last step'
      kill -TERM "$!"
      wait
      ;;
  esac
  if [ -n "$made" ] && ! delete_it && [ "$code" -eq 0 ]; then code=2; fi
  rm -rf "$scratch"
  exit "$code"
}

# Sets $checkpoint, unless gcloud fails, and returns whether it has changed.
there_is_a_new_checkpoint() {
  before=$checkpoint
  # The other lines of the file change at every start of the program.
  if step gcloud storage cat "$MODEL_DIR/checkpoint" >"$scratch/checkpoint" 2>"$scratch/errors"; then
    checkpoint=$(sed -n 's/^model_checkpoint_path: //p' "$scratch/checkpoint")
  fi
  [ "$checkpoint" != "$before" ]
}

# Waits, and creates a new node if the node was created here and is lost.
get_node_back() {
  lost='' renewals=0
  while :; do
    step sleep "$RESTART_SECONDS"
    ask_for_state
    case $state in PREEMPTED | TERMINATED | STOPPED | DELETING | NOT_FOUND) lost=1 ;; esac
    say "$TPU_NAME is ${state:-in an unknown state}"
    if [ -z "$made" ] || [ -z "$lost" ]; then return; fi
    if delete_it && create_node; then return; fi
    renewals=$((renewals + 1))
    if [ "$renewals" -ge "$MAX_RENEWALS" ]; then
      say "stopped: no new node in $renewals attempts; the same command resumes from the last checkpoint"
      return 1
    fi
  done
}

# Creates a virtual machine that runs this script with the same arguments, and then deletes itself.
hand_over() {
  set -- env
  for name in PROJECT ZONE BUCKET DATA_DIR MODEL_DIR EXPORT_DIR TPU_NAME TPU_TYPE TPU_VERSION PREEMPTIBLE NETWORK \
    TPU_RANGE MAX_RESTARTS MAX_RENEWALS RESTART_SECONDS; do
    eval "set -- \"\$@\" \"$name=\$$name\""
  done
  program=$MODEL_DIR/program at="--project=$PROJECT --zone=$ZONE"
  # Names that begin with a dot are local: environments, caches, git.
  step gcloud storage rsync --recursive '--exclude=(.*/)?(\.|__pycache__/)|(build|runs|site)/' "$here" "$program" ||
    fail_for_now "$program: the program could not be copied there"
  # If the machine has no permission to delete itself, it shuts down, and costs little.
  startup="#!/bin/sh
export HOME=/root
cd \"\$(mktemp -d)\"
{
  # The node did not exist before this machine: a node that exists now is left over from a crash of the machine.
  for attempt in 1 2 3; do
    if gcloud compute tpus delete $TPU_NAME $at --quiet 2>errors || grep -qiE 'not[ _]found' errors; then break; fi
    cat errors
    sleep $RESTART_SECONDS
  done
  apt-get -qq update && apt-get -qq install python3-venv &&
    gcloud storage rsync --recursive $(show "$program") . && chmod +x run run_tpu.sh &&
    $(show "$@") $call
} 2>&1 | tee run_tpu.log
gcloud storage cp run_tpu.log $(show "$MODEL_DIR/run_tpu.log")
gcloud compute instances delete $TPU_NAME $at --quiet || shutdown -h now"
  say "creating the machine $TPU_NAME, which creates the node $TPU_NAME, does the run and deletes both at the end"
  create_it instances --machine-type=n1-standard-8 --boot-disk-size=50GB --scopes=cloud-platform \
    --image-family=debian-12 --image-project=debian-cloud --metadata="^@@@^startup-script=$startup" ||
    fail_for_now "the machine $TPU_NAME could not be created"
  # From here on the machine deletes itself.
  made=
  say "the machine does not need this terminal, and writes its log to $MODEL_DIR/run_tpu.log. To watch it, and to end it early:
  gcloud compute instances tail-serial-port-output $TPU_NAME $at
  gcloud compute instances delete $TPU_NAME $at && gcloud compute tpus delete $TPU_NAME $at"
}

train() {
  step "$here/run" python -m inception_v3.main --tpu="$TPU_NAME" --tpu_zone="$ZONE" --gcp_project="$PROJECT" "$@"
}

case $0 in */*) here=${0%/*} ;; *) here=. ;; esac
create='' dry_run=''
for flag; do
  shift
  # The program accepts -FLAG for --FLAG.
  case $flag in --*) name=$flag ;; -*) name=-$flag ;; *) name= ;; esac
  case ${name%%=*} in
    --help | --h)
      sed -n -e '/^set/q' -e '2,$s/^# \{0,1\}//p' -e 's/^\([A-Z_]*\)=\${[A-Z_]*:\{0,1\}-\(.*\)}$/    \1=\2/p' "$0"
      exit
      ;;
    --create) create=1 ;;
    --dry_run) dry_run=1 ;;
    --tpu) fail "$flag: set the variable TPU_NAME" ;;
    --tpu_zone) fail "$flag: set the variable ZONE" ;;
    --gcp_project) fail "$flag: set the variable PROJECT" ;;
    --num_shards) fail "$flag: set the variable TPU_TYPE" ;;
    --data_dir) fail "$flag: set the variable DATA_DIR" ;;
    --model_dir) fail "$flag: set the variable MODEL_DIR" ;;
    --export_dir) fail "$flag: set the variable EXPORT_DIR" ;;
    --master) fail "$flag: remove it; the variable TPU_NAME names the node" ;;
    --topology) fail "$flag: remove it; the preflight uses the variable TPU_TYPE" ;;
    --use_tpu | --nouse_tpu) fail "$flag: remove it; the run always uses the node" ;;
    --xla | --noxla | --json | --nojson)
      fail "$flag: only the preflight has this flag; use it with ./run python -m inception_v3.preflight"
      ;;
    *) set -- "$@" "$flag" ;;
  esac
done

case " $types " in *" $TPU_TYPE "*) ;; *) fail "TPU_TYPE=$TPU_TYPE: must be one of $types" ;; esac
case $PREEMPTIBLE in true | false) ;; *) fail "PREEMPTIBLE=$PREEMPTIBLE: must be true or false" ;; esac
case $MAX_RESTARTS in '' | *[!0-9]*) fail "MAX_RESTARTS=$MAX_RESTARTS: must be a whole number" ;; esac
case $MAX_RENEWALS in '' | *[!0-9]*) fail "MAX_RENEWALS=$MAX_RENEWALS: must be a whole number" ;; esac
case $RESTART_SECONDS in '' | *[!0-9]*) fail "RESTART_SECONDS=$RESTART_SECONDS: must be a whole number" ;; esac
if ! command -v gcloud >/dev/null && [ -z "$dry_run" ]; then
  fail 'gcloud: not found; install it as in https://cloud.google.com/sdk/docs/install'
fi
# gcloud must never wait for input.
export CLOUDSDK_CORE_DISABLE_PROMPTS=1
PROJECT=${PROJECT:-$(setting project)}
if [ -z "$PROJECT" ]; then
  fail 'PROJECT: not set; use PROJECT=my-project ./run_tpu.sh, or gcloud config set project my-project'
fi
ZONE=${ZONE:-$(setting compute/zone)}
if [ -z "$ZONE" ]; then
  fail "ZONE: not set; use ZONE=us-central1-b ./run_tpu.sh; gcloud compute tpus locations list shows zones with TPUs"
fi
for folder in "$DATA_DIR" "$MODEL_DIR"; do
  case $folder in
    gs:///*) fail 'BUCKET: not set; use BUCKET=my-bucket ./run_tpu.sh, or set DATA_DIR and MODEL_DIR' ;;
    gs://?*) ;;
    *) fail "$folder: must be in Cloud Storage, gs://BUCKET/FOLDER: the node cannot read this machine's files" ;;
  esac
done

if [ "${CLOUD_SHELL:-}" = true ] && [ -z "$create" ]; then
  fail 'Cloud Shell cannot reach a node. Use --create to create the node and a machine that can reach it. For an' \
    "existing node, run this script on a machine in the node's network"
fi
# The command for the virtual machine; then the arguments of both the program and its preflight.
call=$(show ./run_tpu.sh --create "$@")
cores=${TPU_TYPE#*-}
if [ -n "$EXPORT_DIR" ]; then set -- --export_dir="$EXPORT_DIR" "$@"; fi
set -- --num_shards="$cores" --data_dir="$DATA_DIR" --model_dir="$MODEL_DIR" "$@"

made='' unsure='' running='' scratch=$(mktemp -d)
if [ -n "$dry_run" ]; then exec 3>&1; else exec 3>&2; fi
exec 4>&2
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 141' PIPE
trap 'exit 75' TERM

ask_for_state
case $create$state in
  1 | 1UNKNOWN)
    # The state is unknown. Creation fails if the node exists, but the machine made from Cloud Shell would delete it.
    if [ -z "$dry_run" ]; then
      if [ "${CLOUD_SHELL:-}" = true ] || { [ -n "$state" ] && [ -s "$scratch/errors" ]; }; then cannot_say; fi
      unsure=1
    fi
    ;;
  UNKNOWN) cannot_say ;;
  1NOT_FOUND | READY | '') ;;
  1*)
    fail "$TPU_NAME: this node already exists and is $state; it was not changed. Use it without --create, choose" \
      "another TPU_NAME, or delete it with: gcloud compute tpus delete $TPU_NAME --project=$PROJECT --zone=$ZONE"
    ;;
  NOT_FOUND) fail "$TPU_NAME: does not exist in $ZONE; --create creates it, and deletes it at the end" ;;
  *) fail "$TPU_NAME: this node is $state, and must be READY" ;;
esac
checked=
for folder in "$DATA_DIR" "$MODEL_DIR"; do
  folder=${folder#gs://}
  bucket=gs://${folder%%/*}
  if [ "$bucket" = "$checked" ]; then continue; fi
  checked=$bucket
  if ! step gcloud storage ls "$bucket" >/dev/null; then
    fail "$bucket: cannot be listed; gcloud storage buckets create $bucket --location=${ZONE%-*} creates it"
  fi
done
code=0
step "$here/run" python -m inception_v3.preflight --topology="$TPU_TYPE" "$@" || code=$?
if [ "$code" -ne 0 ]; then
  say 'the preflight failed, so nothing was started'
  exit "$code"
fi

if [ "${CLOUD_SHELL:-}" = true ]; then
  hand_over
  exit
fi
if [ -n "$create" ]; then
  say "creating $TPU_NAME, and deleting it at the end; only kill -9 or a crash of this machine could leave it there"
  create_node || fail_for_now "$TPU_NAME could not be created"
fi
say "TensorBoard: ./run tensorboard --logdir=$MODEL_DIR"

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
  get_node_back || exit "$code"
  say "restart $restarts of at most $MAX_RESTARTS without a new checkpoint"
  code=0
  train "$@" || code=$?
done
if [ -z "$dry_run" ]; then say "done: $MODEL_DIR"; fi
