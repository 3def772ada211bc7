#!/bin/sh
# ./run_tpu.sh [--create] [--dry_run] [--FLAG=VALUE …]   trains Inception v3 on a Cloud TPU node.
#
#   --create    make the node, and delete it at the end: after success, an error, Ctrl-C or a lost connection
#   --dry_run   print every command, in order, and run none of them; needs no gcloud
#   --help      print this
#
# Every other flag goes to the program; ./run python -m inception_v3.main --help lists them. Before
# anything costs money, the node's name, the buckets, the flags and the graphs of the run are checked.
# A program that fails is started again and goes on from the last checkpoint, on a new node if the one that
# --create made is lost; only what you have to change (the program's exit code 2) ends the run at once. One that
# SIGTERM has ended (75) goes on, too; a SIGTERM to this script lets the program save its last step, and ends both.
# The node's service account must be allowed to use the buckets. The program talks to the node's internal
# address, so it must run in the node's network. Begun with nohup, it outlives the terminal.
#
# Cloud Shell is in no such network, and ends before a long run does. There, --create makes a machine that
# makes the node, does the run and deletes both, with Cloud Shell or without it. The default service account
# of Compute Engine must be allowed to do that (role Editor).
#
# Variables, taken from the environment, and their defaults:
#
# The Google Cloud project; default: gcloud's own (gcloud config set project PROJECT).
PROJECT=${PROJECT:-}
# The zone of the node; default: gcloud's own (gcloud config set compute/zone ZONE).
ZONE=${ZONE:-}
# The bucket of the data and the results, in the region of the zone.
BUCKET=${BUCKET:-}
BUCKET=${BUCKET#gs://}
# Where the records are, and where checkpoints, results and the SavedModel go (EXPORT_DIR= for no export).
DATA_DIR=${DATA_DIR:-gs://$BUCKET/imagenet}
MODEL_DIR=${MODEL_DIR:-gs://$BUCKET/inception_v3}
EXPORT_DIR=${EXPORT_DIR-$MODEL_DIR/export}
# The node: its name, its type (v2-8, or a slice such as v2-32), its TensorFlow.
TPU_NAME=${TPU_NAME:-inception-v3}
TPU_TYPE=${TPU_TYPE:-v2-8}
TPU_VERSION=${TPU_VERSION:-1.15}
# For --create: preemptible (true or false), the network, and a /29 range of it; default: one that is free.
PREEMPTIBLE=${PREEMPTIBLE:-false}
NETWORK=${NETWORK:-default}
TPU_RANGE=${TPU_RANGE:-}
# How often the program is started again at most without a new checkpoint in between, how often a lost
# node is asked for each time until there is capacity, and the seconds to wait before each.
MAX_RESTARTS=${MAX_RESTARTS:-5}
MAX_RENEWALS=${MAX_RENEWALS:-60}
RESTART_SECONDS=${RESTART_SECONDS:-60}

set -eu

types='v2-8 v2-32 v2-128 v2-256 v2-512 v3-8 v3-32 v3-64 v3-128 v3-256 v3-512 v3-1024 v3-2048'

say() { printf 'run_tpu.sh: %s\n' "$*" >&2; }

fail() {
  say "$@"
  exit 1
}

# Prints a command so that it can be pasted.
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

# Shows a command and runs it; a dry run only shows it. The shell answers a signal at once, which it would
# not do during a command in the foreground. The command itself is spared Ctrl-C and a terminal that closes.
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

# gcloud's setting of that name; empty without one.
setting() {
  value=$(gcloud config get-value "$1" 2>/dev/null) || value=
  case $value in *[!a-z0-9.:-]*) value= ;; esac
  printf '%s' "$value"
}

# Sets $state: READY, PREEMPTED and so on as gcloud says it, NOT_FOUND, UNKNOWN if gcloud fails, or
# nothing if it says nothing.
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
  fail "gcloud cannot say whether there is a node $TPU_NAME in $ZONE"
}

# Whether the last gcloud command that failed said so.
said() { grep -qiE "$1" "$scratch/errors"; }

# Makes one of the tpus or instances, of the node's name, with those flags.
make_it() {
  # From here on it may be there, even if gcloud fails.
  made=$1
  shift
  set -- gcloud compute "$made" create "$TPU_NAME" --project="$PROJECT" --zone="$ZONE" --network="$NETWORK" "$@"
  if step "$@" 2>"$scratch/errors"; then
    unsure=
    return
  fi
  cat "$scratch/errors" >&2
  disown_what_was_there
  return 1
}

# After a failed creation: what was there before, or may have been, is not to be deleted.
disown_what_was_there() {
  if [ -n "$unsure" ] || said 'already[ _]exists'; then made=; fi
}

create_node() {
  set -- --accelerator-type="$TPU_TYPE" --version="$TPU_VERSION"
  if [ -n "$TPU_RANGE" ]; then set -- "$@" --range="$TPU_RANGE"; fi
  if [ "$PREEMPTIBLE" = true ]; then set -- "$@" --preemptible; fi
  make_it tpus "$@"
}

# Deletes what was made.
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
  say "$TPU_NAME COULD NOT BE DELETED, AND COSTS MONEY UNTIL IT IS. Delete it by hand:"
  show "$@" >&2
  return 1
}

# shellcheck disable=SC2317  # The trap calls it.
clean_up() {
  code=$?
  # Nothing interrupts this, and a terminal that is gone does not end it.
  trap '' HUP INT PIPE TERM
  set +e
  # Some shells come here with the output of the command that they were at.
  exec 2>&4
  case $running in
    '') ;;
    # What is being made cannot be deleted before it is there.
    gcloud)
      say 'waiting for gcloud to end what it has begun'
      wait "$!" || disown_what_was_there
      ;;
    *)
      # The program saves the steps that it has done.
      say 'waiting for what was begun to end'
      kill -TERM "$!"
      wait
      ;;
  esac
  if [ -n "$made" ] && ! delete_it && [ "$code" -eq 0 ]; then code=1; fi
  rm -rf "$scratch"
  exit "$code"
}

# Sets $checkpoint, as it was if gcloud fails, and says whether it is another one than before.
there_is_a_new_checkpoint() {
  before=$checkpoint
  # The other lines change each time the program starts.
  if step gcloud storage cat "$MODEL_DIR/checkpoint" >"$scratch/checkpoint" 2>"$scratch/errors"; then
    checkpoint=$(sed -n 's/^model_checkpoint_path: //p' "$scratch/checkpoint")
  fi
  [ "$checkpoint" != "$before" ]
}

# Waits, and makes the node anew if it was made here and is lost.
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
      say "given up: there was no new node in $renewals attempts; this command goes on from the last checkpoint"
      return 1
    fi
  done
}

# Makes a machine that calls this script as it was called here as soon as it is up, and then deletes itself.
hand_over() {
  set -- env
  for name in PROJECT ZONE BUCKET DATA_DIR MODEL_DIR EXPORT_DIR TPU_NAME TPU_TYPE TPU_VERSION PREEMPTIBLE NETWORK \
    TPU_RANGE MAX_RESTARTS MAX_RENEWALS RESTART_SECONDS; do
    eval "set -- \"\$@\" \"$name=\$$name\""
  done
  program=$MODEL_DIR/program at="--project=$PROJECT --zone=$ZONE"
  # What begins with a dot is of this machine alone.
  step gcloud storage rsync --recursive '--exclude=(.*/)?(\.|__pycache__/)|(build|runs|site)/' "$here" "$program" ||
    fail "$program: the program could not be copied there"
  # It shuts down, and costs little, if it is not allowed to delete itself.
  startup="#!/bin/sh
export HOME=/root
cd \"\$(mktemp -d)\"
{
  # There was no such node before this machine: one that is there now is left from before a crash of it.
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
  say "making the machine $TPU_NAME, which makes the node $TPU_NAME, does the run and deletes both at the end"
  make_it instances --machine-type=n1-standard-8 --boot-disk-size=50GB --scopes=cloud-platform \
    --image-family=debian-12 --image-project=debian-cloud --metadata="^@@@^startup-script=$startup" ||
    fail "the machine $TPU_NAME could not be made"
  # From here on it is its own business.
  made=
  say "it goes on without this terminal, and leaves its log at $MODEL_DIR/run_tpu.log. To watch it, and to end it early:
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
  # The program takes -FLAG for --FLAG, too.
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
    --master) fail "$flag: leave it out; the variable TPU_NAME says which node the run is on" ;;
    --topology) fail "$flag: leave it out; the preflight is told the variable TPU_TYPE" ;;
    --use_tpu | --nouse_tpu) fail "$flag: leave it out; the run is always on the node" ;;
    --xla | --noxla | --json | --nojson)
      fail "$flag: only the preflight takes this flag; call ./run python -m inception_v3.preflight with it"
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
  fail 'gcloud: not found; https://cloud.google.com/sdk/docs/install says how to install it'
fi
# No command waits for an answer.
export CLOUDSDK_CORE_DISABLE_PROMPTS=1
PROJECT=${PROJECT:-$(setting project)}
if [ -z "$PROJECT" ]; then
  fail 'PROJECT: no Google Cloud project is set; PROJECT=my-project ./run_tpu.sh, or gcloud config set project my-project'
fi
ZONE=${ZONE:-$(setting compute/zone)}
if [ -z "$ZONE" ]; then
  fail "ZONE: no zone is set; ZONE=us-central1-b ./run_tpu.sh; gcloud compute tpus locations list names those with TPUs"
fi
for folder in "$DATA_DIR" "$MODEL_DIR"; do
  case $folder in
    gs:///*) fail 'BUCKET: no Cloud Storage bucket is set; BUCKET=my-bucket ./run_tpu.sh (or DATA_DIR and MODEL_DIR)' ;;
    gs://?*) ;;
    *) fail "$folder: must be in Cloud Storage, gs://BUCKET/FOLDER: the node does not see this machine's files" ;;
  esac
done

if [ "${CLOUD_SHELL:-}" = true ] && [ -z "$create" ]; then
  fail 'Cloud Shell cannot reach a node; with --create, this makes a machine that can, and the node. For a node that' \
    "is there already, call this on a machine in the node's network"
fi
# What a machine that takes over is told; then, what the program and its preflight are both told.
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
trap 'exit 143' TERM

ask_for_state
case $create$state in
  1 | 1UNKNOWN)
    # gcloud said nothing. A creation fails if there is a node; the machine that takes over deletes the one it finds.
    if [ -z "$dry_run" ]; then
      if [ "${CLOUD_SHELL:-}" = true ] || { [ -n "$state" ] && [ -s "$scratch/errors" ]; }; then cannot_say; fi
      unsure=1
    fi
    ;;
  UNKNOWN) cannot_say ;;
  1NOT_FOUND | READY | '') ;;
  1*)
    fail "$TPU_NAME: this node exists already, and is $state. It is left as it is: use it without --create, choose" \
      "another TPU_NAME, or delete it with: gcloud compute tpus delete $TPU_NAME --project=$PROJECT --zone=$ZONE"
    ;;
  NOT_FOUND) fail "$TPU_NAME: there is no such node in $ZONE; --create makes it, and deletes it at the end" ;;
  *) fail "$TPU_NAME: this node is $state, and must be READY" ;;
esac
checked=
for folder in "$DATA_DIR" "$MODEL_DIR"; do
  folder=${folder#gs://}
  bucket=gs://${folder%%/*}
  if [ "$bucket" = "$checked" ]; then continue; fi
  checked=$bucket
  if ! step gcloud storage ls "$bucket" >/dev/null; then
    fail "$bucket: this bucket cannot be listed; gcloud storage buckets create $bucket --location=${ZONE%-*} makes it"
  fi
done
step "$here/run" python -m inception_v3.preflight --topology="$TPU_TYPE" "$@" ||
  fail 'the preflight failed, so nothing was started'

if [ "${CLOUD_SHELL:-}" = true ]; then
  hand_over
  exit
fi
if [ -n "$create" ]; then
  say "making $TPU_NAME, which is deleted at the end; only kill -9 or a crash of this machine could leave it there"
  create_node || fail "$TPU_NAME could not be made"
fi
say "TensorBoard: ./run tensorboard --logdir=$MODEL_DIR"

code=0 restarts=0 checkpoint=''
train "$@" || code=$?
while [ "$code" -ne 0 ]; do
  case $code in
    2)
      say 'this error would come again; once it is corrected, this command goes on from the last checkpoint'
      exit "$code"
      ;;
    75) say 'the program was ended by a SIGTERM of its own, and has saved its last step' ;;
    129 | 130 | 143)
      say 'the program was interrupted; this command goes on from the last checkpoint'
      exit "$code"
      ;;
  esac
  if there_is_a_new_checkpoint; then restarts=0; fi
  if [ "$restarts" -ge "$MAX_RESTARTS" ]; then
    say "given up after $restarts restarts without a new checkpoint; this command goes on from the last one"
    exit "$code"
  fi
  restarts=$((restarts + 1))
  get_node_back || exit "$code"
  say "restart $restarts of at most $MAX_RESTARTS without a new checkpoint"
  code=0
  train "$@" || code=$?
done
if [ -z "$dry_run" ]; then say "done: $MODEL_DIR"; fi
